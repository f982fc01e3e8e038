#!/usr/bin/env python3
"""The cost of gRPC calls through a proxy: Lapwing with all profiling on, nginx, HAProxy and Envoy, with the same upstream, in one run.

Calls are those of the Open Inference Protocol over h2c at both ends: a ModelInferRequest of 1 KiB up, which Lapwing reads as it forwards
it, 256 bytes and `grpc-status` down. Each target is measured in turn, --rounds times, in three shapes: one call at a time on one
connection, 4 at a time on each of 8, and 32 at a time on each of 2. The figure is CPU microseconds per call (user and system time of
the proxy's processes). Proxies run on core 0; the upstream (nghttpd, a fixed answer) and the load (h2load) on core 1. Ratios are
medians of the rounds' ratios.

usage: python3 benches/grpc_overhead.py [--lapwing PATH] [--rounds N] [--calls N] [--json FILE] [TARGET ...]
TARGET is nginx, haproxy, envoy, lapwing, or NAME=lapwing:BINARY (another build of Lapwing), as in overhead.py. The default is all that
are installed.
Needs nghttpd and h2load (Debian: nghttp2-server, nghttp2-client) and taskset; ENVOY names Envoy's binary if it is not in PATH.
Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import re
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from overhead import HTTP2, LOAD_CORE, cpu_seconds, installed, profiling, target
from parts import Child, arguments, finish, free_port, table, timed
from stage_truth import field

SHAPES = {"1 × 1": (1, 1, 1), "8 × 4": (8, 4, 3), "2 × 32": (2, 32, 3)}
"""Connections, calls at a time on each, and how many of --calls."""
BOUNDS = {("1 × 1", "haproxy"): 1.05, ("8 × 4", "haproxy"): 1.25, ("2 × 32", "haproxy"): 1.25, ("8 × 4", "envoy"): 0.6, ("2 × 32", "envoy"): 0.6}
METHOD = "inference.GRPCInferenceService/ModelInfer"


def message(payload):
    """A message as gRPC frames it."""
    return b"\0" + len(payload).to_bytes(4, "big") + payload


def request(size):
    """A ModelInferRequest with one tensor of raw FP32, so long that the framed message has about `size` bytes."""
    n = (size - 40) // 4
    shape = b"\x1a\x03\x01" + bytes([n & 127 | 128, n >> 7])
    tensor = field(1, b"x") + field(2, b"FP32") + shape
    return message(field(1, b"m") + field(5, tensor) + field(7, bytes(4 * n)))


def upstream(folder, port):
    """The server that answers every call with 256 bytes and `grpc-status`."""
    answer = Path(folder, "www", METHOD)
    answer.parent.mkdir(parents=True)
    answer.write_bytes(message(field(1, b"m") + field(7, bytes(240))))
    return Child(["nghttpd", "--no-tls", "-d", answer.parents[1], "--trailer", "grpc-status: 0", port], port, LOAD_CORE)


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
            yield timed(f"CPU per call at {shape}, of {other}'s", "not measured", f"≤ {bound}×", None)
            continue
        ratio = statistics.median(mine / theirs for mine, theirs in zip(figures["lapwing"][shape], figures[other][shape]))
        yield timed(f"CPU per call at {shape}, of {other}'s", f"{ratio:.2f}×", f"≤ {bound}×", ratio <= bound)
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
    known = [name for name in installed() if name != "direct"]
    started = []
    with tempfile.TemporaryDirectory(prefix="grpc-") as folder:
        body = Path(folder, "request")
        body.write_bytes(request(1024))
        port = options.upstream_port = free_port()
        try:
            started.append(upstream(folder, port).__enter__())
            targets = {}
            for name in options.targets or known:
                child = target(folder, name, options, does="grpc_pass grpc://u;", protocol=HTTP2)
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
