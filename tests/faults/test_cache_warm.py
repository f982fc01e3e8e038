"""Answers that are there before somebody asks: `lapwing warm`, and `cache.warm` at the start."""

import http.client
import itertools
import json
import subprocess
import threading
import time

import pytest
from caching import ON, PATH, Answering, Caching, answer_to, body_of, caching
from fake import await_true
from ports import free_port
from sidecar import binary


AS_CLIENTS = {"content-type": "application/json", "accept-encoding": "identity"}


def line_of(body, **fields):
    """A line of a file of requests. Fields are those of the tests' clients, and these."""
    headers = AS_CLIENTS | {name.replace("_", "-"): value for name, value in fields.items()}
    return json.dumps({"path": PATH, "headers": headers, "body": body.decode()}) + "\n"


def lines(*numbers, want=None, **fields):
    fields |= {"x_want": json.dumps(want)} if want else {}
    return "".join(line_of(body_of(number), **fields) for number in numbers)


def warm(c, file, *flags, to=None, admin=None):
    """What `lapwing warm` did."""
    to, admin = to or f"http://127.0.0.1:{c.proxy.port}", admin or f"127.0.0.1:{c.proxy.admin}"
    command = [binary(), "warm", str(file), "--to", to, "--admin", admin, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def listed(tmp_path):
    def write(text):
        path = tmp_path / "requests.jsonl"
        path.write_text(text)
        return path

    return write


def test_each_different_request_is_asked_once_and_answered_from_the_cache_then(listed):
    with caching({"proof": 4}) as c:
        numbers = [float(n) for n in range(30)]
        file = listed(lines(*numbers, *numbers[20:], 29.0))
        done = warm(c, file, "--json")
        assert done.returncode == 0, done.stderr + done.stdout
        report = json.loads(done.stdout)
        assert (report["read"], report["distinct"], report["answered"], report["failed"]) == (41, 30, 30, {})
        assert (report["entries_before"], report["entries_after"]) == (0, 30)
        assert [one["state"] for one in report["series"]] == ["proven"]
        # each route is proven by its first requests, which are asked twice, and all are asked once more unless they are kept by then
        asked = len(c.server.asked)
        assert asked <= 30 + 2 * (4 + 8), asked
        assert all(c.is_hit(body_of(number)) for number in numbers), "every answer is there"
        assert c.ask(body_of(7.0))[2] == answer_to(body_of(7.0))
        again = json.loads(warm(c, file, "--json").stdout)
        assert (again["known"], again["entries_after"]) == (30, 30) and len(c.server.asked) == asked, "nothing is asked again"


def test_the_most_frequent_comes_first_and_the_rarest_are_left_out(listed):
    with caching({"proof": 0}) as c:
        file = listed(lines(*[1.0] * 2, *[2.0] * 5, 3.0, *[4.0] * 3))
        done = warm(c, file, "--max-requests", "3")
        assert done.returncode == 0 and "1 different requests are beyond --max-requests" in done.stdout, done.stdout + done.stderr
        assert c.server.asked == [body_of(2.0), body_of(4.0), body_of(1.0)]


def test_a_few_inputs_are_enough_to_prove_a_route(listed):
    with caching({"proof": 20}) as c:
        done = warm(c, listed(lines(1.0, 2.0)))
        assert done.returncode == 0 and "the cache keeps 2 answers now, 0 before" in done.stdout, done.stdout + done.stderr
        assert c.is_hit(body_of(1.0)) and c.is_hit(body_of(2.0))


def test_a_recording_warms_and_says_whom_it_is_of_no_use_to(tmp_path):
    with caching({"proof": 3}) as c:
        path = tmp_path / "traffic.lwr"
        command = [binary(), "record", "--sample", "100%", "--max-requests", "24", "--for", "30s", "--out", str(path)]
        recording = subprocess.Popen([*command, "--admin", f"127.0.0.1:{c.proxy.admin}"])
        assert await_true(path.exists, 10)
        for number in range(1_000):
            c.ask(body_of(float(number % 12), user="a"), authorization="Bearer x")
            if recording.poll() is not None:
                break
        assert recording.wait(60) == 0
        done = warm(c, path)
        assert done.returncode == 0 and "cache.scope is authorization" in done.stdout, done.stdout + done.stderr
        assert c.is_hit(body_of(3.0, user="a")), "without credentials, as a recording has none"


@pytest.mark.parametrize(("cache", "says"), [({"mode": "off"}, "cache.mode is off"), ({"mode": "observe"}, "cache.mode is observe")])
def test_where_nothing_is_kept_nothing_is_sent(listed, cache, says):
    with caching(cache) as c:
        done = warm(c, listed(lines(1.0)))
        assert done.returncode == 1 and says in done.stderr and c.server.asked == [], done.stderr


def test_failures_are_named_and_what_is_not_cached_does_not_hold_it_up(listed):
    with caching({"proof": 2}) as c:
        stateful = line_of(body_of(3.0, parameters={"sequence_id": 7}))
        done = warm(c, listed(lines(1.0, 2.0) + stateful + lines(9.0, want={"status": 503})), "--json")
        report = json.loads(done.stdout)
        assert done.returncode == 1 and report["failed"]["status 503"] == 1, report
        assert report["entries_after"] == 2
    with caching({"proof": 0}) as c:
        done = warm(c, listed(lines(1.0, want={"sleep": 2})), "--timeout", "300ms")
        assert done.returncode == 1 and "1 failed: it took longer than --timeout" in done.stdout, done.stdout


def test_who_changes_its_mind_is_not_trusted_and_that_is_said(listed):
    with caching({"proof": 10}) as c:
        drifts = itertools.count()
        answer = c.server.answer

        def drifting(peer, request, want):
            c.server.drift = next(drifts)
            answer(peer, request, want)

        c.server.answer = drifting
        done = warm(c, listed(lines(1.0, 2.0, 3.0)))
        assert done.returncode == 1 and "refused: the same question had another answer" in done.stdout, done.stdout + done.stderr
        assert len(c.server.asked) <= 3 * 2 + 3, "a few pairs show it, once the names of the route are known"


def test_a_rate_is_kept(listed):
    with caching({"proof": 0}) as c:
        began = time.monotonic()
        done = warm(c, listed(lines(*(float(n) for n in range(20)))), "--rate", "20")
        assert done.returncode == 0 and 0.9 <= time.monotonic() - began < 10, done.stderr


def test_a_busy_upstream_is_left_alone(listed):
    dispatch = {"mode": "on", "slots": 2}
    with Answering() as up:
        c = Caching(up, {**ON, "proof": 0}, metrics={})
        c.proxy.settings["sections"]["dispatch"] = dispatch
        with c.proxy:
            for number in range(80):
                c.ask(body_of(float(number)))

            def upstream():
                return json.loads(c.proxy.get("/dispatch?format=json"))["upstreams"][0]

            assert await_true(lambda: upstream()["slots"] == 2, 10), upstream()
            up.gate.clear()
            threads, _ = c.at_once([body_of(1.5), body_of(2.5)])
            assert await_true(lambda: upstream()["running"] == 2 and len(up.asked) == 82), upstream()
            done = []
            run = threading.Thread(target=lambda: done.append(warm(c, listed(lines(5.5, 6.5)), "--max-utilisation", "50%", "--json")))
            run.start()
            time.sleep(2.5)
            assert len(up.asked) == 82, "both slots work for others"
            up.gate.set()
            run.join(60)
            [thread.join() for thread in threads]
            report = json.loads(done[0].stdout)
            assert done[0].returncode == 0 and report["paused_ns"] > 1_000_000_000 and report["answered"] == 2, report


def test_where_nobody_knows_how_busy_it_is_it_rests_as_long_as_it_works(listed):
    with caching({"proof": 0}) as c:
        began = time.monotonic()
        done = warm(c, listed(lines(1.0, 2.0, 3.0, want={"sleep": 0.2})), "--max-utilisation", "50%", "--rate", "1000")
        assert done.returncode == 0 and "nobody knows how busy the upstream is" in done.stdout, done.stdout
        assert time.monotonic() - began >= 3 * 0.2 + 2 * 0.2, "one at a time, and pauses"


def test_what_is_wrong_is_said(listed, tmp_path):
    with caching() as c:
        for text, code, says in [("{}\n", 65, "line 1: "), ("", 65, "has no requests"), ('{"path": "v2"}\n', 65, "path: \"v2\"")]:
            done = warm(c, listed(text))
            assert done.returncode == code and says in done.stderr, done.stderr
        assert warm(c, tmp_path / "none").returncode == 65
        file = listed(lines(1.0))
        for flags, code in [(["--rate", "0"], 2), (["--max-utilisation", "150%"], 2), (["--max-size", "0"], 65)]:
            assert warm(c, file, *flags).returncode in (code, 64), flags
        closed = f"127.0.0.1:{free_port()}"
        done = warm(c, file, admin=closed)
        assert done.returncode == 69 and "is Lapwing running there?" in done.stderr, done.stderr
        done = warm(c, listed(lines(*(float(n) for n in range(9)))), to=f"http://{closed}")
        assert done.returncode == 69 and "cannot connect" in done.stderr, done.stderr


# === at the start ===


def readyz(proxy):
    connection = http.client.HTTPConnection("127.0.0.1", proxy.admin, timeout=5)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    finally:
        connection.close()


def started(up, file, **warm):
    return Caching(up, {**ON, "warm": {"file": str(file), **warm}})


def test_it_is_ready_once_it_is_warm(listed):
    with Answering() as up:
        up.gate.clear()
        c = started(up, listed(lines(*(float(n) for n in range(12)), host="models")))
        with c.proxy:
            assert await_true(lambda: readyz(c.proxy)[1].startswith("warming: 0 of 12 requests")), readyz(c.proxy)
            assert readyz(c.proxy)[0] == 503
            up.gate.set()
            assert await_true(lambda: readyz(c.proxy) == (200, "ready"), 20), readyz(c.proxy)
            assert json.loads(c.proxy.get("/cache?format=json"))["entries"] == 12
            assert all(c.is_hit(body_of(float(n)), host="models") for n in range(12))
            assert "warm: 12 requests in the file" in c.proxy.log()


def test_it_waits_for_the_upstream(listed):
    port = free_port()
    file = listed(lines(1.0, 2.0))
    proxy = Caching(type("Away", (), {"url": f"http://127.0.0.1:{port}"}), {**ON, "warm": {"file": str(file), "timeout": "10s"}}).proxy
    with proxy:
        assert not await_true(lambda: readyz(proxy)[0] == 200, 1.5)
        with Answering(port=port) as up:
            assert await_true(lambda: readyz(proxy)[0] == 200, 20), readyz(proxy)
            assert len(up.asked) >= 3 and json.loads(proxy.get("/cache?format=json"))["entries"] == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}\n", "not warm: line 1: "),
        (lines(1.0, want={"status": 503}), "1 failed: status 503"),
        (lines(1.0, want={"sleep": 5}), "not warm: 0 of 1 requests were sent within 1s (cache.warm.timeout)"),
    ],
)
def test_what_fails_does_not_keep_clients_waiting(listed, text, says):
    with Answering() as up:
        c = started(up, listed(text), timeout="1s")
        with c.proxy:
            assert await_true(lambda: readyz(c.proxy) == (200, "ready"), 10), readyz(c.proxy)
            assert await_true(lambda: says in c.proxy.log()), c.proxy.log()
            assert c.ask(body_of(3.0))[0] == 200


