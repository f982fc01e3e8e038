"""Requests that wait in front of real servers (`dispatch`): FastAPI with onnxruntime and magika, which runs one request at a time, and Triton, which
batches what is there.

No test judges a time: they judge what is found out of a server, the order in which answers come, and how many are at the server at once. How
many a server works on at once is told by times, though: on a machine that is busy with other files it may not be found out.
"""

import http.client
import itertools
import json
import subprocess
import threading
import time

import numpy as np
import pytest

from engine import fixtures
from lapwing import NO_SPANS
from oip_clients import Client, rows_of
from process import wait_for
from servers.parts import Triton
from test_shadow_engine import contents

pytestmark = pytest.mark.timeout(300)
SMALL, LARGE = 1, 12
"""Files that a request asks magika about."""


def body_of(rows, first=0):
    """Asks what this many files of this repository are."""
    files = [contents(first + at).tolist() for at in range(rows)]
    tensor = {"name": "bytes", "shape": [rows, 2048], "datatype": "INT32", "data": [value for file in files for value in file]}
    return json.dumps({"inputs": [tensor]}, separators=(",", ":")).encode()


BODIES = {rows: body_of(rows, rows) for rows in (1, 2, 3, 5, 8, LARGE)}


def ask(port, body, headers=()):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v2/models/magika/infer", body, {"content-type": "application/json", **dict(headers)})
    response = connection.getresponse()
    return response.status, response.read()


class Load:
    """Clients that ask for files one after the other until the block ends."""

    def __init__(self, port, clients):
        self.port, self.stopped, self.answers = port, threading.Event(), []
        self.threads = [threading.Thread(target=self.run, args=(n,), daemon=True) for n in range(clients)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def run(self, n):
        sizes = itertools.cycle(sorted(BODIES, key=lambda rows: (rows * (n + 3)) % 7))
        while not self.stopped.is_set():
            rows = next(sizes)
            self.answers.append((rows, *ask(self.port, BODIES[rows])))
            time.sleep(0.002 * n)

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join(60)


@pytest.fixture(scope="module")
def magika_port(start_server):
    return start_server(model=fixtures.magika())


@pytest.fixture
def started(start_lapwing, magika_port, tmp_path):
    """Starts Lapwing with these settings in front of the server; its file may be written anew."""

    def start(settings):
        file = tmp_path / "lapwing.yaml"
        file.write_text(f"config: {{watch: 1s}}\n{settings}")
        lapwing = start_lapwing(f"http://127.0.0.1:{magika_port}", config=file, env=NO_SPANS)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        return lapwing, file

    return start


def view(lapwing):
    return lapwing.json("/dispatch?format=json")


def counted(lapwing):
    """Requests by what became of them."""
    lines = [line for line in lapwing.metrics().splitlines() if line.startswith("lapwing_dispatch_requests_total{")]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines}


def overtaken(port, lapwing):
    """How many of three small requests, which are sent once six large ones wait, are answered before the last of these."""
    order, lock = [], threading.Lock()

    def run(name, rows):
        status, _ = ask(port, BODIES[rows])
        assert status == 200
        with lock:
            order.append(name)

    threads = [threading.Thread(target=run, args=("large", LARGE)) for _ in range(7)]
    for thread in threads:
        thread.start()
    if lapwing:
        wait_for(lambda: view(lapwing)["waiting"] >= 4, 20, "large ones wait", 0.002)
    small = [threading.Thread(target=run, args=("small", SMALL)) for _ in range(3)]
    for thread in small:
        thread.start()
    for thread in threads + small:
        thread.join()
    return sum(name == "small" for name in order[: len(order) - order[::-1].index("large")])


