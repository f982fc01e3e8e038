"""`/diagnosis` and `lapwing diagnose` of a real Lapwing: both forms, the filters, and what a script is told by the exit code."""

import http.client
import json
import os
import re
import subprocess
import threading
import time

import pytest

from ports import free_port
from process import wait_for
from raw_server import RawServer, read_body
from test_admin_reads import Asked

pytestmark = pytest.mark.beside
TOKEN = "correct-horse-battery-staple"
HEALTHY, OVER_BUDGET, NOT_ENOUGH_EVIDENCE, FAILING, USAGE, UNAVAILABLE = 0, 1, 2, 3, 64, 69


def run(binary, lapwing, *args, **env):
    command = [binary, "diagnose", "--admin", f"127.0.0.1:{lapwing.admin}", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **env})


def get(lapwing, path, accept=None):
    """(status, content type, text)."""
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.admin, timeout=30)
    connection.request("GET", path, headers={"accept": accept} if accept else {})
    response = connection.getresponse()
    answer = response.status, response.headers["content-type"], response.read().decode()
    connection.close()
    return answer


@pytest.fixture(scope="module")
def idle(processes, binary, raw_server):
    """Nobody has asked it for anything."""
    return Asked(processes, binary, raw_server.url)


def test_before_any_request_there_is_not_enough_evidence(binary, idle):
    for accept in (None, "*/*", "text/plain"):
        status, kind, text = get(idle, "/diagnosis", accept)
        assert (status, kind) == (200, "text/plain; charset=utf-8")
        assert text.startswith("not enough evidence: ") and text.endswith(" 300 s\n"), text
    for path, accept in (("/diagnosis", "application/json"), ("/diagnosis?format=json", "*/*")):
        status, kind, text = get(idle, path, accept)
        told = json.loads(text)
        assert (status, kind, told["window_seconds"], told["routes"]) == (200, "application/json", 300.0, [])
    asked = run(binary, idle)
    assert (asked.returncode, asked.stderr) == (NOT_ENOUGH_EVIDENCE, "")
    assert asked.stdout == get(idle, "/diagnosis")[2], "the command and the path say the same"


@pytest.mark.parametrize(("window", "seconds"), [("10s", 10), ("1m", 60), ("5m", 300)])
def test_the_window_that_is_asked_for_is_diagnosed(binary, idle, window, seconds):
    assert json.loads(get(idle, f"/diagnosis?format=json&window={window}")[2])["window_seconds"] == seconds
    asked = run(binary, idle, "--json", "--window", window)
    assert asked.returncode == NOT_ENOUGH_EVIDENCE and json.loads(asked.stdout)["window_seconds"] == seconds


def test_the_window_of_the_configuration_is_the_default(binary, processes, raw_server):
    lapwing = Asked(processes, binary, raw_server.url, diagnosis__window="10s")
    assert json.loads(run(binary, lapwing, "--json").stdout)["window_seconds"] == 10


def test_it_waits_for_evidence_and_no_longer(binary, idle):
    asked = run(binary, idle, "--wait", "1500ms", "--json")
    assert asked.returncode == NOT_ENOUGH_EVIDENCE and json.loads(asked.stdout)["routes"] == []


def test_what_is_wrong_is_told(binary, idle):
    for query in ("window=2m", "format=xml", "routes=x"):
        status, _, why = get(idle, f"/diagnosis?{query}")
        name, value = query.split("=")
        assert status == 400 and f'{name}="{value}"' in why, why
    for wrong, why in (("--window=2m", "10s, 1m, 5m"), ("--wait=soon", "is not a duration"), ("--wait=5", "needs a unit")):
        asked = run(binary, idle, wrong)
        assert asked.returncode == USAGE and why in asked.stderr, asked.stderr


def test_no_lapwing_is_another_exit_code(binary, idle, raw_server):
    idle_port, idle.admin = idle.admin, free_port()
    try:
        dead = run(binary, idle, "--wait", "1m")
        assert (dead.returncode, dead.stdout) == (UNAVAILABLE, "") and "cannot connect" in dead.stderr
        idle.admin = raw_server.port
        other = run(binary, idle)
        assert (other.returncode, other.stdout) == (UNAVAILABLE, "") and "the answer is not that of /diagnosis" in other.stderr
    finally:
        idle.admin = idle_port


def test_where_it_is_off_nothing_is_diagnosed(binary, processes, raw_server):
    lapwing = Asked(processes, binary, raw_server.url, diagnosis__enabled="off")
    assert get(lapwing, "/diagnosis")[::2] == (404, "nothing is diagnosed: diagnosis.enabled is off\n")
    asked = run(binary, lapwing)
    assert asked.returncode == UNAVAILABLE and "diagnosis.enabled is off" in asked.stderr
    assert "lapwing_budget_excess_seconds" not in lapwing.get("/metrics")[2]


def test_where_a_token_is_asked_for_it_is_shown(binary, processes, raw_server, tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN)
    lapwing = Asked(processes, binary, raw_server.url, admin_token_file=path)
    assert get(lapwing, "/diagnosis")[0] == 401
    without = run(binary, lapwing)
    assert without.returncode == UNAVAILABLE and "--token-file" in without.stderr
    assert run(binary, lapwing, "--token-file", str(path)).returncode == NOT_ENOUGH_EVIDENCE
    assert run(binary, lapwing, LAPWING_ADMIN_TOKEN_FILE=str(path)).returncode == NOT_ENOUGH_EVIDENCE


