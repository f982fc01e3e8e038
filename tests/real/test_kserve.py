"""KServe itself, through Lapwing: requests of 1 and of 40 rows, whose steps it counts only all together.

No request may have any of these means: a row would take the time of twenty. The sums stay those of the server.
"""

import json
import re
import threading
import urllib.request

import pytest

from lapwing import OPENER, NO_SPANS, Counted
from process import wait_for
from servers.parts import KServe

pytestmark = pytest.mark.beside
STEPS = {"preprocessing": "preprocess", "forward": "predict", "postprocessing": "postprocess"}
ROWS = (1, 40)
CLIENTS, EACH = 4, 40
ROUTE = "POST /v1/models/{model}:predict"


@pytest.fixture(scope="module")
def served(behind):
    return behind(KServe, env={**NO_SPANS, "LAPWING_ATTRIBUTION__POLL_INTERVAL": "1s"})


def ask(lapwing, rows):
    """The handler's nanoseconds by step."""
    body = json.dumps({"instances": [[1.0, 2.0]] * rows}).encode()
    request = urllib.request.Request(
        f"{lapwing.url}/v1/models/steps:predict", body, {"content-type": "application/json"}
    )
    with OPENER.open(request, timeout=30) as answer:
        told = json.load(answer)
    assert len(told["predictions"]) == rows
    return told["truth_ns"]


def sums_of(polled):
    """By stage, (requests, nanoseconds); zeros where nothing was polled."""
    stages = polled["stages"] if polled else {}
    return {s: (stages[s]["count"], stages[s]["sum_ns"]) if s in stages else (0, 0) for s in STEPS}


class Run:
    """A load of both sizes, and what Lapwing and the server say of it."""

    def __init__(self, served):
        lapwing, self.told = served.lapwing, []
        self.lapwing = lapwing

        def polled_first():
            ask(lapwing, 1)
            return lapwing.polled("steps")

        wait_for(polled_first, 30, "the server's metrics are polled", 0.3)
        # the last of these requests is in a poll when two more were read: with none after it, there is no third
        quiet = lapwing.polls()
        wait_for(lambda: lapwing.polls() > quiet, 10, "the last request is polled", 0.2)
        with pytest.raises(AssertionError):
            wait_for(lambda: lapwing.polls() > quiet + 2, 4, "nobody asks, and yet it is polled", 0.5)
        before, server_before = sums_of(lapwing.polled("steps")), served.server.counted()
        known = {e["span_id"] for e in lapwing.exchanges(limit=65536)}
        with Counted(lapwing, CLIENTS * EACH):
            each = [threading.Thread(target=self.load, args=(n,)) for n in range(CLIENTS)]
            [one.start() for one in each]
            [one.join() for one in each]
        self.exchanges = [e for e in lapwing.exchanges(limit=65536) if e["span_id"] not in known]

        def added():
            now = sums_of(lapwing.polled("steps"))
            return {s: (now[s][0] - before[s][0], now[s][1] - before[s][1]) for s in STEPS}

        wait_for(lambda: all(n >= CLIENTS * EACH for n, _ in added().values()), 20, "every request is in a poll", 0.2)
        self.polled, server = added(), served.server.counted()
        self.server = {s: tuple(server[step][i] - server_before[step][i] for i in (0, 1)) for s, step in STEPS.items()}

    def load(self, n):
        for at in range(EACH):
            self.told.append(ask(self.lapwing, ROWS[(n + at) % 2]))


@pytest.fixture(scope="module")
def run(served):
    return Run(served)


def test_what_the_server_counted_is_conserved(run):
    for stage in STEPS:
        (requests, ns), (server_requests, server_ns) = run.polled[stage], run.server[stage]
        assert requests == server_requests == CLIENTS * EACH
        assert ns / requests == pytest.approx(server_ns / server_requests, rel=0.01), stage
        assert ns == pytest.approx(server_ns, rel=1e-6), stage
    print({s: f"{ns / n / 1e6:.3f} ms polled, {run.server[s][1] / run.server[s][0] / 1e6:.3f} by KServe" for s, (n, ns) in run.polled.items()})


def test_no_request_has_a_mean(run):
    for exchange in run.exchanges:
        stages = {s["stage"]: s for s in exchange["stages"]}
        assert not set(STEPS) & set(stages), stages
        assert {s["source"] for s in exchange["stages"]} == {"observed"}
        assert sum(s["ns"] for s in exchange["stages"]) == exchange["total_ns"]
        rows = exchange["work"]["row"]["amount"]
        # fixed and per-row parts of the three steps
        assert stages["upstream"]["ns"] >= (7.5 + 0.53 * rows) * 1e6
        assert exchange["coverage"] == 0
    by_rows = {rows: sorted(e["total_ns"] for e in run.exchanges if e["work"]["row"]["amount"] == rows) for rows in ROWS}
    assert len(by_rows[1]) == len(by_rows[40]) == CLIENTS * EACH / 2


def test_no_histogram_holds_a_polled_figure(run):
    for window in ("10s", "1m", "5m", "all"):
        found = run.lapwing.series(window)
        assert found or window == "10s", "the run may be over for longer than that"
        for series in found:
            assert not set(STEPS) & set(series["stages"]) and not series["phases"], series["stages"]
            assert not set(STEPS) & set(series["per_unit"])
            assert all(set(stage["sources"]) == {"observed"} for stage in series["stages"].values())
    for line in run.lapwing.metrics().splitlines():
        if "_bucket{" in line or "_per_unit" in line or "lapwing_stage_" in line:
            assert not re.search('stage="(preprocessing|forward|postprocessing)"', line), line
    log = run.lapwing.get("/hdr")[2].decode()
    assert not re.search("Tag=(preprocessing|forward|postprocessing)", log)
    assert "Tag=upstream;" in log and "Tag=upstream_per_unit;unit=row" in log


def test_the_sums_stand_beside_the_series(run):
    polled = run.lapwing.polled("steps")
    (series,) = [s for s in run.lapwing.series() if s["route"] == ROUTE]
    assert polled["routes"] == [ROUTE] and polled["polls"] >= 2
    assert series["polled"] == {key: polled[key] for key in ("polls", "covered_ns", "stages", "phases")}
    for line in run.lapwing.metrics().splitlines():
        if match := re.match(r'lapwing_polled_(stage_seconds|requests)_total\{model="steps",.*stage="(\w+)",phase=""\} (\S+)', line):
            stage = polled["stages"][match[2]]
            wanted = stage["count"] if match[1] == "requests" else stage["sum_ns"] / 1e9
            assert float(match[3]) == pytest.approx(wanted, rel=1e-9), line
