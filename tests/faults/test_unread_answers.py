"""A client that takes its answer once its request is sent, and an upstream that answers first and reads regardless: the request goes on while nobody
takes the answer. In every mix of protocols, and without Lapwing where both ends speak the same.
"""

import contextlib
import socket
import threading

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived
from http2 import Client
from sidecar import Sidecar
from wire import LIMIT

PIECE = 1 << 16
MIXES = [("h1", "h1", 16), ("h1", "h2", 8), ("h2", "h1", 4), ("h2", "h2", 4)]
"""Client, upstream, and MiB of either body: more than the buffers of all sockets, the windows and Lapwing hold."""


def body_of(mib, first):
    return bytes((first + n) % 256 for n in range(256)) * (mib << 12)


class Answering:
    """Listens on loopback; answers each request when its head has come, with a thread of its own, and reads the request regardless."""

    def __init__(self, protocol, mib):
        self.upload, self.answer = body_of(mib, 0), body_of(mib, 7)
        self.serve = {"h1": self.serve_h1, "h2": self.serve_h2}[protocol]

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve_quietly, args=(sock,), daemon=True).start()

    def serve_quietly(self, sock):
        with contextlib.suppress(OSError), sock:
            self.serve(sock)

    @staticmethod
    def send(sock, answer):
        with contextlib.suppress(OSError):
            sock.sendall(answer)

    def serve_h1(self, sock):
        read = b""
        while b"\r\n\r\n" not in read:
            if not (data := sock.recv(PIECE)):
                return
            read += data
        head, read = read.split(b"\r\n\r\n", 1)
        answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(self.answer) + self.answer
        writer = threading.Thread(target=self.send, args=(sock, answer), daemon=True)
        writer.start()
        is_chunked, received, last = b"chunked" in head.lower(), len(read), read
        while not last.endswith(b"0\r\n\r\n") if is_chunked else received < len(self.upload):
            if not (data := sock.recv(PIECE)):
                return
            received, last = received + len(data), (last + data)[-8:]
        writer.join()

    def serve_h2(self, sock):
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        left, stream = b"", None
        sock.sendall(connection.data_to_send())
        while data := sock.recv(PIECE):
            for event in connection.receive_data(data):
                if isinstance(event, RequestReceived):
                    left, stream = memoryview(self.answer), event.stream_id
                    connection.send_headers(stream, [(":status", "200"), ("content-length", str(len(self.answer)))])
                elif isinstance(event, DataReceived):
                    connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            while left and (n := min(connection.local_flow_control_window(stream), connection.max_outbound_frame_size, len(left))):
                connection.send_data(stream, left[:n].tobytes(), end_stream=n == len(left))
                left = left[n:]
            sock.sendall(connection.data_to_send())


class LateReader(Client):
    """Gives no room for its answer until its request is sent."""

    is_reading, held = False, 0

    def events(self, data):
        for event in super().events(data):
            if isinstance(event, DataReceived) and not self.is_reading:
                self.streams[event.stream_id].received += event.data
                self.held += event.flow_controlled_length
            else:
                yield event

    def exchange(self, upload):
        number = self.ask("/", "POST", end=False)
        left = memoryview(upload)
        while left:
            n = min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size, len(left))
            if not n:
                self.pump()
                continue
            self.h2.send_data(number, left[:n].tobytes(), end_stream=n == len(left))
            self.flush()
            left = left[n:]
        self.is_reading = True
        if self.held:
            self.h2.acknowledge_received_data(self.held, number)
            self.flush()
        return self.await_(number).body


def exchange_h1(port, upload, is_chunked):
    with socket.create_connection(("127.0.0.1", port), LIMIT) as sock:
        sock.settimeout(LIMIT)
        framing = b"transfer-encoding: chunked" if is_chunked else b"content-length: %d" % len(upload)
        sock.sendall(b"POST / HTTP/1.1\r\nhost: m\r\nconnection: close\r\n" + framing + b"\r\n\r\n")
        for start in range(0, len(upload), PIECE):
            piece = upload[start:start + PIECE]
            sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece)
        sock.sendall(b"0\r\n\r\n" if is_chunked else b"")
        answer = bytearray()
        while data := sock.recv(PIECE):
            answer += data
        return bytes(answer).split(b"\r\n\r\n", 1)[1]


def exchange(upstream, target, client):
    if client == "h1":
        for is_chunked in (True, False):
            assert exchange_h1(target.port, upstream.upload, is_chunked) == upstream.answer
    else:
        with LateReader(target) as late:
            assert late.exchange(upstream.upload) == upstream.answer


@pytest.mark.parametrize("protocol", ["h1", "h2"])
def test_without_lapwing_the_request_goes_on(protocol):
    mib = next(mib for client, upstream, mib in MIXES if client == upstream == protocol)
    with Answering(protocol, mib) as upstream:
        exchange(upstream, upstream, protocol)


@pytest.mark.parametrize("client, protocol, mib", MIXES)
def test_a_request_goes_on_while_its_answer_is_not_taken(client, protocol, mib):
    with Answering(protocol, mib) as upstream, Sidecar(upstream.url, upstream_protocol=protocol) as proxy:
        exchange(upstream, proxy, client)
