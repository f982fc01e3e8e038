//! Each rule on its own: what is answered, what is not, and why.

use super::model::ModelStore;
use super::{Through, command, commands, kept};
use crate::cache::kept::KeptReplies;
use crate::cache::turn::{Outgoing, Turn};
use crate::call::shown::at;
use lapwing_ledger::Stamp;

const ON: &str = r#"{"mode": "on", "prefixes": ["f:"], "ttl": "1s"}"#;
const SECOND: u64 = 1_000_000_000;

struct Play {
    kept: KeptReplies,
    store: ModelStore,
    now: u64,
}

impl Play {
    fn new(config: &str) -> Self {
        Self { kept: kept(config), store: ModelStore::default(), now: 1 }
    }

    /// Asks this, and says what came back and whether the store was asked.
    fn ask(&mut self, through: &mut Through, words: &str) -> (String, bool) {
        let before = through.passed.len();
        let back = through.ask(&command(words), usize::MAX, self.now, &mut self.kept, &mut self.store);
        (String::from_utf8(back).unwrap(), through.passed.len() > before)
    }

    /// Whether the store is asked.
    fn passes(&mut self, through: &mut Through, words: &str) -> bool {
        self.ask(through, words).1
    }

    fn refused(&self, why: &str) -> u64 {
        self.kept.figures.refused[why]
    }
}

#[test]
fn a_listed_read_is_answered_until_it_is_too_old() {
    let (mut play, mut one, mut other) = (Play::new(ON), Through::default(), Through::default());
    play.ask(&mut one, "SET f:a 1");
    play.ask(&mut one, "SET x 1");
    assert_eq!(play.ask(&mut one, "GET f:a"), ("$1\r\n1\r\n".into(), true));
    assert_eq!(play.ask(&mut other, "get f:a"), ("$1\r\n1\r\n".into(), false));
    assert_eq!(play.ask(&mut other, "MGET f:a f:a"), ("*2\r\n$1\r\n1\r\n$1\r\n1\r\n".into(), false));
    assert!(play.passes(&mut one, "GET x") && play.passes(&mut one, "GET x") && play.passes(&mut one, "MGET f:a x"));
    assert_eq!(play.refused("unlisted"), 3);
    play.now += SECOND - 1;
    assert!(!play.passes(&mut one, "GET f:a"));
    play.now += 1;
    assert!(play.passes(&mut one, "GET f:a") && !play.passes(&mut other, "GET f:a"));
    let named: Vec<_> =
        play.kept.figures.named().map(|(name, lookups)| (name.text(), lookups.found.hits, lookups.found.misses)).collect();
    assert_eq!(named, [("GET", 3, 2), ("MGET", 1, 0)]);
    assert_eq!(play.kept.figures.by_rule()[0].hits, 4);
}

#[test]
fn elements_are_kept_one_by_one() {
    let (mut play, mut one) = (Play::new(ON), Through::default());
    for words in ["MSET f:a 1 f:b 2", "HSET f:h n 1", "HSET f:h m 2"] {
        play.ask(&mut one, words);
    }
    assert!(play.passes(&mut one, "MGET f:a f:b"));
    assert_eq!(play.ask(&mut one, "MGET f:b f:a f:b").0, "*3\r\n$1\r\n2\r\n$1\r\n1\r\n$1\r\n2\r\n");
    assert!(!play.passes(&mut one, "GET f:b"));
    assert!(
        play.passes(&mut one, "HMGET f:h n m")
            && !play.passes(&mut one, "HGET f:h m")
            && !play.passes(&mut one, "HMGET f:h m n m")
    );
    assert!(play.passes(&mut one, "HGETALL f:h") && !play.passes(&mut one, "hgetall f:h"));
    // one that is missing is asked for
    assert!(play.passes(&mut one, "HMGET f:h n gone") && play.passes(&mut one, "HMGET f:h n gone"));
    assert_eq!(play.refused("absent"), 2);
}

