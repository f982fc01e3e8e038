"""Requests that wait in Lapwing rather than in their upstream (`dispatch`): whatever ends meanwhile, none is lost, altered or sent twice."""

import json
import random
import signal
import threading
import time

import pytest
from fake import await_true
from http2 import Client
from one_by_one import ON, PATH, OneByOne, ended_as, taught
from test_shutdown import SLOW
from wire import LIMIT, chunk


# === the window ===


def test_an_upstream_has_what_it_works_on_and_one_more():
    with OneByOne() as up, taught(up) as (proxy, callers):
        up.most = 0
        statuses = callers.load([1, 8, 2, 12, 4, 1] * 20, connections=12)
        assert list(statuses.values()) == [200] * 120
        assert up.most == 2, "one that it works on, and one to go on with"
        results = callers.results()
        assert results["queued"] > 60, results
        callers.check(up)


def test_nothing_waits_before_it_is_known_what_requests_take():
    with OneByOne() as up, taught(up, is_taught=False) as (proxy, callers):
        up.gate(False)
        calls = [callers.call(2) for _ in range(8)]
        assert await_true(lambda: len(up.waiting) == 8), callers.view()
        assert callers.view()["upstreams"][0]["refused"] == "too_few_requests"
        up.gate(True)
        ended_as(calls, 200)
        assert callers.results() == {"unknown": 8}
        assert len(callers.check(up)) == 8
        proxy.settled(ok=8)


def test_where_it_is_off_nothing_waits_and_nothing_is_counted():
    with OneByOne() as up, taught(up, is_taught=False, dispatch={"mode": "off"}) as (proxy, callers):
        up.gate(False)
        calls = [callers.call(2) for _ in range(8)]
        assert await_true(lambda: len(up.waiting) == 8)
        up.gate(True)
        ended_as(calls, 200)
        assert callers.results() == {} and callers.view() is None
        proxy.settled(ok=8)


def test_where_it_observes_all_pass():
    with OneByOne() as up, taught(up, dispatch={"mode": "observe"}) as (proxy, callers):
        up.gate(False)
        calls = [callers.call(2) for _ in range(8)]
        assert await_true(lambda: len(up.waiting) == 8)
        up.gate(True)
        ended_as(calls, 200)
        assert callers.results() == {} and not callers.view()["is_on"]
        callers.check(up)


# === upstreams end ===


def test_the_upstream_dies_with_requests_queued_and_comes_back():
    with OneByOne() as up, taught(up) as (proxy, callers):
        there = callers.occupy(up)
        queued = [callers.wait(work) for work in (3, 1, 8, 2, 1, 5)]
        up.die()
        ended_as(there, 502)
        ended_as(queued, 502)
        # one may meet the end of a connection that was kept
        told = [call.answer.one("x-lapwing-error") for call in queued]
        assert set(told) <= {"connect_refused", "upstream_reset"} and told.count("connect_refused") >= 4, told
        assert callers.waiting() == 0 and callers.view()["upstreams"][0]["running"] == 0
        with OneByOne(port=up.port) as again:
            assert await_true(lambda: proxy.get("/readyz").startswith(b"ready"))
            callers.occupy(again)
            for work in (4, 1, 2):
                callers.wait(work)
            again.gate(True)
            ended_as(callers.calls[-5:], 200)
            came = callers.check(up, again)
            # one that met the end of a kept connection may have been read there
            refused = {call.tag for call, why in zip(queued, told, strict=True) if why == "connect_refused"}
            assert not refused & set(came)
            proxy.settled(plain=False, ok=len(callers.sent) - 8, unreachable=len(refused), broken=8 - len(refused))


def test_one_of_three_dies_with_requests_queued_and_comes_back():
    servers = {name: OneByOne(name) for name in "abc"}
    with servers["a"] as a, servers["b"] as b, servers["c"] as c, taught(servers) as (proxy, callers):
        there = callers.occupy(a, b, c)
        assert all(server.most >= 2 for server in servers.values())
        queued = [callers.wait(work) for work in (3, 1, 8, 2, 1, 5, 2, 4, 1)]
        at_b = b.tags[-2:]
        b.die()
        assert await_true(lambda: sum(call.status is not None for call in there) == 2), "what b worked on is lost at once"
        a.gate(True), c.gate(True)
        ended_as(queued, 200)
        assert {call.tag: call.result() for call in there if call.status != 200} == dict.fromkeys(at_b, 502)
        came = callers.check(a, b, c)
        assert {call.tag for call in queued} <= set(came)
        with OneByOne("b", port=b.port) as again:
            up = 'lapwing_upstream_up{upstream="b"}'
            assert await_true(lambda: proxy.metric(up) == 1)
            statuses = callers.load([4] * 60, connections=9)
            assert set(statuses.values()) == {200}
            assert len(again.received) >= 10, "it has its share again"
            callers.check(a, b, c, again)
        assert [one["running"] for one in callers.view()["upstreams"]] == [0, 0, 0]


