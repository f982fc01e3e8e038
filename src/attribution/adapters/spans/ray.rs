//! Ray Serve's spans: its proxy, the way to a replica, and the replica. A replica's own code is forward as a whole (or what
//! the deployment's name says): spans inside it take out what is theirs. The way to it is queueing.

use std::borrow::Cow;

use opentelemetry_proto::tonic::trace::v1::Span;

use super::{Reading, Rules, ServerSpan, text};
use crate::ledger::{Server, Stage};
use crate::protocol::servers::{Carrier, Says, Told, table};

/// Reads a span of Ray Serve's; `None` for others.
pub(super) fn read<'a>(
    span: &'a Span,
    rules: &Rules,
    attribute: impl Fn(&str) -> Option<Cow<'a, str>> + Copy,
) -> Option<Reading> {
    let told = Told { server: Some(Server::RayServe), ..Told::default() };
    let mut words = span.name.split(' ');
    match says(words.next()?)? {
        // they claim nothing unless a replica's span is below them
        Says::Stage(Stage::Queue) | Says::Total => {
            let waits_from_unix_ns = Some(span.start_time_unix_nano);
            Some(Reading::of(ServerSpan { told, waits_from_unix_ns, ..ServerSpan::default() }))
        }
        Says::Stage(stage) if text(&span.attributes, "replica_id").is_some() => {
            let deployment = attribute("deployment").or_else(|| words.next().map(Cow::Borrowed));
            let stage = deployment.and_then(|name| rules.by_default(&name)).unwrap_or(stage);
            let begins_unix_ns = Some(span.start_time_unix_nano);
            let server = Some(Box::new(ServerSpan { told, begins_unix_ns, ..ServerSpan::default() }));
            Some(Reading { stage: Some(stage), phase: None, server })
        }
        _ => None,
    }
}

/// What a span says whose name begins with this word, by the table.
fn says(word: &str) -> Option<Says> {
    table::of(Server::RayServe).iter().find_map(|row| match row.carrier {
        Carrier::Span(name) if name.strip_suffix(" *") == Some(word) => Some(row.says),
        _ => None,
    })
}
