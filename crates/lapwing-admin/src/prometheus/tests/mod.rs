//! Checks the text with the grammar of OpenMetrics, and its figures with the fixture.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::tests::fixture::{AWKWARD, CHAT, ROUTE, busy, empty};
use lapwing_metrics::defs;
use lapwing_outbound::Downstreams;

#[derive(Debug, Default)]
struct Parsed {
    /// By family: its type, and its help.
    families: BTreeMap<String, (String, String)>,
    /// Each sample's name, labels and value, in order.
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
    /// The exemplars of buckets: the family, the bucket's labels, trace and value.
    exemplars: Vec<(String, BTreeMap<String, String>, String, f64)>,
}

impl Parsed {
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |l: &BTreeMap<String, String>| labels.iter().all(|(n, v)| l.get(*n).map(String::as_str) == Some(*v));
        let mut found = self.samples.iter().filter(|(n, l, _)| n == name && fits(l)).map(|(_, _, value)| *value);
        let first = found.next();
        assert_eq!(found.next(), None, "{name} {labels:?} is ambiguous");
        first
    }
}

fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `name="value",…}` up to the closing brace; the rest of the line.
fn labels(mut text: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    loop {
        let (name, rest) = text.split_once("=\"").unwrap();
        assert!(is_name(name), "label name {name:?}");
        let (mut value, mut end, mut chars) = (String::new(), None, rest.char_indices());
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    end = Some(at);
                    break;
                }
                '\\' => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    other => panic!("escaped {other:?}"),
                }),
                c => value.push(c),
            }
        }
        assert!(labels.insert(name.to_owned(), value).is_none(), "label {name} stands twice");
        text = &rest[end.unwrap() + 1..];
        match text.split_at(1) {
            (",", rest) => text = rest,
            ("}", rest) => return (labels, rest),
            (other, _) => panic!("{other:?} behind a label"),
        }
    }
}

/// Parses strictly: descriptors in order, each family once and in one piece, suffixes by type, `# EOF` at the end.
fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let body = text.strip_suffix("# EOF\n").expect("ends in # EOF");
    let mut family = String::new();
    for line in body.lines() {
        assert!(!line.is_empty() && line.trim() == line, "{line:?}");
        if let Some(descriptor) = line.strip_prefix("# ") {
            let mut words = descriptor.splitn(3, ' ');
            let (what, name, said) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            match what {
                "HELP" => {
                    assert!(is_name(name) && !said.is_empty());
                    family = name.to_owned();
                    let twice = parsed.families.insert(family.clone(), (String::new(), said.to_owned()));
                    assert_eq!(twice, None, "{name} is described twice");
                }
                "TYPE" => parsed.families.get_mut(name).filter(|_| name == family).unwrap().0 = said.to_owned(),
                "UNIT" => assert!(name == family && name.ends_with(&format!("_{said}"))),
                other => panic!("descriptor {other}"),
            }
            continue;
        }
        let at = line.find(['{', ' ']).unwrap();
        let (name, rest) = line.split_at(at);
        let (labels, rest) = rest.strip_prefix('{').map_or((BTreeMap::new(), rest), labels);
        let value = rest.strip_prefix(' ').unwrap();
        let (value, exemplar) = value.split_once(" # {").map_or((value, None), |(value, exemplar)| (value, Some(exemplar)));
        if let Some(exemplar) = exemplar {
            let (own, rest) = self::labels(exemplar);
            let [value, time] = rest.trim_start().split(' ').collect::<Vec<_>>().try_into().unwrap();
            let (value, time): (f64, f64) = (value.parse().unwrap(), time.parse().unwrap());
            assert!(name.ends_with("_bucket") && value <= labels["le"].replace("+Inf", "inf").parse().unwrap(), "{line}");
            assert!((time - 1_795_246_795.0).abs() < 100.0, "{line}");
            parsed.exemplars.push((family.clone(), labels.clone(), own["trace_id"].clone(), value));
        }
        assert!(is_name(name) && !value.contains(' '), "{line}");
        let suffix = name.strip_prefix(family.as_str()).expect("a sample of the family above");
        let allowed: &[&str] = match parsed.families[&family].0.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("type {other}"),
        };
        assert!(allowed.contains(&suffix), "{line}");
        parsed.samples.push((name.to_owned(), labels, value.parse().unwrap()));
    }
    parsed
}