def test_one_of_two_is_never_there():
    """Whom nobody answers gets nothing, and holds nobody up."""
    with OneByOne("a") as a, OneByOne("b") as b, taught({"a": a, "b": b}) as (proxy, callers):
        b.die()
        statuses = callers.load([1, 4, 2, 8] * 10, connections=8)
        # on what was a kept connection, a request may meet the end of it
        assert list(statuses.values()).count(200) >= 38, statuses
        assert set(statuses.values()) <= {200, 502}
        callers.check(a, b)
        assert [one["running"] for one in callers.view()["upstreams"]] == [0, 0]


def test_one_that_stands_still_holds_up_only_what_it_has():
    servers = {name: OneByOne(name) for name in "abc"}
    with servers["a"] as a, servers["b"] as b, servers["c"] as c, taught(servers) as (proxy, callers):
        b.gate(False)
        calls = [callers.call(2) for _ in range(40)]
        held = lambda: {call.tag for call in calls if call.status is None}  # noqa: E731
        assert await_true(lambda: 1 <= len(held()) <= 2 and held() <= set(b.tags)), (held(), callers.view(), "a and c answer all others")
        shown = lambda: [one["is_stalled"] for one in callers.view()["upstreams"]]  # noqa: E731
        assert await_true(lambda: shown() == [False, True, False]), callers.view()
        assert proxy.metric('lapwing_dispatch_stalled{upstream="b"}') == 1
        assert b"b stands still: " in proxy.get("/dispatch") and json.loads(proxy.get("/stats"))["dispatch"]["left_out"] == 1
        b.gate(True)
        ended_as(calls, 200)
        assert len(callers.check(a, b, c)) == len(callers.sent)


def test_one_that_fails_at_once_does_not_draw_all_requests():
    """It always has room, for it fails faster than the other one answers."""
    with OneByOne("a") as a, OneByOne("b") as b, taught({"a": a, "b": b}) as (proxy, callers):
        b.always, there = serves_an_error, len(b.received)
        statuses = callers.load([4, 2, 8] * 40, connections=6)
        failed = [tag for tag, status in statuses.items() if status == 500]
        assert set(statuses.values()) == {200, 500} and sorted(failed) == sorted(b.tags[there:])
        assert len(failed) <= 12, "after some failures in a row it is left alone"
        callers.check(a, b)


def serves_an_error(peer):
    peer.send(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\noops")


def resets_before_it_answers(peer):
    peer.reset()


def resets_amid(peer):
    peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
    time.sleep(0.05)
    peer.reset()


def cuts_its_chunks(peer):
    peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"half"))
    time.sleep(0.05)
    peer.close()


def never_begins(peer):
    peer.closed_within(LIMIT)


def never_ends(peer):
    peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
    peer.closed_within(LIMIT)


def is_no_http(peer):
    peer.send(b"\0\1\2\3 what\r\n\r\n")


FAULTS = {
    serves_an_error: 500,
    resets_before_it_answers: 502,
    resets_amid: 0,
    cuts_its_chunks: 0,
    never_begins: 504,
    never_ends: 0,
    is_no_http: 502,
}


@pytest.mark.parametrize("script", FAULTS, ids=lambda script: script.__name__)
def test_an_upstream_that_fails_gets_the_next_request(script):
    """What failed holds no place: with `max_wait` at a minute, the others are sent only as places are given back."""
    limits = {"header_timeout": "3s", "idle_timeout": "3s"} if script in (never_begins, never_ends) else {}
    with OneByOne() as up, taught(up, **limits) as (proxy, callers):
        up.gate(False)
        bad = [callers.call(1, tag) for tag in ("bad1", "bad2")]
        up.instead = dict.fromkeys(["bad1", "bad2"], script)
        assert await_true(lambda: len(up.waiting) == 2, 6), callers.view()
        queued = [callers.wait(work) for work in (2, 1, 4, 1)]
        up.gate(True)
        ended_as(queued, 200)
        # the second may not be begun before both are given up
        ended_as(bad, FAULTS[script], *([504] if script is never_ends else []))
        callers.check(up)
        assert callers.view()["upstreams"][0]["running"] == callers.waiting() == 0


