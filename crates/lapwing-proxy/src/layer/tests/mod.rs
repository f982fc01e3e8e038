//! Checks that a layer is easy to add: a mirror and a map of answers are one file and one line in the stack each. Both run
//! in a listening proxy, between clients and servers on real sockets.

mod answers;
mod held;
mod mirror;
mod tap;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Either};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service};

use self::answers::AnswersLayer;
use self::mirror::MirrorLayer;
use crate::body::capture::{CaptureBudget, CaptureLimits, ReplayBody, capture_whole};
use crate::body::{RequestBody, ResponseBody, TrackedRequest};
use crate::error::Error;
use crate::layer::deadline::DeadlinePropagation;
use crate::layer::place::Place;
use crate::layer::tap::Tapped;
use crate::layer::trace::Trace;
use crate::layer::usage_request::UsageRequest;
use crate::serve::serve_with;
use crate::stack::{client_side, upstream_side};
use crate::upstream::ClientUpstreams;
use crate::{Config, ConnectionSettings, DataPlane, Levers, Observer, StackTap, TraceSampling, Tracing, Upstreams, hold};
use lapwing_ledger::{Ledger, Outcome, TraceMark};
use lapwing_metrics::Counter;
use lapwing_net::{BoundListener, Client, ClientLimits, Target, Tasks, bind};
use lapwing_protocol::trace_context::ContextPolicy;
use lapwing_protocol::{ExchangeReader, Protocols};
use lapwing_settings::ConfigHandle;
use lapwing_tower::RecordLedger;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

/// What a comparison found: whether the bodies are equal, or why they were not compared.
type Comparison = Result<bool, String>;

/// Keeps closed ledgers. It reads bodies if it has `protocols`.
#[derive(Clone, Default)]
struct Kept {
    ledgers: Arc<Mutex<Vec<Ledger>>>,
    protocols: Option<Protocols>,
}

impl Observer for Kept {
    fn request(&self, method: &Method, path: &str, headers: &HeaderMap, _: &mut Ledger) -> Option<ExchangeReader> {
        let protocols = self.protocols.as_ref()?;
        protocols.open(&protocols.detect(method, path), headers)
    }
    fn response(&self, _: &HeaderMap, _: bool, _: &mut Ledger) {}
    fn model(&self, _: &str, _: &mut Ledger) {}
}

impl RecordLedger for Kept {
    fn record(&self, ledger: Box<Ledger>) {
        self.ledgers.lock().unwrap().push(*ledger);
    }
}

/// What a server was asked, path and body.
type Asked = Arc<Mutex<Vec<(String, Bytes)>>>;

/// A server that answers each request in two chunks: `text`, then the request's body.
async fn server(text: &'static str, tasks: &Tasks) -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
    let (keep, connections) = (asked.clone(), tasks.clone());
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let keep = keep.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let keep = keep.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await?.to_bytes();
                    keep.lock().unwrap().push((path, body.clone()));
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

/// What a layer around admitted requests stands before.
type UpstreamSide = Tapped<Trace<Place<UsageRequest<DeadlinePropagation<ClientUpstreams>>>>>;

/// A listening proxy before `upstream`, with `extra` in its stack.
struct Proxy {
    client: Client,
    kept: Kept,
    parts: DataPlane,
    stop: CancellationToken,
}

impl Proxy {
    fn start<L>(upstream: SocketAddr, extra: L, tasks: &Tasks) -> Self
    where
        L: Layer<UpstreamSide> + Clone + Send + Sync + 'static,
        L::Service: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Send + 'static,
    {
        Self::start_with(None, upstream, extra, tasks)
    }

    fn start_with<L>(tap: Option<StackTap>, upstream: SocketAddr, extra: L, tasks: &Tasks) -> Self
    where
        L: Layer<UpstreamSide> + Clone + Send + Sync + 'static,
        L::Service: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Send + 'static,
    {
        let upstreams = Upstreams::at(Target::Tcp(upstream.to_string()));
        Self::serve((Kept::default(), hold::Config::default(), tap), upstreams, extra, tasks)
    }

    fn serve<L>((kept, hold, tap): (Kept, hold::Config, Option<StackTap>), upstreams: Upstreams, extra: L, tasks: &Tasks) -> Self
    where
        L: Layer<UpstreamSide> + Clone + Send + Sync + 'static,
        L::Service: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let tracing = Tracing {
            sampling: TraceSampling::Off,
            mark: TraceMark::random(),
            continued: None,
            contexts: ContextPolicy::default(),
        };
        let observer = Arc::new(kept.clone());
        let config = Config::default();
        let settings = ConnectionSettings { config, hold, respond_server_timing: false, tracing, tap, observer };
        let parts = DataPlane {
            settings: ConfigHandle::fixed(settings),
            upstreams,
            counters: Arc::default(),
            levers: Levers::default(),
            dispatch: None,
            cache: None,
            leave: CancellationToken::new(),
        };
        let listener = bind("127.0.0.1:0".parse().unwrap(), 64, lapwing_net::Sharing::Alone).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = BoundListener::from(listener).registered().unwrap();
        tasks.spawn(serve_with(listener, parts.clone(), stop.clone(), move |settings, meter, upstream| {
            client_side(settings, meter, extra.layer(upstream_side(settings, upstream)))
        }));
        Self { client: Client::new(Target::Tcp(address.to_string()), ClientLimits::default()), kept, parts, stop }
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
            while self.kept.ledgers.lock().unwrap().len() < expected {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LIMIT, is_closed).await.unwrap();
        assert_eq!(self.parts.counters.get(Counter::InFlight), 0);
        std::mem::take(&mut self.kept.ledgers.lock().unwrap())
    }
}

