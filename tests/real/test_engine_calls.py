"""How the engine handles calls: versions, invalid tensors, deadlines, disconnecting clients, readiness, shutdown, and Lapwing in front."""

import concurrent.futures
import json
import re
import signal
import socket
import threading
import time

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from engine import fixtures
from engine.reference import Reference
from engine.served import FORMS, Rest, Triton, encode
from lapwing import NO_SPANS, Counted
from ports import free_port
from process import wait_for

STAGES = ("preprocessing", "queue", "forward", "postprocessing")
VOCABULARY, POSITIONS = 30522, 512
pytestmark = [pytest.mark.beside, pytest.mark.timeout(300)]


def ids(*shape, low=1000, high=20000, seed=0):
    """MiniLM's inputs, nothing masked."""
    made = np.random.default_rng(seed).integers(low, high, shape)
    return {"input_ids": made, "attention_mask": np.ones(shape, np.int64), "token_type_ids": np.zeros(shape, np.int64)}


@pytest.fixture(scope="module")
def engine(known):
    return known[1]


@pytest.fixture
def rest(engine):
    with Rest(engine.port) as client:
        yield client


# --- names and versions


@pytest.fixture(scope="module")
def versions(models_folder, start_engine):
    """Versions 2, 9 and 10 of a model, with different weights: (the answer of each, the engine)."""
    paths = {v: fixtures.mlp(models_folder / f"v{v}.onnx", (8, 16, 3), seed=v) for v in (2, 9, 10)}
    named = [(f"small@{v}", path) for v, path in paths.items()]
    return {v: Reference(path) for v, path in paths.items()}, start_engine([*named, fixtures.DIGITS])


def test_the_highest_version_is_the_default_and_each_can_be_asked_for(versions):
    references, engine = versions
    feeds = {"x": np.ones((2, 8), np.float32)}
    with Rest(engine.port) as rest:
        for path, version in (("small", 10), ("small/versions/2", 2), ("small/versions/9", 9), ("small/versions/10", 10)):
            reply = rest.infer(path, feeds)
            assert (reply.status, reply.said["model_name"], reply.said["model_version"]) == (200, "small", str(version))
            references[version].check(feeds, reply.outputs, path)
    for form in FORMS:
        with Triton(form, engine.port) as client:
            references[9].check(feeds, client.infer("small", feeds, ["y"], model_version="9")[0], form)
    assert engine.json("/v2/models/small")["versions"] == ["2", "9", "10"]


def test_models_without_a_name_have_that_of_their_file(models_folder, start_engine):
    paths = [fixtures.mlp(models_folder / f"{name}.onnx", (8, 4)) for name in ("one", "two.five", "three-x_y")]
    engine = start_engine(paths)
    for path in paths:
        assert engine.json(f"/v2/models/{path.stem}")["versions"] == ["1"]
        with Rest(engine.port) as rest:
            assert rest.infer(path.stem, {"x": np.ones((1, 8), np.float32)}).status == 200


def test_names_may_hold_dots(models_folder, start_engine):
    path = fixtures.mlp(models_folder / "dotted.onnx", (8, 4))
    engine = start_engine([("all.in@3", path)])
    assert engine.json("/v2/models/all.in")["versions"] == ["3"]


@pytest.mark.parametrize("path, known_names", [("nobody", ["small", "digits"]), ("small/versions/3", ["2", "9", "10"])])
def test_an_unknown_model_or_version_is_not_found_and_the_known_ones_are_named(path, known_names, versions):
    with Rest(versions[1].port) as rest:
        reply = rest.infer(path, {"x": np.ones((1, 8), np.float32)})
    assert reply.status == 404
    assert all(name in reply.error for name in known_names), reply.error


def test_one_name_and_version_twice_is_refused(start_engine):
    engine = start_engine([("a@1", fixtures.DIGITS), ("a@1", fixtures.DIGITS)], wait=False)
    assert engine.process.wait(10) != 0
    assert "a" in engine.process.output() and "twice" in engine.process.output(), engine.process.output()


# --- invalid tensors


def without(feeds, name):
    return {k: v for k, v in feeds.items() if k != name}


