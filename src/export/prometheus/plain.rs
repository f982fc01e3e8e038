//! Rewrites OpenMetrics text as Prometheus text 0.0.4, line by line, where a counter's family has the suffix `_total` too.

use std::fmt::{self, Write};

use crate::metrics::defs::MetricKind;

/// Writes to `out` what it is given, rewritten. The last line needs its end.
pub(super) struct PlainWriter<'a, W> {
    out: &'a mut W,
    line: String,
    help: String,
}

impl<'a, W: Write> PlainWriter<'a, W> {
    pub(super) const fn new(out: &'a mut W) -> Self {
        Self { out, line: String::new(), help: String::new() }
    }

    fn end_line(&mut self) -> fmt::Result {
        let mut words = self.line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), _, help) => {
                self.help.clear();
                self.help.push_str(help.unwrap_or_default());
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let suffix = if kind == MetricKind::Counter.name() { "_total" } else { "" };
                let help = &self.help;
                write!(self.out, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n")?;
            }
            (Some("#"), ..) => {}
            _ => {
                self.line.push('\n');
                self.out.write_str(&self.line)?;
            }
        }
        self.line.clear();
        Ok(())
    }
}

impl<W: Write> Write for PlainWriter<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive('\n') {
            match part.strip_suffix('\n') {
                Some(end) => {
                    self.line.push_str(end);
                    self.end_line()?;
                }
                None => self.line.push_str(part),
            }
        }
        Ok(())
    }
}
