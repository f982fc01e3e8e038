"""In which order requests go that wait in Lapwing (`dispatch`): by arrival and predicted time within a class, by weight between classes."""

import time

from fake import await_true
from one_by_one import OneByOne, body_of, ended_as, taught

WEIGHTS = [
    {"name": "a", "match": {"header": "x-tier: a"}, "weight": 3},
    {"name": "b", "match": {"header": "x-tier: b"}, "weight": 1},
]
APART = 40
"""Requests that take so long are read one after the other by the upstream's threads, however busy the machine."""
TIER = "x-tier: {}\r\n"


def assert_in_order(order, expected):
    """Two are at the upstream at once, whose threads may read the second before the first: each may be one place off."""
    assert sorted(order) == sorted(expected)
    assert all(abs(order.index(tag) - at) <= 1 for at, tag in enumerate(expected)), order


def sent_after(up, callers, count):
    """Opens the gate, and returns the tags in the order in which they went, but those of what was there already."""
    there = len(up.tags)
    time.sleep(0.2)  # so that who came last is due
    up.gate(True)
    assert set(callers.all_end().values()) == {200}
    callers.check(up)
    order = up.tags[there:]
    assert len(order) == count, order
    return order


def test_small_requests_overtake_a_large_one():
    with OneByOne() as up, taught(up) as (_, callers):
        callers.occupy(up, takes=APART)
        callers.wait(8_000, "large", takes=APART)
        for tag in ("small1", "small2", "small3"):
            callers.wait(1, tag, takes=APART)
        assert sent_after(up, callers, 4) == ["small1", "small2", "small3", "large"]


def test_the_larger_waits_longer():
    with OneByOne() as up, taught(up) as (_, callers):
        callers.occupy(up, takes=APART)
        for work in (60_000, 30_000, 15_000):
            callers.wait(work, str(work), takes=APART)
        assert sent_after(up, callers, 3) == ["15000", "30000", "60000"]


def test_a_large_one_is_overtaken_only_by_what_comes_within_its_patience():
    """About 2 s are predicted for it, so by default it lets others pass for 4 s."""
    with OneByOne() as up, taught(up) as (_, callers):
        callers.occupy(up, takes=APART)
        large = callers.wait(2_000, "large", takes=APART)
        for tag in ("early1", "early2"):
            callers.wait(1, tag, takes=APART)
        waited = time.monotonic() - large.began
        assert waited < 2, f"the machine stood still for {waited} s"
        time.sleep(large.began + 7 - time.monotonic())
        for tag in ("late1", "late2"):
            callers.wait(1, tag, takes=APART)
        assert sent_after(up, callers, 5) == ["early1", "early2", "large", "late1", "late2"]


def test_without_patience_they_go_as_they_came():
    with OneByOne() as up, taught(up, dispatch={"patience": 0}) as (_, callers):
        callers.occupy(up, takes=APART)
        for work in (8_000, 1, 30_000, 2):
            callers.wait(work, str(work), takes=APART)
        assert sent_after(up, callers, 4) == ["8000", "1", "30000", "2"]


def test_by_fifo_they_go_as_they_came():
    with OneByOne() as up, taught(up, dispatch={"order": "fifo"}) as (_, callers):
        callers.occupy(up, takes=APART)
        for work in (8_000, 1, 30_000, 2):
            callers.wait(work, str(work), takes=APART)
        assert sent_after(up, callers, 4) == ["8000", "1", "30000", "2"]


def test_equal_ones_go_as_they_came():
    with OneByOne() as up, taught(up) as (_, callers):
        callers.occupy(up, takes=APART)
        tags = [callers.wait(3, takes=5).tag for _ in range(8)]
        assert_in_order(sent_after(up, callers, 8), tags)


def test_classes_share_the_time_by_weight():
    with OneByOne() as up, taught(up, dispatch={"classes": WEIGHTS}) as (_, callers):
        callers.occupy(up, takes=APART)
        for n in range(12):
            for tier in "ba":
                callers.wait(4, f"{tier}{n}", takes=5, fields=TIER.format(tier))
        order = sent_after(up, callers, 24)
        assert 8 <= sum(tag[0] == "a" for tag in order[:12]) <= 10, order
        for tier in "ab":
            assert_in_order([tag for tag in order if tag[0] == tier], [f"{tier}{n}" for n in range(12)])


def test_weights_are_of_time_and_not_of_requests():
    """Of equal weight; one class asks for many small ones, the other for some that take about as long as eight of these."""
    classes = [{**one, "weight": 1} for one in WEIGHTS]
    with OneByOne() as up, taught(up, dispatch={"classes": classes}) as (_, callers):
        callers.occupy(up, takes=APART)
        for n in range(6):
            callers.wait(12, f"b{n}", takes=5, fields=TIER.format("b"))
        for n in range(20):
            callers.wait(1, f"a{n}", takes=5, fields=TIER.format("a"))
        order = sent_after(up, callers, 26)
        before = [tag[0] for tag in order[: order.index("a19")]].count("b")
        assert 1 <= before <= 4, order


def test_background_classes_yield():
    classes = [{"name": "later", "match": {"header": "x-tier: later"}, "background": "on", "weight": 1_000}]
    with OneByOne() as up, taught(up, dispatch={"classes": classes}) as (_, callers):
        callers.occupy(up, takes=APART)
        later = [callers.wait(1, takes=5, fields=TIER.format("later")).tag for _ in range(4)]
        now = [callers.wait(4, takes=5).tag for _ in range(6)]
        assert [one["name"] for one in callers.view()["classes"]] == ["later", "other"]
        assert_in_order(sent_after(up, callers, 10), now + later)


def test_classes_by_model_route_and_size():
    """Each is in the first class that takes it, as the work that waits in each shows."""
    classes = [
        {"name": "sized", "match": {"class": "100.."}},
        {"name": "routed", "match": {"route": "POST /v2/*", "header": "x-tier: r"}},
        {"name": "named", "match": {"model": "m"}},
    ]
    with OneByOne() as up, taught(up, dispatch={"classes": classes}) as (_, callers):
        callers.occupy(up, takes=APART)
        named, routed, sized, other = (lambda: [one["waiting_work_ns"] > 0 for one in callers.view()["classes"]] for _ in range(4))
        callers.wait(5)
        assert named() == [False, False, True, False]
        callers.wait(5, fields=TIER.format("r"))
        assert routed() == [False, True, True, False]
        callers.wait(500, fields=TIER.format("r"))
        assert sized() == other() == [True, True, True, False]
        sent_after(up, callers, 3)


def test_requests_of_a_sequence_keep_their_order_and_never_wait():
    """Small ones would overtake large ones."""
    with OneByOne() as up, taught(up) as (_, callers):
        callers.occupy(up)
        queued = callers.wait(8_000, "queued")
        tags = [f"of-sequence-{n}" for n in range(5)]
        for tag, work in zip(tags, (9_000, 1, 4_000, 2, 1), strict=True):
            body = body_of(tag, work, parameters={"sequence_id": 7, "sequence_start": tag == tags[0]})
            callers.call(work, tag, takes=1, body=body)
            assert await_true(lambda tag=tag: tag in up.tags), f"{tag} waits: {callers.view()}"
        assert up.tags[-5:] == tags and queued.status is None and callers.waiting() == 1
        assert callers.results()["stateful"] == 5
        # 0 is no sequence
        none = callers.wait(1, "none", body=body_of("none", 1, parameters={"sequence_id": 0}))
        up.gate(True)
        ended_as(callers.calls, 200)
        assert callers.check(up)[-2:] == [none.tag, queued.tag]
