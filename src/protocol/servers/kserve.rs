//! The KServe Python SDK: histograms by model; by request only log lines.

use super::row::{Carrier, Row, Says, Scale};
use crate::ledger::{Server, Stage};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::KServe, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    row(Carrier::Metric("request_preprocess_seconds"), Says::Stage(Stage::Preprocessing), Scale::S),
    row(Carrier::Metric("request_predict_seconds"), Says::Stage(Stage::Forward), Scale::S),
    row(Carrier::Metric("request_postprocess_seconds"), Says::Stage(Stage::Postprocessing), Scale::S),
];
