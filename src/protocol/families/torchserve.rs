//! TorchServe: `/predictions/M` takes whatever the handler takes. A request is a row, unless it is JSON in KServe's envelope,
//! where `instances` has the rows. It reports nothing in bodies.

use super::super::plan::{Spec, Watch};
use super::super::tag::Tag;
use crate::ledger::Unit;

/// `POST /predictions/M`, `/predictions/M/VERSION`, `/explanations/M`
pub(super) const PREDICTIONS: Spec = Spec {
    primary: Unit::Row,
    row_each: true,
    request: Watch::Json(&[("instances", Tag::Rows)]),
    response: Watch::Nothing,
    servers: &[],
};
