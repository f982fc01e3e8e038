//! What differs between the answers of the primary and of one target on one route: counts by field and kind, worst cases, and the
//! primary's own noise.
//!
//! # Net of noise
//!
//! A share of requests goes to the primary a second time. What differs between its two answers (a timestamp, an id, a sampled text)
//! is not the candidate's fault. So each answer is counted by the *set* of fields and kinds that differ in it, for the candidate and for
//! the primary against itself. Which of them are noise is decided when the account is read: a field's kind of difference is blamed on
//! the candidate if the primary never shows it, or if the candidate shows it clearly more often (the lower Wilson bound of the
//! candidate's rate is above the upper one of the primary's, at z = 3). An answer is a mismatch if anything in its set is blamed.
//!
//! Only counts, greatest and least values are kept, so accounts of several pods add up ([`Differences::merge`]) to the account of all
//! their answers, in any order.
//!
//! # Bounds
//!
//! At most 64 fields (further ones are one field), 256 sets, 3 worst cases per field: at most 0.5 MiB for one target and route, and
//! 32 KiB more for each kept sample.

mod merge;
mod rate;
mod report;
mod snapshot;
mod tally;

pub use snapshot::{
    DifferencesSnapshot, ErrorStepSnapshot, FieldSnapshot, KindSnapshot, MismatchSnapshot, NumberSnapshot, RepeatSnapshot,
    SampleSnapshot, SetSnapshot, TextSnapshot,
};
pub use tally::WorstCase;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::comparison::{Comparison, ComparisonResult, DifferenceKind, ERROR_STEPS, Incomparable, KindSet};
use super::config::Tolerance;
use super::sample::PayloadSample;
use crate::ledger::TraceId;
use tally::FieldTally;

/// The most fields that are told apart.
const MAX_FIELDS: usize = 64;
/// The most sets of differences that are told apart.
const MAX_SETS: usize = 256;
/// The name of the field that all further ones are.
const OTHER_FIELDS: &str = "(other fields)";

/// Whose answer was compared with the primary's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedWith {
    /// The target's.
    Candidate,
    /// A second answer of the primary: the noise floor.
    Itself,
}

/// The fields that differ in an answer, each with its kinds, in the order of the fields.
type DifferenceSet = SmallVec<[(u16, KindSet); 2]>;

/// The answers of one side.
#[derive(Clone, Debug, Default)]
struct SideTally {
    same: u64,
    different: u64,
    incomparable: [u64; Incomparable::ALL.len()],
    /// Answers that have numbers, and those with a number whose error is greater than each step.
    with_numbers: u64,
    exceeding: [u64; ERROR_STEPS.len()],
    sets: FxHashMap<DifferenceSet, u64>,
    /// Answers whose set found no room.
    other_sets: u64,
}

impl SideTally {
    const fn compared(&self) -> u64 {
        self.same + self.different
    }
}

/// The account of one target on one route: counts, greatest and least values, which add up over pods.
#[derive(Clone, Debug)]
pub struct Differences {
    tolerance: Tolerance,
    fields: Vec<FieldTally>,
    by_name: FxHashMap<String, u16>,
    /// By [`ComparedWith`].
    sides: [SideTally; 2],
    keep_samples: usize,
    samples: Vec<(TraceId, PayloadSample)>,
}

impl Differences {
    /// An empty account that keeps at most this many samples.
    #[must_use]
    pub fn new(tolerance: Tolerance, keep_samples: usize) -> Self {
        let (fields, by_name) = (Vec::new(), FxHashMap::default());
        Self { tolerance, fields, by_name, sides: Default::default(), keep_samples, samples: Vec::new() }
    }

    /// Records a comparison of the request `trace`.
    pub fn record(&mut self, comparison: &Comparison, with: ComparedWith, trace: TraceId) {
        let side = with as usize;
        match comparison.result {
            ComparisonResult::Incomparable(reason) => {
                self.sides[side].incomparable[reason as usize] += 1;
                return;
            }
            ComparisonResult::Same => self.sides[side].same += 1,
            ComparisonResult::Different => self.sides[side].different += 1,
        }
        let mut set = DifferenceSet::new();
        let (mut has_numbers, mut is_exceeding) = (false, [false; ERROR_STEPS.len()]);
        for found in &comparison.fields {
            let id = self.field(&found.field);
            self.fields[usize::from(id)].sides[side].record(found, trace);
            if !found.kinds.is_empty() {
                set.push((id, found.kinds));
            }
            if let Some(numbers) = &found.numbers {
                has_numbers = true;
                is_exceeding.iter_mut().zip(numbers.exceeding).for_each(|(is, count)| *is |= count > 0);
            }
        }
        let tally = &mut self.sides[side];
        tally.with_numbers += u64::from(has_numbers);
        tally.exceeding.iter_mut().zip(is_exceeding).for_each(|(count, is)| *count += u64::from(is));
        if !set.is_empty() {
            tally.count_set(canonical(set), 1);
        }
        if let Some(sample) = comparison.sample.as_deref().filter(|_| with == ComparedWith::Candidate) {
            self.keep(trace, sample);
        }
    }

    /// The greatest error of a comparison with the candidate, by what is known of the noise so far; infinite for a difference that is
    /// no number. `None` if it is no mismatch.
    #[must_use]
    pub fn mismatch(&self, comparison: &Comparison) -> Option<f64> {
        comparison.greatest_error(|name, kind| self.by_name.get(name).is_none_or(|id| self.is_blamed(*id, kind)))
    }

    /// The field of this name; the common one if there is no room.
    fn field(&mut self, name: &str) -> u16 {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        // the last place is that of all others
        let name = if self.fields.len() + 1 < MAX_FIELDS { name } else { OTHER_FIELDS };
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = u16::try_from(self.fields.len()).unwrap_or(u16::MAX);
        self.fields.push(FieldTally::new(name));
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// Whether a kind of difference of a field is the candidate's fault.
    fn is_blamed(&self, field: u16, kind: DifferenceKind) -> bool {
        let [candidate, itself] = [0, 1].map(|side| {
            let answers = self.fields[usize::from(field)].sides[side].kinds[kind as usize];
            (answers, self.sides[side].compared())
        });
        itself.0 == 0 || rate::is_clearly_above(candidate, itself)
    }

    /// Keeps a sample. Of more than fit, those of the least trace ids stay, so that the order of merging does not matter.
    fn keep(&mut self, trace: TraceId, sample: &PayloadSample) {
        if self.keep_samples == 0 {
            return;
        }
        let at = self.samples.partition_point(|(other, _)| other.0 < trace.0);
        if at < self.keep_samples {
            self.samples.insert(at, (trace, sample.clone()));
            self.samples.truncate(self.keep_samples);
        }
    }
}

impl SideTally {
    fn count_set(&mut self, set: DifferenceSet, answers: u64) {
        if let Some(count) = self.sets.get_mut(&set) {
            *count += answers;
        } else if self.sets.len() < MAX_SETS {
            self.sets.insert(set, answers);
        } else {
            self.other_sets += answers;
        }
    }
}

/// A set in the order of its fields, each once.
fn canonical(mut set: DifferenceSet) -> DifferenceSet {
    set.sort_unstable();
    set.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 = kept.1.union(next.1);
        }
        is_same
    });
    set
}

#[cfg(test)]
mod tests;
