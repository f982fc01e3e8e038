#!/usr/bin/env python3
"""Checks Lapwing's times of stages against the upstream's own clock, and how many exchanges are joined with their spans.

The upstream (a separate process) runs five stages of 0.2–50 ms, sleeping or spinning at random, measures each by perf_counter_ns, and
returns the times in the body: the ground truth. It reports them to Lapwing in three ways: by header (Server-Timing), by trailer
(chunked, with the head sent before the stages), and by OTLP spans (protobuf over HTTP to Lapwing's receiver, a batch every 200 ms).
For each stage, p50 and p99 of these requests are compared with those in /stats. Then spans are joined at a fixed rate of requests,
and the stages of every waterfall are summed.

usage: python3 benches/stage_truth.py [--lapwing PATH] [--requests N] [--rate R] [--seconds S] [--json FILE]
Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import contextlib
import http.client
import json
import random
import secrets
import socket
import struct
import sys
import threading
import time

from parts import Child, Lapwing, arguments, finish, free_port, quantile, table, timed

# the upstream's names of the stages, and Lapwing's
STAGES = {
    "feature_hydration": "hydration",
    "preprocessing": "preprocessing",
    "queue": "queue",
    "model_forward": "forward",
    "postprocessing": "postprocessing",
}
MODES = {"header": "reported", "trailer": "reported", "otlp": "traced"}
EXPORT_EVERY_S = 0.2
RELATIVE, ABSOLUTE_NS = 0.01, 100_000
JOINED = 0.999
CONFIG = "metrics:\n  recent_exchanges: 65536\n"  # keeps all waterfalls, not only the latest 256


# === the upstream, in a separate process: stage_truth.py --serve PORT --otlp PORT ===


def field(number, data):
    """A length-delimited protobuf field; `number` is below 16."""
    length, head = len(data), bytearray([number << 3 | 2])
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    head.append(length)
    return bytes(head) + data


def span(trace, parent, own, name, kind, start_ns, end_ns):
    """An OTLP span within a ScopeSpans."""
    times = struct.pack("<BQBQ", 7 << 3 | 1, start_ns, 8 << 3 | 1, end_ns)
    kind = bytes([6 << 3, kind])
    return field(2, field(1, trace) + field(2, own) + field(4, parent) + field(5, name.encode()) + kind + times)


class Exporter:
    """Sends the added spans in batches, like real exporters."""

    def __init__(self, port):
        self.port, self.batch, self.lock = port, [], threading.Lock()
        name = field(1, b"service.name") + field(2, field(1, b"stage_truth"))
        self.resource = field(1, field(1, name))
        threading.Thread(target=self.run, daemon=True).start()

    def add(self, spans):
        with self.lock:
            self.batch += spans

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        while True:
            time.sleep(EXPORT_EVERY_S)
            with self.lock:
                batch, self.batch = self.batch, []
            if not batch:
                continue
            message = field(1, self.resource + field(2, b"".join(batch)))
            try:
                connection.request("POST", "/v1/traces", message, {"content-type": "application/x-protobuf"})
                response = connection.getresponse()
                response.read()
                assert response.status == 200, response.status
            except (OSError, http.client.HTTPException, AssertionError) as e:
                print(f"lost {len(batch)} spans: {e!r}", flush=True)
                connection.close()


def run_stage(ms, how):
    """Takes about `ms` milliseconds. Returns the nanoseconds by the monotonic clock, and start and end by the wall clock."""
    start, from_ns = time.perf_counter_ns(), time.time_ns()
    if how == "sleep":
        time.sleep(ms / 1e3)
    else:
        end = start + int(ms * 1e6)
        while time.perf_counter_ns() < end:
            pass
    to_ns = time.time_ns()
    return time.perf_counter_ns() - start, from_ns, to_ns


def answer(connection, path, head, body, exporter):
    """Runs the stages and reports them in the way that the path names."""
    chunked = path == "/trailer"
    if chunked:
        start = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: server-timing\r\n\r\n"
        connection.sendall(start)
    began_ns = time.time_ns()
    took = {name: run_stage(ms, how) for name, ms, how in json.loads(body)}
    truth = {name: ns for name, (ns, _, _) in took.items()}
    out = json.dumps(truth).encode()
    timing = ", ".join(f"{name};dur={ns / 1e6:.6f}" for name, ns in truth.items()).encode()
    if path in ("/otlp", "/rate"):
        _, trace, parent, _ = head["traceparent"].split("-")
        trace, own = bytes.fromhex(trace), secrets.token_bytes(8)
        spans = [span(trace, own, secrets.token_bytes(8), name, 1, *times) for name, (_, *times) in took.items()]
        exporter.add([*spans, span(trace, bytes.fromhex(parent), own, f"POST {path}", 2, began_ns, time.time_ns())])
    if chunked:
        connection.sendall(b"%x\r\n%s\r\n0\r\nserver-timing: %s\r\n\r\n" % (len(out), out, timing))
    else:
        report = b"server-timing: %s\r\n" % timing if path == "/header" else b""
        connection.sendall(b"HTTP/1.1 200 OK\r\n%scontent-length: %d\r\n\r\n%s" % (report, len(out), out))


def read_fields(stream):
    fields = {}
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, value = line.decode("latin-1").split(":", 1)
        fields[name.lower()] = value.strip()
    return fields


def serve_connection(connection, exporter):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
        while line := stream.readline():
            head = read_fields(stream)
            body = stream.read(int(head.get("content-length", 0)))
            answer(connection, line.split(b" ")[1].decode(), head, body, exporter)


def serve(port, otlp_port):
    exporter = Exporter(otlp_port)
    listener = socket.create_server(("127.0.0.1", port), backlog=256)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_connection, args=(connection, exporter), daemon=True).start()


# === the client ===


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()
        self.socket.close()

    def post(self, path, stages):
        """Sends a request; returns the ground truth, nanoseconds by stage."""
        body = json.dumps(stages).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: m\r\nte: trailers\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)
        status = self.stream.readline()
        fields = read_fields(self.stream)
        if "chunked" in fields.get("transfer-encoding", ""):
            out = b""
            while size := int(self.stream.readline(), 16):
                out += self.stream.read(size)
                self.stream.readline()
            fields |= read_fields(self.stream)
        else:
            out = self.stream.read(int(fields["content-length"]))
        if b" 200 " not in status:
            raise SystemExit(f"{path}: {status!r} {out[:300]!r}")
        if path in ("/header", "/trailer") and "server-timing" not in fields:
            raise SystemExit(f"{path}: the answer has no server-timing")
        return json.loads(out)


def stages_of(rng, least_ms, most_ms, hows=("sleep", "spin")):
    """The stages of one request; their durations are distributed uniformly on a logarithmic scale."""
    return [(name, least_ms * (most_ms / least_ms) ** rng.random(), rng.choice(hows)) for name in STAGES]


def whole(lapwing, path, n):
    """The only series of the path, after its `n` requests are counted."""
    counted = lapwing.await_count(n, path)
    found = [s for s in lapwing.series(path) if s["total"]["count"]]
    if counted != n or len(found) != 1:
        raise SystemExit(f"{path}: {counted} of {n} requests were counted, in {len(found)} series")
    return found[0]


def compare(options, lapwing):
    """Compares the truth with Lapwing's figures, for each stage and each way to report."""
    rng, rows, verdicts = random.Random(7), [], []
    for mode, source in MODES.items():
        truths = []
        with Client(lapwing.port) as client:
            for _ in range(options.requests):
                truths.append(client.post(f"/{mode}", stages_of(rng, 0.2, 50)))
        series = whole(lapwing, f"/{mode}", options.requests)
        for name, stage in STAGES.items():
            said = series["stages"].get(stage, {"p50_ns": 0, "p99_ns": 0, "sources": {}})
            row = {"mode": mode, "stage": stage, "sourced": said["sources"].get(source, 0) / options.requests}
            for label, q in (("p50", 0.5), ("p99", 0.99)):
                truth = quantile([t[name] for t in truths], q)
                row |= {f"{label}_truth_ns": truth, f"{label}_ns": said[f"{label}_ns"], f"{label}_off_ns": said[f"{label}_ns"] - truth}
            rows.append(row)
        mine = [r for r in rows if r["mode"] == mode]
        offs = [(abs(r[f"{p}_off_ns"]), max(RELATIVE * r[f"{p}_truth_ns"], ABSOLUTE_NS)) for r in mine for p in ("p50", "p99")]
        worst = max(offs, key=lambda pair: pair[0] / pair[1])
        what = f"largest deviation of a stage's p50 or p99, by {mode}"
        verdicts.append(timed(what, f"{worst[0] / 1e3:.1f} µs", f"≤ {worst[1] / 1e3:.0f} µs", worst[0] <= worst[1]))
    print(f"{options.requests} requests by each way to report; µs; 'off' is Lapwing's figure less the truth")
    cells = [
        [f"{r['mode']} {r['stage']}", *(f"{r[k] / 1e3:.1f}" for k in ("p50_truth_ns", "p50_off_ns", "p99_truth_ns", "p99_off_ns")), f"{r['sourced']:.2%}"]
        for r in rows
    ]
    table(["", "p50", "off", "p99", "off", "reports used"], cells)
    return rows, verdicts


