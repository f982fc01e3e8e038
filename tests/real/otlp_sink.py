"""A collector: takes OTLP over HTTP (protobuf, JSON, gzip) and gRPC into one set of lists, and keeps what arrives."""

import gzip
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

REQUESTS = {
    "traces": trace_service_pb2.ExportTraceServiceRequest,
    "metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    "logs": logs_service_pb2.ExportLogsServiceRequest,
}


class OtlpSink:
    """The received messages by signal; `requests[signal]` are decoded messages in order of arrival.

    `http_port` is a port to listen on, where another sink has been before.
    """

    def __init__(self, http_port=0):
        self.http_port = http_port

    def __enter__(self):
        self.requests = {signal: [] for signal in REQUESTS}
        self.lock = threading.Lock()
        self.is_closed = False
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = read_body(self)
                if sink.is_closed:  # as a process that is gone, also for connections that were open
                    self.close_connection = True
                    return
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                sink.take(self.path.rsplit("/", 1)[-1], body, "json" in self.headers.get("content-type", ""))
                self.send_response(200)
                self.send_header("content-type", self.headers.get("content-type", "application/x-protobuf"))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", self.http_port), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

        class Service(grpc.GenericRpcHandler):
            def service(self, details):
                for signal, word in (("traces", "trace"), ("metrics", "metrics"), ("logs", "logs")):
                    if details.method.startswith(f"/opentelemetry.proto.collector.{word}."):
                        return grpc.unary_unary_rpc_method_handler(lambda b, _, s=signal: sink.take(s, b) or b"")

        self.grpc = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Service()])
        self.grpc_url = f"grpc://127.0.0.1:{self.grpc.add_insecure_port('127.0.0.1:0')}"
        self.grpc.start()
        return self

    def __exit__(self, *_):
        self.is_closed = True
        self.http.shutdown()
        self.http.server_close()
        self.grpc.stop(0)

    def take(self, signal, body, is_json=False):
        message = REQUESTS[signal]()
        if is_json:
            json_format.Parse(body, message, ignore_unknown_fields=True)
        else:
            message.ParseFromString(body)
        with self.lock:
            self.requests[signal].append(message)

    def whole_spans(self):
        """Every received span, as a message."""
        with self.lock:
            messages = list(self.requests["traces"])
        return [
            span
            for message in messages
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def spans(self):
        """Every received span: (trace id in hex, name)."""
        return [(span.trace_id.hex(), span.name) for span in self.whole_spans()]


def read_body(handler):
    if "chunked" not in handler.headers.get("transfer-encoding", ""):
        return handler.rfile.read(int(handler.headers.get("content-length", 0)))
    body = b""
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return body
