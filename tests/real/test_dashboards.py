"""The committed dashboards and rules: what the code in dashboards/source gives, and only of metrics and labels that there are."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from promql_names import ROOT, defined, faults

sys.path.append(str(ROOT / "dashboards"))
import generate  # noqa: E402
from source import rules  # noqa: E402

pytestmark = pytest.mark.beside
FILES = sorted((ROOT / "dashboards/grafana").glob("*.json"))
PROMETHEUS = ROOT / "dashboards/prometheus"
CASES = ("lapwing.hours_test.yaml", "lapwing.days_test.yaml")
needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")


def dashboards():
    return [json.loads(path.read_text()) for path in FILES]


def drawn(dashboard):
    """The panels with queries."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard):
    """(where, expression) of each panel and variable; a variable's is what has the labels that it chooses from."""
    for panel in drawn(dashboard):
        for target in panel["targets"]:
            yield f"{dashboard['title']}, {panel['title']}", target["expr"]
    for one in dashboard["templating"]["list"]:
        if one["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", one["query"]["query"]).groups()
            yield f"{dashboard['title']}, variable {one['name']}", f"sum by ({label}) ({selector})"


def found_faults(dashboard, table):
    return [f"{where}: {fault}" for where, expr in queries(dashboard) for fault in faults(expr, table)]


def test_the_committed_files_are_what_the_code_gives():
    assert generate.differing() == [], "run python3 dashboards/generate.py"
    assert {path.stem for path in FILES} == {one.name for one in generate.DASHBOARDS}


def test_every_metric_and_label_of_a_dashboard_exists():
    table = defined()
    assert len(table) > 140
    found = [fault for dashboard in dashboards() for fault in found_faults(dashboard, table)]
    assert found == []


def test_every_metric_and_label_of_a_rule_exists():
    table = defined()
    for rule in rules.RECORDS + rules.ALERTS:
        assert faults(rule.expr, table) == [], rule.name
        grouped = re.search(r"by \(([^)]*)\)", rule.expr)
        if rule in rules.RECORDS:
            labels = set(grouped[1].split(", ")) if grouped else table[rule.expr.split()[0]]
            table[rule.name] = labels


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("lapwing_requests_total", "lapwing_request_total", "there is no metric lapwing_request_total"),
        ("rate(lapwing_requests_total", "rates(lapwing_requests_total", "there is no metric rates"),
        ("outcome!~", "outcomes!~", "lapwing_requests_total has no label outcomes"),
        ("by (route)", "by (rout)", "no metric has the label rout"),
        ("_bucket", "_buckets", "there is no metric lapwing_request_duration_seconds_buckets"),
    ],
)
def test_what_is_misspelt_is_found(right, wrong, fault):
    text = (ROOT / "dashboards/grafana/overview.json").read_text()
    assert right in text
    found = found_faults(json.loads(text.replace(right, wrong)), defined())
    assert found and any(one.endswith(fault) for one in found), found


def test_every_label_of_a_legend_is_grouped_by():
    for dashboard in dashboards():
        for panel in drawn(dashboard):
            for target in panel["targets"]:
                for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                    assert label == "le" or re.search(rf"by \([^)]*\b{label}\b", target["expr"]), (panel["title"], label)


