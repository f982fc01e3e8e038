"""A model server whose times are known: the Open Inference Protocol in JSON. usage: scripted_server.py PORT [OPTION]...

A request takes 2 ms and 1 ms for each row (the first dimension of its input's shape) of one slot, in their order: the slot sleeps, so
that several servers share few processors without disturbing one another. With `--batch N` the slot takes up to N waiting requests
together, once that many are there or `--delay-ms` after the first: 8 ms and 0.1 ms for each row of the batch.

A request whose client has left is worked on all the same, as most model servers do. `GET /afresh/SEED` draws noise, outliers and
stalls anew from now on. With `--log FILE` it appends a line when a request has come, `came ID`, and when its work is done,
`worked ID BEGAN MS`: its header x-bench-id (or -), seconds of the machine's clock, and the work's own time without stalls. The answer has
the same header.
"""

import argparse
import asyncio
import json
import os
import queue
import random
import threading
import time

BATCH_FIXED_MS, BATCH_ROW_MS = 8.0, 0.1
ANSWER = b'{"model_name":"m","outputs":[{"name":"y","shape":[1],"datatype":"FP32","data":[0.5]}]}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-bench-id: %b\r\ncontent-length: %d\r\n\r\n"


class Stalls:
    """When the slot stands still: `length_s` long, `every_s` after the one before in the mean."""

    def __init__(self, every_s, length_s, rng):
        self.every_s, self.length_s, self.rng, self.over = every_s, length_s, rng, time.monotonic()
        self.draw()

    def draw(self):
        self.begin = self.over + self.rng.expovariate(1 / self.every_s)
        self.over = self.begin + self.length_s

    def end_of(self, now, took_s):
        """When work ends that begins now: it goes on when a stall is over."""
        end = now + took_s
        while self.length_s and self.begin <= end:
            if self.over > now:
                end += self.over - max(self.begin, now)
            self.draw()
        return end


class Slot:
    """One worker. `run(rows, name)` is a future of when the work is done."""

    def __init__(self, options):
        self.options, self.waiting, self.loop = options, queue.SimpleQueue(), asyncio.get_running_loop()
        self.file = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if options.log else None
        self.afresh(options.seed)
        threading.Thread(target=self.work, daemon=True).start()

    def afresh(self, seed):
        self.rng = random.Random(f"work {seed}")
        self.stalls = Stalls(self.options.stall_every_s, self.options.stall_ms / 1e3, random.Random(f"stalls {seed}"))

    def log(self, line):
        if self.file is not None:
            # one write each, so that who is killed leaves whole lines
            os.write(self.file, f"{line}\n".encode())

    def run(self, rows, name):
        self.log(f"came {name}")
        done = self.loop.create_future()
        self.waiting.put((rows, name, done))
        return done

    def work(self):
        while True:
            batch = [self.waiting.get()]
            if self.options.batch > 1:
                self.fill(batch)
            now, took_ms = time.monotonic(), self.takes_ms(sum(rows for rows, *_ in batch))
            time.sleep(max(0.0, self.stalls.end_of(now, took_ms / 1e3) - time.monotonic()))
            for _, name, _ in batch:
                self.log(f"worked {name} {now:.6f} {took_ms / len(batch):.3f}")
            self.loop.call_soon_threadsafe(self.end, batch)

    def takes_ms(self, rows):
        options = self.options
        took_ms = BATCH_FIXED_MS + BATCH_ROW_MS * rows if options.batch > 1 else options.fixed_ms + rows
        took_ms *= self.rng.lognormvariate(0, options.noise) if options.noise else 1.0
        return took_ms * (10 if self.rng.random() < options.outliers else 1) / options.speed

    def fill(self, batch):
        """Waits for others to take along."""
        end = time.monotonic() + self.options.delay_ms / 1e3
        while len(batch) < self.options.batch:
            try:
                batch.append(self.waiting.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                return

    @staticmethod
    def end(batch):
        for *_, done in batch:
            if not done.done():
                done.set_result(None)


def field(head, name):
    """The value of a header, or nothing."""
    at = head.find(b"\r\n" + name + b":")
    return head[at + len(name) + 3 :].split(b"\r\n", 1)[0].strip() if at >= 0 else b""


async def serve(reader, writer, slot):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            body = await reader.readexactly(int(field(head, b"content-length") or 0))
            name = field(head, b"x-bench-id") or b"-"
            if body:
                await slot.run(json.loads(body)["inputs"][0]["shape"][0], name.decode())
            elif head.startswith(b"get /afresh/"):
                slot.afresh(head.split(b" ", 2)[1].rsplit(b"/", 1)[1].decode())
            writer.write(HEAD % (name, len(ANSWER)) + ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--speed", type=float, default=1.0, help="how many times as fast it works (default: %(default)s)")
    parser.add_argument("--fixed-ms", type=float, default=2.0, help="of each request, without a batch (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=1, help="requests that it works on together (default: %(default)s)")
    parser.add_argument("--delay-ms", type=float, default=2.0, help="how long a batch waits for more (default: %(default)s)")
    parser.add_argument("--noise", type=float, default=0.0, help="sigma of a lognormal factor of each work (default: %(default)s)")
    parser.add_argument("--outliers", type=float, default=0.0, help="the share of works that take ten times as long (default: %(default)s)")
    parser.add_argument("--stall-ms", type=float, default=0.0, help="how long it stands still at times (default: %(default)s)")
    parser.add_argument("--stall-every-s", type=float, default=20.0, help="how often, in the mean (default: %(default)s)")
    parser.add_argument("--seed", default="0", help="of noise, outliers and stalls (default: %(default)s)")
    parser.add_argument("--log", help="a file that lines are appended to")
    slot = Slot(parser.parse_args())
    server = await asyncio.start_server(lambda reader, writer: serve(reader, writer, slot), "127.0.0.1", slot.options.port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
