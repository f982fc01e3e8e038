#!/usr/bin/env python3
"""A soak: all kinds of traffic, polite and rude, for as long as asked, before an upstream and a collector that die and come back.

Polite clients infer, stream, upload, call by HTTP/2, with names that come and go; rude ones leave in the middle of an upload or of an answer,
read slowly, send half a head, or garbage. Spans of their requests arrive over OTLP and go on to a collector; a shadow target gets copies;
somebody scrapes. Each whole request must be counted once; memory and file descriptors must not drift. Memory is the process's anonymous
pages: those of its file are the kernel's to load and to drop, and come in as code is first run.

usage: python3 bench/soak.py [--lapwing PATH] [--seconds S] [--rate R] [--settle S] [--json FILE]
       .venv/bin/python to speak HTTP/2 too, which needs the package h2. Exit code 1 if a bound is missed.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import socket
import sys
import threading
import time
from types import SimpleNamespace

from parts import ROOT, Child, Lapwing, arguments, finish, free_port, table

SLOPE_MIB_PER_H = 1
SCRAPES_PER_S = 0.2
LOOK_S, LIFE_S, DEATH_S = 5, 60, 5
OPENED_LATER = 48
"""Descriptors that are opened when they are first needed, and kept: for each of 8 copies at once to the target and to the upstream itself,
a connection inside the process, of two descriptors, and one to the server."""
MORE_LATER = 8
"""By so many more descriptors the last quarter may have at the most than the one that memory is judged from."""
BIG = 1 << 20
ANSWER = json.dumps({"model_name": "m", "outputs": [{"name": "y", "shape": [1, 2], "datatype": "FP32", "data": [0.5, 0.25]}]}).encode()
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()
CHAT = json.dumps({"model": "chat", "stream": True, "messages": [{"role": "user", "content": "hello"}]}).encode()
SETTINGS = """
proxy: {upstream_protocol: h1}
otlp_forward: "http://127.0.0.1:%d"
metrics: {idle_after: 30s}
shadow:
  targets: {other: "http://127.0.0.1:%d"}
  sample: 10%%
  noise: 10%%
attribution: {poll: off}
"""


# === the upstream, the collector and the shadow target: one program


async def answer(reader, writer):
    """Answers requests over one connection: tensors, a stream for a chat, a megabyte at /big."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            await drop_body(reader, head.lower())
            path = head.split(b" ", 2)[1]
            if path.endswith(b"/chat/completions"):
                await stream(writer)
            else:
                body = b"x" * BIG if path == b"/big" else ANSWER
                await asyncio.sleep(0.002)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    writer.close()


async def drop_body(reader, head):
    if b"transfer-encoding: chunked" in head:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    elif b"content-length: " in head:
        left = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        while left:
            left -= len(await reader.read(min(left, 1 << 16)) or b"x" * left)


