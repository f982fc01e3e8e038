//! Answers that a broken or hostile server may send: nothing panics, and everything has a bound.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use lapwing_protocol::OutputKind;

const KINDS: [OutputKind; 4] = [OutputKind::Tensors, OutputKind::Embeddings, OutputKind::GeneratedText, OutputKind::Other];

fn undecodable(kind: OutputKind, primary: &TestAnswer, candidate: &TestAnswer) -> String {
    let found = compare(kind, primary, candidate);
    assert_eq!(differing(&found), [("body".into(), vec!["undecodable"])]);
    found.fields[0].detail.as_ref().unwrap().candidate.clone()
}

#[test]
fn claims_without_data_are_refused() {
    let tensor = |shape: &str, data: &str| {
        TestAnswer::json(format!(r#"{{"outputs":[{{"name":"y","datatype":"FP32","shape":{shape},"data":{data}}}]}}"#))
    };
    let primary = tensor("[1]", "[1.0]");
    for (shape, data, reason) in [
        ("[10000000,1000000]", "[1.0]", "does not fit 1 elements"),
        ("[4294967296,4294967296,4294967296]", "[]", "does not fit 0 elements"),
        ("[-1]", "[1.0]", "a dimension that is no count"),
        ("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[1.0]", "17 dimensions"),
        ("[1]", "[\"x\"]", "data of another type"),
        ("3", "[1.0]", "no shape"),
    ] {
        let said = undecodable(OutputKind::Tensors, &primary, &tensor(shape, data));
        assert!(said.contains(reason), "{said}");
    }
    let binary = |body: &str, length: usize| {
        TestAnswer::new("application/octet-stream", body.to_owned()).with("inference-header-content-length", length)
    };
    let head = r#"{"outputs":[{"name":"y","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4000000000}}]}"#;
    assert!(undecodable(OutputKind::Tensors, &primary, &binary(head, head.len())).contains("cut off"));
    assert!(undecodable(OutputKind::Tensors, &primary, &binary(head, 1000)).contains("longer than the body"));
}

#[test]
fn nesting_repeated_keys_and_other_numbers() {
    let plain = TestAnswer::json(r#"{"a":1}"#);
    let deep = TestAnswer::json("[".repeat(1_000_000));
    assert!(undecodable(OutputKind::Other, &plain, &deep).contains("deeper than 128"));
    // the last of repeated keys counts, as in most parsers
    let repeated = TestAnswer::json(r#"{"a":2,"a":{"b":[3]},"a":1}"#);
    assert_eq!(compare(OutputKind::Other, &plain, &repeated).result, ComparisonResult::Same);
    assert_eq!(differing(&compare(OutputKind::Other, &plain, &TestAnswer::json("{\"a\":NaN}"))), [("$.a".into(), vec!["value"])]);
    let invalid = TestAnswer::new("application/json", &b"{\"a\":\"\xff\"}"[..]);
    assert_eq!(differing(&compare(OutputKind::Other, &plain, &invalid)), [("$.a".into(), vec!["structure"])]);
    assert!(undecodable(OutputKind::Other, &plain, &TestAnswer::json("<html>")).contains("not JSON"));
    // integers are exact beyond doubles
    let (a, b) = (TestAnswer::json("[9007199254740993]"), TestAnswer::json("[9007199254740992]"));
    let config = Config { tolerance: Tolerance::of(0.5, 0.0), ..Config::default() };
    assert_eq!(differing(&compare_by(&config, OutputKind::Other, &a, &b)), [("$[]".into(), vec!["value"])]);
}

#[test]
fn bombs_and_cut_answers_are_counted_apart() {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&vec![b' '; 32 << 20]).unwrap();
    let bomb = TestAnswer::new("application/json", encoder.finish().unwrap()).with("content-encoding", "gzip");
    let plain = TestAnswer::json("1");
    let result = |candidate: &TestAnswer| compare(OutputKind::Other, &plain, candidate).result;
    assert_eq!(result(&bomb), ComparisonResult::Incomparable(Incomparable::TooLarge));
    assert_eq!(result(&TestAnswer::json(" ".repeat(17 << 20))), ComparisonResult::Incomparable(Incomparable::TooLarge));
    let cut = TestAnswer { is_complete: false, ..TestAnswer::json("1") };
    assert_eq!(result(&cut), ComparisonResult::Incomparable(Incomparable::Incomplete));
}

#[test]
fn a_megabyte_of_differences_stays_bounded() {
    // 60,000 keys, none on both sides
    let keys = |prefix: &str| -> String {
        let members: Vec<String> = (0..60_000).map(|n| format!("\"{prefix}{n}\":1")).collect();
        format!("{{{}}}", members.join(","))
    };
    let found = compare(OutputKind::Other, &TestAnswer::json(keys("a")), &TestAnswer::json(keys("b")));
    assert_eq!(
        (found.fields.len(), found.fields.iter().all(|field| field.kinds.contains(DifferenceKind::Structure))),
        (MAX_FIELDS, true)
    );
    let mut differences = Comparer::new(&Config::default()).differences("/", false);
    for n in 0..50_u8 {
        let found = compare(
            OutputKind::Other,
            &TestAnswer::json(keys(&format!("a{n}"))),
            &TestAnswer::json(format!("{{\"{}\":1}}", "k".repeat(100_000))),
        );
        differences.record(&found, ComparedWith::Candidate, trace(n), Asked::default());
    }
    let snapshot = differences.snapshot();
    assert_eq!((snapshot.compared, snapshot.mismatches.answers), (50, 50));
    assert!(snapshot.fields.len() <= 97 && snapshot.fields.iter().any(|field| field.field == "(other fields)"));
    assert!(serde_json::to_string(&snapshot).unwrap().len() < 256 << 10);
    // a megabyte of other words: the similarity is bounded, not aligned
    let words = |seed: u64| -> String { (0..250_000_u64).map(|n| format!("{} ", (n * seed) % 997)).collect() };
    let found = compare(OutputKind::Other, &TestAnswer::new("text/plain", words(3)), &TestAnswer::new("text/plain", words(5)));
    assert!(found.fields[0].text.unwrap().is_bound);
}

/// Bytes that look like answers more often than not.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let json = prop::collection::vec(
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"outputs\"",
            "\"name\"",
            "\"shape\"",
            "\"data\"",
            "\"datatype\"",
            "\"FP32\"",
            "\"choices\"",
            "\"delta\"",
            "\"content\"",
            "\"embedding\"",
            "1",
            "-1",
            "1e400",
            "null",
            "data: ",
            "\n\n",
            "\u{0}",
            "\"\\ud800\"",
        ]),
        0..40,
    );
    prop_oneof![json.prop_map(|parts| parts.concat().into_bytes()), prop::collection::vec(any::<u8>(), 0..200)]
}

