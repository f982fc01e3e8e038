"""Requests that do not wait in Lapwing (`dispatch`), or no longer: bounds, what cannot be held, deadlines; and what is seen of those that do."""

import json
import time

import pytest
from fake import await_true
from one_by_one import PATH, OneByOne, ended_as, taught
from test_upstream_faults import is_own
from wire import chunk

# === how many, and how long ===


def test_no_more_wait_than_may():
    with OneByOne() as up, taught(up, dispatch={"max_waiting": 3}) as (proxy, callers):
        callers.occupy(up)
        waiting = [callers.wait(work) for work in (3, 1, 8)]
        full = [callers.call(2) for _ in range(2)]
        assert await_true(lambda: {call.tag for call in full} <= set(up.tags)), "they go at once"
        assert callers.results()["full"] == 2 and callers.waiting() == 3
        up.gate(True)
        ended_as(waiting + full, 200)
        callers.check(up)


def test_nobody_waits_longer_than_may_be():
    with OneByOne() as up, taught(up, dispatch={"max_wait": "700ms"}) as (proxy, callers):
        callers.occupy(up)
        before = callers.overdue("max_wait")
        waiting = [callers.wait(work) for work in (3, 1)]
        assert await_true(lambda: {call.tag for call in waiting} <= set(up.tags)), "they go, though nothing has ended"
        came = {tag: at for tag, _, at in up.received}
        assert all(came[call.tag] - call.began > 0.69 for call in waiting)
        assert callers.overdue("max_wait") == before + 2 and callers.waiting() == 0
        up.gate(True)
        ended_as(callers.calls, 200)
        callers.check(up)
        assert callers.view()["upstreams"][0]["running"] == 0


# === what cannot be held goes as it comes ===


def send_apart(callers, tag, fields, *pieces, pause=0.0, body=b""):
    """Sends a request's body in pieces, as they are."""
    callers.sent[tag] = body
    head = f"POST {PATH} HTTP/1.1\r\nHost: m\r\nx-tag: {tag}\r\nx-takes: 1\r\ncontent-type: application/json\r\n{fields}\r\n"
    peer = callers.proxy.client()
    peer.send(head)
    for piece in pieces:
        time.sleep(pause)
        peer.send(piece)
    return peer


