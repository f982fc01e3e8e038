"""Requests that are held until their body has come: slow bodies against the budget, and clients that leave meanwhile."""

import contextlib
import threading
import time

from fake import Upstream, await_true
from sidecar import Sidecar

SLOW, PIECE, LENGTH = 1000, 8_000, 20_000
HEAD = "POST /v1/chat/completions HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
BODY = b'{"messages": "' + b"x" * (LENGTH - 16) + b'"}'
PASSED = 'lapwing_hold_passed_total{reason="%s"}'
BUDGET = 1 << 20


class Watched:
    """Reads what held bodies take, again and again."""

    def __init__(self, proxy):
        self.proxy, self.most, self.stop = proxy, 0.0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def _watch(self):
        while not self.stop.wait(0.02):
            self.most = max(self.most, self.proxy.metric("lapwing_hold_bytes"))


def test_a_thousand_slow_bodies_stay_within_the_budget():
    hold = {"budget": "1MiB", "max_body": "64KiB", "max_time": "3s"}
    with Upstream() as up, Sidecar(up.url, amend="{include_usage: true}", hold=hold, descriptors=8192) as proxy:
        assert proxy.get_path("/warm").status == 200
        rss = proxy.rss_kib()
        with Watched(proxy) as watched, contextlib.ExitStack() as open_clients:
            clients = [open_clients.enter_context(proxy.client()) for _ in range(SLOW)]
            for client in clients:
                client.send((HEAD % LENGTH).encode() + BODY[:PIECE])
            assert await_true(lambda: proxy.metric(PASSED % "budget") > 0, 20), "the budget is spent"
            assert BUDGET / 2 < proxy.metric("lapwing_hold_bytes") <= BUDGET
            # those who wait get no more time than the others
            assert await_true(lambda: proxy.metric(PASSED % "budget") + proxy.metric(PASSED % "time") == SLOW, 20)
            assert await_true(lambda: proxy.metric("lapwing_hold_bytes") == 0, 5), "all of it is sent"
            grown = proxy.rss_kib() - rss
            for client in clients:
                client.send(BODY[PIECE:])
            assert all(client.response().status == 200 for client in clients)
        assert watched.most <= BUDGET
        assert grown < 160 << 10, f"{grown} KiB for {SLOW} connections on both sides"
        assert {request.body for request in up.requests if request.method == "POST"} == {BODY}
        proxy.settled(ok=SLOW + 1)


def test_a_client_that_leaves_while_its_request_is_held_is_not_seen_upstream():
    with Upstream() as up, Sidecar(up.url, amend="{include_usage: true}") as proxy:
        for leave in ("reset", "close"):
            client = proxy.client()
            client.send((HEAD % LENGTH).encode() + BODY[:PIECE])
            assert await_true(lambda: proxy.metric("lapwing_hold_bytes") > 0)
            getattr(client, leave)()
            assert await_true(lambda: proxy.metric("lapwing_hold_bytes") == 0), "it gives its memory back"
        time.sleep(0.2)
        assert (up.connections, up.requests) == (0, [])
        proxy.settled(cancelled=2)
