//! Random commands: nobody can tell from the replies that some came from memory, and no read is older than a write that was answered
//! before it was sent.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::model::{ModelStore, Session};
use super::{Through, command, commands, kept};
use crate::cache::kept::KeptReplies;
use crate::cache::redis::RedisConversation;
use crate::cache::turn::{Outgoing, Turn};
use crate::call::shown::at;

/// A command of few keys, so that reads and writes meet.
fn any_command() -> impl Strategy<Value = String> {
    let key = || "[fx]:[ab]";
    let read = prop_oneof![
        key().prop_map(|key| format!("GET {key}")),
        (key(), key()).prop_map(|(a, b)| format!("mget {a} {b}")),
        key().prop_map(|key| format!("HGET {key} n")),
        (key(), "[nm]").prop_map(|(key, field)| format!("HMGET {key} {field} n")),
        key().prop_map(|key| format!("HGETALL {key}")),
        key().prop_map(|key| format!("EXISTS {key}")),
    ];
    let write = prop_oneof![
        4 => (key(), "[0-9]").prop_map(|(key, text)| format!("SET {key} {text}")),
        2 => (key(), key(), "[0-9]").prop_map(|(a, b, text)| format!("MSET {a} {text} {b} {text}")),
        4 => (key(), "[nm]", "[0-9]").prop_map(|(key, field, text)| format!("HSET {key} {field} {text}")),
        2 => key().prop_map(|key| format!("DEL {key}")),
        1 => (key(), key()).prop_map(|(a, b)| format!("RENAME {a} {b}")),
        1 => Just("FLUSHALL".to_owned()),
        1 => (key(), "[0-9]").prop_map(|(key, text)| format!("EVAL s {key} {text}")),
    ];
    let state = prop::sample::select(vec![
        "SELECT 0",
        "SELECT 1",
        "SELECT 99",
        "HELLO 2",
        "HELLO 3",
        "MULTI",
        "EXEC",
        "EXEC",
        "DISCARD",
        "WATCH f:a",
        "UNWATCH",
        "PING",
        "NEW x",
        "GET",
    ]);
    prop_oneof![8 => read, 3 => write, 2 => state.prop_map(str::to_owned)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Several connections, one after the other, each with a pipeline cut anywhere.
    #[test]
    fn replies_are_those_of_the_store_itself(
        turns in prop::collection::vec((0..3_usize, prop::collection::vec(any_command(), 1..8), 1..60_usize), 1..40),
        absent in prop::sample::select(vec!["pass", "keep"]),
        mode in prop::sample::select(vec!["on", "observe"]),
        max_bytes in prop::sample::select(vec!["64KiB", "8MiB"]),
    ) {
        let mut kept = kept(&format!(r#"{{"mode": "{mode}", "prefixes": ["f:"], "absent": "{absent}", "max_bytes": "{max_bytes}", "max_entry": "64B"}}"#));
        let (mut store, mut plain_store) = (ModelStore::default(), ModelStore::default());
        let mut through: [Through; 3] = Default::default();
        let mut plain: [Session; 3] = Default::default();
        for (which, list, step) in turns {
            let asked = commands(&list.iter().map(String::as_str).collect::<Vec<_>>());
            let expected = plain[which].receive(&asked, &mut plain_store);
            let got = through[which].ask(&asked, step, 1, &mut kept, &mut store);
            prop_assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(&expected), "{:?}", list);
            prop_assert_eq!(&store, &plain_store);
        }
        prop_assert_eq!(kept.figures.differed, 0);
    }

    /// Connections that overlap in any way, with a store that answers late: a read shows all that was written before it was sent, and
    /// all that its connection has seen.
    #[test]
    fn a_read_is_no_older_than_what_was_written_before_it(steps in prop::collection::vec((0..3_usize, 0..10_u8, 0..2_u8), 1..300)) {
        let mut kept = kept(r#"{"mode": "on", "prefixes": ["f:"]}"#);
        let mut store = ModelStore::default();
        let mut lines: [Line; 3] = Default::default();
        let mut truth = Truth::default();
        for (which, what, key) in steps {
            let line = &mut lines[which];
            match what {
                0..=2 => line.send(key, None, &mut kept, &truth),
                3 => {
                    truth.numbers += 1;
                    line.send(key, Some(truth.numbers), &mut kept, &truth);
                }
                4..=7 => line.take_up(&mut store, &mut truth),
                _ => {
                    // its replies arrive
                    let replies = std::mem::take(&mut line.coming);
                    line.conversation.server(&replies, at(1), &mut kept);
                    line.back.extend(replies);
                }
            }
            line.settle(&mut truth);
        }
    }
}

/// What was written, in the order in which the store took it up.
#[derive(Default)]
struct Truth {
    /// How many writes were sent; each writes its number.
    numbers: u64,
    /// The keys and numbers that the store took up.
    log: Vec<(u8, u64)>,
    /// How much of that was answered.
    answered: usize,
}

impl Truth {
    /// After how many writes the store had this one; none for 0.
    fn place(&self, number: u64) -> usize {
        self.log.iter().position(|(_, one)| *one == number).map_or(0, |at| at + 1)
    }
}

/// A command whose reply has not come back.
struct Sent {
    key: u8,
    written: Option<u64>,
    /// How much was written and answered before it was sent.
    before: usize,
}

#[derive(Default)]
struct Line {
    conversation: RedisConversation,
    session: Session,
    /// What the store was asked and has not taken up.
    asked: VecDeque<(u8, Option<u64>)>,
    coming: Vec<u8>,
    back: Vec<u8>,
    open: VecDeque<Sent>,
    /// How much its replies have shown.
    seen: usize,
}

impl Line {
    fn send(&mut self, key: u8, written: Option<u64>, kept: &mut KeptReplies, truth: &Truth) {
        self.open.push_back(Sent { key, written, before: truth.answered });
        let text = written.map_or_else(|| format!("GET f:{key}"), |number| format!("SET f:{key} {number}"));
        let mut out = Outgoing::default();
        self.conversation.client(&command(&text), Turn { now: at(1), room: usize::MAX }, kept, &mut out);
        if !out.to_store.is_empty() {
            self.asked.push_back((key, written));
        }
        self.session.take(&out.to_store);
        self.back.extend(out.answers);
    }

    /// The store takes up one command.
    fn take_up(&mut self, store: &mut ModelStore, truth: &mut Truth) {
        let replies = self.session.step(store);
        if let Some((key, written)) = self.asked.pop_front() {
            truth.log.extend(written.map(|number| (key, number)));
        }
        self.coming.extend(replies);
    }

    /// Looks at the replies that have come back.
    fn settle(&mut self, truth: &mut Truth) {
        while let Some(end) = self.back.windows(2).position(|two| two == b"\r\n") {
            let (head, mut taken, mut number) = (self.back[..end].to_vec(), end + 2, 0);
            if head[0] == b'$' && head != b"$-1" {
                let length: usize = std::str::from_utf8(&head[1..]).unwrap().parse().unwrap();
                number = std::str::from_utf8(&self.back[taken..taken + length]).unwrap().parse().unwrap();
                taken += length + 2;
            }
            self.back.drain(..taken);
            let sent = self.open.pop_front().expect("no reply without a command");
            if let Some(number) = sent.written {
                self.seen = self.seen.max(truth.place(number));
                truth.answered = truth.answered.max(self.seen);
                continue;
            }
            let place = truth.place(number);
            let known = &truth.log[..sent.before.max(self.seen)];
            let least = known.iter().rposition(|(key, _)| *key == sent.key).map_or(0, |at| at + 1);
            assert!(place >= least, "f:{} is {number}, older than {known:?}", sent.key);
            self.seen = self.seen.max(place);
        }
    }
}
