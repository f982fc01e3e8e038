#!/usr/bin/env python3
"""What keeping a store's answers brings: features of Zipf entities read from a real Redis, directly, through Lapwing, and through Lapwing with
`downstreams[].cache`.

Redis 7 has a hash of ten features for each of 10,000 entities. A bare client on one connection asks `HMGET` for one entity at a time, drawn by
Zipf's law, and reads the whole answer. Blocks of the three ways follow one another in an order that turns, with the same entities in each round;
shown are medians over the rounds of each block's quantile, without the first round, in which nothing is kept yet. The store is near, on this
machine; and far: the same one behind a relay that holds what passes for --delay each way.

usage: python3 benches/levers/hydration_cache.py [--lapwing PATH] [--rounds N] [--calls N] [--delay MICROSECONDS] [--json FILE]
Bounds: at least 80 % hits; far away, the median with the cache at most 0.3 of that without; no answer that differs. Times are of
the binary: say how it was built. Exit code 1 if a count misses its bound, 3 if only a time does.
"""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from parts import Lapwing, arguments, finish, free_port, machine, quantile, table, timed, wait_listening  # noqa: E402

ENTITIES, FIELDS, ZIPF = 10_000, 10, 1.1
LEAST_HITS, MOST_OF_PLAIN = 0.8, 0.3
WAYS = ("direct", "through", "cache")


class Client:
    """One kept connection that asks for the features of an entity."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, entity):
        """(nanoseconds, answer)"""
        words = [b"HMGET", b"entity:%d" % entity, *(b"f%d" % field for field in range(FIELDS))]
        command = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        began, answer = time.perf_counter_ns(), bytearray()
        self.sock.sendall(command)
        while answer.count(b"\n") < 1 + 2 * FIELDS:
            answer += self.sock.recv(1 << 16)
        return time.perf_counter_ns() - began, bytes(answer)


def relay(listener, port, delay_s):
    """Passes connections on to a port, and holds what it reads for so long each way, as a network does."""

    def copy(source, sink):
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                time.sleep(delay_s)
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)

    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=copy, args=(source, sink), daemon=True).start()


@contextlib.contextmanager
def far(port, delay_us):
    """The port at which that store is reached through a network."""
    listener = socket.create_server(("127.0.0.1", 0))
    process = multiprocessing.get_context("fork").Process(target=relay, args=(listener, port, delay_us / 1e6), daemon=True)
    process.start()
    try:
        yield listener.getsockname()[1]
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def store(folder):
    """The port of a Redis with the features."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                fill(socket.create_connection(("127.0.0.1", port), 1))
                break
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"redis-server does not listen on port {port}")
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


def fill(sock):
    rng = random.Random(0)
    for entity in range(ENTITIES):
        words = [b"HSET", b"entity:%d" % entity]
        for field in range(FIELDS):
            words += [b"f%d" % field, b"%.9f" % rng.random()]
        sock.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    got = 0
    while got < ENTITIES:
        got += sock.recv(1 << 16).count(b"\n")


def measure(port, options):
    """(by way, the microseconds of each round's calls), the figures of the cache, how many answers differ."""
    ports = {"through": free_port(), "cache": free_port()}
    downstream = {"to": f"redis://127.0.0.1:{port}", "kind": "redis"}
    cache = {"mode": "on", "prefixes": ["entity:"], "ttl": "10m"}
    config = {"downstreams": [{"name": way, "listen": f"127.0.0.1:{at}", **downstream, **({"cache": cache} if way == "cache" else {})} for way, at in ports.items()]}
    weights = list(itertools.accumulate(1 / rank**ZIPF for rank in range(1, ENTITIES + 1)))
    taken, differ = {way: [] for way in WAYS}, 0
    with Lapwing(options.lapwing, 9, config=json.dumps(config)) as lapwing:
        for at in ports.values():
            wait_listening(at)
        clients = {way: Client(at) for way, at in {"direct": port, **ports}.items()}
        rng = random.Random(1)
        for number in range(options.rounds + 1):
            entities = rng.choices(range(ENTITIES), cum_weights=weights, k=options.calls)
            order, answers = WAYS[number % 3 :] + WAYS[: number % 3], {}
            for way in order:
                asked = [clients[way].ask(entity) for entity in entities]
                answers[way] = [answer for _, answer in asked]
                if number:
                    taken[way].append([ns / 1000 for ns, _ in asked])
            differ += sum(len(set(of)) > 1 for of in zip(*answers.values()))
            if number == 0:
                before = lapwing.get("/downstreams")[1]["cache"]
        after = lapwing.get("/downstreams")[1]["cache"]
    found = {name: after[name] - before[name] for name in ("hits", "misses")}
    return taken, found | {"bytes": after["bytes"], "entries": after["entries"], "saved_ns": after["saved_ns"]}, differ


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=2000, help="of each way in each round")
    parser.add_argument("--delay", type=int, default=250, help="of the way to the far store, each way, in microseconds")
    options = parser.parse_args()
    figures, verdicts, rows = {"machine": machine()}, [], []

    def one(place, port):
        """How much of the median without the cache it takes."""
        taken, found, differ = measure(port, options)
        shown = {way: {q: statistics.median(quantile(block, q) for block in blocks) for q in (0.5, 0.99)} for way, blocks in taken.items()}
        hits = found["hits"] / max(1, found["hits"] + found["misses"])
        rows.extend((f"{place}, {way}", f"{of[0.5]:.0f}", f"{of[0.99]:.0f}", f"{hits:.1%}" if way == "cache" else "") for way, of in shown.items())
        figures[place] = {"us": {way: {str(q): value for q, value in of.items()} for way, of in shown.items()}, **found, "differ": differ}
        ratio = shown["cache"][0.5] / shown["through"][0.5]
        verdicts.append((f"{place}: hits", f"{hits:.1%}", f"at least {LEAST_HITS:.0%}", hits >= LEAST_HITS))
        verdicts.append((f"{place}: answers that differ", differ, 0, differ == 0))
        return ratio

    with tempfile.TemporaryDirectory() as folder, store(folder) as port:
        near = one("near", port)
        with far(port, options.delay) as through:
            ratio = one("far", through)
    print(f"of the median without it, the cache takes {near:.2f} where the store is near")
    verdicts.append(timed("far: the median with the cache, of that without", f"{ratio:.2f}", f"at most {MOST_OF_PLAIN}", ratio <= MOST_OF_PLAIN))
    table(("store and way", "p50, us", "p99, us", "hits"), rows)
    return finish(options, figures, verdicts)


if __name__ == "__main__":
    sys.exit(main())
