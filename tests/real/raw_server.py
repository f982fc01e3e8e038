"""An upstream without an HTTP library: it records the exact bytes of each request and answers with fixed bytes.

`/head` answers with the request's head as body; `/canned/NAME` with `canned[NAME]` as it stands. `?ms=N` waits so long
before it answers. It listens on a loopback port, or on a Unix socket.
"""

import re
import socket
import threading
import time

CANNED = {
    "cookies": b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nX-Between: yes\r\nset-cookie: b=2; Path=/\r\n"
    b"SET-COOKIE: a=1\r\nContent-Length: 2\r\n\r\nok",
    "case": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nx-lower: 1\r\nX-UPPER: 2\r\nX-MiXeD: a,  b\r\n"
    b"X-Empty:\r\nX-Latin: caf\xe9\r\nContent-Length: 3\r\n\r\nabc",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\n6\r\npedia \r\n"
    b"E\r\nin \r\n\r\nchunks.\r\n0\r\n\r\n",
    "trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Server-Timing\r\n\r\n3\r\nabc\r\n"
    b"0\r\nX-Sum: 294\r\nServer-Timing: model_forward;dur=1.5\r\n\r\n",
    "early_hints": b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate",
    "no_content": b"HTTP/1.1 204 No Content\r\nX-Kept: yes\r\n\r\n",
    "not_modified": b'HTTP/1.1 304 Not Modified\r\nETag: "v1"\r\nContent-Length: 700\r\n\r\n',
    "head": b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nX-Kept: yes\r\n\r\n",
    "until_close": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end of the connection",
    "reason": b"HTTP/1.1 404 Nothing Of That Name\r\nContent-Length: 0\r\n\r\n",
    "own_name": b"HTTP/1.1 200 OK\r\nServer-Timing: gpu;dur=7.25, cache;desc=hit\r\nContent-Length: 2\r\n\r\nok",
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: /elsewhere?a=b#c\r\nContent-Length: 0\r\n\r\n",
}


class RawServer:
    """Serves each connection on a thread, requests one after the other; `seen` has (head, body) of each."""

    def __init__(self, path=None):
        self.path = path

    def __enter__(self):
        self.canned = dict(CANNED)
        self.seen = []
        if self.path:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(str(self.path))
            self.listener.listen(64)
            self.url = f"unix:{self.path}"
        else:
            self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            self.port = self.listener.getsockname()[1]
            self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        if not self.path:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as stream:
            try:
                while head := read_head(stream):
                    if not self.answer(connection, stream, head):
                        return
            except OSError:
                pass

    def answer(self, connection, stream, head):
        """Whether the connection stays open."""
        path, _, query = head.split(b" ", 2)[1].decode("latin-1").partition("?")
        if re.search(rb"(?im)^expect: *100-continue", head):
            if path == "/refuse":
                self.seen.append((head, b""))
                connection.sendall(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 3\r\n\r\nno\n")
                return False
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = read_body(stream, head)
        self.seen.append((head, body))
        if query.startswith("ms="):
            time.sleep(int(query[3:]) / 1e3)
        if path.startswith("/canned/"):
            response = self.canned[path.removeprefix("/canned/")]
        else:
            response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(head) + len(body)) + head + body
        connection.sendall(response)
        return not re.search(rb"(?im)^connection: *close", response)


def read_head(stream):
    """The exact bytes of a head up to its empty line; empty at the end of the connection."""
    head = b""
    while line := stream.readline():
        head += line
        if line == b"\r\n":
            return head
    return b""


def read_body(stream, head):
    """The exact bytes of the body, with the chunks' framing if it is chunked."""
    if re.search(rb"(?im)^transfer-encoding: *chunked", head):
        body = b""
        while True:
            line = stream.readline()
            body += line
            if not line:
                return body
            if size := int(line.split(b";")[0], 16):
                body += stream.read(size + 2)
            else:
                while (line := stream.readline()) not in (b"\r\n", b""):
                    body += line
                return body + b"\r\n"
    if length := re.search(rb"(?im)^content-length: *(\d+)", head):
        return stream.read(int(length[1]))
    return b""
