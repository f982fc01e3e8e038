"""GPU settings on a machine without a GPU: missing or failing drivers, and the emulated device compared with ONNX Runtime.

The emulated device runs the kernels' own sources on the processor (tests/gpu); all in front of it is what a GPU gets.
"""

import json
import os
import re
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from onnxruntime.transformers.float16 import convert_float_to_float16

from engine import fixtures, gpu
from engine.reference import Reference
from engine.served import Engine, Rest
from lapwing import NO_SPANS
from ports import free_port
from process import wait_for

PLANS = gpu.ROOT / "tests/fixtures/plans"
CONV, NODE = PLANS / "refused-conv.onnx", "the_conv (Conv): the plan has no such operator"
EMULATED = "lapwing-emulated"
# for each: the folder, the message, the counted reason
DRIVERS = {
    "none": (None, "no driver: libcuda.so.1 was not found", "no_driver"),
    "cuInit fails": ("stub-mismatch", "driver: cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)", "device"),
    "no device": ("stub-no-device", "no device", "no_device"),
    "too old": ("stub-old-version", "driver 11.0 is too old: 12.0 or newer is needed", "old_driver"),
}
PRECISIONS = list(gpu.LIMITS)
SHORT_PRECISIONS = [pytest.param(one, marks=[pytest.mark.long] if one == "tf32" else []) for one in PRECISIONS]
pytestmark = [pytest.mark.beside, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def drivers(binary, tmp_path_factory):
    """All stub drivers, and the emulated device's cublasLt."""
    return gpu.built(binary, tmp_path_factory.mktemp("drivers"))


@pytest.fixture(scope="module")
def fakes(drivers, tmp_path_factory):
    """The emulated device alone, on which only Lapwing's own kernels run."""
    folder = tmp_path_factory.mktemp("fakes")
    shutil.copy(drivers / "libcuda.so.1", folder)
    return folder


@pytest.fixture(scope="module")
def mlp(models_folder):
    return fixtures.mlp(models_folder / "mlp_gpu.onnx")


@pytest.fixture(scope="module")
def encoder(models_folder):
    """An encoder of MiniLM's size, except for its vocabulary."""
    return fixtures.encoder(models_folder / "encoder_gpu.onnx", fixtures.random_weights(384, 6), 32)


@pytest.fixture(params=DRIVERS)
def driver(request, drivers):
    """(arguments, the message, the reason)."""
    folder, said, reason = DRIVERS[request.param]
    if folder is None and gpu.has_driver():
        pytest.skip("this machine has a driver")
    return ["--cuda-lib-dir", drivers / folder] if folder else [], said, reason


def run(binary, *args):
    done = subprocess.run([binary, "engine", *map(str, args)], capture_output=True, text=True, timeout=60)
    assert "panicked" not in done.stderr + done.stdout, done.stderr
    return done


def serve(binary, model, *args):
    return run(binary, "serve", "--model", model, "--listen", f"127.0.0.1:{free_port()}", *args)


def rows_of(batch):
    return {"x": np.random.default_rng(batch).normal(size=(batch, fixtures.MLP_WIDTHS[0])).astype(np.float32)}


def tokens(*lengths):
    rng = np.random.default_rng(sum(lengths))
    return fixtures.padded([rng.integers(1, 1000, length) for length in lengths])


# --- missing and failing drivers


def test_cuda_fails_at_the_start_and_says_why(driver, binary, mlp):
    args, said, _ = driver
    done = serve(binary, mlp, "--device", "cuda", *args)
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"engine.device: cuda:0: {said}"), done.stderr


