//! The account as it is shown: plain numbers, each a count, a greatest or a least value, so that it can be added up elsewhere too.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::super::comparison::{DifferenceKind, ERROR_STEPS};
use super::super::config::Tolerance;
use super::super::sample::PayloadSample;
use super::tally::{NumberTally, SIMILARITY_STEPS, TextTally, WorstCase, number_or_text, number_or_text_schema};
use lapwing_ledger::TraceId;

/// What differs between the primary and one target, on one route. Its `Display` is the report for people.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DifferencesSnapshot {
    /// What it says in one word, and the first sentence of the report.
    pub verdict: OutputsVerdict,
    /// The first sentence of the report.
    pub summary: String,
    /// The tolerance of the route; what is not given is relative to each field's scale.
    pub tolerance: Tolerance,
    /// Answers compared: `same + different`.
    pub compared: u64,
    /// Answers that agree in everything that is compared.
    pub same: u64,
    /// Answers that differ in anything, noise or not.
    pub different: u64,
    /// Pairs that could not be compared, by reason.
    pub incomparable: BTreeMap<&'static str, u64>,
    /// The primary against itself.
    pub repeats: RepeatSnapshot,
    /// Differences net of noise.
    pub mismatches: MismatchSnapshot,
    /// Pairs that cannot be judged.
    pub unjudged: UnjudgedSnapshot,
    /// Answers and elements by the size of their errors, noise or not.
    pub errors: Vec<ErrorStepSnapshot>,
    /// The fields that differ or have numbers, those with the most differing answers first.
    pub fields: Vec<FieldSnapshot>,
    /// How many answers differ in each set of fields: what the mismatches are counted from.
    pub sets: Vec<SetSnapshot>,
    /// Answers in sets that found no room, which were judged when they came.
    pub sets_left_out: u64,
    /// Payloads of differing answers, if they are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<SampleSnapshot>,
}

/// The noise floor: answers of the primary against second answers of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RepeatSnapshot {
    /// Pairs compared.
    pub compared: u64,
    /// Pairs that differ in anything.
    pub different: u64,
}

/// Differences that are blamed on the candidate.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MismatchSnapshot {
    /// Answers with at least one.
    pub answers: u64,
    /// Answers that differ only in what the primary's answers differ in as much, and that is little.
    pub excused: u64,
    /// The share of the excused in all pairs.
    pub excused_share: f64,
    /// Answers that were judged: the same, excused or mismatches.
    pub judged: u64,
    /// `answers / judged`; absent where nothing was judged.
    pub rate: Option<f64>,
    /// The 95 % interval of the rate (Wilson), for one look.
    pub interval: [f64; 2],
    /// Answers by kind; one answer may have several.
    pub kinds: BTreeMap<&'static str, u64>,
}

/// What the account says in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputsVerdict {
    /// No pair of answers came.
    NothingCompared,
    /// Too many pairs cannot be judged.
    CannotBeCompared,
    /// Some answers differ.
    Differ,
    /// All that were judged agree, and nearly all were.
    Agree,
}

impl OutputsVerdict {
    /// From this share of unjudged pairs on, those that agree say nothing of all.
    pub const MAX_UNJUDGED: f64 = 0.05;

    pub(crate) fn of(mismatches: u64, unjudged: &UnjudgedSnapshot, pairs: u64) -> Self {
        match (mismatches, unjudged.share) {
            _ if pairs == 0 => Self::NothingCompared,
            // what differs differs, however much else is unknown
            (1.., share) if share <= 0.5 => Self::Differ,
            (_, share) if share > Self::MAX_UNJUDGED => Self::CannotBeCompared,
            _ => Self::Agree,
        }
    }
}

/// Pairs that cannot be judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct UnjudgedSnapshot {
    /// How many.
    pub pairs: u64,
    /// Their share in all pairs; 0 without any.
    pub share: f64,
    /// By reason: `upstream_varies` (its own answers differ as much), `too_few_repeats`, `noise_not_measured`, and those of `incomparable`.
    pub reasons: BTreeMap<&'static str, u64>,
}

/// Answers and elements with an absolute error greater than a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ErrorStepSnapshot {
    /// The error.
    pub above: f64,
    /// Answers with such an element; of `answers_with_numbers`.
    pub answers: u64,
    /// Answers that have numbers.
    pub answers_with_numbers: u64,
    /// Such elements.
    pub elements: u64,
    /// Second answers of the primary with such an element.
    pub repeats: u64,
}

