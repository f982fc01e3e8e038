"""Time limits that Lapwing adds: none by default that a client would notice, and each cut says which limit it was."""

import subprocess

import pytest
from fake import Upstream, await_true, plain
from http2 import Client, Server
from ports import free_port
from sidecar import Sidecar, binary
from test_upstream_faults import is_own
from wire import LIMIT, Closed, chunk

GET = "GET /x HTTP/1.1\r\nHost: m\r\n\r\n"
CUT = 'lapwing_time_limits_reached_total{limit="%s"}'


def test_nothing_is_cut_by_default():
    """What `/config` says: no limit to the upstream's head and pieces, and 15 minutes, above the clients' own 10, to a client that stalls."""
    with Upstream() as up, Sidecar(up.url) as proxy:
        text = proxy.get("/config").decode()
        for line in ('"header_timeout":"off"', '"idle_timeout":"off"', '"client_stall_timeout":"15m"'):
            assert line in text.replace(" ", "") or line.replace("15m", "900s") in text.replace(" ", ""), text


def head_stalls(peer):
    peer.request()
    peer.closed_within(LIMIT)


def body_stalls(peer):
    peer.request()
    peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"abc"))
    peer.closed_within(LIMIT)


def test_a_head_that_is_late_names_its_limit():
    with Upstream(head_stalls) as up, Sidecar(up.url, header_timeout="200ms") as proxy:
        got = proxy.get_path("/x")
        assert is_own(got, 504, "header_timeout") and b"header_timeout = 200ms" in got.body
        assert await_true(lambda: "header_timeout = 200ms" in proxy.log()), proxy.log()
        assert proxy.metric(CUT % "header_timeout") == 1
        proxy.settled(timed_out=1)


def test_a_stream_that_is_cut_is_logged_and_counted():
    with Upstream(body_stalls) as up, Sidecar(up.url, idle_timeout="200ms") as proxy, proxy.client() as client:
        response = client.send(GET).head()
        with pytest.raises(Closed):
            client.body(response)
        assert await_true(lambda: "idle_timeout = 200ms" in proxy.log()), proxy.log()
        assert proxy.metric(CUT % "idle_timeout") == 1
        proxy.settled(timed_out=1)


def test_a_client_that_stalls_is_named():
    def script(peer):
        peer.head()
        peer.closed_within(LIMIT)

    limits = {"client_stall_timeout": "300ms", "header_timeout": "20s", "idle_timeout": "20s"}
    with Upstream(script) as up, Sidecar(up.url, **limits) as proxy, proxy.client() as client:
        client.send("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 100\r\n\r\nabc")
        got = client.response()
        assert is_own(got, 408, "request_stalled") and b"client_stall_timeout = 300ms" in got.body
        assert proxy.metric(CUT % "client_stall_timeout") == 1
        proxy.settled(rejected=1)


def test_a_grpc_stream_that_is_cut_says_so_in_its_status():
    def script(connection, stream, send):
        connection.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        connection.send_data(stream, b"\0\0\0\0\1x")
        send()

    with Server(script) as up, Sidecar(up.url, idle_timeout="200ms") as proxy, Client(proxy) as client:
        got = client.get("/inference.GRPCInferenceService/ModelStreamInfer", "POST", b"\0\0\0\0\0")
        assert (got.reset, got.body) == (None, b"\0\0\0\0\1x")
        assert got.trailers["grpc-status"] == "4" and "idle_timeout" in got.trailers["grpc-message"], got.trailers
        assert got.trailers["x-lapwing-error"] == "idle_timeout"
        assert proxy.metric(CUT % "idle_timeout") == 1
        proxy.settled(timed_out=1, plain=False)


def test_clients_without_a_descriptor_are_counted_and_told_of():
    """80 of 128 descriptors are the clients': the 81st waits, and everybody who could mend it is told."""
    with Upstream(*[plain] * 90) as up, Sidecar(up.url, descriptors=128) as proxy:
        assert proxy.get("/readyz").startswith(b"ready")
        held = [proxy.client() for _ in range(80)]
        late = proxy.client().send(GET)
        assert await_true(lambda: proxy.metric("lapwing_client_connections_waiting") == 1)
        assert proxy.metric("lapwing_client_connections_waited_total") >= 1
        assert b"ulimit -n" in proxy.get("/readyz") and b"80 of 128" in proxy.get("/readyz")
        assert proxy.log().count("ulimit -n") == 1, proxy.log()
        held.pop().close()
        assert late.response().status == 200
        assert await_true(lambda: proxy.get("/readyz").startswith(b"ready"))
        assert proxy.metric("lapwing_client_connections_waiting") == 0
        for client in held:
            client.close()
        proxy.settled(ok=1)


def test_the_soft_limit_is_raised():
    with Upstream() as up, Sidecar(up.url, descriptors="64:4096") as proxy:
        with open(f"/proc/{proxy.process.pid}/limits") as limits:
            line = next(line for line in limits if line.startswith("Max open files"))
        assert line.split()[3:5] == ["4096", "4096"]
        clients = [proxy.client() for _ in range(200)]
        assert clients[-1].send(GET).response().status == 200
        for client in clients:
            client.close()
        proxy.settled(ok=1)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_lapwing_on_the_same_address_is_refused(workers):
    with Upstream() as up, Sidecar(up.url, workers=2) as proxy:
        address = f"127.0.0.1:{proxy.port}"
        command = [binary(), "--upstream", up.url, "--listen", address, "--admin", f"127.0.0.1:{free_port()}", "--workers", str(workers)]
        command += ["--otlp-grpc", "off", "--otlp-http", "off"]
        second = subprocess.run(command, capture_output=True, text=True, timeout=20)
        assert second.returncode != 0 and address in second.stderr and "in use" in second.stderr, second
        for _ in range(8):  # both workers still serve
            assert proxy.get_path("/x").status == 200
        proxy.settled(ok=8)
