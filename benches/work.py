#!/usr/bin/env python3
"""A bimodal load: a single latency hides its two populations, and latency per unit of work shows them.

The client sends requests of 1 row or of 256 rows, at random and one after the other, to a server of a small classifier of digits
(`lapwing engine serve`, Open Inference Protocol), through a Lapwing in front of it. A call of that model costs more than a row, so
that a row of a large request is cheaper than that of a small one. A p95 over all requests describes neither
population. Lapwing's cost classes (powers of two of the rows) and its histograms of time per row separate them; both are compared
with the requests themselves, whose sizes the client knows.

usage: python3 benches/work.py [--lapwing PATH] [--requests N] [--large SHARE] [--json FILE]
Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import json
import random
import re
import socket
import sys
import time
from http.client import HTTPConnection

from parts import ROOT, Child, Lapwing, arguments, finish, free_port, quantile, table, timed

SMALL, LARGE = 1, 256
MODEL = "digits"
ROUTE = f"/v2/models/{MODEL}/infer"
FILE = ROOT / "tests/fixtures/digits/digits.onnx"
# the server reports its stages in Server-Timing
CONFIG = "attribution:\n  expect_spans: never\nmetrics:\n  recent_exchanges: 65536\n"
OFF = 0.01


def await_ready(port):
    """Waits until the model is warm: before that, the server answers with 503."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/v2/health/ready")
        status = connection.getresponse().status
        connection.close()
        if status == 200:
            return
        time.sleep(0.05)
    raise SystemExit("the server was not ready after 30 s")


def bodies(rows, n, rng):
    """`n` different HTTP requests of `rows` rows each."""
    out = []
    for _ in range(n):
        pixels = [rng.randrange(17) for _ in range(64 * rows)]
        tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 64], "data": pixels}
        body = json.dumps({"inputs": [tensor]}).encode()
        head = f"POST {ROUTE} HTTP/1.1\r\nhost: m\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        out.append(head.encode() + body)
    return out


