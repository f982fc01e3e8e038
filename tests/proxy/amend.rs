//! Requests that are changed on their way (`proxy.amend`), and responses in which the client sees nothing of it.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lapwing::ledger::Outcome;
use lapwing::metrics::Counter;
use lapwing::protocol::amend::Options;
use lapwing::proxy::{Config, UpstreamProtocol};
use tokio_util::task::TaskTracker;

use crate::wire::{LIMIT, Message, Wire};
use crate::{Proxy, upstream};

const CHAT: &str = "/proxy/v1/chat/completions";
const STREAM: &str = r#"{"model": "m", "stream": true, "messages": [{"content": "\"stream\":false"}]}"#;
const ASKED: &str =
    r#"{"stream_options":{"include_usage":true},"model": "m", "stream": true, "messages": [{"content": "\"stream\":false"}]}"#;

fn amending() -> Config {
    Config { amend: Options { include_usage: true, return_meta_info: true }, ..Config::default() }
}

fn post(path: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\n{fields}");
    format!("{head}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// The stream of a server that keeps to `OpenAI`'s word.
fn events(asked: bool) -> String {
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

const JSON: &str = r#"{"choices":[{"index":0,"text":"a"},{"index":1,"text":"b"}],"usage":{}}"#;
const WITH_META: &str =
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

/// An upstream that answers each request with the next of `answers`.
fn telling(answers: Vec<Vec<u8>>) -> (SocketAddr, Receiver<Message>) {
    let (saw, seen) = mpsc::channel();
    let state = Mutex::new((saw, answers.into_iter()));
    let address = upstream(move |mut wire: Wire| {
        while let Some(request) = wire.message() {
            let mut state = state.lock().unwrap();
            let answer = state.1.next().unwrap();
            state.0.send(request).unwrap();
            wire.send(answer);
        }
    });
    (address, seen)
}

fn answer(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

const AS_JSON: &str = "Content-Type: application/json\r\n";
const AS_EVENTS: &str = "Content-Type: text/event-stream\r\n";

#[test]
fn what_is_not_to_be_changed_passes_byte_for_byte() {
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    let exactly_more = format!("{large}{}", " ".repeat(1 << 20));
    let small = "{\"a\":1}";
    let requests: Vec<(String, Vec<u8>)> = vec![
        ("/v1/embeddings".into(), post("/v1/embeddings", "", small)),
        ("large".into(), post("/v1/completions", "", &large)),
        ("larger".into(), post("/v1/completions", "", &exactly_more)),
        ("encoded".into(), post("/v1/completions", "Content-Encoding: gzip\r\n", small)),
        ("expect".into(), post("/v1/completions", "Expect: x\r\n", small)),
        ("digest".into(), post("/v1/completions", "Content-Digest: sha-256=:x:\r\n", small)),
        ("asked".into(), post("/v1/completions", "Accept-Encoding: gzip\r\n", "{\"return_meta_info\":true}")),
        ("broken".into(), post("/v1/completions", "Accept-Encoding: gzip\r\n", "{\"a\":")),
        ("empty".into(), post("/v1/completions", "", "")),
        ("grpc".into(), String::from_utf8(post("/v1/completions", "", small)).unwrap().replace("application/json", "application/grpc").into()),
        ("put".into(), String::from_utf8(post("/v1/completions", "", small)).unwrap().replacen("POST", "PUT", 1).into()),
        ("trailers".into(), format!("POST /v1/completions HTTP/1.1\r\nHost: m\r\n{AS_JSON}Trailer: x-a\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{small}\r\n0\r\nx-a: 1\r\n\r\n").into()),
    ];
    let mut answers = vec![answer("200 OK", AS_JSON, WITH_META.as_bytes()); requests.len()];
    // an answer to a changed request that is an error, or of another type
    answers.push(answer("400 Bad Request", AS_JSON, WITH_META.as_bytes()));
    answers.push(answer("200 OK", "Content-Type: text/plain\r\n", WITH_META.as_bytes()));
    let (address, seen) = telling(answers);
    let (proxy, _closed) = Proxy::watched(address, amending());
    let mut client = proxy.client();
    for (name, request) in &requests {
        // what a raw reader makes of it
        let (mut said, mut reader) = pair();
        let writing = request.clone();
        let writer = std::thread::spawn(move || {
            said.send(writing);
        });
        let expected = reader.message().unwrap();
        writer.join().unwrap();
        client.send(request);
        assert_eq!(client.message().unwrap().body, WITH_META.as_bytes(), "{name}");
        let got = seen.recv_timeout(LIMIT).unwrap();
        assert!(got.body == expected.body, "{name}");
        assert_eq!((&got.start, got.sorted_trailers()), (&expected.start, expected.sorted_trailers()), "{name}");
        let mut fields = [got.fields.clone(), expected.fields.clone()];
        fields.iter_mut().for_each(|fields| fields.sort());
        assert_eq!(fields[0], fields[1], "{name}");
    }
    for _ in 0..2 {
        client.send(post("/v1/completions", "", small));
        assert_eq!(client.message().unwrap().body, WITH_META.as_bytes());
    }
    drop(client);
    let counters = proxy.stop();
    assert_eq!((counters.get(Counter::Amended), counters.get(Counter::AmendFailed)), (2, 0));
}

/// Two ends of one wire.
fn pair() -> (Wire, Wire) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let one = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Wire::new(one), Wire::new(listener.accept().unwrap().0))
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

#[test]
fn what_cannot_be_cut_passes_and_is_counted() {
    let large = WITH_META.replace("\"a\"", &format!("\"{}\"", "x".repeat(4 << 20))).into_bytes();
    let chunked = |body: &[u8]| {
        let head = format!("HTTP/1.1 200 OK\r\n{AS_JSON}Transfer-Encoding: chunked\r\n\r\n");
        let mut bytes = head.into_bytes();
        for piece in body.chunks(70_000) {
            bytes.extend_from_slice(&[format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes
    };
    let cases: Vec<(&str, Vec<u8>, Vec<u8>)> = vec![
        ("large", answer("200 OK", AS_JSON, &large), large.clone()),
        ("large in chunks", chunked(&large), large.clone()),
        ("broken", answer("200 OK", AS_JSON, b"{\"choices\":["), b"{\"choices\":[".to_vec()),
        ("encoded", answer("200 OK", &format!("{AS_JSON}Content-Encoding: gzip\r\n"), b"x"), b"x".to_vec()),
        ("digest", answer("200 OK", &format!("{AS_JSON}Digest: x\r\n"), WITH_META.as_bytes()), WITH_META.into()),
    ];
    let n = cases.len() as u64;
    let (address, _seen) = telling(cases.iter().map(|(_, answer, _)| answer.clone()).collect());
    let (proxy, closed) = Proxy::watched(address, amending());
    let mut client = proxy.client();
    for (name, _, expected) in cases {
        client.send(post("/v1/completions", "", "{\"a\":1}"));
        assert!(client.message().unwrap().body == expected, "{name}");
        let ledger = closed.recv_timeout(LIMIT).unwrap();
        assert_eq!((ledger.response_bytes, ledger.outcome), (expected.len() as u64, Outcome::Ok), "{name}");
    }
    drop(client);
    let counters = proxy.stop();
    assert_eq!((counters.get(Counter::Amended), counters.get(Counter::AmendFailed)), (n, n));
}

#[test]
fn streams_that_cannot_be_cut_pass_from_there_on() {
    let broken = "data: {\"choices\":[1],\"usage\":null}\n\ndata: oops\n\ndata: {\"choices\":[1],\"usage\":null}\n\n";
    let expected = "data: {\"choices\":[1]}\n\ndata: oops\n\ndata: {\"choices\":[1],\"usage\":null}\n\n";
    let answers = vec![
        answer("200 OK", AS_EVENTS, events(false).as_bytes()),
        answer("200 OK", AS_EVENTS, broken.as_bytes()),
        answer("200 OK", &format!("{AS_EVENTS}Content-Encoding: br\r\n"), b"x"),
    ];
    let (address, _seen) = telling(answers);
    let (proxy, _closed) = Proxy::watched(address, amending());
    let mut client = proxy.client();
    for expected in [&events(false), expected, "x"] {
        client.send(post("/v1/completions", "", STREAM));
        assert_eq!(String::from_utf8(client.message().unwrap().body).unwrap(), expected);
    }
    drop(client);
    let counters = proxy.stop();
    assert_eq!((counters.get(Counter::Amended), counters.get(Counter::AmendFailed)), (2, 2));
}

/// An upstream that first teaches, and then streams the pieces that come out of the receiver.
fn gated() -> (SocketAddr, Sender<&'static str>) {
    let (go_on, piece) = mpsc::channel::<&'static str>();
    let state = Arc::new(Mutex::new((piece, true)));
    let address = upstream(move |mut wire: Wire| {
        while wire.message().is_some() {
            let mut state = state.lock().unwrap();
            if std::mem::take(&mut state.1) {
                wire.send(answer("200 OK", AS_EVENTS, events(false).as_bytes()));
                continue;
            }
            wire.send(format!("HTTP/1.1 200 OK\r\n{AS_EVENTS}Transfer-Encoding: chunked\r\n\r\n"));
            while let Ok(piece) = state.0.recv() {
                if piece.is_empty() {
                    return;
                }
                wire.send(format!("{:x}\r\n{piece}\r\n", piece.len()));
            }
        }
    });
    (address, go_on)
}

#[test]
fn an_event_is_not_kept_for_the_next_and_a_break_brings_what_was_held() {
    let (address, go_on) = gated();
    let (proxy, closed) = Proxy::watched(address, amending());
    let mut client = proxy.client();
    client.send(post(CHAT, "", STREAM)).message().unwrap();
    assert_eq!(closed.recv_timeout(LIMIT).unwrap().outcome, Outcome::Ok);
    client.send(post(CHAT, "", STREAM));
    go_on.send(": ping\n\n").unwrap();
    assert_eq!(client.line().unwrap(), b"HTTP/1.1 200 OK");
    client.fields();
    let mut next = || {
        let size = usize::from_str_radix(std::str::from_utf8(&client.line().unwrap()).unwrap(), 16).unwrap();
        let piece = client.exactly(size + 2);
        String::from_utf8(piece[..size].to_vec()).unwrap()
    };
    assert_eq!(next(), ": ping\n\n");
    go_on.send("data: {\"choices\":[1],\"usage\":null}\n\ndata: {\"choices\"").unwrap();
    assert_eq!(next(), "data: {\"choices\":[1]}\n\n");
    go_on.send(":[2],\"usage\":null}\n\n").unwrap();
    assert_eq!(next(), "data: {\"choices\":[2]}\n\n");
    go_on.send("data: {\"choices\":[3").unwrap();
    go_on.send("").unwrap();
    assert_eq!(next(), "data: {\"choices\":[3");
    assert!(!client.more());
    let ledger = closed.recv_timeout(LIMIT).unwrap();
    assert_eq!((ledger.status, ledger.outcome, ledger.response_bytes), (200, Outcome::Broken, 8 + 23 + 23 + 19));
    proxy.stop();
}
