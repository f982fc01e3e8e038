"""A service among several: FastAPI, uvicorn, opentelemetry-sdk. usage: hop.py PORT [SERVICE]

Does the steps that a request lists, one after another, and says how long each took by its own clock:

    {"span": NAME, "ms": N}               sleeps within a span of that name
    {"call": URL, "steps": [...]}         has another hop do steps, within a client span; `meanwhile` is a step done beside it,
                                          `within` the name of a span around it

Without a SERVICE it reports nothing.
"""

import http.client
import json
import sys
import threading
import time
import urllib.parse

import uvicorn
from fastapi import FastAPI, Request
from opentelemetry import propagate, trace
from opentelemetry.context import attach, get_current
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from starlette.concurrency import run_in_threadpool

PORT, SERVICE = int(sys.argv[1]), (sys.argv[2:] or [None])[0]
if SERVICE:
    provider = TracerProvider(resource=Resource.create({"service.name": SERVICE}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("hop")
else:
    tracer = trace.NoOpTracer()
app = FastAPI()


def sleep_within(step):
    with tracer.start_as_current_span(step["span"]):
        begun = time.perf_counter_ns()
        time.sleep(step["ms"] / 1e3)
        return {"name": step["span"], "ns": time.perf_counter_ns() - begun}


def call(step):
    if outer := step.get("within"):
        with tracer.start_as_current_span(outer):
            return call({**step, "within": None})
    to = urllib.parse.urlsplit(step["call"])
    with tracer.start_as_current_span("POST", kind=trace.SpanKind.CLIENT):
        begun = time.perf_counter_ns()
        headers = {"content-type": "application/json"}
        propagate.inject(headers)
        connection = http.client.HTTPConnection(to.hostname, to.port, timeout=20)
        connection.request("POST", "/do", json.dumps(step["steps"]), headers)
        answer = json.load(connection.getresponse())
        connection.close()
        return {"name": "call", "ns": time.perf_counter_ns() - begun, "answer": answer}


def beside(step, work):
    """Does `step` beside `work`, within the same span."""
    if not step:
        return work()
    context = get_current()
    thread = threading.Thread(target=lambda: (attach(context), sleep_within(step)))
    thread.start()
    done = work()
    thread.join()
    return done


def do(steps, headers):
    with tracer.start_as_current_span("POST /do", propagate.extract(headers), kind=trace.SpanKind.SERVER) as own:
        done = [beside(s.get("meanwhile"), lambda s=s: call(s)) if "call" in s else sleep_within(s) for s in steps]
        return {"trace_id": f"{own.get_span_context().trace_id:032x}", "done": done}


@app.post("/do")
async def handle(request: Request):
    return await run_in_threadpool(do, await request.json(), dict(request.headers))


uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