fn assert_sound(parsed: &Parsed) {
    let mut seen = BTreeSet::new();
    for (name, labels, value) in &parsed.samples {
        assert!(seen.insert((name, labels)), "{name}{labels:?} stands twice");
        assert!(*value >= 0.0 && value.is_finite(), "{name}{labels:?} {value}");
    }
    let mut buckets: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    for (name, labels, value) in &parsed.samples {
        if let Some(family) = name.strip_suffix("_bucket") {
            let mut labels = labels.clone();
            let le = labels.remove("le").unwrap().replace("+Inf", "inf").parse().unwrap();
            buckets.entry((family.to_owned(), labels)).or_default().push((le, *value));
        }
    }
    assert!(!buckets.is_empty());
    for ((family, labels), buckets) in buckets {
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{family} {labels:?} {buckets:?}");
        let labels: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let (bound, last) = buckets[buckets.len() - 1];
        assert_eq!((bound, Some(last)), (f64::INFINITY, parsed.value(&format!("{family}_count"), &labels)));
        assert!(parsed.value(&format!("{family}_sum"), &labels).is_some());
    }
}

fn text_of(format: ExpositionFormat, surfaces: &Surfaces) -> String {
    String::from_utf8(write(surfaces, format).unwrap().concat()).unwrap()
}

fn written(format: ExpositionFormat) -> String {
    text_of(format, &busy())
}

#[test]
fn every_family_is_there_with_the_labels_it_is_defined_with() {
    let (name, url, tags) = ("a".to_owned(), "https://a:1".to_owned(), [("zone".to_owned(), "eu \"1\"".to_owned())].into());
    let state = UpstreamState { name, url, tags, up: true, in_flight: 2, certificate_expiry_unix_s: Some(4_102_444_800) };
    let downstream = r#"[{"name": "features", "listen": "127.0.0.1:1", "to": "redis://127.0.0.1", "kind": "redis",
        "cache": {"mode": "observe", "prefixes": ["f:"]}}]"#;
    let downstreams = Downstreams::of(&serde_json::from_str::<Vec<_>>(downstream).unwrap(), &Arc::default());
    let several = Surfaces { upstreams: Arc::new(move || vec![state.clone()]), downstreams, ..busy() };
    let text = text_of(ExpositionFormat::OpenMetrics, &several);
    let parsed = parse(&text);
    assert_sound(&parsed);
    for family in defs::FAMILIES {
        assert_eq!(parsed.families[family.name], (family.kind.name().to_owned(), family.help.to_owned()));
        let unit = family.unit.map(|unit| format!("# UNIT {} {unit}\n", family.name));
        assert!(unit.is_none_or(|line| text.contains(&line)), "{}", family.name);
        // tags are labels of the user's own
        let tags = (family.name == defs::UPSTREAM_TAGS.name).then_some("zone");
        let wanted: BTreeSet<&str> = family.labels.iter().copied().chain(tags).collect();
        let suffixes = ["", "_total", "_bucket", "_sum", "_count"].map(|suffix| format!("{}{suffix}", family.name));
        let mut any = false;
        for (name, labels, _) in parsed.samples.iter().filter(|(name, ..)| suffixes.contains(name)) {
            let has: BTreeSet<&str> = labels.keys().map(String::as_str).filter(|l| *l != "le").collect();
            assert_eq!(has, wanted, "{name}");
            any = true;
        }
        assert!(any, "{} has no sample", family.name);
    }
    assert_eq!(parsed.families.len(), defs::FAMILIES.len() + defs::row_families().len());
}

#[test]
fn the_figures_are_those_recorded() {
    let parsed = parse(&written(ExpositionFormat::OpenMetrics));
    let of = |name: &str, labels: &[(&str, &str)]| parsed.value(name, labels);
    let answered = [("route", ROUTE), ("result", "answered")];
    assert_eq!(of("lapwing_request_duration_seconds_count", &answered), Some(102.0));
    let sum = of("lapwing_request_duration_seconds_sum", &answered).unwrap();
    assert!((sum - 5.06).abs() < 1e-9, "{sum}");
    let bucket = |le| of("lapwing_request_duration_seconds_bucket", &[answered[0], answered[1], ("le", le)]);
    assert_eq!((bucket("0.01"), bucket("0.1"), bucket("600.0")), (Some(12.0), Some(102.0), Some(102.0)));
    assert_eq!(of("lapwing_request_duration_seconds_count", &[("result", "cancelled")]), Some(1.0));
    assert_eq!(of("lapwing_request_duration_seconds_count", &[("result", "failed")]), Some(6.0));
    assert_eq!(of("lapwing_requests_total", &[("route", ROUTE), ("outcome", "ok")]), Some(101.0), "with the stream");
    assert_eq!(of("lapwing_requests_total", &[("route", AWKWARD), ("outcome", "shed")]), Some(0.0));
    let forward = [("route", ROUTE), ("stage", "forward")];
    assert_eq!(of("lapwing_stage_duration_seconds_count", &forward), Some(102.0));
    assert_eq!(of("lapwing_stage_source_total", &[forward[0], forward[1], ("source", "reported")]), Some(102.0));
    assert_eq!(of("lapwing_stage_source_total", &[("route", AWKWARD), ("source", "traced")]), Some(1.0));
    let coverage = of("lapwing_attribution_coverage_ratio", &[("route", ROUTE)]).unwrap();
    assert!((coverage - 0.625).abs() < 1e-9, "{coverage}");
    let of_route = |name: &str| of(name, &[("route", ROUTE)]).unwrap();
    let claimed = of_route("lapwing_upstream_window_claimed_seconds_total");
    assert!((claimed / of_route("lapwing_upstream_window_seconds_total") - coverage).abs() < 1e-9);
    assert_eq!(of("lapwing_stream_duration_seconds_bucket", &[("le", "60.0")]), Some(0.0));
    assert_eq!(of("lapwing_stream_duration_seconds_bucket", &[("le", "300.0")]), Some(1.0));
    assert_eq!(of("lapwing_stream_bytes_total", &[("direction", "response")]), Some(128.0));
    assert_eq!(of("lapwing_exchanges_dropped_total", &[("reason", "panic")]), Some(1.0));
    assert_eq!((of("lapwing_spans_total", &[("result", "joined")]), of("lapwing_series", &[])), (Some(3.0), Some(3.0)));
}

