"""Native histograms, exemplars and budgets as a real Prometheus scrapes, stores and answers them, from two Lapwings."""

import http.client
import os
import shutil
import subprocess
import threading
import time
import urllib.parse

import pytest

from exposition import ACCEPT, families, text_sum
from lapwing import NO_SPANS, Counted
from process import wait_for
from prometheus import Prometheus, Scraped
from raw_server import RawServer
from test_fleet import histograms

pytestmark = pytest.mark.beside
REQUESTS = 150
ROUTE = "GET /slow"
ANSWERED = f'lapwing_request_duration_seconds{{route="{ROUTE}",result="answered"}}'
CONFIG = f"""\
metrics:
  budgets:
    "{ROUTE}": {{p99: 20ms, p999: 1h}}
"""

needs_prometheus = pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")


def load(lapwing):
    """Requests of 1 to 40 ms, some at the same time."""

    def some(part):
        connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=20)
        for n in range(part, REQUESTS, 3):
            connection.request("GET", f"/slow?ms={1 + n * 40 // REQUESTS}")
            connection.getresponse().read()
        connection.close()

    threads = [threading.Thread(target=some, args=(part,)) for part in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


@pytest.fixture(scope="module")
def pair(start_lapwing, tmp_path_factory):
    """Two Lapwings before two servers, each with the same number of requests."""
    config = tmp_path_factory.mktemp("native") / "lapwing.yaml"
    config.write_text(CONFIG)
    with RawServer() as first, RawServer() as second:
        both = [start_lapwing(server.url, config=config, env=NO_SPANS) for server in (first, second)]
        for lapwing in both:
            with Counted(lapwing, REQUESTS):
                load(lapwing)
        yield both


def scraped(lapwing):
    status, head, body = lapwing.get("/metrics", ACCEPT)
    assert (status, head["content-type"]) == (200, ACCEPT)
    return families(body)


def of_route(family):
    (found,) = [value for labels, value in family[1] if labels.get("route") == ROUTE and labels.get("result") == "answered"]
    return found


def test_protobuf_text_and_stats_agree(pair):
    for lapwing in pair:
        own, (series,) = scraped(lapwing), [one for one in lapwing.series() if one["route"] == ROUTE]
        histogram = of_route(own["lapwing_request_duration_seconds"])
        assert histogram["count"] == series["total"]["count"] == REQUESTS
        assert histogram["zero"] + sum(count for _, count in histogram["buckets"]) == REQUESTS
        assert histogram["classic"][-1] == (float("inf"), REQUESTS)
        assert 0 <= histogram["schema"] <= 5 and len(histogram["buckets"]) <= 160
        text = lapwing.metrics()
        name = "lapwing_request_duration_seconds"
        assert text_sum(text, f"{name}_count", route=ROUTE, result="answered") == REQUESTS
        assert text_sum(text, f"{name}_sum", route=ROUTE, result="answered") == histogram["sum"]
        assert abs(time.time() - histogram["since"]) < 600
        # an exemplar is the trace of a request that Lapwing can show, with its total
        shown = {one["trace_id"]: one["total_ns"] for one in lapwing.exchanges()}
        assert histogram["exemplars"]
        for labels, value in histogram["exemplars"]:
            assert shown[labels["trace_id"]] == round(value * 1e9)
        assert ' # {trace_id="' in text
        assert b" # {" not in lapwing.get("/metrics", "text/plain")[2]


def test_requests_over_budget_are_counted(pair):
    for lapwing in pair:
        (series,) = [one for one in lapwing.series() if one["route"] == ROUTE]
        over = sum(one["total_ns"] > 20_000_000 for one in lapwing.exchanges() if one["route"] == ROUTE)
        p99 = series["budget"]["p99"]
        assert (p99["limit_ns"], p99["requests"], p99["over"]) == (20_000_000, REQUESTS, over) and over > REQUESTS // 3
        assert abs(p99["burn_rate"] - over / REQUESTS / 0.01) < 1e-6
        text = lapwing.metrics()
        assert text_sum(text, "lapwing_requests_over_budget_total", route=ROUTE, budget="p99") == over
        assert text_sum(text, "lapwing_requests_over_budget_total", route=ROUTE, budget="p999") == 0
        assert text_sum(text, "lapwing_latency_budget_seconds", route=ROUTE, budget="p99") == 0.02


@pytest.fixture(scope="module")
def prometheus(pair, processes, tmp_path_factory):
    found = Prometheus(processes, tmp_path_factory.mktemp("prometheus"), [Scraped(one.admin) for one in pair])
    wait_for(lambda: len(found.ask(f"histogram_count({ANSWERED})")) == 2, 30, "Prometheus has scraped both", 0.2)
    return found


@needs_prometheus
def test_prometheus_has_native_histograms_and_adds_them(pair, prometheus):
    assert prometheus.ask(f"histogram_count({ANSWERED})") == [REQUESTS, REQUESTS]
    assert prometheus.one(f"histogram_count(sum({ANSWERED}))") == 2 * REQUESTS
    sums = [of_route(scraped(one)["lapwing_request_duration_seconds"])["sum"] for one in pair]
    assert abs(prometheus.one(f"histogram_sum(sum({ANSWERED}))") - sum(sums)) < 1e-9


@needs_prometheus
def test_its_quantiles_are_within_one_bucket(pair, prometheus):
    for lapwing in pair:
        (series,) = [one for one in lapwing.series() if one["route"] == ROUTE]
        schema = of_route(scraped(lapwing)["lapwing_request_duration_seconds"])["schema"]
        for share in ("0.5", "0.9", "0.99"):
            own = series["total"][f"p{share[2:].ljust(2, '0')}_ns"] / 1e9
            instance = f'instance="127.0.0.1:{lapwing.admin}"'
            query = f"histogram_quantile({share}, {ANSWERED.replace('}', ',' + instance + '}')})"
            found = prometheus.one(query)
            factor = 2 ** (2**-schema)
            assert own / factor / 1.001 <= found <= own * factor * 1.001, (query, own, found, schema)


@needs_prometheus
def test_its_sum_over_both_is_what_lapwing_merges(pair, prometheus, binary, tmp_path):
    """Two pods in Prometheus and in `lapwing merge`: the same count, and quantiles within one bucket."""
    logs = [tmp_path / f"{n}.hlog" for n in range(len(pair))]
    for path, lapwing in zip(logs, pair):
        path.write_bytes(lapwing.get("/hdr")[2])
    merged = tmp_path / "all.hlog"
    subprocess.run([binary, "merge", *logs, "--out", merged], check=True, capture_output=True, timeout=60)
    found = [one for tag, one in histograms(merged).items() if tag.startswith("total;") and ROUTE in urllib.parse.unquote(tag)]
    # the two upstreams are two series
    assert sum(one.get_total_count() for one in found) == prometheus.one(f"histogram_count(sum({ANSWERED}))") == 2 * REQUESTS
    total = found[0]
    for one in found[1:]:
        total.add(one)
    schema = min(of_route(scraped(one)["lapwing_request_duration_seconds"])["schema"] for one in pair)
    factor = 2 ** (2**-schema) * 1.001
    for percent in (50, 90, 99):
        own, asked = total.get_value_at_percentile(percent) / 1e9, prometheus.one(f"histogram_quantile({percent / 100}, sum({ANSWERED}))")
        assert own / factor <= asked <= own * factor, (percent, own, asked, schema)


@needs_prometheus
def test_it_keeps_exemplars_that_lead_to_requests(pair, prometheus):
    shown = {one["trace_id"] for lapwing in pair for one in lapwing.exchanges()}

    def exemplars():
        now = time.time()
        return prometheus.get("query_exemplars", query="lapwing_request_duration_seconds", start=now - 3600, end=now + 60)

    found = wait_for(exemplars, 20, "Prometheus has exemplars", 0.2)
    traces = [one["labels"]["trace_id"] for series in found for one in series["exemplars"]]
    assert traces and set(traces) <= shown


@needs_prometheus
def test_burn_rates_can_be_asked(pair, prometheus):
    over = f'sum by (route) (lapwing_requests_over_budget_total{{route="{ROUTE}",budget="p99"}})'
    requests = f'sum by (route) (histogram_count(lapwing_request_duration_seconds{{route="{ROUTE}"}}))'
    burn = prometheus.one(f"{over} / {requests} / 0.01")
    budgets = [one["budget"]["p99"] for lapwing in pair for one in lapwing.series() if one["route"] == ROUTE]
    assert abs(burn - sum(one["over"] for one in budgets) / (2 * REQUESTS) / 0.01) < 1e-6
    assert prometheus.one(f'max(lapwing_latency_budget_seconds{{route="{ROUTE}",budget="p99"}})') == 0.02


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool_finds_no_fault_in_the_text(pair):
    _, _, text = pair[0].get("/metrics", "text/plain")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=30, check=False, env=os.environ)
    # it advises against names of ours that say what they are; it must not find faults
    assert b"error" not in done.stderr.lower() and done.returncode in (0, 3), done.stderr
