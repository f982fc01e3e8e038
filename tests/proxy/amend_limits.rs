//! The limits of `proxy.amend`: requests that are not amended, responses that cannot be cut, and streams that break off.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use lapwing_ledger::Outcome;
use lapwing_metrics::Counter;

use crate::amend::{CHAT, STREAM, WITH_META, amending, events, post};
use crate::wire::{LIMIT, Message, Wire};
use crate::{Proxy, upstream};

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
