"""After an answer in the middle of a request, the client's connection carries its next request, or the answer said that it ends."""

import contextlib
import http.client
import time

import pytest
from fake import OK, Upstream, answers, await_true, breaks_after, plain
from ports import free_port
from sidecar import Sidecar
from wire import chunk

NEXT = "GET /next HTTP/1.1\r\nHost: m\r\n\r\n"
SMALL, LARGE = b"x" * 1000, b"x" * (5 << 20)


def head(*fields, method="POST"):
    return "\r\n".join((f"{method} /x HTTP/1.1", "Host: m", *fields, "", ""))


BODIES = {
    "small": (head(f"Content-Length: {len(SMALL)}"), [SMALL]),
    "small in pieces": (head(f"Content-Length: {len(SMALL)}"), [SMALL[:300], SMALL[300:]]),
    "large": (head(f"Content-Length: {len(LARGE)}"), [LARGE]),
    "chunked": (head("Transfer-Encoding: chunked"), [chunk(SMALL), chunk(SMALL) + b"0\r\n\r\n"]),
    "chunked with trailers": (head("Transfer-Encoding: chunked"), [chunk(SMALL), b"0\r\nx-last: 1\r\n\r\n"]),
    "with the head": (head(f"Content-Length: {len(SMALL)}") + SMALL.decode(), []),
    "none": (head("Content-Length: 0"), []),
}


def send(client, first, pieces, pause=0.02):
    """Sends a request in several writes; a peer that has closed takes no more."""
    with contextlib.suppress(OSError):
        client.send(first)
        for piece in pieces:
            time.sleep(pause)
            client.send(piece)


def check_next(client, answer, *status):
    """The connection carries another request, unless the answer said that it ends."""
    if "close" in (answer.one("connection") or ""):
        assert client.closed_within(5) is not None, "it said that the connection ends, and it does not"
        return False
    got = client.send(NEXT).response()
    assert got.status in (status or (200, 502)), got
    return True


def resets(peer):
    """Reads a head, then breaks off."""
    peer.head()
    peer.reset()


def check(proxy, body, status, times=3):
    kept = []
    for _ in range(times):
        with proxy.client() as client:
            send(client, *BODIES[body])
            answer = client.response("POST")
            assert answer.status == status, (answer, answer.body)
            kept.append(check_next(client, answer))
    return kept


@pytest.mark.parametrize("body", BODIES)
class TestOwnAnswers:
    def test_refused(self, body):
        with Sidecar(f"http://127.0.0.1:{free_port()}") as proxy:
            assert not any(check(proxy, body, 502)), "there is no upstream, so clients are told to look for another one"

    def test_broken_off(self, body):
        with Upstream(*[resets] * 12) as up, Sidecar(up.url) as proxy:
            kept = check(proxy, body, 502)
            # a small body of a known length is read to its end; whether all of another has come by then is chance
            assert all(kept) or body in ("large", "chunked", "chunked with trailers"), kept

    def test_shed(self, body):
        with Upstream(breaks_after(b"", "stall")) as up, Sidecar(up.url, max_in_flight=1) as proxy, proxy.client() as busy:
            busy.send(NEXT)
            assert await_true(lambda: up.requests)
            for _ in range(3):
                with proxy.client() as client:
                    send(client, *BODIES[body])
                    answer = client.response("POST")
                    assert answer.status == 503
                    check_next(client, answer, 503)

    def test_unsupported_coding(self, body):
        first, pieces = BODIES[body]
        with Upstream() as up, Sidecar(up.url) as proxy, proxy.client() as client:
            send(client, first.replace("Host: m", "Host: m\r\nTransfer-Encoding: gzip").replace("POST", "PUT", 1), pieces)
            answer = client.response("PUT")
            assert (answer.status, answer.one("x-lapwing-error")) == (400, "malformed_request")
            assert not check_next(client, answer)

    def test_late(self, body):
        with Upstream(breaks_after(b"", "stall")) as up, Sidecar(up.url, header_timeout="200ms", idle_timeout="200ms") as proxy:
            with proxy.client() as client:
                send(client, *BODIES[body])
                answer = client.response("POST")
                assert answer.status == 504
                check_next(client, answer)


