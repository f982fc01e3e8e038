"""Lapwing looks features up and writes them into requests (`hydrate`): a real Redis, a FastAPI server that takes features and has none,
and Feast with its Redis and its feature server. Judged are the bytes that the server gets, answers, refusals, deadlines, and the stage.
"""

import gzip
import http.client
import json
import os
import signal
import struct
import sys
import time

import pytest
import redis

from conftest import HERE
from lapwing import NO_SPANS
from ports import free_port
from process import wait_for, wait_listening

pytestmark = [pytest.mark.beside, pytest.mark.timeout(180)]
ROOT = HERE.parents[1]
V2 = "/v2/models/fraud/infer"
V1 = "/v1/models/fraud:predict"
LATE_S = 0.2
"""How much later than its deadline an answer may be on a machine that does much else. What is slow here stands still for good."""


@pytest.fixture(scope="module")
def store(processes, tmp_path_factory):
    """A Redis of this module's own, which may be made to stand still."""
    port = free_port()
    process = processes("redis", ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path_factory.mktemp("redis"))])
    wait_listening(port)
    client = redis.Redis(port=port)
    client.hset("user:7", mapping={"trips": "5", "rate": "0.5"})
    client.hset("user:8", mapping={"trips": " 2 ", "rate": "1e-1"})
    client.hset("user:9", mapping={"trips": "1"})
    client.set("Zoë/packed", struct.pack("<2f", 3, 0.25))
    process.port = port
    return process


@pytest.fixture(scope="module")
def model(processes):
    port = free_port()
    processes("hydrated_app", [sys.executable, str(HERE / "servers/hydrated_app.py"), str(port)])
    wait_listening(port, 60)
    return port


def rule(redis_at, **other):
    return {
        "match": {"route": "POST /v2/*"},
        "entity": [{"name": "user", "tensor": "user"}],
        "store": {"kind": "redis", "url": f"redis://127.0.0.1:{redis_at.port}", "key": "user:{user}"},
        "features": [{"name": "trips", "default": -1}, {"name": "rate", "default": 0.5}],
        "into": {"tensor": "features"},
        "deadline": "1s",
        **other,
    }


def v1(redis_at, **other):
    entity, into = [{"name": "user", "pointer": "/instances/*/user"}], {"pointer": "/instances/*/features"}
    return rule(redis_at, **{"match": {"route": "POST /v1/*"}, "entity": entity, "into": into, **other})


@pytest.fixture
def start(start_lapwing, model, tmp_path):
    def begin(*rules):
        config = tmp_path / "lapwing.yaml"
        config.write_text(json.dumps({"upstream": f"http://127.0.0.1:{model}", "hydrate": rules}))
        return start_lapwing(None, config=config, env=NO_SPANS)

    return begin


def ask(port, path, body, **headers):
    """(status, headers, answer, seconds, trace)"""
    trace = os.urandom(16).hex()
    headers = {"content-type": "application/json", "traceparent": f"00-{trace}-{os.urandom(8).hex()}-00", **headers}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    began = time.perf_counter()
    connection.request("POST", path, body.encode() if isinstance(body, str) else body, headers)
    response = connection.getresponse()
    answer = response.read()
    took = time.perf_counter() - began
    connection.close()
    return response.status, response.headers, json.loads(answer), took, trace


def connected(lapwing, path, body):
    """Asks until the store's connection is made, which nobody waits for."""
    return wait_for(lambda: (answer := ask(lapwing.port, path, body))[0] != 502 and answer, 10, "the store is connected")


def seen(model):
    connection = http.client.HTTPConnection("127.0.0.1", model)
    connection.request("GET", "/seen")
    said = json.loads(connection.getresponse().read())
    return bytes.fromhex(said["body"]).decode(), int(said["length"])


def users(*ids, more=""):
    return f'{{ "id":"1" , "inputs" : [{{"name":"user","shape":[{len(ids)}],"datatype":"INT64","data":{list(ids)}}}{more} ] ,"parameters":{{"x":1.50E2}}}}'


def counts(lapwing, metric):
    lines = [line for line in lapwing.metrics().splitlines() if line.startswith(f"lapwing_hydrate_{metric}_total{{")]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines if float(line.split()[-1])}


# --- what the server gets

