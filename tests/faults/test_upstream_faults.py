"""The upstream refuses, breaks, stalls or violates the protocol: the client gets the right error, and each request counts once."""

import random
import select
import socket
import time

import pytest
from fake import OK, Upstream, answers, await_true, breaks_after, plain
from ports import free_port
from sidecar import Sidecar
from wire import LIMIT, Closed, chunk

GET = "GET /x HTTP/1.1\r\nHost: m\r\n\r\n"
CUT = {
    "head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "length": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc",
    "chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "inside a chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\nabc",
    "before the trailers": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
}


def is_own(response, status, token):
    """Whether the response is Lapwing's own, with the reason in plain text."""
    assert (response.status, response.one("x-lapwing-error")) == (status, token), (response, response.body)
    assert response.one("content-type").startswith("text/plain") and len(response.body.strip()) > 10, response
    return True


# === refuses ===


def test_refused_then_recovered():
    port = free_port()
    with Sidecar(f"http://127.0.0.1:{port}") as proxy:
        for _ in range(3):
            assert is_own(proxy.get_path("/x"), 502, "connect_refused")
        proxy.settled(unreachable=3, plain=False)
        assert b"lapwing_upstream_connections_total 0\n" in proxy.get("/metrics")
        with Upstream(port=port):
            proxy.settled(unreachable=3)


def test_a_missing_unix_socket_is_unreachable(tmp_path):
    path = str(tmp_path / "s")
    with Sidecar(f"unix:{path}") as proxy:
        got = proxy.get_path("/x")
        assert is_own(got, 502, "connect_failed") and path.encode() in got.body, got.body
        with Upstream(path=path):
            proxy.settled(unreachable=1)


def test_connect_timeout():
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        with Sidecar(f"http://127.0.0.1:{full.getsockname()[1]}", connect_timeout="300ms") as proxy:
            began = time.monotonic()
            assert is_own(proxy.get_path("/x"), 504, "connect_timeout")
            assert 0.25 < time.monotonic() - began < 2
            proxy.settled(timed_out=1, plain=False)


# === breaks ===


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("sent", [b"", CUT["head"]], ids=["before the head", "mid head"])
def test_broken_before_the_head_is_a_502(how, sent):
    with Upstream(breaks_after(sent, how)) as up, Sidecar(up.url) as proxy:
        assert is_own(proxy.get_path("/x"), 502, "upstream_reset")
        assert up.seen("/x") == 1
        proxy.settled(broken=1)


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("where", ["length", "chunked", "inside a chunk", "before the trailers"])
def test_broken_in_the_body_is_a_cut(how, where):
    with Upstream(breaks_after(CUT[where], how)) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        response = client.send(GET).head()
        assert response.status == 200
        with pytest.raises(Closed):  # a body that looks complete would be wrong
            client.body(response)
        assert up.seen("/x") == 1
        proxy.settled(broken=1)


@pytest.mark.parametrize("where", ["length", "chunked", "inside a chunk"])
def test_what_came_just_before_a_break_arrives(where):
    def script(peer):  # the last bytes and the end arrive together
        peer.request()
        peer.send(CUT[where])
        peer.close()

    for _ in range(10):
        with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client() as client:
            response = client.send(GET).head()
            assert response.status == 200
            if where != "length":
                assert client.until(b"\r\n") == b"3"
            assert client.exactly(3) == b"abc"
            assert client.closed_within(2) is not None
            proxy.settled(broken=1)


# === stalls ===


@pytest.mark.parametrize("sent", [b"", CUT["head"]], ids=["before the head", "mid head"])
def test_stalled_before_the_head_is_a_504(sent):
    with Upstream(breaks_after(sent, "stall")) as up, Sidecar(up.url, header_timeout="300ms") as proxy:
        began = time.monotonic()
        assert is_own(proxy.get_path("/x"), 504, "header_timeout")
        assert 0.25 < time.monotonic() - began < 2
        proxy.settled(timed_out=1)


@pytest.mark.parametrize("where", ["length", "chunked"])
def test_stalled_in_the_body_is_cut(where):
    with Upstream(breaks_after(CUT[where], "stall")) as up, Sidecar(up.url, idle_timeout="300ms") as proxy, proxy.client() as client:
        began = time.monotonic()
        response = client.send(GET).head()
        with pytest.raises(Closed):
            client.body(response)
        assert 0.25 < time.monotonic() - began < 2
        proxy.settled(timed_out=1)


