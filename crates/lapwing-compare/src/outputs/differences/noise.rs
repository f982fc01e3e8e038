//! Which of a field's differences are the primary's own noise, by size.
//!
//! The size of a difference is relative to the field: an error over the field's scale, 1 − the similarity of two texts, infinite for a
//! difference of structure, shape, type or status. A difference of the candidate is
//!
//! - a *mismatch* if it is greater than twice what the primary's answers differ from themselves by (the 99th percentile of those that
//!   do), if the primary
//!   never differs there, or if the candidate shows differences of that size clearly more often: the lower Wilson bound of its rate is
//!   above 1.5 times the upper one of the primary's, at z = 3;
//! - *excused* if it is within that, and no greater than a quarter: the candidate was held to a wider tolerance, and kept it;
//! - *unjudged* otherwise: the primary differs from itself so much that no answer could be distinguished from any other, or it was not asked
//!   twice often enough to know.

use super::super::comparison::FieldHint;
use super::bins::{Bins, doublings, size_bin, size_edge};

/// The greatest size that may be excused.
pub(crate) const EXCUSABLE: f64 = 0.25;
/// This many self-comparisons show how large the noise of a field is.
pub(crate) const MIN_REPEATS: u64 = 20;
/// This many show that a field has none.
const MIN_EQUAL: u64 = 5;
/// The quantile of the primary's own differences that bounds what is excused.
const BOUNDING: f64 = 0.99;
/// How many times as often the candidate must show a difference to be blamed for it.
const EXCESS: f64 = 1.5;
/// From this share of repeats on, an id or a duration is one of each answer.
const ALWAYS: f64 = 0.9;

/// What becomes of a difference, the gravest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Judgement {
    /// Within what the primary's own answers differ by.
    Excused,
    /// It cannot be judged.
    Unjudged(UnjudgedReason),
    /// The candidate's fault.
    Mismatch,
}

/// Why a difference cannot be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnjudgedReason {
    /// The primary's own answers differ as much.
    PrimaryVaries,
    /// The primary was asked twice too rarely until now.
    TooFewRepeats,
    /// The primary is not asked twice, and the field is one that may differ each time.
    NotMeasured,
}

impl UnjudgedReason {
    pub(crate) const ALL: [Self; 3] = [Self::PrimaryVaries, Self::TooFewRepeats, Self::NotMeasured];

    /// Its name on every surface.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PrimaryVaries => "upstream_varies",
            Self::TooFewRepeats => "too_few_repeats",
            Self::NotMeasured => "noise_not_measured",
        }
    }
}

/// The noise of one field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldNoise {
    /// Second answers of the primary, and those in which the field differs.
    repeats: u64,
    differing: u64,
    /// The greatest bin that may be noise.
    bound: Option<i16>,
    /// From this bin on the candidate differs clearly more often.
    blamed_from: Option<i16>,
    /// Whether the primary is asked twice.
    is_measured: bool,
}

impl FieldNoise {
    /// From the sizes of the differences of the candidate and of the primary with itself, and the answers that were compared.
    pub(crate) fn new(candidate: (&Bins, u64), itself: (&Bins, u64), is_measured: bool) -> Self {
        let (repeats, differing) = (itself.1, itself.0.total());
        let rate = |(bins, answers): (&Bins, u64), bin: i16| (bins.at_least(bin), answers);
        let is_blamed = |bin: &i16| is_clearly_above(rate(candidate, *bin), rate(itself, *bin));
        Self {
            repeats,
            differing,
            bound: itself.0.quantile(BOUNDING).map(|bin| bin.saturating_add(doublings(1))),
            blamed_from: candidate.0.filled().find(is_blamed).filter(|_| repeats > 0),
            is_measured: is_measured || repeats > 0,
        }
    }

    /// Judges a difference of the candidate.
    pub(crate) fn judge(&self, bin: i16, hint: FieldHint) -> Judgement {
        let Some(bound) = self.bound else { return self.judge_without_noise(hint) };
        let is_of_each_answer = matches!(hint, FieldHint::Id | FieldHint::Duration);
        let is_rare = self.repeats < MIN_REPEATS;
        // of few repeats the greatest may still be far from what is usual
        let bound = if is_rare { bound.saturating_add(doublings(2)) } else { bound };
        let is_blamed = bin > bound || self.blamed_from.is_some_and(|from| bin >= from);
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let always = self.differing as f64 >= ALWAYS * self.repeats as f64;
        match hint {
            // how long something took is the candidate's own, and no output
            FieldHint::Duration if is_blamed => Judgement::Unjudged(UnjudgedReason::PrimaryVaries),
            _ if is_blamed => Judgement::Mismatch,
            _ if is_rare => Judgement::Unjudged(UnjudgedReason::TooFewRepeats),
            _ if is_of_each_answer && always => Judgement::Excused,
            _ if bin <= size_bin(EXCUSABLE) => Judgement::Excused,
            _ => Judgement::Unjudged(UnjudgedReason::PrimaryVaries),
        }
    }

    /// Where the primary never differed from itself.
    fn judge_without_noise(&self, hint: FieldHint) -> Judgement {
        match self.repeats {
            0 if !self.is_measured && hint == FieldHint::Nothing => Judgement::Mismatch,
            0 if !self.is_measured => Judgement::Unjudged(UnjudgedReason::NotMeasured),
            0..MIN_EQUAL => Judgement::Unjudged(UnjudgedReason::TooFewRepeats),
            _ => Judgement::Mismatch,
        }
    }

