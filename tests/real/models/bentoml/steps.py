"""A BentoML service that takes the time of its own steps, tells it in the answer, and in a `Server-Timing` header if asked to."""

import asyncio
import random
import time

import bentoml

STEPS = {"preprocessing": (1, 4), "forward": (5, 20), "postprocessing": (0.5, 2)}


@bentoml.service(workers=1)
class Steps:
    @bentoml.api(route="/predict")
    async def predict(self, rows: list[list[float]], report: bool, ctx: bentoml.Context) -> dict:
        began, truth = time.perf_counter_ns(), {}
        for step, (low, high) in STEPS.items():
            start = time.perf_counter_ns()
            await asyncio.sleep(random.uniform(low, high) / 1e3)
            truth[step] = time.perf_counter_ns() - start
        if report:
            ctx.response.headers["Server-Timing"] = ", ".join(f"{step};dur={ns / 1e6:.6f}" for step, ns in truth.items())
        return {"sums": [sum(row) for row in rows], "truth_ns": truth, "handler_ns": time.perf_counter_ns() - began}
