"""HTTP/2 without TLS on the same port: the same faults, as seen by a client whose requests share a connection."""

import socket
import time

import pytest
from fake import OK, Upstream, await_true, breaks_after, chunked, plain
from http2 import Client, Stream
from sidecar import Sidecar
from wire import LIMIT


def over_h1(up, **settings):
    return Sidecar(up.url, upstream_protocol="h1", **settings)


def test_plain_with_trailers():
    script = chunked(b"abc", trailers=b"x-end: 1\r\n", fields=b"trailer: x-end\r\n")
    with Upstream(script) as up, over_h1(up) as proxy, Client(proxy) as client:
        got = client.get("/x")
        assert (got.status, got.body, got.trailers) == (200, b"abc", {"x-end": "1"})
        assert up.requests[0].one("host") == "m"
        proxy.settled(ok=1)


def test_faults_of_one_stream_leave_the_others():
    cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc"
    with Upstream(breaks_after(b""), breaks_after(cut), breaks_after(b"SSH-2.0\r\n\r\n", "close")) as up:
        with over_h1(up) as proxy, Client(proxy) as client:
            got = client.get("/reset")
            assert (got.status, got.fields["x-lapwing-error"], got.ended) == (502, "upstream_reset", True)
            got = client.get("/cut")
            assert got.status == 200 and got.reset is not None, "a body that looks complete would be wrong"
            got = client.get("/garbage")
            assert (got.status, got.fields["x-lapwing-error"]) == (502, "upstream_garbage")
            assert client.get("/fine").body == b"ok"
            proxy.settled(ok=1, broken=3)


def test_leaving_by_reset_and_by_close():
    ended = []

    def script(peer):
        peer.head()
        ended.append(peer.closed_within(LIMIT))

    with Upstream(script, script) as up, over_h1(up) as proxy:
        with Client(proxy) as client:
            number = client.ask("/x")
            assert await_true(lambda: up.seen("/x") == 1)
            client.h2.reset_stream(number)
            client.flush()
            assert await_true(lambda: len(ended) == 1)
            client.ask("/x")
            assert await_true(lambda: up.seen("/x") == 2)
        assert await_true(lambda: len(ended) == 2)
        proxy.settled(cancelled=2)


def test_leaving_mid_request_body():
    ended = []

    def script(peer):
        peer.head()
        ended.append(peer.closed_within(LIMIT))

    with Upstream(script) as up, over_h1(up) as proxy, Client(proxy) as client:
        number = client.ask("/x", "POST", b"abc", end=False)
        assert await_true(lambda: up.seen("/x"))
        client.h2.reset_stream(number)
        client.flush()
        assert await_true(lambda: ended)
        proxy.settled(cancelled=1)


def test_an_upstream_that_refuses_http2():
    with Sidecar("http://127.0.0.1:9") as proxy, Client(proxy) as client:
        got = client.get("/x")
        assert (got.status, got.fields["x-lapwing-error"]) == (502, "connect_refused")
        proxy.settled(unreachable=1, plain=False)


def test_an_upstream_that_does_not_speak_http2():
    with Upstream(breaks_after(b"", "close")) as up, Sidecar(up.url) as proxy, Client(proxy) as client:
        got = client.get("/x")  # it closes at the preface, and answers HTTP/1.1
        assert (got.status, got.body) == (200, b"ok")
        assert await_true(lambda: proxy.outcomes() == {"ok": 1})


def test_many_streams_wait_for_one_connect_together():
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        with Sidecar(f"http://127.0.0.1:{full.getsockname()[1]}", connect_timeout="500ms") as proxy, Client(proxy) as client:
            began = time.monotonic()
            streams = [client.ask("/x") for _ in range(20)]
            for number in streams:
                got = client.await_(number)
                assert (got.status, got.fields["x-lapwing-error"]) == (504, "connect_timeout")
            assert time.monotonic() - began < 5, "one after the other"
            proxy.settled(timed_out=20, plain=False)


def test_continue_does_not_wait_its_second():
    def script(peer):
        head = peer.head()
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert peer.body(head).body == b"hi"
        peer.send(OK)
        plain(peer)

    with Upstream(script) as up, over_h1(up) as proxy, Client(proxy) as client:
        began = time.monotonic()
        got = client.get("/x", "POST", b"hi", extra=[("expect", "100-continue"), ("content-length", "2")])
        assert got.body == b"ok" and time.monotonic() - began < 0.9
        proxy.settled(ok=1)


def test_an_idle_connection_is_held_to_its_own_limit():
    with Upstream() as up, over_h1(up, client_header_timeout="300ms", client_idle_timeout="1500ms") as proxy:
        with Client(proxy) as client:
            assert client.get("/x").body == b"ok"
            client.h2.ping(b"12345678")  # bytes, but not the start of a head
            client.flush()
            time.sleep(0.7)
            assert client.get("/x").body == b"ok"
            began = time.monotonic()
            while not client.closed:
                client.pump()
            assert time.monotonic() - began > 1
        proxy.settled(ok=2)


@pytest.mark.parametrize("how", ["http2 upstream", "http1 upstream"])
def test_connect_is_refused(how):
    with Upstream() as up, Sidecar(up.url, upstream_protocol="h2" if "2" in how else "h1") as proxy, Client(proxy) as client:
        number = client.h2.get_next_available_stream_id()
        client.h2.send_headers(number, [(":method", "CONNECT"), (":authority", "m:1")], end_stream=False)
        client.flush()
        client.streams[number] = Stream()
        assert client.await_(number).fields["x-lapwing-error"] == "unsupported"
        proxy.settled(rejected=1, plain=False)
