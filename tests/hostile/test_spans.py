"""What exporters may send at worst: small messages that are large in memory, or that take long to read."""

import gzip
import http.client
import json
import socket
import threading

import grpc
import pytest
from fake import Upstream, await_true
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from payloads import field, listed, nested, one_span, resource, spans
from sidecar import Sidecar
from watch import Watch

PROTOBUF, JSON = "application/x-protobuf", "application/json"
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
MAX_SPANS = 16_384


IN_SPAN = ("resourceSpans", "scopeSpans", "spans")
M2 = 2_090_000
# name: what is sent, its content type, and the expected status over HTTP and over gRPC
MESSAGES = {
    "empty spans": (spans(b"\x12\0" * M2), PROTOBUF, 200, "OK"),
    "empty resources": (b"\x0a\0" * M2, PROTOBUF, 413, "RESOURCE_EXHAUSTED"),
    "empty scopes": (field(1, b"\x12\0" * M2), PROTOBUF, 413, "RESOURCE_EXHAUSTED"),
    "empty attributes": (one_span(b"\x4a\0" * M2), PROTOBUF, 200, "OK"),
    "empty events": (one_span(b"\x5a\0" * M2), PROTOBUF, 200, "OK"),
    "empty links": (one_span(b"\x6a\0" * M2), PROTOBUF, 200, "OK"),
    "empty attributes of one event": (one_span(field(11, b"\x1a\0" * M2)), PROTOBUF, 200, "OK"),
    "empty values of one list": (one_span(field(9, field(2, field(5, b"\x0a\0" * M2)))), PROTOBUF, 200, "OK"),
    "deep values": (nested(5000), PROTOBUF, 200, "OK"),
    "a resource of many attributes": (resource(1_100_000, 20_000), PROTOBUF, 413, "RESOURCE_EXHAUSTED"),
    "a resource of as many as may be": (resource(32_000, 16_000), PROTOBUF, 200, "OK"),
    "spans in JSON": (listed(IN_SPAN, "{}", 1_390_000), JSON, 200, None),
    "events in JSON": (listed((*IN_SPAN, "events"), "{}", 1_390_000), JSON, 200, None),
    "numbers in JSON": (listed((*IN_SPAN, "events"), "0", 2_000_000), JSON, 200, None),
    "resources in JSON": (listed(IN_SPAN[:1], "{}", 1_390_000), JSON, 413, None),
    "scopes in JSON": (listed(IN_SPAN[:2], "{}", 1_390_000), JSON, 413, None),
    "objects in JSON": (listed((*IN_SPAN, "attributes"), '{"a":0}', 500_000), JSON, 200, None),
    "keys in JSON": (b'{"resourceSpans":[{' + b'"a":0,' * 690_000 + b'"b":1}]}', JSON, 200, None),
    "brackets in JSON": (b'{"resourceSpans":' + b"[" * 4_000_000, JSON, 400, None),
}


@pytest.fixture(scope="module")
def shared():
    with Upstream() as up, Sidecar(up.url, otlp=True, grace="300ms") as proxy:
        yield up, proxy


