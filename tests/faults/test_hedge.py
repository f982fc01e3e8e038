"""Requests that take long and are sent to a second upstream (`dispatch.hedge`): whatever either does, each client has one whole answer."""

import json
import signal
import socket
import time

import hooks
import pytest
from fake import await_true
from hedging import HEDGE, Twin, answered_by, hedging, says_more
from http2 import Client
from one_by_one import ON, PATH, ended_as
from test_dispatch import (
    CLASSES,
    ask_by_http2,
    cuts_its_chunks,
    is_no_http,
    never_begins,
    never_ends,
    resets_amid,
    resets_before_it_answers,
    serves_an_error,
)
from test_shutdown import SLOW
from wire import chunk

# === one of the two answers first ===


def test_the_second_answers_first():
    with hedging() as h:
        call, first, second = h.sent_twice()
        second.gate(True)
        answered_by(call, second)
        h.counted(won=1)
        assert h.running() == {first.name: 1, second.name: 0}, "the place of the first is taken until it has answered"
        first.gate(True)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.follows()
        assert call.tag in h.check()


def test_the_first_answers_first():
    with hedging() as h:
        call, first, second = h.sent_twice()
        first.gate(True)
        answered_by(call, first)
        h.counted(lost=1)
        assert h.running() == {first.name: 0, second.name: 1}, "the place of the second is taken until it has answered"
        second.gate(True)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.follows()
        assert call.tag in h.check()


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
def test_the_loser_is_sent_nothing_until_it_has_ended_and_its_connection_is_used_again(who):
    with hedging() as h:
        call, *both = h.sent_twice()
        loser, winner = both[who], both[1 - who]
        winner.gate(True)
        answered_by(call, winner)
        # with one place taken, there is one more for what comes next; the others go to the winner
        calls = [h.callers.call(1) for _ in range(12)]
        there = lambda: [one for one in calls if one.status is None]  # noqa: E731
        assert await_true(lambda: len(there()) <= 1 and h.callers.waiting() == 0), (h.callers.view(), len(there()))
        assert len(loser.waiting) <= 2
        connections, connection = loser.connections, loser.copies[call.tag][0].connection
        loser.gate(True)
        ended_as(calls, 200)
        assert await_true(h.is_empty), h.running()
        h.follows(40)
        assert loser.connections == connections
        assert connection.is_alive(), "it was not closed"
        h.check()


