//! The account of one field: sums, greatest and least values, and worst cases.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::super::comparison::{DifferenceKind, ERROR_STEPS, FieldComparison, GreatestError, NumberComparison, TextComparison};
use super::bins::{Bins, magnitude_bin, size_bin};
use lapwing_ledger::TraceId;

/// Worst cases kept of a field.
const WORST_CASES: usize = 3;
/// The most bytes of a text in a worst case.
const SHOWN_BYTES: usize = 200;
/// The least similarity of each class of differing texts but the last.
pub(crate) const SIMILARITY_STEPS: [f64; 4] = [0.99, 0.95, 0.9, 0.5];

/// A field of one route and target.
#[derive(Clone, Debug)]
pub(crate) struct FieldTally {
    pub(crate) name: String,
    /// The place of its model.
    pub(crate) model: usize,
    /// By `ComparedWith`.
    pub(crate) sides: [FieldSide; 2],
    /// How large the primary's numbers are: an answer's mean magnitude each.
    pub(crate) magnitudes: Bins,
    /// Whether values that differed were the times of both answers.
    pub(crate) is_stamped: bool,
}

/// What one side shows of a field.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldSide {
    /// Answers that differ, by kind.
    pub(crate) kinds: [u64; DifferenceKind::ALL.len()],
    /// Answers that differ, by size.
    pub(crate) sizes: Bins,
    pub(crate) numbers: NumberTally,
    pub(crate) texts: TextTally,
    /// The greatest errors first; after them differences without a number.
    pub(crate) worst: Vec<WorstCase>,
}

/// One of the worst differences of a field. It has numbers, types and lengths, never a payload's text.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WorstCase {
    /// The trace of the request.
    pub trace: TraceId,
    /// The absolute error; absent for what is not a number.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number_or_text")]
    #[schemars(schema_with = "number_or_text_schema")]
    pub error: Option<f64>,
    /// The flat index among the field's elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// The index of the first axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// The place: `[3, 1]`, or a path.
    pub at: String,
    /// What the primary has there.
    pub primary: String,
    /// What the candidate has there.
    pub candidate: String,
}

/// Numbers of a field, over all answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NumberTally {
    pub(crate) answers: u64,
    pub(crate) elements: u64,
    /// Elements, and answers with one, whose error is greater than each of [`ERROR_STEPS`].
    pub(crate) exceeding: [u64; ERROR_STEPS.len()],
    pub(crate) exceeding_answers: [u64; ERROR_STEPS.len()],
    pub(crate) outside: u64,
    pub(crate) rows_outside: u64,
    pub(crate) relative: f64,
    pub(crate) ulps: Option<u64>,
    pub(crate) cosine: Option<f64>,
    pub(crate) divergence: Option<f64>,
    pub(crate) ranked: u64,
    pub(crate) top_k_changed: u64,
    pub(crate) below: u64,
}

/// Texts of a field that differ, over all answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TextTally {
    pub(crate) differing: u64,
    pub(crate) same_normalised: u64,
    /// By [`SIMILARITY_STEPS`], and below them.
    pub(crate) by_similarity: [u64; SIMILARITY_STEPS.len() + 1],
    pub(crate) least_similarity: Option<f64>,
}

impl FieldTally {
    pub(crate) fn new(name: &str, model: usize) -> Self {
        Self { name: name.to_owned(), model, sides: Default::default(), magnitudes: Bins::default(), is_stamped: false }
    }

    /// Records what a comparison found of the field.
    pub(crate) fn record(&mut self, found: &FieldComparison, side: usize, trace: TraceId) {
        self.sides[side].record(found, trace);
        self.is_stamped |= found.is_stamped;
        if let Some(numbers) = found.numbers.as_ref().filter(|numbers| numbers.mean > 0.0) {
            self.magnitudes.add(magnitude_bin(numbers.mean), 1);
        }
    }
}

impl FieldSide {
    pub(crate) fn record(&mut self, found: &FieldComparison, trace: TraceId) {
        for kind in found.kinds.iter() {
            self.kinds[kind as usize] += 1;
        }
        if !found.kinds.is_empty() {
            self.sizes.add(size_bin(found.size()), 1);
        }
        if let Some(numbers) = &found.numbers {
            self.numbers.add(&NumberTally::of(numbers));
            if let Some(greatest) = &numbers.greatest {
                self.add_worst(WorstCase::of_number(greatest, trace));
            }
        }
        if let Some(text) = &found.text {
            self.texts.add(&TextTally::of(text));
        }
        if let Some(detail) = &found.detail {
            let (at, primary, candidate) = (shown(&detail.at), shown(&detail.primary), shown(&detail.candidate));
            self.add_worst(WorstCase { trace, error: None, index: None, row: None, at, primary, candidate });
        }
    }

