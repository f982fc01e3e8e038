"""The engine as the shadow of a real server with the same ONNX file: the same outputs, stages on both sides, and the server's debt.

Nothing declares an optimum here. A model of the upstream gets the engine's line once its answers and the engine's have agreed.
"""

import http.client
import json
import pathlib

import numpy as np
import pytest

from engine import fixtures
from engine.served import Triton as TritonClient
from lapwing import Counted
from process import wait_for
from servers.parts import TritonOnnx
from shadowing import SHADOW, WIDTHS, ask, await_compared, await_paired, body_of, dropped, shadow, target

pytestmark = pytest.mark.beside
HERE = pathlib.Path(__file__).parent
ROUTE = "POST /v2/models/{model}/infer"
NEEDED = 8
"""Answers that must agree before the engine's model counts as the upstream's."""
COUNTS = {"mlp": 40, "minilm": 24, "other": 24, "magika": 24}
ENGINES = {"mlp": "y", "minilm": "sentence_embedding", "magika": "target_label"}
"""The models that an engine has too, and an output of each: dense layers, an encoder, and one without a plan, which rten runs."""
TIGHT = {
    **SHADOW,
    "LAPWING_SHADOW__NOISE": "0%",
    "LAPWING_SHADOW__CONCURRENCY": "256",
    "LAPWING_SHADOW__COMPARE__TOLERANCE": "{absolute: 1e-4, relative: 0}",
    "LAPWING_ENGINE__DEVICE": "cpu",
    "LAPWING_ENGINE__ORT_LIB": "off",
}


def debts(lapwing):
    """The debt of each model of the upstream; those without are left out."""
    found = {series["model"]: series.get("computational_debt") for series in lapwing.series()}
    return {model: debt for model, debt in found.items() if debt}


def of_model(lapwing, model):
    """The exchanges of a model, the oldest first."""
    return [one for one in reversed(lapwing.exchanges()) if one["model"] == model]


def await_warm(lapwing, engines=1):
    """Until the shadow's engines answer, which no client waits for."""
    wait_for(lambda: lapwing.process.output().count(": warm model=") == engines, 60, "the engines are warm")


# --- Triton

@pytest.fixture(scope="module")
def files(models_folder, minilm):
    """What Triton serves. `other` has the shapes of `mlp`, and other weights."""
    widths = (64, 256, 256, 8)
    mlp, other = (fixtures.mlp(models_folder / f"{name}_of_triton.onnx", widths, seed) for seed, name in enumerate(("mlp", "other")))
    return {"mlp": mlp, "other": other, "minilm": minilm, "magika": fixtures.magika()}


def inputs_of(model, n, sentences):
    """(inputs, the output that is asked for) of the n-th request: 1 to 4 rows or files, or up to 3 sentences of unlike lengths."""
    if model == "minilm":
        return fixtures.padded([sentences[(n + i) % len(sentences)][:24] for i in range(1 + n % 3)]), ENGINES[model]
    if model == "magika":
        return {"bytes": np.array([contents(n + i) for i in range(1 + n % 4)])}, ENGINES[model]
    return {"x": np.random.default_rng(n).standard_normal((1 + n % 4, 64)).astype(np.float32)}, "y"


def contents(n):
    """The bytes of a file of this repository as magika is given them: its beginning and its end, padded with 256."""
    files = sorted(HERE.glob("*.py"))
    found = files[n % len(files)].read_bytes().strip()
    ends = [np.frombuffer(found[:1024], np.uint8), np.frombuffer(found[-1024:], np.uint8)]
    pads = [np.full(1024 - len(end), 256) for end in ends]
    return np.concatenate([ends[0], pads[0], pads[1], ends[1]]).astype(np.int32)


@pytest.fixture(scope="module")
def shadowed_triton(start_lapwing, processes, tmp_path_factory, files, sentences):
    """Triton behind a Lapwing that copies each request to three engines, of which each knows one of its four models; and all was sent."""
    triton = TritonOnnx(files)
    shadows = [part for name in ENGINES for part in ("--shadow", f"{name}=engine:{files[name]}")]
    # spans come from Triton, as by default
    env = {name: value for name, value in TIGHT.items() if "ATTRIBUTION" not in name}
    lapwing = start_lapwing(triton.url, "--shadow-sample", "100%", *shadows, env=env)
    triton.start(processes, tmp_path_factory.mktemp("triton_onnx"), lapwing.otlp_http)
    wait_for(lapwing.is_ready, 60, "lapwing is ready")
    await_warm(lapwing, len(ENGINES))
    sent = 0
    for model, count in COUNTS.items():
        with Counted(lapwing, count), TritonClient("binary", lapwing.port) as client:
            for n in range(count):
                if n == NEEDED and model in ENGINES:
                    # from here on there is an optimum
                    await_compared(lapwing, model, sent + n)
                inputs, output = inputs_of(model, n, sentences)
                client.infer(model, inputs, [output])
        sent += count
    for model in ENGINES:
        await_paired(lapwing, model, sum(COUNTS.values()))
    return lapwing


