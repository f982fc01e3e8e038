//! One case: what is drawn of it, its run, and what must hold.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::bodies::{Reading, Shape, pause};
use super::client::Sender;
use super::queue::{ReadsWork, queue};
use super::server::{Received, serve};
use crate::in_flight::fixtures::Unobserved;
use crate::serve::serve_with;
use crate::stack::stack;
use crate::upstream::STREAM_WINDOW;
use crate::{Config, ConnectionSettings, DataPlane, Levers, TraceSampling, Tracing, UpstreamProtocol, Upstreams};
use lapwing_ledger::clock::runtime::follow;
use lapwing_ledger::{Stamp, TraceMark};
use lapwing_metrics::Counter;
use lapwing_net::simulated::{Progress, SimulatedAddress, Simulation, describe, draw, listen, pair, spawn};
use lapwing_net::{Target, Tasks};
use lapwing_protocol::trace_context::ContextPolicy;
use lapwing_settings::ConfigHandle;

/// A case that takes more steps does not end: the slowest of 120,000 took 1.6 million.
const MAX_STEPS: u64 = 5_000_000;
/// Where somebody leaves, what the proxy does about it may take so long: below the time limits for bodies.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// HTTP/2's windows and frames of both peers, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    pub(crate) stream: u32,
    pub(crate) connection: u32,
    pub(crate) frame: u32,
}

/// Settings that nothing observes, or only for the sake of a queue.
fn settings(config: Config, is_queued: bool) -> ConnectionSettings {
    let tracing =
        Tracing { sampling: TraceSampling::Off, mark: TraceMark::random(), continued: None, contexts: ContextPolicy::default() };
    ConnectionSettings {
        config,
        hold: crate::hold::Config::default(),
        respond_server_timing: false,
        tracing,
        tap: None,
        observer: if is_queued { Arc::new(ReadsWork::default()) } else { Arc::new(Unobserved) },
    }
}

/// When the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answering {
    AfterUpload,
    /// At once; the last piece waits for the upload.
    BesideUpload,
    /// With the upload's own pieces.
    Echoes,
    /// At once, and without the upload.
    Unread,
}

/// How an exchange ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// The client gives it up after so many turns.
    ClientLeaves(usize),
    /// The server's connection ends so many turns after the request has come.
    ServerLeaves(usize),
}

/// One exchange.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) upload: Shape,
    pub(crate) download: Shape,
    pub(crate) answering: Answering,
    pub(crate) reading: Reading,
    /// The client reads the answer once it has sent all of its request.
    pub(crate) reads_after_upload: bool,
    pub(crate) end: End,
}

/// A case.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) is_h2_client: bool,
    pub(crate) is_h2_upstream: bool,
    pub(crate) windows: Windows,
    pub(crate) exchanges: Vec<Exchange>,
    /// The exchanges share one connection of the client: at once over HTTP/2, else one after the other.
    pub(crate) is_shared: bool,
    /// A client that leaves closes its connection, and does not only give up its exchange.
    pub(crate) closes: bool,
    /// Requests wait for each other in front of the server.
    pub(crate) is_queued: bool,
}

/// What cases have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) is_h2_client: bool,
    pub(crate) is_h2_upstream: bool,
    pub(crate) is_queued: bool,
}

/// What kind of case is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Every exchange comes to its end, without any time passing.
    Whole,
    /// Somebody leaves.
    Leaving,
}

fn draw_shape() -> Shape {
    let near = |size: usize| size + draw(5) - 2;
    let length = match draw(32) {
        0 | 1 => 0,
        2..=15 => draw(3_000),
        16..=21 => near(1 << (13 + draw(4))),
        22..=28 => draw(200_000),
        29 => near(1 << 20),
        30 => (1 << 20) + draw(1 << 19),
        _ => draw(1 << 20),
    };
    let is_sized = draw(2) == 0;
    Shape { length, is_sized, has_trailers: !is_sized && draw(3) == 0, piece: 1 << (10 + draw(8)), breaks_at: None }
}