    /// The greatest size that is excused; `None` if none is.
    pub(crate) fn excused_size(&self) -> Option<f64> {
        self.bound.filter(|_| self.repeats >= MIN_REPEATS).map(|bin| size_edge(bin).min(EXCUSABLE))
    }
}

/// Whether the first rate is above the second beyond doubt, and not only by a little.
fn is_clearly_above(a: Rate, b: Rate) -> bool {
    wilson(a, Z_BLAME).0 > EXCESS * wilson(b, Z_BLAME).1
}

/// `k` answers of `n`.
pub(crate) type Rate = (u64, u64);

/// How sure a rate must be above another one: three standard deviations each.
pub(crate) const Z_BLAME: f64 = 3.0;
/// For the interval that is shown, 95 %.
pub(crate) const Z_SHOWN: f64 = 1.959_963_984_540_054;

/// Wilson's interval of a rate (E. B. Wilson, "Probable inference, the law of succession, and statistical inference", 1927):
/// p̃ = (k + z²/2) / (n + z²), half its width z/(n + z²) · √(k(n − k)/n + z²/4). From 0 to 1 if there is no answer.
pub(crate) fn wilson((k, n): Rate, z: f64) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let (k, n, z2) = (k as f64, n as f64, z * z);
    let centre = (k + z2 / 2.0) / (n + z2);
    let half = z / (n + z2) * (k * (n - k) / n + z2 / 4.0).max(0.0).sqrt();
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(candidate: &[f64], itself: &[f64], of: [u64; 2]) -> FieldNoise {
        let bins = |sizes: &[f64]| {
            let mut bins = Bins::default();
            sizes.iter().for_each(|size| bins.add(size_bin(*size), 1));
            bins
        };
        FieldNoise::new((&bins(candidate), of[0]), (&bins(itself), of[1]), true)
    }

    fn judged(noise: &FieldNoise, size: f64) -> Judgement {
        noise.judge(size_bin(size), FieldHint::Nothing)
    }

    #[test]
    fn noise_excuses_its_own_size_and_no_other() {
        let of_scale = noise(&[], &[0.04; 50], [100, 50]);
        assert_eq!(judged(&of_scale, 0.05), Judgement::Excused);
        assert_eq!(judged(&of_scale, 0.2), Judgement::Mismatch);
        assert_eq!(judged(&of_scale, 99.0), Judgement::Mismatch);
        assert!((0.05..0.15).contains(&of_scale.excused_size().unwrap()));
    }

    #[test]
    fn what_is_drawn_anew_is_not_judged() {
        let drawn = noise(&[], &[0.9; 50], [100, 50]);
        assert_eq!(judged(&drawn, 1.0), Judgement::Unjudged(UnjudgedReason::PrimaryVaries));
        assert_eq!(judged(&drawn, 50.0), Judgement::Mismatch);
        // what agrees better than the primary with itself is still within what may be excused
        assert_eq!(judged(&drawn, 0.1), Judgement::Excused);
        assert_eq!(drawn.judge(super::super::bins::INFINITE, FieldHint::Nothing), Judgement::Mismatch);
        assert_eq!(drawn.judge(size_bin(1.0), FieldHint::Id), Judgement::Excused, "an id of each answer");
    }

    #[test]
    fn rare_noise_does_not_excuse_what_is_frequent() {
        let rare = noise(&[0.9; 500], &[0.9; 3], [1000, 1000]);
        assert_eq!(judged(&rare, 0.9), Judgement::Mismatch);
        let as_rare = noise(&[0.9; 3], &[0.9; 3], [1000, 1000]);
        assert_eq!(judged(&as_rare, 0.9), Judgement::Unjudged(UnjudgedReason::PrimaryVaries));
    }

    #[test]
    fn too_few_repeats_tell_nothing_but_the_obvious() {
        let few = noise(&[], &[0.04; 3], [100, 3]);
        assert_eq!(judged(&few, 0.04), Judgement::Unjudged(UnjudgedReason::TooFewRepeats));
        assert_eq!(judged(&few, 99.0), Judgement::Mismatch);
        assert_eq!(judged(&noise(&[], &[], [1, 0]), 0.1), Judgement::Unjudged(UnjudgedReason::TooFewRepeats));
        assert_eq!(judged(&noise(&[], &[], [1, 5]), 0.1), Judgement::Mismatch);
        let never = FieldNoise::new((&Bins::default(), 1), (&Bins::default(), 0), false);
        assert_eq!(judged(&never, 0.1), Judgement::Mismatch);
        assert_eq!(never.judge(0, FieldHint::Drawn), Judgement::Unjudged(UnjudgedReason::NotMeasured));
    }

    /// The definition: the bounds are the rates from which the observed one is `z` standard deviations away.
    #[test]
    fn bounds_solve_the_score_equation() {
        for (k, n) in [(3, 100), (1, 2), (500, 1000), (0, 10), (10, 10)] {
            for z in [Z_SHOWN, Z_BLAME] {
                let (low, high) = wilson((k, n), z);
                let observed = k as f64 / n as f64;
                for bound in [low, high] {
                    let away = (observed - bound).abs() - z * (bound * (1.0 - bound) / n as f64).sqrt();
                    assert!(away.abs() < 1e-9, "{k}/{n} {z}: {bound}");
                }
                assert!(low <= observed && observed <= high && (low < high));
            }
        }
        assert_eq!(wilson((0, 0), 3.0), (0.0, 1.0));
    }
}
