//! What a comparison finds.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::sample::PayloadSample;

/// The most fields of one comparison; further ones are counted.
pub const MAX_FIELDS: usize = 64;

/// The absolute errors that elements are counted by: how many are greater than each. The last counts every difference.
pub const ERROR_STEPS: [f64; 8] = [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 0.0];

/// How two answers can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DifferenceKind {
    /// The HTTP or gRPC status.
    Status,
    /// The candidate's body cannot be decoded, the primary's can.
    Undecodable,
    /// A member, element or tensor is on one side only, or its type differs.
    Structure,
    /// The datatype of a tensor.
    Datatype,
    /// The shape of a tensor.
    Shape,
    /// A number beyond the tolerance, another boolean, or other bytes.
    Value,
    /// A text.
    Text,
}

impl DifferenceKind {
    /// Every kind, in order.
    pub const ALL: [Self; 7] =
        [Self::Status, Self::Undecodable, Self::Structure, Self::Datatype, Self::Shape, Self::Value, Self::Text];

    /// Its name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Undecodable => "undecodable",
            Self::Structure => "structure",
            Self::Datatype => "datatype",
            Self::Shape => "shape",
            Self::Value => "value",
            Self::Text => "text",
        }
    }
}

impl JsonSchema for DifferenceKind {
    fn schema_name() -> Cow<'static, str> {
        "DifferenceKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": Self::ALL.map(Self::name)})
    }
}

impl Serialize for DifferenceKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindSet(u8);

impl KindSet {
    /// Whether no kind is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `kind` is in it.
    #[must_use]
    pub const fn contains(self, kind: DifferenceKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// Whether `kind` is the only one in it.
    #[must_use]
    pub const fn is_only(self, kind: DifferenceKind) -> bool {
        self.0 == 1 << kind as u8
    }

    /// Adds a kind.
    pub const fn insert(&mut self, kind: DifferenceKind) {
        self.0 |= 1 << kind as u8;
    }

    /// The kinds of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Its kinds, in order.
    pub fn iter(self) -> impl Iterator<Item = DifferenceKind> {
        DifferenceKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }
}

/// The greatest error of a field, and where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct GreatestError {
    /// |candidate − primary|; infinite where one of them is not finite and the other is not the same.
    pub error: f64,
    /// The primary's value.
    pub primary: f64,
    /// The candidate's value.
    pub candidate: f64,
    /// The flat index among the elements of the field.
    pub index: u64,
    /// The row: the index of the first axis, or of the outermost array of a JSON document.
    pub row: u64,
    /// The place by axis or as a path: `[3, 1]` or `$.scores[3][1]`.
    pub at: String,
}

/// How the numbers of a field compare. NaN equals NaN, as in `numpy.isclose(…, equal_nan=True)`, because a model that has no value
/// there agrees with itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NumberComparison {
    /// Numbers compared.
    pub elements: u64,
    /// How many have an absolute error greater than each of [`ERROR_STEPS`].
    pub exceeding: [u64; ERROR_STEPS.len()],
    /// How many are beyond the configured tolerance.
    pub outside: u64,
    /// Rows of the first axis with an element beyond the tolerance.
    pub rows_outside: u64,
    /// The greatest absolute error; `None` if all numbers are the same.
    pub greatest: Option<GreatestError>,
    /// The greatest error relative to the primary's value; infinite where that is 0.
    pub relative: f64,
    /// The greatest distance in units in the last place; `None` for integers and JSON.
    pub ulps: Option<u64>,
    /// The least cosine similarity of a row of the last axis; `None` where rows have one element.
    pub cosine: Option<f64>,
    /// The greatest Kullback-Leibler divergence of a row from the primary's, in nats; `None` where rows are not distributions.
    pub divergence: Option<f64>,
    /// Rows of the last axis whose ranking was compared.
    pub ranked: u64,
    /// Those of them whose `top_k` greatest elements are others.
    pub top_k_changed: u64,
    /// The mean magnitude of the primary's finite numbers.
    pub mean: f64,
    /// What errors are relative to: that, or what is usual for the field if it is more. 0 if nothing differs, or all is zero.
    pub scale: f64,
    /// The greatest distance of a vector from the primary's, relative to its length; `None` for what is no embedding.
    pub distance: Option<f64>,
    /// Numbers that are a tenth apart, and agree only because both are less than the absolute tolerance.
    pub below: u64,
}

