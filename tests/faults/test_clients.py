"""Clients that disconnect, stall or violate the protocol: the upstream connection is closed, other clients are not affected, and each
request is counted once."""

import time

import pytest
from fake import OK, Upstream, await_true, plain
from sidecar import Sidecar
from wire import LIMIT, chunk

GET = "GET /x HTTP/1.1\r\nHost: m\r\n\r\n"


def watches_for_the_end(first=b"", ended=None, every=None):
    """A script that answers `first` (then one chunk per `every` seconds) and records how long its connection stayed open."""

    def script(peer):
        peer.head()
        began = time.monotonic()
        if first:
            peer.send(first)
        while every and time.monotonic() - began < LIMIT:
            if peer.closed_within(every) is not None:
                break
            try:
                peer.send(chunk(b"tick"))
            except OSError:
                break
        else:
            peer.closed_within(LIMIT)
        ended.append(time.monotonic() - began)

    return script


# === disconnecting ===


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_leaving_before_the_head_is_whole(leave):
    with Upstream() as up, Sidecar(up.url) as proxy:
        client = proxy.client().send("POST /x HTTP/1.1\r\nHost: m\r\nX-Ha")
        time.sleep(0.1)
        getattr(client, leave)()
        time.sleep(0.3)
        assert up.requests == []
        assert proxy.metric('lapwing_client_connections_failed_total{reason="broken"}') == 1
        proxy.settled()  # no request was sent, so none is counted


@pytest.mark.parametrize("leave", ["close", "reset"])
@pytest.mark.parametrize("framing", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_leaving_mid_request_body(framing, leave):
    ended = []
    with Upstream(watches_for_the_end(ended=ended)) as up, Sidecar(up.url) as proxy:
        client = proxy.client().send(f"POST /x HTTP/1.1\r\nHost: m\r\n{framing}\r\n\r\n")
        client.send(chunk(b"abc"))
        assert await_true(lambda: up.seen("/x"))
        time.sleep(0.05)
        getattr(client, leave)()
        assert await_true(lambda: ended) and ended[0] < 2, "the upstream connection was not closed"
        proxy.settled(cancelled=1)


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_leaving_while_waiting_for_the_response(leave):
    ended = []
    with Upstream(watches_for_the_end(ended=ended)) as up, Sidecar(up.url) as proxy:
        client = proxy.client().send("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\n\r\nhi")
        assert await_true(lambda: up.seen("/x"))
        getattr(client, leave)()
        assert await_true(lambda: ended) and ended[0] < 1, "the upstream connection was not closed"
        proxy.settled(cancelled=1)


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_leaving_mid_response(leave):
    ended = []
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    with Upstream(watches_for_the_end(head, ended, every=0.02)) as up, Sidecar(up.url) as proxy:
        client = proxy.client().send(GET)
        client.head()
        time.sleep(0.1)
        getattr(client, leave)()
        assert await_true(lambda: ended) and ended[0] < 1.5, "the upstream connection was not closed"
        proxy.settled(cancelled=1)


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_leaving_a_response_that_stands_still(leave):
    ended = []
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"
    with Upstream(watches_for_the_end(head, ended)) as up, Sidecar(up.url) as proxy:
        client = proxy.client().send(GET)
        client.head()
        time.sleep(0.1)
        getattr(client, leave)()
        assert await_true(lambda: ended) and ended[0] < 1.5, "the upstream connection was not closed"
        proxy.settled(cancelled=1)


def test_a_storm_of_leavers():
    count = 40

    def script(peer):
        peer.head()
        peer.closed_within(LIMIT)

    with Upstream(*[script] * count) as up, Sidecar(up.url) as proxy:
        clients = [proxy.client().send(GET) for _ in range(count)]
        assert await_true(lambda: up.seen("/x") == count)
        for i, client in enumerate(clients):
            client.reset() if i % 2 else client.close()
        proxy.settled(cancelled=count)


# === stalling ===


def test_a_slow_head_is_disconnected():
    with Upstream() as up, Sidecar(up.url, client_header_timeout="400ms") as proxy, proxy.client() as client:
        began = time.monotonic()
        client.send("GET /x HTTP/1.1\r\n")
        ended = None
        while ended is None and time.monotonic() - began < 4:  # single bytes do not extend the limit
            try:
                client.send("X")
            except OSError:
                break
            ended = client.closed_within(0.1)
        assert 0.3 < time.monotonic() - began < 2
        assert up.requests == []
        proxy.settled(rejected=1)


def test_a_slow_head_is_told():
    with Upstream() as up, Sidecar(up.url, client_header_timeout="400ms") as proxy, proxy.client() as client:
        client.send("GET /x HTTP/1.1\r\n")
        got = client.response()
        assert (got.status, got.one("x-lapwing-error"), got.one("connection")) == (408, "header_timeout", "close")
        assert b"client_header_timeout" in got.body
        assert up.requests == []
        proxy.settled(rejected=1)


def test_an_idle_client_is_disconnected():
    with Upstream() as up, Sidecar(up.url, client_idle_timeout="400ms") as proxy, proxy.client() as client:
        assert client.send(GET).response().status == 200
        ended = client.closed_within(3)
        assert ended and 0.3 < ended < 2
        proxy.settled(ok=1)


def test_a_client_that_sends_nothing_is_disconnected():
    with Upstream() as up, Sidecar(up.url, client_idle_timeout="400ms") as proxy, proxy.client() as client:
        ended = client.closed_within(3)
        assert ended and 0.3 < ended < 2
        proxy.settled()


def test_a_request_body_that_stands_still():
    ended = []
    with Upstream(watches_for_the_end(ended=ended)) as up, Sidecar(up.url, client_stall_timeout="300ms") as proxy, proxy.client() as client:
        client.send("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 100\r\n\r\nabc")
        got = client.response()
        assert got.status == 408 and got.one("x-lapwing-error"), got
        assert await_true(lambda: ended) and ended[0] < 2
        proxy.settled(rejected=1)


def test_a_slow_reader_costs_no_memory_and_is_egress():
    size, wait = 24 << 20, 0.6

    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size >> 16):
            peer.send(bytes(1 << 16))
        plain(peer)

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client(rcvbuf=65536) as client:
        proxy.get("/stats?window=all")
        before = proxy.rss_kib()
        response = client.send(GET).head()
        time.sleep(wait)
        stood = proxy.rss_kib()
        got = len(client.buf)
        client.buf = b""
        while got < size:
            data = client.sock.recv(1 << 20)
            assert data, f"cut after {got}"
            got += len(data)
        assert response.status == 200 and got == size
        assert stood - before < 8192 and proxy.rss_kib() - before < 8192, "buffered instead of holding the upstream back"
        proxy.settled(ok=1, plain=False)
        stages = {s["stage"]: s["ns"] for s in proxy.exchanges()[0]["stages"]}
        assert stages["egress"] > wait * 0.8e9, f"the reader's time went elsewhere: {stages}"
        assert stages["upstream"] < wait * 0.5e9, stages
        proxy.settled(ok=1)