def large(callers, tag):
    return json.dumps({"id": tag, "inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [0.5]}], "pad": "y" * 9_000}).encode()


def is_large(callers, tag):
    body = large(callers, tag)
    return send_apart(callers, tag, f"content-length: {len(body)}\r\n", body, body=body)


def is_large_in_chunks(callers, tag):
    body = large(callers, tag)
    chunks = [chunk(body[at : at + 1_500]) for at in range(0, len(body), 1_500)]
    return send_apart(callers, tag, "transfer-encoding: chunked\r\n", *chunks, b"0\r\n\r\n", pause=0.02, body=body)


def comes_slowly(callers, tag):
    body = large(callers, tag)[:2_000]
    return send_apart(callers, tag, f"content-length: {len(body)}\r\n", body[:900], body[900:], pause=0.6, body=body)


def has_an_unknown_coding(callers, tag):
    body = b"\1\2\3" * 50
    return send_apart(callers, tag, f"content-encoding: x-own\r\ncontent-length: {len(body)}\r\n", body, body=body)


def expects_to_be_told_to_go_on(callers, tag):
    body = large(callers, tag)[:1_000]
    peer = send_apart(callers, tag, f"expect: 100-continue\r\ncontent-length: {len(body)}\r\n", body=body)
    assert peer.head().status == 100
    return peer.send(body)


UNHELD = [
    is_large,
    is_large_in_chunks,
    comes_slowly,
    has_an_unknown_coding,
    expects_to_be_told_to_go_on,
]


@pytest.mark.parametrize("send", UNHELD, ids=lambda send: send.__name__)
def test_what_cannot_be_held_goes_untouched_and_is_counted(send):
    with OneByOne() as up, taught(up, hold={"max_body": "4KiB", "max_time": "300ms"}) as (proxy, callers):
        callers.occupy(up)
        waits = callers.wait(2)
        before = callers.results()
        peer = send(callers, "own")
        assert await_true(lambda: "own" in up.tags), "it goes past those who wait"
        assert waits.tag not in up.tags and callers.view()["upstreams"][0]["running"] == 3
        changed = {name: n - before.get(name, 0) for name, n in callers.results().items() if n != before.get(name, 0)}
        up.gate(True)
        assert peer.response().status == 200
        ended_as(callers.calls, 200)
        callers.check(up)
        assert changed == {"unheld": 1}


def test_what_is_no_call_of_a_known_protocol_never_waits():
    with OneByOne() as up, taught(up) as (proxy, callers):
        callers.occupy(up)
        callers.wait(2)
        before = callers.results()
        for target in ("/x", PATH.replace("infer", "ready"), "/v2/health/ready", "/metrics"):
            assert proxy.get_path(target).body == b"ok", target
        posted = proxy.ask("POST /unknown HTTP/1.1\r\nHost: m\r\ncontent-length: 2\r\n\r\n{}")
        assert posted.body == b"ok"
        assert callers.results() == before and callers.waiting() == 1
        up.gate(True)
        ended_as(callers.calls, 200)


def test_what_has_no_known_work_goes_as_it_comes():
    """Its body is no call: nobody knows what it takes. The upstream judges it."""
    with OneByOne() as up, taught(up) as (proxy, callers):
        callers.occupy(up)
        before = callers.results().get("unknown", 0)
        odd = [callers.call(1, f"odd{n}", body=body) for n, body in enumerate((b"{}", b"not json", b'{"inputs": []}', b'{"inputs": 7'))]
        assert await_true(lambda: {call.tag for call in odd} <= set(up.tags)), (up.tags[-6:], callers.view())
        assert callers.results()["unknown"] == before + 4
        up.gate(True)
        ended_as(callers.calls, 200)
        callers.check(up)


# === deadlines ===

HEADER = {"deadline_header": "x-latency-budget-ms"}


def budget(ms):
    return f"x-latency-budget-ms: {ms}\r\n"


def by_header(callers, ms, **options):
    return callers.call(1, fields=budget(ms), **options)


def by_parameter(callers, ms, **options):
    tag = f"p{next(callers.numbers)}"
    body = json.dumps({"id": tag, "parameters": {"timeout": ms * 1_000}, "inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [0.5]}]})
    return callers.call(1, tag, body=body.encode(), **options)


@pytest.mark.parametrize("ask", [by_header, by_parameter], ids=["header", "parameter"])
def test_who_would_be_late_is_refused_at_once(ask):
    with OneByOne() as up, taught(up, **HEADER) as (proxy, callers):
        there = callers.occupy(up, work=20_000)  # for which 20 s are predicted
        queued = callers.wait(1)
        late = ask(callers, 500)
        assert late.result(10) == 429 and is_own(late.answer, 429, "late"), late.answer
        assert 1 <= int(late.answer.one("retry-after")) <= 120, late.answer
        assert b"dispatch.reject" in late.answer.body
        patient = ask(callers, 3_600_000)
        assert await_true(lambda: callers.waiting() == 2), callers.view()
        up.gate(True)
        ended_as([*there, queued, patient], 200)
        assert late.tag not in callers.check(up)
        assert callers.results()["refused"] == 1
        assert await_true(lambda: proxy.outcomes().get("shed") == 1)


def test_the_budget_of_all_is_that_of_who_names_none():
    with OneByOne() as up, taught(up, dispatch={"budget": "1s"}, **HEADER) as (proxy, callers):
        callers.occupy(up, work=20_000, fields=budget(3_600_000))
        assert callers.call(1).result() == 429
        patient = callers.call(1, fields=budget(3_600_000))
        assert await_true(lambda: callers.waiting() == 1)
        up.gate(True)
        assert patient.result() == 200
        callers.check(up)


def test_nobody_is_refused_where_that_is_settled():
    with OneByOne() as up, taught(up, dispatch={"reject": "never"}, **HEADER) as (proxy, callers):
        callers.occupy(up, work=20_000)
        late = callers.wait(1, fields=budget(10_000))
        up.gate(True)
        assert late.result() == 200
        assert "refused" not in callers.results()


def test_who_can_no_longer_be_in_time_is_told_then_and_never_sent():
    """All servers stand still, so it is told without any end of another request."""
    with OneByOne() as up, taught(up, **HEADER) as (proxy, callers):
        there = callers.occupy(up)
        queued = callers.wait(1)
        dropped = callers.wait(1, fields=budget(2_500))
        assert dropped.result(10) == 504 and is_own(dropped.answer, 504, "overdue"), dropped.answer
        assert queued.status is None
        assert callers.overdue("deadline") == 1 and callers.waiting() == 1
        up.gate(True)
        ended_as([*there, queued], 200)
        assert dropped.tag not in callers.check(up)
        assert await_true(lambda: proxy.outcomes().get("shed") == 1)


def test_who_is_over_when_a_place_is_free_is_never_sent():
    with OneByOne() as up, taught(up, **HEADER) as (proxy, callers):
        there = callers.occupy(up)
        queued = callers.wait(1)
        dropped = callers.wait(1, fields=budget(2_500))
        time.sleep(2.6)
        up.gate(True)
        assert dropped.result() == 504
        ended_as([*there, queued], 200)
        assert dropped.tag not in callers.check(up) and callers.overdue("deadline") == 1


# === what is seen of it ===


def test_what_was_waited_is_the_stage_queue_by_its_phase():
    with OneByOne() as up, taught(up) as (proxy, callers):
        callers.occupy(up)
        one = callers.wait(3)  # nobody else asks for 3
        known = time.monotonic()
        time.sleep(0.5)
        opened = time.monotonic()
        up.gate(True)
        assert one.result() == 200
        assert await_true(lambda: proxy.outcomes().get("ok") == len(callers.sent)), proxy.outcomes()
        came = next(at for tag, _, at in up.received if tag == one.tag)
        (exchange,) = [e for e in proxy.exchanges() if e["work"]["row"]["amount"] == 3]
        (queue,) = [s for s in exchange["stages"] if s["stage"] == "queue"]
        assert (opened - known) * 1e9 <= queue["ns"] <= (came - one.began) * 1e9, exchange
        assert [(part["phase"], part["ns"]) for part in exchange["phases"]] == [("dispatch", queue["ns"])], exchange
        for exchange in proxy.exchanges():
            assert sum(s["ns"] for s in exchange["stages"]) == exchange["total_ns"], exchange
        (series,) = [one for one in proxy.stats()["series"] if one["model"] == "m"]
        assert series["phases"]["dispatch"]["count"] == len(callers.sent), series["phases"]


def test_counters_agree_with_what_was_sent():
    with OneByOne() as up, taught(up, dispatch={"max_waiting": 2}, **HEADER) as (proxy, callers):
        before, sent_before = callers.results(), len(callers.sent)
        assert sum(before.values()) == sent_before
        callers.occupy(up, work=20_000)
        late = callers.call(1, fields=budget(300))
        assert late.result() == 429
        queued = [callers.wait(1) for _ in range(2)]
        full = callers.call(1)
        assert await_true(lambda: full.tag in up.tags)
        up.gate(True)
        ended_as([*queued, full], 200)
        after = callers.results()
        assert sum(after.values()) - sum(before.values()) == len(callers.sent) - sent_before == 6, (before, after)
        assert after["refused"] == 1 and after["full"] == 1
        assert after["queued"] - before.get("queued", 0) in (2, 3), "the one that was next may have waited for that"
        expected = {"ok": len(callers.sent) - 1, "shed": 1}
        assert await_true(lambda: proxy.outcomes() == expected), proxy.outcomes()
        assert len(callers.check(up)) == len(callers.sent) - 1
        (series,) = [one for one in proxy.stats()["series"] if one["route"].endswith(PATH.split("/")[-1]) or "infer" in one["route"]]
        assert series["outcomes"]["ok"] == expected["ok"]


