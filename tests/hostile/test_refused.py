"""Requests that are refused before they are one: each is in a total, by reason, and no answer repeats a client's input at length."""

import http.client
import socket
import time

import pytest
from fake import Upstream, await_true
from sidecar import Sidecar
from wire import Closed

FAILED = 'lapwing_client_connections_failed_total{reason="%s"}'
REASONS = ("slow_head", "malformed_head", "head_too_large", "http2", "slow_reader", "broken", "other")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LONG = "x" * 60_000


def failures(proxy):
    found = {reason: proxy.metric(FAILED % reason) for reason in REASONS}
    return {reason: n for reason, n in found.items() if n}


@pytest.mark.parametrize(
    "sent, status, reason",
    [
        (b"GET /x HTTP/1.1\r\nHost:", 408, "slow_head"),
        (b"NOT HTTP AT ALL\r\n\r\n", 400, "malformed_head"),
        (b"POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 99999999999999999999\r\n\r\n", 400, "malformed_head"),
        (b"POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 18446744073709551615\r\n\r\n", 431, "head_too_large"),
        (b"GET /x HTTP/1.1\r\nHost: m\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431, "head_too_large"),
    ],
    ids=["slow", "not HTTP", "a length that overflows", "the longest length", "200 fields"],
)
def test_a_refused_head_is_in_both_totals(sent, status, reason):
    with Upstream() as up, Sidecar(up.url, client_header_timeout="300ms") as proxy:
        with proxy.client() as client:
            client.send(sent)
            got = client.response()
            assert got.status == status and len(got.body) < 1024
            if b"18446744073709551615" in sent:
                assert b"Content-Length" in got.body, "the reason names it"
            assert client.closed_within(5) is not None
        assert await_true(lambda: failures(proxy) == {reason: 1}), failures(proxy)
        proxy.settled(rejected=1)


@pytest.mark.parametrize(
    "frame",
    [b"\0\0\x04\0\0\0\0\0\0abcd", b"\0\0\x05\x04\0\0\0\0\0abcde", b"\0\0\x01\x01\x05\0\0\0\x01\xff"],
    ids=["DATA on stream 0", "SETTINGS of 5 bytes", "a header block that ends early"],
)
def test_a_violation_of_http2_is_counted(frame):
    with Upstream() as up, Sidecar(up.url) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
            client.sendall(PREFACE + b"\0\0\0\x04\0\0\0\0\0" + frame)
            assert await_true(lambda: failures(proxy) == {"http2": 1}), failures(proxy)
        proxy.settled()


def test_a_client_that_leaves_amid_a_head_is_counted():
    with Upstream() as up, Sidecar(up.url) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
            client.sendall(b"GET /x HTTP/1.1\r\nHost:")
            time.sleep(0.1)
        assert await_true(lambda: failures(proxy) == {"broken": 1}), failures(proxy)
        proxy.settled()


def ask(port, method, path, body=None, kind="application/json"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body, {"content-type": kind})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "path, status", [(f"/{LONG}", 404), (f"/stats?window={LONG}", 400), (f"/stats?{LONG}=1", 400), (f"/exchanges?order={LONG}", 400)]
)
def test_the_admin_server_does_not_repeat_a_long_input(path, status):
    with Upstream() as up, Sidecar(up.url) as proxy:
        got, body = ask(proxy.admin, "GET", path)
        assert got == status and "…".encode() in body and len(body) < 4096, (got, len(body))


def test_the_receiver_does_not_repeat_a_long_input():
    with Upstream() as up, Sidecar(up.url, otlp=True) as proxy:
        got, body = ask(proxy.otlp_http, "POST", "/v1/traces", '{"resourceSpans": "%s"}' % LONG)
        assert got == 400 and len(body) < 2048, (got, len(body))


def test_the_data_plane_does_not_repeat_a_long_input():
    with Upstream() as up, Sidecar(up.url) as proxy:
        for sent in (f"GET /{LONG} HTTP/1.1\r\n\r\n", f"GET / HTTP/1.1\r\nHost: {LONG}/\r\n\r\n"):
            got = proxy.ask(sent)
            assert got.status == 400 and len(got.body) < 1024, (got.status, len(got.body))
        with proxy.client() as client:
            client.send(f"POST / HTTP/1.1\r\nHost: m\r\nTransfer-Encoding: chunked\r\n\r\n{LONG}\r\n")
            try:
                assert len(client.response().body) < 1024
            except Closed:
                pass
