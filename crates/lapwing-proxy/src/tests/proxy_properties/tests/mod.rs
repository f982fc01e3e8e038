//! Replays the corpus of the fuzz target `proxy`, and shows on cases with known ends that the properties see what they should.

mod held;

use std::cell::Cell;
use std::fs;
use std::panic;
use std::path::Path;

use super::case::{Conversation, Conversations, run};
use super::laws::{check_messages, complete_messages};
use super::messages::{Expected, Unread, read_message, streams};
use super::script::{Script, frame};
use super::{fuzz, player};

thread_local! {
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Counts this thread's panics from now on. A runtime catches those of its tasks, so nothing else would tell.
fn count_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.set(PANICS.get() + 1);
        usual(info);
    }));
}

/// Bits of a script's second byte.
const TLS_LISTENER: u8 = 1;
const TLS_UPSTREAM: u8 = 2;
const BOTH: u8 = TLS_LISTENER | TLS_UPSTREAM;
const TWO_UPSTREAMS: u8 = 4;
const UNNAMED_CLIENT: u8 = 8;
const HTTP1_UPSTREAM: u8 = 1 << 4;
const UNNAMED_UPSTREAM: u8 = 2 << 4;
const HTTP2_UPSTREAM: u8 = 3 << 4;
const RUDE: u8 = 64;

const OTHER_ENDS: [u8; 11] = [
    BOTH,
    TWO_UPSTREAMS,
    TLS_LISTENER,
    BOTH | TWO_UPSTREAMS,
    TLS_UPSTREAM,
    BOTH | RUDE,
    TLS_LISTENER | UNNAMED_CLIENT,
    TLS_UPSTREAM | HTTP1_UPSTREAM,
    TLS_UPSTREAM | UNNAMED_UPSTREAM,
    BOTH | TWO_UPSTREAMS | RUDE,
    TLS_UPSTREAM | HTTP2_UPSTREAM,
];

