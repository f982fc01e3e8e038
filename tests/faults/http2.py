"""An HTTP/2 client without TLS whose frames a test decides, and an upstream that speaks HTTP/2 by a script."""

import socket
import threading
import time

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from wire import LIMIT


class Stream:
    """The result of one request."""

    def __init__(self):
        self.fields, self.received, self.trailers, self.reset, self.ended = {}, bytearray(), {}, None, False
        self.connection = None
        """Of a server's stream: the number of its connection."""

    @property
    def body(self):
        return bytes(self.received)

    @property
    def status(self):
        return int(self.fields[":status"])

    @property
    def done(self):
        return self.ended or self.reset is not None


class Client:
    """One HTTP/2 connection with any number of streams."""

    def __init__(self, proxy, preface_cut=None):
        self.sock = socket.create_connection(("127.0.0.1", proxy.port), LIMIT)
        self.sock.settimeout(LIMIT)
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.streams, self.closed, self.unread = {}, False, b""
        if preface_cut:
            first = self.h2.data_to_send()
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock.sendall(first[:preface_cut])
            time.sleep(0.1)  # so that it is read by itself
            self.sock.sendall(first[preface_cut:])
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def flush(self):
        self.sock.sendall(self.h2.data_to_send())

    def ask(self, path, method="GET", body=None, end=True, extra=()):
        """Opens a stream and sends the request with its body, if any, and the end."""
        number = self.h2.get_next_available_stream_id()
        fields = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "m"), ("te", "trailers"), *extra]
        self.h2.send_headers(number, fields, end_stream=end and body is None)
        if body is not None:
            self.h2.send_data(number, body, end_stream=end)
        self.flush()
        self.streams[number] = Stream()
        return number

    def pump(self):
        data = self.sock.recv(65536)
        if not data:
            self.closed = True
            return
        for event in self.events(data):
            stream = self.streams.get(getattr(event, "stream_id", None))
            if isinstance(event, ConnectionTerminated):
                self.closed = True
            elif isinstance(event, ResponseReceived):
                stream.fields = dict(event.headers)
            elif isinstance(event, DataReceived):
                stream.received += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, TrailersReceived):
                stream.trailers = dict(event.headers)
            elif isinstance(event, StreamEnded):
                stream.ended = True
            elif isinstance(event, StreamReset):
                stream.reset = event.error_code
        self.flush()

    def events(self, data):
        """What came, frame by frame: after GOAWAY the library knows no frame, and would lose those before it."""
        self.unread += data
        while len(self.unread) >= 9 and len(self.unread) >= (end := 9 + int.from_bytes(self.unread[:3])):
            frame, self.unread = self.unread[:end], self.unread[end:]
            if not self.closed:
                yield from self.h2.receive_data(frame)

    def get(self, *args, **options):
        """Sends a request and returns its whole result."""
        return self.await_(self.ask(*args, **options))

    def await_(self, number):
        stream = self.streams[number]
        while not stream.done:
            assert not self.closed, "the connection ended"
            self.pump()
        return stream

    def reset(self, number, code):
        self.h2.reset_stream(number, code)
        self.flush()


class Server:
    """Listens on loopback; calls `script(h2, stream, send)` for each request whose head has arrived. `requests` has what came: by stream its
    fields, body, whether it ended, and the code of a reset. `connections` counts them. Each begins with `settings`."""

    def __init__(self, script, settings=None):
        self.script, self.settings, self.requests, self.faults, self.connections = script, settings, [], [], 0

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind, *_):
        self.listener.close()
        assert kind or not self.faults, self.faults

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock, self.connections), daemon=True).start()

    def _serve(self, sock, number):
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.number = number
        connection.local_settings.update(self.settings or {})
        connection.local_settings.acknowledge()  # the library sends those that are in force
        connection.initiate_connection()
        streams = {}

        def send():
            sock.sendall(connection.data_to_send())

        try:
            send()
            while data := sock.recv(65536):
                for event in connection.receive_data(data):
                    self._on(event, connection, streams, send)
                send()
        except OSError:
            pass
        except Exception as fault:
            self.faults.append(repr(fault))
        finally:
            sock.close()

    def _on(self, event, connection, streams, send):
        stream = streams.get(getattr(event, "stream_id", None))
        if isinstance(event, RequestReceived):
            stream = streams[event.stream_id] = Stream()
            stream.fields, stream.connection = dict(event.headers), connection.number
            self.requests.append(stream)
            self.script(connection, event.stream_id, send)
        elif isinstance(event, DataReceived):
            stream.received += event.data
            connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            stream.ended = True
        elif isinstance(event, StreamReset):
            stream.reset = event.error_code
