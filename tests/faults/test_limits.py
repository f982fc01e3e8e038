"""Limits: a request beyond one is refused with the right message, and nothing of it is forwarded."""

import time

import pytest
from fake import OK, Upstream, await_true, plain
from sidecar import Sidecar
from test_upstream_faults import is_own
from wire import LIMIT, Closed, chunk

GET = "GET /x HTTP/1.1\r\nHost: m\r\n\r\n"


def waits(peer):
    peer.request()
    peer.upstream.released.wait(LIMIT)
    peer.send(OK)
    plain(peer)


def test_past_max_in_flight_requests_are_shed():
    with Upstream(waits, waits) as up, Sidecar(up.url, max_in_flight=2) as proxy:
        busy = [proxy.client().send(GET) for _ in range(2)]
        assert await_true(lambda: up.seen("/x") == 2)
        for _ in range(3):
            got = proxy.get_path("/shed")
            assert is_own(got, 503, "shed") and got.one("retry-after")
        up.released.set()
        assert [c.response().status for c in busy] == [200, 200]
        assert up.seen("/shed") == 0
        proxy.settled(ok=2, shed=3)


def test_shed_with_a_body_still_to_come():
    with Upstream(waits) as up, Sidecar(up.url, max_in_flight=1) as proxy, proxy.client() as client:
        busy = proxy.client().send(GET)
        assert await_true(lambda: up.seen("/x") == 1)
        client.send("POST /shed HTTP/1.1\r\nHost: m\r\nContent-Length: 100000\r\n\r\n")
        assert is_own(client.response(), 503, "shed")
        up.released.set()
        assert busy.response().status == 200
        proxy.settled(ok=1, shed=1)


def test_cancelled_requests_leave_room():
    def hangs(peer):
        peer.head()
        peer.closed_within(LIMIT)

    with Upstream(hangs, hangs) as up, Sidecar(up.url, max_in_flight=2) as proxy:
        for client in [proxy.client().send(GET) for _ in range(2)]:
            assert await_true(lambda: up.seen("/x") == 2)
            client.close()
        proxy.settled(cancelled=2)


def test_a_body_whose_length_says_too_much():
    with Upstream() as up, Sidecar(up.url, max_request_bytes=1000) as proxy:
        with proxy.client() as client:
            client.send("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 2000\r\n\r\n")
            assert is_own(client.response(), 413, "body_too_large")
        assert up.requests == []
        assert proxy.ask(b"POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 1000\r\n\r\n" + bytes(1000)).status == 200
        proxy.settled(ok=1, rejected=1)


def test_a_chunked_body_that_becomes_too_much():
    ended = []

    def script(peer):
        try:
            peer.request()
            ended.append("whole")
        except Closed:
            ended.append("cut")

    with Upstream(script) as up, Sidecar(up.url, max_request_bytes=1000) as proxy, proxy.client() as client:
        client.send("POST /x HTTP/1.1\r\nHost: m\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(4):
            client.send(chunk(bytes(400)))
            time.sleep(0.02)
        assert is_own(client.response(), 413, "body_too_large")
        assert await_true(lambda: ended) and ended == ["cut"]
        proxy.settled(rejected=1)


@pytest.mark.parametrize("size", [20_000, 400_000])
def test_a_head_too_large(size):
    with Upstream() as up, Sidecar(up.url, max_header_bytes="16KiB") as proxy, proxy.client() as client:
        try:
            client.send("GET /x HTTP/1.1\r\nHost: m\r\n" + f"X-Large: {'v' * 1000}\r\n" * (size // 1000) + "\r\n")
        except OSError:
            pass  # refused before all of it was sent
        assert is_own(client.response(), 431, "header_too_large")
        assert up.requests == []
        proxy.settled(rejected=1)


def test_too_many_fields():
    with Upstream() as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send("GET /x HTTP/1.1\r\nHost: m\r\n" + "".join(f"X-{i}: 1\r\n" for i in range(2000)) + "\r\n")
        assert is_own(client.response(), 431, "header_too_large")
        proxy.settled(rejected=1)


def test_a_target_too_long():
    with Upstream() as up, Sidecar(up.url, max_header_bytes="16KiB") as proxy, proxy.client() as client:
        client.send(f"GET /{'x' * 100_000} HTTP/1.1\r\nHost: m\r\n\r\n")
        got = client.response()
        assert (got.status, got.one("x-lapwing-error")) == (414, "uri_too_long")
        proxy.settled(rejected=1)
