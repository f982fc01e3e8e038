//! The fields watched in an exchange of one protocol, compiled once and shared by all requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::servers::table;
use super::tag::Tag;
use super::wire::{JsonPaths, ProtoFields, ProtoShape};
use super::{body_error, pace};
use lapwing_ledger::{Server, Unit};

/// The definition of a protocol.
pub(crate) struct ProtocolSpec {
    /// The unit that best describes the cost of a request.
    pub(crate) primary: Unit,
    /// The primary unit of an exchange that has nothing of the other.
    pub(crate) primary_otherwise: Option<Unit>,
    /// Whether a request (over gRPC: each of its messages) counts as one row if nothing else gives the rows.
    pub(crate) row_each: bool,
    /// The fields watched in requests.
    pub(crate) request: WatchSpec,
    /// The fields watched in responses, in addition to those of `servers`.
    pub(crate) response: WatchSpec,
    /// The servers that use it.
    pub(crate) servers: &'static [Server],
}

/// Watched fields.
#[derive(Clone, Copy)]
pub(crate) enum WatchSpec {
    /// None.
    Nothing,
    /// Fields of JSON documents.
    Json(&'static [(&'static str, Tag)]),
    /// Fields of protobuf messages.
    Proto(&'static [(&'static [u32], Tag, ProtoShape)]),
}

/// Watched fields, compiled.
#[derive(Clone, Debug)]
pub(crate) enum WatchedFields {
    /// None.
    Nothing,
    /// Fields of JSON documents.
    Json(Arc<JsonPaths<Tag>>),
    /// Fields of protobuf messages.
    Proto(Arc<ProtoFields<Tag>>),
}

/// A compiled protocol.
#[derive(Clone, Debug)]
pub(crate) struct ReadPlan {
    pub(crate) primary: Unit,
    pub(crate) primary_otherwise: Option<Unit>,
    pub(crate) row_each: bool,
    /// Whether the request's body may name the model.
    pub(crate) names_model: bool,
    pub(crate) request: WatchedFields,
    pub(crate) response: WatchedFields,
}

impl WatchSpec {
    /// Whether the model's name is among the fields.
    fn names_model(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Json(places) => places.iter().any(|(_, tag)| *tag == Tag::Model),
            Self::Proto(fields) => fields.iter().any(|(_, tag, _)| *tag == Tag::Model),
        }
    }
}

impl WatchedFields {
    /// Compiles fields of JSON documents.
    pub(crate) fn json(places: JsonPaths<Tag>) -> Self {
        Self::Json(Arc::new(places.with_elements(Tag::elements)))
    }
}

/// What is watched for the sake of tokens, where a request's unit is the output token.
fn of_tokens(spec: &ProtocolSpec, members: &'static [(&str, Tag)]) -> impl Iterator<Item = (&'static str, Tag)> {
    members.iter().copied().filter(|_| spec.primary == Unit::OutputToken)
}

impl ReadPlan {
    /// What is watched in answers of which nothing is read but whether they say that they failed.
    pub(crate) fn errors() -> WatchedFields {
        WatchedFields::json(JsonPaths::new(body_error::MEMBERS.iter().chain(body_error::WHOLE).copied()))
    }

    /// Compiles a protocol.
    pub(crate) fn new(spec: &ProtocolSpec) -> Self {
        let request = match spec.request {
            WatchSpec::Nothing => WatchedFields::Nothing,
            WatchSpec::Json(places) => {
                let own = places.iter().copied();
                let places: BTreeMap<&str, Tag> = of_tokens(spec, pace::REQUEST_MEMBERS).chain(own).collect();
                WatchedFields::json(JsonPaths::new(places))
            }
            WatchSpec::Proto(fields) => WatchedFields::Proto(Arc::new(ProtoFields::new(fields.iter().copied()))),
        };
        let response = match spec.response {
            WatchSpec::Nothing => WatchedFields::Nothing,
            WatchSpec::Json(places) => {
                // for a field in both, the table of servers wins, because it knows more
                let reports = spec.servers.iter().flat_map(|server| table::body(*server));
                let reports = reports.map(|(path, row)| (path, Tag::Report(row)));
                let own = places.iter().map(|(path, tag)| (*path, pace::refined(path, *tag)));
                let general = of_tokens(spec, pace::MEMBERS).chain(body_error::MEMBERS.iter().copied());
                let places: BTreeMap<&str, Tag> = general.chain(own).chain(reports).collect();
                WatchedFields::json(JsonPaths::new(places))
            }
            WatchSpec::Proto(fields) => {
                let reports = spec.servers.iter().flat_map(|server| table::proto(*server));
                let reports = reports.map(|(path, row)| (path, (Tag::Report(row), ProtoShape::Varint)));
                // a stream of messages has an amount in each message; the protocol's own field wins, because its amounts are
                // added
                let own = fields.iter().map(|(path, tag, shape)| (*path, (*tag, *shape)));
                let fields: BTreeMap<&[u32], (Tag, ProtoShape)> = reports.chain(own).collect();
                WatchedFields::Proto(Arc::new(ProtoFields::new(
                    fields.into_iter().map(|(path, (tag, shape))| (path, tag, shape)),
                )))
            }
        };
        let ProtocolSpec { primary, primary_otherwise, .. } = *spec;
        let names_model = spec.request.names_model();
        Self { primary, primary_otherwise, row_each: spec.row_each, names_model, request, response }
    }
}
