"""A model server whose times are known: the Open Inference Protocol in JSON. usage: scripted_server.py PORT [OPTION]...

A request takes 2 ms and 1 ms for each row (the first dimension of its input's shape) of one slot, in their order: the slot sleeps, so
that several servers share few processors without disturbing one another. With `--batch N` the slot takes up to N waiting requests
together, once that many are there or `--delay-ms` after the first: 8 ms and 0.1 ms for each row of the batch.
"""

import argparse
import asyncio
import json
import queue
import threading
import time

FIXED_MS, ROW_MS = 2.0, 1.0
BATCH_FIXED_MS, BATCH_ROW_MS = 8.0, 0.1
ANSWER = b'{"model_name":"m","outputs":[{"name":"y","shape":[1],"datatype":"FP32","data":[0.5]}]}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


class Slot:
    """One worker. `run(rows)` is a future of when the work is done."""

    def __init__(self, options):
        self.options, self.waiting, self.loop = options, queue.SimpleQueue(), asyncio.get_running_loop()
        threading.Thread(target=self.work, daemon=True).start()

    def run(self, rows):
        done = self.loop.create_future()
        self.waiting.put((rows, done))
        return done

    def work(self):
        while True:
            batch = [self.waiting.get()]
            if self.options.batch > 1:
                self.fill(batch)
            rows = sum(rows for rows, _ in batch)
            took_ms = BATCH_FIXED_MS + BATCH_ROW_MS * rows if self.options.batch > 1 else FIXED_MS + ROW_MS * rows
            time.sleep(took_ms / 1e3 / self.options.speed)
            self.loop.call_soon_threadsafe(self.end, batch)

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
        for _, done in batch:
            if not done.done():
                done.set_result(None)


async def serve(reader, writer, slot):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            at = head.find(b"content-length:")
            body = await reader.readexactly(int(head[at + 15 :].split(b"\r\n", 1)[0])) if at >= 0 else b""
            if body:
                await slot.run(json.loads(body)["inputs"][0]["shape"][0])
            writer.write(HEAD % len(ANSWER) + ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--speed", type=float, default=1.0, help="how many times as fast it works (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=1, help="requests that it works on together (default: %(default)s)")
    parser.add_argument("--delay-ms", type=float, default=2.0, help="how long a batch waits for more (default: %(default)s)")
    slot = Slot(parser.parse_args())
    server = await asyncio.start_server(lambda reader, writer: serve(reader, writer, slot), "127.0.0.1", slot.options.port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
