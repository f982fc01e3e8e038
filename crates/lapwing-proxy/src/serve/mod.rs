//! A worker of the data plane: accepts connections, serves HTTP/1.1 and h2c on one port, and drains.
//!
//! Each connection tells which protocol it speaks, and has hyper for as long as there is something to do. Hyper keeps buffers of 16 KiB
//! for an HTTP/1.1 connection that has carried a request, whatever it does after that. So once a connection has been idle for a moment it
//! is taken apart: what stays is its socket and its stack of layers. The next byte puts it together again.

mod end;

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulConnection;
use tokio_util::sync::CancellationToken;

use self::end::{End, Ends, is_answering};
use super::body::ResponseBody;
use super::body::capture::{CaptureBudget, CaptureLimits};
use super::config::Config;
use super::connection::{MeteredSocket, Opening, SocketMeter, reason};
use super::connection_settings::ConnectionSettings;
use super::error::Error as TimeLimit;
use super::in_flight::{CountRefusals, FencedObserver, RequestContext, WorkerParts};
use super::placement::{PlacedUpstream, Upstreams};
use super::stack::{HyperService, StackSettings, StackSource, stack};
use super::upstream::{
    CONNECTION_WINDOW, ClientUpstreams, ConnectionPool, ConnectionUpstreams, H2Pool, STREAM_WINDOW, UpstreamContext,
};
use lapwing_cache::Caching;
use lapwing_dispatch::Dispatching;
use lapwing_ledger::Stamp;
use lapwing_metrics::{Counter, Counters};
use lapwing_net::{AcceptLimits, Accepted, BoundListener, Listener, LocalListener, Tasks};
use lapwing_settings::{ConfigHandle, EvenDraw, LeverSwitch};

/// How many bytes of answers on their way to the cache, and of requests that it only counts, a worker keeps.
const CACHE_BUDGET: usize = 64 << 20;

/// The pause after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);

/// The parts of a data plane.
#[derive(Clone)]
pub struct DataPlane {
    /// What is in force: for each connection when it is accepted, and from the first request after a replacement on.
    pub settings: ConfigHandle<ConnectionSettings>,
    /// Where requests go.
    pub upstreams: Upstreams,
    /// Where requests wait for their turn, if they may.
    pub dispatch: Option<Dispatching>,
    /// What may answer requests again, if anything may.
    pub cache: Option<Caching>,
    /// The profiler's counters of its own work.
    pub counters: Arc<Counters>,
    /// What a trial turns.
    pub levers: Levers,
    /// Cancelled when clients are to go elsewhere, while requests are still served: then each connection ends with its next answer.
    pub leave: CancellationToken,
}

/// The settings that a trial may turn while requests pass. Clones are the same levers.
#[derive(Clone, Debug, Default)]
pub struct Levers {
    /// `proxy.quick_ack`.
    pub quick_ack: LeverSwitch,
    /// Whether `upstream_policy` is `least_requests`.
    pub least_requests: LeverSwitch,
    /// Whether `dispatch.mode` is `on`.
    pub dispatch: LeverSwitch,
    /// Whether `dispatch.hedge.mode` is `on`.
    pub hedge: LeverSwitch,
    /// Whether `cache.mode` is `on`.
    pub cache: LeverSwitch,
}

