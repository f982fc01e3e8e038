"""Stage reporting without any dependency: a FastAPI handler that sends its stages in a `Server-Timing` header.

    pip install fastapi uvicorn numpy
    uvicorn python_server_timing:app --port 8000     # the model server
    lapwing --upstream http://127.0.0.1:8000         # in front of it, on 8080
    curl 127.0.0.1:8080/predict -H 'content-type: application/json' -d '{"entity_ids": [3, 1, 4]}'
    curl 127.0.0.1:9464/stats

The reporting consists of the class `Stages` and the lines marked with `# stage`.
"""

import time
from contextlib import contextmanager

import numpy as np
from fastapi import FastAPI, Response
from pydantic import BaseModel


class Stages:
    """Durations of one request, in the order in which they ended."""

    def __init__(self):
        self.entries = []

    @contextmanager
    def __call__(self, name):
        start = time.perf_counter()
        try:
            yield
        finally:
            self.entries.append(f"{name};dur={(time.perf_counter() - start) * 1e3:.3f}")  # milliseconds

    def header(self):
        return ", ".join(self.entries)


# --- in place of your feature store and your model
random = np.random.default_rng(7)
FEATURES = random.normal(5.0, 2.0, (1000, 64)).astype(np.float32)
WEIGHTS = random.normal(size=(64, 10)).astype(np.float32)

app = FastAPI()


class Query(BaseModel):
    entity_ids: list[int]


@app.post("/predict")
def predict(query: Query, response: Response):
    stage = Stages()  # stage
    with stage("hydration"):  # stage
        rows = np.stack([FEATURES[entity % len(FEATURES)] for entity in query.entity_ids])
    with stage("preprocessing"):  # stage
        x = (rows - 5.0) / 2.0
    with stage("forward"):  # stage
        logits = x @ WEIGHTS
    with stage("postprocessing"):  # stage
        labels = logits.argmax(axis=1).tolist()
    response.headers["Server-Timing"] = stage.header()  # stage
    return {"labels": labels}
