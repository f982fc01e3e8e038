"""Ray Serve itself, through Lapwing: a gateway that calls two deployments, each of which takes one request at a time.

Every answer has the handlers' own times. From a call until the replica that it reaches takes it is waiting, at every level.
"""

import json
import secrets
import threading
import time
import urllib.request

import pytest

from lapwing import AUTO, OPENER
from process import wait_for
from servers.parts import RayServeByDefault

# Ray starts eight processes, which takes more than a minute
pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
CLIENTS, EACH = 5, 12
STEPS = ("tok", "score")


def ask(lapwing, path="/x", text=b"a text"):
    """(what the handlers say, the trace's id)."""
    trace_id = secrets.token_hex(16)
    headers = {"traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01", "user-agent": "client"}
    request = urllib.request.Request(lapwing.url + path, data=text, headers=headers)
    with OPENER.open(request, timeout=30) as response:
        told = json.load(response)
    return {**told, "answered": time.time_ns()}, trace_id


def load(lapwing, path="/x", clients=CLIENTS, each=EACH):
    answers, failures = {}, []

    def client():
        try:
            for _ in range(each):
                told, trace_id = ask(lapwing, path)
                answers[trace_id] = told
        except Exception as e:  # noqa: BLE001: the test shows it
            failures.append(e)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures, failures[0]
    return answers


def stages_of(exchange):
    return {s["stage"]: s["ns"] for s in exchange["stages"]}


@pytest.fixture(scope="module")
def run(ray):
    """The handlers' times and the exchange, by trace; the first requests only warm it up."""
    load(ray.lapwing, clients=2, each=3)
    answers = load(ray.lapwing)
    exchanges = ray.lapwing.exchanges_of(answers, 30)
    return [(told, exchanges[trace_id]) for trace_id, told in answers.items()]


def waits_of(told):
    return sum(told[step]["taken"] - told[step]["asked"] for step in STEPS)


def hand_overs_of(told):
    """What Ray takes from there to the handler: part of the replica's time."""
    return sum(told[step]["began"] - told[step]["taken"] for step in STEPS)


def inner_waits_of(exchange):
    """What lies within the gateway's replica; the wait before the gateway itself is in no handler's answer."""
    (gateway,) = [s for s in exchange["spans"] if s["name"].startswith("replica_handle_request Gateway")]
    return sum(s["end_ns"] - s["start_ns"] for s in exchange["spans"] if s["name"] == "queue" and s["start_ns"] > gateway["start_ns"])


def test_waiting_is_queue_at_every_level(run):
    """From Ray's call, which begins once its own thread has taken it up from the handler, until the replica has the request."""
    told = sum(waits_of(told) for told, _ in run)
    queue = sum(stages_of(exchange)["queue"] for _, exchange in run)
    inner = sum(inner_waits_of(exchange) for _, exchange in run)
    total = sum(exchange["total_ns"] for _, exchange in run)
    taking_up = sorted(waits_of(told) - inner_waits_of(exchange) for told, exchange in run)
    # the same clock, and nothing has moved it: never more than the handlers say, but for their clock's steps
    assert taking_up[0] >= -len(STEPS) * 50_000, taking_up
    # less by what the thread takes, which for some is long on a machine that has no core free
    assert taking_up[len(run) // 2] <= 0.03 * told / len(run), taking_up
    assert inner >= 0.85 * told, (inner / told, taking_up)
    assert sum(hand_overs_of(told) for told, _ in run) < 0.15 * told
    outer = queue - inner
    assert 0 <= outer < 0.2 * total, (outer, total)
    assert queue > 0.5 * total, "five clients of a deployment that takes one request at a time"


def test_each_exchange_has_its_stages(run):
    for told, exchange in run:
        stages = stages_of(exchange)
        assert sum(stages.values()) == exchange["total_ns"]
        assert exchange["server"] == "ray-serve"
        assert {s["source"] for s in exchange["stages"] if s["stage"] in ("queue", "forward", "preprocessing")} == {"traced"}, exchange
        assert stages["queue"] >= 0.8 * waits_of(told)


def test_a_rule_for_a_deployment_leaves_the_wait_alone(run):
    """`Tok` counts as preprocessing: its replica's own time, which the handler's 10 ms are within."""
    told = sum(told["tok"]["ended"] - told["tok"]["began"] for told, _ in run)
    waited = sum(told["tok"]["taken"] - told["tok"]["asked"] for told, _ in run)
    preprocessing = sum(stages_of(exchange)["preprocessing"] for _, exchange in run)
    assert told <= preprocessing < told + 0.5 * waited, (told, preprocessing, waited)


def test_the_wait_for_a_batch_is_queue_if_the_handler_tells_it(ray):
    answers = load(ray.lapwing, "/embed", clients=3, each=2)
    exchanges = ray.lapwing.exchanges_of(answers, 30)
    told = sum(answer["waited_ns"] for answer in answers.values())
    for trace_id, answer in answers.items():
        (wait,) = [s for s in exchanges[trace_id]["spans"] if s["name"] == "batch_wait"]
        assert wait["stage"] == "queue" and abs(wait["end_ns"] - wait["start_ns"] - answer["waited_ns"]) <= 1_000
    assert sum(stages_of(exchange)["queue"] for exchange in exchanges.values()) >= told


def test_no_request_of_lapwings_own_reached_the_handler(ray, run):
    """With the default settings, after minutes of traffic: it answers every path, so any poll would have reached it."""
    asked = ray.server.asked()
    assert len(asked) >= len(run)
    assert {agent for _, _, agent in asked} == {"client"}, [one for one in asked if one[2] != "client"]
    assert {path for _, path, _ in asked} <= {"/x", "/embed"}
    assert 'lapwing_polls_total{result="ok"} 0' in ray.lapwing.metrics()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_processes_that_export_on_phases_of_their_own_lose_nothing(behind):
    """2,000 requests by exporters at their defaults; between the halves `Score`'s only replica ends and another one begins."""
    ray = behind(RayServeByDefault, "url", "otlp_grpc", env=AUTO)
    lapwing = ray.lapwing
    load(lapwing, clients=2, each=3)
    answers = load(lapwing, each=200)
    ask(lapwing, text=b"exit")
    time.sleep(12)

    def is_back():
        try:
            return ask(lapwing)
        except OSError:
            return None

    wait_for(is_back, 60, "another replica of Score answers", 1)
    answers |= load(lapwing, each=200)
    time.sleep(6)  # the exporter's period: what comes late is there
    wait_for(lapwing.is_settled, 60, "no exchange waits for its spans", 1)
    exchanges = {e["trace_id"]: e for e in lapwing.exchanges(limit=4096)}
    lacking = {id for id in answers if sum(s["name"] == "queue" for s in exchanges[id]["spans"]) < 1 + len(STEPS)}
    explained = sum(one.get("incomplete", 0) for one in lapwing.series()) + lapwing.stats()["profiler"]["spans"]["late"]
    assert len(lacking) <= 0.001 * len(answers) and len(lacking) <= explained, (len(lacking), explained, len(answers))
    told = sum(waits_of(answers[id]) for id in answers.keys() - lacking)
    inner = sum(inner_waits_of(exchanges[id]) for id in answers.keys() - lacking)
    assert abs(inner - told) <= 0.03 * told, inner / told
