//! Triton's spans, whose stages are events. `InferRequest` contains a span per model, which contains a span `compute`; for an
//! ensemble, the model's span contains those of its steps.
//!
//! Events for receiving and sending are not read: Lapwing observes both itself, and on streams Triton's times for them are wrong.

use opentelemetry_proto::tonic::trace::v1::Span;

use super::mapped::{MappedSpan, Sender, text};
use crate::rules::Rules;
use crate::span::{ServerSpan, SpanPiece};
use lapwing_ledger::{Server, Stage};
use lapwing_protocol::servers::{FieldLocation, Quantity, ServerReport, table};

const SCOPE: &str = "triton-server";
const COMPUTE: &str = "compute";
const ANY: &str = "*";

/// Interprets a span of Triton; `None` for other spans, and for spans that a backend creates for its own activities.
pub(crate) fn read(span: &Span, sender: Sender<'_>, rules: &Rules, own: Option<Stage>) -> Option<MappedSpan> {
    let report = ServerReport { server: Some(Server::Triton), ..ServerReport::default() };
    if let Some(model) = text(&span.attributes, "triton.model_name") {
        let role = own.or_else(|| rules.by_default(model));
        let waits_from_unix_ns = queue().and_then(|(from, _)| first(span, from)).map(|at| inside(span, at));
        return Some(MappedSpan::of(ServerSpan { report, role, waits_from_unix_ns, ..ServerSpan::default() }));
    }
    if let (Some(start), Some(_)) = (queue().and_then(|(_, to)| first(span, to)), last(span, "COMPUTE_END")) {
        let begins_unix_ns = Some(inside(span, start));
        let mut server = ServerSpan { report, begins_unix_ns, ..ServerSpan::default() };
        server.pieces = pieces(span).collect();
        return Some(MappedSpan::of(server));
    }
    let is_request = sender.scope == SCOPE && first(span, "INFER_RESPONSE_COMPLETE").is_some();
    is_request.then(|| MappedSpan::of(ServerSpan { report, ..ServerSpan::default() }))
}

/// The events between which a request waits in a model's queue.
fn queue() -> Option<(&'static str, &'static str)> {
    table::of(Server::Triton).iter().find_map(|row| match (row.location, row.quantity) {
        (FieldLocation::SpanEvents(ANY, from, to), Quantity::Stage(Stage::Queue)) => Some((from, to)),
        _ => None,
    })
}

/// The pieces of a `compute` span: input copies, the model, output copies.
fn pieces(span: &Span) -> impl Iterator<Item = SpanPiece> {
    table::of(Server::Triton).iter().filter_map(|row| {
        let (FieldLocation::SpanEvents(COMPUTE, from, to), Quantity::Stage(stage)) = (row.location, row.quantity) else {
            return None;
        };
        let (start_unix_ns, end_unix_ns) = (at(span, from)?, at(span, to)?);
        let name = match stage {
            Stage::Preprocessing => "compute_input",
            Stage::Forward => "compute_infer",
            _ => "compute_output",
        };
        let takes_role = stage == Stage::Forward;
        let piece = SpanPiece { name, stage, phase: None, start_unix_ns, end_unix_ns, takes_role };
        (start_unix_ns < end_unix_ns).then_some(piece)
    })
}

/// The time of an event. If a backend omits one, the copy that it bounds took no time.
fn at(span: &Span, event: &str) -> Option<u64> {
    let at = match event {
        "COMPUTE_START" | "COMPUTE_INPUT_END" => first(span, event).or_else(|| first(span, "COMPUTE_START")),
        _ => last(span, event).or_else(|| last(span, "COMPUTE_END")),
    };
    at.map(|at| inside(span, at))
}

fn first(span: &Span, event: &str) -> Option<u64> {
    span.events.iter().find(|e| e.name == event).map(|e| e.time_unix_nano)
}

/// A model that answers several times writes some events several times.
fn last(span: &Span, event: &str) -> Option<u64> {
    span.events.iter().rfind(|e| e.name == event).map(|e| e.time_unix_nano)
}

fn inside(span: &Span, at_unix_ns: u64) -> u64 {
    at_unix_ns.min(span.end_time_unix_nano).max(span.start_time_unix_nano)
}
