//! Exchanges through the whole proxy with the shipped profiler: accepted, served by hyper, through every layer, to an upstream
//! and back. Proxy, client and upstream run on one thread and use loopback sockets.

use std::fmt::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use crossbeam_queue::ArrayQueue;
use lapwing_attribution::{Rules, adapters};
use lapwing_dispatch::{DispatchMode, RatioQuantiles, ServiceLine, ServiceModels, SlotsOf, UpstreamRoute, WorkSeries};
use lapwing_ledger::{Ledger, Outcome, Stamp, TraceMark};
use lapwing_metrics::{Counters, Labels};
use lapwing_net::Target;
use lapwing_protocol::Protocols;
use lapwing_protocol::request_match::RouteMatch;
use lapwing_protocol::trace_context::ContextPolicy;
use lapwing_proxy::{
    Config, ConnectionSettings, DataPlane, Levers, PlacedUpstream, PlacementSettings, PoolMember, Profiler, StackTap,
    TraceSampling, Tracing, UpstreamHealth, Upstreams,
};
use lapwing_settings::ConfigHandle;
use lapwing_shadow::{ShadowTap, TapBranch, TapParts};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use crate::peer::{Answer, Client};
use crate::{Repeat, h2, peer};

/// The labels of the case: of the proxy, of its tap, and of who takes closed ledgers.
static LABELS: LazyLock<Arc<Labels>> = LazyLock::new(|| Arc::new(Labels::new(16, 16, 16)));

/// What a case changes of the data plane as shipped.
#[derive(Default)]
struct Plane {
    tap: Option<StackTap>,
    /// Which requests a route takes, if there is one.
    route: Option<RouteMatch>,
    /// Whether requests ask to be sent, and it is known what they take.
    is_dispatched: bool,
}

impl From<ShadowTap> for Plane {
    fn from(tap: ShadowTap) -> Self {
        Self { tap: Some(tap.into()), ..Self::default() }
    }
}

/// The upstream at `address`; with a route, as the one of several.
fn upstreams(address: SocketAddr, route: Option<RouteMatch>) -> Upstreams {
    let target = Target::Tcp(address.to_string());
    let Some(matches) = route else { return Upstreams::at(target) };
    let upstream = PlacedUpstream { target, protocol: None, health: Arc::new(UpstreamHealth::of_several()) };
    let label = LABELS.upstreams.intern("a");
    let member = PoolMember { upstream, name: "a".to_owned(), label };
    let route = UpstreamRoute { matches, to: vec!["a".to_owned()], policy: None, affinity: None };
    let settings = ConfigHandle::fixed(PlacementSettings { routes: vec![route], ..PlacementSettings::default() });
    Upstreams::several(vec![member], &settings, None, &Levers::default().least_requests).unwrap()
}

/// The data plane: its address, the queue of closed ledgers, and the future that serves it.
fn proxy(
    upstream: SocketAddr,
    Plane { tap, route, is_dispatched }: Plane,
) -> (SocketAddr, Arc<ArrayQueue<Box<Ledger>>>, impl Future<Output = ()>) {
    let listener = lapwing_net::bind("127.0.0.1:0".parse().unwrap(), 64, lapwing_net::Sharing::Alone).unwrap();
    let address = listener.local_addr().unwrap();
    let (queue, counters) = (Arc::new(ArrayQueue::new(64)), Arc::new(Counters::default()));
    let observer = Profiler::new(
        queue.clone(),
        counters.clone(),
        LABELS.clone(),
        LABELS.upstreams.intern("http://127.0.0.1:8000"),
        Arc::new(Protocols::default()),
        adapters::reader(Arc::new(Rules::default()), counters.clone()),
    );
    let settings = ConnectionSettings {
        config: Config::default(),
        hold: lapwing_proxy::hold::Config::default(),
        respond_server_timing: false,
        tracing: Tracing {
            sampling: TraceSampling::Auto,
            mark: TraceMark::random(),
            continued: None,
            contexts: ContextPolicy::default(),
        },
        tap,
        observer: Arc::new(observer),
    };
    let upstreams = upstreams(upstream, route);
    let dispatching = upstreams.dispatched_by(ConfigHandle::fixed(lapwing_dispatch::Config {
        mode: if is_dispatched { DispatchMode::On } else { DispatchMode::Off },
        ..lapwing_dispatch::Config::default()
    }));
    if is_dispatched {
        dispatching.plane().publish(known_services());
    }
    let parts = DataPlane {
        settings: ConfigHandle::fixed(settings),
        upstreams,
        counters,
        levers: Levers::default(),
        dispatch: Some(dispatching),
        cache: None,
        leave: CancellationToken::new(),
    };
    let serving = async move { lapwing_proxy::serve(listener, parts, CancellationToken::new()).await.unwrap() };
    (address, queue, serving)
}

