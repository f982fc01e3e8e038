//! Delta temporality: what came since the last request that the collector took. What it did not take is in the next one.
//!
//! It keeps the last accepted state of each point of a counter or a histogram, so it is as large as one request.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogramDataPoint, HistogramDataPoint, Metric, NumberDataPoint,
};
use prost::Message;
use rustc_hash::FxHashMap;

/// A point's metric and its attributes.
type PointKey = (String, Vec<u8>);

/// Cumulative points by metric and attributes.
#[derive(Debug, Default)]
pub(crate) struct CumulativePoints {
    numbers: FxHashMap<PointKey, NumberDataPoint>,
    histograms: FxHashMap<PointKey, ExponentialHistogramDataPoint>,
    /// Those with explicit bounds.
    explicit: FxHashMap<PointKey, HistogramDataPoint>,
}

impl CumulativePoints {
    /// The counters and histograms of `metrics`, which are cumulative.
    pub(crate) fn of(metrics: &[Metric]) -> Self {
        let mut points = Self::default();
        for metric in metrics {
            match &metric.data {
                Some(Data::Sum(sum)) => {
                    let keyed = sum.data_points.iter().map(|point| (key(metric, &point.attributes), point.clone()));
                    points.numbers.extend(keyed);
                }
                Some(Data::ExponentialHistogram(histogram)) => {
                    let keyed = histogram.data_points.iter().map(|point| (key(metric, &point.attributes), point.clone()));
                    points.histograms.extend(keyed);
                }
                Some(Data::Histogram(histogram)) => {
                    let keyed = histogram.data_points.iter().map(|point| (key(metric, &point.attributes), point.clone()));
                    points.explicit.extend(keyed);
                }
                _ => {}
            }
        }
        points
    }

    /// `metrics`, which are cumulative, as what came since these points. Points to which nothing came are left out; gauges stay.
    pub(crate) fn until(&self, metrics: Vec<Metric>) -> Vec<Metric> {
        metrics.into_iter().filter_map(|metric| self.since(metric)).collect()
    }

    fn since(&self, mut metric: Metric) -> Option<Metric> {
        let key = |attributes: &[KeyValue]| key(&metric, attributes);
        let mut data = metric.data.clone()?;
        match &mut data {
            Data::Sum(sum) => {
                sum.aggregation_temporality = AggregationTemporality::Delta.into();
                sum.data_points.retain_mut(|point| {
                    let before = self.numbers.get(&key(&point.attributes));
                    subtract_number(point, before.filter(|before| before.start_time_unix_nano == point.start_time_unix_nano))
                });
                (!sum.data_points.is_empty()).then_some(())?;
            }
            Data::ExponentialHistogram(histogram) => {
                histogram.aggregation_temporality = AggregationTemporality::Delta.into();
                histogram.data_points.retain_mut(|point| {
                    let before = self.histograms.get(&key(&point.attributes));
                    subtract_histogram(point, before.filter(|before| before.start_time_unix_nano == point.start_time_unix_nano))
                });
                (!histogram.data_points.is_empty()).then_some(())?;
            }
            Data::Histogram(histogram) => {
                histogram.aggregation_temporality = AggregationTemporality::Delta.into();
                histogram.data_points.retain_mut(|point| {
                    let before = self.explicit.get(&key(&point.attributes));
                    subtract_explicit(point, before.filter(|before| before.start_time_unix_nano == point.start_time_unix_nano))
                });
                (!histogram.data_points.is_empty()).then_some(())?;
            }
            Data::Gauge(_) | Data::Summary(_) => {}
        }
        metric.data = Some(data);
        Some(metric)
    }
}

fn key(metric: &Metric, attributes: &[KeyValue]) -> PointKey {
    (metric.name.clone(), attributes.iter().flat_map(KeyValue::encode_length_delimited_to_vec).collect())
}

