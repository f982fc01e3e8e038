//! The data plane from outside, over real sockets: bytes pass unchanged, and every request's ledger is handed over once.
//! Client and upstream are raw blocking sockets, so that no library corrects what they send.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod amend;
mod amend_limits;
mod h2;
mod replaced_config;
mod slow;
mod wire;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crossbeam_queue::ArrayQueue;
use http::{HeaderMap, Method};
use lapwing_ledger::merge;
use lapwing_ledger::{Ledger, Outcome, Stage, Stamp, TraceMark};
use lapwing_metrics::{Counter, Counters, Labels};
use lapwing_net::Target;
use lapwing_protocol::ExchangeReader;
use lapwing_protocol::trace_context::ContextPolicy;
use lapwing_proxy::{
    self, Config, ConnectionSettings, DataPlane, Levers, Observer, Profiler, RecordLedger, TraceSampling, Tracing,
    UpstreamProtocol, Upstreams,
};
use lapwing_settings::{ConfigHandle, Size, Switch};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio_util::sync::CancellationToken;
use wire::{LIMIT, Message, Said, Wire, any_exchange};

// === the proxy ===

struct Proxy {
    address: SocketAddr,
    counters: Arc<Counters>,
    stop: CancellationToken,
    thread: JoinHandle<()>,
}

impl Proxy {
    fn start(upstream: SocketAddr, config: Config, observer: Arc<dyn Observer>, counters: Arc<Counters>) -> Self {
        Self::with(upstream, ConfigHandle::fixed(settings(config, observer)), counters)
    }

    fn with(upstream: SocketAddr, settings: ConfigHandle<ConnectionSettings>, counters: Arc<Counters>) -> Self {
        let listener = lapwing_net::bind("127.0.0.1:0".parse().unwrap(), 64, lapwing_net::Sharing::Alone).unwrap();
        let address = listener.local_addr().unwrap();
        let parts = DataPlane {
            settings,
            upstreams: Upstreams::at(Target::Tcp(upstream.to_string())),
            counters: counters.clone(),
            levers: Levers::default(),
            dispatch: None,
            cache: None,
            leave: CancellationToken::new(),
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(lapwing_proxy::serve(listener, parts, stopped)).unwrap();
        });
        Self { address, counters, stop, thread }
    }

    /// A proxy with an observer that sends closed ledgers to the returned receiver.
    fn watched(upstream: SocketAddr, config: Config) -> (Self, Receiver<Ledger>) {
        let (observer, closed) = watching();
        (Self::start(upstream, config, observer, Arc::default()), closed)
    }

    fn client(&self) -> Wire {
        Wire::new(TcpStream::connect(self.address).unwrap())
    }

    fn h2_client(&self, window: u32) -> h2::Client {
        h2::Client::new(self.client(), window)
    }

    /// Drains. After this, every ledger is closed.
    fn stop(self) -> Arc<Counters> {
        self.stop.cancel();
        self.thread.join().unwrap();
        self.counters
    }
}

fn settings(config: Config, observer: Arc<dyn Observer>) -> ConnectionSettings {
    let tracing =
        Tracing { sampling: TraceSampling::Off, mark: TraceMark::random(), continued: None, contexts: ContextPolicy::default() };
    ConnectionSettings {
        config,
        hold: lapwing_proxy::hold::Config::default(),
        respond_server_timing: false,
        tracing,
        tap: None,
        observer,
    }
}

fn watching() -> (Arc<dyn Observer>, Receiver<Ledger>) {
    let (sender, closed) = mpsc::channel();
    (Arc::new(Watching(Mutex::new(sender))), closed)
}

struct Watching(Mutex<Sender<Ledger>>);

impl Observer for Watching {
    fn request(&self, _: &Method, _: &str, _: &HeaderMap, _: &mut Ledger) -> Option<ExchangeReader> {
        None
    }
    fn model(&self, _: &str, _: &mut Ledger) {}
    fn response(&self, _: &HeaderMap, _: bool, _: &mut Ledger) {}
}

impl RecordLedger for Watching {
    fn record(&self, ledger: Box<Ledger>) {
        drop(self.0.lock().unwrap().send(*ledger)); // the test may be over
    }
}

// === upstreams ===

/// An upstream that serves each connection in a thread of its own.
fn upstream(serve: impl Fn(Wire) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(Wire::new(socket.unwrap())));
        }
    });
    address
}

/// An upstream that gives every request the same response.
fn answering(answer: &'static str) -> SocketAddr {
    upstream(move |mut wire| {
        while wire.message().is_some() {
            wire.send(answer);
        }
    })
}

