"""Random models in the spellings that exporters use: MLPs and encoders of every size and opset that plans are for. No two are alike.

`random_model(rng)` makes one from a `random.Random`: the same seed, the same model. It is the oracle tests' supply; nothing here runs one.
"""
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu")
ENCODER_ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "tanh")
LONGEST = 300  # tokens that an encoder has positions for
LOWEST = float(np.finfo(np.float32).min)

Feed = dict[str, np.ndarray]


@dataclass
class Model:
    """An ONNX file, and what it may be given."""

    onnx: bytes
    what: dict
    feeds: Callable[[int, int], Feed]
    """Inputs for so many rows of so many tokens; an MLP's do not have tokens."""


class Writer:
    """Writes nodes under random names."""

    def __init__(self, rng: random.Random):
        self.rng, self.opset = rng, rng.randrange(13, 22)
        self.numbers = np.random.default_rng(rng.randrange(1 << 30))
        self.nodes, self.constants, self.count = [], [], 0

    def name(self, kind: str) -> str:
        self.count += 1
        return self.rng.choice([f"{kind}_{self.count}", f"/{kind}/{self.rng.randrange(10**6)}.{self.count}", f"{self.count}"])

    def constant(self, values, kind=np.float32) -> str:
        name = self.name("w")
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values, kind).reshape(np.shape(values)), name))
        return name

    def whole(self, values) -> str:
        return self.constant(values, np.int64)

    def node(self, op: str, inputs: list, outputs=1, **attributes):
        made = [self.name("v") for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, made, name=self.name(op), **attributes))
        return made[0] if outputs == 1 else made

    def normal(self, *shape, by=1.0) -> np.ndarray:
        return (by * self.numbers.standard_normal(shape)).astype(np.float32)

    def either(self, share=0.5) -> bool:
        return self.rng.random() < share

    def both(self, op: str, a: str, b: str) -> str:
        """An operator whose sides may be changed."""
        return self.node(op, [a, b] if self.either() else [b, a])

    def finish(self, inputs, outputs) -> bytes:
        ports = [[helper.make_tensor_value_info(*port) for port in side] for side in (inputs, outputs)]
        graph = helper.make_graph(self.nodes, self.name("graph"), *ports, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
        onnx.checker.check_model(made)
        return made.SerializeToString()

    # === pieces ===

    def linear(self, x: str, k: int, n: int, rank: int, has_bias=True) -> str:
        weight, bias = self.normal(k, n, by=k**-0.5), self.normal(n, by=0.1)
        if rank == 2 and self.either():
            if self.either():
                return self.node("Gemm", [x, self.constant(weight.T), self.constant(bias)], transB=1)
            return self.node("Gemm", [x, self.constant(weight), self.constant(bias)])
        product = self.node("MatMul", [x, self.constant(weight)])
        return self.both("Add", product, self.constant(bias)) if has_bias else product

    def activation(self, x: str, kind: str) -> str:
        simple = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}
        if kind in simple:
            return self.node(simple[kind], [x])
        if self.opset >= 20 and self.either():
            return self.node("Gelu", [x], approximate="tanh" if kind == "gelu_tanh" else "none")
        if kind == "gelu":
            scaled = self.node("Div", [x, self.constant(np.sqrt(2))]) if self.either() else self.both("Mul", x, self.constant(0.5**0.5))
            share = self.both("Add", self.node("Erf", [scaled]), self.constant(1))
            if self.either():
                return self.both("Mul", self.node("Mul", [x, share]), self.constant(0.5))
            return self.node("Mul", [self.both("Mul", x, self.constant(0.5)), share])
        cube = self.node("Pow", [x, self.constant(3)]) if self.either() else self.node("Mul", [self.node("Mul", [x, x]), x])
        inner = self.both("Add", x, self.both("Mul", cube, self.constant(0.044715)))
        share = self.both("Add", self.node("Tanh", [self.both("Mul", inner, self.constant(np.sqrt(2 / np.pi)))]), self.constant(1))
        return self.node("Mul", [self.both("Mul", x, self.constant(0.5)), share])

    def fold(self, op: str, x: str, axis: int, keep: int) -> str:
        if self.opset >= 18 or op == "ReduceSum":
            return self.node(op, [x, self.whole([axis])], keepdims=keep)
        return self.node(op, [x], axes=[axis], keepdims=keep)

    def layer_norm(self, x: str, n: int) -> str:
        scale, shift = self.constant(1 + self.normal(n, by=0.2)), self.constant(self.normal(n, by=0.2))
        epsilon = self.rng.choice([1e-12, 1e-7, 1e-5])
        if self.opset >= 17 and self.either():
            return self.node("LayerNormalization", [x, scale, shift], axis=-1, epsilon=epsilon)
        rest = self.node("Sub", [x, self.fold("ReduceMean", x, -1, 1)])
        square = self.node("Mul", [rest, rest]) if self.either() else self.node("Pow", [rest, self.constant(2)])
        root = self.node("Sqrt", [self.both("Add", self.fold("ReduceMean", square, -1, 1), self.constant(epsilon))])
        if self.either():
            normed = self.node("Div", [rest, root])
        else:
            normed = self.both("Mul", rest, self.node("Reciprocal", [root]))
        return self.both("Add", self.both("Mul", normed, scale), shift)


