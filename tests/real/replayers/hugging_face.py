"""The two routers of Hugging Face: Text Embeddings Inference 1.9.3 at 0d124dc, Text Generation Inference 3.3.6-dev0 at db931fc.

Followed: router/src/{lib,logging}.rs, router/src/http/server.rs and core/src/{infer,queue,tokenization}.rs of TEI;
router/src/{server,logging}.rs, router/src/infer/mod.rs and backends/v3/src/{queue,backend}.rs of TGI. `#[instrument]` makes a span of
each function; tracing-opentelemetry adds `code.namespace`; a span ends when its last handle is dropped, so that TGI's `schedule` lasts
until the generation ends. Both sample everything, continue `traceparent`, and export batches each 5 s over gRPC.
"""

import json
import time

from opentelemetry import trace

from replayers.replayer import Replayer


def debug(ns):
    """A duration as Rust's `{:?}` prints it."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if ns >= size:
            whole, fraction = divmod(ns, size)
            digits = f"{fraction:0{len(str(size)) - 1}d}".rstrip("0")
            return f"{whole}{'.' + digits if digits else ''}{unit}"
    return f"{ns}ns"


class Router(Replayer):
    banner = ""

    def __init__(self, ports, service):
        super().__init__(ports)
        resource = {"service.name": service, "telemetry.sdk.language": "rust", "telemetry.sdk.name": "opentelemetry"}
        self.trace = self.tracer("opentelemetry-otlp", resource)

    def span(self, name, module, parent, start=None):
        context = parent if not hasattr(parent, "get_span_context") else trace.set_span_in_context(parent)
        return self.trace.start_span(name, context, start_time=start, attributes={"code.namespace": module})


class Tei(Router):
    """Headers always; spans as with --otlp-endpoint. Its service has a name of the user's."""

    def __init__(self, ports, service="my-embeddings"):
        super().__init__(ports, service)

    def answer(self, exchange):
        name = exchange.path.strip("/")
        handler = self.span(name, "text_embeddings_router::http::server", exchange.context)
        start = time.perf_counter_ns()
        core = self.span("predict" if name == "predict" else "embed_pooled", "text_embeddings_core::infer", handler)
        tokenizing = self.span("encode", "text_embeddings_core::tokenization", core)
        self.sleep_ms(1, 4)
        tokenizing.end()
        tokenized = time.perf_counter_ns()
        self.span("append", "text_embeddings_core::queue", core).end()
        self.sleep_ms(3, 12)
        began = time.perf_counter_ns()
        self.sleep_ms(8, 20)
        done = time.perf_counter_ns()
        core.end()
        times = {"tokenization": tokenized - start, "queue": began - tokenized, "inference": done - began}
        total, text = time.perf_counter_ns() - start, exchange.body["inputs"]
        for field, ns in {"total": total, **times}.items():
            handler.set_attribute(f"{field}_time", debug(ns))
        handler.end()
        self.truths[exchange.trace_id] = dict(zip(("preprocessing", "queue", "forward"), times.values()))
        headers = {
            "x-compute-type": "gpu+optimized",
            "x-compute-time": total // 10**6,
            "x-compute-characters": len(text),
            "x-compute-tokens": 7,
            "x-total-time": total // 10**6,
            **{f"x-{field}-time": ns // 10**6 for field, ns in times.items()},
        }
        body = [{"score": 0.9, "label": "spam"}] if name == "predict" else [[0.1, 0.2]]
        exchange.send(body, [(key, str(value)) for key, value in headers.items()])


class Tgi(Router):
    """Headers on answers that are not streamed; spans as with --otlp-endpoint."""

    def __init__(self, ports, service="text-generation-inference.router"):
        super().__init__(ports, service)

    def answer(self, exchange):
        is_stream, tokens = exchange.path == "/generate_stream", exchange.body["parameters"]["max_new_tokens"]
        router, infer = "text_generation_router::infer", "text_generation_router_v3"
        handler = self.span(exchange.path.strip("/"), "text_generation_router::server", exchange.context)
        characters = [("x-compute-type", "1-gpu"), ("x-compute-characters", str(len(exchange.body["inputs"])))]
        if is_stream:
            exchange.begin([*characters, ("X-Accel-Buffering", "no")])
        start = time.perf_counter_ns()
        outer = self.span("async_stream" if is_stream else "generate", router, handler)
        generating = self.span("generate_stream", router, outer)
        validating = self.span("validate", "text_generation_router::validation", generating)
        self.span("validate_input", "text_generation_router::validation", validating).end()
        tokenizing = self.span("tokenize", "text_generation_router::validation", validating)
        self.sleep_ms(1, 4)
        tokenizing.end()
        validating.end()
        scheduling = self.span("schedule", f"{infer}::backend", generating)
        queued_at = time.perf_counter_ns()
        queued = self.span("queued", f"{infer}::queue", scheduling)
        generating.end()
        self.sleep_ms(3, 12)
        began = time.perf_counter_ns()
        queued.end()
        inferring = self.span("infer", f"{infer}::queue", scheduling)
        for i in range(tokens):
            self.sleep_ms(2, 4)
            self.span("send_generation", f"{infer}::backend", inferring).end()
            if is_stream and i < tokens - 1:
                token = {"id": 5, "text": " b", "logprob": -0.1, "special": False}
                exchange.event({"index": i + 1, "token": token, "generated_text": None, "details": None})
        inferring.end()
        scheduling.end()
        outer.end()
        done = time.perf_counter_ns()
        times = {"validation": queued_at - start, "queue": began - queued_at, "inference": done - began}
        for field, ns in {"total": done - start, **times}.items():
            handler.set_attribute(f"{field}_time", debug(ns))
        handler.set_attribute("time_per_token", debug(times["inference"] // tokens))
        handler.set_attribute("seed", "None")
        self.truths[exchange.trace_id] = dict(zip(("preprocessing", "queue", "forward"), times.values()))
        details = {"finish_reason": "length", "generated_tokens": tokens, "seed": None, "prefill": [], "tokens": []}
        text = " b" * tokens
        if is_stream:
            handler.end()
            token = {"id": 5, "text": " b", "logprob": -0.1, "special": False}
            exchange.event({"index": tokens, "token": token, "generated_text": text, "details": {**details, "input_length": 9}})
            exchange.end()
            return
        headers = {
            "x-compute-time": (done - start) / 1e9,
            "x-total-time": (done - start) // 10**6,
            **{f"x-{field}-time": ns // 10**6 for field, ns in times.items()},
            "x-time-per-token": times["inference"] // tokens // 10**6,
            "x-prompt-tokens": 9,
            "x-generated-tokens": tokens,
        }
        handler.end()
        answer = json.dumps({"generated_text": text, "details": details})
        exchange.send(answer, characters + [(key, str(value)) for key, value in headers.items()])
