"""Requests that take long and are not sent to a second upstream (`dispatch.hedge`), what those have in common that are, and what is seen of them."""

import collections
import contextlib
import http.client
import json
import random
import threading
import time
import zlib

import pytest
from fake import await_true
from hedging import Twin, answered_by, hedging
from one_by_one import PATH, body_of, ended_as, taught
from test_dispatch import cuts_its_chunks, resets_amid, resets_before_it_answers, serves_an_error
from test_hedge import answers_429
from wire import chunk

LONG = 0.7
"""Seconds after which a small request has long taken too long."""


def seen_once(h, call):
    """Nobody else was sent the request that one server has. Returns the server."""
    tag = call if isinstance(call, str) else call.tag
    assert await_true(lambda: any(server.has(tag) for server in h.servers.values())), h.callers.view()
    time.sleep(LONG)
    (server,) = [server for server in h.servers.values() if server.has(tag)]
    return server


# === withheld ===


def test_while_no_other_is_idle_nobody_else_is_asked_and_then_at_once():
    with hedging() as h:
        h.gate(False)
        # 150 ms are predicted for each: both are there before either takes long
        calls = [h.callers.call(150, takes=1) for _ in range(2)]
        a, b = h.servers.values()
        assert await_true(lambda: len(a.waiting) == len(b.waiting) == 1, 6)
        (at_a,) = [call for call in calls if a.has(call.tag)]
        (at_b,) = [call for call in calls if b.has(call.tag)]
        time.sleep(2)
        assert not a.has(at_b.tag) and not b.has(at_a.tag)
        b.gate(True)
        answered_by(at_b, b)
        answered_by(at_a, b)
        h.counted(won=1, busy=1)
        a.gate(True)
        assert await_true(h.is_empty), h.running()
        h.check(twice={at_a.tag})


def test_what_waits_goes_before_what_would_go_twice():
    with hedging() as h:
        h.gate(False)
        calls = [h.callers.call(150, takes=1) for _ in range(2)]
        a, b = h.servers.values()
        assert await_true(lambda: len(a.waiting) == len(b.waiting) == 1, 6)
        time.sleep(1.5)
        next_ones = [h.callers.call(1) for _ in range(4)]
        assert await_true(lambda: len(a.waiting) == len(b.waiting) == 2 and h.callers.waiting() == 2, 6), h.callers.view()
        b.gate(True)
        # b works on all but what a has; then on the first of that
        assert await_true(lambda: len([call for call in next_ones if call.status]) >= 3), h.callers.view()
        (at_a,) = [call for call in calls if a.has(call.tag)]
        answered_by(at_a, b)
        before = [tag for tag in b.tags if tag in {call.tag for call in next_ones}]
        assert b.tags.index(at_a.tag) > b.tags.index(before[-1]) or len(before) >= 3
        a.gate(True)
        ended_as(h.callers.calls, 200)
        assert await_true(h.is_empty), h.running()
        h.check()


def test_who_was_withheld_is_sent_when_an_upstream_comes_back():
    """Nothing else ends meanwhile."""
    with hedging() as h:
        a, b = h.servers.values()
        b.die()
        up = 'lapwing_upstream_up{upstream="b"}'
        assert await_true(lambda: h.proxy.metric(up) == 0, 10)
        a.gate(False)
        call = h.callers.call(4, takes=1)
        assert await_true(lambda: a.has(call.tag))
        time.sleep(LONG)
        with Twin("b", b.port) as again:
            assert await_true(lambda: h.proxy.metric(up) == 1, 10)
            answered_by(call, again)
            h.counted(won=1)
            a.gate(True)
            assert await_true(h.is_empty), h.running()
            h.check(again)


