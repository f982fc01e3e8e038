//! What is watched of an exchange of one protocol, compiled once and shared by all requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::servers::table;
use super::tag::Tag;
use super::wire::{Fields, Paths, Shape};
use crate::ledger::{Server, Unit};

/// A protocol, written down.
pub(super) struct Spec {
    /// What says best how much a request costs.
    pub(super) primary: Unit,
    /// A request is one row (over gRPC: each of its messages), where nothing says more.
    pub(super) row_each: bool,
    /// What is watched in requests.
    pub(super) request: Watch,
    /// What is watched in responses, beside what `servers` report in theirs.
    pub(super) response: Watch,
    /// The servers that speak it.
    pub(super) servers: &'static [Server],
}

/// Watched places.
#[derive(Clone, Copy)]
pub(super) enum Watch {
    /// None.
    Nothing,
    /// Of JSON documents.
    Json(&'static [(&'static str, Tag)]),
    /// Of protobuf messages.
    Proto(&'static [(&'static [u32], Tag, Shape)]),
}

/// Watched places, compiled.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// None.
    Nothing,
    /// Of JSON documents.
    Json(Arc<Paths<Tag>>),
    /// Of protobuf messages.
    Proto(Arc<Fields<Tag>>),
}

/// A protocol, compiled.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) primary: Unit,
    pub(super) row_each: bool,
    pub(super) request: Source,
    pub(super) response: Source,
}

impl Source {
    /// These places of JSON documents.
    pub(super) fn json(places: Paths<Tag>) -> Self {
        Self::Json(Arc::new(places.with_elements(Tag::elements)))
    }
}

impl Plan {
    /// Compiles a protocol.
    pub(super) fn new(spec: &Spec) -> Self {
        let request = match spec.request {
            Watch::Nothing => Source::Nothing,
            Watch::Json(places) => Source::json(Paths::new(places.iter().copied())),
            Watch::Proto(fields) => Source::Proto(Arc::new(Fields::new(fields.iter().copied()))),
        };
        let response = match spec.response {
            Watch::Nothing => Source::Nothing,
            Watch::Json(places) => {
                // what the table of servers says of a place wins: it knows more of it
                let reports = spec.servers.iter().flat_map(|server| table::body(*server));
                let reports = reports.map(|(path, row)| (path, Tag::Report(row)));
                let places: BTreeMap<&str, Tag> = places.iter().copied().chain(reports).collect();
                Source::json(Paths::new(places))
            }
            Watch::Proto(fields) => {
                let reports = spec.servers.iter().flat_map(|server| table::proto(*server));
                let reports = reports.map(|(path, row)| (path, (Tag::Report(row), Shape::Varint)));
                // a stream of messages says an amount in each: a place of our own wins, where they add up
                let own = fields.iter().map(|(path, tag, shape)| (*path, (*tag, *shape)));
                let fields: BTreeMap<&[u32], (Tag, Shape)> = reports.chain(own).collect();
                Source::Proto(Arc::new(Fields::new(fields.into_iter().map(|(path, (tag, shape))| (path, tag, shape)))))
            }
        };
        Self { primary: spec.primary, row_each: spec.row_each, request, response }
    }
}
