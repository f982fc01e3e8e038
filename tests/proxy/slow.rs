//! Clients that read late, upstreams that answer late, and responses that break off: to whom the time is attributed, and
//! that the bytes sent before the break arrive.

use std::sync::Mutex;
use std::sync::mpsc;
use std::thread::sleep;
use std::time::Duration;

use lapwing_ledger::merge;
use lapwing_ledger::{ObservedEvent, Outcome, Stage};
use lapwing_proxy::Config;
use lapwing_settings::{Period, Switch};

use crate::wire::LIMIT;
use crate::{GET, Proxy, answering, h2, over_h1, upstream};

// === slow clients and silent upstreams ===

#[test]
fn many_waits_for_a_client_leave_room_for_the_stages() {
    let (go_on, piece) = mpsc::channel();
    let piece = Mutex::new(piece);
    let address = upstream(move |mut wire| {
        wire.message();
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 130\r\n\r\n");
        while piece.lock().unwrap().recv().is_ok() {
            wire.send("0123456789");
        }
    });
    let (proxy, closed) = Proxy::watched(address, over_h1());
    let (mut client, mut answer) = (proxy.h2_client(10), h2::Answer::default());
    client.ask();
    go_on.send(()).unwrap(); // fills the window
    for n in 1..12 {
        client.read(&mut answer, |answer| answer.body.len() == n * 10);
        go_on.send(()).unwrap();
        sleep(Duration::from_millis(5)); // the piece comes while the window is shut
        client.widen(if n < 11 { 10 } else { 100 });
    }
    client.read(&mut answer, |answer| answer.body.len() == 120);
    go_on.send(()).unwrap();
    client.read(&mut answer, |answer| answer.ended);
    let ledger = closed.recv_timeout(LIMIT).unwrap();
    let count = |event| ledger.spans.iter().filter(|span| span.event == event).count();
    assert_eq!(
        [ObservedEvent::Request, ObservedEvent::Admit, ObservedEvent::Response, ObservedEvent::Backpressure].map(count),
        [1, 1, 1, 8]
    );
    assert_eq!(ledger.overflowed, 0);
}

