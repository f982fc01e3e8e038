"""ONNX files that are not as they must be: each is refused with the part that is at fault."""

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

WIDTH = 8


def _model(nodes, initializers, outputs=(("y", T.FLOAT, ["N", WIDTH]),), inputs=(("x", T.FLOAT, ["N", WIDTH]),)):
    values = [[h.make_tensor_value_info(*value) for value in side] for side in (inputs, outputs)]
    return h.make_model(h.make_graph(nodes, "g", *values, initializers), opset_imports=[h.make_opsetid("", 17)], ir_version=9)


def _weight(name="weight"):
    return nh.from_array(np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32), name)


def _product(weight="weight"):
    return h.make_node("MatMul", ["x", weight], ["y"], name="product")


def good(folder):
    """One product; what the others are made from."""
    path = folder / "good.onnx"
    path.write_bytes(_model([_product()], [_weight()]).SerializeToString())
    return path


def external(folder, location, data=None, offset=None, length=None, name="model"):
    """A model whose weight lies in another file, written if `data` is given."""
    weight = _weight()
    raw = weight.raw_data
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            weight.external_data.add(key=key, value=str(value))
    if data:
        (folder / data).write_bytes(raw)
    path = folder / f"{name}.onnx"
    path.write_bytes(_model([_product()], [weight]).SerializeToString())
    return path


def bad(folder):
    """By what is wrong: (the file, a regular expression that the message must hold)."""
    outside = folder / "outside"
    inside = folder / "inside"
    outside.mkdir()
    inside.mkdir()
    whole = good(folder).read_bytes()
    (outside / "weight.bin").write_bytes(_weight().raw_data)
    (inside / "link.bin").symlink_to(outside / "weight.bin")
    out = {}

    def add(what, message, content):
        path = folder / f"{what.replace(' ', '_')}.onnx"
        path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
        out[what] = (path, message)

    def sized(dims, raw=b"\0" * 16, kind=T.FLOAT):
        tensor = onnx.TensorProto(name="weight", data_type=kind, dims=dims)
        tensor.raw_data = raw
        return _model([_product()], [tensor])

    out["absent"] = (folder / "absent.onnx", r"absent\.onnx.*(No such file|not found|does not exist)")
    out["a folder"] = (folder, "irectory")
    add("empty", "file|graph", b"")
    add("text", "file", b"model:\n  path: model.onnx\n" * 20)
    add("noise", "file", np.random.default_rng(1).bytes(4096))
    add("cut in half", "file|initializer|graph", whole[: len(whole) // 2])
    add("cut at the end", "file|output|graph", whole[:-3])
    add("huge", r"initializer weight", sized([2**40, 2**40]))
    add("huge by one axis", r"initializer weight", sized([2**62]))
    add("more than it holds", r"initializer weight", sized([WIDTH, WIDTH]))
    add("negative", r"initializer weight", sized([-WIDTH, WIDTH]))
    add("of text", r"initializer weight", sized([WIDTH, WIDTH], kind=T.STRING))
    add("huge input", r"input x", _model([_product()], [_weight()], inputs=[("x", T.FLOAT, [2**40, 2**40])]))
    loop = [h.make_node("Add", ["x", "b"], ["a"], name="first"), h.make_node("Relu", ["a"], ["b"], name="second"), h.make_node("Relu", ["b"], ["y"])]
    add("cyclic", r"node first.*\bb\b", _model(loop, []))
    own = [h.make_node("Add", ["x", "y"], ["y"], name="ouroboros")]
    add("made from itself", r"node ouroboros.*\by\b", _model(own, []))
    add("read from nowhere", r"node product.*\bnowhere\b", _model([_product("nowhere")], []))
    add("output from nowhere", r"output.*\bz\b|\bz\b.*output", _model([_product()], [_weight()], outputs=[("z", T.FLOAT, ["N", WIDTH])]))
    add("unknown operator", r"(node odd|Frobnicate)", _model([h.make_node("Frobnicate", ["x"], ["y"], name="odd")], []))
    wide = nh.from_array(np.ones((WIDTH + 1, WIDTH), np.float32), "weight")
    add("shapes that do not fit", r"product", _model([_product()], [wide]))
    for what, location in (
        ("outside by dots", "../outside/weight.bin"),
        ("outside by more dots", "sub/../../outside/weight.bin"),
        ("outside from the root", str(outside / "weight.bin")),
        ("outside by a link", "link.bin"),
    ):
        out[what] = (external(inside, location, name=what.replace(" ", "_")), r"initializer weight")
    out["weights absent"] = (external(inside, "absent.bin", name="absent_weights"), r"initializer weight.*absent\.bin")
    out["weights too short"] = (external(inside, "short.bin", "short.bin", offset=16, length=WIDTH * WIDTH * 4, name="short"), r"initializer weight")
    out["weights without a place"] = (external(inside, None, name="placeless"), r"initializer weight")
    return out
