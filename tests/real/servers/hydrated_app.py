"""A model behind FastAPI that takes features and looks up none: the Open Inference Protocol at /v2, V1 JSON at /v1. usage: hydrated_app.py PORT

It scores each row by a linear model. /seen has the body of the last request as it came, in hexadecimal digits, and its Content-Length.
"""

import json
import sys

import numpy as np
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

app = FastAPI()
seen = {}
WEIGHTS = np.array([1.0, 10.0], np.float32)


async def read(request):
    body = await request.body()
    seen.update(body=body.hex(), length=request.headers.get("content-length"))
    return json.loads(body)


@app.get("/seen")
async def last():
    return seen


@app.post("/v2/models/{model}/infer")
async def infer(model: str, request: Request):
    inputs = {one["name"]: one for one in (await read(request))["inputs"]}
    if "features" not in inputs:
        return JSONResponse({"error": "the input features is missing"}, 400)
    features = inputs["features"]
    rows = np.asarray(features["data"], np.float32).reshape(features["shape"])
    scores = (rows @ WEIGHTS).tolist()
    return {"model_name": model, "outputs": [{"name": "score", "shape": [len(scores)], "datatype": "FP32", "data": scores}]}


@app.post("/v1/models/{model}:predict")
async def predict(model: str, request: Request):
    rows = [instance.get("features") for instance in (await read(request))["instances"]]
    if None in rows:
        return JSONResponse({"error": "an instance has no features"}, 400)
    return {"predictions": (np.asarray(rows, np.float32) @ WEIGHTS).tolist()}


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
