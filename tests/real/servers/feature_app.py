"""A fraud model as teams serve it: FastAPI that reads the features of each request from Redis, or from a feature server over HTTP, then runs
its model. usage: feature_app.py PORT REDIS_PORT STORE_PORT

The answer says how long the handler waited for features, by its own clock.
"""

import sys
import time

import redis
import requests
import uvicorn
from fastapi import FastAPI, Request

port, redis_port, store_port = map(int, sys.argv[1:])
app = FastAPI()
store = redis.Redis(port=redis_port)
store.ping()


def model(seconds):
    """Stands for the forward pass."""
    time.sleep(seconds)
    return [0.5]


@app.post("/v1/models/fraud:predict")
def predict(keys: int = 10, rounds: int = 1, forward: float = 0.005, slow: float = 0):
    """Reads `keys` features `rounds` times, between which it works for a moment; each read takes `slow` seconds longer at the store."""
    waited, spans = 0.0, []
    names = [f"feature:{n}" for n in range(keys)]
    for _ in range(rounds):
        began = time.perf_counter()
        if slow:
            store.execute_command("DEBUG", "SLEEP", slow)
        features = store.mget(names)
        waited += time.perf_counter() - began
        time.sleep(0.002)
        spans.append(len([value for value in features if value is not None]))
    return {"predictions": model(forward), "hydration_s": waited, "found": spans}


@app.post("/v1/models/fraud-http:predict")
def predict_http(request: Request, entities: int = 3, forward: float = 0.005):
    """Asks the feature server, and passes the request's trace on."""
    body = {"features": ["stats:trips", "stats:rate"], "entities": {"driver_id": list(range(1000, 1000 + entities))}}
    trace = {"traceparent": request.headers["traceparent"]}
    began = time.perf_counter()
    answer = requests.post(f"http://127.0.0.1:{store_port}/get-online-features", json=body, headers=trace, timeout=30)
    waited = time.perf_counter() - began
    answer.raise_for_status()
    return {"predictions": model(forward), "hydration_s": waited}


uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
