"""Load over HTTP/1.1 with a clock of its own: open loop by a plan of arrivals, or closed loop. Only the standard library.

An open loop times each request from when it was due, not from when it was sent: what a late client or a full server delays counts.
"""

import asyncio
import gc
import math
import os
import pathlib
import random
import sys
import threading
import time
import urllib.request
from typing import NamedTuple

IDLE_S = 2.0
"""How long a connection is kept; uvicorn closes one after 5 s."""
PATIENCE_S = 90.0
"""How long answers are waited for after the last request was sent."""


class Planned(NamedTuple):
    due: float
    """Seconds since the start."""
    units: int
    is_measured: bool
    """Those before are to bring queues and limits to where they stay."""


class Answer(NamedTuple):
    due: float
    units: int
    late_ms: float
    """From due to sent."""
    took_ms: float
    """From due to the last byte; of a closed loop from when it was sent."""
    status: int
    """0 if the connection broke."""
    why: str
    """Who refused: `x-lapwing-error`, or nothing."""
    is_false: bool = False
    """Refused, though it would have met its budget, as `overload.refused_falsely` finds."""
    body: bytes = b""
    """Of an open loop."""
    found: tuple = ()
    """What a case found out about it beside."""
    head: bytes = b""
    """Of an open loop, in small letters."""


def plan(seed, seconds, settle, load, mix, cost_ms, slots=1.0):
    """Poisson arrivals whose work keeps `slots` busy for `load` of the time, exactly: a random number of requests at random times."""
    rng, planned = random.Random(seed), []
    for begin, length, is_measured in ((0.0, settle, False), (settle, seconds, True)):
        units, left_ms = [], 1e3 * load * slots * length
        while left_ms > 0:
            units.append(mix(rng))
            left_ms -= cost_ms(units[-1])
        dues = sorted(rng.uniform(begin, begin + length) for _ in units)
        planned += [Planned(due, of, is_measured) for due, of in zip(dues, units)]
    return planned


class Connection(asyncio.Protocol):
    """One request at a time on a connection to a port."""

    def __init__(self, idle):
        self.idle, self.answered, self.read, self.used = idle, None, bytearray(), False

    def connection_made(self, transport):
        self.transport = transport

    def ask(self, message):
        """A future of (status, head, body), or of nothing if the connection ends before."""
        self.answered = asyncio.get_running_loop().create_future()
        self.read.clear()
        self.transport.write(message)
        return self.answered

    def data_received(self, data):
        self.read += data
        end = self.read.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.read[:end].lower()
        at = head.find(b"\r\ncontent-length:")
        if at < 0:
            raise SystemExit(f"an answer without content-length is not read here: {bytes(head)!r}")
        whole = end + 4 + int(head[at + 17 :].split(b"\r\n", 1)[0])
        if len(self.read) < whole:
            return
        answered, self.answered, self.used = self.answered, None, True
        if b"\r\nconnection: close" in head:
            self.transport.close()
        else:
            self.idle.append((time.perf_counter(), self))
        if answered and not answered.done():
            answered.set_result((int(head[9:12]), bytes(head), bytes(self.read[end + 4 : whole])))

    def connection_lost(self, _):
        if self.answered and not self.answered.done():
            self.answered.set_result(None)


class Client:
    """Connections to one port, as many as requests are open."""

    def __init__(self, port):
        self.port, self.idle = port, []

    async def ask(self, message):
        """(status, head, body); once more, if a kept connection had just ended. Status 0 if none came."""
        while True:
            connection = await self.connection()
            if connection is None:
                return 0, b"", b""
            was_used = connection.used
            answer = await connection.ask(message)
            if answer:
                return answer
            if not was_used:
                return 0, b"", b""

    async def connection(self):
        while self.idle:
            since, connection = self.idle.pop()
            if time.perf_counter() - since < IDLE_S and not connection.transport.is_closing():
                return connection
            connection.transport.close()
        try:
            _, connection = await asyncio.get_running_loop().create_connection(lambda: Connection(self.idle), "127.0.0.1", self.port)
        except OSError:
            return None
        return connection

    def close(self):
        for _, connection in self.idle:
            connection.transport.close()


