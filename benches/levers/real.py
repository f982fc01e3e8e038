#!/usr/bin/env python3
"""What dispatch brings on real servers, beside other proxies: order, overload, placement, and servers that batch by themselves.

    python3 benches/levers/real.py --lapwing PATH [--cases order,overload,placement,batchers] [--seconds N] [--seeds N] [--json FILE]

All systems of a table meet the same requests at the same times, one system after the other, seed by seed, in an order that turns.
Ratios are to the row named base. An open loop times from when a request was due. What learns (dispatch, Envoy's adaptive concurrency)
is warmed up first, at 1, 2, 4 and 8 requests at once and then at the case's load. Costs are fitted on the server alone before.
A run in which other processes took more than a share of the machine is repeated, whatever it showed.

- order: FastAPI with magika (rows lognormal(1.0, 1.1) within 1..32), and a scripted server of one slot (2 ms + 1 ms a row,
  lognormal(2.2, 1.3) within 1..256), at 70 % of what each can do.
- overload: the same at 1.3 times that, each request with a budget of ten times the mean cost or 100 ms. Goodput: rows answered in
  budget. Refused: an answer other than 200 within a quarter of the budget; what fails later was admitted. False refusals: see
  figures.py.
- placement: three servers, equal, then one at half speed, at 70 %. There a slow server's queue grows as long as the run by turns, so
  that round robin's figures say little but that.
- batchers: throughput of a closed loop before Triton with dynamic batching, llama.cpp, and a scripted server that batches.

Needs nginx, haproxy, Envoy (.venv), .venv-triton and .venv-llama, as tests/run installs them. Exit code 1 if a count misses its
bound, 3 if only a time does.
"""

import argparse
import contextlib
import json
import math
import pathlib
import random
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import figures  # noqa: E402
import load  # noqa: E402
import proxies  # noqa: E402
from affinity import affinity  # noqa: E402
from batchers import batchers  # noqa: E402
from figures import Column, Runs, Sizes, mean_ms, p99_ms, units_a_second  # noqa: E402
from parts import arguments, finish, quantile, timed  # noqa: E402
from stalls import stalls  # noqa: E402
from upstreams import MAGIKA, SCRIPTED  # noqa: E402

KINDS = {"magika": MAGIKA, "scripted": SCRIPTED}
CASES = ("order", "overload", "placement", "stalls", "outliers", "affinity", "batchers")
LATE_MS = 2.0
"""Above this the load itself is late, and latencies say less about the servers."""


class System:
    """What a load is sent to."""

    def __init__(self, child, learns=False, lapwing=None):
        self.child, self.port, self.learns, self.lapwing = child, child.port, learns, lapwing


class Cost(NamedTuple):
    fixed_ms: float
    row_ms: float

    def __call__(self, rows):
        return max(0.1, self.fixed_ms + self.row_ms * rows)

    def __str__(self):
        return f"{self.fixed_ms:.2f} ms + {self.row_ms:.3f} ms a row"


