//! The demo's model server: `serving/` with the ticket model plugged in, on a loopback port and its own thread.
//!
//! It reports as real servers do: `Server-Timing` for preprocessing, queue, forward and postprocessing, and OTLP spans (hydration among
//! them) for requests whose `traceparent` is sampled. It knows nothing of the proxy.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use http::{HeaderMap, HeaderName, Method};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use super::injected;
use super::scenario::Script;
use super::spans::exporter::{self, SpanQueue};
use super::spans::{Arrival, ROUTE};
use super::steps::StepRecorder;
use super::tickets::{CacheCounts, TicketModel};
use lapwing_ledger::TraceContext;
use lapwing_serving::{self, Catalogue, Limits};
use lapwing_settings::{Period, Size};

/// Threads for hydration, tokenizing and calibration, besides those of the server and the model.
const HANDLER_THREADS: usize = 2;
/// The same where a script makes them wait: a waiting thread takes no processor time.
const SCRIPTED_THREADS: usize = 128;
/// The largest request body; 256 ticket numbers need a thousandth of it.
const MAX_BODY: Size = Size::mib(4);
/// The same in a scenario, one of which sends larger ones.
const MAX_SCRIPTED_BODY: Size = Size::mib(8);
/// How long a stop waits for requests in flight.
const DRAIN: Period = Period::from_secs(1);

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A running server; stops and joins its thread when dropped.
#[derive(Debug)]
pub struct ServerHandle {
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
    spans_dropped: Arc<AtomicU64>,
    cache_counts: Arc<CacheCounts>,
}

impl ServerHandle {
    /// Spans that could not be exported so far.
    #[must_use]
    pub fn spans_dropped(&self) -> u64 {
        self.spans_dropped.load(Ordering::Relaxed)
    }

    /// The counts of the feature cache.
    pub(crate) const fn cache_counts(&self) -> &Arc<CacheCounts> {
        &self.cache_counts
    }

    /// Stops accepting, waits up to a second for requests in flight, exports the last spans, and joins the thread.
    ///
    /// Blocks the calling thread: at most a second, plus two if the OTLP receiver does not answer.
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

/// Starts the server on an ephemeral loopback port, with a warm model; spans go to `otlp_grpc`, which need not listen.
///
/// # Errors
///
/// If no port can be bound, the model cannot be built or warmed up, or no thread can be started.
pub fn start_server(otlp_grpc: SocketAddr) -> io::Result<(SocketAddr, ServerHandle)> {
    start_scripted_server(otlp_grpc, None)
}

/// Starts the server like [`start_server`], with a script that it acts out.
///
/// # Errors
///
/// Those of [`start_server`].
pub(crate) fn start_scripted_server(
    otlp_grpc: SocketAddr,
    script: Option<Arc<Script>>,
) -> io::Result<(SocketAddr, ServerHandle)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let model = TicketModel::start(script.clone())?;
    let cache_counts = Arc::clone(model.cache_counts());
    model.wait_until_ready()?;
    model.learn_answers()?;
    let catalogue = Catalogue::new(vec![Arc::new(model)]).map_err(io::Error::other)?;
    let threads = if script.is_some() { SCRIPTED_THREADS } else { HANDLER_THREADS };
    let runtime = Builder::new_current_thread().max_blocking_threads(threads).enable_all().build()?;
    let stop = CancellationToken::new();
    let spans_dropped = Arc::new(AtomicU64::new(0));
    let (until, dropped) = (stop.clone(), Arc::clone(&spans_dropped));
    let thread = thread::Builder::new().name("demo-server".to_owned()).spawn(move || {
        if let Err(error) = serve(&runtime, listener, catalogue, (otlp_grpc, dropped), script, until) {
            tracing::error!(%error, "the demo server failed");
        }
    })?;
    Ok((address, ServerHandle { stop, thread: Some(thread), spans_dropped, cache_counts }))
}

fn serve(
    runtime: &Runtime,
    listener: TcpListener,
    catalogue: Catalogue,
    (otlp_grpc, dropped): (SocketAddr, Arc<AtomicU64>),
    script: Option<Arc<Script>>,
    stop: CancellationToken,
) -> io::Result<()> {
    let max_body = if script.is_some() { MAX_SCRIPTED_BODY } else { MAX_BODY };
    let limits = Limits { max_body, grace: DRAIN, ..Limits::default() };
    runtime.block_on(async move {
        let (spans, exporter) = exporter::pair(otlp_grpc, dropped);
        let router = traced(lapwing_serving::router(Arc::new(catalogue), limits), Tracing { spans, script: script.clone() });
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let served = CancellationToken::new();
        let serving = async {
            let end = lapwing_serving::serve_router(listener, router, limits, "demo", stop).await;
            served.cancel();
            end
        };
        let pausing = async {
            if let Some(script) = script {
                served.run_until_cancelled(script.pause_often()).await;
            }
        };
        let (end, (), ()) = tokio::join!(serving, exporter.run(served.clone()), pausing);
        end
    })
}

/// What the middleware around each request needs.
#[derive(Clone, Debug)]
struct Tracing {
    spans: SpanQueue,
    script: Option<Arc<Script>>,
}

/// Creates spans for the sampled requests that `router` answers, and tells what a script did to each.
fn traced(router: Router, tracing: Tracing) -> Router {
    router.layer(middleware::from_fn_with_state(tracing, trace))
}

async fn trace(State(Tracing { spans, script }): State<Tracing>, request: Request, next: Next) -> Response {
    let arrival = Arrival::now();
    let is_inference = request.method() == Method::POST && request.uri().path() == ROUTE;
    let caller = sampled(request.headers()).filter(|_| is_inference);
    if caller.is_none() && script.is_none() {
        return next.run(request).await;
    }
    let recorder = Arc::new(StepRecorder::default());
    let mut response = Arc::clone(&recorder).scope(next.run(request)).await;
    if let Some(caller) = caller {
        spans.offer(arrival.spans(caller, response.status().as_u16(), &recorder.steps()));
    }
    if let Some(script) = script {
        for step in recorder.steps() {
            recorder.inject(step.step.stage(), script.paused_ns(step.start, step.end));
        }
        if let Some(value) = injected::field(&recorder.injected(), arrival.at()) {
            response.headers_mut().insert(injected::INJECTED.clone(), value);
        }
    }
    response
}

fn sampled(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::parse(headers.get(&TRACEPARENT)?.as_bytes()).filter(TraceContext::is_sampled)
}

#[cfg(test)]
mod tests;
