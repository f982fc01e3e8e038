#!/usr/bin/env python3
"""Servers for benches/shadow.py, one process each: an upstream that checks and counts what it receives, and shadow targets that fail.

usage: python3 benches/shadow_servers.py KIND PORT [--ms MS]
KIND is
  upstream  answers after --ms with a tensor that depends on the request's body; GET /counts says what arrived, by the header
            `x-condition`: originals, copies (`x-lapwing-shadow`), and altered ones (`x-crc` is not that of the body)
  healthy   the same
  slow      answers after 10 s
  flooding  answers without end, by turns a body, a header field, and header fields
  garbage   by turns noise instead of HTTP, a body that breaks off, JSON of another shape, noise as JSON, a connection closed at once
"""

import argparse
import contextlib
import itertools
import json
import os
import socket
import sys
import threading
import time
import zlib

SLOW_S = 10
BLOCK = os.urandom(1 << 16)
TURNS = itertools.count()
COUNTS, LOCK = {}, threading.Lock()


def answer_to(body):
    """The body of the answer to this body: ten numbers that depend on every byte of it."""
    crc = zlib.crc32(body)
    data = [round(((crc >> shift) & 0x3FF) / 1024, 6) for shift in range(0, 20, 2)]
    tensor = {"name": "y", "datatype": "FP32", "shape": [1, len(data)], "data": data}
    return json.dumps({"model_name": "m", "id": f"{crc:08x}", "outputs": [tensor]}).encode()


def read_request(stream):
    """(request line, headers, body), or None at the end of the connection."""
    line = stream.readline()
    if not line:
        return None
    headers = {}
    while (field := stream.readline()) not in (b"\r\n", b""):
        name, _, value = field.partition(b":")
        headers[name.strip().lower()] = value.strip()
    return line, headers, stream.read(int(headers.get(b"content-length", 0)))


def count(headers, body):
    key = headers[b"x-condition"].decode()
    kind = "copies" if b"x-lapwing-shadow" in headers else "originals"
    altered = int(headers[b"x-crc"]) != zlib.crc32(body)
    with LOCK:
        counts = COUNTS.setdefault(key, {"originals": 0, "copies": 0, "altered": 0})
        counts[kind] += 1
        counts["altered"] += altered


def respond(connection, body, timing=b""):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n" % (timing, len(body))
    connection.sendall(head + body)


def correct(wait_s):
    def handle(connection, request):
        line, headers, body = request
        if line.startswith(b"GET /counts"):
            with LOCK:
                respond(connection, json.dumps(COUNTS).encode())
        elif b"x-condition" in headers:
            count(headers, body)
            time.sleep(wait_s)
            respond(connection, answer_to(body), b"server-timing: forward;dur=%.3f\r\n" % (wait_s * 1e3))
        else:
            respond(connection, b"{}")
        return True

    return handle


def flooding(connection, _):
    turn = next(TURNS) % 3
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + (b"\r\n", b"x-long: ", b"")[turn])
    block = (BLOCK, b"a" * len(BLOCK), b"x-many: 1234567890\r\n" * 3000)[turn]
    while True:
        connection.sendall(block)


def garbage(connection, request):
    turn = next(TURNS) % 5
    if turn == 0:
        connection.sendall(BLOCK[:4096])
    elif turn == 1:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n" + BLOCK[:500])
    elif turn == 2:
        respond(connection, b'{"outputs": {"y": [[["not", null], 1e999]], "y": -0}, "outputs": "}{"}')
    elif turn == 3:
        respond(connection, BLOCK[: 1 + request[2][-2] * 64])
    return turn in (2, 3)


def serve(port, handle):
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)

    def one(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb") as stream:
            while (request := read_request(stream)) and handle(connection, request):
                pass

    while True:
        threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["upstream", "healthy", "slow", "flooding", "garbage"])
    parser.add_argument("port", type=int)
    parser.add_argument("--ms", type=float, default=3, help="milliseconds until `upstream` and `healthy` answer (default: 3)")
    options = parser.parse_args()
    waits = {"upstream": options.ms / 1e3, "healthy": options.ms / 1e3, "slow": SLOW_S}
    serve(options.port, correct(waits[options.kind]) if options.kind in waits else globals()[options.kind])


if __name__ == "__main__":
    sys.exit(main())
