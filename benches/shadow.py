#!/usr/bin/env python3
"""What copying requests costs their clients: Lapwing without shadow targets and with good and bad ones, in one run.

Each condition is a Lapwing of its own in front of one upstream, which answers tensors of the Open Inference Protocol after a few
milliseconds:
  none       no shadow target, twice: the ratio of the two is what the machine's noise alone does
  0 %        a target, and no request is copied
  healthy    every request is copied to a server like the upstream; in all below too
  dead       nobody listens there
  slow       the target answers after 10 s
  flooding   it answers without end: bodies and headers
  garbage    noise instead of HTTP, bodies that break off, JSON of another shape, closed connections
Closed-loop clients call the conditions in turn, in slices of --slice seconds, in a new random order in each round, so that all see
the same machine. The p50 of a condition is that of all its requests, over that of `none`; the interval (95 %) is that of a
bootstrap which draws whole rounds. Each response is compared with what the upstream must answer to this request, byte by byte, and
the upstream checks each request and counts it.

usage: python3 benches/shadow.py [--lapwing PATH] [--rounds N] [--slice S] [--clients N] [--ms MS] [--body BYTES] [--json FILE]
Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import bisect
import contextlib
import itertools
import json
import random
import re
import socket
import sys
import threading
import time
import zlib
from http.client import HTTPConnection

import shadow_servers
from parts import ROOT, Child, Lapwing, arguments, finish, free_port, resident, table, timed

CONDITIONS = {
    # name: (target, share)
    "none": (None, None),
    "none again": (None, None),
    "0 %": ("healthy", "0%"),
    "healthy": ("healthy", "100%"),
    "dead": ("dead", "100%"),
    "slow": ("slow", "100%"),
    "flooding": ("flooding", "100%"),
    "garbage": ("garbage", "100%"),
}
BOUNDED = ["0 %", "dead", "slow", "flooding", "garbage"]
P50_RATIO, BUDGET_MIB, BESIDE_MIB = 1.03, 64, 32
RESAMPLES = 1000
# between slices: what a slice has set going may end
PAUSE_S = 0.05
# reasons why a copy is not sent to a target that there is
NOT_SENT = ("busy", "circuit_open")
# reasons for which a sampled request is not handed over
NOT_HANDED_OVER = ("queue_full", "circuit_open")


# === load ===


class Request:
    """A request and the response that it must get."""

    def __init__(self, condition, number, size):
        rng = random.Random(number)
        head, tail = '{"inputs":[{"name":"x","datatype":"FP32","shape":[1,', "]}]}"
        values = [f"{rng.random():.6f}" for _ in range(max(1, (size - 80) // 9))]
        body = f'{head}{len(values)}],"data":[{",".join(values)}{tail}'.encode()
        fields = f"host: m\r\ncontent-type: application/json\r\nx-condition: {condition}\r\nx-crc: {zlib.crc32(body)}\r\ncontent-length: {len(body)}"
        self.bytes = f"POST /v2/models/m/infer HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body
        self.answer = shadow_servers.answer_to(body)


class Caller:
    """One client of one condition: a connection that lasts for the whole run."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")
        self.head = None

    def call(self, request):
        """(nanoseconds, whether the response is what it must be)."""
        start = time.perf_counter_ns()
        self.socket.sendall(request.bytes)
        head = shadow_servers.read_request(self.stream)
        took = time.perf_counter_ns() - start
        if head is None:
            raise SystemExit("the connection was closed")
        line, headers, body = head
        del headers[b"content-length"]
        headers.pop(b"date", None)
        self.head = self.head or (line, headers)
        return took, line == b"HTTP/1.1 200 OK\r\n" and body == request.answer and (line, headers) == self.head


class Condition:
    """A Lapwing, its clients, and what they saw."""

    def __init__(self, name, lapwing, options):
        self.name, self.lapwing, self.slices, self.sent, self.wrong = name, lapwing, [], 0, 0
        self.requests = [Request(name, number, options.body) for number in range(64)]
        self.callers = [Caller(lapwing.port) for _ in range(options.clients)]

    def slice(self, seconds):
        """Calls for so long with all clients; nanoseconds of each request."""
        took, until = [[] for _ in self.callers], time.monotonic() + seconds

        def client(n):
            requests = itertools.islice(itertools.cycle(self.requests), random.randrange(64), None)
            while time.monotonic() < until:
                ns, is_right = self.callers[n].call(next(requests))
                took[n].append(ns)
                self.wrong += not is_right

        threads = [threading.Thread(target=client, args=(n,)) for n in range(len(took))]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        out = list(itertools.chain(*took))
        self.sent += len(out)
        return out


def run(conditions, options):
    """All rounds, after one that is not kept."""
    order = list(conditions)
    for number in range(options.rounds + 1):
        random.shuffle(order)
        for condition in order:
            took = condition.slice(options.slice)
            if number:
                condition.slices.append(took)
            time.sleep(PAUSE_S)