def test_help_teaches_the_exit_codes(binary):
    text = subprocess.run([binary, "diagnose", "--help"], capture_output=True, text=True, timeout=30).stdout
    for code in (HEALTHY, OVER_BUDGET, NOT_ENOUGH_EVIDENCE, FAILING, USAGE, UNAVAILABLE):
        assert any(line.split()[:1] == [str(code)] for line in text.splitlines()), text
    assert "lapwing diagnose --wait 1m" in text and "docs/DIAGNOSIS.md" in text


# --- traffic that is slow, quick, and named by an attacker

HOSTILE = "\x1b[2J\x1b]0;title\x07"


class Load:
    """Two clients that send requests of `ms` in the server, until it is left."""

    def __init__(self, lapwing, ms):
        self.lapwing, self.ms, self.stop = lapwing, ms, threading.Event()
        self.clients = [threading.Thread(target=self.send) for _ in range(2)]

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for client in self.clients:
            client.join()

    def send(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.lapwing.port, timeout=30)
        body = json.dumps({"model": HOSTILE, "prompt": "x"})
        while not self.stop.is_set():
            connection.request("POST", f"/v1/completions?ms={self.ms}", body, {"content-type": "application/json"})
            connection.getresponse().read()
        connection.close()


class Reporting(RawServer):
    """Says that all of its time is the model's."""

    def answer(self, connection, stream, head):
        read_body(stream, head)
        ms = int(head.partition(b"ms=")[2].split()[0])
        time.sleep(ms / 1e3)
        connection.sendall(b"HTTP/1.1 200 OK\r\nServer-Timing: model_forward;dur=%d\r\nContent-Length: 2\r\n\r\nok" % ms)
        return True


@pytest.fixture(scope="module")
def reporting():
    with Reporting() as server:
        yield server


def routes_of(text):
    """The words without what is missing: these answers say nothing of their tokens."""
    assert text.startswith("missing: the tokens of "), text
    return text.partition("\n\n")[2]


def budget(**quantiles):
    return json.dumps({"*": quantiles})


def test_a_route_over_its_budget_is_named_and_the_script_is_told(binary, processes, reporting):
    lapwing = Asked(processes, binary, reporting.url, metrics__budgets=budget(p99="1ms"))
    with Load(lapwing, 20):
        asked = run(binary, lapwing, "--wait", "1m", "--window", "10s")
        assert asked.returncode == OVER_BUDGET, asked.stdout
        (title, *lines) = routes_of(asked.stdout).splitlines()
        assert title.startswith("POST /v1/completions, model ") and title.endswith(": over budget"), asked.stdout
        assert "budget p99 1.00 ms" in lines[0]
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", asked.stdout), "nothing but text and line feeds"
        (route,) = json.loads(get(lapwing, "/diagnosis?format=json&window=10s")[2])["routes"]
        assert (route["status"], route["model"]) == ("over_budget", HOSTILE)
        assert route["budget"]["measured_ns"] >= 20_000_000 and route["budget"]["excess_ns"] > 0
        assert run(binary, lapwing, "--window", "10s", "--model", "another").returncode == NOT_ENOUGH_EVIDENCE
        assert run(binary, lapwing, "--window", "10s", "--model", HOSTILE).returncode == OVER_BUDGET
    wait_for(lambda: sample(lapwing, "lapwing_budget_excess_seconds_total") > 0, 30, "the excess is counted")
    bounds = [line for line in lapwing.get("/metrics")[2].splitlines() if line.startswith("lapwing_bound_seconds_total{")]
    assert len(bounds) == 10 and sum(float(line.split()[-1]) for line in bounds) <= sample(lapwing, "lapwing_budget_excess_seconds_total") * 1.001


def sample(lapwing, name):
    return sum(float(line.split()[-1]) for line in lapwing.get("/metrics")[2].splitlines() if line.startswith(name + "{"))


def test_what_clients_do_badly_is_named_within_the_budget_too(binary, processes, reporting):
    """A connection for each request, and large tensors as JSON."""
    lapwing = Asked(processes, binary, reporting.url, metrics__budgets=budget(p99="10s"))
    body = json.dumps({"inputs": [{"name": "x", "shape": [4000], "datatype": "FP32", "data": [0.123456] * 4000}]})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for _ in range(20):
            connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
            connection.request("POST", "/v2/models/m/infer?ms=1", body, {"content-type": "application/json"})
            connection.getresponse().read()
            connection.close()
        time.sleep(1)
        (route,) = json.loads(get(lapwing, "/diagnosis?format=json&window=1m")[2])["routes"] or [None]
        if route and route["notices"]:
            break
    assert [notice["name"] for notice in route["notices"]] == ["connection_per_request", "json_tensors"], route
    asked = run(binary, lapwing)
    assert asked.returncode == HEALTHY and "also: 100 % of the requests are the first on their client's connection" in asked.stdout, asked.stdout


def test_a_route_within_its_budget_is_healthy(binary, processes, reporting):
    lapwing = Asked(processes, binary, reporting.url, metrics__budgets=budget(p99="10s"))
    with Load(lapwing, 5):
        asked = run(binary, lapwing, "--wait", "1m", "--window", "10s")
        assert asked.returncode == HEALTHY, asked.stdout
        assert routes_of(asked.stdout).splitlines()[0].endswith(": healthy")
    assert sample(lapwing, "lapwing_budget_excess_seconds_total") == 0
