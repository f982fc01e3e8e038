//! The spans that model servers make themselves: stages that stand in events, attributes, or between two spans.
//!
//! A span is known by its sender or its shape, never by a name that a user's span could have. Where the user says which
//! stage a span is (a rule, or its own `lapwing.stage`), that is its stage and nothing is read out of it. What needs other
//! spans, which may come in other batches, is resolved when all are there. Times are nanoseconds since the Unix epoch.

mod generation;
mod ray;
mod resolve;
mod triton;

use std::borrow::Cow;

use arrayvec::ArrayVec;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::super::rules::Rules;
use crate::ledger::{Phase, Stage};
use crate::protocol::servers::ServerReport;

pub(in crate::attribution) use resolve::Resolver;

/// What a model server's span says besides its own time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerSpan {
    /// Whose it is, amounts of work, and the pace.
    pub report: ServerReport,
    /// Pieces of its time.
    pub pieces: ArrayVec<Piece, 6>,
    /// Its pieces are durations without places of their own: they give way to spans below it that say the same.
    pub is_laid: bool,
    /// It waits from here until the first span below it begins to work.
    pub waits_from_unix_ns: Option<u64>,
    /// It begins to work here: the nearest span above it that waits waits no more.
    pub begins_unix_ns: Option<u64>,
    /// The stage that its model's forward is, by the model's name or a rule.
    pub role: Option<Stage>,
}

/// A piece of a span's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What it is called.
    pub name: &'static str,
    /// The stage.
    pub stage: Stage,
    /// The phase of the stage, where it is one.
    pub phase: Option<Phase>,
    /// Start.
    pub start_unix_ns: u64,
    /// End.
    pub end_unix_ns: u64,
    /// It is the role of the span above it, where that has one.
    pub takes_role: bool,
}

/// Who sent a span.
#[derive(Clone, Copy, Debug)]
pub(in crate::attribution) struct Sender<'a> {
    /// The resource's `service.name`.
    pub(in crate::attribution) service: &'a str,
    /// The instrumentation scope's name.
    pub(in crate::attribution) scope: &'a str,
    /// The resource's attributes.
    pub(in crate::attribution) resource: &'a [KeyValue],
}

impl Sender<'_> {
    /// Whether service or scope is of this name, or begins with it.
    fn is(&self, name: &str) -> bool {
        let begins = |text: &str| text.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name));
        begins(self.service) || begins(self.scope)
    }
}

/// What became of a span.
#[derive(Debug, Default)]
pub(in crate::attribution) struct Reading {
    /// The stage of the span as a whole.
    pub(in crate::attribution) stage: Option<Stage>,
    /// The phase of the stage, where it is one.
    pub(in crate::attribution) phase: Option<Phase>,
    /// What it says besides, where a model server made it.
    pub(in crate::attribution) server: Option<Box<ServerSpan>>,
}

impl Reading {
    /// A server's span whose time as a whole is no stage.
    fn of(server: ServerSpan) -> Self {
        Self { stage: None, phase: None, server: Some(Box::new(server)) }
    }
}

/// Reads a span; `attribute` gives its attributes as text.
pub(in crate::attribution) fn read<'a>(
    span: &'a Span,
    sender: Sender<'_>,
    rules: &Rules,
    attribute: impl Fn(&str) -> Option<Cow<'a, str>> + Copy,
) -> Reading {
    let own = rules.own(&span.name, attribute);
    let found = triton::read(span, sender, rules, own)
        .or_else(|| generation::read(span, sender))
        .or_else(|| ray::read(span, rules, attribute));
    match (found, own) {
        (Some(reading), None) => reading,
        (Some(reading), Some(stage)) => by_word(reading, stage),
        (None, Some(stage)) => Reading { stage: Some(stage), ..Reading::default() },
        (None, None) => {
            let stage = rules.by_default(&span.name);
            Reading { stage, phase: stage.and_then(|stage| phase(stage, &span.name)), server: None }
        }
    }
}

/// The user says what it is. The name of a model is a role, which the model's time without its queue has.
fn by_word(reading: Reading, stage: Stage) -> Reading {
    match reading.server {
        Some(server) if server.role.is_some() => Reading::of(*server),
        server => Reading {
            stage: Some(stage),
            phase: None,
            server: server.map(|server| Box::new(ServerSpan { report: server.report, ..ServerSpan::default() })),
        },
    }
}

/// `prefill` and `decode` are forward, and more exactly so.
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
