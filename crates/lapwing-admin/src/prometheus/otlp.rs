//! The same families as OTLP metrics, cumulative: counters as monotonic sums, histograms as exponential ones; the one family without
//! native buckets has explicit bounds.
//!
//! Names and labels are those of `/metrics`, without `_total`, which a Prometheus that receives OTLP appends again. OTLP's bucket `k`
//! is `(b^k, b^(k+1)]` where Prometheus' bucket `i` is `(b^(i-1), b^i]`, so `k` is `i - 1`; the scale is the schema
//! (<https://opentelemetry.io/docs/specs/otel/metrics/data-model/#exponentialhistogram>).

use std::fmt;

use opentelemetry_proto::tonic::common::v1::any_value::Value as Text;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint,
    Metric, NumberDataPoint, Sum, exemplar,
};

use lapwing_metrics::defs::MetricKind;
use lapwing_metrics::exposition::{
    Encoder, ExemplarSample, FamilyHead, HistogramSample, MAX_BUCKETS, NativeHistogram, SampleLabels, SampleNumber,
};

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;
/// The most exemplars of a histogram, the latest ones.
const EXEMPLARS: usize = 10;

/// Makes metrics, one for each family that has points.
#[derive(Debug)]
pub(crate) struct OtlpEncoder {
    metrics: Vec<Metric>,
    started_unix_ns: u64,
    now_unix_ns: u64,
}

impl OtlpEncoder {
    /// Its points are of `now_unix_ns`, and begin at `started_unix_ns` where their series does not say otherwise.
    pub(crate) const fn new(started_unix_ns: u64, now_unix_ns: u64) -> Self {
        Self { metrics: Vec::new(), started_unix_ns, now_unix_ns }
    }

    /// All metrics.
    pub(crate) fn finish(self) -> Vec<Metric> {
        self.metrics
    }

    fn number(&self, labels: &SampleLabels<'_>, value: SampleNumber, start_time_unix_nano: u64) -> NumberDataPoint {
        let value = match value {
            SampleNumber::Whole(value) => Value::AsInt(i64::try_from(value).unwrap_or(i64::MAX)),
            SampleNumber::Float(value) => Value::AsDouble(value),
        };
        NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano,
            time_unix_nano: self.now_unix_ns,
            value: Some(value),
            ..NumberDataPoint::default()
        }
    }

    fn since(&self, labels: &SampleLabels<'_>) -> u64 {
        labels.since_unix_ns.unwrap_or(self.started_unix_ns)
    }

    /// A histogram of a family that has classic buckets only: one with explicit bounds.
    fn explicit(&mut self, labels: &SampleLabels<'_>, histogram: &HistogramSample<'_>) -> fmt::Result {
        let point = HistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: self.since(labels),
            time_unix_nano: self.now_unix_ns,
            count: histogram.count,
            sum: Some(histogram.sum),
            bucket_counts: histogram.buckets.iter().map(|(_, count)| *count).collect(),
            explicit_bounds: histogram.buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect(),
            exemplars: histogram.exemplars.iter().rev().take(EXEMPLARS).rev().map(exemplar).collect(),
            ..HistogramDataPoint::default()
        };
        let data = self.data()?;
        if matches!(data, Data::ExponentialHistogram(all) if all.data_points.is_empty()) {
            *data = Data::Histogram(Histogram { aggregation_temporality: CUMULATIVE, ..Histogram::default() });
        }
        let Data::Histogram(all) = data else { return Err(fmt::Error) };
        all.data_points.push(point);
        Ok(())
    }

    /// The data of the family that was begun last.
    fn data(&mut self) -> Result<&mut Data, fmt::Error> {
        self.metrics.last_mut().and_then(|metric| metric.data.as_mut()).ok_or(fmt::Error)
    }
}

impl Encoder for OtlpEncoder {
    fn begin(&mut self, head: &FamilyHead<'_>) -> fmt::Result {
        let data = match head.kind {
            MetricKind::Counter => Data::Sum(Sum { aggregation_temporality: CUMULATIVE, is_monotonic: true, ..Sum::default() }),
            MetricKind::Gauge => Data::Gauge(Gauge::default()),
            MetricKind::Histogram => Data::ExponentialHistogram(ExponentialHistogram {
                aggregation_temporality: CUMULATIVE,
                ..ExponentialHistogram::default()
            }),
        };
        self.metrics.push(Metric {
            name: head.name.to_owned(),
            description: head.help.to_owned(),
            unit: ucum(head.unit).to_owned(),
            data: Some(data),
            ..Metric::default()
        });
        Ok(())
    }

    fn counter(&mut self, labels: &SampleLabels<'_>, value: SampleNumber) -> fmt::Result {
        let point = self.number(labels, value, self.since(labels));
        let Data::Sum(sum) = self.data()? else { return Err(fmt::Error) };
        sum.data_points.push(point);
        Ok(())
    }

