//! Keys of pairs of requests that are nearly the same: equal where the same is asked, different where one thing is not.

mod case;

use bytes::Bytes;
use http::{HeaderName, Request};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use self::case::Case;
use super::*;
use crate::generation::CacheGenerations;

const MAKER: KeyMaker = KeyMaker::new([42; 32]);

fn rules(form: KeyForm, scope: KeyScope) -> KeyRules {
    KeyRules { form, scope, vary: Box::new([HeaderName::from_static("x-locale")]) }
}

/// The key of a rendering of a case.
fn key(case: &Case, rng: &mut StdRng, rules: &KeyRules) -> KeyedRequest {
    let generations = CacheGenerations::default();
    (0..case.generation).for_each(|_| generations.renew());
    (0..case.model_generation).for_each(|_| generations.renew_model(&case.model));
    let (head, body) = case.render(rng);
    let context = KeyContext {
        pool: &case.pool,
        model: Some(&case.model),
        version: case.version.as_deref(),
        identity: case.identity.as_deref(),
        generation: generations.current(Some(&case.model)),
    };
    // in pieces, as it comes
    let cut = rng.random_range(0..=body.len());
    MAKER.key(&head, &[Bytes::copy_from_slice(&body[..cut]), Bytes::copy_from_slice(&body[cut..])], context, rules)
}

fn check_pairs(pairs: u64, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut equal, mut different) = (0, 0);
    for at in 0..pairs {
        let scope = if at % 3 == 0 { KeyScope::Shared } else { KeyScope::Credentials };
        let rules = rules(KeyForm::Tensors, scope);
        let case = Case::generate(&mut rng);
        let one = key(&case, &mut rng, &rules);
        assert_eq!(one.form, KeyForm::Tensors, "{case:?}");
        if at % 2 == 0 {
            let mut again = case.clone();
            again.id = Case::other_id(&mut rng);
            assert_eq!(key(&again, &mut rng, &rules).key, one.key, "{case:?}");
            equal += 1;
        } else {
            let mut other = case.clone();
            let what = other.change(&mut rng, scope == KeyScope::Shared);
            assert_ne!(key(&other, &mut rng, &rules).key, one.key, "{what}: {case:?} {other:?}");
            different += 1;
        }
    }
    assert!(equal > pairs / 3 && different > pairs / 3);
}

#[test]
fn of_many_pairs_none_is_confused() {
    check_pairs(100_000, 1);
}

/// In a release build, with `--ignored`.
#[test]
#[ignore = "10 million pairs take minutes"]
fn of_ten_million_pairs_none_is_confused() {
    (0..100).for_each(|seed| check_pairs(100_000, 1_000 + seed));
}

fn asked(form: KeyForm, headers: &[(&'static str, &'static str)], body: &str) -> KeyedRequest {
    let head = headers.iter().fold(Request::post("/v2/models/m/infer"), |head, (name, value)| head.header(*name, *value));
    MAKER.key(
        &head.body(()).unwrap(),
        &[Bytes::copy_from_slice(body.as_bytes())],
        KeyContext::default(),
        &rules(form, KeyScope::Credentials),
    )
}