# === clients leave ===


@pytest.mark.parametrize("by_reset", [False, True], ids=["closes", "resets"])
def test_clients_that_leave_while_they_wait_are_never_sent(by_reset):
    with OneByOne() as up, taught(up) as (proxy, callers):
        there = callers.occupy(up)
        queued = [callers.wait(work) for work in (3, 1, 8, 2, 1, 5)]
        leave, stay = queued[::2], queued[1::2]
        for n, call in enumerate(leave):
            call.leave(by_reset)
            assert await_true(lambda n=n: callers.waiting() == 5 - n), callers.view()
        assert sum(one["waiting_work_ns"] for one in callers.view()["classes"]) > 0
        up.gate(True)
        ended_as(there + stay, 200)
        came = callers.check(up)
        assert not {call.tag for call in leave} & set(came)
        assert {call.tag for call in stay} <= set(came)
        assert callers.waiting() == 0 and callers.view()["classes"][0]["waiting_work_ns"] == 0
        assert await_true(lambda: proxy.outcomes().get("cancelled") == 3), proxy.outcomes()


def test_all_clients_leave():
    with OneByOne() as up, taught(up) as (proxy, callers):
        there = callers.occupy(up)
        queued = [callers.wait(work) for work in (3, 1, 8, 2)]
        for call in queued:
            call.leave()
        assert await_true(lambda: callers.waiting() == 0)
        up.gate(True)
        ended_as(there, 200)
        ended_as([callers.call(2) for _ in range(4)], 200)
        assert not {call.tag for call in queued} & set(callers.check(up))
        assert callers.view()["upstreams"][0]["running"] == 0


def test_a_client_that_leaves_while_it_is_served_gives_its_place_back():
    with OneByOne() as up, taught(up) as (proxy, callers):
        there = callers.occupy(up)
        queued = [callers.wait(work) for work in (3, 1)]
        for call in there:
            call.leave()
        assert await_true(lambda: callers.waiting() == 0), callers.view()
        up.gate(True)
        ended_as(queued, 200)
        callers.check(up)
        assert callers.view()["upstreams"][0]["running"] == 0


def ask_by_http2(client, callers, work, tag=None):
    """A stream that asks for so much work; its number."""
    tag, body = callers.new(work, tag)
    extra = [("x-tag", tag), ("x-takes", "1"), ("content-type", "application/json")]
    return tag, client.ask(PATH, "POST", body, extra=extra)


def test_streams_that_are_reset_while_they_wait_are_never_sent_and_hold_up_no_other():
    with OneByOne() as up, taught(up) as (proxy, callers), Client(proxy) as client:
        there = callers.occupy(up)
        streams = []
        for n, work in enumerate((3, 1, 8, 2, 1, 5)):
            streams.append(ask_by_http2(client, callers, work))
            assert await_true(lambda n=n: callers.waiting() == n + 1), callers.view()
        assert client.get("/x").body == b"ok", "a stream that does not wait goes past those that do"
        leave, stay = streams[::2], streams[1::2]
        for _, number in leave:
            client.reset(number, 8)
        assert await_true(lambda: callers.waiting() == 3), callers.view()
        assert client.get("/x").body == b"ok"
        up.gate(True)
        for tag, number in stay:
            stream = client.await_(number)
            assert (stream.status, json.loads(stream.body)["id"]) == (200, tag)
        ended_as(there, 200)
        came = callers.check(up)
        assert not {tag for tag, _ in leave} & set(came) and {tag for tag, _ in stay} <= set(came)


def test_a_connection_that_ends_takes_its_waiting_streams_with_it():
    with OneByOne() as up, taught(up) as (proxy, callers):
        there = callers.occupy(up)
        with Client(proxy) as client:
            gone = [ask_by_http2(client, callers, 2)[0] for _ in range(5)]
            assert await_true(lambda: callers.waiting() == 5)
            stays = callers.wait(3)
        assert await_true(lambda: callers.waiting() == 1), callers.view()
        up.gate(True)
        ended_as([*there, stays], 200)
        assert not set(gone) & set(callers.check(up))


