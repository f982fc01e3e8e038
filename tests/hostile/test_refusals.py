"""What `inspect` and `serve` say of models that no executor runs: the node, its operator and operator set, and the reason, in at most three
lines."""

import re
import subprocess

import numpy as np
import pytest
from crafted import node
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from sidecar import binary

X, WORDS = ("x", T.FLOAT, ["N", 4]), ("x", T.STRING, ["N"])
Y, LABELS = ("y", T.FLOAT, None), ("y", T.STRING, None)
ML = "ai.onnx.ml"


def named(kind, inputs, outputs=("y",), **attributes):
    made = node(kind, inputs, "y", **attributes)
    made.output[:] = outputs
    made.name = f"the_{kind}"
    return made


def weights(**arrays):
    return [nh.from_array(np.asarray(array), name) for name, array in arrays.items()]


def lstm():
    rng = np.random.default_rng(0)
    made = {"W": (1, 12, 4), "R": (1, 12, 3), "B": (1, 24)}
    return weights(lengths=np.array([2], np.int32), **{name: rng.standard_normal(shape).astype(np.float32) for name, shape in made.items()})


# what is refused: (nodes, input, output, weights, operator sets, why). The first node is at fault
MODELS = {
    "an operator that is none": ([named("Frobnicate", ["x"])], X, Y, [], {"": 17}, "not supported"),
    "an operator of another domain": ([named("Fused", ["x"], domain="com.example")], X, Y, [], {"": 17, "com.example": 3}, "not supported"),
    "an operator that is not run": (
        [named("Scan", ["x"], num_scan_inputs=1, body=h.make_graph([], "body", [], []))], X, Y, [], {"": 17}, "not supported"),
    "a cubic resize that smooths": (
        [named("Resize", ["x", "", "scales"], mode="cubic", antialias=1)], ("x", T.FLOAT, [1, 1, 4, 4]), Y,
        weights(scales=np.array([1, 1, 2, 2], np.float32)), {"": 18}, "antialias"),
    "lengths of sequences": (
        [named("LSTM", ["x", "W", "R", "B", "lengths"], ("", "", "y"), hidden_size=3)], ("x", T.FLOAT, [5, 1, 4]), Y, lstm(), {"": 17}, "sequence_lens"),
    "shapes that do not fit": ([named("MatMul", ["x", "w"])], X, Y, weights(w=np.ones((5, 2), np.float32)), {"": 17}, "4"),
    "trees whose lists differ": (
        [named("TreeEnsembleRegressor", ["x"], domain=ML, nodes_treeids=[0, 0], nodes_nodeids=[0], nodes_featureids=[0], nodes_values=[0.0],
               nodes_modes=["LEAF"], nodes_truenodeids=[0], nodes_falsenodeids=[0], target_treeids=[0], target_nodeids=[0],
               target_ids=[0], target_weights=[1.0], n_targets=1)], X, Y, [], {"": 17, ML: 1}, "nodes_"),
    "a scaler with too few scales": (
        [named("Scaler", ["x"], domain=ML, offset=[0.0, 1.0], scale=[1.0, 1.0, 1.0])], X, Y, [], {"": 17, ML: 1}, "offset|scale"),
}  # fmt: skip
# the same, where a tensor is at fault: its part, and why
TENSORS = {
    "texts": ([named("StringNormalizer", ["x"], case_change_action="LOWER")], WORDS, LABELS, [], {"": 17}, "input x", "BYTES"),
    "a constant beyond 32 bits": (
        [named("Mul", ["x", "many"])], ("x", T.INT64, ["N"]), ("y", T.INT64, ["N"]), weights(many=np.int64(1 << 40)), {"": 17},
        "many", "1099511627776"),
}  # fmt: skip


def written(folder, nodes, given, made, constants, opsets):
    ports = [[h.make_tensor_value_info(*port)] for port in (given, made)]
    graph = h.make_graph(nodes, "g", *ports, constants)
    path = folder / "model.onnx"
    model = h.make_model(graph, opset_imports=[h.make_opsetid(*one) for one in opsets.items()], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def refusal(*args):
    """What a command that refuses a model says, without the log."""
    done = subprocess.run([binary(), "engine", *map(str, args), "--ort-lib", "off"], capture_output=True, text=True, timeout=55, env={})
    assert done.returncode == 1 and "panicked" not in done.stderr, (done.returncode, done.stderr)
    # a message may hold other ends of lines than these
    lines = [line for line in done.stderr.split("\n") if line and not line.startswith("20")]
    assert 1 <= len(lines) <= 3, lines
    return " ".join(lines)


def commands(path):
    return ["inspect", path], ["serve", "--listen", "127.0.0.1:0", "--model", path]


@pytest.mark.parametrize("what", MODELS)
def test_a_refusal_names_node_operator_set_and_reason(tmp_path, what):
    *model, opsets, why = MODELS[what]
    fault = model[0][0]
    who = rf"{fault.name} \(([\w.]+\.)?{fault.op_type}, (opset|version|[\w.]+) {opsets[fault.domain]}\): (.*)"
    for command in commands(written(tmp_path, *model, opsets)):
        said = refusal(*command)
        found = re.search(who, said)
        assert found and re.search(why, found[3]), said


@pytest.mark.parametrize("what", TENSORS)
def test_a_refusal_names_the_tensor_and_the_reason(tmp_path, what):
    *model, who, why = TENSORS[what]
    for command in commands(written(tmp_path, *model)):
        said = refusal(*command)
        assert who in said and why in said.partition(who)[2], said


def test_what_a_named_executor_cannot_run_is_said_with_its_name(tmp_path):
    path = written(tmp_path, [named("Frobnicate", ["x"])], X, Y, [], {"": 17})
    for executor in ("plan", "tabular"):
        said = refusal("inspect", path, "--executor", executor)
        assert f"executor: {executor} cannot run it: the_Frobnicate (" in said and "Frobnicate" in said, said
    assert "rten cannot load it" in refusal("inspect", path, "--executor", "rten")


def test_names_with_line_ends_and_escapes_are_written_out_and_long_ones_cut(tmp_path):
    for name in ("a\nb\x1b[31mred\u202e\n\n\n\nc", "n" * 5000):
        made = named("Frobnicate", ["x"])
        made.name = name
        path = written(tmp_path, [made], X, Y, [], {"": 17})
        for executor in ("auto", "plan", "tabular", "rten"):
            for command in commands(path):
                said = refusal(*command, "--executor", executor)
                assert all(character.isprintable() for character in said) and len(said) < 1200, said
                assert name[:1] in said
