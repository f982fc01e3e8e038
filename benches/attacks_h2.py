"""The attacks of benches/attacks.py over HTTP/2: a megabyte of frames of one kind, on one connection, by a client that reads nothing or all."""

import socket
import threading

from attacks import attack, proxy
from attacks_sent import anything

MB = 1_000_000
FRAMES_MS = 30
"""Bound of the data plane's time for some 60,000 to 80,000 frames that are read, each as it comes: less than half a microsecond a frame."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
# :method POST, :scheme http, :path /, :authority m; without Huffman coding
HEAD = b"\x83\x86\x84\x41\x01m"


def frame(kind, flags=0, stream=0, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def flood(target, frames, reads=True):
    """Sends a megabyte of `frames`, and returns whether the connection was ended before."""
    sent, ended = 0, False
    sock = socket.create_connection(("127.0.0.1", target.port))
    sock.settimeout(5)
    if reads:
        threading.Thread(target=drain, args=(sock,), daemon=True).start()
    try:
        sock.sendall(PREFACE + frame(SETTINGS))
        batch = bytearray()
        for one in frames:
            batch += one
            if len(batch) > 16_000:
                sock.sendall(batch)
                sent, batch = sent + len(batch), bytearray()
            if sent >= MB:
                break
    except OSError:
        ended = True
    sock.close()
    alive = target.get("/livez") == b"alive\n"
    return "ended by Lapwing" if ended else "all sent", alive


def drain(sock):
    try:
        while sock.recv(1 << 16):
            pass
    except OSError:
        pass


def always(one):
    while True:
        yield one


def streams(make):
    for stream in range(1, 1 << 31, 2):
        yield make(stream)


def opened(then):
    yield frame(HEADERS, END_HEADERS, 1, HEAD)
    yield from then


@attack("h2: a megabyte of PING", "below 26 MiB", proxy(anything), data_ms=FRAMES_MS)
def pings(target):
    return flood(target, always(frame(PING, payload=bytes(8))))


@attack("h2: a megabyte of PING, answers unread", "below 26 MiB", proxy(anything), data_ms=FRAMES_MS)
def unread_pings(target):
    return flood(target, always(frame(PING, payload=bytes(8))), reads=False)


@attack("h2: a megabyte of SETTINGS", "below 26 MiB", proxy(anything))
def settings(target):
    return flood(target, always(frame(SETTINGS, payload=b"\0\4\0\0\xff\xff")), reads=False)


@attack("h2: a megabyte of streams that are reset", "below 26 MiB", proxy(anything))
def rapid_reset(target):
    return flood(target, streams(lambda n: frame(HEADERS, END_HEADERS | END_STREAM, n, HEAD) + frame(RST_STREAM, 0, n, bytes(4))))


@attack("h2: a megabyte of CONTINUATION", "below 26 MiB", proxy(anything))
def continuation(target):
    head = [frame(HEADERS, 0, 1, HEAD)]
    return flood(target, (one for part in (head, always(frame(CONTINUATION, 0, 1, b"\0\1a\1b" * 20))) for one in part))


@attack("h2: a megabyte of empty CONTINUATION", "below 26 MiB", proxy(anything))
def empty_continuation(target):
    head = [frame(HEADERS, 0, 1, HEAD)]
    return flood(target, (one for part in (head, always(frame(CONTINUATION, 0, 1))) for one in part))


@attack("h2: a megabyte of empty DATA", "below 26 MiB", proxy(anything))
def empty_data(target):
    return flood(target, opened(always(frame(DATA, 0, 1))))


@attack("h2: a megabyte of padding", "below 26 MiB", proxy(anything))
def padding(target):
    return flood(target, opened(always(frame(DATA, PADDED, 1, b"\xff" + bytes(255)))))


@attack("h2: a megabyte of WINDOW_UPDATE", "below 26 MiB", proxy(anything), data_ms=FRAMES_MS)
def window_updates(target):
    return flood(target, opened(always(frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1"))))


@attack("h2: a megabyte of PRIORITY", "below 26 MiB", proxy(anything), data_ms=FRAMES_MS)
def priority(target):
    return flood(target, streams(lambda n: frame(PRIORITY, 0, n, b"\0\0\0\0\x10")))


@attack("h2: fields that HPACK makes large", "below 26 MiB", proxy(anything))
def hpack_bomb(target):
    # a field of 4 KiB is put into the table once, and named by one byte after that
    large = b"\x40\x01a\x7f\xa1\x1e" + b"x" * 4000
    return flood(target, streams(lambda n: frame(HEADERS, END_HEADERS, n, HEAD + (large if n == 1 else b"") + b"\xbe" * 4000)))
