//! Compares decoded outputs of the primary and a candidate.
//!
//! Two finished answers go in ([`FinishedAnswer`]); [`Comparer::compare`] decodes them by the protocol of their route (`decode/`), compares
//! the decoded values by the rules of the route (`check/`), and says which fields differ and how ([`Comparison`]). [`Differences`] adds
//! that up for one target and route, together with what the primary's answers differ from themselves in, and says what is left net of
//! that noise ([`DifferencesSnapshot`], which prints as a sentence).
//!
//! All of this runs on the shadow's own thread and never on a request's path. It never fails and never panics: what cannot be decoded
//! or is too large is counted as such. Every body is bounded by `max_decoded`, every list of findings by a constant. Payloads are kept
//! only if `keep_samples` says so; worst cases have numbers, types and lengths, not texts. Names of fields are keys of documents.

mod answer;
mod check;
mod comparer;
mod comparison;
pub mod config;
mod decode;
mod differences;
mod paths;
mod redact;
mod rules;
mod sample;
mod sampling;
#[cfg(any(test, feature = "testing"))]
mod test_answer;

pub use answer::FinishedAnswer;
pub use comparer::Comparer;
pub use comparison::{
    Comparison, ComparisonResult, DifferenceDetail, DifferenceKind, ERROR_STEPS, FieldComparison, FieldHint, GreatestError,
    Incomparable, KindSet, MAX_FIELDS, NumberComparison, TextComparison,
};
pub use config::{Config, RouteRules, TensorRule, TextRule, Tolerance};
pub use decode::content::{grpc_messages, whole as whole_body};
pub use decode::nested::{NestedFault, is_absent_or, read_texts};
pub use decode::{
    AnswerReading, Document, MappedOutput, MappedTensor, OutputActivation, OutputMapping, Pooling, Postprocessing, Selection,
    TensorPort,
};
pub use differences::{
    AnswerJudgement, Asked, ComparedWith, Differences, DifferencesSnapshot, ErrorStepSnapshot, FieldSnapshot, KindSnapshot,
    MismatchSnapshot, NumberSnapshot, OutputsVerdict, RepeatSnapshot, SampleSnapshot, SetSnapshot, TextSnapshot,
    UnjudgedSnapshot, WorstCase,
};
pub use paths::ValuePath;
pub use redact::Redactor;
pub use rules::FieldScales;
pub use sample::{PayloadSample, SAMPLE_BYTES};
pub use sampling::may_be_drawn;

#[cfg(any(test, feature = "testing"))]
pub use test_answer::TestAnswer;

#[cfg(test)]
mod tests;
