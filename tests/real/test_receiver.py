"""The OTLP receiver and its forwarder: every encoding, every kind of invalid message, floods, and a dead collector."""

import http.client
import json
import secrets
import time

import grpc
import pytest

import spans
from lapwing import Counted
from ports import free_port
from process import wait_for
from spans import Asked, post, protobuf, request, snake

pytestmark = pytest.mark.beside


# well within the 80 ms of a request, so that a busy machine does not clip them
STAGES = ("feature_hydration", 40, 45), ("model_forward", 45, 65)


@pytest.fixture(scope="module")
def joined(start_lapwing, raw_server, otlp_sink):
    # what is sent here comes at once, and without a server's span: each test waits for the whole grace period
    lapwing = start_lapwing(raw_server.url, otlp_forward=otlp_sink.grpc_url, env={"LAPWING_ATTRIBUTION__GRACE": "1500ms"})
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    return lapwing


def stages_of(exchange):
    return {s["stage"]: s for s in exchange["stages"]}


def assert_joined(exchange, forward_ms=20, hydration_ms=5):
    """Checks to the nanosecond that spans inside the window are neither stretched nor clipped."""
    stages = stages_of(exchange)
    assert (stages["forward"]["ns"], stages["forward"]["source"]) == (forward_ms * 1_000_000, "traced"), exchange
    assert stages["hydration"]["ns"] == hydration_ms * 1_000_000
    assert sum(s["ns"] for s in exchange["stages"]) == exchange["total_ns"]


ENCODINGS = {
    "protobuf": lambda message: (protobuf(message), "application/x-protobuf"),
    "json": lambda message: (json.dumps(message).encode(), "application/json"),
    "json with a charset": lambda message: (json.dumps(message).encode(), "application/json; charset=utf-8"),
    "snake_case json": lambda message: (json.dumps(snake(message)).encode(), "application/json"),
}


@pytest.mark.parametrize("gzipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_is_understood(joined, raw_server, encoding, gzipped):
    asked = Asked(joined, raw_server)
    body, kind = ENCODINGS[encoding](request(asked.spans(*STAGES)))
    status, answered, _ = post(joined.otlp_http, body, kind, gzipped)
    assert (status, answered.split(";")[0]) == (200, kind.split(";")[0]), "the answer is of the question's kind"
    assert_joined(joined.exchange_of(asked.trace_id))


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip], ids=["plain", "gzip"])
def test_over_grpc(joined, raw_server, compression):
    asked = Asked(joined, raw_server)
    with grpc.insecure_channel(f"127.0.0.1:{joined.otlp_grpc}", compression=compression) as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        assert export(protobuf(request(asked.spans(*STAGES))), timeout=10) == b""
    assert_joined(joined.exchange_of(asked.trace_id))


def test_children_before_their_parents(joined, raw_server):
    """The stages arrive in one batch, and the server span that links them to the request in a later one."""
    asked = Asked(joined, raw_server)
    server = secrets.token_hex(8)
    children = [s | {"parentSpanId": server} for s in asked.spans(*STAGES)]
    assert post(joined.otlp_http, protobuf(request(children)))[0] == 200
    time.sleep(0.5)
    parent = asked.spans(("GET /head", 30, 70), own_id=server, kind=2)
    assert post(joined.otlp_http, protobuf(request(parent)))[0] == 200
    assert_joined(joined.exchange_of(asked.trace_id))


def test_what_reaches_out_of_the_window_is_clipped(joined, raw_server):
    asked = Asked(joined, raw_server)
    assert post(joined.otlp_http, protobuf(request(asked.spans(("model_forward", -500, 5000)))))[0] == 200
    exchange = joined.exchange_of(asked.trace_id)
    stages = stages_of(exchange)
    assert sum(s["ns"] for s in exchange["stages"]) == exchange["total_ns"]
    assert 80_000_000 <= stages["forward"]["ns"] <= exchange["total_ns"]
    assert stages["forward"]["source"] == "traced"


