//! What differs between the answers of the primary and of one target on one route: counts by field and kind, worst cases, and the
//! primary's own noise.
//!
//! # Net of noise
//!
//! A share of requests may go to the primary a second time. What its answers differ in by themselves (an id, a sampled text) is not the
//! candidate's fault, up to the size of it (`noise`). So each answer is counted by the *set* of fields that differ in it, each with
//! its kinds
//! and its size; which of them are excused, blamed, or cannot be judged is decided when the account is read, by what is known then. An
//! answer is
//! a mismatch if anything in its set is blamed, else unjudged if anything cannot be judged, else excused.
//!
//! Noise and scale are those of a field in the answers of one model.
//!
//! Only counts, greatest and least values are kept, so accounts of several pods add up ([`Differences::merge`]) to the account of all
//! their answers, in any order.
//!
//! # Bounds
//!
//! At most 16 models (further ones are one), 96 fields (further ones of a model are one field), 512 sets (answers of further ones are
//! judged when they come), 3 worst cases per field: at most 1 MiB for one target and route, and 32 KiB more for each kept sample.

mod bins;
mod judging;
mod noise;
mod report;
mod snapshot;
mod summing;
mod tally;

pub use judging::AnswerJudgement;
pub use snapshot::{
    DifferencesSnapshot, ErrorStepSnapshot, FieldSnapshot, KindSnapshot, MismatchSnapshot, NumberSnapshot, OutputsVerdict,
    RepeatSnapshot, SampleSnapshot, SetSnapshot, TextSnapshot, UnjudgedSnapshot,
};
pub use tally::WorstCase;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::comparison::{
    Comparison, ComparisonResult, DifferenceKind, ERROR_STEPS, FieldComparison, FieldHint, Incomparable, KindSet,
};
use super::config::Tolerance;
use super::rules::FieldScales;
use super::sample::PayloadSample;
use bins::{magnitude, size_bin};
use lapwing_ledger::TraceId;
use noise::UnjudgedReason;
use tally::FieldTally;

/// The most fields that are distinguished.
const MAX_FIELDS: usize = 96;
/// The most sets of differences that are distinguished.
const MAX_SETS: usize = 512;
/// The most models that are distinguished.
const MAX_MODELS: usize = 16;
/// The name of the field that all further ones of a model are.
const OTHER_FIELDS: &str = "(other fields)";
/// The field of what a server says instead of a text, which no model draws.
const ERROR_FIELD: &str = "error";
/// The name of the model that all further ones are.
const OTHER_MODELS: &str = "(other models)";

/// Whose answer was compared with the primary's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedWith {
    /// The target's.
    Candidate,
    /// A second answer of the primary: the noise floor.
    Itself,
}

/// What is known about the request of a pair of answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// The model; empty if it is not known.
    pub model: &'a str,
    /// Whether a model's text may be another each time.
    pub may_be_drawn: bool,
}

/// A field that differs in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Differing {
    field: u16,
    kinds: KindSet,
    hint: FieldHint,
    /// The bin of its size.
    size: i16,
}

/// The fields that differ in an answer, in their order.
type DifferenceSet = SmallVec<[Differing; 2]>;

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
    /// Answers whose set found no room, as they were judged when they came.
    other_sets: OtherSets,
}

/// Answers in sets without room.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OtherSets {
    mismatches: u64,
    excused: u64,
    unjudged: [u64; UnjudgedReason::ALL.len()],
}

impl OtherSets {
    fn total(&self) -> u64 {
        self.mismatches + self.excused + self.unjudged.iter().sum::<u64>()
    }
}

/// A model on this route.
#[derive(Clone, Debug)]
struct Model {
    name: String,
    /// Answers that were compared, by [`ComparedWith`].
    compared: [u64; 2],
    fields: FxHashMap<String, u16>,
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
    /// Whether the primary is asked twice.
    is_noise_measured: bool,
    models: Vec<Model>,
    fields: Vec<FieldTally>,
    /// By [`ComparedWith`].
    sides: [SideTally; 2],
    keep_samples: usize,
    samples: Vec<(TraceId, PayloadSample)>,
}

impl Differences {
    /// An empty account that keeps at most this many samples. `is_noise_measured`: whether the primary is asked twice.
    #[must_use]
    pub fn new(tolerance: Tolerance, keep_samples: usize, is_noise_measured: bool) -> Self {
        Self {
            tolerance,
            is_noise_measured,
            models: Vec::new(),
            fields: Vec::new(),
            sides: Default::default(),
            keep_samples,
            samples: Vec::new(),
        }
    }

