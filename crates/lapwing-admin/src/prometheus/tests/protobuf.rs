//! Reads the protobuf back: it says what the text says, and its native histograms have the same counts.

use std::sync::Arc;

use parking_lot::Mutex;
use prost::Message;

use super::messages::{Histogram, Metric, MetricFamily as Family, Timestamp, Value};
use super::*;
use lapwing_ledger::TraceId;
use lapwing_metrics::defs::MetricKind;
use lapwing_metrics::exposition::{ExemplarSample, FamilyHead, HistogramSample, NativeHistogram, ProtobufEncoder, SampleLabels};
use lapwing_metrics::{ExponentialBuckets, Shown};

fn read(bytes: &[u8]) -> Vec<Family> {
    let (mut rest, mut families) = (bytes, Vec::new());
    while !rest.is_empty() {
        families.push(Family::decode_length_delimited(&mut rest).unwrap());
    }
    families
}

fn labels_of(metric: &Metric) -> BTreeMap<String, String> {
    metric.label.iter().map(|pair| (pair.name.clone(), pair.value.clone())).collect()
}

/// The counts of the native buckets by their upper bounds.
fn native_buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
    let (mut index, mut count, mut deltas) = (0, 0, histogram.positive_delta.iter());
    let mut found = vec![(histogram.zero_threshold, histogram.zero_count)];
    let base = f64::from(-histogram.schema).exp2();
    for span in &histogram.positive_span {
        index += span.offset;
        for _ in 0..span.length {
            count += deltas.next().unwrap();
            found.push(((f64::from(index) * base).exp2(), u64::try_from(count).unwrap()));
            index += 1;
        }
    }
    assert_eq!(deltas.next(), None);
    found
}

#[test]
fn it_says_what_the_text_says() {
    let surfaces = busy();
    let (text, families) = (
        parse(&text_of(ExpositionFormat::OpenMetrics, &surfaces)),
        read(&write(&surfaces, ExpositionFormat::Protobuf).unwrap().concat()),
    );
    let (mut samples, mut exemplars) = (0, 0);
    for family in &families {
        let suffix = if family.kind == 0 { "_total" } else { "" };
        let base = family.name.strip_suffix(suffix).unwrap();
        let (kind, help) = &text.families[base];
        assert_eq!((&family.help, ["counter", "gauge", "", "", "histogram"][family.kind as usize]), (help, &**kind));
        for metric in &family.metric {
            let labels = labels_of(metric);
            let labels: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let said = |suffix: &str, more: Option<(&str, &str)>| {
                let labels: Vec<_> = labels.iter().copied().chain(more).collect();
                text.value(&format!("{base}{suffix}"), &labels)
            };
            samples += 1;
            match metric.value.as_ref().unwrap() {
                // these change from one scrape to the next
                Value::Gauge(_) if ["lapwing_uptime_seconds", "process_resident_memory_bytes"].contains(&base) => {}
                Value::Gauge(gauge) => assert_eq!(said("", None), Some(gauge.value), "{base} {labels:?}"),
                Value::Counter(counter) => {
                    assert_eq!(said("_total", None), Some(counter.value), "{base} {labels:?}");
                    assert!(counter.start_timestamp.is_some());
                }
                Value::Histogram(histogram) => {
                    assert_eq!(said("_count", None), Some(histogram.sample_count as f64), "{base} {labels:?}");
                    assert_eq!(said("_sum", None), Some(histogram.sample_sum), "{base} {labels:?}");
                    let bound = |bound: f64| {
                        if bound.is_infinite() { "+Inf".to_owned() } else { dtoa::Buffer::new().format(bound).to_owned() }
                    };
                    for bucket in &histogram.bucket {
                        let le = bound(bucket.upper_bound);
                        assert_eq!(
                            said("_bucket", Some(("le", &le))),
                            Some(bucket.cumulative_count as f64),
                            "{base} {labels:?} {le}"
                        );
                        exemplars += usize::from(bucket.exemplar.is_some());
                    }
                    check_native(base, histogram);
                }
            }
        }
    }
    assert_eq!(exemplars, text.exemplars.len());
    let of_text = text.samples.iter().filter(|(name, ..)| !name.ends_with("_bucket") && !name.ends_with("_sum")).count();
    assert_eq!(samples, of_text);
}

