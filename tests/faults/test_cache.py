"""Requests that are answered by earlier answers (`cache`), or wait for the answer to the same one: whatever anybody does, nobody is given an
answer that the server would not have given."""

import itertools
import json
import random
import signal
import socket
import threading
import time

import pytest
from caching import ON, PATH, Answering, Caching, answer_to, body_of, caching
from fake import await_true

# === what is given again ===


def test_an_answer_is_given_again_byte_for_byte_with_its_age_once_the_server_has_shown_that_it_says_the_same():
    with caching() as c:
        seen = []
        # the names of a route and a model are known a moment after their first answer
        while len(seen) < 300 and sum("age" in headers for _, headers, _ in seen) < 3:
            seen.append(c.ask(body_of(1.5)))
            time.sleep(0.01)
        count = len(seen)
        assert {(status, body) for status, _, body in seen} == {(200, answer_to(body_of(1.5)))}
        asked = len(c.server.asked)
        assert ["age" in headers for _, headers, _ in seen] == [False] * asked + [True] * 3
        assert asked >= 3 and count - asked == 3, "a first, and two that say the same"
        assert seen[0][1]["content-type"] == seen[-1][1]["content-type"] and "date" in seen[-1][1]
        assert await_true(lambda: c.served_by() == {"upstream": asked, "l1": 3})
        (series,) = json.loads(c.proxy.get("/stats"))["series"]
        assert (series["total"]["count"], series["cached"]["count"]) == (asked, 3), "the model's figures are of what it answered"
        assert series["stages"]["cache"]["count"] == count and series["stages"]["upstream"]["count"] == asked


def test_tensors_are_the_same_whatever_their_json_looks_like_and_each_is_told_its_own_id():
    with caching({"key": "tensors"}) as c:
        c.prove()
        one = b'{"id": "a", "inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, 2]}]}'
        other = b'{"inputs":[{"datatype":"FP32","data":[1,2e0],"shape":[2],"name":"x"}],"id":"b"}'
        assert not c.is_hit(one)
        before = len(c.server.asked)
        assert json.loads(c.ask(other)[2]) == json.loads(answer_to(other)) and len(c.server.asked) == before
    with caching() as c:
        c.prove()
        assert not c.is_hit(one) and not c.is_hit(other) and c.is_hit(one), "by bytes they are two"


def test_answers_end_with_their_time():
    with caching({"ttl": "500ms"}) as c:
        c.prove()
        assert not c.is_hit(body_of(7.0)) and c.is_hit(body_of(7.0))
        time.sleep(0.6)
        assert not c.is_hit(body_of(7.0))


def test_what_is_observed_is_never_given():
    with caching({"mode": "observe"}) as c:
        assert not any(c.is_hit(body_of(1.0)) for _ in range(20))
        assert await_true(lambda: c.served_by() == {"upstream": 20})


# === what is not ===


@pytest.mark.parametrize("headers", [{"cache-control": "no-store"}, {"cache-control": "private"}, {"set-cookie": "a=b"}, {"vary": "*"}, {"vary": "x-a"}])
def test_an_answer_that_is_not_for_others_is_not_kept(headers):
    with caching() as c:
        c.prove()
        assert not any(c.is_hit(body_of(3.0), want={"headers": headers}) for _ in range(4))


@pytest.mark.parametrize("status", [201, 400, 404, 429, 500, 503])
def test_only_200_is_kept(status):
    with caching() as c:
        c.prove()
        before = len(c.server.asked)
        assert [c.ask(body_of(3.0), {"status": status})[0] for _ in range(3)] == [status] * 3
        assert len(c.server.asked) - before == 3


@pytest.mark.parametrize(
    "more",
    [
        {"parameters": {"sequence_id": 7}},
        {"parameters": {"sequence_id": 7, "sequence_start": True}},
        {"outputs": [{"name": "y", "parameters": {"shared_memory_region": "a", "shared_memory_byte_size": 4}}]},
    ],
)
def test_a_call_that_leaves_something_behind_is_never_answered_from_here(more):
    with caching() as c:
        c.prove()
        assert not any(c.is_hit(body_of(3.0, **more)) for _ in range(4))


