//! Whose trace a request continues, by each of the fields that name one, and what the upstream is told.

use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use lapwing_ledger::{Stamp, TraceMark};
use lapwing_protocol::trace_context::ContextPolicy;

fn apply(sampling: TraceSampling, field: Option<&str>) -> (HeaderMap, Ledger) {
    applied(&Tracing { sampling, mark: TraceMark::random(), continued: None, contexts: ContextPolicy::default() }, field)
}

fn applied(tracing: &Tracing, field: Option<&str>) -> (HeaderMap, Ledger) {
    let mut headers = HeaderMap::new();
    if let Some(field) = field {
        headers.insert(TRACEPARENT, field.parse().unwrap());
    }
    let mut ledger = Ledger::open(Stamp::now(), 0);
    trace(tracing, &mut headers, &mut ledger);
    (headers, ledger)
}

#[test]
fn the_forwarder_learns_which_span_stands_for_which_parent() {
    let learnt = Arc::new(Mutex::new(Vec::new()));
    let learns = learnt.clone();
    let tracing = Tracing {
        sampling: TraceSampling::Force,
        mark: TraceMark::random(),
        continued: Some(Arc::new(move |continued| learns.lock().push(continued))),
        contexts: ContextPolicy::default(),
    };
    let (_, begun) = applied(&tracing, None);
    assert!(learnt.lock().is_empty(), "the span of a trace that begins here follows from the trace id");
    assert_eq!(begun.span, tracing.mark.root_span(begun.trace));
    for (flags, is_forced) in [("00", true), ("01", false)] {
        let field = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
        let (_, ledger) = applied(&tracing, Some(&field));
        let expected =
            ContinuedTrace { trace: ledger.trace, parent: ledger.parent, span: ledger.span, own: ledger.span, is_forced };
        assert_eq!(learnt.lock().pop(), Some(expected));
    }
}

#[test]
fn a_trace_is_made_where_there_is_none() {
    let (headers, ledger) = apply(TraceSampling::Auto, None);
    let sent = TraceContext::parse(headers[&TRACEPARENT].as_bytes()).unwrap();
    assert_eq!((sent.trace, sent.span), (ledger.trace, ledger.span));
    assert!(sent.is_sampled() && ledger.traced && ledger.ours);
}

