#!/usr/bin/env python3
"""The cost of gRPC calls through a proxy: Lapwing with all profiling on, nginx, HAProxy and Envoy, with the same upstream, in one run.

Calls are those of the Open Inference Protocol over h2c at both ends: a ModelInferRequest of 1 KiB up, which Lapwing reads as it forwards
it, 256 bytes and `grpc-status` down. Each target is measured in turn, --rounds times, in three shapes: one call at a time on one
connection, 4 at a time on each of 8, and 32 at a time on each of 2. The figure is CPU microseconds per call (user and system time of
the proxy's processes). Proxies run on core 0; the upstream (nghttpd, a fixed answer) and the load (h2load) on core 1. Ratios are
medians of the rounds' ratios.

usage: python3 bench/grpc_overhead.py [--lapwing PATH] [--rounds N] [--calls N] [--json FILE] [TARGET ...]
TARGET is nginx, haproxy, envoy, lapwing, or NAME=lapwing:BINARY (another build of Lapwing). The default is all that are installed.
Needs nghttpd and h2load (Debian: nghttp2-server, nghttp2-client) and taskset; ENVOY names Envoy's binary if it is not in PATH.
Exit code 1 if a bound is missed.
"""

import argparse
import re
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from overhead import LOAD_CORE, PROXY_CORE, cpu_seconds, envoy, profiling, written
from parts import Child, Lapwing, arguments, finish, free_port, table

SHAPES = {"1 × 1": (1, 1, 1), "8 × 4": (8, 4, 3), "2 × 32": (2, 32, 3)}
"""Connections, calls at a time on each, and how many of --calls."""
BOUNDS = {("1 × 1", "haproxy"): 1.05, ("8 × 4", "haproxy"): 1.25, ("2 × 32", "haproxy"): 1.25, ("8 × 4", "envoy"): 0.6, ("2 × 32", "envoy"): 0.6}
METHOD = "inference.GRPCInferenceService/ModelInfer"

NGINX_CONF = """worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/nginx.err; daemon off;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
  upstream u {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port} http2 backlog=4096; location / {{ grpc_pass grpc://u; }} }}
}}
"""
HAPROXY_CONF = """global
 nbthread 1
 maxconn 4096
defaults
 mode http
 timeout connect 5s
 timeout client 60s
 timeout server 60s
frontend f
 bind 127.0.0.1:{port} proto h2
 default_backend b
backend b
 server s 127.0.0.1:{upstream} proto h2
"""
ENVOY_CONF = """static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: h
          codec_type: HTTP2
          route_config:
            virtual_hosts: [{{name: v, domains: ["*"], routes: [{{match: {{prefix: "/"}}, route: {{cluster: u, timeout: 60s}}}}]}}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: u
    connect_timeout: 5s
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment:
      cluster_name: u
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {upstream}}}}}}}}}]}}]
"""


def field(number, payload):
    """A length-delimited field of a protobuf message."""
    length, varint = len(payload), b""
    while length > 127:
        varint, length = varint + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + varint + bytes([length]) + payload


def message(payload):
    """A message as gRPC frames it."""
    return b"\0" + len(payload).to_bytes(4, "big") + payload


def request(size):
    """A ModelInferRequest with one tensor of raw FP32, so long that the framed message has about `size` bytes."""
    n = (size - 40) // 4
    shape = b"\x1a\x03\x01" + bytes([n & 127 | 128, n >> 7])
    tensor = field(1, b"x") + field(2, b"FP32") + shape
    return message(field(1, b"m") + field(5, tensor) + field(7, bytes(4 * n)))


def target(folder, name, port):
    """The process of a target; it starts when its context is entered."""
    values = {"port": free_port(), "upstream": port}
    if name == "nginx":
        command = ["nginx", "-c", written(folder, "nginx.conf", NGINX_CONF, **values)]
    elif name == "haproxy":
        command = ["haproxy", "-db", "-f", written(folder, "haproxy.cfg", HAPROXY_CONF, **values)]
    elif name == "envoy":
        conf = written(folder, "envoy.yaml", ENVOY_CONF, **values)
        command = [envoy(), "-c", conf, "--concurrency", "1", "-l", "error", "--disable-hot-restart"]
    else:
        raise SystemExit(f"unknown target {name}")
    return Child(command, values["port"], PROXY_CORE)


