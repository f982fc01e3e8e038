//! Conversations with an HTTP store that is played.

use proptest::prelude::*;

use crate::cache::http::HttpConversation;
use crate::cache::kept_http::KeptAnswers;
use crate::cache::turn::{Outgoing, Turn};
use crate::cache_config::DownstreamCache;
use crate::call::shown::at;

const ON: &str = r#"{"mode": "on", "paths": ["/features/*", "/get-online-features"], "ttl": "2s"}"#;
const SECOND: u64 = 1_000_000_000;

fn kept(config: &str) -> KeptAnswers {
    let config: DownstreamCache = serde_json::from_str(config).unwrap();
    KeptAnswers::new(&config, [1; 32])
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: store\r\n{fields}\r\n")
}

fn feast(body: &str, fields: &str) -> String {
    format!("POST /get-online-features HTTP/1.1\r\nHost: store\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
}

fn answer(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{fields}content-length: {}\r\n\r\n{body}", body.len())
}

struct Play {
    kept: KeptAnswers,
    connections: [HttpConversation; 2],
    now: u64,
}

impl Play {
    fn new(config: &str) -> Self {
        Self { kept: kept(config), connections: Default::default(), now: SECOND }
    }

    /// What goes to the store, and what is answered from memory.
    fn send(&mut self, on: usize, bytes: &str, step: usize) -> (String, String) {
        let mut out = Outgoing::default();
        for piece in bytes.as_bytes().chunks(step) {
            self.connections[on].client(piece, Turn { now: at(self.now), room: usize::MAX }, &mut self.kept, &mut out);
        }
        (String::from_utf8(out.to_store).unwrap(), String::from_utf8(out.answers).unwrap())
    }

    /// Asks and, if the store is asked, answers so. What was answered from memory.
    fn ask(&mut self, on: usize, asked: &str, answered: &str) -> Option<String> {
        let (passed, from_memory) = self.send(on, asked, 7);
        if passed.is_empty() {
            return Some(from_memory);
        }
        assert_eq!((passed.as_str(), from_memory.as_str()), (asked, ""));
        for piece in answered.as_bytes().chunks(7) {
            self.connections[on].server(piece, at(self.now + 100), &mut self.kept);
        }
        None
    }

    fn refused(&self, why: &str) -> u64 {
        self.kept.figures.refused.get(why).copied().unwrap_or(0)
    }
}

#[test]
fn a_listed_get_is_answered_with_its_age() {
    let mut play = Play::new(ON);
    let (asked, answered) = (get("/features/7?x=1", ""), answer("server-timing: a;dur=1\r\nx-own: 1\r\n", "[1]"));
    assert_eq!(play.ask(0, &asked, &answered), None);
    play.now += SECOND;
    let again = play.ask(1, &asked, "").unwrap();
    assert!(again.starts_with("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-own: 1\r\nage: 1\r\n"), "{again}");
    assert!(again.ends_with("content-length: 3\r\n\r\n[1]") && !again.contains("server-timing"), "{again}");
    for other in [get("/features/8?x=1", ""), get("/features/7?x=2", ""), get("/features/7?x=1", "Authorization: a\r\n")] {
        assert_eq!(play.ask(1, &other, &answered), None, "{other}");
    }
    assert_eq!(play.ask(1, &get("/other", ""), &answered), None);
    assert_eq!(play.refused("unlisted"), 1);
    play.now += SECOND;
    assert_eq!(play.ask(0, &asked, &answered), None, "it is too old");
    assert_eq!((play.kept.figures.by_rule()[0].hits, play.kept.figures.by_rule()[0].misses), (1, 5));
}

#[test]
fn feasts_post_is_known_by_its_body() {
    let mut play = Play::new(ON);
    let (one, other) = (feast(r#"{"entities": {"a": [1]}}"#, ""), feast(r#"{"entities": {"a": [2]}}"#, ""));
    assert_eq!(play.ask(0, &one, &answer("", "{}")), None);
    assert_eq!(play.ask(0, &other, &answer("", "{\"b\": 1}")), None);
    assert!(play.ask(0, &one, "").unwrap().ends_with("\r\n\r\n{}"));
    assert!(
        play.ask(1, &feast(r#"{"entities": {"a": [2]}}"#, "traceparent: 00-1-1-00\r\n"), "").unwrap().ends_with("{\"b\": 1}")
    );
    // written through the same listener
    let push = "POST /push HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}";
    let (passed, _) = play.send(1, push, 5);
    assert_eq!(passed, push);
    assert_eq!(play.ask(0, &one, &answer("", "{}")), None);
    assert_eq!(play.ask(0, &one, &answer("", "{}")), None, "it is under way");
    play.connections[1].server(answer("", "").as_bytes(), at(play.now), &mut play.kept);
    assert_eq!(play.ask(0, &one, &answer("", "{}")), None);
    assert!(play.ask(0, &one, "").is_some());
    assert_eq!((play.kept.figures.forgot_all, play.refused("changed")), (1, 2));
}

#[test]
fn what_must_not_be_kept_is_asked_for_again() {
    let long = "x".repeat(70_000);
    for (asked, answered, why) in [
        (get("/features/1", ""), answer("cache-control: no-store\r\n", ""), "no_store"),
        (get("/features/1", ""), answer("set-cookie: a=1\r\n", ""), "set_cookie"),
        (get("/features/1", ""), answer("vary: x-own\r\n", ""), "vary_unkeyed"),
        (get("/features/1", ""), answer("", &long), "too_large"),
        (get("/features/1", ""), "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n".to_owned(), "status"),
        (get("/features/1", ""), "HTTP/1.1 304 Same\r\n\r\n".to_owned(), "status"),
        (get("/features/1", "Cache-Control: no-store\r\n"), answer("", ""), "request_no_store"),
        (get("/features/1", "If-None-Match: a\r\n"), answer("", ""), "conditional"),
        (get("/features/1", "Connection: close\r\n"), answer("", ""), "form"),
        (get("/features/1", "").replace("HTTP/1.1", "HTTP/1.0"), answer("", ""), "form"),
        (get("/features/1", "Expect: 100-continue\r\n"), answer("", ""), "form"),
    ] {
        let mut play = Play::new(ON);
        assert_eq!((play.ask(0, &asked, &answered), play.ask(0, &asked, &answered)), (None, None), "{asked}");
        assert_eq!(play.refused(why), 2, "{why}: {:?}", play.kept.figures.refused);
    }
    let mut play = Play::new(ON);
    let chunked =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    assert_eq!(play.ask(0, &get("/features/1", ""), chunked), None);
    assert!(play.ask(0, &get("/features/1", ""), "").unwrap().ends_with("content-length: 3\r\n\r\nabc"));
}

#[test]
fn what_is_behind_too_long_or_no_http_passes() {
    let mut play = Play::new(ON);
    let two = [get("/features/1", ""), get("/features/2", "")].concat();
    assert_eq!(play.send(0, &two, 11), (two, String::new()));
    assert_eq!(play.refused("behind"), 1);
    play.connections[0].server([answer("", "a"), answer("", "b")].concat().as_bytes(), at(play.now), &mut play.kept);
    assert!(play.ask(1, &get("/features/1", ""), "").unwrap().ends_with('a'), "the second was not looked for");
    assert_eq!(play.ask(1, &get("/features/2", ""), &answer("", "b")), None);
    let long = feast(&"x".repeat(300_000), "");
    assert_eq!(play.ask(1, &long, &answer("", "c")), None);
    assert_eq!(play.refused("too_long"), 1);
    for hostile in ["*1\r\n$4\r\nPING\r\n\r\n", "GET /\r\n\r\nxyz"] {
        let mut play = Play::new(ON);
        play.ask(0, &get("/features/1", ""), &answer("", "a"));
        assert_eq!(play.send(1, hostile, 3).0, hostile);
        assert_eq!(play.ask(0, &get("/features/1", ""), &answer("", "a")), None, "it may have written");
        assert_eq!(play.kept.figures.untouched, 1);
    }
}

#[test]
fn in_observe_all_passes_and_what_differs_is_counted() {
    let mut play = Play::new(&ON.replace("\"on\"", "\"observe\""));
    let asked = get("/features/1", "");
    for body in ["a", "a", "b"] {
        assert_eq!(play.ask(0, &asked, &answer("", body)), None);
    }
    assert_eq!((play.kept.figures.by_rule()[0].hits, play.kept.figures.differed), (2, 1));
}

proptest! {
    /// Whatever comes, each byte passes or is a whole request that is answered.
    #[test]
    fn any_bytes_pass_alike_however_they_are_cut(
        asked in "(GET|POST|PUT) /(features/)?[a-z]{0,3} HTTP/1.1\r\n(content-length: [0-9]{1,2}\r\n|transfer-encoding: chunked\r\n)?\r\n[0-9a-f;\r\n ]{0,40}",
        answered in "(HTTP/1.1 [1-5][0-9]{2} x\r\n(content-length: [0-9]\r\n|transfer-encoding: chunked\r\n)?\r\n)?[0-9a-f;\r\n ]{0,40}",
        step in 1..30_usize,
    ) {
        let mut play = Play::new(ON);
        let (mut passed, from_memory) = play.send(0, &asked, step);
        play.connections[0].server(answered.as_bytes(), at(1), &mut play.kept);
        let mut out = Outgoing::default();
        play.connections[0].client_ended(&mut out);
        passed.push_str(std::str::from_utf8(&out.to_store).unwrap());
        prop_assert_eq!((passed, from_memory), (asked, String::new()));
    }
}
