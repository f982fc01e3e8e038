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
use crate::net::{AcceptLimits, Client, ClientError, ClientLimits, Target};

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
    against(both, gate(), async |address, _, _| {
        assert_eq!(ask(address, false)("/").await.unwrap().into_body(), "x");
        assert_eq!(ask(address, true)("/").await.unwrap().into_body(), "x");
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

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed_and_further_ones_wait_for_its_place() {
    let limits = ServerLimits {
        accept: AcceptLimits { max_connections: Some(1), ..AcceptLimits::default() },
        idle_timeout: Some(Duration::from_millis(50)),
        ..ServerLimits::new("test")
    };
    against(limits, gate(), async |address, _, _| {
        let mut silent = TcpStream::connect(address).await.unwrap();
        sleep(Duration::from_millis(10)).await;
        assert_eq!(ask(address, false)("/").await.unwrap().into_body(), "x", "the silent one has made room");
        assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0);
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
