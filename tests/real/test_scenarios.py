"""Each scenario of `lapwing demo`: its trouble shows in the stage where it should, and nothing else shows when nothing is wrong.

Several run at the same time; each waits far more than it computes, so that a busy machine does not change what is seen.
"""

import concurrent.futures
import json
import os
import subprocess
import urllib.error

import pytest

from lapwing import OPENER
from ports import free_port
from process import wait_for

AT_ONCE = 7
SECONDS = 30
ROUTE = "POST /v2/models/{model}/infer"
SCENARIOS = (
    "cold-cache slow-store pauses bursts saturated long-inputs slow-client far-region cold-start oversized-bodies "
    "heavy-postprocessing split-writes healthy"
).split()
SHARED = ("bursts", "saturated", "pauses")
"""Troubles of all requests at a time: which of them the slowest are says nothing about the request itself."""


def get(port, path):
    """The answer of the admin address; None if it does not answer or has no such path."""
    try:
        with OPENER.open(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return json.load(response)
    except (OSError, urllib.error.URLError):
        return None


class Run:
    """What was seen of one scenario."""

    def __init__(self, binary, folder, name):
        self.name, truth, admin = name, folder / f"{name}.jsonl", free_port()
        command = [binary, "demo", "--scenario", name, "--seed", "1", "--seconds", str(SECONDS)]
        command += ["--admin", f"127.0.0.1:{admin}", "--truth", str(truth)]
        log = folder / f"{name}.log"
        with open(log, "w") as out:
            self.demo = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "RUST_BACKTRACE": "1"})
        try:
            wait_for(lambda: get(admin, "/stats?window=all"), 60, f"{name}: Lapwing is there", 0.25)
            self.stats = self.exchanges = self.diagnosis = None
            # the last answers before its end
            while self.demo.poll() is None:
                self.stats = get(admin, "/stats?window=all") or self.stats
                self.exchanges = get(admin, "/exchanges?order=recent&limit=300") or self.exchanges
                self.diagnosis = get(admin, "/diagnosis?format=json") or self.diagnosis
                try:
                    self.demo.wait(1)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            self.demo.kill()
            self.demo.wait()
        self.out = log.read_text(errors="replace")
        assert self.demo.returncode == 0, self.out[-3000:]
        self.head, *self.records = (json.loads(line) for line in truth.read_text().splitlines())

    def over_budget(self):
        """The last exchanges that took longer than the budget."""
        limit_ns = self.head["budget"]["limit_ms"] * 1e6
        return [exchange for exchange in self.exchanges["exchanges"] if exchange["total_ns"] > limit_ns]

    def series(self):
        """The route's figures."""
        return max(self.stats["series"], key=lambda series: series["count"])


@pytest.fixture(scope="module")
def runs(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenarios")
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(SCENARIOS, pool.map(lambda name: Run(binary, folder, name), SCENARIOS)))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "healthy"])
def test_a_trouble_shows_in_its_stage(runs, name):
    run = runs[name]
    series, sign, budget = run.series(), run.head["shows"], run.head["budget"]
    assert series["errors"] == 0 and len(run.records) > 100, run.out[-3000:]
    stage = series["stages"][sign["stage"]]
    assert stage[f"{sign['quantile']}_ns"] >= sign["least_ms"] * 1e6, (sign, stage)
    # over its budget, and no other stage takes as much of what is over
    assert series["total"][f"{budget['quantile']}_ns"] >= budget["limit_ms"] * 1e6, series["total"]
    slow = [sum(one["ns"] for one in exchange["stages"] if one["stage"] == sign["stage"]) / exchange["total_ns"] for exchange in run.over_budget()]
    assert sum(share > 0.5 for share in slow) >= 0.8 * len(slow) > 0, slow


@pytest.mark.timeout(400)
def test_nothing_shows_when_nothing_is_wrong(runs):
    run = runs["healthy"]
    series, budget = run.series(), run.head["budget"]
    assert run.head["right"] is None and run.head["shows"] is None
    assert series["errors"] == 0 and len(run.records) > 300, run.out[-3000:]
    assert series["total"]["p90_ns"] < budget["limit_ms"] * 1e6, series["total"]


@pytest.mark.timeout(400)
def test_the_cache_is_seen(runs):
    """Hits and misses of the feature cache, which the server's spans tell, stand beside the time that they explain."""
    slow = [exchange for exchange in runs["cold-cache"].over_budget() if "cache" in exchange]
    assert len(slow) >= 5, runs["cold-cache"].exchanges
    missing = [exchange["cache"]["misses"] for exchange in slow]
    assert sum(misses >= 2 for misses in missing) >= 0.8 * len(missing), missing
    assert "cache" in runs["bursts"].exchanges["exchanges"][0]


@pytest.mark.timeout(400)
def test_the_truth_says_who_was_hit(runs):
    for name, run in runs.items():
        sign = run.head["shows"]
        if sign is None or name == "split-writes":  # the kernel decides how long an answer waits
            continue
        hit = [record for record in run.records if record["injected_ns"].get(sign["stage"], 0) >= 100e6]
        assert hit and all(record["total_ns"] >= 100e6 for record in hit), name
        if name not in SHARED and sign["quantile"] == "p99":
            assert len(hit) < 0.5 * len(run.records), name


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_first_verdict_is_right(runs, name):
    run = runs[name]
    assert run.diagnosis, "the admin address has no /diagnosis"
    route = max(run.diagnosis["routes"], key=lambda route: route["requests"])
    right = run.head["right"]
    if right is None:
        assert route["status"] == "healthy" and not route["verdicts"], route["summary"]
        return
    assert route["verdicts"], (route["summary"], route["missing"])
    first = route["verdicts"][0]
    assert first["cause"] == right["cause"] and right["bound"] in (None, first["bound"]), route["summary"]
