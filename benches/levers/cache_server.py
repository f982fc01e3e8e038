"""A model server whose answers follow from their questions, and which counts what it is asked. usage: cache_server.py PORT [OPTION]...

The Open Inference Protocol in JSON: a POST is answered after `--ms` and `--row-ms` for each row (the first dimension of its first input's
shape), any number of them at once. The answer is `--answer` bytes long and begins with the SHA-256 of the question's body, so that a client
can tell its own answer from another's. `GET /counts` says, since `GET /afresh`, how many questions came, the most for one body, how many
of which rows, and the seconds that those took by the server's clock, from the last byte read to the first written.
"""

import argparse
import asyncio
import hashlib
import json
import time
from collections import Counter

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
BEFORE = b'{"model_name":"m","outputs":[{"name":"y","shape":[1],"datatype":"BYTES","data":["'
AFTER = b'"]}]}'


def answer(body, size):
    """The body that answers this one."""
    said = hashlib.sha256(body).hexdigest().encode()
    return BEFORE + said + b"x" * max(0, size - len(BEFORE) - len(said) - len(AFTER)) + AFTER


class Counts:
    def __init__(self):
        self.bodies, self.rows, self.seconds = Counter(), Counter(), Counter()

    def add(self, body, rows, seconds):
        self.rows[rows] += 1
        self.seconds[rows] += seconds

    def shown(self):
        most = max(self.bodies.values(), default=0)
        return {"questions": sum(self.bodies.values()), "most_of_one": most, "rows": dict(self.rows), "seconds": dict(self.seconds)}


class Server:
    def __init__(self, options):
        self.options, self.counts = options, Counts()

    async def answered(self, body):
        options, began, counts = self.options, time.perf_counter(), self.counts
        counts.bodies[hash(body)] += 1
        rows = json.loads(body)["inputs"][0]["shape"][0] if options.row_ms else 1
        if wait_s := (options.ms + options.row_ms * rows) / 1e3:
            await asyncio.sleep(wait_s - (time.perf_counter() - began))
        out = answer(body, options.answer)
        counts.add(body, rows, time.perf_counter() - began)
        return out

    def asked(self, path):
        shown = self.counts.shown()
        if path == b"/afresh":
            self.counts = Counts()
        return json.dumps(shown).encode()

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, path, _ = head.split(b" ", 2)
                at = head.lower().find(b"\r\ncontent-length:")
                length = int(head[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
                body = await reader.readexactly(length)
                out = await self.answered(body) if method == b"POST" else self.asked(path)
                writer.write(HEAD % len(out) + out)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--ms", type=float, default=0.0, help="of each question (default: %(default)s)")
    parser.add_argument("--row-ms", type=float, default=0.0, help="and of each of its rows (default: %(default)s)")
    parser.add_argument("--answer", type=int, default=1024, help="bytes (default: %(default)s)")
    server = Server(parser.parse_args())
    listening = await asyncio.start_server(server.serve, "127.0.0.1", server.options.port, backlog=4096, limit=1 << 22)
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