fn mirror(second: SocketAddr, budget: &Arc<CaptureBudget>, tasks: &Tasks) -> (MirrorLayer, mpsc::UnboundedReceiver<Comparison>) {
    let (compared, comparisons) = mpsc::unbounded_channel();
    let layer = MirrorLayer {
        second: Client::new(Target::Tcp(second.to_string()), ClientLimits::default()),
        budget: budget.clone(),
        is_sampled: |request| request.uri().path().starts_with("/sampled"),
        compared,
        tasks: tasks.clone(),
    };
    (layer, comparisons)
}

fn budget(body: usize) -> Arc<CaptureBudget> {
    CaptureBudget::new(CaptureLimits { total: 16 << 20, body, read_buffer: Config::default().max_read_buffer() })
}

async fn next(comparisons: &mut mpsc::UnboundedReceiver<Comparison>) -> Comparison {
    tokio::time::timeout(LIMIT, comparisons.recv()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_mirror_compares_what_two_servers_answer_to_sampled_requests() {
    let (tasks, budget) = (Tasks::default(), budget(4 << 20));
    let (first, asked) = server("same ", &tasks).await;
    for (text, is_same) in [("same ", true), ("other ", false)] {
        let (second, mirrored) = server(text, &tasks).await;
        let (layer, mut comparisons) = mirror(second, &budget, &tasks);
        let proxy = Proxy::start(first, layer, &tasks);
        for length in [0, 10, 5_000, 1_000_000] {
            let body = Bytes::from(vec![b'x'; length]);
            let answer = [b"same ", &body[..]].concat();
            assert_eq!(proxy.ask("/sampled", body.clone()).await, answer);
            assert_eq!(next(&mut comparisons).await, Ok(is_same));
            assert_eq!(proxy.ask("/other", body.clone()).await, answer);
            assert_eq!(mirrored.lock().unwrap().pop(), Some(("/sampled".to_owned(), body.clone())));
            for ledger in proxy.closed(2).await {
                let bytes = (ledger.request_bytes, ledger.response_bytes);
                assert_eq!((ledger.outcome, bytes), (Outcome::Ok, (length as u64, answer.len() as u64)));
            }
        }
        assert!(mirrored.lock().unwrap().is_empty(), "only sampled requests are mirrored, once");
        proxy.stop.cancel();
    }
    assert_eq!((asked.lock().unwrap().len(), budget.used()), (16, 0));
}

#[tokio::test]
async fn a_mirror_that_fails_costs_the_comparison_and_no_request() {
    let tasks = Tasks::default();
    let (first, _) = server("", &tasks).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (layer, mut comparisons) = mirror(gone, &budget(4 << 20), &tasks);
    let proxy = Proxy::start(first, layer, &tasks);
    assert_eq!(proxy.ask("/sampled", "x").await, "x");
    let failed = next(&mut comparisons).await.unwrap_err();
    assert!(failed.contains("cannot connect"), "{failed}");

    let (layer, mut comparisons) = mirror(first, &budget(1_000), &tasks);
    let small = Proxy::start(first, layer, &tasks);
    let large = Bytes::from(vec![b'x'; 100_000]);
    assert_eq!(small.ask("/sampled", large.clone()).await, large);
    let failed = next(&mut comparisons).await.unwrap_err();
    assert_eq!(failed, "the body exceeds the capture budget of one body");
    for proxy in [proxy, small] {
        assert_eq!(proxy.closed(1).await[0].outcome, Outcome::Ok);
        proxy.stop.cancel();
    }
}

#[tokio::test]
async fn answers_of_a_map_are_counted_and_reach_no_upstream() {
    let tasks = Tasks::default();
    let (upstream, asked) = server("upstream ", &tasks).await;
    let answers = HashMap::from([(Bytes::from_static(b"question"), Bytes::from_static(b"from the map"))]);
    let proxy = Proxy::start(upstream, AnswersLayer(Arc::new(answers)), &tasks);
    for (body, answer) in
        [("question", "from the map"), ("else", "upstream else"), ("question", "from the map"), ("", "upstream ")]
    {
        assert_eq!(proxy.ask("/ask", body).await, answer);
        let ledgers = proxy.closed(1).await;
        let [ledger] = ledgers.as_slice() else { panic!("{} ledgers", ledgers.len()) };
        let bytes = (ledger.request_bytes, ledger.response_bytes);
        assert_eq!((ledger.outcome, ledger.status, bytes), (Outcome::Ok, 200, (body.len() as u64, answer.len() as u64)));
        assert_eq!(ledger.window.is_some(), answer.starts_with("upstream"), "an answer of the map has no upstream window");
    }
    let seen: Vec<_> = asked.lock().unwrap().iter().map(|(_, body)| body.clone()).collect();
    assert_eq!(seen, ["else", ""]);
    proxy.stop.cancel();
}
