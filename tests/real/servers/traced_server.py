"""A service with opentelemetry-sdk, set up by its environment variables alone. usage: traced_server.py PORT

Each request gives a server span with two children, one of which has a child of its own, and a call to another service. The answer says
which trace it was and whether the SDK sampled it.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("service")


class Fields(Getter):
    """Header fields in any case of letters, as servers' instrumentation reads them."""

    def get(self, carrier, key):
        return carrier.get_all(key)

    def keys(self, carrier):
        return carrier.keys()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        context = propagate.extract(self.headers, getter=Fields())
        with tracer.start_as_current_span("POST /predict", context, kind=trace.SpanKind.SERVER) as server:
            with tracer.start_as_current_span("preprocessing"):
                pass
            with tracer.start_as_current_span("model_forward"), tracer.start_as_current_span("session.run"):
                pass
            with tracer.start_as_current_span("GET", kind=trace.SpanKind.CLIENT):
                pass
        seen = server.get_span_context()
        body = json.dumps({"trace_id": f"{seen.trace_id:032x}", "sampled": bool(seen.trace_flags & 1)}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