# === figures ===


class Quantiles:
    """All latencies of a condition in order, each with the round that it is from."""

    def __init__(self, slices):
        marked = sorted((ns, n) for n, took in enumerate(slices) for ns in took)
        self.ns, self.rounds = [ns for ns, _ in marked], [n for _, n in marked]
        self.counts = [len(took) for took in slices]

    def of(self, weights, shares):
        """The quantiles if round `n` had occurred `weights[n]` times."""
        total = sum(w * c for w, c in zip(weights, self.counts))
        cumulated = list(itertools.accumulate(map(weights.__getitem__, self.rounds)))
        return [self.ns[bisect.bisect_left(cumulated, max(1, share * total))] for share in shares]


def ratios(conditions, shares=(0.5, 0.99)):
    """For each condition: its quantiles in ns, and for each quantile the ratio to `none`'s with its interval."""
    rounds = len(conditions[0].slices)
    every = [Quantiles(condition.slices) for condition in conditions]
    plain = [q.of([1] * rounds, shares) for q in every]
    drawn = []
    for _ in range(RESAMPLES):
        weights = [0] * rounds
        for n in random.choices(range(rounds), k=rounds):
            weights[n] += 1
        drawn.append([q.of(weights, shares) for q in every])
    out = []
    for index, quantiles in enumerate(plain):
        figures = {"n": len(every[index].ns), "ns": dict(zip(shares, quantiles)), "ratio": {}}
        for s, share in enumerate(shares):
            resampled = sorted(one[index][s] / one[0][s] for one in drawn)
            low, high = resampled[int(0.025 * RESAMPLES)], resampled[int(0.975 * RESAMPLES) - 1]
            figures["ratio"][share] = (quantiles[s] / plain[0][s], low, high)
        out.append(figures)
    return out


def memory_mib(child):
    """(resident memory now, its peak)."""
    with open(f"/proc/{child.pid}/status") as status:
        found = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+)", status.read()))
    return int(found["VmRSS"]) / 1024, int(found["VmHWM"]) / 1024


