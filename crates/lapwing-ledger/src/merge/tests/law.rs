//! The law of time: claims divide a request's time as its definition says.

use proptest::prelude::*;

use crate::merge::*;
use crate::stage::{Source, Stage};

fn claim(stage: Stage, source: Source, start_ns: u64, end_ns: u64, depth: u32) -> Claim {
    Claim { stage, phase: None, source, start_ns, end_ns, depth }
}

#[test]
fn the_innermost_owns_and_the_rest_is_unattributed() {
    let claims = [
        claim(Stage::Queue, Source::Traced, 10, 90, 1),
        claim(Stage::Forward, Source::Traced, 20, 60, 2),
        claim(Stage::Hydration, Source::Traced, 20, 40, 3),
    ];
    let a = conserve(100, &claims);
    assert_eq!(a.stage_ns(Stage::Queue), 40);
    assert_eq!(a.stage_ns(Stage::Forward), 20);
    assert_eq!(a.stage_ns(Stage::Hydration), 20);
    assert_eq!(a.stage_ns(Stage::Unattributed), 20);
}

#[test]
fn concurrent_spans_of_one_stage_count_once() {
    let claims = [claim(Stage::Hydration, Source::Traced, 10, 50, 1), claim(Stage::Hydration, Source::Traced, 30, 70, 1)];
    assert_eq!(conserve(100, &claims).stage_ns(Stage::Hydration), 60);
}

#[test]
fn what_the_proxy_observed_outranks_what_others_say() {
    let claims = [claim(Stage::Egress, Source::Observed, 10, 50, 0), claim(Stage::Forward, Source::Reported, 20, 60, 0)];
    let a = conserve(60, &claims);
    assert_eq!((a.stage_ns(Stage::Egress), a.stage_ns(Stage::Forward)), (40, 10));
}

fn any_claim() -> impl Strategy<Value = Claim> {
    (0..Stage::COUNT, 0..Source::COUNT, 0..2_000_u64, 0..2_000_u64, 0..4_u32)
        .prop_map(|(stage, source, a, b, depth)| claim(Stage::ALL[stage], Source::ALL[source], a, b, depth))
}

/// The owner of the instant `at`, found by applying the definition; the first of equals.
fn by_the_letter(claims: &[Claim], at: u64) -> Option<&Claim> {
    let rank = |c: &Claim| (c.outranks(), c.start_ns, c.depth, u64::MAX - c.end_ns);
    let covering = claims.iter().filter(|c| c.start_ns <= at && at < c.end_ns);
    covering.rev().max_by_key(|c| rank(c))
}

proptest! {
    #[test]
    fn the_sweep_keeps_to_the_letter_of_the_law(
        from in 0..60_u64,
        length in 0..60_u64,
        claims in proptest::collection::vec(any_claim(), 0..40),
    ) {
        let claims: Vec<Claim> = claims
            .into_iter()
            .map(|c| Claim { start_ns: c.start_ns / 20, end_ns: c.end_ns / 20, ..c })
            .collect();
        let mut at = from;
        let mut owners = Vec::new();
        each_instant(from, from + length, &claims, |start, end, owner| {
            assert!(start == at && start < end, "pieces are in order, without gaps");
            owners.extend((start..end).map(|_| owner.copied()));
            at = end;
        });
        prop_assert_eq!(at, from + length);
        for (owner, at) in owners.into_iter().zip(from..) {
            prop_assert_eq!(owner, by_the_letter(&claims, at).copied());
        }
    }

    #[test]
    fn the_stages_sum_to_the_total_whatever_the_claims(
        total in 0..1_500_u64,
        claims in proptest::collection::vec(any_claim(), 0..40),
    ) {
        prop_assert_eq!(conserve(total, &claims).total_ns(), total);
    }

    #[test]
    fn no_stage_owns_more_than_the_union_of_its_claims(
        claims in proptest::collection::vec(any_claim(), 0..20),
    ) {
        let account = conserve(2_000, &claims);
        for stage in Stage::ALL.into_iter().filter(|s| *s != Stage::Unattributed) {
            let union = (0..2_000).filter(|t| claims.iter().any(|c| c.stage == stage && c.start_ns <= *t && *t < c.end_ns)).count() as u64;
            prop_assert!(account.stage_ns(stage) <= union);
        }
    }
}