#[test]
fn what_is_not_there_and_errors_are_asked_for_again() {
    let (mut play, mut one) = (Play::new(ON), Through::default());
    play.ask(&mut one, "HSET f:h n 1");
    for words in ["GET f:a", "HGETALL f:a", "EXISTS f:a", "GET f:h", "HGET f:h gone"] {
        assert!(play.passes(&mut one, words) && play.passes(&mut one, words), "{words}");
    }
    assert_eq!((play.refused("absent"), play.refused("error")), (8, 2));
    let mut play = Play::new(r#"{"mode": "on", "prefixes": ["f:"], "absent": "keep"}"#);
    play.ask(&mut one, "HSET f:h n 1");
    for words in ["GET f:a", "HGETALL f:a", "EXISTS f:a", "HGET f:h gone"] {
        assert!(play.passes(&mut one, words) && !play.passes(&mut one, words), "{words}");
    }
    // MGET says so of the hash too, and GET does not
    assert!(play.passes(&mut one, "MGET f:h") && play.ask(&mut one, "GET f:h").0.starts_with("-WRONGTYPE"));
}

#[test]
fn a_write_forgets_its_keys_and_what_is_not_known_forgets_all() {
    let (mut play, mut one, mut other) = (Play::new(ON), Through::default(), Through::default());
    play.ask(&mut one, "MSET f:a 1 f:b 2");
    for (write, forgets_a, forgets_b) in [
        ("SET x 1", false, false),
        ("GET x", false, false),
        ("SET f:a 3", true, false),
        ("MSET x 1 f:b 4", false, true),
        ("RENAME f:a f:b", true, true),
        ("MSET f:a 5 f:b 6", true, true),
        ("FLUSHDB", true, true),
        ("EVAL s 0", true, true),
        ("CONFIG SET a b", true, true),
        ("PING", false, false),
    ] {
        for read in ["GET f:a", "GET f:b"] {
            play.ask(&mut one, read);
        }
        play.ask(&mut other, write);
        let is_there = |play: &Play, key: &str| play.store.has(key);
        assert_eq!(play.passes(&mut one, "GET f:a"), forgets_a || !is_there(&play, "f:a"), "{write}");
        assert_eq!(play.passes(&mut one, "GET f:b"), forgets_b || !is_there(&play, "f:b"), "{write}");
    }
    assert_eq!(play.kept.figures.forgot_all, 3);
}

#[test]
fn database_user_and_protocol_tell_answers_apart() {
    let (mut play, mut one, mut other) = (Play::new(ON), Through::default(), Through::default());
    play.ask(&mut one, "HSET f:h n 1");
    play.ask(&mut one, "HGETALL f:h");
    assert!(!play.passes(&mut other, "HGETALL f:h"));
    play.ask(&mut other, "HELLO 3");
    assert_eq!(play.ask(&mut other, "HGETALL f:h"), ("%1\r\n$1\r\nn\r\n$1\r\n1\r\n".into(), true));
    assert!(!play.passes(&mut other, "HGETALL f:h"));
    play.ask(&mut one, "SELECT 1");
    assert_eq!(play.ask(&mut one, "HGETALL f:h"), ("*0\r\n".into(), true));
    play.ask(&mut one, "SELECT 99");
    play.ask(&mut one, "SELECT 0");
    assert!(!play.passes(&mut one, "HGETALL f:h"));
    // a change that was refused changes nothing; while it is under way, nothing is answered
    let asked = commands(&["SELECT 1", "HGETALL f:h"]);
    let back = one.ask(&asked, usize::MAX, 1, &mut play.kept, &mut play.store);
    assert_eq!(String::from_utf8(back).unwrap(), "+OK\r\n*0\r\n");
    assert_eq!(play.refused("state"), 1);
}

#[test]
fn a_transaction_and_a_watch_pass() {
    let (mut play, mut one) = (Play::new(ON), Through::default());
    play.ask(&mut one, "SET f:a 1");
    play.ask(&mut one, "GET f:a");
    for words in ["WATCH f:a", "GET f:a", "MULTI", "GET f:a", "SET f:a 2", "EXEC"] {
        assert!(play.passes(&mut one, words), "{words}");
    }
    assert_eq!(play.ask(&mut one, "GET f:a"), ("$1\r\n2\r\n".into(), true));
    assert!(!play.passes(&mut one, "GET f:a"));
    for words in ["MULTI", "SET f:a 3", "DISCARD"] {
        play.ask(&mut one, words);
    }
    assert_eq!(play.refused("state"), 2);
}

#[test]
fn a_read_behind_another_call_passes_and_is_kept() {
    let (mut play, mut one) = (Play::new(ON), Through::default());
    play.ask(&mut one, "MSET f:a 1 f:b 2");
    play.ask(&mut one, "GET f:b");
    let asked = commands(&["GET f:b", "GET f:a", "GET f:b"]);
    let back = one.ask(&asked, usize::MAX, 1, &mut play.kept, &mut play.store);
    assert_eq!(String::from_utf8(back).unwrap(), "$1\r\n2\r\n$1\r\n1\r\n$1\r\n2\r\n");
    assert_eq!(play.refused("behind"), 1);
    assert!(!play.passes(&mut one, "GET f:a"));
}

#[test]
fn an_untouched_connection_forgets_what_it_writes() {
    for leave in ["SUBSCRIBE c", "CLIENT REPLY SKIP", "CLIENT TRACKING ON", "MONITOR", "RESET", "HELLO 4", "SELECT x"] {
        let (mut play, mut one, mut other) = (Play::new(ON), Through::default(), Through::default());
        play.ask(&mut one, "SET f:a 1");
        play.ask(&mut one, "GET f:a");
        play.ask(&mut other, leave);
        assert!(play.passes(&mut other, "GET f:a") && !play.passes(&mut one, "GET f:a"), "{leave}");
        play.ask(&mut other, "SET f:a 2");
        // nobody knows when it is carried out
        assert_eq!(play.ask(&mut one, "GET f:a"), ("$1\r\n2\r\n".into(), true));
        assert!(play.passes(&mut one, "GET f:a"));
        play.now += SECOND;
        play.ask(&mut one, "GET f:a");
        assert!(!play.passes(&mut one, "GET f:a"));
        assert_eq!((play.kept.figures.untouched, play.refused("untouched")), (1, 1));
    }
}

#[test]
fn what_is_not_the_protocol_forgets_all_as_long_as_it_comes() {
    let (mut play, mut one, mut other) = (Play::new(ON), Through::default(), Through::default());
    play.ask(&mut one, "SET f:a 1");
    play.ask(&mut one, "GET f:a");
    let mut out = Outgoing::default();
    let hostile = b"*1\r\nnothing\r\nSET f:a 2\r\n";
    for piece in hostile.chunks(5) {
        let turn = Turn { now: at(play.now), room: usize::MAX };
        other.conversation().client(piece, turn, &mut play.kept, &mut out);
    }
    other.conversation().client_ended(&mut out);
    assert_eq!(out.to_store, hostile);
    assert!(play.passes(&mut one, "GET f:a") && play.passes(&mut one, "GET f:a"));
    play.now += SECOND;
    play.ask(&mut one, "GET f:a");
    assert!(!play.passes(&mut one, "GET f:a"));
}

#[test]
fn what_is_too_long_passes_at_once() {
    let (mut play, mut one) = (Play::new(ON), Through::default());
    let long = "x".repeat(100_000);
    play.ask(&mut one, "SET f:a 1");
    play.ask(&mut one, "GET f:a");
    assert_eq!(play.ask(&mut one, &format!("SET f:a {long}")).0, "+OK\r\n");
    // too large to be kept
    assert_eq!(play.ask(&mut one, "GET f:a"), (format!("$100000\r\n{long}\r\n"), true));
    assert!(play.passes(&mut one, "GET f:a"));
    assert_eq!(play.refused("too_large"), 2);
    assert!(play.passes(&mut one, &format!("GET f:{long}")) && play.passes(&mut one, &format!("MSET f:{long} 1 f:b {long}")));
    assert_eq!((play.refused("too_long"), play.kept.figures.forgot_all), (1, 1));
    // in a line, nothing is answered
    play.ask(&mut one, "SET f:b 1");
    play.ask(&mut one, "GET f:b");
    let mut out = Outgoing::default();
    let turn = Turn { now: at(1), room: usize::MAX };
    let lines = b"GET f:b\r\nSET \"f:b\" 2\r\n";
    one.conversation().client(lines, turn, &mut play.kept, &mut out);
    assert!(out.answers.is_empty() && out.to_store == lines && play.kept.figures.forgot_all == 2);
}

#[test]
fn a_write_whose_connection_ends_keeps_its_key_out() {
    let (mut play, mut one, mut other) = (Play::new(ON), Through::default(), Through::default());
    play.ask(&mut one, "SET f:a 1");
    let mut out = Outgoing::default();
    other.conversation().client(&command("SET f:a 2"), Turn { now: at(1), room: usize::MAX }, &mut play.kept, &mut out);
    play.ask(&mut one, "GET f:a");
    assert!(play.passes(&mut one, "GET f:a"), "it is under way");
    other.conversation().end(at(play.now), &mut play.kept);
    play.ask(&mut one, "GET f:a");
    assert!(play.passes(&mut one, "GET f:a"));
    play.now += SECOND;
    play.ask(&mut one, "GET f:a");
    assert!(!play.passes(&mut one, "GET f:a"));
}

#[test]
fn in_observe_nothing_is_answered_and_what_differs_is_counted() {
    let (mut play, mut one) = (Play::new(&ON.replace("on", "observe")), Through::default());
    play.ask(&mut one, "SET f:a 1");
    for _ in 0..3 {
        assert!(play.passes(&mut one, "GET f:a"));
    }
    // somebody else writes
    Through::default().ask(&command("SET f:a 2"), usize::MAX, 1, &mut kept(ON), &mut play.store);
    assert_eq!(play.ask(&mut one, "GET f:a").0, "$1\r\n2\r\n");
    let (_, lookups) = play.kept.figures.named().next().unwrap();
    assert_eq!((lookups.found.hits, lookups.found.misses, play.kept.figures.differed), (3, 1, 1));
}

#[test]
fn a_client_that_takes_no_answers_is_not_given_more() {
    let (mut play, mut one) = (Play::new(ON), Through::default());
    play.ask(&mut one, "SET f:a 1");
    play.ask(&mut one, "GET f:a");
    let mut out = Outgoing::default();
    one.conversation().client(&command("GET f:a"), Turn { now: at(1), room: 0 }, &mut play.kept, &mut out);
    assert!(out.answers.is_empty() && !out.to_store.is_empty());
    assert_eq!(play.refused("backlog"), 1);
}

#[test]
fn hostile_bytes_cost_little_time() {
    let many = [b"*60000\r\n".to_vec(), b"$0\r\n\r\n".repeat(9_000)].concat();
    for (name, bytes, step) in [
        ("an array of many words, byte by byte", many, 1),
        ("a line without an end, byte by byte", vec![b'x'; 60_000], 1),
        ("reads of one key", command("GET f:a").repeat(40_000), 64 << 10),
        ("reads of many keys", command(&format!("MGET{}", " f:a".repeat(5_000))).repeat(20), 64 << 10),
        ("a long word", [b"*2\r\n$3\r\nGET\r\n$1000000\r\n".to_vec(), vec![b'x'; 1_000_000]].concat(), 1000),
    ] {
        let (mut kept, mut through, began) = (kept(ON), Through::default(), Stamp::now());
        let mut out = Outgoing::default();
        for piece in bytes.chunks(step) {
            through.conversation().client(piece, Turn { now: at(1), room: usize::MAX }, &mut kept, &mut out);
        }
        through.conversation().client_ended(&mut out);
        let took_ns = began.elapsed();
        println!("{} bytes, {name}: {} us", bytes.len(), took_ns / 1000);
        assert!(out.to_store == bytes && took_ns < 2_000_000_000, "{name}");
    }
}

#[test]
fn memory_is_bounded() {
    let (mut play, mut one) =
        (Play::new(r#"{"mode": "on", "prefixes": ["f:"], "max_bytes": "64KiB", "max_entry": "1KiB"}"#), Through::default());
    let text = "x".repeat(900);
    for n in 0..500 {
        play.ask(&mut one, &format!("SET f:{n} {text}"));
        play.ask(&mut one, &format!("GET f:{n}"));
        assert!(play.kept.size().1 <= 64 << 10);
    }
    assert!(play.kept.figures.evicted > 400 && play.kept.size().0 > 30, "{:?}", play.kept.size());
}