BAD = {
    "missing": ("minilm", without(ids(1, 4), "attention_mask"), "attention_mask"),
    "unknown": ("minilm", {**ids(1, 4), "position_ids": np.zeros((1, 4), np.int64)}, "position_ids"),
    "misspelt": ("mlp", {"X": np.ones((1, 512), np.float32)}, "x"),
    "type": ("minilm", {**ids(1, 4), "input_ids": np.ones((1, 4), np.int32)}, "input_ids"),
    "double": ("mlp", {"x": np.ones((1, 512))}, "x"),
    "rank": ("minilm", {**ids(1, 4), "input_ids": np.ones(4, np.int64)}, "input_ids"),
    "width": ("mlp", {"x": np.ones((1, 511), np.float32)}, "x"),
    "lengths apart": ("minilm", {**ids(1, 4), "attention_mask": np.ones((1, 5), np.int64)}, "attention_mask"),
    "rows apart": ("minilm", {**ids(2, 4), "token_type_ids": np.zeros((1, 4), np.int64)}, "token_type_ids"),
    "no rows": ("mlp", {"x": np.ones((0, 512), np.float32)}, "x"),
    "no tokens": ("minilm", ids(1, 0), "input_ids"),
    "id too high": ("minilm", ids(2, 4, low=VOCABULARY, high=VOCABULARY + 1), "input_ids"),
    "id too low": ("minilm", ids(2, 4, low=-VOCABULARY - 1, high=-VOCABULARY), "input_ids"),
    "id beyond any": ("minilm", ids(1, 4, low=2**62, high=2**63 - 1), "input_ids"),
    "type too high": ("minilm", {**ids(1, 4), "token_type_ids": np.full((1, 4), 2)}, "token_type_ids"),
    "more tokens than positions": ("minilm", ids(1, POSITIONS + 1), "input_ids"),
}


@pytest.mark.parametrize("as_bytes", [True, False], ids=["bytes", "json"])
@pytest.mark.parametrize("what", BAD)
def test_a_tensor_that_does_not_fit_is_the_clients_fault_and_named(what, as_bytes, rest):
    model, feeds, named = BAD[what]
    reply = rest.infer(model, feeds, binary=as_bytes)
    assert reply.status == 400, (reply.status, reply.said)
    assert re.search(rf"\b{named}\b", reply.error), reply.error


@pytest.mark.parametrize("what", BAD)
def test_and_so_with_grpc(what, engine):
    model, feeds, named = BAD[what]
    with Triton("grpc", engine.port) as client, pytest.raises(InferenceServerException) as e:
        client.infer(model, feeds, [])
    assert e.value.status() == "StatusCode.INVALID_ARGUMENT", e.value
    assert re.search(rf"\b{named}\b", e.value.message()), e.value


def edited(change):
    """A request for the MLP of one row, changed as JSON."""
    request = {"inputs": [{"name": "x", "shape": [1, 512], "datatype": "FP32", "data": [0.5] * 512}]}
    change(request)
    return json.dumps(request)


@pytest.mark.parametrize(
    "body, named",
    [
        ("", ""),
        ("{", ""),
        ("[]", ""),
        ("{}", "inputs"),
        (edited(lambda r: r["inputs"][0].pop("datatype")), "datatype"),
        (edited(lambda r: r["inputs"][0].pop("data")), "data"),
        (edited(lambda r: r["inputs"][0].update(datatype="FP31")), "datatype"),
        (edited(lambda r: r["inputs"][0].update(shape=[1, -512])), "shape"),
        (edited(lambda r: r["inputs"][0].update(shape=[2**40, 2**40])), "shape"),
        (edited(lambda r: r["inputs"][0].update(shape=[3 << 60, 512])), "shape"),
        (edited(lambda r: r["inputs"][0]["data"].pop()), "data"),
        (edited(lambda r: r["inputs"][0]["data"].append(1)), "data"),
        (edited(lambda r: r["inputs"][0].update(data=["a"] * 512)), "data"),
        (edited(lambda r: r["inputs"].append(r["inputs"][0])), "x"),
        (edited(lambda r: r.update(outputs=[{"name": "z"}])), "z"),
    ],
)
def test_a_body_that_cannot_be_read_is_the_clients_fault(body, named, rest):
    reply = rest.post("/v2/models/mlp/infer", body)
    assert reply.status == 400 and named in reply.error, (reply.status, reply.said)
    assert rest.infer("mlp", {"x": np.ones((1, 512), np.float32)}).status == 200