/// A proxy that speaks HTTP/1.1 to the upstream, also for HTTP/2 clients.
fn over_h1() -> Config {
    Config { upstream_protocol: UpstreamProtocol::H1, ..Config::default() }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const GET: &str = "GET /x HTTP/1.1\r\nHost: m\r\n\r\n";

// === bytes are conserved ===

fn outcome(status: &str) -> Outcome {
    match status.as_bytes()["HTTP/1.1 ".len()] {
        b'5' => Outcome::ServerError,
        b'4' => Outcome::ClientError,
        _ => Outcome::Ok,
    }
}

fn assert_same(got: &Message, said: &Message) {
    assert_eq!(got.start, said.start);
    assert_eq!(got.grouped(), said.grouped());
    assert!(got.body == said.body, "the body differs: {} bytes for {}", got.body.len(), said.body.len());
    assert_eq!(got.sorted_trailers(), said.sorted_trailers());
}

#[test]
fn what_goes_in_comes_out() {
    let answers: Arc<Mutex<VecDeque<Said>>> = Arc::default();
    let (saw, seen) = mpsc::channel();
    let (giving, saw) = (answers.clone(), Mutex::new(saw));
    let address = upstream(move |mut wire| {
        while let Some(request) = wire.message() {
            saw.lock().unwrap().send(request).unwrap();
            let answer = giving.lock().unwrap().pop_front().unwrap();
            wire.say(&answer);
        }
    });
    let (proxy, closed) = Proxy::watched(address, Config::default());
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) });
    let exchanges = prop::collection::vec(any_exchange(), 1..4);
    let result = runner.run(&exchanges, |exchanges| {
        *answers.lock().unwrap() = exchanges.iter().map(|(_, answer)| answer.clone()).collect();
        while seen.try_recv().is_ok() || closed.try_recv().is_ok() {} // of a case that failed
        let mut client = proxy.client();
        for (request, answer) in &exchanges {
            client.say(request);
            assert_same(&client.message().unwrap(), &answer.message);
            assert_same(&seen.recv_timeout(LIMIT).unwrap(), &request.message);
            let ledger = closed.recv_timeout(LIMIT).unwrap();
            assert_eq!(ledger.outcome, outcome(&answer.message.start));
            let bytes = (request.message.body.len() as u64, answer.message.body.len() as u64);
            assert_eq!((ledger.request_bytes, ledger.response_bytes), bytes);
            let total = ledger.total_ns;
            let exchange = merge(ledger, Vec::new());
            let sum: u64 = Stage::ALL.iter().filter_map(|stage| exchange.stage(*stage)).map(|(ns, _)| ns).sum();
            assert_eq!(sum, total);
        }
        Ok(())
    });
    result.unwrap();
    proxy.stop();
    assert!(closed.try_recv().is_err(), "a request was counted twice");
}

// === profiling fails open ===

#[test]
fn a_full_channel_costs_records_and_no_request() {
    let counters: Arc<Counters> = Arc::default();
    let queue = Arc::new(ArrayQueue::new(2));
    let labels = Arc::new(Labels::new(8, 8, 8));
    let upstream = labels.upstreams.intern("up");
    let profiler = Profiler::new(queue.clone(), counters.clone(), labels, upstream, Arc::default(), Box::new(|_, _, _| ()));
    let proxy = Proxy::start(answering(OK), Config::default(), Arc::new(profiler), counters);
    let mut client = proxy.client();
    for _ in 0..20 {
        assert_eq!(client.send(GET).message().unwrap().body, b"ok");
    }
    drop(client);
    let counters = proxy.stop();
    assert_eq!((queue.len(), counters.get(Counter::DroppedChannelFull)), (2, 18));
    assert_eq!((counters.get(Counter::InFlight), counters.get(Counter::DroppedPanic)), (0, 0));
}

/// Panics without a message in the calls that its flags name: request, response, closed.
struct Panicking([bool; 3]);

impl Panicking {
    fn at(&self, place: usize) {
        if self.0[place] {
            std::panic::resume_unwind(Box::new("the observer"));
        }
    }
}

impl Observer for Panicking {
    fn request(&self, _: &Method, _: &str, _: &HeaderMap, _: &mut Ledger) -> Option<ExchangeReader> {
        self.at(0);
        None
    }
    fn model(&self, _: &str, _: &mut Ledger) {}
    fn response(&self, _: &HeaderMap, _: bool, _: &mut Ledger) {
        self.at(1);
    }
}

impl RecordLedger for Panicking {
    fn record(&self, _: Box<Ledger>) {
        self.at(2);
    }
}

#[test]
fn a_panicking_observer_costs_records_and_no_request() {
    for places in [[true, false, false], [false, true, false], [false, false, true], [true; 3]] {
        let proxy = Proxy::start(answering(OK), Config::default(), Arc::new(Panicking(places)), Arc::default());
        let mut client = proxy.client();
        for _ in 0..5 {
            assert_eq!(client.send(GET).message().unwrap().body, b"ok");
        }
        drop(client);
        let counters = proxy.stop();
        let looking = places[..2].iter().filter(|panics| **panics).count() as u64;
        assert_eq!(counters.get(Counter::ObserverPanics), looking * 5, "{places:?}");
        assert_eq!(counters.get(Counter::DroppedPanic), u64::from(places[2]) * 5, "{places:?}");
        assert_eq!(counters.get(Counter::InFlight), 0, "{places:?}");
    }
}