def random_model(rng: random.Random) -> Model:
    """An MLP or, twice as often, an encoder."""
    return random_mlp(rng) if rng.random() < 1 / 3 else random_encoder(rng)


def random_mlp(rng: random.Random) -> Model:
    """One to six layers, 1 to 2049 wide."""
    g = Writer(rng)
    widths = [rng.choice([rng.randrange(1, 34), rng.randrange(34, 513), rng.randrange(513, 2050)]) for _ in range(rng.randrange(1, 7) + 1)]
    given, made = g.name("in"), g.name("out")
    x = given
    for at, (k, n) in enumerate(zip(widths, widths[1:])):
        x = g.linear(x, k, n, 2)
        if at + 2 < len(widths):
            x = g.activation(x, rng.choice(ACTIVATIONS))
    end = rng.choice(["none", "none", "sigmoid", "softmax"])
    if end != "none":
        x = g.node("Sigmoid", [x]) if end == "sigmoid" else g.node("Softmax", [x], axis=-1)
    g.nodes.append(helper.make_node("Identity", [x], [made]))
    made = g.finish([(given, TensorProto.FLOAT, ["N", widths[0]])], [(made, TensorProto.FLOAT, ["N", widths[-1]])])

    def feeds(batch: int, _length: int = 0) -> Feed:
        return {given: np.random.default_rng(batch).standard_normal((batch, widths[0])).astype(np.float32)}

    return Model(made, {"kind": "mlp", "widths": widths, "end": end, "opset": g.opset}, feeds)


def random_encoder(rng: random.Random) -> Model:
    """One to four layers, 32 to 768 wide, heads of 16 to 128."""
    return Encoder(Writer(rng)).model()