def test_a_server_that_works_on_one_at_a_time_is_found_out_and_gets_its_queue(started, magika_port):
    lapwing, file = started("dispatch: {mode: observe, patience: 50}\n")
    direct = {rows: ask(magika_port, body) for rows, body in BODIES.items()}
    assert all(status == 200 for status, _ in direct.values())
    with Load(lapwing.port, 4) as load:
        wait_for(lambda: view(lapwing)["upstreams"][0]["slots"] == 1, 120, "it is found to work on one at a time", 0.5)
        wait_for(lambda: view(lapwing)["replayed"], 60, "requests were replayed", 0.5)
    found = view(lapwing)
    assert (found["mode"], found["is_on"], found["waiting"]) == ("observe", False, 0)
    (line,) = found["series"]
    assert line["model"] == "magika" and line["per_unit_ns"] > 0 and line["samples"] >= 64, line
    assert found["replayed"]["requests"] >= 64 and found["replayed"]["with"]["mean_ns"] > 0
    text = lapwing.get("/dispatch")[2].decode()
    assert "dispatch observes" in text and "works on 1 at once" in text and "through the queue" in text, text
    assert set(counted(lapwing).values()) == {0}, "nobody asked to be sent"
    assert all((status, body) == direct[rows] for rows, status, body in load.answers)

    file.write_text(file.read_text().replace("observe", "on, recheck: off"))
    wait_for(lambda: view(lapwing)["is_on"], 20, "it is on")
    with Load(lapwing.port, 6) as load:
        wait_for(lambda: counted(lapwing).get("queued", 0) >= 60, 120, "requests wait", 0.2)
        most = max(view(lapwing)["upstreams"][0]["running"] for _ in range(40))
    assert most <= 2, "one that it works on, and one to go on with"
    assert all((status, body) == direct[rows] for rows, status, body in load.answers), "answers are those of the server"
    assert "dispatch is on" in lapwing.get("/dispatch")[2].decode()
    assert sum(overtaken(lapwing.port, lapwing) for _ in range(3)) == 9, "all small ones overtake"
    wait_for(lambda: view(lapwing)["upstreams"][0]["running"] == view(lapwing)["waiting"] == 0, 20, "nothing is left")
    wait_for(lambda: {k: v for k, v in lapwing.outcomes().items() if v} == {"ok": lapwing.count()}, 20, "all are counted, and none failed")
    (series,) = lapwing.series()
    assert series["phases"]["dispatch"]["count"] >= counted(lapwing)["queued"]


def test_a_trial_turns_it_on_and_off(started):
    """`dispatch.mode` is off here: only the trial turns it."""
    unguarded = "stop_on: {p50_ratio: off, p99_ratio: off, errors: off, throughput_ratio: off}"
    lapwing, file = started(f"dispatch: {{slots: 1}}\ntrial: {{lever: dispatch, block: 1s, drop: 100ms, {unguarded}}}\n")
    sides = set()

    def has_seen_both():
        shown = lapwing.json("/trials?format=json")
        sides.add(view(lapwing)["is_on"])
        return len(sides) == 2 and min(shown["on"]["blocks"], shown["off"]["blocks"]) >= 5 and counted(lapwing)["queued"] >= 10

    with Load(lapwing.port, 4) as load:
        wait_for(has_seen_both, 120, "both kinds of blocks end", 0.3)
    report = lapwing.json("/trials?format=json")
    assert (report["lever"], report["state"]) == ("dispatch", "running"), report
    assert report["on"]["requests"] > 0 < report["off"]["requests"]
    assert {status for _, status, _ in load.answers} == {200}
    wait_for(lambda: lapwing.count() == len(load.answers), 20, "each is counted once")
    file.write_text("config: {watch: 1s}\n")
    wait_for(lambda: lapwing.json("/trials?format=json") is None and view(lapwing) is None, 20, "it ends")
    before = counted(lapwing)
    with Load(lapwing.port, 3) as load:
        wait_for(lambda: len(load.answers) > 12, 60, "answers come")
    assert counted(lapwing) == before, "nobody asks any more"


# --- a server that batches what is there

BATCHED = 16
"""Clients at once."""