#[test]
fn what_is_not_understood_is_taken_as_its_bytes() {
    let good = r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}]}"#;
    assert_eq!(asked(KeyForm::Tensors, &[], good).form, KeyForm::Tensors);
    assert_eq!(asked(KeyForm::Bytes, &[], good).form, KeyForm::Bytes);
    assert_ne!(asked(KeyForm::Tensors, &[], good).key, asked(KeyForm::Bytes, &[], good).key);
    let bad = [
        good.replace("[1.0]", "[1.0, 2.0]"),
        good.replace("[1.0]", "[NaN]"),
        good.replace("FP32", "FP8"),
        good.replace("\"name\": \"x\", ", ""),
        good.replace("[1],", "[-1],"),
        good.replace("[1],", "[1], \"shape\": [1],"),
        good.replace("{\"inputs\"", "{\"id\": 7, \"inputs\""),
        good.replace("{\"inputs\"", "{\"id\": \"a\", \"id\": \"b\", \"inputs\""),
        good.replace("\"data\": [1.0]", "\"parameters\": {\"binary_data_size\": 4}"),
        good.replace("\"data\"", "\"parameters\": {\"binary_data_size\": 4}, \"data\""),
        good.replace("\"data\": [1.0]", "\"parameters\": {\"shared_memory_region\": \"r\"}"),
        format!("{good} x"),
        "[]".into(),
        String::new(),
        r#"{"instances": [[1.0]]}"#.into(),
    ];
    for bad in bad {
        let (tensors, bytes) = (asked(KeyForm::Tensors, &[], &bad), asked(KeyForm::Bytes, &[], &bad));
        assert_eq!((tensors.form, tensors.key), (KeyForm::Bytes, bytes.key), "{bad}");
        assert_ne!(asked(KeyForm::Tensors, &[], &format!("{bad} ")).key, tensors.key, "{bad}: a byte more");
    }
    for headers in [[("content-encoding", "gzip")], [("content-type", "text/csv")], [("inference-header-content-length", "10")]] {
        assert_eq!(asked(KeyForm::Tensors, &headers, good).form, KeyForm::Bytes, "{headers:?}");
    }
}

#[test]
fn an_id_is_returned_as_it_was_written() {
    let of = |id: &str| asked(KeyForm::Tensors, &[], &format!(r#"{{{id}"inputs": []}}"#));
    assert_eq!(of(r#""id": "a\u00e9", "#).id.as_deref(), Some(r#""a\u00e9""#));
    assert_eq!(of("").id, None);
    assert_eq!(of("").key, of(r#""id": "b", "#).key);
}

#[test]
fn bytes_with_another_length_of_their_json_are_another_request() {
    let of = |length: &'static str| asked(KeyForm::Bytes, &[("inference-header-content-length", length)], "{}{}").key;
    assert_ne!(of("2"), of("4"));
    assert_ne!(of("2"), asked(KeyForm::Bytes, &[], "{}{}").key);
}

#[test]
fn a_value_in_two_fields_is_not_one_of_both() {
    let of = |headers: &[(&'static str, &'static str)]| asked(KeyForm::Bytes, headers, "").key;
    let all = [
        of(&[]),
        of(&[("cookie", "")]),
        of(&[("cookie", "a; b")]),
        of(&[("cookie", "a"), ("cookie", "b")]),
        of(&[("cookie", "b"), ("cookie", "a")]),
        of(&[("x-api-key", "a; b")]),
        of(&[("cookie", "a"), ("x-api-key", "b")]),
        of(&[("cookie", "b"), ("x-api-key", "a")]),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "{at}");
    }
    assert_eq!(of(&[("cookie", "a"), ("x-api-key", "b")]), of(&[("x-api-key", "b"), ("x-request-id", "7"), ("cookie", "a")]));
}

#[test]
fn hostile_documents_are_read_once() {
    // a megabyte each: what is deep, what has many values, and what has many keys
    let deep = format!(r#"{{"parameters": {}"#, "[".repeat(1 << 20));
    let wide = format!(r#"{{"parameters": [{}1]}}"#, "1,".repeat(1 << 19));
    let keys = (0..100_000).fold(String::from("{"), |text, at| text + &format!("\"{at}\":1,")) + "\"inputs\":[]}";
    let tensors = format!(r#"{{"inputs": [{}{{}}]}}"#, "{\"name\":\"\"},".repeat(80_000));
    let data = format!(r#"{{"inputs": [{{"name": "x", "datatype": "FP32", "shape": [1], "data": {}1]}}]}}"#, "[".repeat(1 << 20));
    for body in [deep, wide, keys, tensors, data] {
        assert_eq!(asked(KeyForm::Tensors, &[], &body).form, KeyForm::Bytes, "{}", &body[..40]);
    }
}
