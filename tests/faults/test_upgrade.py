"""Upgrades: bytes sent right after the 101 arrive, both directions pass unchanged, and a refusal is an ordinary response."""

import time

import pytest
from fake import Upstream, await_true, plain
from sidecar import Sidecar
from wire import LIMIT

ASK = "GET /ws HTTP/1.1\r\nHost: m\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: abc\r\nSec-WebSocket-Version: 13\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: xyz\r\n\r\n"


def echoes(peer):
    head = peer.head()
    assert head.one("upgrade") == "websocket" and head.one("connection").lower() == "upgrade"
    peer.send(SWITCH + b"\x81\x05hello")
    while True:
        if not peer.buf:
            peer._more()
        data, peer.buf = peer.buf, b""
        if data == b"quit":
            return
        peer.send(data)


def test_bytes_behind_the_101_and_both_ways():
    with Upstream(echoes) as up, Sidecar(up.url) as proxy:
        with proxy.client() as client:
            head = client.send(ASK).head()
            assert (head.status, head.one("sec-websocket-accept"), head.one("upgrade")) == (101, "xyz", "websocket")
            assert client.exactly(7) == b"\x81\x05hello"
            blob = bytes(range(256)) * 2048
            client.send(b"\x00\x01 raw")
            assert client.exactly(6) == b"\x00\x01 raw"
            for i in range(0, len(blob), 65536):
                client.send(blob[i : i + 65536])
                assert client.exactly(65536) == blob[i : i + 65536]
            client.send(b"quit")
            assert client.closed_within(2) is not None
        proxy.settled(ok=1)


def test_bytes_sent_along_with_the_request():
    with Upstream(echoes) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send(ASK + "early")
        assert client.head().status == 101
        assert client.exactly(12) == b"\x81\x05helloearly"
        client.send(b"quit")
        assert client.closed_within(2) is not None
        client.close()  # an upgraded connection may be half closed: it lasts until both sides have ended
        proxy.settled(ok=1)


@pytest.mark.parametrize("status", ["426 Upgrade Required", "200 OK", "403 Forbidden"])
def test_a_refused_upgrade_is_a_response(status):
    def script(peer):
        peer.request()
        peer.send(f"HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nno".encode())
        plain(peer)

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        got = client.send(ASK).response()
        assert (got.start, got.body) == (f"HTTP/1.1 {status}", b"no")
        assert client.send("GET /x HTTP/1.1\r\nHost: m\r\n\r\n").response().body == b"ok"
        proxy.settled(**({"ok": 2} if "200" in status else {"ok": 1, "client_error": 1}))


def test_the_upstream_never_answers_an_upgrade():
    def script(peer):
        peer.head()
        peer.closed_within(LIMIT)

    with Upstream(script) as up, Sidecar(up.url, header_timeout="300ms") as proxy:
        got = proxy.ask(ASK)
        assert (got.status, got.one("x-lapwing-error")) == (504, "header_timeout")
        proxy.settled(timed_out=1)


@pytest.mark.parametrize("who", ["client", "upstream"])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_one_side_leaves_a_stream(who, how):
    ended = []

    def script(peer):
        peer.head()
        peer.send(SWITCH)
        if who == "upstream":
            time.sleep(0.2)
            getattr(peer, how)()
        else:
            ended.append(peer.closed_within(LIMIT))

    with Upstream(script) as up, Sidecar(up.url) as proxy:
        client = proxy.client().send(ASK)
        assert client.head().status == 101
        if who == "client":
            getattr(client, how)()
            assert await_true(lambda: ended) and ended[0] < 2
        else:
            assert client.closed_within(2) is not None
            client.close()
        outcome = "ok" if how == "close" else {"client": "cancelled", "upstream": "broken"}[who]
        proxy.settled(**{outcome: 1})


def test_switching_unasked_is_no_upgrade():
    def script(peer):
        peer.request()
        peer.send(SWITCH + b"surprise")
        peer.closed_within(LIMIT)

    with Upstream(script) as up, Sidecar(up.url, header_timeout="1s") as proxy, proxy.client() as client:
        got = client.send("GET /x HTTP/1.1\r\nHost: m\r\n\r\n").response()
        assert (got.status, got.one("x-lapwing-error")) == (502, "upstream_garbage"), got
        assert b"surprise" not in got.body
        proxy.settled(broken=1)


def test_a_stream_that_stands_still_is_closed():
    def script(peer):
        peer.head()
        peer.send(SWITCH)
        peer.half_close()
        peer.upstream.released.wait(LIMIT)

    with Upstream(script) as up, Sidecar(up.url, idle_timeout="300ms") as proxy, proxy.client() as client:
        assert client.send(ASK).head().status == 101
        proxy.settled(timed_out=1)
        assert client.closed_within(1) is not None