class Bench:
    """What the cases share: the options, what runs, the verdicts and figures."""

    def __init__(self, options):
        self.options, self.verdicts, self.results, self.costs = options, [], {}, {}
        self.lacks = []
        for lever, settings in (("dispatch", "dispatch: {mode: on}"), ("hedge", f"dispatch: {{mode: on, hedge: {options.hedge}}}")):
            knows, said = proxies.knows(options.lapwing, settings)
            if not knows:
                self.lacks.append(lever)
                print(f"No row of Lapwing with {lever}: {options.lapwing} does not take {settings}\n  {said}\n", flush=True)

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def systems(self, stack, named):
        """Starts each (name, how it is made, whether it learns) that is not left out."""
        out = {}
        for name, make, learns in named:
            kind, *levers = name.split(", ")
            if kind in self.options.without or (kind == "lapwing" and set(levers) & set(self.lacks)):
                continue
            child = stack.enter_context(make())
            out[name] = System(child, learns, child if "lapwing" in name else None)
        return out

    def calmly(self, run):
        """(what it returns, the share of the machine that other processes took): again, if that was more than the options allow."""
        for left in reversed(range(self.options.tries)):
            end = time.monotonic() + self.options.wait
            while self.others_now() > self.options.others and time.monotonic() < end:
                pass
            with load.Others() as others:
                out = run()
            if others.share <= self.options.others:
                break
            if left:
                self.say(f"others took {others.share:.0%} of the machine: again")
        return out, others.share

    @staticmethod
    def others_now():
        with load.Others() as others:
            time.sleep(2)
        return others.share

    def calibrate(self, kind, port):
        """The ms of a request by its rows: a line by the medians of the gaps between answers while the server is never idle."""
        if kind.name in self.costs:
            return self.costs[kind.name]
        rng, messages, gaps = random.Random(0), kind.messages(), {}
        answers, _ = self.calmly(lambda: load.closed_loop(port, 3, self.options.calibrate, lambda: kind.mix(rng), messages))
        ends = sorted((one.due + one.took_ms / 1e3, one.units) for one in answers)[5:]
        for (before, _), (after, units) in zip(ends, ends[1:]):
            gaps.setdefault(units, []).append(1e3 * (after - before))
        points = [(units, statistics.median(of)) for units, of in gaps.items() for _ in of]
        line = statistics.linear_regression(*zip(*points))
        fitted, took = sum(line.intercept + line.slope * units for units, _ in points), sum(map(sum, gaps.values()))
        self.costs[kind.name] = Cost(line.intercept, line.slope)
        self.say(f"{kind.name}: {self.costs[kind.name]}; {len(points)} answers took {took / fitted:.3f} times that")
        return self.costs[kind.name]

    def warm(self, system, kind, messages, load_, cost_ms, slots):
        rng, seconds = random.Random(99), self.options.warm_up
        for clients in (1, 2, 4, 8):
            load.closed_loop(system.port, clients, seconds / 12, lambda: kind.mix(rng), messages)
        load.open_loop(system.port, load.plan(99, seconds * 2 / 3, 0, load_, kind.mix, cost_ms, slots), messages)

    def interleaved(self, title, systems, kind, load_, cost_ms, messages, slots=1.0, run=None):
        """(answers by system and seed, the plans by seed, the greatest share of the machine that others took); `run(system, planned, seed)`
        is what is done for each, if more than to send the messages."""
        options = self.options
        run = run or (lambda system, planned, seed: load.open_loop(system.port, planned, messages))
        plans = {seed: load.plan(seed, options.seconds, options.settle, load_, kind.mix, cost_ms, slots) for seed in range(1, options.seeds + 1)}
        answers, others = {name: {} for name in systems}, []
        for system in (one for one in systems.values() if one.learns):
            self.warm(system, kind, messages, load_, cost_ms, slots)
        names = list(systems)
        for seed, planned in plans.items():
            turn = seed % len(names)
            for name in names[turn:] + names[:turn]:
                answers[name][seed], other = self.calmly(lambda: run(systems[name], planned, seed))
                others.append(other)
                self.say(f"{title}, seed {seed}, {name}: {len(planned)} requests, others took {other:.0%} of the machine")
        return answers, plans, max(others)

    def report(self, title, key, runs, base, columns, others, said, systems):
        """Prints the table, and how far to trust it."""
        late, says = max(quantile(one.lateness, 0.99) for one in runs.values()), {}
        table = figures.compared(runs, base, columns)
        figures.print_compared(title, table, base, columns)
        print(f"{said}; sent late by {late:.2f} ms at p99; other processes took up to {others:.0%} of the machine.")
        if late > LATE_MS:
            print(f"WARNING: the load was late by more than {LATE_MS} ms: the machine is too busy for these figures.")
        for name, system in systems.items():
            if system.lapwing:
                says[name] = self.lapwing_says(system.lapwing)
                print(f"{name} says: {says[name][:1500]}")
        self.results[key] = {"table": table, "late_p99_ms": late, "others": others, "said": said, "lapwing": says}
        return table

    def bound(self, what, table, system, title, most=None, least=None, part="ratio"):
        """A verdict on a cell: not above `most`, not below `least`."""
        value = table[system][title][part] if system in table else None
        value = None if value is not None and math.isnan(value) else value
        limit = f"at most {most}" if least is None else f"at least {least}"
        holds = None if value is None else (value <= most if least is None else value >= least)
        self.verdicts.append(timed(what, "not measured" if value is None else f"{value:.3f}", limit, holds))

    def answered(self, what, runs):
        """A verdict that nothing was lost."""
        for name, one in runs.items():
            lost = sum(answer.status != 200 for block in one.blocks.values() for answer in block)
            self.verdicts.append((f"{what}, {name}: requests not answered", lost, 0, lost == 0))

    @staticmethod
    def lapwing_says(lapwing):
        """What became of requests, by outcome, and what dispatch counted."""
        sums = {}
        for series in lapwing.series():
            for outcome, n in series["outcomes"].items():
                sums[outcome] = sums.get(outcome, 0) + n
        said = ", ".join(f"{outcome} {n}" for outcome, n in sums.items() if n)
        with contextlib.suppress(SystemExit):
            if (dispatch := lapwing.get("/dispatch")) is not None:
                said += f"; /dispatch {json.dumps(dispatch)}"
        return said


