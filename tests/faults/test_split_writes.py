"""Heads that come without their bodies. A peer with Nagle's algorithm on sends the body only when the head is acknowledged, which Linux
delays by 40 ms, unless it is asked not to."""

import http.client
import statistics
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fake import OK, Upstream, answers, await_true, plain
from sidecar import Sidecar
from wire import LIMIT, Peer, chunk

BODY = bytes(range(256)) * 3
HELPED = 'lapwing_quick_acks_total{side="upstream"}'
HELPED_CLIENTS = 'lapwing_quick_acks_total{side="client"}'


class Handler(BaseHTTPRequestHandler):
    """Python's own server: it writes head and body apart and leaves Nagle's algorithm on."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(0.005)
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        serving.daemon_threads = True
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield serving.server_address[1]
        serving.shutdown()


def quick(values):
    """Their lowest decile: the stall is a timer of the kernel, so every request that has it is slow, and a busy machine cannot hide it."""
    return sorted(values)[len(values) // 10]


def ask(port, requests):
    """The seconds of so many requests on one connection. The first ones are left out: a new connection acknowledges quickly."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    times = []
    for _ in range(requests + 10):
        began = time.monotonic()
        connection.request("GET", "/split")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, BODY)
        times.append(time.monotonic() - began)
    connection.close()
    return times[10:]


def annotated(proxy, requests):
    """The annotations of so many exchanges, once all of them are there."""
    assert await_true(lambda: len(proxy.exchanges()) == requests), proxy.exchanges()
    return [set(e["annotations"]) for e in proxy.exchanges()]


def test_a_body_behind_nagle_comes_at_once(server):
    with Sidecar(f"http://127.0.0.1:{server}", quick_ack_unhelped="0") as proxy:
        direct, helped = statistics.median(ask(server, 50)), quick(ask(proxy.port, 50))
        assert helped <= 0.25 * direct, f"{helped * 1e3:.1f} ms through Lapwing, {direct * 1e3:.1f} ms without"
        seen = annotated(proxy, 60)
        assert all(("split_write" in a) == ("quick_ack" in a) for a in seen), seen
        assert proxy.metric(HELPED) == sum("quick_ack" in a for a in seen) >= 50
        assert proxy.metric(HELPED_CLIENTS) == 0
        gaps = [e["body_gap_ns"] for e in proxy.exchanges() if "quick_ack" in e["annotations"]]
        assert quick(gaps) < 20e6, gaps


@pytest.mark.parametrize(("settings", "annotation"), [({"quick_ack": "off"}, set()), ({"quick_ack_unhelped": "100%"}, {"unhelped"})])
def test_what_is_not_helped_waits_as_it_would_without_lapwing(server, settings, annotation):
    with Sidecar(f"http://127.0.0.1:{server}", **settings) as proxy:
        assert statistics.median(ask(proxy.port, 20)) > 0.035
        seen = [a & {"split_write", "quick_ack", "unhelped"} for a in annotated(proxy, 30)]
        assert sum(a == {"split_write", *annotation} for a in seen) >= 20, seen
        assert proxy.metric(HELPED) == 0
        gaps = [e["body_gap_ns"] for e in proxy.exchanges() if "split_write" in e["annotations"]]
        assert statistics.median(gaps) > 30e6, gaps


def test_a_head_with_its_body_asks_the_system_nothing():
    bodiless = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    none = b"HTTP/1.1 204 No Content\r\n\r\n"
    large = b"HTTP/1.1 200 OK\r\ncontent-length: 3000\r\n\r\n" + b"x" * 3000
    with Upstream(answers(*[OK] * 20, bodiless, none, large)) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        for _ in range(23):
            client.send("GET /x HTTP/1.1\r\nHost: m\r\n\r\n").response()
        client.send("HEAD /x HTTP/1.1\r\nHost: m\r\n\r\n").response("HEAD")
        client.send("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 2\r\n\r\nab").response()
        both = {"new_client_connection", "new_upstream_connection"}
        assert sorted(annotated(proxy, 25), key=len) == [set()] * 24 + [both]
        assert all("body_gap_ns" not in e for e in proxy.exchanges())
        assert (proxy.metric(HELPED), proxy.metric(HELPED_CLIENTS)) == (0, 0)


def test_a_stream_is_helped_once():
    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(6):
            time.sleep(0.03)
            peer.send(chunk(b"token"))
        peer.send(b"0\r\n\r\n")
        plain(peer)

    with Upstream(script) as up, Sidecar(up.url, quick_ack_unhelped="0") as proxy:
        assert proxy.get_path("/x").body == b"token" * 6
        exchange = proxy.exchange("/x")
        assert {"split_write", "quick_ack"} <= set(exchange["annotations"])
        assert exchange["body_gap_ns"] > 20e6
        assert proxy.metric(HELPED) == 1


