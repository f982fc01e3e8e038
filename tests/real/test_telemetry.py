"""Lapwing's own metrics and traces at a collector: a real OpenTelemetry Collector where one could be built, else a sink of our own.

Both end in the same sink, which decodes what arrives. Requests go to an upstream whose errors and delays the test chooses.
"""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from conftest import HERE
from lapwing import NO_SPANS, Counted
from otlp_sink import OtlpSink
from ports import free_port
from process import wait_for, wait_listening
from raw_server import RawServer
from test_fleet import histograms

pytestmark = pytest.mark.beside
OTELCOL = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or pathlib.Path(__file__).parents[2] / "target") / "tmp/go/bin/otelcol"
needs_otelcol = pytest.mark.skipif(not OTELCOL.exists(), reason="no OpenTelemetry Collector: it needs Go, and tests/real/otelcol.sh")
SHARE = 0.25
SERVER, INTERNAL = 2, 1


@pytest.fixture(scope="module")
def upstream():
    with RawServer() as server:
        server.canned["error"] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"
        yield server


@pytest.fixture
def sink():
    with OtlpSink() as sink:
        yield sink


def telemetry(endpoint, **keys):
    keys = {"metrics": "on", "endpoint": endpoint, "metrics_interval": "1s", **keys}
    env = {f"LAPWING_TELEMETRY__{key.upper()}": str(value) for key, value in keys.items()}
    return {**NO_SPANS, "LAPWING_METRICS__BUDGETS": '{"GET /slow": {p99: 20ms}}', **env}


def otelcol(processes, folder, sink, port):
    """A Collector that takes OTLP over gRPC at `port` and over HTTP at the next, and passes it on in batches."""
    http_port = free_port()
    config = {
        "receivers": {
            "otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}, "http": {"endpoint": f"127.0.0.1:{http_port}"}}}
        },
        "processors": {"batch": {"timeout": "100ms"}},
        "exporters": {"otlphttp": {"endpoint": sink.url, "tls": {"insecure": True}}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {
                kind: {"receivers": ["otlp"], "processors": ["batch"], "exporters": ["otlphttp"]}
                for kind in ("metrics", "traces")
            },
        },
    }
    (folder / "otelcol.yaml").write_text(json.dumps(config))
    process = processes("otelcol", [str(OTELCOL), f"--config=file:{folder}/otelcol.yaml"])
    wait_listening(port, 30)
    return process, http_port


def endpoint_of(by, processes, folder, sink):
    """Where telemetry goes: to the sink, or to a Collector before it."""
    if by == "sink":
        return sink.grpc_url
    port = free_port()
    otelcol(processes, folder, sink, port)
    return f"grpc://127.0.0.1:{port}"


def ask(lapwing, paths):
    """Asks for each path in turn on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
    for path in paths:
        connection.request("GET", path)
        connection.getresponse().read()
    connection.close()


def points(request):
    """The points of a request, by metric, with their attributes as a dictionary."""
    found = {}
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                data = getattr(metric, metric.WhichOneof("data"))
                pairs = [({a.key: a.value.string_value for a in p.attributes}, p) for p in data.data_points]
                found.setdefault(metric.name, []).extend(pairs)
    return found


def answered(points_of):
    """(count, sum, count in buckets) of answered requests."""
    own = [p for labels, p in points_of.get("lapwing_request_duration_seconds", []) if labels["result"] == "answered"]
    in_buckets = sum(sum(p.positive.bucket_counts) + p.zero_count for p in own)
    return sum(p.count for p in own), sum(p.sum for p in own), in_buckets


def counter(lapwing, name, **labels):
    """The sum of a counter's samples that have these labels."""
    lines = [line for line in lapwing.metrics().splitlines() if line.startswith(name + "_total")]
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(float(line.split("}")[-1].split()[0 if "}" in line else 1]) for line in lines if all(w in line for w in wanted))


def stats_of(lapwing):
    """(count, sum in seconds) of answered requests."""
    totals = [one["total"] for one in lapwing.series() if one["total"]]
    return sum(t["count"] for t in totals), sum(t["count"] * t["mean_ns"] for t in totals) / 1e9


def equals_stats(request, lapwing):
    count, seconds, in_buckets = answered(points(request))
    told, told_seconds = stats_of(lapwing)
    return count == in_buckets == told and seconds == pytest.approx(told_seconds, abs=1e-6)


