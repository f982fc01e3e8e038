//! BentoML: histograms; its one span by request has no stages, and it does not time its queue.

use super::row::{Carrier, Row, Says, Scale};
use crate::ledger::Server;

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::BentoMl, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    row(Carrier::Metric("bentoml_service_request_duration_seconds"), Says::Total, Scale::S),
    row(Carrier::Metric("bentoml_service_adaptive_batch_size"), Says::BatchSize, Scale::Count),
    row(Carrier::Metric("bentoml_service_request_in_progress"), Says::Running, Scale::Count),
];
