//! The cutter's output is what the server would have sent without the option, however the stream is split.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::samples::{any_spacing, any_value, spaced};
use super::*;

/// How servers answer to `include_usage`.
#[derive(Clone, Copy, Debug)]
enum Server {
    /// `OpenAI`'s word: null in every chunk, and a chunk with the usage.
    OpenAi,
    /// vLLM: no nulls, and metrics in the last chunk.
    Vllm,
    /// `SGLang`: nulls, asked or not.
    Sglang,
    /// Ollama's text completions: a usage of zeros in every chunk.
    Zeros,
    /// A server that does not know the option, and sends usage with the last choice.
    Ignoring,
    /// One that sends the usage unasked.
    Unasked,
}

#[derive(Clone, Debug)]
struct Sample {
    server: Server,
    chunks: Vec<(Value, bool)>,
    at: usize,
    spacing: u8,
    line: &'static str,
    done: bool,
}

fn any_sample() -> impl Strategy<Value = Sample> {
    use Server::{Ignoring, OpenAi, Sglang, Unasked, Vllm, Zeros};
    let server = prop::sample::select(vec![OpenAi, Vllm, Sglang, Zeros, Ignoring, Unasked]);
    let chunks = prop::collection::vec((any_value(), any::<bool>()), 1..6);
    let spacing = any_spacing().prop_filter("one line", |spacing| *spacing < 2);
    (server, chunks, 0..4_usize, spacing, prop::sample::select(vec!["\n", "\r\n"]), any::<bool>())
        .prop_map(|(server, chunks, at, spacing, line, done)| Sample { server, chunks, at, spacing, line, done })
}

impl Sample {
    /// What the server sends.
    fn stream(&self, asked: bool) -> Vec<u8> {
        let mut text = String::new();
        let line = self.line;
        let usage = json!({"prompt_tokens": 3, "completion_tokens": 5});
        let zeros = json!({"prompt_tokens": 0, "completion_tokens": 0});
        for (n, (content, comment)) in self.chunks.iter().enumerate() {
            if *comment {
                text.push_str(&format!(": ping{line}{line}"));
            }
            let mut members = vec![
                ("id".to_owned(), json!("c")),
                ("choices".to_owned(), json!([{"index": 0, "delta": {"content": content}}])),
                ("created".to_owned(), json!(n)),
            ];
            let beside = match self.server {
                Server::OpenAi if asked => Some(Value::Null),
                Server::Sglang => Some(Value::Null),
                Server::Zeros if asked => Some(zeros.clone()),
                Server::Ignoring if n + 1 == self.chunks.len() => Some(usage.clone()),
                _ => None,
            };
            if let Some(beside) = beside {
                members.insert(self.at, ("usage".to_owned(), beside));
            }
            text.push_str(&format!("data: {}{line}{line}", spaced(&members, self.spacing)));
        }
        let sends_usage = match self.server {
            Server::Ignoring => false,
            Server::Unasked => true,
            _ => asked,
        };
        if sends_usage {
            let mut members = vec![("choices".to_owned(), json!([])), ("usage".to_owned(), usage)];
            if matches!(self.server, Server::Vllm) {
                members.push(("metrics".to_owned(), json!({"queue_time_ms": 1.5})));
            }
            text.push_str(&format!("data: {}{line}{line}", spaced(&members, self.spacing)));
        }
        if self.done {
            text.push_str(&format!("data: [DONE]{line}{line}"));
        }
        text.into_bytes()
    }

    fn style(&self) -> UsageStyle {
        match self.server {
            Server::OpenAi | Server::Vllm | Server::Zeros => UsageStyle::Plain,
            Server::Sglang | Server::Ignoring => UsageStyle::Marked,
            Server::Unasked => UsageStyle::Unasked,
        }
    }
}

/// What passes of `stream`, sent in pieces that end at `cuts`; checks that nothing is held beyond an event.
fn cut(stream: &[u8], style: UsageStyle, cuts: &[prop::sample::Index]) -> (Vec<u8>, Option<EventStreamError>) {
    let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).chain([0, stream.len()]).collect();
    at.sort_unstable();
    let (mut remover, mut passed) = (UsageRemover::new(style), Vec::new());
    for ends in at.windows(2) {
        let (bytes, fault) = remover.push(&stream[ends[0]..ends[1]]);
        passed.extend_from_slice(&bytes);
        if fault.is_some() {
            assert!(remover.is_empty());
            passed.extend_from_slice(&stream[ends[1]..]);
            return (passed, fault);
        }
        if stream[..ends[1]].ends_with(b"\n\n") || stream[..ends[1]].ends_with(b"\n\r\n") {
            assert!(remover.is_empty(), "an event is held back");
        }
    }
    passed.extend_from_slice(&remover.end());
    (passed, None)
}