/// Takes what was there `before` off `point`. Returns whether anything is left.
fn subtract_number(point: &mut NumberDataPoint, before: Option<&NumberDataPoint>) -> bool {
    if let Some(before) = before {
        point.start_time_unix_nano = before.time_unix_nano;
        match (&mut point.value, &before.value) {
            (Some(Value::AsInt(now)), Some(Value::AsInt(then))) => *now = now.saturating_sub(*then),
            (Some(Value::AsDouble(now)), Some(Value::AsDouble(then))) => *now -= then,
            _ => {}
        }
    }
    !matches!(point.value, None | Some(Value::AsInt(0) | Value::AsDouble(0.0)))
}

fn subtract_histogram(point: &mut ExponentialHistogramDataPoint, before: Option<&ExponentialHistogramDataPoint>) -> bool {
    if let Some(before) = before {
        point.start_time_unix_nano = before.time_unix_nano;
        point.count = point.count.saturating_sub(before.count);
        point.sum = point.sum.map(|now| now - before.sum.unwrap_or(0.0));
        point.zero_count = point.zero_count.saturating_sub(before.zero_count);
        let since = point.start_time_unix_nano;
        // only exemplars of requests since then are new
        point.exemplars.retain(|exemplar| exemplar.time_unix_nano >= since);
        // a histogram that grows has the buckets that it had, or wider ones
        let widened = u32::try_from(before.scale - point.scale).unwrap_or(0).min(31);
        if let (Some(now), Some(then)) = (&mut point.positive, &before.positive) {
            for (index, count) in (then.offset..).zip(&then.bucket_counts) {
                let at = usize::try_from((index >> widened) - now.offset).ok();
                if let Some(own) = at.and_then(|at| now.bucket_counts.get_mut(at)) {
                    *own = own.saturating_sub(*count);
                }
            }
            trim(now);
        }
    }
    point.count > 0
}

/// The bounds of a family never change.
fn subtract_explicit(point: &mut HistogramDataPoint, before: Option<&HistogramDataPoint>) -> bool {
    if let Some(before) = before {
        point.start_time_unix_nano = before.time_unix_nano;
        point.count = point.count.saturating_sub(before.count);
        point.sum = point.sum.map(|now| now - before.sum.unwrap_or(0.0));
        for (own, count) in point.bucket_counts.iter_mut().zip(&before.bucket_counts) {
            *own = own.saturating_sub(*count);
        }
        let since = point.start_time_unix_nano;
        point.exemplars.retain(|exemplar| exemplar.time_unix_nano >= since);
    }
    point.count > 0
}

