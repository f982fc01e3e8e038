#!/usr/bin/env python3
"""A soak: all kinds of traffic, polite and rude, for as long as asked, before an upstream and a collector that die and come back.

Polite clients infer, stream, upload, call by HTTP/2, with names that come and go; rude ones leave in the middle of an upload or of an answer,
read slowly, send half a head, or garbage. Spans of their requests arrive over OTLP and go on to a collector; a shadow target gets copies;
somebody scrapes. Each whole request must be counted once; memory and file descriptors must not drift. Memory is the process's anonymous
pages: those of its file are the kernel's to load and to drop, and come in as code is first run. It is judged at rests, when every client
has paused, and the allocator gives back at once what is freed: what requests hold while they pass, and how long an allocator keeps pages for
the next ones, depends on how busy the machine is.

usage: python3 benches/soak.py [--lapwing PATH] [--seconds S] [--rate R] [--settle S] [--rest S] [--json FILE]
       .venv/bin/python to speak HTTP/2 too, which needs the package h2. Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import threading
import time

from parts import Child, Lapwing, arguments, finish, free_port, resident, table, timed
from soak_clients import BIG, KINDS, Client, http2, scrape

SLOPE_MIB_PER_H = 1
LONG_S = 7200
"""So long a run has no allowance for noise."""
SCRAPES_PER_S = 0.2
LOOK_S, LIFE_S, DEATH_S = 5, 60, 5
REST_S, CALM_S = 40, 8
"""For so long at the most it is waited for the clients' last requests, and after them for what Lapwing gives back late."""
TOO_DEAD_S = 60
"""A server that is dead for so long does not come back: the soak ends, because it would go on before nothing."""
OPENED_LATER = 48
"""Descriptors that are opened when they are first needed, and kept: for each of 8 copies at once to the target and to the upstream itself,
a connection inside the process, of two descriptors, and one to the server."""
MORE_LATER = 8
"""By so many more descriptors the last quarter may have at the most than the one that memory is judged from."""
ANSWER = json.dumps({"model_name": "m", "outputs": [{"name": "y", "shape": [1, 2], "datatype": "FP32", "data": [0.5, 0.25]}]}).encode()
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
        self.over, self.port, self.deaths, self.is_dead_since = over, free_port(), 0, None
        self.up = threading.Event()

    def run(self):
        while not self.over.is_set():
            try:
                self.live()
            except SystemExit as reason:  # its port was taken while it was dead: by whoever asked the system for a free one
                print(f"server on port {self.port}: {str(reason).splitlines()[0]}", flush=True)
            self.is_dead_since = self.is_dead_since or time.monotonic()
            self.over.wait(DEATH_S)

    def live(self):
        with Child([sys.executable, __file__, "--serve", self.port], self.port) as child:
            self.is_dead_since = None
            self.up.set()
            self.over.wait(LIFE_S)
            if not self.over.is_set():
                child.process.kill()
                self.deaths += 1

    def dead_s(self):
        """For how many seconds it has been dead."""
        return time.monotonic() - self.is_dead_since if self.is_dead_since else 0


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


def rest(lapwing, clients, going):
    """Memory in MiB while no client has a request; None if they do not come to rest."""
    going.clear()
    try:
        end = time.monotonic() + REST_S
        while any(client.is_busy for client in clients):
            if time.monotonic() > end:
                return None
            time.sleep(0.1)
        time.sleep(CALM_S)
        return lapwing.rss_mib("RssAnon")
    finally:
        going.set()


