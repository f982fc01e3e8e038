"""A runtime with spans of its own, which go nowhere unless it installs the tracer provider that MLServer made."""

import asyncio

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.tracing import get_tracer_provider
from mlserver.types import InferenceRequest, InferenceResponse
from opentelemetry import trace


class Staged(MLModel):
    async def load(self) -> bool:
        trace.set_tracer_provider(get_tracer_provider(None))
        self.tracer = trace.get_tracer("staged")
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        with self.tracer.start_as_current_span("preprocess"):
            rows = np.asarray(NumpyCodec.decode_input(payload.inputs[0]), np.float32)
            await asyncio.sleep(3e-3)
        with self.tracer.start_as_current_span("forward"):
            sums = rows.sum(axis=1, keepdims=True)
            await asyncio.sleep(8e-3)
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=[NumpyCodec.encode_output("y", sums)])
