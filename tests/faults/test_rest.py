"""Connections that rest between requests: their buffers are given back, and the next request is served as any other, however it comes."""

import time

import pytest
from fake import Upstream, await_true
from sidecar import Sidecar

GET = "GET /x HTTP/1.1\r\nHost: m\r\n\r\n"
POST = "POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\n\r\nhi"
REST_S = 2.6
"""A connection rests two seconds after its last request."""


def test_buffers_of_idle_connections_are_given_back_and_requests_go_on():
    n = 500

    def ask_all(clients):
        for client in clients:
            client.send(POST)
            assert client.response().status == 200

    with Upstream() as up, Sidecar(up.url) as proxy:
        clients = [proxy.client().__enter__() for _ in range(n)]
        ask_all(clients[:1] * 1000)  # so that the process has all that it needs for any request
        time.sleep(REST_S)
        for _ in range(2):
            ask_all(clients)
            asked = proxy.rss_kib()
            time.sleep(REST_S)
            # hyper's buffers are 16 KiB, of which 8 are in use; the allocator gives memory back while it is asked for some
            is_given_back = lambda: proxy.stats() and asked - proxy.rss_kib() > 4 * n  # noqa: B023
            assert await_true(is_given_back, 10), (asked, proxy.rss_kib())
        for client in clients:
            client.close()
        proxy.settled(ok=2 * n + 1000)


@pytest.mark.parametrize("split", [1, 10, 30])
def test_a_head_that_comes_in_pieces_after_a_rest(split):
    with Upstream() as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send(POST)
        assert client.response().body == b"ok"
        time.sleep(REST_S)
        client.send(POST[:split])
        time.sleep(0.05)
        client.send(POST[split:])
        assert client.response().body == b"ok"
        client.send(POST + GET + POST)
        assert [client.response().status for _ in range(3)] == [200] * 3
        proxy.settled(ok=5)


def test_a_head_that_has_begun_does_not_rest():
    with Upstream() as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send(GET + POST[:20])
        assert client.response().status == 200
        time.sleep(REST_S)
        client.send(POST[20:])
        assert client.response().status == 200
        proxy.settled(ok=2)


@pytest.mark.parametrize("end", ["close", "half_close", "reset"])
def test_a_client_that_leaves_while_its_connection_rests(end):
    with Upstream() as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send(GET)
        assert client.response().status == 200
        time.sleep(REST_S)
        getattr(client, end)()
        assert end != "half_close" or client.closed_within(1) is not None
        proxy.settled(ok=1)


def test_a_connection_at_rest_ends_when_it_is_idle_for_too_long_and_garbage_is_refused():
    with Upstream() as up, Sidecar(up.url, client_idle_timeout="4s") as proxy:
        with proxy.client() as client:
            client.send(GET)
            assert client.response().status == 200
            assert client.closed_within(8) > 3
        with proxy.client() as client:
            client.send(GET)
            assert client.response().status == 200
            time.sleep(REST_S)
            client.send("\x00\x01\x02\r\n\r\n")
            assert client.response().status == 400
        proxy.settled(ok=2, rejected=1)


@pytest.mark.parametrize("sent", ["", "PR"], ids=["nothing", "part of a preface"])
def test_a_connection_that_never_asked_ends_too(sent):
    with Upstream() as up, Sidecar(up.url, client_idle_timeout="4s", client_header_timeout="4s") as proxy:
        with proxy.client() as client:
            client.send(sent)
            assert client.closed_within(8) > 3
        proxy.settled(**({"rejected": 1} if sent else {}))


def test_a_connection_at_rest_does_not_hold_the_end_up():
    with Upstream() as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send(GET)
        assert client.response().status == 200
        time.sleep(REST_S)
        began = time.monotonic()
        proxy.ended_on_purpose = True
        proxy.process.terminate()
        assert proxy.process.wait(10) == 0 and time.monotonic() - began < 2
        assert client.closed_within(1) is not None
