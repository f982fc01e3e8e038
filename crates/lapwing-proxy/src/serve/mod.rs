//! A worker of the data plane: accepts connections, serves HTTP/1.1 and h2c on one port, and drains.

mod connection;
mod end;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::body::ResponseBody;
use super::connection::SocketMeter;
use super::connection_settings::ConnectionSettings;
use super::health::UpstreamHealth;
use super::in_flight::{EvenDraw, FencedObserver, RequestContext, WorkerParts};
use super::stack::{HyperService, StackSettings, stack};
use super::upstream::{ConnectionPool, UpstreamContext};
use connection::serve_client;
use end::Ends;
use lapwing_metrics::{Counter, Counters};
use lapwing_net::{AcceptLimits, Listener, LocalListener, Target, Tasks};
use lapwing_settings::ConfigHandle;

/// The pause after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);

/// The parts of a data plane.
#[derive(Clone)]
pub struct DataPlane {
    /// Loaded once for each connection, when it is accepted: a connection keeps its settings.
    pub settings: ConfigHandle<ConnectionSettings>,
    /// The upstream's address.
    pub target: Target,
    /// What is known of it, by this data plane and others to the same upstream.
    pub health: Arc<UpstreamHealth>,
    /// The profiler's counters of its own work.
    pub counters: Arc<Counters>,
}

/// Serves `listener` until `stop`, then lets requests in flight end. Dropping the future ends them at once.
///
/// # Errors
///
/// If the listener cannot be registered with the runtime.
pub async fn serve(listener: std::net::TcpListener, parts: DataPlane, stop: CancellationToken) -> io::Result<()> {
    serve_with(lapwing_net::registered(listener)?, parts, stop, stack).await;
    Ok(())
}

/// Serves connections of this process, as [`serve`] serves those of others.
pub async fn serve_local(listener: LocalListener, parts: DataPlane, stop: CancellationToken) {
    serve_with(listener, parts, stop, stack).await;
}

/// Serves as [`serve`] does, with the stack that `build` returns for each connection.
pub(crate) async fn serve_with<S>(
    listener: impl Listener,
    parts: DataPlane,
    stop: CancellationToken,
    build: impl Fn(&StackSettings, Arc<SocketMeter>, Arc<UpstreamContext>) -> S,
) where
    S: tower::Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible, Future: Send> + Send + 'static,
{
    let tasks = Tasks::default();
    let settings = stack_settings(&parts, &tasks);
    let upstream = Arc::new(UpstreamContext {
        target: parts.target,
        health: parts.health.clone(),
        pool: Arc::new(ConnectionPool::new(settings.load().exchange.config.pool_idle_timeout.get(), tasks.clone())),
        traits: Arc::default(),
        tasks: tasks.clone(),
    });
    // the workers share what descriptors there are for clients
    let max_connections = Some((lapwing_net::client_connections() / settings.load().exchange.config.worker_threads()).max(1));
    let limits = AcceptLimits { backoff: ACCEPT_BACKOFF, max_connections };
    let accepting = lapwing_net::accept(listener, limits, &tasks, &stop, &*parts.counters, |accepted| {
        let (settings, meter) = (settings.load(), Arc::new(SocketMeter::default()));
        let (context, worker) = (settings.exchange.clone(), settings.worker.clone());
        context.counters.bump(Counter::ConnectionsAccepted);
        let service = HyperService::new(build(&settings, meter.clone(), upstream.clone()));
        let ends = Ends { stop: stop.clone(), goodbye: parts.health.goodbye(), health: parts.health.clone() };
        serve_client(accepted, (context, worker), meter, service, tasks.clone(), ends)
    });
    tokio::select! {
        biased;
        () = accepting => {}
        () = sweep(&upstream, &settings) => {}
    }
    tasks.finished().await;
}

/// Closes upstream connections that have been idle for too long; never ends.
async fn sweep(upstream: &UpstreamContext, settings: &ConfigHandle<StackSettings>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        if upstream.pool.sweep(settings.load().exchange.config.pool_idle_timeout.get()).await {
            upstream.on_goodbye();
        }
    }
}

/// What the stacks of connections that are accepted now are built with: one for each value of the settings.
fn stack_settings(parts: &DataPlane, tasks: &Tasks) -> ConfigHandle<StackSettings> {
    let counters = parts.counters.clone();
    let worker = Arc::new(WorkerParts { uploads: Arc::default(), tasks: tasks.clone(), health: parts.health.clone() });
    parts.settings.map(move |settings| {
        let ConnectionSettings { config, respond_server_timing, tracing, tap, observer } = settings.clone();
        let (counters, worker) = (counters.clone(), worker.clone());
        let observer = FencedObserver::new(observer, counters.clone());
        let unhelped = EvenDraw::default();
        let exchange = Arc::new(RequestContext { config, respond_server_timing, counters, unhelped, observer });
        StackSettings { exchange, worker, tracing, tap }
    })
}
