"""Case redis of cache.py: the second level, a real Redis, when it is well and when it is not."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time

import caches
import proxies
from caches import Client, Rounds, Upstream, is_hit, is_own, message, prove, within
from parts import Child, free_port, quantile, timed

BLOCK = 64
"""Hits in a turn, each of a question of its own."""
STORED = 1280
"""Bytes of the value of the bare round trip: an answer of 1 KiB with its head."""
MOST_BEYOND_US, MOST_P99_MS = 60.0, 1.0
UPSTREAM_MS = 10
TROUBLED, FIRST = 1500, 500
"""Questions during each trouble, and those of them in which it may cost something."""
RESTART_S = 1.0
ALONE = {"mode": "on", "ttl": "1h", "verify": "0%"}


class Store(Child):
    """Redis, without files."""

    def __init__(self, *more, port=None):
        port = port or free_port()
        super().__init__([proxies.found("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", *more], port)


class Resp:
    """One kept connection to Redis, as bare as it can be."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, *words, size=0):
        """(nanoseconds, answer): until its first line and so many bytes more are there."""
        sent = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        began, got = time.perf_counter_ns(), b""
        self.socket.sendall(sent)
        while b"\r\n" not in got or len(got) < size:
            got += self.socket.recv(1 << 18)
        return time.perf_counter_ns() - began, got

    def close(self):
        self.socket.close()


def with_redis(port, secret):
    return {**ALONE, "redis": {"url": f"redis://127.0.0.1:{port}", "secret_file": str(secret)}}


def redis(run):
    with tempfile.TemporaryDirectory() as folder:
        secret = pathlib.Path(folder) / "secret"
        secret.touch(0o600)
        secret.write_bytes(os.urandom(32))
        understood, said = proxies.knows(run.options.lapwing, f"cache: {json.dumps(with_redis(1, secret))}")
        if not understood:
            print(f"\nredis: not run, it needs `cache.redis`: {said}\n", flush=True)
            run.verdicts.append(("redis: cache.redis", "not there", "needed", None))
            return
        second_hits(run, secret)
        troubles(run, secret)


def second_hits(run, secret):
    """Two proxies share a Redis: what the first has stored, the second finds there, once each; then it has it itself."""
    options, number = run.options, 0
    with contextlib.ExitStack() as stack:
        upstream, store = stack.enter_context(Upstream()), stack.enter_context(Store())
        first, second = (stack.enter_context(caches.lapwing(options, upstream.port, with_redis(store.port, secret))) for _ in range(2))
        for at, one in enumerate((first, second)):
            prove(one, first=1_000_000 * (at + 1))
        writer, reader, bare = Client(first.port), Client(second.port), Resp(store.port)
        bare.ask(b"SET", b"bench", b"x" * STORED)

        def turn(_):
            nonlocal number
            sent = [message(number + at, 1024) for at in range(BLOCK)]
            number += BLOCK
            for one in sent:
                writer.ask(one)
            time.sleep(0.1)  # it writes behind
            upstream.afresh()
            second_level = [reader.ask(one) for one in sent]
            first_level = [reader.ask(one) for one in sent]
            trips = [bare.ask(b"GET", b"bench", size=STORED + 9)[0] for _ in sent]
            hits = sum(is_hit(head) and is_own(one, got) for one, (_, head, got) in zip(sent, second_level))
            return {
                "second": statistics.median(ns for ns, *_ in second_level) / 1e3,
                "first": statistics.median(ns for ns, *_ in first_level) / 1e3,
                "bare": statistics.median(trips) / 1e3,
                "asked": upstream.counts()["questions"],
                "missed": BLOCK - hits,
            }

        turns = Rounds(options, options.rounds)
        rounds = [one["redis"] for one in turns.run(["redis"], turn)]
        bare.close()
    beyond = [one["second"] - one["first"] - one["bare"] for one in rounds]
    missed = sum(one["missed"] for one in rounds)
    rows = [[name, within([one[key] for one in rounds], "{:.1f}")] for name, key in (("first level", "first"), ("second level", "second"), ("bare GET of Redis", "bare"))]
    rows.append(["second level, less the first and the bare GET", within(beyond, "{:.1f}")])
    run.table("Hits in Redis, one connection, medians of blocks", ["", "us"], rows, turns.said())
    run.verdicts.append((f"redis: of {BLOCK * len(rounds)} questions that the other proxy had stored, not found", missed, "at most 1 %", missed <= 0.01 * BLOCK * len(rounds)))
    run.verdicts.append(timed("redis: us of a hit beyond the round trip", within(beyond, "{:.1f}"), f"at most {MOST_BEYOND_US:.0f}", statistics.median(beyond) <= MOST_BEYOND_US))


