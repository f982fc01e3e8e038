//! SGLang: `meta_info` in the body, a tree of stage spans, attributes of its topmost span, histograms.

use super::row::{Carrier, Row, Says, Scale};
use crate::ledger::{Phase, Server, Stage, Unit};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::Sglang, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    // the native route, then the OpenAI routes with `return_meta_info`; all but the total need `--enable-metrics`
    row(Carrier::Body("meta_info.queue_time"), Says::Stage(Stage::Queue), Scale::S),
    row(Carrier::Body("meta_info.first_token_latency"), Says::FirstToken, Scale::S).includes_queue(),
    row(Carrier::Body("meta_info.e2e_latency"), Says::Total, Scale::S),
    row(Carrier::Body("meta_info.prompt_tokens"), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::Body("meta_info.completion_tokens"), Says::Work(Unit::OutputToken), Scale::Count),
    row(Carrier::Body("choices[].meta_info.queue_time"), Says::Stage(Stage::Queue), Scale::S),
    row(Carrier::Body("choices[].meta_info.first_token_latency"), Says::FirstToken, Scale::S).includes_queue(),
    row(Carrier::Body("choices[].meta_info.e2e_latency"), Says::Total, Scale::S),
    row(Carrier::Body("choices[].meta_info.prompt_tokens"), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::Body("choices[].meta_info.completion_tokens"), Says::Work(Unit::OutputToken), Scale::Count),
    // stage spans below the request's own; the rest of them (dispatch, KV transfer, batch bookkeeping) is no stage
    row(Carrier::Span("tokenize"), Says::Stage(Stage::Preprocessing), Scale::Ns),
    row(Carrier::Span("mm_encode"), Says::Stage(Stage::Preprocessing), Scale::Ns),
    row(Carrier::Span("prefill_bootstrap"), Says::Stage(Stage::Queue), Scale::Ns),
    row(Carrier::Span("prefill_waiting"), Says::Stage(Stage::Queue), Scale::Ns),
    row(Carrier::Span("prefill_forward"), Says::Phase(Phase::Prefill), Scale::Ns),
    row(Carrier::Span("chunked_prefill"), Says::Phase(Phase::Prefill), Scale::Ns),
    row(Carrier::Span("decode_bootstrap"), Says::Stage(Stage::Queue), Scale::Ns),
    row(Carrier::Span("decode_waiting"), Says::Stage(Stage::Queue), Scale::Ns),
    row(Carrier::Span("decode_forward"), Says::Phase(Phase::Decode), Scale::Ns),
    row(Carrier::Span("decode_loop"), Says::Phase(Phase::Decode), Scale::Ns),
    row(Carrier::Span("spec_draft"), Says::Phase(Phase::Decode), Scale::Ns),
    row(Carrier::Span("spec_verify"), Says::Phase(Phase::Decode), Scale::Ns),
    // from the end of dispatch to the first token: with the queue, unlike vLLM's attribute of that name
    row(Carrier::SpanAttribute("gen_ai.latency.time_in_model_prefill"), Says::Phase(Phase::Prefill), Scale::S).includes_queue(),
    row(Carrier::SpanAttribute("gen_ai.latency.time_in_model_decode"), Says::Phase(Phase::Decode), Scale::S),
    row(Carrier::SpanAttribute("gen_ai.latency.time_in_model_inference"), Says::Stage(Stage::Forward), Scale::S).includes_queue(),
    // it has a name for it, but does not send it yet
    row(Carrier::SpanAttribute("gen_ai.latency.time_in_queue"), Says::Stage(Stage::Queue), Scale::S),
    row(Carrier::SpanAttribute("gen_ai.latency.time_to_first_token"), Says::FirstToken, Scale::S).includes_queue(),
    row(Carrier::SpanAttribute("gen_ai.latency.e2e"), Says::Total, Scale::S),
    row(Carrier::SpanAttribute("gen_ai.usage.prompt_tokens"), Says::Work(Unit::InputToken), Scale::Count),
    row(Carrier::SpanAttribute("gen_ai.usage.completion_tokens"), Says::Work(Unit::OutputToken), Scale::Count),
    row(Carrier::Metric("sglang:queue_time_seconds"), Says::Stage(Stage::Queue), Scale::S),
    row(Carrier::Metric("sglang:per_stage_req_latency_seconds{stage=prefill_forward}"), Says::Phase(Phase::Prefill), Scale::S),
    row(Carrier::Metric("sglang:per_stage_req_latency_seconds{stage=decode_forward}"), Says::Phase(Phase::Decode), Scale::S),
    row(Carrier::Metric("sglang:time_to_first_token_seconds"), Says::FirstToken, Scale::S).includes_queue(),
    row(Carrier::Metric("sglang:request_time_per_output_token_seconds"), Says::PerOutputToken, Scale::S),
    row(Carrier::Metric("sglang:inter_token_latency_seconds"), Says::PerOutputToken, Scale::S),
    row(Carrier::Metric("sglang:e2e_request_latency_seconds"), Says::Total, Scale::S),
    row(Carrier::Metric("sglang:num_running_reqs"), Says::Running, Scale::Count),
    row(Carrier::Metric("sglang:num_queue_reqs"), Says::Waiting, Scale::Count),
];