/// A field.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FieldSnapshot {
    /// A tensor's name, or a path without indices.
    pub field: String,
    /// The model; absent if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// How it differs.
    pub kinds: Vec<KindSnapshot>,
    /// The typical magnitude of its numbers in the primary's answers; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// The greatest difference that is excused as noise, relative to the scale or as 1 − similarity; absent where none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excused_size: Option<f64>,
    /// Whether values that differ are the times of both answers, which are not compared.
    pub is_time: bool,
    /// Its numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numbers: Option<NumberSnapshot>,
    /// Its numbers in second answers of the primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated_numbers: Option<NumberSnapshot>,
    /// Its texts, where they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub texts: Option<TextSnapshot>,
    /// The worst cases of the candidate.
    pub worst: Vec<WorstCase>,
    /// The worst cases of the primary against itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeated_worst: Vec<WorstCase>,
}

/// A kind of difference of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KindSnapshot {
    /// The kind.
    pub kind: DifferenceKind,
    /// Answers of the candidate.
    pub answers: u64,
    /// Second answers of the primary.
    pub repeats: u64,
    /// Those of them that are blamed on it.
    pub blamed: u64,
    /// Those that can be blamed on neither side.
    pub unjudged: u64,
    /// Whether none is blamed on the candidate.
    pub is_noise: bool,
}

/// Numbers of a field, over all answers.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NumberSnapshot {
    /// Answers that have the field.
    pub answers: u64,
    /// Numbers compared.
    pub elements: u64,
    /// Numbers beyond the tolerance.
    pub outside: u64,
    /// Rows with one.
    pub rows_outside: u64,
    /// By step of error.
    pub errors: Vec<ErrorStepSnapshot>,
    /// The greatest relative error; `"inf"` where the primary has 0.
    #[serde(serialize_with = "number_or_text")]
    #[schemars(schema_with = "number_or_text_schema")]
    pub greatest_relative: Option<f64>,
    /// The greatest distance in units in the last place.
    pub greatest_ulps: Option<u64>,
    /// The least cosine similarity of a row.
    #[serde(serialize_with = "number_or_text")]
    #[schemars(schema_with = "number_or_text_schema")]
    pub least_cosine: Option<f64>,
    /// The greatest divergence of a row, in nats.
    #[serde(serialize_with = "number_or_text")]
    #[schemars(schema_with = "number_or_text_schema")]
    pub greatest_divergence: Option<f64>,
    /// Rows whose ranking was compared.
    pub ranked_rows: u64,
    /// Rows with other greatest elements.
    pub top_k_changed: u64,
    /// Numbers that agree only because both are less than the absolute tolerance: they were not distinguished.
    pub below_tolerance: u64,
}

/// Texts of a field, over all answers in which it differs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TextSnapshot {
    /// Answers in which the text is not the same.
    pub differing: u64,
    /// Those that are the same but for case and white space.
    pub same_normalised: u64,
    /// Those by token edit similarity: at least this, and less than the one before. The last class is from 0.
    pub by_similarity: Vec<(f64, u64)>,
    /// The least similarity.
    pub least_similarity: Option<f64>,
}

/// How many answers differ in exactly these fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SetSnapshot {
    /// The fields, each with a kind.
    pub differs: Vec<(String, DifferenceKind)>,
    /// Answers of the candidate.
    pub answers: u64,
    /// Second answers of the primary.
    pub repeats: u64,
}

/// A kept sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SampleSnapshot {
    /// The trace of the request.
    pub trace: TraceId,
    /// Both payloads, redacted.
    #[serde(flatten)]
    pub payloads: PayloadSample,
}

impl NumberSnapshot {
    pub(crate) fn of(tally: &NumberTally, repeated: &NumberTally) -> Option<Self> {
        let step = |(step, above): (usize, f64)| ErrorStepSnapshot {
            above,
            answers: tally.exceeding_answers[step],
            answers_with_numbers: tally.answers,
            elements: tally.exceeding[step],
            repeats: repeated.exceeding_answers[step],
        };
        (tally.answers > 0).then(|| Self {
            answers: tally.answers,
            elements: tally.elements,
            outside: tally.outside,
            rows_outside: tally.rows_outside,
            errors: ERROR_STEPS.into_iter().enumerate().map(step).collect(),
            greatest_relative: Some(tally.relative),
            greatest_ulps: tally.ulps,
            least_cosine: tally.cosine,
            greatest_divergence: tally.divergence,
            ranked_rows: tally.ranked,
            top_k_changed: tally.top_k_changed,
            below_tolerance: tally.below,
        })
    }
}

impl TextSnapshot {
    pub(crate) fn of(tally: &TextTally) -> Option<Self> {
        let steps = SIMILARITY_STEPS.into_iter().chain([0.0]);
        (tally.differing > 0).then(|| Self {
            differing: tally.differing,
            same_normalised: tally.same_normalised,
            by_similarity: steps.zip(tally.by_similarity).collect(),
            least_similarity: tally.least_similarity,
        })
    }
}
