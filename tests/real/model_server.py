"""A model server as teams write it: FastAPI, uvicorn, onnxruntime, Redis, opentelemetry-sdk.

One handler runs a pipeline with four spans: feature_hydration (from Redis), preprocessing, model_forward (an MLP in
ONNX, built at start) and postprocessing. The exporter is left at its defaults; OTEL_EXPORTER_OTLP_ENDPOINT and
OTEL_EXPORTER_OTLP_PROTOCOL say where it sends and how. What each stage really took, by perf_counter, is in the answer:
the ground truth that the tests compare Lapwing's figures with.
"""

import argparse


def command_line():
    """The options. Read before the imports below, so that --help needs nothing but the standard library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int, metavar="PORT")
    parser.add_argument("redis_port", type=int, metavar="REDIS_PORT")
    return parser.parse_args()


OPTIONS = command_line()

# ruff: noqa: E402
import asyncio
import contextlib
import contextvars
import gzip
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import redis
import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse, RedirectResponse, StreamingResponse
from onnx import TensorProto, helper, numpy_helper
from opentelemetry import propagate, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

FEATURES = 30

# --- telemetry, set up as in the documentation of opentelemetry-sdk

if os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc":
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
else:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

provider = TracerProvider(resource=Resource.create({"service.name": "model-server"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("model_server")


# --- the model

def build_mlp() -> onnxruntime.InferenceSession:
    """A small classifier, 30 → 64 → 10, with fixed random weights."""
    rng = np.random.default_rng(7)
    w1, w2 = rng.normal(size=(FEATURES, 64)), rng.normal(size=(64, 10))
    weights = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in (("w1", w1), ("w2", w2))]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"]),
    ]
    io = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", d]) for n, d in (("x", FEATURES), ("y", 10))]
    graph = helper.make_graph(nodes, "mlp", io[:1], io[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


session = build_mlp()
store = redis.Redis(port=OPTIONS.redis_port)
pool = ThreadPoolExecutor(8)


# --- ground truth

class Truth:
    """Which stage owned which time, by this process's own clock and the same rules as Lapwing's: a reference for its figures."""

    def __init__(self):
        self.intervals = []  # (stage, start, end, depth), perf_counter_ns

    @contextlib.contextmanager
    def stage(self, name, depth=1, **knobs):
        with tracer.start_as_current_span(name) as span:
            start = time.perf_counter_ns()
            yield span
            last(start, **knobs)
            self.intervals.append((name, start, time.perf_counter_ns(), depth))

    def owned(self):
        """Nanoseconds by stage: at each instant the deepest interval owns the time; several of one stage count once."""
        cuts = sorted({t for _, start, end, _ in self.intervals for t in (start, end)})
        owned = {}
        for left, right in zip(cuts, cuts[1:]):
            live = [(depth, name) for name, start, end, depth in self.intervals if start <= left and right <= end]
            if live:
                name = max(live)[1]
                owned[name] = owned.get(name, 0) + right - left
        return owned


def last(start_ns, ms=0.0, how="sleep"):
    """Makes a stage last `ms` from its start, sleeping or computing."""
    end = start_ns + int(ms * 1e6)
    if how == "sleep":
        time.sleep(max(0.0, (end - time.perf_counter_ns()) / 1e9))
    while time.perf_counter_ns() < end:
        pass


def in_context(fn, *args):
    """Runs `fn` on the pool within the current span."""
    return pool.submit(contextvars.copy_context().run, fn, *args)


# --- the pipeline

def hydrate(truth, key, knobs, depth=1):
    with truth.stage("feature_hydration", depth, **knobs) as span:
        cached = store.get(key)
        hit = cached is not None
        span.set_attribute("cache_hit", hit)
        if not hit:
            cached = np.linspace(0, 1, FEATURES, dtype=np.float32).tobytes()
            store.set(key, cached)
    return np.frombuffer(cached, np.float32), hit


def predict(body, headers):
    """The four stages. `shape` nests spans or runs two at once."""
    truth = Truth()
    knobs = body.get("stages", {})
    of = lambda name: knobs.get(name, {})
    shape = body.get("shape", "plain")
    context = propagate.extract(headers)
    with tracer.start_as_current_span("POST /predict", context, kind=trace.SpanKind.SERVER) as server:
        start = time.perf_counter_ns()
        if shape == "concurrent":
            both = [in_context(hydrate, truth, body["key"] + s, of("feature_hydration")) for s in (":a", ":b")]
            features, cache_hit = [f.result() for f in both][0]
        else:
            features, cache_hit = hydrate(truth, body["key"], of("feature_hydration"))
        with truth.stage("preprocessing", **of("preprocessing")):
            rows = np.asarray(body["rows"], np.float32) - features
        with truth.stage("model_forward", **of("model_forward")):
            if shape == "nested":
                # features that the model itself looks up: hydration within the forward pass
                hydrate(truth, body["key"] + ":late", of("late_hydration"), depth=2)
            with tracer.start_as_current_span("onnxruntime.run"):  # maps to no stage, so it stays forward's
                (logits,) = session.run(None, {"x": rows})
        with truth.stage("postprocessing", **of("postprocessing")):
            classes = logits.argmax(axis=1).tolist()
        total = time.perf_counter_ns() - start
        seen = server.get_span_context()
    return {
        "classes": classes,
        "cache_hit": cache_hit,
        "truth_ns": truth.owned(),
        "total_ns": total,
        "trace_id": f"{seen.trace_id:032x}",
        "traceparent": headers.get("traceparent"),
        "sampled": bool(seen.trace_flags & 1),
    }


app = FastAPI()


@app.get("/health")
def health():
    return {"ok": True}


@app.post("/predict")
async def predict_route(request: Request, report: str = "none"):
    body = await request.json()
    out = await asyncio.get_running_loop().run_in_executor(pool, predict, body, dict(request.headers))
    response = JSONResponse(out)
    if report == "header":
        truth = out["truth_ns"].items()
        response.headers["server-timing"] = ", ".join(f"{name};dur={ns / 1e6:.6f}" for name, ns in truth)
    return response


# --- other kinds of traffic through a proxy

@app.get("/tokens")
async def tokens(n: int = 20, every_ms: float = 10):
    """Server-sent events; each says when it was sent, on the wall clock."""

    async def stream():
        start = time.perf_counter()
        for i in range(n):
            await asyncio.sleep(max(0.0, start + i * every_ms / 1e3 - time.perf_counter()))
            yield f"data: {json.dumps({'i': i, 'sent_ns': time.time_ns()})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.get("/notes")
async def notes(kind: str, n: int = 3, every_ms: float = 30):
    """A stream of any type, without anything that is read: the head at once, then `n` pieces."""

    async def stream():
        for i in range(n):
            await asyncio.sleep(every_ms / 1e3)
            yield f": {i}\n\n"

    return StreamingResponse(stream(), media_type=kind)


class Echo:
    """Echoes the body as it arrives. Plain ASGI, because FastAPI reads the whole body before a response can begin."""

    async def __call__(self, scope, receive, send):
        kind = dict(scope["headers"]).get(b"content-type")
        headers = [(b"content-type", kind)] if kind else []
        message = await receive()  # before the head, because uvicorn sends "100 Continue" when the body is first read
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while True:
            more = message.get("more_body", False)
            await send({"type": "http.response.body", "body": message.get("body", b""), "more_body": more})
            if not more:
                return
            message = await receive()


app.add_route("/echo", Echo(), methods=["POST"])


@app.post("/length")
async def length(request: Request):
    """The number of bytes received."""
    n = 0
    async for chunk in request.stream():
        n += len(chunk)
    return {"bytes": n}


@app.get("/bytes")
async def some_bytes(n: int):
    """That many bytes, a piece at a time."""
    piece = bytes(range(256)) * 256

    async def stream():
        left = n
        while left:
            yield piece[: min(left, len(piece))]
            left -= min(left, len(piece))

    return StreamingResponse(stream(), media_type="application/octet-stream")


@app.get("/slow")
async def slow(ms: int = 1000):
    await asyncio.sleep(ms / 1e3)
    return {"slept_ms": ms}


@app.api_route("/status/{code}", methods=["GET", "HEAD", "POST"])
def status(code: int):
    return Response(status_code=code, headers={"etag": '"v1"'} if code == 304 else None)


@app.api_route("/page", methods=["GET", "HEAD"])
def page(request: Request):
    body = b"a page\n" * 100
    headers = {"content-length": str(len(body))}
    return Response(b"" if request.method == "HEAD" else body, headers=headers, media_type="text/plain")


@app.get("/moved")
def moved():
    return RedirectResponse("/page", status_code=307)


@app.get("/cookies")
def cookies():
    response = Response(b"cookies\n")
    for i in range(3):
        response.set_cookie(f"c{i}", f"v{i}", path=f"/{i}")
    return response


@app.get("/gzipped")
def gzipped():
    return Response(gzip.compress(b"squeezed " * 500, mtime=0), headers={"content-encoding": "gzip"})


@app.websocket("/ws")
async def ws(socket: WebSocket):
    """Echoes; `close CODE REASON` makes the server close."""
    await socket.accept(subprotocol=(socket.scope.get("subprotocols") or [None])[0])
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                print("ws closed", message.get("code"), message.get("reason"), flush=True)
                return
            text, data = message.get("text"), message.get("bytes")
            if text is not None and text.startswith("close "):
                _, code, reason = text.split(" ", 2)
                await socket.close(int(code), reason)
                return
            await (socket.send_text(text) if text is not None else socket.send_bytes(data))


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=OPTIONS.port, log_level="warning", ws_max_size=1 << 26)
