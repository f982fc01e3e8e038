//! OpenMetrics text 1.0, and Prometheus text 0.0.4 for those that do not read it. `prometheus-client` has an encoder of OpenMetrics
//! text, but does not let others make the exemplars that it writes.

use std::fmt::{self, Write};

use super::encode::{Encoder, ExemplarSample, FamilyHead, HistogramSample, SampleLabels, SampleNumber};
use crate::defs::MetricKind;

/// A text that grew as one would be copied at each doubling, and take up to three times its length meanwhile.
const PIECE: usize = 64 << 10;

/// Writes text.
#[derive(Debug)]
pub struct ExpositionTextEncoder {
    /// What is written, in pieces of about [`PIECE`].
    written: Vec<Vec<u8>>,
    /// What follows it.
    out: String,
    /// 0.0.4: counters are named with their suffix, and there are neither units nor exemplars.
    is_plain: bool,
    family: String,
}

impl ExpositionTextEncoder {
    /// Writes OpenMetrics, or Prometheus text 0.0.4 if `is_plain`.
    #[must_use]
    pub const fn new(is_plain: bool) -> Self {
        Self { written: Vec::new(), out: String::new(), is_plain, family: String::new() }
    }

    /// The text of all families, in pieces.
    #[must_use]
    pub fn finish(mut self) -> Vec<Vec<u8>> {
        if !self.is_plain {
            self.out.push_str("# EOF\n");
        }
        self.written.push(self.out.into_bytes());
        self.written
    }

    /// Puts what is written aside, once it is long.
    fn put_aside(&mut self) {
        if self.out.len() >= PIECE {
            let next = String::with_capacity(self.out.len() + PIECE / 8);
            self.written.push(std::mem::replace(&mut self.out, next).into_bytes());
        }
    }

    /// Writes a line up to its value. `bound` is the label `le`.
    fn sample(&mut self, suffix: &str, labels: &SampleLabels<'_>, bound: Option<f64>) -> fmt::Result {
        self.out.push_str(&self.family);
        self.out.push_str(suffix);
        let mut before = '{';
        if let Some(bound) = bound {
            write!(self.out, "{before}le=\"")?;
            float(&mut self.out, bound);
            self.out.push('"');
            before = ',';
        }
        for (name, value) in &labels.pairs {
            write!(self.out, "{before}{name}=\"")?;
            escape(&mut self.out, value);
            self.out.push('"');
            before = ',';
        }
        self.out.push_str(if before == ',' { "} " } else { " " });
        Ok(())
    }

    fn number(&mut self, value: SampleNumber) -> fmt::Result {
        match value {
            SampleNumber::Whole(value) => write!(self.out, "{value}")?,
            SampleNumber::Float(value) => float(&mut self.out, value),
        }
        self.out.push('\n');
        Ok(())
    }

    fn exemplar(&mut self, exemplar: &ExemplarSample) -> fmt::Result {
        write!(self.out, " # {{trace_id=\"{}\"}} ", exemplar.trace)?;
        float(&mut self.out, exemplar.value);
        let (seconds, ms) = (exemplar.ended_unix_ns / 1_000_000_000, exemplar.ended_unix_ns / 1_000_000 % 1_000);
        write!(self.out, " {seconds}.{ms:03}")
    }
}

impl Encoder for ExpositionTextEncoder {
    fn begin(&mut self, head: &FamilyHead<'_>) -> fmt::Result {
        let FamilyHead { name, kind, unit, help } = *head;
        name.clone_into(&mut self.family);
        let suffix = if self.is_plain && kind == MetricKind::Counter { "_total" } else { "" };
        writeln!(self.out, "# HELP {name}{suffix} {help}")?;
        writeln!(self.out, "# TYPE {name}{suffix} {}", kind.name())?;
        match unit.filter(|_| !self.is_plain) {
            Some(unit) => writeln!(self.out, "# UNIT {name} {unit}"),
            None => Ok(()),
        }
    }

    fn counter(&mut self, labels: &SampleLabels<'_>, value: SampleNumber) -> fmt::Result {
        self.sample("_total", labels, None)?;
        self.number(value)?;
        self.put_aside();
        Ok(())
    }

    fn gauge(&mut self, labels: &SampleLabels<'_>, value: SampleNumber) -> fmt::Result {
        self.sample("", labels, None)?;
        self.number(value)?;
        self.put_aside();
        Ok(())
    }

    fn histogram(&mut self, labels: &SampleLabels<'_>, histogram: &HistogramSample<'_>) -> fmt::Result {
        self.sample("_sum", labels, None)?;
        self.number(SampleNumber::Float(histogram.sum))?;
        self.sample("_count", labels, None)?;
        self.number(SampleNumber::Whole(histogram.count))?;
        for (bound, count, exemplar) in histogram.cumulative() {
            self.sample("_bucket", labels, Some(bound))?;
            write!(self.out, "{count}")?;
            if let Some(exemplar) = exemplar.filter(|_| !self.is_plain) {
                self.exemplar(exemplar)?;
            }
            self.out.push('\n');
        }
        self.put_aside();
        Ok(())
    }

    fn end(&mut self) -> fmt::Result {
        Ok(())
    }
}

fn escape(out: &mut String, value: &str) {
    let mut rest = value;
    while let Some(at) = rest.find(['\\', '"', '\n']) {
        let (clean, special) = rest.split_at(at);
        out.push_str(clean);
        out.push_str(match special.as_bytes()[0] {
            b'\n' => "\\n",
            b'"' => "\\\"",
            _ => "\\\\",
        });
        rest = &special[1..];
    }
    out.push_str(rest);
}

fn float(out: &mut String, value: f64) {
    if value == f64::INFINITY {
        out.push_str("+Inf");
    } else {
        out.push_str(dtoa::Buffer::new().format(value));
    }
}