def order(bench, kind):
    """One upstream of one slot."""
    options = bench.options
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(kind.server(options))
        cost_ms = bench.calibrate(kind, server.port)
        ports, messages = [server.port], kind.messages()
        proxied = [
            ("nginx", lambda: proxies.nginx(ports), False),
            ("lapwing", lambda: proxies.lapwing(options, ports), False),
            ("lapwing, dispatch", lambda: proxies.lapwing(options, ports, dispatch=True), True),
        ]
        systems = {"direct": System(server), **bench.systems(stack, proxied)}
        answers, plans, others = bench.interleaved(f"order, {kind.name}", systems, kind, 0.7, cost_ms, messages)
        sizes, runs = Sizes(plans), {name: Runs(of, plans) for name, of in answers.items()}
        columns = [
            Column("mean, ms", mean_ms),
            Column("p99 of the small, ms", p99_ms(sizes.small)),
            Column("p99 of the large, ms", p99_ms(sizes.large)),
            Column("rows/s", units_a_second),
            Column("failed", figures.failed, False, "{}"),
        ]
        said = f"{cost_ms}; {sizes.said}"
        table = bench.report(f"Order, {kind.said}, 70 % load", f"order {kind.name}", runs, "direct", columns, others, said, systems)
        bench.answered(f"order, {kind.name}", runs)
        for at, (most, least) in enumerate(((0.8, None), (0.75, None), (1.3, None), (None, 0.98))):
            title = columns[at].title
            bench.bound(f"order, {kind.name}, dispatch: {title} to direct", table, "lapwing, dispatch", title, most, least)


