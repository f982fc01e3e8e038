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
use crate::proxy::amended::Habits;
use crate::proxy::config::Config;
use crate::proxy::io::Metered;
use crate::proxy::layer::trace::Tracing;
use crate::proxy::live::{Observer, Recorder};
use crate::proxy::meter::Meter;
use crate::proxy::stack::{Door, stack};
use crate::proxy::upstream::{CONNECTION_WINDOW, Pool, STREAM_WINDOW, Shared};

/// The pause after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);

/// What a data plane is made of.
#[derive(Clone)]
pub struct Parts {
    /// Limits and timeouts.
    pub config: Config,
    /// Where requests go.
    pub target: Target,
    /// How spans are asked for.
    pub tracing: Tracing,
    /// Who looks.
    pub observer: Arc<dyn Observer>,
    /// The profiler's account of itself.
    pub counters: Arc<Counters>,
}

/// Serves `listener` until `stop`, then lets requests in flight end. Dropping the future ends them at once.
///
/// # Errors
///
/// If the listener cannot be registered with the runtime.
pub async fn serve(listener: std::net::TcpListener, parts: Parts, stop: CancellationToken) -> io::Result<()> {
    let listener = net::registered(listener)?;
    let tasks = Tasks::default();
    let recorder = Arc::new(Recorder {
        config: parts.config.clone(),
        counters: parts.counters.clone(),
        observer: parts.observer.clone(),
        habits: Habits::default(),
    });
    let pool = Arc::new(Pool::new(parts.config.pool_idle_timeout.get()));
    let shared = Arc::new(Shared { target: parts.target, pool: pool.clone(), recorder: recorder.clone(), tasks: tasks.clone() });
    let limits = AcceptLimits { backoff: ACCEPT_BACKOFF, ..AcceptLimits::default() };
    let accepting = net::accept(listener, limits, &tasks, &stop, |accepted| {
        connection(accepted, &recorder, parts.tracing.clone(), shared.clone(), stop.clone())
    });
    tokio::select! {
        biased;
        () = accepting => {}
        () = sweep(&pool) => {}
    }
    tasks.finished().await;
    Ok(())
}

/// Closes upstream connections that have been idle for too long; never ends.
async fn sweep(pool: &Pool) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        pool.sweep();
    }
}

fn connection(
    accepted: Accepted,
    recorder: &Arc<Recorder>,
    tracing: Tracing,
    shared: Arc<Shared>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    recorder.counters.bump(Counter::ConnectionsAccepted);
    let meter = Arc::new(Meter::default());
    let service = Door::new(stack(recorder, meter.clone(), tracing, shared.clone()));
    let recorder = recorder.clone();
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
