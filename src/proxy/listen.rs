//! A worker of the data plane: accepts connections, serves HTTP/1.1 and h2c on one port, and drains.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use socket2::{Domain, Protocol, Socket as RawSocket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::layer::util::Identity;

use super::config::Config;
use super::connection::{MeteredSocket, Socket, SocketMeter};
use super::exchange::{CountRefusals, ExchangeContext};
use super::settings::ConnectionSettings;
use super::stack::{HyperService, stack};
use super::upstream::{CONNECTION_WINDOW, ConnectionPool, STREAM_WINDOW, Target, UpstreamContext};
use crate::metrics::{Counter, Counters};
use crate::settings::ConfigHandle;

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

/// Runs hyper's tasks where their owner can wait for them.
#[derive(Clone, Debug)]
pub(crate) struct Tasks(pub(crate) TaskTracker);

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// Binds `address` for a worker; with `shared` several workers bind the same address (`SO_REUSEPORT`).
///
/// # Errors
///
/// What the system says.
pub fn bind(address: SocketAddr, backlog: u32, shared: bool) -> io::Result<std::net::TcpListener> {
    let socket = RawSocket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Serves `listener` until `stop`, then lets requests in flight end. Dropping the future ends them at once.
///
/// # Errors
///
/// If the listener cannot be registered with the runtime.
pub async fn serve(listener: std::net::TcpListener, parts: Parts, stop: CancellationToken) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let tasks = TaskTracker::new();
    let context = context(&parts);
    let pool = Arc::new(ConnectionPool::new(context.load().config.pool_idle_timeout.get()));
    let upstream =
        Arc::new(UpstreamContext { target: parts.target, pool: pool.clone(), traits: Arc::default(), tasks: tasks.clone() });
    let mut sweep = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let connection = connection(stream, &context.load(), upstream.clone(), stop.clone());
                    tasks.spawn(connection);
                }
                Err(error) => {
                    // out of file descriptors, as a rule: connections end, so it passes
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            },
            _ = sweep.tick() => pool.sweep(context.load().config.pool_idle_timeout.get()),
        }
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// The context of connections that are accepted now: one for each value of the settings.
fn context(parts: &Parts) -> ConfigHandle<ExchangeContext> {
    let counters = parts.counters.clone();
    parts.settings.map(move |settings| ExchangeContext::new(settings, counters.clone()))
}

fn connection(
    stream: TcpStream,
    context: &Arc<ExchangeContext>,
    upstream: Arc<UpstreamContext>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    context.counters.bump(Counter::ConnectionsAccepted);
    let meter = Arc::new(SocketMeter::default());
    let service = HyperService::new(stack(context, meter.clone(), upstream.clone(), Identity::new()));
    let context = context.clone();
    async move {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        let refusals = Arc::new(CountRefusals(context.clone()));
        let io = TokioIo::new(MeteredSocket::client(Socket::Tcp(stream), meter, context.client_timeouts(), refusals));
        let builder = protocols(&context.config, Tasks(upstream.tasks.clone()));
        let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
        let mut stopping = pin!(stop.cancelled());
        let mut stopped = false;
        let ended = std::future::poll_fn(|cx| {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            if !stopped && stopping.as_mut().poll(cx).is_ready() {
                stopped = true;
                connection.as_mut().graceful_shutdown();
                return connection.as_mut().poll(cx);
            }
            Poll::Pending
        })
        .await;
        if let Err(error) = ended {
            context.counters.bump(Counter::ConnectionsFailed);
            tracing::debug!(%error, "a client's connection failed");
        }
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
