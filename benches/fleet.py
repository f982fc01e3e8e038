#!/usr/bin/env python3
"""How many time series and bytes one pod gives a scrape, by routes and models, in each format: what a fleet costs its Prometheus.

An upstream reports five stages, which it takes (queue exponential, the others lognormal, some milliseconds in all). Inference requests of
1 to 64 rows go to each model on each route, --requests to each. Then /metrics is read once in each format. A time series is what
Prometheus stores: each line of the text, and of the protobuf each counter, gauge and native histogram.

usage: python3 benches/fleet.py [--lapwing PATH] [--grid RxM ...] [--requests N] [--json FILE]
Exit code 1 if the counts do not grow in proportion to the series (route and model), to 5 %.
"""

import argparse
import asyncio
import http.client
import json
import random
import sys
import threading

from parts import Child, Lapwing, arguments, finish, free_port, table
from scrape import ACCEPT, scrape

FORMATS = (
    ("protobuf, native only", ACCEPT, "off"),
    ("protobuf, native and classic", ACCEPT, "on"),
    ("OpenMetrics text", "application/openmetrics-text", "on"),
    ("text 0.0.4", "text/plain", "on"),
)
CONFIG = "metrics: {{classic_buckets: {classic}}}\nattribution: {{expect_spans: never, poll: off}}\n"
ROWS = (1, 2, 4, 8, 16, 64)
CLIENTS = 8
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nServer-Timing: %s\r\n\r\n{}"


# === the upstream, in a separate process: fleet.py --serve PORT ===


async def answer(reader, writer):
    """One connection: reads requests with a content length, takes as long as it says."""
    random_ = random.Random(writer.get_extra_info("peername")[1])
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            (length,) = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            rows = (await reader.readexactly(length)).count(b",") + 1
            stages = {
                "hydration": random_.lognormvariate(-1.5, 0.4),
                "preprocessing": random_.lognormvariate(-2, 0.3),
                "queue": random_.expovariate(1),
                "forward": random_.lognormvariate(0.5, 0.3) + rows * 0.05,
                "postprocessing": random_.lognormvariate(-2, 0.3),
            }
            await asyncio.sleep(sum(stages.values()) / 1e3)
            writer.write(HEAD % ", ".join(f"{name};dur={ms:.4f}" for name, ms in stages.items()).encode())
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve(port):
    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


# === the load ===


def path(route, model):
    """A path without digits before the model, which would be taken for an id."""
    prefix = "".join(chr(ord("a") + route // 26**place % 26) for place in range(2))
    return f"/{prefix}/v2/models/m{model}/infer"


def body(rows):
    return json.dumps({"inputs": [{"name": "x", "shape": [rows, 1], "datatype": "INT64", "data": list(range(rows))}]}, separators=(",", ":"))


def load(lapwing, grid, requests):
    routes, models = grid
    paths = [path(route, model) for route in range(routes) for model in range(models)]
    faults = []

    def send(first):
        connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
        for n in range(first, requests, CLIENTS):
            for one in paths:
                connection.request("POST", one, body(ROWS[n % len(ROWS)]), {"content-type": "application/json"})
                response = connection.getresponse()
                response.read()
                if response.status != 200:
                    faults.append(response.status)
        connection.close()

    threads = [threading.Thread(target=send, args=(first,)) for first in range(CLIENTS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    counted = lapwing.await_count(requests * len(paths))
    named = {(one["route"], one["model"]) for one in lapwing.get("/stats?window=all")["series"]}
    if faults or counted != requests * len(paths):
        raise SystemExit(f"{counted} requests are counted instead of {requests * len(paths)}; answers: {faults[:5]}")
    return len(named)


def measured(lapwing_binary, grid, requests):
    """Time series and bytes by format, and how many series Lapwing itself has: those of early requests to an unproven name are `other`."""
    found, upstream_port = {}, free_port()
    with Child([sys.executable, __file__, "--serve", upstream_port], upstream_port):
        for classic in ("on", "off"):
            with Lapwing(lapwing_binary, upstream_port, config=CONFIG.format(classic=classic)) as lapwing:
                found["lapwing_series"] = load(lapwing, grid, requests)
                for name, accept, wanted in FORMATS:
                    if classic == wanted:
                        one = scrape(lapwing, accept, 1)
                        found[name] = {"series": one["series"], "bytes": one["bytes"]}
    return found


def main():
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(int(sys.argv[2])))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--grid", nargs="+", default=["1x1", "1x10", "10x1", "10x10"], help="routes x models")
    parser.add_argument("--requests", type=int, default=120, help="requests to each model on each route")
    options = parser.parse_args()

    found = {text: measured(options.lapwing, tuple(map(int, text.split("x"))), options.requests) for text in options.grid}
    rows = []
    for grid, of in found.items():
        for name, _, _ in FORMATS:
            rows.append((f"{grid}, {name}", of["lapwing_series"], f"{of[name]['series']:,}", f"{of[name]['bytes'] / 1024:,.0f} KiB"))
    table(("routes x models, format", "of Lapwing", "time series", "bytes"), rows)
    verdicts, sizes = [], sorted(found.values(), key=lambda of: of["lapwing_series"])
    if len(sizes) > 2:
        least, middle, most = sizes[0], sizes[len(sizes) // 2], sizes[-1]
        for name, _, _ in FORMATS:
            each = (most[name]["series"] - least[name]["series"]) / (most["lapwing_series"] - least["lapwing_series"])
            expected = least[name]["series"] + each * (middle["lapwing_series"] - least["lapwing_series"])
            holds = abs(middle[name]["series"] - expected) <= 0.05 * expected
            what = f"{name}: each further series of Lapwing is {each:.1f} time series; the grid between"
            verdicts.append((what, middle[name]["series"], f"{expected:.0f} to 5 %", holds))
    return finish(options, {"grids": found}, verdicts)


if __name__ == "__main__":
    sys.exit(main())
