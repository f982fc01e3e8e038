//! What `lapwing upstream-flags` says of each server. `{grpc}` and `{http}` stand for Lapwing's receivers.

use crate::ledger::Server;

/// What there is to say of a server.
pub(super) struct Text {
    /// In one line: what it reports.
    pub(super) gives: &'static str,
    /// Flags, variables, files.
    pub(super) on: &'static str,
    /// Which stages come of it, and from where.
    pub(super) comes: &'static str,
    /// What does not.
    pub(super) unseen: &'static str,
}

pub(super) const fn of(server: Server) -> Text {
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
    gives: "queue, copies and model of every request and ensemble step, by spans",
    on: "\
tritonserver … \\
  --trace-config mode=opentelemetry --trace-config level=TIMESTAMPS \\
  --trace-config rate=0 --trace-config count=-1 \\
  --trace-config opentelemetry,url=http://{http}/v1/traces \\
  --trace-config opentelemetry,bsp_schedule_delay=100
rate=0: only requests that Lapwing marks are traced. The delay is in ms; without it spans come 5 s late.",
    comes: "\
queue, preprocessing (input copies), forward, postprocessing (output copies), over HTTP and gRPC, streams
too. In an ensemble, a step whose model is called `preprocess`, `tokenizer`, `postprocess` or the like gives
its forward to that stage; for other names add a rule:
  attribution.spans: [{attribute: triton.model_name, value: my_features, stage: hydration}]
Batch sizes come from /v2/models/stats, an ensemble's from the step that is its forward.",
    unseen: "\
Time in which Triton reads and writes the network. What a Python model does inside `execute`, unless it
reports activities of its own. Models called by a BLS model, unless it passes `trace=request.trace()`.",
};

const VLLM: Text = Text {
    gives: "queue, prefill, decode and pace, in the body or by its span",
    on: "\
vllm serve … --enable-per-request-metrics --enable-force-include-usage
The first puts `metrics` into the body (not with --disable-log-stats); streams carry it with the usage, in
their last chunk, which the second always adds.
Or, with opentelemetry-sdk and opentelemetry-exporter-otlp installed:
OTEL_EXPORTER_OTLP_TRACES_INSECURE=true vllm serve … --otlp-traces-endpoint grpc://{grpc}
Clients see the chunk with the usage; they may ask for it themselves (stream_options.include_usage).",
    comes: "\
queue, prefill, decode, time to first token and mean time per output token, as the engine counts them.
Both ways at once do no harm: the body is believed. Spans also tell of streams without usage.",
    unseen: "\
Tokenizing and the API server's own work. `metrics` is null where n > 1. Older releases know the span only.",
};

