//! Servers of generative models. One row per value that a server reports, in the order of preference.

use super::field::FieldLocation::{Body, Header, Metric, Span, SpanAttribute};
use super::field::Quantity::{BatchSize, FirstToken, PerOutputToken, Running, Total, Waiting};
use super::field::Scale::{Count, Ms, Ns, RustDebug, S};
use super::field::{DECODE, FORWARD, INPUT_TOKENS, MS, OUTPUT_TOKENS, PREFILL, PREPROCESSING, QUEUE, ReportedField, US, row};
use lapwing_ledger::Server::{LlamaCpp, Ollama, Sglang, TensorRtLlm, Tgi, Vllm};

/// vLLM: `metrics` in the body, attributes of its span `llm_request`, histograms.
pub(crate) const VLLM: &[ReportedField] = &[
    // `metrics` is null when the request asked for several answers (n > 1)
    // from scheduling to the first token: excludes the queue, unlike the attribute and the metric of the same name
    row(Vllm, Body("metrics.time_to_first_token_ms"), FirstToken, Ms),
    // decode only
    row(Vllm, Body("metrics.generation_time_ms"), DECODE, Ms),
    row(Vllm, Body("metrics.queue_time_ms"), QUEUE, Ms),
    row(Vllm, Body("metrics.mean_itl_ms"), PerOutputToken, Ms),
    row(Vllm, SpanAttribute("gen_ai.latency.time_in_queue"), QUEUE, S),
    row(Vllm, SpanAttribute("gen_ai.latency.time_in_model_prefill"), PREFILL, S),
    row(Vllm, SpanAttribute("gen_ai.latency.time_in_model_decode"), DECODE, S),
    // prefill plus decode
    row(Vllm, SpanAttribute("gen_ai.latency.time_in_model_inference"), FORWARD, S),
    // from arrival
    row(Vllm, SpanAttribute("gen_ai.latency.time_to_first_token"), FirstToken, S).includes_queue(),
    row(Vllm, SpanAttribute("gen_ai.latency.e2e"), Total, S),
    row(Vllm, SpanAttribute("gen_ai.usage.prompt_tokens"), INPUT_TOKENS, Count),
    row(Vllm, SpanAttribute("gen_ai.usage.completion_tokens"), OUTPUT_TOKENS, Count),
    row(Vllm, Metric("vllm:request_queue_time_seconds"), QUEUE, S),
    row(Vllm, Metric("vllm:request_prefill_time_seconds"), PREFILL, S),
    row(Vllm, Metric("vllm:request_decode_time_seconds"), DECODE, S),
    row(Vllm, Metric("vllm:request_inference_time_seconds"), FORWARD, S),
    row(Vllm, Metric("vllm:time_to_first_token_seconds"), FirstToken, S).includes_queue(),
    row(Vllm, Metric("vllm:request_time_per_output_token_seconds"), PerOutputToken, S),
    row(Vllm, Metric("vllm:inter_token_latency_seconds"), PerOutputToken, S),
    // the name in older releases
    row(Vllm, Metric("vllm:time_per_output_token_seconds"), PerOutputToken, S),
    row(Vllm, Metric("vllm:e2e_request_latency_seconds"), Total, S),
    row(Vllm, Metric("vllm:prompt_tokens_total"), INPUT_TOKENS, Count),
    row(Vllm, Metric("vllm:generation_tokens_total"), OUTPUT_TOKENS, Count),
    row(Vllm, Metric("vllm:num_requests_running"), Running, Count),
    row(Vllm, Metric("vllm:num_requests_waiting"), Waiting, Count),
];

