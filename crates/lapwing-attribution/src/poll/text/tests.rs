//! Prometheus text: which lines are samples and which are not, and that no input causes a panic.

use proptest::prelude::*;

use super::*;

fn sample(line: &str) -> Sample<'_> {
    match MetricLine::of(line) {
        MetricLine::Sample(sample) => sample,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn samples_as_servers_write_them() {
    let plain = sample("llamacpp:requests_processing 3");
    assert_eq!((plain.name, plain.value, plain.label("model")), ("llamacpp:requests_processing", 3.0, None));
    let labelled = sample(r#"vllm:request_queue_time_seconds_sum{engine="0",model_name="org/m"} 1.25e-3"#);
    assert_eq!((labelled.name, labelled.value), ("vllm:request_queue_time_seconds_sum", 0.001_25));
    assert_eq!(labelled.label("model_name").as_deref(), Some("org/m"));
    assert_eq!(labelled.label("engine").as_deref(), Some("0"));
    assert_eq!(labelled.label("model"), None);
    let leading = sample(r#":tensorflow:serving:request_count{model_name="half_plus_two",status="OK",} 7 1700000000000"#);
    assert_eq!((leading.name, leading.value), (":tensorflow:serving:request_count", 7.0));
    assert_eq!(leading.label("status").as_deref(), Some("OK"));
    let spaced = sample("a { b = \"c\" , d=\"e\" } 1 # {trace_id=\"x\"} 0.5");
    assert_eq!((spaced.label("b").as_deref(), spaced.label("d").as_deref()), (Some("c"), Some("e")));
    assert_eq!(sample("a{} 2").value, 2.0);
}

#[test]
fn numbers_that_are_none_are_read() {
    assert!(sample("a NaN").value.is_nan());
    assert_eq!(sample("a +Inf").value, f64::INFINITY);
    assert_eq!(sample("a -Inf").value, f64::NEG_INFINITY);
    assert_eq!(sample("a{le=\"+Inf\"} 4").label("le").as_deref(), Some("+Inf"));
}

#[test]
fn escapes_are_undone() {
    let line = r#"a{b="q\"\\n\n}",c="x,y=\"z\""} 1"#;
    assert_eq!(sample(line).label("b").as_deref(), Some("q\"\\n\n}"));
    assert_eq!(sample(line).label("c").as_deref(), Some("x,y=\"z\""));
    assert_eq!(sample(r#"a{b="\q"} 1"#).label("b").as_deref(), Some(r"\q"));
}

#[test]
fn comments_name_families() {
    assert_eq!(MetricLine::of("# TYPE te_queue_size gauge"), MetricLine::Family("te_queue_size"));
    assert_eq!(MetricLine::of("# HELP te_queue_size How many."), MetricLine::Family("te_queue_size"));
    assert_eq!(
        [MetricLine::of("# EOF"), MetricLine::of(""), MetricLine::of(" \t"), MetricLine::of("# a word"), MetricLine::of("#")],
        [MetricLine::Nothing; 5]
    );
}

#[test]
fn what_is_no_sample_is_malformed() {
    let none = [
        "a",
        "a{",
        "a{b} 1",
        "a{b=c} 1",
        "a{b=\"c} 1",
        "a{b=\"c\"d=\"e\"} 1",
        "a{b=\"c\"}",
        "a one",
        "1a 1",
        "{b=\"c\"} 1",
        "<html> 1",
        "a 1 soon",
        "{\"detail\":\"Not Found\"}",
    ];
    for line in none {
        assert_eq!(MetricLine::of(line), MetricLine::Malformed, "{line}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in "\\PC*") {
        text.lines().for_each(|line| { let _ = MetricLine::of(line); });
    }

    #[test]
    fn nearly_samples_are_read_without_a_panic(text in r#"[a{}=",\\ n1é#-]{0,24}"#) {
        if let MetricLine::Sample(sample) = MetricLine::of(&text) {
            let _ = sample.label("a");
        }
    }

    #[test]
    fn what_was_written_is_read(
        name in "[a-zA-Z_:][a-zA-Z0-9_:]{0,12}",
        labels in proptest::collection::btree_map("[a-z_][a-z0-9_]{0,6}", "\\PC{0,8}", 0..4),
        value in any::<f64>(),
    ) {
        let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let written: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
        let line = format!("{name}{{{}}} {value}", written.join(","));
        let MetricLine::Sample(read) = MetricLine::of(&line) else { panic!("{line}") };
        prop_assert_eq!(read.name, name);
        prop_assert!(read.value == value || value.is_nan());
        for (label, value) in &labels {
            let label = read.label(label);
            prop_assert_eq!(label.as_deref(), Some(value.as_str()));
        }
    }
}
