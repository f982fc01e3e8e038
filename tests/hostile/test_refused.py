"""Requests that are refused before they are one: each is in a total, by reason."""

import socket
import time

import pytest
from fake import Upstream, await_true
from sidecar import Sidecar

FAILED = 'lapwing_client_connections_failed_total{reason="%s"}'
REASONS = ("slow_head", "malformed_head", "head_too_large", "http2", "slow_reader", "broken", "other")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


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