def test_who_was_withheld_is_sent_when_the_other_has_been_sound_for_a_while():
    """What has just failed is asked again after a tenth of a second; nothing else ends meanwhile."""
    with hedging() as h:
        a, b = h.servers.values()
        a.gate(False), b.gate(False)
        calls = [h.callers.call(150, takes=1) for _ in range(2)]
        assert await_true(lambda: len(a.waiting) == len(b.waiting) == 1, 6)
        (at_a,) = [call for call in calls if a.has(call.tag)]
        (at_b,) = [call for call in calls if b.has(call.tag)]
        time.sleep(1.5)
        b.instead[at_b.tag] = serves_an_error
        b.gate(True)
        assert at_b.result() == 500
        answered_by(at_a, b)
        a.gate(True)
        assert await_true(h.is_empty), h.running()
        h.check()


def test_the_budget_is_of_time():
    with hedging(hedge={"budget": "0%", "burst": 1}) as h:
        # a request for which 40 ms are predicted: so large is the budget
        ended_as([h.callers.call(40, takes=1)], 200)
        call, first, second = h.sent_twice(2)
        time.sleep(0.5)
        second.gate(True)
        answered_by(call, second)
        first.gate(True)
        assert await_true(h.is_empty)
        # it took longer than the budget was
        first.gate(False), second.gate(False)
        alone = h.callers.call(2)
        seen_once(h, alone)
        h.gate(True)
        assert alone.result() == 200
        h.counted(won=1, budget=1)
        h.check(twice={call.tag})


def test_the_burst_comes_back_as_requests_pass():
    with hedging(hedge={"budget": "50%", "burst": 1}) as h:
        ended_as([h.callers.call(40, takes=1)], 200)
        call, first, second = h.sent_twice(2)
        time.sleep(0.3)
        h.gate(True)
        assert call.result() == 200 and await_true(h.is_empty)
        for _ in range(4):  # a second of predicted time, and half of it is earned
            ended_as([h.callers.call(250, takes=1)], 200)
        again, first, second = h.sent_twice(2)
        h.gate(True)
        assert again.result() == 200
        h.check(twice={call.tag, again.tag})


def test_not_while_the_upstreams_are_too_busy():
    with hedging(hedge={"max_utilisation": "0%"}) as h:
        h.gate(False)
        call = h.callers.call(4)
        seen_once(h, call)
        h.gate(True)
        assert call.result() == 200
        h.counted(utilisation=1)
        h.check(twice=())


def test_observed_they_are_counted_and_never_sent():
    with hedging(hedge={"mode": "observe"}) as h:
        h.gate(False)
        call = h.callers.call(4)
        server = seen_once(h, call)
        h.counted(observed=1)
        assert h.running() == {**dict.fromkeys(h.servers, 0), server.name: 1}
        h.gate(True)
        answered_by(call, server)
        h.follows()
        h.check(twice=())
        assert set(h.counts()) <= {"observed", "busy"}


def test_where_it_is_off_nothing_is_counted():
    with hedging(hedge={"mode": "off"}) as h:
        h.gate(False)
        call = h.callers.call(4)
        server = seen_once(h, call)
        h.gate(True)
        answered_by(call, server)
        h.counted()
        h.check(twice=())


def test_of_one_upstream_nothing_is_sent_twice():
    with hedging("a") as h:
        h.gate(False)
        call = h.callers.call(4)
        seen_once(h, call)
        h.gate(True)
        assert call.result() == 200
        h.counted()
        h.check(twice=())


def of_a_sequence(h):
    tag = f"seq{next(h.callers.numbers)}"
    return h.callers.call(1, tag, body=body_of(tag, 1, parameters={"sequence_id": 7}))


def in_gzip(h):
    tag = f"zip{next(h.callers.numbers)}"
    packer = zlib.compressobj(wbits=31)
    body = packer.compress(body_of(tag, 1)) + packer.flush()
    return h.callers.call(1, tag, body=body, fields="content-encoding: gzip\r\n")


def in_shared_memory(h):
    tag = f"shm{next(h.callers.numbers)}"
    tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 4}}
    return h.callers.call(1, tag, body=json.dumps({"id": tag, "inputs": [tensor]}).encode())


def is_no_json(h):
    return h.callers.call(1, body=b"not json")


