"""Models by ONNX Runtime's library, found at run time: what no other can run, what others answer wrongly, every datatype, and libraries that
cannot be used. Expected values are those of Python's onnxruntime."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from onnxruntime.transformers.float16 import convert_float_to_float16

from engine import fixtures
from engine.served import Rest
from ports import free_port

CAPI = pathlib.Path(onnxruntime.__file__).parent / "capi"
LIBRARY = next(CAPI.glob("libonnxruntime.so*"))
PLANS = pathlib.Path(__file__).parents[1] / "fixtures/plans"
STUB = """
struct Api {{ const void *(*get)(unsigned); const char *(*version)(); }};
static const void *get(unsigned) {{ return nullptr; }}
static const char *version() {{ return "{version}"; }}
static const Api api{{get, version}};
extern "C" const Api *OrtGetApiBase() {{ return &api; }}
"""
X = np.array([[1, 2, 4, -1], [-1, 0.5, 0.25, 0], [3, 3, 3, 3], [-2, 8, 0, 1]], np.float32)
pytestmark = [pytest.mark.beside, pytest.mark.timeout(300)]


def model(folder, name, nodes, inputs, outputs, inits=(), ml=1):
    ports = [[h.make_tensor_value_info(*port) for port in ports] for ports in (inputs, outputs)]
    graph = h.make_graph(nodes, "g", *ports, list(inits))
    path = folder / f"{name}.onnx"
    opsets = [h.make_opsetid("", 17), h.make_opsetid("ai.onnx.ml", ml)]
    onnx.save(h.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def scaler(folder):
    node = h.make_node("Scaler", ["x"], ["y"], "the_scaler", domain="ai.onnx.ml", offset=[0.5] * 4, scale=[2.0] * 4)
    return model(folder, "scaler", [node], [("x", T.FLOAT, [None, 4])], [("y", T.FLOAT, [None, 4])])


def compress(folder):
    """All columns of a scaler; by operators of which neither rten nor a classical plan has both."""
    nodes = [
        h.make_node("Scaler", ["x"], ["s"], "the_scaler", domain="ai.onnx.ml", offset=[0.5] * 4, scale=[2.0] * 4),
        h.make_node("Compress", ["s", "all"], ["y"], "the_compress", axis=1),
    ]
    every = nh.from_array(np.ones(4, bool), "all")
    return model(folder, "compress", nodes, [("x", T.FLOAT, [None, 4])], [("y", T.FLOAT, [None, 4])], [every])


def lstm(folder):
    rng = np.random.default_rng(0)
    shapes = {"W": (1, 12, 4), "R": (1, 12, 3), "B": (1, 24)}
    weights = [nh.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [h.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), h.make_node("LSTM", ["t", "W", "R", "B"], ["", "y"], "the_lstm", hidden_size=3)]
    return model(folder, "lstm", nodes, [("x", T.FLOAT, ["batch", "length", 4])], [("y", T.FLOAT, [1, "batch", 3])], weights)


def stump(folder):
    node = h.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "p"], "the_trees", domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[0.0, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        nodes_missing_value_tracks_true=[0, 0, 0], nodes_hitrates=[1.0, 1.0, 1.0], class_treeids=[0, 0], class_nodeids=[1, 2],
        class_ids=[0, 0], class_weights=[0.1, 0.9], classlabels_int64s=[0, 1], post_transform="NONE",
    )  # fmt: skip
    return model(folder, "stump", [node], [("x", T.FLOAT, ["batch", 4])], [("label", T.INT64, ["batch"]), ("p", T.FLOAT, ["batch", 2])])


def softmax(folder):
    values = {"s": np.float32(0.05), "z": np.uint8(128), "so": np.float32(1 / 255), "zo": np.uint8(0)}
    nodes = [
        h.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]), h.make_node("DequantizeLinear", ["a", "s", "z"], ["b"]),
        h.make_node("Softmax", ["b"], ["c"], "the_softmax", axis=-1),
        h.make_node("QuantizeLinear", ["c", "so", "zo"], ["d"]), h.make_node("DequantizeLinear", ["d", "so", "zo"], ["y"]),
    ]  # fmt: skip
    inits = [nh.from_array(value, name) for name, value in values.items()]
    return model(folder, "softmax", nodes, [("x", T.FLOAT, ["batch", 4])], [("y", T.FLOAT, ["batch", 4])], inits)


def beyond(folder):
    """Whole numbers that 64 bits hold and 32 do not."""
    nodes = [h.make_node("Add", ["x", "one"], ["more"]), h.make_node("Mul", ["more", "many"], ["y"])]
    inits = [nh.from_array(np.int64(1), "one"), nh.from_array(np.int64(2_000_000_000), "many")]
    return model(folder, "beyond", nodes, [("x", T.INT64, ["batch"])], [("y", T.INT64, ["batch"])], inits)


FEEDS = {
    "scaler": (scaler, {"x": X}, "tabular"),
    "compress": (compress, {"x": X}, "onnxruntime"),
    "lstm": (lstm, {"x": np.random.default_rng(1).standard_normal((4, 5, 4)).astype(np.float32)}, "onnxruntime"),
    "stump": (stump, {"x": X}, "tabular"),
    "softmax": (softmax, {"x": X}, "onnxruntime"),
}
TYPES = {
    "bool": T.BOOL, "uint8": T.UINT8, "uint16": T.UINT16, "uint32": T.UINT32, "uint64": T.UINT64, "int8": T.INT8, "int16": T.INT16,
    "int32": T.INT32, "int64": T.INT64, "float16": T.FLOAT16, "float32": T.FLOAT, "float64": T.DOUBLE,
}  # fmt: skip


def expected(path, feeds):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return dict(zip([port.name for port in session.get_outputs()], session.run(None, feeds)))


@pytest.fixture(scope="module")
def served(tmp_path_factory, start_engine):
    """Every model of this file, by one engine, and their files."""
    folder = tmp_path_factory.mktemp("onnxruntime")
    paths = {name: make(folder) for name, (make, *_) in FEEDS.items()}
    for name, kind in TYPES.items():
        node = h.make_node("Identity", ["x"], ["y"])
        paths[name] = model(folder, name, [node], [("x", kind, ["n", 2])], [("y", kind, ["n", 2])])
    return paths, start_engine(list(paths.items()), "--ort-lib", LIBRARY)


@pytest.mark.parametrize("name", FEEDS)
def test_what_has_no_plan_is_run_by_another(name, served):
    paths, engine = served
    _, feeds, executor = FEEDS[name]
    with Rest(engine.port) as rest:
        reply = rest.infer(name, feeds)
    assert reply.status == 200, reply.error
    assert reply.headers["lapwing-executor"] == reply.parameters["executor"] == executor
    for output, wanted in expected(paths[name], feeds).items():
        np.testing.assert_allclose(reply.outputs[output], wanted, rtol=1e-5, atol=1e-6, err_msg=output)
    about = engine.json(f"/v2/models/{name}")["parameters"]
    assert (about["executor"], about["device"], about["precision"]) == (executor, "cpu", "fp32")
    assert about["refused"], about


@pytest.mark.parametrize("name", TYPES)
def test_each_datatype_goes_in_and_comes_out_as_it_is(name, served):
    _, engine = served
    kind = onnx.helper.tensor_dtype_to_np_dtype(TYPES[name])
    values = np.array([[0, 1], [2, 100], [7, 3]]).astype(kind)
    datatype = {"bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64"}.get(name, name.upper())
    head = {"inputs": [{"name": "x", "shape": [3, 2], "datatype": datatype, "parameters": {"binary_data_size": values.nbytes}}]}
    # a blank more moves the tensor's bytes: they need not be aligned
    for blanks in range(2):
        text = json.dumps({**head, "parameters": {"binary_data_output": True}}).encode() + b" " * blanks
        headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(text))}
        with Rest(engine.port) as rest:
            rest.connection.request("POST", f"/v2/models/{name}/infer", text + values.tobytes(), headers)
            response = rest.connection.getresponse()
            body = response.read()
        assert response.status == 200, body
        length = int(response.headers["inference-header-content-length"])
        (output,) = json.loads(body[:length])["outputs"]
        assert (output["datatype"], output["shape"]) == (datatype, [3, 2])
        assert body[length:] == values.tobytes()


def run(binary, *args, env=None):
    done = subprocess.run([binary, "engine", *map(str, args)], capture_output=True, text=True, timeout=60, env=env)
    assert "panicked" not in done.stderr + done.stdout, done.stderr
    return done


def test_inspect_says_who_runs_a_model_why_not_the_others_and_which_library(binary, tmp_path):
    said = json.loads(run(binary, "inspect", compress(tmp_path), "--ort-lib", LIBRARY, "--json").stdout)
    library = said["onnxruntime"]
    assert (said["executor"], library["version"], library["path"]) == ("onnxruntime", onnxruntime.__version__, str(LIBRARY))
    assert "CPUExecutionProvider" not in library["unused_providers"]
    assert set(onnxruntime.get_available_providers()) == {"CPUExecutionProvider", *library["unused_providers"]}
    assert [other["executor"] for other in said["not_used"]] == ["tabular", "plan"]
    trees = json.loads(run(binary, "inspect", stump(tmp_path), "--ort-lib", LIBRARY, "--json").stdout)
    assert (trees["executor"], trees["verification"]) == ("tabular", "agrees with ONNX Runtime on generated calls of 1 and 7 rows")
    plan = json.loads(run(binary, "inspect", PLANS / "mlp-3.onnx", "--ort-lib", LIBRARY, "--json").stdout)
    assert (plan["executor"], plan["verification"]) == ("plan", "agrees with ONNX Runtime on generated calls of 1 and 7 rows")
    text = run(binary, "inspect", compress(tmp_path), "--ort-lib", LIBRARY).stdout
    assert "runs by      onnxruntime; no plan for " in text and f"ONNX Runtime {onnxruntime.__version__}, {LIBRARY}" in text, text
    off = run(binary, "inspect", PLANS / "mlp-3.onnx", "--ort-lib", "off").stdout
    assert "ONNX Runtime off" in off and "verified     not compared: " in off, off


def test_a_named_executor_that_answers_wrongly_is_refused(binary, tmp_path):
    done = run(binary, "inspect", beyond(tmp_path), "--ort-lib", LIBRARY, "--executor", "rten")
    assert done.returncode == 1 and "executor: rten cannot run it: rten fails where ONNX Runtime answers: " in done.stderr, done.stderr


@pytest.mark.parametrize("keep", [True, False], ids=["ports of single", "ports of half"])
@pytest.mark.parametrize("name", ["mlp", "encoder", "llama"])
def test_models_of_half_precision_have_plans(name, keep, tmp_path, start_engine):
    """Files as onnxruntime's own converter makes them; without the library, and beside what it answers."""
    path, x = tmp_path / f"{name}.onnx", np.random.default_rng(5).standard_normal((7, 24)).astype(np.float32 if keep else np.float16)
    if name == "mlp":
        fixtures.mlp(path, (24, 48, 5))
        feeds = {"x": x}
    elif name == "encoder":
        fixtures.small_encoder(path)
        feeds = fixtures.padded([np.arange(1, length) for length in (9, 4, 17)])
    else:
        shutil.copy(PLANS / "transformers-5-llama-dynamo.onnx", path)
        feeds = {"input_ids": np.tile(np.arange(1, 12), (3, 1)), "attention_mask": np.ones((3, 11), np.int64)}
    onnx.save(convert_float_to_float16(onnx.load(path), keep_io_types=keep), path)
    engine = start_engine([(name, path)], "--ort-lib", "off")
    with Rest(engine.port) as rest:
        reply = rest.infer(name, feeds)
    assert (reply.status, reply.headers.get("lapwing-executor")) == (200, "plan"), reply.error
    wanted = expected(path, feeds)
    assert reply.outputs.keys() == wanted.keys()
    for output, made in wanted.items():
        got, real = reply.outputs[output], feeds["attention_mask"].astype(bool) if output == "last_hidden_state" else ...
        assert got.dtype == made.dtype == (np.float32 if keep else np.float16)
        np.testing.assert_allclose(got[real].astype(np.float64), made[real].astype(np.float64), rtol=1e-2, atol=1e-2, err_msg=output)
    engine.process.stop()


