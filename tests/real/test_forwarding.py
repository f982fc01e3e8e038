"""What the user's collector gets with Lapwing in between: the spans and the trees that it would get without it.

The same service with opentelemetry-sdk is asked once directly with its exporter at the collector, and once through Lapwing with its
exporter at Lapwing; the client's SDK, where it has one, exports to the collector itself.
"""

import http.client
import json
import os
import secrets
import sys
from collections import Counter

import pytest
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, ParentBasedTraceIdRatio, TraceIdRatioBased

from conftest import HERE
from otlp_sink import OtlpSink
from ports import free_port
from process import wait_for, wait_listening

pytestmark = pytest.mark.beside
RATIO = 0.1
WAYS = ("with", "without")
REQUESTS = 200
# of a ratio of 0.1, in 200 traces: 4.2 standard deviations on both sides
FEW, MANY = 2, 38
SAMPLER = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": str(RATIO)}


class Both:
    """A server with Lapwing in front and one without, each with a collector of its own."""

    def __init__(self, start_lapwing, processes, server_env, lapwing_env):
        self.sinks = {way: OtlpSink() for way in WAYS}
        for sink in self.sinks.values():
            sink.__enter__()
        ports = {name: free_port() for name in self.sinks}
        self.lapwing = start_lapwing(
            f"http://127.0.0.1:{ports['with']}", otlp_forward=self.sinks["with"].url, env=lapwing_env
        )
        endpoints = {"with": f"http://127.0.0.1:{self.lapwing.otlp_http}", "without": self.sinks["without"].url}
        for name, port in ports.items():
            env = dict(
                os.environ,
                OTEL_EXPORTER_OTLP_ENDPOINT=endpoints[name],
                OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
                OTEL_BSP_SCHEDULE_DELAY="200",
                **server_env,
            )
            processes(f"traced_server_{name}", [sys.executable, str(HERE / "servers/traced_server.py"), str(port)], env=env)
        for port in ports.values():
            wait_listening(port, 60)
        wait_for(self.lapwing.is_ready, 20, "lapwing is ready")
        self.ports = {"with": self.lapwing.port, "without": ports["without"]}

    def predict(self, way, traceparent=None):
        """The service's answer: its trace, and whether it was sampled."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[way], timeout=30)
        connection.request("POST", "/predict", b"{}", {"traceparent": traceparent} if traceparent else {})
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        assert response.status == 200, answer
        return json.loads(answer)

    def trees(self, way):
        """By trace: each span with its path of names from the root; a parent that nobody sent is `?`."""
        spans = self.sinks[way].whole_spans()
        by_id = {(s.trace_id, s.span_id): s for s in spans}
        assert len(by_id) == len(spans), "each span is passed on once"

        def path(span):
            if not span.parent_span_id:
                return (span.name,)
            parent = by_id.get((span.trace_id, span.parent_span_id))
            return (*(path(parent) if parent else ("?",)), span.name)

        trees = {}
        for span in spans:
            trees.setdefault(span.trace_id.hex(), []).append((path(span), span.kind, span.flags))
        return {trace: tuple(sorted(tree)) for trace, tree in trees.items()}

    def settled(self, way, traces):
        """The trees of `traces` once nothing more comes: the exporter sends every 200 ms."""
        seen = [None]

        def still():
            found = {t: tree for t, tree in self.trees(way).items() if t in traces}
            last, seen[0] = seen[0], found
            return found if found == last else None

        return wait_for(still, 30, "nothing more comes", 1.5) or seen[0]

    def withheld(self):
        lines = self.lapwing.metrics().splitlines()
        return next(int(float(l.split()[-1])) for l in lines if l.startswith("lapwing_otlp_spans_withheld_total"))


@pytest.fixture(scope="module")
def unsampled(start_lapwing, processes):
    """No sampler is set anywhere."""
    return Both(start_lapwing, processes, {}, {})


@pytest.fixture(scope="module")
def sampled(start_lapwing, processes):
    """The service takes one trace in ten, and Lapwing has been told so by the same variables."""
    return Both(start_lapwing, processes, SAMPLER, SAMPLER)


def test_without_a_sampler_the_trees_are_those_without_lapwing(unsampled):
    traces = {way: {unsampled.predict(way)["trace_id"] for _ in range(20)} for way in WAYS}
    # what the first request of a process does differently is no business of this test
    trees = {way: unsampled.settled(way, traces[way]) for way in WAYS}
    assert {way: len(found) for way, found in trees.items()} == {"with": 20, "without": 20}
    assert Counter(trees["with"].values()) == Counter(trees["without"].values())
    for tree in trees["with"].values():
        assert {path[0] for path, _, _ in tree} == {"POST /predict"}, "one root, and nobody's parent is missing"
    assert unsampled.withheld() == 0


def test_a_ratio_takes_the_traces_that_the_sdk_takes(sampled):
    """Without Lapwing the SDK draws its own trace ids, so each side is held against the SDK's own sampler."""
    sdk = TraceIdRatioBased(RATIO)
    trees = {}
    for way in WAYS:
        traces = {sampled.predict(way)["trace_id"] for _ in range(REQUESTS)}
        chosen = {t for t in traces if sdk.should_sample(None, int(t, 16), "").decision is Decision.RECORD_AND_SAMPLE}
        assert FEW < len(chosen) < MANY
        trees[way] = sampled.settled(way, traces)
        assert set(trees[way]) == chosen, way
    assert set(trees["with"].values()) == set(trees["without"].values())
    withheld = (REQUESTS - len(trees["with"])) * len(next(iter(trees["with"].values())))
    wait_for(lambda: sampled.withheld() == withheld, 10, "all others are counted as withheld")


