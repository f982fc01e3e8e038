//! Whether a target runs the same model as the upstream: its answers show it, names do not.

use rustc_hash::FxHashMap;

use super::half::{HalfOutcome, PairHalf};
use lapwing_ledger::{LabelId, SeriesKey};

/// How many answers must be the same before two models are: a few could be by chance.
const MIN_SAME: u64 = 8;
/// At least this share of the compared answers must be the same, in percent.
const MIN_SHARE: u64 = 90;
/// So many answers must be compared, and this share of them be the same but for the upstream's own noise, in percent, before a target may answer
/// clients in its place.
const MIN_JUDGED: u64 = 64;
const MIN_AGREEING: u64 = 99;
/// After so many, older ones count half.
const LATEST: u64 = 4_096;
/// Targets, routes and models that are kept; no further one is the same.
const MAX_KEPT: usize = 128;

/// How the outputs of a pair compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputResult {
    /// Nothing differs beyond the tolerance.
    Same,
    /// Only what the upstream's own second answers differ in as much, and that is little.
    Noise,
    /// It cannot be told.
    Unjudged,
    /// They differ.
    Mismatch,
    /// They have other statuses: at most one of them is an answer of a model.
    Status,
}

impl OutputResult {
    /// Whether the difference is blamed on the target.
    #[must_use]
    pub const fn is_mismatch(self) -> bool {
        matches!(self, Self::Mismatch | Self::Status)
    }
}

/// Compared answers; errors of either side are none.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    compared: u64,
    same: u64,
    /// Those that are the same, or differ by noise.
    agreeing: u64,
}

/// The compared answers by target, route and model.
#[derive(Debug, Default)]
pub(crate) struct Agreements(FxHashMap<(usize, LabelId, LabelId), Answers>);

impl Agreements {
    /// Counts the outputs of a pair. Errors say nothing of a model.
    pub(crate) fn record(&mut self, target: usize, primary: &PairHalf, result: OutputResult) {
        let SeriesKey { route, model, .. } = primary.series;
        // routes and models beyond the bounds share a label, and are not one
        let is_one = route != LabelId::OTHER && model != LabelId::OTHER;
        let key = (target, route, model);
        let has_room = self.0.len() < MAX_KEPT || self.0.contains_key(&key);
        let are_answers = primary.outcome == HalfOutcome::Answered && result != OutputResult::Status;
        if are_answers && is_one && has_room {
            let answers = self.0.entry(key).or_default();
            if answers.compared == LATEST {
                *answers = Answers { compared: LATEST / 2, same: answers.same / 2, agreeing: answers.agreeing / 2 };
            }
            answers.compared += 1;
            answers.same += u64::from(result == OutputResult::Same);
            answers.agreeing += u64::from(matches!(result, OutputResult::Same | OutputResult::Noise));
        }
    }

    /// Whether the target runs the model of this series: nearly all of enough answers are the same.
    pub(crate) fn runs_same_model(&self, target: usize, series: &SeriesKey) -> bool {
        let answers = self.0.get(&(target, series.route, series.model));
        answers.is_some_and(|of| of.same >= MIN_SAME && of.same * 100 >= of.compared * MIN_SHARE)
    }
}

impl Agreements {
    /// Whether the target answers requests of this series as the upstream does.
    pub(crate) fn answers_alike(&self, target: usize, series: &SeriesKey) -> bool {
        let answers = self.0.get(&(target, series.route, series.model));
        answers.is_some_and(|of| of.compared >= MIN_JUDGED && of.agreeing * 100 >= of.compared * MIN_AGREEING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::tests::exchange;
    use lapwing_ledger::{LabelTable, Outcome};

    /// Whether so many same answers, differences by noise, mismatches and other statuses show one model.
    fn shows(outcome: Outcome, [same, noise, mismatches, statuses]: [u64; 4]) -> bool {
        let labels = LabelTable::new(8);
        let mut agreements = Agreements::default();
        let mut answered = exchange(1, 10, outcome);
        let series = SeriesKey { route: labels.intern("r"), model: labels.intern("m"), ..SeriesKey::default() };
        answered.ledger.series = series;
        let half = PairHalf::of_copy(&answered);
        let results = [OutputResult::Same, OutputResult::Noise, OutputResult::Mismatch, OutputResult::Status];
        for (result, count) in results.into_iter().zip([same, noise, mismatches, statuses]) {
            (0..count).for_each(|_| agreements.record(1, &half, result));
        }
        assert!(!agreements.runs_same_model(0, &series), "another target");
        let other = SeriesKey { model: labels.intern("n"), ..series };
        assert!(!agreements.runs_same_model(1, &other), "another model");
        agreements.runs_same_model(1, &series)
    }

    #[test]
    fn a_target_may_answer_once_nearly_all_of_many_answers_are_alike_and_no_longer_when_they_are_not() {
        let labels = LabelTable::new(8);
        let mut agreements = Agreements::default();
        let mut answered = exchange(1, 10, Outcome::Ok);
        let series = SeriesKey { route: labels.intern("r"), model: labels.intern("m"), ..SeriesKey::default() };
        answered.ledger.series = series;
        let half = PairHalf::of_copy(&answered);
        let mut after = |result: OutputResult, count: u64| {
            (0..count).for_each(|_| agreements.record(1, &half, result));
            assert!(!agreements.answers_alike(0, &series), "another target");
            agreements.answers_alike(1, &series)
        };
        assert!(!after(OutputResult::Same, MIN_JUDGED - 1));
        assert!(after(OutputResult::Noise, 1), "its own answers differ as much");
        assert!(!after(OutputResult::Mismatch, 1), "one in 65");
        assert!(after(OutputResult::Same, 10 * LATEST), "what was long ago counts less and less");
        assert!(!after(OutputResult::Unjudged, LATEST / 50));
    }

    #[test]
    fn enough_answers_that_are_the_same_show_one_model() {
        assert!(shows(Outcome::Ok, [MIN_SAME, 0, 0, 0]));
        assert!(!shows(Outcome::Ok, [MIN_SAME - 1, 0, 0, 0]));
        assert!(shows(Outcome::Ok, [90, 0, 10, 0]) && !shows(Outcome::Ok, [90, 0, 11, 0]));
    }

    #[test]
    fn neither_noise_nor_errors_show_one_model() {
        assert!(!shows(Outcome::Ok, [0, 1000, 0, 0]), "answers that differ each time say nothing");
        assert!(!shows(Outcome::ClientError, [1000, 0, 0, 0]));
        assert!(shows(Outcome::Ok, [MIN_SAME, 0, 0, 1000]), "a target that was not warm at first");
    }

    #[test]
    fn models_without_a_label_of_their_own_are_not_one() {
        let mut agreements = Agreements::default();
        let mut answered = exchange(1, 10, Outcome::Ok);
        answered.ledger.series.model = LabelId::OTHER;
        (0..100).for_each(|_| agreements.record(0, &PairHalf::of_copy(&answered), OutputResult::Same));
        assert!(!agreements.runs_same_model(0, &answered.ledger.series));
    }
}
