//! Ray Serve's spans: its proxy, the routing to a replica, and the replica. All code of a replica counts as forward, or as the
//! stage that a rule or the deployment's name says; spans inside it take their own time out. From the start of a routing span to
//! the start of its replica is queue, at every level, whatever deployment calls another. The proxy's own span claims nothing. All of them
//! end when their process gets to it, on a busy machine milliseconds after the client has its answer.

use std::borrow::Cow;

use opentelemetry_proto::tonic::trace::v1::Span;

use super::mapped::{MappedSpan, text};
use crate::rules::Rules;
use crate::span::ServerSpan;
use lapwing_ledger::{Server, Stage};
use lapwing_protocol::servers::{FieldLocation, Quantity, ServerReport, table};

/// Interprets a span of Ray Serve, the user's rules included; `None` for other spans.
pub(crate) fn read<'a>(
    span: &'a Span,
    rules: &Rules,
    attribute: impl Fn(&str) -> Option<Cow<'a, str>> + Copy,
) -> Option<MappedSpan> {
    let report = ServerReport { server: Some(Server::RayServe), ..ServerReport::default() };
    let mut words = span.name.split(' ');
    let quantity = quantity_of(words.next()?)?;
    let start_unix_ns = Some(span.start_time_unix_nano);
    let mapped = |stage, server: ServerSpan| {
        let server = Some(Box::new(ServerSpan { outlasts_answer: true, ..server }));
        MappedSpan { stage, phase: None, server }
    };
    match quantity {
        Quantity::Total => Some(mapped(rules.of_route(&span.name, attribute), ServerSpan { report, ..ServerSpan::default() })),
        Quantity::Stage(Stage::Queue) => {
            let stage = rules.of_route(&span.name, attribute);
            let waits_from_unix_ns = start_unix_ns.filter(|_| stage.is_none());
            Some(mapped(stage, ServerSpan { report, waits_from_unix_ns, ..ServerSpan::default() }))
        }
        Quantity::Stage(stage) if text(&span.attributes, "replica_id").is_some() => {
            let deployment = attribute("deployment").or_else(|| words.next().map(Cow::Borrowed));
            let own = rules.of_replica(&span.name, deployment.as_deref(), attribute);
            let by_name = || deployment.as_deref().and_then(|name| rules.by_default(name));
            let stage = own.or_else(by_name).unwrap_or(stage);
            Some(mapped(Some(stage), ServerSpan { report, begins_unix_ns: start_unix_ns, ..ServerSpan::default() }))
        }
        _ => None,
    }
}

/// The quantity of a span whose name begins with this word, by the table.
fn quantity_of(word: &str) -> Option<Quantity> {
    table::of(Server::RayServe).iter().find_map(|row| match row.location {
        FieldLocation::Span(name) if name.strip_suffix(" *") == Some(word) => Some(row.quantity),
        _ => None,
    })
}
