//! NVIDIA Triton: stages are events of its spans; statistics by model; nothing in responses.

use super::row::{Carrier, Row, Says, Scale, US};
use crate::ledger::{Server, Stage};

const fn row(carrier: Carrier, says: Says, scale: Scale) -> Row {
    Row::new(Server::Triton, carrier, says, scale)
}

/// What it reports.
pub(super) const ROWS: &[Row] = &[
    // a model span's event to the start of its `compute` child, which may come in another batch; a cache hit has none
    row(Carrier::SpanEvents("*", "QUEUE_START", "COMPUTE_START"), Says::Stage(Stage::Queue), Scale::Ns),
    row(Carrier::SpanEvents("compute", "COMPUTE_START", "COMPUTE_INPUT_END"), Says::Stage(Stage::Preprocessing), Scale::Ns),
    row(Carrier::SpanEvents("compute", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START"), Says::Stage(Stage::Forward), Scale::Ns),
    row(Carrier::SpanEvents("compute", "COMPUTE_OUTPUT_START", "COMPUTE_END"), Says::Stage(Stage::Postprocessing), Scale::Ns),
    row(Carrier::SpanAttribute("triton.model_name"), Says::Model, Scale::Text),
    // each is `{count, ns}`, cumulative. Queue and success count every request, the copies and the model those that were no
    // cache hits: of all, time by request is by the requests
    row(Carrier::Statistics("model_stats[].name"), Says::Model, Scale::Text),
    row(Carrier::Statistics("model_stats[].inference_stats.queue.ns"), Says::Stage(Stage::Queue), Scale::Ns),
    row(Carrier::Statistics("model_stats[].inference_stats.compute_input.ns"), Says::Stage(Stage::Preprocessing), Scale::Ns),
    row(Carrier::Statistics("model_stats[].inference_stats.compute_infer.ns"), Says::Stage(Stage::Forward), Scale::Ns),
    row(Carrier::Statistics("model_stats[].inference_stats.compute_output.ns"), Says::Stage(Stage::Postprocessing), Scale::Ns),
    row(Carrier::Statistics("model_stats[].inference_stats.success.ns"), Says::Total, Scale::Ns),
    // rows, over `execution_count`; an ensemble counts each request as an execution
    row(Carrier::Statistics("model_stats[].inference_count"), Says::BatchSize, Scale::Count),
    // cumulative counters
    row(Carrier::Metric("nv_inference_queue_duration_us"), Says::Stage(Stage::Queue), Scale::Us).rounded(US),
    row(Carrier::Metric("nv_inference_compute_input_duration_us"), Says::Stage(Stage::Preprocessing), Scale::Us).rounded(US),
    row(Carrier::Metric("nv_inference_compute_infer_duration_us"), Says::Stage(Stage::Forward), Scale::Us).rounded(US),
    row(Carrier::Metric("nv_inference_compute_output_duration_us"), Says::Stage(Stage::Postprocessing), Scale::Us).rounded(US),
    row(Carrier::Metric("nv_inference_request_duration_us"), Says::Total, Scale::Us).rounded(US),
    row(Carrier::Metric("nv_inference_first_response_histogram_ms"), Says::FirstToken, Scale::Ms).includes_queue(),
    row(Carrier::Metric("nv_inference_pending_request_count"), Says::Waiting, Scale::Count),
    // the TensorRT-LLM backend's own
    row(Carrier::Metric("nv_trt_llm_request_metrics{request_type=waiting}"), Says::Waiting, Scale::Count),
    row(Carrier::Metric("nv_trt_llm_request_metrics{request_type=scheduled}"), Says::Running, Scale::Count),
];
