"""Names that strangers choose: long ones, ones without end, and ones that nobody answers to. They cost little, and a real name keeps its room."""

import re

import pytest
from fake import OK, Upstream, await_true
from sidecar import Sidecar

LONG = "x" * 60_000
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
SERIES_BYTES = 64 * 1024


def knows(*real):
    """Serves any number of requests: 404 unless the target begins with a real one."""

    def script(peer):
        while True:
            request = peer.request()
            peer.send(OK if request.target.startswith(real) else NOT_FOUND)

    return [script] * 64


def ask_all(proxy, requests):
    with proxy.client() as client:
        for method, target in requests:
            client.send(f"{method} {target} HTTP/1.1\r\nHost: m\r\nContent-Length: 0\r\n\r\n")
            client.response(method)


def labels(proxy):
    return set(re.findall(rb'(?:route|model)="([^"]*)"', proxy.get("/metrics")))


def series(proxy):
    return {(s["route"], s["model"]): s["count"] for s in proxy.stats()["series"]}


def metric(proxy, line):
    (value,) = [row.split()[-1] for row in proxy.get("/metrics").splitlines() if row.startswith(line)]
    return int(value)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda n: ("GET", f"/v2/models/{n}{LONG}"),
        lambda n: ("POST", f"/v2/models/{n}{LONG}/infer"),
        lambda n: ("POST", f"/v1/models/m:{n}{LONG}"),
        lambda n: ("POST", f"/v1/models/{n}{LONG}:predict"),
        lambda n: ("GET", f"/{n}{LONG}"),
        lambda n: (f"M{n}{LONG}", "/a"),
        lambda n: ("GET", "/word" * 20 + f"/{n}w" * 4),
    ],
    ids=["model", "inference", "verb", "model and verb", "segment", "method", "segments"],
)
def test_long_names_make_short_labels(request_of):
    """Every request is answered 200, so each name may become a series."""
    with Upstream(*knows("/")) as up, Sidecar(up.url) as proxy:
        ask_all(proxy, [("GET", "/warm")])
        proxy.settled(ok=1, plain=False)
        before = proxy.rss_kib()
        ask_all(proxy, [request_of(n) for n in range(20)])
        assert await_true(lambda: sum(proxy.outcomes().values()) == 21)
        proxy.get("/stats"), proxy.get("/hdr"), proxy.get("/exchanges?limit=100")
        scrape = proxy.get("/metrics")
        assert max(map(len, labels(proxy))) <= 128
        assert len(scrape) < SERIES_BYTES * len(series(proxy)), f"{len(scrape)} bytes for {len(series(proxy))} series"
        exchanges = proxy.exchanges()
        assert len(exchanges) == 21 and all(len(e["route"]) <= 128 and len(e["model"] or "") <= 128 for e in exchanges)
        assert proxy.rss_kib() - before < 64 * 1024


def test_names_that_nobody_answers_to_leave_the_room_to_real_ones():
    with Upstream(*knows("/v2/models/real", "/users")) as up, Sidecar(up.url) as proxy:
        ask_all(proxy, [("GET", f"/junk-{'abc'[n % 3]}{chr(97 + n // 26)}{chr(97 + n % 26)}") for n in range(250)])
        ask_all(proxy, [("POST", f"/v2/models/junk{n}/infer") for n in range(150)])
        ask_all(proxy, [("POST", "/v2/models/real/infer"), ("GET", "/users/1"), ("POST", "/v2/models/real/infer"), ("POST", "/v2/models/none/infer")])
        infer = "POST /v2/models/{model}/infer"
        expected = {(infer, "real"): 2, ("GET /users/{id}", None): 1, ("other", None): 250, ("other", "other"): 150, (infer, "other"): 1}
        assert await_true(lambda: series(proxy) == expected), series(proxy)
        assert metric(proxy, b'lapwing_names_unproven_total{table="route"}') == 400
        assert metric(proxy, b'lapwing_names_unproven_total{table="model"}') == 151
        profiler = proxy.stats()["profiler"]
        assert (profiler["routes"], profiler["models"], profiler["series_overflowed"]) == (2, 2, 0)
        assert proxy.exchanges()[0]["model"] == "none", "a single request has its own name"


def test_requests_without_an_answer_are_counted_under_names_that_are_known():
    with Upstream(*knows("/v2")) as up:
        with Sidecar(up.url, idle_timeout="1s") as proxy:
            ask_all(proxy, [("POST", "/v2/models/real/infer")])
            assert await_true(lambda: len(series(proxy)) == 1)
            up.__exit__(None)
            for model in ("real", "none"):
                assert proxy.ask(f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: m\r\nContent-Length: 0\r\n\r\n").status == 502
            infer = "POST /v2/models/{model}/infer"
            assert await_true(lambda: series(proxy) == {(infer, "real"): 2, (infer, "other"): 1}), series(proxy)
            up.__enter__()


def test_idle_names_give_way_and_stay_counted():
    """More models than there is room for, all answered: the idle ones give way, and no request is lost from the counts."""
    metrics = {"max_models": 9, "max_series": 8, "idle_after": "1s"}
    with Upstream(*knows("/")) as up, Sidecar(up.url, metrics=metrics) as proxy:
        asked = 0

        def total():
            stats = proxy.stats()
            return stats["retired"]["count"] + sum(s["count"] for s in stats["series"])

        for batch in range(3):
            ask_all(proxy, [("POST", f"/v2/models/b{batch}m{n}/infer") for n in range(8)])
            asked += 8

            def newest():
                nonlocal asked
                ask_all(proxy, [("POST", f"/v2/models/b{batch}m0/infer")])
                asked += 1
                return any(model == f"b{batch}m0" for _, model in series(proxy))

            assert await_true(newest, 10), series(proxy)
        assert await_true(lambda: total() == asked), (total(), asked)
        assert proxy.stats()["retired"]["outcomes"] == {"ok": proxy.stats()["retired"]["count"]}
        assert metric(proxy, b"lapwing_series_retired_total") > 0
        assert metric(proxy, b'lapwing_names_overflowed_total{table="model"}') > 0
        assert proxy.log().count("the table of names is full") == 1


def test_names_without_end_leave_memory_flat():
    with Upstream(*knows("/")) as up, Sidecar(up.url) as proxy:

        def ask(begin, count):
            ask_all(proxy, [("POST", f"/v2/models/m{n}/infer") for n in range(begin, begin + count)])

        ask(0, 1_000)
        assert await_true(lambda: sum(proxy.outcomes().values()) == 1_000)
        before = proxy.rss_kib()
        ask(1_000, 5_000)
        assert await_true(lambda: sum(proxy.outcomes().values()) == 6_000)
        assert proxy.rss_kib() - before < 8 * 1024
        assert proxy.stats()["profiler"]["models"] == 100
