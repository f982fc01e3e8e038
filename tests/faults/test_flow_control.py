"""An HTTP/2 client whose window has no room for an answer, and one whose socket has none: only the former waits for its window."""

import time

import pytest
from fake import Upstream, answers, await_true
from h2.settings import SettingCodes
from http2 import Client
from sidecar import Sidecar

WINDOW = 65_535
"""That of a client which asks for no other."""
OK_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
LARGE = bytes(3 * WINDOW)
ROUND_TRIP_S = 0.02


class FarClient(Client):
    """What it says of its window takes a round trip."""

    def pump(self):
        time.sleep(ROUND_TRIP_S)
        super().pump()


class SlowClient(Client):
    """Its window has room for everything; its socket has not, and it reads slowly."""

    def __init__(self, proxy):
        super().__init__(proxy)
        self.h2.increment_flow_control_window(1 << 28)
        # before any request, so that no answer begins with a smaller one
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 28})
        self.flush()

    def pump(self):
        time.sleep(0.002)
        super().pump()


def annotated(proxy, client, body, requests=3):
    """Which of so many exchanges waited for the client's window."""
    for _ in range(requests):
        assert client.get("/large").body == body
        time.sleep(0.01)  # between requests nothing waits
    assert await_true(lambda: len(proxy.exchanges()) == requests), proxy.exchanges()
    return ["flow_control" in exchange["annotations"] for exchange in proxy.exchanges()]


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [(FarClient, LARGE, True), (FarClient, LARGE[:WINDOW // 2], False), (Client, b"small", False), (SlowClient, bytes(16 << 20), False)],
    ids=["a small window", "an answer that fits", "a small answer", "a small socket"],
)
def test_who_waits_for_its_window_is_noted(kind, body, expected):
    with Upstream(*[answers(*[OK_HEAD % len(body) + body] * 3)] * 3) as upstream, Sidecar(upstream.url, upstream_protocol="h1") as proxy, kind(proxy) as client:
        assert annotated(proxy, client, body) == [expected] * 3
        if expected:
            egress = [sum(of["ns"] for of in one["stages"] if of["stage"] == "egress") for one in proxy.exchanges()]
            assert min(egress) > ROUND_TRIP_S * 1e9, egress
