"""ONNX files with a fault: truncated, with flipped bits, or well-formed and changed. The nth variant of a file is always the same.

The files are those of the repository's fixtures, and a few small ones for what these lack: convolutions, 8 bits, recurrence, subgraphs.
"""

import copy
import functools
import random
import zlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from sidecar import ROOT

EXTREME = [-1, 0, 1, 2, 7, 255, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, -(2**62)]
FLOATS = [0.0, -1.0, 1e38, float("inf"), float("nan")]
TYPES = [1, 2, 3, 6, 7, 8, 9, 10, 11, 16, 99]
PLANS, TREES = ROOT / "tests/fixtures/plans", ROOT / "crates/lapwing-tabular/tests/golden"


def graph(nodes, inputs, weights, opsets=(("", 17),)):
    """A model of these nodes with one output, `y`; weights by name, seeded where they are a shape."""
    rng = np.random.default_rng(3)
    made = {name: rng.standard_normal(w).astype(np.float32) / 3 if isinstance(w, tuple) else w for name, w in weights.items()}
    ports = [h.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs]
    outputs = [h.make_tensor_value_info("y", T.FLOAT, None)]
    built = h.make_graph(nodes, "g", ports, outputs, [nh.from_array(np.asarray(w), name) for name, w in made.items()])
    model = h.make_model(built, opset_imports=[h.make_opsetid(*opset) for opset in opsets], ir_version=9)
    for node in model.graph.node:
        node.name = node.name or f"the_{node.op_type}_{node.output[0]}"
    return onnx.shape_inference.infer_shapes(model)


def convolutions():
    nodes = [
        h.make_node("Conv", ["x", "w"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        h.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"]),
        h.make_node("Relu", ["n"], ["r"]),
        h.make_node("Conv", ["r", "d"], ["c"], group=8),
        h.make_node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2]),
        h.make_node("Resize", ["p", "", "up"], ["u"], mode="nearest"),
        h.make_node("GlobalAveragePool", ["u"], ["g"]),
        h.make_node("Flatten", ["g"], ["f"]),
        h.make_node("Gemm", ["f", "o"], ["l"]),
        h.make_node("Softmax", ["l"], ["y"]),
    ]
    one = np.ones(8, np.float32)
    weights = {"w": (8, 3, 3, 3), "d": (8, 1, 3, 3), "o": (8, 5), "s": one, "b": (8,), "m": (8,), "v": one, "up": np.array([1, 1, 2, 2], np.float32)}
    return graph(nodes, [("x", T.FLOAT, ["batch", 3, 16, 16])], weights)


def eight_bits():
    nodes = [
        h.make_node("QuantizeLinear", ["x", "sx", "zx"], ["q"]),
        h.make_node("DequantizeLinear", ["q", "sx", "zx"], ["d"]),
        h.make_node("DequantizeLinear", ["w", "sw"], ["e"], axis=1),
        h.make_node("MatMul", ["d", "e"], ["m"]),
        h.make_node("Relu", ["m"], ["r"]),
        h.make_node("DynamicQuantizeLinear", ["r"], ["i", "si", "zi"]),
        h.make_node("MatMulInteger", ["i", "v", "zi"], ["n"]),
        h.make_node("Cast", ["n"], ["c"], to=T.FLOAT),
        h.make_node("Mul", ["c", "si"], ["y"]),
    ]
    rng = np.random.default_rng(5)
    whole = lambda *shape: rng.integers(-100, 100, shape).astype(np.int8)  # noqa: E731
    weights = {"sx": np.float32(0.05), "zx": np.uint8(128), "w": whole(12, 16), "sw": np.full(16, 0.01, np.float32), "v": whole(16, 4)}
    return graph(nodes, [("x", T.FLOAT, ["batch", 12])], weights)


def recurrent():
    nodes = [
        h.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        h.make_node("LSTM", ["t", "W", "R", "B"], ["all", "", ""], hidden_size=5),
        h.make_node("Squeeze", ["all", "one"], ["s"]),
        h.make_node("GRU", ["s", "V", "Q"], ["", "last"], hidden_size=3),
        h.make_node("Transpose", ["last"], ["u"], perm=[1, 0, 2]),
        h.make_node("Flatten", ["u"], ["y"]),
    ]
    weights = {"W": (1, 20, 4), "R": (1, 20, 5), "B": (1, 40), "V": (1, 9, 5), "Q": (1, 9, 3), "one": np.array([1], np.int64)}
    return graph(nodes, [("x", T.FLOAT, ["batch", "length", 4])], weights)


def subgraphs():
    value = lambda name, kind, shape: h.make_tensor_value_info(name, kind, shape)  # noqa: E731
    step = h.make_graph(
        [h.make_node("Add", ["carried", "b"], ["sum"]), h.make_node("Identity", ["go"], ["on"])], "step",
        [value("at", T.INT64, []), value("go", T.BOOL, []), value("carried", T.FLOAT, None)], [value("on", T.BOOL, []), value("sum", T.FLOAT, None)],
    )  # fmt: skip
    branch = lambda name, op: h.make_graph([h.make_node(op, ["k"], [name])], name, [], [value(name, T.FLOAT, None)])  # noqa: E731
    nodes = [
        h.make_node("Shape", ["x"], ["shape"]),
        h.make_node("Gather", ["shape", "zero"], ["rows"]),
        h.make_node("Loop", ["rows", "true", "x"], ["k"], body=step),
        h.make_node("ReduceSum", ["k"], ["total"], keepdims=0),
        h.make_node("Greater", ["total", "nought"], ["is"]),
        h.make_node("If", ["is"], ["y"], then_branch=branch("t", "Tanh"), else_branch=branch("e", "Sigmoid")),
    ]
    weights = {"zero": np.int64(0), "true": np.array(True), "nought": np.float32(0), "b": (4,)}
    return graph(nodes, [("x", T.FLOAT, ["batch", 4])], weights)


