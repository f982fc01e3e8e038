//! Which answers are blamed on the candidate, by what is known about the noise.

use super::noise::{FieldNoise, Judgement, UnjudgedReason};
use super::{Asked, Comparison, ComparisonResult, DifferenceSet, Differences, OtherSets, differing};
use crate::outputs::comparison::Incomparable;

/// What is said about a pair of answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnswerJudgement {
    /// Nothing differs beyond the tolerance.
    Same,
    /// Only what the primary's own second answers differ in as much, and that is little.
    Excused,
    /// It is unknown whether they agree; why, as surfaces name it.
    Unjudged(&'static str),
    /// They differ, by this much at most: infinite for a difference that is no number.
    Mismatch(f64),
}

impl Differences {
    /// Judges a comparison with the candidate by what is known about the noise so far.
    #[must_use]
    pub fn judge(&self, comparison: &Comparison, asked: Asked<'_>) -> AnswerJudgement {
        match comparison.result {
            ComparisonResult::Same => return AnswerJudgement::Same,
            ComparisonResult::Incomparable(reason) => return AnswerJudgement::Unjudged(Incomparable::name(reason)),
            ComparisonResult::Different => {}
        }
        let model = self.models.iter().find(|model| model.name == asked.model);
        // a field that was never seen has no noise
        let judged = |found: &super::FieldComparison| {
            let known = model.and_then(|model| model.fields.get(&found.field));
            let one = differing(known.copied().unwrap_or(u16::MAX), found, comparison, asked);
            self.noise(one.field).judge(one.size, one.hint)
        };
        let differs = |found: &&super::FieldComparison| !found.kinds.is_empty();
        match comparison.fields.iter().filter(differs).map(judged).max() {
            Some(Judgement::Excused) => AnswerJudgement::Excused,
            Some(Judgement::Unjudged(reason)) => AnswerJudgement::Unjudged(reason.name()),
            Some(Judgement::Mismatch) | None => {
                let error = comparison.greatest_error(|found| judged(found) == Judgement::Mismatch);
                AnswerJudgement::Mismatch(error.unwrap_or(f64::INFINITY))
            }
        }
    }

    /// The noise of a field; of one that is not known, none.
    pub(crate) fn noise(&self, field: u16) -> FieldNoise {
        let Some(tally) = self.fields.get(usize::from(field)) else {
            let of_all = self.sides[1].compared();
            return FieldNoise::new((&Default::default(), 0), (&Default::default(), of_all), self.is_noise_measured);
        };
        let compared = self.models[tally.model].compared;
        let [candidate, itself] = [0, 1].map(|side| (&tally.sides[side].sizes, compared[side]));
        FieldNoise::new(candidate, itself, self.is_noise_measured)
    }

    /// Judges an answer by what differs in it.
    pub(crate) fn judge_set(&self, set: &DifferenceSet) -> Judgement {
        let judged = set.iter().map(|one| self.noise(one.field).judge(one.size, one.hint));
        judged.max().unwrap_or(Judgement::Mismatch)
    }

    /// The candidate's answers that differ, as they are judged now.
    pub(crate) fn judged(&self) -> OtherSets {
        let candidate = &self.sides[0];
        let mut sums = candidate.other_sets;
        candidate.sets.iter().for_each(|(set, answers)| sums.add(self.judge_set(set), *answers));
        sums
    }
}

impl OtherSets {
    pub(crate) fn add(&mut self, judgement: Judgement, answers: u64) {
        *match judgement {
            Judgement::Mismatch => &mut self.mismatches,
            Judgement::Excused => &mut self.excused,
            Judgement::Unjudged(reason) => &mut self.unjudged[reason as usize],
        } += answers;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.mismatches += other.mismatches;
        self.excused += other.excused;
        self.unjudged.iter_mut().zip(other.unjudged).for_each(|(sum, count)| *sum += count);
    }

    /// The unjudged by reason.
    pub(crate) fn unjudged(&self) -> impl Iterator<Item = (&'static str, u64)> {
        UnjudgedReason::ALL.iter().map(|reason| reason.name()).zip(self.unjudged)
    }
}
