"""Shapes that a user states (`--shape`, `engine.shapes`) for what a file leaves open, by each executor that may run it. Expected values are
those of Python's onnxruntime."""

import json
import pathlib
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

from engine.served import Rest
from ports import free_port

LIBRARY = next((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
pytestmark = pytest.mark.beside


def picture(folder, name="picture", dims=(None, 3, None, None)):
    """A convolution and a mean over the picture; without `dims` the file gives the input no shape."""
    weight = nh.from_array(np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32), "w")
    nodes = [h.make_node("Conv", ["image", "w"], ["c"], "conv", pads=[1] * 4), h.make_node("ReduceMean", ["c"], ["y"], "mean", axes=[2, 3], keepdims=0)]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("image", T.FLOAT, dims)], [h.make_tensor_value_info("y", T.FLOAT, None)], [weight])
    path = folder / f"{name}.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
    return path


def inspected(binary, path, *args):
    done = subprocess.run([binary, "engine", "inspect", path, "--json", *args], capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


@pytest.mark.parametrize("executor", ["rten", "onnxruntime"])
@pytest.mark.parametrize("dims", [None, (None, 3, None, None), (-1, 3, "h", "h")], ids=["no shape", "open", "named"])
def test_a_stated_shape_is_the_models(dims, executor, tmp_path, start_engine):
    path = picture(tmp_path, dims=dims)
    library = ["--ort-lib", LIBRARY] if executor == "onnxruntime" else []
    engine = start_engine([("picture", path)], "--executor", executor, "--shape", "image=-1,3,20,20", *library)
    feeds = {"image": np.random.default_rng(1).normal(size=(2, 3, 20, 20)).astype(np.float32)}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with Rest(engine.port) as rest:
        (port,) = json.loads(engine.get("/v2/models/picture")[1])["inputs"]
        assert port["shape"] == [-1, 3, 20, 20]
        reply = rest.infer("picture", feeds)
        assert reply.status == 200
        np.testing.assert_allclose(reply.outputs["y"], session.run(None, feeds)[0], atol=1e-5)
        other = rest.infer("picture", {"image": np.zeros((1, 3, 21, 20), np.float32)})
        assert other.status == 400 and "expected shape [-1, 3, 20, 20], got [1, 3, 21, 20]" in other.said["error"]


def test_its_work_is_counted_at_the_stated_shape(tmp_path, binary):
    path = picture(tmp_path)
    for side in (8, 32):
        about = inspected(binary, path, "--ort-lib", "off", "--shape", f"image=1,3,{side},{side}")
        (cost,) = about["shapes"]
        # two for each product, and one addition for each of the mean's
        assert cost["batch"] == 1 and abs(cost["flops"] - 2 * 3 * 9 * 4 * side * side) <= 4 * side * side, cost
    assert "states it" in inspected(binary, picture(tmp_path, "bare", None), "--ort-lib", "off")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("picture=1,3,8,8", r'the model has no such input; its inputs are ["image"]'),
        ("image=1,3,8", "1,3,8 has 3 axes, in the file it has 4"),
        ("image=1,4,8,8", "axis 1 is 4, in the file it is 3"),
        ("image=2000000000,3,2000000000,2000000000", "input image"),
        ("image=1,3,0,8", "as in 1,3,224,224; -1 or ? leaves an axis open"),
        ("1,3,8,8", "must be INPUT=LENGTHS, as in image=1,3,224,224"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(shape, message, tmp_path, binary):
    path = picture(tmp_path)
    assert message in inspected(binary, path, "--shape", shape)
    command = [binary, "engine", "serve", "--model", path, "--shape", shape, "--listen", f"127.0.0.1:{free_port()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode not in (0, 101) and message in done.stderr + done.stdout, done


def test_several_models_have_shapes_of_their_own(tmp_path, start_engine, binary):
    path = picture(tmp_path)
    config = tmp_path / "config.yaml"
    config.write_text("engine:\n  shapes:\n    a/image: [1, 3, 8, 8]\n    b/image: -1,3,16,16\n")
    engine = start_engine([("a", path), ("b", path)], "--config", config)
    with Rest(engine.port) as rest:
        for name, side in (("a", 8), ("b", 16)):
            assert rest.infer(name, {"image": np.zeros((1, 3, side, side), np.float32)}).status == 200
            assert rest.infer(name, {"image": np.zeros((1, 3, side + 1, side), np.float32)}).status == 400
    command = [binary, "engine", "serve", "--model", f"a={path}", "--model", f"b={path}", "--shape", "image=1,3,8,8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode not in (0, 101) and "with several it must be MODEL/INPUT" in done.stderr, done