def test_every_family_is_shown_or_left_out_with_a_reason():
    """A new metric belongs on a dashboard, or in this list."""
    left_out = {
        "lapwing_hydrate_requests_total": "stage `hydration` shows the time; a fault of a store is one of requests",
        "lapwing_hydrate_passed_total": "said by rules that take too much; docs/HYDRATION.md",
        "lapwing_hydrate_entities_total": "a figure of the store",
        "lapwing_attribution_coverage_ratio": "the same since the start; dashboards divide the two counters",
        "process_start_time_seconds": "lapwing_uptime_seconds is shown",
        "lapwing_exchanges_mended_seconds_total": "how many were mended is shown",
        "lapwing_spans_shifted_total": "said of each request where it matters: /exchanges",
        "lapwing_span_links_shed_total": "a bound that only a batch of more than 256 passes",
        "lapwing_span_shapes_evicted_total": "a bound that only costs a grace period",
        "lapwing_otlp_spans_withheld_total": "not a fault",
        "lapwing_interim_responses_dropped_total": "a fault of one client",
        "lapwing_upstream_failovers_total": "served all the same; those that were not show as errors",
        "lapwing_upstream_up": "an alert's: of several upstreams",
        "lapwing_upstream_requests_in_flight": "/stats has it",
        "lapwing_predicted_wait_seconds": "an autoscaler's; absent where it cannot be told",
        "lapwing_inferred_utilisation_ratio": "/diagnosis has it, with what it assumes",
        "lapwing_capacity_requests_per_second": "/diagnosis has it, with what it assumes",
        "lapwing_upstream_tags": "for joins",
        "lapwing_upstream_certificate_expiry_timestamp_seconds": "an alert's, as that of the section tls",
        "lapwing_split_share": "/split has it, with the reasons",
        "lapwing_split_stopped": "an alert's: of a live split",
        "lapwing_split_requests_total": "series by upstream are shown",
        "lapwing_split_judged_total": "/split has it",
        "lapwing_trial_on": "/trials has it",
        "lapwing_trial_stopped": "an alert's: of a trial",
        "lapwing_trial_blocks_total": "/trials has it",
        "lapwing_trial_requests_total": "/trials has it",
        "lapwing_upstream_retried_total": "served all the same",
        "lapwing_held_requests_total": "what routes and proxy.amend are for",
        "lapwing_hold_passed_total": "an alert's: placed without their model",
        "lapwing_hold_bytes": "bounded; what finds no room is counted",
        "lapwing_requests_amended_total": "what proxy.amend is for",
        "lapwing_amend_failed_total": "passed unchanged",
        "lapwing_dispatch_doubted": "of a tenth of a second; what ejects an upstream is shown",
        "lapwing_dispatch_panics_total": "a fault of Lapwing's own; who waited was served all the same",
        "lapwing_downstream_waits_total": "how long they were is shown",
        "lapwing_downstream_connections_open": "/downstreams has it",
        "lapwing_downstream_connections_total": "/downstreams has it",
        "lapwing_downstream_connections_waited_total": "a bound of file descriptors; what waits is slow, and shown",
        "lapwing_downstream_unread_total": "/downstreams has it, with the reasons; such bytes pass all the same",
        "lapwing_downstream_cache_lookups_total": "/downstreams has it, by command and by prefix",
        "lapwing_downstream_cache_saved_seconds_total": "/downstreams has it",
        "lapwing_downstream_cache_entries": "/downstreams has it",
        "lapwing_downstream_cache_bytes": "bounded; what gives way is counted",
        "lapwing_downstream_cache_evicted_total": "/downstreams has it",
        "lapwing_downstream_cache_writes_total": "/downstreams has it",
        "lapwing_downstream_cache_differed_total": "of observe, in which nothing is answered",
        "lapwing_downstream_cache_untouched_connections_total": "such connections pass all the same",
        "lapwing_downstream_cache_refused_total": "/downstreams has it, with the reasons; such calls pass all the same",
        "lapwing_recording_dropped_total": "the last line of a recording has it",
        "lapwing_deadlines_malformed_total": "of a client's making; such requests are served all the same",
        "lapwing_late_events_total": "ordinary after an early answer; in no figure of a request",
        "lapwing_config_generation": "/config has it, with what changed",
        "lapwing_config_reload_failures_total": "log and /config name every fault",
        "lapwing_tls_handshakes_total": "connections are shown, and those that failed",
        "lapwing_tls_handshake_microseconds_total": "part of no request",
        "lapwing_tls_reload_failures_total": "the log names the fault",
        "lapwing_tls_certificate_expiry_timestamp_seconds": "an alert's: docs/METRICS.md has it",
        "lapwing_upstream_pushback_total": "the failed answers themselves are shown",
        "lapwing_spans_received_total": "lapwing_spans_total has it by result",
    }
    shown = " ".join(expr for dashboard in dashboards() for _, expr in queries(dashboard))
    families = {name for name in defined() if not name.endswith(("_bucket", "_sum", "_count"))}
    assert {name for name in families if not re.search(rf"\b{name}\b", shown)} == left_out.keys()


def test_every_panel_has_a_place_and_says_what_it_answers():
    for dashboard in dashboards():
        taken, ids = set(), [panel["id"] for panel in dashboard["panels"]]
        assert len(ids) == len(set(ids))
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
            taken |= cells
        for panel in drawn(dashboard):
            assert panel["description"].strip() and panel["title"] and panel["targets"], panel["title"]
            assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
        assert [one["name"] for one in dashboard["templating"]["list"]][:5] == ["datasource", "namespace", "pod", "route", "model"]
    assert len({one["uid"] for one in dashboards()}) == len(FILES) == 7


def promtool(*arguments, cwd=PROMETHEUS):
    return subprocess.run(["promtool", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=110, check=False)


@needs_promtool
def test_every_rule_has_a_case_that_promtool_passes():
    assert promtool("check", "rules", "lapwing.rules.yaml").returncode == 0
    cases = "".join((PROMETHEUS / name).read_text() for name in CASES)
    for rule in rules.RECORDS:
        assert f"round({rule.name}, " in cases, rule.name
    for rule in rules.ALERTS:
        expected = re.findall(rf"alertname: {rule.name}\n +exp_alerts:(.*)", cases)
        assert "" in expected and " []" in expected, f"{rule.name} must be seen firing and silent: {expected}"
    for name in CASES:
        done = promtool("test", "rules", name)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_a_rule_that_is_wrong_fails_its_case(tmp_path):
    right = (PROMETHEUS / "lapwing.rules.yaml").read_text()
    (tmp_path / CASES[0]).write_text((PROMETHEUS / CASES[0]).read_text())
    for old, new in (("> 14.4", "> 144"), ('"p99", "", "")', '"p90", "", "")')):
        assert old in right
        (tmp_path / "lapwing.rules.yaml").write_text(right.replace(old, new))
        assert promtool("test", "rules", CASES[0], cwd=tmp_path).returncode != 0, old


def test_provisioned_files_lead_to_the_dashboards_and_to_traces():
    provider = (ROOT / "dashboards/provisioning/dashboards/lapwing.yaml").read_text()
    assert re.search(r"(?m)^ +path: /var/lib/grafana/dashboards/lapwing$", provider)
    source = (ROOT / "dashboards/provisioning/datasources/lapwing.yaml").read_text()
    assert "exemplarTraceIdDestinations" in source and re.search(r"name: trace_id\b", source)
    assert pathlib.Path(ROOT / "dashboards/README.md").read_text().count("provisioning/") >= 2
