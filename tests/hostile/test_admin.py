"""Clients of the admin port that send half a request, or do not read the answer, or are too many."""

import http.client
import socket
import time

import pytest
from fake import Upstream, await_true
from sidecar import Sidecar
from watch import Watch
from wire import held

HALF = b"GET /metrics HTTP/1.1\r\nHost:"


@pytest.mark.parametrize("begun", [b"", HALF], ids=["silent", "half a head"])
def test_the_data_plane_keeps_its_descriptors(begun):
    """More half requests than there are descriptors, on every port of the control plane."""
    with Upstream() as up, Sidecar(up.url, otlp=True, descriptors=1024, grace="300ms") as proxy:
        opened = held(proxy.otlp_http, 200, begun) + held(proxy.otlp_grpc, 200, begun)
        opened += held(proxy.admin, 1132, begun)
        assert await_true(lambda: proxy.get("/livez") == b"alive\n")
        with Watch(proxy) as watch:
            for _ in range(20):
                assert proxy.get_path("/served").status == 200
        watch.check()
        assert proxy.metric("lapwing_accepts_failed_total") == 0
        assert proxy.metric('lapwing_control_connections_closed_total{reason="gave_way"}') > 500
        for sock in opened:
            sock.close()
        proxy.settled(ok=20)


def test_the_upstream_can_be_reached_whatever_clients_hold():
    """Idle clients of the data plane leave descriptors for the upstream, and for the admin port."""
    with Upstream() as up, Sidecar(up.url, descriptors=256) as proxy:
        with proxy.client() as served:
            served.send("GET /one HTTP/1.1\r\nHost: m\r\n\r\n")
            assert served.response().status == 200
            opened = held(proxy.port, 300, b"")
            time.sleep(3.5)  # the idle connection to the upstream is closed meanwhile
            served.send("GET /two HTTP/1.1\r\nHost: m\r\n\r\n")
            assert served.response().status == 200
            assert proxy.metric("lapwing_accepts_failed_total") == 0
        for sock in opened:
            sock.close()
        proxy.settled(ok=2)


def test_half_heads_are_closed_in_time():
    with Upstream() as up, Sidecar(up.url) as proxy:
        opened = held(proxy.admin, 10, HALF)
        for sock in opened:
            sock.settimeout(20)
            assert sock.recv(1) == b""
        assert proxy.metric('lapwing_control_connections_closed_total{reason="slow_head"}') == 10


def scrape(proxy):
    """The bytes of an answer of /metrics; 0 if it was refused."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.admin, timeout=40)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        return len(answer.read()) if answer.status == 200 else 0
    finally:
        connection.close()


def test_scrapers_that_do_not_read():
    with Upstream() as up, Sidecar(up.url) as proxy:
        with proxy.client() as client:
            long = "a-segment-of-some-length" * 2
            for number in range(250):
                client.send(f"GET /{long}/{long}-{number} HTTP/1.1\r\nHost: m\r\n\r\n")
                assert client.response().status == 200
        size = scrape(proxy)
        print(f"a scrape has {size} bytes")
        assert size > 4 << 20, "more than sockets hold"
        with Watch(proxy) as watch:
            opened = held(proxy.admin, 60, b"GET /metrics HTTP/1.1\r\nHost: m\r\n\r\n" * 2, rcvbuf=4096)
            assert await_true(lambda: scrape(proxy) >= size, 40), "one that reads is answered"
        watch.check()
        assert proxy.metric('lapwing_control_connections_closed_total{reason="slow_reader"}') > 0
        assert proxy.metric("lapwing_scrapes_refused_total") > 0
        for sock in opened:
            sock.close()
