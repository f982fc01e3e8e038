"""What order, placement and hedging bring where service times are known: queues in simulated time, no server.

    python3 benches/levers/simulate.py [--requests 200000] [--seeds 4]

Arrivals are Poisson, an upstream has one slot. Each table gives ratios to the first row of its block, in the same arrivals and the same
work: means over the seeds, with the smallest and greatest. These sizes bound what a lever can bring; whether it does is for real parts.

- Order: one upstream, 2 ms + 1 ms for each unit, units lognormal(2.2, 1.3) within 1..256, 70 % load. `due`: what has the least
  arrival + k x own service time goes first. Small requests are the smallest half, large ones the greatest twentieth.
- Placement: the same work on three upstreams, all equal, or one at half speed. `late`: a request is bound when an upstream is free.
  `ewma of two`: the better of two by a moving average of latency times requests there (peak EWMA of Finagle and linkerd).
- Hedging: three upstreams, 5 ms + w, w of 1, 2, 4, 8, 8, 16 ms, lognormal noise of 0.1. An upstream stalls for 300 ms each 20 s in the
  mean, or one request of a hundred takes ten times as long. A second copy of a request that has run longer than the 98th percentile of
  its work goes to an idle upstream if nobody waits, for one of fifty requests at most, ten at once; the slower copy runs to its end.
"""

import argparse
import bisect
import heapq
import itertools
import math
import random
import statistics
from collections import deque


def arrivals(rng, count, mean_ms, load, slots):
    """Poisson arrivals, in ms, that keep `slots` busy for `load` of the time."""
    rate = load * slots / mean_ms
    now = 0.0
    for _ in range(count):
        now += rng.expovariate(rate)
        yield now


def units(rng):
    """Units of work of a request, 1..256."""
    return min(256.0, max(1.0, rng.lognormvariate(2.2, 1.3)))


def quantile(values, q):
    """The quantile of sorted values."""
    return values[min(len(values) - 1, int(q * len(values)))]


# --- order


def ordered(work, patience):
    """Latencies, in ms, of (arrival, service time) at one slot; None: as they came."""
    waiting, latencies, free, after = [], [0.0] * len(work), 0.0, 0
    key = (lambda one: one[0]) if patience is None else (lambda one: one[0] + patience * one[1])
    while after < len(work) or waiting:
        if not waiting:
            free = max(free, work[after][0])
        while after < len(work) and work[after][0] <= free:
            heapq.heappush(waiting, (key(work[after]), after))
            after += 1
        _, which = heapq.heappop(waiting)
        free += work[which][1]
        latencies[which] = free - work[which][0]
    return latencies


def order(seed, count):
    """Mean, p99 of the small and p99 of the large requests, in ms, by order."""
    rng = random.Random(seed)
    times = [2 + units(rng) for _ in range(count)]
    work = list(zip(arrivals(rng, count, statistics.fmean(times), 0.7, 1), times))
    of_size = sorted(times)
    small, large = quantile(of_size, 0.5), quantile(of_size, 0.95)
    table = {}
    for name, patience in (("first come, first served", None), ("due, k = 2", 2), ("due, k = 8", 8)):
        latencies = ordered(work, patience)
        of = lambda keep: sorted(latency for latency, (_, time) in zip(latencies, work) if keep(time))
        table[name] = (statistics.fmean(latencies), quantile(of(lambda t: t <= small), 0.99), quantile(of(lambda t: t >= large), 0.99))
    return table


# --- placement


def placed(rng, work, speeds, policy):
    """Latencies, in ms, of (arrival, service time at speed 1)."""
    count = len(speeds)
    # when the last of each queue ends; the ends of those in it; a moving average of latency and its time
    ends, queues, average = [0.0] * count, [deque() for _ in speeds], [(0.0, 0.0)] * count
    latencies, turn = [], itertools.cycle(range(count))
    for now, time in work:
        for queue in queues:
            while queue and queue[0] <= now:
                queue.popleft()
        if policy == "round robin":
            at = next(turn)
        elif policy == "late":
            # who is free first takes the oldest: as if it had waited with all others. A slow one that is free takes it too
            at = min(range(count), key=lambda one: max(ends[one], now))
        elif policy == "least requests":
            at = min(range(count), key=lambda one: (len(queues[one]), rng.random()))
        else:
            pair = rng.sample(range(count), 2)
            cost = lambda one: len(queues[one])
            if policy == "ewma of two":
                # decays within 10 s
                cost = lambda one: average[one][0] * math.exp((average[one][1] - now) / 10_000) * (len(queues[one]) + 1)
            at = min(pair, key=cost)
        ends[at] = max(ends[at], now) + time / speeds[at]
        queues[at].append(ends[at])
        latency = ends[at] - now
        value, since = average[at]
        share = math.exp((since - now) / 10_000)
        average[at] = (max(latency, value * share + latency * (1 - share)), now)
        latencies.append(latency)
    return latencies


POLICIES = ("least requests", "round robin", "two choices", "ewma of two", "late")


def placement(seed, count, speeds):
    """p99 and the small requests' p99, in ms, by policy."""
    rng = random.Random(seed)
    times = [2 + units(rng) for _ in range(count)]
    work = list(zip(arrivals(rng, count, statistics.fmean(times), 0.7, sum(speeds)), times))
    small = quantile(sorted(times), 0.5)
    table = {}
    for policy in POLICIES:
        latencies = placed(random.Random(seed), work, speeds, policy)
        of_small = sorted(latency for latency, (_, time) in zip(latencies, work) if time <= small)
        table[policy] = (quantile(sorted(latencies), 0.99), quantile(of_small, 0.99))
    return table


# --- hedging