def dropped(lapwing):
    """`lapwing_shadow_dropped_total` by target and reason, where it is not zero."""
    connection = HTTPConnection("127.0.0.1", lapwing.admin, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.findall(r'^lapwing_shadow_dropped_total\{([^}]*)\} (\d+)', text, re.M)
    named = ((dict(re.findall(r'(\w+)="([^"]*)"', labels)), int(count)) for labels, count in found)
    return {(labels["target"], labels["reason"]): count for labels, count in named if count}


def settled(condition, seconds=20):
    """`/shadow` once each copy that was sent has ended or the time is over; None without a target."""
    if CONDITIONS[condition.name][0] is None:
        return None
    end = time.monotonic() + seconds
    while True:
        view = get_shadow(condition.lapwing)
        (target,) = (t for t in view["targets"] if t["name"] == "candidate")
        waits = target["sent"] != target["answered"] + target["failed"] or accounted(condition, view)[0] < 0
        if not waits or time.monotonic() > end:
            return view
        time.sleep(0.5)


def get_shadow(lapwing):
    connection = HTTPConnection("127.0.0.1", lapwing.admin, timeout=30)
    connection.request("GET", "/shadow", headers={"accept": "application/json"})
    view = json.loads(connection.getresponse().read())
    connection.close()
    return view


def accounted(condition, view):
    """(sampled requests that were neither sent nor counted as dropped, requests that were not sampled): none if both are ≤ 0."""
    (target,) = (t for t in view["targets"] if t["name"] == "candidate")
    drops = view["dropped"]
    not_sent = target["sent"] + sum(target["dropped"].get(reason, 0) for reason in NOT_SENT)
    before = sum(drops.get(reason, 0) for reason in NOT_HANDED_OVER)
    lost = view["sampled"] - not_sent - (sum(drops.values()) - before)
    return lost, condition.sent - view["sampled"] - before


def report(conditions, figures, views):
    """Prints a row for each condition."""
    rows = []
    for condition, one in zip(conditions, figures):
        cells = []
        for share in (0.5, 0.99):
            ratio, low, high = one["ratio"][share]
            cells += [f"{one['ns'][share] / 1e6:.3f}", "" if condition is conditions[0] else f"{ratio:.4f} [{low:.4f}, {high:.4f}]"]
        rows.append([condition.name, one["n"], *cells, f"{one['mib'][0]:.1f}", f"{one['mib'][1]:.1f}", f"{one['mib'][2]:.1f}"])
    table(["", "requests", "p50 ms", "p50 ratio", "p99 ms", "p99 ratio", "MiB before", "after", "peak"], rows)
    rows = []
    for condition, one, view in zip(conditions, figures, views):
        if view:
            (target,) = (t for t in view["targets"] if t["name"] == "candidate")
            drops = ", ".join(f"{reason} {n}" for (_, reason), n in sorted(one["dropped"].items()))
            rows.append([condition.name, condition.sent, view["sampled"], target["sent"], target["answered"], target["failed"], drops])
    table(["all rounds", "requests", "sampled", "sent", "answered", "failed", "lapwing_shadow_dropped_total"], rows)


def verdicts(conditions, figures, views, counts):
    """What the run must show."""
    for condition, one in zip(conditions, figures):
        if condition.name in BOUNDED:
            ratio, low, high = one["ratio"][0.5]
            yield timed(f"{condition.name}: p50, of none's", f"{ratio:.4f} [{low:.4f}, {high:.4f}]", f"interval below {P50_RATIO}", high < P50_RATIO)
    sent = sum(condition.sent for condition in conditions)
    wrong = sum(condition.wrong for condition in conditions)
    yield "responses that are not what the upstream answers, byte by byte", f"{wrong} of {sent}", "0", wrong == 0
    arrived = sum(counts[condition.name]["originals"] for condition in conditions)
    altered = sum(count["altered"] for count in counts.values())
    yield "requests at the upstream, of those sent", f"{arrived} of {sent}", "all", arrived == sent
    yield "requests or copies that arrived altered", str(altered), "0", altered == 0
    counted = sum(one["counted"] for one in figures)
    yield "requests that Lapwing counted", f"{counted} of {sent}", "all", counted == sent
    base = figures[0]["mib"][2]
    for condition, one, view in zip(conditions, figures, views):
        if view:
            lost, unsampled = accounted(condition, view)
            copied = CONDITIONS[condition.name][1] == "100%"
            holds = lost <= 0 and (unsampled == 0 if copied else view["sampled"] == 0)
            yield f"{condition.name}: requests neither copied nor counted as dropped", str(max(lost, 0) + (unsampled if copied else 0)), "0", holds
            more = one["mib"][2] - base
            what, bound = f"{condition.name}: peak memory above that without a target", BUDGET_MIB + BESIDE_MIB
            yield resident(what, f"{more:.1f} MiB", f"≤ {BUDGET_MIB} + {BESIDE_MIB} MiB", more <= bound)


# === the run ===


def start(stack, kind, options):
    """A server of this kind; its port."""
    port = free_port()
    if kind != "dead":
        command = [sys.executable, ROOT / "benches/shadow_servers.py", kind, port, "--ms", options.ms]
        stack.enter_context(Child(command, port))
    return port


def config_of(target, share, ports):
    text = "attribution:\n  expect_spans: never\n"
    if target:
        text += f"shadow:\n  sample: {share}\n  headers: {{x-condition: keep, x-crc: keep}}\n  budget: {BUDGET_MIB}MiB\n  targets:\n    candidate: http://127.0.0.1:{ports[target]}\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--rounds", type=int, default=80, help="(default: 80)")
    parser.add_argument("--slice", type=float, default=0.4, help="seconds of each condition in each round (default: 0.4)")
    parser.add_argument("--clients", type=int, default=2, help="closed-loop clients (default: 2)")
    parser.add_argument("--ms", type=float, default=3, help="milliseconds until the upstream answers (default: 3)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a request's body (default: 1024)")
    options = parser.parse_args()
    random.seed(1)
    with contextlib.ExitStack() as stack:
        upstream = start(stack, "upstream", options)
        ports = {kind: start(stack, kind, options) for kind in ("healthy", "dead", "slow", "flooding", "garbage")}
        conditions = []
        for name, (target, share) in CONDITIONS.items():
            lapwing = stack.enter_context(Lapwing(options.lapwing, upstream, config=config_of(target, share, ports)))
            conditions.append(Condition(name, lapwing, options))
        for condition in conditions:  # warms up; and the memory of a process that has served
            condition.slice(options.slice)
        before = [memory_mib(condition.lapwing)[0] for condition in conditions]
        run(conditions, options)
        after = [memory_mib(condition.lapwing) for condition in conditions]
        views = [settled(condition) for condition in conditions]
        figures = ratios(conditions)
        for condition, one, first, (last, peak) in zip(conditions, figures, before, after):
            # the kernel counts both in batches
            one["mib"] = (first, last, max(first, last, peak))
            one["counted"] = condition.lapwing.await_count(condition.sent, "infer")
            one["dropped"] = dropped(condition.lapwing) if CONDITIONS[condition.name][0] else {}
        connection = HTTPConnection("127.0.0.1", upstream, timeout=30)
        connection.request("GET", "/counts")
        counts = json.loads(connection.getresponse().read())
        report(conditions, figures, views)
        results = list(verdicts(conditions, figures, views, counts))
        named = {condition.name: {**one, "dropped": [[*key, n] for key, n in one["dropped"].items()]} for condition, one in zip(conditions, figures)}
        return finish(options, {"conditions": named}, results)


if __name__ == "__main__":
    sys.exit(main())