def test_a_slow_body_that_moves_is_not_stalled():
    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(6):
            time.sleep(0.2)
            peer.send(chunk(b"x"))
        peer.send(b"0\r\n\r\n")
        plain(peer)

    with Upstream(script) as up, Sidecar(up.url, idle_timeout="500ms", header_timeout="500ms") as proxy:
        assert proxy.get_path("/x").body == b"xxxxxx"
        proxy.settled(ok=1)


def test_stalled_upstream_is_closed():
    closed = []

    def script(peer):
        peer.request()
        closed.append(peer.closed_within(5))

    with Upstream(script) as up, Sidecar(up.url, header_timeout="200ms") as proxy:
        assert proxy.get_path("/x").status == 504
        assert await_true(lambda: closed) and closed[0] < 1.5
        proxy.settled(timed_out=1)


# === closes an idle connection ===


@pytest.mark.parametrize("how", ["reset", "close"])
def test_closed_while_idle_is_never_seen(how):
    def script(peer):
        peer.request()
        peer.send(OK)
        time.sleep(0.05)
        if how == "reset":
            peer.reset()

    with Upstream(*[script] * 5) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        for i in range(5):
            client.send(f"POST /{i} HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\n\r\nhi")
            assert client.response().status == 200
            time.sleep(0.15)
        assert [r.target for r in up.requests] == [f"/{i}" for i in range(5)]
        proxy.settled(ok=5)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_closed_once_the_request_was_written_is_no_retry(method):
    with Upstream(answers(OK, then=lambda peer: peer.head())) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send(GET)
        assert client.response().status == 200
        client.send(f"{method} /once HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\n\r\nhi")
        assert is_own(client.response(), 502, "upstream_reset")
        assert up.seen("/once") == 1
        proxy.settled(ok=1, broken=1)


def test_closed_just_as_a_request_is_written():
    rounds, random_ = 60, random.Random(7)

    def script(peer):
        peer.request()
        peer.send(OK)
        time.sleep(random_.uniform(0, 0.004))  # and closes, without a `Connection: close` before

    with Upstream(*[script] * (rounds + 1)) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        statuses = []
        for i in range(rounds):
            client.send(f"POST /race/{i} HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\n\r\nhi")
            response = client.response()
            statuses.append(response.status)
            assert response.status == 200 or is_own(response, 502, "upstream_reset")
            assert up.seen(f"/race/{i}") <= 1, "sent twice"
            assert response.status == 502 or up.seen(f"/race/{i}") == 1
            time.sleep(random_.uniform(0, 0.004))
        up.scripts.clear()
        failed = statuses.count(502)
        assert failed < rounds / 2
        proxy.settled(**{k: n for k, n in (("ok", rounds - failed), ("broken", failed)) if n})


# === violates the protocol ===

