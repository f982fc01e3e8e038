//! Requests that are amended on their way (`proxy.amend`), and responses in which the client sees nothing of that.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lapwing_ledger::{Basis, Ledger, Outcome, Unit};
use lapwing_metrics::Counter;
use lapwing_protocol::amend::AmendOptions;
use lapwing_protocol::{ExchangeReader, Protocols};
use lapwing_proxy::{Config, Observer, RecordLedger, UpstreamProtocol};
use tokio_util::task::TaskTracker;

use crate::wire::{LIMIT, Message, Wire};
use crate::{Proxy, upstream};

pub(crate) const CHAT: &str = "/proxy/v1/chat/completions";
pub(crate) const STREAM: &str = r#"{"model": "m", "stream": true, "messages": [{"content": "\"stream\":false"}]}"#;
const ASKED: &str =
    r#"{"stream_options":{"include_usage":true},"model": "m", "stream": true, "messages": [{"content": "\"stream\":false"}]}"#;

pub(crate) fn amending() -> Config {
    Config { amend: AmendOptions { include_usage: true, return_meta_info: true }, ..Config::default() }
}

pub(crate) fn post(path: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\n{fields}");
    format!("{head}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// The stream of a server that keeps to `OpenAI`'s word.
pub(crate) fn events(asked: bool) -> String {
    let null = if asked { r#","usage":null"# } else { "" };
    let mut text = String::from(": hello\n\n");
    for n in 0..5 {
        text.push_str(&format!(
            "data: {{\"id\":\"c\",\"choices\":[{{\"delta\":{{\"content\":\"é{n}\"}}}}]{null},\"n\":{n}}}\r\n\r\n"
        ));
    }
    if asked {
        text.push_str("data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":5}}\n\n");
    }
    text + "data: [DONE]\n\n"
}

pub(crate) const JSON: &str = r#"{"choices":[{"index":0,"text":"a"},{"index":1,"text":"b"}],"usage":{}}"#;
pub(crate) const WITH_META: &str =
    r#"{"choices":[{"index":0,"text":"a","meta_info":{"queue_time":0.1}},{"index":1,"text":"b","meta_info":{}}],"usage":{}}"#;

fn has(message: &Message, what: &str) -> bool {
    String::from_utf8_lossy(&message.body).contains(what)
}

/// A server that does as it is asked, in pieces of `size` bytes; what it was asked comes out of the receiver.
fn server(size: usize) -> (SocketAddr, Receiver<Message>) {
    let (saw, seen) = mpsc::channel();
    let saw = Mutex::new(saw);
    let address = upstream(move |mut wire: Wire| {
        while let Some(request) = wire.message() {
            if has(&request, r#""stream": true"#) {
                wire.send(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n",
                );
                for piece in events(has(&request, "include_usage")).as_bytes().chunks(size) {
                    wire.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
                }
                wire.send("0\r\n\r\n");
            } else {
                let body = if has(&request, "return_meta_info") { WITH_META } else { JSON };
                let length = body.len();
                wire.send(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"));
                for piece in body.as_bytes().chunks(size) {
                    wire.send(piece);
                }
            }
            saw.lock().unwrap().send(request).unwrap();
        }
    });
    (address, seen)
}

#[test]
fn usage_is_asked_for_and_taken_out_again() {
    for size in [1, 7, 64, 1 << 20] {
        let (address, seen) = server(size);
        let (proxy, closed) = Proxy::watched(address, amending());
        let mut client = proxy.client();
        for n in 0..4 {
            client.send(post(CHAT, "Accept-Encoding: gzip\r\n", STREAM));
            let got = client.message().unwrap();
            assert_eq!(String::from_utf8(got.body).unwrap(), events(false), "{size} {n}");
            let asked = seen.recv_timeout(LIMIT).unwrap();
            // the first teaches what the server does unasked
            assert_eq!(asked.body, if n == 0 { STREAM } else { ASKED }.as_bytes());
            assert_eq!(asked.all("accept-encoding"), [b"identity"]);
            let ledger = closed.recv_timeout(LIMIT).unwrap();
            let bytes = (ledger.request_bytes, ledger.response_bytes);
            assert_eq!(bytes, (STREAM.len() as u64, events(false).len() as u64));
            assert_eq!((ledger.status, ledger.outcome), (200, Outcome::Ok));
        }
        // both at once, and something else behind them
        client.send(
            [post(CHAT, "", STREAM), post("/v1/completions", "", STREAM), b"GET /x HTTP/1.1\r\nHost: m\r\n\r\n".to_vec()]
                .concat(),
        );
        let bodies = [0, 1, 2].map(|_| String::from_utf8(client.message().unwrap().body).unwrap());
        assert_eq!(bodies, [events(false), events(false), JSON.to_owned()]);
        drop(client);
        let counters = proxy.stop();
        assert_eq!((counters.get(Counter::Amended), counters.get(Counter::AmendFailed)), (4, 0));
    }
}

/// An observer that reads bodies.
struct Reading(Mutex<Sender<Ledger>>);

impl Observer for Reading {
    fn request(&self, method: &Method, path: &str, headers: &HeaderMap, _: &mut Ledger) -> Option<ExchangeReader> {
        let protocols = Protocols::default();
        protocols.open(&protocols.detect(method, path), headers)
    }
    fn model(&self, _: &str, _: &mut Ledger) {}
    fn response(&self, _: &HeaderMap, _: bool, _: &mut Ledger) {}
}

impl RecordLedger for Reading {
    fn record(&self, ledger: Box<Ledger>) {
        drop(self.0.lock().unwrap().send(*ledger)); // the test may be over
    }
}

#[test]
fn what_is_taken_out_has_been_read() {
    let (address, _seen) = server(30);
    let (sender, closed) = mpsc::channel();
    let proxy = Proxy::start(address, amending(), Arc::new(Reading(Mutex::new(sender))), Arc::default());
    let mut client = proxy.client();
    for (input, output) in [(Basis::Estimated, Basis::Counted), (Basis::Reported, Basis::Reported)] {
        client.send(post(CHAT, "", STREAM));
        assert_eq!(String::from_utf8(client.message().unwrap().body).unwrap(), events(false));
        let work = closed.recv_timeout(LIMIT).unwrap().work;
        assert_eq!(work.get(Unit::InputToken).map(|(_, basis)| basis), Some(input));
        assert_eq!(work.get(Unit::OutputToken), Some((5, output)));
    }
    drop(client);
    proxy.stop();
}

#[test]
fn meta_info_is_asked_for_and_taken_out_again() {
    for size in [1, 50, 1 << 20] {
        let (address, seen) = server(size);
        let (proxy, closed) = Proxy::watched(address, amending());
        let mut client = proxy.client();
        for chunked in [false, true, false] {
            let body = r#"{"model":"m"}"#;
            if chunked {
                let head = "POST /v1/completions HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\n";
                client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n4\r\n{}\r\n", &body[..4]));
                client.send(format!("{:x}\r\n{}\r\n0\r\n\r\n", body.len() - 4, &body[4..]));
            } else {
                client.send(post("/v1/completions", "", body));
            }
            let got = client.message().unwrap();
            assert_eq!(String::from_utf8(got.body.clone()).unwrap(), JSON);
            assert_eq!(got.all("content-length"), [JSON.len().to_string().as_bytes()]);
            let asked = seen.recv_timeout(LIMIT).unwrap();
            assert_eq!(String::from_utf8(asked.body.clone()).unwrap(), r#"{"return_meta_info":true,"model":"m"}"#);
            assert_eq!(asked.all("transfer-encoding").len(), usize::from(chunked));
            let ledger = closed.recv_timeout(LIMIT).unwrap();
            assert_eq!((ledger.request_bytes, ledger.response_bytes, ledger.outcome), (13, JSON.len() as u64, Outcome::Ok));
        }
        drop(client);
        let counters = proxy.stop();
        assert_eq!((counters.get(Counter::Amended), counters.get(Counter::AmendFailed)), (3, 0));
    }
}

#[test]
fn over_http_2_too() {
    let (address, seen) = server(11);
    let config = Config { upstream_protocol: UpstreamProtocol::H1, ..amending() };
    let (proxy, closed) = Proxy::watched(address, config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(proxy.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        let driver = TaskTracker::new().spawn(connection);
        for (n, body, expected) in [(0, STREAM, events(false)), (1, STREAM, events(false)), (2, "{\"a\":1}", JSON.to_owned())] {
            let request = Request::post(format!("http://m{CHAT}")).header("content-type", "application/json");
            let response = sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
            let length = response.headers().get("content-length").cloned();
            assert_eq!(length.is_some(), n == 2);
            assert!(length.is_none_or(|length| length.to_str().unwrap() == expected.len().to_string()));
            let got = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(String::from_utf8(got.to_vec()).unwrap(), expected);
        }
        drop(sender);
        driver.await.unwrap().unwrap();
    });
    for (body, length) in
        [(STREAM, events(false).len()), (ASKED, events(false).len()), (r#"{"return_meta_info":true,"a":1}"#, JSON.len())]
    {
        assert_eq!(String::from_utf8(seen.recv_timeout(LIMIT).unwrap().body).unwrap(), body);
        let ledger = closed.recv_timeout(LIMIT).unwrap();
        assert_eq!((ledger.response_bytes, ledger.outcome), (length as u64, Outcome::Ok));
    }
    proxy.stop();
}

#[test]
fn nothing_is_changed_by_default() {
    let (address, seen) = server(9);
    let (proxy, _closed) = Proxy::watched(address, Config::default());
    let mut client = proxy.client();
    for (body, expected) in [(STREAM, events(false)), ("{}", JSON.to_owned())] {
        client.send(post("/v1/completions", "Accept-Encoding: gzip\r\n", body));
        assert_eq!(String::from_utf8(client.message().unwrap().body).unwrap(), expected);
        let asked = seen.recv_timeout(LIMIT).unwrap();
        assert_eq!((asked.body.as_slice(), asked.all("accept-encoding")), (body.as_bytes(), vec![&b"gzip"[..]]));
    }
    drop(client);
    assert_eq!(proxy.stop().get(Counter::Amended), 0);
}
