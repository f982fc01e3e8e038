//! The tap in a listening proxy, between clients and servers on real sockets.

mod copies;
mod quota;

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{CopyRecognition, RecordingSwitch, ShadowJob, ShadowTap, TapBranch, TapParts};
use crate::config::Config as ShadowConfig;
use crate::counters::ShadowDrop;
use crate::header_names::PAIR_FIELD;
use crate::quota::{QuotaResult, QuotaTable, RouteQuota};
use crate::sampler::Sampler;
use lapwing_ledger::{Basis, CopyCause, LabelTable, Ledger, PairId, TraceMark, Unit};
use lapwing_metrics::Counter;
use lapwing_net::{Client, ClientLimits, Target, Tasks, bind};
use lapwing_protocol::trace_context::ContextPolicy;
use lapwing_protocol::{ExchangeReader, fold_route};
use lapwing_proxy::{
    BodyCapture, CaptureLimits, Config, ConnectionSettings, DataPlane, Incomplete, Levers, Observer, RecordLedger, StackTap,
    TraceSampling, Tracing, Upstreams,
};
use lapwing_settings::ConfigHandle;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);
/// A request that may be copied.
const INFER: &str = "/v2/models/m/infer";
/// Says how many rows a request has.
const ROWS: &str = "x-rows";
/// The labels of all routes here.
static ROUTES: LazyLock<LabelTable> = LazyLock::new(|| LabelTable::new(64));

/// Keeps closed ledgers.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Ledger>>>);

impl Observer for Kept {
    fn request(&self, method: &Method, path: &str, headers: &HeaderMap, ledger: &mut Ledger) -> Option<ExchangeReader> {
        ledger.series.route = ROUTES.intern(&fold_route(method.as_str(), path).name);
        if let Some(rows) = headers.get(ROWS) {
            ledger.work.primary = Some(Unit::Row);
            ledger.work.set(Unit::Row, rows.to_str().unwrap().parse().unwrap(), Basis::Counted);
        }
        None
    }
    fn response(&self, _: &HeaderMap, _: bool, _: &mut Ledger) {}
    fn model(&self, _: &str, _: &mut Ledger) {}
}

impl RecordLedger for Kept {
    fn record(&self, ledger: Box<Ledger>) {
        self.0.lock().unwrap().push(*ledger);
    }
}

/// A server that answers each request in two chunks: `text`, then the request's body. It keeps the headers of what it was asked.
async fn server(text: &'static str, tasks: &Tasks) -> (SocketAddr, Arc<Mutex<Vec<HeaderMap>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<HeaderMap>>>::default());
    let (keep, connections) = (asked.clone(), tasks.clone());
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let keep = keep.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                keep.lock().unwrap().push(request.headers().clone());
                async move {
                    let body = request.into_body().collect().await?.to_bytes();
                    let frames = [Bytes::from_static(text.as_bytes()), body]
                        .map(|bytes| Ok::<_, hyper::Error>(http_body::Frame::data(bytes)));
                    Ok::<_, hyper::Error>(Response::new(StreamBody::new(futures_util::stream::iter(frames))))
                }
            });
            connections.spawn(async move {
                let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                let _ = served.await;
            });
        }
    });
    (address, asked)
}

/// A listening proxy before `upstream`, with a tap in its stack.
struct Proxy {
    client: Client,
    kept: Kept,
    parts: DataPlane,
}

impl Proxy {
    fn start(tap: impl Into<StackTap>, upstream: SocketAddr, tasks: &Tasks) -> Self {
        let kept = Kept::default();
        let tracing = Tracing {
            sampling: TraceSampling::Off,
            mark: TraceMark::random(),
            continued: None,
            contexts: ContextPolicy::default(),
        };
        let (tap, observer) = (Some(tap.into()), Arc::new(kept.clone()));
        let (config, hold) = (Config::default(), lapwing_proxy::hold::Config::default());
        let settings = ConnectionSettings { config, hold, respond_server_timing: false, tracing, tap, observer };
        let target = Target::Tcp(upstream.to_string());
        let parts = DataPlane {
            settings: ConfigHandle::fixed(settings),
            upstreams: Upstreams::at(target),
            counters: Arc::default(),
            levers: Levers::default(),
            dispatch: None,
            cache: None,
            leave: CancellationToken::new(),
        };
        let listener = bind("127.0.0.1:0".parse().unwrap(), 64, lapwing_net::Sharing::Alone).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = lapwing_proxy::serve(listener, parts.clone(), CancellationToken::new());
        tasks.spawn(async move { serving.await.unwrap() });
        Self { client: Client::new(Target::Tcp(address.to_string()), ClientLimits::default()), kept, parts }
    }

    async fn ask(&self, path: &str, body: impl Into<Bytes>) -> Bytes {
        let request = Request::post(path).body(Full::new(body.into())).unwrap();
        let response = self.client.fetch(request).await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        response.into_body()
    }

    /// The closed ledgers, when there are `expected` of them and no request is in flight.
    async fn closed(&self, expected: usize) -> Vec<Ledger> {
        let is_closed = async {
            while self.kept.0.lock().unwrap().len() < expected {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LIMIT, is_closed).await.unwrap();
        assert_eq!(self.parts.counters.get(Counter::InFlight), 0);
        std::mem::take(&mut self.kept.0.lock().unwrap())
    }
}

fn branch(room: usize, body: usize) -> (TapBranch, Arc<TapParts>) {
    branch_of("100%", room, body, QuotaTable::default())
}

fn branch_of(share: &str, room: usize, body: usize, quotas: QuotaTable) -> (TapBranch, Arc<TapParts>) {
    let limits = CaptureLimits { total: 16 << 20, body, read_buffer: Config::default().max_read_buffer() };
    let parts = TapParts::new(room, limits, 1, Arc::new(quotas));
    let config = ShadowConfig { sample: share.parse().unwrap(), ..ShadowConfig::default() };
    (TapBranch { parts: parts.clone(), sampler: Sampler::new(&config) }, parts)
}

fn tap(room: usize, body: usize) -> (ShadowTap, Arc<TapParts>) {
    let (branch, parts) = branch(room, body);
    (tap_of(Some(branch), &Arc::default()), parts)
}

fn tap_of(shadow: Option<TapBranch>, recording: &Arc<RecordingSwitch>) -> ShadowTap {
    ShadowTap { shadow, recording: recording.clone(), numbers: Arc::default(), protocols: Arc::default() }
}

async fn bytes_of(copy: BodyCapture) -> Result<Vec<u8>, Incomplete> {
    let copy = tokio::time::timeout(LIMIT, copy).await.unwrap()?;
    Ok(copy.pieces().concat())
}
