//! The text that `lapwing upstream-flags` prints for each server. `{grpc}` and `{http}` stand for Lapwing's OTLP receivers.

use lapwing_ledger::Server;

/// The description of a server.
pub(crate) struct Text {
    /// What it reports, in one line.
    pub(crate) summary: &'static str,
    /// The flags, variables and files that make it report.
    pub(crate) setup: &'static str,
    /// The stages that it then reports, and in which fields.
    pub(crate) reported: &'static str,
    /// What it does not report.
    pub(crate) missing: &'static str,
}

pub(crate) const fn of(server: Server) -> Text {
    match server {
        Server::Triton => TRITON,
        Server::Vllm => VLLM,
        Server::Sglang => SGLANG,
        Server::Tei => TEI,
        Server::Tgi => TGI,
        Server::LlamaCpp => LLAMA_CPP,
        Server::Ollama => OLLAMA,
        Server::TfServing => TF_SERVING,
        Server::TorchServe => TORCH_SERVE,
        Server::MlServer => ML_SERVER,
        Server::KServe => KSERVE,
        Server::RayServe => RAY_SERVE,
        Server::BentoMl => BENTO_ML,
        Server::TensorRtLlm => TENSORRT_LLM,
        Server::FastApi => FAST_API,
    }
}

const TRITON: Text = Text {
    summary: "queue, copies and model of every request and ensemble step, by spans",
    setup: "\
tritonserver … \\
  --trace-config mode=opentelemetry --trace-config level=TIMESTAMPS \\
  --trace-config rate=0 --trace-config count=-1 \\
  --trace-config opentelemetry,url=http://{http}/v1/traces \\
  --trace-config opentelemetry,bsp_schedule_delay=100
rate=0: only requests that Lapwing marks are traced. The delay is in ms; without it spans come 5 s late.",
    reported: "\
queue, preprocessing (input copies), forward, postprocessing (output copies), over HTTP and gRPC, also for
streams. In an ensemble, if a step's model is called `preprocess`, `tokenizer`, `postprocess` or the like,
its forward time counts as that stage. For other names add a rule:
  attribution.spans: [{attribute: triton.model_name, value: my_features, stage: hydration}]
Batch sizes come from /v2/models/stats; an ensemble's are those of the step that is its forward.",
    missing: "\
The time in which Triton reads and writes the network. What a Python model does inside `execute`, unless it
reports activities of its own. Models called by a BLS model, unless it passes `trace=request.trace()`.",
};

const VLLM: Text = Text {
    summary: "queue, prefill, decode and time per token, in the body or by its span",
    setup: "\
vllm serve … --enable-per-request-metrics --enable-force-include-usage
The first flag puts `metrics` into the body (not with --disable-log-stats). Streams have it in their last
chunk, that of the usage, which the second flag always adds.
Or, with opentelemetry-sdk and opentelemetry-exporter-otlp installed:
OTEL_EXPORTER_OTLP_TRACES_INSECURE=true vllm serve … --otlp-traces-endpoint grpc://{grpc}
Clients see the chunk with the usage. They may also ask for it themselves (stream_options.include_usage).",
    reported: "\
queue, prefill, decode, time to first token and mean time per output token, as the engine counts them.
If both the body and a span report, the body is used. Spans also cover streams without usage.",
    missing: "\
Tokenizing and the API server's own work. `metrics` is null if n > 1. Older releases have the span only.",
};