class Encoder:
    """The choices of one encoder, and its parts."""

    def __init__(self, g: Writer):
        rng = g.rng
        self.g = g
        self.head = rng.choice([16, 24, 32, 40, 64, 80, 128])
        self.heads = rng.randrange(-(-32 // self.head), min(768 // self.head, 12) + 1)
        self.width = self.head * self.heads
        self.layers = rng.randrange(1, 5)
        self.words = rng.randrange(50, 300)
        self.middle = rng.choice([2 * self.width, 4 * self.width, 97])
        self.places = rng.choice(["table", "buffer", "range", "counted", "none"])
        self.types = rng.choice(["input", "zeros", "none"])
        self.mask = rng.choice(["added", "added_min", "expanded", "filled", "chosen", "none"])
        self.mask_type = rng.choice([TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL])
        self.scale = rng.choice(["div", "mul", "queries", "both"])
        self.shapes = rng.choice(["constant", "computed"])
        self.joined = g.either()
        self.before = g.either(0.3)
        self.pool = rng.choice(["first", "mean", "sentence", "every", "greatest", "none"])
        self.ids, self.kept, self.kinds = g.name("ids"), g.name("mask"), g.name("types")
        self.id_type = rng.choice([TensorProto.INT64, TensorProto.INT32])

    def model(self) -> Model:
        g = self.g
        hidden, pooled = g.name("hidden"), g.name("pooled")
        x = self.embedded()
        bias, is_masked = self.masks()
        for _ in range(self.layers):
            x = self.layer(x, bias, is_masked)
        g.nodes.append(helper.make_node("Identity", [x], [hidden]))
        outputs = [(hidden, TensorProto.FLOAT, ["B", "S", self.width])]
        if self.pool != "none":
            row, width = self.pooled(x)
            g.nodes.append(helper.make_node("Identity", [row], [pooled]))
            outputs.append((pooled, TensorProto.FLOAT, ["B", width]))
        inputs = [(self.ids, self.id_type, ["B", "S"]), (self.kept, self.mask_type, ["B", "S"])]
        if self.types == "input":
            inputs.append((self.kinds, self.id_type, ["B", "S"]))
        what = {name: value for name, value in vars(self).items() if name not in ("g", "ids", "kept", "kinds")}
        return Model(g.finish(inputs, outputs), {"kind": "encoder", "opset": g.opset, **what}, self.feeds)

    def feeds(self, batch: int, length: int) -> Feed:
        q = np.random.default_rng((batch, length))
        mask = q.random((batch, length)) < 0.8
        mask[:, 0] = True  # a sequence has at least a first token
        ids = q.integers(2, self.words, (batch, length))
        if self.places == "counted":
            ids[~mask] = 1  # padding has no position of its own
        whole = helper.tensor_dtype_to_np_dtype(self.id_type)
        made = {self.ids: ids.astype(whole), self.kept: mask.astype(helper.tensor_dtype_to_np_dtype(self.mask_type))}
        if self.types == "input":
            made[self.kinds] = q.integers(0, 2, (batch, length)).astype(whole)
        return made

    # === the parts, from the ids on ===

    def axis(self, x: str, axis: int) -> str:
        """The length of an axis, as a tensor of one element."""
        g = self.g
        if g.either():
            return g.node("Slice", [g.node("Shape", [x]), g.whole([axis]), g.whole([axis + 1]), g.whole([0])])
        return g.node("Unsqueeze", [g.node("Gather", [g.node("Shape", [x]), g.whole(axis)], axis=0), g.whole([0])])

    def embedded(self) -> str:
        g = self.g
        x = g.node("Gather", [g.constant(g.normal(self.words, self.width, by=0.5)), self.ids])
        if self.places != "none":
            x = g.both("Add", x, self.placed())
        if self.types == "input":
            x = g.both("Add", x, g.node("Gather", [g.constant(g.normal(2, self.width)), self.kinds]))
        if self.types == "zeros":
            ids = g.node("Expand", [g.whole([[0]]), g.node("Shape", [self.ids])])
            x = g.both("Add", x, g.node("Gather", [g.constant(g.normal(2, self.width)), ids]))
        return g.layer_norm(x, self.width) if g.either(0.9) else x

    def placed(self) -> str:
        """What tokens have by their places."""
        g = self.g
        table = g.constant(g.normal(LONGEST, self.width, by=0.5))
        if self.places == "table":
            rows = g.node("Slice", [table, g.whole([0]), self.axis(self.ids, 1), g.whole([0])])
            return g.node("Unsqueeze", [rows, g.whole([0])]) if g.either() else rows
        if self.places == "buffer":
            places = g.node("Slice", [g.whole(np.arange(LONGEST)[None]), g.whole([0]), self.axis(self.ids, 1), g.whole([1])])
        elif self.places == "range":
            count = g.node("Gather", [g.node("Shape", [self.ids]), g.whole(1)], axis=0)
            places = g.node("Unsqueeze", [g.node("Range", [g.whole(0), count, g.whole(1)]), g.whole([0])])
        else:
            pad = g.constant(1, helper.tensor_dtype_to_np_dtype(self.id_type))
            own = g.node("Cast", [g.node("Not", [g.node("Equal", [self.ids, pad])])], to=TensorProto.INT32)
            count = g.both("Mul", g.node("CumSum", [own, g.whole(1)]), own)
            places = g.both("Add", g.node("Cast", [count], to=TensorProto.INT64), g.whole(1))
        return g.node("Gather", [table, places])

    def floats(self, mask: str) -> str:
        return mask if self.mask_type == TensorProto.FLOAT else self.g.node("Cast", [mask], to=TensorProto.FLOAT)

    def masks(self) -> tuple[str | None, str | None]:
        """What is added to scores, or where they are replaced."""
        g = self.g
        if self.mask == "none":
            return None, None
        if g.either():
            mask = g.node("Unsqueeze", [self.kept, g.whole([1, 2])])
        else:
            mask = g.node("Unsqueeze", [g.node("Unsqueeze", [self.kept, g.whole([1])]), g.whole([2])])
        is_bool = self.mask_type == TensorProto.BOOL
        if self.mask == "filled":
            zero = g.constant(0, helper.tensor_dtype_to_np_dtype(self.mask_type))
            return None, g.node("Not", [mask]) if is_bool else g.node("Equal", [mask, zero])
        if self.mask == "chosen":
            mask = mask if is_bool else g.node("Cast", [mask], to=TensorProto.BOOL)
            return g.node("Where", [mask, g.constant(0), g.constant(LOWEST)]), None
        mask = self.floats(mask)
        if self.mask == "expanded":
            ends = [self.axis(self.ids, axis) for axis in (0, 1)]
            mask = g.node("Expand", [mask, g.node("Concat", [ends[0], g.whole([1]), ends[1], ends[1]], axis=0)])
        lowest = g.constant({"added": -1e4, "added_min": LOWEST, "expanded": -1e9}[self.mask])
        return g.both("Mul", g.node("Sub", [g.constant(1), mask]), lowest), None

    def split(self, x: str, turn: list[int]) -> str:
        g = self.g
        shape = g.whole([0, 0, self.heads, self.head])
        if self.shapes == "computed":
            ends = g.node("Slice", [g.node("Shape", [x]), g.whole([0]), g.whole([2])])
            shape = g.node("Concat", [ends, g.whole([self.heads]), g.whole([self.head])], axis=0)
        return g.node("Transpose", [g.node("Reshape", [x, shape])], perm=turn)

    def attention(self, x: str, bias: str | None, is_masked: str | None) -> str:
        g, n = self.g, self.width
        if self.joined:
            q, k, v = g.node("Split", [g.linear(x, n, 3 * n, 3), g.whole([n, n, n])], 3, axis=-1)
        else:
            q, k, v = (g.linear(x, n, n, 3, g.either(0.9)) for _ in range(3))
        q, k, v = self.split(q, [0, 2, 1, 3]), self.split(k, [0, 2, 3, 1]), self.split(v, [0, 2, 1, 3])
        if self.scale == "queries":
            q = g.both("Mul", q, g.constant(self.head**-0.5)) if g.either() else g.node("Div", [q, g.constant(self.head**0.5)])
        if self.scale == "both":
            q, k = (g.both("Mul", side, g.constant(self.head**-0.25)) for side in (q, k))
        scores = g.node("MatMul", [q, k])
        if self.scale == "div":
            scores = g.node("Div", [scores, g.constant(self.head**0.5)])
        if self.scale == "mul":
            scores = g.both("Mul", scores, g.constant(self.head**-0.5))
        if bias:
            scores = g.both("Add", scores, bias)
        if is_masked:
            scores = g.node("Where", [is_masked, g.constant(LOWEST), scores])
        mixed = g.node("Transpose", [g.node("MatMul", [g.node("Softmax", [scores], axis=-1), v])], perm=[0, 2, 1, 3])
        shape = g.whole([0, 0, n])
        if self.shapes == "computed":
            ends = g.node("Slice", [g.node("Shape", [mixed]), g.whole([0]), g.whole([2])])
            shape = g.node("Concat", [ends, g.whole([n])], axis=0)
        return g.linear(g.node("Reshape", [mixed, shape]), n, n, 3)

    def layer(self, x: str, bias: str | None, is_masked: str | None) -> str:
        g, n = self.g, self.width
        y = g.layer_norm(x, n) if self.before else x
        x = g.both("Add", self.attention(y, bias, is_masked), x)
        x = x if self.before else g.layer_norm(x, n)
        y = g.layer_norm(x, n) if self.before else x
        y = g.activation(g.linear(y, n, self.middle, 3), g.rng.choice(ENCODER_ACTIVATIONS))
        x = g.both("Add", g.linear(y, self.middle, n, 3), x)
        return x if self.before else g.layer_norm(x, n)

    def pooled(self, x: str) -> tuple[str, int]:
        """A row for each sequence, and its width."""
        g = self.g
        if self.pool == "first":
            if g.either():
                row = g.node("Gather", [x, g.whole(0)], axis=1)
            else:
                row = g.node("Squeeze", [g.node("Slice", [x, g.whole([0]), g.whole([1]), g.whole([1])]), g.whole([1])])
            return g.node("Tanh", [g.linear(row, self.width, 5, 2)]), 5
        if self.pool in ("every", "greatest"):
            return g.fold("ReduceMean" if self.pool == "every" else "ReduceMax", x, 1, 0), self.width
        mask = g.node("Unsqueeze", [self.kept, g.whole([-1])])
        if g.either():  # as sentence-transformers does
            mask = g.node("Expand", [mask if self.mask_type != TensorProto.BOOL else self.floats(mask), g.node("Shape", [x])])
            mask = mask if self.mask_type != TensorProto.INT64 else self.floats(mask)
        else:
            mask = self.floats(mask)
        total = g.fold("ReduceSum", g.both("Mul", x, mask), 1, 0)
        mean = g.node("Div", [total, g.node("Clip", [g.fold("ReduceSum", mask, 1, 0), g.constant(1e-9)])])
        if self.pool == "mean":
            return mean, self.width
        length = g.fold("ReduceL2", mean, 1, 1) if g.either() else g.node("Sqrt", [g.fold("ReduceSum", g.node("Mul", [mean, mean]), 1, 1)])
        return g.node("Div", [mean, g.node("Clip", [length, g.constant(1e-12)])]), self.width
