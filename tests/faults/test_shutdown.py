"""Shutdown: requests in flight are finished, no new ones are accepted, every request is counted, and nothing waits forever."""

import contextlib
import http.client
import signal
import socket
import time

import pytest
from fake import OK, Upstream, await_true, plain
from sidecar import Sidecar
from wire import LIMIT, Closed, chunk

GET = "GET /x HTTP/1.1\r\nHost: m\r\n\r\n"
SLOW = 15
"""Seconds that a shutdown with nothing to wait for may take on a busy machine."""


def waits(peer):
    peer.request()
    peer.upstream.released.wait(LIMIT)
    peer.send(OK)
    plain(peer)


@contextlib.contextmanager
def ending(upstream, **settings):
    """A sidecar that the test itself shuts down."""
    with Sidecar(upstream.url, **settings) as proxy:
        process = proxy.process
        yield proxy
        assert process.poll() is not None, "the test forgot to end it"
        log = proxy.log()
        assert "panicked" not in log, log
        proxy.ended_on_purpose = True


def term(proxy):
    proxy.process.send_signal(signal.SIGTERM)
    return time.monotonic()


def is_refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return True
    return False


def status(proxy, path):
    connection = http.client.HTTPConnection("127.0.0.1", proxy.admin, timeout=5)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_without_traffic_it_ends_with_0(by):
    with Upstream() as up, ending(up) as proxy:
        proxy.process.send_signal(by)
        assert proxy.process.wait(SLOW) == 0


def test_idle_connections_do_not_keep_it():
    with Upstream() as up, ending(up) as proxy, proxy.client() as idle, proxy.client() as silent:
        assert idle.send(GET).response().status == 200
        began = term(proxy)
        assert proxy.process.wait(SLOW) == 0
        assert time.monotonic() - began < SLOW / 2
        assert idle.closed_within(1) is not None and silent.closed_within(1) is not None


def test_a_request_in_flight_is_finished_and_counted():
    with Upstream(waits) as up, ending(up) as proxy, proxy.client() as client:
        assert status(proxy, "/readyz") == 200
        client.send(GET)
        assert await_true(lambda: up.seen("/x"))
        term(proxy)
        assert await_true(lambda: status(proxy, "/readyz") == 503)
        assert await_true(lambda: is_refused(proxy.port)), "still accepts"
        assert status(proxy, "/livez") == 200 and proxy.process.poll() is None
        up.released.set()
        response = client.response()
        assert (response.status, response.body) == (200, b"ok")
        assert client.closed_within(5) is not None
        assert proxy.process.wait(SLOW) == 0


def test_a_stream_in_flight_is_finished():
    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"first"))
        peer.upstream.released.wait(LIMIT)
        peer.send(chunk(b"last") + b"0\r\n\r\n")

    with Upstream(script) as up, ending(up) as proxy, proxy.client() as client:
        head = client.send(GET).head()
        chunks = client.chunks(head)
        assert next(chunks)[1] == b"first"
        term(proxy)
        assert await_true(lambda: status(proxy, "/readyz") == 503)
        up.released.set()
        assert [data for _, data in chunks] == [b"last"]
        assert proxy.process.wait(SLOW) == 0


def test_pending_counts_are_there_to_the_end():
    """While the last request drains, the admin address still reports all requests that ended before."""
    with Upstream(waits) as up, ending(up) as proxy, proxy.client() as client:
        client.send(GET)
        assert await_true(lambda: up.seen("/x"))
        for _ in range(5):
            assert proxy.get_path("/y").status == 200
        term(proxy)
        assert await_true(lambda: status(proxy, "/readyz") == 503)
        assert await_true(lambda: proxy.outcomes() == {"ok": 5})
        up.released.set()
        assert client.response().status == 200
        assert proxy.process.wait(SLOW) == 0


def test_drain_timeout_cuts_off():
    with Upstream(waits) as up, ending(up, drain_timeout="500ms") as proxy, proxy.client() as client:
        client.send(GET)
        assert await_true(lambda: up.seen("/x"))
        began = term(proxy)
        with pytest.raises(Closed):
            client.response()
        assert 0.4 < time.monotonic() - began < LIMIT
        assert proxy.process.wait(SLOW) == 0
        assert "drain_timeout" in proxy.log()


def test_an_upgraded_connection_is_cut_off_at_drain_timeout():
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"

    def script(peer):
        peer.head()
        peer.send(switch)
        peer.closed_within(LIMIT)

    with Upstream(script) as up, ending(up, drain_timeout="500ms") as proxy, proxy.client() as client:
        client.send("GET /x HTTP/1.1\r\nHost: m\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        assert client.head().status == 101
        term(proxy)
        assert client.closed_within(LIMIT) is not None
        assert proxy.process.wait(SLOW) == 0


def test_a_second_signal_ends_at_once():
    with Upstream(waits) as up, ending(up) as proxy, proxy.client() as client:
        client.send(GET)
        assert await_true(lambda: up.seen("/x"))
        term(proxy)
        assert await_true(lambda: status(proxy, "/readyz") == 503)
        began = term(proxy)
        assert proxy.process.wait(SLOW) == 143
        assert time.monotonic() - began < LIMIT / 2
        with pytest.raises(Closed):
            client.response()


def test_readers_of_the_admin_surface_do_not_keep_it():
    with Upstream() as up, ending(up) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.admin), 5) as dawdler:
            dawdler.sendall(b"GET /stats HTTP/1.1\r\nHost: m\r\n")  # and never completes its head
            term(proxy)
            assert proxy.process.wait(SLOW) == 0


def test_requests_that_wait_for_spans_do_not_keep_it():
    """Requests on a new route wait for spans, here for a minute; the shutdown merges them without waiting."""
    with Upstream() as up, ending(up, otlp=True, grace="60s") as proxy:
        for _ in range(5):
            assert proxy.get_path("/x").status == 200
        assert await_true(lambda: proxy.stats()["profiler"]["pending"] == 5), proxy.stats()["profiler"]
        term(proxy)
        assert proxy.process.wait(SLOW) == 0


def test_without_receivers_nothing_waits_for_spans():
    with Upstream() as up, Sidecar(up.url) as proxy:
        for _ in range(5):
            assert proxy.get_path("/x").status == 200
        assert all(not r.all("traceparent") for r in up.requests)
        assert await_true(lambda: proxy.outcomes() == {"ok": 5}, 3)
        assert proxy.stats()["profiler"]["pending"] == 0
