//! Contexts as SDKs write them: read, written back, and refused where they are none.

use super::fields::{hex, span_id};
use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
const OURS: SpanId = SpanId([9; 8]);

fn head(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_static(name), value.parse().unwrap());
    }
    headers
}

/// Trace, span and decision of the only context in a head.
fn only(fields: &[(&'static str, &str)]) -> Option<(ContextKind, String, String, Option<bool>)> {
    let headers = head(fields);
    let sent = SentContexts::read(&headers);
    assert!(sent.contexts.is_empty() || PresentContexts::of(&headers).others, "{fields:?}");
    let [one] = sent.contexts[..] else { return None };
    Some((one.kind, one.trace.to_string(), one.span.to_string(), one.sampled))
}

fn is(kind: ContextKind, trace: &str, sampled: Option<bool>) -> Option<(ContextKind, String, String, Option<bool>)> {
    Some((kind, trace.to_owned(), SPAN.to_owned(), sampled))
}

const SHORT: &str = "0000000000000000a3ce929d0e0e4736";

#[test]
fn every_kind_is_read_in_every_way_that_it_is_written() {
    use ContextKind::{B3, B3Multi, Datadog, Jaeger, XRay};
    let single = |value: &str| only(&[("b3", value)]);
    assert_eq!(single(&format!("{TRACE}-{SPAN}-1-05e3ac9a4f6e3b90")), is(B3, TRACE, Some(true)));
    assert_eq!(single(&format!("{TRACE}-{SPAN}-0")), is(B3, TRACE, Some(false)));
    assert_eq!(single(&format!("{TRACE}-{SPAN}-d")), is(B3, TRACE, Some(true)));
    assert_eq!(single(&format!("{TRACE}-{SPAN}")), is(B3, TRACE, None));
    assert_eq!(single(&format!("a3ce929d0e0e4736-{SPAN}-1")), is(B3, SHORT, Some(true)));
    assert_eq!(single(&format!("{}-{SPAN}-1", TRACE.to_uppercase())), is(B3, TRACE, Some(true)));

    let multi = |trace, further: &[(&'static str, &str)]| {
        only(&[&[("x-b3-traceid", trace), ("x-b3-spanid", SPAN)][..], further].concat())
    };
    assert_eq!(multi(TRACE, &[("x-b3-sampled", "1"), ("x-b3-parentspanid", "05e3ac9a4f6e3b90")]), is(B3Multi, TRACE, Some(true)));
    assert_eq!(multi("a3ce929d0e0e4736", &[("x-b3-sampled", "false")]), is(B3Multi, SHORT, Some(false)));
    assert_eq!(multi(TRACE, &[("x-b3-flags", "1")]), is(B3Multi, TRACE, Some(true)));
    assert_eq!(multi(TRACE, &[]), is(B3Multi, TRACE, None));

    let jaeger = |value: &str| only(&[("uber-trace-id", value)]);
    assert_eq!(jaeger(&format!("{TRACE}:{SPAN}:0:1")), is(Jaeger, TRACE, Some(true)));
    assert_eq!(jaeger(&format!("{TRACE}:f067aa0ba902b7:0:0")), is(Jaeger, TRACE, Some(false)));
    assert_eq!(jaeger(&format!("a3ce929d0e0e4736%3A{SPAN}%3A0%3A3")), is(Jaeger, SHORT, Some(true)));

    let xray = |value: &str| only(&[("x-amzn-trace-id", value)]);
    let root = "Root=1-4bf92f35-77b34da6a3ce929d0e0e4736";
    assert_eq!(xray(&format!("{root};Parent={SPAN};Sampled=1")), is(XRay, TRACE, Some(true)));
    assert_eq!(xray(&format!("Sampled=0; Parent={SPAN};Self=1-a; {root};Lineage=a:0")), is(XRay, TRACE, Some(false)));
    assert_eq!(xray(&format!("{root};Parent={SPAN};Sampled=?")), is(XRay, TRACE, None));

    let (right, parent) = (0xa3ce_929d_0e0e_4736_u64.to_string(), 0x00f0_67aa_0ba9_02b7_u64.to_string());
    let datadog = |further: &[(&'static str, &str)]| {
        only(&[&[("x-datadog-trace-id", &*right), ("x-datadog-parent-id", &*parent)][..], further].concat())
    };
    assert_eq!(datadog(&[("x-datadog-sampling-priority", "2")]), is(Datadog, SHORT, Some(true)));
    assert_eq!(datadog(&[("x-datadog-sampling-priority", "-1")]), is(Datadog, SHORT, Some(false)));
    assert_eq!(datadog(&[("x-datadog-tags", "_dd.p.dm=-0,_dd.p.tid=4bf92f3577b34da6")]), is(Datadog, TRACE, None));
}

#[test]
fn what_names_no_trace_or_no_span_is_no_context() {
    for (name, value) in [
        ("b3", ""),
        ("b3", "0"),
        ("b3", "00000000000000000000000000000000-00f067aa0ba902b7-1"),
        ("b3", "4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-1"),
        ("b3", "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-2"),
        ("b3", "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1-05e3ac9a4f6e3b90-1"),
        ("b3", "4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-1"),
        ("b3", "4bf92f3577b34da6a3ce929d0e0e473x-00f067aa0ba902b7-1"),
        ("x-b3-traceid", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("uber-trace-id", "4bf92f3577b34da6a3ce929d0e0e4736:00f067aa0ba902b7:0"),
        ("uber-trace-id", "4bf92f3577b34da6a3ce929d0e0e4736a:00f067aa0ba902b7:0:1"),
        ("uber-trace-id", "0:0:0:1"),
        // what a load balancer writes
        ("x-amzn-trace-id", "Root=1-67891233-abcdef012345678912345678"),
        ("x-amzn-trace-id", "Root=2-67891233-abcdef012345678912345678;Parent=00f067aa0ba902b7"),
        ("x-datadog-trace-id", "7"),
        ("x-datadog-trace-id", "0x7"),
    ] {
        assert_eq!(only(&[(name, value)]), None, "{name}: {value}");
    }
    let good = &format!("{TRACE}-{SPAN}-1");
    assert_eq!(only(&[("b3", good), ("b3", good)]), None, "twice");
    assert!(SentContexts::read(&head(&[("b3", "0")])).is_denied && SentContexts::read(&head(&[("x-b3-sampled", "0")])).is_denied);
    assert!(!SentContexts::read(&head(&[("b3", "1")])).is_denied);
}

#[test]
fn what_is_written_is_read_as_it_was_meant() {
    let trace = TraceId::from_hex(TRACE).unwrap();
    let parent = SpanId::from_slice(&0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    for sampled in [true, false] {
        for kind in ContextKind::ALL {
            for fields in [
                &[][..],
                &[
                    ("b3", "a3ce929d0e0e4736-00f067aa0ba902b7-1"),
                    ("x-b3-traceid", "a3ce929d0e0e4736"),
                    ("x-b3-spanid", "00f067aa0ba902b7"),
                    ("x-datadog-tags", "_dd.p.dm=-0,_dd.p.tid=1111111111111111"),
                    ("x-amzn-trace-id", "Root=1-67891233-abcdef012345678912345678;Lineage=a:0"),
                ],
            ] {
                let mut headers = head(fields);
                write(&mut headers, kind, &WrittenContext { trace, span: OURS, parent, sampled });
                let sent = read(&headers, kind).unwrap();
                let expected = SentContext { kind, trace, span: OURS, sampled: Some(sampled) };
                assert_eq!(sent, expected, "{headers:?}");
            }
        }
    }
}

#[test]
fn a_client_gets_its_context_back_in_the_form_that_it_chose() {
    let written = |kind, trace: &str, fields: &[(&'static str, &str)]| {
        let mut headers = head(fields);
        let trace = TraceId::from_slice(&hex::<16>(trace.as_bytes()).unwrap()).unwrap();
        write(&mut headers, kind, &WrittenContext { trace, span: OURS, parent: span_id(SPAN.as_bytes()), sampled: true });
        headers
    };
    let short = "a3ce929d0e0e4736";
    let single = written(ContextKind::B3, short, &[("b3", &format!("{short}-{SPAN}-d"))]);
    assert_eq!(single["b3"], format!("{short}-0909090909090909-d-{SPAN}"));
    let multi = written(ContextKind::B3Multi, short, &[("x-b3-traceid", short), ("x-b3-flags", "1")]);
    assert_eq!(
        (&multi["x-b3-traceid"], multi.get("x-b3-sampled"), &multi["x-b3-parentspanid"]),
        (&short.parse().unwrap(), None, &SPAN.parse().unwrap())
    );
    let datadog = written(ContextKind::Datadog, short, &[("x-datadog-sampling-priority", "2")]);
    assert_eq!((&datadog["x-datadog-sampling-priority"], datadog.get("x-datadog-tags")), (&"2".parse().unwrap(), None));
    let xray = written(ContextKind::XRay, TRACE, &[("x-amzn-trace-id", "Root=1-67891233-abcdef012345678912345678;Lineage=a:0")]);
    assert_eq!(xray["x-amzn-trace-id"], "Root=1-4bf92f35-77b34da6a3ce929d0e0e4736;Parent=0909090909090909;Sampled=1;Lineage=a:0");
}

#[test]
fn ordinary_names_are_passed_over() {
    let ordinary = head(&[
        ("host", "a"),
        ("user-agent", "b"),
        ("x-request-id", "c"),
        ("te", "d"),
        ("baggage", "e"),
        ("x-b3", "f"),
        ("upgrade", "g"),
    ]);
    assert_eq!(PresentContexts::of(&ordinary), PresentContexts::default());
    assert!(PresentContexts::of(&head(&[("tracestate", "a=b")])).w3c);
}