#[test]
fn the_corpus_holds() {
    count_panics();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/proxy");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 40, "{} cases", paths.len());
    for (at, path) in paths.iter().enumerate() {
        let bytes = fs::read(path).unwrap();
        // as it is, and with one of the other ends
        let other = OTHER_ENDS[at % OTHER_ENDS.len()];
        for ends in [bytes[1], other] {
            let bytes = [&[bytes[0], ends], &bytes[2..]].concat();
            fuzz(&bytes, None).unwrap_or_else(|broken| panic!("{}, ends {ends}: {broken}", path.display()));
            assert_eq!(PANICS.get(), 0, "{}, ends {ends}", path.display());
        }
    }
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: m\r\n\r\n";
const POST: &[u8] = b"POST / HTTP/1.1\r\nhost: m\r\ncontent-length: 3\r\n\r\nabc";
const CLIENT: u8 = 0;
const UPSTREAM: u8 = 1;

/// A step that sends bytes in this many pieces.
fn send(side: u8, bytes: &[u8], pieces: u8) -> Vec<u8> {
    [&[side | (pieces - 1) << 4, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn case(options: u8, steps: &[Vec<u8>]) -> Script {
    Script::read(&[&[options, 0][..], &steps.concat()].concat())
}

const ANSWER: [u8; 2] = [15, 1];

#[test]
fn exchanges_are_carried_and_seen() {
    let script = case(128, &[send(CLIENT, POST, 8), ANSWER.to_vec(), send(CLIENT, GET, 1), ANSWER.to_vec()]);
    let seen = run(&script, false, None).unwrap();
    assert_eq!(seen.clients[0].received, player::PLAIN_ANSWER.repeat(2), "in: {seen:?}");
    let (requests, responses) = complete_messages(&seen).unwrap();
    assert_eq!(format!("{requests:?}"), r#"[GET "", POST "abc"]"#);
    assert_eq!(format!("{responses:?}"), r#"[200 "ok", 200 "ok"]"#);
    let split = run(&script, true, None).unwrap();
    assert_eq!(complete_messages(&split), Some((requests, responses)));
}

fn with_ends(script: &Script, ends: u8) -> Script {
    Script { options: script.options.reached(ends), ..script.clone() }
}

#[test]
fn exchanges_are_the_same_over_tls_and_with_two_upstreams() {
    // GET http://m/
    let request = frame(1, 5, 1, b"\x82\x86\x84\x41\x01m");
    let h1 = case(128, &[send(CLIENT, POST, 8), ANSWER.to_vec(), send(CLIENT, GET, 1), ANSWER.to_vec()]);
    let h2 = case(1, &[send(CLIENT, &request, 3), ANSWER.to_vec()]);
    for script in [h1, h2] {
        let plain = complete_messages(&run(&script, false, None).unwrap());
        assert!(plain.as_ref().is_some_and(|(requests, responses)| requests.len() == responses.len() && !requests.is_empty()));
        for ends in [
            BOTH,
            TLS_LISTENER,
            TLS_UPSTREAM,
            TLS_LISTENER | UNNAMED_CLIENT,
            TLS_UPSTREAM | UNNAMED_UPSTREAM,
            BOTH | TWO_UPSTREAMS,
            TWO_UPSTREAMS,
        ] {
            let script = with_ends(&script, ends);
            for is_split in [false, true] {
                let seen = run(&script, is_split, None).unwrap();
                check_messages(&script, &seen).unwrap();
                assert_eq!(complete_messages(&seen), plain, "ends {ends}: {seen:?}");
                for (ends_of, all) in [(TLS_LISTENER, &seen.clients), (TLS_UPSTREAM, &seen.upstreams)] {
                    // a record is longer than its text
                    assert!(
                        all.iter().all(|one| (one.accepted > one.sent.len()) == (ends & ends_of != 0)),
                        "ends {ends}: {seen:?}"
                    );
                }
                let expected = if ends & TWO_UPSTREAMS == 0 { 1 } else { plain.as_ref().unwrap().0.len() };
                assert_eq!(seen.upstreams.len(), expected, "ends {ends}: {seen:?}");
            }
        }
    }
}

#[test]
fn an_answer_to_the_end_is_whole_if_the_end_is_said() {
    let answer = b"HTTP/1.1 200 OK\r\n\r\nto the end";
    let script = case(0, &[send(CLIENT, GET, 1), send(UPSTREAM, answer, 1), vec![7]]);
    for (ends, is_whole) in [(0, true), (BOTH, true), (TLS_UPSTREAM, true), (BOTH | RUDE, false), (TLS_UPSTREAM | RUDE, false)] {
        let script = with_ends(&script, ends);
        let seen = run(&script, false, None).unwrap();
        check_messages(&script, &seen).unwrap();
        assert!(seen.clients[0].received.windows(10).any(|text| text == b"to the end"), "ends {ends}: {seen:?}");
        assert_eq!(complete_messages(&seen).unwrap().1.len(), usize::from(is_whole), "ends {ends}: {seen:?}");
    }
}

#[test]
fn http2_is_carried_and_seen() {
    // GET http://m/
    let request = frame(1, 5, 1, b"\x82\x86\x84\x41\x01m");
    for protocol in [0, 1 << 1] {
        let script = case(1 | protocol, &[send(CLIENT, &request, 1), ANSWER.to_vec()]);
        let seen = run(&script, false, None).unwrap();
        let (requests, responses) = complete_messages(&seen).unwrap();
        assert_eq!((requests.len(), format!("{responses:?}").as_str()), (1, r#"[ "ok"]"#));
    }
}

/// An answer without a body is all there at once: over HTTP/2 also when the connection that would flush it has just ended.
#[test]
fn an_answer_without_a_body_to_a_client_that_has_gone_is_counted() {
    // HEAD http://m/; the client resets its connection while the upstream breaks off
    let request = frame(1, 5, 1, b"\x42\x04HEAD\x86\x84\x41\x01m");
    run(&case(1, &[send(CLIENT, &request, 1)]), false, None).unwrap();
}

#[test]
fn a_cut_response_is_not_complete() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
    let script = case(0, &[send(CLIENT, GET, 1), send(UPSTREAM, answer, 1), vec![7]]);
    let seen = run(&script, false, None).unwrap();
    assert!(seen.clients[0].received.ends_with(b"half"));
    assert_eq!(complete_messages(&seen).unwrap().1, []);
}

#[test]
fn a_response_without_content_is_not_taken_for_a_refusal() {
    let head = b"HEAD / HTTP/1.1\r\nhost: m\r\n\r\n";
    // the upstream refuses connections; its answer is Lapwing's own, without its text
    let script = case(0, &[vec![14, 255], send(CLIENT, head, 1)]);
    let received = run(&script, false, None).unwrap().clients.remove(0).received;
    let text = received.escape_ascii().to_string();
    assert!(text.starts_with("HTTP/1.1 502 Bad Gateway\\r\\nx-lapwing-error: connect_refused"), "{text}");
    assert!(text.ends_with("connection: close\\r\\n\\r\\n"), "there is no upstream: {text}");
    // an upstream that speaks HTTP/2 ends such a response in a frame of its own
    let ok = [frame(1, 4, 1, b"\x88"), frame(0, 1, 1, b"")].concat();
    let not_modified = [frame(1, 4, 1, b"\x8b"), frame(0, 1, 1, b"")].concat();
    for (request, answer, expected) in [(&head[..], ok, "200 OK"), (GET, not_modified, "304 Not Modified")] {
        let script = case(2 << 1, &[send(CLIENT, request, 1), send(UPSTREAM, &answer, 1)]);
        let received = run(&script, false, None).unwrap().clients.remove(0).received;
        assert!(received.starts_with(format!("HTTP/1.1 {expected}\r\n").as_bytes()), "{}", received.escape_ascii());
    }
}

#[test]
fn a_switch_of_protocols_that_was_not_asked_for_is_refused() {
    let switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    for (connection, expected) in [("upgrade", "HTTP/1.1 101 "), ("close", "HTTP/1.1 502 ")] {
        let request = format!("GET / HTTP/1.1\r\nhost: m\r\nconnection: {connection}\r\nupgrade: x\r\n\r\n");
        let seen = run(&case(0, &[send(CLIENT, request.as_bytes(), 1), send(UPSTREAM, switch, 1)]), false, None).unwrap();
        assert!(seen.clients[0].received.starts_with(expected.as_bytes()), "{seen:?}");
    }
}

#[test]
fn a_get_keeps_its_body_between_versions() {
    // GET http://m/ and a body whose length is not known
    let request = [frame(1, 4, 1, b"\x82\x86\x84\x41\x01m"), frame(0, 1, 1, b"abc")].concat();
    let script = case(1 | 1 << 1, &[send(CLIENT, &request, 1), ANSWER.to_vec()]);
    let seen = run(&script, false, None).unwrap();
    assert_eq!(format!("{:?}", complete_messages(&seen).unwrap()), r#"([ "abc"], [ "ok"])"#, "{seen:?}");
}

/// Runs a long body past a peer that takes nothing; returns how much of it the proxy read.
fn accepted(script: &Script, of: impl Fn(&Conversations) -> usize) -> usize {
    of(&run(script, false, None).unwrap())
}

#[test]
fn a_peer_that_takes_nothing_holds_the_other_back() {
    let piece = [b'x'; 128];
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n";
    let repeat = |side: u8| vec![4 + side, 13];
    let flood = [vec![10], send(CLIENT, GET, 1), send(UPSTREAM, head, 1), send(UPSTREAM, &piece, 1), repeat(UPSTREAM)];
    let download = accepted(&case(0, &flood), |seen| seen.upstreams[0].accepted);
    let head = b"POST / HTTP/1.1\r\nhost: m\r\ncontent-length: 2000000\r\n\r\n";
    let flood = [send(CLIENT, GET, 1), ANSWER.to_vec(), vec![11], send(CLIENT, head, 1), send(CLIENT, &piece, 1), repeat(CLIENT)];
    let upload = accepted(&case(0, &flood), |seen| seen.clients[0].accepted);
    assert!(download < 900_000 && upload < 900_000, "{download} and {upload} of 1 MiB");
}

#[test]
fn what_was_not_sent_is_found() {
    let talk = |sent: &[u8], received: &[u8]| Conversation {
        sent: sent.to_vec(),
        received: received.to_vec(),
        accepted: sent.len(),
        is_finished: false,
        has_ended: false,
        is_reset: false,
        is_closed: false,
        is_ended: false,
    };
    let answer = player::PLAIN_ANSWER;
    let check = |client: (&[u8], &[u8]), upstream: (&[u8], &[u8])| {
        let seen = Conversations { clients: vec![talk(client.0, client.1)], upstreams: vec![talk(upstream.0, upstream.1)] };
        check_messages(&case(0, &[]), &seen)
    };
    assert_eq!(check((POST, answer), (answer, POST)), Ok(()));
    for (client, upstream) in [
        ((GET, answer), (answer, POST)),
        ((POST, answer), (answer, &POST.repeat(2)[..])),
        ((POST, answer), (&answer[..answer.len() - 1], POST)),
        ((POST, &b"HTTP/1.1 200 OK\ncontent-length: 0\r\n\r\n"[..]), (answer, POST)),
    ] {
        assert!(check(client, upstream).is_err(), "{client:?} {upstream:?}");
    }
}

#[test]
fn the_second_reader_knows_whole_messages_only() {
    let read = |bytes: &[u8]| read_message(bytes, Expected::Request, false).map(|(message, _)| message.body);
    assert_eq!(read(POST), Ok(b"abc".to_vec()));
    assert_eq!(read(&POST[..POST.len() - 1]), Err(Unread::Partial));
    let chunked = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nx: y\r\n\r\n";
    assert_eq!(read(chunked), Ok(b"abc".to_vec()));
    assert_eq!(read(&chunked[..chunked.len() - 2]), Err(Unread::Partial));
    for odd in [
        &b"POST / HTTP/1.1\n\n"[..],
        b"x\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: +1\r\n\r\na",
        b"GET / HTTP/1.1\r\na b: c\r\n\r\n",
    ] {
        assert!(matches!(read(odd), Err(Unread::Odd(_))), "{odd:?}");
    }
    let ended = [frame(1, 4, 1, b""), frame(0, 0, 1, b"ab"), frame(0, 9, 1, b"\x01c\0"), frame(1, 4, 3, b"")].concat();
    assert_eq!(streams(&ended), (vec![b"abc".to_vec()], None));
    let after = [ended, frame(0, 0, 1, b"d")].concat();
    assert_eq!(streams(&after).1, Some("a stream goes on after its end"));
}
