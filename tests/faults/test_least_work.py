"""`upstream_policy: least_work`: requests go to the upstream of which least is asked, whether they wait in Lapwing or not."""

import gzip

from fake import await_true
from one_by_one import OneByOne, ended_as, taught

POLICY = {"upstream_policy": "least_work"}
OFF = {"mode": "off"}


class HalfAsFast(OneByOne):
    @staticmethod
    def work_of(request):
        return 2 * OneByOne.work_of(request)


def placed(callers, works, servers, **options):
    """Sends requests one after the other to servers that answer none. Returns their calls, and by number the server that each went to."""
    for server in servers:
        server.gate(False)
    calls, to = [], []
    for work in works:
        calls.append(callers.call(work, takes=1, **options))
        came = lambda: [at for at, server in enumerate(servers) if calls[-1].tag in server.tags]  # noqa: E731
        assert await_true(came), f"{calls[-1].tag} came nowhere: {calls[-1].status}"
        to += came()
    return calls, to


def least(works, speeds=(1, 1), first=0):
    """Where they go, by what is asked of each; `first` is where the first goes, which finds nothing anywhere."""
    asked, to = [0] * len(speeds), []
    for at, work in enumerate(works):
        to.append(min(range(len(speeds)), key=lambda at: (asked[at] + work) / speeds[at]) if at else first)
        asked[to[-1]] += work
    return to


def test_a_large_request_counts_for_as_much_as_several_small_ones():
    with OneByOne("a") as a, OneByOne("b") as b, taught({"a": a, "b": b}, False, OFF, sections=POLICY) as (proxy, callers):
        works = [100, 31, 32, 33, 6, 7, 8, 90, 40]
        calls, to = placed(callers, works, (a, b))
        assert to == least(works, first=to[0]) and sorted({to.count(0), to.count(1)}) != [4, 5], to
        a.gate(True), b.gate(True)
        ended_as(calls, 200)
        callers.check(a, b)
        # what has ended counts no more
        works = [50, 20, 21, 5, 30]
        again, to = placed(callers, works, (a, b))
        assert to == least(works, first=to[0]), to
        a.gate(True), b.gate(True)
        ended_as(again, 200)
        proxy.settled(ok=len(calls) + len(again))


def test_one_whose_work_cannot_be_told_counts_as_the_mean():
    with OneByOne("a") as a, OneByOne("b") as b, taught({"a": a, "b": b}, False, OFF, sections=POLICY) as (_, callers):
        calls, to = placed(callers, [100, 10], (a, b))
        assert set(to) == {0, 1}
        unread = [gzip.compress(b"{}", mtime=n) + bytes([n]) for n in range(3)]
        where = [placed(callers, [1], (a, b), body=body, fields="content-encoding: lzma\r\n") for body in unread]
        # 55 for each: 65 and 120 there are less than 155 and 155 here
        assert [to for _, [to] in where] == [to[1], to[1], to[0]], where
        a.gate(True), b.gate(True)
        ended_as(calls + [call for [call], _ in where], 200)
        callers.check(a, b)


def test_when_an_upstream_dies_what_was_asked_of_it_counts_no_more():
    with OneByOne("a") as a, OneByOne("b") as b, taught({"a": a, "b": b}, False, OFF, sections=POLICY) as (proxy, callers):
        calls, to = placed(callers, [100, 10, 11, 12], (a, b))
        dying, other = (a, b) if to[0] == 0 else (b, a)
        dying.die()
        ended_as(calls[:1], 502)
        later, went = placed(callers, [5, 50, 5], (other,))
        assert went == [0, 0, 0]
        other.gate(True)
        ended_as(calls[1:] + later, 200)
        with OneByOne(dying.name, port=dying.port) as again:
            assert await_true(lambda: proxy.metric(f'lapwing_upstream_up{{upstream="{again.name}"}}') == 1)
            works = [60, 20, 21, 22, 50]
            calls, to = placed(callers, works, (again, other))
            assert to == least(works, first=to[0]), to
            again.gate(True), other.gate(True)
            ended_as(calls, 200)
            callers.check(a, b, again)


def test_a_fast_upstream_is_asked_for_more_once_its_speed_is_learnt():
    servers = {"a": OneByOne("a"), "b": HalfAsFast("b")}
    with servers["a"] as a, servers["b"] as b, taught(servers, dispatch={"mode": "observe"}, sections=POLICY) as (_, callers):
        speeds = [one["speed"] for one in callers.view()["upstreams"]]
        assert speeds[0] > 1.4 * speeds[1], speeds
        assert await_true(lambda: callers.proxy.metric('lapwing_upstream_requests_in_flight{upstream="a"}') == 0)
        works = [60, 20, 21, 22, 50, 10, 11, 70, 30, 5]
        calls, to = placed(callers, works, (a, b))
        # the speeds are learnt anew now and then, so the last of them need not be these
        asked = [sum(work for work, at in zip(works, to, strict=True) if at == one) for one in (0, 1)]
        assert asked[0] > 1.25 * asked[1], (to, speeds)
        a.gate(True), b.gate(True)
        ended_as(calls, 200)
        callers.check(a, b)