def message(path, body, headers=()):
    """The bytes of a POST of JSON."""
    lines = [f"POST {path} HTTP/1.1", "host: server", "content-type: application/json", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def get(port, path):
    """Asks for a path; nothing but whether that worked is wanted."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
        response.read()


def why(head):
    at = head.find(b"\r\nx-lapwing-error:")
    return head[at + 18 :].split(b"\r\n", 1)[0].strip().decode() if at >= 0 else ""


def precisely(go):
    """Runs the coroutine with what makes a clock in Python late taken away: garbage collection, long turns of a thread."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(2e-4)
    gc.collect()
    gc.disable()
    try:
        return asyncio.run(go)
    finally:
        gc.enable()
        sys.setswitchinterval(before)


def open_loop(port, planned, message_of):
    """An Answer for each planned request, in their order; of those that never came after an infinite time. `message_of` is asked for the
    units of each, in that order too."""
    return precisely(_open_loop(port, planned, message_of))


async def _open_loop(port, planned, message_of):
    loop, client, answers, over = asyncio.get_running_loop(), Client(port), [None] * len(planned), asyncio.Event()
    left, tasks, start = len(planned), set(), time.perf_counter() + 0.1

    async def one(number):
        nonlocal left
        of = planned[number]
        late_ms = 1e3 * (time.perf_counter() - start - of.due)
        status, head, body = await client.ask(message_of[of.units])
        took_ms = 1e3 * (time.perf_counter() - start - of.due)
        answers[number] = Answer(of.due, of.units, late_ms, took_ms, status, why(head), body=body, head=head)
        left -= 1
        if not left:
            over.set()

    def begin(number):
        task = loop.create_task(one(number))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def pace():
        # a thread: the event loop's timers are a millisecond late
        for number, of in enumerate(planned):
            if (wait := start + of.due - time.perf_counter()) > 0:
                time.sleep(wait)
            loop.call_soon_threadsafe(begin, number)

    pacer = threading.Thread(target=pace, daemon=True)
    pacer.start()
    try:
        await asyncio.wait_for(over.wait(), planned[-1].due + PATIENCE_S)
    except TimeoutError:
        for task in tasks:
            task.cancel()
    client.close()
    return [one or Answer(of.due, of.units, 0.0, math.inf, 0, "") for of, one in zip(planned, answers)]


def closed_loop(port, clients, seconds, units_of, message_of):
    """Answers of so many clients that each send the next request at once; `units_of()` draws its work."""
    return precisely(_closed_loop(port, clients, seconds, units_of, message_of))


async def _closed_loop(port, clients, seconds, units_of, message_of):
    client, answers, start = Client(port), [], time.perf_counter()

    async def one():
        while (begun := time.perf_counter() - start) < seconds:
            units = units_of()
            status, head, _ = await client.ask(message_of[units])
            took_ms = 1e3 * (time.perf_counter() - start - begun)
            answers.append(Answer(begun, units, 0.0, took_ms, status, why(head)))
            if status != 200:
                await asyncio.sleep(0.01)  # as a client that is refused does

    await asyncio.gather(*(one() for _ in range(clients)))
    client.close()
    return answers


class Others:
    """The share of the machine that processes took that are no children of this one, while its context is entered."""

    def __enter__(self):
        self.at = self.read()
        return self

    def __exit__(self, *_):
        now = self.read()
        total, busy, own = (after - before for after, before in zip(now, self.at))
        self.share = max(0.0, (busy - own) / total) if total else 0.0

    @staticmethod
    def read():
        """(all, busy, by this process and its children), in ticks since the start of the machine."""
        fields = [int(one) for one in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        of = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                text = stat.read_text()
            except OSError:
                continue  # it has just ended
            parts = text.rsplit(")", 1)[1].split()
            of[int(stat.parent.name)] = (int(parts[1]), int(parts[11]) + int(parts[12]))

        def is_own(pid):
            while pid in of and pid != os.getpid():
                pid = of[pid][0]
            return pid == os.getpid()

        return sum(fields), sum(fields) - fields[3] - fields[4], sum(ticks for pid, (_, ticks) in of.items() if is_own(pid))
