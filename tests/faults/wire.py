"""HTTP/1.1 by hand, for both ends of a connection: tests write exactly what is sent, and what is received is kept raw.

Times are `time.monotonic()` seconds. Nothing here corrects, merges or normalises: header names keep their case, order and
duplicates; chunks keep their boundaries and arrival times.
"""

import socket
import struct
import time
from dataclasses import dataclass, field

LIMIT = 8.0
"""The longest time that a read may take, in seconds, so that nothing hangs."""


class Closed(Exception):
    """The peer closed or reset the connection before it had sent everything."""

    def __init__(self, got=b"", was_reset=False):
        super().__init__(f"closed after {len(got)} bytes: {got[-80:]!r} (reset: {was_reset})")
        self.got, self.was_reset = got, was_reset


@dataclass
class Message:
    """A request or response as it arrived: the head first, the body once it was read."""

    start: str
    fields: list
    raw: bytes
    at: float
    body: bytes = b""
    chunks: list = field(default_factory=list)
    trailers: list = field(default_factory=list)

    @property
    def status(self):
        return int(self.start.split(" ")[1])

    @property
    def method(self):
        return self.start.split(" ")[0]

    @property
    def target(self):
        return self.start.split(" ")[1]

    def all(self, name):
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def one(self, name, default=None):
        values = self.all(name)
        assert len(values) <= 1, f"{name} stands {len(values)} times: {values}"
        return values[0] if values else default

    @property
    def chunked(self):
        return any("chunked" in v.lower() for v in self.all("transfer-encoding"))


def parse(raw, at=0.0):
    """The message whose head is `raw`, without the blank line."""
    lines = raw.decode("latin-1").split("\r\n")
    return Message(lines[0], [tuple(p.strip(" ") for p in line.split(":", 1)) for line in lines[1:]], raw, at)


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


class Peer:
    """One end of a connection. Reads never consume more than was asked for."""

    def __init__(self, sock):
        self.sock, self.buf = sock, b""
        sock.settimeout(LIMIT)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # === writing ===

    def send(self, data):
        self.sock.sendall(data.encode("latin-1") if isinstance(data, str) else data)
        return self

    def close(self):
        self.sock.close()

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self):
        """Closes with RST rather than FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    # === reading ===

    def _more(self):
        try:
            data = self.sock.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            raise Closed(self.buf, True) from None
        if not data:
            raise Closed(self.buf)
        self.buf += data

    def until(self, mark):
        while mark not in self.buf:
            self._more()
        out, self.buf = self.buf.split(mark, 1)
        return out

    def exactly(self, n):
        while len(self.buf) < n:
            self._more()
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def to_end(self):
        """Everything until the peer closes."""
        try:
            while True:
                self._more()
        except Closed as closed:
            self.buf = b""
            return closed.got, closed.was_reset

    def head(self):
        if not self.buf:
            self._more()
        at = time.monotonic()
        return parse(self.until(b"\r\n\r\n"), at)

    def chunks(self, message):
        """Yields the chunks of a chunked body as they arrive; ends after the trailers were read."""
        while True:
            size = int(self.until(b"\r\n").split(b";")[0], 16)
            if size == 0:
                break
            data = self.exactly(size)
            at = time.monotonic()
            assert self.exactly(2) == b"\r\n"
            message.chunks.append((at, data))
            message.body += data
            yield at, data
        while line := self.until(b"\r\n"):
            name, value = line.decode("latin-1").split(":", 1)
            message.trailers.append((name, value.strip(" ")))

    def body(self, message, bodiless=False, to_end=False):
        """Reads the body of `message` by its framing. With `to_end`, it lasts until the connection closes."""
        if bodiless:
            return message
        if message.chunked:
            for _ in self.chunks(message):
                pass
        elif (length := message.one("content-length")) is not None:
            message.body = self.exactly(int(length))
        elif to_end:
            message.body, _ = self.to_end()
        return message

    def request(self):
        """A whole request."""
        return self.body(self.head())

    def response(self, method="GET"):
        """A whole final response; interim ones before it are in `interim`."""
        self.interim = []
        while True:
            message = self.head()
            if 100 <= message.status < 200 and message.status != 101:
                self.interim.append(message)
                continue
            none = method == "HEAD" or message.status in (101, 204, 304)
            return self.body(message, bodiless=none, to_end=True)

    def closed_within(self, seconds):
        """The seconds until the peer closed or reset the connection; None if it did not. Bytes before that are dropped."""
        began = time.monotonic()
        try:
            while (left := began + seconds - time.monotonic()) > 0:
                self.sock.settimeout(left)
                if not self.sock.recv(65536):
                    return time.monotonic() - began
        except TimeoutError:
            pass
        except OSError:
            return time.monotonic() - began
        finally:
            self.sock.settimeout(LIMIT)
        return None


def connect(address, rcvbuf=None):
    """A connection to `(host, port)` or to a Unix socket's path."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    if rcvbuf:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    sock.settimeout(LIMIT)
    sock.connect(address)
    return Peer(sock)


def held(port, n, begun, rcvbuf=None):
    """`n` connections that have begun something, and say no more."""
    connections = []
    for _ in range(n):
        sock = socket.socket()
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        sock.settimeout(5)
        try:
            sock.connect(("127.0.0.1", port))
            sock.sendall(begun)
        except OSError:
            pass  # the backlog is full, or it was closed at once
        connections.append(sock)
    return connections
