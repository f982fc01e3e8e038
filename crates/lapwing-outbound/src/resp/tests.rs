//! Conversations as clients and servers have them, cut anywhere; and bytes that are none.

use proptest::prelude::*;

use super::RespReader;
use super::pairing::MAX_OPEN;
use crate::call::shown::{Shown, at};
use crate::call::{Asked, CallEnd, CallReader, Wait};
use crate::unread::Unread;
use lapwing_ledger::Stamp;

/// Who sends some bytes.
#[derive(Clone, Copy, Debug)]
enum Sent<'b> {
    Client(&'b [u8]),
    Server(&'b [u8]),
}
use Sent::{Client, Server};

/// Reads a conversation in pieces of `step` bytes. Each line of it takes 1,000 ns.
fn read_in(steps: usize, conversation: &[Sent<'_>], in_flight: u64) -> (Shown, Result<(), Unread>, bool) {
    let (mut reader, mut shown) = (RespReader::default(), Shown::default());
    for (line, sent) in (1..).zip(conversation) {
        let now = at(line * 1000);
        let read = match sent {
            Client(bytes) => bytes.chunks(steps).try_for_each(|piece| reader.client(piece, now, in_flight, &mut shown)),
            Server(bytes) => bytes.chunks(steps).try_for_each(|piece| reader.server(piece, now, &mut shown)),
        };
        if read.is_err() {
            return (shown, read, false);
        }
    }
    let is_waiting = reader.is_waiting();
    (shown, Ok(()), is_waiting)
}

/// A call's name, hits and misses.
type Found = (&'static str, u64, u64);

/// The same, however it is cut, with the number of waits.
fn read(conversation: &[Sent<'_>]) -> (Vec<Found>, usize, Result<(), Unread>) {
    let (shown, read, _) = read_in(usize::MAX, conversation, 1);
    for step in [1, 2, 3, 7] {
        let (again, read_again, _) = read_in(step, conversation, 1);
        assert_eq!((&again, read_again), (&shown, read), "in steps of {step}");
    }
    let calls = shown.calls.iter().map(|call| (call.name.text(), call.lookups.hits, call.lookups.misses)).collect();
    (calls, shown.waits.len(), read)
}

/// A command as clients send it.
fn command(words: &str) -> Vec<u8> {
    let words: Vec<_> = words.split(' ').collect();
    let argument = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(argument).collect::<String>()).into()
}

fn commands(list: &[&str]) -> Vec<u8> {
    list.iter().flat_map(|words| command(words)).collect()
}

#[test]
fn a_pipeline_is_answered_in_order_and_is_one_wait() {
    let asked = commands(&["GET a", "MGET a b c", "HGETALL h", "set k v", "HMGET h f g", "NEWCMD x"]);
    let answers = b"$1\r\nx\r\n*3\r\n$-1\r\n$2\r\n\r\n\r\n$-1\r\n*0\r\n+OK\r\n*2\r\n$1\r\ny\r\n$-1\r\n:7\r\n";
    let (calls, waits, read) = read(&[Client(&asked), Server(answers)]);
    let expected = [("GET", 1, 0), ("MGET", 1, 2), ("HGETALL", 0, 1), ("SET", 0, 0), ("HMGET", 1, 1), ("other", 0, 0)];
    assert_eq!((calls, waits, read), (expected.to_vec(), 1, Ok(())));
    let (shown, ..) = read_in(usize::MAX, &[Client(&asked), Server(answers)], 1);
    assert_eq!(shown.waits, [Wait { began: at(1000), ended: at(2000), asked: Asked::Alone }]);
    assert_eq!(shown.calls.iter().map(|call| call.keys).collect::<Vec<_>>(), [1, 3, 1, 0, 1, 0]);
    assert!(shown.calls.iter().all(|call| call.took_ns == Some(1000)));
}

#[test]
fn a_call_begins_with_its_first_byte_and_ends_with_its_last() {
    let asked = command("GET key");
    let (first, rest) = asked.split_at(1);
    let (shown, ..) = read_in(usize::MAX, &[Client(first), Client(rest), Server(b"$2\r\na"), Server(b"b\r"), Server(b"\n")], 0);
    assert_eq!(shown.waits, [Wait { began: at(1000), ended: at(5000), asked: Asked::Outside }]);
    let two = commands(&["GET a", "GET b"]);
    let (shown, _, is_waiting) = read_in(usize::MAX, &[Client(&two), Server(b"$-1\r\n")], 2);
    assert_eq!((shown.calls.len(), shown.waits.len(), is_waiting), (1, 0, true));
}

#[test]
fn a_transaction_shows_what_it_found_in_the_reply_of_exec() {
    let asked = commands(&["MULTI", "GET a", "MGET b c", "BLPOP q 0", "SET k v", "EXEC", "GET after"]);
    let queued = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n";
    let done = b"*4\r\n$-1\r\n*2\r\n$1\r\nx\r\n$-1\r\n*-1\r\n+OK\r\n$1\r\ny\r\n";
    let (calls, waits, _) = read(&[Client(&asked), Server(queued), Server(done)]);
    assert_eq!(calls[5..], [("EXEC", 1, 2), ("GET", 1, 0)]);
    assert_eq!(waits, 1, "nothing waits for others in a transaction");
    // one that was aborted, and one that was given up
    let asked = commands(&["MULTI", "GET a", "EXEC", "MULTI", "GET a", "DISCARD", "MULTI", "GET a", "EXEC"]);
    let answers = b"+OK\r\n+QUEUED\r\n*-1\r\n+OK\r\n+QUEUED\r\n+OK\r\n+OK\r\n-ERR no\r\n-EXECABORT\r\n";
    let (calls, _, read) = read(&[Client(&asked), Server(answers)]);
    assert_eq!((calls.len(), calls.iter().map(|(_, hits, misses)| hits + misses).sum::<u64>(), read), (9, 0, Ok(())));
    let (shown, ..) = read_in(usize::MAX, &[Client(&asked), Server(answers)], 1);
    assert_eq!(shown.calls.iter().filter(|call| call.end == CallEnd::Failed).count(), 2);
    assert_eq!(shown.calls[1].took_ns, None, "a queued command takes its time in EXEC");
}

#[test]
fn subscriptions_of_resp2_are_told_from_replies() {
    let confirm = |kind: &str, channel: &str, n: u64| format!("*3\r\n${}\r\n{kind}\r\n$1\r\n{channel}\r\n:{n}\r\n", kind.len());
    let message = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$5\r\nhello\r\n";
    let ask = commands(&["GET x", "SUBSCRIBE a b", "PING"]);
    let answers = format!(
        "$-1\r\n{}{message}{}{message}*2\r\n$4\r\npong\r\n$0\r\n\r\n",
        confirm("subscribe", "a", 1),
        confirm("subscribe", "b", 2)
    );
    let leave = commands(&["UNSUBSCRIBE", "GET y"]);
    let left = format!("{message}{}{}$1\r\nz\r\n", confirm("unsubscribe", "a", 1), confirm("unsubscribe", "b", 0));
    let (calls, waits, read) = read(&[Client(&ask), Server(answers.as_bytes()), Client(&leave), Server(left.as_bytes())]);
    let expected = [("GET", 0, 1), ("SUBSCRIBE", 0, 0), ("PING", 0, 0), ("UNSUBSCRIBE", 0, 0), ("GET", 1, 0)];
    assert_eq!((calls, waits, read), (expected.to_vec(), 2, Ok(())));
    // without a subscription such a list is a reply like any other
    let list = command("LRANGE l 0 -1");
    let (calls, ..) = read_in(usize::MAX, &[Client(&list), Server(message.as_bytes())], 1);
    assert_eq!(calls.calls[0].lookups.hits, 1);
}

#[test]
fn pushes_of_resp3_answer_only_subscriptions() {
    let hello = command("HELLO 3");
    let told = b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n";
    let ask = commands(&["SUBSCRIBE a", "HGETALL h", "ZSCORE z m", "SMEMBERS s"]);
    let answers =
        b">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n%1\r\n$1\r\nf\r\n$1\r\nv\r\n\
        >3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nm\r\n_\r\n~0\r\n";
    let (calls, _, read) = read(&[Client(&hello), Server(told), Client(&ask), Server(answers)]);
    let expected = [("HELLO", 0, 0), ("SUBSCRIBE", 0, 0), ("HGETALL", 1, 0), ("ZSCORE", 0, 1), ("SMEMBERS", 0, 1)];
    assert_eq!((calls, read), (expected.to_vec(), Ok(())));
}

#[test]
fn every_form_of_resp3_is_one_value() {
    let values = [
        "+OK\r\n",
        "-ERR x\r\n",
        ":1\r\n",
        ",1.5\r\n",
        "#t\r\n",
        "(3492890328409238509324850943850943825024385\r\n",
        "_\r\n",
        "=7\r\ntxt:abc\r\n",
        "!5\r\nERR x\r\n",
        "$?\r\n;4\r\nabcd\r\n;1\r\n\n\r\n;0\r\n",
        "*?\r\n:1\r\n*0\r\n.\r\n",
        "%?\r\n+a\r\n:1\r\n.\r\n",
        "|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n",
        "*2\r\n|1\r\n+a\r\n*1\r\n:1\r\n:1\r\n:2\r\n",
        "~?\r\n.\r\n",
        "*-1\r\n",
        "$-1\r\n",
    ];
    for value in values {
        let answers = format!("{value}$1\r\nx\r\n");
        let (calls, _, read) = read(&[Client(&commands(&["EVAL s 0", "GET a"])), Server(answers.as_bytes())]);
        assert_eq!((calls, read), (vec![("EVAL", 0, 0), ("GET", 1, 0)], Ok(())), "{value:?}");
    }
}

#[test]
fn silence_is_expected_where_it_was_asked_for() {
    let ask = commands(&["CLIENT REPLY SKIP", "SET a 1", "GET a", "CLIENT REPLY OFF", "SET a 2", "CLIENT REPLY ON", "GET a"]);
    let (calls, waits, read) = read(&[Client(&ask), Server(b"$1\r\n1\r\n+OK\r\n$-1\r\n")]);
    assert_eq!((calls.len(), waits, read), (7, 1, Ok(())));
    assert_eq!(calls.iter().filter(|(name, ..)| *name == "GET").collect::<Vec<_>>(), [&("GET", 1, 0), &("GET", 0, 1)]);
}

#[test]
fn what_waits_for_others_is_no_wait_for_the_store() {
    for (ask, answer) in [("BLPOP q 0", "*-1\r\n"), ("XREAD COUNT 1 BLOCK 0 STREAMS s $", "_\r\n"), ("WAIT 1 0", ":0\r\n")] {
        let (shown, ..) = read_in(usize::MAX, &[Client(&command(ask)), Server(answer.as_bytes())], 1);
        assert_eq!((shown.calls.len(), shown.calls[0].took_ns, shown.waits.len()), (1, None, 0), "{ask}");
    }
    let (shown, ..) = read_in(usize::MAX, &[Client(&command("XREAD COUNT 1 STREAMS s t 0 0")), Server(b"*-1\r\n")], 1);
    assert_eq!((shown.calls[0].took_ns, shown.calls[0].keys, shown.waits.len()), (Some(1000), 2, 1));
}

#[test]
fn inline_commands_are_commands() {
    let (calls, waits, read) = read(&[Client(b"PING\r\n\r\nget  a\n"), Server(b"+PONG\r\n$-1\r\n")]);
    assert_eq!((calls, waits, read), (vec![("PING", 0, 0), ("GET", 0, 1)], 1, Ok(())));
    let long = [&[b'x'; 3000][..], b" y\r\nPING\r\n"].concat();
    assert_eq!(read_in(7, &[Client(&long), Server(b"-ERR\r\n+PONG\r\n")], 1).0.calls.len(), 2);
}

#[test]
fn what_cannot_be_followed_says_why() {
    let deep = "*1\r\n".repeat(40);
    for (conversation, why) in [
        (vec![Client(b"*x\r\n")], Unread::Malformed),
        (vec![Client(b"*1\r\n$-5\r\n")], Unread::Malformed),
        (vec![Server(b"+OK\r\n")], Unread::Unasked),
        (vec![Client(b"PING\r\n"), Server(b"HTTP/1.1 400\r\n")], Unread::Malformed),
        (vec![Client(b"PING\r\n"), Server(b"*99999999999\r\n")], Unread::Malformed),
        (vec![Client(b"PING\r\n"), Server(deep.as_bytes())], Unread::TooDeep),
        (vec![Client(b"MONITOR\r\n"), Server(b"+OK\r\n")], Unread::Monitor),
        (vec![Client(b"PSYNC ? -1\r\n"), Server(b"+FULLRESYNC a 0\r\n")], Unread::Replication),
    ] {
        assert_eq!(read_in(usize::MAX, &conversation, 1).1, Err(why), "{conversation:?}");
    }
}

#[test]
fn a_pipeline_beyond_the_bound_is_counted_and_passed_over() {
    let count = MAX_OPEN + 500;
    let asked = command("GET a").repeat(count);
    let (shown, read, is_waiting) = read_in(usize::MAX, &[Client(&asked), Server(&b"$1\r\nx\r\n".repeat(count))], 1);
    assert_eq!((shown.calls.len(), shown.waits.len(), read, is_waiting), (count, 1, Ok(()), false));
    assert_eq!(shown.calls.iter().map(|call| call.lookups.hits).sum::<u64>(), MAX_OPEN as u64);
}

#[test]
fn an_end_amid_a_call_cuts_it() {
    let (mut reader, mut shown) = (RespReader::default(), Shown::default());
    reader.client(&command("GET a"), at(1000), 1, &mut shown).unwrap();
    reader.end(at(9000), &mut shown);
    assert_eq!((shown.calls[0].end, shown.calls[0].took_ns), (CallEnd::Cut, Some(8000)));
    assert_eq!(shown.waits, [Wait { began: at(1000), ended: at(9000), asked: Asked::Alone }]);
}

#[test]
fn hostile_bytes_cost_little_time() {
    const MIB: usize = 1 << 20;
    let inputs = [
        ("nulls in one array", [&b"*4000000\r\n"[..], &b"_\r\n".repeat(MIB / 3)].concat()),
        ("empty arrays", b"*0\r\n".repeat(MIB / 4)),
        ("nested arrays", b"*1\r\n*1\r\n*1\r\n:1\r\n".repeat(MIB / 16)),
        ("a line without an end", [&b"+"[..], &vec![b'x'; MIB]].concat()),
        ("attributes", b"|1\r\n+\r\n+\r\n".repeat(MIB / 10)),
        ("one large value", [&b"$1048576\r\n"[..], &vec![b'x'; MIB], b"\r\n"].concat()),
    ];
    for (name, bytes) in inputs {
        let (mut reader, mut shown) = (RespReader::default(), Shown::default());
        reader.client(&command("GET a").repeat(MAX_OPEN), at(1), 1, &mut shown).unwrap();
        let began = Stamp::now();
        for piece in bytes.chunks(64 << 10) {
            if reader.server(piece, at(2), &mut shown).is_err() {
                break;
            }
        }
        let took_ns = began.elapsed();
        println!("1 MiB of replies, {name}: {} us", took_ns / 1000);
        assert!(took_ns < 2_000_000_000, "{name}");
    }
}

/// A reply of any form.
fn any_reply() -> impl Strategy<Value = Vec<u8>> {
    let text = || prop::collection::vec(any::<u8>(), 0..40);
    let bulk = |kind: u8| move |text: Vec<u8>| [&[kind][..], format!("{}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat();
    let line = (prop::sample::select(b"+-:,#(".to_vec()), "[ -~]{0,40}")
        .prop_map(|(kind, text)| [&[kind][..], text.as_bytes(), b"\r\n"].concat());
    let leaf = prop_oneof![
        line,
        text().prop_map(bulk(b'$')),
        text().prop_map(bulk(b'=')),
        Just(b"_\r\n".to_vec()),
        Just(b"$-1\r\n".to_vec()),
        Just(b"*-1\r\n".to_vec()),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let many = prop::collection::vec(inner.clone(), 0..6);
        let pairs = prop::collection::vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            (prop::sample::select(b"*~".to_vec()), many.clone()).prop_map(|(kind, of)| [
                &[kind][..],
                format!("{}\r\n", of.len()).as_bytes(),
                &of.concat()
            ]
            .concat()),
            many.prop_map(|of| [b"*?\r\n", &of.concat()[..], b".\r\n"].concat()),
            pairs.prop_map(|of| {
                let content: Vec<u8> = of.iter().flat_map(|(a, b)| [&a[..], b].concat()).collect();
                [format!("%{}\r\n", of.len()).as_bytes(), &content].concat()
            }),
            (inner.clone(), inner).prop_map(|(note, of)| [b"|1\r\n+a\r\n", &note[..], &of].concat()),
        ]
    })
}

proptest! {
    #[test]
    fn as_many_calls_end_as_there_are_replies(replies in prop::collection::vec(any_reply(), 1..12), step in 1..50_usize) {
        let asked = command("EVAL script 0").repeat(replies.len());
        let (shown, read, is_waiting) = read_in(step, &[Client(&asked), Server(&replies.concat())], 1);
        prop_assert_eq!((shown.calls.len(), shown.waits.len(), read, is_waiting), (replies.len(), 1, Ok(()), false));
    }

    #[test]
    fn any_bytes_are_read_or_given_up_alike_however_they_are_cut(
        asked in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"*$\r\n12-GETPING ".to_vec())], 0..300),
        answered in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"*$%>|~=!;.?_+-:\r\n012".to_vec())], 0..300),
        step in 1..40_usize,
    ) {
        let whole = read_in(usize::MAX, &[Client(&asked), Server(&answered)], 1);
        let cut = read_in(step, &[Client(&asked), Server(&answered)], 1);
        prop_assert_eq!((whole.1, whole.2), (cut.1, cut.2));
        prop_assert_eq!(whole.0, cut.0);
    }
}