def test_a_unix_socket_has_nothing_to_ask_for(tmp_path):
    def script(peer):
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
        time.sleep(0.03)
        peer.send(b"ok")
        plain(peer)

    with Upstream(script, path=str(tmp_path / "s")) as up, Sidecar(up.url, quick_ack_unhelped="100%") as proxy:
        assert proxy.get_path("/x").body == b"ok"
        exchange = proxy.exchange("/x")
        assert "split_write" in exchange["annotations"] and not {"quick_ack", "unhelped"} & set(exchange["annotations"])
        assert exchange["body_gap_ns"] > 20e6 and proxy.metric(HELPED) == 0


def ask_in_two_parts(proxy, requests):
    """The seconds of so many requests whose client leaves Nagle's algorithm on and writes head and body apart."""
    times = []
    with proxy.client() as client:
        client.sock.setsockopt(6, 1, 0)  # TCP_NODELAY off
        for _ in range(requests):
            began = time.monotonic()
            client.send("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 4\r\n\r\n")
            client.send(b"body")
            assert client.response().body == b"ok"
            times.append(time.monotonic() - began)
    return times


def test_a_client_that_splits_its_request_is_helped_too():
    with Upstream() as up:
        with Sidecar(up.url, quick_ack="off") as proxy:
            unhelped = statistics.median(ask_in_two_parts(proxy, 20))
            assert sum("split_request" in a for a in annotated(proxy, 20)) >= 15
            assert proxy.metric(HELPED_CLIENTS) == 0
        with Sidecar(up.url) as proxy:
            helped = quick(ask_in_two_parts(proxy, 20))
            assert helped <= 0.25 * unhelped, f"{helped * 1e3:.1f} ms helped, {unhelped * 1e3:.1f} ms not"
            assert proxy.metric(HELPED_CLIENTS) == sum("split_request" in a for a in annotated(proxy, 20)) >= 15
            assert proxy.metric(HELPED) == 0
        assert {r.one("content-length") for r in up.requests} == {"4"}


def test_what_a_request_is_and_how_it_comes_is_annotated():
    tensors = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}'
    infer = "POST /v2/models/m/infer HTTP/1.1\r\nHost: m\r\n"
    json = f"Content-Type: application/json\r\nContent-Length: {len(tensors)}\r\n"
    for head, body, expected in [
        (infer + json, tensors, {"json_tensors"}),
        (infer + f"Inference-Header-Content-Length: {len(tensors)}\r\nContent-Length: {len(tensors) + 8}\r\n", tensors + b"8 bytes.", set()),
        (infer + json + "Content-Encoding: gzip\r\n", tensors, {"compressed_request", "unread_request"}),  # it is not gzip
        (infer + "Content-Length: 2\r\n", b"{}", set()),
        ("POST /x HTTP/1.1\r\nHost: m\r\n" + json, tensors, set()),
    ]:
        with Upstream() as up, Sidecar(up.url) as proxy, proxy.client() as client:
            client.send("GET /first HTTP/1.1\r\nHost: m\r\n\r\n").response()
            client.send(head.encode() + b"\r\n" + body).response()
            assert set(proxy.exchange("POST")["annotations"]) == expected, head


def test_who_waits_for_100_continue_does_not_split_its_request():
    with Upstream() as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send("POST /x HTTP/1.1\r\nHost: m\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        time.sleep(0.05)
        assert client.head().status == 100
        time.sleep(0.05)
        client.send(b"ab")
        assert client.response().status == 200
        annotations = set(proxy.exchange("/x")["annotations"])
        assert "expect_continue" in annotations and "split_request" not in annotations
        assert proxy.metric(HELPED_CLIENTS) == 0


def test_requests_in_flight_count_themselves():
    def waits(peer):
        peer.request()
        peer.upstream.released.wait(LIMIT)
        peer.send(OK)
        plain(peer)

    with Upstream(waits, waits, waits) as up, Sidecar(up.url) as proxy:
        clients: list[Peer] = []
        for n in range(3):
            clients.append(proxy.client().send(f"GET /{n} HTTP/1.1\r\nHost: m\r\n\r\n"))
            assert await_true(lambda n=n: up.seen(f"/{n}"))
        up.released.set()
        assert [client.response().body for client in clients] == [b"ok"] * 3
        assert await_true(lambda: len(proxy.exchanges()) == 3)
        assert sorted(e["in_flight"] for e in proxy.exchanges()) == [1, 2, 3]
        for client in clients:
            client.close()