def test_auto_serves_on_the_processor_and_says_why(driver, start_engine, mlp):
    args, said, reason = driver
    engine = start_engine([("mlp", mlp), ("conv", CONV)], "--device", "auto", *args)
    for name, executor in (("mlp", "plan"), ("conv", "rten")):
        about = engine.json(f"/v2/models/{name}")["parameters"]
        assert (about["device"], about["executor"], about["fallback"]) == ("cpu", executor, f"{reason}: {said}")
        assert "device_name" not in about and "fault" not in about
        counted = [engine.metric("lapwing_engine_fallback_total", model=name, **more) for more in ({}, {"reason": reason})]
        assert counted == [1, 1]
        assert engine.metric("lapwing_engine_device_info", model=name, device="cpu", precision="fp32") == 1
    lines = [line for line in engine.process.output().splitlines() if said in line and f'reason="{reason}"' in line]
    # most machines have no driver
    assert len(lines) == (1 if reason == "no_driver" else 2), engine.process.output()
    assert all(("INFO" if reason == "no_driver" else "WARN") in line for line in lines)
    assert "panicked" not in engine.process.output()
    given, feeds = Reference(mlp), rows_of(3)
    with Rest(engine.port) as client:
        reply = client.infer("mlp", feeds)
    assert (reply.parameters["device"], reply.parameters["precision"]) == ("cpu", "fp32")
    given.check(feeds, reply.outputs)


def test_statistics_say_where_a_model_runs_and_why(driver, start_lapwing, mlp):
    args, said, reason = driver
    env = {"LAPWING_ENGINE__MODEL": str(mlp), "LAPWING_ENGINE__LISTEN": f"127.0.0.1:{free_port()}", "LAPWING_ENGINE__DEVICE": "auto"}
    if args:
        env["LAPWING_ENGINE__CUDA_LIB_DIR"] = str(args[1])
    lapwing = start_lapwing(None, env=NO_SPANS | env)
    wait_for(lapwing.is_ready, 60, "the model is warm")
    (one,) = lapwing.stats()["engine"]["models"]
    assert (one["device"], one["device_name"], one["precision"], one["ready"]) == ("cpu", None, "fp32", True)
    assert one["fallback"] == {"reason": reason, "told": said} and one["fault"] is None
    lapwing.process.stop()


def test_a_benchmark_of_a_device_that_is_not_there_prints_no_row(driver, binary, mlp):
    args, _, _ = driver
    done = run(binary, "bench", mlp, "--device", "cuda", "--json", "--seconds", "0.1", *args)
    assert done.returncode > 0 and done.stdout == "", done.stdout
    assert "cuda:0" in done.stderr, done.stderr


def test_libraries_are_looked_for_in_a_folder_that_is_there(binary, mlp):
    done = serve(binary, mlp, "--device", "cuda", "--cuda-lib-dir", "/no/such/folder")
    assert done.returncode > 0 and "engine.cuda_lib_dir: /no/such/folder" in done.stderr, done.stderr


@pytest.mark.skipif(gpu.has_driver(), reason="this machine has a driver")
def test_a_file_that_is_no_library_is_named(binary, mlp, tmp_path):
    (tmp_path / "libcuda.so.1").write_bytes(b"no library")
    done = serve(binary, mlp, "--device", "cuda", "--cuda-lib-dir", tmp_path)
    assert done.returncode == 1 and f"{tmp_path}/libcuda.so.1 cannot be loaded" in done.stderr, done.stderr


# --- the emulated device


def on(fakes):
    """Warm-up runs sizes up to a batch's: 128 tokens of an encoder take the emulated device half a minute."""
    return ["--device", "cuda", "--cuda-lib-dir", fakes, "--max-batch-tokens", "16"]


@pytest.fixture(scope="module", params=SHORT_PRECISIONS)
def on_device(request, fakes, mlp, encoder, binary, logs):
    """(precision, an engine on the emulated device with the references of its models)."""
    models = [("mlp", mlp), ("encoder", encoder)]
    engine = Engine(binary, logs, models, *on(fakes), "--precision", request.param)
    yield request.param, engine.wait_ready(), {name: Reference(path) for name, path in models}
    engine.process.stop()