def h2load(port, connections, streams, calls, body):
    """Runs h2load, which keeps so many calls going. Returns how many failed."""
    command = ["taskset", "-c", str(LOAD_CORE), "h2load", "-n", str(calls), "-c", str(connections), "-m", str(streams), "-d", str(body)]
    command += ["-H", "content-type: application/grpc", "-H", "te: trailers", f"http://127.0.0.1:{port}/{METHOD}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", done.stdout)
    if done.returncode or not found:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return calls - int(found[1])


def measure(options, targets, body):
    """CPU µs per call: target, shape, rounds. All targets in turn, in each round."""
    figures, failed = {name: {shape: [] for shape in SHAPES} for name in targets}, dict.fromkeys(targets, 0)
    for _ in range(options.rounds):
        for name, child in targets.items():
            for shape, (connections, streams, factor) in SHAPES.items():
                h2load(child.port, connections, streams, 1000, body)
                calls, before = options.calls * factor, cpu_seconds(child.pid)
                failed[name] += h2load(child.port, connections, streams, calls, body)
                figures[name][shape].append((cpu_seconds(child.pid) - before) / calls * 1e6)
    return figures, failed


def verdicts(figures, failed):
    for (shape, other), bound in BOUNDS.items():
        if other not in figures or "lapwing" not in figures:
            print(f"skipped: {shape} beside {other} (not measured)")
            continue
        ratio = statistics.median(mine / theirs for mine, theirs in zip(figures["lapwing"][shape], figures[other][shape]))
        yield f"CPU per call at {shape}, of {other}'s", f"{ratio:.2f}×", f"≤ {bound}×", ratio <= bound
    yield "failed calls", str(sum(failed.values())), "0", not any(failed.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--calls", type=int, default=10_000, help="calls of a measurement; three times as many where several run at once (default: 10000)")
    parser.add_argument("targets", nargs="*")
    options = parser.parse_args()
    for needed in ("nghttpd", "h2load", "taskset"):
        if not shutil.which(needed):
            raise SystemExit(f"{needed} is not installed")
    known = [*(n for n in ("nginx", "haproxy") if shutil.which(n)), *(["envoy"] if envoy() else []), "lapwing"]
    started = []
    with tempfile.TemporaryDirectory(prefix="grpc-") as folder:
        answer, body = Path(folder, "www", METHOD), Path(folder, "request")
        answer.parent.mkdir(parents=True)
        answer.write_bytes(message(field(1, b"m") + field(7, bytes(240))))
        body.write_bytes(request(1024))
        port = free_port()
        try:
            serve = ["nghttpd", "--no-tls", "-d", answer.parents[1], "--trailer", "grpc-status: 0", port]
            started.append(Child(serve, port, LOAD_CORE).__enter__())
            targets = {}
            for name in options.targets or known:
                is_lapwing = name == "lapwing" or "=lapwing:" in name
                binary = name.split("=lapwing:", 1)[1] if "=" in name else options.lapwing
                child = Lapwing(binary, port, core=PROXY_CORE) if is_lapwing else target(folder, name, port)
                started.append(child.__enter__())
                targets[name.split("=")[0]] = child
            figures, failed = measure(options, targets, body)
            medians = {name: {shape: statistics.median(values) for shape, values in by.items()} for name, by in figures.items()}
            print("CPU µs per call, by connections × calls at a time\n")
            table(["", *SHAPES, "failed"], [[name, *(f"{by[shape]:.1f}" for shape in SHAPES), failed[name]] for name, by in medians.items()])
            made = options.rounds * sum(1000 + options.calls * factor for *_, factor in SHAPES.values())
            counts = profiling(targets["lapwing"], made) if "lapwing" in targets else None
        finally:
            for child in reversed(started):
                child.__exit__()
    return finish(options, {"rounds": figures, "medians": medians, "lapwing": counts}, list(verdicts(figures, failed)))


if __name__ == "__main__":
    raise SystemExit(main())
