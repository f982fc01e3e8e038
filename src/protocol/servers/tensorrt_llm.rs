//! TensorRT-LLM (`trtllm-serve`): attributes of its span, metrics.

use super::row::{Carrier, Row, Says, Scale};
use crate::ledger::{Phase, Server, Stage, Unit};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::TensorRtLlm, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    row(Carrier::SpanAttribute("gen_ai.latency.time_in_queue"), Says::Stage(Stage::Queue), Scale::S),
    // from arrival
    row(Carrier::SpanAttribute("gen_ai.latency.time_to_first_token"), Says::FirstToken, Scale::S).includes_queue(),
    row(Carrier::SpanAttribute("gen_ai.latency.e2e"), Says::Total, Scale::S),
    row(Carrier::SpanAttribute("gen_ai.usage.prompt_tokens"), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::SpanAttribute("gen_ai.usage.completion_tokens"), Says::Work(Unit::OutputToken), Scale::Count),
    row(Carrier::Metric("trtllm_request_queue_time_seconds"), Says::Stage(Stage::Queue), Scale::S),
    // in newer releases
    row(Carrier::Metric("trtllm_request_prefill_time_seconds"), Says::Phase(Phase::Prefill), Scale::S),
    row(Carrier::Metric("trtllm_request_decode_time_seconds"), Says::Phase(Phase::Decode), Scale::S),
    // from arrival
    row(Carrier::Metric("trtllm_time_to_first_token_seconds"), Says::FirstToken, Scale::S).includes_queue(),
    row(Carrier::Metric("trtllm_time_per_output_token_seconds"), Says::PerOutputToken, Scale::S),
    row(Carrier::Metric("trtllm_e2e_request_latency_seconds"), Says::Total, Scale::S),
    row(Carrier::Metric("trtllm_num_requests_running"), Says::Running, Scale::Count),
    row(Carrier::Metric("trtllm_num_requests_waiting"), Says::Waiting, Scale::Count),
];
