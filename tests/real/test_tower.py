"""Servers in Rust with the layer of lapwing-tower, behind a Lapwing: what the layer says by `Server-Timing` is joined to Lapwing's own
account of the same request. The servers are the crate's examples, of axum and of tonic."""

import http.client
import json
import os
import pathlib
import urllib.request

import grpc
import pytest

import conftest
from lapwing import NO_SPANS, OPENER, Counted
from ports import free_port
from process import wait_for, wait_listening

pytestmark = pytest.mark.beside
REQUESTS = 5


@pytest.fixture(scope="module")
def start_example(processes):
    """Starts an example, which stands where Lapwing does."""

    def start(name, *ports):
        path = pathlib.Path(conftest.BINARY).parent / "examples" / name
        if not os.access(path, os.X_OK):
            pytest.fail(f"no example at {path}: cargo build --workspace --bins --examples")
        # nobody receives its spans: Server-Timing alone has to do
        env = dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}")
        processes(name, [str(path), *(f"127.0.0.1:{port}" for port in ports)], env=env)
        for port in ports:
            wait_listening(port, 20)

    return start


def before(port, start_lapwing):
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", env=NO_SPANS)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    return lapwing


def said(field):
    """The nanoseconds of each stage that `Server-Timing` names."""
    entries = dict(entry.strip().split(";dur=") for entry in field.split(","))
    return {stage: round(float(ms) * 1e6) for stage, ms in entries.items()}


def check(lapwing, pages, timings):
    """Each exchange has, as reported, what its answer said, and lies around the server's own account of the same request."""
    exchanges = sorted(lapwing.exchanges(), key=lambda one: one["started_at"])
    assert len(exchanges) == len(timings)
    with OPENER.open(urllib.request.Request(f"http://127.0.0.1:{pages}/lapwing/exchanges?limit=100"), timeout=10) as answer:
        own = {one["trace_id"]: one for one in json.load(answer)["exchanges"]}
    for exchange, timing in zip(exchanges, timings, strict=True):
        stages = {one["stage"]: one for one in exchange["stages"]}
        assert "forward" in timing and timing["forward"] >= 5_000_000, timing
        for stage, ns in timing.items():
            assert (stages[stage]["ns"], stages[stage]["source"]) == (ns, "reported"), (stage, stages, timing)
        assert sum(one["ns"] for one in exchange["stages"]) == exchange["total_ns"]
        server = own[exchange["trace_id"]]
        assert server["total_ns"] < exchange["total_ns"], "the layer sees less than the sockets"
        (forward,) = [one for one in server["stages"] if one["stage"] == "forward"]
        assert forward["ns"] == timing["forward"], "one figure on both sides"
        assert server["model"] == "digits"


def test_the_stages_of_an_axum_server_are_joined(start_example, start_lapwing):
    port = free_port()
    start_example("axum_server", port)
    lapwing, timings = before(port, start_lapwing), []
    with Counted(lapwing, REQUESTS) as counted:
        for n in range(REQUESTS):
            connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
            connection.request("POST", "/predict", json.dumps([n, 2]), {"content-type": "application/json"})
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())) == (200, n + 2)
            timings.append(said(answer.headers["server-timing"]))
            connection.close()
    assert counted.outcomes == {"ok": REQUESTS}
    assert all(set(timing) == {"preprocessing", "forward"} for timing in timings), timings
    check(lapwing, port, timings)


def test_the_stages_of_a_tonic_server_are_joined(start_example, start_lapwing):
    port, pages = free_port(), free_port()
    start_example("tonic_server", port, pages)
    lapwing, timings = before(port, start_lapwing), []
    with Counted(lapwing, REQUESTS) as counted, grpc.insecure_channel(f"127.0.0.1:{lapwing.port}") as channel:
        predict = channel.unary_unary("/digits.Digits/Predict", request_serializer=bytes, response_deserializer=bytes)
        for n in range(1, REQUESTS + 1):
            answer, call = predict.with_call(b"x" * n, timeout=30)
            assert answer == b"x" * n
            timings.append(said(dict(call.initial_metadata())["server-timing"]))
    assert counted.outcomes == {"ok": REQUESTS}
    check(lapwing, pages, timings)
