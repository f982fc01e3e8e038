"""Servers that stop behind a Lapwing that does not: clients are told to leave, each sees one failed answer at most, and readiness turns before
it. Servers that only recycle their connections lose nobody."""

import pathlib
import signal
import sys
import threading
import time
from concurrent import futures

import grpc
import pytest
import requests
import urllib3

from lapwing import NO_SPANS
from ports import free_port
from process import Process, wait_for, wait_listening

pytestmark = pytest.mark.beside
SERVERS = pathlib.Path(__file__).parent / "servers"


def start_uvicorn(logs, port):
    command = [sys.executable, "-m", "uvicorn", "streaming_app:app", "--app-dir", str(SERVERS), "--port", str(port), "--log-level", "warning"]
    process = Process("uvicorn", command, logs)
    wait_listening(port)
    return process


class KnownPort(urllib3.connection.HTTPConnection):
    """A connection that knows its local port also after it was closed, as it is at once by an answer that says so."""

    def connect(self):
        super().connect()
        self.local_port = self.sock.getsockname()[1]


class Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = KnownPort


class Caller:
    """One `requests.Session` that asks all the time. `answers` are (status, the connection's number): a connection is a local port."""

    def __init__(self, url, stop):
        self.answers, self.url, self.stop = [], url, stop
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        with requests.Session() as session:
            session.get_adapter(self.url).poolmanager.pool_classes_by_scheme = {"http": Pool}
            while not self.stop.is_set():
                try:
                    with session.get(self.url, stream=True, timeout=10) as answer:
                        port = (answer.raw.connection or answer.raw._connection).local_port
                        self.answers.append((time.monotonic(), answer.status_code, port, answer.headers.get("connection", "")))
                        answer.content  # noqa: B018
                except requests.ConnectionError:
                    self.answers.append((time.monotonic(), 0, None, ""))
                time.sleep(0.02)


def test_uvicorn_drains_under_sigterm(start_lapwing, logs):
    port = free_port()
    server = start_uvicorn(logs, port)
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", env=NO_SPANS)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    stop = threading.Event()
    callers = [Caller(f"{lapwing.url}/x", stop) for _ in range(4)]
    stream = requests.get(f"{lapwing.url}/stream?4", stream=True, timeout=20)
    pieces = stream.iter_content(5)
    assert next(pieces) == b"tick\n"
    wait_for(lambda: all(len(caller.answers) > 5 for caller in callers), 10, "each has been answered")
    server.send(signal.SIGTERM)
    unready = wait_for(lambda: not lapwing.is_ready() and time.monotonic(), 5, "lapwing is not ready", every=0.005)
    failed_first = wait_for(
        lambda: [a for caller in callers for a in list(caller.answers) if a[1] != 200], 5, "somebody failed, who connects anew"
    )
    assert min(a[0] for a in failed_first) > unready - 0.2
    assert b"".join(pieces).endswith(b"done\n"), "the stream goes on to its end"
    stop.set()
    for caller in callers:
        caller.thread.join(10)
        statuses = [status for _, status, _, _ in caller.answers]
        failed = [a for a in caller.answers if a[1] == 502]
        assert set(statuses) <= {200, 502, 0}
        # a port may come back later, with another connection
        pairs = zip(caller.answers, caller.answers[1:])
        assert not [a for a, then in pairs if a[1] == 502 and a[2] in (None, then[2])], "a connection failed twice"
        assert all("close" in connection for *_, connection in failed), failed[:3]
        assert statuses.count(0) <= 1, "a request met the end of its connection"
    assert lapwing.process.output().count("takes no connections") == 1

    server = start_uvicorn(logs, port)
    wait_for(lapwing.is_ready, 10, "lapwing is ready again")
    with requests.Session() as session:
        assert [session.get(f"{lapwing.url}/x", timeout=5).status_code for _ in range(5)] == [200] * 5
    server.stop()


# --- grpcio