    /// Keeps a case if it is one of the worst. Which are kept does not depend on the order in which they come.
    pub(crate) fn add_worst(&mut self, case: WorstCase) {
        let at = self.worst.partition_point(|other| other.rank() > case.rank());
        if at < WORST_CASES {
            self.worst.insert(at, case);
            self.worst.truncate(WORST_CASES);
        }
    }
}

impl WorstCase {
    fn of_number(greatest: &GreatestError, trace: TraceId) -> Self {
        Self {
            trace,
            error: Some(greatest.error),
            index: Some(greatest.index),
            row: Some(greatest.row),
            at: shown(&greatest.at),
            primary: greatest.primary.to_string(),
            candidate: greatest.candidate.to_string(),
        }
    }

    /// Errors are not negative and not NaN, so their bits are in their order.
    fn rank(&self) -> (Option<u64>, std::cmp::Reverse<([u8; 16], &str)>) {
        (self.error.map(f64::to_bits), std::cmp::Reverse((self.trace.0, &self.at)))
    }
}

impl NumberTally {
    fn of(numbers: &NumberComparison) -> Self {
        Self {
            answers: 1,
            elements: numbers.elements,
            exceeding: numbers.exceeding,
            exceeding_answers: numbers.exceeding.map(|count| u64::from(count > 0)),
            outside: numbers.outside,
            rows_outside: numbers.rows_outside,
            relative: numbers.relative,
            ulps: numbers.ulps,
            cosine: numbers.cosine,
            divergence: numbers.divergence,
            ranked: numbers.ranked,
            top_k_changed: numbers.top_k_changed,
            below: numbers.below,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let add = |a: &mut [u64], b: &[u64]| a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        self.answers += other.answers;
        self.elements += other.elements;
        add(&mut self.exceeding, &other.exceeding);
        add(&mut self.exceeding_answers, &other.exceeding_answers);
        self.outside += other.outside;
        self.rows_outside += other.rows_outside;
        self.relative = self.relative.max(other.relative);
        self.ulps = self.ulps.max(other.ulps);
        self.cosine = extreme(self.cosine, other.cosine, |a, b| if a.is_nan() || a < b { a } else { b });
        self.divergence = extreme(self.divergence, other.divergence, f64::max);
        self.ranked += other.ranked;
        self.top_k_changed += other.top_k_changed;
        self.below += other.below;
    }
}

impl TextTally {
    fn of(text: &TextComparison) -> Self {
        let class = SIMILARITY_STEPS.iter().position(|step| text.similarity >= *step).unwrap_or(SIMILARITY_STEPS.len());
        let mut by_similarity = [0; SIMILARITY_STEPS.len() + 1];
        by_similarity[class] = 1;
        let same_normalised = u64::from(text.is_same_normalised);
        Self { differing: 1, same_normalised, by_similarity, least_similarity: Some(text.similarity) }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.differing += other.differing;
        self.same_normalised += other.same_normalised;
        self.by_similarity.iter_mut().zip(other.by_similarity).for_each(|(a, b)| *a += b);
        self.least_similarity = extreme(self.least_similarity, other.least_similarity, f64::min);
    }
}

fn extreme(a: Option<f64>, b: Option<f64>, choose: impl Fn(f64, f64) -> f64) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(choose(a, b)),
        (a, b) => a.or(b),
    }
}

/// A text of a worst case, cut where it is long.
fn shown(text: &str) -> String {
    if text.len() <= SHOWN_BYTES { text.to_owned() } else { text.chars().take(SHOWN_BYTES / 4).chain(['…']).collect() }
}

/// A number; `"inf"` or `"NaN"` as text, because JSON has no such numbers.
pub(crate) fn number_or_text<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) if number.is_finite() => serializer.serialize_f64(*number),
        Some(number) => serializer.collect_str(number),
        None => serializer.serialize_none(),
    }
}

/// What [`number_or_text`] writes.
pub(crate) fn number_or_text_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"type": ["number", "null"]}, {"enum": ["inf", "-inf", "NaN"]}]})
}