@pytest.mark.parametrize("model,feeds", [
    ("mlp", rows_of(1)), ("mlp", rows_of(32)), ("mlp", rows_of(7)), ("encoder", tokens(16)), ("encoder", tokens(9, 2, 5)),
], ids=["mlp 1", "mlp 32", "mlp 7", "encoder 1x16", "encoder of three lengths"])  # fmt: skip
def test_answers_are_those_of_onnx_runtime(model, feeds, on_device):
    precision, engine, given = on_device
    with Rest(engine.port) as client:
        reply = client.infer(model, feeds)
    assert reply.status == 200, reply.error
    said = reply.parameters
    assert (said["executor"], said["device"], said["precision"]) == ("plan", "cuda:0", precision)
    wanted = given[model](feeds)
    assert reply.outputs.keys() == wanted.keys()
    for name, y in reply.outputs.items():
        # after six layers in tf32, the error of single elements of the hidden state slightly exceeds their size
        by_greatest = name == "last_hidden_state" and precision == "tf32"
        share = gpu.share(kept(y, name, feeds), kept(wanted[name], name, feeds), precision, by_greatest)
        assert share <= 1, f"{name}: {share:.2f} times what is allowed"


def kept(array, name, feeds):
    """The part of an output that is compared: hidden states without padding."""
    return array[feeds["attention_mask"].astype(bool)] if name == "last_hidden_state" else array


def test_where_a_model_runs_is_said(on_device):
    precision, engine, _ = on_device
    for model in ("mlp", "encoder"):
        about = engine.json(f"/v2/models/{model}")["parameters"]
        assert (about["device"], about["device_name"], about["precision"]) == ("cuda:0", EMULATED, precision)
        assert "fallback" not in about
        labels = {"model": model, "device": "cuda:0", "name": EMULATED, "precision": precision}
        assert engine.metric("lapwing_engine_device_info", **labels) == 1
        assert engine.metric("lapwing_engine_fallback_total", model=model) == 0


def test_minilm_on_real_sentences(fakes, minilm, sentences, start_engine):
    engine, given = start_engine([("minilm", minilm)], *on(fakes), "--precision", "fp16"), Reference(minilm)
    feeds = fixtures.padded([s for s in sentences if len(s) < 16])
    with Rest(engine.port) as client:
        reply = client.infer("minilm", feeds, outputs=["sentence_embedding"])
    assert reply.parameters["device"] == "cuda:0" and reply.outputs.keys() == {"sentence_embedding"}
    assert gpu.share(reply.outputs["sentence_embedding"], given(feeds)["sentence_embedding"], "fp16") <= 1
    engine.process.stop()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_file_of_half_precision_runs_there_too(precision, fakes, mlp, tmp_path, start_engine):
    path = tmp_path / "half.onnx"
    onnx.save(convert_float_to_float16(onnx.load(mlp)), path)
    engine, feeds = start_engine([("half", path)], *on(fakes), "--precision", precision), {"x": rows_of(5)["x"].astype(np.float16)}
    with Rest(engine.port) as client:
        reply = client.infer("half", feeds)
    assert (reply.status, reply.parameters["device"], reply.parameters["executor"]) == (200, "cuda:0", "plan"), reply.error
    wanted = Reference(path)(feeds)["y"]
    assert reply.outputs["y"].dtype == wanted.dtype == np.float16
    assert gpu.share(reply.outputs["y"], wanted, "fp16") <= 1
    engine.process.stop()


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_products_by_cublaslt_are_right_too(precision, drivers, models_folder, start_engine):
    """With the library, each product is computed by whichever was faster when its size was first used."""
    path = fixtures.small_encoder(models_folder / "small_gpu.onnx", layers=1)
    engine = start_engine([("small", path)], *on(drivers), "--precision", precision, "--log", "info,lapwing=debug")
    feeds = tokens(16, 9)
    with Rest(engine.port) as client:
        reply = client.infer("small", feeds)
    wanted = Reference(path)(feeds)
    for name, y in reply.outputs.items():
        assert gpu.share(kept(y, name, feeds), kept(wanted[name], name, feeds), precision) <= 1, name
    engine.process.stop()
    assert "times of a product" in engine.process.output()