fn draw_exchange(kind: Kind) -> Exchange {
    let answering = match draw(8) {
        0..=3 => Answering::AfterUpload,
        4 | 5 => Answering::BesideUpload,
        6 => Answering::Echoes,
        _ if kind == Kind::Leaving => Answering::Unread,
        _ => Answering::AfterUpload,
    };
    let end = match (kind, draw(4)) {
        (Kind::Leaving, 0 | 1) => End::ClientLeaves(draw(400)),
        (Kind::Leaving, 2) => End::ServerLeaves(draw(200)),
        _ if answering == Answering::Unread => End::ServerLeaves(2_000),
        _ => End::Whole,
    };
    let mut upload = draw_shape();
    if kind == Kind::Leaving && draw(6) == 0 {
        upload.breaks_at = Some(draw(upload.length + 1));
    }
    let mut download = draw_shape();
    if answering == Answering::BesideUpload {
        download.length += 1; // the last piece waits
    }
    let reading = Reading { turns: if draw(3) == 0 { 1 << draw(6) } else { 0 } };
    // the server reads the request whatever becomes of the answer
    let reads_after_upload = answering == Answering::BesideUpload && draw(2) == 0;
    Exchange { upload, download, answering, reading, reads_after_upload, end }
}

impl Case {
    pub(crate) fn draw(Mix { is_h2_client, is_h2_upstream, is_queued }: Mix, kind: Kind) -> Self {
        let mut exchanges: Vec<_> = (0..1 + draw(3)).map(|_| draw_exchange(kind)).collect();
        // hyper resets no stream whose body still waits for a window, and neither an echo that nobody reads nor a server that reads nothing makes one
        for exchange in exchanges.iter_mut().filter(|_| is_h2_client) {
            // hyper tells of an answer that broke off once it is taken; until then, or `client_stall_timeout`, the client's request waits
            exchange.reads_after_upload &= kind == Kind::Whole;
            match exchange.answering {
                Answering::Echoes => exchange.end = End::Whole,
                Answering::Unread => exchange.end = End::ServerLeaves(2_000),
                Answering::AfterUpload | Answering::BesideUpload => {}
            }
        }
        // A peer of HTTP/2 gives up over many small frames that nobody reads, fewer of them if the window is small
        let is_slow = exchanges.iter().any(|exchange| exchange.reading.turns > 0);
        let windows = Windows {
            stream: 1 << (12 + draw(9)),
            connection: if is_slow || draw(2) == 0 { 1 << (20 + draw(4)) } else { 65_535 << draw(4) },
            frame: if draw(2) == 0 { 16_384 } else { 16_384 << draw(6) },
        };
        // neither is a window given for an upload whose server has left: its client leaves by closing the connection
        let server_leaves = exchanges.iter().any(|exchange| matches!(exchange.end, End::ServerLeaves(_)));
        let waits_for_ever = exchanges
            .iter()
            .any(|exchange| matches!(exchange.end, End::ClientLeaves(_)) && exchange.upload.length > STREAM_WINDOW as usize);
        let (is_shared, closes) = (draw(4) > 0, draw(2) == 0);
        let closes = closes || (is_h2_client && is_h2_upstream && server_leaves && waits_for_ever);
        Self { is_h2_client, is_h2_upstream, windows, exchanges, is_shared, closes, is_queued }
    }

    /// Whether somebody leaves: then the others' exchanges over the same connections may fail too.
    fn may_fail(&self) -> bool {
        self.exchanges.iter().any(|exchange| exchange.end != End::Whole || exchange.upload.breaks_at.is_some())
    }
}

/// What the client's tasks report.
#[derive(Debug, Default)]
struct Report {
    ended: Cell<usize>,
    faults: RefCell<Vec<String>>,
}

impl Report {
    fn end(&self, at: usize, result: Result<(), String>) {
        self.ended.set(self.ended.get() + 1);
        if let Err(fault) = result {
            self.faults.borrow_mut().push(format!("exchange {at}: {fault}"));
        }
    }
}

/// Carries out the exchanges of `numbers` over one connection.
async fn converse(
    connections: tokio::sync::mpsc::UnboundedSender<lapwing_net::simulated::SimulatedStream>,
    case: Arc<Case>,
    numbers: Vec<usize>,
    report: Rc<Report>,
) {
    let mut at_once = Vec::new();
    let mut opened = None;
    for at in numbers {
        let mut sender = match opened.take() {
            Some(sender) => sender,
            None => {
                let (stream, peer) = pair();
                let leaves = CancellationToken::new();
                let _ = connections.send(peer);
                match Sender::open(stream, case.is_h2_client, case.windows, leaves.clone()).await {
                    Ok(sender) => (sender, leaves),
                    Err(fault) => return report.end(at, Err(fault)),
                }
            }
        };
        if let Some(another) = sender.0.another() {
            opened = Some((another, sender.1.clone()));
            at_once.push((sender, at));
            continue;
        }
        let result = sender.0.exchange(&case, at).await;
        if matches!(case.exchanges[at].end, End::Whole) && !case.may_fail() {
            opened = Some(sender);
        } else {
            // an exchange over HTTP/1.1 is given up with its connection
            sender.1.cancel();
        }
        report.end(at, result);
    }
    for ((mut sender, leaves), at) in at_once {
        let (case, report) = (case.clone(), report.clone());
        spawn(async move {
            pause(draw(60)).await;
            let result = sender.exchange(&case, at).await;
            if case.closes && matches!(case.exchanges[at].end, End::ClientLeaves(_)) {
                leaves.cancel();
            }
            report.end(at, result);
        });
    }
}