@pytest.mark.parametrize("body", [name for name in BODIES if name != "none"])
def test_too_large(body):
    with Upstream() as up, Sidecar(up.url, max_request_bytes=600) as proxy:
        check(proxy, body, 413)


def test_a_stalled_body_is_the_last():
    with Upstream() as up, Sidecar(up.url, client_stall_timeout="200ms") as proxy, proxy.client() as client:
        client.send(BODIES["small"][0]).send(SMALL[:10])
        answer = client.response("POST")
        assert (answer.status, answer.one("x-lapwing-error")) == (408, "request_stalled")
        assert "close" in answer.one("connection")
        assert client.closed_within(5) is not None


def test_a_client_that_waits_to_be_asked_is_told():
    with Sidecar(f"http://127.0.0.1:{free_port()}") as proxy, proxy.client() as client:
        client.send(head(f"Content-Length: {len(SMALL)}", "Expect: 100-continue"))
        answer = client.response("POST")
        assert not client.interim and answer.status == 502 and "close" in answer.one("connection")
    with Upstream() as up, Sidecar(up.url, max_request_bytes=600) as proxy, proxy.client() as client:
        client.send(head(f"Content-Length: {len(SMALL)}", "Expect: 100-continue"))
        answer = client.response("POST")
        assert not client.interim and answer.status == 413 and "close" in answer.one("connection")


@pytest.mark.parametrize("body", ["small in pieces", "large", "chunked"])
@pytest.mark.parametrize("ends", ["keeps", "closes", "leaves"])
def test_early_answers_of_the_upstream(body, ends):
    """It answers the head, then reads the rest, or says that it closes, or closes without a word."""

    def early(peer):
        request = peer.head()
        # without a body nothing is early: the connection must not be taken for the next request while it is being closed
        says_close = ends == "closes" or (ends == "leaves" and request.start.startswith("GET"))
        peer.send(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1) if says_close else OK)
        if ends == "keeps":
            peer.body(request)
            plain(peer)
        elif ends == "closes":
            peer.half_close()
            peer.to_end()

    with Upstream(*[early] * 6) as up, Sidecar(up.url) as proxy:
        kept = check(proxy, body, 200)
        if ends != "leaves":
            assert kept == [ends == "keeps"] * 3


def test_pipelined_requests_are_answered():
    with Upstream(*[breaks_after(b"", "reset")] * 9) as up, Sidecar(up.url) as proxy:
        for _ in range(3):
            with proxy.client() as client:
                client.send(BODIES["small"][0].encode() + SMALL + NEXT.encode())
                answer = client.response("POST")
                assert (answer.status, answer.one("connection")) == (502, None)
                assert client.response().status == 502


def test_a_kept_body_is_not_taken_for_the_next_request():
    """What is left of a request may look like another one."""
    hidden = NEXT.replace("/next", "/hidden").encode()
    with Upstream(breaks_after(b"", "reset")) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        send(client, head(f"Content-Length: {len(hidden)}"), [hidden])
        assert check_next(client, client.response("POST"))
        assert b"/next" in b"".join(r.raw for r in up.requests)
        assert not any(r.start.startswith("GET /hidden") for r in up.requests)


def test_http_client_goes_on():
    """The standard library's client writes head and body apart: 20 requests over one object, of which each is answered."""
    with Sidecar(f"http://127.0.0.1:{free_port()}") as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=5)
        for _ in range(20):
            connection.request("POST", "/x", body=iter([SMALL]), headers={"Content-Length": str(len(SMALL))})
            got = connection.getresponse()
            assert (got.status, got.read()[:8]) == (502, b"lapwing:")


def test_a_client_that_never_sends_the_rest_is_let_go():
    with Upstream(resets) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send(BODIES["small"][0])
        assert client.response("POST").status == 502
        assert 1 < client.closed_within(8) < 6
