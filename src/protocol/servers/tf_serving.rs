//! TensorFlow Serving: histograms in microseconds; nothing by request.

use super::row::{Carrier, Row, Says, Scale, US};
use crate::ledger::{Server, Stage};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::TfServing, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    row(Carrier::Metric(":tensorflow:serving:batching_session:queuing_latency"), Says::Stage(Stage::Queue), Scale::Us)
        .rounded(US),
    row(Carrier::Metric(":tensorflow:serving:saved_model_with_batching:queuing_latency"), Says::Stage(Stage::Queue), Scale::Us)
        .rounded(US),
    // through a batching session its wait is in it; without batching, the default, there is no queue and no figure of one
    row(Carrier::Metric(":tensorflow:serving:runtime_latency"), Says::Stage(Stage::Forward), Scale::Us)
        .rounded(US)
        .includes_queue_if_told(),
    row(Carrier::Metric(":tensorflow:serving:request_latency"), Says::Total, Scale::Us).rounded(US),
    row(Carrier::Metric(":tensorflow:serving:batching_session:processed_batch_size"), Says::BatchSize, Scale::Count),
    row(Carrier::Metric(":tensorflow:serving:saved_model_with_batching:processed_batch_size"), Says::BatchSize, Scale::Count),
    row(Carrier::Metric(":tensorflow:serving:batching_session:padding_size"), Says::Padding, Scale::Count),
    row(Carrier::Metric(":tensorflow:serving:saved_model_with_batching:padding_size"), Says::Padding, Scale::Count),
];
