"""A runtime that takes the time of its own steps, reports it in a header, and returns it in the answer: the truth."""

import asyncio
import json
import random
import time

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse, Parameters

STEPS = {"preprocessing": (1, 4), "forward": (5, 20), "postprocessing": (0.5, 2)}


class Timed(MLModel):
    async def load(self) -> bool:
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        truth = {}
        for step, (low, high) in STEPS.items():
            start = time.perf_counter_ns()
            await asyncio.sleep(random.uniform(low, high) / 1e3)
            truth[step] = time.perf_counter_ns() - start
        rows = NumpyCodec.decode_input(payload.inputs[0])
        report = ", ".join(f"{step};dur={ns / 1e6:.6f}" for step, ns in truth.items())
        parameters = Parameters(headers={"Server-Timing": report}, truth_ns=json.dumps(truth))
        outputs = [NumpyCodec.encode_output("y", rows)]
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=outputs, parameters=parameters)