def test_beside_the_traffic_it_is_ready_at_once(listed):
    with Answering() as up:
        c = started(up, listed(lines(*(float(n) for n in range(6)))), before_ready=False)
        with c.proxy:
            assert await_true(lambda: readyz(c.proxy)[0] == 200, 5)
            assert await_true(lambda: json.loads(c.proxy.get("/cache?format=json"))["entries"] == 6, 20)


# === before it is out of date ===


def refreshed(c):
    return json.loads(c.proxy.get("/cache?format=json"))["refreshed"]


def test_what_is_asked_often_never_waits_for_the_upstream():
    with caching({"ttl": "2s", "refresh": "50%"}) as c:
        c.prove()
        assert not c.is_hit(body_of(1.0))
        for _ in range(60):
            assert "age" in c.ask(body_of(1.0))[1], "it is always given an answer from here"
            time.sleep(0.1)
        assert await_true(lambda: refreshed(c) >= 2)
        assert c.server.asked.count(body_of(1.0)) <= 2 + refreshed(c), "one at a time"
        assert c.ask(body_of(1.0))[2] == answer_to(body_of(1.0))
        (series,) = json.loads(c.proxy.get("/stats?window=all"))["series"]
        assert series["stages"]["upstream"]["count"] < len(c.server.asked), "what is asked in the background is in no figures of the model"


