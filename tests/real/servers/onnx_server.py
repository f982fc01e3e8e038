"""A model server as teams write it: FastAPI, uvicorn, onnxruntime. usage: onnx_server.py PORT MODEL.onnx

`POST /score/…` with {"rows": [[...]]} runs the model and reports the forward pass in `Server-Timing`; the answer has what was reported,
in nanoseconds. `?times=N` slows the forward pass to N times what as many rows took the last time unslowed: the ratio is exact however
noisy the machine is. `?silent=1` reports nothing. `?wrong=N` answers with row N one too high; `?drawn=1` adds a
random number, as a model does that samples. What cannot be scored is answered with 422.
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
name = session.get_inputs()[0].name
app = FastAPI()
unslowed = {}


def forward(rows, times):
    """The outputs, and the duration in nanoseconds."""
    begun = time.perf_counter_ns()
    outputs = session.run(None, {name: rows})
    took = time.perf_counter_ns() - begun
    if times == 1:
        unslowed[len(rows)] = took
        return outputs, took
    slowed = times * unslowed[len(rows)]
    while (left := begun + slowed - time.perf_counter_ns()) > 0:
        time.sleep(left / 1e9)
    return outputs, slowed


@app.post("/score/{path}")
async def score(request: Request, times: int = 1, silent: bool = False, wrong: int = -1, drawn: bool = False):
    try:
        outputs, took = forward(np.asarray((await request.json())["rows"], np.float32), times)
    except Exception as error:
        return JSONResponse({"error": type(error).__name__}, 422)
    if wrong >= 0:
        outputs[0][wrong] += 1
    if drawn:
        outputs[0] += np.random.uniform(1, 2)
    headers = {} if silent else {"server-timing": f"model_forward;dur={took / 1e6:.6f}"}
    return JSONResponse({"outputs": outputs[0].tolist(), "forward_ns": took}, headers=headers)


uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
