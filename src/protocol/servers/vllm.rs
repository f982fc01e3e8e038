//! vLLM: `metrics` in the body, attributes of its span `llm_request`, histograms.

use super::row::{Carrier, Row, Says, Scale};
use crate::ledger::{Phase, Server, Stage, Unit};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::Vllm, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    // `metrics` is null where several answers were asked for (n > 1)
    // from scheduled to the first token: the queue is not in it, unlike the attribute and the metric of that name
    row(Carrier::Body("metrics.time_to_first_token_ms"), Says::FirstToken, Scale::Ms),
    // decode alone
    row(Carrier::Body("metrics.generation_time_ms"), Says::Phase(Phase::Decode), Scale::Ms),
    row(Carrier::Body("metrics.queue_time_ms"), Says::Stage(Stage::Queue), Scale::Ms),
    row(Carrier::Body("metrics.mean_itl_ms"), Says::PerOutputToken, Scale::Ms),
    row(Carrier::SpanAttribute("gen_ai.latency.time_in_queue"), Says::Stage(Stage::Queue), Scale::S),
    row(Carrier::SpanAttribute("gen_ai.latency.time_in_model_prefill"), Says::Phase(Phase::Prefill), Scale::S),
    row(Carrier::SpanAttribute("gen_ai.latency.time_in_model_decode"), Says::Phase(Phase::Decode), Scale::S),
    // prefill and decode together
    row(Carrier::SpanAttribute("gen_ai.latency.time_in_model_inference"), Says::Stage(Stage::Forward), Scale::S),
    // from arrival
    row(Carrier::SpanAttribute("gen_ai.latency.time_to_first_token"), Says::FirstToken, Scale::S).includes_queue(),
    row(Carrier::SpanAttribute("gen_ai.latency.e2e"), Says::Total, Scale::S),
    row(Carrier::SpanAttribute("gen_ai.usage.prompt_tokens"), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::SpanAttribute("gen_ai.usage.completion_tokens"), Says::Work(Unit::OutputToken), Scale::Count),
    row(Carrier::Metric("vllm:request_queue_time_seconds"), Says::Stage(Stage::Queue), Scale::S),
    row(Carrier::Metric("vllm:request_prefill_time_seconds"), Says::Phase(Phase::Prefill), Scale::S),
    row(Carrier::Metric("vllm:request_decode_time_seconds"), Says::Phase(Phase::Decode), Scale::S),
    row(Carrier::Metric("vllm:request_inference_time_seconds"), Says::Stage(Stage::Forward), Scale::S),
    row(Carrier::Metric("vllm:time_to_first_token_seconds"), Says::FirstToken, Scale::S).includes_queue(),
    // the last is the name in older releases
    row(Carrier::Metric("vllm:request_time_per_output_token_seconds"), Says::PerOutputToken, Scale::S),
    row(Carrier::Metric("vllm:inter_token_latency_seconds"), Says::PerOutputToken, Scale::S),
    row(Carrier::Metric("vllm:time_per_output_token_seconds"), Says::PerOutputToken, Scale::S),
    row(Carrier::Metric("vllm:e2e_request_latency_seconds"), Says::Total, Scale::S),
    row(Carrier::Metric("vllm:prompt_tokens_total"), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::Metric("vllm:generation_tokens_total"), Says::Work(Unit::OutputToken), Scale::Count),
    row(Carrier::Metric("vllm:num_requests_running"), Says::Running, Scale::Count),
    row(Carrier::Metric("vllm:num_requests_waiting"), Says::Waiting, Scale::Count),
];
