"""A model server whose requests say how long it takes: FastAPI, uvicorn. usage: budgeted_server.py PORT

`/predict` sleeps for as many milliseconds as `ms` says and gives back the headers that it got; `/v1/chat/completions` streams four tokens:
the first after `first_ms`, the others `gap_ms` apart; `/v2/models/m/infer` answers at once; `/reporting` has a load report of its own.
"""

import asyncio
import json
import sys

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

app = FastAPI()
OWN = "TEXT cpu_utilization=0.3"


@app.post("/predict")
async def predict(request: Request):
    asked = await request.json()
    await asyncio.sleep(asked.get("ms", 0) / 1e3)
    return JSONResponse(dict(request.headers), status_code=asked.get("status", 200))


@app.post("/v1/chat/completions")
async def chat(request: Request):
    asked = await request.json()

    async def tokens():
        for n in range(4):
            await asyncio.sleep(asked["gap_ms" if n else "first_ms"] / 1e3)
            yield f"data: {json.dumps({'model': asked['model'], 'choices': [{'index': 0, 'delta': {'content': f't{n}'}}]})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(tokens(), media_type="text/event-stream")


@app.post("/v2/models/m/infer")
async def infer(request: Request):
    await request.body()  # an answer that comes before it may be all that there is of an exchange
    return {"model_name": "m", "outputs": [{"name": "y", "shape": [1], "datatype": "FP32", "data": [1.0]}]}


@app.post("/reporting")
async def reporting():
    return JSONResponse({}, headers={"endpoint-load-metrics": OWN})


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
