//! One case: a proxy of its own, whose clock stands still unless nothing else can happen, and what must hold of it as a whole.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::{HeaderMap, Method};
use tokio_util::sync::CancellationToken;

use super::player::{PLAIN_ANSWER, Player, Reached, plain_answer};
use super::script::{CaseOptions, Script};
use crate::serve::serve_with;
use crate::stack::stack;
use crate::{
    Config, ConnectionSettings, DataPlane, Levers, Observer, PlacedUpstream, PlacementSettings, PoolMember, TraceSampling,
    Tracing, UpstreamProtocol, Upstreams, hold,
};
use lapwing_dispatch::UpstreamRoute;
use lapwing_ledger::clock::runtime::follow;
use lapwing_ledger::{LabelTable, Ledger, TraceMark};
use lapwing_metrics::{Counter, Counters};
use lapwing_net::memory::{MemoryAddress, MemoryConnector, listen};
use lapwing_net::memory_tls::{MemoryEnd, MemoryTls};
use lapwing_net::{MemoryTlsListener, Target, Tasks};
use lapwing_protocol::request_match::RouteMatch;
use lapwing_protocol::trace_context::ContextPolicy;
use lapwing_protocol::{ExchangeReader, Protocols};
use lapwing_settings::{ConfigHandle, LeverSwitch, Period, Size, Switch};
use lapwing_tower::RecordLedger;

/// Longer than every timeout.
const LONG: Duration = Duration::from_secs(700);
/// Heap that a proxy may take, whatever is sent; and how much more for each byte that was sent. (HPACK makes a field of about a
/// hundred bytes of one byte, up to `max_header_bytes` for each stream.)
const HEAP: usize = 8 << 20;
const HEAP_PER_BYTE: usize = 256;

/// The largest body that is held, and what all held bodies may take, in bytes: little, so that both bounds are reached.
const HELD_BODY: u64 = 256;
const HELD_BYTES: u64 = 400;

/// How many bytes of the heap this process holds; a fuzz target's allocator counts them.
pub type HeapProbe = fn() -> usize;

/// What went over one connection.
pub(crate) struct Conversation {
    pub(crate) sent: Vec<u8>,
    pub(crate) received: Vec<u8>,
    /// How many of the bytes that the peer sent the proxy has read.
    pub(crate) accepted: usize,
    /// The peer sent its end.
    pub(crate) is_finished: bool,
    /// And said so, where that needs a word of its own (TLS).
    pub(crate) has_ended: bool,
    /// Whether it reset the connection.
    pub(crate) is_reset: bool,
    /// The proxy ended its side.
    pub(crate) is_closed: bool,
    /// And said so.
    pub(crate) is_ended: bool,
}

impl Conversation {
    fn of(end: &MemoryEnd) -> Self {
        let peer = end.peer();
        Self {
            sent: end.sent(),
            received: end.received(),
            accepted: peer.accepted_bytes(),
            is_finished: peer.is_finished(),
            has_ended: end.has_ended(),
            is_reset: peer.is_reset(),
            is_closed: peer.is_closed(),
            is_ended: end.is_ended(),
        }
    }
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let mut fields = f.debug_struct("Conversation");
        fields.field("sent", &text(&self.sent)).field("received", &text(&self.received)).field("accepted", &self.accepted);
        fields.field("is_finished", &self.is_finished).field("is_closed", &self.is_closed).finish()
    }
}

/// What went over all connections.
#[derive(Debug)]
pub(crate) struct Conversations {
    pub(crate) clients: Vec<Conversation>,
    pub(crate) upstreams: Vec<Conversation>,
}

/// Reads bodies, as the shipped binary does, and counts closed ledgers.
#[derive(Default)]
struct Count {
    closed: AtomicU64,
}

static PROTOCOLS: LazyLock<Protocols> = LazyLock::new(Protocols::default);

impl Observer for Count {
    fn request(&self, method: &Method, path: &str, headers: &HeaderMap, _: &mut Ledger) -> Option<ExchangeReader> {
        PROTOCOLS.open(&PROTOCOLS.detect(method, path), headers)
    }
    fn response(&self, _: &HeaderMap, _: bool, _: &mut Ledger) {}
    fn model(&self, _: &str, _: &mut Ledger) {}
}

