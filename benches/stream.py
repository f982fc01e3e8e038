#!/usr/bin/env python3
"""Streams through Lapwing: the delay that it adds to each chunk of a token stream, and its memory while large bodies pass.

A server process sends a token every 5 ms. Each chunk contains the monotonic clock's time just before it was written. The client, on
the same machine and clock, reads streams directly and through Lapwing in turn. The added delay is the difference of the quantiles of
both delays, so that the time of client, server and kernel cancels out. Then 64 MiB bodies go up and down, with a content length and
chunked, at full speed and with a reader slower than the writer, while Lapwing's memory is sampled.

usage: python3 benches/stream.py [--lapwing PATH] [--tokens N] [--rounds N] [--mib N] [--json FILE]
Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import contextlib
import socket
import sys
import threading
import time

from parts import MIB, Child, Lapwing, Sampler, arguments, finish, free_port, quantile, resident, table, timed

PATTERN = bytes(range(256)) * 4096
PIECE = PATTERN[: 64 * 1024]
ADDED_P99_US = 200
GROWTH_MIB = 8


# === the upstream, in a separate process: stream.py --serve PORT ===


def serve(port):
    """Has a thread for each connection, which serves many requests."""
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_connection, args=(connection,), daemon=True).start()


def serve_connection(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
        while line := stream.readline():
            path, _, query = line.split(b" ")[1].decode().partition("?")
            knobs = dict(pair.split("=") for pair in query.split("&") if pair)
            fields = {}
            while (field := stream.readline()) not in (b"\r\n", b""):
                name, value = field.decode("latin-1").split(":", 1)
                fields[name.lower()] = value.strip()
            n, pause = int(knobs.get("n", 0)), float(knobs.get("pause", 0))
            if path == "/tokens":
                send_tokens(connection, n, float(knobs["every_ms"]) / 1e3)
            elif path == "/down":
                send_body(connection, n, knobs["framing"])
            else:
                got = sum(len(piece) for piece in body(stream, fields, pause))
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%d" % (len(str(got)), got))


def send_tokens(connection, n, every_s):
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    due = time.monotonic()
    for _ in range(n):
        due += every_s
        time.sleep(max(0.0, due - time.monotonic()))
        connection.sendall(b"1d\r\ndata: %019d\n\n\r\n\r\n" % time.monotonic_ns())
    connection.sendall(b"0\r\n\r\n")


def send_body(connection, n, framing):
    chunked = framing == "chunked"
    head = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % n
    connection.sendall(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % head)
    for piece in pieces(n, chunked):
        connection.sendall(piece)


# === both ends ===


def pieces(n, chunked):
    """The pieces in which a body of `n` bytes is written."""
    for _ in range(n // len(PIECE)):
        yield b"%x\r\n%s\r\n" % (len(PIECE), PIECE) if chunked else PIECE
    if chunked:
        yield b"0\r\n\r\n"


def body(stream, fields, pause):
    """The pieces of a body as they are read, with `pause` seconds after each."""
    if "chunked" in fields.get("transfer-encoding", ""):
        while size := int(stream.readline(), 16):
            yield stream.read(size)
            stream.readline()
            time.sleep(pause)
        stream.readline()
        return
    left = int(fields.get("content-length", 0))
    while left:
        piece = stream.read(min(left, len(PIECE)))
        if not piece:
            raise SystemExit(f"a body was cut {left} bytes early")
        left -= len(piece)
        yield piece
        if pause:
            time.sleep(pause)


# === the client ===


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def head(self, stream):
        status = stream.readline()
        if b" 200 " not in status:
            raise SystemExit(f"the answer is {status!r}")
        fields = {}
        while (field := stream.readline()) != b"\r\n":
            name, value = field.decode("latin-1").split(":", 1)
            fields[name.lower()] = value.strip()
        return fields

    def token_delays(self, n, every_ms):
        """For each token, the nanoseconds from its time stamp to the read that returned it."""
        self.socket.sendall(b"GET /tokens?n=%d&every_ms=%g HTTP/1.1\r\nhost: m\r\n\r\n" % (n, every_ms))
        delays, text = [], b""
        while True:
            got = self.socket.recv(65536)
            now = time.monotonic_ns()
            if not got:
                raise SystemExit("the stream was cut")
            text += got
            while (at := text.find(b"data: ")) >= 0 and len(text) >= at + 27:
                delays.append(now - int(text[at + 6 : at + 25]))
                text = text[at + 27 :]
            if text.endswith(b"0\r\n\r\n"):
                assert len(delays) == n, (len(delays), n)
                return delays

    def down(self, n, framing, pause):
        self.socket.sendall(b"GET /down?n=%d&framing=%s HTTP/1.1\r\nhost: m\r\n\r\n" % (n, framing.encode()))
        with self.socket.makefile("rb") as stream:
            fields = self.head(stream)
            got = 0
            for piece in body(stream, fields, pause):
                assert piece == PATTERN[got % 256 :][: len(piece)], "the body was changed"
                got += len(piece)
        assert got == n, (got, n)

    def up(self, n, framing, pause):
        chunked = framing == "chunked"
        head = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % n
        self.socket.sendall(b"POST /up?pause=%g HTTP/1.1\r\nhost: m\r\n%s\r\n\r\n" % (pause, head))
        for piece in pieces(n, chunked):
            self.socket.sendall(piece)
        with self.socket.makefile("rb") as stream:
            fields = self.head(stream)
            got = int(stream.read(int(fields["content-length"])))
        assert got == n, (got, n)


def tokens(options, upstream, lapwing):
    """Measures the added delay per chunk."""
    delays = {"direct": [], "lapwing": []}
    with Client(upstream) as direct, Client(lapwing.port) as proxied:
        for client in (direct, proxied):
            client.token_delays(20, options.every_ms)
        for n in range(options.rounds):
            pair = [("direct", direct), ("lapwing", proxied)]
            for name, client in pair if n % 2 else reversed(pair):
                delays[name] += client.token_delays(options.tokens, options.every_ms)
    quantiles = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    us = {name: {label: quantile(d, q) / 1e3 for label, q in quantiles.items()} for name, d in delays.items()}
    us["added"] = {label: us["lapwing"][label] - us["direct"][label] for label in quantiles}
    n = len(delays["lapwing"])
    print(f"delay per chunk in µs, {n} tokens each way, one every {options.every_ms:g} ms")
    table(["", *quantiles], [[name, *(f"{v:.1f}" for v in row.values())] for name, row in us.items()])
    verdict = timed("added delay per chunk, p99", f"{us['added']['p99']:.0f} µs", f"≤ {ADDED_P99_US} µs", us["added"]["p99"] <= ADDED_P99_US)
    return {"tokens": n, "delay_us": us, "delays_ns": delays}, [verdict]


def bodies(options, lapwing):
    """Measures resident memory while large bodies pass."""
    size = options.mib * MIB
    slow = 0.5 / (size / len(PIECE))  # the pauses take half a second together, and more because the timer rounds each up
    with Client(lapwing.port) as client:
        client.up(MIB, "length", 0)
        client.down(MIB, "chunked", 0)
    before = lapwing.rss_mib()
    rows = []
    for way in ("up", "down"):
        for framing in ("length", "chunked"):
            for reader, pause in (("fast", 0), ("slow", slow)):
                start = time.monotonic()
                with Client(lapwing.port) as client, Sampler(lapwing.rss_mib) as rss:
                    getattr(client, way)(size, framing, pause)
                seconds = time.monotonic() - start
                rows.append({"way": way, "framing": framing, "reader": reader, "seconds": seconds, "mib_per_s": options.mib / seconds, "peak_mib": rss.peak, "rss_mib": rss.samples})
    growth = max(r["peak_mib"] for r in rows) - before
    print(f"resident memory while {options.mib} MiB pass; {before:.1f} MiB before")
    cells = [[f"{r['way']}, {r['framing']}, {r['reader']} reader", f"{r['peak_mib']:.1f}", f"{r['mib_per_s']:.0f}"] for r in rows]
    table(["body", "peak MiB", "MiB/s"], cells)
    verdict = resident(f"memory grown by {options.mib} MiB bodies", f"{growth:.1f} MiB", f"≤ {GROWTH_MIB} MiB", growth <= GROWTH_MIB)
    return {"before_mib": before, "bodies": rows}, [verdict]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--tokens", type=int, default=200, help="tokens of each stream (default: 200)")
    parser.add_argument("--rounds", type=int, default=20, help="streams each way (default: 20)")
    parser.add_argument("--every-ms", type=float, default=5, help="milliseconds between tokens (default: 5)")
    parser.add_argument("--mib", type=int, default=64, help="size of the large bodies (default: 64)")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
    port = free_port()
    with Child([sys.executable, __file__, "--serve", port], port), Lapwing(options.lapwing, port) as lapwing:
        streamed, one = tokens(options, port, lapwing)
        large, two = bodies(options, lapwing)
    return finish(options, {**streamed, **large}, one + two)


if __name__ == "__main__":
    sys.exit(main())
