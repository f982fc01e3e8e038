//! The law of time: every instant of a request has exactly one owner.
//!
//! Where claims overlap or nest, the innermost owns the instant: the one that started last, then the one that
//! lies deeper, then the one that ends first. What the proxy observed outranks what others say of the same instant.
//! What nobody claims is `unattributed`. Units: nanoseconds from the request's start.

use smallvec::SmallVec;

use super::account::Account;
use super::stage::{Source, Stage};

/// Somebody's claim on a piece of a request's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who would own the time.
    pub stage: Stage,
    /// Who says so.
    pub source: Source,
    /// Start; a claim that ends before it starts claims nothing.
    pub start_ns: u64,
    /// End, exclusive.
    pub end_ns: u64,
    /// How deep in its trace the span lies; zero where that means nothing.
    pub depth: u32,
}

impl Claim {
    fn is_inside(&self, other: &Self) -> bool {
        let key = |c: &Self| (c.source == Source::Observed, c.start_ns, c.depth, u64::MAX - c.end_ns);
        key(self) > key(other)
    }

    const fn covers(&self, from: u64, to: u64) -> bool {
        self.start_ns <= from && to <= self.end_ns
    }
}

/// Shares out `total_ns` among `claims`. The result sums to `total_ns` exactly, whatever the claims are.
#[must_use]
pub fn conserve(total_ns: u64, claims: &[Claim]) -> Account {
    let mut account = Account::default();
    each_instant(0, total_ns, claims, |from, to, owner| match owner {
        Some(claim) => account.add(claim.stage, claim.source, to - from),
        None => account.add(Stage::Unattributed, Source::Observed, to - from),
    });
    account
}

/// Walks `start_ns..end_ns` in order, in pieces that have one owner each (or none).
pub(crate) fn each_instant(start_ns: u64, end_ns: u64, claims: &[Claim], mut piece: impl FnMut(u64, u64, Option<&Claim>)) {
    let mut cuts: SmallVec<[u64; 48]> = SmallVec::new();
    cuts.push(start_ns);
    cuts.push(end_ns);
    for claim in claims.iter().filter(|c| c.start_ns < c.end_ns) {
        cuts.extend([claim.start_ns, claim.end_ns].into_iter().filter(|at| (start_ns..end_ns).contains(at)));
    }
    cuts.sort_unstable();
    cuts.dedup();
    for pair in cuts.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let mut owner: Option<&Claim> = None;
        for claim in claims.iter().filter(|c| c.covers(from, to)) {
            if owner.is_none_or(|o| claim.is_inside(o)) {
                owner = Some(claim);
            }
        }
        piece(from, to, owner);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(stage: Stage, source: Source, start_ns: u64, end_ns: u64, depth: u32) -> Claim {
        Claim { stage, source, start_ns, end_ns, depth }
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

    proptest! {
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
                let union = (0..2_000).filter(|t| claims.iter().any(|c| c.stage == stage && c.covers(*t, *t + 1))).count() as u64;
                prop_assert!(account.stage_ns(stage) <= union);
            }
        }
    }
}
