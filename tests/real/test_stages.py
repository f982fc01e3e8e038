"""Lapwing's figures of each stage, compared with the model server's own clock."""

import http.client
import json
import random
import secrets
import time

import grpc
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

from lapwing import OPENER, Counted
from process import wait_for

# the span's name, and Lapwing's name of the stage
STAGES = {
    "feature_hydration": "hydration",
    "preprocessing": "preprocessing",
    "model_forward": "forward",
    "postprocessing": "postprocessing",
}
ROW = [i / 30 for i in range(30)]


def post(served, path, body, traceparent=None):
    """(status, headers, answer) through Lapwing."""
    connection = http.client.HTTPConnection("127.0.0.1", served.lapwing.port, timeout=30)
    headers = {"content-type": "application/json"}
    if traceparent:
        headers["traceparent"] = traceparent
    connection.request("POST", path, json.dumps(body), headers)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    assert response.status == 200, (response.status, answer[:500])
    return json.loads(answer)


def predict(served, report="none", traceparent=None, **body):
    return post(served, f"/predict?report={report}", {"key": "user:1", "rows": [ROW], **body}, traceparent)


def knobs(rng):
    """Stages of 0.2–50 ms, spinning and sleeping."""
    return {
        name: {"ms": round(10 ** rng.uniform(-0.7, 1.7 if name == "model_forward" else 1.0), 3), "how": how}
        for name, how in zip(STAGES, ("sleep", "spin", "spin", "sleep"))
    }


def traceparent(flags="01"):
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-{flags}"


def stages_of(exchange):
    return {s["stage"]: s for s in exchange["stages"]}


def assert_sums(exchange):
    assert sum(s["ns"] for s in exchange["stages"]) == exchange["total_ns"], exchange
    assert all(s["ns"] >= 0 for s in exchange["stages"])


def differences(answers, exchanges):
    """By stage: for each answer (Lapwing's figure, the true one), in nanoseconds."""
    pairs = {stage: [] for stage in STAGES.values()}
    for answer in answers:
        stages = stages_of(exchanges[answer["trace_id"]])
        for span, stage in STAGES.items():
            pairs[stage].append((stages[stage]["ns"], answer["truth_ns"][span]))
    return pairs


def assert_true(pairs, relative=0.03, absolute_ns=300_000, share=0.9):
    """Checks that nearly all figures are true; a shared machine may stop a process between two readings of a clock."""
    for stage, figures in pairs.items():
        wrong = [(said, truth) for said, truth in figures if abs(said - truth) > max(relative * truth, absolute_ns)]
        assert len(figures) - len(wrong) >= round(share * len(figures), 6), (stage, wrong)


def assert_sources(exchange, source):
    stages = stages_of(exchange)
    assert {stages[s]["source"] for s in STAGES.values()} == {source}, exchange["stages"]
    assert stages["ingress"]["source"] == "observed"


@pytest.mark.parametrize("server", ["by_http", "by_grpc"])
def test_traced_stages_are_true(server, request):
    """No report in the response: spans alone, 0.1–5 s late, over OTLP/HTTP and OTLP/gRPC."""
    served = request.getfixturevalue(server)
    rng = random.Random(1)
    predict(served)  # the first request warms the model
    with Counted(served.lapwing, 30) as counted:
        answers = [predict(served, stages=knobs(rng)) for _ in range(30)]
        exchanges = served.lapwing.exchanges_of(a["trace_id"] for a in answers)
    assert counted.outcomes == {"ok": 30}
    for exchange in exchanges.values():
        assert_sums(exchange)
        assert_sources(exchange, "traced")
    assert_true(differences(answers, exchanges))


def test_reported_stages_are_exact(by_http):
    """Server-Timing carries the same figures, so at most the sixth decimal of a millisecond may be lost."""
    rng = random.Random(2)
    answers = [predict(by_http, "header", stages=knobs(rng)) for _ in range(20)]
    exchanges = by_http.lapwing.exchanges_of(a["trace_id"] for a in answers)
    for exchange in exchanges.values():
        assert_sums(exchange)
        assert_sources(exchange, "reported")
    assert_true(differences(answers, exchanges), relative=0, absolute_ns=2, share=1)


def test_a_waterfall_names_what_it_shows(by_http):
    answer = predict(by_http, stages={"model_forward": {"ms": 5}})
    exchange = by_http.lapwing.exchange_of(answer["trace_id"])
    assert exchange["route"] == "POST /predict"
    assert (exchange["status"], exchange["outcome"]) == (200, "ok")
    assert exchange["total_ns"] >= answer["total_ns"]
    assert exchange["started_at"]
    by_name = {s["name"]: s for s in exchange["spans"]}
    for name, stage in STAGES.items():
        span = by_name[name]
        assert (span["stage"], span["source"]) == (stage, "traced")
        assert 0 <= span["start_ns"] < span["end_ns"] <= exchange["total_ns"]
    forward = by_name["model_forward"]
    assert forward["end_ns"] - forward["start_ns"] >= 5_000_000
    order = [by_name[name]["start_ns"] for name in STAGES]
    assert order == sorted(order)


