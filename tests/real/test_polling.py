"""What Lapwing asks for itself, with default settings: nothing of a user's code, and of a model server only what it owns."""

import json
import pathlib
import sys
import time
import urllib.request

import numpy as np
import pytest

from lapwing import AUTO, NO_SPANS, OPENER
from oip_clients import Client, rows_of
from ports import free_port
from process import wait_for, wait_listening
from servers.parts import Llama, Triton, get_json

pytestmark = pytest.mark.beside
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
SECONDS = 9
"""The poller looks every 2 s, and in the worst case asks one path per 5 s."""


def post(url, value):
    headers = {"content-type": "application/json", "user-agent": "client"}
    with OPENER.open(urllib.request.Request(url, data=json.dumps(value).encode(), headers=headers), timeout=30) as response:
        return json.load(response)


@pytest.fixture(scope="module")
def start_catch_all(processes, start_lapwing):
    """Starts an application that answers every path, and Lapwing in front of it."""

    def start(*upstream):
        port = free_port()
        processes("catch_all", [sys.executable, str(pathlib.Path(__file__).with_name("catch_all.py")), str(port), *upstream])
        wait_listening(port, 60)
        lapwing = start_lapwing(f"http://127.0.0.1:{port}", env=NO_SPANS)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        return lapwing, f"http://127.0.0.1:{port}"

    return start


def polls(lapwing):
    lines = [line.split() for line in lapwing.metrics().splitlines() if line.startswith("lapwing_polls_total")]
    return {name.split('"')[1]: float(n) for name, n in lines}


def assert_only_clients(url):
    asked = get_json(f"{url}/asked")
    assert asked and {agent for _, _, agent in asked} == {"client"}, [one for one in asked if one[2] != "client"]


def keep_asking(condition, ask, seconds=SECONDS):
    """Asks twice a second until the condition holds or the time is over; returns whether it held."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ask()
        if condition():
            return True
        time.sleep(0.5)
    return False


def test_a_handler_at_the_root_is_asked_nothing(start_catch_all):
    """Whatever its clients ask it, and in whatever protocol's form it answers."""
    lapwing, url = start_catch_all()
    oip = {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]}]}

    def ask():
        post(f"{lapwing.url}/", {})
        post(f"{lapwing.url}/v2/models/m/infer", {"inputs": [], "answer": oip})
        post(f"{lapwing.url}/v1/models/m:predict", {"instances": [1], "answer": {"predictions": [1]}})
        post(f"{lapwing.url}/v1/chat/completions", {**CHAT, "answer": {"model": "tiny", "choices": []}})

    keep_asking(lambda: False, ask)
    assert_only_clients(url)
    assert polls(lapwing) == {"ok": 0, "failed": 0}


def test_a_gateway_before_a_model_server_is_asked_nothing(start_catch_all, llama):
    """Its bodies are llama.cpp's, with its timings; its heads are its own."""
    lapwing, url = start_catch_all(llama.server.url)
    answers = []
    keep_asking(lambda: False, lambda: answers.append(post(f"{lapwing.url}/v1/chat/completions", CHAT)))
    assert "timings" in answers[0]
    assert_only_clients(url)
    assert polls(lapwing) == {"ok": 0, "failed": 0}


def test_llama_is_asked_once_it_showed_itself(behind):
    served = behind(Llama, env={**NO_SPANS, **AUTO})
    lapwing = served.lapwing
    time.sleep(3)
    assert polls(lapwing) == {"ok": 0, "failed": 0}
    assert keep_asking(lambda: polls(lapwing)["ok"] > 0, lambda: post(f"{lapwing.url}/v1/chat/completions", CHAT), 30)
    told = [line for line in lapwing.process.output().splitlines() if "asking the server for its own statistics" in line]
    assert len(told) == 1 and "llama.cpp" in told[0] and "/metrics" in told[0] and "heads" in told[0], told


def test_triton_is_asked_once_its_spans_came(behind):
    served = behind(Triton, "url", "otlp_http", env=AUTO)
    lapwing = served.lapwing
    rows = rows_of(2)

    def ask():
        with Client("json", lapwing.port) as client:
            np.testing.assert_allclose(client.infer("rowsum", "X", rows, "Y"), rows.sum(axis=1, keepdims=True), atol=1e-4)

    assert keep_asking(lambda: polls(lapwing)["ok"] > 0, ask, 40), lapwing.process.output()[-3000:]
    told = [line for line in lapwing.process.output().splitlines() if "asking the server for its own statistics" in line]
    assert len(told) == 1 and "/v2/models/stats" in told[0] and "its spans" in told[0], told
