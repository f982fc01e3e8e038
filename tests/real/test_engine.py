"""The engine's answers compared with ONNX Runtime's, over the engine's protocol: random models in every spelling, and named models.

30 random models: most are always the same, the last ones are new in each run. ENGINE_SEED=N repeats the new ones of a run.
"""

import os
import random
import subprocess
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from engine import fixtures
from engine.models import random_model
from engine.reference import Reference, cosines
from engine.served import FORMS, Triton

SEED = int(os.environ.get("ENGINE_SEED") or time.time())
SEEDS = {f"seed{n}": n for n in range(24)} | {f"new{n}": SEED + n for n in range(6)}
GFLOP = 6e9
pytestmark = [pytest.mark.beside, pytest.mark.timeout(600)]


def long(value):
    """A parameter for tests/run --long only: a further case of a test that also has short ones."""
    return pytest.param(value, marks=pytest.mark.long)


# --- random models


@pytest.fixture(scope="module")
def drawn(models_folder, start_engine):
    """The random models by name, and an engine that serves all of them, in batches of up to six calls."""
    models = {name: random_model(random.Random(seed)) for name, seed in SEEDS.items()}
    for name, model in models.items():
        (models_folder / f"{name}.onnx").write_bytes(model.onnx)
    paths = [(name, models_folder / f"{name}.onnx") for name in models]
    return models, start_engine(paths, "--policy", "fixed:6", "--max-wait", "100ms")


