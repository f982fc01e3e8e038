//! MLServer: histograms; its one span by request has no stages.

use super::row::{Carrier, Row, Says, Scale};
use crate::ledger::{Server, Stage};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::MlServer, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    // a summary by model; waiting for an adaptive batch or a worker is in it
    row(Carrier::Metric("model_infer_request_duration"), Says::Stage(Stage::Forward), Scale::S).includes_queue(),
    row(Carrier::Metric("rest_server_requests_duration_seconds"), Says::Total, Scale::S),
    // sizes of queues, not times
    row(Carrier::Metric("batch_request_queue"), Says::Waiting, Scale::Count),
    row(Carrier::Metric("parallel_request_queue"), Says::Waiting, Scale::Count).adds_up(),
];