/// Serves `listener` until `stop`, then lets requests in flight end. Dropping the future ends them at once.
///
/// # Errors
///
/// If the listener cannot be registered with the runtime.
pub async fn serve(listener: impl Into<BoundListener>, parts: DataPlane, stop: CancellationToken) -> io::Result<()> {
    serve_with(listener.into().registered()?, parts, stop, stack).await;
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
    build: impl Fn(&StackSettings, Arc<SocketMeter>, ClientUpstreams) -> S + Send + Sync + 'static,
) where
    S: tower::Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible, Future: Send> + Send + 'static,
{
    let tasks = Tasks::default();
    let settings = stack_settings(&parts, &tasks);
    let (first, others) = contexts(&parts.upstreams, settings.load().exchange.config.pool_idle_timeout.get(), &tasks);
    let (health, placement) = (parts.upstreams.health(), parts.upstreams.placement().cloned());
    let is_placed = placement.is_some();
    let dispatch = parts.dispatch.as_ref().map(|dispatch| dispatch.in_force(&parts.levers.dispatch, &parts.levers.hedge));
    let source = Arc::new(StackSource { settings: settings.clone(), placement, dispatch, build });
    // the workers share what descriptors there are for clients
    let max_connections = Some((lapwing_net::client_connections() / settings.load().exchange.config.worker_threads()).max(1));
    let limits = AcceptLimits { backoff: ACCEPT_BACKOFF, max_connections };
    let accepting = lapwing_net::accept(listener, limits, &tasks, &stop, &*parts.counters, |accepted| {
        let (settings, meter) = (settings.load(), Arc::new(SocketMeter::default()));
        let (context, worker) = (settings.exchange.clone(), settings.worker.clone());
        context.counters.bump(Counter::ConnectionsAccepted);
        let upstreams = ConnectionUpstreams::new((&first, &others), is_placed);
        let service = HyperService::new(source.clone(), meter.clone(), upstreams);
        let ends = Ends { stop: stop.clone(), leave: parts.leave.clone(), goodbye: health.goodbye(), health: health.clone() };
        serve_client(accepted, (context, worker), meter, service, tasks.clone(), ends)
    });
    tokio::select! {
        biased;
        () = accepting => {}
        () = sweep((&first, &others), &settings) => {}
    }
    for upstream in std::iter::once(&first).chain(&others) {
        upstream.h2_pool.close();
    }
    tasks.finished().await;
}

/// What a worker's requests share of each upstream: of the first, and of the others.
fn contexts(upstreams: &Upstreams, pool_idle: Duration, tasks: &Tasks) -> (Arc<UpstreamContext>, Box<[Arc<UpstreamContext>]>) {
    let context = |upstream: &PlacedUpstream| {
        Arc::new(UpstreamContext {
            target: upstream.target.clone(),
            own_protocol: upstream.protocol,
            health: upstream.health.clone(),
            pool: Arc::new(ConnectionPool::new(pool_idle, tasks.clone())),
            h2_pool: H2Pool::default(),
            traits: Arc::default(),
            tasks: tasks.clone(),
        })
    };
    (context(upstreams.first()), upstreams.others().iter().map(context).collect())
}

/// Closes upstream connections that have been idle for too long, and looks for upstreams that are away where others get their share; never
/// ends.
async fn sweep((first, others): (&Arc<UpstreamContext>, &[Arc<UpstreamContext>]), settings: &ConfigHandle<StackSettings>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        for upstream in std::iter::once(first).chain(others) {
            if upstream.pool.sweep(settings.load().exchange.config.pool_idle_timeout.get()).await {
                upstream.on_goodbye();
            }
            upstream.h2_pool.sweep(Stamp::now());
            if !others.is_empty() {
                upstream.health.look_for_absent(&upstream.target, &upstream.tasks);
            }
        }
    }
}

