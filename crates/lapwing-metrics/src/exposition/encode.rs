//! What a scrape consists of, whatever its format: families with counters, gauges and histograms. Each format is an [`Encoder`].

use std::fmt;

use super::native::NativeHistogram;
use crate::defs::{MetricFamily, MetricKind};
use lapwing_ledger::TraceId;

/// Writes one family after the other in a format.
#[allow(clippy::missing_errors_doc, reason = "no encoder fails: writing into memory does not")]
pub trait Encoder {
    /// Begins a family.
    fn begin(&mut self, head: &FamilyHead<'_>) -> fmt::Result;
    /// Writes a sample of a counter.
    fn counter(&mut self, labels: &SampleLabels<'_>, value: SampleNumber) -> fmt::Result;
    /// Writes a sample of a gauge.
    fn gauge(&mut self, labels: &SampleLabels<'_>, value: SampleNumber) -> fmt::Result;
    /// Writes a histogram.
    fn histogram(&mut self, labels: &SampleLabels<'_>, histogram: &HistogramSample<'_>) -> fmt::Result;
    /// Ends the family.
    fn end(&mut self) -> fmt::Result;
}

/// What all samples of a family have in common.
#[derive(Clone, Copy, Debug)]
pub struct FamilyHead<'a> {
    /// The name without `_total`.
    pub name: &'a str,
    /// Counter, gauge or histogram.
    pub kind: MetricKind,
    /// The unit, which the name ends in.
    pub unit: Option<&'a str>,
    /// What it counts or measures.
    pub help: &'a str,
}

/// The names and values of a sample's labels, and since when it counts.
#[derive(Clone, Debug, Default)]
pub struct SampleLabels<'a> {
    /// In the order in which they are written.
    pub pairs: Vec<(&'a str, &'a str)>,
    /// In nanoseconds since the Unix epoch; `None`: since the process started.
    pub since_unix_ns: Option<u64>,
}

impl<'a> From<Vec<(&'a str, &'a str)>> for SampleLabels<'a> {
    fn from(pairs: Vec<(&'a str, &'a str)>) -> Self {
        Self { pairs, since_unix_ns: None }
    }
}

/// The value of a counter or a gauge.
#[derive(Clone, Copy, Debug)]
pub enum SampleNumber {
    /// A whole number.
    Whole(u64),
    /// Any other.
    Float(f64),
}

impl From<u64> for SampleNumber {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for SampleNumber {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl SampleNumber {
    /// The value, to the 53 bits of a float.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point only")]
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

/// The example request of the bucket that its value is in.
#[derive(Clone, Copy, Debug)]
pub struct ExemplarSample {
    /// Its trace.
    pub trace: TraceId,
    /// Its value, in the family's unit.
    pub value: f64,
    /// When it ended, in nanoseconds since the Unix epoch.
    pub ended_unix_ns: u64,
}

/// One histogram.
#[derive(Clone, Copy, Debug)]
pub struct HistogramSample<'a> {
    /// How many values there are.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// Upper bounds, the last one infinite, and the values in each bucket, not cumulative.
    pub buckets: &'a [(f64, u64)],
    /// The same values by exponential buckets, if the format has them.
    pub native: Option<&'a NativeHistogram>,
    /// In the order in which they ended.
    pub exemplars: &'a [ExemplarSample],
}

impl HistogramSample<'_> {
    /// The classic buckets, cumulative, each with its latest exemplar.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64, Option<&ExemplarSample>)> {
        let (mut below, mut lower) = (0, f64::NEG_INFINITY);
        self.buckets.iter().map(move |(bound, count)| {
            let is_within = |one: &&ExemplarSample| *count > 0 && one.value > lower && one.value <= *bound;
            let exemplar = self.exemplars.iter().rev().find(is_within);
            (below, lower) = (below + count, *bound);
            (*bound, below, exemplar)
        })
    }
}

/// Writes a family of the table.
///
/// # Errors
///
/// When it cannot be encoded, which does not happen.
pub fn family(
    encoder: &mut dyn Encoder,
    definition: &MetricFamily,
    samples: impl FnOnce(&mut dyn Encoder) -> fmt::Result,
) -> fmt::Result {
    let MetricFamily { name, kind, unit, help, .. } = *definition;
    encoder.begin(&FamilyHead { name, kind, unit, help })?;
    samples(encoder)?;
    encoder.end()
}

/// Writes a sample of a counter.
///
/// # Errors
///
/// When it cannot be encoded, which does not happen.
pub fn count<'a>(encoder: &mut dyn Encoder, labels: impl Into<SampleLabels<'a>>, value: impl Into<SampleNumber>) -> fmt::Result {
    encoder.counter(&labels.into(), value.into())
}

/// Writes a sample of a gauge.
///
/// # Errors
///
/// When it cannot be encoded, which does not happen.
pub fn gauge<'a>(encoder: &mut dyn Encoder, labels: impl Into<SampleLabels<'a>>, value: impl Into<SampleNumber>) -> fmt::Result {
    encoder.gauge(&labels.into(), value.into())
}
