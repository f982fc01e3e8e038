//! What it costs: `cargo test --release -p lapwing-cache -- --ignored --nocapture costs`.

use std::hint::black_box;

use http::Request;

use super::*;
use crate::answerable::AnswerableCheck;
use crate::key::{KeyContext, KeyMaker, KeyRules};
use crate::store::AnswerStore;

/// The least of several runs, each of so many calls, in nanoseconds a call.
fn least_ns(calls: u64, mut call: impl FnMut()) -> u64 {
    let run = |call: &mut dyn FnMut()| {
        let begun = Stamp::now();
        (0..calls).for_each(|_| call());
        begun.elapsed() / calls
    };
    (0..5).map(|_| run(&mut call)).min().unwrap()
}

fn inputs(data: &str) -> String {
    format!(r#"{{"inputs": [{{"name": "x", "datatype": "FP32", "shape": [{}], "data": [{data}]}}]}}"#, data.split(',').count())
}

/// A megabyte each.
fn bodies() -> Vec<(&'static str, String)> {
    vec![
        ("0.5 and so on", inputs(&["0.5"; 1 << 18].join(","))),
        ("numbers of 17 digits", inputs(&["0.12345678901234567"; 52_000].join(","))),
        ("small whole numbers", inputs(&["1"; 1 << 19].join(","))),
        ("deep", format!(r#"{{"parameters": {}"#, "[".repeat(1 << 20))),
        ("wide", format!(r#"{{"parameters": [{}1]}}"#, "1,".repeat(1 << 19))),
        ("tensors", format!(r#"{{"inputs": [{}{{}}]}}"#, "{\"name\":\"\"},".repeat(80_000))),
        ("escapes", format!(r#"{{"id": "{}", "inputs": []}}"#, "\\u0061".repeat(170_000))),
    ]
}

#[test]
#[ignore = "prints times"]
fn costs() {
    let maker = KeyMaker::new([1; 32]);
    let fields = [
        ("host", "models:8000"),
        ("content-type", "application/json"),
        ("accept", "*/*"),
        ("accept-encoding", "gzip, deflate"),
        ("user-agent", "client/1.0"),
        ("authorization", "Bearer 0123456789abcdef0123456789abcdef"),
        ("x-request-id", "0123456789abcdef"),
    ];
    let head = fields
        .iter()
        .fold(Request::post("/v2/models/m/infer"), |head, (name, value)| head.header(*name, *value))
        .body(())
        .unwrap();
    let (bytes, tensors) = (KeyRules::default(), KeyRules { form: KeyForm::Tensors, ..KeyRules::default() });
    let store = AnswerStore::new(64 << 20, 1 << 20);
    for size in [1 << 10, 64 << 10, 1 << 20] {
        let body = [Bytes::from(vec![b'x'; size])];
        let key = |rules| maker.key(&head, &body, KeyContext::default(), rules);
        let keyed = key(&bytes);
        store.put(keyed.key, answer(&keyed, &fields[..4], &vec![b'y'; 1_000], at(0)).unwrap()).unwrap();
        let made_ns = least_ns(50, || drop(black_box(key(&bytes))));
        let found_ns = least_ns(1_000, || drop(black_box(store.get(&keyed.key, &FREE, at(1)))));
        println!("{size} bytes: key {made_ns} ns, found {found_ns} ns");
    }
    let (keyed, check) = (request(KeyForm::Bytes, None), AnswerableCheck::default());
    let stored = answer(&keyed, &fields[..4], &vec![b'y'; 1_000], at(0)).unwrap();
    println!("an answer again: {} ns", least_ns(1_000, || drop(black_box(stored.again(&keyed, at(1), wall())))));
    for (name, body) in bodies() {
        let body = [Bytes::from(body)];
        let key_us = least_ns(1, || drop(black_box(maker.key(&head, &body, KeyContext::default(), &tensors)))) / 1_000;
        let terms_us = least_ns(1, || {
            let _ = black_box(check.terms(&head, &body));
        }) / 1_000;
        println!("{name}, {} bytes: key of tensors {key_us} us, terms {terms_us} us", body[0].len());
    }
}