/// What the stacks of connections that are accepted now are built with: one for each value of the settings.
fn stack_settings(parts: &DataPlane, tasks: &Tasks) -> ConfigHandle<StackSettings> {
    let (counters, quick_ack) = (parts.counters.clone(), parts.levers.quick_ack.clone());
    let worker =
        Arc::new(WorkerParts { uploads: Arc::default(), tasks: tasks.clone(), health: parts.upstreams.health().clone() });
    let cache = parts.cache.as_ref().map(|cache| cache.in_force(&parts.levers.cache));
    let budget = CaptureBudget::new(CaptureLimits {
        total: CACHE_BUDGET,
        body: CACHE_BUDGET,
        read_buffer: parts.settings.load().config.max_read_buffer(),
    });
    parts.settings.map(move |settings| {
        let cache = cache.as_ref().map(|cache| (cache.load(), budget.clone()));
        let ConnectionSettings { config, hold, respond_server_timing, tracing, tap, observer } = settings.clone();
        let (counters, worker, quick_ack) = (counters.clone(), worker.clone(), quick_ack.clone());
        let observer = FencedObserver::new(observer, counters.clone());
        let unhelped = EvenDraw::default();
        let exchange = Arc::new(RequestContext { config, hold, respond_server_timing, counters, unhelped, quick_ack, observer });
        StackSettings { exchange, worker, tracing, tap, cache }
    })
}

type Failure = Box<dyn Error + Send + Sync>;

/// The stack of layers as hyper calls it.
trait ClientService:
    Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible, Future: Send + 'static> + Send + 'static
{
}

impl<S> ClientService for S where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible, Future: Send + 'static> + Send + 'static
{
}

/// Serves one connection to its end.
async fn serve_client<S: ClientService>(
    accepted: Accepted,
    (context, worker): (Arc<RequestContext>, Arc<WorkerParts>),
    meter: Arc<SocketMeter>,
    service: S,
    tasks: Tasks,
    ends: Ends,
) {
    let Accepted { socket, peer, permit: _permit } = accepted;
    let refusals = Arc::new(CountRefusals { context: context.clone(), worker });
    let socket = MeteredSocket::client(socket, meter.clone(), context.client_timeouts(), refusals);
    if let Err(error) = carry(socket, service, &context.config, &meter, tasks, &ends).await {
        let reason = reason(&*error, &meter);
        context.counters.bump(reason);
        if reason == Counter::FailedSlowReader {
            let limit = context.config.client_stall_timeout.get();
            TimeLimit::ResponseUnread { limit }.report_time_limit(&context.counters);
        }
        tracing::debug!(%error, %peer, "a client's connection failed");
    }
    // timers of pooled connections may hold the meter for longer than the task that ends here
    meter.waker.forget();
}

async fn carry<S: ClientService>(
    mut socket: MeteredSocket,
    mut service: S,
    config: &Config,
    meter: &Arc<SocketMeter>,
    tasks: Tasks,
    ends: &Ends,
) -> Result<(), Failure> {
    loop {
        let opened = opening(&mut socket, meter, ends).await?;
        if let Some(certificate) = socket.socket.peer_certificate() {
            meter.certificate.get_or_init(|| certificate.into());
        }
        match opened {
            Opening::End => return Ok(()),
            Opening::Http2 => {
                // boxed, as below: a task is as large as what it may hold
                let connection = Box::pin(http2_builder(config, tasks).serve_connection(TokioIo::new(socket), service));
                return Ok(http2(connection, meter, ends).await?);
            }
            Opening::Http1 => match http1(socket, service, config, meter, ends).await? {
                Some(rested) => (socket, service) = rested,
                None => return Ok(()),
            },
        }
    }
}

/// Waits for the client's next bytes, and no longer than until the connection is to end.
async fn opening(socket: &mut MeteredSocket, meter: &SocketMeter, ends: &Ends) -> Result<Opening, Failure> {
    let mut end = pin!(End::of(ends));
    poll_fn(|cx| match socket.poll_opening(cx) {
        Poll::Pending => {
            end.as_mut().poll_signals(cx);
            if end.as_mut().is_due(cx, meter) { Poll::Ready(Ok(Opening::End)) } else { Poll::Pending }
        }
        polled => polled.map_err(Failure::from),
    })
    .await
}

