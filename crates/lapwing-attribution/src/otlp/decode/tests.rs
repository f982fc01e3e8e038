//! Requests as exporters write them, and the spans decoded from them.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue};
use opentelemetry_proto::tonic::trace::v1::span::Event;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::collector::{Encoding, Signal};
use crate::otlp::json::to_protobuf;
use crate::otlp::tests::{attribute, request, span, text as attr, triton};
use lapwing_ledger::Stage;

const TRACE: TraceId = TraceId([7; 16]);

fn decoded(encoding: Encoding, body: &[u8]) -> Decoded {
    spans(&traces(encoding, body).unwrap(), &Rules::default()).unwrap()
}

fn traces(encoding: Encoding, body: &[u8]) -> Result<Bytes, Undecodable> {
    match encoding {
        Encoding::Protobuf => Ok(Bytes::copy_from_slice(body)),
        Encoding::Json => to_protobuf(Signal::Traces, body).map(|body| body.bytes),
    }
}

#[test]
fn a_protobuf_request_becomes_spans() {
    let mut forward = span(TRACE, 1, "model_forward");
    forward.kind = 1;
    let mut redis = span(TRACE, 2, "GET");
    redis.kind = 3;
    redis.attributes = vec![attr("db.system", "redis"), attr("lapwing.stage", "hydration")];
    let mut inverted = Span { parent_span_id: Vec::new(), kind: 2, ..span(TRACE, 3, &"é".repeat(200)) };
    inverted.end_time_unix_nano = 5;
    let bad = [Span { trace_id: vec![0; 16], ..span(TRACE, 4, "x") }, Span { span_id: vec![1; 7], ..span(TRACE, 5, "y") }];
    let spans = [forward, redis, inverted].into_iter().chain(bad).collect();
    let decoded = decoded(Encoding::Protobuf, &request(spans).encode_to_vec());
    assert_eq!((decoded.spans.len(), decoded.invalid), (3, 2));
    let [forward, redis, inverted] = &decoded.spans[..] else { panic!() };
    assert_eq!((forward.trace, forward.span, forward.parent), (TRACE, SpanId([1; 8]), Some(SpanId([99; 8]))));
    assert_eq!((forward.kind, forward.stage, forward.is_store_call), (SpanKind::Internal, Some(Stage::Forward), false));
    assert_eq!((forward.start_unix_ns, forward.end_unix_ns, &*forward.service), (1000, 2000, "svc/a"));
    assert_eq!((redis.kind, redis.stage, redis.is_store_call), (SpanKind::Client, Some(Stage::Hydration), true));
    assert_eq!((inverted.kind, inverted.parent, inverted.stage), (SpanKind::Server, None, None));
    assert_eq!((inverted.start_unix_ns, inverted.end_unix_ns, inverted.name.len()), (1000, 1000, 256));
}

