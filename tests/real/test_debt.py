"""Computational debt of ONNX Runtime behind FastAPI, against the engine's own cost line of the same model on this machine."""

import http.client
import json
import pathlib
import statistics
import subprocess
import sys

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse

from engine import fixtures
from lapwing import NO_SPANS, Counted
from ports import free_port
from process import wait_for, wait_listening

HERE = pathlib.Path(__file__).parent
ROWS = (1, 4, 16)
PAIRS = 150
WIDTH = 64
CONFIG = """
protocol:
  custom:
    - {{route: POST /score/*, model: {{fixed: mlp}}, rows: {{json: /rows}}}}
cost:
  models:
    mlp: {{bench: {bench}}}
"""
TRANSFORMER = """
protocol:
  custom:
    - {{route: POST /score/*, model: {{fixed: minilm}}, input_tokens: {{json: /ids/*}}}}
cost:
  models:
    minilm: {{engine: minilm}}
engine: {{model: {minilm}, listen: "127.0.0.1:{port}", device: cpu}}
"""


@pytest.fixture(scope="module")
def model(models_folder):
    """Large enough that a forward pass takes some hundred microseconds."""
    return fixtures.mlp(models_folder / "debt.onnx", (WIDTH, 1024, 1024, 1))


@pytest.fixture(scope="module")
def bench(binary, model, tmp_path_factory):
    """What `lapwing engine bench` measured."""
    cases = ["--batch", "1,8,32", "--threads", "1", "--seconds", "0.3", "--device", "cpu"]
    found = tmp_path_factory.mktemp("bench") / "debt.jsonl"
    command = [binary, "engine", "bench", str(model), *cases, "--json"]
    found.write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=100).stdout)
    return found


@pytest.fixture(scope="module")
def start_upstream(processes):
    """Serves a model; the server's address."""

    def start(model):
        port = free_port()
        processes("onnx_server", [sys.executable, str(HERE / "servers/onnx_server.py"), str(port), str(model)])
        wait_listening(port)
        return f"http://127.0.0.1:{port}"

    return start


@pytest.fixture(scope="module")
def upstream(start_upstream, model):
    return start_upstream(model)


@pytest.fixture(scope="module")
def lapwing(start_lapwing, upstream, bench, tmp_path_factory):
    config = tmp_path_factory.mktemp("debt") / "lapwing.yaml"
    config.write_text(CONFIG.format(bench=bench))
    return start_lapwing(upstream, config=config, env=NO_SPANS)


class Line:
    """The cost line by numpy's least squares of relative errors; on a noisy machine one part would be negative, and is left out."""

    def __init__(self, bench):
        rows = [json.loads(line) for line in bench.read_text().splitlines()]
        cases = [row for row in rows if "case" not in row]
        units, times = np.array([[row["batch"], row["p50_us"] * 1e3] for row in cases]).T
        per_unit, fixed = np.polyfit(units, times, 1, w=1 / times)
        relative = 1 / times**2
        if fixed < 0:
            per_unit, fixed = (relative * units * times).sum() / (relative * units**2).sum(), 0
        elif per_unit < 0:
            per_unit, fixed = 0, np.average(times, weights=relative)
        self.per_unit, self.fixed = per_unit, fixed

    def at(self, rows):
        return self.fixed + self.per_unit * rows