def test_the_next_request_on_the_clients_connection_does_not_wait_for_the_loser():
    with hedging() as h:
        call, first, second = h.sent_twice()
        second.gate(True)
        answered_by(call, second)
        tag, body = h.callers.new(1)
        fields = f"Host: m\r\nx-tag: {tag}\r\nx-takes: 1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        # the first has one place left, for what comes next: whoever is there, takes it first
        call.peer.send(f"POST /v2/models/m/infer HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body)
        assert call.peer.response("POST").status == 200
        assert second.has(tag) and not first.is_open
        first.gate(True)
        assert await_true(h.is_empty)
        h.check()


def test_two_requests_in_one_write_are_answered_in_order():
    with hedging() as h:
        h.gate(False)
        raw, tags = b"", []
        for _ in range(2):
            tag, body = h.callers.new(8)
            tags.append(tag)
            raw += f"POST {PATH} HTTP/1.1\r\nHost: m\r\nx-tag: {tag}\r\nx-takes: 1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        with h.proxy.client() as client:

            def send():
                client.send(raw)
                return tags[0]

            _, first, second = h.sent_twice(send=send)
            assert not any(server.has(tags[1]) for server in h.servers.values())
            second.gate(True)
            assert json.loads(client.response("POST").body)["id"] == tags[0]
            assert json.loads(client.response("POST").body)["id"] == tags[1]
            first.gate(True)
            assert await_true(h.is_empty), h.running()
            assert not says_more(client)
        h.check()


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
def test_a_large_answer_comes_whole_while_the_loser_is_read(who):
    size = 8 * 1024 * 1024

    def answers_8_mib(peer):
        for _ in range(16):
            peer.send((b"" if _ else b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size) + b"w" * (size // 16))
            time.sleep(0.02)

    def answers_half_a_mib(peer):
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 524288\r\n\r\n" + b"l" * 524_288)

    with hedging() as h:
        call, *both = h.sent_twice()
        winner, loser = both[who], both[1 - who]
        winner.instead[call.tag], loser.instead[call.tag] = answers_8_mib, answers_half_a_mib
        winner.gate(True)
        h.counted(**{"won" if who else "lost": 1})
        loser.gate(True)
        assert call.result() == 200 and call.answer.body == b"w" * size
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.follows()
        h.check()


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
def test_what_the_loser_says_before_its_answer_never_reaches_the_client(who):
    def hints(peer):
        for _ in range(3):
            peer.send(b"HTTP/1.1 103 Early Hints\r\nlink: </l>\r\n\r\n")
            time.sleep(0.05)
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate")

    with hedging() as h:
        call, *both = h.sent_twice()
        winner, loser = both[who], both[1 - who]
        loser.instead[call.tag] = hints
        winner.gate(True)
        answered_by(call, winner)
        loser.gate(True)
        assert await_true(h.is_empty), h.running()
        assert not says_more(call.peer)
        call.peer.sock.setblocking(True)
        answer = call.peer.send("GET /next HTTP/1.1\r\nHost: m\r\n\r\n").response()
        assert (answer.status, answer.body, call.peer.interim) == (200, b"ok", [])
        h.check()


def test_what_an_upstream_says_before_its_answer_reaches_the_client():
    """With second requests as without."""

    def hints(peer):
        peer.send(b"HTTP/1.1 103 Early Hints\r\nlink: </w>\r\n\r\n")
        time.sleep(0.05)
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    with hedging() as h:
        h.servers["a"].always = h.servers["b"].always = hints
        call = h.callers.call(400, takes=1)  # nobody takes long
        assert call.result() == 200
        assert [one.status for one in call.peer.interim] == [103]
        twice, first, second = h.sent_twice()
        second.gate(True)
        assert twice.result() == 200
        assert [one.status for one in twice.peer.interim] == [103]


# === what the loser does is nobody's matter ===


def answers_2_mib(peer):
    peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2097152\r\n\r\n" + b"x" * 2_097_152)


def answers_2_mib_in_chunks(peer):
    peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"x" * 65_536) * 32 + b"0\r\n\r\n")


def closes(peer):
    peer.close()


def closes_after_its_answer(peer):
    peer.send(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nok")
    peer.close()


def answers_429(peer):
    peer.send(b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy")


LOSES = [
    answers_2_mib,
    answers_2_mib_in_chunks,
    resets_before_it_answers,
    resets_amid,
    cuts_its_chunks,
    closes,
    closes_after_its_answer,
    is_no_http,
    never_begins,
]


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("script", LOSES, ids=lambda script: script.__name__)
def test_a_loser_that_fails_touches_nobody(script, who):
    limits = {"header_timeout": "2s"} if script is never_begins else {}
    with hedging(**limits) as h:
        call, *both = h.sent_twice()
        loser, winner = both[who], both[1 - who]
        loser.instead[call.tag] = script
        winner.gate(True)
        answered_by(call, winner)
        loser.gate(True)
        assert await_true(h.is_empty, 12), (h.running(), h.in_flight())
        h.follows(40)
        connection = loser.copies[call.tag][0].connection
        assert loser.over(connection)[-1] == call.tag, "its connection is not used again"
        h.check()
        h.proxy.settled(plain=False, ok=len(h.callers.sent))


@pytest.mark.parametrize("script", [serves_an_error, answers_429], ids=lambda script: script.__name__)
def test_a_loser_that_answers_with_a_failure_keeps_its_connection(script):
    with hedging() as h:
        call, first, second = h.sent_twice()
        first.instead[call.tag] = script
        second.gate(True)
        answered_by(call, second)
        connection = first.copies[call.tag][0].connection
        first.gate(True)
        assert await_true(h.is_empty), h.running()
        h.follows(60)
        assert connection.is_alive(), "it was not closed"
        h.check()
        h.proxy.settled(plain=False, ok=len(h.callers.sent))


def test_a_loser_that_never_ends_is_let_go_after_half_a_minute():
    with hooks.ended_after(80), hedging() as h:
        call, first, second = h.sent_twice()

        def goes_on_and_on(peer):
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
            peer.closed_within(60)

        first.instead[call.tag] = goes_on_and_on
        second.gate(True)
        answered_by(call, second)
        first.gate(True)
        lost = time.monotonic()
        time.sleep(3)
        assert h.running()[first.name] == 1
        h.follows()
        assert await_true(h.is_empty, 45), h.running()
        assert time.monotonic() - lost > 20
        assert await_true(lambda: not first.copies[call.tag][0].connection.is_alive()), "its connection is closed"
        h.follows()
        h.check()


# === one of the two fails ===

FAILS = {
    serves_an_error: 500,
    answers_429: 429,
    resets_before_it_answers: 502,
    closes: 502,
    is_no_http: 502,
    never_begins: 504,
}


@pytest.mark.parametrize("script", FAILS, ids=lambda script: script.__name__)
@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
def test_who_fails_leaves_it_to_the_other(who, script):
    limits = {"header_timeout": "5s"} if script is never_begins else {}
    with hedging(**limits) as h:
        call, *both = h.sent_twice()
        fails, answers = both[who], both[1 - who]
        fails.instead[call.tag] = script
        fails.gate(True)
        if script is never_begins:
            time.sleep(2)  # the others are told only after their time
            answers.gate(True)
        else:
            assert await_true(lambda: not fails.waiting)
            time.sleep(0.1)
            assert call.status is None, "its failure is nobody's answer yet"
            answers.gate(True)
        answered_by(call, answers)
        h.counted(**{"lost" if who else "won": 1})
        assert await_true(h.is_empty, 8), (h.running(), h.in_flight())
        h.follows()
        assert h.check() >= {call.tag}
        h.proxy.settled(plain=False, ok=len(h.callers.sent))


@pytest.mark.parametrize("script", [s for s in FAILS if s is not never_begins], ids=lambda script: script.__name__)
@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
def test_who_fails_gives_its_place_back_while_the_other_works(who, script):
    with hedging() as h:
        call, *both = h.sent_twice()
        fails, answers = both[who], both[1 - who]
        fails.instead[call.tag] = script
        fails.gate(True)
        expected = {fails.name: 0, answers.name: 1}
        assert await_true(lambda: h.running() == expected), h.running()
        h.callers.call(1)
        ended_as(h.callers.calls[-1:], 200)
        answers.gate(True)
        answered_by(call, answers)
        h.check()


@pytest.mark.parametrize("first_fails", FAILS, ids=lambda script: script.__name__)
@pytest.mark.parametrize("is_second_first", [False, True], ids=["the first before", "the second before"])
def test_where_both_fail_the_answer_is_that_of_the_first(first_fails, is_second_first):
    limits = {"header_timeout": "4s"} if first_fails is never_begins else {}
    with hedging(**limits) as h:
        call, first, second = h.sent_twice()

        def serves_503(peer):
            peer.send(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 5\r\n\r\nmine.")

        first.instead[call.tag], second.instead[call.tag] = first_fails, serves_503
        one, other = (second, first) if is_second_first else (first, second)
        one.gate(True)
        assert await_true(lambda: not one.waiting)
        time.sleep(0.1)
        assert call.status is None
        other.gate(True)
        assert call.result() == FAILS[first_fails], call.answer
        h.counted(failed=1)
        assert await_true(h.is_empty, 8), (h.running(), h.in_flight())
        h.follows()
        h.check()
        assert await_true(lambda: sum(h.proxy.outcomes().values()) == len(h.callers.sent)), h.proxy.outcomes()


def answers_422(peer):
    peer.send(b"HTTP/1.1 422 Unprocessable\r\ncontent-length: 5\r\n\r\nwrong")


def redirects(peer):
    peer.send(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /y\r\ncontent-length: 0\r\n\r\n")


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize(("script", "status"), [(answers_422, 422), (redirects, 307)])
def test_what_is_no_failure_is_an_answer(script, status, who):
    with hedging() as h:
        call, *both = h.sent_twice()
        both[who].instead[call.tag] = script
        both[who].gate(True)
        assert call.result() == status
        h.counted(**{"won" if who else "lost": 1})
        both[1 - who].gate(True)
        assert await_true(h.is_empty), h.running()
        h.follows()
        h.check()


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("script", [resets_amid, cuts_its_chunks], ids=lambda script: script.__name__)
def test_an_answer_that_has_begun_and_breaks_off_is_the_answer(script, who):
    """As without a second request: what has begun cannot be taken back."""
    with hedging() as h:
        call, *both = h.sent_twice()
        both[who].instead[call.tag] = script
        both[who].gate(True)
        assert call.result() == 0, call.answer
        h.counted(**{"won" if who else "lost": 1})
        both[1 - who].gate(True)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.follows()
        h.check()
        assert await_true(lambda: h.proxy.outcomes().get("broken") == 1), h.proxy.outcomes()
        assert await_true(lambda: sum(h.proxy.outcomes().values()) == len(h.callers.sent)), h.proxy.outcomes()


# === upstreams end ===


def test_the_first_dies():
    with hedging() as h:
        call, first, second = h.sent_twice()
        first.die()
        time.sleep(0.3)
        assert call.status is None
        second.gate(True)
        answered_by(call, second)
        h.counted(won=1)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        assert h.check() >= {call.tag}


def test_both_die():
    with hedging() as h:
        call, first, second = h.sent_twice()
        second.die()
        first.die()
        assert call.result() == 502, call.answer
        h.counted(failed=1)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.check()
        with Twin(first.name, first.port) as again, Twin(second.name, second.port) as other:
            ups = [f'lapwing_upstream_up{{upstream="{name}"}}' for name in h.servers]
            assert await_true(lambda: all(h.proxy.metric(up) == 1 for up in ups), 10)
            h.follows()
            h.check(again, other)
            h.proxy.settled(plain=False, ok=len(h.callers.sent) - 1, broken=1)


def test_a_second_that_takes_no_connection_is_none():
    with hedging("abc") as h:
        h.gate(False)
        gone = h.servers["c"]
        gone.die()
        calls = []
        for n in range(3):
            call = h.callers.call(4, takes=1)
            calls.append(call)
            assert await_true(lambda call=call: h.servers["a"].has(call.tag) or h.servers["b"].has(call.tag))
            time.sleep(0.3)
        assert all(call.status is None for call in calls)
        h.servers["a"].gate(True), h.servers["b"].gate(True)
        ended_as(calls, 200)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.follows()
        h.check()


def test_a_second_whose_kept_connections_have_ended_is_connected_anew():
    with hedging() as h:
        for server in h.servers.values():
            server.gate(False)
            for sock in list(server.live):
                sock.shutdown(socket.SHUT_RDWR)
        call, first, second = h.sent_twice()
        second.gate(True)
        answered_by(call, second)
        first.gate(True)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        assert h.check() == {call.tag}


def test_an_upstream_that_turns_requests_away_is_not_ejected_for_that():
    """As without second requests: 429 is no failure of the upstream."""
    with hedging() as h:
        a, b = h.servers.values()
        for _ in range(7):
            call, *_ = h.sent_twice()
            a.instead[call.tag] = answers_429
            a.gate(True)
            time.sleep(0.1)
            b.gate(True)
            answered_by(call, b)
            assert await_true(h.is_empty), h.running()
            time.sleep(0.15)  # what has just failed is asked only after a moment
        assert h.callers.view()["ejections"] == 0
        h.check()


# === clients leave ===


@pytest.mark.parametrize("by_reset", [False, True], ids=["closes", "resets"])
def test_a_client_that_leaves_frees_both(by_reset):
    with hedging() as h:
        call, first, second = h.sent_twice()
        call.leave(by_reset)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        for server in (first, second):
            server.instead[call.tag] = lambda peer: peer.close()
        h.gate(True)
        h.follows()
        assert call.tag in h.check()
        assert call.status in (None, 0), call.answer
        h.proxy.settled(plain=False, ok=len(h.callers.sent) - 1, cancelled=1)


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
def test_a_client_that_leaves_amid_its_answer_frees_both(who):
    with hedging() as h:
        call, *both = h.sent_twice()
        both[who].instead[call.tag] = never_ends
        both[who].gate(True)
        h.counted(**{"won" if who else "lost": 1})
        call.leave()
        assert await_true(lambda: h.running()[both[who].name] == 0), h.running()
        assert h.running()[both[1 - who].name] == 1, "the loser has still to answer"
        both[1 - who].gate(True)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.follows()
        h.check()
        assert await_true(lambda: h.proxy.outcomes().get("cancelled") == 1), h.proxy.outcomes()


def test_a_stream_that_is_reset_frees_both_and_no_other():
    with hedging() as h, Client(h.proxy) as client:
        streams = []

        def send():
            streams.append(ask_by_http2(client, h.callers, 8))
            return streams[0][0]

        tag, first, second = h.sent_twice(send=send)
        client.reset(streams[0][1], 8)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.gate(True)
        answer = client.get("/x")
        assert answer.body == b"ok"
        assert tag in h.check()
        assert await_true(lambda: h.proxy.outcomes().get("cancelled") == 1), h.proxy.outcomes()


def test_over_one_connection_of_http2_each_stream_has_its_own_answer():
    with hedging() as h, Client(h.proxy) as client:
        streams = []

        def send():
            streams.append(ask_by_http2(client, h.callers, 8))
            return streams[-1][0]

        tag, first, second = h.sent_twice(send=send)
        second.gate(True)
        got = client.await_(streams[0][1])
        assert (got.status, got.body) == (200, f'{{"model_name": "{second.name}", "id": "{tag}", "outputs": []}}'.encode())
        h.counted(won=1)
        first.gate(True)
        assert await_true(h.is_empty)
        more = [ask_by_http2(client, h.callers, 4) for _ in range(10)]
        for other, number in more:
            assert f'"id": "{other}"'.encode() in client.await_(number).body
        h.check()


# === reload and shutdown amid ===

CHANGES = {
    "hedge off": {**ON, "hedge": {**HEDGE, "mode": "off"}},
    "hedge observes": {**ON, "hedge": {**HEDGE, "mode": "observe"}},
    "no utilisation": {**ON, "hedge": {**HEDGE, "max_utilisation": "0%"}},
    "dispatch off": {**ON, "mode": "off", "hedge": HEDGE},
    "dispatch observes": {**ON, "mode": "observe", "hedge": HEDGE},
    "classes": {**ON, "classes": CLASSES, "hedge": HEDGE},
}


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_reload_amid(change, who):
    with hedging() as h:
        call, *both = h.sent_twice()
        h.proxy.reload(dispatch=CHANGES[change])
        time.sleep(1.2)  # what learns has seen it too
        assert call.status is None
        both[who].gate(True)
        answered_by(call, both[who])
        h.counted(**{"won" if who else "lost": 1})
        both[1 - who].gate(True)
        if "off" not in change:
            assert await_true(lambda: not any(h.running().values())), h.running()
        h.proxy.reload(dispatch={**ON, "hedge": HEDGE})
        h.callers.teach(2)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        again, first, second = h.sent_twice()
        second.gate(True)
        answered_by(again, second)
        first.gate(True)
        assert await_true(h.is_empty)
        assert h.check() >= {call.tag, again.tag}


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
def test_a_shutdown_while_both_work(who):
    with hedging(drain_timeout="20s") as h:
        call, *both = h.sent_twice()
        h.proxy.process.send_signal(signal.SIGTERM)
        assert await_true(lambda: not h.proxy.get("/readyz").startswith(b"ready"))
        time.sleep(0.2)
        assert call.status is None
        both[who].gate(True)
        answered_by(call, both[who])
        both[1 - who].gate(True)
        assert h.proxy.process.wait(SLOW) == 0
        h.check()
        assert "panicked" not in h.proxy.log()
        h.proxy.ended_on_purpose = True


def test_a_shutdown_while_the_loser_never_ends():
    with hedging(drain_timeout="4s") as h:
        call, first, second = h.sent_twice()
        second.gate(True)
        answered_by(call, second)
        h.proxy.process.send_signal(signal.SIGTERM)
        assert h.proxy.process.wait(SLOW) == 0
        h.check()
        assert "panicked" not in h.proxy.log()
        h.proxy.ended_on_purpose = True


def test_a_shutdown_that_takes_too_long_cuts_both_off():
    with hedging(drain_timeout="1s") as h:
        call, first, second = h.sent_twice()
        h.proxy.process.send_signal(signal.SIGTERM)
        assert h.proxy.process.wait(SLOW) == 0
        ended_as([call], 0, 502, 503, 504)
        assert call.tag in h.check()
        assert "panicked" not in h.proxy.log()
        h.proxy.ended_on_purpose = True