def latest(sink, lapwing, what="metrics arrive that equal /stats"):
    """The first request from now on that equals /stats."""
    seen = len(sink.requests["metrics"])

    def find():
        later = sink.requests["metrics"][seen:]
        return later[-1] if later and equals_stats(later[-1], lapwing) else None

    return wait_for(find, 20, what, 0.1)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_metrics_are_those_of_stats(start_lapwing, upstream, sink, protocol, compression):
    env = telemetry(sink.url if protocol == "http" else sink.grpc_url, compression=compression)
    env["OTEL_RESOURCE_ATTRIBUTES"] = "k8s.pod.name=web-0,service.name=edge"
    lapwing = start_lapwing(upstream.url, env=env)
    with Counted(lapwing, 60):
        ask(lapwing, ["/head", "/slow?ms=1", "/canned/error"] * 20)
    request = latest(sink, lapwing)
    resource = {a.key: a.value.string_value for a in request.resource_metrics[0].resource.attributes}
    assert (resource["service.name"], resource["k8s.pod.name"]) == ("edge", "web-0")
    assert len(resource["service.instance.id"]) == 36
    by_metric = points(request)
    requests = {(labels["route"], labels["outcome"]): p.as_int for labels, p in by_metric["lapwing_requests"] if p.as_int}
    assert requests == {("GET /head", "ok"): 20, ("GET /slow", "ok"): 20, ("GET /canned/error", "server_error"): 20}
    lapwing.process.stop(signal.SIGTERM)
    assert "could not be sent" not in lapwing.process.output()


def test_a_collector_that_dies_and_comes_back_misses_nothing_of_cumulative_nor_of_delta_metrics(start_lapwing, upstream):
    port = free_port()
    lapwings = {
        temporality: start_lapwing(upstream.url, env=telemetry(f"http://127.0.0.1:{port}", temporality=temporality, timeout="500ms"))
        for temporality in ("cumulative", "delta")
    }

    def of(sink, name):
        """The requests of one Lapwing, which are told apart by the resource."""
        return [r for r in sink.requests["metrics"] if instance(r) == ids[name]]

    def instance(request):
        return next(a.value.string_value for a in request.resource_metrics[0].resource.attributes if a.key == "service.instance.id")

    ids = {}
    with OtlpSink(port) as first:
        for name, lapwing in lapwings.items():
            ask(lapwing, ["/head"] * (30 if name == "delta" else 20))
        wait_for(lambda: {answered(points(r))[0] for r in first.requests["metrics"]} >= {20, 30}, 20, "both send")
        for request in first.requests["metrics"]:
            if (count := answered(points(request))[0]) in (20, 30):
                ids["delta" if count == 30 else "cumulative"] = instance(request)
    assert answered_by(of(first, "delta")) == 30
    for lapwing in lapwings.values():
        ask(lapwing, ["/head"] * 10)
    # nobody listens: a request is given up after six attempts over about fifteen seconds
    for lapwing in lapwings.values():
        wait_for(lambda one=lapwing: counter(one, "lapwing_telemetry_metrics_requests", result="failed") >= 1, 60, "a request is lost", 0.5)
    with OtlpSink(port) as second:
        for lapwing in lapwings.values():
            ask(lapwing, ["/head"] * 5)
        wait_for(lambda: any(answered(points(r))[0] == 35 for r in of(second, "cumulative")), 60, "cumulative counts arrive", 0.2)
        wait_for(lambda: answered_by(of(first, "delta") + of(second, "delta")) == 45, 60, "no count of the deltas is missing", 0.2)


def answered_by(requests):
    """How many answered requests these deltas tell of."""
    return sum(answered(points(r))[0] for r in requests)


def exported(sink):
    """The spans by trace and name: the request's own, and those below it."""
    spans = sink.whole_spans()
    own = {s.span_id: s for s in spans if s.kind == SERVER}
    below = {}
    for span in spans:
        if span.kind == INTERNAL:
            below.setdefault(span.parent_span_id, []).append(span)
    return own, below


def attributes(span):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def threshold():
    """OpenTelemetry's: a trace is sampled if its lowest 56 bits are not below it."""
    return round((1 - SHARE) * 2**56)