/// SGLang: `meta_info` in the body, a tree of stage spans, attributes of the root span, histograms.
pub(crate) const SGLANG: &[ReportedField] = &[
    // the native route first, then the OpenAI routes with `return_meta_info`; all but the total need `--enable-metrics`
    row(Sglang, Body("meta_info.queue_time"), QUEUE, S),
    row(Sglang, Body("meta_info.first_token_latency"), FirstToken, S).includes_queue(),
    row(Sglang, Body("meta_info.e2e_latency"), Total, S),
    row(Sglang, Body("meta_info.prompt_tokens"), INPUT_TOKENS, Count),
    row(Sglang, Body("meta_info.completion_tokens"), OUTPUT_TOKENS, Count),
    row(Sglang, Body("choices[].meta_info.queue_time"), QUEUE, S),
    row(Sglang, Body("choices[].meta_info.first_token_latency"), FirstToken, S).includes_queue(),
    row(Sglang, Body("choices[].meta_info.e2e_latency"), Total, S),
    row(Sglang, Body("choices[].meta_info.prompt_tokens"), INPUT_TOKENS, Count),
    row(Sglang, Body("choices[].meta_info.completion_tokens"), OUTPUT_TOKENS, Count),
    // stage spans below the request's span; the others (dispatch, KV transfer, batch bookkeeping) are not stages
    row(Sglang, Span("tokenize"), PREPROCESSING, Ns),
    row(Sglang, Span("mm_encode"), PREPROCESSING, Ns),
    row(Sglang, Span("prefill_bootstrap"), QUEUE, Ns),
    row(Sglang, Span("prefill_waiting"), QUEUE, Ns),
    row(Sglang, Span("prefill_forward"), PREFILL, Ns),
    row(Sglang, Span("chunked_prefill"), PREFILL, Ns),
    row(Sglang, Span("decode_bootstrap"), QUEUE, Ns),
    row(Sglang, Span("decode_waiting"), QUEUE, Ns),
    row(Sglang, Span("decode_forward"), DECODE, Ns),
    row(Sglang, Span("spec_draft"), DECODE, Ns),
    row(Sglang, Span("spec_verify"), DECODE, Ns),
    // from the end of dispatch to the first token: includes the queue, unlike vLLM's attribute of the same name
    row(Sglang, SpanAttribute("gen_ai.latency.time_in_model_prefill"), PREFILL, S).includes_queue(),
    row(Sglang, SpanAttribute("gen_ai.latency.time_in_model_decode"), DECODE, S),
    row(Sglang, SpanAttribute("gen_ai.latency.time_in_model_inference"), FORWARD, S).includes_queue(),
    // SGLang defines this name but does not send it yet
    row(Sglang, SpanAttribute("gen_ai.latency.time_in_queue"), QUEUE, S),
    row(Sglang, SpanAttribute("gen_ai.latency.time_to_first_token"), FirstToken, S).includes_queue(),
    row(Sglang, SpanAttribute("gen_ai.latency.e2e"), Total, S),
    row(Sglang, SpanAttribute("gen_ai.usage.prompt_tokens"), INPUT_TOKENS, Count),
    row(Sglang, SpanAttribute("gen_ai.usage.completion_tokens"), OUTPUT_TOKENS, Count),
    row(Sglang, Metric("sglang:queue_time_seconds"), QUEUE, S),
    row(Sglang, Metric("sglang:per_stage_req_latency_seconds{stage=prefill_forward}"), PREFILL, S),
    row(Sglang, Metric("sglang:per_stage_req_latency_seconds{stage=decode_forward}"), DECODE, S),
    row(Sglang, Metric("sglang:time_to_first_token_seconds"), FirstToken, S).includes_queue(),
    row(Sglang, Metric("sglang:request_time_per_output_token_seconds"), PerOutputToken, S),
    row(Sglang, Metric("sglang:inter_token_latency_seconds"), PerOutputToken, S),
    row(Sglang, Metric("sglang:e2e_request_latency_seconds"), Total, S),
    row(Sglang, Metric("sglang:num_running_reqs"), Running, Count),
    row(Sglang, Metric("sglang:num_queue_reqs"), Waiting, Count),
];

/// Text Generation Inference: headers on responses that are not streamed, span attributes on all.
pub(crate) const TGI: &[ReportedField] = &[
    // whole milliseconds; sums when the request has several prompts (`/v1/completions`), then without `x-compute-time`. Validation
    // is mostly tokenizing
    row(Tgi, Header("x-validation-time"), PREPROCESSING, Ms).rounded(MS).summed(),
    row(Tgi, Header("x-queue-time"), QUEUE, Ms).rounded(MS).summed(),
    row(Tgi, Header("x-inference-time"), FORWARD, Ms).rounded(MS).summed(),
    // inference time over all tokens, including the first
    row(Tgi, Header("x-time-per-token"), PerOutputToken, Ms).rounded(MS).summed().includes_prefill(),
    // seconds here; TEI sends milliseconds under this name
    row(Tgi, Header("x-compute-time"), Total, S),
    row(Tgi, Header("x-total-time"), Total, Ms).rounded(MS).summed(),
    row(Tgi, Header("x-prompt-tokens"), INPUT_TOKENS, Count),
    row(Tgi, Header("x-generated-tokens"), OUTPUT_TOKENS, Count),
    // spans of its queue: `queued` until a batch takes the request, `waiting` while another batch is prefilled in between
    row(Tgi, Span("queued"), QUEUE, Ns),
    row(Tgi, Span("waiting"), QUEUE, Ns),
    row(Tgi, Span("infer"), FORWARD, Ns),
    row(Tgi, SpanAttribute("validation_time"), PREPROCESSING, RustDebug),
    row(Tgi, SpanAttribute("queue_time"), QUEUE, RustDebug),
    row(Tgi, SpanAttribute("inference_time"), FORWARD, RustDebug),
    row(Tgi, SpanAttribute("time_per_token"), PerOutputToken, RustDebug).includes_prefill(),
    row(Tgi, SpanAttribute("total_time"), Total, RustDebug),
    row(Tgi, Metric("tgi_request_validation_duration"), PREPROCESSING, S),
    row(Tgi, Metric("tgi_request_queue_duration"), QUEUE, S),
    row(Tgi, Metric("tgi_request_inference_duration"), FORWARD, S),
    row(Tgi, Metric("tgi_request_mean_time_per_token_duration"), PerOutputToken, S).includes_prefill(),
    row(Tgi, Metric("tgi_request_duration"), Total, S),
    row(Tgi, Metric("tgi_request_input_length"), INPUT_TOKENS, Count),
    row(Tgi, Metric("tgi_request_generated_tokens"), OUTPUT_TOKENS, Count),
    row(Tgi, Metric("tgi_batch_next_size"), BatchSize, Count),
    row(Tgi, Metric("tgi_batch_current_size"), Running, Count),
    row(Tgi, Metric("tgi_queue_size"), Waiting, Count),
];

