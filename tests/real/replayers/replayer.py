"""What all replayers share: an HTTP server on a thread, a pass through the stages of a request, an exporter, a metrics page."""

import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

NS = 1_000_000_000


class Ports(NamedTuple):
    """Where the server listens, and where its exporter sends: Lapwing's receiver over gRPC."""

    http: int
    otlp: int


class Replayer:
    """A server of another's making; `banner` is its `Server` field."""

    banner = "uvicorn"

    def __init__(self, ports, seed=7):
        self.endpoint = f"http://127.0.0.1:{ports.otlp}"
        self.rng, self.providers, self.truths = random.Random(seed), [], {}
        replayer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                replayer.answer(Exchange(self, json.loads(body)))

            def do_GET(self):
                text = replayer.metrics_page(self.path)
                Exchange(self).send(text or "", status=200 if text else 404, kind="text/plain; version=0.0.4")

            def version_string(self):
                return replayer.banner

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", ports.http), Handler)
        self.http.daemon_threads = True

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        for provider in self.providers:
            provider.shutdown()

    def tracer(self, scope, resource, **batches):
        """A provider with an exporter of its own, as each process of a server has; batches as the SDK's defaults are."""
        provider = TracerProvider(resource=Resource.create(resource))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=self.endpoint, insecure=True), **batches))
        self.providers.append(provider)
        return provider.get_tracer(scope)

    def metrics_page(self, path):
        """The page at `path`, or None."""

    def sleep_ms(self, low, high):
        time.sleep(self.rng.uniform(low, high) / 1e3)


class Exchange:
    """One request, and how it is answered."""

    def __init__(self, handler, body=None):
        self.handler, self.body, self.path = handler, body, handler.path
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.context = TraceContextTextMapPropagator().extract(headers)
        self.trace_id = headers.get("traceparent", "--").split("-")[1]

    def send(self, body, headers=(), status=200, kind="application/json"):
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.begin([("content-length", str(len(data))), *headers], status, kind)
        self.handler.wfile.write(data)

    def begin(self, headers=(), status=200, kind="text/event-stream"):
        self.handler.send_response(status)
        self.handler.send_header("content-type", kind)
        self.is_chunked = not any(name == "content-length" for name, _ in headers)
        for name, value in [*headers, *([("transfer-encoding", "chunked")] if self.is_chunked else [])]:
            self.handler.send_header(name, value)
        self.handler.end_headers()

    def event(self, data):
        """One server-sent event, flushed."""
        text = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self.handler.wfile.flush()

    def end(self):
        self.handler.wfile.write(b"0\r\n\r\n")