#[test]
fn what_a_real_triton_sends_is_read() {
    let decoded = decoded(Encoding::Json, &triton());
    assert_eq!(decoded.invalid, 0);
    let parent = |s: &IncomingSpan| s.parent.map_or_else(|| "none".to_owned(), |p| p.to_string());
    let found: Vec<_> = decoded.spans.iter().map(|s| (&*s.name, s.span.to_string(), parent(s))).collect();
    assert_eq!(found.len(), 18);
    // children end first, so they come first; the request's span is a child of the traceparent that was sent
    for (at, (name, id, parent)) in [
        ("compute", "5af4ec4393b7cf77", "07ddc71b4b1b2ef9"),
        ("pre", "07ddc71b4b1b2ef9", "1e9a8eb3e5e92037"),
        ("compute", "42923ff25cfbd810", "2e0bf6356d2363bd"),
        ("fwd", "2e0bf6356d2363bd", "1e9a8eb3e5e92037"),
        ("compute", "6479132b06e1b17b", "35c6d7ff2631e649"),
        ("post", "35c6d7ff2631e649", "1e9a8eb3e5e92037"),
        ("pipe", "1e9a8eb3e5e92037", "a6bbf0ba0e75512d"),
        ("InferRequest", "a6bbf0ba0e75512d", "b7ad6b7169203331"),
        ("compute", "ae0cf7e4910381a2", "80a69bdd87f16d80"),
        ("pre", "80a69bdd87f16d80", "71540785de83cf31"),
        ("post", "d22de80cb0a27219", "71540785de83cf31"),
        ("compute", "2310364ec0290e57", "49bb24260f55f1f3"),
        ("fwd", "49bb24260f55f1f3", "71540785de83cf31"),
        ("pipe", "71540785de83cf31", "5751289b3fceafd1"),
        ("InferRequest", "5751289b3fceafd1", "b7ad6b7169203331"),
        ("compute", "f2586a373fa698e3", "2dd12450b8dcaa12"),
        ("gen", "2dd12450b8dcaa12", "30a7dc31f21c5c5e"),
        ("InferRequest", "30a7dc31f21c5c5e", "none"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(found[at], (name, id.to_owned(), parent.to_owned()));
    }
    let compute = &decoded.spans[0];
    assert_eq!((compute.start_unix_ns, compute.end_unix_ns), (1_795_225_347_147_351_575, 1_795_225_347_284_924_796));
    assert_eq!((compute.stage, compute.kind, &*compute.service), (None, SpanKind::Server, "triton-inference-server"));
    // the stages are in the events; a model's name is a role
    assert_eq!(compute.server.as_ref().map(|server| server.pieces.len()), Some(3));
    let roles = [1, 3, 5, 6, 7].map(|at: usize| decoded.spans[at].server.as_ref().and_then(|server| server.role));
    assert_eq!(roles, [Some(Stage::Preprocessing), Some(Stage::Forward), Some(Stage::Postprocessing), None, None]);
    assert!(decoded.spans.iter().all(|span| span.stage.is_none()));
    let in_trace = |trace: &str| decoded.spans.iter().filter(|s| s.trace.to_string() == trace).count();
    assert_eq!((in_trace("0af7651916cd43dd8448eb211c80319c"), in_trace("40e5d5934ac5bf9909fa189418babc10")), (15, 3));
}

/// The same JSON with every key in snake_case.
fn snake(value: &serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Array(items) => items.iter().map(snake).collect(),
        serde_json::Value::Object(fields) => {
            let name = |key: &str| {
                key.chars().fold(String::new(), |mut out, c| {
                    if c.is_ascii_uppercase() {
                        out.push('_')
                    }
                    out.push(c.to_ascii_lowercase());
                    out
                })
            };
            fields.iter().map(|(key, value)| (name(key), snake(value))).collect()
        }
        other => other.clone(),
    }
}

#[test]
fn snake_case_says_the_same_as_camel_case() {
    let camel: serde_json::Value = serde_json::from_slice(&triton()).unwrap();
    let text = snake(&camel).to_string();
    assert!(text.contains("\"resource_spans\"") && text.contains("\"parent_span_id\"") && !text.contains("traceId"));
    assert_eq!(traces(Encoding::Json, text.as_bytes()).unwrap(), traces(Encoding::Json, &triton()).unwrap());
}

