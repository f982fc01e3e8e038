//! Accounts: noise, bounds, merging.

use proptest::prelude::*;

use super::*;
use crate::outputs::tests::{TestAnswer, trace};
use crate::outputs::{Comparer, Config};
use lapwing_protocol::OutputKind;

fn compare(p: &str, c: &str) -> Comparison {
    let (p, c) = (TestAnswer::json(p), TestAnswer::json(c));
    Comparer::new(&Config::default()).compare("/", OutputKind::Other, &p.as_finished(), &c.as_finished())
}

fn account() -> Differences {
    Differences::new(Tolerance::default(), 0, true)
}

/// The verdict, and how many are mismatches, excused and unjudged.
fn judged(differences: &Differences) -> (OutputsVerdict, [u64; 3]) {
    let snapshot = differences.snapshot();
    (snapshot.verdict, [snapshot.mismatches.answers, snapshot.mismatches.excused, snapshot.unjudged.pairs])
}

/// An account of this many answers of both kinds, by a number that runs from 0.
fn account_of(
    repeats: u64,
    answers: u64,
    primary: impl Fn(u64) -> String,
    again: impl Fn(u64) -> String,
    candidate: impl Fn(u64) -> String,
) -> Differences {
    let mut differences = account();
    for n in 0..repeats.max(answers) {
        if n < repeats {
            differences.record(&compare(&primary(n), &again(n)), ComparedWith::Itself, trace(1), Asked::default());
        }
        if n < answers {
            differences.record(
                &compare(&primary(n), &candidate(n)),
                ComparedWith::Candidate,
                trace((n % 250) as u8),
                Asked::default(),
            );
        }
    }
    differences
}

/// A number from −1 to 1 that looks random.
fn noise(n: u64) -> f64 {
    let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 40) as f64 / f64::from(1 << 23) - 1.0
}

