"""The Open Inference Protocol by FastAPI and onnxruntime, as teams write it. usage: oip_server.py PORT MODEL.onnx [OPTION]...

Reports preprocessing and forward in `Server-Timing`.
"""

import argparse
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("port", type=int, help="where to serve")
parser.add_argument("model", help="the ONNX file")
parser.add_argument("--forward-ms", type=float, default=0.0, help="a forward pass takes at least so long (default: as long as it takes)")
parser.add_argument("--only-model", help="only this model's forward pass takes so long (default: every model's)")
parser.add_argument("--wrong-every", type=int, default=0, help="one row too high in every so many answers (default: none)")
parser.add_argument("--timestamp", action="store_true", help="the answer's parameters have the time")
parser.add_argument("--record", action="store_true", help="keep the answers to requests with an id, for /answers")
options = parser.parse_args()

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
import uvicorn  # noqa: E402
from fastapi import FastAPI, Request  # noqa: E402
from fastapi.responses import JSONResponse  # noqa: E402

threads = onnxruntime.SessionOptions()
threads.intra_op_num_threads = threads.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(options.model, threads, providers=["CPUExecutionProvider"])
of_input = {one.name: np.int32 if one.type == "tensor(int32)" else np.float32 for one in session.get_inputs()}
app = FastAPI()
seen = []
answers = {}


@app.get("/seen")
async def headers():
    """The headers of every request."""
    return seen


@app.get("/answers")
async def recorded():
    """By id of the request, the data of each output as it was sent."""
    return answers


@app.post("/v2/models/{model}/infer")
async def infer(model: str, request: Request):
    seen.append(dict(request.headers))
    began = time.perf_counter_ns()
    asked = await request.json()
    feeds = {one["name"]: np.asarray(one["data"], of_input[one["name"]]).reshape(one["shape"]) for one in asked["inputs"]}
    ready = time.perf_counter_ns()
    outputs = session.run(None, feeds)
    least_ms = options.forward_ms if options.only_model in (None, model) else 0.0
    while (left := least_ms / 1e3 - (time.perf_counter_ns() - ready) / 1e9) > 0:
        time.sleep(left)
    done = time.perf_counter_ns()
    if options.wrong_every and len(seen) % options.wrong_every == 0:
        outputs[0][len(outputs[0]) // 2] += 1
    named = zip(session.get_outputs(), outputs)
    answer = {
        "model_name": model,
        "outputs": [{"name": of.name, "shape": list(one.shape), "datatype": "FP32", "data": one.ravel().tolist()} for of, one in named],
    }
    if options.record and "id" in asked:
        answers[asked["id"]] = {one["name"]: one["data"] for one in answer["outputs"]}
    if options.timestamp:
        answer["parameters"] = {"answered_at": time.time()}
    timing = f"preprocessing;dur={(ready - began) / 1e6:.6f}, forward;dur={(done - ready) / 1e6:.6f}"
    return JSONResponse(answer, headers={"server-timing": timing})


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning")