/// How two texts compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TextComparison {
    /// The lengths in bytes: the primary's, the candidate's.
    pub bytes: [u64; 2],
    /// Whether they are the same but for case and white space.
    pub is_same_normalised: bool,
    /// The token edit similarity: 1 − distance / tokens of the longer text.
    pub similarity: f64,
    /// Whether `similarity` is only an upper bound, because the texts are too large and too different to be aligned.
    pub is_bound: bool,
    /// The first byte that differs.
    pub first_difference: u64,
}

/// The first difference of a field that is not a number, without the payload's own text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferenceDetail {
    /// The place: `$.rows[3].label`, or empty for the whole field.
    pub at: String,
    /// What the primary has there.
    pub primary: String,
    /// What the candidate has there.
    pub candidate: String,
}

/// What the name and the values of a field say about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldHint {
    /// It is an output.
    #[default]
    Nothing,
    /// An id, which may be one of each answer.
    Id,
    /// How long something took.
    Duration,
    /// Text that the model may have drawn by chance.
    Drawn,
}

/// How a field compares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldComparison {
    /// The field: a tensor's name, or a path without its indices (`$.scores[]`).
    pub field: String,
    /// How it differs; empty if it agrees.
    pub kinds: KindSet,
    /// The first difference that is not a number.
    pub detail: Option<DifferenceDetail>,
    /// Its numbers, if it has any.
    pub numbers: Option<Box<NumberComparison>>,
    /// Its text, if it is one and differs.
    pub text: Option<TextComparison>,
    /// What kind of field it is.
    pub hint: FieldHint,
    /// Whether values that differ are the times of both answers, which is no difference.
    pub is_stamped: bool,
}

impl FieldComparison {
    /// A field that agrees so far.
    pub(crate) fn new(field: impl Into<String>) -> Self {
        Self { field: field.into(), ..Self::default() }
    }

    /// Adds a difference; the detail of the first one is kept.
    pub(crate) fn differs(&mut self, kind: DifferenceKind, detail: impl FnOnce() -> DifferenceDetail) {
        self.kinds.insert(kind);
        self.detail.get_or_insert_with(detail);
    }

    /// How great the difference is, relative to the field: an error over its scale, 1 − the similarity of its texts, 1 for other values;
    /// infinite for what has no size, such as another shape. 0 if it agrees.
    #[must_use]
    pub fn size(&self) -> f64 {
        let of_kind = |kind| match (kind, &self.numbers, &self.text) {
            (DifferenceKind::Value, Some(numbers), _) => numbers.size(),
            (DifferenceKind::Text, _, Some(text)) => 1.0 - text.similarity,
            (DifferenceKind::Value | DifferenceKind::Text, ..) => 1.0,
            _ => f64::INFINITY,
        };
        self.kinds.iter().map(of_kind).fold(0.0, f64::max)
    }
}

impl NumberComparison {
    /// The greatest error relative to the scale; 1 where only another measure differs, as a ranking.
    fn size(&self) -> f64 {
        let relative = |greatest: &GreatestError| greatest.error / self.scale;
        let size = self.distance.or_else(|| self.greatest.as_ref().map(relative)).unwrap_or(1.0);
        if size.is_nan() { f64::INFINITY } else { size }
    }
}