#[test]
fn json_is_read_as_loosely_as_it_is_written() {
    let body = json!({ "resourceSpans": [{
        "resource": { "attributes": [{ "key": "service.name", "value": { "stringValue": "py" } }] },
        "schemaUrl": null, "fromTheFuture": { "x": [1] },
        "scopeSpans": [null, { "spans": [
            { "traceId": "0AF7651916CD43DD8448EB211C80319C", "spanId": "00f067aa0ba902b7", "parentSpanId": "", "kind": "SPAN_KIND_SERVER",
              "name": "predict", "startTimeUnixNano": 5, "endTimeUnixNano": "9", "flags": "257", "status": { "code": "STATUS_CODE_ERROR" },
              "attributes": [{ "key": "x", "value": { "doubleValue": "NaN" } }, { "key": "n", "value": { "intValue": "3" } }] },
            { "traceId": "not hex", "spanId": "00f067aa0ba902b7", "name": "a" },
            { "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "00f067aa0ba902b7", "kind": 3, "name": null },
            { "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "00f067aa0ba902b8", "kind": "5", "name": "b" },
        ] }],
    }] });
    let decoded = decoded(Encoding::Json, body.to_string().as_bytes());
    assert_eq!((decoded.spans.len(), decoded.invalid), (3, 1));
    let first = &decoded.spans[0];
    assert_eq!((first.start_unix_ns, first.end_unix_ns, first.kind, first.parent), (5, 9, SpanKind::Server, None));
    assert_eq!((first.stage, &*first.service), (Some(Stage::Forward), "py"));
    assert_eq!((decoded.spans[1].kind, decoded.spans[2].kind), (SpanKind::Client, SpanKind::Consumer));
}

#[test]
fn what_is_no_request_is_refused() {
    for body in [&b""[..], b"[]", b"null", b"{\"resourceSpans\": 7}", b"{\"resourceSpans\": [", b"\xff"] {
        assert!(traces(Encoding::Json, body).is_err(), "{}", String::from_utf8_lossy(body));
    }
    assert!(traces(Encoding::Json, "[".repeat(100_000).as_bytes()).is_err());
    assert!(spans(b"\xff\xff\xff", &Rules::default()).is_err());
    assert!(spans(b"", &Rules::default()).unwrap().spans.is_empty());
}

#[test]
fn attributes_of_every_scalar_type_are_text() {
    let attributes = [
        attribute("s", Value::StringValue("x".into())),
        attribute("b", Value::BoolValue(true)),
        attribute("i", Value::IntValue(-3)),
        attribute("d", Value::DoubleValue(0.5)),
        attribute("y", Value::BytesValue(vec![1])),
    ];
    let found = ["s", "b", "i", "d", "y", "none"].map(|key| text(&attributes, key));
    assert_eq!(
        found.map(|t| t.map(Cow::into_owned)),
        ["x", "true", "-3", "0.5"].map(|t| Some(t.to_owned())).into_iter().chain([None, None]).collect::<Vec<_>>()[..]
    );
}

#[test]
fn spans_beyond_the_bounds_are_counted_and_not_built() {
    let wide = Span { attributes: vec![KeyValue::default(); MAX_ELEMENTS + 1], ..span(TRACE, 1, "wide") };
    let body = request(vec![wide, span(TRACE, 2, "forward")]).encode_to_vec();
    let found = decoded(Encoding::Protobuf, &body);
    assert_eq!((found.spans.len(), &*found.spans[0].name, found.rejected), (1, "forward", 1));
    let many = request((0..MAX_SPANS + 3).map(|_| span(TRACE, 1, "x")).collect()).encode_to_vec();
    let found = decoded(Encoding::Protobuf, &many);
    assert_eq!((found.spans.len(), found.rejected), (MAX_SPANS, 3));
}

#[test]
fn resources_and_scopes_beyond_the_bounds_refuse_the_request() {
    let too_many = |request: &ExportTraceServiceRequest| {
        matches!(spans(&request.encode_to_vec(), &Rules::default()), Err(Undecodable::TooMany(_)))
    };
    let mut wide = request(vec![span(TRACE, 1, "x")]);
    wide.resource_spans[0].resource =
        Some(Resource { attributes: vec![KeyValue::default(); MAX_ELEMENTS + 1], ..Resource::default() });
    assert!(too_many(&wide));
    let resource_spans = vec![ResourceSpans::default(); 2 * MAX_SPANS + 1];
    assert!(too_many(&ExportTraceServiceRequest { resource_spans }));
    let scope_spans = vec![ScopeSpans::default(); 2 * MAX_SPANS];
    let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
    assert!(too_many(&ExportTraceServiceRequest { resource_spans }));
}

#[test]
fn a_resource_after_its_spans_counts_for_them() {
    let (service, body) = (attr("service.name", "late"), request(vec![span(TRACE, 1, "x")]));
    let scopes = ResourceSpans { resource: None, ..body.resource_spans[0].clone() }.encode_to_vec();
    let resource = Resource { attributes: vec![service], ..Resource::default() };
    let resource = ResourceSpans { resource: Some(resource), ..ResourceSpans::default() }.encode_to_vec();
    let mut bytes = Vec::new();
    put_delimited(1, &[scopes, resource].concat(), &mut bytes);
    assert_eq!(&*decoded(Encoding::Protobuf, &bytes).spans[0].service, "late");
}

proptest! {
    #[test]
    fn what_is_read_in_pieces_is_what_the_whole_says(names in proptest::collection::vec("[a-z]{0,9}", 0..6), split in 0..6_usize) {
        let mut whole = request(names.iter().map(|name| span(TRACE, 1, name)).collect());
        let rest = whole.resource_spans[0].scope_spans[0].spans.split_off(split.min(names.len()));
        whole.resource_spans[0].scope_spans.push(ScopeSpans { spans: rest, ..ScopeSpans::default() });
        let found = decoded(Encoding::Protobuf, &whole.encode_to_vec()).spans;
        prop_assert_eq!(found.iter().map(|span| &*span.name).collect::<Vec<_>>(), names);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = spans(&bytes, &Rules::default());
    }

    #[test]
    fn a_request_cut_or_changed_anywhere_does_not_make_it_panic(cut in 0..200_usize, at in 0..200_usize, to in any::<u8>()) {
        let mut bytes = request(vec![span(TRACE, 1, "forward"), span(TRACE, 2, "queue")]).encode_to_vec();
        let length = bytes.len();
        bytes[at % length] = to;
        bytes.truncate(length - cut % length);
        let _ = spans(&bytes, &Rules::default());
    }
}

fn link(trace: u8, span: u8) -> Link {
    Link { trace_id: vec![trace; 16], span_id: vec![span; 8], ..Link::default() }
}

#[test]
fn a_batchs_span_is_a_span_of_each_request_that_it_links_to() {
    let batch = |parent: &[u8], links: Vec<Link>| Span { parent_span_id: parent.to_vec(), links, ..span(TRACE, 1, "forward") };
    let of = |span: Span| {
        let decoded = decoded(Encoding::Protobuf, &request(vec![span]).encode_to_vec());
        let seen = |span: &IncomingSpan| {
            (span.trace.0[0], span.parent.map(|parent| parent.0[0]), span.note().shared_by, span.origin() != span.span)
        };
        (decoded.spans.iter().map(seen).collect::<Vec<_>>(), decoded.links_shed)
    };
    let three = vec![link(1, 11), link(2, 12), link(2, 12), link(3, 13)];
    let copies = [(1, Some(11), 4, true), (2, Some(12), 4, true), (3, Some(13), 4, true)];
    assert_eq!(of(batch(&[], three.clone())), (copies.to_vec(), 0), "a span of no request is none besides");
    let own = (7, Some(99), 4, false);
    assert_eq!(of(batch(&[99; 8], three)), ([&copies[..], &[own]].concat(), 0));
    // one of them is its own parent's
    assert_eq!(of(batch(&[11; 8], vec![link(7, 11), link(2, 12)])).0, [(2, Some(12), 2, true), (7, Some(11), 2, false)]);
    // no stage: links say something else
    let other = Span { name: "retry".into(), ..batch(&[99; 8], vec![link(1, 11)]) };
    assert_eq!(of(other), (vec![(7, Some(99), 0, false)], 0));
    let nothing = Span { links: vec![Link::default()], ..span(TRACE, 1, "forward") };
    assert_eq!(of(nothing).0.len(), 1);
}

#[test]
fn links_are_bounded_by_the_span_and_by_the_message() {
    let linked = |id: u8, links: usize| {
        let links =
            (0..links).map(|n| Link { trace_id: vec![1; 16], span_id: (n as u64 + 1).to_be_bytes().to_vec(), ..Link::default() });
        Span { parent_span_id: Vec::new(), links: links.collect(), ..span(TRACE, id, "forward") }
    };
    let one = decoded(Encoding::Protobuf, &request(vec![linked(1, MAX_LINKS + 3)]).encode_to_vec());
    assert_eq!((one.spans.len(), one.links_shed, one.spans[0].note().shared_by), (MAX_LINKS, 3, 259));
    let ids: std::collections::HashSet<SpanId> = one.spans.iter().map(|span| span.span).collect();
    assert_eq!(ids.len(), MAX_LINKS);
    let many = request((1..=100).map(|id| linked(id, MAX_LINKS)).collect());
    let many = decoded(Encoding::Protobuf, &many.encode_to_vec());
    assert_eq!((many.spans.len() as u64 - 36, many.links_shed), (MAX_SPANS as u64, (100 - 64) * MAX_LINKS as u64));
}

#[test]
fn names_of_2021_and_ids_in_base64_are_read() {
    let json = json!({"resourceSpans": [{"resource": {}, "instrumentationLibrarySpans": [{
        "instrumentationLibrary": {"name": "old"},
        "spans": [{"traceId": "BwcHBwcHBwcHBwcHBwcHBw==", "spanId": "AQEBAQEBAQE=", "parentSpanId": "AgICAgICAgI=", "name": "forward", "kind": "SPAN_KIND_SERVER"}],
    }]}]});
    let decoded = decoded(Encoding::Json, json.to_string().as_bytes());
    let [span] = &decoded.spans[..] else { panic!() };
    assert_eq!((span.trace, span.span, span.parent, span.kind), (TRACE, SpanId([1; 8]), Some(SpanId([2; 8])), SpanKind::Server));

    let scope =
        ScopeSpans { spans: vec![super::super::tests::span(TRACE, 1, "forward")], ..ScopeSpans::default() }.encode_to_vec();
    let mut resource = Vec::new();
    put_delimited(LIBRARY_SPANS, &scope, &mut resource);
    let mut request = Vec::new();
    put_delimited(1, &resource, &mut request);
    assert_eq!(spans(&request, &Rules::default()).unwrap().spans.len(), 1);
}

fn list(values: Vec<AnyValue>) -> AnyValue {
    AnyValue { value: Some(Value::ArrayValue(ArrayValue { values })) }
}

fn of_value(value: AnyValue) -> Span {
    Span { attributes: vec![KeyValue { value: Some(value), ..KeyValue::default() }], ..Span::default() }
}

fn fits(span: &Span) -> bool {
    Element::Span.fits(&span.encode_to_vec()).unwrap()
}

#[test]
fn elements_of_every_kind_are_counted() {
    let n = MAX_ELEMENTS;
    assert!(fits(&Span { attributes: vec![KeyValue::default(); n], ..Span::default() }));
    for over in [
        Span { attributes: vec![KeyValue::default(); n + 1], ..Span::default() },
        Span { events: vec![Event::default(); n + 1], ..Span::default() },
        Span { links: vec![Link::default(); n + 1], ..Span::default() },
        Span { events: vec![Event { attributes: vec![KeyValue::default(); n], ..Event::default() }], ..Span::default() },
        Span { links: vec![Link { attributes: vec![KeyValue::default(); n], ..Link::default() }], ..Span::default() },
        of_value(list(vec![AnyValue::default(); n])),
    ] {
        assert!(!fits(&over));
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| of_value((0..depth).fold(AnyValue::default(), |value, _| list(vec![value])));
    assert!(fits(&nested(14)) && !fits(&nested(16)) && !fits(&nested(40)));
}

#[test]
fn a_text_is_counted_and_not_read_as_a_message() {
    // Resource.entity_refs (3) with EntityRef.id_keys (3): no name of an attribute is protobuf
    let key = |name: &str| [&[0x1a, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
    let entity = [key("host.id"), key("\0\x1a")].concat();
    let resource = [&[0x1a, u8::try_from(entity.len()).unwrap()], &entity[..]].concat();
    assert!(Element::Resource.fits(&resource).unwrap());
}

#[test]
fn what_is_cut_is_no_message() {
    assert!(Element::Span.fits(&[0x4a, 5, 1]).is_err());
}
