//! The client's bounds, and its errors.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::target::ConnectError;

/// A server that answers each connection's first bytes with `answer`, then closes it, or with `is_open` leaves it open.
async fn raw(answer: &'static [u8], is_open: bool) -> (Target, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::Tcp(listener.local_addr().unwrap().to_string());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut open: Vec<TcpStream> = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            stream.write_all(answer).await.unwrap();
            if is_open {
                open.push(stream);
            }
        }
    });
    (target, tasks)
}

fn quick() -> ClientLimits {
    ClientLimits { timeout: Duration::from_millis(50), ..ClientLimits::default() }
}

async fn failure(target: Target, limits: ClientLimits) -> ClientError {
    Client::new(target, limits).fetch(post("/", "")).await.unwrap_err()
}

#[tokio::test]
async fn a_body_above_the_limit_is_not_read() {
    let (target, _server) = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlarge", true).await;
    let limits = |max_body| ClientLimits { max_body, ..ClientLimits::default() };
    let error = failure(target.clone(), limits(4)).await;
    assert!(matches!(error, ClientError::BodyTooLarge(4)), "{error}");
    assert_eq!(error.to_string(), "the response's body is larger than 4 bytes");
    let client = Client::new(target, limits(5));
    assert_eq!(client.fetch(post("/", "")).await.unwrap().into_body(), "large");
}

#[tokio::test]
async fn a_server_that_closes_amid_the_body_or_before_the_head_is_named_so() {
    let (target, _server) = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", false).await;
    let error = failure(target, ClientLimits::default()).await;
    assert!(matches!(error, ClientError::BodyCut(_)), "{error}");
    let (target, _server) = raw(b"", false).await;
    let error = failure(target, ClientLimits::default()).await;
    assert!(matches!(error, ClientError::Exchange(_)), "{error}");
    assert_eq!(error.to_string(), "connection closed before message completed");
    let (target, _server) = raw(b"no HTTP\r\n\r\n", false).await;
    let error = failure(target, ClientLimits::default()).await;
    assert_eq!(error.to_string(), "invalid HTTP version parsed");
}

#[tokio::test]
async fn the_time_of_the_whole_exchange_is_bounded() {
    for answer in [&b""[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"] {
        let (target, _server) = raw(answer, true).await;
        let error = failure(target, quick()).await;
        assert!(matches!(error, ClientError::Timeout(_)), "{error}");
        assert_eq!(error.to_string(), "no response within 50ms");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = failure(Target::Tcp(authority.clone()), ClientLimits::default()).await.to_string();
    assert!(error.starts_with(&format!("cannot connect to {authority}: ")) && error.contains("refused"), "{error}");
    let error = failure(Target::Unix("/no/such/socket".into()), ClientLimits::default()).await.to_string();
    assert!(error.starts_with("cannot connect to unix:/no/such/socket: No such file"), "{error}");
    // a full backlog answers no connection attempt
    let listener = crate::bind("127.0.0.1:0".parse().unwrap(), 0, crate::Sharing::Alone).unwrap();
    let target = Target::Tcp(listener.local_addr().unwrap().to_string());
    let _backlog = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let limits = ClientLimits { connect_timeout: Duration::from_millis(50), ..ClientLimits::default() };
    let error = failure(target.clone(), limits).await.to_string();
    assert_eq!(error, format!("cannot connect to {target}: no connection within 50ms"));
    assert!(matches!(target.probe(Duration::from_millis(10)).await, Err(ConnectError::Timeout(_))));
}

#[tokio::test]
async fn an_address_that_makes_no_request_is_refused() {
    let error = failure(Target::Tcp("no address".to_owned()), ClientLimits::default()).await;
    assert!(matches!(error, ClientError::Request(_)), "{error}");
}

#[tokio::test]
async fn a_connection_that_the_server_closed_meanwhile_costs_no_request() {
    // answers one request, then closes: the second request finds the kept connection dead
    let (target, _server) = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", false).await;
    let client = Client::new(target, ClientLimits::default());
    for _ in 0..3 {
        assert_eq!(client.fetch(post("/", "")).await.unwrap().into_body(), "ok");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn the_text_of_a_server_is_cut() {
    // SETTINGS, then GOAWAY with INTERNAL_ERROR and 16,000 bytes of text
    let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let goaway: &[u8] = &[0, 0x3e, 0x88, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let answer: Vec<u8> = [settings, goaway, &[b'x'; 16_000]].concat();
    let (target, _server) = raw(answer.leak(), true).await;
    let error = Client::http2(target, ClientLimits::default()).fetch(post("/", "")).await.unwrap_err().to_string();
    assert!(error.contains("xxx") && error.len() <= crate::MAX_ERROR_TEXT, "{} bytes: {error}", error.len());
}
