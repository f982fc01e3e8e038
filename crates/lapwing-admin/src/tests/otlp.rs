//! The OTLP metrics say what `/metrics` says: the same families, counts and sums.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;

use super::fixture::busy;
use crate::otlp_metrics;
use lapwing_metrics::{Counter, defs};

fn named<'a>(metrics: &'a [Metric], name: &str) -> &'a Metric {
    metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name} is missing"))
}

#[test]
fn families_are_those_of_the_table_and_every_count_is_exact() {
    let surfaces = busy();
    surfaces.counters.set(Counter::ExpiryListen, 4_102_444_800);
    let metrics = otlp_metrics(&surfaces);
    let known: BTreeSet<String> = defs::FAMILIES.iter().map(|family| family.name.to_owned()).collect();
    let rows: BTreeSet<String> = defs::row_families().into_iter().map(|family| family.name.to_owned()).collect();
    let names: Vec<&str> = metrics.iter().map(|metric| &*metric.name).collect();
    assert!(names.iter().all(|name| known.contains(*name) || rows.contains(*name)), "{names:?}");
    assert!(rows.iter().all(|row| names.contains(&&**row)), "{names:?}");
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "each once");

    let Some(Data::ExponentialHistogram(histogram)) = &named(&metrics, "lapwing_request_duration_seconds").data else { panic!() };
    let (mut count, mut exemplars) = (0, 0);
    for point in &histogram.data_points {
        let in_buckets: u64 = point.positive.as_ref().unwrap().bucket_counts.iter().sum();
        assert_eq!((in_buckets + point.zero_count, point.scale <= 5), (point.count, true));
        assert!(point.start_time_unix_nano >= surfaces.started_unix_ns && point.time_unix_nano >= point.start_time_unix_nano);
        count += point.count;
        exemplars += point.exemplars.len();
    }
    assert_eq!(histogram.aggregation_temporality, 2);
    assert!(exemplars > 0);
    let Some(Data::Sum(requests)) = &named(&metrics, "lapwing_requests").data else { panic!() };
    let value = |value: &Option<Value>| match value {
        Some(Value::AsInt(value)) => value.unsigned_abs(),
        other => panic!("{other:?}"),
    };
    // streams are requests too, and their durations are elsewhere
    assert_eq!(requests.data_points.iter().map(|point| value(&point.value)).sum::<u64>(), count + 1);
    assert!(requests.is_monotonic && requests.aggregation_temporality == 2);

    let answered = histogram.data_points.iter().find(|point| point.count >= 100).unwrap();
    let wanted = surfaces.registry.lock().series(lapwing_metrics::Window::All, 0..64);
    let wanted =
        wanted.iter().map(|series| series.figures.extent(lapwing_metrics::Measure::Total)).find(|extent| extent.count >= 100);
    let wanted = wanted.unwrap();
    assert_eq!((answered.count, answered.sum.unwrap()), (wanted.count, wanted.sum_ns as f64 / 1e9));
    assert_eq!(
        (&*named(&metrics, "lapwing_request_duration_seconds").unit, &*named(&metrics, "lapwing_stream_bytes").unit),
        ("s", "By")
    );
}
