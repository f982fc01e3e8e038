"""Requests that are refused before they are one: each is in a total, by reason, and no answer repeats a client's input at length."""

import http.client
import socket
import time

import hpack
import http2
import pytest
from fake import Upstream, answers, await_true
from sidecar import Sidecar

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


def headers(stream, encoder, size):
    """A GET with a head of `size` bytes, in frames as large as may be."""
    fields = [(":method", "GET"), (":path", "/x"), (":scheme", "http"), (":authority", "m")]
    block = encoder.encode(fields + [(f"a{n}", "v" * 1000) for n in range(size // 1000)], huffman=False)
    parts = [block[at : at + 16384] for at in range(0, len(block), 16384)]
    out = b""
    for n, part in enumerate(parts):
        flags = (0 if n else 1) | (4 if part is parts[-1] else 0)
        out += len(part).to_bytes(3) + bytes([9 if n else 1, flags]) + stream.to_bytes(4) + part
    return out


def statuses(sock, wanted):
    """The streams that got a head with END_STREAM, until there are `wanted`."""
    got, found = b"", []
    while len(found) < wanted:
        while len(got) < 9 or len(got) < 9 + int.from_bytes(got[:3]):
            data = sock.recv(65536)
            assert data, "the connection ended"
            got += data
        length = int.from_bytes(got[:3])
        if got[3] == 1 and got[4] & 1:
            found.append(int.from_bytes(got[5:9]))
        got = got[9 + length :]
    return found


def test_a_large_head_over_http2_is_counted_once():
    """HTTP/2 answers 431 by itself, also with a status that its tables know by then; ordinary answers of one byte are not taken for it."""
    bare = answers(b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n", then=None)
    with Upstream(bare) as up, Sidecar(up.url, upstream_protocol="h1") as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as sock:
            encoder = hpack.Encoder()
            sock.sendall(PREFACE + b"\0\0\0\x04\0\0\0\0\0")
            for stream, size in ((1, 70_000), (3, 10_000), (5, 90_000), (7, 10_000)):
                sock.sendall(headers(stream, encoder, size))
                assert statuses(sock, 1) == [stream]
        proxy.settled(rejected=2, ok=2)
        assert failures(proxy) == {}, "only streams failed"


def test_trailers_over_http2_are_not_taken_for_refusals():
    once = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx: 1\r\n\r\n"
    with Upstream(*[answers(once, once, once, then=None)] * 3) as up, Sidecar(up.url, upstream_protocol="h1") as proxy:
        with http2.Client(proxy) as client:
            for _ in range(3):
                got = client.get("/x")
                assert (got.status, got.trailers) == (200, {"x": "1"})
        proxy.settled(ok=3)


def test_a_head_without_end_over_http2_is_in_both_totals():
    with Upstream() as up, Sidecar(up.url) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as sock:
            sock.sendall(PREFACE + b"\0\0\0\x04\0\0\0\0\0" + headers(1, hpack.Encoder(), 300_000))
            assert await_true(lambda: failures(proxy) == {"head_too_large": 1}), failures(proxy)
        proxy.settled(rejected=1)


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
            got = client.response()
            assert got.status == 400 and len(got.body) < 1024, (got.status, len(got.body))


def test_the_log_does_not_repeat_long_texts_of_peers():
    """A collector and a client say something long as they fail."""

    def refuses(connection, stream, send):
        fields = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "14"), ("grpc-message", LONG[:9000])]
        connection.send_headers(stream, fields, end_stream=True)
        send()

    with Upstream() as up, http2.Server(refuses) as collector:
        flags = ["--otlp-forward", collector.url.replace("http:", "grpc:"), "--log", "lapwing=debug"]
        with Sidecar(up.url, otlp=True, flags=flags) as proxy:
            assert ask(proxy.otlp_http, "POST", "/v1/metrics", "{}")[0] == 200
            with http2.Client(proxy) as client:
                client.ask("/cut", "POST", b"half", end=False)
                client.h2.close_connection(error_code=2, additional_data=LONG[:16_000].encode())
                client.flush()
            causes = ("cannot forward an OTLP message", "a client's connection failed")
            assert await_true(lambda: all(cause in proxy.log() for cause in causes), 8)
            for line in proxy.log().splitlines():
                assert len(line) < 2048, line[:200]