def fixture(folder, name):
    return lambda: onnx.load(folder / f"{name}.onnx")


FILES = {
    "mlp": fixture(PLANS, "mlp-3"),
    "wide-and-deep": fixture(PLANS, "wide-and-deep"),
    "bert": fixture(PLANS, "bert-post-1"),
    "bert-of-transformers-5": fixture(PLANS, "transformers-5-bert-sdpa-dynamo"),
    "boosting": fixture(TREES, "columns_onehot_boosting"),
    "lightgbm": fixture(TREES, "lightgbm"),
    "convolutions": convolutions,
    "eight-bits": eight_bits,
    "recurrent": recurrent,
    "subgraphs": subgraphs,
}


@functools.cache
def parsed(name):
    return FILES[name]()


def variant(name, n):
    """(what was done to the file, its bytes): a third each truncated, with flipped bits, and changed."""
    rng = random.Random(zlib.crc32(name.encode()) + n)
    whole = parsed(name).SerializeToString()
    if n % 3 == 0:
        cut = rng.randrange(1, len(whole))
        return f"truncated at {cut}", whole[:cut]
    if n % 3 == 1:
        return flipped(bytearray(whole), (1, 8, 64)[n // 3 % 3], rng)
    return changed(copy.deepcopy(parsed(name)), rng)


def flipped(data, bits, rng):
    """Two of three bits in the first 4 KiB or the last 16 KiB, where the graph is, rather than in the weights."""
    for _ in range(bits):
        ends = [rng.randrange(len(data)), rng.randrange(min(4096, len(data))), len(data) - 1 - rng.randrange(min(16384, len(data)))]
        data[rng.choice(ends)] ^= 1 << rng.randrange(8)
    return f"{bits} bits flipped", bytes(data)


def changed(model, rng):
    done = []
    while not done:
        done = [word for _ in range(rng.choice((1, 1, 2, 4))) if (word := rng.choice(CHANGES)(model.graph, rng))]
    return ", ".join(done), model.SerializeToString()


# --- the changes: each says what it did, or nothing where the file has nothing of the kind


def change_attribute(graph, rng):
    node = rng.choice(graph.node)
    some = [a for a in node.attribute if a.type == onnx.AttributeProto.INT or a.ints or a.floats]
    if not some:
        return None
    attribute = rng.choice(some)
    if attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice(EXTREME)
    elif (numbers := attribute.ints or attribute.floats) and rng.randrange(4) == 0:
        numbers.pop(rng.randrange(len(numbers)))
    else:
        numbers[rng.randrange(len(numbers))] = rng.choice(EXTREME if attribute.ints else FLOATS)
    return f"{node.op_type}.{attribute.name}"


def change_dims(graph, rng):
    some = [one for one in graph.initializer if one.dims]
    if not some:
        return None
    one = rng.choice(some)
    one.dims[rng.randrange(len(one.dims))] = rng.choice(EXTREME)
    return f"dims of {one.name}"


def change_axis(graph, rng):
    port = rng.choice([*graph.input, *graph.output])
    if not port.type.tensor_type.shape.dim:
        return None
    rng.choice(port.type.tensor_type.shape.dim).dim_value = rng.choice(EXTREME)
    return f"axis of {port.name}"


def change_operator(graph, rng):
    node = rng.choice(graph.node)
    was, node.op_type = node.op_type, rng.choice(graph.node).op_type
    return f"{was} becomes {node.op_type}"


def swap_inputs(graph, rng):
    node = rng.choice(graph.node)
    if len(node.input) < 2:
        return None
    a, b = rng.sample(range(len(node.input)), 2)
    node.input[a], node.input[b] = node.input[b], node.input[a]
    return f"inputs {a} and {b} of {node.op_type} swapped"


def change_input(graph, rng):
    node = rng.choice(graph.node)
    if not node.input:
        return None
    names = [one.name for one in graph.initializer] + [output for other in graph.node for output in other.output]
    at = rng.randrange(len(node.input))
    node.input[at] = rng.choice([*names, ""])
    return f"input {at} of {node.op_type} is {node.input[at] or 'none'}"


def change_type(graph, rng):
    if not graph.initializer:
        return None
    one = rng.choice(graph.initializer)
    one.data_type = rng.choice(TYPES)
    return f"type of {one.name}"


def change_value(graph, rng):
    ints = [one for one in graph.initializer if one.data_type == T.INT64 and one.raw_data]
    if not ints:
        return None
    one = rng.choice(ints)
    data = bytearray(one.raw_data)
    at = rng.randrange(len(data) // 8) * 8
    data[at : at + 8] = rng.choice(EXTREME).to_bytes(8, "little", signed=True)
    one.raw_data = bytes(data)
    return f"value of {one.name}"


def remove_node(graph, rng):
    if len(graph.node) < 2:
        return None
    node = rng.choice(graph.node)
    graph.node.remove(node)
    return f"no {node.op_type}"


CHANGES = [
    change_attribute, change_dims, change_axis, change_operator, swap_inputs, change_input, change_type, change_value, remove_node,
]  # fmt: skip
