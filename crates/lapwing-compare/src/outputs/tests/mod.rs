//! Whole answers against each other: what an operator would see.

mod answers;
mod grpc;
mod hostile;
mod numpy;

use super::*;
use lapwing_ledger::TraceId;

pub(crate) use super::test_answer::TestAnswer;
pub(crate) use hostile::document as json_document;

pub(crate) fn trace(n: u8) -> TraceId {
    TraceId([n.max(1); 16])
}

/// Compares with the defaults.
pub(crate) fn compare(kind: lapwing_protocol::OutputKind, primary: &TestAnswer, candidate: &TestAnswer) -> Comparison {
    compare_by(&Config::default(), kind, primary, candidate)
}

pub(crate) fn compare_by(
    config: &Config,
    kind: lapwing_protocol::OutputKind,
    primary: &TestAnswer,
    candidate: &TestAnswer,
) -> Comparison {
    Comparer::new(config).compare("POST /x", kind, &primary.as_finished(), &candidate.as_finished())
}

/// The fields that differ, each with the names of its kinds.
pub(crate) fn differing(comparison: &Comparison) -> Vec<(String, Vec<&'static str>)> {
    let differing = comparison.fields.iter().filter(|field| !field.kinds.is_empty());
    differing.map(|field| (field.field.clone(), field.kinds.iter().map(DifferenceKind::name).collect())).collect()
}