def outputs_of(lapwing, model):
    """What outputs of the engine that has this model differ in, after all were compared."""
    return await_compared(lapwing, model, sum(COUNTS.values()))


@pytest.mark.parametrize("model", ENGINES)
def test_the_engine_answers_as_triton_does(shadowed_triton, model):
    outputs = outputs_of(shadowed_triton, model)
    assert outputs["tolerance"] == {"absolute": 1e-4, "relative": 0}
    # of the other models, one has other weights and the rest other tensors
    field = ENGINES[model]
    others = sum(COUNTS.values()) - COUNTS[model]
    assert outputs["mismatches"]["answers"] == others, outputs
    # each model's fields have an account of their own
    numbers = {one["model"]: one["numbers"] for one in outputs["fields"] if one["field"] == field and "numbers" in one}
    assert numbers[model]["answers"] == COUNTS[model] and numbers[model]["rows_outside"] == 0, numbers
    if model == "mlp":
        assert numbers["other"]["answers"] == COUNTS["other"] and numbers["other"]["rows_outside"] > 0, numbers


@pytest.mark.parametrize("model", ENGINES)
def test_both_sides_have_stages(shadowed_triton, model):
    of = target(shadowed_triton, model)
    cards = [one for one in of["comparisons"] if one["model"] == model]
    assert cards and {one["route"] for one in cards} == {ROUTE}
    assert all({"total", "forward", "queue"} <= set(card["figures"]) for card in cards), cards
    (copies,) = [series for series in of["series"] if series["model"] == model]
    (clients,) = [series for series in shadowed_triton.series() if series["model"] == model]
    assert set(copies["stages"]["forward"]["sources"]) == {"reported"}, "by the engine's Server-Timing"
    assert set(clients["stages"]["forward"]["sources"]) == {"traced"}, "by Triton's spans"
    assert copies["stages"]["forward"]["count"] == clients["stages"]["forward"]["count"] == COUNTS[model]


def test_the_debt_is_relative_to_the_engine_that_answers_alike(shadowed_triton):
    found = debts(shadowed_triton)
    assert set(found) == set(ENGINES), "`other` is no model of an engine"
    for model, debt in found.items():
        name = debt["optimum"]
        assert name.startswith(f"engine {model} in this process (") and name.endswith(", fp32), calibrated at its warm-up"), name
        # a few requests went by until enough answers had agreed
        assert 0 < debt["ratio"]["count"] <= COUNTS[model] - NEEDED and debt["without"] == {}, debt
    words = shadowed_triton.get("/shadow")[2].decode()
    for model, debt in found.items():
        said = f"computational debt of the upstream, {ROUTE}, model {model}:\n    {debt['ratio']['p50']:.2f}× at p50, "
        assert said in words and f"relative to: {debt['optimum']}\n" in words, words
    assert {one["model"] for one in shadow(shadowed_triton)["debts"]} == set(ENGINES)


@pytest.mark.parametrize(("model", "unit"), [("mlp", "row"), ("minilm", "input_token"), ("magika", "row")])
def test_each_request_is_held_against_a_line_over_its_own_work(shadowed_triton, model, unit):
    exchanges = of_model(shadowed_triton, model)
    indebted = [one for one in exchanges if one.get("computational_debt")]
    assert indebted == exchanges[-len(indebted) :], "once there is an optimum, it stays"
    units, optima = np.array([[one["work"][unit]["amount"], one["computational_debt"]["optimum_ps"]] for one in indebted], float).T
    assert len(set(units)) > 2
    slope, fixed = np.polyfit(units, optima, 1)
    assert np.abs(fixed + slope * units - optima).max() <= 2, "picoseconds"
    for one in indebted:
        (forward,) = [stage["ns"] for stage in one["stages"] if stage["stage"] == "forward"]
        debt = one["computational_debt"]
        assert debt["forward_ns"] == pytest.approx(forward, rel=0.01) and debt["ratio"] > 0
        assert debt["ratio"] == pytest.approx(debt["forward_ns"] * 1e3 / debt["optimum_ps"], rel=1e-5)