def batched_load(port, count, seed=0):
    """All clients ask until so many requests are answered; the answers must be right."""
    numbers, lock, errors = iter(range(count)), threading.Lock(), []

    def run():
        try:
            with Client("json", port) as client:
                while True:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    rows = rows_of(1 + (number * 7 + seed) % 4, seed=number)
                    np.testing.assert_allclose(client.infer("fwd", "FEAT", rows, "LOGIT"), rows * 2, atol=1e-5)
        except Exception as error:  # noqa: BLE001  the thread's error is the test's
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(BATCHED)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_a_server_that_batches_is_never_starved(behind, tmp_path):
    """`fwd` takes 8 ms a batch of up to 32 rows: a window would take most of its throughput."""
    file = tmp_path / "lapwing.yaml"
    file.write_text("dispatch: {mode: on}\n")
    served = behind(Triton, otlp="otlp_http", config=file)
    lapwing, triton = served.lapwing, served.server
    batched_load(lapwing.port, 600)
    wait_for(lambda: view(lapwing)["upstreams"][0]["refused"] != "too_few_requests", 20, "it is judged")
    before, seen, done = triton.statistics()["fwd"], [], threading.Event()

    def watch():
        while not done.is_set():
            seen.append(view(lapwing))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    batched_load(lapwing.port, 600, seed=1)
    done.set()
    watcher.join()
    after = triton.statistics()["fwd"]
    assert {one["upstreams"][0]["refused"] for one in seen} == {"not_one_by_one"}, seen[-1]
    assert max(one["upstreams"][0]["running"] for one in seen) > 2 and max(one["waiting"] for one in seen) == 0
    requests = after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"]
    executions = after["execution_count"] - before["execution_count"]
    assert requests == 600 and requests / executions > 3, "its batches have as many requests as without a queue"
    assert "nothing waits in front of" in lapwing.get("/dispatch")[2].decode()
    assert {result: count for result, count in counted(lapwing).items() if count} == {"unknown": 1200}


# --- settings

@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("{mode: fast}", "dispatch.mode: fast: must be off, observe or on"),
        ("{slots: 0}", "dispatch.slots: 0: must be `auto`, or a number from 1 to 256"),
        ("{slots: many}", "dispatch.slots: many: must be `auto`, or a number from 1 to 256"),
        ("{order: lifo}", "dispatch.order: lifo: must be due or fifo"),
        ("{patience: 200}", "dispatch.patience: 200: must be between 0 and 100"),
        ("{reject: early}", "dispatch.reject: early: must be late or never"),
        ("{budget: soon}", "dispatch.budget: soon: is not a duration"),
        ("{classes: 3}", "dispatch.classes: 3: must be a list"),
        ("{classes: [{name: a, match: {model: m}, background: maybe}]}", "dispatch.classes[0].background: maybe: must be on or off"),
        ("{budget: 2h}", "dispatch.budget: 2h: must be between 1ms and "),
        ("{max_waiting: 0}", "dispatch.max_waiting: 0: must be between 1 and 65536"),
        ("{max_wait: 0s}", "dispatch.max_wait: 0s: must be between 1ms and "),
        ("{recheck: 1m}", "dispatch.recheck: 1m: must be between 100ms and 30s"),
        ("{classes: [{name: a b, match: {model: m}}]}", "dispatch.classes[0].name: a b: is no name"),
        ("{classes: [{name: a}]}", "dispatch.classes[0].match: needs at least one of route, model, class, header"),
        ("{classes: [{name: a, match: {model: m}, weight: 0}]}", "dispatch.classes[0].weight: 0: must be between 1 and 1000"),
        ("{classes: [{name: a, match: {model: m}}, {name: a, match: {model: n}}]}", "dispatch.classes[1].name: a: is that of another class"),
        ("{classes: [{name: a, match: {class: 9..3}}]}", "dispatch.classes[0].match.class: 9..3: has its ends the wrong way round"),
        ("{classes: [{name: a, match: {model: m}, share: 3}]}", "dispatch.classes[0].share: unknown key"),
        ("{slot: 1}", "dispatch.slot: unknown key; did you mean `dispatch.slots`?"),
    ],
)
def test_faults_name_the_key(binary, tmp_path, settings, says):
    file = tmp_path / "lapwing.yaml"
    file.write_text(f"upstream: http://h:1\ndispatch: {settings}\n")
    checked = subprocess.run([binary, "check", "--config", str(file)], capture_output=True, text=True)
    assert checked.returncode != 0 and says in checked.stdout + checked.stderr, checked


def test_what_is_not_read_has_no_queue_and_that_is_said(binary, tmp_path):
    file = tmp_path / "lapwing.yaml"
    file.write_text("upstream: http://h:1\ndispatch: {mode: on}\nprotocol: {read_bodies: false}\n")
    checked = subprocess.run([binary, "check", "--config", str(file)], capture_output=True, text=True)
    assert "dispatch.mode: has no effect" in checked.stdout + checked.stderr, checked