def test_a_cache_miss_and_a_hit_are_both_hydration(by_grpc):
    key = f"user:{secrets.token_hex(4)}"
    answers = [predict(by_grpc, key=key) for _ in range(2)]
    assert [a["cache_hit"] for a in answers] == [False, True]
    exchanges = by_grpc.lapwing.exchanges_of(a["trace_id"] for a in answers)
    for exchange in exchanges.values():
        assert_sums(exchange)
        assert stages_of(exchange)["hydration"]["ns"] > 0
    assert_true({"hydration": differences(answers, exchanges)["hydration"]}, absolute_ns=1_000_000, share=0.5)


@pytest.mark.parametrize("server", ["by_http", "by_grpc"])
def test_nested_spans_own_their_time_alone(server, request):
    """Hydration within the forward pass is subtracted from it."""
    served = request.getfixturevalue(server)
    stages = {"feature_hydration": {"ms": 3}, "late_hydration": {"ms": 15}, "model_forward": {"ms": 40}}
    answers = [predict(served, shape="nested", stages=stages) for _ in range(10)]
    exchanges = served.lapwing.exchanges_of(a["trace_id"] for a in answers)
    for answer in answers:
        exchange = exchanges[answer["trace_id"]]
        assert_sums(exchange)
        assert stages_of(exchange)["hydration"]["ns"] >= 17_500_000
        assert any(s["name"] == "onnxruntime.run" for s in exchange["spans"])
    assert_true(differences(answers, exchanges), share=0.8)


@pytest.mark.parametrize("server", ["by_http", "by_grpc"])
def test_concurrent_spans_of_a_stage_count_once(server, request):
    served = request.getfixturevalue(server)
    answers = [predict(served, shape="concurrent", stages={"feature_hydration": {"ms": 20}}) for _ in range(10)]
    exchanges = served.lapwing.exchanges_of(a["trace_id"] for a in answers)
    for exchange in exchanges.values():
        assert_sums(exchange)
        spans = [s for s in exchange["spans"] if s["name"] == "feature_hydration"]
        assert len(spans) == 2
        both = sum(s["end_ns"] - s["start_ns"] for s in spans)
        assert stages_of(exchange)["hydration"]["ns"] < both
    assert_true(differences(answers, exchanges), share=0.8)


# --- sampling decisions of the user

def test_an_unsampled_trace_stays_unsampled(by_http):
    theirs = traceparent("00")
    answer = predict(by_http, traceparent=theirs, stages={"model_forward": {"ms": 2}})
    assert answer["traceparent"].endswith("-00") and not answer["sampled"]
    assert answer["trace_id"] == theirs.split("-")[1]
    # no spans will arrive, so Lapwing waits for none
    exchange = by_http.lapwing.exchange_of(answer["trace_id"], seconds=3)
    assert_sums(exchange)
    upstream = stages_of(exchange)["upstream"]
    assert upstream["source"] == "observed" and "forward" not in stages_of(exchange)
    assert upstream["ns"] >= answer["total_ns"]


def test_a_trace_is_made_where_there_is_none(by_http):
    answer = predict(by_http)
    version, trace, span, flags = answer["traceparent"].split("-")
    assert (version, flags, len(trace), len(span)) == ("00", "01", 32, 16)
    assert answer["sampled"]


def test_a_sampled_trace_is_continued_by_a_span_of_ours(by_http):
    theirs = traceparent("01")
    answer = predict(by_http, traceparent=theirs)
    _, trace, span, flags = answer["traceparent"].split("-")
    assert trace == theirs.split("-")[1] and flags == "01"
    assert span != theirs.split("-")[2]


def test_several_requests_of_one_trace_are_told_apart(by_http):
    trace = secrets.token_hex(16)
    ms = [5, 25, 45]
    answers = [
        predict(by_http, traceparent=f"00-{trace}-{secrets.token_hex(8)}-01", stages={"model_forward": {"ms": m}}) for m in ms
    ]

    def find():
        found = [e for e in by_http.lapwing.exchanges() if e["trace_id"] == trace]
        return found if len(found) == len(ms) else None

    exchanges = wait_for(find, 15, "three exchanges of one trace", 0.2)
    exchanges.sort(key=lambda e: stages_of(e)["forward"]["ns"])
    for answer, exchange in zip(answers, exchanges):
        assert_sums(exchange)
        assert_sources(exchange, "traced")
        assert len([s for s in exchange["spans"] if s["name"] == "model_forward"]) == 1
        assert_true({"forward": [(stages_of(exchange)["forward"]["ns"], answer["truth_ns"]["model_forward"])]}, absolute_ns=3_000_000)


# --- streams

