"""A gateway before two deployments that take one request at a time, and one that batches. Each answer has the handlers' own times,
in nanoseconds of the wall clock."""

import asyncio
import os
import time

from opentelemetry import trace
from ray import serve
from starlette.requests import Request

tracer = trace.get_tracer("app")
OPTIONS = {"ray_actor_options": {"num_cpus": 0}}


def taken_ns():
    """When Ray's replica took the request: the start of its span, some milliseconds before the handler runs."""
    return trace.get_current_span(serve.get_trace_context()).start_time


@serve.deployment(max_ongoing_requests=1, **OPTIONS)
class Tok:
    """10 ms of work."""

    async def __call__(self, text):
        began = time.time_ns()
        await asyncio.sleep(0.010)
        return {"taken": taken_ns(), "began": began, "ended": time.time_ns()}


@serve.deployment(max_ongoing_requests=1, **OPTIONS)
class Score:
    """30 ms of work."""

    async def __call__(self, text):
        if text == "exit":  # once its answer and its spans are out
            asyncio.get_running_loop().call_later(8, os._exit, 1)
        began = time.time_ns()
        await asyncio.sleep(0.030)
        return {"taken": taken_ns(), "began": began, "ended": time.time_ns()}


@serve.deployment(max_ongoing_requests=100, **OPTIONS)
class Embed:
    """10 ms of work for up to eight requests at once, which wait up to 50 ms for one another: reported as UPSTREAMS.md shows it."""

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.05)
    async def run(self, texts):
        began = time.time_ns()
        await asyncio.sleep(0.010)
        return [began for _ in texts]

    async def __call__(self, text):
        asked = time.time_ns()
        began = await self.run(text)
        tracer.start_span("batch_wait", serve.get_trace_context(), start_time=asked).end(began)
        return {"waited_ns": began - asked}


@serve.deployment(max_ongoing_requests=100, **OPTIONS)
class Gateway:
    """Answers every path below `/`, and remembers who asked for which."""

    def __init__(self, tok, score, embed):
        self.steps, self.embed = {"tok": tok, "score": score}, embed
        self.asked = []

    async def __call__(self, request: Request):
        if request.url.path == "/asked":
            return self.asked
        self.asked.append([request.method, request.url.path, request.headers.get("user-agent", "")])
        text = (await request.body()).decode()
        if request.url.path == "/embed":
            return await self.embed.remote(text)
        began, taken, times = time.time_ns(), taken_ns(), {}
        for name, step in self.steps.items():
            times[name] = {"asked": time.time_ns(), **await step.remote(text), "answered": time.time_ns()}
        return {"taken": taken, "began": began, "ended": time.time_ns(), **times}


app = Gateway.bind(Tok.bind(), Score.bind(), Embed.bind())
