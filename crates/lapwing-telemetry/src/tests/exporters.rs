//! Both exporters against collectors over HTTP that take, refuse, or do not exist.

use axum::Router;
use axum::extract::State;
use bytes::Bytes;
use http::{StatusCode, Uri};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, Sum};
use parking_lot::Mutex;
use prost::Message;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use tokio_util::sync::CancellationToken;

use super::*;
use lapwing_metrics::Counter;

/// Answers by a script, then 200, and keeps what it took.
#[derive(Clone, Default)]
struct Sink {
    script: Arc<Mutex<Vec<StatusCode>>>,
    answer: Arc<Mutex<Bytes>>,
    taken: Arc<Mutex<Vec<(String, Bytes)>>>,
}

async fn collect(State(sink): State<Sink>, uri: Uri, body: Bytes) -> (StatusCode, Bytes) {
    if let Some(status) = sink.script.lock().pop() {
        return (status, Bytes::new());
    }
    sink.taken.lock().push((uri.path().to_owned(), body));
    (StatusCode::OK, sink.answer.lock().clone())
}

/// Runs `exporting`, which is given the collector's configuration, while the collector serves.
async fn served<F: Future<Output = ()>>(sink: &Sink, exporting: impl FnOnce(Config) -> F) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = config(&format!("http://{}", listener.local_addr().unwrap()));
    let server = axum::serve(listener, Router::new().fallback(collect).with_state(sink.clone()));
    tokio::select! {
        _ = async { server.await } => panic!("the collector ended"),
        () = exporting(config) => {}
    }
}

fn config(to: &str) -> Config {
    let endpoint = lapwing_settings::Switch::On(to.parse().unwrap());
    Config { metrics: SignalExport::On, traces: SignalExport::On, endpoint, ..Config::default() }
}

/// A counter that grows by one with each request.
fn counting() -> CollectMetrics {
    let count = AtomicI64::new(0);
    Box::new(move || {
        let value = count.fetch_add(1, Relaxed) + 1;
        let point = NumberDataPoint {
            start_time_unix_nano: 1,
            time_unix_nano: value.unsigned_abs(),
            value: Some(Value::AsInt(value)),
            ..NumberDataPoint::default()
        };
        let sum = Sum { data_points: vec![point], is_monotonic: true, ..Sum::default() };
        vec![Metric { name: "n".to_owned(), data: Some(Data::Sum(sum)), ..Metric::default() }]
    })
}