def test_clients_that_do_not_read_their_answer_hold_no_place():
    """The upstream has answered whole: whether the client reads it is not its matter."""
    size = 64 * 1024

    def answers_at_length(peer):
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)

    with OneByOne() as up, taught(up) as (proxy, callers):
        up.gate(False)
        up.instead = {f"unread{n}": answers_at_length for n in range(6)}
        unread = [callers.call(1, tag, reads=False, rcvbuf=4_096) for tag in up.instead]
        assert await_true(lambda: len(up.waiting) == 2, 6)
        queued = [callers.call(work) for work in (2, 1, 4)]
        up.gate(True)
        ended_as(queued, 200)
        assert await_true(lambda: callers.view()["upstreams"][0]["running"] == 0)
        ended_as(unread, 200)
        assert all(len(call.answer.body) == size for call in unread)
        callers.check(up)


def test_answers_too_large_to_be_taken_do_not_stop_the_queue():
    """Two clients that take nothing of 16 MiB each keep the upstream from ending; others wait for `max_wait` at most."""
    size = 16 * 1024 * 1024

    def answers_at_length(peer):
        peer.sock.settimeout(25)
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)

    with OneByOne() as up, taught(up, dispatch={"max_wait": "1s"}) as (proxy, callers):
        up.instead = dict.fromkeys(["unread1", "unread2"], answers_at_length)
        unread = [callers.call(1, tag, reads=False, rcvbuf=65_536) for tag in up.instead]
        assert await_true(lambda: "unread1" in up.tags and "unread2" in up.tags, 6), callers.view()
        ended_as([callers.call(work) for work in (2, 1, 4)], 200)
        for call in unread:
            head, left = call.peer.until(b"\r\n\r\n"), size - len(call.peer.buf)
            while left:
                left -= len(call.peer.sock.recv(65_536))
            assert head.startswith(b"HTTP/1.1 200 ")
        assert await_true(lambda: callers.view()["upstreams"][0]["running"] == 0)
        callers.calls = [call for call in callers.calls if call not in unread]
        callers.check(up)


# === reload amid ===


@pytest.mark.parametrize("by_signal", [True, False], ids=["SIGHUP", "watched"])
def test_off_and_on_again_amid(by_signal):
    sections = {} if by_signal else {"config": {"watch": "1s"}}
    with OneByOne() as up, taught(up, sections=sections) as (proxy, callers):
        callers.occupy(up)
        waited = [callers.wait(work) for work in (3, 1, 8, 2)]
        proxy.reload(by_signal, dispatch={**ON, "mode": "off"})
        assert await_true(lambda: len(up.waiting) == 6), "those who waited go, though nothing has ended"
        passing = [callers.call(2) for _ in range(3)]
        assert await_true(lambda: len(up.waiting) == 9), "nobody waits any more"
        up.gate(True)
        ended_as(callers.calls, 200)
        before = callers.results()
        proxy.reload(by_signal, dispatch=ON)
        callers.teach()
        callers.occupy(up)
        again = [callers.wait(work) for work in (3, 1)]
        assert callers.results()["queued"] >= before["queued"] + 2
        up.gate(True)
        ended_as(waited + passing + again, 200)
        assert len(callers.check(up)) == len(callers.sent)
        assert callers.view()["upstreams"][0]["running"] == 0


def test_observe_amid_lets_those_go_who_come():
    with OneByOne() as up, taught(up) as (proxy, callers):
        callers.occupy(up)
        waited = [callers.wait(work) for work in (3, 1)]
        proxy.reload(dispatch={**ON, "mode": "observe"})
        callers.call(2)
        assert await_true(lambda: len(up.waiting) >= 3)
        up.gate(True)
        ended_as(callers.calls, 200)
        assert callers.waiting() == 0 and {call.tag for call in waited} <= set(callers.check(up))


CLASSES = [
    {"name": "gold", "match": {"header": "x-tier: gold"}, "weight": 4},
    {"name": "late", "match": {"header": "x-tier: late"}, "background": "on"},
]