@pytest.mark.parametrize("by", ["sink", pytest.param("otelcol", marks=needs_otelcol)])
def test_errors_and_what_is_over_budget_are_all_sent_and_the_share_of_the_rest(start_lapwing, processes, upstream, sink, tmp_path, by):
    endpoint = endpoint_of(by, processes, tmp_path, sink)
    env = telemetry(endpoint, traces="on", traces_share=SHARE, compression="gzip")
    lapwing = start_lapwing(upstream.url, env={**env, "LAPWING_METRICS__RECENT_EXCHANGES": "2000"})
    with Counted(lapwing, 700):
        ask(lapwing, (["/head"] * 12 + ["/canned/error", "/slow?ms=30"]) * 50)
    exchanges = {e["trace_id"]: e for e in lapwing.exchanges(2000)}
    assert len(exchanges) == 700
    request = latest(sink, lapwing)
    assert answered(points(request))[0] == 700
    lapwing.process.stop(signal.SIGTERM)
    errors = {t for t, e in exchanges.items() if e["outcome"] == "server_error"}
    over = {t for t, e in exchanges.items() if e["route"] == "GET /slow" and e["total_ns"] > 20_000_000}
    rest = set(exchanges) - errors - over
    drawn = {t for t in rest if int(t[-14:], 16) >= threshold()}
    wanted = errors | over | drawn
    wait_for(lambda: wanted <= {s.trace_id.hex() for s in exported(sink)[0].values()}, 20, "every trace arrives", 0.2)
    own, below = exported(sink)
    by_reason = {}
    for span in own.values():
        by_reason.setdefault(attributes(span)["lapwing.sampling.reason"], []).append(span)

    taken = {reason: {s.trace_id.hex() for s in spans} for reason, spans in by_reason.items()}
    assert (len(errors), taken["error"], taken["over_budget"]) == (50, errors, over)
    assert taken["share"] == drawn
    # beside them only the slowest of a route, which the share may have drawn
    assert set(taken) <= {"error", "over_budget", "share", "slowest"} and len(taken.get("slowest", ())) <= 1
    sigma = (len(rest) * SHARE * (1 - SHARE)) ** 0.5
    assert abs(len(taken["share"]) - len(rest) * SHARE) <= 3 * sigma, (len(taken["share"]), len(rest))
    # each span says for how many it stands; what is sent for being the slowest stands for none
    weights = sum(attributes(s)["lapwing.sampling.adjusted_count"] for s in own.values())
    assert abs(weights - 700) <= 3 * sigma / SHARE
    assert {s.trace_state for s in by_reason["share"]} == {"ot=th:c"} and {s.trace_state for s in by_reason["error"]} == {"ot=th:0"}
    for span in own.values():
        exchange = exchanges[span.trace_id.hex()]
        assert span.end_time_unix_nano - span.start_time_unix_nano == exchange["total_ns"]
        told = attributes(span)
        assert told["http.route"] == exchange["route"].split()[1] and told["http.request.method"] == "GET"
        assert told["http.response.status_code"] == exchange["status"]
        stages = {s["stage"]: s["ns"] / 1e9 for s in exchange["stages"]}
        assert {k.split(".")[2]: v for k, v in told.items() if k.startswith("lapwing.stage.")} == pytest.approx(stages)
        bars = sorted((b["name"], b["stage"], b["source"], b["start_ns"], b["end_ns"]) for b in exchange["spans"])
        sent = sorted(
            (s.name, attributes(s)["lapwing.stage"], attributes(s)["lapwing.source"],
             s.start_time_unix_nano - span.start_time_unix_nano, s.end_time_unix_nano - span.start_time_unix_nano)
            for s in below[span.span_id]
        )
        assert sent == bars


@needs_otelcol
def test_a_real_collector_takes_both_signals_over_http_dies_and_comes_back(start_lapwing, processes, upstream, sink, tmp_path):
    port = free_port()
    process, http_port = otelcol(processes, tmp_path, sink, port)
    env = telemetry(f"http://127.0.0.1:{http_port}", traces="on", traces_share="100%", timeout="500ms", compression="gzip")
    lapwing = start_lapwing(upstream.url, env=env)
    with Counted(lapwing, 50):
        ask(lapwing, ["/head"] * 50)
    latest(sink, lapwing)
    wait_for(lambda: len(exported(sink)[0]) == 50, 20, "every trace arrives", 0.2)
    process.stop(signal.SIGKILL)
    with Counted(lapwing, 30):
        ask(lapwing, ["/head"] * 30)
    wait_for(lambda: counter(lapwing, "lapwing_telemetry_traces", result="failed") == 30, 60, "the batch is lost and counted", 0.5)
    assert counter(lapwing, "lapwing_telemetry_traces", result="ok") == 50
    assert len(exported(sink)[0]) == 50
    processes("otelcol", [str(OTELCOL), f"--config=file:{tmp_path}/otelcol.yaml"])
    wait_listening(http_port, 30)
    latest(sink, lapwing, "what the Collector missed arrives with what is cumulative")
    with Counted(lapwing, 20):
        ask(lapwing, ["/head"] * 20)
    latest(sink, lapwing)
    wait_for(lambda: len(exported(sink)[0]) == 70, 20, "later traces arrive", 0.2)
    results = {result: counter(lapwing, "lapwing_telemetry_traces", result=result) for result in ("ok", "failed", "queue_full")}
    assert results == {"ok": 70, "failed": 30, "queue_full": 0}