NONSENSE = {
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "zeros": bytes(64) + b"\r\n\r\n",
    "http2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18),
    "no status": b"HTTP/1.1 abc OK\r\n\r\n",
    "bare words": b"hello there, this is not a protocol\r\n\r\n",
    "header without colon": b"HTTP/1.1 200 OK\r\nnonsense\r\ncontent-length: 2\r\n\r\nok",
    "length is a word": b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\nok",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nokk",
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_a_502(name):
    with Upstream(breaks_after(NONSENSE[name], "close")) as up, Sidecar(up.url) as proxy:
        # what begins like HTTP/2 is asked in HTTP/2, which the fake does not speak either
        assert is_own(proxy.get_path("/x"), 502, "upstream_protocol" if name == "http2" else "upstream_garbage")
        proxy.settled(broken=1)


def test_an_endless_head_is_a_502():
    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\n")
        for i in range(20000):
            peer.send(b"x-%d: %s\r\n" % (i, b"y" * 100))

    with Upstream(script) as up, Sidecar(up.url) as proxy:
        assert is_own(proxy.get_path("/x"), 502, "upstream_garbage")
        proxy.settled(broken=1)


@pytest.mark.parametrize("size", [b"zz\r\nabc\r\n", b"-1\r\nabc\r\n", b"fffffffffffffffffff\r\nabc\r\n"])
def test_a_nonsense_chunk_is_a_cut(size):
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"
    with Upstream(breaks_after(head + size, "close")) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        with pytest.raises(Closed):  # the head may have been forwarded, but nothing that looks complete
            client.send(GET).response()
        proxy.settled(broken=1)


def test_an_unrequested_answer_reaches_no_client():
    evil = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"
    with Upstream(answers(OK + evil)) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        assert client.send(GET).response().body == b"ok"
        time.sleep(0.1)
        assert client.send(GET).response().body == b"ok"
        proxy.settled(ok=2)


# === reads nothing ===


def test_an_upstream_that_takes_nothing_is_at_fault():
    def script(peer):
        peer.head()
        peer.upstream.released.wait(LIMIT)

    with Upstream(script) as up, Sidecar(up.url, idle_timeout="500ms") as proxy, proxy.client() as client:
        proxy.get("/stats?window=all")
        before = proxy.rss_kib()
        client.send(f"POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: {64 << 20}\r\n\r\n")
        sent = 0
        while sent < 64 << 20 and select.select([client.sock], [client.sock], [], LIMIT)[0] == []:
            sent += client.sock.send(bytes(1 << 16))
        assert is_own(client.response(), 504, "idle_timeout")
        assert sent < 48 << 20 and proxy.rss_kib() - before < 8192, "buffered instead of holding the client back"
        proxy.settled(timed_out=1)


# === a slow client is not the upstream's fault ===


def test_a_pause_of_the_clients_is_not_the_upstreams():
    size = 8 << 20

    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (size + 2))
        peer.send(bytes(size))
        peer.upstream.released.wait(LIMIT)
        peer.send(b"ok")
        plain(peer)

    with Upstream(script) as up, Sidecar(up.url, idle_timeout="2s") as proxy, proxy.client(rcvbuf=65536) as client:
        head = client.send(GET).head()
        step = 3 << 19  # more than the third of a socket's buffer that must be free before it accepts bytes again
        for _ in range(4):  # each pause shorter than the limit, all of them longer
            time.sleep(0.6)
            client.exactly(step)
        client.exactly(size - 4 * step)
        time.sleep(0.3)
        up.released.set()
        assert head.status == 200 and client.exactly(2) == b"ok"
        proxy.settled(ok=1)


def test_a_client_that_takes_nothing_is_closed():
    ended = []

    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (64 << 20))
        try:
            for _ in range(1024):
                peer.send(bytes(1 << 16))
        except OSError:
            ended.append(True)

    with Upstream(script) as up, Sidecar(up.url, client_stall_timeout="500ms") as proxy, proxy.client(rcvbuf=65536) as client:
        client.send(GET)
        assert await_true(lambda: ended), "the upstream connection was not closed"
        proxy.settled(cancelled=1)


STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"data: x\n\n") + b"0\r\n\r\n"


def closes_soon_after(answer):
    """Sends one answer that promises to keep the connection, and closes it 2 ms later, as llama.cpp does after each stream."""

    def script(peer):
        peer.request()
        peer.send(answer)
        time.sleep(0.002)

    return script


def ask_at_once(proxy, n):
    """The statuses of so many calls, each made as soon as the last was answered."""
    statuses = []
    for i in range(n):
        with proxy.client() as client:
            client.send(f"POST /{i} HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\n\r\nhi")
            statuses.append(client.response().status)
    return statuses


def test_a_server_that_closes_after_each_stream_loses_no_request():
    with Upstream(*[closes_soon_after(STREAM)] * 40) as up, Sidecar(up.url) as proxy:
        assert ask_at_once(proxy, 40) == [200] * 40
        proxy.settled(ok=40)


def test_a_server_that_closes_after_each_answer_loses_one_request_at_most():
    with Upstream(*[closes_soon_after(OK)] * 40) as up, Sidecar(up.url) as proxy:
        statuses = ask_at_once(proxy, 40)
        up.scripts.clear()
        assert statuses.count(502) <= 1 and statuses.count(200) >= 39, statuses
        proxy.settled(**{"ok": statuses.count(200), **({"broken": 1} if 502 in statuses else {})})


def test_connections_that_outlive_a_stream_are_used_again():
    def streams(peer):
        while True:
            peer.request()
            peer.send(STREAM)

    with Upstream(*[streams] * 40) as up, Sidecar(up.url) as proxy:
        assert ask_at_once(proxy, 2) == [200] * 2
        time.sleep(0.3)
        before = up.connections
        assert ask_at_once(proxy, 20) == [200] * 20
        assert up.connections == before <= 2
        proxy.settled(ok=22, plain=False)
