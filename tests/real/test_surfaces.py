"""The admin paths as common tools read them: Prometheus' parser, HdrHistogram's log reader, a kubelet's probes."""

import http.client
import re
import socket
import urllib.parse

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from lapwing import Counted
from ports import free_port
from process import wait_for
from raw_server import RawServer
from spans import Asked, post, protobuf, request

pytestmark = pytest.mark.beside
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
HOUR_NS = 3_600_000_000_000


@pytest.fixture(scope="module")
def lapwing(start_lapwing, raw_server, tmp_path_factory):
    """Configured by a file, with custom names of stages and a secret."""
    path = tmp_path_factory.mktemp("config") / "lapwing.yaml"
    path.write_text(
        """\
otlp_forward: http://127.0.0.1:9
otlp_forward_headers: {api-key: hunter2}
respond_server_timing: true
attribution:
  grace: 1s
  server_timing: {gpu: forward}
  spans:
    - {attribute: db.system, value: redis, stage: hydration}
    - {name: "embed*", stage: preprocessing}
"""
    )
    lapwing = start_lapwing(raw_server.url, config=path)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    return lapwing


@pytest.fixture(scope="module")
def busy(lapwing, raw_server):
    """Thirty requests that ended, and four that were the client's fault or the upstream's."""
    with Counted(lapwing, 34):
        for _ in range(30):
            Asked(lapwing, raw_server, ms=2, path="/canned/own_name")
        for _ in range(4):
            connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=10)
            connection.request("GET", "/canned/reason")
            assert connection.getresponse().status == 404
            connection.close()
    return lapwing


def stages_of(exchange):
    return {s["stage"]: s for s in exchange["stages"]}


# --- custom names

def test_a_configured_name_of_server_timing(lapwing, raw_server):
    asked = Asked(lapwing, raw_server, ms=20, path="/canned/own_name")
    forward = stages_of(lapwing.exchange_of(asked.trace_id))["forward"]
    assert (forward["ns"], forward["source"]) == (7_250_000, "reported")


def test_server_timing_in_a_trailer(lapwing, raw_server):
    asked = Asked(lapwing, raw_server, ms=20, path="/canned/trailers")
    forward = stages_of(lapwing.exchange_of(asked.trace_id))["forward"]
    assert (forward["ns"], forward["source"]) == (1_500_000, "reported")


def test_configured_rules_for_spans(lapwing, raw_server):
    asked = Asked(lapwing, raw_server)
    by_attribute = asked.spans(("GET", 30, 34), kind=3, attributes=[("db.system", "redis")])
    by_name = asked.spans(("Embed-Rows", 34, 45), ("unheard of", 45, 55))
    assert post(lapwing.otlp_http, protobuf(request(by_attribute + by_name)))[0] == 200
    exchange = lapwing.exchange_of(asked.trace_id)
    stages = stages_of(exchange)
    assert (stages["hydration"]["ns"], stages["preprocessing"]["ns"]) == (4_000_000, 11_000_000), exchange
    assert stages["unattributed"]["ns"] >= 10_000_000, "an unknown name is no stage"


def test_the_client_is_told_when_it_is_asked_for(lapwing, raw_server):
    """In addition to the upstream's own entries."""
    asked = Asked(lapwing, raw_server, ms=20, path="/canned/own_name")
    said = asked.headers.get_all("server-timing")
    assert "gpu;dur=7.25, cache;desc=hit" in said
    assert any(re.search(r"forward;dur=7\.25", value) for value in said), said


# --- /metrics

@pytest.mark.parametrize("accept, parse", [(OPENMETRICS, openmetrics), (None, None), ("text/plain", plain)])
def test_metrics_are_what_prometheus_reads(busy, accept, parse):
    status, headers, body = busy.get("/metrics", accept)
    text = body.decode()
    kind = headers["content-type"]
    assert status == 200
    if parse is None:
        parse = openmetrics if "openmetrics" in kind else plain
    assert ("openmetrics" in kind) == (parse is openmetrics)
    families = {f.name: f for f in parse(text)}
    requests = families["lapwing_request_duration_seconds"]
    assert requests.type == "histogram"
    counts = {s.labels["route"]: s.value for s in requests.samples if s.name.endswith("_count")}
    said = {s["route"]: s["total"]["count"] for s in busy.series()}
    assert {route: n for route, n in counts.items() if n} == {route: n for route, n in said.items() if n}
    stages = families["lapwing_stage_duration_seconds"]
    assert {"ingress", "forward", "egress"} <= {s.labels["stage"] for s in stages.samples}
    for name in ("lapwing_exchanges_dropped", "lapwing_stage_source", "lapwing_attribution_coverage_ratio"):
        assert any(family.startswith(name) for family in families), name