/// Serves HTTP/2 until the connection ends.
async fn http2<C: GracefulConnection>(
    mut connection: Pin<Box<C>>,
    meter: &Arc<SocketMeter>,
    ends: &Ends,
) -> Result<(), C::Error> {
    let mut end = pin!(End::of(ends));
    let told = Arc::new(EndTold { is_told: AtomicBool::new(true), meter: meter.clone() });
    let tells = Waker::from(told.clone());
    let mut is_ended = false;
    poll_fn(|cx| {
        meter.waker.register(cx);
        let tell = &mut Context::from_waker(&tells);
        if told.is_told.load(Relaxed) {
            told.is_told.store(false, Relaxed);
            end.as_mut().poll_signals(tell);
        }
        let mut polled = connection.as_mut().poll(cx);
        if polled.is_pending() && !is_ended && end.is_told() && end.as_mut().is_due(tell, meter) {
            is_ended = true;
            connection.as_mut().graceful_shutdown();
            polled = connection.as_mut().poll(cx);
        }
        polled
    })
    .await
}

/// Serves HTTP/1.1 until the connection ends (`None`) or rests: then returns what is left of it.
async fn http1<S: ClientService>(
    socket: MeteredSocket,
    service: S,
    config: &Config,
    meter: &Arc<SocketMeter>,
    ends: &Ends,
) -> hyper::Result<Option<(MeteredSocket, S)>> {
    let mut connection = Box::new(http1_builder(config).serve_connection(TokioIo::new(socket), service).with_upgrades());
    let mut end = pin!(End::of(ends));
    let told = Arc::new(EndTold { is_told: AtomicBool::new(true), meter: meter.clone() });
    let (wakes, tells) = (Waker::from(meter.clone()), Waker::from(told.clone()));
    let mut is_ended = false;
    let is_over = poll_fn(|cx| {
        meter.waker.register(cx);
        let quiet = &mut Context::from_waker(&wakes);
        if told.is_told.load(Relaxed) {
            told.is_told.store(false, Relaxed);
            end.as_mut().poll_signals(&mut Context::from_waker(&tells));
        }
        // before an answer that is ready: its head says that the connection ends
        if !is_ended && end.is_told() && is_answering(meter) {
            is_ended = true;
            Pin::new(&mut *connection).graceful_shutdown();
        }
        let mut polled = Pin::new(&mut *connection).poll(quiet);
        if polled.is_pending() && !is_ended && end.is_told() && end.as_mut().is_due(&mut Context::from_waker(&tells), meter) {
            is_ended = true;
            Pin::new(&mut *connection).graceful_shutdown();
            polled = Pin::new(&mut *connection).poll(quiet);
        }
        match polled {
            Poll::Pending if meter.is_rested() && !end.is_told() => Poll::Ready(Ok(false)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(ended) => Poll::Ready(ended.map(|()| true)),
        }
    })
    .await?;
    let rested = if is_over { None } else { connection.into_parts() };
    Ok(rested.map(|parts| {
        let mut socket = parts.io.into_inner();
        // a copy, for what hyper gives back is its whole buffer
        socket.read_again(Bytes::copy_from_slice(&parts.read_buf));
        (socket, parts.service)
    }))
}

/// Wakes a connection that is to end, and says so: to ask at each turn whether it is to would take a lock.
struct EndTold {
    /// It may be that the connection is to end.
    is_told: AtomicBool,
    meter: Arc<SocketMeter>,
}

impl Wake for EndTold {
    fn wake(self: Arc<Self>) {
        self.is_told.store(true, Relaxed);
        self.meter.waker.wake();
    }
}

fn http1_builder(config: &Config) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .preserve_header_case(true)
        .auto_date_header(false)
        .header_read_timeout(None)
        .max_buf_size(config.request_read_bytes());
    builder
}

fn http2_builder(config: &Config, tasks: Tasks) -> http2::Builder<Tasks> {
    let mut builder = http2::Builder::new(tasks);
    builder
        .auto_date_header(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(1024)
        .max_header_list_size(u32::try_from(config.max_header_bytes.get()).unwrap_or(u32::MAX));
    builder
}
