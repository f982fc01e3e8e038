"""Uploads that come slowly: what `client_min_rate` refuses, what gives way when requests fill their places, and what is left alone."""

import contextlib
import fcntl
import pathlib
import socket
import termios
import threading
import time

import http2
import pytest
from fake import OK, Upstream, await_true, plain
from sidecar import Sidecar
from test_upstream_faults import is_own
from wire import Closed

POST = "POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: %d\r\n\r\n"
SLOW = 'lapwing_slow_uploads_total{reason="%s"}'


class Dripping:
    """Clients that send `piece` again and again, `every` so many seconds, each on its own connection."""

    def __init__(self, proxy, count, piece, every, length=1_000_000):
        self.piece, self.every, self.stop = piece, every, threading.Event()
        self.clients = [proxy.client().send(POST % length) for _ in range(count)]
        self.thread = threading.Thread(target=self._drip, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self.clients

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        for client in self.clients:
            client.close()

    def _drip(self):
        while not self.stop.wait(self.every):
            for client in self.clients:
                with contextlib.suppress(OSError):
                    client.sock.send(self.piece)


def late(seconds, length):
    """Reads a head, and its body only after `seconds`."""

    def script(peer):
        peer.head()
        time.sleep(seconds)
        left = length
        while left:
            left -= len(peer.exactly(min(left, 65536)))
        peer.send(OK)
        plain(peer)

    return script


def holds(peer):
    """Answers when the test says so."""
    peer.request()
    peer.upstream.released.wait(20)
    peer.send(OK)
    plain(peer)


def test_slow_uploads_give_way_when_requests_fill_their_places():
    with Upstream(*[holds] * 200) as up, Sidecar(up.url, max_in_flight=100, client_min_rate="1KiB") as proxy:
        with Dripping(proxy, 101, b"x", 0.5) as clients:
            assert is_own(clients[-1].response(), 503, "shed"), "none was a second behind yet"
            time.sleep(1.5)
            good = [proxy.client().send("GET /good HTTP/1.1\r\nHost: m\r\n\r\n") for _ in range(30)]
            assert await_true(lambda: up.seen("/good") == 30)
            assert proxy.metric(SLOW % "max_in_flight") == 30
            up.released.set()
            assert [client.response().status for client in good] == [200] * 30
            # those that are left are refused for themselves
            assert await_true(lambda: proxy.metric(SLOW % "client_min_rate") == 70, 8)
            answers = [client.response() for client in clients[:-1]]
            assert sum(is_own(got, 503, "shed") for got in answers if got.status == 503) == 30
            assert sum(is_own(got, 408, "request_slow") for got in answers if got.status == 408) == 70
        proxy.settled(shed=31, ok=30, rejected=70)
        assert proxy.metric("lapwing_requests_in_flight") == 0


def test_without_a_rate_slow_uploads_keep_their_places():
    with Upstream() as up, Sidecar(up.url, max_in_flight=3) as proxy:
        with Dripping(proxy, 3, b"x", 0.5, length=12) as clients:
            time.sleep(1.5)
            assert is_own(proxy.get_path("/more"), 503, "shed")
            assert [client.response().status for client in clients] == [200] * 3
        proxy.settled(shed=1, ok=3)


def test_an_upload_below_the_rate_is_refused_and_others_are_not():
    """At once: one that stalls, one that keeps up, and one that the upstream holds up."""
    size = 30_000_000
    held = [late(7, size)]
    with Upstream() as up, Upstream(*held) as slow_up:
        settings = {"client_min_rate": "1KiB"}
        with Sidecar(up.url, **settings) as proxy, Sidecar(slow_up.url, **settings) as other:
            bulk = other.client()
            bulk.sock.settimeout(20)
            thread = threading.Thread(target=lambda: bulk.send((POST % size).encode() + bytes(size)), daemon=True)
            thread.start()
            with Dripping(proxy, 1, b"x" * 200, 0.1, length=14_000) as steady, proxy.client() as stalled:
                began = time.monotonic()
                stalled.send(POST % 1000 + "some")
                got = stalled.response()
                assert is_own(got, 408, "request_slow") and b"1KiB" in got.body
                assert 4.5 < time.monotonic() - began < 7
                assert steady[0].response().status == 200
            assert bulk.response().status == 200
            thread.join()
            bulk.close()
            assert proxy.metric(SLOW % "client_min_rate") == 1
            proxy.settled(rejected=1, ok=1)
            other.settled(ok=1)


def test_what_a_shed_upload_leaves_is_used():
    """The upload that is furthest behind goes, one for each request that has no place, however often that is."""
    with Upstream() as up, Sidecar(up.url, max_in_flight=2, client_min_rate="100") as proxy:
        with proxy.client() as first, proxy.client() as second:
            first.send(POST % 1000)
            time.sleep(1.2)
            second.send(POST % 1000)
            time.sleep(1.2)
            for _ in range(5):
                assert proxy.get_path("/good").status == 200
            assert is_own(first.response(), 503, "shed"), "it was behind for longer"
            second.send(b"x" * 1000)
            assert second.response().status == 200
        proxy.settled(shed=1, ok=6)


@pytest.mark.parametrize("upstream", ["h1", "h2"])
def test_the_same_over_http2(upstream):
    def answers(connection, stream, send):
        if connection.streams[stream].open and dict(server.requests[-1].fields)[":path"] == "/good":
            connection.send_headers(stream, [(":status", "200"), ("content-length", "2")])
            connection.send_data(stream, b"ok", end_stream=True)
            send()

    server = http2.Server(answers)
    with Upstream() as up, server:
        url = up.url if upstream == "h1" else server.url
        with Sidecar(url, max_in_flight=2, client_min_rate="1KiB", upstream_protocol=upstream) as proxy:
            with http2.Client(proxy) as client:
                slow = [client.ask("/slow", "POST", b"x", end=False) for _ in range(2)]
                time.sleep(1.3)
                assert client.get("/good").status == 200
                shed = client.await_(slow[0]) if client.streams[slow[0]].fields else client.await_(slow[1])
                assert (shed.status, shed.fields["x-lapwing-error"]) == (503, "shed")
                refused = next(client.await_(n) for n in slow if client.streams[n] is not shed)
                assert (refused.status, refused.fields["x-lapwing-error"]) == (408, "request_slow")
                assert client.get("/good").status == 200
                for stream in (shed, refused):
                    with contextlib.suppress(socket.timeout):
                        client.sock.settimeout(2)
                        while stream.reset is None:
                            client.pump()
                    assert stream.reset == 0, "NO_ERROR: the rest is not wanted"
            proxy.settled(plain=False, shed=1, rejected=1, ok=2)
            assert await_true(lambda: proxy.metric("lapwing_requests_in_flight") == 0)


def stuck(peer):
    """Reads a head, and never more."""
    peer.head()
    peer.upstream.released.wait(20)


def unread(proxy, client):
    """Bytes of the client that wait until Lapwing reads them."""
    ends = [f":{port:04X}" for port in (proxy.port, client.sock.getsockname()[1])]
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if [fields[1][-5:], fields[2][-5:]] == ends:
            return int(fields[4].split(":")[1], 16)
    return 0


def hold_up(proxy, client):
    """Sends until 200 kB wait that nobody reads."""
    before, held = -1, bytearray(4)
    while (now := unread(proxy, client)) < 200_000 or now != before:
        before = now
        fcntl.ioctl(client.sock, termios.TIOCOUTQ, held)
        if now < 200_000 and not any(held):
            client.send(bytes(65536))
        time.sleep(0 if now < 200_000 else 0.2)


@pytest.mark.parametrize("length", ["Content-Length: 100000000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("how", ["reset", "closed"])
def test_a_client_that_leaves_amid_an_upload_that_the_upstream_holds_up(how, length):
    """Nobody reads the client's socket then. A reset is seen all the same, and an end that comes too early for the length."""
    with Upstream(stuck) as up, Sidecar(up.url) as proxy:
        up.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that it is full soon
        client = proxy.client().send(f"POST /x HTTP/1.1\r\nHost: m\r\n{length}\r\n\r\n")
        if "chunked" in length:
            client.send(b"%x\r\n" % 100_000_000)
        hold_up(proxy, client)
        assert proxy.metric("lapwing_requests_in_flight") == 1
        if how == "reset":
            client.reset()
        else:
            client.close()
        left = await_true(lambda: proxy.metric("lapwing_requests_in_flight") == 0, 1.5)
        # a chunked body may end in what nobody has read
        assert left == (how == "reset" or "chunked" not in length)
        up.released.set()
        if left:
            proxy.settled(cancelled=1)
            assert proxy.metric('lapwing_client_connections_failed_total{reason="broken"}') == 1
