"""Responses of every form pass unchanged: framing, timing, trailers, interim heads, names and order."""

import time

import pytest
from fake import OK, Upstream, answers, await_true, chunked, plain
from sidecar import Sidecar
from wire import LIMIT, chunk

GET = "GET /x HTTP/1.1\r\nHost: m\r\n\r\n"


def test_chunks_keep_boundaries_time_and_trailers():
    parts = [b"token-%d " % i for i in range(20)]
    sent = []

    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nTrailer: X-Sum, X-End\r\n\r\n")
        for part in parts:
            time.sleep(0.02)
            sent.append(time.monotonic())
            peer.send(chunk(part))
        time.sleep(0.02)
        peer.send(b"0\r\nX-Sum: 9\r\nX-End: 1\r\n\r\n")
        plain(peer)

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        response = client.send("GET /x HTTP/1.1\r\nHost: m\r\nTE: trailers\r\n\r\n").response()
        assert [c for _, c in response.chunks] == parts
        late = sorted(at - began for (at, _), began in zip(response.chunks, sent))
        assert late[len(late) // 2] < 0.010 and late[-1] < 0.050, f"buffered: {late}"
        assert sorted((n.lower(), v) for n, v in response.trailers) == [("x-end", "1"), ("x-sum", "9")]
        assert response.one("trailer") == "X-Sum, X-End" and up.requests[0].one("te") == "trailers"
        proxy.settled(ok=1)


def test_the_head_does_not_wait_for_the_body():
    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
        time.sleep(0.3)
        peer.send(b"ok")
        plain(peer)

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        began = time.monotonic()
        head = client.send(GET).head()
        assert head.at - began < 0.2
        assert client.body(head).body == b"ok"
        proxy.settled(ok=1)


def test_undeclared_trailers_do_no_harm():
    with Upstream(chunked(b"abc", trailers=b"X-Late: 1\r\n")) as up, Sidecar(up.url) as proxy:
        assert proxy.get_path("/x").body == b"abc"
        proxy.settled(ok=1)


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_bodiless_statuses(status):
    etag = b"" if "204" in status else b'etag: "a"\r\n'
    response = b"HTTP/1.1 %s\r\n%sx-a: 1\r\n\r\n" % (status.encode(), etag)
    with Upstream(answers(response)) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        for _ in range(2):  # the connection is still usable afterwards
            got = client.send(GET).response()
        assert got.body == b"ok"
        proxy.settled(ok=2)


def test_a_304_may_tell_a_length():
    with Upstream(answers(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 500\r\n\r\n")) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        got = client.send(GET).response()
        # hyper leaves the length out of a 304, which RFC 9110, 8.6 allows; any other length would be wrong
        assert got.status == 304 and got.one("content-length") in (None, "500")
        assert client.send(GET).response().body == b"ok"
        proxy.settled(ok=2)


@pytest.mark.parametrize("field", ["content-length: 12345", "transfer-encoding: chunked"])
def test_head_has_fields_and_no_body(field):
    with Upstream(answers(f"HTTP/1.1 200 OK\r\n{field}\r\n\r\n".encode())) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        got = client.send("HEAD /x HTTP/1.1\r\nHost: m\r\n\r\n").response("HEAD")
        name, value = field.split(": ")
        # hyper leaves `transfer-encoding` out, which RFC 9112, 6.1 allows
        assert got.one(name) == value or (name == "transfer-encoding" and not got.all(name))
        assert client.send(GET).response().body == b"ok"
        assert [r.method for r in up.requests] == ["HEAD", "GET"]
        proxy.settled(ok=2)


def test_early_hints_come_early():
    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")
        time.sleep(0.4)
        peer.send(OK)
        plain(peer)

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        began = time.monotonic()
        hint = client.send(GET).head()
        assert (hint.status, hint.one("link")) == (103, "</a.css>; rel=preload")
        assert hint.at - began < 0.3, "held back until the final response"
        assert client.response().body == b"ok"
        proxy.settled(ok=1)


def test_continue_is_the_upstreams_word():
    def script(peer):
        head = peer.head()
        assert head.one("expect").lower() == "100-continue"
        time.sleep(0.3)
        assert peer.buf == b"", "the body arrived before the upstream asked for it"
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert peer.body(head).body == b"hi"
        peer.send(OK)
        plain(peer)

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        began = time.monotonic()
        interim = client.send("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n").head()
        assert interim.status == 100 and interim.at - began > 0.25, "the proxy answered 100 in place of the upstream"
        client.send("hi")
        assert client.response().body == b"ok"
        proxy.settled(ok=1)


def test_continue_refused():
    def script(peer):
        peer.head()
        peer.send(b"HTTP/1.1 417 Expectation Failed\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert client.response().status == 417 and client.interim == []
        proxy.settled(client_error=1)


def test_an_early_answer_while_the_body_still_comes():
    """Both connections go on once the rest of the body has come, as the client's would without Lapwing."""

    bodies = []

    def script(peer):
        for _ in range(3):
            head = peer.head()
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly")
            bodies.append(peer.body(head).body)
        plain(peer)

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        for n in range(1, 4):
            client.send("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 4\r\n\r\nab")
            assert client.response().body == b"early"
            client.send("cd")
            assert await_true(lambda n=n: len(bodies) == n) and set(bodies) == {b"abcd"}
        client.send(GET)
        assert client.response().body == b"ok"
        proxy.settled(ok=4)
        assert up.connections == 1


def test_an_early_answer_to_a_body_that_never_ends():
    """The rest of a request is waited for as long as nginx waits for it, and not for ever."""

    def script(peer):
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly")
        peer.closed_within(8)

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 4\r\n\r\nab")
        assert client.response().body == b"early"
        assert client.closed_within(8)
        proxy.settled(ok=1)


def test_an_early_refusal_of_a_large_body():
    def script(peer):
        peer.head()
        peer.send(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig")
        peer.half_close()
        peer.closed_within(LIMIT / 4)

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send(f"POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: {1 << 20}\r\n\r\n").send(bytes(200_000))
        got = client.response()
        assert (got.status, got.body, got.one("x-lapwing-error")) == (413, b"big", None)
        proxy.settled(client_error=1)


def test_an_early_refusal_by_an_upstream_that_resets_at_once():
    def script(peer):
        peer.head()
        peer.send(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig")

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send(f"POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: {1 << 20}\r\n\r\n").send(bytes(200_000))
        got = client.response()  # the reset may discard the answer; then the client gets a 502, which is counted as such
        assert got.status == 413 or got.one("x-lapwing-error") == "upstream_reset"
        proxy.settled(**{"client_error" if got.status == 413 else "broken": 1})


def test_large_heads_pass():
    fields = [(f"X-Field-{i}", "v" * 1000) for i in range(40)]
    head = "HTTP/1.1 200 OK\r\n" + "".join(f"{n}: {v}\r\n" for n, v in fields) + "content-length: 2\r\n\r\nok"
    with Upstream(answers(head.encode())) as up, Sidecar(up.url) as proxy:
        ask = "GET /x HTTP/1.1\r\nHost: m\r\n" + "".join(f"{n}: {v}\r\n" for n, v in fields) + "\r\n"
        got = proxy.ask(ask)
        assert [f for f in got.fields if f[0].startswith("X-Field")] == fields
        assert [f for f in up.requests[0].fields if f[0].startswith("X-Field")] == fields
        proxy.settled(ok=1)


def test_case_order_and_duplicates_both_ways():
    sent = [("Host", "m"), ("X-ODD-cAsE", "1"), ("x-lower", "2"), ("X-Dup", "a"), ("X-Dup", "b"), ("x-dUP", "c"), ("Accept", "*/*"), ("X-Empty", ""), ("Z-A", "9"), ("A-Z", "0")]
    reply = [("X-ServeR", "1"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("set-cookie", "c=3"), ("ETag", '"x"'), ("Content-Length", "2")]
    head = "HTTP/1.1 200 Very Well\r\n" + "".join(f"{n}: {v}\r\n" for n, v in reply) + "\r\nok"
    with Upstream(answers(head.encode())) as up, Sidecar(up.url) as proxy:
        got = proxy.ask("GET /x?a=%20b&&c HTTP/1.1\r\n" + "".join(f"{n}: {v}\r\n" for n, v in sent) + "\r\n")
        assert [f for f in up.requests[0].fields if f[0].lower() != "traceparent"] == sent
        assert up.requests[0].start == "GET /x?a=%20b&&c HTTP/1.1"
        assert (got.start, got.fields) == ("HTTP/1.1 200 Very Well", reply)
        proxy.settled(ok=1)


def test_a_body_that_ends_with_the_connection():
    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.0 200 OK\r\ncontent-type: a/b\r\n\r\nuntil the end")

    with Upstream(script) as up, Sidecar(up.url) as proxy:
        assert proxy.get_path("/x").body == b"until the end"
        proxy.settled(ok=1)


def test_an_upstream_that_closes_after_each_answer():
    with Upstream(*[answers(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok", then=None)] * 3) as up:
        with Sidecar(up.url) as proxy:
            statuses = []
            for _ in range(3):
                with proxy.client() as client:
                    statuses.append(client.send(GET).response().status)
            assert statuses == [200] * 3 and up.connections == 3
            proxy.settled(ok=3)


@pytest.mark.parametrize("status, outcome", [(200, "ok"), (301, "ok"), (404, "client_error"), (429, "client_error"), (500, "server_error"), (503, "server_error")])
def test_statuses_of_the_upstream_are_its_own(status, outcome):
    with Upstream(answers(b"HTTP/1.1 %d X\r\ncontent-length: 1\r\n\r\n!" % status)) as up, Sidecar(up.url) as proxy:
        got = proxy.get_path("/x")
        assert (got.status, got.body, got.one("x-lapwing-error")) == (status, b"!", None)
        proxy.settled(**{outcome: 1})