/// Native histograms have every value of the classic buckets, and each bucket that lies in one of those its counts.
fn check_native(name: &str, histogram: &Histogram) {
    assert!(histogram.start_timestamp.is_some(), "{name}");
    if name == "lapwing_shadow_latency_ratio" {
        assert_eq!(histogram.zero_threshold, 0.0, "it has classic buckets only");
        return;
    }
    let native = native_buckets(histogram);
    assert_eq!(native.iter().map(|(_, count)| count).sum::<u64>(), histogram.sample_count, "{name}");
    assert!(histogram.schema <= 5 && histogram.positive_delta.len() <= 160, "{name}");
    for bucket in histogram.bucket.iter().filter(|bucket| bucket.upper_bound.is_finite()) {
        // a value at the bound may be in the bucket above it or below it
        let factor = f64::from(-histogram.schema).exp2().exp2() * 1.001;
        let up_to = |bound: f64| native.iter().filter(|(upper, _)| *upper <= bound).map(|(_, count)| count).sum::<u64>();
        let (low, high) = (up_to(bucket.upper_bound / factor), up_to(bucket.upper_bound * factor));
        assert!((low..=high).contains(&bucket.cumulative_count), "{name} {bucket:?} {low} {high}");
    }
    assert!(histogram.exemplars.len() <= 10 && histogram.exemplars.is_sorted_by_key(|one| one.timestamp.unwrap().seconds));
}

#[test]
fn classic_buckets_can_be_left_out() {
    let surfaces = busy();
    let config =
        lapwing_metrics::Config { classic_buckets: Shown::Off, native_schema: 2, ..surfaces.registry.lock().config().clone() };
    let labels = surfaces.registry.lock().labels().clone();
    let registry = lapwing_metrics::Registry::new(config, labels, surfaces.counters.clone());
    let one = crate::tests::fixture::request(&surfaces, ROUTE, "digits", lapwing_ledger::Outcome::Ok, 3_000_000);
    // the waits of dispatch have classic buckets only
    let surfaces = Surfaces { registry: Arc::new(Mutex::new(registry)), shadow: None, dispatch: None, ..surfaces };
    surfaces.registry.lock().record(&one);
    let families = read(&write(&surfaces, ExpositionFormat::Protobuf).unwrap().concat());
    let histograms = families.iter().flat_map(|family| &family.metric).filter_map(|metric| match metric.value.as_ref()? {
        Value::Histogram(histogram) => Some(histogram),
        _ => None,
    });
    let histograms: Vec<_> = histograms.collect();
    assert!(histograms.iter().all(|one| one.bucket.is_empty() && one.schema == 2 && one.sample_count == 1));
    assert_eq!(histograms[0].exemplars[0].value, 0.003);
    assert!(
        text_of(ExpositionFormat::OpenMetrics, &surfaces).contains("lapwing_request_duration_seconds_bucket"),
        "text has no others"
    );
    assert!(families.iter().all(|family| !family.metric.is_empty()), "a family without samples is left out");
}

/// Byte for byte what Google's own library writes with the descriptors of client_model's `metrics.proto`.
#[test]
fn the_bytes_are_those_of_the_protocol() {
    let mut encoder = ProtobufEncoder::new(true, 1_700_000_000_500_000_000);
    let head = |name, kind, unit| FamilyHead { name, kind, unit, help: "h" };
    let labels = || SampleLabels { since_unix_ns: Some(1_700_000_001_000_000_000), ..SampleLabels::from(vec![("a", "b")]) };
    encoder.begin(&head("c", MetricKind::Counter, None)).unwrap();
    encoder.counter(&SampleLabels::default(), 3_u64.into()).unwrap();
    encoder.end().unwrap();
    encoder.begin(&head("h_seconds", MetricKind::Histogram, Some("seconds"))).unwrap();
    let buckets = ExponentialBuckets { schema: 5, zero_threshold: 0.5, zero_count: 1, buckets: vec![(-3, 2), (4, 1)] };
    let exemplar = ExemplarSample { trace: TraceId([0xab; 16]), value: 0.75, ended_unix_ns: 1_700_000_002_000_000_003 };
    let sample = HistogramSample {
        count: 4,
        sum: 2.5,
        buckets: &[(1.0, 3), (f64::INFINITY, 1)],
        native: Some(&NativeHistogram::of(buckets)),
        exemplars: &[exemplar],
    };
    encoder.histogram(&labels(), &sample).unwrap();
    encoder.end().unwrap();
    let bytes = encoder.finish().concat();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("golden.hex").split_whitespace().collect::<String>());
    let families = read(&bytes);
    let Some(Value::Counter(counter)) = &families[0].metric[0].value else { panic!("{families:?}") };
    assert_eq!(counter.start_timestamp, Some(Timestamp { seconds: 1_700_000_000, nanos: 500_000_000 }));
}
