#!/usr/bin/env python3
"""Runs the corpora of HTTP/1.1 before Lapwing or a peer, and prints each row that does not go as it says; `table` prints what
tests/hostile/beside.txt says of the peers, from the rows alone.

usage: .venv/bin/python tests/hostile/beside.py lapwing|nginx|envoy|table [PART OF A ROW'S NAME]
"""

import collections
import contextlib
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "faults"), str(HERE.parent)]

import corpus  # noqa: E402
import peers  # noqa: E402

PEERS = ("nginx", "envoy")


@contextlib.contextmanager
def proxy(name, up):
    """The port of a proxy before `up`."""
    if name == "lapwing":
        from sidecar import Sidecar

        with Sidecar(up.url, otlp=True) as running:
            yield running.port
    else:
        with peers.running(name, up.port) as port:
            yield port


def excused(row, name):
    """In what a peer differs from the row, by the row."""
    return row.get(name, {}).get("differs", [])


def table(rows):
    """Markdown: for each reason, in how many rows each peer differs for it."""
    counts = {key: collections.Counter() for key in corpus.REASONS}
    for row in rows:
        for name in PEERS:
            if name in row:
                counts[row[name]["why"]][name] += 1
    lines = ["| what differs, and why | " + " | ".join(f"{name}, rows" for name in PEERS) + " |", "|---|---|---|"]
    lines += [f"| {corpus.REASONS[key]} | " + " | ".join(str(of[name] or "") for name in PEERS) + " |" for key, of in counts.items()]
    total = [sum(name in row for row in rows) for name in PEERS]
    return "\n".join([*lines, f"| rows that differ, of {len(rows)} | {total[0]} | {total[1]} |"])


def main(name, part=""):
    rows = corpus.load("requests") + corpus.load("responses")
    if name == "table":
        print(table(rows))
        return 0
    wrong = 0
    with corpus.upstream(rows) as up, proxy(name, up) as port:
        for row in rows:
            if part in row["name"]:
                found = corpus.differences(row, corpus.run(row, port, up), own=name == "lapwing")
                if found != excused(row, name):
                    wrong += 1
                    print(f"{row['family']}: {row['name']}: {found}, expected {excused(row, name)}", flush=True)
    print(f"{wrong} rows differ in another way than they say")
    return 1 if wrong else 0


if __name__ == "__main__":
    given = sys.argv[1:3]
    if not given or given[0] not in ("lapwing", "table", *PEERS):
        print(__doc__)
        raise SystemExit(0 if given[:1] in (["--help"], ["-h"]) else 2)
    raise SystemExit(main(*given))