def test_what_is_asked_anew_is_slow_and_nobody_waits_for_it():
    with caching({"ttl": "3s", "refresh": "90%"}) as c:
        c.prove()
        assert not c.is_hit(body_of(1.0)) and c.is_hit(body_of(1.0))
        time.sleep(0.5)
        c.server.gate.clear()
        for _ in range(10):
            began = time.monotonic()
            assert "age" in c.ask(body_of(1.0))[1] and time.monotonic() - began < 0.2
        assert c.server.asked.count(body_of(1.0)) == 2, "once, however often it is wanted meanwhile"
        c.server.gate.set()
        assert await_true(lambda: refreshed(c) == 1)


def test_another_answer_in_the_background_ends_the_trust():
    with caching({"ttl": "3s", "refresh": "90%"}) as c:
        c.prove()
        assert not c.is_hit(body_of(1.0)) and c.is_hit(body_of(1.0))
        time.sleep(0.5)
        c.server.drift = 1
        assert "age" in c.ask(body_of(1.0))[1], "the one that brings it is still given the old one"
        assert await_true(lambda: json.loads(c.proxy.get("/cache?format=json"))["series"][0]["state"] == "refused")
        assert c.ask(body_of(1.0))[2] == answer_to(body_of(1.0), drift=1)


@pytest.mark.parametrize("then", ["status", "cut"])
def test_a_refresh_that_fails_is_tried_again(then):
    with caching({"ttl": "3s", "refresh": "90%"}) as c:
        c.prove()
        assert not c.is_hit(body_of(1.0)) and c.is_hit(body_of(1.0))
        time.sleep(0.5)
        c.server.always = {"status": 503} if then == "status" else {"cut": True}
        c.ask(body_of(1.0))
        assert await_true(lambda: c.server.asked.count(body_of(1.0)) == 2)
        c.server.always = {}
        assert await_true(lambda: c.ask(body_of(1.0))[0] == 200 and refreshed(c) == 1, 2)


def test_nothing_is_asked_in_the_background_while_clients_wait():
    with caching({"ttl": "3s", "refresh": "90%"}) as c:
        c.prove()
        assert not c.is_hit(body_of(1.0)) and c.is_hit(body_of(1.0))
        time.sleep(0.5)
        c.server.gate.clear()
        threads, _ = c.at_once([body_of(2.0)])
        assert await_true(lambda: c.server.asked[-1] == body_of(2.0))
        assert "age" in c.ask(body_of(1.0))[1]
        time.sleep(0.2)
        assert c.server.asked.count(body_of(1.0)) == 1
        c.server.gate.set()
        [thread.join() for thread in threads]
