//! Accounts: noise, bounds, merging.

use proptest::prelude::*;

use super::*;
use crate::protocol::OutputKind;
use crate::shadow::compare::tests::{TestAnswer, trace};
use crate::shadow::compare::{Comparer, Config};

fn compare(p: &str, c: &str) -> Comparison {
    let (p, c) = (TestAnswer::json(p), TestAnswer::json(c));
    Comparer::new(&Config::default()).compare("/", OutputKind::Other, &p.as_finished(), &c.as_finished())
}

fn account() -> Differences {
    Differences::new(Tolerance::default(), 0)
}

#[test]
fn a_timestamp_is_cleared_by_the_noise_floor() {
    let answer = |created: u64, score: f64| format!(r#"{{"created":{created},"scores":[0.25,{score}]}}"#);
    let mut differences = account();
    for n in 0..1000_u64 {
        // three wrong scores among a thousand
        let score = if n % 400 == 7 { 0.9 } else { 0.5 };
        let found = compare(&answer(1_700_000_000 + n * 7, 0.5), &answer(1_800_000_000 + n * 11, score));
        differences.record(&found, ComparedWith::Candidate, trace((n % 250) as u8 + 1));
    }
    let before = differences.snapshot();
    assert_eq!((before.mismatches.answers, before.mismatches.excused), (1000, 0));
    assert!(before.to_string().contains("was not asked twice"), "{before}");
    for n in 0..20 {
        let found = compare(&answer(1_700_000_000 + n * 7, 0.5), &answer(1_900_000_000 + n * 11, 0.5));
        assert!(n == 0 || differences.mismatch(&found).is_none());
        differences.record(&found, ComparedWith::Itself, trace(1));
    }
    // the noise is known afterwards, and counts for what was recorded before
    let after = differences.snapshot();
    assert_eq!((after.compared, after.different, after.mismatches.answers, after.mismatches.excused), (1000, 1000, 3, 997));
    assert_eq!(after.mismatches.kinds, [("value", 3)].into());
    assert_eq!(after.repeats, RepeatSnapshot { compared: 20, different: 20 });
    let text = after.to_string();
    assert!(text.starts_with("Outputs agree within 1e-3, absolute plus relative, in 99.70 % of 1,000 answers; the 3 that differ:\n  $.scores[]: value in 3 answers; greatest error 4.000e-1 at $.scores[1], row 1: 0.5 against 0.9 (trace "), "{text}");
    assert!(text.contains("Not blamed: $.created (value) differs from itself in 100 % of 20 repeats of the primary."), "{text}");
    assert!(text.contains("\nErrors of $.scores[], of 1,000 answers: 3 above 1e-1 (3 elements), "), "{text}");
    assert!(!text.contains("Errors of $.created"), "{text}");
    let created = after.fields.iter().find(|field| field.field == "$.created").unwrap();
    assert_eq!(created.kinds, [KindSnapshot { kind: DifferenceKind::Value, answers: 1000, repeats: 20, is_noise: true }]);
    // everything adds up: the sets are the different answers
    assert_eq!(after.sets.iter().map(|set| set.answers).sum::<u64>(), after.different);
}

#[test]
fn what_differs_far_more_often_than_the_noise_is_blamed() {
    let mut differences = account();
    let (same, other) = (compare("[1]", "[1]"), compare("[1]", "[2]"));
    for n in 0..1000 {
        let repeat = if n == 0 { &other } else { &same };
        differences.record(repeat, ComparedWith::Itself, trace(1));
        differences.record(if n % 2 == 0 { &other } else { &same }, ComparedWith::Candidate, trace(1));
    }
    assert_eq!(differences.snapshot().mismatches.answers, 500);
    // another kind of difference of a noisy field is no noise
    let shape = compare("[1]", "[\"a\"]");
    assert!(differences.mismatch(&shape) == Some(f64::INFINITY));
}

#[test]
fn an_empty_account_says_so() {
    let snapshot = account().snapshot();
    assert_eq!((snapshot.mismatches.rate, snapshot.to_string().as_str()), (None, "No outputs were compared."));
    let mut differences = account();
    differences.record(&Comparison::incomparable(Incomparable::TooLarge), ComparedWith::Candidate, trace(1));
    assert_eq!(differences.snapshot().to_string(), "No outputs were compared.\nNot compared: 1 (too_large).");
}

#[test]
fn fields_and_sets_without_room_are_counted() {
    let mut differences = account();
    for n in 0..2000 {
        let found = compare(&format!("{{\"k{n}\":1}}"), &format!("{{\"k{n}\":2,\"j{}\":1}}", n % 7));
        differences.record(&found, ComparedWith::Candidate, trace(1));
    }
    let snapshot = differences.snapshot();
    assert_eq!(snapshot.fields.len(), MAX_FIELDS);
    assert!(snapshot.fields.iter().any(|field| field.field == OTHER_FIELDS));
    assert!(snapshot.sets.len() <= MAX_SETS);
    assert_eq!(snapshot.sets.iter().map(|set| set.answers).sum::<u64>() + snapshot.sets_left_out, 2000);
    assert_eq!(snapshot.mismatches.answers, 2000);
}

#[test]
fn infinities_are_written_as_text() {
    let mut differences = account();
    let answer =
        |data: &str| TestAnswer::json(format!(r#"{{"outputs":[{{"name":"y","datatype":"FP32","shape":[2],"data":{data}}}]}}"#));
    let (p, c) = (answer("[1,2]"), answer("[1,null]"));
    let found = Comparer::new(&Config::default()).compare("/", OutputKind::Tensors, &p.as_finished(), &c.as_finished());
    differences.record(&found, ComparedWith::Candidate, trace(1));
    let json = serde_json::to_value(differences.snapshot()).unwrap();
    let field = &json["fields"][0];
    assert_eq!((&field["worst"][0]["error"], &field["worst"][0]["candidate"]), (&"inf".into(), &"NaN".into()));
    assert_eq!(field["numbers"]["least_cosine"], "NaN");
}

proptest! {
    #[test]
    fn any_split_over_pods_gives_the_same_account(
        answers in prop::collection::vec((0_u8..4, 0_u8..4, any::<bool>(), 0_usize..3), 1..40),
    ) {
        let answer = |n: u8| format!(r#"{{"a":{n},"b":["x{}",{}.5],"c{n}":null}}"#, n / 2, n);
        let mut whole = account();
        let mut pods = [account(), account(), account()];
        for (at, (p, c, is_repeat, pod)) in answers.iter().enumerate() {
            let found = compare(&answer(*p), &answer(*c));
            let with = if *is_repeat { ComparedWith::Itself } else { ComparedWith::Candidate };
            whole.record(&found, with, trace(at as u8 + 1));
            pods[*pod].record(&found, with, trace(at as u8 + 1));
        }
        let expected = serde_json::to_string(&whole.snapshot()).unwrap();
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let mut merged = account();
            order.iter().for_each(|pod| merged.merge(&pods[*pod]));
            prop_assert_eq!(&serde_json::to_string(&merged.snapshot()).unwrap(), &expected);
        }
    }
}
