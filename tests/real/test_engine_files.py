"""Files that are not models, or broken ones: `engine serve` and `engine inspect` end at once and name the faulty part."""

import json
import os
import re
import subprocess
import time

import numpy as np
import pytest

from engine import bad, fixtures
from engine.reference import Reference
from engine.served import Rest
from ports import free_port

pytestmark = pytest.mark.beside
MEMORY = 4 << 30
"""The memory that a process may allocate: a file of a few hundred bytes must not make it allocate more."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return bad.bad(tmp_path_factory.mktemp("bad"))


def run(binary, *args, seconds=60):
    """(exit code, output, seconds)."""
    # no preexec_fn: its fork would run gRPC's fork handlers while threads of other tests are alive, and the child may abort in them
    limited = ["prlimit", f"--data={MEMORY}", str(binary), "engine", *map(str, args)]
    begun = time.monotonic()
    done = subprocess.run(limited, capture_output=True, text=True, timeout=seconds)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - begun


@pytest.mark.parametrize("command", ["serve", "inspect"])
@pytest.mark.parametrize("what", [
    "absent", "a folder", "empty", "text", "noise", "cut in half", "cut at the end", "huge", "huge by one axis", "more than it holds",
    "negative", "of text", "huge input", "cyclic", "made from itself", "read from nowhere", "output from nowhere", "unknown operator",
    "shapes that do not fit", "outside by dots", "outside by more dots", "outside from the root", "outside by a link", "weights absent",
    "weights too short", "weights without a place",
])  # fmt: skip
def test_a_bad_file_is_refused_by_the_part_that_is_at_fault(what, command, files, binary):
    path, message = files[what]
    args = ["serve", "--model", path, "--listen", f"127.0.0.1:{free_port()}"] if command == "serve" else ["inspect", path]
    code, output, took = run(binary, *args)
    assert code not in (0, 101) and code > 0, (code, output)
    assert "panicked" not in output, output
    assert re.search(message, output), output
    assert len([line for line in output.splitlines() if not re.match(r"20\d\d-", line)]) <= 3, output
    assert took < 10, f"{took:.1f} s"


def test_every_bad_file_is_in_the_list(files):
    (marks,) = [m for m in test_a_bad_file_is_refused_by_the_part_that_is_at_fault.pytestmark if m.args[0] == "what"]
    assert set(marks.args[1]) == set(files)


def test_weights_in_another_file_of_the_folder_are_read(tmp_path, start_engine):
    (tmp_path / "sub").mkdir()
    paths = [
        bad.external(tmp_path, "weight.bin", "weight.bin", name="beside"),
        bad.external(tmp_path, "sub/weight.bin", "sub/weight.bin", offset=0, length=bad.WIDTH**2 * 4, name="below"),
    ]
    engine = start_engine(paths)
    feeds = {"x": np.random.default_rng(2).normal(size=(3, bad.WIDTH)).astype(np.float32)}
    with Rest(engine.port) as rest:
        for path in paths:
            reply = rest.infer(path.stem, feeds)
            assert reply.status == 200
            Reference(path).check(feeds, reply.outputs, path.name)


def test_one_bad_file_among_good_ones_ends_the_start(files, binary):
    path = files["cyclic"][0]
    good = path.parent / "good.onnx"
    code, output, _ = run(binary, "serve", "--model", good, "--model", path, "--listen", f"127.0.0.1:{free_port()}")
    assert code > 0 and "first" in output and "cyclic" in output, output


def test_8_bits_are_refused_for_a_model_without_a_plan(binary):
    args = ["serve", "--model", fixtures.magika(), "--precision", "int8", "--listen", f"127.0.0.1:{free_port()}"]
    code, output, _ = run(binary, *args)
    assert code > 0 and "int8" in output, output


def test_a_listener_that_is_taken_is_said(binary, known):
    code, output, _ = run(binary, "serve", "--model", fixtures.DIGITS, "--listen", f"127.0.0.1:{known[1].port}")
    assert code > 0 and str(known[1].port) in output, output


# --- inspect


def inspected(binary, *args):
    code, output, _ = run(binary, "inspect", *args, "--json")
    assert code == 0, output
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_inspect_says_who_takes_a_model(binary, minilm, models_folder):
    """The work of MiniLM at 32×128 is 91.80 GFLOP, that of the MLP at batch 1 is 3.148 MFLOP."""
    text = json.dumps(inspected(binary, fixtures.magika()))
    assert '"rten"' in text
    text = json.dumps(inspected(binary, minilm, "--batch", "32", "--length", "128"))
    assert '"plan"' in text
    flops = {n for key, n in numbers(json.loads(text)) if key == "flops"}
    assert any(abs(n - 91.80e9) < 0.005e9 for n in flops), flops
    path = fixtures.mlp(models_folder / "mlp_inspected.onnx")
    flops = {n for key, n in numbers(inspected(binary, path, "--batch", "1")) if key == "flops"}
    assert any(abs(n - 3.148e6) < 0.0005e6 for n in flops), flops
    os.unlink(path)


def numbers(tree):
    """(key, number) of every number in a JSON value."""
    if isinstance(tree, list):
        for one in tree:
            yield from numbers(one)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            if isinstance(value, int | float):
                yield key, value
            yield from numbers(value)