#[test]
fn an_id_is_cleared_by_the_noise_floor() {
    let answer = |id: u64, score: f64| {
        format!(r#"{{"id":"req-{:016x}","scores":[0.25,{score}]}}"#, id.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    };
    let mut differences = account();
    for n in 0..1000_u64 {
        // three wrong scores among a thousand
        let score = if n % 400 == 7 { 0.9 } else { 0.5 };
        let found = compare(&answer(n, 0.5), &answer(n + 5_000, score));
        differences.record(&found, ComparedWith::Candidate, trace((n % 250) as u8 + 1), Asked::default());
    }
    // nothing is said before anything is known
    assert_eq!(judged(&differences), (OutputsVerdict::CannotBeCompared, [0, 0, 1000]));
    let text = differences.snapshot().to_string();
    assert!(
        text.starts_with("Outputs cannot be compared in any of 1,000 answers (the upstream was asked twice too rarely"),
        "{text}"
    );
    for n in 0..20 {
        let found = compare(&answer(n, 0.5), &answer(n + 9_000, 0.5));
        differences.record(&found, ComparedWith::Itself, trace(1), Asked::default());
    }
    // the noise is known afterwards, and counts for what was recorded before
    let after = differences.snapshot();
    assert_eq!(judged(&differences), (OutputsVerdict::Differ, [3, 997, 0]));
    assert_eq!((after.compared, after.different, &after.mismatches.kinds), (1000, 1000, &[("value", 3)].into()));
    assert_eq!(after.repeats, RepeatSnapshot { compared: 20, different: 20 });
    let text = after.to_string();
    assert!(text.starts_with("Outputs agree within 1e-3 of their scale plus 1e-3 of the value in 99.70 % of 1,000 answers, 99.70 % only within the upstream's own noise; the 3 that differ:\n  $.scores[]: value in 3 answers; greatest error 4.000e-1 at $.scores[1], row 1: 0.5 against 0.9 (trace "), "{text}");
    assert!(text.contains("Not blamed: $.id (text) differs from itself in 100 % of 20 repeats of the primary"), "{text}");
    assert!(text.contains("\nErrors of $.scores[], of 1,000 answers: 3 above 1e-1 (3 elements), "), "{text}");
    // everything adds up: the sets are the different answers
    assert_eq!(after.sets.iter().map(|set| set.answers).sum::<u64>(), after.different);
}

#[test]
fn noise_excuses_its_own_size_and_not_a_hundred_times_it() {
    let near = |n: u64, value: f64| format!(r#"{{"score":{}}}"#, value + 0.02 * noise(n));
    let of = |value: f64| account_of(60, 400, |n| near(n, 0.5), |n| near(n + 7_000, 0.5), move |n| near(n + 9_000, value));
    let (verdict, [mismatches, excused, unjudged]) = judged(&of(0.5));
    assert_eq!((verdict, mismatches, unjudged), (OutputsVerdict::Agree, 0, 0));
    assert!(excused > 300, "{excused}");
    for wrong in [50.0, 1.0, 0.25, 0.0] {
        assert_eq!(judged(&of(wrong)), (OutputsVerdict::Differ, [400, 0, 0]), "{wrong}");
    }
    // the sentence says how much of it is excused
    let text = of(0.5).snapshot().summary;
    assert!(text.contains(" % only within the upstream's own noise."), "{text}");
}

#[test]
fn what_never_agrees_with_itself_cannot_be_compared() {
    let words = |n: u64| {
        let word = |at: u64| format!("w{}", (noise(n * 31 + at) * 500.0).round());
        format!(r#"{{"text":"{}"}}"#, (0..20).map(word).collect::<Vec<_>>().join(" "))
    };
    let drawn = account_of(40, 200, words, |n| words(n + 5_000), |n| words(n + 9_000));
    let (verdict, [mismatches, ..]) = judged(&drawn);
    assert_eq!((verdict, mismatches), (OutputsVerdict::CannotBeCompared, 0));
    let snapshot = drawn.snapshot();
    assert!(snapshot.summary.starts_with("Outputs cannot be compared in "), "{}", snapshot.summary);
    assert!(snapshot.unjudged.reasons.contains_key("upstream_varies"));
    assert!(snapshot.to_string().contains("shadow.compare.ignore"), "{snapshot}");
    // a number of any size says nothing either, but one beyond all of them does
    let number = |n: u64| format!("[{}]", noise(n));
    assert_eq!(
        judged(&account_of(40, 200, number, |n| number(n + 5_000), |n| number(n + 9_000))).0,
        OutputsVerdict::CannotBeCompared
    );
    let (verdict, [mismatches, ..]) =
        judged(&account_of(40, 200, number, |n| number(n + 5_000), |n| format!("[{}]", 50.0 + noise(n))));
    assert_eq!((verdict, mismatches), (OutputsVerdict::Differ, 200));
    // neither does an error or another structure
    let (verdict, _) = judged(&account_of(40, 200, words, |n| words(n + 5_000), |_| r#"{"error":"x"}"#.to_owned()));
    assert_eq!(verdict, OutputsVerdict::Differ);
}

#[test]
fn one_models_noise_excuses_no_other() {
    let mut differences = account();
    let of = |model| Asked { model, may_be_drawn: false };
    let near = |n: u64| format!("[{}]", 0.5 + 0.02 * noise(n));
    for n in 0..100 {
        differences.record(&compare(&near(n), &near(n + 500)), ComparedWith::Itself, trace(1), of("noisy"));
        differences.record(&compare("[0.5]", "[0.5]"), ComparedWith::Itself, trace(1), of("exact"));
        differences.record(&compare(&near(n), &near(n + 900)), ComparedWith::Candidate, trace(1), of("noisy"));
        differences.record(&compare("[0.5]", "[0.51]"), ComparedWith::Candidate, trace(1), of("exact"));
    }
    let (verdict, [mismatches, excused, unjudged]) = judged(&differences);
    assert_eq!((verdict, mismatches, unjudged), (OutputsVerdict::Differ, 100, 0));
    assert!(excused > 80, "{excused}");
    assert!(differences.snapshot().to_string().contains("$[] (model exact): value in 100 answers"));
}

#[test]
fn scales_are_learnt_from_the_primary() {
    let mut differences = account();
    for n in 0..20 {
        differences.record(
            &compare(&format!("[{}]", 0.4 + 0.01 * f64::from(n)), "[0.5]"),
            ComparedWith::Candidate,
            trace(1),
            Asked::default(),
        );
    }
    let scales = differences.scales("");
    // a score that is small by chance is held to what is usual
    assert!((0.4..0.6).contains(&scales.of("$[]", 1e-9)), "{scales:?}");
    assert_eq!((scales.of("$[]", 7.0), scales.of("other", 0.1)), (7.0, 0.1));
    let comparer = Comparer::new(&Config::default());
    let of = |scales: &FieldScales, p: &str, c: &str| {
        let (p, c) = (TestAnswer::json(p), TestAnswer::json(c));
        let readings = [crate::outputs::AnswerReading::Protocol(OutputKind::Other); 2];
        comparer.compare_as("/", readings, scales, &p.as_finished(), &c.as_finished()).result
    };
    assert_eq!(of(&scales, "[1e-9]", "[3e-9]"), ComparisonResult::Same);
    assert_eq!(of(&FieldScales::default(), "[1e-9]", "[3e-9]"), ComparisonResult::Different);
    assert_eq!(of(&FieldScales::default(), "[1e-4,8e-4]", "[0,0]"), ComparisonResult::Different);
}

#[test]
fn what_differs_far_more_often_than_the_noise_is_blamed() {
    let mut differences = account();
    let (same, other) = (compare("[1]", "[1]"), compare("[1]", "[2]"));
    for n in 0..1000 {
        let repeat = if n == 0 { &other } else { &same };
        differences.record(repeat, ComparedWith::Itself, trace(1), Asked::default());
        differences.record(if n % 2 == 0 { &other } else { &same }, ComparedWith::Candidate, trace(1), Asked::default());
    }
    assert_eq!(differences.snapshot().mismatches.answers, 500);
    // another kind of difference of a noisy field is no noise
    let shape = compare("[1]", "[\"a\"]");
    assert_eq!(differences.judge(&shape, Asked::default()), AnswerJudgement::Mismatch(f64::INFINITY));
}

#[test]
fn an_empty_account_says_so() {
    let snapshot = account().snapshot();
    assert_eq!((snapshot.mismatches.rate, snapshot.to_string().as_str()), (None, "No outputs were compared."));
    let mut differences = account();
    let too_large = Comparison::incomparable(Incomparable::TooLarge);
    differences.record(&too_large, ComparedWith::Candidate, trace(1), Asked::default());
    let expected = "Outputs cannot be compared in any of 1 answers (too large).\nNot compared: 1 (too_large).";
    assert_eq!(differences.snapshot().to_string(), expected);
}

#[test]
fn fields_and_sets_without_room_are_counted() {
    let mut differences = account();
    for n in 0..2000 {
        let found = compare(&format!("{{\"k{n}\":1}}"), &format!("{{\"k{n}\":2,\"j{}\":1}}", n % 7));
        differences.record(&found, ComparedWith::Candidate, trace(1), Asked::default());
    }
    let snapshot = differences.snapshot();
    assert_eq!(snapshot.fields.len(), MAX_FIELDS + 1);
    assert!(snapshot.fields.iter().any(|field| field.field == OTHER_FIELDS));
    assert!(snapshot.sets.len() <= MAX_SETS);
    assert_eq!(snapshot.sets.iter().map(|set| set.answers).sum::<u64>() + snapshot.sets_left_out, 2000);
    // without repeats nothing that differs can be judged
    assert_eq!(snapshot.unjudged.pairs, 2000);
}

#[test]
fn infinities_are_written_as_text() {
    let mut differences = account();
    let answer =
        |data: &str| TestAnswer::json(format!(r#"{{"outputs":[{{"name":"y","datatype":"FP32","shape":[2],"data":{data}}}]}}"#));
    let (p, c) = (answer("[1,2]"), answer("[1,null]"));
    let found = Comparer::new(&Config::default()).compare("/", OutputKind::Tensors, &p.as_finished(), &c.as_finished());
    differences.record(&found, ComparedWith::Candidate, trace(1), Asked::default());
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
            whole.record(&found, with, trace(at as u8 + 1), Asked::default());
            pods[*pod].record(&found, with, trace(at as u8 + 1), Asked::default());
        }
        let expected = serde_json::to_string(&whole.snapshot()).unwrap();
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let mut merged = account();
            order.iter().for_each(|pod| merged.merge(&pods[*pod]));
            prop_assert_eq!(&serde_json::to_string(&merged.snapshot()).unwrap(), &expected);
        }
    }
}
