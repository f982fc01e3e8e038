//! TorchServe: cumulative counters where `metrics_mode=prometheus`; nothing by request. Its gauges hold whatever came last.

use super::row::{Carrier, Row, Says, Scale};
use crate::ledger::{Server, Stage};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::TorchServe, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    row(Carrier::Metric("ts_queue_latency_microseconds"), Says::Stage(Stage::Queue), Scale::Us),
    // from the request's arrival, so with the queue; the handler's pre- and postprocessing is in it too
    row(Carrier::Metric("ts_inference_latency_microseconds"), Says::Stage(Stage::Forward), Scale::Us).includes_queue(),
];