@pytest.mark.parametrize("kind", ["text/event-stream", "audio/wav", "application/x-ndjson"])
def test_a_stream_of_any_format_has_a_first_byte(plain, kind):
    """Nothing in it is content, so there is no first token; the head comes at once, and the first byte after 30 ms of 90."""
    known = {e["span_id"] for e in plain.lapwing.exchanges()}
    with Counted(plain.lapwing, 1):
        with OPENER.open(f"{plain.proxied}/notes?kind={kind}", timeout=10) as response:
            assert response.read() == b": 0\n\n: 1\n\n: 2\n\n"
    (exchange,) = [e for e in plain.lapwing.exchanges() if e["span_id"] not in known]
    assert exchange["generation"] is None
    assert 30e6 <= exchange["first_byte_ns"] <= exchange["total_ns"] - 55e6
    assert stages_of(exchange)["upstream"]["ns"] >= 90e6
    (series,) = [s for s in plain.lapwing.series() if s["route"] == "GET /notes"]
    assert series["first_byte"]["count"] == series["total"]["count"]


# --- forwarding of the upstream's telemetry to the collector

def test_without_a_sampler_every_trace_reaches_the_collector(by_http, otlp_sink):
    """The client's traces and those that Lapwing began: without Lapwing, the server's SDK would have begun them."""
    traces = [predict(by_http, traceparent=traceparent("01"))["trace_id"] for _ in range(5)]
    traces += [predict(by_http)["trace_id"] for _ in range(5)]
    by_http.lapwing.exchanges_of(traces)
    names = {*STAGES, "POST /predict", "onnxruntime.run"}

    def forwarded():
        spans = otlp_sink.spans()
        return all({n for t, n in spans if t == trace} >= names for trace in traces)

    wait_for(forwarded, 15, "the traces reach the collector", 0.2)
    spans = otlp_sink.spans()
    for trace in traces:
        came = [n for t, n in spans if t == trace]
        # FastAPI has a server span of its own beside the handler's
        assert all(came.count(name) == 1 for name in names - {"POST /predict"}), f"each span is passed on once: {came}"


def metrics_request():
    return json_format.ParseDict(
        {
            "resourceMetrics": [
                {
                    "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "model-server"}}]},
                    "scopeMetrics": [
                        {
                            "metrics": [
                                {
                                    "name": f"rows_{secrets.token_hex(4)}",
                                    "sum": {
                                        "isMonotonic": True,
                                        "aggregationTemporality": 2,
                                        "dataPoints": [{"asInt": "7", "timeUnixNano": str(time.time_ns())}],
                                    },
                                }
                            ]
                        }
                    ],
                }
            ]
        },
        metrics_service_pb2.ExportMetricsServiceRequest(),
    )


def logs_request():
    record = {"body": {"stringValue": f"loaded {secrets.token_hex(4)}"}, "severityNumber": 9}
    return json_format.ParseDict(
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}, logs_service_pb2.ExportLogsServiceRequest()
    )


@pytest.mark.parametrize("signal, make", [("metrics", metrics_request), ("logs", logs_request)])
@pytest.mark.parametrize("carrier", ["http", "grpc"])
def test_metrics_and_logs_are_passed_on(by_http, otlp_sink, signal, make, carrier):
    message = make()
    sent = message.SerializeToString()
    if carrier == "http":
        connection = http.client.HTTPConnection("127.0.0.1", by_http.lapwing.otlp_http, timeout=10)
        connection.request("POST", f"/v1/{signal}", sent, {"content-type": "application/x-protobuf"})
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        assert response.headers["content-type"] == "application/x-protobuf"
        connection.close()
    else:
        name = signal.capitalize()
        with grpc.insecure_channel(f"127.0.0.1:{by_http.lapwing.otlp_grpc}") as channel:
            export = channel.unary_unary(f"/opentelemetry.proto.collector.{signal}.v1.{name}Service/Export")
            export(sent, timeout=10)
    wait_for(lambda: message in otlp_sink.requests[signal], 10, f"the {signal} reach the collector")
    assert otlp_sink.requests[signal].count(message) == 1


def test_the_table_agrees_with_the_waterfalls(by_grpc):
    """`/stats` and `/exchanges` are made from the same exchanges."""
    answers = [predict(by_grpc, "header", stages={"model_forward": {"ms": 8}}) for _ in range(5)]
    by_grpc.lapwing.exchanges_of(a["trace_id"] for a in answers)
    # grace periods of earlier requests may end just between the two readings: read until both agree
    def agreed():
        one = next(s for s in by_grpc.lapwing.series() if s["route"] == "POST /predict")
        all_of_it = [e for e in by_grpc.lapwing.exchanges() if e["route"] == "POST /predict" and e["outcome"] == "ok"]
        return (one, all_of_it) if one["total"]["count"] == len(all_of_it) else None

    series, exchanges = wait_for(agreed, 15, "table and waterfalls have the same requests", 0.2)
    for stage in STAGES.values():
        mean = sum(stages_of(e).get(stage, {"ns": 0})["ns"] for e in exchanges) / len(exchanges)
        said = series["stages"][stage]
        assert said["mean_ns"] * said["count"] == pytest.approx(mean * len(exchanges), rel=0.01)
        assert said["p50_ns"] <= said["p90_ns"] <= said["p99_ns"] <= said["p999_ns"]
    shares = [s["share"] for s in series["stages"].values()]
    assert sum(shares) == pytest.approx(1, abs=0.01)