def test_a_client_may_refuse_what_is_kept_or_want_nothing_else():
    with caching() as c:
        c.prove()
        assert not c.is_hit(body_of(4.0)) and c.is_hit(body_of(4.0))
        assert not c.is_hit(body_of(4.0), cache_control="no-cache")
        assert not c.is_hit(body_of(4.0), cache_control="no-store")
        assert c.is_hit(body_of(4.0), cache_control="only-if-cached")
        before = len(c.server.asked)
        status, headers, _ = c.ask(body_of(5.0), cache_control="only-if-cached")
        assert (status, headers["x-lapwing-error"], len(c.server.asked)) == (504, "not_cached", before)


def test_nobody_is_given_what_another_was_told():
    with caching() as c:
        c.prove()
        for who in ("Bearer a", "Bearer b", None):
            headers = {"authorization": who} if who else {}
            c.is_hit(body_of(4.0), **headers)
            assert c.ask(body_of(4.0), **headers)[2] == answer_to(body_of(4.0), who=who)
        assert not c.is_hit(body_of(4.0), cookie="session=1")
        assert not c.is_hit(body_of(4.0), x_api_key="1")
    with caching({"scope": "shared"}) as c:
        c.prove()
        assert not c.is_hit(body_of(4.0), authorization="Bearer a") and c.is_hit(body_of(4.0), authorization="Bearer b")


def test_other_models_paths_queries_and_accepted_forms_are_other_questions():
    with caching({"proof": 0}) as c:
        ways = [
            {"path": PATH},
            {"path": "/v2/models/n/infer"},
            {"path": "/v2/models/m/versions/1/infer"},
            {"path": PATH + "?a=1"},
            {"accept": "application/json"},
            {"accept_language": "de"},
        ]
        assert not any(c.is_hit(body_of(1.0), **way) for way in ways)
        assert all(c.is_hit(body_of(1.0), **way) for way in ways)


def test_a_large_request_and_a_large_answer_pass():
    with caching({"max_entry": "1KiB"}, hold={"max_body": "4KiB"}) as c:
        c.prove()
        assert not any(c.is_hit(body_of(*[1.0] * 4_000)) for _ in range(3)), "it is not held"
        assert not any(c.is_hit(body_of(2.0), want={"pad": 2_000}) for _ in range(3)), "it is not kept"


# === trust ===


def test_a_server_that_draws_its_answers_is_never_trusted():
    with caching() as c:
        for at in range(12):
            c.server.drift = at
            assert c.ask(body_of(1.0))[2] == answer_to(body_of(1.0), drift=at)
        assert len(c.server.asked) == 12


def test_the_first_other_answer_ends_it():
    with caching({"verify": "25%"}) as c:
        c.prove()
        c.server.drift = 1.0  # somebody replaced the model where it is
        given = [json.loads(c.ask(body_of(0.5, 0.25))[2])["outputs"][0]["data"][0] for _ in range(40)]
        stale = [at for at, value in enumerate(given) if value == 0.75]
        assert max(stale, default=0) < 8, "one in four is compared"
        assert given[8:] == [1.75] * 32
        assert "another answer to the same question" in c.proxy.log()


def test_another_version_of_the_model_is_another_model():
    with caching() as c:
        c.prove()
        assert not c.is_hit(body_of(1.0)) and c.is_hit(body_of(1.0))
        c.server.version = "2"
        assert json.loads(c.ask(body_of(2.0))[2])["model_version"] == "2"
        assert await_true(lambda: json.loads(c.ask(body_of(1.0))[2])["model_version"] == "2", 5)
        assert all(json.loads(c.ask(body_of(1.0))[2])["model_version"] == "2" for _ in range(8))


def test_a_server_that_was_away_is_another_server():
    with Answering() as away:
        port = away.port
    first = Answering(port=port)
    with caching(server=first) as c:
        c.prove()
        assert not c.is_hit(body_of(1.0)) and c.is_hit(body_of(1.0))
        first.__exit__(None)
        assert c.ask(body_of(2.0))[0] == 502
        first.version = "2"
        first.__enter__()
        assert await_true(lambda: c.ask(body_of(3.0))[0] == 200, 10)
        assert json.loads(c.ask(body_of(1.0))[2])["model_version"] == "2"