/// Removes empty buckets at both ends.
fn trim(buckets: &mut Buckets) {
    let first = buckets.bucket_counts.iter().position(|count| *count > 0).unwrap_or(buckets.bucket_counts.len());
    buckets.bucket_counts.drain(..first);
    buckets.offset += i32::try_from(first).unwrap_or(0);
    while buckets.bucket_counts.pop_if(|count| *count == 0).is_some() {}
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::metrics::v1::{ExponentialHistogram, Gauge, Histogram, Sum};

    use super::*;

    fn sum(value: Value, start: u64, time: u64) -> Metric {
        let point = NumberDataPoint {
            start_time_unix_nano: start,
            time_unix_nano: time,
            value: Some(value),
            ..NumberDataPoint::default()
        };
        let sum = Sum { data_points: vec![point], is_monotonic: true, ..Sum::default() };
        Metric { name: "n".to_owned(), data: Some(Data::Sum(sum)), ..Metric::default() }
    }

    fn histogram(scale: i32, offset: i32, counts: &[u64], time: u64) -> Metric {
        let count: u64 = counts.iter().sum();
        let point = ExponentialHistogramDataPoint {
            start_time_unix_nano: 1,
            time_unix_nano: time,
            count: count + 1,
            sum: Some(count as f64),
            scale,
            zero_count: 1,
            positive: Some(Buckets { offset, bucket_counts: counts.to_vec() }),
            ..ExponentialHistogramDataPoint::default()
        };
        let data = ExponentialHistogram { data_points: vec![point], ..ExponentialHistogram::default() };
        Metric { name: "h".to_owned(), data: Some(Data::ExponentialHistogram(data)), ..Metric::default() }
    }

    fn number(metric: &Metric) -> (u64, Value) {
        match &metric.data {
            Some(Data::Sum(sum)) => (sum.data_points[0].start_time_unix_nano, sum.data_points[0].value.unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_counter_is_what_came_since_and_a_series_that_began_anew_is_whole() {
        let before = CumulativePoints::of(&[sum(Value::AsInt(7), 1, 10)]);
        assert_eq!(number(&before.until(vec![sum(Value::AsInt(9), 1, 20)])[0]), (10, Value::AsInt(2)));
        assert_eq!(before.until(vec![sum(Value::AsInt(7), 1, 20)]), [], "nothing came");
        assert_eq!(number(&before.until(vec![sum(Value::AsInt(3), 5, 20)])[0]), (5, Value::AsInt(3)), "another series");
        let seconds = CumulativePoints::of(&[sum(Value::AsDouble(0.5), 1, 10)]);
        assert_eq!(number(&seconds.until(vec![sum(Value::AsDouble(0.75), 1, 20)])[0]), (10, Value::AsDouble(0.25)));
        let gauge = Metric { data: Some(Data::Gauge(Gauge::default())), ..Metric::default() };
        assert_eq!(before.until(vec![gauge.clone()]), [gauge], "a gauge is what it is");
    }

    #[test]
    fn a_histogram_is_what_came_since_also_where_its_buckets_grew_wider() {
        let before = CumulativePoints::of(&[histogram(3, -4, &[5, 0, 2, 1], 10)]);
        let points = |metrics: Vec<Metric>| match metrics.into_iter().next().unwrap().data {
            Some(Data::ExponentialHistogram(mut of)) => of.data_points.remove(0),
            other => panic!("{other:?}"),
        };
        let same = points(before.until(vec![histogram(3, -4, &[5, 0, 4, 1, 0, 3], 20)]));
        assert_eq!((same.count, same.sum, same.zero_count, same.start_time_unix_nano), (5, Some(5.0), 0, 10));
        assert_eq!(same.positive.unwrap(), Buckets { offset: -2, bucket_counts: vec![2, 0, 0, 3] });
        // one scale wider: -4, -3 → -2; -2, -1 → -1
        let wider = points(before.until(vec![histogram(2, -2, &[6, 3, 1], 20)]));
        assert_eq!(wider.positive.unwrap(), Buckets { offset: -2, bucket_counts: vec![1, 0, 1] });
        assert_eq!(before.until(vec![histogram(3, -4, &[5, 0, 2, 1], 20)]), []);
    }

    #[test]
    fn explicit_bounds_stay_and_their_counts_are_what_came_since() {
        let explicit = |counts: &[u64], time| {
            let point = HistogramDataPoint {
                start_time_unix_nano: 1,
                time_unix_nano: time,
                count: counts.iter().sum(),
                sum: Some(counts.iter().sum::<u64>() as f64),
                bucket_counts: counts.to_vec(),
                explicit_bounds: vec![1.0],
                ..HistogramDataPoint::default()
            };
            let data = Histogram { data_points: vec![point], ..Histogram::default() };
            Metric { name: "r".to_owned(), data: Some(Data::Histogram(data)), ..Metric::default() }
        };
        let before = CumulativePoints::of(&[explicit(&[2, 3], 10)]);
        let Some(Data::Histogram(delta)) = before.until(vec![explicit(&[2, 7], 20)]).remove(0).data else { panic!() };
        let point = &delta.data_points[0];
        assert_eq!(
            (&point.bucket_counts[..], point.count, point.sum, point.start_time_unix_nano),
            (&[0, 4][..], 4, Some(4.0), 10)
        );
        assert_eq!((delta.aggregation_temporality, &point.explicit_bounds[..]), (1, &[1.0][..]));
        assert_eq!(before.until(vec![explicit(&[2, 3], 20)]), []);
    }
}