    fn gauge(&mut self, labels: &SampleLabels<'_>, value: SampleNumber) -> fmt::Result {
        let point = self.number(labels, value, 0);
        let Data::Gauge(gauge) = self.data()? else { return Err(fmt::Error) };
        gauge.data_points.push(point);
        Ok(())
    }

    fn histogram(&mut self, labels: &SampleLabels<'_>, histogram: &HistogramSample<'_>) -> fmt::Result {
        let Some(native) = histogram.native else { return self.explicit(labels, histogram) };
        let (scale, positive) = buckets(native);
        let exemplars = histogram.exemplars.iter().rev().take(EXEMPLARS).rev().map(exemplar).collect();
        let point = ExponentialHistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: self.since(labels),
            time_unix_nano: self.now_unix_ns,
            count: histogram.count,
            sum: Some(histogram.sum),
            scale,
            zero_count: native.zero_count,
            positive: Some(positive),
            exemplars,
            zero_threshold: native.zero_threshold,
            ..ExponentialHistogramDataPoint::default()
        };
        let Data::ExponentialHistogram(all) = self.data()? else { return Err(fmt::Error) };
        all.data_points.push(point);
        Ok(())
    }

    fn end(&mut self) -> fmt::Result {
        let is_empty = match self.data()? {
            Data::Sum(sum) => sum.data_points.is_empty(),
            Data::Gauge(gauge) => gauge.data_points.is_empty(),
            Data::ExponentialHistogram(histogram) => histogram.data_points.is_empty(),
            Data::Histogram(histogram) => histogram.data_points.is_empty(),
            Data::Summary(_) => false,
        };
        if is_empty {
            self.metrics.pop();
        }
        Ok(())
    }
}

/// The unit by UCUM, as OpenTelemetry writes units.
fn ucum(unit: Option<&str>) -> &'static str {
    match unit {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("ratio") => "1",
        _ => "",
    }
}

fn attributes(labels: &SampleLabels<'_>) -> Vec<KeyValue> {
    let attribute = |(key, value): &(&str, &str)| KeyValue {
        key: (*key).to_owned(),
        value: Some(AnyValue { value: Some(Text::StringValue((*value).to_owned())) }),
        ..KeyValue::default()
    };
    labels.pairs.iter().map(attribute).collect()
}

/// The scale and the buckets without gaps, widened until there are at most [`MAX_BUCKETS`], the empty ones included.
fn buckets(native: &NativeHistogram) -> (i32, Buckets) {
    let mut sparse = native.exponential();
    let length = |buckets: &[(i32, u64)]| match buckets {
        [(first, _), .., (last, _)] => last.abs_diff(*first) as usize + 1,
        few => few.len(),
    };
    while length(&sparse.buckets) > MAX_BUCKETS && sparse.widen() {}
    let mut dense = Buckets::default();
    let Some((first, _)) = sparse.buckets.first().copied() else { return (sparse.schema.into(), dense) };
    dense.offset = first - 1;
    dense.bucket_counts = vec![0; length(&sparse.buckets)];
    for (index, count) in sparse.buckets {
        if let Some(own) = dense.bucket_counts.get_mut(index.abs_diff(first) as usize) {
            *own += count;
        }
    }
    (sparse.schema.into(), dense)
}

fn exemplar(sample: &ExemplarSample) -> Exemplar {
    Exemplar {
        time_unix_nano: sample.ended_unix_ns,
        trace_id: sample.trace.0.to_vec(),
        value: Some(exemplar::Value::AsDouble(sample.value)),
        ..Exemplar::default()
    }
}

#[cfg(test)]
mod tests {
    use lapwing_metrics::ExponentialBuckets;

    use super::*;

    fn native(schema: i8, buckets: &[(i32, u64)]) -> NativeHistogram {
        NativeHistogram::of(ExponentialBuckets { schema, zero_threshold: 5e-7, zero_count: 3, buckets: buckets.to_vec() })
    }

    #[test]
    fn buckets_are_dense_one_below_and_at_most_as_many_as_agreed() {
        let of = |schema, given: &[(i32, u64)]| buckets(&native(schema, given));
        assert_eq!(of(5, &[(-3, 2), (-2, 5), (1, 1)]), (5, Buckets { offset: -4, bucket_counts: vec![2, 5, 0, 0, 1] }));
        assert_eq!(of(5, &[]), (5, Buckets::default()));
        assert_eq!(of(3, &[(7, 4)]), (3, Buckets { offset: 6, bucket_counts: vec![4] }));
        // few but far apart: OTLP has no gaps
        let (scale, wide) = of(5, &[(-640, 1), (0, 2), (640, 4)]);
        assert_eq!((scale, wide.bucket_counts.iter().sum::<u64>()), (1, 7));
        assert!(wide.bucket_counts.len() <= MAX_BUCKETS && wide.bucket_counts.len() > MAX_BUCKETS / 2);
        assert_eq!((wide.offset, wide.bucket_counts[40]), (-41, 2));
    }
}