# === the same request several times at once ===


def test_a_hundred_at_once_ask_once():
    with caching() as c:
        c.prove()
        before = len(c.server.asked)
        threads, answers = c.at_once([body_of(8.0)] * 100, {"sleep": 0.3})
        [thread.join(30) for thread in threads]
        assert {(status, body) for status, _, body, _ in answers} == {(200, answer_to(body_of(8.0)))}
        assert len(c.server.asked) - before == 1
        assert await_true(lambda: c.served_by().get("coalesced", 0) + c.served_by().get("l1", 0) >= 99)
        followers = [one for one in json.loads(c.proxy.get("/exchanges?limit=500"))["exchanges"] if one["served_by"] == "coalesced"]
        assert followers and all([phase["phase"] for phase in one["phases"]] == ["coalesced"] for one in followers)
        assert all(sum(stage["ns"] for stage in one["stages"]) == one["total_ns"] for one in followers)


@pytest.mark.parametrize("want", [{"status": 500}, {"cut": True}, {"headers": {"cache-control": "no-store"}}, {"headers": {"set-cookie": "a=b"}}])
def test_a_failure_is_nobody_elses(want):
    with caching() as c:
        c.prove()
        before = len(c.server.asked)
        c.server.gate.clear()
        threads, answers = c.at_once([body_of(8.0)] * 8, want)
        assert await_true(lambda: len(c.server.asked) == before + 1)
        time.sleep(0.2)
        assert len(c.server.asked) == before + 1, "seven wait"
        c.server.gate.set()
        [thread.join(30) for thread in threads]
        assert len(c.server.asked) - before == 8, "each is asked"
        assert len(answers) == 8 and all(answers)


@pytest.mark.parametrize("when", ["before_the_answer", "amid_the_answer"])
def test_a_leader_that_leaves_takes_nothing_from_those_who_follow(when):
    with caching() as c:
        c.prove()
        before = len(c.server.asked)
        body = body_of(8.0)
        want = json.dumps({"pause": 0.6} if when == "amid_the_answer" else {"sleep": 0.6})
        head = f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1:{c.proxy.port}\r\naccept-encoding: identity\r\ncontent-type: application/json\r\nx-want: {want}\r\ncontent-length: {len(body)}\r\n\r\n"
        leader = socket.create_connection(("127.0.0.1", c.proxy.port))
        leader.sendall(head.encode() + body)
        assert await_true(lambda: len(c.server.asked) == before + 1)
        threads, answers = c.at_once([body] * 5)
        time.sleep(0.2)
        if when == "amid_the_answer":
            assert leader.recv(4_096).startswith(b"HTTP/1.1 200")
        leader.close()
        [thread.join(30) for thread in threads]
        assert {(status, text) for status, _, text, _ in answers} == {(200, answer_to(body))}
        assert len(c.server.asked) == before + 1
        assert c.is_hit(body), "it is kept"


def test_a_follower_that_leaves_is_forgotten_and_one_that_waits_too_long_goes_on_its_own():
    with caching({"coalesce": {"wait": "300ms"}}) as c:
        c.prove()
        before = len(c.server.asked)
        c.server.gate.clear()
        threads, answers = c.at_once([body_of(8.0)] * 3)
        assert await_true(lambda: len(c.server.asked) == before + 3, 5), "two went on their own"
        c.server.gate.set()
        [thread.join(30) for thread in threads]
        assert {(status, body) for status, _, body, _ in answers} == {(200, answer_to(body_of(8.0)))}


def test_those_beyond_the_bound_are_asked_at_once():
    with caching({"coalesce": {"followers": 2}}) as c:
        c.prove()
        before = len(c.server.asked)
        c.server.gate.clear()
        threads, answers = c.at_once([body_of(8.0)] * 6)
        assert await_true(lambda: len(c.server.asked) == before + 4)
        c.server.gate.set()
        [thread.join(30) for thread in threads]
        assert {(status, body) for status, _, body, _ in answers} == {(200, answer_to(body_of(8.0)))}