def test_without_cublaslt_our_own_kernels_do_all_products(drivers, mlp, tmp_path, start_engine):
    shutil.copy(drivers / "libcuda.so.1", tmp_path)
    (tmp_path / "libcublasLt.so.12").write_bytes(b"no library")
    engine = start_engine([("mlp", mlp)], *on(tmp_path))
    feeds = rows_of(32)
    with Rest(engine.port) as client:
        reply = client.infer("mlp", feeds)
    assert reply.parameters["device"] == "cuda:0"
    assert gpu.share(reply.outputs["y"], Reference(mlp)(feeds)["y"], "fp32") <= 1
    engine.process.stop()
    (line,) = [line for line in engine.process.output().splitlines() if "cannot be loaded" in line]
    assert "products run on Lapwing's own kernels" in line and f"{tmp_path}/libcublasLt.so.12" in line


@pytest.mark.parametrize("model", ["mlp", "encoder"])
def test_a_request_is_one_launch_of_a_graph(model, fakes, models_folder, tmp_path, start_engine, mlp):
    """By the emulated driver's log of calls: nothing is allocated, loaded or captured while requests are answered."""
    path = mlp if model == "mlp" else fixtures.small_encoder(models_folder / "small_gpu.onnx")
    trace = tmp_path / "trace"
    engine = start_engine([(model, path)], *on(fakes), env=os.environ | {"FAKE_TRACE": str(trace)})
    feeds = rows_of(1) if model == "mlp" else tokens(16)
    with Rest(engine.port) as client:
        first = client.infer(model, feeds).outputs
        before = len(trace.read_text().splitlines())
        for _ in range(50):
            again = client.infer(model, feeds).outputs
            assert all((again[name] == first[name]).all() for name in first)
    engine.process.stop()
    # calls at the end of the process belong to no request
    lines = trace.read_text().splitlines()[before:]
    launches = [at for at, line in enumerate(lines) if line.startswith("graph launch ")]
    asked = lines[: launches[-1] + 1]
    assert len(launches) == 50 and len({lines[at] for at in launches}) == 1, asked[:9]
    assert not [line for line in asked if not re.match(r"graph launch |sync (stream|event)$", line)], asked[:9]


def test_cuda_fails_at_the_start_with_the_node_that_it_does_not_take(fakes, binary):
    done = serve(binary, CONV, *on(fakes))
    assert done.returncode == 1 and NODE in done.stderr and "device" in done.stderr, done.stderr


def test_auto_never_chooses_the_emulated_device(fakes, mlp, start_engine):
    engine = start_engine([("mlp", mlp), ("conv", CONV)], "--device", "auto", "--cuda-lib-dir", fakes)
    for name in ("mlp", "conv"):
        about = engine.json(f"/v2/models/{name}")["parameters"]
        assert about["device"] == "cpu" and about["fallback"].startswith(f"emulated: cuda:0 is {EMULATED}"), about
        assert engine.metric("lapwing_engine_fallback_total", model=name, reason="emulated") == 1
    about = engine.json("/v2/models/conv")["parameters"]
    assert (about["executor"], about["refused"]) == ("rten", NODE)


def test_a_benchmark_refuses_the_emulated_device_by_its_name(fakes, binary, mlp):
    done = run(binary, "bench", mlp, "--json", "--seconds", "0.1", "--device", "cuda", "--cuda-lib-dir", fakes)
    assert done.returncode > 0 and done.stdout == "", done.stdout
    assert EMULATED in done.stderr, done.stderr


def test_a_device_that_is_not_there_by_its_number(fakes, binary, mlp):
    done = serve(binary, mlp, "--device", "cuda:1", "--cuda-lib-dir", fakes)
    assert done.returncode == 1 and "engine.device: cuda:1: device 1: there is 1" in done.stderr, done.stderr