CLASSES = (1, 2, 4, 8, 8, 16)


def hedged(seed, count, load, trouble, policy):
    """Latencies, in ms, of requests with their work, and the share of time that copies took."""
    is_late, hedge = policy != "least requests", policy == "late, hedged"
    rng = random.Random(seed)
    mean = 5 + statistics.fmean(CLASSES)
    come = list(arrivals(rng, count, mean, load, 3))
    work = [rng.choice(CLASSES) for _ in come]
    stalls = []
    for _ in range(3):
        of_one, now = [], 0.0
        while trouble == "stalls" and now < come[-1]:
            now += rng.expovariate(1 / 20_000)
            of_one.append((now, now + 300))
            now += 300
        stalls.append(of_one)

    def lasts(one, now, own):
        """When a copy that begins now ends."""
        time = (5 + own) * rng.lognormvariate(0, 0.1)
        if trouble == "outliers" and rng.random() < 0.01:
            time *= 10
        end = now + time
        at = max(0, bisect.bisect(stalls[one], (now, math.inf)) - 1)
        for begin, over in stalls[one][at:]:
            if begin > end:
                break
            # it goes on when the stall is over
            end += max(0.0, over - max(begin, now)) if over > now else 0.0
        return end

    events = [(now, 0, which) for which, now in enumerate(come)]
    heapq.heapify(events)
    # bound late, all wait in the first queue
    idle, queues, running = {0, 1, 2}, [deque(), deque(), deque()], {}
    # the latest service times of a class, sorted, and in their order
    seen = {own: ([], deque()) for own in set(CLASSES)}
    tokens, copies, total, latencies = 10.0, 0.0, 0.0, [None] * count

    def start(which, now, is_copy, one):
        nonlocal copies, total
        idle.remove(one)
        end = lasts(one, now, work[which])
        total += end - now
        copies += end - now if is_copy else 0.0
        heapq.heappush(events, (end, 1, (which, one, now)))
        running[which] = running.get(which, 0) + 1
        if hedge and not is_copy:
            times, _ = seen[work[which]]
            if len(times) >= 100:
                heapq.heappush(events, (now + quantile(times, 0.98), 2, which))

    while events:
        now, kind, what = heapq.heappop(events)
        if kind == 0:
            there = lambda one: (len(queues[one]) + (one not in idle), rng.random())
            queues[0 if is_late else min(range(3), key=there)].append(what)
            tokens = min(10.0, tokens + 0.02)
        elif kind == 1:
            which, one, since = what
            idle.add(one)
            running[which] -= 1
            times, latest = seen[work[which]]
            bisect.insort(times, now - since)
            latest.append(now - since)
            if len(latest) > 2_000:
                del times[bisect.bisect_left(times, latest.popleft())]
            if latencies[which] is None:
                latencies[which] = now - come[which]
        elif latencies[what] is None and running.get(what) == 1 and idle and not queues[0] and tokens >= 1:
            tokens -= 1
            start(what, now, True, min(idle))
        for one in sorted(idle):
            if queues[0 if is_late else one]:
                start(queues[0 if is_late else one].popleft(), now, False, one)
    return latencies, work, copies / total


def unexplained(latencies, work):
    """The variance of latencies within requests of equal work, in ms^2."""
    by_work = {}
    for latency, own in zip(latencies, work):
        by_work.setdefault(own, []).append(latency)
    return sum(len(of) * statistics.pvariance(of) for of in by_work.values()) / len(latencies)


def hedging(seed, count, load, trouble):
    """Unexplained variance in ms^2, p99 in ms, and the copies' share of all time in percent."""
    table = {}
    for policy in ("least requests", "late", "late, hedged"):
        latencies, work, copies = hedged(seed, count, load, trouble, policy)
        table[policy] = (unexplained(latencies, work), quantile(sorted(latencies), 0.99), 100 * copies)
    return table


# --- tables


def block(title, columns, tables, ratios):
    """A table: the first row's values, then ratios to it of the first `ratios` columns, as mean (least to greatest) over the seeds."""
    print(f"\n{title}\n\n{' | '.join(['', *columns]).strip()}\n{'|'.join(['---'] * (len(columns) + 1))}")
    first = next(iter(tables[0]))
    for name in tables[0]:
        cells = []
        for at in range(len(columns)):
            is_ratio = at < ratios and name != first
            values = [table[name][at] / (table[first][at] if is_ratio else 1) for table in tables]
            mean = statistics.fmean(values)
            cells.append(f"{mean:.2f}× ({min(values):.2f} to {max(values):.2f})" if is_ratio else f"{mean:.3g}")
        print(" | ".join([name, *cells]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200_000, help="of each run")
    parser.add_argument("--seeds", type=int, default=4, help="runs of each table")
    given = parser.parse_args()
    seeds = range(1, given.seeds + 1)
    tables = [order(seed, given.requests) for seed in seeds]
    block("Order, one upstream, 70 % load", ["mean, ms", "p99 of the small, ms", "p99 of the large, ms"], tables, 3)
    for title, speeds in (("three equal upstreams", (1, 1, 1)), ("one of three at half speed", (1, 1, 0.5))):
        tables = [placement(seed, given.requests, speeds) for seed in seeds]
        block(f"Placement, {title}, 70 % load", ["p99, ms", "p99 of the small, ms"], tables, 2)
    for trouble in ("stalls", "outliers"):
        for load in (0.3, 0.5, 0.7):
            tables = [hedging(seed, given.requests, load, trouble) for seed in seeds]
            columns = ["unexplained variance, ms²", "p99, ms", "copies, % of time"]
            block(f"Hedging, {trouble}, {100 * load:.0f} % load", columns, tables, 2)


if __name__ == "__main__":
    main()