def test_what_is_under_way_when_it_is_turned_off_ends_well():
    with caching() as c:
        c.prove()
        before = len(c.server.asked)
        c.server.gate.clear()
        threads, answers = c.at_once([body_of(8.0)] * 6)
        assert await_true(lambda: len(c.server.asked) == before + 1)
        c.proxy.reload(cache={"mode": "off"})
        c.server.gate.set()
        [thread.join(30) for thread in threads]
        assert {(status, body) for status, _, body, _ in answers} == {(200, answer_to(body_of(8.0)))}
        assert not any(c.is_hit(body_of(8.0)) for _ in range(3))


def test_a_drain_waits_for_those_who_follow():
    with caching() as c:
        c.prove()
        before = len(c.server.asked)
        c.server.gate.clear()
        threads, answers = c.at_once([body_of(8.0)] * 6)
        assert await_true(lambda: len(c.server.asked) == before + 1)
        time.sleep(0.3)
        c.proxy.ended_on_purpose = True
        c.proxy.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        c.server.gate.set()
        [thread.join(30) for thread in threads]
        assert {(status, body) for status, _, body, _ in answers} == {(200, answer_to(body_of(8.0)))}
        assert c.proxy.process.wait(10) == 0


def test_whatever_clients_do_each_is_told_what_the_server_says():
    """Many clients, few questions, who come and go; versions change meanwhile. Nobody who asks after a new one was heard of is told of an old."""
    with caching({"ttl": "10m", "key": "tensors", "verify": "5%"}) as c:
        c.prove()
        stop, wrong, told, heard = threading.Event(), [], itertools.count(), [(0.0, "1")]

        def run(seed):
            rng = random.Random(seed)
            while not stop.is_set():
                who = rng.choice([None, "Bearer a", "Bearer b"])
                body = body_of(float(rng.randrange(12)), **({"id": str(rng.randrange(10**6))} if rng.random() < 0.5 else {}))
                headers = {"authorization": who} if who else {}
                if rng.random() < 0.1:
                    raw = f"POST {PATH} HTTP/1.1\r\nhost: m\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                    with socket.create_connection(("127.0.0.1", c.proxy.port)) as leaving:
                        leaving.sendall(raw.encode() + body)
                        time.sleep(rng.random() * 0.005)
                    continue
                oldest = max(version for at, version in heard if at < time.monotonic() - 0.1)
                status, _, answer = c.ask(body, {"sleep": rng.random() * 0.01}, **headers)
                newest = c.server.version
                versions = [str(version) for version in range(int(oldest), int(newest) + 1)]
                if status == 200 and (version := json.loads(answer)["model_version"]) > heard[-1][1]:
                    heard.append((time.monotonic(), version))
                if status != 200 or json.loads(answer) not in [json.loads(answer_to(body, version, who)) for version in versions]:
                    wrong.append((status, body, who, answer, oldest, newest))
                next(told)

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(12)]
        for thread in threads:
            thread.start()
        for version in range(2, 6):
            time.sleep(1.5)
            c.server.version = str(version)
        time.sleep(1.5)
        stop.set()
        [thread.join(30) for thread in threads]
        assert not wrong, wrong[:3]
        assert next(told) > 300
        assert len(heard) == 5, "each version is heard of"
        assert c.served_by().get("l1", 0) > 100, "most are answered from here"


def test_other_questions_take_no_more_memory_than_they_may():
    with caching({"max_bytes": "8MiB", "max_entry": "16KiB", "proof": 0}) as c:
        for at in range(1_000):
            c.ask(body_of(float(at)), {"pad": 15_000})
        assert c.is_hit(body_of(999.0)), "the latest is there"
        before = len(c.server.asked)
        for at in range(0, 1_000, 10):
            c.ask(body_of(float(at)), {"pad": 15_000})
        assert len(c.server.asked) - before > 30, "old ones gave way"


def test_settings_that_cannot_be_are_named():
    with pytest.raises(AssertionError, match="cache.max_entry"), Answering() as up, Caching(up, {**ON, "max_entry": "1GiB"}).proxy:
        pass