def test_a_device_that_fails_ends_its_model(fakes, mlp, start_lapwing):
    """Only with `cuda:N`. With `auto` the model would move, but `auto` never chooses this device: tests/gpu/faults.rs."""
    env = {"LAPWING_ENGINE__MODEL": str(mlp), "LAPWING_ENGINE__LISTEN": f"127.0.0.1:{free_port()}", "LAPWING_ENGINE__DEVICE": "cuda"}
    env |= {"LAPWING_ENGINE__CUDA_LIB_DIR": str(fakes), "FAKE_FAULT": "launch:100"}
    lapwing = start_lapwing(None, env=NO_SPANS | env)
    wait_for(lapwing.is_ready, 60, "the model is warm")
    with Rest(lapwing.port) as client:
        replies = [client.infer(mlp.stem, rows_of(1)) for _ in range(100)]
    statuses = [reply.status for reply in replies]
    assert set(statuses) == {200, 503} and statuses == sorted(statuses), statuses
    assert "cuda:0" in replies[-1].error and "CUDA_ERROR_ILLEGAL_ADDRESS" in replies[-1].error, replies[-1].error
    status, _, reason = lapwing.get("/readyz")
    assert status == 503 and mlp.stem.encode() in reason, reason
    (one,) = lapwing.stats()["engine"]["models"]
    assert (one["device"], one["ready"], one["fallback"]) == ("cuda:0", False, None)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in one["fault"]
    assert lapwing.process.output().count("the device failed") == 1
    lapwing.process.stop()


# --- what a GPU would run


def planned(binary, model, precision, *shape):
    done = run(binary, "inspect", model, "--plan", "--json", "--device", "cuda", "--precision", precision, *shape)
    assert done.returncode == 0, done.stderr
    about = json.loads(done.stdout)
    assert (about["device"], about["precision"], about["graph_launches"]) == ("cuda", precision, 1)
    # every node has a kernel, in the plan's order
    nodes = [launch["node"] for launch in about["launches"]]
    assert nodes == sorted(nodes) and set(nodes) == set(range(len(about["nodes"])))
    return about["launches"]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("batch", [1, 8, 32])
def test_the_mlp_is_three_kernels(batch, precision, binary, mlp):
    launches = planned(binary, mlp, precision, "--batch", batch)
    kernels = [launch["kernel"] for launch in launches]
    # in 8 bits, the rows of each product of many rows are quantised before; the last one, of one column, is computed in half precision
    bytes_made = 2 if precision == "int8" and batch > 8 else 0
    assert kernels.count("quantize_rows") == bytes_made and len(kernels) - bytes_made == 3, kernels


@pytest.mark.parametrize("precision", ["fp32", pytest.param("tf32", marks=pytest.mark.long), "fp16"])
@pytest.mark.parametrize("shape", [(1, 16), pytest.param((32, 128), marks=pytest.mark.long)])
@pytest.mark.parametrize("file", ["minilm.onnx", "minilm_decomposed.onnx"])
def test_minilm_is_46_kernels(file, shape, precision, binary, minilm, models_folder):
    path = models_folder / file
    if not path.exists():
        fixtures.minilm(path, norm_as_op=False)
    launches = planned(binary, path, precision, "--batch", shape[0], "--length", shape[1])
    kernels = [launch["kernel"] for launch in launches]
    assert len(kernels) <= 46, kernels
    # a layer: from its attention to the next layer's
    begins = [at for at, name in enumerate(kernels) if name.startswith("attention")]
    assert len(begins) == 6 and max(np.diff(begins)) <= 7, kernels


def test_what_a_gpu_does_not_take_is_named(binary):
    done = run(binary, "inspect", CONV, "--plan", "--json", "--device", "cuda")
    assert done.returncode > 0 and done.stdout == "" and NODE in done.stderr, done.stderr
