"""Crafted models: few bytes that ask for much memory or time. Each is refused with its reason."""

import subprocess
import time

import numpy as np
import onnx
import pytest
from crafted import model, node
from engine import DIGITS, Engine
from sidecar import binary

# what the process that loads models, and the one that tries them, may take together
MIB, SECONDS = 2600, 40


ONE = ("one", np.ones((1, 1, 1, 4), np.float32))
BIG = ("big", np.array([1 << 20, 1 << 20], np.int64))
SUM = node("Add", ["x", "s"], "y")
# name, nodes, constants, what the error names
MODELS = [
    ("pad to 2^33", [node("Pad", ["x", "pads"], "y")], [("pads", np.array([0, 0, 0, 1 << 33], np.int64))], "Pad"),
    ("pad a constant", [node("Pad", ["one", "pads"], "s"), SUM], [ONE, ("pads", np.array([0] * 7 + [1 << 33], np.int64))], "Pad"),
    ("resize by 1e9", [node("Resize", ["one", "", "scales"], "s"), SUM],
     [ONE, ("scales", np.array([1, 1, 1e9, 1e9], np.float32))], "Resize"),
    ("a permutation that repeats", [node("Transpose", ["x"], "y", perm=[0, 0])], [], "perm: 0 in [0, 0]"),
    ("a range of 2^40", [node("Range", ["a", "b", "c"], "r"), node("Cast", ["r"], "s", to=1), SUM],
     [("a", np.int64(0)), ("b", np.int64(1 << 40)), ("c", np.int64(1))], "Range"),
    ("expand to 2^40", [node("Expand", ["one", "big"], "s"), SUM], [ONE, BIG], "Expand"),
    ("tile to 2^40", [node("Tile", ["one", "big"], "s"), SUM], [ONE, BIG], "Tile"),
    ("60,000 nodes", [node("Relu", ["x" if i == 0 else f"n{i - 1}"], f"n{i}") for i in range(60_000)], [],
     "has more than 50000 nodes"),
    # nothing in the file says how large this becomes: each step doubles a constant, and who loads it computes it
    ("constants that double", [node("Concat", ["one" if i == 0 else f"c{i - 1}"] * 2, f"c{i}", axis=0) for i in range(33)]
     + [node("ReduceSum", ["c32"], "s", keepdims=0), SUM], [ONE], "could not be loaded"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path):
    return tmp_path


@pytest.mark.parametrize("case", MODELS, ids=[case[0] for case in MODELS])
def test_a_crafted_model_is_an_error(folder, case):
    _, nodes, constants, text = case
    path = model(folder / "model.onnx", nodes, constants)
    began = time.monotonic()
    for command in (["serve", "--listen", "127.0.0.1:0", "--model", path], ["inspect", path]):
        done = subprocess.run(["/bin/sh", "-c", 'ulimit -v 6000000; exec "$@"', "sh", binary(), "engine", *command],
                              capture_output=True, text=True, timeout=55, env={})
        assert done.returncode == 1, (done.returncode, done.stderr[-500:])
        assert text in done.stderr and len(done.stderr) < 1500, done.stderr[-500:]
    assert time.monotonic() - began < 2 * SECONDS


def test_a_limit_says_what_raises_it(folder):
    path = model(folder / "model.onnx", MODELS[-1][1], [ONE])
    environment = {"LAPWING_ENGINE__LOAD_MEMORY": "256MiB"}
    done = subprocess.run([binary(), "engine", "serve", "--listen", "127.0.0.1:0", "--model", path],
                          capture_output=True, text=True, timeout=55, env=environment)
    assert done.returncode == 1
    assert "model.onnx: could not be loaded: it took more than 256" in done.stderr and "engine.load_memory" in done.stderr


def test_a_model_that_takes_long_is_ended(folder):
    nodes = [node("Add", ["x" if i == 0 else f"n{i - 1}", "x"], f"n{i}" if i < 29_999 else "y") for i in range(30_000)]
    path = model(folder / "slow.onnx", nodes, shape=("batch", 4))  # its plan is what takes long; rten refuses such a chain
    began = time.monotonic()
    done = subprocess.run([binary(), "engine", "serve", "--listen", "127.0.0.1:0", "--model", path],
                          capture_output=True, text=True, timeout=55, env={"LAPWING_ENGINE__LOAD_TIME": "2s"})
    assert done.returncode == 1, done.stderr[-500:]
    assert "could not be loaded: it took more than 2s of processor time" in done.stderr, done.stderr[-500:]
    assert time.monotonic() - began < 20


def test_a_good_model_is_tried_and_served(folder):
    assert onnx.load(DIGITS).graph.node
    with Engine(folder) as engine:
        engine.wait_ready()