def load(lapwing, rate, seconds, connections=16):
    """Sends requests at a fixed rate, spread over connections. Returns how many were answered, and the seconds taken."""
    n, begin = int(rate * seconds), time.monotonic() + 0.1

    def run(mine):
        rng = random.Random(mine)
        with Client(lapwing.port) as client:
            for i in range(mine, n, connections):
                time.sleep(max(0.0, begin + i / rate - time.monotonic()))
                client.post("/rate", stages_of(rng, 0.2, 1, ("sleep",)))
                done.append(1)

    done = []
    threads = [threading.Thread(target=run, args=(i,)) for i in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(done), time.monotonic() - begin


def join(options, lapwing):
    """Measures how many exchanges are joined with their spans."""
    n, took_s = load(lapwing, options.rate, options.seconds)
    series = whole(lapwing, "/rate", n)
    sources = series["stages"]["forward"]["sources"]
    joined = sources.get("traced", 0) / n
    print(f"{n} requests in {took_s:.1f} s ({n / took_s:.0f}/s), spans exported each {EXPORT_EVERY_S * 1e3:.0f} ms: forward by source {sources}\n")
    figures = {"requests": n, "per_second": n / took_s, "forward_sources": sources, "joined": joined}
    verdicts = [
        timed(f"exchanges joined at {options.rate}/s", f"{joined:.3%}", f"≥ {JOINED:.1%}", joined >= JOINED),
        timed("rate reached", f"{n / took_s:.0f}/s", f"≥ {0.98 * options.rate:.0f}/s", n / took_s >= 0.98 * options.rate),
    ]
    return figures, verdicts


def sums(lapwing, sent):
    """Checks that the stages of each waterfall sum to its total."""
    found = lapwing.exchanges(65536)
    true = sum(sum(s["ns"] for s in e["stages"]) == e["total_ns"] for e in found)
    holds = bool(found) and true == len(found)
    return {"waterfalls": len(found), "sum_to_total": true}, [("stages sum to the total", f"{true} of {len(found)} waterfalls ({sent} requests)", "all", holds)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--requests", type=int, default=1000, help="requests by each way to report (default: 1000)")
    parser.add_argument("--rate", type=int, default=500, help="requests per second while joining (default: 500)")
    parser.add_argument("--seconds", type=float, default=20, help="seconds of joining (default: 20)")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--otlp", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.otlp)
    port = free_port()
    lapwing = Lapwing(options.lapwing, port, config=CONFIG)
    with Child([sys.executable, __file__, "--serve", port, "--otlp", lapwing.otlp_http], port), lapwing:
        rows, one = compare(options, lapwing)
        joined, two = join(options, lapwing)
        summed, three = sums(lapwing, len(MODES) * options.requests + joined["requests"])
        profiler = lapwing.get("/stats?window=all")["profiler"]
    print(f"profiler: {json.dumps(profiler)}\n")
    return finish(options, {"stages": rows, "join": joined, "sums": summed, "profiler": profiler}, one + two + three)


if __name__ == "__main__":
    sys.exit(main())