def watch(options, lapwing, clients, mortals, going):
    """Samples memory and descriptors until the time is over, and memory at rests."""
    samples, rests, began, next_line, next_rest = [], [], time.monotonic(), 0, options.rest
    while (now := time.monotonic() - began) < options.seconds and max(mortal.dead_s() for mortal in mortals) < TOO_DEAD_S:
        if now >= next_rest:
            next_rest += options.rest
            if mib := rest(lapwing, clients, going):
                rests.append((now, mib))
                print(f"minute {now / 60:4.0f}: {mib:6.1f} MiB at rest", flush=True)
            continue
        samples.append((now, lapwing.rss_mib("RssAnon"), descriptors(lapwing)))
        if now >= next_line:
            next_line += 60
            sent, deaths = sum(client.whole for client in clients), sum(mortal.deaths for mortal in mortals)
            print(f"minute {now / 60:4.0f}: {samples[-1][1]:6.1f} MiB, {samples[-1][2]:3} descriptors, {sent} requests, {deaths} deaths", flush=True)
        time.sleep(LOOK_S)
    return samples, rests


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
    parser.add_argument("--rest", type=float, default=300, help="seconds from rest to rest (default: %(default)s)")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
        return 0
    os.environ["_RJEM_MALLOC_CONF"] = "dirty_decay_ms:0"  # freed pages go back at once
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
    going = threading.Event()
    going.set()
    threads = [threading.Thread(target=client.run, args=(over, going)) for client in [*clients, reader]]
    for thread in threads:
        thread.start()
    try:
        samples, rests = watch(options, lapwing, [*clients, reader], mortals, going)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    sent = sum(client.whole for client in clients)
    total = settled(lapwing, sent, lambda of: sum(counted(of).values()))
    # the upstream's idle connections are closed, and the spans' and the scrapers'
    left = settled(lapwing, True, lambda of: descriptors(of) <= at_rest + OPENED_LATER) and descriptors(lapwing)
    settle = options.settle if options.settle is not None else options.seconds / 4
    slope, error = slope_per_h([(t, mib) for t, mib in rests if t >= settle])
    rows = [[client.act.__name__, client.whole, ", ".join(f"{n} × {of}" for of, n in sorted(client.answers.items(), key=str))]
            for client in [*clients, reader]]  # fmt: skip
    table(["client", "whole requests", "what it saw"], rows)
    least = {}
    for t, mib, _ in samples:
        least[t // 600] = min(mib, least.get(t // 600, mib))
    print("least memory of each ten minutes, MiB:", ", ".join(f"{mib:.1f}" for mib in least.values()))
    print(f"counted by outcome: {counted(lapwing)}; deaths: {[mortal.deaths for mortal in mortals]}\n")
    judged = [count for t, _, count in samples if t >= settle] or [0]
    quarter = max(1, len(judged) // 4)
    more = max(judged[-quarter:]) - max(judged[:quarter])
    lasted = samples[-1][0] if samples else 0
    # in a run of less than two hours, noise alone has a slope
    bound = SLOPE_MIB_PER_H + (0 if options.seconds >= LONG_S else 3 * error)
    lapwing.log.seek(0)
    panics = lapwing.log.read().count("panicked")
    verdicts = [
        ("requests sent that were not counted once", sent - total, 0, sent == total),
        resident(f"anonymous memory's slope at rests, MiB an hour, after {settle:.0f} s (standard error {error:.2f})", round(slope, 2), f"{bound:.2f}", slope <= bound),
        ("descriptors after all have left, above those at the start", (left or descriptors(lapwing)) - at_rest, OPENED_LATER, bool(left)),
        ("descriptors at the most, the last quarter above the first", more, MORE_LATER, more <= MORE_LATER),
        timed("seconds that it lasted with servers that come back", round(lasted), f"{options.seconds:.0f}", lasted > options.seconds - options.rest - REST_S - LOOK_S),
        ("panics", panics, 0, panics == 0),
        ("kinds of clients that did nothing", idle := sum(not client.answers for client in clients), 0, idle == 0),
        ("the process lives", lapwing.process.poll() is None, True, lapwing.process.poll() is None),
    ]
    figures = {"samples": samples, "rests": rests, "outcomes": counted(lapwing), "clients": {row[0]: row[1:] for row in rows}}
    return finish(options, figures, verdicts)


if __name__ == "__main__":
    raise SystemExit(main())