def test_a_quantised_softmax_is_right_by_rten_too(binary, tmp_path):
    said = json.loads(run(binary, "inspect", softmax(tmp_path), "--ort-lib", LIBRARY, "--executor", "rten", "--json").stdout)
    assert (said["executor"], said["verification"]) == ("rten", "agrees with ONNX Runtime on generated calls of 1 and 7 rows")


def test_a_named_executor_that_cannot_run_a_model_says_why(binary, tmp_path):
    done = run(binary, "inspect", PLANS / "refused-conv.onnx", "--executor", "plan", "--ort-lib", "off")
    assert done.returncode == 1 and "executor: plan cannot run it: the_conv (Conv): " in done.stderr, done.stderr
    listen = ["--listen", f"127.0.0.1:{free_port()}"]
    done = run(binary, "serve", "--model", scaler(tmp_path), "--executor", "onnxruntime", "--ort-lib", "off", *listen)
    assert done.returncode == 64 and "engine.ort_lib" in done.stderr, done.stderr
    # a GPU's provider that the library lacks, and what excludes it
    for options, code, message in [
        ((), 1, r"engine\.ort_lib: engine\.ort_provider is cuda:0, but .* was built without CUDAExecutionProvider; it has .*CPU"),
        (("--executor", "rten"), 64, r"engine\.ort_provider: cuda:0: has no effect while executor is another than auto or onnxruntime"),
        (("--ort-lib", "off"), 64, r"engine\.ort_provider: cuda:0: needs ONNX Runtime, but ort_lib is off"),
    ]:
        library = () if "--ort-lib" in options else ("--ort-lib", LIBRARY)
        done = run(binary, "serve", "--model", PLANS / "mlp-3.onnx", "--ort-provider", "cuda", *library, *options, *listen)
        assert done.returncode == code and re.search(message, done.stderr), done.stderr
    done = run(binary, "bench", PLANS / "mlp-3.onnx", "--ort-provider", "tensorrt:1", "--ort-lib", LIBRARY)
    assert done.returncode > 0 and "engine.ort_provider is tensorrt:1, but " in done.stderr, done.stderr
    done = run(binary, "serve", "--model", scaler(tmp_path), "--executor", "onnxruntime", "--precision", "int8", *listen)
    assert done.returncode == 64 and "needs a plan, but executor is onnxruntime" in done.stderr, done.stderr