def test_negative_ids_count_from_the_end_or_are_refused(known):
    """ONNX has Gather count negative indices from the end."""
    given, engine = known[0]["minilm"], known[1]
    feeds = ids(1, 5, low=-VOCABULARY, high=-1)
    with Rest(engine.port) as rest:
        reply = rest.infer("minilm", feeds)
    if reply.status == 400:
        assert "input_ids" in reply.error
    else:
        given.check(feeds, reply.outputs)


# --- invalid calls in a batch


def test_bad_calls_among_good_ones_harm_nobody(known):
    """All at once, so that they wait together: an id out of range or a NaN in a row is an error for its sender only."""
    references, engine = known
    good = [ids(1 + n % 3, 5 + 7 * n, seed=n) for n in range(12)]
    wanted = [references["minilm"](feeds) for feeds in good]
    bad = [ids(1, 9 + n, low=VOCABULARY, high=2 * VOCABULARY) for n in range(6)]
    rows = [{"x": np.random.default_rng(n).normal(size=(4, 512)).astype(np.float32)} for n in range(8)]
    poisoned = {"x": np.full((4, 512), np.nan, np.float32)}
    asked = [("minilm", feeds) for feeds in [f for pair in zip(good, bad + good[6:]) for f in pair]]
    asked += [("mlp", feeds) for row in rows for feeds in (row, poisoned)]

    def ask(one):
        with Rest(engine.port) as rest:
            return rest.infer(*one)

    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        for (model, feeds), reply in zip(asked, pool.map(ask, asked)):
            if any(feeds is one for one in bad):
                assert reply.status == 400 and "input_ids" in reply.error, reply.said
            elif feeds is poisoned:
                assert reply.status == 200 and np.isnan(reply.outputs["y"]).all()
            else:
                assert reply.status == 200, reply.said
                place = next((i for i, one in enumerate(good) if one is feeds), None)
                references[model].check(feeds, reply.outputs, wanted=None if place is None else wanted[place])


def test_an_output_that_json_cannot_say_is_a_failure_that_names_it(rest):
    reply = rest.infer("mlp", {"x": np.full((1, 512), np.nan, np.float32)}, outputs=["y"])
    assert reply.status == 200 and np.isnan(reply.outputs["y"]).all()
    request = encode({"x": np.full((1, 512), np.nan, np.float32)}, parameters={"binary_data_output": False})
    reply = rest.post("/v2/models/mlp/infer", request[1], request[0])
    assert reply.status == 500 and "y" in reply.error, reply.said


# --- time


def busy(engine, seconds=10):
    """Keeps the engine busy from another thread; ends by itself or when the event is set."""
    over, feeds = threading.Event(), ids(32, 128)

    def run():
        end = time.monotonic() + seconds
        with Rest(engine.port) as rest:
            while time.monotonic() < end and not over.is_set():
                assert rest.infer("minilm", feeds, outputs=["sentence_embedding"]).status == 200

    threading.Thread(target=run, daemon=True).start()
    return over


def test_a_deadline_that_passes_in_the_queue_is_said(engine):
    over = busy(engine)
    try:
        wait_for(lambda: engine.metric("lapwing_engine_requests_in_flight", model="minilm") > 0, 10, "the engine is busy")
        with Rest(engine.port) as rest:
            late = rest.infer("minilm", ids(1, 8), parameters={"timeout": 2000})
        assert (late.status, "deadline" in late.error) == (504, True), late.said
        with Triton("grpc", engine.port) as client, pytest.raises(InferenceServerException) as e:
            client.infer("minilm", ids(1, 8), [], timeout=2000)
        assert e.value.status() == "StatusCode.DEADLINE_EXCEEDED" and "deadline" in e.value.message(), e.value
        with Rest(engine.port) as rest:
            assert rest.infer("minilm", ids(1, 8), parameters={"timeout": 60_000_000}).status == 200
    finally:
        over.set()
    assert engine.metric("lapwing_engine_requests_total", model="minilm", outcome="deadline") >= 2