/// What the inference takes, as if it had been learnt; it stays believed for an hour.
fn known_services() -> ServiceModels {
    let series =
        WorkSeries { route: LABELS.routes.intern("POST /v2/models/{model}/infer"), model: LABELS.models.intern("digits") };
    let ratios = vec![RatioQuantiles { hedge: 1.2, q99: 1.3 }; 25];
    let line = ServiceLine { fixed_ns: 1e6, per_unit_ns: 1e5, samples: 1_000, unexplained: 0.05, ratios };
    ServiceModels {
        made: Stamp::now().plus(3_600_000_000_000),
        lines: [(series, line)].into_iter().collect(),
        upstreams: vec![SlotsOf { upstream: 0, slots: Ok(1), speed: 1.0 }],
        ..ServiceModels::default()
    }
}

/// The runtime of the only thread, with everything that runs on it.
struct World {
    runtime: Runtime,
    local: LocalSet,
}

impl World {
    fn new() -> Self {
        Self { runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(), local: LocalSet::new() }
    }

    /// Starts the upstream `serve` and, if `is_proxied`, the proxy in front of it. Returns the address to connect to, and the
    /// proxy's ledgers.
    fn start<F: Future<Output = ()> + 'static>(
        &self,
        is_proxied: bool,
        plane: Plane,
        serve: impl FnOnce(TcpListener) -> F,
    ) -> (SocketAddr, Option<Arc<ArrayQueue<Box<Ledger>>>>) {
        self.local.block_on(&self.runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let upstream = listener.local_addr().unwrap();
            tokio::task::spawn_local(serve(listener));
            if !is_proxied {
                return (upstream, None);
            }
            let (address, queue, serving) = proxy(upstream, plane);
            tokio::task::spawn_local(serving);
            (address, Some(queue))
        })
    }
}