fn values(sink: &Sink) -> Vec<i64> {
    let requests =
        sink.taken.lock().iter().map(|(_, body)| ExportMetricsServiceRequest::decode(body.clone()).unwrap()).collect::<Vec<_>>();
    let metrics = requests.into_iter().flat_map(|mut one| one.resource_metrics.remove(0).scope_metrics.remove(0).metrics);
    let value = |metric: Metric| match metric.data {
        Some(Data::Sum(sum)) => match sum.data_points[0].value {
            Some(Value::AsInt(value)) => value,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    metrics.map(value).collect()
}

/// Sends `requests` requests of a growing counter.
async fn send_metrics(sink: &Sink, temporality: Temporality, requests: usize) -> Arc<Counters> {
    let counters = Arc::new(Counters::default());
    served(sink, |config| {
        let config = Config { temporality, ..config };
        let resource = ServiceResource::new(&config);
        let mut exporter =
            MetricsExporter::new((&config, &Arc::default()), &resource, counters.clone(), counting()).unwrap().unwrap();
        async move {
            let open = CancellationToken::new();
            for _ in 1..requests {
                exporter.export(&open).await;
            }
            // the last one is sent because the end has come
            open.cancel();
            exporter.run(open).await;
        }
    })
    .await;
    counters
}

#[tokio::test]
async fn what_a_lost_request_had_is_in_the_next_one() {
    for (temporality, expected) in [(Temporality::Delta, [1, 2, 1]), (Temporality::Cumulative, [1, 3, 4])] {
        let sink = Sink::default();
        let counters = Arc::new(Counters::default());
        served(&sink, |config| {
            let config = Config { temporality, ..config };
            let resource = ServiceResource::new(&config);
            let mut exporter =
                MetricsExporter::new((&config, &Arc::default()), &resource, counters.clone(), counting()).unwrap().unwrap();
            let script = sink.script.clone();
            async move {
                let open = CancellationToken::new();
                exporter.export(&open).await;
                script.lock().push(StatusCode::BAD_REQUEST);
                exporter.export(&open).await;
                exporter.export(&open).await;
                exporter.export(&open).await;
            }
        })
        .await;
        assert_eq!(values(&sink), expected, "{temporality:?}");
        assert_eq!(counters.get(Counter::TelemetryMetricsSent), 3);
        assert_eq!(counters.get(Counter::TelemetryMetricsFailed), 1);
        assert!(sink.taken.lock().iter().all(|(path, _)| path == "/v1/metrics"));
    }
}

#[tokio::test]
async fn the_end_sends_once_more_and_refused_points_are_counted() {
    let sink = Sink::default();
    let partial = ExportMetricsPartialSuccess { rejected_data_points: 3, error_message: "no".to_owned() };
    *sink.answer.lock() = ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec().into();
    let counters = send_metrics(&sink, Temporality::Cumulative, 2).await;
    assert_eq!((values(&sink), counters.get(Counter::TelemetryPointsRejected)), (vec![1, 2], 6));
}

#[tokio::test]
async fn sampled_exchanges_arrive_in_one_request_with_their_resource() {
    let (setup, sink) = (Setup::new(), Sink::default());
    served(&sink, |config| {
        let (mut sampler, queued) = setup.sampler(1.0);
        (0..20).for_each(|n| sampler.offer(&setup.exchange(ROUTE, trace(n), Outcome::Ok, MS), Stamp::now()));
        drop(sampler);
        let resource = ServiceResource::new(&config);
        let exporter =
            TracesExporter::new((&config, &Arc::default()), &resource, setup.labels.clone(), setup.counters.clone(), queued);
        exporter.unwrap().unwrap().run(CancellationToken::new())
    })
    .await;
    let taken = sink.taken.lock();
    assert_eq!((taken.len(), &*taken[0].0), (1, "/v1/traces"));
    let request = ExportTraceServiceRequest::decode(taken[0].1.clone()).unwrap();
    let of = &request.resource_spans[0];
    assert_eq!(of.resource.as_ref().unwrap().attributes[0].key, "service.name");
    assert_eq!(of.scope_spans[0].spans.iter().filter(|span| span.kind == 2).count(), 20);
    assert_eq!(setup.counters.get(Counter::TracesSent), 20);
}

#[tokio::test(start_paused = true)]
async fn traces_for_a_collector_that_is_not_there_are_lost_and_counted() {
    let setup = Setup::new();
    let (mut sampler, queued) = setup.sampler(1.0);
    (0..200).for_each(|n| sampler.offer(&setup.exchange(ROUTE, trace(n), Outcome::Ok, MS), Stamp::now()));
    let config = config("grpc://127.0.0.1:1");
    let resource = ServiceResource::new(&config);
    let exporter =
        TracesExporter::new((&config, &Arc::default()), &resource, setup.labels.clone(), setup.counters.clone(), queued)
            .unwrap()
            .unwrap();
    let closing = CancellationToken::new();
    closing.cancel();
    drop(sampler);
    exporter.run(closing).await;
    assert_eq!((setup.counters.get(Counter::TracesLost), setup.counters.get(Counter::TracesSent)), (200, 0));
    // one that never runs counts what waited
    let (mut sampler, queued) = setup.sampler(1.0);
    (0..5).for_each(|n| sampler.offer(&setup.exchange(ROUTE, trace(n), Outcome::Ok, MS), Stamp::now()));
    drop(
        TracesExporter::new((&config, &Arc::default()), &resource, setup.labels.clone(), setup.counters.clone(), queued).unwrap(),
    );
    assert_eq!(setup.counters.get(Counter::TracesLost), 205);
}
