#!/usr/bin/env python3
"""Servers that write head and body of an answer apart: what Lapwing saves by acknowledging the head at once.

The upstream is Python's http.server with keep-alive and a handler of 5 ms. It writes each answer in two parts with Nagle's algorithm on, so
that the second part waits until the client's system acknowledges the first, which Linux delays by 40 ms. Requests go one after another
on one connection to the upstream itself, through nginx, through Lapwing, and through Lapwing with `proxy.quick_ack: off`; the targets
take turns, round by round.

usage: python3 benches/split_writes.py [--lapwing PATH] [--rounds N] [--requests N] [--json FILE]
nginx is left out if it is not installed. Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import contextlib
import http.client
import shutil
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from parts import Child, Lapwing, arguments, finish, free_port, quantile, table, timed

BODY = b"x" * 256
OF_OTHERS = 0.25
NGINX_CONF = """worker_processes 1; pid {dir}/pid; error_log {dir}/err; daemon off;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
  scgi_temp_path {dir}/s; upstream u {{ server 127.0.0.1:{upstream}; keepalive 8; }}
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}
}}
"""


# === the upstream, in a separate process: split_writes.py --serve PORT ===


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(0.005)
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_):
        pass


# === the client ===


def measure(connection, requests):
    """The seconds of each request."""
    times = []
    for _ in range(requests):
        began = time.monotonic()
        connection.request("GET", "/split")
        response = connection.getresponse()
        body = response.read()
        times.append(time.monotonic() - began)
        if (response.status, body) != (200, BODY):
            raise SystemExit(f"the answer is {response.status} with {len(body)} bytes")
    return times


def nginx(folder, upstream):
    conf, port = Path(folder, "nginx.conf"), free_port()
    conf.write_text(NGINX_CONF.format(dir=folder, port=port, upstream=upstream))
    return Child(["nginx", "-c", conf], port)


def annotated(lapwing, annotation):
    """How many of the latest exchanges have it."""
    return sum(annotation in exchange["annotations"] for exchange in lapwing.exchanges(65536))


def run(options):
    with contextlib.ExitStack() as stack:
        folder, port = stack.enter_context(tempfile.TemporaryDirectory()), free_port()
        stack.enter_context(Child([sys.executable, __file__, "--serve", port], port))
        kept = "metrics: {recent_exchanges: 65536}\n"
        helped = stack.enter_context(Lapwing(options.lapwing, port, config=kept))
        off = stack.enter_context(Lapwing(options.lapwing, port, config=kept + "proxy: {quick_ack: off}\n"))
        targets = {"direct": port, "nginx": None, "lapwing": helped.port, "lapwing, quick_ack off": off.port}
        if shutil.which("nginx"):
            targets["nginx"] = stack.enter_context(nginx(folder, port)).port
        clients = {name: http.client.HTTPConnection("127.0.0.1", port, timeout=30) for name, port in targets.items() if port}
        times = {name: [] for name in clients}
        for client in clients.values():
            measure(client, 20)  # a new connection acknowledges quickly
        for _ in range(options.rounds):
            for name, client in clients.items():
                times[name] += measure(client, options.requests)
        asked = 20 + options.rounds * options.requests
        helped.await_count(asked)
        counts = {name: annotated(helped, name) for name in ("split_write", "quick_ack", "unhelped")}
        for client in clients.values():
            client.close()
    ms = {name: {"p50": quantile(t, 0.5) * 1e3, "p99": quantile(t, 0.99) * 1e3} for name, t in times.items()}
    print(f"{options.rounds * options.requests} requests to each target, one after another on one connection, ms")
    table(["", "p50", "p99"], [[name, f"{row['p50']:.2f}", f"{row['p99']:.2f}"] for name, row in ms.items()])
    print(f"of {asked} exchanges: " + ", ".join(f"{n} {name}" for name, n in counts.items()) + "\n")
    verdicts = []
    for other in ("direct", "nginx"):
        what, bound = f"p50 through Lapwing, of {other}'s", f"≤ {OF_OTHERS}×"
        if other in ms:
            ratio = ms["lapwing"]["p50"] / ms[other]["p50"]
            verdicts.append(timed(what, f"{ratio:.3f}×", bound, ratio <= OF_OTHERS))
        else:
            verdicts.append(timed(what, "not measured", bound, None))
    figures = {"ms": ms, "annotations": counts, "exchanges": asked, "times_s": times}
    return finish(options, figures, verdicts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=50, help="for each target and round")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        ThreadingHTTPServer.daemon_threads = True
        return ThreadingHTTPServer(("127.0.0.1", options.serve), Handler).serve_forever()
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
