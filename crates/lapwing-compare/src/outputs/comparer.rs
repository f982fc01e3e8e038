//! Two finished answers in, what differs out.

use super::answer::FinishedAnswer;
use super::check::{
    EditBudget, Judging, compare_documents, compare_embeddings, compare_field, compare_generated, compare_tensors,
};
use super::comparison::{Comparison, DifferenceDetail, DifferenceKind, FieldComparison, Incomparable};
use super::config::Config;
use super::decode::{AnswerDecodeError, AnswerReading, Decoded, TextPart, decode};
use super::differences::Differences;
use super::paths::PathSet;
use super::rules::{FieldScales, RuleTable, Rules};
use super::sample::PayloadSample;
use lapwing_ledger::{Stamp, WallClock};
use lapwing_protocol::OutputKind;

/// The name of the field of a status.
const STATUS: &str = "status";
/// The name of the field of a body that is compared as a whole.
const BODY: &str = "body";

/// Compares answers by the configuration. Built once, shared by all threads that compare.
#[derive(Clone, Debug)]
pub struct Comparer {
    rules: RuleTable,
    /// The largest body that is decoded, in bytes.
    max_decoded: usize,
    keep_samples: usize,
    redact: PathSet,
    /// Whether `redact` has any path.
    redacts: bool,
}

impl Comparer {
    /// Compiles the configuration, which must have been checked.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            rules: RuleTable::new(config),
            max_decoded: usize::try_from(config.max_decoded.get()).unwrap_or(usize::MAX),
            keep_samples: config.keep_samples,
            redact: PathSet::new(&config.redact),
            redacts: !config.redact.is_empty(),
        }
    }

    /// An empty account of differences on `route`, for one target. `is_noise_measured`: whether the primary is asked twice.
    #[must_use]
    pub fn differences(&self, route: &str, is_noise_measured: bool) -> Differences {
        Differences::new(self.rules.of(route).tolerance, self.keep_samples, is_noise_measured)
    }

    /// Compares the candidate's answer with the primary's. `route` is that of the request, with its method or without; `kind` is what
    /// its protocol answers with. For the noise floor the candidate is a second answer of the primary.
    ///
    /// It takes time linear in the bodies, except for objects (sorted by key), arrays of any order (sorted) and texts (aligned within
    /// a budget). Memory: up to 16 bytes per byte of JSON, a copy of anything else.
    #[must_use]
    pub fn compare(
        &self,
        route: &str,
        kind: OutputKind,
        primary: &FinishedAnswer<'_>,
        candidate: &FinishedAnswer<'_>,
    ) -> Comparison {
        self.compare_as(route, [AnswerReading::Protocol(kind); 2], &FieldScales::default(), primary, candidate)
    }

    /// The same, where each side's answer is decoded in its own way, the primary's first, and where it is known how large the route's
    /// fields usually are ([`Differences::scales`]).
    #[must_use]
    pub fn compare_as(
        &self,
        route: &str,
        readings: [AnswerReading<'_>; 2],
        scales: &FieldScales,
        primary: &FinishedAnswer<'_>,
        candidate: &FinishedAnswer<'_>,
    ) -> Comparison {
        if !primary.is_complete || !candidate.is_complete {
            return Comparison::incomparable(Incomparable::Incomplete);
        }
        let mut fields = Vec::new();
        let (p_status, c_status) = (primary.status_text(), candidate.status_text());
        if p_status != c_status {
            fields.push(difference(STATUS, DifferenceKind::Status, p_status, c_status));
        }
        if primary.is_server_failure() && candidate.is_server_failure() {
            return Comparison::incomparable(Incomparable::BothFailed);
        }
        // of a model's answer only its values are the API's
        let is_of_model = matches!(readings[1], AnswerReading::Model(..));
        if is_of_model && (400..500).contains(&primary.status) {
            return Comparison::incomparable(Incomparable::PrimaryRefused);
        }
        if !primary.is_success() || !candidate.is_success() {
            // errors are compared by their status alone: their texts are for people
            return Comparison::of(fields);
        }
        let [p, c] =
            [(primary, readings[0]), (candidate, readings[1])].map(|(answer, reading)| decode(answer, reading, self.max_decoded));
        let (p, c) = match (p, c) {
            (Ok(p), Ok(c)) => (p, c),
            (Err(_), Err(_)) if has_same_body(primary, candidate) => return Comparison::of(fields),
            (Err(AnswerDecodeError::TooLarge(_)), _) | (_, Err(AnswerDecodeError::TooLarge(_))) => {
                return Comparison::incomparable(Incomparable::TooLarge);
            }
            // what is not read here is no fault of the candidate
            (Err(AnswerDecodeError::Encoding(_)), _) | (_, Err(AnswerDecodeError::Encoding(_))) => {
                return Comparison::incomparable(Incomparable::UnreadEncoding);
            }
            (Err(_), _) => return Comparison::incomparable(Incomparable::PrimaryUndecodable),
            (Ok(p), Err(error)) => {
                fields.push(difference(BODY, DifferenceKind::Undecodable, p.name().to_owned(), bounded(error.to_string())));
                return Comparison::of(fields);
            }
        };
        if is_error(&p) && is_error(&c) {
            return Comparison::incomparable(Incomparable::BothFailed);
        }
        let now_s = WallClock::read().unix_ns(Stamp::now()) as f64 / 1e9;
        let by_value = matches!(readings[1], AnswerReading::SameModel(_));
        fields.extend(compare_decoded(&p, &c, &Judging { rules: self.rules.of(route), scales, now_s, by_value }));
        let mut comparison = Comparison::of(fields);
        comparison.is_generated = matches!((&p, &c), (Decoded::Generated(_), Decoded::Generated(_)));
        // the paths of `redact` are those of a document, of which tensors say nothing
        let is_mapped = readings.iter().any(|reading| matches!(reading, AnswerReading::Mapped(_) | AnswerReading::Model(..)));
        let may_be_kept = !(is_mapped && self.redacts);
        if self.keep_samples > 0 && may_be_kept && !comparison.kinds().is_empty() {
            comparison.sample = Some(Box::new(PayloadSample::new(&p, &c, &self.redact)));
        }
        comparison
    }
}

