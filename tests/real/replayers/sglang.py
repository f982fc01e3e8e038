"""SGLang 0.5.23: a tree of spans by two processes (tokenizer manager, scheduler), and `meta_info`.

Followed: python/sglang/srt/observability/trace.py (TraceReqContext: names, attributes, parents; process_tracing_init: batches of 64
each 500 ms, one exporter a process) and python/sglang/srt/observability/req_time_stats.py (RequestStage and the setters of
APIServerReqTimeStats and SchedulerReqTimeStats in their order; convert_to_gen_ai_span_attrs, convert_to_output_meta_info).
"""

import os
import time

from opentelemetry import trace
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

from replayers.replayer import NS, Replayer

BATCHES = {"schedule_delay_millis": 500, "max_export_batch_size": 64}
STAGES = ("request_process", "prefill_forward", "decode_loop")


class Sglang(Replayer):
    """`spans` as with --enable-trace (SGLANG_TRACE_LEVEL=3, its default); otherwise `meta_info` as with --enable-metrics."""

    def __init__(self, ports, spans=True):
        super().__init__(ports)
        self.spans = spans
        make = lambda: self.tracer("sglang server", {"service.name": "sglang"}, **BATCHES)
        self.tokenizer, self.scheduler = make(), make()
        self.count = 0
        self.registry = CollectorRegistry()
        one = lambda kind, name, *labels: kind(f"sglang:{name}", "…", ["model_name", *labels], registry=self.registry)
        self.queue_time = one(Histogram, "queue_time_seconds").labels("m")
        self.per_stage = one(Histogram, "per_stage_req_latency_seconds", "stage")
        self.running = one(Gauge, "num_running_reqs").labels("m")

    def metrics_page(self, path):
        return generate_latest(self.registry).decode() if path == "/metrics" else None

    def answer(self, exchange):
        if not self.spans:
            exchange.context = trace.set_span_in_context(trace.INVALID_SPAN)
        tokens, prompt = exchange.body["sampling_params"]["max_new_tokens"], len(exchange.body["input_ids"])
        self.count += 1
        rid = f"{self.count:08x}5e6f"
        now = time.time_ns
        created = now()
        attributes = {"rid": rid, "module": "sglang::request"}
        root = self.tokenizer.start_span(f" Req {rid[:8]}", exchange.context, start_time=created, attributes=attributes)
        below = trace.set_span_in_context(root)
        api = self.thread(self.tokenizer, "Tokenizer", below, created)
        self.sleep_ms(0.5, 2)
        tokenized = self.slice(self.tokenizer, api, "tokenize", created)
        self.sleep_ms(0.1, 0.3)
        dispatched = self.slice(self.tokenizer, api, "api_server_dispatch", tokenized)
        api.end(dispatched)

        received = now()
        scheduler = self.thread(self.scheduler, "Scheduler [TP 0] ", below, received)
        self.sleep_ms(0.1, 0.3)
        waits = self.slice(self.scheduler, scheduler, "request_process", received)
        self.sleep_ms(3, 15)
        forward = self.slice(self.scheduler, scheduler, "prefill_waiting", waits)
        prefill = self.scheduler.start_span("prefill_forward", trace.set_span_in_context(scheduler), start_time=forward)
        self.sleep_ms(8, 20)
        first = now()
        prefill.end(first)
        is_stream = exchange.body.get("stream", False)
        meta = {"id": rid, "prompt_tokens": prompt, "cached_tokens": 0}
        if is_stream:
            exchange.begin()
            exchange.event({"text": " a", "meta_info": {**meta, "finish_reason": None, "completion_tokens": 1}})
        self.sleep_ms(0.1, 0.5)  # until the first batch of decodes
        decoding = self.slice(self.scheduler, scheduler, "decode_waiting", first)
        decode = self.scheduler.start_span("decode_forward", trace.set_span_in_context(scheduler), start_time=decoding)
        last = decoding
        for i in range(tokens - 1):
            self.sleep_ms(0.4, 0.8)
            last = self.slice(self.scheduler, decode, "decode_loop", last, {"decode_ct": i})
            if is_stream:
                exchange.event({"text": " a" + " b" * i, "meta_info": {**meta, "finish_reason": None, "completion_tokens": i + 2}})
        done = now()
        decode.end(done)
        scheduler.end(done)
        self.queue_time.observe((forward - waits) / NS)
        for stage, ns in zip(STAGES, (waits - received, first - forward, (last - decoding) / tokens)):
            self.per_stage.labels("m", stage).observe(ns / NS)
        finished = now()
        self.truths[exchange.trace_id] = {"queue": forward - waits, "decode": finished - first} if not self.spans else {
            "preprocessing": tokenized - created,
            "queue": forward - waits + decoding - first,
            "prefill": first - forward,
            "decode": done - decoding,
        }
        meta |= {
            "finish_reason": {"type": "length", "length": tokens},
            "completion_tokens": tokens,
            "e2e_latency": (finished - created) / NS,
        }
        if not self.spans:
            meta |= {
                "request_received_ts": created / NS,
                "first_token_latency": (first - created) / NS,
                "queue_time": (forward - waits) / NS,
                "request_finished_ts": finished / NS,
            }
        root.set_attributes(
            {
                "gen_ai.usage.completion_tokens": tokens,
                "gen_ai.usage.prompt_tokens": prompt,
                "gen_ai.usage.cached_tokens": 0,
                "gen_ai.response.finish_reasons": '["length"]',
                "gen_ai.response.model": "m",
                "gen_ai.latency.time_to_first_token": (first - created) / NS,
                "gen_ai.latency.e2e": (finished - created) / NS,
                "gen_ai.latency.time_in_model_decode": (finished - first) / NS,
                "gen_ai.latency.time_in_model_inference": (finished - dispatched) / NS,
                "gen_ai.latency.time_in_model_prefill": (first - dispatched) / NS,
            }
        )
        root.end(finished)
        whole = {"text": " a" + " b" * (tokens - 1), "output_ids": [1] * tokens, "meta_info": meta}
        if is_stream:
            exchange.event(whole)
            exchange.event("[DONE]")
            exchange.end()
        else:
            exchange.send(whole)

    def thread(self, tracer, label, below, at):
        span = tracer.start_span(f"{label}(host:0a1b2c3d | pid:{os.getpid()})", below, start_time=at)
        span.set_attributes({"host_id": "0a1b2c3d4e5f", "pid": os.getpid(), "thread_label": label.split()[0]})
        return span

    def slice(self, tracer, parent, name, since, attributes=None):
        """A stage from `since` until now."""
        span = tracer.start_span(name, trace.set_span_in_context(parent), start_time=since, attributes=attributes)
        end = time.time_ns()
        span.end(end)
        return end
