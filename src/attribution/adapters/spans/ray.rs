//! Ray Serve's spans: its proxy, the way to a replica, and the replica. A replica's own code is forward as a whole (or what
//! the deployment's name says): spans inside it take out what is theirs. The way to it is queueing.

use std::borrow::Cow;

use opentelemetry_proto::tonic::trace::v1::Span;

use super::{Reading, Rules, ServerSpan, text};
use crate::ledger::{Server, Stage};
use crate::protocol::servers::Told;

/// Reads a span of Ray Serve's; `None` for others.
pub(super) fn read<'a>(
    span: &'a Span,
    rules: &Rules,
    attribute: impl Fn(&str) -> Option<Cow<'a, str>> + Copy,
) -> Option<Reading> {
    let told = Told { server: Some(Server::RayServe), ..Told::default() };
    let mut words = span.name.split(' ');
    match words.next()? {
        // they claim nothing unless a replica's span is below them
        "proxy_http_request" | "proxy_grpc_request" | "proxy_route_to_replica" => {
            let waits_from_unix_ns = Some(span.start_time_unix_nano);
            Some(Reading::of(ServerSpan { told, waits_from_unix_ns, ..ServerSpan::default() }))
        }
        "replica_handle_request" if text(&span.attributes, "replica_id").is_some() => {
            let deployment = attribute("deployment").or_else(|| words.next().map(Cow::Borrowed));
            let stage = deployment.and_then(|name| rules.by_default(&name)).unwrap_or(Stage::Forward);
            let begins_unix_ns = Some(span.start_time_unix_nano);
            let server = Some(Box::new(ServerSpan { told, begins_unix_ns, ..ServerSpan::default() }));
            Some(Reading { stage: Some(stage), phase: None, server })
        }
        _ => None,
    }
}