def stub(folder, version):
    """A library that has the entry point and says this version."""
    source, path = folder / "stub.cpp", folder / "libonnxruntime.so"
    source.write_text(STUB.format(version=version))
    subprocess.run(["g++", "-shared", "-fPIC", "-o", path, source], check=True)
    return path


def library_of(what, folder):
    if what == "text":
        (folder / "libonnxruntime.so").write_text("no library")
    elif what == "another library":
        (folder / "libonnxruntime.so").write_text("")
        subprocess.run(["g++", "-shared", "-fPIC", "-x", "c++", "/dev/null", "-o", folder / "libonnxruntime.so"], check=True)
    elif what == "cut":
        (folder / "libonnxruntime.so").write_bytes(LIBRARY.read_bytes()[:5000])
    elif what not in ("missing", "empty folder"):
        stub(folder, what)
    return folder if what == "empty folder" else folder / "libonnxruntime.so"


@pytest.mark.parametrize(
    "what, message",
    [
        ("missing", "No such file or directory"),
        ("empty folder", "is a folder without libonnxruntime.so"),
        ("text", "file too short|invalid ELF header"),
        ("cut", r"is cut off: it has 5000 of at least \d+ bytes"),
        ("another library", "does not export OrtGetApiBase"),
        ("1.10.0", r'is ONNX Runtime "1.10.0"; a release from 1.17 on, before 2, is needed'),
        ("2.0.0", r'is ONNX Runtime "2.0.0"; a release from 1.17 on, before 2, is needed'),
        ("1.999.0", "but has no interface of version 17"),
    ],
)  # fmt: skip
def test_a_library_that_cannot_be_used_is_said_with_its_reason(what, message, binary, tmp_path):
    path, listen = library_of(what, tmp_path), ["--listen", f"127.0.0.1:{free_port()}"]
    done = run(binary, "serve", "--model", PLANS / "mlp-3.onnx", "--ort-lib", path, *listen)
    assert done.returncode == 1, done.stderr
    assert re.search(f"engine.ort_lib: {re.escape(str(path))}: .*({message})", done.stderr), done.stderr


