//! What a scrape consists of, whatever its format: families with counters, gauges and histograms. Each format is an [`Encoder`].

use std::fmt;

use super::native::NativeHistogram;
use lapwing_ledger::TraceId;
use lapwing_metrics::defs::{MetricFamily, MetricKind};

/// Writes one family after the other in a format.
pub(crate) trait Encoder {
    /// Begins a family.
    fn begin(&mut self, head: &FamilyHead<'_>) -> fmt::Result;
    /// Writes a sample of a counter.
    fn counter(&mut self, labels: &Labels<'_>, value: Number) -> fmt::Result;
    /// Writes a sample of a gauge.
    fn gauge(&mut self, labels: &Labels<'_>, value: Number) -> fmt::Result;
    /// Writes a histogram.
    fn histogram(&mut self, labels: &Labels<'_>, histogram: &HistogramSample<'_>) -> fmt::Result;
    /// Ends the family.
    fn end(&mut self) -> fmt::Result;
}

/// What all samples of a family have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FamilyHead<'a> {
    /// The name without `_total`.
    pub(crate) name: &'a str,
    pub(crate) kind: MetricKind,
    pub(crate) unit: Option<&'a str>,
    pub(crate) help: &'a str,
}

/// The names and values of a sample's labels, and since when it counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels<'a> {
    pub(crate) pairs: Vec<(&'static str, &'a str)>,
    /// In nanoseconds since the Unix epoch; `None`: since the process started.
    pub(crate) since_unix_ns: Option<u64>,
}

impl<'a> From<Vec<(&'static str, &'a str)>> for Labels<'a> {
    fn from(pairs: Vec<(&'static str, &'a str)>) -> Self {
        Self { pairs, since_unix_ns: None }
    }
}

/// The value of a counter or a gauge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Whole(u64),
    Float(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl Number {
    #[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point only")]
    pub(crate) const fn as_f64(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

/// A request that stands for the bucket that its value is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExemplarSample {
    pub(crate) trace: TraceId,
    pub(crate) value: f64,
    pub(crate) ended_unix_ns: u64,
}

/// One histogram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistogramSample<'a> {
    pub(crate) count: u64,
    pub(crate) sum: f64,
    /// Upper bounds, the last one infinite, and the values in each bucket, not cumulative.
    pub(crate) buckets: &'a [(f64, u64)],
    /// The same values by exponential buckets, if the format has them.
    pub(crate) native: Option<&'a NativeHistogram>,
    /// In the order in which they ended.
    pub(crate) exemplars: &'a [ExemplarSample],
}

impl HistogramSample<'_> {
    /// The classic buckets, cumulative, each with its latest exemplar.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64, Option<&ExemplarSample>)> {
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
pub(crate) fn family(
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
pub(crate) fn count<'a>(encoder: &mut dyn Encoder, labels: impl Into<Labels<'a>>, value: impl Into<Number>) -> fmt::Result {
    encoder.counter(&labels.into(), value.into())
}

/// Writes a sample of a gauge.
pub(crate) fn gauge<'a>(encoder: &mut dyn Encoder, labels: impl Into<Labels<'a>>, value: impl Into<Number>) -> fmt::Result {
    encoder.gauge(&labels.into(), value.into())
}
