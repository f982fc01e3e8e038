#!/usr/bin/env python3
"""What profiling itself costs: Lapwing beside the same data plane with an observer that does nothing (benches/unobserved.rs), in one run.

HTTP/1.1: an inference request of 1 KiB in JSON, 32 connections, before nginx. gRPC: a ModelInferRequest of 1 KiB, 4 calls at a time on each of 8
connections, before nghttpd. Both proxies are measured in turn, --rounds times. The figure is user time per request of the whole process, all its
threads: of what is read, recorded and kept for each request. The kernel's time is left out: it is the same for both and the noisiest.
Proxies run on core 0; upstream and load on core 1.

usage: python3 benches/profiling_cost.py [--lapwing PATH] [--unobserved PATH] [--rounds N] [--seconds S] [--json FILE]
Build both with one profile first: cargo build --profile dist --bin lapwing --example unobserved
Needs wrk, nginx, nghttpd, h2load and taskset. Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import grpc_overhead
import overhead
from grpc_overhead import h2load
from overhead import CONNECTIONS, PROXY_CORE, cpu_seconds, post_script, profiling, wrk
from parts import Child, Lapwing, arguments, finish, free_port, table, timed

BOUND_US = {"HTTP/1.1": 1.5, "gRPC": 2.0}
STREAMS = 8, 4
"""Connections, and calls at a time on each."""


class Unobserved(Child):
    """The data plane that observes nothing."""

    def __init__(self, binary, upstream_port, protocol):
        if not os.access(binary, os.X_OK):
            raise SystemExit(f"no binary at {binary}: run cargo build --profile dist --example unobserved, or name one by --unobserved PATH")
        port = free_port()
        super().__init__([binary, f"127.0.0.1:{port}", f"127.0.0.1:{upstream_port}", protocol], port, PROXY_CORE)


def http1(port, options):
    """Sends requests for so many seconds. Returns how many, and how many failed."""
    done = wrk(port, CONNECTIONS, options.seconds, options.script)
    return done["n"], done["bad"]


def grpc(port, options):
    """Makes the calls of a measurement. Returns how many, and how many failed."""
    calls = options.seconds * 10_000
    return calls, h2load(port, *STREAMS, calls, options.request)


def measure(options, pair, load):
    """User µs per request of both proxies in each round, and how many requests were made and failed."""
    user_us, made, failed = {name: [] for name in pair}, dict.fromkeys(pair, 0), 0
    for number in range(options.rounds + 1):
        for name, child in pair.items():
            before = cpu_seconds(child.pid, user_only=True)
            n, bad = load(child.port, options)
            made[name], failed = made[name] + n, failed + bad
            if number:  # before the first round both warm up
                user_us[name].append((cpu_seconds(child.pid, user_only=True) - before) / n * 1e6)
    return user_us, made, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--unobserved", help="binary to compare with (default: examples/unobserved beside that of --lapwing)")
    parser.add_argument("--rounds", type=int, default=7, help="(default: 7)")
    parser.add_argument("--seconds", type=int, default=4, help="seconds of each measurement; gRPC: tens of thousands of calls (default: 4)")
    options = parser.parse_args()
    for needed in ("wrk", "nginx", "nghttpd", "h2load", "taskset"):
        if not shutil.which(needed):
            raise SystemExit(f"{needed} is not installed")
    unobserved = options.unobserved or Path(options.lapwing).parent / "examples/unobserved"
    figures, rows, verdicts = {}, [], []
    with tempfile.TemporaryDirectory(prefix="profiling-") as folder:
        options.answer, options.request = 256, Path(folder, "request")
        options.request.write_bytes(grpc_overhead.request(1024))
        options.script = post_script(folder, 1024)
        for name, load, protocol in (("HTTP/1.1", http1, "h1"), ("gRPC", grpc, "h2")):
            port = options.upstream_port = free_port()
            with (
                overhead.upstream(folder, options) if protocol == "h1" else grpc_overhead.upstream(folder, port),
                Lapwing(options.lapwing, port, core=PROXY_CORE) as lapwing,
                Unobserved(unobserved, port, protocol) as bare,
            ):
                user_us, made, failed = measure(options, {"lapwing": lapwing, "unobserved": bare}, load)
                counts = profiling(lapwing, made["lapwing"])
            cost = statistics.median(mine - theirs for mine, theirs in zip(user_us["lapwing"], user_us["unobserved"]))
            figures[name] = {"user_us": user_us, "made": made, "lapwing": counts}
            rows.append([name, *(f"{statistics.median(of):.2f}" for of in user_us.values()), f"{cost:.2f}"])
            verdicts.append(timed(f"user µs that profiling costs a request, {name}", f"{cost:.2f}", f"≤ {BOUND_US[name]}", cost <= BOUND_US[name]))
            verdicts.append((f"failed requests, {name}", failed, 0, failed == 0))
    print("user µs per request\n")
    table(["", "Lapwing", "unobserved", "difference"], rows)
    return finish(options, figures, verdicts)


if __name__ == "__main__":
    raise SystemExit(main())
