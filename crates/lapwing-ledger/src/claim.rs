//! The law of time: every instant of a request has exactly one owner.
//!
//! Where claims overlap or nest, the innermost claim owns the instant: the one that started last, then the deeper one, then the
//! one that ends first. An observation of the proxy outranks every other claim on the same instant;
//! the window as a whole (`upstream`) is no observation in this sense, because nobody divided it. Time that nothing claims is
//! `unattributed`. Units: nanoseconds from the request's start.

use smallvec::SmallVec;

use super::account::Account;
use super::record::Span;
use super::stage::{Phase, Source, Stage};

/// A claim on a piece of a request's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The stage that would own the time.
    pub stage: Stage,
    /// The phase of the stage, if it has one.
    pub phase: Option<Phase>,
    /// The source of the claim.
    pub source: Source,
    /// Start; a claim that ends before it starts claims nothing.
    pub start_ns: u64,
    /// End, exclusive.
    pub end_ns: u64,
    /// The depth of the span in its trace; zero if the claim does not come from a span.
    pub depth: u32,
}

impl Claim {
    /// The claim of an observed span.
    #[must_use]
    pub const fn of(span: Span) -> Self {
        let Span { stage, start_ns, end_ns, .. } = span;
        Self { stage, phase: None, source: Span::SOURCE, start_ns, end_ns, depth: 0 }
    }

    /// Whether it outranks claims that are no observation.
    fn outranks(&self) -> bool {
        self.source == Source::Observed && self.stage != Stage::Upstream
    }
}

/// Divides `total_ns` among `claims`. The stages of the result sum to `total_ns` exactly, whatever the claims are.
#[must_use]
pub fn conserve(total_ns: u64, claims: &[Claim]) -> Account {
    let mut account = Account::default();
    each_instant(0, total_ns, claims, |from, to, owner| match owner {
        Some(claim) => account.add(claim.stage, claim.source, to - from),
        None => account.add(Stage::Unattributed, Source::Observed, to - from),
    });
    account
}

/// Walks `start_ns..end_ns` in order and calls `piece` for each stretch with one owner or none.
///
/// This is a sweep: claims are opened in order of rank among those that started, so the owner is always the claim opened last
/// that has not ended. The cost is that of the sort. Up to 32 claims are handled without allocation.
pub fn each_instant(start_ns: u64, end_ns: u64, claims: &[Claim], mut piece: impl FnMut(u64, u64, Option<&Claim>)) {
    let mut order: SmallVec<[u32; 32]> = SmallVec::new();
    let touches = |c: &Claim| c.start_ns < c.end_ns && c.start_ns < end_ns && c.end_ns > start_ns;
    order.extend((0_u32..).zip(claims).filter(|(_, c)| touches(c)).map(|(i, _)| i));
    let claim = |i: &u32| &claims[*i as usize];
    order.sort_unstable_by(|a, b| {
        let (x, y) = (claim(a), claim(b));
        // equal in every respect: the first in the list is opened last
        x.start_ns.cmp(&y.start_ns).then(x.depth.cmp(&y.depth)).then(y.end_ns.cmp(&x.end_ns)).then(b.cmp(a))
    });
    let mut to_open = order.iter().map(claim).peekable();
    let mut observed: SmallVec<[&Claim; 16]> = SmallVec::new();
    let mut said: SmallVec<[&Claim; 32]> = SmallVec::new();
    let mut at = start_ns;
    while at < end_ns {
        while let Some(opened) = to_open.next_if(|c| c.start_ns <= at) {
            if opened.outranks() { observed.push(opened) } else { said.push(opened) }
        }
        let owner = innermost(&mut observed, at).or_else(|| innermost(&mut said, at));
        let next_ns = to_open.peek().map_or(end_ns, |c| c.start_ns);
        let until = owner.map_or(end_ns, |o| o.end_ns).min(next_ns).min(end_ns);
        piece(at, until, owner);
        at = until;
    }
}

/// The claim opened last of those that have not ended at `at`.
fn innermost<'a, const N: usize>(open: &mut SmallVec<[&'a Claim; N]>, at: u64) -> Option<&'a Claim> {
    while open.last().is_some_and(|c| c.end_ns <= at) {
        open.pop();
    }
    open.last().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
}
