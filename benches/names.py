#!/usr/bin/env python3
"""Names without end: the memory of a Lapwing whose every request has a path and a model that it has never seen.

Clients call an nginx that answers all of them, so that every name is proven; half of the names are paths, half are models. Twice: names may
give way after a second (`metrics.idle_after`), as over days of traffic, and with the default of an hour, where the tables are full.
Then as many requests of one name, for what histograms take that fill.
Every request must be counted, under its own name, under `other` or among what was retired.

usage: python3 benches/names.py [--lapwing PATH] [--names N] [--connections C] [--json FILE]
Needs nginx. Exit code 1 if a count misses its bound, 3 if only memory does.
"""

import argparse
import concurrent.futures
import shutil
import socket
import tempfile
import time

from parts import Lapwing, arguments, finish, resident, table
from replay import server

DEPTH = 16
STEPS = 10
GROWTH_MIB = 4
RUNS = {"give way after 1 s": ("metrics: {idle_after: 1s}\n", None), "stay for 1 h": (None, None), "one name": (None, 1)}
"""The configuration, and the one name that all requests have."""


def call(port, names, one):
    """One request for each name, several on their way at a time over one connection. Returns how many were answered with 200."""
    answered = 0
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        reader = connection.makefile("rb")
        for begin in range(names.start, names.stop, DEPTH):
            some = range(begin, min(begin + DEPTH, names.stop))
            connection.sendall(b"".join(request(name if one is None else one) for name in some))
            answered += sum(response(reader) for _ in some)
    return answered


def request(name):
    path = f"/v2/models/model-{name:x}/infer" if name % 2 else f"/path-{name:x}-of-its-own/run"
    return f"POST {path} HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{{}}".encode()


def response(reader):
    """Reads one response. Returns whether it is a 200."""
    status, length = reader.readline(), 0
    while (line := reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    reader.read(length)
    return b" 200 " in status


def counted(lapwing):
    """Requests by where they are counted."""
    stats = lapwing.get("/stats?window=all")
    shown = sum(sum(series["outcomes"].values()) for series in stats["series"])
    return {"shown": shown, "retired": sum(stats["retired"]["outcomes"].values()), "series": len(stats["series"])}


def settled(lapwing, expected, seconds=20):
    """What is counted when everything is, or the time is over: exchanges may wait for spans."""
    end = time.monotonic() + seconds
    while True:
        now = counted(lapwing)
        if now["shown"] + now["retired"] >= expected or time.monotonic() > end:
            return now
        time.sleep(0.5)


def run(options, port, config, one):
    """The resident memory after each step, and what was counted at the end."""
    with Lapwing(options.lapwing, port, config=config) as lapwing:
        share = options.names // STEPS // options.connections
        memory, answered, began = [], 0, time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(options.connections) as pool:
            for step in range(STEPS):
                first = [(step * options.connections + client) * share for client in range(options.connections)]
                answered += sum(pool.map(lambda begin: call(lapwing.port, range(begin, begin + share), one), first))
                memory.append(lapwing.rss_mib())
        seconds = time.monotonic() - began
        return {"answered": answered, "seconds": seconds, "memory_mib": memory, **settled(lapwing, answered)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--names", type=int, default=1_000_000, help="how many in each run (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=4, help="clients (default: %(default)s)")
    options = parser.parse_args()
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin") or shutil.which("nginx")
    if not nginx:
        raise SystemExit("benches/names.py needs nginx (Debian: apt-get install nginx-light)")
    with tempfile.TemporaryDirectory() as folder, server(folder, nginx) as upstream:
        runs = {name: run(options, upstream.port, *of) for name, of in RUNS.items()}
    rows, verdicts = [], []
    for name, of in runs.items():
        memory = of["memory_mib"]
        rows.append([name, of["answered"], f"{of['seconds']:.0f}", of["series"], of["shown"], of["retired"], *(f"{memory[i]:.1f}" for i in (0, 4, 9))])
        verdicts += [
            (f"{name}: requests counted", of["shown"] + of["retired"], of["answered"], of["shown"] + of["retired"] == of["answered"]),
            resident(f"{name}: MiB more at the end than halfway", round(memory[-1] - memory[4], 1), GROWTH_MIB, memory[-1] - memory[4] <= GROWTH_MIB),
        ]
    table(["names", "answered", "s", "series", "in them", "retired", "MiB at 10 %", "50 %", "100 %"], rows)
    return finish(options, {"runs": runs}, verdicts)


if __name__ == "__main__":
    raise SystemExit(main())
