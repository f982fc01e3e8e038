//! A worker of the data plane: accepts connections, serves HTTP/1.1 and h2c on one port, and drains.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Counter, Counters};
use crate::net::{self, AcceptLimits, Accepted, Target, Tasks};
use crate::proxy::body::rewrite::Habits;
use crate::proxy::config::Config;
use crate::proxy::connection::meter::Meter;
use crate::proxy::connection::metered::Metered;
use crate::proxy::exchange::in_flight::{Observer, Recorder};
use crate::proxy::layer::trace::Tracing;
use crate::proxy::stack::{Door, stack};
use crate::proxy::upstream::{CONNECTION_WINDOW, Pool, STREAM_WINDOW, Shared};
use crate::settings::ConfigHandle;

/// The pause after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);

/// What a data plane is made of.
#[derive(Clone)]
pub struct Parts {
    /// Loaded once for each connection, when it is accepted: a connection keeps what it began with.
    pub settings: ConfigHandle<ConnectionSettings>,
    /// Where requests go.
    pub target: Target,
    /// The profiler's account of itself.
    pub counters: Arc<Counters>,
}

/// What a client connection goes by, from accept to close.
#[derive(Clone)]
pub struct ConnectionSettings {
    /// Limits and timeouts.
    pub config: Config,
    /// Whether responses carry `Server-Timing`: the top-level key `respond_server_timing`.
    pub respond_server_timing: bool,
    /// How spans are asked for.
    pub tracing: Tracing,
    /// Sees every request.
    pub observer: Arc<dyn Observer>,
}

/// Serves `listener` until `stop`, then lets requests in flight end. Dropping the future ends them at once.
///
/// # Errors
///
/// If the listener cannot be registered with the runtime.
pub async fn serve(listener: std::net::TcpListener, parts: Parts, stop: CancellationToken) -> io::Result<()> {
    let listener = net::registered(listener)?;
    let tasks = Tasks::default();
    let recorder = recorder(&parts);
    let pool = Arc::new(Pool::new(recorder.load().config.pool_idle_timeout.get()));
    let shared = Arc::new(Shared { target: parts.target, pool: pool.clone(), tasks: tasks.clone() });
    let limits = AcceptLimits { backoff: ACCEPT_BACKOFF, ..AcceptLimits::default() };
    let accepting = net::accept(listener, limits, &tasks, &stop, |accepted| {
        connection(accepted, recorder.load(), shared.clone(), stop.clone())
    });
    tokio::select! {
        biased;
        () = accepting => {}
        () = sweep(&pool, &recorder) => {}
    }
    tasks.finished().await;
    Ok(())
}

/// Closes upstream connections that have been idle for too long; never ends.
async fn sweep(pool: &Pool, recorder: &ConfigHandle<Recorder>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        pool.sweep(recorder.load().config.pool_idle_timeout.get());
    }
}

/// The recorder of connections that are accepted now: one for each value of the settings.
fn recorder(parts: &Parts) -> ConfigHandle<Recorder> {
    let (counters, habits) = (parts.counters.clone(), Arc::new(Habits::default()));
    parts.settings.map(move |settings| Recorder {
        config: settings.config.clone(),
        respond_server_timing: settings.respond_server_timing,
        tracing: settings.tracing.clone(),
        counters: counters.clone(),
        observer: settings.observer.clone(),
        habits: habits.clone(),
    })
}

fn connection(
    accepted: Accepted,
    recorder: Arc<Recorder>,
    shared: Arc<Shared>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    recorder.counters.bump(Counter::ConnectionsAccepted);
    let meter = Arc::new(Meter::default());
    let service = Door::new(stack(&recorder, meter.clone(), shared.clone()));
    async move {
        let Accepted { socket, peer, permit: _permit } = accepted;
        let io = TokioIo::new(Metered::client(socket, meter, recorder.clone()));
        let builder = protocols(&recorder.config, shared.tasks.clone());
        let connection = pin!(builder.serve_connection_with_upgrades(io, service));
        if let Err(error) = net::until_stopped(connection, &stop).await {
            recorder.counters.bump(Counter::ConnectionsFailed);
            tracing::debug!(%error, %peer, "a client's connection failed");
        }
    }
}

/// Bytes of a body that are read at a time at most.
const READ_BYTES: usize = 256 * 1024;

fn protocols(config: &Config, tasks: Tasks) -> auto::Builder<Tasks> {
    let head = usize::try_from(config.max_header_bytes.get()).unwrap_or(usize::MAX);
    let mut builder = auto::Builder::new(tasks);
    builder
        .http1()
        .preserve_header_case(true)
        .auto_date_header(false)
        .header_read_timeout(None)
        .max_buf_size(head.max(READ_BYTES))
        .http2()
        .auto_date_header(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(1024)
        .max_header_list_size(u32::try_from(config.max_header_bytes.get()).unwrap_or(u32::MAX));
    builder
}
