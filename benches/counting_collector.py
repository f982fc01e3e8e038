"""A collector over OTLP/HTTP that takes every request and notes its size. Uses only the standard library."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class CountingCollector:
    """Listens while its context is entered; `sizes` has the bytes of each request's body, in the order of arrival."""

    def __enter__(self):
        sizes = self.sizes = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                sizes.append(len(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
