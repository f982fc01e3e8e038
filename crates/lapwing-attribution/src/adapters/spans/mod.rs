//! The spans of model servers: stages that are expressed as events, as attributes, or as the gap between two spans.
//!
//! A span is recognised by its sender or its structure, never by a name that a user's span could have. If the user assigns a
//! stage to a span (by a rule, or by the span's own `lapwing.stage`), that stage is used and the span is not interpreted further.
//! Facts that need other spans, which may arrive in other batches, are resolved when all spans are there. Times are nanoseconds
//! since the Unix epoch.

mod generation;
mod ray;
mod resolve;
mod triton;

use std::borrow::Cow;

use arrayvec::ArrayVec;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::super::rules::Rules;
use lapwing_ledger::{Phase, Stage};
use lapwing_protocol::servers::ServerReport;

pub(crate) use resolve::Resolver;

/// What a model server's span reports besides its own duration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerSpan {
    /// The server, amounts of work, and token timing.
    pub report: ServerReport,
    /// Pieces of its time.
    pub pieces: ArrayVec<SpanPiece, 6>,
    /// Whether its pieces are durations that were placed without known times. They are dropped if spans below report the same
    /// stage.
    pub is_laid: bool,
    /// The time from which it waits for the first span below it that begins to work.
    pub waits_from_unix_ns: Option<u64>,
    /// The time at which it begins to work, which ends the wait of the nearest waiting span above it.
    pub begins_unix_ns: Option<u64>,
    /// The stage that the forward time of its model counts as, by the model's name or a rule.
    pub role: Option<Stage>,
    /// Whether it ends some time after its answer has gone on, so that its end says nothing of a clock.
    pub outlasts_answer: bool,
}

/// A piece of a span's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanPiece {
    /// Its name.
    pub name: &'static str,
    /// The stage.
    pub stage: Stage,
    /// The phase of the stage, if it has one.
    pub phase: Option<Phase>,
    /// Start.
    pub start_unix_ns: u64,
    /// End.
    pub end_unix_ns: u64,
    /// Whether it takes the role of the span above it, if that span has one.
    pub takes_role: bool,
}

/// The sender of a span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender<'a> {
    /// The resource's `service.name`.
    pub(crate) service: &'a str,
    /// The instrumentation scope's name.
    pub(crate) scope: &'a str,
    /// Whether the resource has attributes of vLLM, by [`Sender::is_vllm`].
    pub(crate) is_vllm: bool,
}

impl Sender<'_> {
    /// Whether a resource has attributes of vLLM. To be asked once for each resource, which may have many spans and attributes.
    pub(crate) fn is_vllm(resource: &[KeyValue]) -> bool {
        resource.iter().any(|attribute| attribute.key.starts_with("vllm."))
    }

    /// Whether the service or the scope has this name or begins with it.
    fn is(&self, name: &str) -> bool {
        let begins = |text: &str| text.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name));
        begins(self.service) || begins(self.scope)
    }
}

/// The interpretation of a span.
#[derive(Debug, Default)]
pub(crate) struct MappedSpan {
    /// The stage of the span as a whole.
    pub(crate) stage: Option<Stage>,
    /// The phase of the stage, if it has one.
    pub(crate) phase: Option<Phase>,
    /// What it reports besides, if a model server sent it.
    pub(crate) server: Option<Box<ServerSpan>>,
}

impl MappedSpan {
    /// A server's span whose duration as a whole is no stage.
    fn of(server: ServerSpan) -> Self {
        Self { stage: None, phase: None, server: Some(Box::new(server)) }
    }
}

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
    Phase::ALL.into_iter().find(|phase| stage == Stage::Forward && last.eq_ignore_ascii_case(phase.name()))
}

/// The value of a text attribute.
fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    match attributes.iter().find(|a| a.key == key)?.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}