fn learnt(stream: &[u8], size: usize) -> Option<UsageStyle> {
    let mut detector = UsageStyleDetector::default();
    stream.chunks(size).find_map(|piece| detector.push(piece).unwrap())
}

proptest! {
    #[test]
    fn what_passes_is_what_would_have_been_sent(
        sample in any_sample(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let plain = sample.stream(false);
        let (passed, fault) = cut(&sample.stream(true), sample.style(), &cuts);
        prop_assert_eq!(fault, None);
        prop_assert_eq!(String::from_utf8(passed).unwrap(), String::from_utf8(plain).unwrap());
    }

    #[test]
    fn a_habit_is_learnt_from_one_whole_stream(sample in any_sample(), size in 1..300_usize) {
        prop_assert_eq!(learnt(&sample.stream(false), size), sample.done.then(|| sample.style()));
    }

    #[test]
    fn any_bytes_pass_the_same_however_split(
        parts in prop::collection::vec(prop_oneof![
            Just("data: "), Just("\n"), Just("\r\n"), Just("\n\n"), Just(": x"), Just("event: y"), Just("[DONE]"),
            Just(r#"{"choices":[],"usage":{}}"#), Just(r#"{"choices":[1],"usage":null}"#), Just("{"), Just("\r"), Just("é"),
        ], 0..24),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let stream = parts.concat().into_bytes();
        let (whole, _) = cut(&stream, UsageStyle::Plain, &[]);
        let (split, _) = cut(&stream, UsageStyle::Plain, &cuts);
        prop_assert_eq!(split, whole);
        let _ = UsageStyleDetector::default().push(&stream);
        let unchanged = cut(&stream, UsageStyle::Unasked, &cuts).0;
        prop_assert_eq!(unchanged, stream);
    }
}

#[test]
fn the_timings_of_llama_cpp_stay_in_the_last_chunk() {
    let asked = "data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"object\":\"chunk\"}\n\n\
                 data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1},\"timings\":{\"prompt_ms\":2.5}}\n\ndata: [DONE]\n\n";
    let plain = "data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"object\":\"chunk\",\"timings\":{\"prompt_ms\":2.5}}\n\n\
                 data: [DONE]\n\n";
    assert_eq!(cut(asked.as_bytes(), UsageStyle::Plain, &[]).0, plain.as_bytes());
    // with nulls to cut before it
    let asked = asked.replace(",\"object\"", ",\"usage\":null,\"object\"");
    assert_eq!(cut(asked.as_bytes(), UsageStyle::Plain, &[]).0, plain.as_bytes());
}

#[test]
fn what_cannot_be_read_passes_with_all_behind_it() {
    let after = "data: {\"choices\":[],\"usage\":{}}\n\n";
    for (before, expected) in [
        ("data: {\"choices\":\n\n", EventStreamError::NotJson),
        ("data: hello\n\n", EventStreamError::NotJson),
        ("data: {}\r\rdata: {}\n\n", EventStreamError::LoneReturn),
    ] {
        let stream = format!("{before}{after}");
        assert_eq!(cut(stream.as_bytes(), UsageStyle::Plain, &[]), (stream.clone().into_bytes(), Some(expected)));
    }
    let large = format!("data: {{\"a\":\"{}\"}}\n\n{after}", "x".repeat(MAX_EVENT_BYTES));
    assert_eq!(cut(large.as_bytes(), UsageStyle::Plain, &[]).1, Some(EventStreamError::TooLarge));
    assert!(cut(large.as_bytes(), UsageStyle::Plain, &[]).0 == large.as_bytes());
    assert_eq!(UsageStyleDetector::default().push(large.as_bytes()), Err(EventStreamError::TooLarge));
}

#[test]
fn only_what_may_be_cut_is_held() {
    let mut remover = UsageRemover::new(UsageStyle::Plain);
    let mut passes = |bytes: &str| String::from_utf8(remover.push(bytes.as_bytes()).0.to_vec()).unwrap();
    assert_eq!(passes(": ping\n"), ": ping\n");
    assert_eq!(passes("\n"), "\n");
    assert_eq!(passes("data: {}\n"), "");
    assert_eq!(passes("\n: a"), "data: {}\n\n");
    assert_eq!(passes("\ndata:\n\n"), ": a\ndata:\n\n");
    assert_eq!(passes("data: {}\ndata: {}\n\n"), "data: {}\ndata: {}\n\n");
    assert_eq!(passes("event: x\n"), "");
    assert_eq!(remover.end(), "event: x\n");
    assert!(remover.is_empty());
    assert_eq!(UsageRemover::new(UsageStyle::Plain).end(), "");
}
