"""Second requests (`dispatch.hedge`) to real servers: FastAPI with onnxruntime and magika, twice, one of which stands still; and the engine, which
steps in for one of them while the shadow finds its answers the same.

No test judges a time: they judge who answered, and what.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import sys
import time

import pytest

from engine import fixtures
from lapwing import NO_SPANS
from ports import free_port
from process import wait_for, wait_listening
from shadowing import target
from test_dispatch import BODIES, Load, ask, view

pytestmark = [pytest.mark.beside, pytest.mark.timeout(300)]
SERVER = pathlib.Path(__file__).parent / "servers/oip_server.py"


@pytest.fixture
def server(processes):
    """Starts FastAPI with magika; its port and its process."""

    def start():
        port = free_port()
        process = processes("oip_server", [sys.executable, str(SERVER), str(port), str(fixtures.magika())])
        wait_listening(port, 60)
        return port, process

    return start


@pytest.fixture
def started(start_lapwing, tmp_path):
    def start(upstreams, settings):
        file = tmp_path / "lapwing.json"
        urls = {name: {"url": f"http://127.0.0.1:{port}"} for name, port in upstreams.items()}
        file.write_text(json.dumps({"upstreams": urls, **settings}))
        lapwing = start_lapwing(None, config=file, env=NO_SPANS)
        wait_for(lapwing.is_ready, 60, "lapwing is ready")
        return lapwing

    return start


@contextlib.contextmanager
def stands_still(process):
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def hedges(lapwing):
    """Requests that took long, by what became of them."""
    lines = [line for line in lapwing.metrics().splitlines() if line.startswith("lapwing_hedges_total{")]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines}


def outputs(body):
    return json.loads(body)["outputs"]


def learn(lapwing):
    with Load(lapwing.port, 3) as load:
        wait_for(lambda: view(lapwing)["series"], 120, "it is known what requests take", 0.5)
    assert {status for _, status, _ in load.answers} == {200}


ON = {"mode": "on", "slots": 1, "recheck": "off", "hedge": {"mode": "on"}}


def test_of_two_the_other_answers_for_the_one_that_stands_still(server, started):
    both = {name: server() for name in "ab"}
    lapwing = started({name: port for name, (port, _) in both.items()}, {"dispatch": ON})
    learn(lapwing)
    slow, other = "a", "b"
    direct = {rows: outputs(ask(both[other][0], body)[1]) for rows, body in BODIES.items()}
    before = hedges(lapwing)["won"]
    with stands_still(both[slow][1]):
        # two at once, so that each upstream is sent one
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for rows, body in list(BODIES.items()) * 2:
                for status, answer in pool.map(lambda body: ask(lapwing.port, body), [body, body]):
                    assert status == 200 and outputs(answer) == direct[rows]
        assert hedges(lapwing)["won"] > before
        running = {one["upstream"]: one["running"] for one in view(lapwing)["upstreams"]}
        assert running[slow] >= 1, "what it has is read to its end"
        won = [one for one in lapwing.exchanges() if "hedge_won" in one["annotations"]]
        assert won and all(one["upstream"] == other and one["outcome"] == "ok" for one in won)
        for one in won:
            assert sum(stage["ns"] for stage in one["stages"]) == one["total_ns"]
            assert [span for span in one["spans"] if span["name"] == "attempt"], one["spans"]
    wait_for(lambda: [one["running"] for one in view(lapwing)["upstreams"]] == [0, 0], 30, "its answers are read")
    assert view(lapwing)["hedge"]["hedged_ns"] > 0
    with Load(lapwing.port, 3) as load:
        wait_for(lambda: len(load.answers) > 30, 60, "answers come")
    assert {status for _, status, _ in load.answers} == {200}


def test_the_engine_steps_in_once_its_answers_are_known_to_be_the_same(server, started, start_engine):
    (port, process), engine = server(), start_engine([("magika", fixtures.magika())])
    shadow = {"targets": {"engine": engine.url}, "sample": "100%"}
    dispatch = {**ON, "hedge": {"mode": "on", "spare": "engine", "budget": "50%"}}
    lapwing = started({"fastapi": port, "engine": engine.port}, {"shadow": shadow, "dispatch": dispatch})
    learn(lapwing)

    with Load(lapwing.port, 2):
        wait_for(lambda: sum(one["same"] for one in target(lapwing, "engine")["outputs"].values()) >= 64, 120, "64 answers are the same", 0.5)
    time.sleep(1.5)  # what is known is published each second
    direct = {rows: outputs(ask(port, body)[1]) for rows, body in BODIES.items()}
    with stands_still(process):
        status, answer = ask(lapwing.port, BODIES[3])
        assert status == 200
        (label,), (other,) = outputs(answer), direct[3]
        assert label["shape"] == other["shape"] and label["data"] == pytest.approx(other["data"], abs=1e-3)
        assert hedges(lapwing)["won"] >= 1
        assert [one["upstream"] for one in lapwing.exchanges() if "hedge_won" in one["annotations"]] == ["engine"]