def test_a_model_that_needs_features_has_them_and_nothing_else_of_a_request_changes(start, store, model):
    body = users(7, 8, 7)
    assert ask(model, V2, body)[0] == 400, "without Lapwing"
    lapwing = start(rule(store), v1(store))
    status, _, answer, _, trace = connected(lapwing, V2, body)
    assert (status, answer["outputs"][0]["data"]) == (200, pytest.approx([10, 3, 10]))
    features = ',{"name":"features","shape":[3,2],"datatype":"FP32","data":[5.0,0.5,2.0,0.1,5.0,0.5]}'
    expected = body.replace("]} ]", f"]}}{features} ]")
    assert seen(model) == (expected, len(expected))

    instances = '{"instances": [{"user": 7, "amount": 1.0e+3}, {"user":8}\n], "note": "\\u00eb"}'
    assert ask(lapwing.port, V1, instances)[2] == {"predictions": pytest.approx([10, 3])}
    expected = instances.replace("e+3}", 'e+3,"features":[5.0,0.5]}').replace(":8}", ':8,"features":[2.0,0.1]}')
    assert seen(model) == (expected, len(expected))

    exchange = lapwing.exchange_of(trace)
    (stage,) = [stage for stage in exchange["stages"] if stage["stage"] == "hydration"]
    assert stage["source"] == "observed" and 0 < stage["ns"] < exchange["total_ns"]
    assert sum(stage["ns"] for stage in exchange["stages"]) == exchange["total_ns"]
    assert [span["name"] for span in exchange["spans"] if span["stage"] == "hydration"] == ["hydrate"]
    assert counts(lapwing, "requests")["filled"] == 2
    assert counts(lapwing, "entities") == {"hit": 4}


def test_a_body_in_chunks_and_values_in_bytes(start, store, model):
    packed = {"kind": "redis", "url": f"redis://127.0.0.1:{store.port}", "key": "{user}/{feature}", "encoding": "float32"}
    lapwing = start(v1(store, store=packed, features=[{"name": "packed", "width": 2}]))
    body = '{"instances":[{"user":"Zo\\u00eb"}]}'
    assert connected(lapwing, V1, body)[2] == {"predictions": [5.5]}
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=60)
    pieces = (body[at : at + 7].encode() for at in range(0, len(body), 7))
    connection.request("POST", V1, pieces, {"content-type": "application/json"}, encode_chunked=True)
    assert json.loads(connection.getresponse().read()) == {"predictions": [5.5]}


def test_what_is_not_understood_passes_as_it_came_and_is_counted(start, store, model):
    lapwing = start(rule(store), v1(store))
    connected(lapwing, V2, users(7))
    own = users(7, more=',{"name":"features","shape":[1,2],"datatype":"FP32","data":[1,1]}')
    assert ask(lapwing.port, V2, own)[2]["outputs"][0]["data"] == [11]
    assert seen(model)[0] == own
    for path, body, headers in [
        (V2, users(7).replace('"user"', '"other"'), {}),
        (V2, '{"inputs": {"user": [1]}}', {}),
        (V1, '{"instances": [{"user": 7}, {}]}', {}),
        (V2, gzip.compress(users(7).encode()), {"content-encoding": "gzip"}),
        (V2, users(7), {"inference-header-content-length": str(len(users(7)))}),
        (V2, users(*range(1025)), {}),
    ]:
        connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=60)
        connection.request("POST", path, body, {"content-type": "application/json", **headers})
        assert connection.getresponse().read() is not None
        came = body if isinstance(body, bytes) else body.encode()
        said = http.client.HTTPConnection("127.0.0.1", model)
        said.request("GET", "/seen")
        assert bytes.fromhex(json.loads(said.getresponse().read())["body"]) == came
    assert counts(lapwing, "passed") == {"present": 1, "entity": 2, "format": 1, "coded": 1, "binary": 1, "too_many": 1}


# --- what is missing

def test_a_request_whose_features_are_missing_is_refused_by_name_or_gets_defaults(start, store, model):
    lapwing = start(rule(store), v1(store, on_miss="default"))
    body = users(7, 9, 10)
    connected(lapwing, V2, users(7))
    before = seen(model)
    status, headers, answer, _, _ = ask(lapwing.port, V2, body)
    assert (status, headers["x-lapwing-error"], headers["content-type"]) == (422, "features_missing", "application/json")
    assert answer == {
        "error": 'lapwing: features are missing of 2 of 3 entities: rate of {"user":9}: the store has none',
        "missing": [
            {"entity": {"user": user}, "feature": feature, "reason": "the store has none"}
            for user, feature in [(9, "rate"), (10, "trips"), (10, "rate")]
        ],
    }
    assert seen(model) == before, "the model is not asked"
    refused = wait_for(lambda: [one for one in lapwing.exchanges() if one["outcome"] == "rejected"], 15, "the refusal is an exchange")
    (stage,) = [stage for stage in refused[0]["stages"] if stage["stage"] == "hydration"]
    assert stage["source"] == "observed"

    found = ask(lapwing.port, V1, '{"instances":[{"user":7},{"user":9},{"user":10}]}')
    assert found[2] == {"predictions": pytest.approx([10, 6, 4])}
    counted = counts(lapwing, "requests")
    assert {name: counted[name] for name in ("filled", "missing", "default")} == {"filled": 1, "missing": 1, "default": 1}
    assert counts(lapwing, "entities") == {"hit": 1 + 1 + 1, "miss": 2 + 2}