def post(proxy, body, kind, path="/v1/traces"):
    connection = http.client.HTTPConnection("127.0.0.1", proxy.otlp_http, timeout=40)
    try:
        connection.request("POST", path, gzip.compress(body, 9), {"content-type": kind, "content-encoding": "gzip"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def call(proxy, body):
    """The code of the answer over gRPC, and the answer."""
    with grpc.insecure_channel(f"127.0.0.1:{proxy.otlp_grpc}", compression=grpc.Compression.Gzip) as channel:
        try:
            return "OK", channel.unary_unary(EXPORT)(body, timeout=40)
        except grpc.RpcError as error:
            return error.code().name, b""


def export(exporter):
    """Sends one span by a real exporter."""
    sent = []

    class Processor(SimpleSpanProcessor):
        def on_end(self, span):
            sent.append(self.span_exporter.export((span,)))

    provider = TracerProvider()
    provider.add_span_processor(Processor(exporter))
    provider.get_tracer("real").start_span("forward").end()
    provider.shutdown()
    return sent == [SpanExportResult.SUCCESS]


def still_receives(proxy):
    before = proxy.metric("lapwing_spans_received_total")
    assert export(HttpExporter(f"http://127.0.0.1:{proxy.otlp_http}/v1/traces", timeout=10))
    assert export(GrpcExporter(f"127.0.0.1:{proxy.otlp_grpc}", insecure=True, timeout=10))
    assert await_true(lambda: proxy.metric("lapwing_spans_received_total") == before + 2)


@pytest.mark.parametrize("name", MESSAGES)
def test_small_messages_that_are_large_in_memory(shared, name):
    _, proxy = shared
    body, kind, status, code = MESSAGES[name]
    assert len(gzip.compress(body, 9)) < 1 << 20
    with Watch(proxy) as watch:
        assert post(proxy, body, kind)[0] == status
        if code:
            assert call(proxy, body)[0] == code
    watch.check()
    still_receives(proxy)


def test_the_exporter_is_told_what_was_not_joined(shared):
    _, proxy = shared
    before = proxy.metric("lapwing_spans_rejected_total")
    many = spans(b"\x12\0" * (MAX_SPANS + 5))
    for answer in (post(proxy, many, PROTOBUF)[1], call(proxy, many)[1]):
        assert ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans == 5
    told = json.loads(post(proxy, listed(IN_SPAN, "{}", MAX_SPANS + 7), JSON)[1])
    assert told["partialSuccess"]["rejectedSpans"] == "7"
    assert proxy.metric("lapwing_spans_rejected_total") - before == 17


def test_a_message_of_an_exporter_at_its_largest_is_taken_in_full(shared):
    """8192 spans of ten attributes: what a collector sends in one batch at its default."""
    _, proxy = shared
    before = proxy.metric("lapwing_spans_received_total")
    message = ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    for number in range(8192):
        span = scope.spans.add(trace_id=b"\7" * 16, span_id=(number + 1).to_bytes(8, "big"), name="forward")
        for key in range(10):
            span.attributes.add(key=f"k{key}").value.int_value = key
    assert post(proxy, message.SerializeToString(), PROTOBUF) == (200, b"")
    assert await_true(lambda: proxy.metric("lapwing_spans_received_total") == before + 8192)


def test_no_exchange_is_lost_while_hostile_spans_are_read():
    """More requests than the queue to the aggregator holds, during messages that once stopped it for seconds."""
    n = 6000
    with Upstream() as up, Sidecar(up.url, otlp=True, grace="300ms") as proxy, proxy.client() as client:
        over = threading.Event()

        def attack():
            while not over.is_set():
                post(proxy, MESSAGES["a resource of as many as may be"][0], PROTOBUF)

        attacker = threading.Thread(target=attack)
        attacker.start()
        with Watch(proxy) as watch:
            for _ in range(n // 50):
                client.send("GET /m HTTP/1.1\r\nHost: m\r\n\r\n" * 50)
                assert all(client.response().status == 200 for _ in range(50))
        over.set()
        attacker.join()
        watch.check(most_mib=128)  # one such message after the other: two are in memory, and what the allocator has not given back yet
        assert await_true(lambda: proxy.outcomes() == {"ok": n}), proxy.outcomes()
        assert proxy.metric('lapwing_exchanges_dropped_total{reason="channel_full"}') == 0


@pytest.mark.parametrize("begun", [b"", b"PRI * HT", b"POST /v1/traces HTTP/1.1\r\nhost:"], ids=["silent", "preface", "head"])
def test_idle_connections_do_not_keep_exporters_out(begun):
    with Upstream() as up, Sidecar(up.url, otlp=True) as proxy:
        held = []
        for port in (proxy.otlp_http, proxy.otlp_grpc):
            for _ in range(200):
                held.append(socket.create_connection(("127.0.0.1", port), 5))
                held[-1].sendall(begun)
        still_receives(proxy)
        assert proxy.metric('lapwing_control_connections_closed_total{reason="gave_way"}') > 100
        for sock in held:
            sock.close()


def test_bodies_that_stall_do_not_keep_exporters_out():
    head = f"POST /v1/traces HTTP/1.1\r\nhost: m\r\ncontent-type: {PROTOBUF}\r\ncontent-length: 4000000\r\n\r\n".encode()
    with Upstream() as up, Sidecar(up.url, otlp=True) as proxy:
        held = []
        for _ in range(40):
            held.append(socket.create_connection(("127.0.0.1", proxy.otlp_http), 5))
            held[-1].sendall(head + b"\0" * 100)
        still_receives(proxy)
        for sock in held:
            sock.close()


def test_bodies_that_fill_the_room_are_refused_for_now():
    """The bytes that are received at once are bounded; an exporter is told to try again, and does."""
    head = f"POST /v1/traces HTTP/1.1\r\nhost: m\r\ncontent-type: {PROTOBUF}\r\ncontent-length: 4194304\r\n\r\n".encode()
    with Upstream() as up, Sidecar(up.url, otlp=True) as proxy:
        with Watch(proxy) as watch:
            held = []
            for _ in range(12):
                held.append(socket.create_connection(("127.0.0.1", proxy.otlp_http), 5))
                try:
                    held[-1].sendall(head + b"\0" * 4_000_000)
                except OSError:
                    pass  # it was answered before its end
            assert await_true(lambda: proxy.metric("lapwing_otlp_busy_total") > 0)
        watch.growth_mib = 0  # 12 inputs of 4 MB are not one of 1 MB
        watch.check()
        for sock in held:
            sock.close()
        still_receives(proxy)