@contextlib.contextmanager
def well(store):
    yield


@contextlib.contextmanager
def dead(store):
    store.process.kill()
    store.process.wait()
    yield


@contextlib.contextmanager
def stopped(store):
    store.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        store.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def full(store):
    client = Resp(store.port)
    client.ask(b"CONFIG", b"SET", b"maxmemory-policy", b"noeviction")
    client.ask(b"CONFIG", b"SET", b"maxmemory", b"100kb")
    said = client.ask(b"SET", b"more", b"x")[1]
    if not said.startswith(b"-OOM"):
        raise SystemExit(f"this Redis is not full: {said!r}")
    yield
    client.close()


@contextlib.contextmanager
def restarting(store):
    """Killed and started again, all the time."""
    over = threading.Event()

    def go():
        while not over.wait(RESTART_S / 2):
            store.process.kill()
            store.process.wait()
            over.wait(RESTART_S / 2)
            store.process = subprocess.Popen(store.command, stdin=subprocess.DEVNULL, stdout=store.log, stderr=store.log)

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def troubles(run, secret):
    """New questions, in turn to Lapwing without a second level and with one that is in trouble."""
    rows = []
    for trouble in (well, dead, stopped, full, restarting):
        took, number = {"without": [], "with": []}, 0
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            upstream, store = stack.enter_context(Upstream("--ms", UPSTREAM_MS)), stack.enter_context(Store("--dir", folder))
            settings = {"without": ALONE, "with": with_redis(store.port, secret)}
            lapwings = {name: stack.enter_context(caches.lapwing(run.options, upstream.port, of)) for name, of in settings.items()}
            for one in lapwings.values():
                prove(one)
            clients = {name: Client(one.port) for name, one in lapwings.items()}

            def ask(name):
                nonlocal number
                number += 1
                ns, _, got = clients[name].ask(sent := message(number, 1024))
                if not is_own(sent, got):
                    raise SystemExit(f"another's answer: {got[:300]!r}")
                return ns / 1e6

            for _ in range(200):  # what the forward takes gets known
                for name in clients:
                    ask(name)
            time.sleep(1)
            with trouble(store):
                for _ in range(TROUBLED):
                    for name in clients:
                        took[name].append(ask(name))
            said = lapwings["with"].get("/cache").get("redis")
        for part, keep in (("first", slice(0, FIRST)), ("then", slice(FIRST, None))):
            of = {name: [quantile(ms[keep], q) for q in (0.5, 0.99)] for name, ms in took.items()}
            more = [after - before for after, before in zip(of["with"], of["without"])]
            rows.append([trouble.__name__, part, *(f"{ms:.2f}" for ms in (*of["without"], *of["with"])), *(f"{ms:+.2f}" for ms in more)])
            run.verdicts.append(timed(f"redis {trouble.__name__}, {part}: ms more at p99", f"{more[1]:+.2f}", f"at most {MOST_P99_MS}", more[1] <= MOST_P99_MS))
        print(f"redis {trouble.__name__}: /cache says {json.dumps(said)[:500]}", flush=True)
    header = ["Redis", "questions", "p50 without, ms", "p99", "p50 with, ms", "p99", "p50 more", "p99 more"]
    run.table(f"Redis in trouble: {TROUBLED} new questions each, upstream of {UPSTREAM_MS} ms; first {FIRST}, then the others", header, rows)
