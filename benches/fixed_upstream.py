"""An upstream that answers at once with fixed bytes and reports five stages, on asyncio alone; it counts what it answered.

usage: python3 benches/fixed_upstream.py PORT   (serves until it is ended; GET /count says how many other requests it answered)
"""

import asyncio
import sys

BODY = b'{"ok":true}'
STAGES = b"hydration;dur=0.7, preprocessing;dur=0.4, queue;dur=1.2, forward;dur=8.1, postprocessing;dur=0.3"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
ANSWER = HEAD % len(BODY) + b"Server-Timing: " + STAGES + b"\r\n\r\n" + BODY


class Answers(asyncio.Protocol):
    """One connection; requests have no body."""

    count = 0

    def connection_made(self, transport):
        self.transport, self.rest = transport, b""

    def data_received(self, data):
        *heads, self.rest = (self.rest + data).split(b"\r\n\r\n")
        for head in heads:
            if head.startswith(b"GET /count "):
                body = b"%d" % Answers.count
                self.transport.write(HEAD % len(body) + b"\r\n" + body)
            else:
                Answers.count += 1
                self.transport.write(ANSWER)


async def serve(port):
    server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        print(__doc__)
        raise SystemExit(0 if sys.argv[1:] in (["--help"], ["-h"]) else 2)
    asyncio.run(serve(int(sys.argv[1])))
