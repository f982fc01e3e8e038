//! Both protocols, the limits, and the shutdown of a server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::*;
use crate::{AcceptLimits, Client, ClientError, ClientLimits, Target};
use lapwing_metrics::{Counter, Counters};

/// Bytes of the answer to `/large`: more than sockets hold.
const LARGE: usize = 32 << 20;

/// Requests that have come, and a place for each that may be answered.
#[derive(Debug, Default)]
struct Requests {
    come: AtomicUsize,
}

/// Runs `client` against a server that answers a request whose path is `/wait` once `gate` lets it, and any other at once; then
/// stops the server, and waits for its end.
async fn against<C: Future<Output = ()>>(
    limits: ServerLimits,
    gate: Arc<Semaphore>,
    client: impl FnOnce(SocketAddr, CancellationToken, Arc<Requests>) -> C,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, requests) = (CancellationToken::new(), Arc::new(Requests::default()));
    let counted = requests.clone();
    let service = tower::service_fn(move |request: Request<Incoming>| {
        let (gate, counted) = (gate.clone(), counted.clone());
        async move {
            counted.come.fetch_add(1, Ordering::SeqCst);
            if request.uri().path() == "/wait" {
                gate.acquire().await.unwrap().forget();
            }
            if request.uri().path() == "/large" {
                return Ok(Response::new(Full::new(Bytes::from(vec![b'x'; LARGE]))));
            }
            let body = request.into_body().collect().await.map_or_else(|error| error.to_string().into(), |b| b.to_bytes());
            Ok::<_, Infallible>(Response::new(Full::new(body)))
        }
    });
    let serving = serve(listener, service, limits, stop.clone());
    let (served, ()) = tokio::join!(timeout(Duration::from_secs(20), serving), async {
        Box::pin(client(address, stop.clone(), requests)).await;
        stop.cancel();
    });
    served.expect("the server ends");
}

fn ask(address: SocketAddr, http2: bool) -> impl AsyncFn(&str) -> Result<Response<Bytes>, ClientError> {
    let target = Target::Tcp(address.to_string());
    let client =
        if http2 { Client::http2(target, ClientLimits::default()) } else { Client::new(target, ClientLimits::default()) };
    async move |path: &str| client.fetch(Request::post(path).body(Full::new(Bytes::from_static(b"x"))).unwrap()).await
}

fn gate() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

#[tokio::test]
async fn one_listener_speaks_both_protocols_or_only_one() {
    let both = ServerLimits::new("test");
    against(both.clone(), gate(), async |address, _, _| {
        assert_eq!(ask(address, false)("/").await.unwrap().into_body(), "x");
        assert_eq!(ask(address, true)("/").await.unwrap().into_body(), "x");
    })
    .await;
    against(ServerLimits { http1_only: true, ..both.clone() }, gate(), async |address, _, _| {
        assert!(ask(address, true)("/").await.is_err());
        assert_eq!(ask(address, false)("/").await.unwrap().into_body(), "x");
    })
    .await;
    against(ServerLimits { http2_only: true, ..both }, gate(), async |address, _, _| {
        assert!(ask(address, false)("/").await.is_err());
        assert_eq!(ask(address, true)("/").await.unwrap().into_body(), "x");
    })
    .await;
}

#[tokio::test]
async fn a_stop_lets_requests_in_flight_end() {
    for http2 in [false, true] {
        let gate = gate();
        against(
            ServerLimits { grace: Duration::from_secs(20), ..ServerLimits::new("test") },
            gate.clone(),
            async |address, stop, requests| {
                let client = ask(address, http2);
                let (answer, ()) = tokio::join!(client("/wait"), async {
                    while requests.come.load(Ordering::SeqCst) == 0 {
                        sleep(Duration::from_millis(1)).await;
                    }
                    stop.cancel();
                    while TcpStream::connect(address).await.is_ok() {
                        sleep(Duration::from_millis(1)).await;
                    }
                    gate.add_permits(1);
                });
                assert_eq!(answer.unwrap().into_body(), "x", "http2: {http2}");
            },
        )
        .await;
    }
}

