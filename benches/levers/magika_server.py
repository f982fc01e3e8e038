"""Magika by FastAPI, uvicorn and onnxruntime, as teams write it: one worker, the model inline, one request at a time.
usage: magika_server.py PORT MODEL.onnx"""

import sys

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, Request

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"])
app = FastAPI()


@app.post("/v2/models/magika/infer")
async def infer(request: Request):
    asked = (await request.json())["inputs"][0]
    (scores,) = session.run(None, {"bytes": np.asarray(asked["data"], np.int32).reshape(asked["shape"])})
    labels = {"name": "label", "shape": [len(scores)], "datatype": "INT64", "data": scores.argmax(1).tolist()}
    return {"model_name": "magika", "outputs": [labels]}


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", backlog=4096)
