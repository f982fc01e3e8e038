"""A service with opentelemetry-sdk whose forward pass is for a whole batch. usage: batching_server.py PORT BATCH CLOCK_MS

Each request has a server span. Once BATCH of them are there, one span named `model_forward` runs for 80 ms, and links to the server span of
each. Its process's clock differs from the machine's by CLOCK_MS.
"""

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

PORT, BATCH, CLOCK_NS = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) * 1_000_000
FORWARD_SECONDS = 0.08
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("service")
waiting = []
come = threading.Condition()


def now():
    return time.time_ns() + CLOCK_NS


class Fields(Getter):
    """Header fields in any case of letters, as servers' instrumentation reads them."""

    def get(self, carrier, key):
        return carrier.get_all(key)

    def keys(self, carrier):
        return carrier.keys()


def forward(batch):
    """One pass for all requests of `batch`, which are (server span, event) each."""
    if BATCH == 1:
        span = tracer.start_span("model_forward", trace.set_span_in_context(batch[0][0]), start_time=now())
    else:
        links = [trace.Link(server.get_span_context()) for server, _ in batch]
        span = tracer.start_span("model_forward", trace.set_span_in_context(trace.INVALID_SPAN), links=links, start_time=now())
    time.sleep(FORWARD_SECONDS)
    span.end(now())
    for _, done in batch:
        done.set()


def run():
    while True:
        with come:
            come.wait_for(lambda: len(waiting) >= BATCH)
            batch = waiting[:BATCH]
            del waiting[:BATCH]
        forward(batch)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        started = now()
        self.rfile.read(int(self.headers["content-length"]))
        context = propagate.extract(self.headers, getter=Fields())
        server = tracer.start_span("POST /predict", context, kind=trace.SpanKind.SERVER, start_time=started)
        done = threading.Event()
        with come:
            waiting.append((server, done))
            come.notify()
        done.wait()
        server.end(now())
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


threading.Thread(target=run, daemon=True).start()
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
