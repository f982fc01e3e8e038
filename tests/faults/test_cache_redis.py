"""Answers that processes share in a Redis (`cache.redis`): a real one, which stops, stands still and comes back."""

import contextlib
import json
import pathlib
import shutil
import signal
import subprocess
import time
import urllib.request

import pytest
from caching import Answering, Caching, answer_to, body_of
from fake import await_true
from ports import free_port

SHARED = {"mode": "on", "proof": 0, "verify": "0%"}


class Redis:
    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.start()

    def start(self):
        command = ["redis-server", "--port", str(self.port), "--save", "", "--bind", "127.0.0.1", "--dir", str(self.folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        assert await_true(lambda: self.cli("ping") == "PONG", 10)

    def cli(self, *command):
        return subprocess.run(["redis-cli", "-p", str(self.port), *command], capture_output=True, text=True).stdout.strip()

    def stop(self):
        self.process.kill()
        self.process.wait()

    def answers(self):
        return [key for key in self.cli("keys", "*").split() if ":a:" in key]


@pytest.fixture
def redis(tmp_path):
    if not shutil.which("redis-server"):
        pytest.skip("no redis-server: apt-get install redis-server")
    server = Redis(tmp_path)
    yield server
    server.process.send_signal(signal.SIGCONT)
    server.stop()


@contextlib.contextmanager
def two(redis, tmp_path, deadline="1s"):
    """Two Lapwings in front of one server. On a busy machine a Redis may take longer than it usually has."""
    secret = pathlib.Path(tmp_path, "secret")
    secret.write_text("s" * 40)
    shared = {"url": f"redis://127.0.0.1:{redis.port}", "secret_file": str(secret), "deadline": deadline}
    settings = {**SHARED, "redis": shared}
    with Answering() as server:
        one, other = (Caching(server, settings) for _ in range(2))
        one.fields = other.fields = {"host": "m"}  # as behind one Service: the host is part of a question
        with one.proxy, other.proxy:
            ready = lambda one: one.ask(body_of(time.monotonic()))[0] == 200 and redis.answers()  # noqa: E731
            assert await_true(lambda: ready(one), 10) and await_true(lambda: ready(other), 10), redis.cli("keys", "*")
            time.sleep(0.3)
            redis.cli("del", *redis.answers())
            yield one, other


def share(redis, one, other, value):
    """`one` asks, and then `other` is given that answer."""
    body = body_of(value)
    before = len(redis.answers())
    assert one.ask(body)[2] == answer_to(body)
    assert await_true(lambda: len(redis.answers()) > before, 5), redis.cli("keys", "*")
    asked = len(one.server.asked)
    status, headers, answer = other.ask(body)
    assert (status, answer, len(one.server.asked), "age" in headers) == (200, answer_to(body), asked, True)


def test_what_one_was_told_another_gives_and_says_so(redis, tmp_path):
    with two(redis, tmp_path) as (one, other):
        share(redis, one, other, 3.0)
        assert await_true(lambda: other.served_by().get("l2") == 1)
        assert other.is_hit(body_of(3.0)), "from memory now"
        assert await_true(lambda: other.served_by().get("l1") == 1)
        assert b'result="l2"} 1' in other.proxy.get("/metrics")


def test_a_purge_of_one_is_one_of_all(redis, tmp_path):
    with two(redis, tmp_path) as (one, other):
        share(redis, one, other, 3.0)
        assert one.is_hit(body_of(3.0)) and other.is_hit(body_of(3.0))
        request = urllib.request.Request(f"http://127.0.0.1:{one.proxy.admin}/cache/purge", method="POST")
        assert urllib.request.urlopen(request, timeout=10).status == 200
        one.server.drift = 1.0
        assert json.loads(one.ask(body_of(3.0))[2])["outputs"][0]["data"] == [4.0]
        assert await_true(lambda: json.loads(other.ask(body_of(3.0))[2])["outputs"][0]["data"] == [4.0], 5), "within a moment"


def test_what_is_there_and_is_no_answer_is_refused(redis, tmp_path):
    with two(redis, tmp_path) as (one, other):
        one.ask(body_of(3.0))
        assert await_true(lambda: len(redis.answers()) == 1, 5)
        (key,) = redis.answers()
        for value in ("", "x", "x" * 500):
            redis.cli("set", key, value)
            assert other.ask(body_of(3.0), want={"headers": {"cache-control": "no-store"}})[2] == answer_to(body_of(3.0))
        assert await_true(lambda: "l2" not in other.served_by())
        assert other.ask(body_of(3.0))[2] == answer_to(body_of(3.0))


def test_a_redis_that_stands_still_or_dies_delays_nobody_for_long_and_is_found_again(redis, tmp_path):
    with two(redis, tmp_path, deadline="20ms") as (one, other):
        redis.process.send_signal(signal.SIGSTOP)
        took = []
        for at in range(30):
            began = time.monotonic()
            assert one.ask(body_of(100.0 + at))[0] == 200
            took.append(time.monotonic() - began)
        assert sorted(took)[15] < 0.25, took
        redis.process.send_signal(signal.SIGCONT)
        redis.stop()
        assert all(one.ask(body_of(200.0 + at))[0] == 200 for at in range(10))
        redis.start()
        assert await_true(lambda: one.ask(body_of(time.monotonic()))[0] == 200 and redis.answers(), 15), "it is written to again"


def test_without_a_secret_nothing_starts(redis, tmp_path):
    with Answering() as server, pytest.raises(AssertionError, match="cache.redis.secret_file"):
        with Caching(server, {**SHARED, "redis": {"url": f"redis://127.0.0.1:{redis.port}"}}).proxy:
            pass
