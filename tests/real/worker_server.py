"""A service of several processes, as `uvicorn --workers` runs it: FastAPI and opentelemetry-sdk at its defaults.

Started with the port of an inner service it is a gateway: it looks features up, calls the inner one, and postprocesses. The inner service
preprocesses and runs the model. What each stage took by this process's own clock is in the answer.
"""

import argparse
import http.client
import json
import os
import random
import threading
import time

WORKERS = 4
CLOSES = 0.1
"""The share of answers that end their connection, so that connections spread over the workers."""


def command_line():
    """The options. Read before the imports below, so that --help needs nothing but the standard library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int, metavar="PORT")
    parser.add_argument("inner", type=int, metavar="INNER_PORT", nargs="?", default=0)
    return parser.parse_args()


if __name__ == "__main__":
    OPTIONS = command_line()

import uvicorn  # noqa: E402
from fastapi import FastAPI, Request, Response  # noqa: E402
from opentelemetry import propagate, trace  # noqa: E402
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: E402
from opentelemetry.sdk.resources import Resource  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: E402

if __name__ == "worker_server":  # the workers, not their parent, and each of them once
    provider = TracerProvider(resource=Resource.create({"service.name": os.environ["SERVICE"]}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
tracer = trace.get_tracer("worker_server")
app = FastAPI()
connections = threading.local()
INNER = int(os.environ.get("INNER_PORT", "0"))


class Stages:
    """Spans of the service's own stages, and how long each took."""

    def __init__(self):
        self.truth_ns = {}

    def run(self, name, ms):
        with tracer.start_as_current_span(name):
            start = time.perf_counter_ns()
            time.sleep(ms / 1e3)
            self.truth_ns[name] = time.perf_counter_ns() - start


def call_inner(body):
    """Calls the inner service on a kept connection, within the current span."""
    headers = {"content-type": "application/json"}
    propagate.inject(headers)
    for attempt in range(2):
        if not hasattr(connections, "inner"):
            connections.inner = http.client.HTTPConnection("127.0.0.1", INNER, timeout=30)
        try:
            connections.inner.request("POST", "/predict", json.dumps(body), headers)
            return json.loads(connections.inner.getresponse().read())
        except (http.client.HTTPException, OSError):
            del connections.inner
            if attempt:
                raise


@app.get("/health")
def health():
    return {"pid": os.getpid()}


@app.post("/predict")
def predict(body: dict, request: Request, response: Response):
    if random.random() < CLOSES:
        response.headers["connection"] = "close"
    stages = Stages()
    ms = body["ms"]
    with tracer.start_as_current_span("serve", propagate.extract(dict(request.headers)), kind=trace.SpanKind.SERVER):
        if INNER:
            stages.run("feature_hydration", ms["feature_hydration"])
            with tracer.start_as_current_span("call the other service"):
                answer = call_inner(body)
            stages.run("postprocessing", ms["postprocessing"])
        else:
            answer = {"truth_ns": {}, "pids": []}
            stages.run("preprocessing", ms["preprocessing"])
            stages.run("model_forward", ms["model_forward"])
    return {"truth_ns": {**answer["truth_ns"], **stages.truth_ns}, "pids": [*answer["pids"], os.getpid()]}


if __name__ == "__main__":
    os.environ["INNER_PORT"] = str(OPTIONS.inner)
    uvicorn.run("worker_server:app", host="127.0.0.1", port=OPTIONS.port, workers=WORKERS, log_level="warning")
