"""The upstream leaves, recycles its connections, and comes back: clients are told to go only when it has left."""

import contextlib
import socket
import threading
import time

import pytest
from fake import OK, Upstream, answers, await_true
from ports import free_port
from sidecar import Sidecar
from wire import Closed

GET = "GET /x HTTP/1.1\r\nHost: m\r\n\r\n"
POST = "POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\n\r\nab"
CLOSES = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)


def is_ready(proxy):
    return proxy.get("/readyz").startswith(b"ready")


def says_close(answer):
    return "close" in (answer.one("connection") or "")


def until_told(client, most=200):
    """Asks until an answer says goodbye; returns the statuses. The connection may also be ended between two requests."""
    statuses = []
    for _ in range(most):
        try:
            answer = client.send(GET).response()
        except (Closed, OSError):
            return statuses
        statuses.append(answer.status)
        if says_close(answer):
            assert client.closed_within(5) is not None
            return statuses
        time.sleep(0.02)
    raise AssertionError(f"nobody said goodbye: {statuses[-5:]}")


@pytest.mark.parametrize("signs", [True, False], ids=["kept connections end", "nothing is said"])
def test_a_server_that_left_is_told_once(signs):
    """Its port is closed while a stream goes on, as uvicorn does it under SIGTERM."""
    upstream = Upstream()
    with upstream, Sidecar(upstream.url, pool_idle_timeout="60s") as proxy, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(proxy.client()) for _ in range(4)]
        assert all(client.send(GET).response().status == 200 for client in clients)
        assert is_ready(proxy)
        upstream.listener.shutdown(socket.SHUT_RDWR)
        upstream.listener.close()
        if signs:
            for kept in list(upstream.live):
                kept.shutdown(socket.SHUT_RDWR)
            assert await_true(lambda: not is_ready(proxy))
        else:
            assert not is_ready(proxy)
        for client in clients:
            statuses = until_told(client)
            assert sum(status != 200 for status in statuses) <= 1, statuses
        for _ in range(6):  # whoever comes later is told at once, also where a kept connection still answers
            with proxy.client() as late:
                answer = late.send(POST).response("POST")
                assert answer.status in (200, 502) and says_close(answer)
        log = proxy.log()
        assert log.count("takes no connections") == 1, log
        with Upstream(port=upstream.port):
            assert await_true(lambda: is_ready(proxy))
            with proxy.client() as again:
                assert not any(says_close(again.send(GET).response()) for _ in range(5))
            assert "takes connections again" in proxy.log()


def test_idle_clients_are_let_go_without_an_answer():
    upstream = Upstream()
    with upstream, Sidecar(upstream.url, pool_idle_timeout="60s") as proxy, proxy.client() as client:
        assert client.send(GET).response().status == 200
        upstream.listener.shutdown(socket.SHUT_RDWR)
        upstream.listener.close()
        for kept in list(upstream.live):
            kept.shutdown(socket.SHUT_RDWR)
        # the pool is looked through each second, and a connection has a second for one more request
        assert 0.5 < client.closed_within(6) < 5


def test_an_answer_under_way_says_goodbye():
    """A request is with the upstream when its port closes; another client finds out."""
    hold = threading.Event()

    def slow(peer):
        peer.request()
        hold.wait(8)
        peer.send(OK)

    upstream = Upstream(slow)
    with upstream, Sidecar(upstream.url) as proxy, proxy.client() as busy, proxy.client() as other:
        busy.send(GET)
        assert await_true(lambda: upstream.requests)
        upstream.listener.shutdown(socket.SHUT_RDWR)
        upstream.listener.close()
        assert other.send(GET).response().status == 502
        hold.set()
        answer = busy.response()
        assert (answer.status, says_close(answer)) == (200, True)


RECYCLES = {
    "each answer closes": lambda: [answers(CLOSES, then=None)] * 400,
    "each third answer closes": lambda: [answers(OK, OK, CLOSES, then=None)] * 400,
    "closes after each third answer without a word": lambda: [answers(OK, OK, OK, then=None)] * 400,
}


@pytest.mark.parametrize("how", RECYCLES)
def test_a_server_that_recycles_connections_is_not_told(how):
    with Upstream(*RECYCLES[how]()) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        for _ in range(60):
            answer = client.send(GET).response()
            assert (answer.status, says_close(answer)) == (200, False)
            time.sleep(0.02)
        assert is_ready(proxy)
        # of connections that only look, there are few
        assert "takes no connections" not in proxy.log()


def test_a_server_that_closes_idle_connections_is_not_told():
    def short(peer):
        peer.request()
        peer.send(OK)
        time.sleep(0.15)

    with Upstream(*[short] * 40) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        for _ in range(12):
            answer = client.send(GET).response()
            assert (answer.status, says_close(answer)) == (200, False)
            time.sleep(0.3)
        assert is_ready(proxy)


def test_a_server_that_breaks_off_and_stays_keeps_its_clients():
    def breaks(peer):
        peer.request()
        peer.reset()

    with Upstream(answers(OK, then=None), *[breaks] * 3) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        answered = [client.send(GET).response()]
        assert await_true(lambda: not up.live), "the first connection has ended"
        answered += [client.send(GET).response() for _ in range(4)]
        assert [answer.status for answer in answered] == [200, 502, 502, 502, 200]
        assert not any(says_close(answer) for answer in answered)
        assert is_ready(proxy)


def test_a_server_that_dies_at_a_request_is_told_with_its_answer():
    upstream = Upstream()

    def dies(peer):
        peer.request()
        upstream.listener.shutdown(socket.SHUT_RDWR)
        upstream.listener.close()
        peer.reset()

    upstream.scripts.append(dies)
    with upstream, Sidecar(upstream.url) as proxy, proxy.client() as client:
        answer = client.send(GET).response()
        assert (answer.status, says_close(answer)) == (502, True)
        assert not is_ready(proxy)


def test_a_full_backlog_is_no_goodbye():
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        with Sidecar(f"http://127.0.0.1:{full.getsockname()[1]}", connect_timeout="200ms") as proxy, proxy.client() as client:
            answer = client.send(GET).response()
            assert (answer.status, says_close(answer)) == (504, True)
            assert "takes no connections" not in proxy.log()


def test_it_comes_back_by_itself_for_each_client():
    port = free_port()
    with Sidecar(f"http://127.0.0.1:{port}") as proxy:
        for _ in range(3):
            answer = proxy.get_path("/x")
            assert (answer.status, says_close(answer)) == (502, True)
        with Upstream(port=port), proxy.client() as client:
            first = client.send(GET).response()
            assert first.status == 200
            if says_close(first):  # it was accepted while there was no upstream
                client.close()
            with proxy.client() as second:
                assert not any(says_close(second.send(GET).response()) for _ in range(3))