def test_a_store_that_stands_still_delays_a_request_by_its_deadline_at_most(start, store, model):
    deadline = 0.05
    lapwing = start(rule(store, deadline="50ms"), v1(store, deadline="50ms", on_miss="default"))
    instances = '{"instances":[{"user":7}]}'
    connected(lapwing, V2, users(7))
    wait_for(lambda: ask(lapwing.port, V1, instances)[2] == {"predictions": [10]}, 10, "both stores are connected")
    os.kill(store.pid, signal.SIGSTOP)
    try:
        status, headers, answer, took, _ = ask(lapwing.port, V2, users(7))
        assert (status, headers["x-lapwing-error"]) == (504, "features_late")
        assert answer == {"error": "lapwing: the feature store did not answer within the deadline of 50ms"}
        assert deadline <= took < deadline + LATE_S
        took = []
        for _ in range(20):
            _, _, answer, seconds, _ = ask(lapwing.port, V1, instances)
            assert answer == {"predictions": pytest.approx([4])}
            took.append(seconds)
        assert max(took) < deadline + LATE_S
        # nobody waits any more for a store that has been late five times
        assert min(took[5:]) < deadline
    finally:
        os.kill(store.pid, signal.SIGCONT)
    wait_for(lambda: ask(lapwing.port, V1, instances)[2] == {"predictions": [10]}, 10, "the store is used again")
    assert counts(lapwing, "requests")["late"] == 1


def test_a_store_that_is_not_there_is_a_502_at_once(start, store):
    store_gone = {"kind": "redis", "url": f"redis://127.0.0.1:{free_port()}", "key": "{user}"}
    feast_gone = {"kind": "feast", "url": f"http://127.0.0.1:{free_port()}"}
    lapwing = start(rule(store, store=store_gone), v1(store, store=feast_gone, features=[{"name": "stats:trips"}]))
    for path, body in [(V2, users(7)), (V1, '{"instances":[{"user":7}]}')]:
        status, headers, answer, took, _ = ask(lapwing.port, path, body)
        assert (status, headers["x-lapwing-error"]) == (502, "features_failed"), answer
        assert took < LATE_S and answer["error"].startswith("lapwing: the feature store cannot be read: ")
    wait_for(lambda: lapwing.outcomes() == {"shed": 2}, 10, "both are counted")


def test_a_copy_for_a_shadow_has_the_features_too(start_lapwing, store, model, processes, tmp_path):
    shadow = free_port()
    processes("hydrated_app", [sys.executable, str(HERE / "servers/hydrated_app.py"), str(shadow)])
    wait_listening(shadow, 60)
    config = tmp_path / "lapwing.yaml"
    targets = {"sample": "100%", "targets": {"other": f"http://127.0.0.1:{shadow}"}}
    config.write_text(json.dumps({"upstream": f"http://127.0.0.1:{model}", "hydrate": [rule(store)], "shadow": targets}))
    lapwing = start_lapwing(None, config=config, env=NO_SPANS)
    connected(lapwing, V2, users(7))

    def has_come():
        ask(lapwing.port, V2, users(7))
        try:
            return seen(shadow) == seen(model)
        except KeyError:
            return False

    wait_for(has_come, 20, "the copy has the features")
    assert '"features"' in seen(shadow)[0]


# --- Feast itself

@pytest.mark.long
def test_feasts_redis_and_its_feature_server_say_the_same(start, processes, store, model, tmp_path):
    python = ROOT / ".venv-feast/bin/python"
    if not python.exists():
        pytest.skip("no .venv-feast: tests/run --long installs it")
    port = free_port()
    env = dict(os.environ, FEAST_USAGE="False")
    processes("feast", [str(python), str(HERE / "servers/feast_store.py"), str(tmp_path), str(port), str(store.port)], env=env)
    wait_listening(port, 120)
    parts = {"features": [{"name": "stats:trips"}, {"name": "stats:rate"}], "deadline": "5s"}
    drivers = [{"name": "driver_id", "tensor": "user"}]
    instances = [{"name": "driver_id", "pointer": "/instances/*/user"}]
    by_redis = {"kind": "feast", "url": f"redis://127.0.0.1:{store.port}", "project": "fraud", "max_age": "24h"}
    by_http = {"kind": "feast", "url": f"http://127.0.0.1:{port}"}
    lapwing = start(rule(store, entity=drivers, store=by_redis, **parts), v1(store, entity=instances, store=by_http, **parts))
    assert connected(lapwing, V2, users(1000, 1001, 1000))[2]["outputs"][0]["data"] == pytest.approx([10, 16, 10])
    assert '"data":[5.0,0.5,7.0,0.9,5.0,0.5]' in seen(model)[0]
    body = '{"instances":[{"user":1000},{"user":1001}]}'
    assert ask(lapwing.port, V1, body)[2] == {"predictions": pytest.approx([10, 16])}
    assert '"features":[7.0,0.9]' in seen(model)[0]
    for path, body in [(V2, users(1000, 5)), (V1, '{"instances":[{"user":1000},{"user":5}]}')]:
        status, _, answer, _, _ = ask(lapwing.port, path, body)
        assert status == 422
        assert [one["feature"] for one in answer["missing"] if one["entity"] == {"driver_id": 5}] == ["stats:trips", "stats:rate"]
