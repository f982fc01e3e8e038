"""Heads that can be read in two ways, or that carry what belongs to one connection: the corpora requests.toml and responses.toml."""

import pathlib
import threading
import time
import tomllib

import pytest
from fake import OK, Upstream, answers, plain
from sidecar import Sidecar
from wire import Closed

HERE = pathlib.Path(__file__).parent
REQUESTS = tomllib.loads((HERE / "requests.toml").read_text())["case"]
RESPONSES = tomllib.loads((HERE / "responses.toml").read_text())["case"]
GOOD = "GET /good HTTP/1.1\r\nHost: m\r\n\r\n"


@pytest.fixture(scope="module")
def shared():
    """One Lapwing, with tracing, before one upstream, which answers every request in full."""
    with Upstream() as up, Sidecar(up.url, otlp=True) as proxy:
        yield up, proxy


def check_fields(message, case):
    for name, value in case.get("fields", {}).items():
        assert message.one(name) == value, message.fields
    for name in case.get("present", []):
        assert message.one(name), message.fields
    for name in case.get("absent", []):
        assert message.one(name) is None, message.fields


@pytest.mark.parametrize("number", range(len(REQUESTS)), ids=[case["name"] for case in REQUESTS])
def test_requests(shared, number):
    up, proxy = shared
    case = REQUESTS[number]
    name = f"case-{number}"
    with proxy.client() as client:
        client.send(case["send"].replace("{case}", name))
        got = client.response(case["send"].split(" ")[0])
        assert (got.status, got.one("x-lapwing-error")) == (case["status"], case.get("error"))
        if "error" in case:
            assert client.closed_within(5) is not None, "what follows is not read as a request"
    arrived = [request for request in up.requests if name in request.target]
    if "target" not in case:
        assert not arrived
    else:
        (request,) = arrived
        assert request.target == case["target"].replace("{case}", name)
        assert request.body == case.get("body", "").encode()
        assert len([value for field, value in request.fields if field.lower() == "host"]) <= 1
        check_fields(request, case)
    assert proxy.ask(GOOD).status == 200


@pytest.mark.parametrize("case", RESPONSES, ids=[case["name"] for case in RESPONSES])
def test_responses(case):
    def script(peer):
        peer.request()
        peer.send(case["answer"].encode())
        if case.get("then") == "reset":
            time.sleep(0.05)  # so that it is read before the connection ends
            peer.reset()

    with Upstream(script, plain) as up, Sidecar(up.url) as proxy, proxy.client() as client:
        client.send(case.get("ask", GOOD))
        if case.get("cut"):
            with pytest.raises(Closed):
                client.response()
        else:
            got = client.response()
            assert (got.status, got.one("x-lapwing-error")) == (case["status"], case.get("error"))
            check_fields(got, case)
            if "body" in case:
                assert got.body == case["body"].encode()
            if "interim" in case:
                assert [one.status for one in client.interim] == [one["status"] for one in case["interim"]]
                for one, expected in zip(client.interim, case["interim"]):
                    check_fields(one, expected)
        proxy.settled(**{case["outcome"]: 1})


def test_interim_responses_without_end_are_bounded():
    """A client that does not read costs at most what may wait for it, and its answer still comes."""
    hints, sent = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n" * 64, threading.Event()

    def script(peer):
        peer.request()
        for _ in range(3200):
            peer.send(hints)
        peer.send(OK)
        sent.set()

    with Upstream(script) as up, Sidecar(up.url) as proxy, proxy.client(rcvbuf=4096) as client:
        before = proxy.rss_kib()
        client.send(GOOD)
        assert sent.wait(30), "the upstream is read"
        assert proxy.rss_kib() - before < 8 * 1024
        assert client.response().body == b"ok"
        dropped = [line for line in proxy.get("/metrics").splitlines() if line.startswith(b"lapwing_interim_responses_dropped_total")]
        assert int(dropped[0].split()[1]) > 0
        proxy.settled(ok=1)


def test_a_response_head_beyond_the_limit_is_the_upstreams_fault():
    fields = "".join(f"X-{n}: {'v' * 1000}\r\n" for n in range(80))
    answer = f"HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok".encode()
    with Upstream(answers(answer)) as up, Sidecar(up.url) as proxy:
        got = proxy.ask(GOOD)
        assert (got.status, got.one("x-lapwing-error")) == (502, "upstream_garbage")
        assert b"max_header_bytes" in got.body
        proxy.settled(broken=1)
