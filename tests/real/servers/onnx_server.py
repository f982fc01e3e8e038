"""A model server as teams write it: FastAPI, uvicorn, onnxruntime. usage: onnx_server.py PORT MODEL.onnx

`POST /score/…` with {"rows": [[...]]}, or for a model of texts {"ids": [[...]]}, all as long, runs the model and reports the forward pass in
`Server-Timing`; the answer has what was reported, in nanoseconds. `?times=N` slows the forward pass to N times what as large an input took
the last time unslowed: the ratio is exact however noisy the machine is. `?silent=1` reports nothing. `?wrong=N` answers with row N one too
high; `?drawn=X` adds a random number from -X to X to every output, as a model does that samples. What cannot be scored is answered with 422.
"""

import sys
import time

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

PORT, MODEL = int(sys.argv[1]), sys.argv[2]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
names = [one.name for one in session.get_inputs()]
app = FastAPI()
unslowed = {}


def feeds_of(asked):
    if "ids" in asked:
        ids = np.asarray(asked["ids"], np.int64)
        return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return {names[0]: np.asarray(asked["rows"], np.float32)}


def forward(feeds, times):
    """The outputs, and the duration in nanoseconds."""
    shape = feeds[names[0]].shape
    begun = time.perf_counter_ns()
    outputs = session.run(None, feeds)
    took = time.perf_counter_ns() - begun
    if times == 1:
        unslowed[shape] = took
        return outputs, took
    slowed = times * unslowed[shape]
    while (left := begun + slowed - time.perf_counter_ns()) > 0:
        time.sleep(left / 1e9)
    return outputs, slowed


@app.post("/score/{path}")
async def score(request: Request, times: int = 1, silent: bool = False, wrong: int = -1, drawn: float = 0):
    try:
        outputs, took = forward(feeds_of(await request.json()), times)
    except Exception as error:
        return JSONResponse({"error": type(error).__name__}, 422)
    if wrong >= 0:
        outputs[-1][wrong] += 1
    if drawn:
        outputs[-1] += np.random.uniform(-drawn, drawn)
    headers = {} if silent else {"server-timing": f"model_forward;dur={took / 1e6:.6f}"}
    return JSONResponse({"outputs": outputs[-1].tolist(), "forward_ns": took}, headers=headers)


uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
