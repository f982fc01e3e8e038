//! From the export handler to collectors that accept, refuse, fail for a while, or do not exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message;
use tokio_util::sync::CancellationToken;

use super::forwarder;
use crate::Config;
use crate::collector::{Encoding, Signal};
use crate::otlp::tests::{fates, handler, listener, request, span, text, triton};
use crate::otlp::{ExportHandler, OwnTraces, serve_grpc, serve_http};
use lapwing_ledger::{SpanId, TraceId, TraceMark};
use lapwing_metrics::{Counter, Counters};
use lapwing_settings::{Collector, Secret, TraceSampler};

const THEIRS: TraceId = TraceId([7; 16]);

/// A collector that answers by a script, then 200, and keeps what it took.
#[derive(Clone, Default)]
struct Sink {
    script: Arc<Mutex<Vec<(StatusCode, &'static str)>>>,
    taken: Arc<Mutex<Vec<(String, HeaderMap, Bytes)>>>,
}

async fn collect(State(sink): State<Sink>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if let Some((status, retry_after)) = sink.script.lock().pop() {
        return (status, [("retry-after", retry_after)]).into_response();
    }
    sink.taken.lock().push((uri.path().to_owned(), headers, body));
    StatusCode::OK.into_response()
}

struct Setup {
    handler: ExportHandler,
    counters: Arc<Counters>,
    ours: Arc<OwnTraces>,
    mark: TraceMark,
}

/// Lets `feed` fill the handler, then drains the forwarder to `to`.
async fn forward(to: &str, config: &Config, sampler: &str, feed: impl FnOnce(&Setup)) -> Arc<Counters> {
    let counters = Arc::new(Counters::default());
    let mark = TraceMark::random();
    let ours = Arc::new(OwnTraces::new(mark));
    let headers = BTreeMap::from([("x-tenant".to_owned(), Secret::new("blue"))]);
    let collector: Collector = to.parse().unwrap();
    let (queue, draining) =
        forwarder((&collector, &Arc::default()), headers, config, sampler.parse().unwrap(), ours.clone(), counters.clone())
            .unwrap();
    let (handler, _spans) = handler(64, Some(queue), &counters);
    let setup = Setup { handler, counters: counters.clone(), ours, mark };
    feed(&setup);
    drop(setup);
    draining.await;
    counters
}

/// Feeds a collector that speaks HTTP: what it took.
async fn to_http(script: &[(StatusCode, &'static str)], feed: impl FnOnce(&Setup)) -> (Sink, Arc<Counters>) {
    sampled_to_http("parentbased_always_on", script, feed).await
}

/// The same, where the user's service has `sampler`.
async fn sampled_to_http(
    sampler: &str,
    script: &[(StatusCode, &'static str)],
    feed: impl FnOnce(&Setup),
) -> (Sink, Arc<Counters>) {
    let sink = Sink::default();
    sink.script.lock().extend(script.iter().rev());
    let (listener, address) = listener();
    listener.set_nonblocking(true).unwrap();
    let router = Router::new().fallback(collect).with_state(sink.clone());
    let server = axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), router);
    let (to, config) = (format!("http://{address}/otlp"), Config::default());
    let counters = tokio::select! {
        _ = async { server.await } => panic!("the collector ended"),
        counters = forward(&to, &config, sampler, feed) => counters,
    };
    (sink, counters)
}

fn traces(spans: &[(TraceId, u8)]) -> Bytes {
    request(spans.iter().map(|(trace, id)| span(*trace, *id, "forward")).collect()).encode_to_vec().into()
}

#[test]
fn what_serves_and_forwards_can_be_spawned() {
    fn spawnable<T: Send + 'static>(_: T) {}
    let counters = Arc::new(Counters::default());
    let ours = Arc::new(OwnTraces::new(TraceMark::random()));
    let to = "grpc://[::1]:4317".parse().unwrap();
    let (queue, forwarding) =
        forwarder((&to, &Arc::default()), BTreeMap::new(), &Config::default(), TraceSampler::default(), ours, counters.clone())
            .unwrap();
    let (handler, _spans) = handler(1, Some(queue), &counters);
    spawnable(forwarding);
    spawnable(serve_grpc(listener().0, handler.clone(), 1, CancellationToken::new()));
    spawnable(serve_http(listener().0, handler, 1, CancellationToken::new()));
}

#[tokio::test]
async fn every_signal_is_passed_on_as_it_came() {
    // an unknown field is kept
    let unknown = [&traces(&[(THEIRS, 1)])[..], &[0xf8, 0x7f, 1]].concat();
    let (sink, counters) = to_http(&[], |setup| {
        setup.handler.take(Signal::Traces, Encoding::Protobuf, unknown.clone().into()).unwrap();
        setup.handler.take(Signal::Traces, Encoding::Json, Bytes::from(triton())).unwrap();
        setup.handler.take(Signal::Metrics, Encoding::Protobuf, Bytes::from_static(b"metrics, unread")).unwrap();
        setup.handler.take(Signal::Logs, Encoding::Json, Bytes::from_static(b"logs, unread")).unwrap();
    })
    .await;
    let taken = sink.taken.lock().clone();
    let of = |path: &str, content_type: &str| {
        let found = taken.iter().filter(|(p, h, _)| p == path && h["content-type"] == content_type && h["x-tenant"] == "blue");
        found.map(|(_, _, body)| body.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(of("/otlp/v1/traces", "application/x-protobuf"), [unknown]);
    assert_eq!(of("/otlp/v1/traces", "application/json"), [triton()]);
    assert_eq!(of("/otlp/v1/metrics", "application/x-protobuf"), [b"metrics, unread".to_vec()]);
    assert_eq!(of("/otlp/v1/logs", "application/json"), [b"logs, unread".to_vec()]);
    assert_eq!(fates(&counters), (4, 0));
}

/// Spans at the collector: trace, own id and parent, of all messages together.
fn arrived(sink: &Sink) -> Vec<(TraceId, u8, Vec<u8>)> {
    let taken = sink.taken.lock();
    let messages = taken.iter().map(|(_, _, body)| ExportTraceServiceRequest::decode(body.clone()).unwrap());
    let spans = messages.flat_map(|m| m.resource_spans).flat_map(|r| r.scope_spans).flat_map(|s| s.spans);
    spans.map(|span| (TraceId::from_slice(&span.trace_id).unwrap(), span.span_id[0], span.parent_span_id)).collect()
}

#[tokio::test]
async fn what_the_users_sampler_would_have_dropped_is_joined_and_not_passed_on() {
    let (sink, counters) = sampled_to_http("parentbased_always_off", &[], |setup| {
        let (made, forced) = (setup.mark.make(), TraceId([9; 16]));
        setup.ours.force(forced);
        setup.handler.take(Signal::Traces, Encoding::Protobuf, traces(&[(made, 1), (forced, 2)])).unwrap();
        setup.handler.take(Signal::Traces, Encoding::Protobuf, traces(&[(made, 3), (THEIRS, 4), (forced, 5)])).unwrap();
    })
    .await;
    let taken = sink.taken.lock();
    assert_eq!(taken.len(), 1, "a request that is left empty is not passed on");
    assert_eq!(ExportTraceServiceRequest::decode(taken[0].2.clone()).unwrap(), request(vec![span(THEIRS, 4, "forward")]));
    assert_eq!((fates(&counters), counters.get(Counter::SpansReceived), counters.get(Counter::SpansWithheld)), ((1, 0), 5, 4));
}

#[tokio::test]
async fn without_a_sampler_everything_arrives_and_lapwings_spans_are_replaced_by_their_parents() {
    let (made, client, ours) = (Mutex::new(TraceId::default()), SpanId([5; 8]), SpanId([6; 8]));
    let (sink, counters) = to_http(&[], |setup| {
        let trace = setup.mark.make();
        *made.lock() = trace;
        setup.ours.record_parent(ours, client);
        let child = |trace, id, parent: SpanId| Span { parent_span_id: parent.0.to_vec(), ..span(trace, id, "forward") };
        let root = setup.mark.root_span(trace);
        let spans =
            vec![child(trace, 1, root), child(trace, 2, SpanId([1; 8])), child(THEIRS, 3, ours), span(THEIRS, 4, "redis")];
        let body = request(spans).encode_to_vec().into();
        setup.handler.take(Signal::Traces, Encoding::Protobuf, body).unwrap();
    })
    .await;
    let made = *made.lock();
    let expected = vec![(made, 1, vec![]), (made, 2, vec![1; 8]), (THEIRS, 3, vec![5; 8]), (THEIRS, 4, vec![99; 8])];
    assert_eq!(arrived(&sink), expected);
    assert_eq!((fates(&counters), counters.get(Counter::SpansWithheld)), ((1, 0), 0));
}

/// Every service of a trace follows the one that would have begun it, which is the one that Lapwing's span is the parent of.
#[tokio::test]
async fn a_ratio_chooses_whole_traces_as_the_upstreams_sdk_does() {
    let of_sdk = |spans: Vec<Span>, language: &str| {
        let mut one = request(spans);
        one.resource_spans[0].resource.as_mut().unwrap().attributes.push(text("telemetry.sdk.language", language));
        one
    };
    let made = Mutex::new(Vec::new());
    let (sink, counters) = sampled_to_http("parentbased_traceidratio:0.3", &[], |setup| {
        for _ in 0..200 {
            let trace = setup.mark.make();
            made.lock().push(trace);
            let server = Span { parent_span_id: setup.mark.root_span(trace).0.to_vec(), ..span(trace, 1, "POST /") };
            let mut message = of_sdk(vec![server], "java");
            message.resource_spans.extend(of_sdk(vec![span(trace, 2, "SELECT")], "python").resource_spans);
            setup.handler.take(Signal::Traces, Encoding::Protobuf, message.encode_to_vec().into()).unwrap();
        }
    })
    .await;
    let java = |trace: &TraceId| {
        let low = i64::from_be_bytes(trace.0[8..].try_into().unwrap());
        low.checked_abs().is_none_or(|absolute| absolute < (0.3 * i64::MAX as f64) as i64)
    };
    let made = made.into_inner();
    let chosen: Vec<_> = made.iter().filter(|trace| java(trace)).flat_map(|trace| [(*trace, 1), (*trace, 2)]).collect();
    let arrived: Vec<_> = arrived(&sink).into_iter().map(|(trace, id, _)| (trace, id)).collect();
    assert!((20..180).contains(&chosen.len()), "{}", chosen.len());
    assert_eq!(arrived.len(), chosen.len());
    assert!(chosen.iter().all(|one| arrived.contains(one)));
    assert_eq!(counters.get(Counter::SpansWithheld), 400 - chosen.len() as u64);
}

#[tokio::test]
async fn a_collector_that_stumbles_is_tried_again_and_one_that_refuses_is_not() {
    let stumbles = [(StatusCode::SERVICE_UNAVAILABLE, "0"), (StatusCode::TOO_MANY_REQUESTS, "0")];
    let sink = Sink::default();
    sink.script.lock().extend(stumbles);
    let (listener, address) = listener();
    listener.set_nonblocking(true).unwrap();
    let server = axum::serve(
        tokio::net::TcpListener::from_std(listener).unwrap(),
        Router::new().fallback(collect).with_state(sink.clone()),
    );
    let counters = Arc::new(Counters::default());
    let to: Collector = format!("http://{address}").parse().unwrap();
    let ours = Arc::new(OwnTraces::new(TraceMark::random()));
    let (queue, forwarding) =
        forwarder((&to, &Arc::default()), BTreeMap::new(), &Config::default(), TraceSampler::default(), ours, counters.clone())
            .unwrap();
    let (handler, _spans) = handler(8, Some(queue), &counters);
    handler.take(Signal::Logs, Encoding::Protobuf, Bytes::from_static(b"x")).unwrap();
    tokio::select! {
        _ = async { server.await } => panic!("the collector ended"),
        () = forwarding => panic!("the queue is open"),
        () = async { while fates(&counters) == (0, 0) { tokio::time::sleep(std::time::Duration::from_millis(20)).await } } => {}
    }
    assert_eq!((fates(&counters), sink.taken.lock().len()), ((1, 0), 1));
    let (sink, counters) = to_http(&[(StatusCode::BAD_REQUEST, "0")], |setup| {
        setup.handler.take(Signal::Logs, Encoding::Protobuf, Bytes::from_static(b"x")).unwrap();
    })
    .await;
    assert_eq!((fates(&counters), sink.taken.lock().len()), ((0, 1), 0));
}

#[tokio::test]
async fn a_dead_collector_and_a_full_queue_cost_messages_and_every_one_is_counted() {
    for scheme in ["http", "grpc"] {
        let (closed, address) = listener();
        drop(closed);
        let config = Config { forward_queue: 3, ..Config::default() };
        let counters = forward(&format!("{scheme}://{address}"), &config, "always_on", |setup| {
            for _ in 0..5 {
                setup.handler.take(Signal::Metrics, Encoding::Protobuf, Bytes::from_static(b"x")).unwrap();
            }
            assert_eq!(fates(&setup.counters), (0, 2), "no room for the last two");
        })
        .await;
        assert_eq!(fates(&counters), (0, 5), "{scheme}");
    }
}

#[tokio::test]
async fn the_queue_is_bounded_in_bytes_too_and_a_forwarder_that_never_runs_counts_what_it_held() {
    let counters = Arc::new(Counters::default());
    let ours = Arc::new(OwnTraces::new(TraceMark::random()));
    let to: Collector = "http://127.0.0.1:1".parse().unwrap();
    let (queue, forwarding) =
        forwarder((&to, &Arc::default()), BTreeMap::new(), &Config::default(), TraceSampler::default(), ours, counters.clone())
            .unwrap();
    let (handler, _spans) = handler(8, Some(queue), &counters);
    let body = Bytes::from(vec![0; 10 << 20]);
    for _ in 0..4 {
        handler.take(Signal::Logs, Encoding::Protobuf, body.clone()).unwrap();
    }
    assert_eq!(fates(&counters), (0, 1), "32 MiB hold three");
    drop(forwarding);
    handler.take(Signal::Logs, Encoding::Protobuf, Bytes::new()).unwrap();
    assert_eq!(fates(&counters), (0, 5));
}

#[tokio::test]
async fn a_grpc_collector_gets_protobuf_whatever_came() {
    // our own receiver is the collector
    let counters = Arc::new(Counters::default());
    let (collector, mut spans) = handler(64, None, &counters);
    let (listener, address) = listener();
    let stop = CancellationToken::new();
    let serving = serve_grpc(listener, collector, 1 << 20, stop.clone());
    let forwarding = async {
        let ours_counters = forward(&format!("grpc://{address}"), &Config::default(), "always_off", |setup| {
            setup.handler.take(Signal::Traces, Encoding::Json, Bytes::from(triton())).unwrap();
            setup.handler.take(Signal::Traces, Encoding::Protobuf, traces(&[(THEIRS, 1), (setup.mark.make(), 2)])).unwrap();
            setup.handler.take(Signal::Logs, Encoding::Json, Bytes::from_static(b"{\"resource_logs\":[]}")).unwrap();
            assert!(setup.handler.take(Signal::Logs, Encoding::Json, Bytes::from_static(b"no JSON")).is_err());
        })
        .await;
        stop.cancel();
        ours_counters
    };
    let (served, forwarded) = tokio::join!(serving, forwarding);
    served.unwrap();
    assert_eq!((fates(&forwarded), counters.get(Counter::OtlpMalformed)), ((3, 0), 0));
    let mut got = Vec::new();
    while let Some(some) = spans.recv().await {
        got.extend(some.into_iter().map(|s| (s.trace, s.name)));
    }
    assert_eq!(got.iter().filter(|(trace, _)| *trace == THEIRS).count(), 1);
    assert!(got.iter().any(|(_, name)| &**name == "InferRequest"));
}