    /// Records a comparison of the answers to the request `trace`.
    pub fn record(&mut self, comparison: &Comparison, with: ComparedWith, trace: TraceId, asked: Asked<'_>) {
        let side = with as usize;
        match comparison.result {
            ComparisonResult::Incomparable(reason) => {
                self.sides[side].incomparable[reason as usize] += 1;
                return;
            }
            ComparisonResult::Same => self.sides[side].same += 1,
            ComparisonResult::Different => self.sides[side].different += 1,
        }
        let model = self.model(asked.model);
        self.models[model].compared[side] += 1;
        let mut set = DifferenceSet::new();
        let (mut has_numbers, mut is_exceeding) = (false, [false; ERROR_STEPS.len()]);
        for found in &comparison.fields {
            let id = self.field(model, &found.field);
            self.fields[usize::from(id)].record(found, side, trace);
            if !found.kinds.is_empty() {
                set.push(differing(id, found, comparison, asked));
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
            self.count_set(side, canonical(set), 1);
        }
        if let Some(sample) = comparison.sample.as_deref().filter(|_| with == ComparedWith::Candidate) {
            self.keep_sample(trace, sample);
        }
    }

    /// How large the fields of a model usually are, as far as that is known.
    #[must_use]
    pub fn scales(&self, model: &str) -> FieldScales {
        let known = self.models.iter().position(|known| known.name == model);
        let fields = self.fields.iter().filter(|field| Some(field.model) == known);
        let usual = |field: &FieldTally| Some((field.name.clone(), magnitude(field.magnitudes.quantile(0.5)?)));
        FieldScales::new(fields.filter_map(usual))
    }

    /// The model of this name; the common one if there is no room.
    fn model(&mut self, name: &str) -> usize {
        let known = |name: &str, models: &[Model]| models.iter().position(|model| model.name == name);
        if let Some(at) = known(name, &self.models) {
            return at;
        }
        // the last place is that of all others
        let name = if self.models.len() + 1 < MAX_MODELS { name } else { OTHER_MODELS };
        known(name, &self.models).unwrap_or_else(|| {
            self.models.push(Model { name: name.to_owned(), compared: [0; 2], fields: FxHashMap::default() });
            self.models.len() - 1
        })
    }

    /// The field of this name in answers of a model; the common one if there is no room.
    fn field(&mut self, model: usize, name: &str) -> u16 {
        if let Some(id) = self.models[model].fields.get(name) {
            return *id;
        }
        let name = if self.fields.len() < MAX_FIELDS { name } else { OTHER_FIELDS };
        if let Some(id) = self.models[model].fields.get(name) {
            return *id;
        }
        let id = u16::try_from(self.fields.len()).unwrap_or(u16::MAX);
        self.fields.push(FieldTally::new(name, model));
        self.models[model].fields.insert(name.to_owned(), id);
        id
    }

    fn count_set(&mut self, side: usize, set: DifferenceSet, answers: u64) {
        let tally = &mut self.sides[side];
        if let Some(count) = tally.sets.get_mut(&set) {
            *count += answers;
        } else if tally.sets.len() < MAX_SETS {
            tally.sets.insert(set, answers);
        } else {
            let judgement = self.judge_set(&set);
            self.sides[side].other_sets.add(judgement, answers);
        }
    }

    /// Keeps a sample. Of more than fit, those of the least trace ids stay, so that the order of merging does not matter.
    fn keep_sample(&mut self, trace: TraceId, sample: &PayloadSample) {
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

/// A field that differs, as it is counted.
fn differing(field: u16, found: &FieldComparison, comparison: &Comparison, asked: Asked<'_>) -> Differing {
    let is_drawn = comparison.is_generated && asked.may_be_drawn && found.kinds.is_only(DifferenceKind::Text);
    let is_text_of_model = is_drawn && found.field != ERROR_FIELD;
    let hint = if is_text_of_model { FieldHint::Drawn } else { found.hint };
    Differing { field, kinds: found.kinds, hint, size: size_bin(found.size()) }
}

/// A set in the order of its fields, each once.
fn canonical(mut set: DifferenceSet) -> DifferenceSet {
    set.sort_unstable();
    set.dedup_by(|next, kept| {
        let is_same = next.field == kept.field;
        if is_same {
            kept.kinds = kept.kinds.union(next.kinds);
            kept.size = kept.size.max(next.size);
            kept.hint = kept.hint.min(next.hint);
        }
        is_same
    });
    set
}

#[cfg(test)]
mod tests;
