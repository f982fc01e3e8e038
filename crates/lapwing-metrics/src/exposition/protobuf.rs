//! Prometheus protobuf: length-delimited messages of `io.prometheus.client`, one for each family. The messages have the field
//! numbers of `io/prometheus/client/metrics.proto` in github.com/prometheus/client_model, and only the fields that are used here.
//!
//! It is written by hand, as few fields as it is: `prometheus-client` has an encoder too, but it leaves the exemplars of native histograms
//! and the start of counters empty, lets nobody else make exemplars of buckets, and needs a compiler of `.proto` files in the build; and
//! `prost` would bring its crates into every server that has `lapwing-tower`.

use std::fmt;

use arrayvec::ArrayVec;

use super::encode::{Encoder, ExemplarSample, FamilyHead, HistogramSample, SampleLabels, SampleNumber};
use crate::defs::MetricKind;

/// How many exemplars a native histogram has at most, the latest ones.
const NATIVE_EXEMPLARS: usize = 10;

/// Encoded fields. As in every proto3 encoder, a number that is zero and a text that is empty are left out.
#[derive(Debug, Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn varint(&mut self, value: u64) {
        self.0.extend(varint(value));
    }

    fn tag(&mut self, number: u8, wire_type: u8) {
        self.varint(u64::from(number) << 3 | u64::from(wire_type));
    }

    fn uint(&mut self, number: u8, value: u64) {
        if value != 0 {
            self.tag(number, 0);
            self.varint(value);
        }
    }

    fn sint(&mut self, number: u8, value: i64) {
        self.uint(number, zigzag(value));
    }

    fn double(&mut self, number: u8, value: f64) {
        if value != 0.0 {
            self.tag(number, 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn text(&mut self, number: u8, text: &str) {
        if !text.is_empty() {
            self.delimited(number, |fields| fields.0.extend_from_slice(text.as_bytes()));
        }
    }

    /// What `write` adds, with its length before it.
    fn with_length(&mut self, write: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        write(self);
        let length = self.0.len() - start;
        self.0.splice(start..start, varint(length as u64));
    }

    /// A message, a text or packed numbers.
    fn delimited(&mut self, number: u8, write: impl FnOnce(&mut Self)) {
        self.tag(number, 2);
        self.with_length(write);
    }

    /// `google.protobuf.Timestamp`.
    fn timestamp(&mut self, number: u8, unix_ns: u64) {
        self.delimited(number, |time| {
            time.uint(1, unix_ns / 1_000_000_000);
            time.uint(2, unix_ns % 1_000_000_000);
        });
    }

    /// `LabelPair`.
    fn label(&mut self, number: u8, name: &str, value: &str) {
        self.delimited(number, |pair| {
            pair.text(1, name);
            pair.text(2, value);
        });
    }

    /// `Exemplar`.
    fn exemplar(&mut self, number: u8, exemplar: &ExemplarSample) {
        self.delimited(number, |fields| {
            fields.label(1, "trace_id", &exemplar.trace.to_string());
            fields.double(2, exemplar.value);
            fields.timestamp(3, exemplar.ended_unix_ns);
        });
    }

    /// The fields of `Histogram`.
    fn histogram(&mut self, histogram: &HistogramSample<'_>, has_classic: bool, since_unix_ns: u64) {
        self.uint(1, histogram.count);
        self.double(2, histogram.sum);
        if has_classic || histogram.native.is_none() {
            for (upper_bound, cumulative_count, exemplar) in histogram.cumulative() {
                self.delimited(3, |bucket| {
                    bucket.uint(1, cumulative_count);
                    bucket.double(2, upper_bound);
                    exemplar.inspect(|exemplar| bucket.exemplar(3, exemplar));
                });
            }
        }
        let Some(native) = histogram.native else { return self.timestamp(15, since_unix_ns) };
        self.sint(5, i64::from(native.schema));
        self.double(6, native.zero_threshold);
        self.uint(7, native.zero_count);
        for (offset, length) in &native.spans {
            self.delimited(12, |span| {
                span.sint(1, i64::from(*offset));
                span.uint(2, u64::from(*length));
            });
        }
        if !native.deltas.is_empty() {
            self.delimited(13, |packed| native.deltas.iter().for_each(|delta| packed.varint(zigzag(*delta))));
        }
        self.timestamp(15, since_unix_ns);
        for exemplar in histogram.exemplars.iter().rev().take(NATIVE_EXEMPLARS).rev() {
            self.exemplar(16, exemplar);
        }
    }
}

/// A number in groups of seven bits, the lowest first.
fn varint(value: u64) -> ArrayVec<u8, 10> {
    let (mut bytes, mut rest) = (ArrayVec::new(), value);
    while rest >= 0x80 {
        bytes.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    bytes.push(rest.to_le_bytes()[0]);
    bytes
}

/// Signed numbers in the order 0, -1, 1, -2, so that small ones are short.
const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// Writes messages; only one family exists as a message at a time.
#[derive(Debug)]
pub struct ProtobufEncoder {
    /// A piece for each family.
    out: Vec<Vec<u8>>,
    /// The family that began: its fields before its metrics, its metrics, and its unit, which comes after them.
    family: Fields,
    is_empty: bool,
    unit: String,
    /// Whether histograms that are native have classic buckets too.
    has_classic: bool,
    started_unix_ns: u64,
}

impl ProtobufEncoder {
    /// Counts since `started_unix_ns`, where a series does not say its own. Histograms that are native have classic buckets too if
    /// `has_classic`.
    #[must_use]
    pub fn new(has_classic: bool, started_unix_ns: u64) -> Self {
        let (out, family, unit) = (Vec::new(), Fields::default(), String::new());
        Self { out, family, is_empty: true, unit, has_classic, started_unix_ns }
    }

    /// All messages, one after the other.
    #[must_use]
    pub fn finish(self) -> Vec<Vec<u8>> {
        self.out
    }

    fn since(&self, labels: &SampleLabels<'_>) -> u64 {
        labels.since_unix_ns.unwrap_or(self.started_unix_ns)
    }

    /// A metric with `labels`, whose value `write` writes as the field `number`.
    fn metric(&mut self, labels: &SampleLabels<'_>, number: u8, write: impl FnOnce(&mut Fields)) -> fmt::Result {
        self.is_empty = false;
        self.family.delimited(4, |metric| {
            labels.pairs.iter().for_each(|(name, value)| metric.label(1, name, value));
            metric.delimited(number, write);
        });
        Ok(())
    }
}

impl Encoder for ProtobufEncoder {
    fn begin(&mut self, head: &FamilyHead<'_>) -> fmt::Result {
        let (kind, suffix) = match head.kind {
            MetricKind::Counter => (0, "_total"),
            MetricKind::Gauge => (1, ""),
            MetricKind::Histogram => (4, ""),
        };
        self.family = Fields::default();
        self.family.text(1, &format!("{}{suffix}", head.name));
        self.family.text(2, head.help);
        self.family.uint(3, kind);
        (self.is_empty, self.unit) = (true, head.unit.unwrap_or_default().to_owned());
        Ok(())
    }

    fn counter(&mut self, labels: &SampleLabels<'_>, value: SampleNumber) -> fmt::Result {
        let since = self.since(labels);
        self.metric(labels, 3, |counter| {
            counter.double(1, value.as_f64());
            counter.timestamp(3, since);
        })
    }

    fn gauge(&mut self, labels: &SampleLabels<'_>, value: SampleNumber) -> fmt::Result {
        self.metric(labels, 2, |gauge| gauge.double(1, value.as_f64()))
    }

    fn histogram(&mut self, labels: &SampleLabels<'_>, histogram: &HistogramSample<'_>) -> fmt::Result {
        let (has_classic, since) = (self.has_classic, self.since(labels));
        self.metric(labels, 7, |fields| fields.histogram(histogram, has_classic, since))
    }

    fn end(&mut self) -> fmt::Result {
        if self.is_empty {
            return Ok(());
        }
        self.family.text(5, &self.unit);
        let Fields(family) = std::mem::take(&mut self.family);
        let mut message = Fields::default();
        message.varint(family.len() as u64);
        message.0.extend_from_slice(&family);
        self.out.push(message.0);
        Ok(())
    }
}