def is_of_no_protocol(h):
    return h.callers.call(1, body=b'{"id": "x", "rows": [1, 2]}')


@pytest.mark.parametrize(
    ("send", "counted"),
    [(of_a_sequence, None), (in_gzip, "unrepeatable"), (in_shared_memory, "unrepeatable"), (is_no_json, None), (is_of_no_protocol, None)],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_what_may_not_be_repeated_is_sent_once(send, counted):
    with hedging() as h:
        h.gate(False)
        call = send(h)
        server = seen_once(h, call)
        assert h.running() == {**dict.fromkeys(h.servers, 0), server.name: 1}
        h.gate(True)
        assert call.result() == 200
        assert h.counts() == ({counted: 1} if counted else {})
        h.follows()
        assert call.tag not in h.check()
        assert await_true(h.is_empty)


def test_where_so_settled_what_takes_long_is_sent_to_two_at_once():
    with hedging(hedge={"dual_above": "100ms"}) as h:
        for _ in range(20):
            h.gate(False)
            # 400 ms are predicted: none takes long before
            call = h.callers.call(400, takes=1)
            is_dual = await_true(lambda call=call: all(server.has(call.tag) for server in h.servers.values()), 0.3)
            h.gate(True)
            assert call.result() == 200 and await_true(h.is_empty)
            if is_dual:
                break
            time.sleep(1)  # they are not idle enough yet
        assert is_dual
        h.gate(False)
        small = h.callers.call(50, takes=1)
        assert not await_true(lambda: all(server.has(small.tag) for server in h.servers.values()), 0.03)
        h.gate(True)
        assert small.result() == 200
        h.check()


# === what is sent twice is the same ===

MAX_BODY = 16 * 1024


def send(h, tag, fields, body, pieces=None, version="1.1"):
    """A request by hand; returns its connection."""
    h.callers.sent[tag] = body
    peer = h.proxy.client()
    head = f"POST {PATH} HTTP/{version}\r\nHost: m:80\r\nX-TAG: {tag}\r\nx-Takes: 1\r\nAccept: */*\r\nX-b: 2\r\nx-A: 1\r\nX-B:  3\r\nContent-type: application/json\r\n"
    peer.send(f"{head}{fields}\r\n")
    for piece in [body] if pieces is None else pieces:
        time.sleep(0.01)
        peer.send(piece)
    return peer


def padded(tag, size):
    """A body of exactly this size."""
    bare = len(body_of(tag, 1, pad=""))
    return body_of(tag, 1, pad="y" * (size - bare))


def sized(size, pieces=1):
    def of(h, tag):
        body = padded(tag, size)
        step = -(-size // pieces)
        return send(h, tag, f"Content-Length: {size}\r\n", body, [body[at : at + step] for at in range(0, size, step)])

    return of


def chunked(size, pieces, trailers=b""):
    def of(h, tag):
        body = padded(tag, size)
        step = -(-size // pieces)
        chunks = [chunk(body[at : at + step]) for at in range(0, size, step)]
        fields = "Transfer-Encoding: chunked\r\n" + ("Trailer: x-Last\r\n" if trailers else "")
        return send(h, tag, fields, body, [*chunks, b"0\r\n" + trailers + b"\r\n"])

    return of


def in_one_write(h, tag):
    body = padded(tag, 300)
    return send(h, tag, f"Content-Length: {len(body)}\r\nCookie: a=1\r\nCookie: b=2\r\n", body, [body])


def after_continue(h, tag):
    body = padded(tag, 1_000)
    peer = send(h, tag, f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n", body, [])
    assert peer.head().status == 100
    return peer.send(body)


def by_http_1_0(h, tag):
    body = padded(tag, 300)
    return send(h, tag, f"Content-Length: {len(body)}\r\n", body, version="1.0")


def that_closes(h, tag):
    body = padded(tag, 300)
    return send(h, tag, f"Content-Length: {len(body)}\r\nConnection: close\r\n", body)


def empty(h, tag):
    return send(h, tag, "Content-Length: 0\r\n", b"")


BODIES = {
    "in one write": (in_one_write, True),
    "small": (sized(200), True),
    "in many pieces": (sized(2_000, 40), True),
    "chunked": (chunked(2_000, 7), True),
    "one chunk": (chunked(400, 1), True),
    "chunked, with trailers": (chunked(2_000, 3, b"x-Last: 1\r\nX-last: 2\r\n"), False),
    "as large as may be held": (sized(MAX_BODY, 4), True),
    "one byte larger": (sized(MAX_BODY + 1, 4), False),
    "much larger": (sized(40 * MAX_BODY, 9), False),
    "much larger, chunked": (chunked(9 * MAX_BODY, 9), False),
    "after 100 Continue": (after_continue, False),
    "by HTTP/1.0": (by_http_1_0, True),
    "that closes": (that_closes, True),
    "empty": (empty, False),
}


@pytest.mark.parametrize("body", BODIES)
def test_both_are_sent_the_same_to_the_last_byte_or_one_is_sent_all(body):
    """`check` compares heads, bodies, chunks and trailers."""
    of, is_sent_twice = BODIES[body]
    with hedging(hold={"max_body": f"{MAX_BODY // 1024}KiB", "max_time": "3s"}) as h:
        h.gate(False)
        peer = of(h, "own")
        there = lambda: sum(server.has("own") for server in h.servers.values())  # noqa: E731
        assert await_true(lambda: there() >= 1), h.callers.view()
        if is_sent_twice:
            assert await_true(lambda: there() == 2, 10), (h.callers.view(), h.counts())
        else:
            time.sleep(LONG)
            assert there() == 1
        h.gate(True)
        answer = peer.response("POST")
        assert (answer.status, json.loads(answer.body)["id"]) == (200, "own")
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.follows()
        twice = h.check()
        assert ("own" in twice) == is_sent_twice
        copies = [copy for server in h.servers.values() for copy in server.copies.get("own", ())]
        assert b"\r\nX-TAG: own\r\nx-Takes: 1\r\nAccept: */*\r\nX-b: 2\r\nX-B: 3\r\nx-A: 1\r\n" in copies[0].head, copies[0].head
        assert len(copies[0].trailers) == (2 if "trailers" in body else 0)
        h.proxy.settled(plain=False, ok=len(h.callers.sent))


# === where it may go ===


def test_a_route_to_some_of_the_upstreams_holds_for_second_requests():
    routes = [{"match": {"header": "x-to: ab"}, "to": ["a", "b"]}]
    with hedging("abc", sections={"routes": routes}) as h:
        c, there = h.servers["c"], len(h.servers["c"].received)
        for _ in range(4):
            call, first, second = h.sent_twice(fields="x-to: ab\r\n")
            assert {first.name, second.name} == {"a", "b"}
            second.gate(True)
            answered_by(call, second)
            first.gate(True)
            assert await_true(h.is_empty)
        assert len(c.received) == there
        # with one of the two busy, the other one gets no help from the third
        a, b = h.servers["a"], h.servers["b"]
        a.gate(False), b.gate(False), c.gate(True)
        calls = [h.callers.call(150, takes=1, fields="x-to: ab\r\n") for _ in range(2)]
        assert await_true(lambda: len(a.waiting) == len(b.waiting) == 1, 6)
        time.sleep(1.5)
        assert len(c.received) == there and all(call.status is None for call in calls)
        h.gate(True)
        ended_as(calls, 200)
        h.check()


def test_a_route_to_one_upstream_has_no_second():
    routes = [{"match": {"header": "x-to: a"}, "to": ["a"]}]
    with hedging("ab", sections={"routes": routes}) as h:
        h.gate(False)
        call = h.callers.call(4, fields="x-to: a\r\n")
        assert seen_once(h, call).name == "a"
        h.gate(True)
        assert call.result() == 200
        h.counted()
        h.check(twice=())


def test_a_split_is_never_crossed():
    split = {"candidate": "c", "key": "header:x-user", "share": "50%"}

    def teach(callers):
        """No side is known before it is asked."""
        for n in range(40):
            assert set(callers.load([1, 2, 4, 8] * 5, 4, {"x-user": f"u{n}"}).values()) == {200}
        assert await_true(lambda: callers.is_taught(3)), callers.view()

    with hedging("abc", teach, sections={"split": split}) as h:
        h.gate(False)
        calls = [h.callers.call(4, takes=1, fields=f"x-user: u{n}\r\n") for n in range(6)]
        assert await_true(lambda: any(server.waiting for server in h.servers.values()))
        time.sleep(1.5)
        h.gate(True)
        ended_as(calls, 200)
        assert await_true(h.is_empty), h.running()
        h.counted()
        h.check(twice=())


# === what is seen ===


def hedged(h, call):
    """The exchange of a call."""
    found = []

    def is_there():
        found[:] = [e for e in h.proxy.exchanges() if "hedged" in e["annotations"]]
        return found

    assert await_true(is_there), (call.tag, h.proxy.exchanges()[:2])
    return found[0]


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
def test_the_exchange_is_that_of_who_answered(who):
    with hedging() as h:
        began = time.monotonic()
        call, *both = h.sent_twice()
        time.sleep(0.3)
        both[who].gate(True)
        answered_by(call, both[who])
        total = time.monotonic() - began
        exchange = hedged(h, call)
        assert exchange["upstream"] == both[who].name
        assert ("hedge_won" in exchange["annotations"]) == (who == 1)
        spans = collections.defaultdict(list)
        for span in exchange["spans"]:
            spans[span["name"]].append((span["start_ns"], span["end_ns"]))
        came = [server.copies[call.tag][0].at for server in both]
        ((start, end),) = spans["upstream"]
        if who:
            ((attempt, until),) = spans["attempt"]
            assert until <= start, "the window is that of the second"
            assert until - attempt == pytest.approx(1e9 * (came[1] - came[0]), abs=1e8)
        else:
            assert "attempt" not in spans
            assert start < 1e9 * (came[1] - began), "the window is that of the first"
        assert 0.25e9 < end - start < 1e9 * total
        assert exchange["total_ns"] <= 1e9 * total
        both[1 - who].gate(True)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.proxy.settled(plain=False, ok=len(h.callers.sent))
        h.check(twice={call.tag})


def test_failures_of_either_are_no_request_of_their_own():
    with hedging() as h:
        call, first, second = h.sent_twice()
        first.instead[call.tag] = second.instead[call.tag] = serves_an_error
        first.gate(True), second.gate(True)
        assert call.result() == 500
        h.proxy.settled(plain=False, ok=len(h.callers.sent) - 1, server_error=1)
        assert hedged(h, call)["upstream"] == first.name
        assert await_true(h.is_empty), (h.running(), h.in_flight())


@contextlib.contextmanager
def first_moved():
    """Of three, the fastest takes no connections any more: a request that was placed there went to another one, and then to the third."""
    for _ in range(3):
        with hedging("abc", paces={"a": 0.3}) as h:
            a, b, c = h.servers.values()
            b.gate(False), c.gate(False)
            a.die()
            call = h.callers.call(4, takes=1)
            assert await_true(lambda: b.has(call.tag) and c.has(call.tag)), h.callers.view()  # noqa: B023
            # it may have been looked for just then
            if h.proxy.metric('lapwing_upstream_failovers_total{result="moved"}') == 1:
                yield h, call, sorted((b, c), key=lambda server: server.copies[call.tag][0].at)  # noqa: B023
                return
    raise AssertionError("none moved")


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
def test_a_first_that_moved_is_hedged_too_and_nothing_is_left_in_flight(who):
    with first_moved() as (h, call, both):
        both[who].gate(True)
        answered_by(call, both[who])
        h.gate(True)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.check()


def test_a_client_that_leaves_after_its_first_moved_leaves_nothing_in_flight():
    with first_moved() as (h, call, _):
        call.leave()
        assert await_true(lambda: not any(h.running().values())), h.running()
        h.gate(True)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.check()


def test_trace_contexts_are_the_same_at_both_and_no_span_is_taken_for_the_others():
    with hedging(otlp=True, grace="1s") as h:
        call, first, second = h.sent_twice(fields="traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n")
        second.gate(True)
        answered_by(call, second)
        first.gate(True)
        assert await_true(h.is_empty)
        assert b"0af7651916cd43dd8448eb211c80319c" in first.copies[call.tag][0].head
        h.check(twice={call.tag})
        h.proxy.settled(plain=False, ok=len(h.callers.sent))


# === all of it ===


class Moods(dict):
    """What a server does instead of answering, drawn by the tag: one in some stalls, fails, or breaks off."""

    KINDS = (serves_an_error, answers_429, resets_before_it_answers, resets_amid, cuts_its_chunks)

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.drawn = {}

    def get(self, tag, default=None):
        draw = random.Random(f"{self.name} {tag}")
        if draw.random() < 0.08:
            time.sleep(draw.choice((0.05, 0.2, 0.4)))
        mood = draw.choice(self.KINDS) if draw.random() < 0.06 else default
        self.drawn[tag] = mood
        return mood


def ask_all(h, works, connections):
    """Sends requests over some connections. Returns by tag the status (0: broken off) and the body."""
    todo, answers, lock = iter([(*h.callers.new(work), work) for work in works]), {}, threading.Lock()

    def run():
        connection = None
        while True:
            with lock:
                tag, body, work = next(todo, (None, None, None))
            if tag is None:
                break
            time.sleep(random.random() * 0.08)  # or nobody is ever idle
            connection = connection or http.client.HTTPConnection("127.0.0.1", h.proxy.port, timeout=20)
            try:
                connection.request("POST", PATH, body, {"x-tag": tag, "x-takes": str(work), "content-type": "application/json"})
                response = connection.getresponse()
                answers[tag] = (response.status, response.read())
            except (http.client.HTTPException, OSError):
                answers[tag] = (0, b"")
                connection.close()
                connection = None

    threads = [threading.Thread(target=run, daemon=True) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("workers", [1, 2])
def test_each_client_has_one_right_answer_or_an_honest_failure(workers, seed):
    with hedging("abc", workers=workers) as h:
        draw = random.Random(seed)
        before = set(h.callers.sent)
        for server in h.servers.values():
            server.instead = Moods(f"{seed} {server.name}")
        answers = ask_all(h, [draw.choice((1, 2, 4, 8, 12)) for _ in range(400)], 8)
        tags = set(h.callers.sent) - before
        assert set(answers) == tags, "each has an answer"
        had = {tag: [server for server in h.servers.values() if server.has(tag)] for tag in tags}
        assert await_true(h.is_empty, 10), (h.running(), h.in_flight())
        for tag, (status, body) in answers.items():
            if status == 200:
                answer = json.loads(body)
                assert answer["id"] == tag and answer["model_name"] in {server.name for server in had[tag]}
                continue
            moods = [server.instead.drawn.get(tag) for server in had[tag]]
            assert any(moods) and status in (0, 429, 500, 502), (tag, status, body, moods)
            # what has begun to be answered may break off; all else is the failure of each who had it
            assert status == 0 or all(moods), (tag, status, body, moods)
        twice = [tag for tag in tags if len(had[tag]) == 2]
        assert len(twice) >= 10, "many stall"
        counts = h.counts()
        assert sum(counts.get(result, 0) for result in ("won", "lost", "failed")) == len(twice), (counts, len(twice))
        assert counts["won"] >= 5
        h.check()
        assert await_true(lambda: sum(h.proxy.outcomes().values()) == len(h.callers.sent)), h.proxy.outcomes()
        for server in h.servers.values():
            server.instead = {}
        time.sleep(0.2)
        h.follows()