// === answers of Lapwing's own ===

/// An upstream that holds its first request until the returned sender sends. The receiver tells when that request came.
fn holding() -> (SocketAddr, Sender<()>, Receiver<()>) {
    let (release, held) = mpsc::channel::<()>();
    let (came, arrived) = mpsc::channel();
    let (held, came) = (Mutex::new(Some(held)), Mutex::new(came));
    let address = upstream(move |mut wire| {
        while wire.message().is_some() {
            let first = held.lock().unwrap().take();
            if let Some(first) = first {
                came.lock().unwrap().send(()).unwrap();
                let _ = first.recv(); // a failed test drops the sender
            }
            wire.send(OK);
        }
    });
    (address, release, arrived)
}

#[test]
fn a_request_after_a_shed_one_has_a_clock_of_its_own() {
    let (address, release, arrived) = holding();
    let (proxy, closed) = Proxy::watched(address, Config { max_in_flight: 1, ..Config::default() });
    let (mut busy, mut client) = (proxy.client(), proxy.client());
    busy.send(GET);
    arrived.recv_timeout(LIMIT).unwrap();
    let shed = client.send(GET).message().unwrap();
    assert_eq!((shed.start.as_str(), shed.all("x-lapwing-error")), ("HTTP/1.1 503 Service Unavailable", vec![&b"shed"[..]]));
    assert_eq!(closed.recv_timeout(LIMIT).unwrap().outcome, Outcome::Shed);
    release.send(()).unwrap();
    assert_eq!(busy.message().unwrap().body, b"ok");
    assert_eq!(closed.recv_timeout(LIMIT).unwrap().outcome, Outcome::Ok);
    let before = Stamp::now();
    assert_eq!(client.send(GET).message().unwrap().body, b"ok");
    let ledger = closed.recv_timeout(LIMIT).unwrap();
    assert!(ledger.started >= before, "it began {} ns before it was sent", before.since(ledger.started));
}

#[test]
fn an_answer_amid_a_request_arrives() {
    const LENGTH: usize = 32 << 20;
    let config = Config { max_request_bytes: Switch::On(Size(1000)), ..Config::default() };
    let (proxy, closed) = Proxy::watched(answering(OK), config);
    let mut client = proxy.client();
    client.send(format!("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: {LENGTH}\r\n\r\n"));
    client.send(vec![b'x'; LENGTH]); // all of it, as simple clients do, before the answer is looked at
    let refused = client.message().unwrap();
    assert_eq!(refused.start, "HTTP/1.1 413 Payload Too Large");
    assert_eq!(closed.recv_timeout(LIMIT).unwrap().outcome, Outcome::Rejected);
    assert!(!client.more());
}

// === Server-Timing for the client ===

#[test]
fn stages_are_told_in_the_head_and_complete_in_a_trailer() {
    let stream = "HTTP/1.1 200 OK\r\nServer-Timing: db;dur=1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let telling = |upstream| {
        let (observer, closed) = watching();
        let settings = ConnectionSettings { respond_server_timing: true, ..settings(Config::default(), observer) };
        (Proxy::with(upstream, ConfigHandle::fixed(settings), Arc::default()), closed)
    };
    let (proxy, _closed) = telling(answering(stream));
    let got = proxy.client().send("GET /x HTTP/1.1\r\nHost: m\r\nTE: trailers\r\n\r\n").message().unwrap();
    let timing = got.all("server-timing");
    assert_eq!((got.body.as_slice(), timing.len(), timing[0]), (&b"ok"[..], 2, &b"db;dur=1"[..]));
    assert_eq!(got.all("trailer"), [b"server-timing"]);
    let [(name, value)] = got.trailers.as_slice() else { panic!("{:?}", got.trailers) };
    let value = std::str::from_utf8(value).unwrap();
    assert!(name.eq_ignore_ascii_case("server-timing") && value.contains("upstream;dur="), "{name}: {value}");
    for entry in value.split(", ") {
        let (_, rest) = entry.split_once(";dur=").unwrap();
        let (ms, source) = rest.split_once(";desc=\"").unwrap();
        assert!(ms.parse::<f64>().unwrap() >= 0.0 && source.ends_with('"'), "{entry}");
    }
    // a client that does not take trailers gets none
    let got = proxy.client().send(GET).message().unwrap();
    assert_eq!((got.all("server-timing").len(), got.all("trailer").len(), got.trailers.len()), (2, 0, 0));
    // nor is there one behind a body of a known length
    let (proxy, _closed) = telling(answering(OK));
    let got = proxy.client().send("GET /x HTTP/1.1\r\nHost: m\r\nTE: trailers\r\n\r\n").message().unwrap();
    assert_eq!((got.body.as_slice(), got.all("server-timing").len(), got.trailers.len()), (&b"ok"[..], 1, 0));
}