const SGLANG: Text = Text {
    summary: "tokenizing, queue, prefill and decode, by spans or `meta_info`",
    setup: "\
python -m sglang.launch_server … --enable-trace --otlp-traces-endpoint {grpc} --enable-metrics
SGLANG_TRACE_LEVEL is 3 by default; 0 turns tracing off.
--enable-metrics puts queue and first-token times into `meta_info` (on the native /generate; on the OpenAI
routes if the request has \"return_meta_info\": true and does not stream).",
    reported: "\
In spans: preprocessing (tokenize), queue (prefill_waiting), prefill, decode. In `meta_info`: queue, prefill
(from arrival, minus the queue), decode. Time to first token and tokens in both.",
    missing: "\
On OpenAI streams without spans: everything. If only its topmost span arrives: prefill, because that figure
includes the queue, and the queue's own time is not reported.",
};

const TEI: Text = Text {
    summary: "tokenizing, queue and inference, in headers, gRPC metadata and spans",
    setup: "\
Nothing to do: every HTTP response has the headers, every gRPC response the metadata.
For times finer than milliseconds over HTTP:
text-embeddings-router … --otlp-endpoint http://{grpc}",
    reported: "\
preprocessing (tokenization), queue, forward (inference), input tokens. Headers are whole milliseconds,
rounded down: 0 is less than 1 ms. For each stage, a header overrides a span.",
    missing: "\
The times of single inputs: for a request with several inputs the times are means over the inputs, and do
not add up to the whole.",
};

const TGI: Text = Text {
    summary: "validation, queue and inference, in headers (not of streams) and spans",
    setup: "\
Nothing to do for answers that are not streamed: they have the headers.
For streams, and for times finer than milliseconds:
text-generation-launcher … --otlp-endpoint http://{grpc}",
    reported: "\
preprocessing (validation, which tokenizes), queue, forward (inference), tokens.",
    missing: "\
Prefill separate from decode: its time per token includes the first token. For /v1/completions with several
prompts the headers are sums over the prompts; Lapwing then shows the mean of one prompt for each stage.",
};

const LLAMA_CPP: Text = Text {
    summary: "prefill and decode, in the body of every route",
    setup: "\
Nothing to do: `timings` is in every answer, and in the last chunk of streams.
llama-server … --metrics                             running and waiting requests",
    reported: "prefill (prompt_ms), decode (predicted_ms), prompt tokens including cached ones, output tokens.",
    missing: "Its queue, which none of a request's figures contains; tokenizing.",
};

const OLLAMA: Text = Text {
    summary: "loading, prefill and decode, in the body of /api routes",
    setup: "Nothing to do for /api/generate, /api/chat and /api/embed. For /v1 there is nothing that could be turned on.",
    reported: "\
queue (load_duration: waiting for a runner, and loading the model), prefill, decode, tokens; for embeddings,
forward is the total minus the queue.",
    missing: "On /v1 routes, everything except the usage. It has no metrics and no spans.",
};

const TF_SERVING: Text = Text {
    summary: "nothing per request; means of queue and model, polled",
    setup: "\
tensorflow_model_server … --rest_api_port=8501 --monitoring_config_file=monitoring.config
monitoring.config:
  prometheus_config { enable: true path: \"/monitoring/prometheus/metrics\" }
Lapwing's configuration: attribution.poll: http://127.0.0.1:8501/monitoring/prometheus/metrics",
    reported: "\
Sums and means of many requests (`polled` of /stats): queue (batching; without batching there is none),
forward (runtime, minus the queue), batch sizes and padding.",
    missing: "The times of single requests: it reads no trace context and sends no times.",
};

const TORCH_SERVE: Text = Text {
    summary: "nothing per request unless the handler reports it; means of queue and handler, polled",
    setup: "\
config.properties:
  metrics_mode=prometheus
Lapwing's configuration: attribution.poll: http://127.0.0.1:8082/metrics
A handler that times its steps can report them itself:
  context.set_response_header(0, \"Server-Timing\", f\"preprocessing;dur={a}, forward;dur={b}\")",
    reported: "\
Sums and means of many requests (`polled` of /stats): queue, and the handler's whole time as forward. With
the header, the stages of each request.",
    missing: "Without the header: preprocessing and postprocessing in the handler, and the times of single requests.",
};

const ML_SERVER: Text = Text {
    summary: "nothing per request unless the runtime reports it",
    setup: "\
settings.json:
  \"tracing_server\": \"{grpc}\", \"parallel_workers\": 0
Its one span per request has no stages. Spans that your runtime creates inside it have, but are sent only if
the runtime installs the tracer provider that MLServer made, in `load`:
  opentelemetry.trace.set_tracer_provider(mlserver.tracing.get_tracer_provider(None))
A custom runtime can also set a header:
  response.parameters = Parameters(headers={\"Server-Timing\": \"preprocessing;dur=1.2, forward;dur=9.8\"})",
    reported: "What your runtime reports.",
    missing: "\
Its own queues (adaptive batching, workers): MLServer 1.7 has no metric of them, and its mean times include
them, so nothing is polled. Headers are not sent with event streams. Spans of worker processes are lost.",
};

const KSERVE: Text = Text {
    summary: "nothing per request unless the model reports it; means per step, polled",
    setup: "\
Model(name, return_response_headers=True), and in predict:
  response_headers[\"Server-Timing\"] = \"preprocessing;dur=1.2, forward;dur=9.8\"
For the means, Lapwing's configuration: attribution.poll: http://127.0.0.1:8080/metrics",
    reported: "\
What your model reports. Sums and means of many requests (`polled` of /stats): preprocessing, forward,
postprocessing.",
    missing: "\
Waiting for a worker. Spans behind a transformer: it does not pass `traceparent` on to its predictor.",
};

const RAY_SERVE: Text = Text {
    summary: "waiting for a replica and time in it, by spans",
    setup: "\
pip install opentelemetry-exporter-otlp-proto-grpc      (it is not in ray[serve])
RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH=lapwing_tracing:processors
lapwing_tracing.py, importable by every replica:
  from opentelemetry.sdk.trace.export import BatchSpanProcessor
  from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
  def processors():
      return [BatchSpanProcessor(OTLPSpanExporter(\"{grpc}\", insecure=True))]
Ray samples as Lapwing's `traceparent` says: RAY_SERVE_TRACING_SAMPLING_RATIO does not matter.",
    reported: "\
queue (from the routing to the replica, before every deployment), forward (all of the replicas' own code).
If a deployment is named after a stage (`Preprocess`, `Tokenizer`), its time is that stage; for others:
  attribution.spans: [{deployment: Tok, stage: preprocessing}]
Your own spans inside a replica own their time.",
    missing: "\
Waiting for a batch inside a replica (`@serve.batch`), unless the handler makes a span `batch_wait` of it:
docs/UPSTREAMS.md shows how. Polling needs the address of the node's metrics (attribution.poll).",
};

const BENTO_ML: Text = Text {
    summary: "no stages of its own; running requests, polled",
    setup: "\
BentoML itself reports no stages. Report them from the service, by a Server-Timing header:
  ctx.response.headers[\"Server-Timing\"] = \"preprocessing;dur=1.2, forward;dur=9.8\"
or by spans of OpenTelemetry's SDK to http://{http} or {grpc} (docs/REPORTING.md).",
    reported: "What your service reports. Running requests, polled.",
    missing: "\
Its queue, which it does not time. Its one span per request has no stages. Its batch size counts requests,
not rows, so it is not read.",
};

const TENSORRT_LLM: Text = Text {
    summary: "queue, prefill and decode, by its span",
    setup: "\
OTEL_EXPORTER_OTLP_TRACES_INSECURE=true trtllm-serve … --otlp_traces_endpoint grpc://{grpc} \\
  --extra_llm_api_options options.yaml
options.yaml:
  return_perf_metrics: true",
    reported: "\
queue, prefill (time to first token minus the queue), decode (the rest of the total), tokens. Running and
waiting requests, polled.",
    missing: "Tokenizing and detokenizing, which count as prefill and decode. Under Triton, use `triton`.",
};

const FAST_API: Text = Text {
    summary: "what the handler reports, by header or spans",
    setup: "\
A header, in the handler:
  response.headers[\"Server-Timing\"] = \"preprocessing;dur=1.2, forward;dur=9.8\"
or by OpenTelemetry's SDK, with spans around the steps:
OTEL_EXPORTER_OTLP_ENDPOINT=http://{http} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf
docs/REPORTING.md has complete handlers.",
    reported: "Every stage that you measure; Redis, SQL and HTTP clients through their own instrumentations.",
    missing: "What you do not measure: it is unattributed, or forward if nothing at all is reported.",
};
