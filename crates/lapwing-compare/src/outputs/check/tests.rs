//! Comparisons of texts, beyond what whole answers show.

use super::text::{EditBudget, compare_texts};

fn similarity(a: &str, b: &str) -> f64 {
    compare_texts(a.as_bytes(), b.as_bytes(), &mut EditBudget::default()).similarity
}

#[test]
fn tokens_are_words_marks_and_ideographs() {
    assert_eq!(similarity("one two three four", "one two  three\nfour"), 1.0);
    assert_eq!(similarity("one two three four", "one two 3 four"), 0.75);
    assert_eq!(similarity("yes, no", "yes. no"), 1.0 - 1.0 / 3.0);
    // each ideograph is a token
    assert_eq!(similarity("今日は晴れ", "今日は雨れ"), 0.8);
    assert_eq!(similarity("", "a b"), 0.0);
    assert_eq!(similarity("", " "), 1.0);
}

#[test]
fn normalised_texts_differ_in_case_and_space_only() {
    let is_same = |a: &str, b: &str| compare_texts(a.as_bytes(), b.as_bytes(), &mut EditBudget::default()).is_same_normalised;
    assert!(is_same("Straße  A\n", "STRAßE a"));
    assert!(!is_same("ab", "a b"));
    assert!(!is_same("a", "a b"));
}

#[test]
fn the_budget_is_shared_by_all_texts_of_an_answer() {
    let words = |seed: u64| -> String { (0..20_000_u64).map(|n| format!("w{} ", n * seed % 101)).collect() };
    let (a, b) = (words(3), words(7));
    let mut budget = EditBudget::default();
    let first = compare_texts(a.as_bytes(), b.as_bytes(), &mut budget);
    assert!(first.is_bound && first.similarity < 1.0);
    // nothing is left
    assert!(compare_texts(b"a b c", b"a x c", &mut budget).is_bound);
    // what needs no alignment is still exact
    assert!(!compare_texts(b"a b", b"a b c", &mut budget).is_bound);
}