def test_a_library_that_is_only_found_is_passed_over_and_said(binary, tmp_path):
    """`ORT_DYLIB_PATH` names one that is too old; the Python environment has a good one."""
    environment = tmp_path / "venv/lib/python3.99/site-packages/onnxruntime/capi"
    environment.mkdir(parents=True)
    shutil.copy(LIBRARY, environment)
    old = stub(tmp_path, "1.10.0")
    env = {**os.environ, "ORT_DYLIB_PATH": str(old), "VIRTUAL_ENV": str(tmp_path / "venv")}
    said = json.loads(run(binary, "inspect", compress(tmp_path), "--json", env=env).stdout)
    library = said["onnxruntime"]
    if library["origin"] != "the loader's path":
        assert (library["origin"], library["path"]) == ("the Python environment", str(environment / LIBRARY.name))
    assert any(reason.startswith(f"{old} (ORT_DYLIB_PATH): is ONNX Runtime \"1.10.0\"") for reason in library["passed_over"]), library
    assert said["executor"] == "onnxruntime"
    # with the old one alone, the model says what is missing for both executors
    bare = {**env, "VIRTUAL_ENV": str(tmp_path / "nothing")}
    done = run(binary, "inspect", compress(tmp_path), env=bare)
    if done.returncode:
        assert "by ONNX Runtime it cannot be run: libonnxruntime.so was not found" in done.stderr and "1.10.0" in done.stderr, done.stderr