#[test]
fn work_and_pace_are_those_recorded() {
    let parsed = parse(&written(ExpositionFormat::OpenMetrics));
    let of = |name: &str, labels: &[(&str, &str)]| parsed.value(&format!("lapwing_{name}"), labels);
    let rows = [("route", ROUTE), ("stage", "forward"), ("unit", "row")];
    let bucket = |le| of("stage_seconds_per_unit_bucket", &[rows[0], rows[1], rows[2], ("le", le)]);
    assert_eq!((bucket("0.00025"), bucket("0.0005"), bucket("10.0")), (Some(0.0), Some(100.0), Some(100.0)));
    let sum = of("stage_seconds_per_unit_sum", &rows).unwrap();
    assert!((sum - 100.0 * 0.0005).abs() < 1e-12, "{sum}");
    assert_eq!((of("stage_units_total", &rows), of("work_units_total", &[rows[0], rows[2]])), (Some(5_050.0), Some(5_050.0)));
    let flop = [("route", CHAT), ("stage", "forward"), ("unit", "gflop")];
    assert_eq!(of("stage_seconds_per_unit_bucket", &[flop[0], flop[1], flop[2], ("le", "1.0")]), Some(0.0));
    assert_eq!(of("stage_seconds_per_unit_bucket", &[flop[0], flop[1], flop[2], ("le", "2.5")]), Some(1.0));
    assert_eq!(of("class_duration_seconds_count", &[("route", ROUTE), ("class", "64"), ("unit", "row")]), Some(37.0));
    assert_eq!(of("class_duration_seconds_count", &[("class", "8"), ("unit", "output_token")]), Some(1.0));
    assert_eq!(of("phase_duration_seconds_sum", &[("phase", "decode")]), Some(0.03));
    let observed = |name, observer| of(name, &[("observer", observer)]);
    assert_eq!(observed("time_to_first_token_seconds_sum", "proxy"), Some(0.01));
    assert_eq!(observed("time_to_first_token_seconds_sum", "server"), Some(0.006));
    assert_eq!(observed("time_per_output_token_seconds_sum", "proxy"), Some(0.002));
    assert_eq!(observed("time_per_output_token_seconds_sum", "server"), Some(0.003));
    assert_eq!((of("inter_token_seconds_count", &[]), of("inter_token_seconds_sum", &[])), (Some(10.0), Some(0.02)));
    let polled = |name, stage, phase| of(name, &[("model", "tiny"), ("stage", stage), ("phase", phase)]);
    let names = ["polled_stage_seconds_total", "polled_requests_total"];
    assert_eq!(names.map(|name| polled(name, "queue", "")), [Some(0.004), Some(5.0)]);
    assert_eq!(names.map(|name| polled(name, "forward", "decode")), [Some(0.24), Some(5.0)]);
    assert_eq!(polled(names[0], "forward", ""), None, "its phases are the whole of it");
    assert_eq!(
        (of("time_to_first_byte_seconds_sum", &[]), of("time_to_first_byte_seconds_count", &[])),
        (Some(0.009), Some(1.0))
    );
    let batches =
        ["batch_size", "upstream_requests_running", "upstream_requests_waiting"].map(|name| of(name, &[("route", CHAT)]));
    assert_eq!(batches, [Some(4.5), Some(3.0), Some(1.0)], "the latest");
    assert_eq!(of("upstream_info", &[("server", "llama.cpp")]), Some(1.0));
}

