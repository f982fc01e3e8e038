"""A live split between uvicorn servers: who goes where, what is found out of it, and that it rises and stops by itself."""

import http.client
import itertools
import subprocess
import threading

import pytest

from lapwing import NO_SPANS
from named_servers import Server, ask
from process import wait_for

pytestmark = pytest.mark.beside


@pytest.fixture
def split(start_lapwing, tmp_path, logs):
    """Starts a baseline and a candidate, and Lapwing that splits between them."""

    def start(settings, candidate=None, baseline=None):
        servers = {
            "base": Server("base", tmp_path, logs, **(baseline or {})),
            "cand": Server("cand", tmp_path, logs, **(candidate or {})),
        }
        of = "".join(f"  {name}: {{url: '{server.url}'}}\n" for name, server in servers.items())
        file = tmp_path / "lapwing.yaml"
        file.write_text(f"upstreams:\n{of}split:\n  candidate: cand\n  key: header:x-user\n{settings}")
        lapwing = start_lapwing(None, config=file, env=NO_SPANS)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        return servers, lapwing

    return start


class Users:
    """Users who ask in turn, over some connections."""

    def __init__(self, port, users, connections=6):
        self.port, self.stopped, self.lock = port, threading.Event(), threading.Lock()
        self.answers = {f"user-{n}": [] for n in range(users)}
        self.statuses = []
        self.turn = itertools.cycle(self.answers)
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(connections)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        while not self.stopped.is_set():
            with self.lock:
                user = next(self.turn)
            connection.request("POST", "/x", body="n", headers={"x-user": user})
            response = connection.getresponse()
            name = response.read().decode()
            with self.lock:
                self.answers[user].append(name)
                self.statuses.append(response.status)
        connection.close()

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def shown(lapwing):
    return lapwing.json("/split?format=json")


def requests(lapwing):
    """What the metrics count by side."""
    lines = [line for line in lapwing.metrics().splitlines() if line.startswith("lapwing_split_requests_total{")]
    return {line.split('side="')[1].split('"')[0]: int(float(line.split()[-1])) for line in lines}


def test_users_stay_where_they_are_while_the_share_rises(split):
    servers, lapwing = split("  ramp: [20%, 60%]\n  step: 10s\n  stop_on: {errors: 10%}\n")
    assert shown(lapwing)["state"] == "rising" and shown(lapwing)["share"] == 0.2
    with Users(lapwing.port, 400) as users:
        wait_for(lambda: shown(lapwing)["share"] == 0.6, 90, "it rises")
        before = len(users.statuses)
        wait_for(lambda: len(users.statuses) > before + 1_000, 30, "answers come")
    assert set(users.statuses) == {200}
    moved = 0
    for user, names in users.answers.items():
        runs = [name for name, _ in itertools.groupby(names)]
        assert runs in (["base"], ["cand"], ["base", "cand"]), (user, runs)
        moved += len(runs) == 2
    assert 100 <= moved <= 220, "two fifths of 400"
    at_candidate = sum(names[-1] == "cand" for names in users.answers.values())
    assert 190 <= at_candidate <= 290, "three fifths"
    report = shown(lapwing)
    assert (report["state"], report["step"], report["baseline"]["failed"]) == ("steady", [2, 2], 0)
    assert report["figures"]["total"]["pairs"] > 20 and report["candidate_side"]["keys"] >= 20
    assert ask(lapwing) == (200, "base"), "a request without a key"
    counted = requests(lapwing)
    assert counted["candidate"] == len(servers["cand"].asked()) and counted["without_key"] == 1 and counted["away"] == 0
    text = lapwing.get("/split")[2].decode()
    assert text.startswith("candidate `cand` gets 60 % of keys (header:x-user)"), text
    assert "split: the candidate gets more requests" in lapwing.process.output()


def test_a_candidate_that_fails_gets_nothing_more(split):
    _, lapwing = split("  share: 50%\n  stop_on: {errors: 1%}\n", candidate={"STATUS": "500"})
    with Users(lapwing.port, 100) as users:
        wait_for(lambda: shown(lapwing)["state"] == "stopped", 90, "it stops")
        assert 500 in users.statuses
        before = len(users.statuses)
        wait_for(lambda: len(users.statuses) > before + 300, 30, "answers come")
        assert set(users.statuses[before + 12 :]) == {200}
    report = shown(lapwing)
    assert report["share"] == 0 and "requests to the candidate failed (100.00 %)" in report["reason"], report["reason"]
    assert 'lapwing_split_stopped{candidate="cand"} 1' in lapwing.metrics().replace("1.0", "1")
    assert "split: stopped; the candidate gets no more requests" in lapwing.process.output()


@pytest.mark.alone
def test_a_slower_candidate_is_found(split):
    _, lapwing = split("  share: 50%\n  stop_on: {p50_ratio: 1.05}\n", candidate={"MS": "40"}, baseline={"MS": "20"})
    with Users(lapwing.port, 2_000, connections=4):
        wait_for(lambda: shown(lapwing)["state"] == "stopped", 90, "it stops")
    report = shown(lapwing)
    assert report["reason"].startswith("p50 of the candidate is 1."), report["reason"]
    assert report["figures"]["total"]["verdict"] == "slower"


def test_a_candidate_that_is_away_is_replaced(split):
    servers, lapwing = split("  share: 50%\n")
    with Users(lapwing.port, 50) as users:
        wait_for(lambda: len(users.statuses) > 300, 20, "answers come")
        servers["cand"].kill()
        wait_for(lambda: requests(lapwing)["away"] > 50, 20, "its users are served by the baseline")
        before = len(users.statuses)
        wait_for(lambda: len(users.statuses) > before + 300, 20, "answers come")
        assert set(users.statuses[before + 12 :]) == {200}
        servers["cand"].start()
        back = requests(lapwing)["candidate"]
        wait_for(lambda: requests(lapwing)["candidate"] > back + 50, 20, "it is found again")
    # what was under way at the kill cannot be sent again
    assert sum(status != 200 for status in users.statuses) <= 6


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("{candidate: c}", "split.candidate: c: is none of `upstreams`: a, b"),
        ("{candidate: b, key: /user/id}", "seems to point into the body"),
        ("{candidate: b, ramp: [5%, 1%], stop_on: {errors: 1%}}", "split.ramp[1]: 1%: must be above 5%"),
        ("{candidate: b, ramp: [5%]}", "split.ramp: 1: needs a limit in stop_on"),
        ("{candidate: b, stop_on: {p99_ratio: fast}}", "split.stop_on.p99_ratio: fast: is not a ratio"),
    ],
)
def test_faults_name_the_key(binary, tmp_path, settings, says):
    file = tmp_path / "lapwing.yaml"
    file.write_text(f"upstreams: {{a: {{url: 'http://h:1'}}, b: {{url: 'http://h:2'}}}}\nsplit: {settings}\n")
    checked = subprocess.run([binary, "check", "--config", str(file)], capture_output=True, text=True)
    assert checked.returncode != 0 and says in checked.stdout + checked.stderr, checked