def test_a_slow_writer_is_ingress_and_is_not_buffered():
    came = []

    def script(peer):
        head = peer.head()
        for at, data in peer.chunks(head):
            came.append((at, data))
        peer.send(OK)
        plain(peer)

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send("POST /x HTTP/1.1\r\nHost: m\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n")
        sent = []
        for i in range(15):
            time.sleep(0.02)
            sent.append(time.monotonic())
            client.send(chunk(b"part-%d" % i))
        client.send("0\r\nX-End: 1\r\n\r\n")
        assert client.response().body == b"ok"
        assert [d for _, d in came] == [b"part-%d" % i for i in range(15)]
        late = sorted(at - began for (at, _), began in zip(came, sent))
        assert late[len(late) // 2] < 0.010 and late[-1] < 0.050, f"buffered: {late}"
        assert [(n.lower(), v) for n, v in up.requests[0].trailers] == [("x-end", "1")]
        proxy.settled(ok=1, plain=False)
        stages = {s["stage"]: s["ns"] for s in proxy.exchanges()[0]["stages"]}
        assert stages["ingress"] > 0.25e9, stages
        proxy.settled(ok=1)


# === old or unusual, but valid ===


def test_pipelined_requests_are_answered_in_order():
    def script(peer):
        while True:
            request = peer.request()
            body = request.target.encode()
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    with Upstream(*[script] * 3) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send("".join(f"POST /{i} HTTP/1.1\r\nHost: m\r\nContent-Length: 1\r\n\r\n{i}" for i in range(8)))
        assert [client.response().body for _ in range(8)] == [b"/%d" % i for i in range(8)]
        assert [r.body for r in up.requests] == [b"%d" % i for i in range(8)]
        up.scripts.clear()
        proxy.settled(ok=8, plain=False)


def test_http_1_0():
    with Upstream() as up, Sidecar(up.url) as proxy:
        with proxy.client() as client:
            client.send("GET /x HTTP/1.0\r\n\r\n")
            assert client.response().body == b"ok"
            assert client.closed_within(1) is not None
        with proxy.client() as client:
            for _ in range(2):
                client.send("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                assert client.response().body == b"ok"
        proxy.settled(ok=3)


def test_http_1_0_is_never_sent_chunks():
    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"ab") + chunk(b"cd") + b"0\r\n\r\n")
        plain(peer)

    with Upstream(script) as up, Sidecar(up.url) as proxy:
        got = proxy.ask("GET /x HTTP/1.0\r\n\r\n")
        assert got.body == b"abcd" and not got.all("transfer-encoding")
        proxy.settled(ok=1)