def overload(bench, kind):
    """One upstream of one slot, 1.3 times what it can do, budgets."""
    options = bench.options
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(kind.server(options))
        cost_ms = bench.calibrate(kind, server.port)
        ports, rng = [server.port], random.Random(0)
        sample = [kind.mix(rng) for _ in range(20_000)]
        mean_cost = statistics.fmean(map(cost_ms, sample))
        budget_ms = kind.budget_ms or round(10 * mean_cost)
        messages = kind.messages([f"x-latency-budget-ms: {budget_ms}"])
        proxied = [
            ("envoy, adaptive as documented", lambda: proxies.envoy(ports, filters=[proxies.adaptive("60s", 3, "0.1s")]), True),
            ("envoy, adaptive, tuned", lambda: proxies.envoy(ports, filters=[proxies.adaptive("30s", 1, "1s")]), True),
            ("haproxy, 2 at once, queue for the budget", lambda: proxies.haproxy(ports, "leastconn", 2, f"{budget_ms}ms"), False),
            ("lapwing, dispatch", lambda: proxies.lapwing(options, ports, dispatch=True, deadlines=True), True),
        ]
        systems = {"direct": System(server), **bench.systems(stack, proxied)}
        answers, plans, others = bench.interleaved(f"overload, {kind.name}", systems, kind, 1.3, cost_ms, messages)
        judged = {name: {seed: figures.refused_falsely(of, budget_ms, cost_ms) for seed, of in by.items()} for name, by in answers.items()}
        judged["simulated: in order, what fits"] = figures.known_ahead(plans, budget_ms, cost_ms)
        runs = {name: Runs(of, plans) for name, of in judged.items()}
        units = [one.units for planned in plans.values() for one in planned if one.is_measured]
        capacity = 1e3 * sum(units) / sum(map(cost_ms, units))
        columns = figures.of_overload(budget_ms, capacity)
        said = f"budget {budget_ms} ms, capacity {capacity:.1f} rows/s, {cost_ms}, {len(units)} requests; {refusals(runs, budget_ms)}"
        table = bench.report(f"Overload, {kind.said}, 1.3 times capacity", f"overload {kind.name}", runs, "direct", columns, others, said, systems)
        for at, (most, least) in ((0, (None, 0.9)), (3, (None, 0.99)), (4, (0.02, None))):
            title = columns[at].title
            bench.bound(f"overload, {kind.name}, dispatch: {title}", table, "lapwing, dispatch", title, most, least, "value")


def refusals(runs, budget_ms):
    """How often which status was answered, at the door or later."""
    at_door, out = figures.is_at_the_door(budget_ms), []
    for name, one in runs.items():
        counts = {}
        for answer in (answer for block in one.blocks.values() for answer in block if answer.status != 200):
            word = f"{answer.status} {answer.why}".strip() + ("" if at_door(answer) else " later")
            counts[word] = counts.get(word, 0) + 1
        if counts:
            out.append(f"{name}: " + ", ".join(f"{n} times {word}" for word, n in counts.items()))
    return "; ".join(out) or "nothing refused"