def shapes_of(model, rng):
    """(batch, length) of six requests, each small enough for a test."""
    tokens = max(1, int(GFLOP / 2 / (len(model.onnx) / 4)))
    lengths = [257, 1, 2, *(int(np.exp(rng.uniform(0, np.log(257.9)))) for _ in range(3))]
    batches = [1, 33, 17, *(rng.randrange(1, 34) for _ in range(3))]
    return [(max(1, min(batch, tokens // length)), length) for batch, length in zip(batches, lengths)]


@pytest.mark.parametrize("name", [name if name.startswith("new") or seed < 12 else long(name) for name, seed in SEEDS.items()])
def test_a_random_model_answers_as_onnx_runtime_does(name, drawn, models_folder):
    models, engine = drawn
    model, about = models[name], f"seed {SEEDS[name]} {models[name].what}"
    given = Reference(models_folder / f"{name}.onnx")
    feeds = [model.feeds(*shape) for shape in shapes_of(model, random.Random(SEEDS[name]))]
    with Triton("binary", engine.port) as client:
        under_way = [client.begin(name, feed, given.outputs) for feed in feeds]
        answers = [finish() for finish in under_way]
    for feed, (got, said) in zip(feeds, answers):
        why = engine.json(f"/v2/models/{name}")["parameters"]
        assert (said["executor"], said["device"], said["precision"]) == ("plan", "cpu", "fp32"), f"{about} {why}"
        given.check(feed, got, about)
    assert max(said["batch_calls"] for _, said in answers) > 1, (about, "no two of six calls at once were batched")
    for form in ("json", "grpc"):
        with Triton(form, engine.port) as client:
            feed = model.feeds(2, 7)
            got, said = client.infer(name, feed, given.outputs)
            assert said["executor"] == "plan"
            given.check(feed, got, f"{about} {form}")


# --- named models


def tokens_of(feeds):
    """The hidden state without padding: after a short text, padded tokens are ill-conditioned, and ONNX Runtime itself is inexact."""
    return {"last_hidden_state": feeds["attention_mask"].astype(bool)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["minilm", "minilm_decomposed"])
def test_minilm_on_real_sentences(form, name, known, sentences):
    given, engine = known[0][name], known[1]
    feeds = fixtures.padded(sentences)
    with Triton(form, engine.port) as client:
        got, said = client.infer(name, feeds, given.outputs)
        alone = [client.infer(name, fixtures.padded([one]), given.outputs)[0] for one in sentences]
    assert (said["executor"], said["batch_rows"]) == ("plan", len(sentences))
    given.check(feeds, got, kept=tokens_of(feeds))
    assert cosines(got["last_hidden_state"], given(feeds)["last_hidden_state"]).min() > 1 - 1e-6
    # a sentence's embedding is the same alone as padded among others, and close to that of its paraphrase
    means = got["sentence_embedding"]
    assert cosines(np.concatenate([a["sentence_embedding"] for a in alone]), means).min() > 1 - 1e-6
    assert means[0] @ means[1] > 0.7 > 0.2 > means[0] @ means[2]


def test_sentences_asked_at_once_are_batched_and_answered_as_if_alone(known, sentences):
    given, engine = known[0]["minilm"], known[1]
    feeds = [fixtures.padded(group) for group in ([s] for s in sentences * 3)] + [fixtures.padded(sentences[i : i + 3]) for i in range(8)]
    wanted = [given(f) for f in feeds]
    with Triton("binary", engine.port, at_once=len(feeds)) as client:
        answers = [finish() for finish in [client.begin("minilm", feed, given.outputs) for feed in feeds]]
    for feed, r, (got, _) in zip(feeds, wanted, answers):
        given.check(feed, got, wanted=r, kept=tokens_of(feed))
    calls = [said["batch_calls"] for _, said in answers]
    assert max(calls) > 1, calls


def test_no_sequence_is_padded_to_the_length_of_another(known):
    """Short and long sequences at once: only the tokens that were sent are executed."""
    engine = known[1]
    feeds = [fixtures.padded([np.full(length, 2000)]) for length in (10, 400) * 8]

    def tokens():
        return [engine.metric("lapwing_engine_tokens_total", model="minilm", kind=kind) for kind in ("useful", "executed")]

    before = tokens()
    with Triton("binary", engine.port, at_once=len(feeds)) as client:
        said = [finish()[1] for finish in [client.begin("minilm", f, ["sentence_embedding"]) for f in feeds]]
    assert max(one["batch_calls"] for one in said) > 1
    assert [one["padding_waste"] for one in said] == [0] * len(said)
    sent = sum(f["input_ids"].size for f in feeds)
    assert [after - n for n, after in zip(before, tokens())] == [pytest.approx(sent, abs=len(feeds))] * 2


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 8, 32, 33, 257])
@pytest.mark.parametrize("name", ["mlp", "digits"])
def test_ranking_networks(name, batch, known):
    given, engine = known[0][name], known[1]
    (x,) = given.session.get_inputs()
    feeds = {x.name: np.random.default_rng(batch).normal(size=(batch, x.shape[1])).astype(np.float32)}
    with Triton("binary", engine.port) as client:
        got, said = client.infer(name, feeds, given.outputs)
    assert (said["executor"], said["batch_rows"], said["padding_waste"]) == ("plan", batch, 0)
    given.check(feeds, got)


@pytest.mark.parametrize("form", FORMS)
def test_a_model_without_a_plan_is_served_by_rten_and_says_so(form, magika):
    given, engine = magika
    feeds = {"bytes": np.random.default_rng(3).integers(0, 257, (3, 2048), np.int32)}
    with Triton(form, engine.port) as client:
        got, said = client.infer("magika", feeds, given.outputs)
    assert said["executor"] == "rten"
    given.check(feeds, got)
    about = engine.json("/v2/models/magika")
    assert [port["shape"] for port in about["inputs"] + about["outputs"]] == [[-1, 2048], [-1, 214]]
    about = about["parameters"]
    assert about["executor"] == "rten"
    # the node that has no plan is reported by its name in the file
    names = {node.name for node in onnx.load(given.model).graph.node}
    assert any(name and name in about["refused"] for name in names), about


@pytest.mark.parametrize("name", ["minilm", "mlp"])
def test_only_the_outputs_that_are_asked_for(name, known):
    given, engine = known[0][name], known[1]
    feeds = fixtures.padded([np.array([101, 2748, 102])]) if name == "minilm" else {"x": np.ones((2, 512), np.float32)}
    wanted = given(feeds)
    for output in given.outputs:
        with Triton("binary", engine.port) as client:
            result = client.channel.infer(name, client.tensors(feeds), outputs=client.wanted([output])).get_response()
            assert [o["name"] for o in result["outputs"]] == [output]
            got, _ = client.infer(name, feeds, [output])
        given.check(feeds, got, wanted={output: wanted[output]})


def test_a_node_may_have_the_name_of_a_tensor(models_folder, start_engine):
    """In ONNX, nodes and tensors have separate names."""
    product, bias = (h.make_node(op, inputs, [out], name=name) for op, inputs, out, name in (
        ("MatMul", ["x", "weight"], "product", "weight"), ("Add", ["product", "bias"], "y", "bias")))  # fmt: skip
    weights = {"weight": np.eye(4, dtype=np.float32) * 3, "bias": np.arange(4, dtype=np.float32)}
    path = fixtures.save(models_folder / "names.onnx", [product, bias], weights, [("x", T.FLOAT, ["N", 4])], [("y", T.FLOAT, ["N", 4])])
    given, engine, feeds = Reference(path), start_engine([path]), {"x": np.ones((2, 4), np.float32)}
    with Triton("binary", engine.port) as client:
        given.check(feeds, client.infer("names", feeds, ["y"])[0])


# --- 8 bits


def in_8_bits(path):
    """ONNX Runtime's own 8-bit version of a model, by its defaults."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    made = path.with_suffix(".int8.onnx")
    quantize_dynamic(path, made, weight_type=QuantType.QInt8)
    return Reference(made)


@pytest.fixture(scope="module")
def int8(minilm, models_folder, start_engine):
    """(an engine in 8 bits, ONNX Runtime's own 8-bit sessions by model)."""
    paths = {"minilm": minilm, "mlp": fixtures.mlp(models_folder / "mlp.onnx")}
    return start_engine(list(paths.items()), "--precision", "int8"), {name: in_8_bits(path) for name, path in paths.items()}


def test_minilm_in_8_bits_is_as_near_as_onnx_runtimes(int8, known, sentences):
    given, (engine, theirs) = known[0]["minilm"], int8
    feeds = fixtures.padded(sentences)
    exact, other = given(feeds), theirs["minilm"](feeds)
    with Triton("binary", engine.port) as client:
        got, said = client.infer("minilm", feeds, given.outputs)
    assert (said["executor"], said["precision"]) == ("plan", "int8")
    assert not np.array_equal(got["sentence_embedding"], exact["sentence_embedding"]), "this is not 8 bits"
    is_token = feeds["attention_mask"].astype(bool)
    for output in given.outputs:
        kept = (lambda a: a[is_token]) if a_token_each(output) else (lambda a: a)
        mine, his = (cosines(kept(a[output]), kept(exact[output])) for a in (got, other))
        print(f"{output}: cosine at least {mine.min():.5f} (mean {mine.mean():.5f}), ONNX Runtime's {his.min():.5f} ({his.mean():.5f})")
        assert np.isfinite(got[output]).all()
        assert mine.min() >= 0.98, output
        assert mine.min() >= his.min(), output
        assert mine.mean() >= his.mean(), output


def a_token_each(output):
    return output == "last_hidden_state"


def test_ranges_from_a_calibration_are_served(binary, known, minilm, models_folder, sentences, start_engine):
    """`engine quantize` writes the ranges, from other texts than those of the requests."""
    given, ranges, rows = known[0]["minilm"], models_folder / "ranges.json", models_folder / "rows.npz"
    texts = [" ".join(text.split()[::-1]) for text in fixtures.SENTENCES if len(text) > 20]
    np.savez(rows, **fixtures.padded(fixtures.encoded(texts, 48)))
    done = subprocess.run([binary, "engine", "quantize", minilm, "--calibrate", rows, "--output", ranges], capture_output=True, text=True)
    assert done.returncode == 0 and ranges.exists(), done.stdout + done.stderr
    engine = start_engine([("minilm", minilm)], "--precision", "int8", "--calibration", ranges)
    feeds = fixtures.padded(sentences)
    exact = given(feeds)
    with Triton("binary", engine.port) as client:
        got, said = client.infer("minilm", feeds, given.outputs)
    assert said["precision"] == "int8"
    is_token = tokens_of(feeds)["last_hidden_state"]
    for y, r in ((got["sentence_embedding"], exact["sentence_embedding"]), (got["last_hidden_state"][is_token], exact["last_hidden_state"][is_token])):
        print(f"static: cosine at least {cosines(y, r).min():.5f}, mean {cosines(y, r).mean():.5f}")
        assert np.isfinite(y).all() and cosines(y, r).min() >= 0.98


def test_an_mlp_in_8_bits(int8, known):
    given, (engine, theirs) = known[0]["mlp"], int8
    feeds = {"x": np.random.default_rng(0).normal(size=(256, 512)).astype(np.float32)}
    with Triton("binary", engine.port) as client:
        got, said = client.infer("mlp", feeds, given.outputs)
    assert (said["executor"], said["precision"]) == ("plan", "int8")
    exact, other = (a["y"].ravel() for a in (given(feeds), theirs["mlp"](feeds)))
    y = got["y"].ravel()
    # rows of one number: all of them together are a row
    assert cosines(y[None], exact[None]).min() >= 0.98
    assert np.abs(y - exact).max() <= max(np.abs(other - exact).max(), 0.01)


@pytest.mark.parametrize("number", [*range(4), *map(long, range(4, 8))])
def test_a_random_encoder_in_8_bits(number, drawn_in_8_bits, models_folder):
    models, engine = drawn_in_8_bits
    name, model = list(models.items())[number]
    path = models_folder / f"{name}.onnx"
    given, theirs = Reference(path), in_8_bits(path)
    feeds = model.feeds(3, 29)
    exact, other = given(feeds), theirs(feeds)
    with Triton("binary", engine.port) as client:
        got, said = client.infer(name, feeds, given.outputs)
    assert (said["executor"], said["precision"]) == ("plan", "int8")
    for output in given.outputs:
        mine, his = cosines(got[output], exact[output]), cosines(other[output], exact[output])
        about = f"seed {SEEDS[name]} {model.what} {output}: cosine at least {mine.min():.5f}, ONNX Runtime's {his.min():.5f}"
        print(about)
        assert mine.min() >= 0.98, about
        if got[output].shape[-1] >= 32:  # the cosine of a few numbers says nothing
            assert mine.min() >= his.min(), about


@pytest.fixture(scope="module")
def drawn_in_8_bits(drawn, models_folder, start_engine):
    """The first encoders among the random models."""
    models = {name: model for name, model in drawn[0].items() if model.what["kind"] == "encoder"}
    models = dict(list(models.items())[:8])
    return models, start_engine([(name, models_folder / f"{name}.onnx") for name in models], "--precision", "int8")