impl RecordLedger for Count {
    fn record(&self, _: Box<Ledger>) {
        self.closed.fetch_add(1, Relaxed);
    }
}

fn data_plane(options: CaseOptions, reached: &Reached, observer: Arc<Count>) -> DataPlane {
    let protocols = [UpstreamProtocol::Auto, UpstreamProtocol::H1, UpstreamProtocol::H2, UpstreamProtocol::Auto];
    let mut config = Config { upstream_protocol: protocols[usize::from(options.upstream_protocol())], ..Config::default() };
    config.amend.include_usage = options.is_amending();
    config.amend.return_meta_info = options.is_amending();
    if options.is_limited() {
        config.max_request_bytes = Switch::On(Size(64));
        config.max_in_flight = 2;
    }
    let sampling = if options.is_tracing() { TraceSampling::Auto } else { TraceSampling::Off };
    let settings = ConnectionSettings {
        config,
        hold: hold::Config { max_body: Size(HELD_BODY), budget: Size(HELD_BYTES), max_time: Period::from_secs(2) },
        respond_server_timing: options.has_server_timing(),
        tracing: Tracing { sampling, mark: TraceMark::random(), continued: None, contexts: ContextPolicy::default() },
        tap: None,
        observer,
    };
    DataPlane {
        settings: ConfigHandle::fixed(settings),
        upstreams: upstreams(options, reached),
        counters: Arc::default(),
        levers: Levers::default(),
        dispatch: None,
        cache: None,
        leave: CancellationToken::new(),
    }
}

/// The upstream that is played, or both; or one behind another that refuses connections.
fn upstreams(options: CaseOptions, reached: &Reached) -> Upstreams {
    let target = |address: &MemoryAddress| match &reached.upstream {
        Some(tls) => Target::MemoryTls(address.clone(), tls.upstream.clone()),
        None => Target::Memory(address.clone()),
    };
    let mut targets: Vec<_> = reached.addresses.iter().map(target).collect();
    let only = Upstreams::at(targets[0].clone());
    if options.has_absent_upstream() {
        let absent = MemoryAddress::default();
        absent.refuse(true);
        targets.insert(0, target(&absent));
    }
    if targets.len() == 1 {
        return only;
    }
    let labels = LabelTable::new(2);
    let member = |(name, target): (&str, Target)| PoolMember {
        upstream: PlacedUpstream { target, protocol: None, health: Arc::default() },
        name: name.to_owned(),
        label: labels.intern(name),
    };
    let members = ["other", "there"].into_iter().zip(targets).map(member).collect();
    let by_model = UpstreamRoute {
        matches: RouteMatch { model: Some("held*".to_owned()), ..RouteMatch::default() },
        to: vec!["there".to_owned()],
        policy: None,
        affinity: None,
    };
    let routes = if options.is_holding() { vec![by_model] } else { Vec::new() };
    let settings = ConfigHandle::fixed(PlacementSettings { routes, ..PlacementSettings::default() });
    Upstreams::several(members, &settings, None, &LeverSwitch::default()).unwrap_or(only)
}

/// How a case's ends are reached.
fn reached(options: CaseOptions, connector: MemoryConnector) -> Result<Reached, String> {
    let tls = if options.is_tls_listener() || options.is_tls_upstream() {
        Some(MemoryTls::new(options.client_names(), options.upstream_names())?)
    } else {
        None
    };
    Ok(Reached {
        connector,
        addresses: std::iter::repeat_with(MemoryAddress::default).take(1 + usize::from(options.has_two_upstreams())).collect(),
        listener: tls.clone().filter(|_| options.is_tls_listener()),
        upstream: tls.filter(|_| options.is_tls_upstream()),
        is_rude: options.is_rude(),
    })
}