def test_buckets_agree_with_the_exact_sums(busy):
    families = {f.name: f for f in openmetrics(busy.get("/metrics", OPENMETRICS)[2].decode())}
    samples = families["lapwing_request_duration_seconds"].samples
    one = next(s for s in busy.series() if s["route"].endswith("own_name"))
    mine = [s for s in samples if s.labels["route"] == one["route"]]
    (total,) = [s.value for s in mine if s.name.endswith("_sum")]
    assert total == pytest.approx(one["total"]["mean_ns"] * one["total"]["count"] / 1e9, rel=1e-6)
    buckets = [(float(s.labels["le"]), s.value) for s in mine if s.name.endswith("_bucket")]
    assert buckets == sorted(buckets) and buckets[-1] == (float("inf"), one["total"]["count"])
    assert next(le for le, n in buckets if n >= one["total"]["count"] / 2) * 1e9 >= one["total"]["p50_ns"] * 0.999


# --- /hdr

def test_hdr_logs_merge_without_loss(busy, tmp_path):
    """Read by HdrHistogram's own reader; each quantile equals that of /stats."""
    status, _, body = busy.get("/hdr?window=all")
    assert status == 200
    path = tmp_path / "log.hlog"
    path.write_bytes(body)
    reader = HistogramLogReader(str(path), HdrHistogram(1000, HOUR_NS, 3))
    found = {}
    while (histogram := reader.get_next_interval_histogram()) is not None:
        measure, *labels = histogram.get_tag().split(";")
        labels = {k: urllib.parse.unquote(v) for k, v in (label.split("=", 1) for label in labels)}
        found[measure, labels["route"]] = histogram
    compared = set()
    for series in busy.series():
        if not series["total"]["count"]:
            continue
        for measure, said in [("total", series["total"]), *series["stages"].items()]:
            if not said["count"]:
                continue
            compared.add(measure)
            histogram = found[measure, series["route"]]
            assert histogram.get_total_count() == said["count"]
            for q, key in ((50, "p50_ns"), (90, "p90_ns"), (99, "p99_ns")):
                # /stats never exceeds the maximum
                assert min(histogram.get_value_at_percentile(q), said["max_ns"]) == pytest.approx(said[key], rel=0.002, abs=1024)
    assert {"total", "ingress", "forward", "egress"} <= compared


# --- /stats and /exchanges

@pytest.mark.parametrize("window", ["10s", "1m", "5m", "all"])
def test_every_window(busy, window):
    stats = busy.stats(window)
    assert {"queue_depth", "dropped", "pending", "clipped"} <= stats["profiler"].keys()
    assert stats["series"] or window in ("10s", "1m"), "the requests may be older than that"
    for series in stats["series"]:
        assert {"route", "model", "upstream", "count", "errors", "outcomes", "total", "stages", "coverage"} <= series.keys()
        assert sum(series["outcomes"].values()) == series["count"]
        assert series["total"]["p50_ns"] <= series["total"]["p99_ns"] <= series["total"]["max_ns"] * 1.001


def test_errors_are_errors(busy):
    """A route that only ever was answered 404 is no series of its own; a single request has its name."""
    one = next(s for s in busy.series() if s["route"] == "other")
    assert any(e["route"].endswith("reason") for e in busy.exchanges(limit=100))
    assert one["outcomes"].get("client_error") == 4 and one["outcomes"].get("ok", 0) == 0


def test_the_slowest_come_first(busy):
    slowest = busy.exchanges(limit=10, order="slowest")
    totals = [e["total_ns"] for e in slowest]
    assert totals == sorted(totals, reverse=True) and totals
    assert len(busy.exchanges(limit=3)) == 3


@pytest.mark.parametrize("path", ["/stats?window=1h", "/exchanges?order=best", "/exchanges?limit=many", "/stats?windwo=all"])
def test_a_wrong_query_is_told_why(busy, path):
    status, _, body = busy.get(path)
    assert status == 400
    assert path.split("?")[1].split("=")[1] in body.decode()


def test_unknown_paths_are_not_found(busy):
    assert busy.get("/nothing")[0] == 404


def test_config_shows_no_secret(lapwing):
    status, _, body = lapwing.get("/config")
    assert status == 200
    assert b"api-key" in body and b"hunter2" not in body


# --- probes

def test_ready_when_the_upstream_accepts(start_lapwing):
    port = free_port()
    lapwing = start_lapwing(f"http://127.0.0.1:{port}")
    assert (lapwing.status_of("/livez"), lapwing.status_of("/readyz")) == (200, 503)
    with socket.create_server(("127.0.0.1", port)):
        wait_for(lapwing.is_ready, 10, "it is ready")
    wait_for(lambda: lapwing.status_of("/readyz") == 503, 10, "it is not ready any more")
    assert lapwing.status_of("/livez") == 200


def test_an_upstream_on_a_unix_socket(start_lapwing, tmp_path):
    with RawServer(tmp_path / "model.sock") as server:
        lapwing = start_lapwing(server.url)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        with Counted(lapwing, 1) as counted:
            asked = Asked(lapwing, server, ms=5)
        assert b"GET /head" in asked.answer
        assert counted.outcomes == {"ok": 1}