def test_the_sampler_may_be_in_the_configuration(start_lapwing, raw_server):
    """And then it wins over the variables."""
    env = {"LAPWING_OTLP_FORWARD_SAMPLER": "always_off", **SAMPLER}
    found = start_lapwing(raw_server.url, env=env).json("/config")
    assert found["values"]["otlp_forward_sampler"] == "always_off"
    assert found["origins"]["otlp_forward_sampler"] == "env LAPWING_OTLP_FORWARD_SAMPLER"


@pytest.mark.parametrize("both", ["unsampled", "sampled"])
def test_a_client_that_decides_is_obeyed_and_its_span_is_the_parent(both, request):
    """The client's SDK samples half of its traces and exports its own spans to the collector."""
    both = request.getfixturevalue(both)
    trees = {}
    for way, sink in both.sinks.items():
        provider = TracerProvider(sampler=ParentBasedTraceIdRatio(0.5))
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{sink.url}/v1/traces")))
        tracer, decided = provider.get_tracer("client"), {}
        for _ in range(40):
            with tracer.start_as_current_span("client", kind=trace.SpanKind.CLIENT) as span:
                carrier = {}
                propagate.inject(carrier)
                answer = both.predict(way, carrier["traceparent"])
            context = span.get_span_context()
            assert answer["trace_id"] == f"{context.trace_id:032x}"
            decided[answer["trace_id"]] = bool(context.trace_flags & 1)
        provider.shutdown()
        trees[way] = both.settled(way, set(decided))
        assert set(trees[way]) == {t for t, is_sampled in decided.items() if is_sampled}
        assert 5 < len(trees[way]) < 35
        for tree in trees[way].values():
            assert all(path[0] == "client" for path, _, _ in tree), "the whole tree hangs below the client's span"
            assert any(path[:2] == ("client", "POST /predict") for path, _, _ in tree)
    assert set(trees["with"].values()) == set(trees["without"].values())


def test_two_requests_below_one_span_of_a_client_are_both_its_children(unsampled):
    parent, trace_id = secrets.token_hex(8), secrets.token_hex(16)
    for _ in range(2):
        unsampled.predict("with", f"00-{trace_id}-{parent}-01")
    unsampled.settled("with", {trace_id})
    servers = [
        s for s in unsampled.sinks["with"].whole_spans() if s.trace_id.hex() == trace_id and s.parent_span_id.hex() == parent
    ]
    assert len(servers) == 2 and {s.name for s in servers} == {"POST /predict"}
