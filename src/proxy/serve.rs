//! A worker of the data plane: accepts connections, serves HTTP/1.1 and h2c on one port, and drains.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tokio_util::sync::CancellationToken;
use tower::Layer;
use tower::layer::util::Identity;

use super::body::ResponseBody;
use super::config::Config;
use super::connection::{MeteredSocket, SocketMeter, reason};
use super::error::Error;
use super::exchange::{CountRefusals, ExchangeContext, TrackedRequest};
use super::settings::ConnectionSettings;
use super::stack::{ExtraInner, HyperService, stack};
use super::upload::UploadPlaces;
use super::upstream::{CONNECTION_WINDOW, ConnectionPool, STREAM_WINDOW, UpstreamContext};
use crate::metrics::{Counter, Counters};
use crate::net::{self, AcceptLimits, Accepted, Listener, LocalListener, Target, Tasks};
use crate::settings::ConfigHandle;

/// The pause after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);

/// The parts of a data plane.
#[derive(Clone)]
pub struct DataPlane {
    /// Loaded once for each connection, when it is accepted: a connection keeps its settings.
    pub settings: ConfigHandle<ConnectionSettings>,
    /// The upstream's address.
    pub target: Target,
    /// The profiler's counters of its own work.
    pub counters: Arc<Counters>,
}

/// Serves `listener` until `stop`, then lets requests in flight end. Dropping the future ends them at once.
///
/// # Errors
///
/// If the listener cannot be registered with the runtime.
pub async fn serve(listener: std::net::TcpListener, parts: DataPlane, stop: CancellationToken) -> io::Result<()> {
    serve_with(net::registered(listener)?, parts, stop, Identity::new()).await;
    Ok(())
}

/// Serves connections of this process, as [`serve`] serves those of others.
pub async fn serve_local(listener: LocalListener, parts: DataPlane, stop: CancellationToken) {
    serve_with(listener, parts, stop, Identity::new()).await;
}

/// Serves as [`serve`] does, with `extra` in the stack of every connection.
pub(super) async fn serve_with<L>(listener: impl Listener, parts: DataPlane, stop: CancellationToken, extra: L)
where
    L: Layer<ExtraInner> + Clone,
    L::Service:
        tower::Service<TrackedRequest, Response = http::Response<ResponseBody>, Error = Error, Future: Send> + Send + 'static,
{
    let tasks = Tasks::default();
    let context = context(&parts);
    let pool = Arc::new(ConnectionPool::new(context.load().config.pool_idle_timeout.get(), tasks.clone()));
    let upstream =
        Arc::new(UpstreamContext { target: parts.target, pool: pool.clone(), traits: Arc::default(), tasks: tasks.clone() });
    // the workers share what descriptors there are for clients
    let max_connections = Some((net::client_connections() / context.load().config.workers).max(1));
    let limits = AcceptLimits { backoff: ACCEPT_BACKOFF, max_connections };
    let accepting = net::accept(listener, limits, &tasks, &stop, &*parts.counters, |accepted| {
        let (context, meter) = (context.load(), Arc::new(SocketMeter::default()));
        context.counters.bump(Counter::ConnectionsAccepted);
        let service = HyperService::new(stack(&context, meter.clone(), upstream.clone(), extra.clone()));
        connection(accepted, context, meter, service, tasks.clone(), stop.clone())
    });
    tokio::select! {
        biased;
        () = accepting => {}
        () = sweep(&pool, &context) => {}
    }
    tasks.finished().await;
}

/// Closes upstream connections that have been idle for too long; never ends.
async fn sweep(pool: &ConnectionPool, context: &ConfigHandle<ExchangeContext>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        pool.sweep(context.load().config.pool_idle_timeout.get()).await;
    }
}

/// The context of connections that are accepted now: one for each value of the settings.
fn context(parts: &DataPlane) -> ConfigHandle<ExchangeContext> {
    let (counters, uploads) = (parts.counters.clone(), Arc::<UploadPlaces>::default());
    parts.settings.map(move |settings| ExchangeContext::new(settings, counters.clone(), uploads.clone()))
}

/// Serves one connection to its end.
async fn connection<S>(
    accepted: Accepted,
    context: Arc<ExchangeContext>,
    meter: Arc<SocketMeter>,
    service: S,
    tasks: Tasks,
    stop: CancellationToken,
) where
    S: hyper::service::Service<
            http::Request<hyper::body::Incoming>,
            Response = http::Response<ResponseBody>,
            Error = std::convert::Infallible,
            Future: Send + 'static,
        > + Send
        + 'static,
{
    let Accepted { socket, peer, permit: _permit } = accepted;
    let refusals = Arc::new(CountRefusals(context.clone()));
    let io = TokioIo::new(MeteredSocket::client(socket, meter.clone(), context.client_timeouts(), refusals));
    let builder = protocols(&context.config, tasks);
    let connection = pin!(builder.serve_connection_with_upgrades(io, service));
    if let Err(error) = net::until_stopped(connection, &stop).await {
        context.counters.bump(reason(&*error, &meter));
        tracing::debug!(%error, %peer, "a client's connection failed");
    }
}

fn protocols(config: &Config, tasks: Tasks) -> auto::Builder<Tasks> {
    let mut builder = auto::Builder::new(tasks);
    builder
        .http1()
        .preserve_header_case(true)
        .auto_date_header(false)
        .header_read_timeout(None)
        .max_buf_size(config.read_bytes())
        .http2()
        .auto_date_header(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(1024)
        .max_header_list_size(u32::try_from(config.max_header_bytes.get()).unwrap_or(u32::MAX));
    builder
}
