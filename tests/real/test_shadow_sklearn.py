"""A forest of scikit-learn in MLServer, by MLServer's own runtime, and the same forest as an ONNX file in the engine that gets copies."""

import json

import numpy as np
import pytest

from lapwing import Counted
from process import wait_for
from servers.parts import MlServerForest
from shadowing import await_compared, await_paired, post, shadow, target
from test_shadow_engine import NEEDED, ROUTE, TIGHT, await_warm, debts, of_model

pytestmark = [pytest.mark.beside, pytest.mark.timeout(240)]
COUNTS = {"stock": 30, "traced": 40}
ROWS = [1 + n % 5 for n in range(max(COUNTS.values()))]


def asked(rows, seed):
    """A request for the class and the probabilities of so many rows."""
    data = np.random.default_rng(seed).standard_normal((rows, 6)).astype(np.float32).ravel().tolist()
    inputs = [{"name": "x", "shape": [rows, 6], "datatype": "FP32", "data": data}]
    return json.dumps({"inputs": inputs, "outputs": [{"name": "predict"}, {"name": "predict_proba"}]})


@pytest.fixture(scope="module")
def shadowed_forest(start_lapwing, processes, tmp_path_factory):
    """MLServer behind a Lapwing that copies each request; and all was sent."""
    server = MlServerForest()
    server.train(tmp_path_factory.mktemp("trained"))
    env = {name: value for name, value in TIGHT.items() if "ATTRIBUTION" not in name}
    lapwing = start_lapwing(server.url, "--shadow-sample", "100%", "--shadow", f"forest=engine:{server.onnx}", env=env)
    server.start(processes, tmp_path_factory.mktemp("mlserver_forest"), lapwing.otlp_grpc)
    wait_for(lapwing.is_ready, 60, "lapwing is ready")
    await_warm(lapwing)
    lapwing.answers = []
    for model, count in COUNTS.items():
        with Counted(lapwing, count):
            for n in range(count):
                status, answer = post(lapwing.port, f"/v2/models/{model}/infer", asked(ROWS[n], n), {"content-type": "application/json"})
                assert status == 200, answer
                lapwing.answers.append(json.loads(answer))
    await_paired(lapwing, "forest", sum(COUNTS.values()))
    return lapwing


def test_the_engine_predicts_as_mlserver_does(shadowed_forest):
    outputs = await_compared(shadowed_forest, "forest", sum(COUNTS.values()))
    assert (outputs["mismatches"]["answers"], outputs["verdict"]) == (0, "agree"), outputs
    rows = sum(sum(ROWS[:count]) for count in COUNTS.values())
    elements = {}
    for field in outputs["fields"]:
        elements[field["field"]] = elements.get(field["field"], 0) + field["numbers"]["elements"]
    assert elements == {"predict": rows, "predict_proba": 3 * rows}
    # MLServer writes numbers of double precision, and classes as a column, of which the file has neither
    types = {output["name"]: (output["datatype"], len(output["shape"])) for output in shadowed_forest.answers[0]["outputs"]}
    assert types == {"predict": ("INT64", 2), "predict_proba": ("FP64", 2)}
    assert target(shadowed_forest, "forest")["failed"] == 0


def test_the_debt_of_scikit_learn_is_printed(shadowed_forest):
    found = debts(shadowed_forest)
    debt = found["traced"]
    assert debt["optimum"].startswith("engine forest in this process (") and debt["optimum"].endswith(", calibrated at its warm-up")
    assert 0 < debt["ratio"]["count"] <= COUNTS["traced"] - NEEDED and debt["without"] == {}, debt
    # forty trees by the engine take microseconds, by scikit-learn and Python milliseconds
    assert debt["weighted"] > 10, debt
    words = shadowed_forest.get("/shadow")[2].decode()
    said = f"computational debt of the upstream, {ROUTE}, model traced:\n    {debt['ratio']['p50']:.2f}× at p50, "
    assert said in words and f"relative to: {debt['optimum']}\n" in words, words
    assert "traced" in {one["model"] for one in shadow(shadowed_forest)["debts"]}


def test_more_rows_are_more_work(shadowed_forest):
    indebted = [one for one in of_model(shadowed_forest, "traced") if one.get("computational_debt")]
    optima = {one["work"]["row"]["amount"]: one["computational_debt"]["optimum_ps"] for one in indebted}
    assert sorted(optima) == [1, 2, 3, 4, 5]
    # twice as many rows take at most twice the time, rounded: less, where a call has a part that is the same for all
    assert all(optima[rows] < optima[rows + 1] <= 2 * optima[rows] + 1 for rows in range(1, 5)), optima


def test_a_runtime_that_tells_no_forward_has_no_debt_and_says_why(shadowed_forest):
    debt = debts(shadowed_forest)["stock"]
    assert debt["ratio"] is None and 0 < debt["without"]["forward"] <= COUNTS["stock"] - NEEDED, debt