def placement(bench, kind, speeds):
    """Three upstreams of one slot."""
    options, is_equal = bench.options, len(set(speeds)) == 1
    which = "equal" if is_equal else "one at half speed"
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(kind.server(options, speed)) for speed in speeds]
        ports, messages = [one.port for one in servers], kind.messages()
        cost_ms = bench.calibrate(kind, ports[0])
        named = [
            ("haproxy, leastconn", lambda: proxies.haproxy(ports, "leastconn"), False),
            ("haproxy, leastconn, 2 at once", lambda: proxies.haproxy(ports, "leastconn", 2), False),
            ("envoy, ROUND_ROBIN", lambda: proxies.envoy(ports), False),
            ("envoy, LEAST_REQUEST", lambda: proxies.envoy(ports, "LEAST_REQUEST"), False),
            ("lapwing, round_robin", lambda: proxies.lapwing(options, ports, policy="round_robin"), False),
            ("lapwing, least_requests", lambda: proxies.lapwing(options, ports, policy="least_requests"), False),
            ("lapwing, dispatch", lambda: proxies.lapwing(options, ports, dispatch=True), True),
        ]
        systems = bench.systems(stack, named)
        answers, plans, others = bench.interleaved(f"placement, {which}", systems, kind, 0.7, cost_ms, messages, sum(speeds))
        sizes, runs = Sizes(plans), {name: Runs(of, plans) for name, of in answers.items()}
        columns = [Column("p99, ms", p99_ms()), Column("p99 of the small, ms", p99_ms(sizes.small)), Column("mean, ms", mean_ms)]
        columns.append(Column("failed", figures.failed, False, "{}"))
        base, said = next(name for name in ("haproxy, leastconn", "lapwing, least_requests") if name in runs), sizes.said
        title, key = f"Placement, three of {kind.said}, {which}, 70 % load", f"placement {kind.name} {which}"
        table = bench.report(title, key, runs, base, columns, others, said, systems)
        bench.answered(f"placement, {which}", runs)
        what = f"placement, {which}, dispatch"
        bench.bound(f"{what}: p99 to {base}", table, "lapwing, dispatch", "p99, ms", 0.9 if is_equal else 0.75)
        bench.bound(f"{what}: p99 of the small to {base}", table, "lapwing, dispatch", "p99 of the small, ms", 0.5)
        for other, most in (("envoy, LEAST_REQUEST", 0.9 if is_equal else 0.75), ("envoy, ROUND_ROBIN", 0.55)):
            if {other, "lapwing, dispatch"} <= set(table):
                to = table["lapwing, dispatch"]["p99, ms"]["value"] / table[other]["p99, ms"]["value"]
                bench.verdicts.append(timed(f"{what}: p99 to {other}", f"{to:.3f}", f"at most {most}", to <= most))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    listed = lambda text: [one for one in text.split(",") if one]
    parser.add_argument("--cases", type=listed, default=",".join(CASES), help="which (default: %(default)s)")
    parser.add_argument("--servers", type=listed, default="scripted,magika", help="of order and overload (default: %(default)s)")
    parser.add_argument("--placement-server", choices=KINDS, default="scripted", help="(default: %(default)s; three of magika need four processors)")
    parser.add_argument("--without", type=listed, default="", help="proxies to leave out, as nginx,haproxy,envoy")
    parser.add_argument("--seconds", type=float, default=60, help="the measured part of a run (default: %(default)s)")
    parser.add_argument("--settle", type=float, default=10, help="the part before it, at the same load (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="plans of arrivals, each for every system (default: %(default)s)")
    parser.add_argument("--warm-up", type=float, default=30, help="seconds before the first run of what learns (default: %(default)s)")
    parser.add_argument("--calibrate", type=float, default=15, help="seconds for the server's costs (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=16, help="of the closed loop before batchers (default: %(default)s)")
    parser.add_argument("--others", type=float, default=0.1, help="the share of the machine that others may take in a run (default: %(default)s)")
    parser.add_argument("--tries", type=int, default=3, help="runs until one is so calm; the last is kept (default: %(default)s)")
    parser.add_argument("--wait", type=float, default=120, help="seconds to wait for that before a run (default: %(default)s)")
    parser.add_argument("--slots", default="auto", help="dispatch.slots (default: %(default)s)")
    parser.add_argument("--order", default="due", help="dispatch.order (default: %(default)s)")
    parser.add_argument("--patience", default="2", help="dispatch.patience (default: %(default)s)")
    parser.add_argument("--overload", default="1.25", help="routes.affinity.overload (default: %(default)s)")
    parser.add_argument("--hedge", default="{mode: on}", help="dispatch.hedge of what hedges (default: %(default)s)")
    parser.add_argument("--python", default=str(proxies.ROOT / ".venv/bin/python"), help="has FastAPI and ONNX Runtime (default: %(default)s)")
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES) | set(options.servers) - set(KINDS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    bench = Bench(options)
    for name, case in (("order", order), ("overload", overload)):
        for kind in options.servers if name in options.cases else ():
            case(bench, KINDS[kind])
    for speeds in ((1, 1, 1), (1, 1, 0.5)) if "placement" in options.cases else ():
        placement(bench, KINDS[options.placement_server], speeds)
    for trouble in ("stalls", "outliers"):
        if trouble in options.cases:
            stalls(bench, trouble)
    for name, case in (("affinity", affinity), ("batchers", batchers)):
        if name in options.cases:
            with tempfile.TemporaryDirectory() as folder:
                case(bench, pathlib.Path(folder))
    return finish(options, bench.results, bench.verdicts)


if __name__ == "__main__":
    sys.exit(main())
