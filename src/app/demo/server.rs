//! The embedded model server: the Open Inference Protocol over HTTP/1.1 on a loopback port, on a thread of its own.
//!
//! It reports as real servers do: `Server-Timing` for preprocessing, forward and postprocessing, and OTLP spans (all
//! steps, hydration among them) for requests whose `traceparent` is sampled. It knows nothing of the proxy.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use super::exporter::{self, SpanQueue};
use super::oip::BadRequest;
use super::pipeline::{InferError, Pipeline, Step, Steps, TOP};
use super::spans::{Arrival, ROUTE};
use crate::ledger::TraceContext;

/// The longest request body in bytes: 256 rows of pixels need about a tenth.
const MAX_BODY: usize = 4 << 20;
/// How long a stop waits for requests in flight.
const DRAIN: Duration = Duration::from_secs(1);

static SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A running server; stops and joins its thread when dropped.
#[derive(Debug)]
pub struct ServerHandle {
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
    spans_dropped: Arc<AtomicU64>,
}

impl ServerHandle {
    /// Spans that could not be exported so far.
    #[must_use]
    pub fn spans_dropped(&self) -> u64 {
        self.spans_dropped.load(Ordering::Relaxed)
    }

    /// Stops accepting, waits up to a second for requests in flight, exports the last spans, and joins the thread.
    ///
    /// Blocks the calling thread: at most a second, plus two where the OTLP receiver does not answer.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the demo server's thread panicked");
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts the server on an ephemeral loopback port; spans go to `otlp_grpc`, which need not listen yet, or at all.
///
/// # Errors
///
/// Where no port can be bound, the embedded model does not load, or no thread can be started.
pub fn start_server(otlp_grpc: SocketAddr) -> io::Result<(SocketAddr, ServerHandle)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let pipeline = Pipeline::load()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let stop = CancellationToken::new();
    let spans_dropped = Arc::new(AtomicU64::new(0));
    let (until, dropped) = (stop.clone(), Arc::clone(&spans_dropped));
    let thread = thread::Builder::new().name("demo-server".to_owned()).spawn(move || {
        if let Err(error) = serve(&runtime, listener, pipeline, otlp_grpc, dropped, until) {
            tracing::error!(%error, "the demo server failed");
        }
    })?;
    Ok((address, ServerHandle { stop, thread: Some(thread), spans_dropped }))
}

fn serve(
    runtime: &Runtime,
    listener: TcpListener,
    pipeline: Pipeline,
    otlp_grpc: SocketAddr,
    dropped: Arc<AtomicU64>,
    stop: CancellationToken,
) -> io::Result<()> {
    runtime.block_on(async move {
        let (spans, exporter) = exporter::pair(otlp_grpc, dropped).map_err(io::Error::other)?;
        let app = router(Server { pipeline: Arc::new(pipeline), spans });
        let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|io| {
            if let Err(error) = io.set_nodelay(true) {
                tracing::debug!(%error, "cannot set TCP_NODELAY");
            }
        });
        let served = CancellationToken::new();
        let serving = async {
            let serve = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
            let grace = async {
                stop.cancelled().await;
                tokio::time::sleep(DRAIN).await;
                Ok(())
            };
            let end = tokio::select! {
                end = serve => end,
                end = grace => end,
            };
            served.cancel();
            end
        };
        let (end, ()) = tokio::join!(serving, exporter.run(served.clone()));
        end
    })
}

#[derive(Clone)]
struct Server {
    pipeline: Arc<Pipeline>,
    spans: SpanQueue,
}

fn router(server: Server) -> Router {
    let ready = || async { StatusCode::OK };
    Router::new()
        .route("/v2", get(about_server))
        .route("/v2/health/live", get(ready))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/digits", get(about_model))
        .route("/v2/models/digits/ready", get(ready))
        .route(ROUTE, post(infer))
        .fallback(unknown)
        .with_state(server)
}

async fn about_server() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    reply(StatusCode::OK, json!({"name": "lapwing-demo-server", "version": version, "extensions": []}).to_string())
}

async fn about_model() -> Response {
    let tensor = |name: &str, datatype: &str, shape: &[i64]| json!({"name": name, "datatype": datatype, "shape": shape});
    let top = TOP as i64;
    let about = json!({
        "name": "digits",
        "versions": ["1"],
        "platform": "onnx_tract",
        "inputs": [tensor("pixels", "FP32", &[-1, 64]), tensor("entity_ids", "INT64", &[-1])],
        "outputs": [tensor("label", "INT64", &[-1, top]), tensor("probability", "FP32", &[-1, top])],
    });
    reply(StatusCode::OK, about.to_string())
}

async fn unknown(request: Request) -> Response {
    let error = format!("{} {}: not served here", request.method(), request.uri().path());
    reply(StatusCode::NOT_FOUND, json!({ "error": error }).to_string())
}

async fn infer(State(server): State<Server>, request: Request) -> Response {
    let arrival = Arrival::now();
    let (head, body) = request.into_parts();
    let outcome = match to_bytes(body, MAX_BODY).await {
        Ok(body) => server.pipeline.infer(&body),
        Err(error) => Err(InferError::from(BadRequest::Body(error.to_string()))),
    };
    let (response, steps) = match outcome {
        Ok((body, steps)) => {
            let mut response = reply(StatusCode::OK, body);
            if let Ok(timing) = HeaderValue::try_from(server_timing(&steps)) {
                response.headers_mut().insert(SERVER_TIMING.clone(), timing);
            }
            (response, steps)
        }
        Err(error) => {
            let status = match error {
                InferError::BadRequest(_) => StatusCode::BAD_REQUEST,
                InferError::Engine(_) | InferError::Encode(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (reply(status, json!({"error": error.to_string()}).to_string()), Steps::new())
        }
    };
    if let Some(caller) = sampled(&head.headers) {
        server.spans.offer(arrival.spans(caller, response.status().as_u16(), &steps));
    }
    response
}

fn sampled(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::parse(headers.get(&TRACEPARENT)?.as_bytes()).filter(TraceContext::is_sampled)
}

/// `preprocessing;dur=0.012345, forward;dur=…, postprocessing;dur=…` in milliseconds. Hydration is left to the spans, so
/// that both ways of reporting are needed to see the whole.
fn server_timing(steps: &Steps) -> String {
    let entries = steps.iter().filter_map(|timed| {
        let name = match timed.step {
            Step::Hydration { .. } => return None,
            Step::Preprocessing => "preprocessing",
            Step::Forward { .. } => "forward",
            Step::Postprocessing => "postprocessing",
        };
        let ns = timed.end.since(timed.start);
        Some(format!("{name};dur={}.{:06}", ns / 1_000_000, ns % 1_000_000))
    });
    entries.collect::<Vec<_>>().join(", ")
}

fn reply(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
