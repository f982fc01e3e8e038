//! Servers of predictive models (tensors, tables, embeddings). One row per value that a server reports, in the order of
//! preference.

use super::field::FieldLocation::{Header, Metric, Proto, Span, SpanAttribute, SpanEvents, Statistics};
use super::field::Quantity::{BatchSize, FirstToken, Model, Padding, Running, Total, Waiting};
use super::field::Scale::{Count, Ms, Ns, RustDebug, S, Text, Us};
use super::field::{FORWARD, INPUT_TOKENS, MS, POSTPROCESSING, PREPROCESSING, QUEUE, ReportedField, US, row};
use lapwing_ledger::Server::{BentoMl, KServe, MlServer, RayServe, Tei, TfServing, TorchServe, Triton};

/// NVIDIA Triton: stages are events of its spans; statistics per model; nothing in responses.
pub(crate) const TRITON: &[ReportedField] = &[
    // from the model span's event to the start of its `compute` child, which may arrive in another batch; a cache hit has none
    row(Triton, SpanEvents("*", "QUEUE_START", "COMPUTE_START"), QUEUE, Ns),
    row(Triton, SpanEvents("compute", "COMPUTE_START", "COMPUTE_INPUT_END"), PREPROCESSING, Ns),
    row(Triton, SpanEvents("compute", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START"), FORWARD, Ns),
    row(Triton, SpanEvents("compute", "COMPUTE_OUTPUT_START", "COMPUTE_END"), POSTPROCESSING, Ns),
    row(Triton, SpanAttribute("triton.model_name"), Model, Text),
    // each is a cumulative `{count, ns}`. Queue and success count every request; the input and output copies and the model count
    // only requests that missed the cache, so time per request is divided by the number of all requests
    row(Triton, Statistics("model_stats[].name"), Model, Text),
    row(Triton, Statistics("model_stats[].inference_stats.queue.ns"), QUEUE, Ns),
    row(Triton, Statistics("model_stats[].inference_stats.compute_input.ns"), PREPROCESSING, Ns),
    row(Triton, Statistics("model_stats[].inference_stats.compute_infer.ns"), FORWARD, Ns),
    row(Triton, Statistics("model_stats[].inference_stats.compute_output.ns"), POSTPROCESSING, Ns),
    row(Triton, Statistics("model_stats[].inference_stats.success.ns"), Total, Ns),
    // rows divided by `execution_count`; an ensemble counts each request as one execution
    row(Triton, Statistics("model_stats[].inference_count"), BatchSize, Count),
    // cumulative counters
    row(Triton, Metric("nv_inference_queue_duration_us"), QUEUE, Us).rounded(US),
    row(Triton, Metric("nv_inference_compute_input_duration_us"), PREPROCESSING, Us).rounded(US),
    row(Triton, Metric("nv_inference_compute_infer_duration_us"), FORWARD, Us).rounded(US),
    row(Triton, Metric("nv_inference_compute_output_duration_us"), POSTPROCESSING, Us).rounded(US),
    row(Triton, Metric("nv_inference_request_duration_us"), Total, Us).rounded(US),
    row(Triton, Metric("nv_inference_first_response_histogram_ms"), FirstToken, Ms).includes_queue(),
    row(Triton, Metric("nv_inference_pending_request_count"), Waiting, Count),
    // from the TensorRT-LLM backend
    row(Triton, Metric("nv_trt_llm_request_metrics{request_type=waiting}"), Waiting, Count),
    row(Triton, Metric("nv_trt_llm_request_metrics{request_type=scheduled}"), Running, Count),
];

/// Text Embeddings Inference: headers in whole milliseconds; gRPC metadata and span attributes with the precision of its clock.
pub(crate) const TEI: &[ReportedField] = &[
    // truncated: 0.9 ms becomes 0. For a request with several inputs all but the total are means over the inputs
    row(Tei, Header("x-tokenization-time"), PREPROCESSING, Ms).rounded(MS),
    row(Tei, Header("x-queue-time"), QUEUE, Ms).rounded(MS),
    row(Tei, Header("x-inference-time"), FORWARD, Ms).rounded(MS),
    // milliseconds here; TGI sends seconds under this name
    row(Tei, Header("x-compute-time"), Total, Ms).rounded(MS),
    row(Tei, Header("x-total-time"), Total, Ms).rounded(MS),
    row(Tei, Header("x-compute-tokens"), INPUT_TOKENS, Count),
    // the field `metadata` of each response
    row(Tei, Proto(&[2, 4]), PREPROCESSING, Ns),
    row(Tei, Proto(&[2, 5]), QUEUE, Ns),
    row(Tei, Proto(&[2, 6]), FORWARD, Ns),
    row(Tei, Proto(&[2, 3]), Total, Ns),
    row(Tei, Proto(&[2, 2]), INPUT_TOKENS, Count),
    row(Tei, SpanAttribute("tokenization_time"), PREPROCESSING, RustDebug),
    row(Tei, SpanAttribute("queue_time"), QUEUE, RustDebug),
    row(Tei, SpanAttribute("inference_time"), FORWARD, RustDebug),
    row(Tei, SpanAttribute("total_time"), Total, RustDebug),
    row(Tei, SpanAttribute("compute_tokens"), INPUT_TOKENS, Count),
    row(Tei, Metric("te_request_tokenization_duration"), PREPROCESSING, S),
    row(Tei, Metric("te_request_queue_duration"), QUEUE, S),
    row(Tei, Metric("te_request_inference_duration"), FORWARD, S),
    row(Tei, Metric("te_request_duration"), Total, S),
    row(Tei, Metric("te_request_input_length"), INPUT_TOKENS, Count),
    row(Tei, Metric("te_batch_next_size"), BatchSize, Count),
    row(Tei, Metric("te_queue_size"), Waiting, Count),
];

/// TensorFlow Serving: histograms in microseconds; nothing per request.
pub(crate) const TF_SERVING: &[ReportedField] = &[
    row(TfServing, Metric(":tensorflow:serving:batching_session:queuing_latency"), QUEUE, Us).rounded(US),
    row(TfServing, Metric(":tensorflow:serving:saved_model_with_batching:queuing_latency"), QUEUE, Us).rounded(US),
    // includes the wait in a batching session; without batching, the default, there is no queue and no queue metric
    row(TfServing, Metric(":tensorflow:serving:runtime_latency"), FORWARD, Us).rounded(US).includes_queue_if_reported(),
    row(TfServing, Metric(":tensorflow:serving:request_latency"), Total, Us).rounded(US),
    row(TfServing, Metric(":tensorflow:serving:batching_session:processed_batch_size"), BatchSize, Count),
    row(TfServing, Metric(":tensorflow:serving:saved_model_with_batching:processed_batch_size"), BatchSize, Count),
    row(TfServing, Metric(":tensorflow:serving:batching_session:padding_size"), Padding, Count),
    row(TfServing, Metric(":tensorflow:serving:saved_model_with_batching:padding_size"), Padding, Count),
];

/// TorchServe: cumulative counters with `metrics_mode=prometheus`; nothing per request. Its gauges hold the last value only.
pub(crate) const TORCH_SERVE: &[ReportedField] = &[
    row(TorchServe, Metric("ts_queue_latency_microseconds"), QUEUE, Us),
    // starts at the request's arrival, so it includes the queue, and the handler's pre- and postprocessing too
    row(TorchServe, Metric("ts_inference_latency_microseconds"), FORWARD, Us).includes_queue(),
];

/// MLServer: histograms; its one span per request has no stages.
pub(crate) const ML_SERVER: &[ReportedField] = &[
    // a summary per model; includes waiting for an adaptive batch or a worker
    row(MlServer, Metric("model_infer_request_duration"), FORWARD, S).includes_queue(),
    row(MlServer, Metric("rest_server_requests_duration_seconds"), Total, S),
    // queue sizes, not times
    row(MlServer, Metric("batch_request_queue"), Waiting, Count),
    row(MlServer, Metric("parallel_request_queue"), Waiting, Count).adds_up(),
];

/// KServe Python SDK: histograms per model; per request only log lines.
pub(crate) const KSERVE: &[ReportedField] = &[
    row(KServe, Metric("request_preprocess_seconds"), PREPROCESSING, S),
    row(KServe, Metric("request_predict_seconds"), FORWARD, S),
    row(KServe, Metric("request_postprocess_seconds"), POSTPROCESSING, S),
];

/// Ray Serve: spans of its proxy and its replicas; histograms in milliseconds.
///
/// Its metrics count every call of a deployment, and deployments call one another: a mean over them is no time of a request, and
/// the wait for a batch is counted per batch. No stage is made of them. Its batch size counts requests, not rows.
pub(crate) const RAY_SERVE: &[ReportedField] = &[
    // until the replica's span below it starts, at every level; the second name is that of older versions
    row(RayServe, Span("route_to_replica *"), QUEUE, Ns),
    row(RayServe, Span("proxy_route_to_replica *"), QUEUE, Ns),
    // what the proxy does before the routing span is no queue
    row(RayServe, Span("proxy_http_request *"), Total, Ns),
    row(RayServe, Span("proxy_grpc_request *"), Total, Ns),
    // all of the deployment's code; spans inside it take their own time out
    row(RayServe, Span("replica_handle_request *"), FORWARD, Ns),
    row(RayServe, Metric("ray_serve_http_request_latency_ms"), Total, Ms),
    row(RayServe, Metric("ray_serve_replica_processing_queries"), Running, Count),
    row(RayServe, Metric("ray_serve_deployment_queued_queries"), Waiting, Count),
];

/// BentoML: histograms; its one span per request has no stages, and it does not time its queue. Its batch size counts requests,
/// not rows, so it is not read.
pub(crate) const BENTO_ML: &[ReportedField] = &[
    row(BentoMl, Metric("bentoml_service_request_duration_seconds"), Total, S),
    row(BentoMl, Metric("bentoml_service_request_in_progress"), Running, Count),
];