#[test]
fn a_stream_of_any_format_has_a_first_byte() {
    const WAIT_NS: u64 = 40_000_000;
    let wait = || sleep(Duration::from_nanos(WAIT_NS));
    for (kind, pieces) in
        [("text/event-stream", &[": no data\n\n"][..]), ("audio/wav", &["RIFF", "data"]), ("text/plain", &["ok"])]
    {
        let address = upstream(move |mut wire| {
            wire.message();
            wire.send(format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"));
            for piece in pieces {
                wait();
                wire.send(format!("{:x}\r\n{piece}\r\n", piece.len()));
            }
            wait();
            wire.send("0\r\n\r\n");
        });
        let (proxy, closed) = Proxy::watched(address, over_h1());
        assert_eq!(proxy.client().send(GET).message().unwrap().body, pieces.concat().as_bytes());
        let ledger = closed.recv_timeout(LIMIT).unwrap();
        let window = ledger.window.unwrap();
        if kind == "text/plain" {
            assert_eq!(ledger.first_byte_ns, 0, "one piece of no declared length is no stream");
            continue;
        }
        assert!(
            window.head_ns < ledger.first_byte_ns && ledger.first_byte_ns + WAIT_NS * 3 / 4 < window.end_ns,
            "{kind}: {ledger:?}"
        );
    }
}

#[test]
fn an_upstream_that_is_still_being_asked_is_not_silent() {
    let address = upstream(|mut wire| {
        wire.line().unwrap();
        wire.fields();
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
        wire.exactly(10);
        wire.send("ok");
    });
    let (proxy, closed) = Proxy::watched(address, Config { idle_timeout: Switch::On(Period::from_secs(2)), ..Config::default() });
    let mut client = proxy.client();
    client.send("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 10\r\n\r\n");
    for _ in 0..10 {
        // longer than the timeout in all; each so far below it that a busy machine does not reach it
        sleep(Duration::from_millis(250));
        client.send("x");
    }
    assert_eq!(client.message().unwrap().body, b"ok");
    assert_eq!(closed.recv_timeout(LIMIT).unwrap().outcome, Outcome::Ok);
}

#[test]
fn a_slow_readers_time_is_egress_to_its_last_byte() {
    let (proxy, closed) = Proxy::watched(answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n01234"), over_h1());
    for (window, leaves) in [(1, false), (1, true), (0, false), (9, false)] {
        let (mut client, mut answer) = (proxy.h2_client(window), h2::Answer::default());
        client.ask().read(&mut answer, |answer| answer.head && answer.body.len() >= window.min(5) as usize);
        client.ping(&mut answer);
        let held = Duration::from_millis(if window == 9 { 0 } else { 50 });
        sleep(held);
        let expected = if leaves {
            client.reset();
            Outcome::Cancelled
        } else {
            client.widen(10);
            client.read(&mut answer, |answer| answer.ended);
            Outcome::Ok
        };
        let ledger = closed.recv_timeout(LIMIT).unwrap();
        assert_eq!(ledger.outcome, expected, "{window} {leaves}");
        let egress = merge(ledger, Vec::new()).stage(Stage::Egress).unwrap().0;
        assert!(u128::from(egress) >= held.as_nanos(), "{egress} ns of a window of {window} bytes");
    }
}

#[test]
fn a_large_response_to_a_slow_reader_ends_with_its_last_byte() {
    const LENGTH: usize = 200_000;
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n{}", "x".repeat(LENGTH));
    let (proxy, closed) = Proxy::watched(answering(answer.leak()), over_h1());
    let (mut client, mut answer) = (proxy.h2_client(65_535), h2::Answer::default());
    client.ask().read(&mut answer, |answer| answer.body.len() == 65_535);
    sleep(Duration::from_millis(50));
    client.widen(1 << 20);
    client.read(&mut answer, |answer| answer.ended);
    let ledger = closed.recv_timeout(LIMIT).unwrap();
    assert_eq!((answer.body.len(), ledger.outcome, ledger.response_bytes), (LENGTH, Outcome::Ok, LENGTH as u64));
    assert!(merge(ledger, Vec::new()).stage(Stage::Egress).unwrap().0 >= 50_000_000);
}

// === broken responses ===

#[test]
fn what_came_before_a_break_arrives() {
    for (framing, partial) in
        [("Content-Length: 100", "abc"), ("Transfer-Encoding: chunked", "3\r\nabc\r\n"), ("Content-Length: 9", "")]
    {
        let address = upstream(move |mut wire| {
            wire.message();
            wire.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{partial}"));
        });
        let (proxy, closed) = Proxy::watched(address, over_h1());
        for _ in 0..20 {
            let mut client = proxy.client();
            client.send(GET);
            assert_eq!(client.line().unwrap(), b"HTTP/1.1 200 OK");
            client.fields();
            assert_eq!(client.exactly(partial.len()), partial.as_bytes());
            assert!(!client.more());
            let ledger = closed.recv_timeout(LIMIT).unwrap();
            assert_eq!((ledger.status, ledger.outcome), (200, Outcome::Broken));
            for window in [1, 100] {
                let (mut client, mut answer) = (proxy.h2_client(window), h2::Answer::default());
                client.ask();
                if window == 1 && !partial.is_empty() {
                    client.read(&mut answer, |answer| answer.body.len() == 1);
                    client.widen(10);
                }
                client.read(&mut answer, |answer| answer.reset);
                let body = if partial.is_empty() { "" } else { "abc" };
                assert_eq!(answer, h2::Answer { head: true, body: body.into(), reset: true, ended: false });
                assert_eq!(closed.recv_timeout(LIMIT).unwrap().outcome, Outcome::Broken);
            }
        }
    }
}
