"""Where the spans of opentelemetry-sdk lie: those of a process whose clock is off, and those of a forward pass for several requests."""

import os
import sys
import threading

import pytest
import requests

from conftest import HERE
from ports import free_port
from process import wait_for, wait_listening

pytestmark = pytest.mark.beside
FORWARD_MS = 80


def started(start_lapwing, processes, batch, clock_ms):
    """Lapwing in front of servers/batching_server.py."""
    port = free_port()
    env = {"LAPWING_ATTRIBUTION__GRACE": "3s", "LAPWING_ATTRIBUTION__QUIET": "100ms"}
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", env=env)
    otel = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{lapwing.otlp_http}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    command = [sys.executable, str(HERE / "servers/batching_server.py"), str(port), str(batch), str(clock_ms)]
    processes(f"batching_server_{batch}_{clock_ms}", command, env=dict(os.environ, **otel))
    wait_listening(port, 60)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    return lapwing


def exchanges_of(lapwing, n):
    """The exchanges with their spans, once all `n` have them."""

    def traced():
        found = lapwing.json("/exchanges?order=recent&limit=50")["exchanges"]
        return found if len(found) == n and all(forwards_of(exchange) for exchange in found) else None

    wait_for(traced, 20, f"{n} exchanges have their spans")
    return traced()


def forwards_of(exchange):
    return [span for span in exchange["spans"] if span["name"] == "model_forward" and span["source"] == "traced"]


def stage_ms(exchange, stage):
    return sum(s["ns"] for s in exchange["stages"] if s["stage"] == stage and s["source"] == "traced") / 1e6


@pytest.mark.parametrize("clock_ms", [-250, 250])
def test_a_clock_that_is_off_takes_nothing_from_a_span(start_lapwing, processes, clock_ms):
    lapwing = started(start_lapwing, processes, 1, clock_ms)
    for _ in range(3):
        assert requests.post(f"{lapwing.url}/predict", b"{}", timeout=30).status_code == 200
    for exchange in exchanges_of(lapwing, 3):
        (span,) = forwards_of(exchange)
        assert stage_ms(exchange, "forward") >= FORWARD_MS, exchange
        # by the least that makes the server's span fit, which lies in the request with some room
        assert span["shifted_ns"] * clock_ms < 0 and abs(span["shifted_ns"] / 1e6 + clock_ms) < 100, span
    assert "lapwing_spans_shifted_total 0\n" not in lapwing.metrics()


def test_a_forward_pass_for_several_requests_is_forward_in_each(start_lapwing, processes):
    lapwing = started(start_lapwing, processes, 3, 0)
    clients = [threading.Thread(target=requests.post, args=(f"{lapwing.url}/predict", b"{}")) for _ in range(6)]
    [client.start() for client in clients]
    [client.join() for client in clients]
    for exchange in exchanges_of(lapwing, 6):
        (span,) = forwards_of(exchange)
        assert span["shared_by"] == 3, span
        assert FORWARD_MS <= stage_ms(exchange, "forward") <= exchange["total_ns"] / 1e6, exchange