class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method.endswith("/Long"):
            return grpc.unary_stream_rpc_method_handler(self.long)
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)

    def long(self, request, context):
        for _ in range(int(request)):
            yield b"tick"
            time.sleep(0.1)


def start_grpc(port=0, **options):
    server = grpc.server(
        futures.ThreadPoolExecutor(8), handlers=[Handler()], options=[("grpc.so_reuseport", 0), *(("grpc." + k, v) for k, v in options.items())]
    )
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, port


def call(channel, timeout=5):
    try:
        channel.unary_unary("/t.T/Unary")(b"x", timeout=timeout)
        return grpc.StatusCode.OK
    except grpc.RpcError as error:
        return error.code()


class States:
    """What a channel went through."""

    def __init__(self, channel):
        self.seen = []
        channel.subscribe(self.seen.append)

    def count(self, state):
        return self.seen.count(state)


@pytest.fixture
def before_grpc(start_lapwing):
    server, port = start_grpc()
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", env=NO_SPANS)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    yield server, port, lapwing
    server.stop(0)


def test_a_grpc_server_that_stops_says_so_through_lapwing(before_grpc):
    server, port, lapwing = before_grpc
    with grpc.insecure_channel(f"127.0.0.1:{lapwing.port}") as channel:
        states = States(channel)
        long = channel.unary_stream("/t.T/Long")(b"30", timeout=20)
        assert next(long) == b"tick"
        assert call(channel) == grpc.StatusCode.OK
        assert states.count(grpc.ChannelConnectivity.READY) == 1
        server.stop(20)
        wait_for(lambda: not lapwing.is_ready(), 5, "lapwing is not ready")
        wait_for(
            lambda: states.seen[-1] != grpc.ChannelConnectivity.READY or states.count(grpc.ChannelConnectivity.READY) > 1,
            5,
            "the channel has left READY",
        )
        codes = []

        def fails():
            codes.append(call(channel))
            return states.count(grpc.ChannelConnectivity.READY) >= 10

        # each failed call is the only one of its connection; a slow machine tells the channel's states late
        wait_for(fails, 15, "the channel has connected anew for each call")
        assert set(codes) == {grpc.StatusCode.UNAVAILABLE} and len(codes) >= 9
        assert sum(1 for _ in long) == 29, "the call under way ends well"

        again, _ = start_grpc(port)
        wait_for(lapwing.is_ready, 10, "lapwing is ready again")
        wait_for(lambda: call(channel) == grpc.StatusCode.OK, 10, "calls succeed again")
        ready = states.count(grpc.ChannelConnectivity.READY)
        assert [call(channel) for _ in range(10)] == [grpc.StatusCode.OK] * 10
        assert states.count(grpc.ChannelConnectivity.READY) <= ready + 1
        again.stop(0)


def test_a_grpc_server_that_is_killed_says_goodbye_too(before_grpc):
    server, _, lapwing = before_grpc
    with grpc.insecure_channel(f"127.0.0.1:{lapwing.port}") as channel:
        states = States(channel)
        assert call(channel) == grpc.StatusCode.OK
        server.stop(0).wait()
        wait_for(lambda: states.seen[-1] != grpc.ChannelConnectivity.READY, 5, "the channel has left READY without a call")


def test_connections_of_a_greatest_age_are_no_goodbye(start_lapwing):
    server, port = start_grpc(max_connection_age_ms=300, max_connection_age_grace_ms=2000)
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", env=NO_SPANS)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    with grpc.insecure_channel(f"127.0.0.1:{lapwing.port}") as channel:
        states = States(channel)
        end = time.monotonic() + 4
        codes = []
        while time.monotonic() < end:
            codes.append(call(channel))
            time.sleep(0.01)
        assert set(codes) == {grpc.StatusCode.OK}, {code: codes.count(code) for code in codes}
        assert states.count(grpc.ChannelConnectivity.READY) == 1, "the client's connection stays"
        assert lapwing.is_ready()
        assert "takes no connections" not in lapwing.process.output()
    server.stop(0)
