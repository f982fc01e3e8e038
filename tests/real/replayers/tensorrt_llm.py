"""TensorRT-LLM (trtllm-serve) at 3b904c6: `llm_request` spans.

Followed: tensorrt_llm/llmapi/otel_tracing.py (init_tracer("trt.llm", …): no resource of its own, the SDK's batches;
SpanAttributes), tensorrt_llm/executor/result.py (do_tracing: the span is made when the request ends).
"""

import time

from opentelemetry.trace import SpanKind

from replayers.replayer import NS, Replayer


class TensorRtLlm(Replayer):
    """As with --otlp_traces_endpoint and return_perf_metrics."""

    def __init__(self, ports):
        super().__init__(ports)
        self.trace = self.tracer("trt.llm", {})

    def answer(self, exchange):
        tokens, prompt = exchange.body["max_tokens"], 64
        arrival = time.time()
        self.sleep_ms(3, 15)
        scheduled = time.time()
        self.sleep_ms(8, 20)
        first = time.time()
        self.sleep_ms(20, 40)
        last = time.time()
        times = {"queue": scheduled - arrival, "prefill": first - scheduled, "decode": last - first}
        self.truths[exchange.trace_id] = {stage: int(s * NS) for stage, s in times.items()}
        attributes = {
            "gen_ai.request.max_tokens": tokens,
            "gen_ai.request.id": "1",
            "gen_ai.request.n": 1,
            "gen_ai.usage.prompt_tokens": prompt,
            "gen_ai.usage.completion_tokens": tokens,
            "gen_ai.latency.time_to_first_token": first - arrival,
            "gen_ai.latency.e2e": last - arrival,
            "gen_ai.latency.time_in_queue": scheduled - arrival,
        }
        start = int(arrival * NS)
        self.trace.start_span("llm_request", exchange.context, SpanKind.SERVER, attributes, start_time=start).end(int(last * NS))
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
        choice = {"index": 0, "text": " a" * tokens, "finish_reason": "length"}
        exchange.send({"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice], "usage": usage})
