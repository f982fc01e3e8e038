//! Text Generation Inference: headers of answers that are not streamed, span attributes of both.

use super::row::{Carrier, MS, Row, Says, Scale};
use crate::ledger::{Server, Stage, Unit};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::Tgi, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    // whole milliseconds; over several prompts (`/v1/completions`) sums, and then without `x-compute-time`. Validation is mostly
    // tokenizing
    row(Carrier::Header("x-validation-time"), Says::Stage(Stage::Preprocessing), Scale::Ms).rounded(MS).summed(),
    row(Carrier::Header("x-queue-time"), Says::Stage(Stage::Queue), Scale::Ms).rounded(MS).summed(),
    row(Carrier::Header("x-inference-time"), Says::Stage(Stage::Forward), Scale::Ms).rounded(MS).summed(),
    // inference over all tokens, the first included
    row(Carrier::Header("x-time-per-token"), Says::PerOutputToken, Scale::Ms).rounded(MS).summed().includes_prefill(),
    // seconds here; TEI sends milliseconds under this name
    row(Carrier::Header("x-compute-time"), Says::Total, Scale::S),
    row(Carrier::Header("x-total-time"), Says::Total, Scale::Ms).rounded(MS).summed(),
    row(Carrier::Header("x-prompt-tokens"), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::Header("x-generated-tokens"), Says::Work(Unit::OutputToken), Scale::Count),
    // its spans `queued` and `infer` say what they are by their names, as anybody's do
    row(Carrier::SpanAttribute("validation_time"), Says::Stage(Stage::Preprocessing), Scale::RustDebug),
    row(Carrier::SpanAttribute("queue_time"), Says::Stage(Stage::Queue), Scale::RustDebug),
    row(Carrier::SpanAttribute("inference_time"), Says::Stage(Stage::Forward), Scale::RustDebug),
    row(Carrier::SpanAttribute("time_per_token"), Says::PerOutputToken, Scale::RustDebug).includes_prefill(),
    row(Carrier::SpanAttribute("total_time"), Says::Total, Scale::RustDebug),
    row(Carrier::Metric("tgi_request_validation_duration"), Says::Stage(Stage::Preprocessing), Scale::S),
    row(Carrier::Metric("tgi_request_queue_duration"), Says::Stage(Stage::Queue), Scale::S),
    row(Carrier::Metric("tgi_request_inference_duration"), Says::Stage(Stage::Forward), Scale::S),
    row(Carrier::Metric("tgi_request_mean_time_per_token_duration"), Says::PerOutputToken, Scale::S).includes_prefill(),
    row(Carrier::Metric("tgi_request_duration"), Says::Total, Scale::S),
    row(Carrier::Metric("tgi_request_input_length"), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::Metric("tgi_request_generated_tokens"), Says::Work(Unit::OutputToken), Scale::Count),
    row(Carrier::Metric("tgi_batch_next_size"), Says::BatchSize, Scale::Count),
    row(Carrier::Metric("tgi_batch_current_size"), Says::Running, Scale::Count),
    row(Carrier::Metric("tgi_queue_size"), Says::Waiting, Scale::Count),
];
