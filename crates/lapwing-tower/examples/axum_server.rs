//! An axum server with the layer: stages marked in the handler, `Server-Timing` for a sidecar, pages below `/lapwing`, and each exchange
//! exported as spans by the server's own OpenTelemetry set-up.
//!
//!     cargo run -p lapwing-tower --example axum_server      # listens on 127.0.0.1:8000, or on the address that follows
//!     curl -i 127.0.0.1:8000/predict -d '[1, 2, 3]'
//!     curl 127.0.0.1:8000/lapwing/stats

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::{Extension, MatchedPath};
use axum::http::request::Parts;
use axum::routing::post;
use axum::{Json, Router};
use lapwing_tower::{Exchange, LedgerLayer, RequestStages, ServerRecorder, Stage, Unit};
use opentelemetry::trace::{Span, SpanContext, TraceContextExt, TraceFlags, TraceState, Tracer, TracerProvider};
use opentelemetry::{Context, SpanId, TraceId};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

/// Reads ids, runs a model and answers with a sum.
async fn predict(Extension(stages): Extension<RequestStages>, body: Bytes) -> Result<Json<u64>, String> {
    stages.model("digits");
    let preprocessing = stages.enter(Stage::Preprocessing);
    let ids: Vec<u64> = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    stages.work(Unit::Row, ids.len() as u64);
    drop(preprocessing);
    let sum = stages.during(Stage::Forward, run(&ids)).await;
    Ok(Json(sum))
}

async fn run(ids: &[u64]) -> u64 {
    tokio::time::sleep(Duration::from_millis(5)).await;
    ids.iter().sum()
}

/// The server's paths, whose requests go to `recorder`.
pub fn app(recorder: &ServerRecorder) -> Router {
    let route = |parts: &Parts| {
        let path = parts.extensions.get::<MatchedPath>()?;
        Some(format!("{} {}", parts.method, path.as_str()))
    };
    Router::new()
        .route("/predict", post(predict))
        .layer(LedgerLayer::new(recorder).with_server_timing().with_route(route))
        .nest_service("/lapwing", recorder.stats_service())
}

/// A span for the request, below the client's, and one for each stage span in it.
fn export(tracer: &SdkTracer, exchange: &Exchange) {
    let ledger = &exchange.ledger;
    let at = |ns: u64| -> SystemTime { UNIX_EPOCH + Duration::from_nanos(ledger.anchor_unix_ns + ns) };
    let (trace, parent) = (TraceId::from_bytes(ledger.trace.0), SpanId::from_bytes(ledger.parent.0));
    let remote = SpanContext::new(trace, parent, TraceFlags::SAMPLED, true, TraceState::default());
    let context = if remote.is_valid() { Context::new().with_remote_span_context(remote) } else { Context::new() };
    let root = tracer.build_with_context(tracer.span_builder("predict").with_start_time(at(0)), &context);
    let context = context.with_span(root);
    for span in &ledger.spans {
        let builder = tracer.span_builder(span.stage.name()).with_start_time(at(span.start_ns));
        tracer.build_with_context(builder, &context).end_with_timestamp(at(span.end_ns));
    }
    context.span().end_with_timestamp(at(ledger.total_ns));
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // OTEL_EXPORTER_OTLP_ENDPOINT and its like apply; beside a sidecar, its receiver is at the default
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic().build()?;
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    let tracer = provider.tracer("digits");
    let recorder = ServerRecorder::builder("digits").on_exchange(move |exchange, _| export(&tracer, exchange)).start()?;
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, app(&recorder)).await?;
    provider.shutdown()?;
    Ok(())
}