#[tokio::test]
async fn what_is_open_after_the_grace_period_is_closed() {
    for http2 in [false, true] {
        let limits = ServerLimits { grace: Duration::from_millis(20), ..ServerLimits::new("test") };
        against(limits, gate(), async |address, stop, requests| {
            let client = ask(address, http2);
            let (answer, ()) = tokio::join!(client("/wait"), async {
                while requests.come.load(Ordering::SeqCst) == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
                stop.cancel();
            });
            assert!(matches!(answer, Err(ClientError::Exchange(_))), "{answer:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn dropping_the_server_closes_its_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = tower::service_fn(|_: Request<Incoming>| std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let serving = serve(listener, service, ServerLimits::new("test"), CancellationToken::new());
    let mut stream = tokio::select! {
        () = serving => panic!("nobody stopped it"),
        stream = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            sleep(Duration::from_millis(20)).await;
            stream
        } => stream,
    };
    let read = timeout(Duration::from_secs(5), stream.read(&mut [0])).await.expect("the connection is closed");
    assert_eq!(read.unwrap_or(0), 0);
}

/// Whether the connection ends within five seconds.
async fn ends(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn at_the_bound_the_connection_without_a_request_gives_way_and_a_served_one_stays() {
    let counters = Arc::new(Counters::default());
    let limits = ServerLimits {
        accept: AcceptLimits { max_connections: Some(2), ..AcceptLimits::default() },
        counters: Some(counters.clone()),
        ..ServerLimits::new("test")
    };
    against(limits, gate(), async |address, _, _| {
        let request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
        let mut served = TcpStream::connect(address).await.unwrap();
        let mut answer = [0; 12];
        served.write_all(request).await.unwrap();
        served.read_exact(&mut answer).await.unwrap();
        let mut halves = Vec::new();
        for _ in 0..6 {
            let mut half = TcpStream::connect(address).await.unwrap();
            half.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
            halves.push(half);
        }
        halves.pop();
        for half in &mut halves {
            assert!(ends(half).await);
        }
        served.write_all(request).await.unwrap();
        let mut rest = vec![0; 512];
        let read = served.read(&mut rest).await.unwrap();
        assert!(read > 0, "the one that was served is still there");
    })
    .await;
    assert_eq!(counters.get(Counter::ClosedGaveWay), 5);
}

#[tokio::test]
async fn a_connection_with_an_open_request_does_not_give_way() {
    let gate = gate();
    let limits = ServerLimits {
        accept: AcceptLimits { max_connections: Some(1), ..AcceptLimits::default() },
        first_request_timeout: Some(Duration::from_millis(20)),
        idle_timeout: Some(Duration::from_millis(20)),
        ..ServerLimits::new("test")
    };
    against(limits, gate.clone(), async |address, _, _| {
        let waits = ask(address, false);
        let (first, second) = tokio::join!(waits("/wait"), async {
            sleep(Duration::from_millis(200)).await;
            let mut second = TcpStream::connect(address).await.unwrap();
            second.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await.unwrap();
            sleep(Duration::from_millis(200)).await;
            gate.add_permits(1);
            second
        });
        assert_eq!(first.unwrap().into_body(), "x");
        let (mut answer, mut second) = (Vec::new(), second);
        timeout(Duration::from_secs(5), second.read_to_end(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    })
    .await;
}

#[tokio::test]
async fn what_comes_too_slowly_and_what_stays_idle_is_closed_and_counted() {
    let counters = Arc::new(Counters::default());
    let limits = ServerLimits {
        counters: Some(counters.clone()),
        first_request_timeout: Some(Duration::from_millis(50)),
        idle_timeout: Some(Duration::from_millis(100)),
        ..ServerLimits::new("test")
    };
    against(limits, gate(), async |address, _, _| {
        for begun in [&b""[..], b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nhost:"] {
            let mut slow = TcpStream::connect(address).await.unwrap();
            slow.write_all(begun).await.unwrap();
            assert!(ends(&mut slow).await, "{begun:?}");
        }
        let mut idle = TcpStream::connect(address).await.unwrap();
        idle.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        assert!(ends(&mut idle).await);
    })
    .await;
    assert_eq!([Counter::ClosedSlowHead, Counter::ClosedIdle].map(|counter| counters.get(counter)), [3, 1]);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed_and_counted() {
    let counters = Arc::new(Counters::default());
    let limits = ServerLimits {
        counters: Some(counters.clone()),
        write_timeout: Some(Duration::from_millis(100)),
        ..ServerLimits::new("test")
    };
    against(limits, gate(), async |address, _, _| {
        let mut lazy = TcpStream::connect(address).await.unwrap();
        lazy.write_all(b"POST /large HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        while counters.get(Counter::ClosedSlowReader) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        let mut read = Vec::new();
        let _ = timeout(Duration::from_secs(5), lazy.read_to_end(&mut read)).await.expect("it is closed");
        assert!(read.len() < LARGE, "{} bytes came", read.len());
        let (mut whole, mut keen) = (Vec::new(), TcpStream::connect(address).await.unwrap());
        keen.write_all(b"POST /large HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await.unwrap();
        keen.read_to_end(&mut whole).await.unwrap();
        assert!(whole.len() > LARGE, "one that reads gets everything");
    })
    .await;
}

#[tokio::test]
async fn a_head_must_come_in_time_and_in_size() {
    let limits = ServerLimits {
        header_timeout: Some(Duration::from_millis(50)),
        max_header_bytes: Some(8192),
        ..ServerLimits::new("test")
    };
    against(limits, gate(), async |address, _, requests| {
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
        let mut rest = Vec::new();
        let _ = timeout(Duration::from_secs(5), slow.read_to_end(&mut rest)).await.expect("the connection is closed");
        let mut large = TcpStream::connect(address).await.unwrap();
        large.write_all(format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(9000)).as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        large.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 431");
        assert_eq!(requests.come.load(Ordering::SeqCst), 0);
    })
    .await;
}
