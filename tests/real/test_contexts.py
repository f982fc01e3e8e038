"""Servers that continue other trace contexts than `traceparent`: opentelemetry-sdk with the propagators of B3, Jaeger and X-Ray.

Whatever a client sends, nothing included, the server's spans are joined to its request, and a client's trace goes on in them.
"""

import http.client
import json
import os
import secrets
import sys
import time

import pytest

from conftest import HERE
from ports import free_port
from process import wait_for, wait_listening

pytestmark = pytest.mark.beside
GRACE = 0.5


class Service:
    """The server of traced_server.py with one propagator, and Lapwing in front of it."""

    def __init__(self, start_lapwing, processes, propagator):
        port = free_port()
        env = {"LAPWING_ATTRIBUTION__GRACE": f"{int(GRACE * 1000)}ms", "LAPWING_ATTRIBUTION__QUIET": "100ms"}
        self.lapwing = start_lapwing(f"http://127.0.0.1:{port}", env=env)
        otel = {
            "OTEL_PROPAGATORS": propagator,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.lapwing.otlp_http}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "deflate",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        processes(f"traced_server_{propagator}", [sys.executable, str(HERE / "servers/traced_server.py"), str(port)], env=dict(os.environ, **otel))
        wait_listening(port, 60)
        wait_for(self.lapwing.is_ready, 20, "lapwing is ready")

    def trace_of(self, headers):
        """Asks once; the trace that the server's spans are of."""
        connection = http.client.HTTPConnection("127.0.0.1", self.lapwing.port, timeout=30)
        connection.request("POST", "/predict", b"{}", headers)
        answer = connection.getresponse().read()
        connection.close()
        return json.loads(answer)["trace_id"]

    def is_joined(self, trace):
        """Whether the newest request has the server's spans, and these are of this trace."""
        recent = self.lapwing.json("/exchanges?order=recent&limit=1")["exchanges"]
        if not recent:
            return False  # it waits for its spans
        traced = [stage["stage"] for stage in recent[0]["stages"] if stage["source"] == "traced"]
        return recent[0]["trace_id"] == trace and "forward" in traced

    def joins(self, headers):
        trace = self.trace_of(headers)
        wait_for(lambda: self.is_joined(trace), 10, f"the spans of {headers} are joined")
        return trace


def contexts(trace, span):
    return {
        "traceparent": {"traceparent": f"00-{trace}-{span}-01"},
        "b3": {"b3": f"{trace}-{span}-1"},
        "b3multi": {"x-b3-traceid": trace, "x-b3-spanid": span, "x-b3-sampled": "1"},
        "jaeger": {"uber-trace-id": f"{trace}:{span}:0:1"},
        "xray": {"x-amzn-trace-id": f"Root=1-{trace[:8]}-{trace[8:]};Parent={span};Sampled=1"},
    }


@pytest.mark.parametrize("propagator", ["b3multi", "jaeger"])
def test_a_server_that_reads_one_context_only_is_joined_for_every_client(start_lapwing, processes, propagator):
    service = Service(start_lapwing, processes, propagator)

    def is_learnt():
        for _ in range(4):
            trace = service.trace_of({})
        time.sleep(2 * GRACE)
        return service.is_joined(trace)

    wait_for(is_learnt, 30, "it is found out what the server continues")
    service.joins({})
    for name in ("traceparent", "b3", "b3multi", propagator):
        trace, span = secrets.token_hex(16), secrets.token_hex(8)
        assert service.joins(contexts(trace, span)[name]) == trace, f"{name} goes on in the server's spans"
    # of 64 bits, and the same ids again
    short = {"x-b3-traceid": trace[16:], "x-b3-spanid": span, "x-b3-sampled": "1"}
    assert [service.joins(short) for _ in range(2)] == ["0" * 16 + trace[16:]] * 2
    assert 'lapwing_otlp_malformed_total 0' in service.lapwing.metrics()


def test_a_server_that_reads_x_ray_is_joined_for_a_client_that_sends_it(start_lapwing, processes):
    service = Service(start_lapwing, processes, "xray")
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    assert service.joins(contexts(trace, span)["xray"]) == trace
    # and from then on for all
    service.joins({})


def test_contexts_in_conflict_go_on_each_where_it_is_read(start_lapwing, processes):
    service = Service(start_lapwing, processes, "b3multi")
    ours, theirs = secrets.token_hex(16), secrets.token_hex(16)
    sent = contexts(ours, secrets.token_hex(8))["traceparent"] | contexts(theirs, secrets.token_hex(8))["b3"]
    assert service.trace_of(sent) == theirs
    wait_for(lambda: service.is_joined(ours), 10, "the server's spans of the other trace are joined")
