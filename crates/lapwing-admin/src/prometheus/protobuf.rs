//! Prometheus protobuf: length-delimited messages of `io.prometheus.client`, one for each family. The messages have the field
//! numbers of `io/prometheus/client/metrics.proto` in github.com/prometheus/client_model, and only the fields that are used here.
//!
//! `prometheus-client` has an encoder of these too, but it leaves the exemplars of native histograms and the start of counters empty,
//! does not let others make exemplars of buckets, and needs a compiler of `.proto` files in the build.

use std::fmt;

use prost::{Message, Oneof};

use lapwing_metrics::defs::MetricKind;
use lapwing_metrics::exposition::{Encoder, ExemplarSample, FamilyHead, HistogramSample, SampleLabels, SampleNumber};

/// How many exemplars a native histogram has at most, the latest ones.
const NATIVE_EXEMPLARS: usize = 10;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetricFamily {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) help: String,
    /// 0 is a counter, 1 a gauge, 4 a histogram.
    #[prost(int32, tag = "3")]
    pub(crate) kind: i32,
    #[prost(message, repeated, tag = "4")]
    pub(crate) metric: Vec<Metric>,
    #[prost(string, tag = "5")]
    pub(crate) unit: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub(crate) label: Vec<LabelPair>,
    #[prost(oneof = "Value", tags = "2, 3, 7")]
    pub(crate) value: Option<Value>,
}

/// In `metrics.proto` these are three fields, of which one is set.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Value {
    #[prost(message, tag = "2")]
    Gauge(Gauge),
    #[prost(message, tag = "3")]
    Counter(Counter),
    #[prost(message, tag = "7")]
    Histogram(Histogram),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LabelPair {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Gauge {
    #[prost(double, tag = "1")]
    pub(crate) value: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Counter {
    #[prost(double, tag = "1")]
    pub(crate) value: f64,
    #[prost(message, optional, tag = "3")]
    pub(crate) start_timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Histogram {
    #[prost(uint64, tag = "1")]
    pub(crate) sample_count: u64,
    #[prost(double, tag = "2")]
    pub(crate) sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    pub(crate) schema: i32,
    #[prost(double, tag = "6")]
    pub(crate) zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    pub(crate) zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    pub(crate) positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "13")]
    pub(crate) positive_delta: Vec<i64>,
    #[prost(message, optional, tag = "15")]
    pub(crate) start_timestamp: Option<Timestamp>,
    #[prost(message, repeated, tag = "16")]
    pub(crate) exemplars: Vec<Exemplar>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Bucket {
    #[prost(uint64, tag = "1")]
    pub(crate) cumulative_count: u64,
    #[prost(double, tag = "2")]
    pub(crate) upper_bound: f64,
    #[prost(message, optional, tag = "3")]
    pub(crate) exemplar: Option<Exemplar>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct BucketSpan {
    #[prost(sint32, tag = "1")]
    pub(crate) offset: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) length: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    pub(crate) label: Vec<LabelPair>,
    #[prost(double, tag = "2")]
    pub(crate) value: f64,
    #[prost(message, optional, tag = "3")]
    pub(crate) timestamp: Option<Timestamp>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

impl Timestamp {
    fn of(unix_ns: u64) -> Self {
        let (seconds, nanos) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000);
        Self { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: i32::try_from(nanos).unwrap_or(0) }
    }
}

impl Exemplar {
    fn of(exemplar: &ExemplarSample) -> Self {
        let label = LabelPair { name: "trace_id".to_owned(), value: exemplar.trace.to_string() };
        Self { label: vec![label], value: exemplar.value, timestamp: Some(Timestamp::of(exemplar.ended_unix_ns)) }
    }
}

/// Writes messages; only one family exists as a message at a time.
#[derive(Debug)]
pub(crate) struct ProtobufEncoder {
    /// A piece for each family.
    out: Vec<Vec<u8>>,
    family: MetricFamily,
    /// Whether histograms that are native have classic buckets too.
    has_classic: bool,
    started_unix_ns: u64,
}

impl ProtobufEncoder {
    pub(crate) fn new(has_classic: bool, started_unix_ns: u64) -> Self {
        Self { out: Vec::new(), family: MetricFamily::default(), has_classic, started_unix_ns }
    }

    /// All messages, one after the other.
    pub(crate) fn finish(self) -> Vec<Vec<u8>> {
        self.out
    }

    fn since(&self, labels: &SampleLabels<'_>) -> Option<Timestamp> {
        Some(Timestamp::of(labels.since_unix_ns.unwrap_or(self.started_unix_ns)))
    }

    fn push(&mut self, labels: &SampleLabels<'_>, value: Value) -> fmt::Result {
        let pair = |(name, value): &(&str, &str)| LabelPair { name: (*name).to_owned(), value: (*value).to_owned() };
        self.family.metric.push(Metric { label: labels.pairs.iter().map(pair).collect(), value: Some(value) });
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
        let (name, unit) = (format!("{}{suffix}", head.name), head.unit.unwrap_or_default().to_owned());
        self.family = MetricFamily { name, help: head.help.to_owned(), kind, metric: Vec::new(), unit };
        Ok(())
    }

    fn counter(&mut self, labels: &SampleLabels<'_>, value: SampleNumber) -> fmt::Result {
        self.push(labels, Value::Counter(Counter { value: value.as_f64(), start_timestamp: self.since(labels) }))
    }

    fn gauge(&mut self, labels: &SampleLabels<'_>, value: SampleNumber) -> fmt::Result {
        self.push(labels, Value::Gauge(Gauge { value: value.as_f64() }))
    }

    fn histogram(&mut self, labels: &SampleLabels<'_>, histogram: &HistogramSample<'_>) -> fmt::Result {
        let mut made = Histogram {
            sample_count: histogram.count,
            sample_sum: histogram.sum,
            start_timestamp: self.since(labels),
            ..Histogram::default()
        };
        if self.has_classic || histogram.native.is_none() {
            let bucket = |(upper_bound, cumulative_count, exemplar): (_, _, Option<&ExemplarSample>)| Bucket {
                cumulative_count,
                upper_bound,
                exemplar: exemplar.map(Exemplar::of),
            };
            made.bucket = histogram.cumulative().map(bucket).collect();
        }
        if let Some(native) = histogram.native {
            let latest = histogram.exemplars.iter().rev().take(NATIVE_EXEMPLARS).rev();
            made.exemplars = latest.map(Exemplar::of).collect();
            (made.schema, made.zero_threshold, made.zero_count) = (native.schema, native.zero_threshold, native.zero_count);
            made.positive_span =
                native.spans.iter().map(|(offset, length)| BucketSpan { offset: *offset, length: *length }).collect();
            made.positive_delta.clone_from(&native.deltas);
        }
        self.push(labels, Value::Histogram(made))
    }

    fn end(&mut self) -> fmt::Result {
        if self.family.metric.is_empty() {
            return Ok(());
        }
        self.out.push(self.family.encode_length_delimited_to_vec());
        Ok(())
    }
}
