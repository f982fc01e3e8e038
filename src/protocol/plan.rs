//! What is watched of an exchange of one protocol, compiled once and shared by all requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::servers::table;
use super::tag::Tag;
use super::wire::{JsonPaths, ProtoFields, ProtoShape};
use crate::ledger::{Server, Unit};

/// A protocol, written down.
pub(super) struct ProtocolSpec {
    /// What says best how much a request costs.
    pub(super) primary: Unit,
    /// A request is one row (over gRPC: each of its messages), where nothing says more.
    pub(super) row_each: bool,
    /// What is watched in requests.
    pub(super) request: WatchSpec,
    /// What is watched in responses, beside what `servers` report in theirs.
    pub(super) response: WatchSpec,
    /// The servers that speak it.
    pub(super) servers: &'static [Server],
}

/// Watched places.
#[derive(Clone, Copy)]
pub(super) enum WatchSpec {
    /// None.
    Nothing,
    /// Of JSON documents.
    Json(&'static [(&'static str, Tag)]),
    /// Of protobuf messages.
    Proto(&'static [(&'static [u32], Tag, ProtoShape)]),
}

/// Watched places, compiled.
#[derive(Clone, Debug)]
pub(super) enum WatchedFields {
    /// None.
    Nothing,
    /// Of JSON documents.
    Json(Arc<JsonPaths<Tag>>),
    /// Of protobuf messages.
    Proto(Arc<ProtoFields<Tag>>),
}

/// A protocol, compiled.
#[derive(Clone, Debug)]
pub(super) struct ReadPlan {
    pub(super) primary: Unit,
    pub(super) row_each: bool,
    pub(super) request: WatchedFields,
    pub(super) response: WatchedFields,
}

impl WatchedFields {
    /// These places of JSON documents.
    pub(super) fn json(places: JsonPaths<Tag>) -> Self {
        Self::Json(Arc::new(places.with_elements(Tag::elements)))
    }
}

impl ReadPlan {
    /// Compiles a protocol.
    pub(super) fn new(spec: &ProtocolSpec) -> Self {
        let request = match spec.request {
            WatchSpec::Nothing => WatchedFields::Nothing,
            WatchSpec::Json(places) => WatchedFields::json(JsonPaths::new(places.iter().copied())),
            WatchSpec::Proto(fields) => WatchedFields::Proto(Arc::new(ProtoFields::new(fields.iter().copied()))),
        };
        let response = match spec.response {
            WatchSpec::Nothing => WatchedFields::Nothing,
            WatchSpec::Json(places) => {
                // what the table of servers says of a place wins: it knows more of it
                let reports = spec.servers.iter().flat_map(|server| table::body(*server));
                let reports = reports.map(|(path, row)| (path, Tag::Report(row)));
                let places: BTreeMap<&str, Tag> = places.iter().copied().chain(reports).collect();
                WatchedFields::json(JsonPaths::new(places))
            }
            WatchSpec::Proto(fields) => {
                let reports = spec.servers.iter().flat_map(|server| table::proto(*server));
                let reports = reports.map(|(path, row)| (path, (Tag::Report(row), ProtoShape::Varint)));
                // a stream of messages says an amount in each: a place of our own wins, where they add up
                let own = fields.iter().map(|(path, tag, shape)| (*path, (*tag, *shape)));
                let fields: BTreeMap<&[u32], (Tag, ProtoShape)> = reports.chain(own).collect();
                WatchedFields::Proto(Arc::new(ProtoFields::new(
                    fields.into_iter().map(|(path, (tag, shape))| (path, tag, shape)),
                )))
            }
        };
        Self { primary: spec.primary, row_each: spec.row_each, request, response }
    }
}
