"""A runtime of one's own: the sum of each row, in 5 ms."""

import asyncio

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class RowSum(MLModel):
    async def load(self) -> bool:
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        rows = NumpyCodec.decode_input(payload.inputs[0])
        await asyncio.sleep(5e-3)
        sums = np.asarray(rows, np.float32).sum(axis=1, keepdims=True)
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=[NumpyCodec.encode_output("y", sums)])