/// Waits for the ledger of the exchange that has ended, and removes it from the queue.
async fn closed(queue: Option<&ArrayQueue<Box<Ledger>>>) {
    let Some(queue) = queue else { return };
    loop {
        if let Some(mut ledger) = queue.pop() {
            LABELS.resolve_names(&mut ledger, Stamp::default());
            assert_eq!(ledger.outcome, Outcome::Ok);
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// A request and the pieces of its answer, as bytes of HTTP/1.1.
struct Prepared {
    request: Vec<u8>,
    /// The last bytes of the request.
    after: &'static [u8],
    pieces: Vec<Vec<u8>>,
    /// How many bytes tell the end of a piece.
    end_bytes: usize,
}

/// Exchanges over HTTP/1.1 with prepared pieces.
fn over_h1(is_proxied: bool, plane: Plane, prepared: Prepared) -> Repeat {
    let Prepared { request, after, pieces, end_bytes } = prepared;
    let world = World::new();
    let taken = Rc::new(Notify::new());
    let ends = pieces.iter().map(|piece| piece[piece.len().saturating_sub(end_bytes)..].to_vec()).collect();
    let answer = Rc::new(Answer { after, pieces, taken: taken.clone() });
    let (to, queue) = world.start(is_proxied, plane, |listener| peer::serve(listener, answer));
    let mut client = world.local.block_on(&world.runtime, Client::connect(to, request, ends, taken));
    Box::new(move |n| {
        world.local.block_on(&world.runtime, async {
            for _ in 0..n {
                client.exchange().await;
                closed(queue.as_deref()).await;
            }
        });
    })
}

/// A request of the Open Inference Protocol in JSON, 1 KiB; the answer has a Server-Timing of four stages.
fn inference() -> Prepared {
    let mut data = String::new();
    for n in 0..96_u32 {
        let value = f64::from(n.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX);
        write!(data, "{}{value:.7}", if n > 0 { "," } else { "" }).unwrap();
    }
    let body = format!(r#"{{"inputs":[{{"name":"x","shape":[3,32],"datatype":"FP32","data":[{data}]}}],"id":"last"}}"#);
    let request = format!(
        "POST /v2/models/digits/infer HTTP/1.1\r\nHost: m:8000\r\nUser-Agent: python-httpx/0.28.1\r\nAccept: */*\r\n\
         Accept-Encoding: gzip, deflate\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let body = r#"{"model_name":"digits","outputs":[{"name":"y","shape":[3],"datatype":"FP32","data":[1.5,2.5,3.5]}]}"#;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ndate: Sat, 21 Nov 2026 07:39:55 GMT\r\nserver: uvicorn\r\ncontent-type: application/json\r\n\
         server-timing: hydration;dur=0.7, preprocessing;dur=0.4, forward;dur=8.02, postprocessing;dur=0.3\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    Prepared { request: request.into_bytes(), after: br#""id":"last"}"#, pieces: vec![answer.into_bytes()], end_bytes: 16 }
}

/// An inference without a shadow target.
pub(crate) fn http1_infer(is_proxied: bool) -> Repeat {
    over_h1(is_proxied, Plane::default(), inference())
}

/// The same, held until its body tells of how many rows it is.
pub(crate) fn held_infer(is_proxied: bool) -> Repeat {
    let route = RouteMatch { class: Some("..31".parse().unwrap()), ..RouteMatch::default() };
    over_h1(is_proxied, Plane { route: Some(route), ..Plane::default() }, inference())
}

/// The same with dispatch on, before an upstream that is free.
pub(crate) fn dispatched_infer(is_proxied: bool) -> Repeat {
    over_h1(is_proxied, Plane { is_dispatched: true, ..Plane::default() }, inference())
}

/// A tap that copies this share; up to `waiting` copies are handed over.
fn tap(share: &str, waiting: usize) -> ShadowTap {
    tap_of(lapwing_shadow::Config { sample: share.parse().unwrap(), ..lapwing_shadow::Config::default() }, waiting)
}

/// Nothing takes what it hands over.
fn tap_of(config: lapwing_shadow::Config, waiting: usize) -> ShadowTap {
    let quotas = Arc::new(lapwing_shadow::QuotaTable::new(&config.quotas, &LABELS.routes));
    let parts = TapParts::new(waiting, TapParts::limits(&config, &Config::default()), 0, quotas);
    let shadow = Some(TapBranch { parts, sampler: lapwing_shadow::Sampler::new(&config) });
    let protocols = Arc::new(Protocols::default());
    ShadowTap { shadow, recording: Arc::default(), numbers: Arc::default(), protocols }
}

/// A tap that copies by a quota of `route` alone.
fn quota(route: &str) -> ShadowTap {
    let quotas = vec![lapwing_shadow::RouteQuota { route: route.to_owned(), per_minute: 1 }];
    tap_of(lapwing_shadow::Config { sample: "0%".parse().unwrap(), quotas, ..lapwing_shadow::Config::default() }, 4)
}

/// The route has a quota, which is used up: every request is captured and let go.
pub(crate) fn shadow_quota(is_proxied: bool) -> Repeat {
    over_h1(is_proxied, quota("POST /v2/models/{model}/infer").into(), inference())
}

/// Another route has a quota.
pub(crate) fn shadow_quota_elsewhere(is_proxied: bool) -> Repeat {
    over_h1(is_proxied, quota("POST /v1/embeddings").into(), inference())
}

/// There is a shadow target, and no request is copied.
pub(crate) fn shadow_unsampled(is_proxied: bool) -> Repeat {
    over_h1(is_proxied, tap("0%", 1).into(), inference())
}

/// Every request is copied and handed over. Nobody takes the copies, so their end is not counted.
pub(crate) fn shadow_copied(is_proxied: bool) -> Repeat {
    let tap = tap("100%", usize::try_from(crate::WARM + crate::COUNTED).unwrap());
    over_h1(is_proxied, tap.into(), inference())
}

/// Every request is copied, and the copy dropped once the request is answered, on the same thread.
pub(crate) fn shadow_discarded(is_proxied: bool) -> Repeat {
    let tap = tap("100%", 1);
    let parts = tap.shadow.as_ref().map(|branch| branch.parts.clone()).unwrap();
    let mut exchange = over_h1(is_proxied, tap.into(), inference());
    Box::new(move |n| {
        for _ in 0..n {
            exchange(1);
            assert_eq!(parts.queue.pop().is_some(), is_proxied);
        }
    })
}

/// Every request is sampled, and the queue is full.
pub(crate) fn shadow_full(is_proxied: bool) -> Repeat {
    over_h1(is_proxied, tap("100%", 1).into(), inference())
}

/// A chat that streams 64 tokens, one in each chunk. The next chunk is sent when the client has received the previous one.
pub(crate) fn chat_stream(is_proxied: bool) -> Repeat {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"Tell me a story of a lapwing."}],"stream":true}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: m:8000\r\nUser-Agent: OpenAI/Python 1.60.0\r\nAccept: application/json\r\n\
         Content-Type: application/json\r\nAuthorization: Bearer x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len()).into_bytes();
    let event = |delta: &str| {
        format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\
             \"delta\":{{{delta}}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n"
        )
    };
    let head = b"HTTP/1.1 200 OK\r\ndate: Sat, 21 Nov 2026 07:39:55 GMT\r\nserver: uvicorn\r\n\
        content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut pieces = vec![[&head[..], &chunk(&event(r#""role":"assistant","content":"""#))].concat()];
    pieces.extend((0..64).map(|n| chunk(&event(&format!(r#""content":" token {n}""#)))));
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":64}}\n\ndata: [DONE]\n\n";
    pieces.push([chunk(usage), b"0\r\n\r\n".to_vec()].concat());
    let prepared = Prepared { request: request.into_bytes(), after: br#""stream":true}"#, pieces, end_bytes: 7 };
    over_h1(is_proxied, Plane::default(), prepared)
}

/// A `ModelInfer` call over HTTP/2, 1 KiB.
pub(crate) fn grpc_infer(is_proxied: bool) -> Repeat {
    // model_name; inputs { name, datatype, shape [3, 72] }; raw_input_contents
    let mut message = b"\x0a\x06digits\x2a\x0d\x0a\x01x\x12\x04FP32\x1a\x02\x03\x48\x3a\xe0\x06".to_vec();
    message.resize(message.len() + 864, 0x22);
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    let world = World::new();
    let (to, queue) = world.start(is_proxied, Plane::default(), |listener| {
        h2::serve(listener, &[0, 0, 0, 0, 8, 0x0a, 6, b'd', b'i', b'g', b'i', b't', b's'])
    });
    let path = "/inference.GRPCInferenceService/ModelInfer";
    let mut client = world.local.block_on(&world.runtime, h2::Client::connect(to, path, framed));
    Box::new(move |n| {
        world.local.block_on(&world.runtime, async {
            for _ in 0..n {
                client.exchange().await;
                closed(queue.as_deref()).await;
            }
        });
    })
}
