//! Ray Serve's spans: its proxy, the routing to a replica, and the replica. All code of a replica counts as forward (or as the
//! stage that the deployment's name says); spans inside it take their own time out. Routing counts as queueing.

use std::borrow::Cow;

use opentelemetry_proto::tonic::trace::v1::Span;

use super::{MappedSpan, Rules, ServerSpan, text};
use crate::ledger::{Server, Stage};
use crate::protocol::servers::{FieldLocation, Quantity, ServerReport, table};

/// Interprets a span of Ray Serve; `None` for other spans.
pub(super) fn read<'a>(
    span: &'a Span,
    rules: &Rules,
    attribute: impl Fn(&str) -> Option<Cow<'a, str>> + Copy,
) -> Option<MappedSpan> {
    let report = ServerReport { server: Some(Server::RayServe), ..ServerReport::default() };
    let mut words = span.name.split(' ');
    match quantity_of(words.next()?)? {
        // these claim nothing unless a replica's span is below them
        Quantity::Stage(Stage::Queue) | Quantity::Total => {
            let waits_from_unix_ns = Some(span.start_time_unix_nano);
            Some(MappedSpan::of(ServerSpan { report, waits_from_unix_ns, ..ServerSpan::default() }))
        }
        Quantity::Stage(stage) if text(&span.attributes, "replica_id").is_some() => {
            let deployment = attribute("deployment").or_else(|| words.next().map(Cow::Borrowed));
            let stage = deployment.and_then(|name| rules.by_default(&name)).unwrap_or(stage);
            let begins_unix_ns = Some(span.start_time_unix_nano);
            let server = Some(Box::new(ServerSpan { report, begins_unix_ns, ..ServerSpan::default() }));
            Some(MappedSpan { stage: Some(stage), phase: None, server })
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
