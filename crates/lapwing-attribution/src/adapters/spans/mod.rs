//! The spans of model servers: stages that are expressed as events, as attributes, or as the gap between two spans.
//!
//! A span is recognised by its sender or its structure, never by a name that a user's span could have. If the user assigns a
//! stage to a span (by a rule, or by the span's own `lapwing.stage`), that stage is used and the span is not interpreted further.
//! Facts that need other spans, which may arrive in other batches, are resolved when all spans are there. Times are nanoseconds
//! since the Unix epoch.

mod generation;
mod mapped;
mod ray;
mod resolve;
mod triton;

use std::borrow::Cow;

use opentelemetry_proto::tonic::trace::v1::Span;

use super::super::rules::Rules;
use super::super::span::ServerSpan;
use lapwing_ledger::{Phase, Stage};

pub(crate) use mapped::{MappedSpan, Sender};
pub(crate) use resolve::Resolver;

/// Interprets a span; `attribute` returns its attributes as text.
pub(crate) fn read<'a>(
    span: &'a Span,
    sender: Sender<'_>,
    rules: &Rules,
    attribute: impl Fn(&str) -> Option<Cow<'a, str>> + Copy,
) -> MappedSpan {
    if let Some(reading) = ray::read(span, rules, attribute) {
        return reading;
    }
    let own = rules.own(&span.name, attribute);
    let found = triton::read(span, sender, rules, own).or_else(|| generation::read(span, sender));
    match (found, own) {
        (Some(reading), None) => reading,
        (Some(reading), Some(stage)) => by_word(reading, stage),
        (None, Some(stage)) => MappedSpan { stage: Some(stage), ..MappedSpan::default() },
        (None, None) => {
            let stage = rules.by_default(&span.name);
            MappedSpan { stage, phase: stage.and_then(|stage| phase(stage, &span.name)), server: None }
        }
    }
}

/// Whether a server sends such a span for each token, below a span of the whole: thousands would push the others out of the join's
/// bounds and add nothing.
pub(crate) fn is_one_per_token(span: &Span, sender: Sender<'_>) -> bool {
    generation::is_one_per_token(span, sender)
}

/// Applies the stage that the user assigned. If the name of a model was assigned, it is a role: the model's time without its
/// queue takes it.
fn by_word(reading: MappedSpan, stage: Stage) -> MappedSpan {
    match reading.server {
        Some(server) if server.role.is_some() => MappedSpan::of(*server),
        server => MappedSpan {
            stage: Some(stage),
            phase: None,
            server: server.map(|server| Box::new(ServerSpan { report: server.report, ..ServerSpan::default() })),
        },
    }
}

/// `prefill` and `decode` are phases of forward.
fn phase(stage: Stage, name: &str) -> Option<Phase> {
    let last = name.rsplit(['.', ':']).next()?;
    Phase::FORWARD.into_iter().find(|phase| stage == Stage::Forward && last.eq_ignore_ascii_case(phase.name()))
}
