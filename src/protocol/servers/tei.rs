//! Text Embeddings Inference: headers in whole milliseconds, gRPC metadata and span attributes as exact as its clock.

use super::row::{Carrier, MS, Row, Says, Scale};
use crate::ledger::{Server, Stage, Unit};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::Tei, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    // truncated: 0.9 ms is 0. Of a request of several inputs, all but the total are means over them
    row(Carrier::Header("x-tokenization-time"), Says::Stage(Stage::Preprocessing), Scale::Ms).rounded(MS),
    row(Carrier::Header("x-queue-time"), Says::Stage(Stage::Queue), Scale::Ms).rounded(MS),
    row(Carrier::Header("x-inference-time"), Says::Stage(Stage::Forward), Scale::Ms).rounded(MS),
    // milliseconds here; TGI sends seconds under this name
    row(Carrier::Header("x-compute-time"), Says::Total, Scale::Ms).rounded(MS),
    row(Carrier::Header("x-total-time"), Says::Total, Scale::Ms).rounded(MS),
    row(Carrier::Header("x-compute-tokens"), Says::Work(Unit::InputToken), Scale::Count),
    // the field `metadata` of every response
    row(Carrier::Proto(&[2, 4]), Says::Stage(Stage::Preprocessing), Scale::Ns),
    row(Carrier::Proto(&[2, 5]), Says::Stage(Stage::Queue), Scale::Ns),
    row(Carrier::Proto(&[2, 6]), Says::Stage(Stage::Forward), Scale::Ns),
    row(Carrier::Proto(&[2, 3]), Says::Total, Scale::Ns),
    row(Carrier::Proto(&[2, 2]), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::SpanAttribute("tokenization_time"), Says::Stage(Stage::Preprocessing), Scale::RustDebug),
    row(Carrier::SpanAttribute("queue_time"), Says::Stage(Stage::Queue), Scale::RustDebug),
    row(Carrier::SpanAttribute("inference_time"), Says::Stage(Stage::Forward), Scale::RustDebug),
    row(Carrier::SpanAttribute("total_time"), Says::Total, Scale::RustDebug),
    row(Carrier::SpanAttribute("compute_tokens"), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::Metric("te_request_tokenization_duration"), Says::Stage(Stage::Preprocessing), Scale::S),
    row(Carrier::Metric("te_request_queue_duration"), Says::Stage(Stage::Queue), Scale::S),
    row(Carrier::Metric("te_request_inference_duration"), Says::Stage(Stage::Forward), Scale::S),
    row(Carrier::Metric("te_request_duration"), Says::Total, Scale::S),
    row(Carrier::Metric("te_request_input_length"), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::Metric("te_batch_next_size"), Says::BatchSize, Scale::Count),
    row(Carrier::Metric("te_queue_size"), Says::Waiting, Scale::Count),
];