def test_a_client_that_goes_away_harms_nobody(known):
    given, engine = known[0]["minilm"], known[1]
    headers, body = encode(ids(8, 128))
    head = "".join(f"{k}: {v}\r\n" for k, v in {**headers, "host": "engine", "content-length": len(body)}.items())
    for sent in (len(body), len(body) // 2, 0):
        for _ in range(4):
            with socket.create_connection(("127.0.0.1", engine.port), 10) as gone:
                gone.sendall(f"POST /v2/models/minilm/infer HTTP/1.1\r\n{head}\r\n".encode() + body[:sent])
    feeds = ids(3, 20)
    with Rest(engine.port) as rest:
        reply = rest.infer("minilm", feeds)
        assert reply.status == 200
        given.check(feeds, reply.outputs)
    wait_for(lambda: engine.metric("lapwing_engine_requests_in_flight", model="minilm") == 0, 30, "nothing is in flight")


def test_a_full_queue_says_when_to_come_again(minilm, start_engine):
    engine = start_engine([("minilm", minilm)], "--queue", 2, "--max-batch-calls", 1)
    asked, replies = [ids(8, 128, seed=n) for n in range(12)], []

    def ask(feeds):
        with Rest(engine.port) as rest:
            replies.append(rest.infer("minilm", feeds, outputs=["sentence_embedding"]))

    threads = [threading.Thread(target=ask, args=(feeds,)) for feeds in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = sorted(reply.status for reply in replies)
    assert set(statuses) == {200, 429} and statuses.count(200) >= 2, statuses
    for reply in replies:
        if reply.status == 429:
            assert int(reply.headers["retry-after"]) >= 1 and "queue" in reply.error
    assert engine.metric("lapwing_engine_requests_total", outcome="full") == statuses.count(429)


# --- start and shutdown


def test_it_is_not_ready_before_it_is_warm_and_takes_calls_then(minilm, start_engine):
    engine = start_engine([("minilm", minilm), ("mlp", minilm.parent / "mlp.onnx")], wait=False)
    seen = set()
    with Rest(engine.port) as rest:

        def ready():
            assert engine.process.is_running(), engine.process.output()
            status = engine.get("/v2/health/ready")[0]
            seen.add(status)
            if status == 503:
                # a call before that gets no answer, or a correct one
                seen.add(("infer", rest.infer("minilm", ids(1, 4)).status))
            return status == 200

        wait_for(ready, 120, "the engine is ready", 0.01)
        assert rest.infer("minilm", ids(1, 4)).status == 200
    assert {s for s in seen if isinstance(s, int)} <= {0, 503, 200}, seen
    assert {s[1] for s in seen if isinstance(s, tuple)} <= {200, 503}, seen
    assert [engine.get(f"/v2/models/{m}/ready")[0] for m in ("minilm", "mlp")] == [200, 200]
    assert engine.metric("lapwing_engine_ready") == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_it_answers_what_it_has_taken_before_it_ends(number, known, minilm, start_engine):
    given = known[0]["minilm"]
    engine = start_engine([("minilm", minilm)])
    asked = [ids(4, 64 + n, seed=n) for n in range(12)]
    wanted, replies = [given(feeds) for feeds in asked], {}

    def ask(n):
        with Rest(engine.port) as rest:
            replies[n] = rest.infer("minilm", asked[n])

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(len(asked))]
    for thread in threads:
        thread.start()
    wait_for(lambda: engine.metric("lapwing_engine_requests_in_flight") == len(asked) - len(replies), 10, "all are in flight", 0.005)
    engine.process.send(number)
    for thread in threads:
        thread.join()
    assert engine.process.wait(30) == 0, engine.process.output()
    for n, feeds in enumerate(asked):
        assert replies[n].status == 200, replies[n].said
        given.check(feeds, replies[n].outputs, wanted=wanted[n])


# --- metadata of answers


@pytest.mark.parametrize("executor", ["plan", "rten"])
def test_every_answer_has_its_stages_and_who_ran_it(executor, engine, request):
    model, feeds = ("minilm", ids(2, 16)) if executor == "plan" else ("magika", {"bytes": np.zeros((1, 2048), np.int32)})
    port = engine.port if executor == "plan" else request.getfixturevalue("magika")[1].port
    with Rest(port) as rest:
        begun = time.monotonic()
        reply = rest.infer(model, feeds)
        took_ms = 1e3 * (time.monotonic() - begun)
    assert reply.status == 200
    assert reply.headers["lapwing-executor"] == reply.parameters["executor"] == executor
    stages = reply.stages()
    assert set(stages) == set(STAGES), reply.headers["server-timing"]
    assert all(ms >= 0 for ms in stages.values()) and 0 < stages["forward"] <= sum(stages.values()) <= took_ms
    assert (reply.parameters["batch_calls"], reply.parameters["batch_rows"]) == (1, len(next(iter(feeds.values()))))


def test_padding_is_counted(rest):
    feeds = ids(2, 40)
    feeds["attention_mask"][1, 10:] = 0
    reply = rest.infer("minilm", feeds)
    assert reply.parameters["padding_waste"] == pytest.approx(30 / 80, abs=1e-6)
    # six layers: products of 384 × (4 × 384 + 2 × 1536) per token, attention of 4 × 384 per pair of tokens
    flops = lambda lengths: sum(6 * (2 * n * 384 * 12 * 384 + 4 * 384 * n * n) for n in lengths)  # noqa: E731
    assert (reply.parameters["batch_flops"], reply.parameters["batch_useful_flops"]) == (flops([40, 40]), flops([40, 10]))


@pytest.mark.parametrize("form", FORMS)
def test_lapwing_before_the_engine_shows_its_stages(form, known, start_lapwing):
    """Through Server-Timing alone, without spans or polling."""
    given, engine = known[0]["minilm"], known[1]
    lapwing = start_lapwing(f"{'h2c' if form == 'grpc' else 'http'}://127.0.0.1:{engine.port}", env=NO_SPANS)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    asked = [ids(2, 10 + n, seed=n) for n in range(8)]
    with Counted(lapwing, len(asked)) as counted, Triton(form, lapwing.port) as client:
        for feeds in asked:
            given.check(feeds, client.infer("minilm", feeds, given.outputs)[0])
    assert counted.outcomes == {"ok": len(asked)}
    exchanges = lapwing.exchanges()
    assert len(exchanges) == len(asked)
    for exchange in exchanges:
        assert (exchange["model"], exchange["work"]["row"]["amount"]) == ("minilm", 2)
        stages = {s["stage"]: s for s in exchange["stages"] if s["source"] == "reported"}
        assert set(STAGES) <= set(stages), exchange["stages"]
    # how much of the window they cover is a matter of who else runs here: of one of them it is most
    assert max(exchange["coverage"] for exchange in exchanges) > 0.5, exchanges
    (series,) = [s for s in lapwing.series() if s["model"] == "minilm"]
    assert set(STAGES) <= set(series["stages"]), series["stages"].keys()


def test_the_engine_beside_the_proxy_is_the_upstream_where_no_other_is_named(known, minilm, start_lapwing):
    port = free_port()
    engine = {"LAPWING_ENGINE__MODEL": str(minilm), "LAPWING_ENGINE__LISTEN": f"127.0.0.1:{port}", "LAPWING_ENGINE__THREADS": "1"}
    lapwing = start_lapwing(None, env=NO_SPANS | engine)
    # its weights take longer to warm than the admin server to start
    status, _, reason = lapwing.get("/readyz")
    assert (status, b"is not ready" in reason) == (503, True), reason
    wait_for(lapwing.is_ready, 60, "the engine's model is warm")
    given, feeds = known[0]["minilm"], ids(2, 16)
    with Counted(lapwing, 1) as counted, Rest(lapwing.port) as client:
        reply = client.infer(minilm.stem, feeds)
        assert reply.status == 200, reply.said
        given.check(feeds, reply.outputs)
    assert counted.outcomes == {"ok": 1}
    (exchange,) = lapwing.exchanges()
    assert set(STAGES) <= {s["stage"] for s in exchange["stages"] if s["source"] == "reported"}
    lapwing.process.send(signal.SIGTERM)
    assert lapwing.process.wait(30) == 0, lapwing.process.output()
