"""vLLM 0.33.0: `llm_request` spans, and `metrics` in the body.

Followed: vllm/v1/engine/output_processor.py (do_tracing), vllm/tracing/otel.py (init_tracer, get_span_exporter),
vllm/tracing/__init__.py (instrument_manual: the span is made when the request ends, with the arrival as its start),
vllm/entrypoints/generate/base/serving.py (build_per_request_timing_metrics), vllm/v1/metrics/loggers.py.
"""

import os
import time

from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

from replayers.replayer import NS, Replayer

MODEL = "org/model"
HISTOGRAMS = ("request_queue_time", "request_prefill_time", "request_decode_time", "request_inference_time", "time_to_first_token")


class Vllm(Replayer):
    """`metrics` as with --enable-per-request-metrics and --enable-force-include-usage; spans as with --otlp-traces-endpoint."""

    def __init__(self, ports, metrics=True, spans=True):
        super().__init__(ports)
        self.metrics, self.spans, self.count = metrics, spans, 0
        module = "vllm.llm_engine"
        resource = {"vllm.instrumenting_module_name": module, "vllm.process_id": str(os.getpid())}
        self.trace = self.tracer(module, resource)
        # what `instrument` leaves behind at start-up: traces of their own
        with self.trace.start_as_current_span("Overall Loading"), self.trace.start_as_current_span("Load model"):
            pass
        self.registry = CollectorRegistry()
        labels = ["model_name", "engine"]
        one = lambda kind, name: kind(f"vllm:{name}", "…", labels, registry=self.registry).labels(MODEL, "0")
        self.histograms = {name: one(Histogram, f"{name}_seconds") for name in HISTOGRAMS}
        self.running, self.waiting = one(Gauge, "num_requests_running"), one(Gauge, "num_requests_waiting")

    def metrics_page(self, path):
        return generate_latest(self.registry).decode() if path == "/metrics" else None

    def answer(self, exchange):
        tokens, prompt = exchange.body["max_tokens"], 128
        arrival = time.time()
        self.sleep_ms(0.2, 1)  # the API server: chat template, tokenizing
        queued = time.monotonic()
        self.sleep_ms(3, 15)
        scheduled = time.monotonic()
        self.sleep_ms(8, 20)
        first = time.monotonic()
        self.count += 1
        is_stream, name = exchange.body.get("stream", False), f"chatcmpl-{self.count}"
        head = {"id": name, "object": "chat.completion.chunk", "created": int(arrival), "model": MODEL}
        if is_stream:
            exchange.begin()
            delta = lambda delta, end=None: exchange.event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]})
            delta({"role": "assistant", "content": ""})
            delta({"content": " a"})
        for _ in range(tokens - 1):
            self.sleep_ms(2, 4)
            if is_stream:
                delta({"content": " b"})
        last = time.monotonic()
        times = {"queue": scheduled - queued, "prefill": first - scheduled, "decode": last - first}
        self.truths[exchange.trace_id] = {stage: int(s * NS) for stage, s in times.items()}
        self.record(times, last - scheduled, time.time() - arrival)
        if self.spans:
            # before the last output is returned to the client
            self.span(exchange, arrival, times, prompt, tokens, first - queued, name)
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
        body = {"usage": usage}
        if self.metrics:
            body["metrics"] = {
                "time_to_first_token_ms": times["prefill"] * 1e3,
                "generation_time_ms": times["decode"] * 1e3,
                "queue_time_ms": times["queue"] * 1e3,
                "mean_itl_ms": times["decode"] / (tokens - 1) * 1e3,
                "tokens_per_second": tokens / (last - scheduled),
            }
        if is_stream:
            delta({"content": ""}, "length")
            exchange.event({**head, "choices": [], **body})
            exchange.event("[DONE]")
            exchange.end()
        else:
            message = {"role": "assistant", "content": " a" + " b" * (tokens - 1)}
            choices = [{"index": 0, "message": message, "finish_reason": "length"}]
            exchange.send({**head, "object": "chat.completion", "choices": choices, **body})

    def span(self, exchange, arrival, times, prompt, tokens, since_queued, name):
        attributes = {
            "gen_ai.latency.time_to_first_token": since_queued,
            "gen_ai.latency.e2e": time.time() - arrival,
            "gen_ai.latency.time_in_queue": times["queue"],
            "gen_ai.usage.prompt_tokens": prompt,
            "gen_ai.usage.completion_tokens": tokens,
            "gen_ai.latency.time_in_model_prefill": times["prefill"],
            "gen_ai.latency.time_in_model_decode": times["decode"],
            "gen_ai.latency.time_in_model_inference": times["prefill"] + times["decode"],
            "gen_ai.request.id": name,
            "gen_ai.request.max_tokens": tokens,
            "gen_ai.request.n": 1,
        }
        span = self.trace.start_span("llm_request", exchange.context, SpanKind.SERVER, attributes, start_time=int(arrival * NS))
        span.end()

    def record(self, times, inference, total):
        self.histograms["request_queue_time"].observe(times["queue"])
        self.histograms["request_prefill_time"].observe(times["prefill"])
        self.histograms["request_decode_time"].observe(times["decode"])
        self.histograms["request_inference_time"].observe(inference)
        self.histograms["time_to_first_token"].observe(total - times["decode"])
