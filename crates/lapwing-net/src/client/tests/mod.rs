//! The client with servers that answer, answer late, send too much or too little, or do not answer.

mod faults;

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream;
use http::{HeaderMap, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;

use super::*;

/// Answers with the request's version, path, `host`, and body, and the trailer `said: so`.
async fn echo(
    request: Request<Incoming>,
) -> Result<Response<impl http_body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let host = request.headers().get(HOST).or(None).map(|host| host.to_str().unwrap().to_owned());
    let host = host.or_else(|| request.uri().authority().map(ToString::to_string)).unwrap_or_default();
    let head = format!("{:?} {} {host} ", request.version(), request.uri().path());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut trailers = HeaderMap::new();
    trailers.insert("said", HeaderValue::from_static("so"));
    let frames = [Frame::data(Bytes::from(head)), Frame::data(body), Frame::trailers(trailers)];
    let mut response = Response::new(StreamBody::new(stream::iter(frames.map(Ok))));
    response.headers_mut().insert("trailer", HeaderValue::from_static("said"));
    Ok(response)
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let _ =
        auto::Builder::new(TokioExecutor::new()).serve_connection(hyper_util::rt::TokioIo::new(stream), service_fn(echo)).await;
}

/// A server that echoes, and the connections that it has accepted.
async fn echoing() -> (Target, std::sync::Arc<std::sync::atomic::AtomicUsize>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::Tcp(listener.local_addr().unwrap().to_string());
    let accepted = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (mut tasks, count) = (JoinSet::new(), accepted.clone());
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            connections.spawn(serve(stream));
        }
    });
    (target, accepted, tasks)
}

fn post(path: &str, body: &'static str) -> Request<Full<Bytes>> {
    Request::post(path).header("te", "trailers").body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap()
}

#[tokio::test]
async fn http1_and_http2_carry_bodies_and_trailers_both_ways() {
    let (target, _, _server) = echoing().await;
    let Target::Tcp(authority) = &target else { unreachable!() };
    for (client, version) in [
        (Client::new(target.clone(), ClientLimits::default()), "HTTP/1.1"),
        (Client::http2(target.clone(), ClientLimits::default()), "HTTP/2.0"),
    ] {
        let response = client.send(post("/a/b?c", "hot")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["said"], "so", "{version}");
        assert_eq!(body.to_bytes(), format!("{version} /a/b {authority} hot"));
    }
}

#[tokio::test]
async fn a_request_that_came_elsewhere_is_directed_to_the_target() {
    let (target, _, _server) = echoing().await;
    let client = Client::new(target, ClientLimits::default());
    let mut request = post("http://elsewhere:9/x", "");
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().insert(HOST, HeaderValue::from_static("kept"));
    assert_eq!(client.fetch(request).await.unwrap().into_body(), "HTTP/1.1 /x kept ");
}

#[tokio::test]
async fn a_unix_socket_is_a_target_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let client = Client::new(Target::Unix(path), ClientLimits::default());
    tokio::select! {
        () = async { serve(listener.accept().await.unwrap().0).await } => panic!("the client closed first"),
        answer = client.fetch(post("/x", "y")) => assert_eq!(answer.unwrap().into_body(), "HTTP/1.1 /x localhost y"),
    }
}

#[tokio::test]
async fn connections_are_kept_for_the_next_request_unless_none_may_be() {
    let ask = async |client: &Client, times: usize| {
        for _ in 0..times {
            client.fetch(post("/", "")).await.unwrap();
            tokio::task::yield_now().await; // the connection's task hands it back
        }
    };
    for (limits, expected) in [(ClientLimits::default(), 1), (ClientLimits { max_idle: 0, ..ClientLimits::default() }, 3)] {
        let (target, accepted, _server) = echoing().await;
        ask(&Client::new(target, limits), 3).await;
        assert_eq!(accepted.load(std::sync::atomic::Ordering::SeqCst), expected);
    }
    let (target, accepted, _server) = echoing().await;
    let client = Client::http2(target, ClientLimits::default());
    futures_util::future::join_all((0..8).map(|_| ask(&client, 1))).await;
    assert_eq!(accepted.load(std::sync::atomic::Ordering::SeqCst), 1, "one HTTP/2 connection for all");
}

#[tokio::test]
async fn a_kept_connection_is_closed_when_it_has_been_idle_for_too_long() {
    let (target, accepted, _server) = echoing().await;
    let limits = ClientLimits { idle_timeout: Duration::from_millis(20), ..ClientLimits::default() };
    let client = Client::new(target, limits);
    client.fetch(post("/", "")).await.unwrap();
    sleep(Duration::from_millis(100)).await;
    client.fetch(post("/", "")).await.unwrap();
    assert_eq!(accepted.load(std::sync::atomic::Ordering::SeqCst), 2);
}