/// TensorRT-LLM (`trtllm-serve`): attributes of its span, metrics.
pub(crate) const TENSORRT_LLM: &[ReportedField] = &[
    row(TensorRtLlm, SpanAttribute("gen_ai.latency.time_in_queue"), QUEUE, S),
    // from arrival
    row(TensorRtLlm, SpanAttribute("gen_ai.latency.time_to_first_token"), FirstToken, S).includes_queue(),
    row(TensorRtLlm, SpanAttribute("gen_ai.latency.e2e"), Total, S),
    row(TensorRtLlm, SpanAttribute("gen_ai.usage.prompt_tokens"), INPUT_TOKENS, Count),
    row(TensorRtLlm, SpanAttribute("gen_ai.usage.completion_tokens"), OUTPUT_TOKENS, Count),
    row(TensorRtLlm, Metric("trtllm_request_queue_time_seconds"), QUEUE, S),
    // in newer releases
    row(TensorRtLlm, Metric("trtllm_request_prefill_time_seconds"), PREFILL, S),
    row(TensorRtLlm, Metric("trtllm_request_decode_time_seconds"), DECODE, S),
    // from arrival
    row(TensorRtLlm, Metric("trtllm_time_to_first_token_seconds"), FirstToken, S).includes_queue(),
    row(TensorRtLlm, Metric("trtllm_time_per_output_token_seconds"), PerOutputToken, S),
    row(TensorRtLlm, Metric("trtllm_e2e_request_latency_seconds"), Total, S),
    row(TensorRtLlm, Metric("trtllm_num_requests_running"), Running, Count),
    row(TensorRtLlm, Metric("trtllm_num_requests_waiting"), Waiting, Count),
];

/// llama.cpp server: `timings` in the body of every route, including the OpenAI routes. It reports no queue time.
pub(crate) const LLAMA_CPP: &[ReportedField] = &[
    // null when no token was counted
    row(LlamaCpp, Body("timings.prompt_ms"), PREFILL, Ms).rounded(US),
    row(LlamaCpp, Body("timings.predicted_ms"), DECODE, Ms).rounded(US),
    // cached tokens plus evaluated tokens make the prompt
    row(LlamaCpp, Body("timings.cache_n"), INPUT_TOKENS, Count).adds_up(),
    row(LlamaCpp, Body("timings.prompt_n"), INPUT_TOKENS, Count).adds_up(),
    row(LlamaCpp, Body("timings.predicted_n"), OUTPUT_TOKENS, Count),
    // sums over all requests; no metric counts the requests
    row(LlamaCpp, Metric("llamacpp:prompt_seconds_total"), PREFILL, S),
    row(LlamaCpp, Metric("llamacpp:tokens_predicted_seconds_total"), DECODE, S),
    row(LlamaCpp, Metric("llamacpp:prompt_tokens_total"), INPUT_TOKENS, Count),
    row(LlamaCpp, Metric("llamacpp:tokens_predicted_total"), OUTPUT_TOKENS, Count),
    row(LlamaCpp, Metric("llamacpp:n_busy_slots_per_decode"), BatchSize, Count),
    row(LlamaCpp, Metric("llamacpp:requests_processing"), Running, Count),
    row(LlamaCpp, Metric("llamacpp:requests_deferred"), Waiting, Count),
];

/// Ollama: fields of the last object on its own routes; nothing on `/v1`, no metrics, no spans.
pub(crate) const OLLAMA: &[ReportedField] = &[
    // waiting for a runner, plus loading the model if it was not loaded
    row(Ollama, Body("load_duration"), QUEUE, Ns),
    row(Ollama, Body("prompt_eval_duration"), PREFILL, Ns),
    row(Ollama, Body("eval_duration"), DECODE, Ns),
    // embeddings report no other part
    row(Ollama, Body("total_duration"), Total, Ns).rest_is_forward(),
    row(Ollama, Body("prompt_eval_count"), INPUT_TOKENS, Count),
    row(Ollama, Body("eval_count"), OUTPUT_TOKENS, Count),
];