#[test]
fn the_clients_decision_is_kept_unless_forced() {
    let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let (headers, ledger) = apply(TraceSampling::Auto, Some(unsampled));
    let sent = TraceContext::parse(headers[&TRACEPARENT].as_bytes()).unwrap();
    assert!(!sent.is_sampled() && !ledger.traced && !ledger.ours);
    assert_eq!(sent.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(ledger.parent.to_string(), "00f067aa0ba902b7");
    assert_ne!(sent.span, ledger.parent);
    let (_, ledger) = apply(TraceSampling::Force, Some(unsampled));
    assert!(ledger.traced && ledger.ours);
}

/// Applies the default to a head with these fields.
fn with(fields: &[(&str, &str)]) -> (HeaderMap, Ledger) {
    let tracing =
        Tracing { sampling: TraceSampling::Auto, mark: TraceMark::random(), continued: None, contexts: ContextPolicy::default() };
    head_with(&tracing, fields)
}

fn head_with(tracing: &Tracing, fields: &[(&str, &str)]) -> (HeaderMap, Ledger) {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers
            .append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    let mut ledger = Ledger::open(Stamp::now(), 0);
    trace(tracing, &mut headers, &mut ledger);
    (headers, ledger)
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
const OTHER: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn a_client_that_speaks_another_context_is_continued_in_it_and_in_traceparent() {
    let decimal = |text: &str| u64::from_str_radix(text, 16).unwrap().to_string();
    let xray = format!("Root=1-{}-{};Parent={SPAN};Sampled=1", &TRACE[..8], &TRACE[8..]);
    let b3 = format!("{TRACE}-{SPAN}-1");
    let jaeger = format!("{TRACE}:{SPAN}:0:1");
    for (name, fields) in [
        ("b3", vec![("b3", &*b3)]),
        ("x-b3-spanid", vec![("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN), ("x-b3-sampled", "1")]),
        ("uber-trace-id", vec![("uber-trace-id", &*jaeger)]),
        ("x-amzn-trace-id", vec![("x-amzn-trace-id", &*xray)]),
    ] {
        let (headers, ledger) = with(&fields);
        assert_eq!((ledger.trace.to_string(), ledger.parent.to_string()), (TRACE.to_owned(), SPAN.to_owned()), "{name}");
        assert!(ledger.traced && !ledger.ours, "{name}");
        let passed = ledger.passed_contexts.unwrap()[0];
        assert_eq!((passed.trace, passed.is_clients, passed.span != ledger.span), (ledger.trace, false, true), "{name}");
        let (field, span) = (headers[name].to_str().unwrap(), passed.span.to_string());
        assert!(field.contains(&span) && !field.starts_with(SPAN), "{name}: {field}");
        assert_eq!(headers["traceparent"], format!("00-{TRACE}-{}-01", ledger.span), "{name}");
    }
    // who reads Datadog's own fields sends spans elsewhere: they pass, and what continues them is joined by the ids that passed
    let ids = (decimal(&TRACE[16..]), decimal(SPAN), format!("_dd.p.tid={}", &TRACE[..16]));
    let sent = [("x-datadog-trace-id", &*ids.0), ("x-datadog-parent-id", &*ids.1), ("x-datadog-tags", &*ids.2)];
    let (headers, ledger) = with(&sent);
    assert!(sent.iter().all(|(name, value)| headers[*name] == *value));
    let passed = ledger.passed_contexts.unwrap();
    assert_eq!((passed[0].trace, passed[0].span, passed[0].is_clients), (ledger.trace, ledger.parent, true));
    assert_eq!(ledger.trace.to_string(), TRACE);
}

#[test]
fn contexts_that_contradict_each_other_keep_their_own_traces() {
    let (w3c, b3) = (format!("00-{TRACE}-{SPAN}-01"), format!("{OTHER}-bbbbbbbbbbbbbbbb-1"));
    let (headers, ledger) = with(&[("traceparent", &w3c), ("b3", &b3)]);
    assert_eq!(ledger.trace.to_string(), TRACE, "traceparent counts first");
    let passed = ledger.passed_contexts.unwrap();
    let [other] = passed[..] else { panic!("{passed:?}") };
    assert_eq!((other.trace.to_string(), other.is_clients), (OTHER.to_owned(), false));
    assert_eq!(headers["b3"], format!("{OTHER}-{}-1-bbbbbbbbbbbbbbbb", other.span));
    assert_ne!(other.span, ledger.span);
    let (_, same) = with(&[("traceparent", &w3c), ("b3", &format!("{TRACE}-{SPAN}-1"))]);
    assert_eq!(same.passed_contexts.unwrap()[0].trace, same.trace);
}

#[test]
fn the_clients_decision_counts_in_every_context() {
    let (_, refused) = with(&[("b3", &format!("{TRACE}-{SPAN}-0"))]);
    assert!(!refused.traced && !refused.ours);
    let (headers, deferred) = with(&[("b3", &format!("{TRACE}-{SPAN}"))]);
    assert!(deferred.traced && deferred.ours && headers["b3"].to_str().unwrap().contains("-1-"));
    let (headers, denied) = with(&[("b3", "0")]);
    assert!(!denied.traced && headers["traceparent"].to_str().unwrap().ends_with("-00") && headers["b3"] == "0");
}

#[test]
fn the_setting_says_what_is_written() {
    let policy = |text: &str| Tracing {
        sampling: TraceSampling::Auto,
        mark: TraceMark::random(),
        continued: None,
        contexts: ContextPolicy::new(text.parse().unwrap(), Arc::default()),
    };
    let b3 = format!("{TRACE}-{SPAN}-1");
    let (headers, ledger) = head_with(&policy("none"), &[("b3", &b3)]);
    assert_eq!((&headers["b3"], ledger.passed_contexts.unwrap().len()), (&b3.parse::<HeaderValue>().unwrap(), 1));
    let (headers, ledger) = head_with(&policy("b3multi"), &[]);
    assert_eq!(headers["x-b3-traceid"], ledger.trace.to_string());
    assert_eq!(headers["x-b3-spanid"], ledger.passed_contexts.unwrap()[0].span.to_string());
    assert_eq!((&headers["x-b3-sampled"], headers.get("x-b3-parentspanid")), (&HeaderValue::from_static("1"), None));
    let learning = Tracing { contexts: ContextPolicy::default(), ..policy("auto") };
    assert!(head_with(&learning, &[]).0.len() == 1, "nothing but traceparent, unless the upstream needs it");
}

const GOOD: &str = "00-12345678901234567890123456789012-1234567890123456-00";
const T: &str = "traceparent";
const S: &str = "tracestate";

/// The cases of W3C's test suite (trace-context, test/test.py, with its strictest level) that one request shows: its fields, whether
/// its trace goes on, and the trace state that is passed on, joined by commas.
#[allow(clippy::type_complexity, reason = "a table")]
#[expect(clippy::too_many_lines, reason = "a table")]
fn suite() -> Vec<(Vec<(&'static str, String)>, bool, Option<String>)> {
    let mut cases: Vec<(Vec<(&'static str, String)>, bool, Option<String>)> = Vec::new();
    let mut parent = |fields: &[(&'static str, &str)], goes_on| {
        cases.push((fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), goes_on, None));
    };
    parent(&[], false);
    let good = "00-12345678901234567890123456789012-1234567890123456-01";
    parent(&[(T, good)], true);
    parent(&[(T, "00-12345678901234567890123456789011-1234567890123456-01"), (T, good)], false);
    parent(&[(T, good), (T, good)], false);
    parent(&[("trace-parent", good)], false);
    parent(&[("trace.parent", good)], false);
    for name in ["TraceParent", "TrAcEpArEnT", "TRACEPARENT"] {
        parent(&[(name, good)], true);
    }
    for value in [
        "00-12345678901234567890123456789012-1234567890123456-01.",
        "00-12345678901234567890123456789012-1234567890123456-01-what-the-future-will-be-like",
        "cc-12345678901234567890123456789012-1234567890123456-01.what-the-future-will-be-like",
        "ff-12345678901234567890123456789012-1234567890123456-01",
        ".0-12345678901234567890123456789012-1234567890123456-01",
        "0.-12345678901234567890123456789012-1234567890123456-01",
        "000-12345678901234567890123456789012-1234567890123456-01",
        "0000-12345678901234567890123456789012-1234567890123456-01",
        "0-12345678901234567890123456789012-1234567890123456-01",
        "00-00000000000000000000000000000000-1234567890123456-01",
        "00-.2345678901234567890123456789012-1234567890123456-01",
        "00-1234567890123456789012345678901.-1234567890123456-01",
        "00-123456789012345678901234567890123-1234567890123456-01",
        "00-1234567890123456789012345678901-1234567890123456-01",
        "00-12345678901234567890123456789012-0000000000000000-01",
        "00-12345678901234567890123456789012-.234567890123456-01",
        "00-12345678901234567890123456789012-123456789012345.-01",
        "00-12345678901234567890123456789012-12345678901234567-01",
        "00-12345678901234567890123456789012-123456789012345-01",
        "00-12345678901234567890123456789012-1234567890123456-.0",
        "00-12345678901234567890123456789012-1234567890123456-0.",
        "00-12345678901234567890123456789012-1234567890123456-001",
        "00-12345678901234567890123456789012-1234567890123456-1",
        "00-1234567890123456789012345678901A-1234567890123456-01",
        "",
    ] {
        parent(&[(T, value)], false);
    }
    for value in [
        "cc-12345678901234567890123456789012-1234567890123456-01",
        "cc-12345678901234567890123456789012-1234567890123456-01-what-the-future-will-be-like",
        " 00-12345678901234567890123456789012-1234567890123456-01",
        "\t00-12345678901234567890123456789012-1234567890123456-01",
        "00-12345678901234567890123456789012-1234567890123456-01 ",
        "00-12345678901234567890123456789012-1234567890123456-01\t",
        "\t 00-12345678901234567890123456789012-1234567890123456-01 \t",
    ] {
        parent(&[(T, value)], true);
    }
    let mut state = |fields: &[&str], passed: Option<&str>| {
        let states = fields.iter().map(|value| (S, (*value).to_owned()));
        cases.push((std::iter::once((T, GOOD.to_owned())).chain(states).collect(), true, passed.map(str::to_owned)));
    };
    let key = "abcdefghijklmnopqrstuvwxyz0123456789_-*/";
    let value: String = (0x20_u8..=0x7e).filter(|byte| !matches!(byte, b',' | b'=')).map(char::from).collect();
    let members = |range: std::ops::RangeInclusive<u8>| range.map(|n| format!("bar{n:02}={n:02}")).collect::<Vec<_>>().join(",");
    let long = |first: usize| format!("{}=1", "z".repeat(first));
    for good in [
        &["foo=1,bar=2"][..],
        &["foo=1", ""],
        &["", "foo=1"],
        &["foo=1,bar=2", "rojo=1,congo=2", "baz=3"],
        &["foo=1,foo=1"],
        &["foo=1,foo=2"],
        &["foo=1", "foo=2"],
        &[format!("{key}={value}").as_str()],
        &[format!("{key}@a-z0-9_-*/={value}").as_str()],
        &["foo=1 \t , \t bar=2, \t baz=3"],
        &["foo=1\t \t,\t \tbar=2,\t \tbaz=3"],
        &[" foo=1"],
        &["\tfoo=1"],
        &["foo=1 "],
        &["foo=1\t"],
        &["\t foo=1 \t"],
        &["foo@=1,bar=2"],
        &["foo@@bar=1,bar=2"],
        &["foo@bar@baz=1,bar=2"],
        &[members(1..=10).as_str(), &members(11..=20), &members(21..=30), &members(31..=32)],
        &["foo=1", &long(256)],
        &["foo=1", &format!("{}@{}=1", "t".repeat(241), "v".repeat(14))],
        &["foo=1", &format!("{}@v=1", "t".repeat(242))],
        &["foo=1", &format!("t@{}=1", "v".repeat(15))],
    ] {
        state(good, Some(&good.join("|")));
    }
    for bad in [
        &["foo =1"][..],
        &["FOO=1"],
        &["foo.bar=1"],
        &["@foo=1,bar=2"],
        &["foo=bar=baz"],
        &["foo=,bar=3"],
        &["foo=1", &long(257)],
        &["foo"],
        &["foo=1,bar"],
        &[format!("foo={}", "v".repeat(257)).as_str()],
        &[members(1..=10).as_str(), &members(11..=20), &members(21..=30), &members(31..=33)],
    ] {
        state(bad, None);
    }
    cases.push((vec![(S, "foo=1".to_owned())], false, None));
    cases.push((vec![(S, "foo=1,bar=2".to_owned())], false, None));
    cases.push((vec![(T, format!("ff{}", &GOOD[2..])), (S, "foo=1".to_owned())], false, None));
    cases
}

#[test]
fn the_suite_of_trace_context_is_green() {
    for (fields, goes_on, state) in suite() {
        let lent: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (headers, ledger) = with(&lent);
        let sent = TraceContext::parse(headers[&TRACEPARENT].as_bytes()).unwrap();
        assert_eq!(headers.get_all(&TRACEPARENT).iter().count(), 1, "{fields:?}");
        let is_same = sent.trace.to_string() == "12345678901234567890123456789012";
        assert_eq!((is_same, sent.span == ledger.span), (goes_on, true), "{fields:?}");
        assert_ne!(sent.span.to_string(), "1234567890123456", "{fields:?}");
        let passed: Vec<&str> = headers.get_all(&TRACESTATE).iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(state.unwrap_or_default(), passed.join("|"), "{fields:?}");
    }
}

#[test]
fn every_request_has_a_span_of_its_own_and_flags_are_passed_on() {
    let spans: std::collections::HashSet<SpanId> = (0..3).map(|_| with(&[(T, GOOD)]).1.span).collect();
    assert_eq!(spans.len(), 3);
    let (headers, _) = with(&[(T, &format!("{}02", &GOOD[..53]))]);
    assert!(headers[&TRACEPARENT].to_str().unwrap().ends_with("-02"), "the flag of random ids, of level 2");
}