async def stream(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for token in [*(json.dumps({"choices": [{"index": 0, "delta": {"content": f" {n}"}}]}) for n in range(20)), "[DONE]"]:
        event = f"data: {token}\n\n".encode()
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        await writer.drain()
        await asyncio.sleep(0.005)
    writer.write(b"0\r\n\r\n")


async def serve(port):
    async with await asyncio.start_server(answer, "127.0.0.1", port, limit=1 << 20) as server:
        await server.serve_forever()


class Mortal(threading.Thread):
    """Keeps a server of ours alive for a minute at a time, and dead for some seconds between."""

    def __init__(self, over):
        super().__init__()
        self.over, self.port, self.deaths = over, free_port(), 0
        self.up = threading.Event()

    def run(self):
        while not self.over.is_set():
            with Child([sys.executable, __file__, "--serve", self.port], self.port) as child:
                self.up.set()
                self.over.wait(LIFE_S)
                if not self.over.is_set():
                    child.process.kill()
                    self.deaths += 1
            if not self.over.is_set():
                time.sleep(DEATH_S)


# === the clients


class Client:
    """One kind of client: `act` does what it does once. `whole` counts the requests that Lapwing had wholly, `answers` what came back."""

    def __init__(self, lapwing, act, per_s):
        self.lapwing, self.act, self.per_s = lapwing, act, per_s
        self.whole, self.answers, self.random = 0, {}, random.Random(act.__name__)
        self.number = 0

    def run(self, over):
        while not over.wait(self.random.expovariate(self.per_s)):
            self.number += 1
            try:
                seen = self.act(self)
            except (OSError, http.client.HTTPException) as error:
                seen = type(error).__name__
            self.answers[seen] = self.answers.get(seen, 0) + 1

    def connect(self, rcvbuf=None):
        connection = socket.socket()
        if rcvbuf:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", self.lapwing.port))
        return connection

    def call(self, path, body, headers=(), **options):
        connection = http.client.HTTPConnection("127.0.0.1", self.lapwing.port, timeout=30)
        try:
            connection.request("POST", path, body, dict(headers) | {"content-type": "application/json"}, **options)
            self.whole += 1
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()


def infer(client):
    return client.call("/v2/models/m/infer", BODY)


def names(client):
    kind, number = client.number % 2, f"{client.number:x}"
    return client.call(f"/v2/models/model-{number}/infer" if kind else f"/path-{number}-of-its-own/run", BODY)


def chat(client):
    return client.call("/v1/chat/completions", CHAT)


def upload(client):
    pieces = (b"x" * 65536 for _ in range(16))
    return client.call("/v2/models/m/infer", pieces, encode_chunked=True, headers={"transfer-encoding": "chunked"})


def traced(client):
    """A request, and its span, which the collector gets too."""
    trace, span = os.urandom(16).hex(), os.urandom(8).hex()
    began = time.time_ns()
    status = client.call("/v2/models/m/infer", BODY, {"traceparent": f"00-{trace}-{span}-01"})
    spans = [{"traceId": trace, "spanId": os.urandom(8).hex(), "parentSpanId": span, "name": "forward", "kind": 1,
              "startTimeUnixNano": str(began), "endTimeUnixNano": str(time.time_ns())}]  # fmt: skip
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    connection = http.client.HTTPConnection("127.0.0.1", client.lapwing.otlp_http, timeout=30)
    try:
        connection.request("POST", "/v1/traces", body, {"content-type": "application/json"})
        connection.getresponse().read()
    finally:
        connection.close()
    return status


def http2(client):
    sys.path.append(str(ROOT / "tests/faults"))
    from http2 import Client as H2Client

    with H2Client(SimpleNamespace(port=client.lapwing.port)) as connection:
        number = connection.ask("/v2/models/m/infer", "POST", BODY, extra=[("content-type", "application/json")])
        client.whole += 1
        of = connection.streams[number]
        while not (of.ended or of.reset is not None or connection.closed):
            connection.pump()
        return int(of.fields[":status"]) if of.ended else "reset"


def slow_reader(client):
    with client.connect(rcvbuf=4096) as connection:
        connection.sendall(b"GET /big HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")
        client.whole += 1
        got = 0
        while piece := connection.recv(32768):
            got += len(piece)
            time.sleep(0.01)
        return "whole" if got > BIG else "short"


def leaves_an_answer(client):
    with client.connect() as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: m\r\nContent-Length: %d\r\n\r\n" % len(CHAT) + CHAT)
        client.whole += 1
        return "left" if connection.recv(64) else "closed"


def leaves_an_upload(client):
    with client.connect() as connection:
        connection.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: m\r\nContent-Length: %d\r\n\r\n" % BIG + b"x" * 4096)
        client.whole += 1
        time.sleep(0.05)
        return "left"


def half_a_head(client):
    with client.connect() as connection:
        connection.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHo")
        time.sleep(1)
        return "left"


def garbage(client):
    with client.connect() as connection:
        connection.sendall(client.random.choice([b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"{}\r\n\r\n", b"GET  HTTP/1.1\r\n\r\n"]))
        client.whole += 1
        return connection.recv(64).split(b"\r\n")[0].decode(errors="replace")


def scrape(client):
    for path in ("/metrics", "/stats", "/exchanges", "/shadow", "/livez"):
        connection = http.client.HTTPConnection("127.0.0.1", client.lapwing.admin, timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
        finally:
            connection.close()
        if response.status != 200:
            return f"{path} {response.status}"
    return "read"


KINDS = {infer: 0.4, names: 0.3, chat: 0.04, upload: 0.03, traced: 0.1, http2: 0.05, slow_reader: 0.01, leaves_an_answer: 0.02,
         leaves_an_upload: 0.02, half_a_head: 0.01, garbage: 0.02}  # fmt: skip
"""What share of the rate each kind has."""


# === what is looked at


def descriptors(lapwing):
    return len(os.listdir(f"/proc/{lapwing.pid}/fd"))


def counted(lapwing):
    """Requests counted, of shown and of retired series, by outcome; and those that were served without being profiled."""
    stats = lapwing.get("/stats?window=all")
    outcomes = {}
    for of in [*(series["outcomes"] for series in stats["series"]), stats["retired"]["outcomes"]]:
        for name, count in of.items():
            outcomes[name] = outcomes.get(name, 0) + count
    return outcomes


def slope_per_h(samples):
    """The least-squares slope of (seconds, MiB) in MiB an hour, and its standard error if the residuals were independent."""
    n = len(samples)
    if n < 3:
        return 0.0, float("inf")  # nothing is known
    mean_t, mean_m = (sum(of) / n for of in zip(*samples))
    spread = sum((t - mean_t) ** 2 for t, _ in samples)
    slope = sum((t - mean_t) * (m - mean_m) for t, m in samples) / spread
    residual = sum((m - mean_m - slope * (t - mean_t)) ** 2 for t, m in samples) / (n - 2)
    return slope * 3600, (residual / spread) ** 0.5 * 3600


def watch(options, lapwing, clients, mortals):
    """Samples memory and descriptors until the time is over."""
    samples, began, next_line = [], time.monotonic(), 0
    while (now := time.monotonic() - began) < options.seconds:
        samples.append((now, lapwing.rss_mib("RssAnon"), descriptors(lapwing)))
        if now >= next_line:
            next_line += 60
            sent, deaths = sum(client.whole for client in clients), sum(mortal.deaths for mortal in mortals)
            print(f"minute {now / 60:4.0f}: {samples[-1][1]:6.1f} MiB, {samples[-1][2]:3} descriptors, {sent} requests, {deaths} deaths", flush=True)
        time.sleep(LOOK_S)
    return samples


def settled(lapwing, expected, read, seconds=60):
    """Reads until what is read is as expected or the time is over."""
    end = time.monotonic() + seconds
    while True:
        seen = read(lapwing)
        if seen == expected or time.monotonic() > end:
            return seen
        time.sleep(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--seconds", type=float, default=7200, help="how long (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=100, help="requests a second of all kinds (default: %(default)s)")
    parser.add_argument("--settle", type=float, help="seconds before memory is judged (default: a quarter of the run)")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
        return 0
    over, dying = threading.Event(), threading.Event()
    upstream, collector, shadow = mortals = [Mortal(dying) for _ in range(3)]
    for mortal in mortals:
        mortal.start()
        mortal.up.wait(20)
    try:
        with Lapwing(options.lapwing, upstream.port, config=SETTINGS % (collector.port, shadow.port)) as lapwing:
            return soak(options, lapwing, mortals, over)
    finally:
        over.set()
        dying.set()


def soak(options, lapwing, mortals, over):
    kinds = dict(KINDS)
    try:
        import h2  # noqa: F401
    except ImportError:
        print("without the package h2, nothing is sent over HTTP/2")
        del kinds[http2]
    at_rest = descriptors(lapwing)
    clients = [Client(lapwing, act, share * options.rate) for act, share in kinds.items()]
    reader = Client(lapwing, scrape, SCRAPES_PER_S)
    threads = [threading.Thread(target=client.run, args=(over,)) for client in [*clients, reader]]
    for thread in threads:
        thread.start()
    try:
        samples = watch(options, lapwing, clients, mortals)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    sent = sum(client.whole for client in clients)
    total = settled(lapwing, sent, lambda of: sum(counted(of).values()))
    # the upstream's idle connections are closed, and the spans' and the scrapers'
    rest = settled(lapwing, True, lambda of: descriptors(of) <= at_rest + OPENED_LATER) and descriptors(lapwing)
    settle = options.settle if options.settle is not None else options.seconds / 4
    slope, error = slope_per_h([(t, mib) for t, mib, _ in samples if t >= settle])
    rows = [[client.act.__name__, client.whole, ", ".join(f"{n} × {of}" for of, n in sorted(client.answers.items(), key=str))]
            for client in [*clients, reader]]  # fmt: skip
    table(["client", "whole requests", "what it saw"], rows)
    print(f"counted by outcome: {counted(lapwing)}; deaths: {[mortal.deaths for mortal in mortals]}\n")
    judged = [count for t, _, count in samples if t >= settle] or [0]
    quarter = max(1, len(judged) // 4)
    more = max(judged[-quarter:]) - max(judged[:quarter])
    # in a short run, noise alone has a slope
    bound = SLOPE_MIB_PER_H + 3 * error
    lapwing.log.seek(0)
    panics = lapwing.log.read().count("panicked")
    verdicts = [
        ("requests sent that were not counted once", sent - total, 0, sent == total),
        (f"anonymous memory's slope, MiB an hour, after {settle:.0f} s (standard error {error:.2f})", round(slope, 2), f"{bound:.2f}", slope <= bound),
        ("descriptors after all have left, above those at the start", (rest or descriptors(lapwing)) - at_rest, OPENED_LATER, bool(rest)),
        ("descriptors at the most, the last quarter above the first", more, MORE_LATER, more <= MORE_LATER),
        ("panics", panics, 0, panics == 0),
        ("the process lives", lapwing.process.poll() is None, True, lapwing.process.poll() is None),
    ]
    figures = {"samples": samples, "outcomes": counted(lapwing), "clients": {row[0]: row[1:] for row in rows}}
    return finish(options, figures, verdicts)


if __name__ == "__main__":
    raise SystemExit(main())
