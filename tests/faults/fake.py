"""A fake upstream whose behaviour is scripted per connection, and which counts the requests that reach it.

A script is a function of a `Peer`. The first connection that carries a byte gets the first script, and so on; connections
beyond the last script are served by `plain`. Connections that carry nothing (readiness probes), or with which Lapwing asks what the
server speaks, are neither scripted nor counted.
"""

import contextlib
import os
import socket
import threading
import time
import traceback

from wire import LIMIT, Closed, Peer, chunk

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


QUESTION = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
HELLO = b"\x16\x03"


class Upstream:
    """Listens on loopback, or on a Unix socket at `path`. `requests` holds all requests that the scripts read, in order."""

    def __init__(self, *scripts, path=None, port=0):
        self.scripts, self.path, self.port = list(scripts), path, port
        self.requests, self.faults, self.connections = [], [], 0
        self.lock, self.live = threading.Lock(), set()
        self.released = threading.Event()
        """Set by the test to let waiting scripts continue; always set at the end."""

    def __enter__(self):
        family = socket.AF_UNIX if self.path else socket.AF_INET
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(self.path or ("127.0.0.1", self.port))
        self.port = self.port if self.path else self.listener.getsockname()[1]
        self.listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind, *_):
        self.released.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        if self.path:
            os.unlink(self.path)
        for sock in list(self.live):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        assert kind or not self.faults, "a script failed:\n" + "\n".join(self.faults)

    @property
    def url(self):
        return f"unix:{self.path}" if self.path else f"http://127.0.0.1:{self.port}"

    @property
    def address(self):
        return self.path or ("127.0.0.1", self.port)

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.live.add(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        try:
            with contextlib.suppress(OSError):
                if not (opening := sock.recv(len(QUESTION), socket.MSG_PEEK)):
                    return
                if opening == QUESTION or opening.startswith(HELLO):
                    sock.sendall(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
                    return
            with self.lock:
                self.connections += 1
                script = self.scripts.pop(0) if self.scripts else plain
            peer = Peer(sock)
            peer.upstream = self
            read = peer.head
            peer.head = lambda: self._note(read())
            script(peer)
        except (Closed, OSError):
            pass  # the proxy closed the connection: scripts for which that matters check it themselves
        except Exception:
            self.faults.append(traceback.format_exc())
        finally:
            self.live.discard(sock)
            sock.close()

    def _note(self, message):
        with self.lock:
            self.requests.append(message)
        return message

    def seen(self, target):
        """The number of requests for `target` that arrived."""
        return sum(r.target == target for r in self.requests)


def await_true(what, within=LIMIT / 2):
    """Waits until `what()` is true; returns False if the time is up before."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.005)
    return bool(what())


# === stock scripts ===


def plain(peer):
    """Serves any number of requests in full."""
    while True:
        request = peer.request()
        peer.send(OK if request.method != "HEAD" else OK[:-2])


def answers(*responses, then=plain):
    """Reads a request for each response, sends it, then goes on with `then` (None: closes)."""

    def script(peer):
        for response in responses:
            peer.request()
            peer.send(response)
        if then:
            then(peer)

    return script


def breaks_after(sent, how="reset"):
    """Reads a request, sends `sent`, then resets, closes, or stalls until released."""

    def script(peer):
        peer.request()
        if sent:
            peer.send(sent)
            time.sleep(0.05)  # so that it is read before the connection ends
        if how == "reset":
            peer.reset()
        elif how == "stall":
            peer.upstream.released.wait(LIMIT)

    return script


def chunked(*parts, trailers=b"", every=0.0, fields=b""):
    """A chunked 200 with the given parts and trailers, one part per `every` seconds."""

    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n" + fields + b"\r\n")
        for part in parts:
            time.sleep(every)
            peer.send(chunk(part))
        peer.send(b"0\r\n" + trailers + b"\r\n")
        plain(peer)

    return script