/// Why two answers are neither the same nor different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Incomparable {
    /// An answer was cut off.
    Incomplete,
    /// An answer is larger than `max_decoded`.
    TooLarge,
    /// The primary's body cannot be decoded, and the candidate's is not the same.
    PrimaryUndecodable,
    /// The content encoding of an answer is not read here.
    UnreadEncoding,
    /// Both servers failed: neither answer is an output.
    BothFailed,
    /// The primary refused the request (4xx), by rules of its API that a model does not have.
    PrimaryRefused,
}

impl Incomparable {
    /// Every reason, in order.
    pub const ALL: [Self; 6] = [
        Self::Incomplete,
        Self::TooLarge,
        Self::PrimaryUndecodable,
        Self::UnreadEncoding,
        Self::BothFailed,
        Self::PrimaryRefused,
    ];

    /// Its name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::TooLarge => "too_large",
            Self::PrimaryUndecodable => "primary_undecodable",
            Self::UnreadEncoding => "unread_encoding",
            Self::BothFailed => "both_failed",
            Self::PrimaryRefused => "primary_refused",
        }
    }
}

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonResult {
    /// Nothing that is compared differs.
    Same,
    /// Something differs: see the fields.
    Different,
    /// The answers cannot be compared.
    Incomparable(Incomparable),
}

/// What a comparison of two answers found.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The outcome.
    pub result: ComparisonResult,
    /// The fields that differ, and those with numbers; at most [`MAX_FIELDS`], those that differ first.
    pub fields: Vec<FieldComparison>,
    /// Fields that differ beyond those.
    pub fields_left_out: u64,
    /// Both payloads, redacted, if samples are kept and the answers differ.
    pub sample: Option<Box<PayloadSample>>,
    /// Whether both answers are text that a model wrote.
    pub is_generated: bool,
}

impl Comparison {
    /// A comparison that could not be made.
    pub(crate) const fn incomparable(reason: Incomparable) -> Self {
        let result = ComparisonResult::Incomparable(reason);
        Self { result, fields: Vec::new(), fields_left_out: 0, sample: None, is_generated: false }
    }

    /// The outcome of these fields.
    pub(crate) fn of(mut fields: Vec<FieldComparison>) -> Self {
        let differs = |field: &FieldComparison| !field.kinds.is_empty();
        let is_different = fields.iter().any(differs);
        // those that differ first, and otherwise in their order
        fields.sort_by_key(|field| !differs(field));
        let fields_left_out = fields.iter().skip(MAX_FIELDS).filter(|field| differs(field)).count() as u64;
        fields.truncate(MAX_FIELDS);
        let result = if is_different { ComparisonResult::Different } else { ComparisonResult::Same };
        Self { result, fields, fields_left_out, sample: None, is_generated: false }
    }

    /// The greatest error among the fields of which `counts` is true: infinite for a difference that is no number. `None` if none of them
    /// differs.
    pub fn greatest_error(&self, counts: impl Fn(&FieldComparison) -> bool) -> Option<f64> {
        let error = |field: &FieldComparison, kind| match field.numbers.as_ref().and_then(|numbers| numbers.greatest.as_ref()) {
            Some(greatest) if kind == DifferenceKind::Value => greatest.error,
            _ => f64::INFINITY,
        };
        let errors = |field: &FieldComparison| field.kinds.iter().map(|kind| error(field, kind)).reduce(f64::max);
        self.fields.iter().filter(|field| counts(field)).filter_map(errors).reduce(f64::max)
    }

    /// Whether the answers differ; `None` if they could not be compared.
    #[must_use]
    pub const fn is_different(&self) -> Option<bool> {
        match self.result {
            ComparisonResult::Same => Some(false),
            ComparisonResult::Different => Some(true),
            ComparisonResult::Incomparable(_) => None,
        }
    }

    /// How the answers differ; empty unless they do.
    #[must_use]
    pub fn kinds(&self) -> KindSet {
        self.fields.iter().fold(KindSet::default(), |kinds, field| kinds.union(field.kinds))
    }
}
