//! The account as it is shown: plain numbers, each a count, a greatest or a least value, so that it can be added up elsewhere too.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::super::comparison::{DifferenceKind, ERROR_STEPS, Incomparable};
use super::super::config::Tolerance;
use super::super::sample::PayloadSample;
use super::rate::{Z_SHOWN, wilson};
use super::tally::{FieldTally, NumberTally, SIMILARITY_STEPS, TextTally, WorstCase};
use super::{DifferenceSet, Differences, SideTally};
use crate::ledger::TraceId;

/// What differs between the primary and one target, on one route. Its `Display` is the report for people.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DifferencesSnapshot {
    /// The tolerance of the route.
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
    /// Answers and elements by the size of their errors, noise or not.
    pub errors: Vec<ErrorStepSnapshot>,
    /// The fields that differ or have numbers, those with the most differing answers first.
    pub fields: Vec<FieldSnapshot>,
    /// How many answers differ in each set of fields: what the mismatches are counted from.
    pub sets: Vec<SetSnapshot>,
    /// Answers in sets that found no room; they count as mismatches.
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
    /// Answers that differ only in what the primary's answers differ in too.
    pub excused: u64,
    /// `answers / compared`; absent where nothing was compared.
    pub rate: Option<f64>,
    /// The 95 % interval of the rate (Wilson), for one look.
    pub interval: [f64; 2],
    /// Answers by kind; one answer may have several.
    pub kinds: BTreeMap<&'static str, u64>,
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
    /// How it differs.
    pub kinds: Vec<KindSnapshot>,
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
    /// Whether it is the primary's own noise, and not blamed on the candidate.
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

impl Differences {
    /// The account as it stands.
    #[must_use]
    pub fn snapshot(&self) -> DifferencesSnapshot {
        let [candidate, itself] = &self.sides;
        let reasons = Incomparable::ALL.into_iter().zip(candidate.incomparable);
        let mut fields: Vec<FieldSnapshot> = (0..).zip(&self.fields).map(|(id, field)| self.field_snapshot(id, field)).collect();
        let differing = |field: &FieldSnapshot| field.kinds.iter().map(|kind| kind.answers).max().unwrap_or(0);
        fields.sort_by(|a, b| differing(b).cmp(&differing(a)).then_with(|| a.field.cmp(&b.field)));
        DifferencesSnapshot {
            tolerance: self.tolerance,
            compared: candidate.compared(),
            same: candidate.same,
            different: candidate.different,
            incomparable: reasons.map(|(reason, pairs)| (reason.name(), pairs)).collect(),
            repeats: RepeatSnapshot { compared: itself.compared(), different: itself.different },
            mismatches: self.mismatches(),
            errors: self.errors(),
            fields,
            sets: self.sets(),
            sets_left_out: candidate.other_sets,
            samples: self
                .samples
                .iter()
                .map(|(trace, payloads)| SampleSnapshot { trace: *trace, payloads: payloads.clone() })
                .collect(),
        }
    }

    fn mismatches(&self) -> MismatchSnapshot {
        let candidate = &self.sides[0];
        let (mut answers, mut kinds) = (candidate.other_sets, BTreeMap::new());
        for (set, count) in &candidate.sets {
            let blamed =
                |kind: &DifferenceKind| set.iter().any(|(field, own)| own.contains(*kind) && self.is_blamed(*field, *kind));
            let mut is_mismatch = false;
            for kind in DifferenceKind::ALL.iter().filter(|kind| blamed(kind)) {
                *kinds.entry(kind.name()).or_insert(0) += count;
                is_mismatch = true;
            }
            answers += if is_mismatch { *count } else { 0 };
        }
        let compared = candidate.compared();
        let (low, high) = wilson((answers, compared), Z_SHOWN);
        MismatchSnapshot {
            answers,
            excused: candidate.different.saturating_sub(answers),
            rate: (compared > 0).then(|| answers as f64 / compared as f64),
            interval: [low, high],
            kinds,
        }
    }

    fn errors(&self) -> Vec<ErrorStepSnapshot> {
        let [candidate, itself] = &self.sides;
        let elements = |step: usize| self.fields.iter().map(|field| field.sides[0].numbers.exceeding[step]).sum();
        let snapshot = |(step, above): (usize, f64)| ErrorStepSnapshot {
            above,
            answers: candidate.exceeding[step],
            answers_with_numbers: candidate.with_numbers,
            elements: elements(step),
            repeats: itself.exceeding[step],
        };
        ERROR_STEPS.into_iter().enumerate().map(snapshot).collect()
    }

    fn field_snapshot(&self, id: u16, field: &FieldTally) -> FieldSnapshot {
        let [candidate, itself] = &field.sides;
        let kind = |kind: DifferenceKind| {
            let (answers, repeats) = (candidate.kinds[kind as usize], itself.kinds[kind as usize]);
            let is_noise = !self.is_blamed(id, kind);
            (answers + repeats > 0).then_some(KindSnapshot { kind, answers, repeats, is_noise })
        };
        FieldSnapshot {
            field: field.name.clone(),
            kinds: DifferenceKind::ALL.into_iter().filter_map(kind).collect(),
            numbers: NumberSnapshot::of(&candidate.numbers, &itself.numbers),
            repeated_numbers: NumberSnapshot::of(&itself.numbers, &NumberTally::default()),
            texts: TextSnapshot::of(&candidate.texts),
            worst: candidate.worst.clone(),
            repeated_worst: itself.worst.clone(),
        }
    }

    /// The sets of both sides, the most frequent first.
    fn sets(&self) -> Vec<SetSnapshot> {
        let [candidate, itself] = &self.sides;
        let count = |side: &SideTally, set: &DifferenceSet| side.sets.get(set).copied().unwrap_or(0);
        let keys = candidate.sets.keys().chain(itself.sets.keys().filter(|set| !candidate.sets.contains_key(*set)));
        let named = |set: &DifferenceSet| -> Vec<(String, DifferenceKind)> {
            let kinds = set.iter().flat_map(|(field, kinds)| kinds.iter().map(move |kind| (*field, kind)));
            let mut named: Vec<_> = kinds.map(|(field, kind)| (self.fields[usize::from(field)].name.clone(), kind)).collect();
            named.sort_unstable();
            named
        };
        let mut sets: Vec<SetSnapshot> = keys
            .map(|set| SetSnapshot { differs: named(set), answers: count(candidate, set), repeats: count(itself, set) })
            .collect();
        sets.sort_by(|a, b| b.answers.cmp(&a.answers).then(b.repeats.cmp(&a.repeats)).then_with(|| a.differs.cmp(&b.differs)));
        sets
    }
}

impl NumberSnapshot {
    fn of(tally: &NumberTally, repeated: &NumberTally) -> Option<Self> {
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
        })
    }
}

impl TextSnapshot {
    fn of(tally: &TextTally) -> Option<Self> {
        let steps = SIMILARITY_STEPS.into_iter().chain([0.0]);
        (tally.differing > 0).then(|| Self {
            differing: tally.differing,
            same_normalised: tally.same_normalised,
            by_similarity: steps.zip(tally.by_similarity).collect(),
            least_similarity: tally.least_similarity,
        })
    }
}

/// A number; `"inf"` or `"NaN"` as text, because JSON has no such numbers.
pub(super) fn number_or_text<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) if number.is_finite() => serializer.serialize_f64(*number),
        Some(number) => serializer.collect_str(number),
        None => serializer.serialize_none(),
    }
}

/// What [`number_or_text`] writes.
pub(super) fn number_or_text_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"type": ["number", "null"]}, {"enum": ["inf", "-inf", "NaN"]}]})
}