/// Runs a case in a runtime of its own.
///
/// # Errors
///
/// The property that does not hold.
pub(crate) fn run(script: &Script, is_split: bool, heap: Option<HeapProbe>) -> Result<Conversations, String> {
    LazyLock::force(&PROTOCOLS);
    let before = heap.map_or(0, |heap| heap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        let _clock = follow();
        let (connector, listener) = listen();
        let (reached, observer) = (reached(script.options, connector)?, Arc::<Count>::default());
        let parts = data_plane(script.options, &reached, observer.clone());
        let (counters, stop, tasks) = (parts.counters.clone(), CancellationToken::new(), Tasks::default());
        match &reached.listener {
            None => tasks.spawn(serve_with(listener, parts, stop.clone(), stack)),
            Some(tls) => {
                let listener = MemoryTlsListener { listener, identity: tls.listener.clone(), counters: counters.clone() };
                tasks.spawn(serve_with(listener, parts, stop.clone(), stack));
            }
        }
        let mut player = Player::new(reached);
        let check_heap = |player: &Player| {
            let (sent, received) = player.bytes();
            let grown = heap.map_or(0, |heap| heap()).saturating_sub(before);
            // what the peers keep is in it too
            let bound = HEAP + HEAP_PER_BYTE * sent + 4 * received;
            let held = counters.get(Counter::HoldBytes);
            if held > HELD_BYTES {
                return Err(format!("held requests take {held} bytes"));
            }
            if grown > bound { Err(format!("{grown} bytes of heap after {sent} bytes were sent")) } else { Ok(()) }
        };
        player.play(script, is_split, check_heap).await?;
        let seen = Conversations {
            clients: player.clients.iter().map(|peer| Conversation::of(&peer.pipe)).collect(),
            upstreams: player.upstreams.iter().map(|peer| Conversation::of(&peer.pipe)).collect(),
        };
        player.leave().await?;
        check_outcomes(&counters).await?;
        check_it_serves(&mut player, &counters, &observer).await?;
        stop.cancel();
        player.leave().await?;
        tokio::time::timeout(LONG, tasks.finished()).await.map_err(|_| "the drain does not end".to_owned())?;
        Ok(seen)
    })
}

/// No request is in flight, and each had one outcome.
async fn check_outcomes(counters: &Counters) -> Result<(), String> {
    let open = || counters.get(Counter::InFlight);
    if open() != 0 {
        // a timeout may be what ends it
        tokio::time::sleep(LONG).await;
    }
    if open() != 0 {
        return Err(format!("{} requests in flight after both peers left", open()));
    }
    let held = counters.get(Counter::HoldBytes);
    if held != 0 {
        return Err(format!("{held} bytes are held of requests that have ended"));
    }
    let is_ended = counters.open_requests().may_advance();
    let panics = counters.get(Counter::ObserverPanics) + counters.get(Counter::DroppedPanic);
    if !is_ended || panics != 0 {
        return Err(format!("a request was not ended: {}; panics of the observer: {panics}", !is_ended));
    }
    Ok(())
}

/// The proxy serves a plain exchange, whatever came before.
async fn check_it_serves(player: &mut Player, counters: &Counters, observer: &Count) -> Result<(), String> {
    let closed = observer.closed.load(Relaxed);
    let old = player.upstreams.len();
    player.address().refuse(false);
    player.open(false).await?;
    let Some(client) = player.clients.last_mut() else { return Ok(()) };
    client.pipe.send(b"GET /last HTTP/1.1\r\nhost: m\r\n\r\n");
    player.rest().await?;
    let [upstream] = &mut player.upstreams[old..] else {
        let got = player.clients.last().map(|client| client.pipe.received().escape_ascii().to_string());
        return Err(format!("{} connections for a last exchange, which got {got:?}", player.upstreams.len() - old));
    };
    let is_h2 = upstream.is_h2;
    let answer = plain_answer(upstream, 1);
    upstream.pipe.send(&answer);
    player.settle().await;
    let received = player.clients.last().map(|client| client.pipe.received()).unwrap_or_default();
    let is_answer = if is_h2 { received.starts_with(b"HTTP/1.1 200 OK\r\n") } else { received.starts_with(&PLAIN_ANSWER[..17]) };
    if !is_answer {
        return Err(format!("a last exchange got {:?}", String::from_utf8_lossy(&received)));
    }
    let (open, closed) = (counters.get(Counter::InFlight), observer.closed.load(Relaxed) - closed);
    if (open, closed) != (0, 1) {
        return Err(format!("after a last exchange {open} are open and {closed} closed"));
    }
    Ok(())
}
