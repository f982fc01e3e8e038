"""Every query of the dashboards and every recording rule, asked of a real Prometheus that scrapes Lapwings under load: it has data.

Once where Prometheus stores native histograms, once where it stores classic buckets only, and with --long in Prometheus 3.
"""

import json
import math
import os
import pathlib
import re
import shutil
import time

import pytest

from demo_load import Fleet
from process import wait_for
from promql_names import ROOT
from prometheus import Prometheus
from test_dashboards import dashboards, drawn, rules

TOOLS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "tmp/go/bin"
PROMETHEUS_3 = TOOLS / "prometheus"
RULES = ROOT / "dashboards/prometheus/lapwing.rules.yaml"
KINDS = {
    "native histograms": {"native": "flag"},
    "classic buckets": {"native": None},
    "Prometheus 3": {"native": "setting", "binary": str(PROMETHEUS_3)},
}
WINDOW = "20s"
pytestmark = [pytest.mark.beside, pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")]


def filled(expr):
    """As Grafana asks it with all variables at All."""
    return re.sub(r"\$(?:namespace|pod|route|model|stage|target)\b", ".*", expr).replace("$__rate_interval", WINDOW)


def panel_queries():
    """(what, query, whether it asks for exemplars)."""
    for dashboard in dashboards():
        for panel in drawn(dashboard):
            for target in panel["targets"]:
                yield f"{dashboard['title']}, {panel['title']}, {target['refId']}", filled(target["expr"]), target["exemplar"]


def has_data(answer):
    """Whether a vector has a sample that is a number, or a histogram."""
    return any("histogram" in one or math.isfinite(float(one["value"][1])) for one in answer["result"])


@pytest.fixture(scope="module")
def fleet(start_lapwing, start_server, small_mlp, tmp_path_factory, redis_port):
    with Fleet(start_lapwing, start_server, small_mlp, tmp_path_factory.mktemp("fleet"), redis_port) as fleet:
        yield fleet


@pytest.fixture(scope="module", params=[pytest.param(kind, marks=pytest.mark.long if kind == "Prometheus 3" else ()) for kind in KINDS])
def prometheus(request, fleet, processes, tmp_path_factory):
    kind = KINDS[request.param]
    if not shutil.which(kind.get("binary", "prometheus")):
        pytest.skip("Prometheus 3 is not installed: tests/run --long builds it where Go is there")
    yield Prometheus(processes, tmp_path_factory.mktemp("prometheus"), fleet.scraped(), rules=[RULES], **kind)


def await_data(fleet, ask, wanted):
    """Waits until every query has data, and asks only for what is missing."""
    missing = dict(wanted)

    def all_have():
        fleet.check()
        for what in [what for what, query in missing.items() if ask(query)]:
            del missing[what]
        return not missing

    end = time.monotonic() + 60
    while not all_have():
        assert time.monotonic() < end, "no data: " + json.dumps(missing, indent=1)
        time.sleep(1)


def test_every_query_of_a_panel_has_data(fleet, prometheus):
    wanted = {what: query for what, query, _ in panel_queries()}
    assert len(wanted) > 120
    await_data(fleet, lambda query: has_data(prometheus.get("query", query=query)), wanted)


def test_every_recording_rule_has_data_and_no_rule_fails(fleet, prometheus):
    await_data(fleet, lambda name: has_data(prometheus.get("query", query=name)), {rule.name: rule.name for rule in rules.RECORDS})
    found = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert len(found) == len(rules.RECORDS) + len(rules.ALERTS)
    assert [rule for rule in found if rule["health"] == "err"] == []


def test_every_variable_has_values(fleet, prometheus):
    def values(definition):
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", filled(definition)).groups()
        return [value for value in prometheus.get(f"label/{label}/values", **{"match[]": selector}) if value]

    variables = [(one["uid"], variable) for one in dashboards() for variable in one["templating"]["list"] if variable["type"] == "query"]
    wanted = {f"{uid} {variable['name']}": variable["query"]["query"] for uid, variable in variables}
    await_data(fleet, values, wanted)
    assert values(wanted["lapwing-shadow target"]) == ["int8", "reference", "upstream"]  # whose second answers are the noise floor
    assert set(values(wanted["lapwing-overview pod"])) == {"batcher", "ranker", "talker", "writer"}


def test_exemplars_of_panels_are_traces_that_lapwing_shows(fleet, prometheus):
    def exemplars(query):
        now = time.time()
        return prometheus.get("query_exemplars", query=query, start=now - 600, end=now + 10)

    await_data(fleet, exemplars, {what: query for what, query, asked in panel_queries() if asked})

    def is_shown():
        duration = exemplars('lapwing_request_duration_seconds{pod="writer"} or lapwing_request_duration_seconds_bucket{pod="writer"}')
        found = {one["labels"]["trace_id"] for series in duration for one in series["exemplars"]}
        return found & {one["trace_id"] for one in fleet.writer.exchanges()}

    # Lapwing forgets the older ones, of which a slow Prometheus may have none but
    wait_for(is_shown, 30, "a trace of an exemplar is shown", 1)