/// A document of the shape that servers send, with values from a few.
pub(crate) fn document() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value, json};
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        any::<f64>().prop_map(|x| json!(x)),
        "[ab]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_panics_and_equal_bodies_are_the_same(
        a in body(),
        b in body(),
        kind in prop::sample::select(KINDS.to_vec()),
        media in prop::sample::select(vec!["application/json", "text/event-stream", "application/grpc", "application/x-ndjson", "text/plain"]),
        head in prop::option::of(0_usize..200),
        cut in any::<prop::sample::Index>(),
    ) {
        let answer = |body: Vec<u8>| {
            let answer = TestAnswer::new(media, body);
            head.map_or(TestAnswer { ..TestAnswer::new(media, answer.body[0].clone()) }, |head| answer.with("inference-header-content-length", head))
        };
        let (p, c) = (answer(a.clone()), answer(b));
        let config = Config { keep_samples: 1, unordered: vec!["$..data".into()], ..Config::default() };
        let found = compare_by(&config, kind, &p, &c);
        prop_assert_eq!(found.result == ComparisonResult::Different, !found.kinds().is_empty());
        let mut differences = Differences::new(Tolerance::default(), 1, false);
        differences.record(&found, ComparedWith::Candidate, trace(1), Asked::default());
        let _ = (serde_json::to_string(&differences.snapshot()).unwrap(), differences.snapshot().to_string());
        // the same bytes, cut elsewhere
        let mut again = answer(a);
        let whole = again.body.remove(0);
        let at = if whole.is_empty() { 0 } else { cut.index(whole.len()) };
        again.body = vec![whole.slice(..at), Bytes::new(), whole.slice(at..)];
        prop_assert_eq!(compare_by(&config, kind, &p, &again).result, ComparisonResult::Same);
    }

    #[test]
    fn a_document_is_itself_whatever_its_order(document in document()) {
        // serde_json writes members in the order of their keys; here in reverse
        fn reversed(value: &serde_json::Value) -> String {
            use serde_json::Value;
            match value {
                Value::Object(members) => {
                    let members: Vec<String> =
                        members.iter().rev().map(|(key, member)| format!("{}:{}", Value::from(key.as_str()), reversed(member))).collect();
                    format!("{{{}}}", members.join(","))
                }
                Value::Array(elements) => format!("[{}]", elements.iter().rev().map(reversed).collect::<Vec<_>>().join(", ")),
                other => other.to_string(),
            }
        }
        let config = Config { unordered: vec!["$".into(), "$..*".into(), "$..[]".into()], ..Config::default() };
        let (p, c) = (TestAnswer::json(document.to_string()), TestAnswer::json(reversed(&document)));
        let found = compare_by(&config, OutputKind::Other, &p, &c);
        prop_assert!(found.result == ComparisonResult::Same, "{:?}", found.fields);
        // and in order, by the strictest tolerance
        let strict = Config { tolerance: Tolerance::of(0.0, 0.0), ..Config::default() };
        prop_assert_eq!(compare_by(&strict, OutputKind::Other, &p, &p).result, ComparisonResult::Same);
    }
}