#[test]
fn debts_are_those_recorded() {
    let parsed = parse(&written(ExpositionFormat::OpenMetrics));
    let of = |name: &str, labels: &[(&str, &str)]| parsed.value(&format!("lapwing_computational_debt_{name}"), labels);
    let class = [("route", ROUTE), ("class", "64"), ("unit", "row"), ("optimum", "declared: half of \"it\"")];
    assert_eq!((of("ratio_count", &class), of("ratio_sum", &class)), (Some(37.0), Some(74.0)));
    let bucket = |le| of("ratio_bucket", &[class[0], class[1], ("le", le)]);
    assert_eq!((bucket("1.75"), bucket("2.0"), bucket("1000.0")), (Some(0.0), Some(37.0), Some(37.0)));
    // of 5,050 rows, each 250 µs above the optimum
    let seconds = of("seconds_total", &[("route", ROUTE), class[3]]).unwrap();
    assert!((seconds - 1.2625).abs() < 1e-12, "{seconds}");
    let indebted = parsed.samples.iter().filter(|(name, ..)| name == "lapwing_computational_debt_ratio_count");
    assert_eq!(indebted.map(|(_, _, value)| *value).sum::<f64>(), 100.0, "no other model has an optimum");
}

#[test]
fn nothing_recorded_is_sound_too() {
    let parsed = parse(&text_of(ExpositionFormat::OpenMetrics, &empty()));
    assert_eq!(parsed.value("lapwing_series", &[]), Some(0.0));
    assert_eq!(parsed.value("lapwing_requests_in_flight", &[]), Some(0.0));
}

#[test]
fn stages_sum_to_the_answered_requests() {
    let parsed = parse(&written(ExpositionFormat::OpenMetrics));
    let sum = |name: &str, label: &str, of: Option<&str>| -> f64 {
        let fits = |l: &BTreeMap<String, String>| of.is_none_or(|of| l[label] == of);
        parsed.samples.iter().filter(|(n, l, _)| n == name && fits(l)).map(|(.., value)| value).sum()
    };
    let stages = sum("lapwing_stage_duration_seconds_sum", "stage", None);
    let answered = sum("lapwing_request_duration_seconds_sum", "result", Some("answered"));
    assert!((stages - answered).abs() < 1e-6, "{stages} {answered}");
}

#[test]
fn requests_over_their_budget_are_counted() {
    let parsed = parse(&written(ExpositionFormat::OpenMetrics));
    let over = |route, budget| parsed.value("lapwing_requests_over_budget_total", &[("route", route), ("budget", budget)]);
    // those of 5 to 100 ms, and 9 of 5 ms with other outcomes; the stream of 90 s is no request
    assert_eq!((over(ROUTE, "p50"), over(ROUTE, "p99")), (Some(105.0), Some(50.0)));
    assert_eq!((over(CHAT, "p999"), over(CHAT, "p99")), (Some(0.0), None), "every other route has one of p999");
    let limit = |route, budget| parsed.value("lapwing_latency_budget_seconds", &[("route", route), ("budget", budget)]);
    assert_eq!((limit(ROUTE, "p99"), limit(AWKWARD, "p999"), limit(AWKWARD, "p99")), (Some(0.05), Some(1.5), None));
}

#[test]
fn buckets_have_exemplars_of_real_requests() {
    let parsed = parse(&written(ExpositionFormat::OpenMetrics));
    let of = |family: &str, labels: &[(&str, &str)]| {
        let fits = |l: &BTreeMap<String, String>| labels.iter().all(|(n, v)| l.get(*n).map(String::as_str) == Some(*v));
        parsed.exemplars.iter().filter(|(name, l, ..)| name == family && fits(l)).map(|(.., v)| *v).collect::<Vec<_>>()
    };
    // of each power of two the first, of each bucket the latest of those
    let answered = of("lapwing_request_duration_seconds", &[("route", ROUTE), ("result", "answered")]);
    assert_eq!(answered, [0.001, 0.002, 0.005, 0.009, 0.017, 0.034, 0.068]);
    let forward = of("lapwing_stage_duration_seconds", &[("route", ROUTE), ("stage", "forward")]);
    assert_eq!(forward, [0.0005, 0.001, 0.0025, 0.0045, 0.0085, 0.017, 0.034]);
    assert!(parsed.exemplars.iter().all(|(.., trace, _)| *trace == "07".repeat(16)));
    assert!(!written(ExpositionFormat::Plain).contains(" # {"), "0.0.4 has none");
}

#[test]
fn prometheus_text_names_counters_by_their_samples() {
    let text = written(ExpositionFormat::Plain);
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
    assert!(text.contains("# TYPE lapwing_requests_total counter\n"));
    assert!(text.contains("# HELP lapwing_requests_total Requests and streams that ended"));
    assert!(text.contains("# TYPE lapwing_request_duration_seconds histogram\n"));
    assert!(text.contains("# TYPE lapwing_queue_depth gauge\nlapwing_queue_depth 0\n"));
}

mod messages;
mod protobuf;