def load(port, options):
    """(rows, nanoseconds) of each request, by the client's clock."""
    rng = random.Random(7)
    pool = {rows: bodies(rows, 16, rng) for rows in (SMALL, LARGE)}
    out = []
    with socket.create_connection(("127.0.0.1", port), 30) as connection, connection.makefile("rb") as stream:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(options.requests):
            rows = LARGE if rng.random() < options.large else SMALL
            start = time.perf_counter_ns()
            connection.sendall(rng.choice(pool[rows]))
            status, length = stream.readline(), 0
            while (line := stream.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            stream.read(length)
            out.append((rows, time.perf_counter_ns() - start))
            if b" 200 " not in status:
                raise SystemExit(f"the answer is {status!r}")
    return out


def classes(series, asked):
    """Prints the cost classes, and checks that each has one population."""
    by_class = {c["class"]: c for c in series["classes"]}
    rows, verdicts = [], []
    for size in (SMALL, LARGE):
        took = [ns for rows_, ns in asked if rows_ == size]
        one = by_class.get(size.bit_length() - 1, {"count": 0, "from": size, "to": size, "p50_ns": 0, "p90_ns": 0, "p99_ns": 0})
        cells = [f"{one[p] / 1e3:.0f}" for p in ("p50_ns", "p90_ns", "p99_ns")]
        rows.append([f"{one['from']}–{one['to']} rows", one["count"], *cells, f"{quantile(took, 0.5) / 1e3:.0f}"])
        verdicts.append((f"requests of {size} rows in their class", f"{one['count']} of {len(took)}", "all", one["count"] == len(took)))
    table(["cost class", "requests", "p50 µs", "p90 µs", "p99 µs", "client's p50"], rows)
    low, high = by_class.get(0, {"p90_ns": 0}), by_class.get(8, {"p50_ns": 0})
    apart = 0 < low["p90_ns"] < high["p50_ns"]
    verdicts.append(timed("classes apart: p90 of the small, p50 of the large", f"{low['p90_ns'] / 1e3:.0f} µs, {high['p50_ns'] / 1e3:.0f} µs", "below", apart))
    return verdicts


def per_row(lapwing, exchanges, series):
    """Prints time per row of the forward pass, and checks that the histogram in /metrics has two peaks of the right sizes."""
    forward = {size: [] for size in (SMALL, LARGE)}
    for exchange in exchanges:
        ns = next((s["ns"] for s in exchange["stages"] if s["stage"] == "forward"), 0)
        forward[exchange["work"]["row"]["amount"]].append(ns / exchange["work"]["row"]["amount"])
    said = series["per_unit"]["forward"]
    cells = [[f"{size} rows", len(ns), *(f"{quantile(ns, q):.0f}" for q in (0.1, 0.5, 0.9))] for size, ns in forward.items()]
    print("forward, ns per row, by the size of the request (from /exchanges)")
    table(["", "requests", "p10", "p50", "p90"], cells)
    print(f"in /stats, all requests: p50 {said['p50_ps'] / 1e3:.0f}, p90 {said['p90_ps'] / 1e3:.0f}, p99 {said['p99_ps'] / 1e3:.0f} ns per row; {said['units']} rows\n")
    buckets = histogram(lapwing)
    print("lapwing_stage_seconds_per_unit{stage=\"forward\"}: requests by ns per row")
    most = max((n for _, n in buckets), default=1)
    for le, n in buckets:
        print(f"  ≤ {le * 1e9:>10.0f}  {n:>6}  {'#' * round(50 * n / most)}")
    print()
    cut = (quantile(forward[LARGE], 0.5) * quantile(forward[SMALL], 0.5)) ** 0.5 / 1e9
    cheap = sum(n for le, n in buckets if le <= cut)
    units = sum(size * len(ns) for size, ns in forward.items())
    return {"buckets": buckets, "per_unit": said}, [
        ("rows counted", str(said["units"]), str(units), said["units"] == units),
        timed("requests in the cheap heap of the histogram", str(cheap), f"{len(forward[LARGE])} ± {OFF:.0%}", abs(cheap - len(forward[LARGE])) <= OFF * len(exchanges)),
    ]


def histogram(lapwing):
    """(upper bound in seconds per row, requests) of each bucket of the forward pass that is not empty."""
    connection = HTTPConnection("127.0.0.1", lapwing.admin, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found, before = [], 0
    for line in text.splitlines():
        if line.startswith("lapwing_stage_seconds_per_unit_bucket{") and 'stage="forward"' in line and f'model="{MODEL}"' in line:
            le, value = re.search(r'le="([^"]+)"', line)[1], int(float(re.search(r"\} ([0-9.e+]+)", line)[1]))
            found.append((float(le), value))
    out = []
    for le, value in sorted(found):
        if value > before:
            out.append((le, value - before))
        before = value
    return out


def measure(options, server):
    """Sends the load through a new Lapwing, so that the window `all` has only this load."""
    with Lapwing(options.lapwing, server, config=CONFIG) as lapwing:
        load(lapwing.port, argparse.Namespace(requests=100, large=0.5))  # warms the server
    with Lapwing(options.lapwing, server, config=CONFIG) as lapwing:
        asked = load(lapwing.port, options)
        lapwing.await_count(len(asked), "infer")
        (series,) = lapwing.series("infer")
        exchanges = [e for e in lapwing.exchanges(65536) if e["route"] == series["route"]]
        totals = [e["total_ns"] for e in exchanges]
        print(f"{len(asked)} requests, {options.large:.0%} of them of {LARGE} rows, the others of {SMALL}")
        print(f"one latency for all, µs: p50 {quantile(totals, 0.5) / 1e3:.0f}, p95 {quantile(totals, 0.95) / 1e3:.0f}, mean {sum(totals) / len(totals) / 1e3:.0f}\n")
        verdicts = [("requests counted", str(len(exchanges)), str(len(asked)), len(exchanges) == len(asked))]
        verdicts += classes(series, asked)
        units, more = per_row(lapwing, exchanges, series)
        figures = {"p95_ns": quantile(totals, 0.95), "classes": series["classes"], **units}
        return figures, verdicts + more


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--requests", type=int, default=4000, help="(default: 4000; at most 65536)")
    parser.add_argument("--large", type=float, default=0.3, help="share of the requests with 256 rows (default: 0.3)")
    options = parser.parse_args()
    port = free_port()
    with Child([options.lapwing, "engine", "serve", "--model", f"{MODEL}={FILE}", "--listen", f"127.0.0.1:{port}"], port):
        await_ready(port)
        figures, verdicts = measure(options, port)
    return finish(options, figures, verdicts)


if __name__ == "__main__":
    sys.exit(main())
