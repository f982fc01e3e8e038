"""HTTP/1.1 that can be read in two ways, that belongs to one connection, or that is none: the corpora of requests and of answers."""

import threading

import pytest
from corpus import differences, load, run, upstream
from fake import OK, Upstream, answers, await_true
from sidecar import Sidecar

REQUESTS, RESPONSES = load("requests"), load("responses")
GOOD = "GET /good HTTP/1.1\r\nHost: m\r\n\r\n"


def named(rows):
    return pytest.mark.parametrize("row", rows, ids=[f"{row['family']}: {row['name']}" for row in rows])


@pytest.fixture(scope="module")
def shared():
    """One Lapwing, with tracing, before one upstream."""
    with upstream() as up, Sidecar(up.url, otlp=True) as proxy:
        yield up, proxy


@pytest.fixture(scope="module")
def untraced():
    """One without tracing, so that nothing waits for spans before it is counted."""
    with upstream(RESPONSES) as up, Sidecar(up.url) as proxy:
        yield up, proxy


@named(REQUESTS)
def test_requests(shared, row):
    up, proxy = shared
    assert differences(row, run(row, proxy.port, up), own=True) == []
    assert proxy.ask(GOOD).status == 200


@named(RESPONSES)
def test_responses(untraced, row):
    """And what the upstream sent beyond its answer, on a connection that stays, is not the answer to the next request."""
    up, proxy = untraced
    before = proxy.outcomes()
    assert differences(row, run(row, proxy.port, up), own=True) == []
    assert proxy.ask(GOOD).body == b"ok"
    expected = dict(before)
    for outcome in (row["outcome"], "ok"):
        expected[outcome] = expected.get(outcome, 0) + 1
    assert await_true(lambda: proxy.outcomes() == expected), (proxy.outcomes(), expected)


def test_interim_responses_without_end_are_bounded():
    """A client that does not read costs at most what may wait for it, and its answer still comes."""
    hints, sent = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n" * 64, threading.Event()

    def script(peer):
        peer.request()
        for _ in range(3200):
            peer.send(hints)
        peer.send(OK)
        sent.set()

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client(rcvbuf=4096) as client:
        before = proxy.rss_kib()
        client.send(GOOD)
        assert sent.wait(30), "the upstream is read"
        assert proxy.rss_kib() - before < 8 * 1024
        assert client.response().body == b"ok"
        dropped = [line for line in proxy.get("/metrics").splitlines() if line.startswith(b"lapwing_interim_responses_dropped_total")]
        assert int(dropped[0].split()[1]) > 0
        proxy.settled(ok=1)


def test_a_response_head_beyond_the_limit_is_the_upstreams_fault():
    fields = "".join(f"X-{n}: {'v' * 1000}\r\n" for n in range(80))
    answer = f"HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok".encode()
    with Upstream(answers(answer)) as up, Sidecar(up.url) as proxy:
        got = proxy.ask(GOOD)
        assert (got.status, got.one("x-lapwing-error")) == (502, "upstream_garbage")
        assert b"max_header_bytes" in got.body
        proxy.settled(broken=1)
