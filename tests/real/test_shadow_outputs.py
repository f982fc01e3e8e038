"""What copies say of a candidate's outputs, held against numpy: every count from the answers that both servers really sent.

Each request has an id by which the candidate keeps what it answered, and a trace id made from the same number.
"""

import json

import numpy as np
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

from servers.parts import get_json
from shadowing import WIDTHS, ask, await_compared, await_paired, body_of, dropped

pytestmark = pytest.mark.beside
ROWS = 4
STEPS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 0.0)
ALL = {"LAPWING_SHADOW__NOISE": "0%", "LAPWING_SHADOW__CONCURRENCY": "256"}
"""No copy is dropped on a busy machine, and the upstream is not asked again."""
TOLERANCES = ((2e-3, 0.0), (1e-3, 1e-3), (1e-4, 0.0))


@pytest.fixture(scope="module")
def int8(small_mlp, models_folder):
    """The same model, quantised as ONNX Runtime's users do it."""
    file = models_folder / "small_mlp_int8.onnx"
    quantize_dynamic(small_mlp, file, weight_type=QuantType.QInt8)
    return file


@pytest.fixture(scope="module")
def primary(start_server):
    return start_server()


@pytest.fixture(scope="module")
def twin(start_server):
    """The same model in the same precision on a server of its own."""
    return start_server("--record")


@pytest.fixture(scope="module")
def quantised(start_server, int8):
    return start_server("--record", model=int8)


def load(lapwing, run, n, targets):
    """Sends `n` requests, one after another, and waits for their copies; the clients' answers by id."""
    answered = {}
    for i in range(n):
        name, trace = f"{run}-{i}", f"00-{i + 1:032x}-00f067aa0ba902b7-01"
        status, body = ask(lapwing.port, body_of(ROWS, 7 * i, id=name), {"traceparent": trace})
        assert status == 200, body
        answered[name] = {one["name"]: one["data"] for one in json.loads(body)["outputs"]}
    for target in targets:
        of = await_paired(lapwing, target, n)
        assert (of["answered"], dropped(of)) == (n, 0), of
    return answered


class Counted:
    """What numpy counts of the answers of both sides, as float32 numbers in rows."""

    def __init__(self, answered, port, absolute, relative):
        kept = get_json(f"http://127.0.0.1:{port}/answers")
        self.p, self.c = (np.array([of[name]["y"] for name in answered]).reshape(-1, ROWS, WIDTHS[-1]) for of in (answered, kept))
        assert all(np.array_equal(side, side.astype(np.float32)) for side in (self.p, self.c)), "both sent float32"
        self.error = np.abs(self.c - self.p)
        self.outside = ~np.isclose(self.c, self.p, rtol=relative, atol=absolute)
        self.answers, self.rows = self.outside.any(axis=(1, 2)), self.outside.any(axis=2)

    def steps(self, error):
        return {step: int((error > step).sum()) for step in STEPS}


def check(lapwing, name, counted, n):
    """Everything that is counted of the target's outputs is what numpy counts."""
    outputs = await_compared(lapwing, name, n)
    assert outputs["mismatches"]["answers"] == counted.answers.sum()
    assert outputs["mismatches"]["excused"] == outputs["repeats"]["compared"] == 0
    (numbers, worst), *others = [(field["numbers"], field["worst"]) for field in outputs["fields"] if field["field"] == "y"]
    assert not others
    assert (numbers["elements"], numbers["outside"], numbers["rows_outside"]) == (
        counted.error.size, counted.outside.sum(), counted.rows.sum()
    )
    by_step = {one["above"]: one["elements"] for one in numbers["errors"]}
    assert by_step == counted.steps(counted.error), "elements by tolerance"
    by_step = {one["above"]: one["answers"] for one in numbers["errors"]}
    assert by_step == counted.steps(counted.error.max(axis=(1, 2))), "answers by tolerance"
    assert numbers["top_k_changed"] == (counted.p.argmax(axis=2) != counted.c.argmax(axis=2)).sum()
    if worst:
        at = np.unravel_index(counted.error.argmax(), counted.error.shape)
        assert (worst[0]["error"], int(worst[0]["trace"], 16), worst[0]["row"]) == (counted.error[at], at[0] + 1, at[1])
    return outputs


@pytest.mark.parametrize(("absolute", "relative"), TOLERANCES, ids=str)
def test_int8_differs_where_numpy_says_so_and_fp32_nowhere(shadowed, primary, quantised, twin, absolute, relative):
    n = 150
    env = {
        **ALL,
        "LAPWING_SHADOW__COMPARE__TOLERANCE": json.dumps({"absolute": absolute, "relative": relative}),
    }
    lapwing = shadowed(primary, f"int8=http://127.0.0.1:{quantised}", f"twin=http://127.0.0.1:{twin}", env=env)
    answered = load(lapwing, f"{absolute}-{relative}", n, ("int8", "twin"))
    of_int8, of_twin = (Counted(answered, port, absolute, relative) for port in (quantised, twin))
    outputs = check(lapwing, "int8", of_int8, n)
    print(f"{absolute:g} + {relative:g}·|p|: {of_int8.answers.sum()} of {n} answers, {of_int8.rows.sum()} rows", of_int8.steps(of_int8.error))
    assert outputs["mismatches"]["answers"] > 0, "INT8 is another model"
    outputs = check(lapwing, "twin", of_twin, n)
    assert outputs["mismatches"]["answers"] == {one["above"]: one["answers"] for one in outputs["errors"]}[1e-4] == 0


def test_one_wrong_row_in_a_thousand_is_found_with_its_index(shadowed, primary, start_server):
    n = 1000 // ROWS
    wrong = start_server("--record", "--wrong-every", n)
    lapwing = shadowed(primary, f"wrong=http://127.0.0.1:{wrong}", env=ALL)
    counted = Counted(load(lapwing, "wrong", n, ["wrong"]), wrong, 1e-3, 1e-3)
    assert (counted.rows.sum(), counted.rows.size) == (1, 1000)
    outputs = check(lapwing, "wrong", counted, n)
    assert (outputs["mismatches"]["answers"], outputs["compared"]) == (1, n)
    (where,) = np.argwhere(counted.rows)
    words = lapwing.get("/shadow")[2].decode()
    assert "the one that differs:" in words and f", row {where[1]}:" in words and f"(trace {where[0] + 1:032x})" in words, words