@pytest.mark.parametrize(
    "body, kind, status",
    [
        (b"\xff\xff\xff", "application/x-protobuf", 400),
        (b'{"resourceSpans": [', "application/json", 400),
        (b'{"resourceSpans": 7}', "application/json", 400),
        (b"spans", "text/plain", 415),
    ],
)
def test_what_cannot_be_read_is_refused_and_harms_nobody(joined, raw_server, body, kind, status):
    assert post(joined.otlp_http, body, kind)[0] == status
    with Counted(joined, 1):
        Asked(joined, raw_server, ms=1)


def test_what_claims_to_be_gzip_and_is_not(joined):
    assert post(joined.otlp_http, b"")[0] == 200, "an empty message is a message"
    connection = http.client.HTTPConnection("127.0.0.1", joined.otlp_http, timeout=10)
    headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
    connection.request("POST", "/v1/traces", b"not gzip at all", headers)
    assert connection.getresponse().status == 400
    connection.close()


def test_a_flood_of_unrelated_spans_stays_bounded(joined, raw_server):
    """100,000 spans of unknown requests: memory stays bounded, and the next request is still joined."""

    def resident_kib():
        with open(f"/proc/{joined.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    now = time.time_ns()
    batch = [spans.span(secrets.token_hex(16), secrets.token_hex(8), "model_forward", now, now + 1000) for _ in range(500)]
    body = protobuf(request(batch))
    base = resident_kib()
    for i in range(200):
        # new trace ids each time: one byte of each differs
        assert post(joined.otlp_http, body.replace(b"model_forward", b"model_forwar%x" % (i % 16)))[0] in (200, 429, 503)
    grown = resident_kib() - base
    assert grown < 48 * 1024, f"grown by {grown} KiB"

    def settles():
        asked = Asked(joined, raw_server)
        answer = post(joined.otlp_http, protobuf(request(asked.spans(*STAGES))))
        return answer[0] == 200 and asked

    asked = wait_for(settles, 15, "the receiver takes spans again", 0.5)
    assert_joined(joined.exchange_of(asked.trace_id))


def test_a_collector_over_grpc_gets_what_came(joined, raw_server, otlp_sink):
    """With the client's own sampling decision, so the collector gets the client's trace."""
    trace = secrets.token_hex(16)
    now = time.time_ns()
    message = request([spans.span(trace, secrets.token_hex(8), "elsewhere", now, now + 5)])
    assert post(joined.otlp_http, json.dumps(message).encode(), "application/json")[0] == 200
    wait_for(lambda: (trace, "elsewhere") in otlp_sink.spans(), 10, "the collector has the span")


def test_a_dead_collector_costs_nobody_anything(start_lapwing, raw_server):
    """The exporter gets its answer, the request is joined, and the loss is counted."""
    lapwing = start_lapwing(raw_server.url, otlp_forward=f"http://127.0.0.1:{free_port()}")
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    asked = Asked(lapwing, raw_server)
    # spans of the client's own trace, which its collector should get
    now = time.time_ns()
    theirs = spans.span(secrets.token_hex(16), secrets.token_hex(8), "elsewhere", now, now + 5)
    start = time.monotonic()
    assert post(lapwing.otlp_http, protobuf(request([*asked.spans(*STAGES), theirs])))[0] == 200
    assert time.monotonic() - start < 1, "nobody waits for the collector"
    assert_joined(lapwing.exchange_of(asked.trace_id))

    def lost():
        line = [line for line in lapwing.metrics().splitlines() if line.startswith("lapwing_otlp_forward_lost_total")]
        return line and float(line[0].split()[-1]) >= 1

    wait_for(lost, 60, "the loss is counted", 0.5)
    with Counted(lapwing, 1) as counted:
        Asked(lapwing, raw_server, ms=1)
    assert counted.outcomes == {"ok": 1}