@pytest.fixture(scope="module")
def answered(lapwing):
    """The forward times that the server reported, by route and number of rows; plain and slowed requests take turns."""
    rng = np.random.default_rng(0)
    bodies = {rows: json.dumps({"rows": rng.standard_normal((rows, WIDTH)).round(3).tolist()}) for rows in ROWS}
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=20)

    def ask(path, rows):
        connection.request("POST", path, bodies[rows], {"content-type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        return json.load(answer)["forward_ns"]

    took = {(route, rows): [] for route in ("plain", "slow") for rows in ROWS}
    with Counted(lapwing, 2 * PAIRS + 3):
        for turn in range(PAIRS):
            rows = ROWS[turn % len(ROWS)]
            took["plain", rows].append(ask("/score/plain", rows))
            took["slow", rows].append(ask("/score/slow?times=3", rows))
        for rows in ROWS:
            ask("/score/silent?silent=1", rows)
    connection.close()
    return took


def debt_of(lapwing, route):
    (series,) = [one for one in lapwing.series() if one["route"] == f"POST /score/{route}"]
    return series["computational_debt"]


def test_a_server_three_times_as_slow_has_three_times_the_debt(lapwing, answered):
    plain, slow = debt_of(lapwing, "plain"), debt_of(lapwing, "slow")
    assert slow["ratio"]["p50"] / plain["ratio"]["p50"] == pytest.approx(3, rel=0.05), (plain, slow)
    assert slow["optimum_ns"] == plain["optimum_ns"], "the work is the same"


def test_debts_are_those_of_the_reported_forward_over_the_line(lapwing, answered, bench):
    line = Line(bench)
    for route in ("plain", "slow"):
        debt = debt_of(lapwing, route)
        took = {rows: answered[route, rows] for rows in ROWS}
        ratios = {rows: [ns / line.at(rows) for ns in took[rows]] for rows in ROWS}
        every = [ratio for rows in ROWS for ratio in ratios[rows]]
        forward, optimum = sum(map(sum, took.values())), sum(line.at(rows) * len(took[rows]) for rows in ROWS)
        excess = [ns - line.at(rows) for rows in ROWS for ns in took[rows]]
        above, below = sum(x for x in excess if x > 0), -sum(x for x in excess if x < 0)
        assert (debt["forward_ns"], debt["without"]) == (forward, {}), "each report is counted to the nanosecond"
        assert debt["optimum_ns"] == pytest.approx(optimum, rel=1e-6)
        assert debt["weighted"] == pytest.approx(forward / optimum, rel=1e-6)
        assert debt["debt_ns"] == pytest.approx(above, rel=1e-6, abs=PAIRS)
        assert debt["below"]["count"] == sum(x < 0 for x in excess)
        assert debt["below"]["ns"] == pytest.approx(below, rel=1e-6, abs=PAIRS)
        assert debt["ratio"]["count"] == PAIRS
        assert debt["ratio"]["mean"] == pytest.approx(statistics.mean(every), rel=1e-5)
        assert debt["ratio"]["max"] == pytest.approx(max(every), rel=1e-5)
        median = sorted(every)[(PAIRS + 1) // 2 - 1]
        assert median * 0.999 - 1e-6 <= debt["ratio"]["p50"] <= median * 1.001 + 6e-4
        classes = {one["from"]: (one["count"], one["mean"]) for one in debt["classes"]}
        assert classes == {rows: (len(took[rows]), pytest.approx(statistics.mean(ratios[rows]), rel=1e-5)) for rows in ROWS}


def test_every_figure_names_its_optimum(lapwing, answered, bench):
    measured_at = json.loads(bench.read_text().splitlines()[-1])["measured_at"]
    optimum = debt_of(lapwing, "plain")["optimum"]
    assert optimum.startswith("engine on this machine (") and optimum.endswith(f", 1 thread, fp32), calibrated {measured_at}"), optimum
    families = {family.name: family.samples for family in parse(lapwing.metrics())}
    ratios, seconds = families["lapwing_computational_debt_ratio"], families["lapwing_computational_debt_seconds"]
    assert {sample.labels["optimum"] for sample in ratios + seconds} == {optimum}
    counts = {(s.labels["route"], s.labels["class"]): s.value for s in ratios if s.name.endswith("_count")}
    assert counts == {(f"POST /score/{route}", str(rows)): PAIRS / len(ROWS) for route in ("plain", "slow") for rows in ROWS}
    burnt = {s.labels["route"]: s.value for s in seconds if s.name.endswith("_total")}
    for route in ("plain", "slow"):
        assert burnt[f"POST /score/{route}"] == pytest.approx(debt_of(lapwing, route)["debt_ns"] / 1e9, rel=1e-6, abs=1e-9)
    told = [exchange.get("computational_debt") for exchange in lapwing.exchanges() if exchange["route"] == "POST /score/slow"]
    assert told and {one["optimum"] for one in told} == {optimum}


def test_a_model_of_this_process_is_an_optimum_too(start_lapwing, upstream, model, tmp_path):
    config = tmp_path / "lapwing.yaml"
    engine = f"engine: {{model: {model}, listen: 127.0.0.1:{free_port()}, device: cpu}}\n"
    config.write_text(CONFIG.format(bench="none").replace("bench: none", "engine: debt") + engine)
    lapwing = start_lapwing(upstream, config=config, env=NO_SPANS)
    wait_for(lapwing.is_ready, 30, "the engine is warm", 0.1)
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=20)
    with Counted(lapwing, 2):
        for path in ("/score/own", "/score/own?times=3"):
            connection.request("POST", path, json.dumps({"rows": [[0.5] * WIDTH]}), {"content-type": "application/json"})
            assert json.load(connection.getresponse())["forward_ns"] > 0
    connection.close()
    debt = debt_of(lapwing, "own")
    assert debt["optimum"].startswith("engine in this process (") and debt["optimum"].endswith(", fp32), calibrated at its warm-up")
    slow, plain = (exchange["computational_debt"]["ratio"] for exchange in lapwing.exchanges())
    assert slow / plain == pytest.approx(3, rel=1e-3), "the line stays as warm-up measured it"


def test_a_transformer_three_times_as_slow_has_three_times_the_debt(start_lapwing, start_upstream, minilm, sentences, tmp_path):
    """MiniLM, against the engine of this process, in which it does nothing but be the optimum."""
    config = tmp_path / "lapwing.yaml"
    config.write_text(TRANSFORMER.format(minilm=minilm, port=free_port()))
    lapwing = start_lapwing(start_upstream(minilm), config=config, env=NO_SPANS)
    wait_for(lapwing.is_ready, 60, "the engine is warm", 0.1)
    bodies = [json.dumps({"ids": [ids[:length].tolist()] * rows}) for ids, length, rows in zip(sentences, (6, 6, 24, 8), (1, 4, 1, 2))]
    turns = 10
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=20)
    with Counted(lapwing, turns * len(bodies) * 2):
        for body in bodies * turns:
            for path in ("/score/plain", "/score/slow?times=3"):
                connection.request("POST", path, body, {"content-type": "application/json"})
                assert json.load(connection.getresponse())["forward_ns"] > 0
    connection.close()
    plain, slow = debt_of(lapwing, "plain"), debt_of(lapwing, "slow")
    assert slow["ratio"]["p50"] / plain["ratio"]["p50"] == pytest.approx(3, rel=0.05), (plain, slow)
    assert slow["weighted"] / plain["weighted"] == pytest.approx(3, rel=1e-3)
    assert slow["optimum_ns"] == plain["optimum_ns"] and {one["unit"] for one in plain["classes"]} == {"input_token"}


def test_an_undivided_window_has_no_debt(lapwing, answered):
    silent = debt_of(lapwing, "silent")
    assert (silent["ratio"], silent["forward_ns"], silent["without"]) == (None, 0, {"forward": len(ROWS)})