def test_classes_change_amid():
    with OneByOne() as up, taught(up, dispatch={"classes": CLASSES}) as (proxy, callers):
        callers.occupy(up)
        for tier in ("gold", "late", "none") * 2:
            callers.wait(2, fields=f"x-tier: {tier}\r\n")
        for classes in (CLASSES[1:], [], [{"name": "m", "match": {"model": "m"}, "weight": 7}], CLASSES):
            proxy.reload(dispatch={**ON, "classes": classes})
            for tier in ("gold", "late", "none"):
                callers.wait(2, fields=f"x-tier: {tier}\r\n")
        assert [one["name"] for one in callers.view()["classes"]] == ["gold", "late", "other"]
        # `late` was gone for a while: its first five went to `other`, where its own of that time are too
        assert [one["waiting"] for one in callers.view()["classes"]] == [1, 1, 16], callers.view()
        up.gate(True)
        ended_as(callers.calls, 200)
        assert len(callers.check(up)) == len(callers.sent)
        assert callers.waiting() == 0
        assert all(one["waiting_work_ns"] == 0 for one in callers.view()["classes"])


def test_swaps_under_load_lose_nothing():
    with OneByOne("a") as a, OneByOne("b") as b, taught({"a": a, "b": b}) as (proxy, callers):
        statuses = {}
        load = threading.Thread(target=lambda: statuses.update(callers.load([1, 8, 2, 4] * 200, connections=8)), daemon=True)
        load.start()
        modes = ["off", "on", "observe", "on"]
        for swap in range(8):
            dispatch = {**ON, "mode": modes[swap % 4], "classes": CLASSES[: swap % 3], "order": ["due", "fifo"][swap % 2]}
            proxy.reload(dispatch=dispatch)
            time.sleep(0.1)
        load.join()
        assert list(statuses.values()) == [200] * 800
        assert len(callers.check(a, b)) == len(callers.sent)
        assert [one["running"] for one in callers.view()["upstreams"]] == [0, 0]


# === shutdown amid ===


def test_a_shutdown_empties_the_queue():
    with OneByOne() as up, taught(up, drain_timeout="20s") as (proxy, callers):
        callers.occupy(up)
        for work in (3, 1, 8, 2, 5):
            callers.wait(work)
        proxy.process.send_signal(signal.SIGTERM)
        assert await_true(lambda: not proxy.get("/readyz").startswith(b"ready"))
        time.sleep(0.3)
        assert all(call.status is None for call in callers.calls), "nobody is refused who has come"
        up.gate(True)
        ended_as(callers.calls, 200)
        assert proxy.process.wait(SLOW) == 0
        assert len(callers.check(up)) == len(callers.sent)
        assert "panicked" not in proxy.log()
        proxy.ended_on_purpose = True


def test_a_shutdown_that_takes_too_long_cuts_the_queue_off():
    with OneByOne() as up, taught(up, drain_timeout="1s") as (proxy, callers):
        callers.occupy(up)
        queued = [callers.wait(work) for work in (3, 1, 8)]
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.process.wait(SLOW) == 0
        ended_as(callers.calls, 0, 502, 503, 504)
        assert not {call.tag for call in queued} & set(callers.check(up)), "they were not sent in a hurry"
        assert "panicked" not in proxy.log()
        proxy.ended_on_purpose = True


# === all of it ===


def test_everything_at_once():
    """Clients that leave, over both versions, settings that change, and an upstream that dies and comes back, under load."""
    draw = random.Random(7)
    with OneByOne("a") as a, OneByOne("b") as b, taught({"a": a, "b": b}) as (proxy, callers):
        left, others = [], []
        with Client(proxy) as client:
            for n in range(150):
                call = callers.call(draw.choice((1, 3, 9)))
                if n % 5 == 0:
                    ask_by_http2(client, callers, 2)
                if n % 4 == 0:
                    call.leave(by_reset=n % 8 == 0)
                    left.append(call)
                if n % 40 == 20:
                    proxy.reload(dispatch={**ON, "classes": CLASSES[: n % 3], "order": draw.choice(("due", "fifo"))})
                if n == 60:
                    b.die()
                if n == 100:
                    others.append(OneByOne("b", port=b.port).__enter__())
        stayed = [call for call in callers.calls if call not in left]
        ended_as(stayed, 200, 502)
        assert sum(call.status == 502 for call in stayed) <= 6, "what b had, and what met the end of its connections"
        callers.check(a, b, *others)
        settled = lambda: callers.waiting() == 0 and [one["running"] for one in callers.view()["upstreams"]] == [0, 0]  # noqa: E731
        assert await_true(settled, 10), callers.view()
        # what a client sent and reset at once, nobody may have read
        least, most = len(callers.sent) - len(left), len(callers.sent)
        assert await_true(lambda: least <= sum(proxy.outcomes().values()) <= most), (proxy.outcomes(), least, most)
        others[0].__exit__(None)
