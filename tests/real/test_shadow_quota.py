"""Quotas with real servers: the few of a rare class are all copied and compared, the many of a common one are not, and only routes with a
quota are captured.
"""

import json
import threading
import time

import pytest

from process import wait_for
from servers.parts import get_json
from shadowing import SHADOW, ask, body_of, shadow, target

ROUTE = "POST /v2/models/{model}/infer"
PER_MINUTE = 5


@pytest.fixture(scope="module")
def servers(start_server):
    """The ports of the primary and of the candidate."""
    return start_server(), start_server()


@pytest.fixture
def start_with_quota(start_lapwing, servers):
    """Starts a Lapwing that copies by the quota of a route alone."""

    def start(route=ROUTE, upstream=None, **env):
        primary, candidate = servers
        quotas = f'[{{route: "{route}", per_minute: {PER_MINUTE}}}]'
        env = {**SHADOW, "LAPWING_SHADOW__NOISE": "0%", "LAPWING_SHADOW__QUOTAS": quotas, **env}
        flags = ["--shadow", f"candidate=http://127.0.0.1:{candidate}", "--shadow-sample", "0%"]
        lapwing = start_lapwing(f"http://127.0.0.1:{upstream or primary}", *flags, env=env)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        return lapwing

    return start


def ratios(lapwing):
    """The line of the first series of ratios."""
    return next((line for line in lapwing.metrics().splitlines() if line.startswith("lapwing_shadow_latency_ratio_count")), "")


def compared(lapwing, key, n):
    """Whether so many outputs were compared: those under this key of the target."""
    return sum(one["compared"] for one in target(lapwing, "candidate").get(key, {}).values()) == n


def test_all_of_the_few_are_compared_and_the_many_are_capped(start_with_quota, servers):
    lapwing = start_with_quota(LAPWING_SHADOW__HEADER="x-shadow")
    seen = f"http://127.0.0.1:{servers[1]}/seen"
    before, began = len(get_json(seen)), time.monotonic()
    for n in range(60):
        assert ask(lapwing.port, body_of(1, n))[0] == 200
        if n % 15 == 0:
            assert ask(lapwing.port, body_of(64, n))[0] == 200
    # further tokens that came meanwhile, one each 12 s
    more = int((time.monotonic() - began) / 60 * PER_MINUTE) + 1
    (quota,) = wait_for(lambda: lapwing.is_settled() and shadow(lapwing)["quotas"], 20, "all accounts are closed")
    taken = quota["taken"]
    assert (quota["route"], quota["per_minute"], taken + quota["let_go"], quota["skipped"]) == (ROUTE, PER_MINUTE, 64, 0), quota
    # requests that come before an answer has proved the model's name have a bucket of their own
    assert 4 + PER_MINUTE <= taken <= 4 + 2 * PER_MINUTE + more, quota
    wait_for(lambda: compared(lapwing, "outputs_by_quota", taken), 20, "all that were taken are compared")

    view = shadow(lapwing)
    (candidate,) = view["targets"]
    pairs = {one["class"]: one["figures"]["total"]["pairs"] for one in candidate["comparisons"]}
    assert pairs == {64: 4, 1: taken - 4}, "all of the few, and the quota of the many"
    assert (view["sampled"], view["dropped"], candidate["paired"]) == (taken, {}, taken), "what is let go is no dropped copy"
    assert len(get_json(seen)) - before == taken
    assert candidate["outputs"] == {}, "the share drew none, so there is no rate of the traffic"
    assert view["contention"] == []
    wait_for(lambda: shadow(lapwing)["budget"]["used"] == 0, 20, "the memory is given back")

    # the rates of what the share draws, here by header, stay apart
    for n in range(10):
        assert ask(lapwing.port, body_of(1, n), {"x-shadow": "1"})[0] == 200
    wait_for(lambda: compared(lapwing, "outputs", 10), 20, "those that the header asks for are compared")
    # outputs and accounts meet later
    wait_for(lambda: 'stage="total"} 10' in ratios(lapwing), 20, "and paired, those of the share alone")
    assert compared(lapwing, "outputs_by_quota", taken)
    metrics = lapwing.metrics()
    for line in (
        f'lapwing_shadow_quota_requests_total{{route="{ROUTE}",result="taken"}} {taken}',
        f'lapwing_shadow_quota_requests_total{{route="{ROUTE}",result="let_go"}} {64 - taken}',
        f'lapwing_shadow_compared_total{{target="candidate",cause="quota"}} {taken}',
        'lapwing_shadow_compared_total{target="candidate",cause="share"} 10',
    ):
        assert line in metrics, [line for line in metrics.splitlines() if line.startswith("lapwing_shadow_")]
    text = lapwing.get("/shadow")[2].decode()
    assert f"{taken} of them by quota: {ROUTE}, {PER_MINUTE} a minute of each class; {64 - taken} captured and let go\n" in text, text
    assert f"{ROUTE}, taken by quota\n" in text, text


@pytest.mark.parametrize("route, is_captured", [(ROUTE, True), ("POST /v1/embeddings", False)], ids=["of_the_route", "of_another"])
def test_only_a_route_with_a_quota_is_captured(start_server, start_with_quota, route, is_captured):
    """While a request is in flight, its capture holds memory of the budget, or there is none."""
    lapwing = start_with_quota(route, upstream=start_server("--forward-ms", 1500))
    asking = threading.Thread(target=ask, args=(lapwing.port, body_of(64)))
    asking.start()
    used = 0
    while asking.is_alive():
        used = max(used, shadow(lapwing)["budget"]["used"])
        time.sleep(0.01)
    assert (used > len(body_of(64))) == is_captured, used
    wait_for(lapwing.is_settled, 20, "all accounts are closed")
    wait_for(lambda: shadow(lapwing)["budget"]["used"] == 0, 20, "the memory is given back")
    (quota,) = shadow(lapwing)["quotas"]
    assert (quota["taken"], quota["let_go"], quota["skipped"]) == (int(is_captured), 0, 0), quota


def test_a_rare_request_that_is_too_large_is_counted(start_with_quota):
    lapwing = start_with_quota(LAPWING_SHADOW__MAX_BODY="4KiB", LAPWING_SHADOW__ROUTES=json.dumps([ROUTE]))
    for rows in (1, 64, 64):
        assert ask(lapwing.port, body_of(rows))[0] == 200
    wait_for(lambda: compared(lapwing, "outputs_by_quota", 1), 20, "the small one is compared")
    wait_for(lambda: shadow(lapwing)["dropped"] == {"too_large": 2}, 20, "the large ones are dropped")
    (quota,) = shadow(lapwing)["quotas"]
    assert (quota["taken"], quota["let_go"]) == (3, 0), quota
