"""HTTP/2 streams that end without END_STREAM are cut, whatever the code of their reset (RFC 9113, 8.1)."""

import time

import pytest
from fake import Upstream, await_true
from http2 import Client, Server
from sidecar import Sidecar
from wire import Closed

NO_ERROR, CANCEL = 0, 8
GET = "GET /x HTTP/1.1\r\nHost: m\r\n\r\n"


def answers(code, ends=False):
    """Half an answer, or all of it, then a reset with this code."""

    def script(h2, stream, send):
        h2.send_headers(stream, [(":status", "200"), ("content-type", "text/plain")])
        h2.send_data(stream, b"half", end_stream=ends)
        h2.reset_stream(stream, code)

    return script


@pytest.mark.parametrize("code", [NO_ERROR, CANCEL])
def test_a_cut_answer_never_looks_complete(code):
    with Server(answers(code)) as up, Sidecar(up.url, upstream_protocol="h2") as proxy:
        with proxy.client() as client, pytest.raises(Closed):
            client.send(GET).response()
        with Client(proxy) as client:
            assert client.get("/x").reset is not None
        proxy.settled(plain=False, broken=2)


def test_an_answer_that_is_complete_before_the_reset_is_complete():
    """A server that has no use for the rest of an upload says so like this."""
    with Server(answers(NO_ERROR, ends=True)) as up, Sidecar(up.url, upstream_protocol="h2") as proxy:
        with Client(proxy) as client:
            got = client.await_(client.ask("/x", "POST", body=b"ab", end=False))
            assert (got.status, got.body, got.ended) == (200, b"half", True)
        proxy.settled(plain=False, ok=1)


@pytest.mark.parametrize("code", [NO_ERROR, CANCEL])
def test_half_an_upload_never_looks_complete(code):
    ended = []

    def script(peer):
        head = peer.head()
        try:
            ended.append(peer.body(head).body)
        except Closed:
            ended.append(None)

    with Upstream(script) as up, Sidecar(up.url, upstream_protocol="h1") as proxy, Client(proxy) as client:
        number = client.ask("/x", "POST", body=b"half", end=False)
        assert await_true(lambda: up.requests)
        client.reset(number, code)
        assert await_true(lambda: ended)
        assert ended == [None]
        proxy.settled(plain=False, cancelled=1)


@pytest.mark.parametrize("code", [NO_ERROR, CANCEL])
def test_half_an_upload_is_half_over_http2_too(code):
    with Server(lambda *_: None) as up, Sidecar(up.url, upstream_protocol="h2") as proxy, Client(proxy) as client:
        number = client.ask("/x", "POST", body=b"half", end=False)
        assert await_true(lambda: up.requests and up.requests[0].body == b"half")
        client.reset(number, code)
        assert await_true(lambda: up.requests[0].reset is not None)
        assert not up.requests[0].ended
        proxy.settled(plain=False, cancelled=1)


@pytest.mark.parametrize("cut", [1, 3, 11, 12])
def test_a_preface_may_come_in_pieces(cut):
    """And the connection then has the limits of HTTP/2, not those of a slow head."""
    with Server(lambda h2, stream, _: h2.send_headers(stream, [(":status", "204")], end_stream=True)) as up:
        with Sidecar(up.url, upstream_protocol="h2", client_header_timeout="300ms") as proxy, Client(proxy, preface_cut=cut) as client:
            assert client.get("/x").status == 204
            time.sleep(0.6)
            assert client.get("/x").status == 204
            proxy.settled(plain=False, ok=2)