const SGLANG: Text = Text {
    gives: "tokenizing, queue, prefill and decode, by spans or `meta_info`",
    on: "\
python -m sglang.launch_server … --enable-trace --otlp-traces-endpoint {grpc} --enable-metrics
SGLANG_TRACE_LEVEL=3 is its default; 0 is off.
--enable-metrics puts queue and first-token times into `meta_info` (native /generate; on the OpenAI routes
where the request says \"return_meta_info\": true and does not stream).",
    comes: "\
By spans: preprocessing (tokenize), queue (prefill_waiting), prefill, decode. By `meta_info`: queue, prefill
(from arrival, less the queue), decode. Time to first token and tokens by either.",
    unseen: "\
On OpenAI streams without spans: everything. Where only its topmost span comes, prefill: that figure has the
queue in it, and the queue is not told.",
};

const TEI: Text = Text {
    gives: "tokenizing, queue and inference, in headers, gRPC metadata and spans",
    on: "\
Nothing: every HTTP response has the headers, every gRPC response the metadata.
For more than whole milliseconds over HTTP:
text-embeddings-router … --otlp-endpoint http://{grpc}",
    comes: "\
preprocessing (tokenization), queue, forward (inference), input tokens. Headers are whole milliseconds,
rounded down: 0 is less than 1 ms. A header is believed before a span, stage by stage.",
    unseen: "\
Of a request with several inputs the times are means over the inputs and do not add up to the whole.",
};

const TGI: Text = Text {
    gives: "validation, queue and inference, in headers (not of streams) and spans",
    on: "\
Nothing for answers that are not streamed: the headers are there.
For streams, and for more than whole milliseconds:
text-generation-launcher … --otlp-endpoint http://{grpc}",
    comes: "\
preprocessing (validation, which tokenizes), queue, forward (inference), tokens.",
    unseen: "\
Prefill apart from decode: its time per token has the first token in it. Of /v1/completions with several
prompts the headers are sums over the prompts: each stage is then the mean of one prompt.",
};

const LLAMA_CPP: Text = Text {
    gives: "prefill and decode, in the body of every route",
    on: "\
Nothing: `timings` is in every answer, and in the last chunk of streams.
llama-server … --metrics                             running and waiting requests",
    comes: "prefill (prompt_ms), decode (predicted_ms), prompt tokens with what the cache held, output tokens.",
    unseen: "Its queue, which is in no figure of a request's; tokenizing.",
};

const OLLAMA: Text = Text {
    gives: "loading, prefill and decode, in the body of /api routes",
    on: "Nothing, on /api/generate, /api/chat and /api/embed. There is nothing to turn on for /v1.",
    comes: "\
queue (load_duration: waiting for a runner, and loading the model), prefill, decode, tokens; of embeddings,
forward is what the queue leaves of the total.",
    unseen: "Everything on /v1 routes but the usage. It has no metrics and no spans.",
};

const TF_SERVING: Text = Text {
    gives: "nothing by request; means of queue and model, polled",
    on: "\
tensorflow_model_server … --rest_api_port=8501 --monitoring_config_file=monitoring.config
monitoring.config:
  prometheus_config { enable: true path: \"/monitoring/prometheus/metrics\" }",
    comes: "\
Means between two polls, source `polled`: queue (batching; without batching there is none), forward
(runtime, less the queue), batch sizes and padding.",
    unseen: "What a single request took inside: it reads no trace context and sends no times.",
};

const TORCH_SERVE: Text = Text {
    gives: "nothing by request unless the handler says so; means of queue and handler, polled",
    on: "\
config.properties:
  metrics_mode=prometheus
A handler that times its steps can say so itself:
  context.set_response_header(0, \"Server-Timing\", f\"preprocessing;dur={a}, forward;dur={b}\")",
    comes: "\
Means between two polls, source `polled`: queue, and the handler's whole time as forward. With the header,
the stages of each request.",
    unseen: "Without the header: preprocessing and postprocessing in the handler, and any single request.",
};

const ML_SERVER: Text = Text {
    gives: "nothing by request unless the runtime says so; how many wait, polled",
    on: "\
settings.json:
  \"tracing_server\": \"{grpc}\"
Its one span by request has no stages: it is worth it for spans that your runtime makes inside it.
A custom runtime can also set a header:
  response.parameters = Parameters(headers={\"Server-Timing\": \"preprocessing;dur=1.2, forward;dur=9.8\"})",
    comes: "\
What your runtime reports. Polled from port 8082: how many requests wait. Its mean times have its queue in
them, which it does not tell apart: no stage is made of them.",
    unseen: "Its own queues (adaptive batching, workers). Headers are not sent with event streams.",
};

const KSERVE: Text = Text {
    gives: "nothing by request unless the model says so; means by step, polled",
    on: "\
Model(name, return_response_headers=True), and in predict:
  response_headers[\"Server-Timing\"] = \"preprocessing;dur=1.2, forward;dur=9.8\"",
    comes: "\
What your model reports. Means between two polls, source `polled`: preprocessing, forward, postprocessing.",
    unseen: "\
Waiting for a worker. A transformer does not pass `traceparent` on to its predictor: spans end there.",
};

const RAY_SERVE: Text = Text {
    gives: "waiting for a replica and time in it, by spans",
    on: "\
RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH=lapwing_tracing:processors RAY_SERVE_TRACING_SAMPLING_RATIO=1.0
lapwing_tracing.py, importable by every replica:
  from opentelemetry.sdk.trace.export import BatchSpanProcessor
  from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
  def processors():
      return [BatchSpanProcessor(OTLPSpanExporter(\"{grpc}\", insecure=True))]",
    comes: "\
queue (on the way to a replica), forward (all of the replica's own code, or what the deployment is called:
`Preprocess`, `Tokenizer`). Your own spans inside a replica own their time.",
    unseen: "Waiting for a batch inside a replica (`@serve.batch`), but for its mean, polled.",
};

const BENTO_ML: Text = Text {
    gives: "no stages of its own; batch sizes, polled",
    on: "\
Nothing of its own says how long a stage took. Report from the service: a Server-Timing header by
  ctx.response.headers[\"Server-Timing\"] = \"preprocessing;dur=1.2, forward;dur=9.8\"
or spans of OpenTelemetry's SDK to http://{http} or {grpc} (docs/REPORTING.md).",
    comes: "What your service reports. Running requests and batch sizes, polled.",
    unseen: "Its queue: it does not time it. Its one span by request has no stages.",
};

const TENSORRT_LLM: Text = Text {
    gives: "queue, prefill and decode, by its span",
    on: "\
OTEL_EXPORTER_OTLP_TRACES_INSECURE=true trtllm-serve … --otlp_traces_endpoint grpc://{grpc} \\
  --extra_llm_api_options options.yaml
options.yaml:
  return_perf_metrics: true",
    comes: "\
queue, prefill (time to first token less the queue), decode (the rest of the total), tokens. Running and
waiting requests, polled.",
    unseen: "Tokenizing and detokenizing: they are in prefill and decode. Under Triton, use `triton`.",
};

const FAST_API: Text = Text {
    gives: "what the handler says, by header or spans",
    on: "\
A header, in the handler:
  response.headers[\"Server-Timing\"] = \"preprocessing;dur=1.2, forward;dur=9.8\"
or OpenTelemetry's SDK, with spans around the steps:
OTEL_EXPORTER_OTLP_ENDPOINT=http://{http} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf
docs/REPORTING.md has whole handlers.",
    comes: "Every stage that you measure; Redis, SQL and HTTP clients by their own instrumentations.",
    unseen: "What you do not measure: it is unattributed, or forward where nothing at all is reported.",
};