/// Whether a body that came with success says that there was an error.
fn is_error(body: &Decoded) -> bool {
    matches!(body, Decoded::Generated(texts) if texts.0.keys().any(|(_, part)| *part == TextPart::Error))
}

fn compare_decoded(p: &Decoded, c: &Decoded, judging: &Judging<'_>) -> Vec<FieldComparison> {
    let (mut budget, rules): (_, &Rules) = (EditBudget::default(), judging.rules);
    match (p, c) {
        (Decoded::Tensors(p), Decoded::Tensors(c)) => compare_tensors(p, c, judging, &mut budget),
        (Decoded::Embeddings(p), Decoded::Embeddings(c)) => vec![compare_embeddings(p, c, judging)],
        (Decoded::Generated(p), Decoded::Generated(c)) => compare_generated(p, c, rules, &mut budget),
        (Decoded::Json(p), Decoded::Json(c)) => compare_documents(p, c, judging, &mut budget),
        (Decoded::Text(p), Decoded::Text(c)) => {
            compare_field(BODY, p.as_bytes(), c.as_bytes(), rules, &mut budget).into_iter().collect()
        }
        (Decoded::Opaque(p), Decoded::Opaque(c)) if p == c => Vec::new(),
        (Decoded::Opaque(p), Decoded::Opaque(c)) => {
            let at = p.iter().zip(c).take_while(|(p, c)| p == c).count();
            let length = |side: &[u8]| format!("{} bytes", side.len());
            let mut field = difference(BODY, DifferenceKind::Value, length(p), length(c));
            if let Some(detail) = &mut field.detail {
                detail.at = format!("byte {at}");
            }
            vec![field]
        }
        (p, c) => vec![difference(BODY, DifferenceKind::Structure, p.name().to_owned(), c.name().to_owned())],
    }
}

fn difference(field: &str, kind: DifferenceKind, primary: String, candidate: String) -> FieldComparison {
    let mut field = FieldComparison::new(field);
    field.differs(kind, || DifferenceDetail { at: String::new(), primary, candidate });
    field
}

/// A reason as it is shown.
fn bounded(reason: String) -> String {
    if reason.len() > 200 { reason.chars().take(200).collect() } else { reason }
}

fn has_same_body(a: &FinishedAnswer<'_>, b: &FinishedAnswer<'_>) -> bool {
    let bytes = |answer: &FinishedAnswer<'_>| answer.body.iter().map(|piece| piece.len()).sum::<usize>();
    bytes(a) == bytes(b) && a.body.iter().flatten().eq(b.body.iter().flatten())
}
