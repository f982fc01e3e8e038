//! TorchServe: `/predictions/M` takes whatever the handler takes. A request is one row, unless it is JSON in KServe's envelope,
//! where `instances` has the rows. Bodies contain no reports.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::Tag;
use lapwing_ledger::Unit;

/// `POST /predictions/M`, `/predictions/M/VERSION`, `/explanations/M`
pub(crate) const PREDICTIONS: ProtocolSpec = ProtocolSpec {
    primary: Unit::Row,
    primary_otherwise: None,
    row_each: true,
    request: WatchSpec::Json(&[("instances", Tag::Rows)]),
    response: WatchSpec::Nothing,
    servers: &[],
};