def test_the_upstreams_spans_hang_below_lapwings_where_that_is_sent(start_lapwing, processes, sink):
    """The server's exporter sends to Lapwing, which passes its spans on to the collector that gets its own."""
    port = free_port()
    env = {"LAPWING_TELEMETRY__TRACES": "on", "LAPWING_TELEMETRY__ENDPOINT": sink.url, "LAPWING_TELEMETRY__TRACES_SHARE": "50%"}
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", otlp_forward=sink.url, env=env)
    endpoint = f"http://127.0.0.1:{lapwing.otlp_http}"
    exporter = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    server = dict(os.environ, OTEL_BSP_SCHEDULE_DELAY="200", **exporter)
    processes("traced_server", [sys.executable, str(HERE / "servers/traced_server.py"), str(port)], env=server)
    wait_listening(port, 60)
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
    traces = set()
    for _ in range(40):
        connection.request("POST", "/predict", b"{}")
        traces.add(json.loads(connection.getresponse().read())["trace_id"])

    def servers():
        return {s.trace_id.hex(): s for s in sink.whole_spans() if s.name == "POST /predict" and not is_lapwings(s)}

    def is_lapwings(span):
        return "lapwing.outcome" in attributes(span)

    half = {t for t in traces if int(t[-14:], 16) >= 2**55}
    assert 5 < len(half) < 35
    wait_for(lambda: traces <= set(servers()), 30, "the server's spans arrive", 0.2)
    own_spans = lambda: {s.trace_id.hex(): s for s in sink.whole_spans() if is_lapwings(s)}
    wait_for(lambda: half <= set(own_spans()), 30, "Lapwing's arrive", 0.2)
    own = own_spans()
    for trace, span in servers().items():
        if trace in half:
            assert span.parent_span_id == own[trace].span_id
        elif trace in traces:
            assert not span.parent_span_id


def merged_totals(sink):
    """The last totals of answered requests of each instance, as one exponential histogram: (scale, counts by bucket, zeros, sum)."""
    last = {}
    for request in list(sink.requests["metrics"]):
        for resource in request.resource_metrics:
            (instance,) = (a.value.string_value for a in resource.resource.attributes if a.key == "service.instance.id")
            data = [m.exponential_histogram for s in resource.scope_metrics for m in s.metrics if m.name == "lapwing_request_duration_seconds"]
            own = [p for one in data for p in one.data_points if any(a.value.string_value == "answered" for a in p.attributes)]
            if own:
                last[instance] = own
    points = [point for own in last.values() for point in own]
    scale, counts = min((point.scale for point in points), default=0), {}
    for point in points:
        for at, count in enumerate(point.positive.bucket_counts, point.positive.offset):
            bucket = at >> point.scale - scale  # two neighbours of one scale are one of the next lower
            counts[bucket] = counts.get(bucket, 0) + count
    return scale, counts, sum(point.zero_count for point in points), sum(point.sum for point in points)


@pytest.mark.parametrize("by", ["sink", pytest.param("otelcol", marks=needs_otelcol)])
def test_two_pods_in_one_collector_are_what_lapwing_merges(start_lapwing, processes, binary, sink, tmp_path, by):
    """The same count and sum; quantiles of both within one bucket of the other."""
    endpoint = endpoint_of(by, processes, tmp_path, sink)
    logs, seconds, requests = [], 0, 150
    with RawServer() as fast, RawServer() as slow:
        for server, ms in ((fast, 1), (slow, 8)):
            lapwing = start_lapwing(server.url, env=telemetry(endpoint))
            with Counted(lapwing, requests):
                ask(lapwing, [f"/slow?ms={ms}"] * requests)
            logs.append(tmp_path / f"{ms}.hlog")
            logs[-1].write_bytes(lapwing.get("/hdr")[2])
            seconds += stats_of(lapwing)[1]
        whole = lambda: sum(merged_totals(sink)[1].values()) + merged_totals(sink)[2] == 2 * requests
        wait_for(whole, 30, "both have sent all", 0.2)
    subprocess.run([binary, "merge", *logs, "--out", tmp_path / "all.hlog"], check=True, capture_output=True, timeout=60)
    totals = [one for tag, one in histograms(tmp_path / "all.hlog").items() if tag.startswith("total;")]
    for one in totals[1:]:
        totals[0].add(one)
    assert totals[0].get_total_count() == 2 * requests
    scale, counts, _, sum_s = merged_totals(sink)
    assert sum_s == pytest.approx(seconds, abs=1e-6)
    for percent in (50, 90, 99):
        rank, bucket = 2 * requests * percent / 100, None
        for bucket in sorted(counts):
            rank -= counts[bucket]
            if rank <= 0:
                break
        own, base = totals[0].get_value_at_percentile(percent) / 1e9, 2 ** (2**-scale)
        assert base ** (bucket - 1) <= own <= base ** (bucket + 2), (percent, own, bucket, scale)