def test_tokens_are_those_of_the_padded_batch(shadowed_triton, sentences):
    found = [one["work"]["input_token"] for one in of_model(shadowed_triton, "minilm")]
    sent = [inputs_of("minilm", n, sentences)[0]["input_ids"].size for n in range(COUNTS["minilm"])]
    assert found == [{"amount": size, "basis": "counted"} for size in sent]


# --- ONNX Runtime behind FastAPI

@pytest.fixture(scope="module")
def primary(start_server):
    return start_server("--forward-ms", 2)


def send(lapwing, n, model="m"):
    for i in range(n):
        assert ask(lapwing.port, body_of(1 + i % 4, i), model=model)[0] == 200


def test_a_served_model_has_a_debt_after_enough_answers_agree(shadowed, primary, small_mlp):
    lapwing = shadowed(primary, f"ref=engine:{small_mlp}", env=TIGHT)
    await_warm(lapwing)
    send(lapwing, NEEDED - 1)
    await_compared(lapwing, "ref", NEEDED - 1)
    send(lapwing, 1)
    await_compared(lapwing, "ref", NEEDED)
    wait_for(lapwing.is_settled, 10, "all are counted")
    assert not debts(lapwing), "the answer that makes it enough comes after its request"
    with Counted(lapwing, 30):
        send(lapwing, 30)
    (debt,) = debts(lapwing).values()
    assert (debt["ratio"]["count"], debt["without"]) == (30, {}) and debt["optimum"].startswith("engine ref in this process (")
    # at least 2 ms each
    assert debt["forward_ns"] >= 60e6 and debt["weighted"] == pytest.approx(debt["forward_ns"] / debt["optimum_ns"], rel=1e-3)
    # another name of the same server has answers of its own to show
    send(lapwing, 3, model="n")
    await_paired(lapwing, "ref", NEEDED + 33)
    assert set(debts(lapwing)) == {"m"}


def test_a_declared_optimum_wins(start_lapwing, primary, small_mlp, tmp_path):
    config = tmp_path / "lapwing.yaml"
    config.write_text("cost: {models: {m: {fixed_ns: 1000, ns_per_unit: 100, unit: row, source: me}}}\n")
    lapwing = start_lapwing(
        f"http://127.0.0.1:{primary}", "--shadow", f"ref=engine:{small_mlp}", "--shadow-sample", "100%", config=config, env=TIGHT
    )
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    with Counted(lapwing, 30):
        send(lapwing, 30)
    (debt,) = debts(lapwing).values()
    assert (debt["optimum"], debt["ratio"]["count"]) == ("declared: me", 30)


def test_an_engine_with_another_model_is_no_optimum(shadowed, primary, models_folder):
    other = fixtures.mlp(models_folder / "small_other.onnx", WIDTHS, seed=1)
    lapwing = shadowed(primary, f"ref=engine:{other}", env=TIGHT)
    await_warm(lapwing)
    with Counted(lapwing, 30):
        send(lapwing, 30)
    of = await_paired(lapwing, "ref", 30)
    assert (of["answered"], dropped(of)) == (30, 0), "it knows the tensors"
    assert await_compared(lapwing, "ref", 30)["mismatches"]["answers"] == 30
    assert not debts(lapwing)


def test_two_errors_do_not_agree(shadowed, primary, small_mlp):
    """Both refuse a request without inputs, each with its own words and the same status, or not: neither is an answer of a model."""
    # a request without inputs is no call of a model, and copied because its route is named
    env = {**TIGHT, "LAPWING_SHADOW__ROUTES": '["POST /v2/models/{model}/infer"]'}
    lapwing = shadowed(primary, f"ref=engine:{small_mlp}", env=env)
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
    with Counted(lapwing, 20):
        for _ in range(20):
            connection.request("POST", "/v2/models/m/infer", json.dumps({"inputs": []}), {"content-type": "application/json"})
            response = connection.getresponse()
            assert response.status >= 400 and response.read()
    await_paired(lapwing, "ref", 20)
    send(lapwing, 3)
    await_paired(lapwing, "ref", 23)
    assert not debts(lapwing)