def test_absolute_form_keeps_the_host_and_path():
    with Upstream() as up, Sidecar(up.url) as proxy:
        assert proxy.ask("GET http://model.example/x?y=1 HTTP/1.1\r\nHost: model.example\r\n\r\n").status == 200
        seen = up.requests[0]
        assert seen.target in ("/x?y=1", "http://model.example/x?y=1") and seen.all("host") == ["model.example"]
        proxy.settled(ok=1)


def test_asterisk_form():
    with Upstream() as up, Sidecar(up.url) as proxy:
        assert proxy.ask("OPTIONS * HTTP/1.1\r\nHost: m\r\n\r\n").status == 200
        assert up.requests[0].start == "OPTIONS * HTTP/1.1"
        proxy.settled(ok=1)


def test_a_client_that_says_close():
    with Upstream() as up, Sidecar(up.url) as proxy, proxy.client() as client:
        assert client.send("GET /x HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n").response().status == 200
        assert client.closed_within(1) is not None
        proxy.settled(ok=1)


# === protocol violations ===

MALFORMED = {
    "request line": "GET\r\n\r\n",
    "version": "GET /x HTTP/9.9\r\nHost: m\r\n\r\n",
    "words": "hello there\r\n\r\n",
    "header without colon": "GET /x HTTP/1.1\r\nHost: m\r\nnonsense\r\n\r\n",
    "space before colon": "GET /x HTTP/1.1\r\nHost : m\r\n\r\n",
    "control in a value": "GET /x HTTP/1.1\r\nHost: m\r\nX: a\x00b\r\n\r\n",
    "length is a word": "POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: many\r\n\r\n",
    "negative length": "POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: -1\r\n\r\n",
    "two lengths": "POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    "unknown encoding": "POST /x HTTP/1.1\r\nHost: m\r\nTransfer-Encoding: cow\r\n\r\n",
    "tls": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "\x00" * 40,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_heads_are_refused(name):
    with Upstream() as up, Sidecar(up.url) as proxy, proxy.client() as client:
        got = client.send(MALFORMED[name]).response()
        assert (got.status, got.one("x-lapwing-error")) == (400, "malformed_request"), got
        assert len(got.body) > 10 and client.closed_within(1) is not None
        assert up.requests == []
        proxy.settled(rejected=1)


@pytest.mark.parametrize("order", [0, 1])
def test_length_and_chunks_smuggle_nothing(order):
    body = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: m\r\n\r\n"
    fields = [f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"]
    head = "POST /x HTTP/1.1\r\nHost: m\r\n" + "\r\n".join(fields[:: -1 if order else 1]) + "\r\n\r\n"
    with Upstream() as up, Sidecar(up.url) as proxy, proxy.client() as client:
        got = client.send(head + body).response()
        # RFC 9112, 6.1 allows ignoring the length, but then the connection must end after the answer
        assert got.status == 200 and client.closed_within(2) is not None
        framings = [(seen.target, seen.all("content-length"), seen.all("transfer-encoding")) for seen in up.requests]
        assert framings == [("/x", [], ["chunked"])], "two framings passed on, or the rest was served as another request"
        proxy.settled(ok=1)


@pytest.mark.parametrize("body", ["zz\r\nabc\r\n", "3\r\nabcdef\r\n0\r\n\r\n", "3 \x00\r\nabc\r\n0\r\n\r\n"])
def test_malformed_chunks_end_the_request(body):
    with Upstream() as up, Sidecar(up.url) as proxy, proxy.client() as client:
        got = client.send("POST /x HTTP/1.1\r\nHost: m\r\nTransfer-Encoding: chunked\r\n\r\n" + body).response()
        assert (got.status, got.one("x-lapwing-error")) == (400, "malformed_body"), got
        assert client.closed_within(2) is not None
        proxy.settled(rejected=1)
