//! The time per output token and the gaps of streams of which the server says more than that a piece came.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};

use crate::Protocols;
use lapwing_ledger::{Generation, Ledger, Stamp, Unit};

const MS: u64 = 1_000_000;

/// Reads a stream of documents, each at a number of milliseconds, in answer to `request`.
fn read(path: &str, request: &Value, documents: &[(u64, Value)]) -> (Generation, Option<u64>) {
    let protocols = Protocols::default();
    let head = |kind| HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
    let mut reader = protocols.open(&protocols.detect(&Method::POST, path), &head("application/json")).unwrap();
    reader.request(request.to_string().as_bytes());
    reader.response_head(200, &head("text/event-stream"));
    for (at_ms, document) in documents {
        reader.response(format!("data: {document}\n\n").as_bytes(), at_ms * MS);
    }
    let mut ledger = Ledger::open(Stamp::now(), 0);
    reader.close(&mut ledger);
    let generation = *ledger.generation.unwrap();
    let pace = ledger.work.get(Unit::OutputToken).and_then(|(tokens, _)| generation.per_output_token_ns(tokens));
    (generation, pace)
}

fn chat(at_ms: u64, delta: Value) -> (u64, Value) {
    (at_ms, json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

fn text(at_ms: u64) -> (u64, Value) {
    chat(at_ms, json!({"content": "x"}))
}

/// Eleven visible tokens, 20 ms apart, after `before`; then the usage.
fn eleven(before: &[(u64, Value)], usage: Value) -> Vec<(u64, Value)> {
    let tokens = (0..11).map(|n| text(5_000 + 20 * n));
    before.iter().cloned().chain(tokens).chain([(5_300, json!({"choices": [], "usage": usage}))]).collect()
}

const CHAT: &str = "/v1/chat/completions";

#[test]
fn hidden_reasoning_has_no_part_in_the_pace() {
    let pace = |request: Value, documents: &[(u64, Value)]| read(CHAT, &request, documents).1.map(|ns| ns / 1_000);
    let hidden = json!({"completion_tokens": 1_011, "completion_tokens_details": {"reasoning_tokens": 1_000}});
    assert_eq!(pace(json!({}), &eleven(&[], hidden.clone())), Some(20_000));
    assert_eq!(
        pace(json!({}), &eleven(&[], json!({"completion_tokens": 1_011, "reasoning_tokens": 1_000}))),
        Some(20_000),
        "SGLang"
    );
    assert_eq!(pace(json!({}), &eleven(&[], json!({"completion_tokens": 11, "completion_tokens_details": null}))), Some(20_000));
    // streamed: all tokens are seen, whatever the details say
    for name in ["reasoning_content", "reasoning"] {
        let thought = [chat(190, json!({name: "hm"})), chat(2_000, json!({name: "hm"}))];
        assert_eq!(pace(json!({}), &eleven(&thought, hidden.clone())), Some((5_200 - 190) * 1_000 / 1_010), "{name}");
    }
    // reasoning that is part of the content: more pieces came than there would be visible tokens
    let inside = json!({"completion_tokens": 11, "completion_tokens_details": {"reasoning_tokens": 6}});
    assert_eq!(pace(json!({}), &eleven(&[], inside)), Some(20_000));
    // withheld, and the server does not say how much
    let usage = json!({"completion_tokens": 1_011});
    assert_eq!(pace(json!({"include_reasoning": false}), &eleven(&[], usage.clone())), None);
    assert_eq!(pace(json!({"reasoning": {"exclude": true}}), &eleven(&[], usage.clone())), None);
    assert_eq!(pace(json!({"include_reasoning": true}), &eleven(&[], usage)), Some(200_000 / 1_010));
    assert_eq!(pace(json!({"include_reasoning": false}), &eleven(&[], hidden)), Some(20_000));
    // predicted text that the model rejected was never sent
    let rejected = json!({"completion_tokens": 51, "completion_tokens_details": {"rejected_prediction_tokens": 40}});
    assert_eq!(pace(json!({}), &eleven(&[], rejected)), Some(20_000));
    // several sequences at once have no pace
    let two: Vec<_> = (0..4).map(|n| (n, json!({"choices": [{"index": n % 2, "delta": {"content": "x"}}]}))).collect();
    assert_eq!(read(CHAT, &json!({"n": 2}), &two).0.gaps_us, [0_u32; 0]);
}

#[test]
fn a_summary_of_the_reasoning_is_no_reasoning() {
    let event = |at_ms: u64, kind: &str| (at_ms, json!({"type": kind, "delta": "x"}));
    let stream = |first: &str| {
        let mut events = vec![event(100, first), event(200, first)];
        events.extend((0..11).map(|n| event(5_000 + 20 * n, "response.output_text.delta")));
        let usage = json!({"output_tokens": 1_011, "output_tokens_details": {"reasoning_tokens": 1_000}});
        events.push((5_300, json!({"type": "response.completed", "response": {"usage": usage}})));
        let (generation, pace) = read("/v1/responses", &json!({}), &events);
        (generation.first_ns.map(|ns| ns / MS), pace.map(|ns| ns / 1_000))
    };
    assert_eq!(stream("response.reasoning_summary_text.delta"), (Some(100), Some(20_000)));
    assert_eq!(stream("response.reasoning_text.delta"), (Some(100), Some(5_100_000 / 1_010)));
}

#[test]
fn a_gap_is_divided_by_the_tokens_that_the_server_says_came_after_it() {
    let counted = |so_far: u64| {
        move |(at_ms, mut document): (u64, Value)| {
            document["usage"] = json!({"completion_tokens": so_far});
            (at_ms, document)
        }
    };
    let gaps = |path: &str, documents: &[(u64, Value)]| read(path, &json!({}), documents).0.gaps_us;
    // vLLM, `continuous_usage_stats`: two tokens, then four, then one that has no text yet and one with it
    let stream = [counted(2)(text(10)), counted(6)(text(50)), counted(7)(chat(55, json!({}))), counted(8)(text(70))];
    assert_eq!(gaps(CHAT, &stream), [10_000, 10_000, 10_000, 10_000, 10_000, 10_000]);
    // the same, and the total at the end only: a piece is one token as far as is known
    assert_eq!(gaps(CHAT, &[text(10), text(50), counted(8)(text(70))]), [40_000, 20_000]);
    // hidden reasoning is not what came
    let hidden = |so_far: u64, hidden: u64| {
        move |(at_ms, mut document): (u64, Value)| {
            let details = json!({"reasoning_tokens": hidden});
            document["usage"] = json!({"completion_tokens": so_far, "completion_tokens_details": details});
            (at_ms, document)
        }
    };
    assert_eq!(gaps(CHAT, &[hidden(101, 100)(text(10)), hidden(203, 200)(text(50))]), [20_000, 20_000]);
    // llama.cpp, `timings_per_token`, and its own route
    let timed = |at_ms: u64, n: u64| (at_ms, json!({"choices": [{"delta": {"content": "x"}}], "timings": {"predicted_n": n}}));
    assert_eq!(gaps(CHAT, &[timed(10, 1), timed(40, 4)]), [10_000; 3]);
    let own = |at_ms: u64, n: u64| (at_ms, json!({"index": 0, "content": "x", "stop": false, "tokens_predicted": n}));
    assert_eq!(gaps("/completion", &[own(10, 3), own(30, 5)]), [10_000; 2]);
    let ids = |at_ms: u64, ids: &[u64]| (at_ms, json!({"index": 0, "content": "x", "stop": false, "tokens": ids}));
    assert_eq!(gaps("/completion", &[ids(10, &[1]), ids(30, &[5, 6])]), [10_000; 2]);
    assert_eq!(gaps("/completion", &[ids(10, &[]), ids(30, &[])]), [20_000]);
    // vLLM, `return_token_ids`, and log probabilities, which have an entry for each token
    let listed = |at_ms: u64, tokens: Value| (at_ms, json!({"choices": [{"delta": {"content": "x"}, "token_ids": tokens}]}));
    assert_eq!(gaps(CHAT, &[listed(10, json!([1])), listed(50, json!([2, 3, 4, 5]))]), [10_000; 4]);
    let probable = |at_ms: u64, tokens: Value| (at_ms, json!({"choices": [{"text": "x", "logprobs": {"tokens": tokens}}]}));
    assert_eq!(gaps("/v1/completions", &[probable(10, json!(["a"])), probable(30, json!(["b", "c"]))]), [10_000; 2]);
    // SGLang's own route: text and count are those so far
    let so_far = |at_ms: u64, n: u64| (at_ms, json!({"text": "xx", "meta_info": {"completion_tokens": n}}));
    assert_eq!(gaps("/generate", &[so_far(10, 8), so_far(90, 16)]), [10_000; 8]);
    // TGI: an event is a token
    let token = |at_ms: u64, id: u64| (at_ms, json!({"token": {"id": id, "text": "x"}, "generated_text": null, "details": null}));
    assert_eq!(gaps("/generate_stream", &[token(10, 900), token(30, 7)]), [20_000]);
    // a count that falls or stands still says nothing
    assert_eq!(gaps(CHAT, &[counted(9)(text(10)), counted(9)(text(20)), counted(3)(text(40))]), [10_000, 20_000]);
}

#[test]
fn an_absurd_count_is_bounded() {
    let (generation, _) = read(
        CHAT,
        &json!({}),
        &[
            (1, json!({"choices": [{"delta": {"content": "x"}}], "usage": {"completion_tokens": 1}})),
            (2, json!({"choices": [{"delta": {"content": "x"}}], "usage": {"completion_tokens": 8_000_000_000_000_000_u64}})),
        ],
    );
    assert_eq!(generation.gaps_us.len(), Generation::GAPS);
    assert!(generation.gaps_dropped > 1 << 50);
}