/// Runs the case that `seed` draws. Returns how many steps it took, and how many requests waited in the queue.
///
/// # Errors
///
/// What does not hold, and the case.
pub(crate) fn run(seed: u64, mix: Mix, kind: Kind) -> Result<(u64, u64), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let _clock = follow();
        let mut simulation = Simulation::new(seed);
        let case = Arc::new(Case::draw(mix, kind));
        let _subscribed = std::env::var_os("LAPWING_WAKEUP_TRACE").map(|_| {
            let lines =
                tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(std::io::stderr).without_time();
            tracing::subscriber::set_default(lines.with_ansi(false).finish())
        });
        let found = play(&mut simulation, &case).await;
        found
            .map(|queued| (simulation.steps(), queued))
            .map_err(|fault| format!("{kind:?}, seed {seed}, step {}: {fault}\n{case:#?}", simulation.steps()))
    })
}

async fn play(simulation: &mut Simulation, case: &Arc<Case>) -> Result<u64, String> {
    let (clients, listener) = listen();
    let (upstream, connections) = tokio::sync::mpsc::unbounded_channel();
    let protocol = if case.is_h2_upstream { UpstreamProtocol::H2 } else { UpstreamProtocol::H1 };
    let settings = settings(Config { upstream_protocol: protocol, ..Config::default() }, case.is_queued);
    let target = Target::Simulated(SimulatedAddress(upstream));
    let upstreams = Upstreams::at(target);
    let parts = DataPlane {
        settings: ConfigHandle::fixed(settings),
        dispatch: case.is_queued.then(|| queue(&upstreams)),
        cache: None,
        upstreams,
        counters: Arc::default(),
        levers: Levers::default(),
        leave: CancellationToken::new(),
    };
    let (counters, stop, tasks) = (parts.counters.clone(), CancellationToken::new(), Tasks::default());
    let (received, report) = (Arc::<Received>::default(), Rc::<Report>::default());
    spawn(serve(connections, case.clone(), received.clone()));
    tasks.spawn(serve_with(listener, parts, stop.clone(), stack));
    let count = case.exchanges.len();
    if case.is_shared {
        spawn(converse(clients.clone(), case.clone(), (0..count).collect(), report.clone()));
    } else {
        (0..count).for_each(|at| spawn(converse(clients.clone(), case.clone(), vec![at], report.clone())));
    }
    let may_fail = case.may_fail();
    let began = Stamp::now();
    let may_wait = || may_fail && u128::from(began.elapsed()) < MAX_WAIT.as_nanos();
    let is_over = || report.ended.get() == count && counters.get(Counter::InFlight) == 0;
    let progress = simulation.run(MAX_STEPS, is_over, may_wait).await;
    let (ended, open) = (report.ended.get(), counters.get(Counter::InFlight));
    let faults = [report.faults.take(), received.faults.lock().clone()].concat();
    if progress != Progress::Over {
        return Err(format!(
            "{progress:?}: {ended} of {count} exchanges ended, {open} are in flight; {faults:?}\n{}",
            describe()
        ));
    }
    if !may_fail {
        let echoes = case.exchanges.iter().filter(|exchange| exchange.answering == Answering::Echoes).count();
        let whole = received.whole.load(Relaxed) + echoes;
        if !faults.is_empty() || whole != count {
            return Err(format!("{whole} of {count} requests came whole; {faults:?}"));
        }
    }
    // what is left ends too, the connections that linger within their limits
    stop.cancel();
    drop(clients);
    let (is_drained, began) = (Rc::<Cell<bool>>::default(), Stamp::now());
    let drained = is_drained.clone();
    spawn(async move {
        tasks.finished().await;
        drained.set(true);
    });
    let may_wait = || u128::from(began.elapsed()) < MAX_WAIT.as_nanos();
    match simulation.run(MAX_STEPS, || is_drained.get(), may_wait).await {
        Progress::Over => Ok(counters.get(Counter::DispatchQueued)),
        other => Err(format!("{other:?}: the drain does not end\n{}", describe())),
    }
}
