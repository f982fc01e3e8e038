"""Three upstreams that stand still at times (`stalls`), or where one request of a hundred takes ten times as long (`outliers`)."""

import contextlib
import math
import pathlib
import tempfile
import time
from typing import NamedTuple

import figures
import load
import proxies
from figures import Column, Runs, p99_ms
from parts import timed
from simulate import unexplained
from upstreams import ROWS, UNSTEADY, Numbered

TROUBLES = {"stalls": ("--stall-ms", 300, "--stall-every-s", 20), "outliers": ("--outliers", 0.01)}
MOST = {"stalls": {0.3: 0.3, 0.5: 0.4, 0.7: 0.6}, "outliers": {0.3: 0.5, 0.5: 0.55, 0.7: 0.75}}
"""Unexplained variance to the base's, by load."""
LOADS = (0.3, 0.5, 0.7, 0.95)
FIXED_MS, NOISE = 5.0, 0.1
COPIED = 0.02
"""The share of the servers' time that copies may take."""
DRAIN_S = 30.0


def q98_s(rows):
    """The 98th percentile of a request's time at a server."""
    return (FIXED_MS + rows) * math.exp(2.054 * NOISE) / 1e3


class Work(NamedTuple):
    """How long servers worked on a request, and on copies of it."""

    own_ms: float
    copies_ms: float


class Log:
    """What a server appends to its file, since `mark`."""

    def __init__(self, path):
        self.path = path
        path.touch()
        self.mark()

    def mark(self):
        self.at = self.path.stat().st_size

    def lines(self):
        with self.path.open("rb") as file:
            file.seek(self.at)
            return [line.split() for line in file.read().decode().splitlines()]


def drained(logs):
    """The lines of all, once all that came was worked on."""
    end = time.monotonic() + DRAIN_S
    while True:
        lines = [line for log in logs for line in log.lines()]
        if 2 * sum(line[0] == "worked" for line in lines) == len(lines):
            return lines
        if time.monotonic() > end:
            raise SystemExit(f"servers still work {DRAIN_S:.0f} s after the last answer")
        time.sleep(0.05)


def worked(logs):
    """By id, (when it began, ms) of each copy, in their order."""
    out = {}
    for _, name, began, ms in (line for line in drained(logs) if line[0] == "worked"):
        out.setdefault(int(name), []).append((float(began), float(ms)))
    return {name: sorted(copies) for name, copies in out.items()}


def with_work(answers, by_id):
    """The answers with what servers did for each; what came more than once is a copy from the second on."""
    for number, answer in enumerate(answers):
        times = [ms for _, ms in by_id.get(number, [])]
        yield answer._replace(found=Work(sum(times[:1]), sum(times[1:])))


def unexplained_ms2(answers, _):
    answered = [one for one in answers if one.status == 200]
    return unexplained([one.took_ms for one in answered], [one.units for one in answered]) if answered else math.nan


def copied(answers, _):
    own = sum(one.found.own_ms for one in answers)
    return sum(one.found.copies_ms for one in answers) / own if own else math.nan


def sent_again(answers, _):
    return sum(one.found.copies_ms > 0 for one in answers) / len(answers) if answers else math.nan


COLUMNS = [
    Column("unexplained variance, ms²", unexplained_ms2),
    Column("p99, ms", p99_ms()),
    Column("mean, ms", figures.mean_ms),
    Column("copies, of the servers' time", copied, False, "{:.2%}"),
    Column("requests with a copy", sent_again, False, "{:.2%}"),
    Column("failed", figures.failed, False, "{}"),
]
VARIANCE, P99, _, COPIES, *_ = (column.title for column in COLUMNS)


def stalls(bench, trouble):
    options, messages = bench.options, UNSTEADY.messages()
    at_mean = sum(ROWS) / len(ROWS)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        flags = ("--fixed-ms", FIXED_MS, "--noise", NOISE)
        steady = stack.enter_context(UNSTEADY.server(options, more=flags))
        cost_ms = bench.calibrate(UNSTEADY, steady.port)
        logs = [Log(folder / f"{number}.log") for number in range(3)]
        servers = [stack.enter_context(UNSTEADY.server(options, more=(*flags, *TROUBLES[trouble], "--log", log.path))) for log in logs]
        ports = [server.port for server in servers]
        envoy = lambda rows: lambda: proxies.envoy(ports, "LEAST_REQUEST", **proxies.hedging(q98_s(rows)))
        named = [
            ("haproxy, leastconn", lambda: proxies.haproxy(ports, "leastconn"), False),
            (f"envoy, LEAST_REQUEST, hedge after {1e3 * q98_s(at_mean):.1f} ms", envoy(at_mean), False),
            (f"envoy, LEAST_REQUEST, hedge after {1e3 * q98_s(max(ROWS)):.1f} ms", envoy(max(ROWS)), False),
            ("lapwing, least_requests", lambda: proxies.lapwing(options, ports, policy="least_requests"), False),
            ("lapwing, dispatch", lambda: proxies.lapwing(options, ports, dispatch=True), True),
            ("lapwing, dispatch, hedge", lambda: proxies.lapwing(options, ports, dispatch=True, hedge=True), True),
        ]
        systems = bench.systems(stack, named)

        def run(system, planned, seed):
            drained(logs)  # nothing of the run before goes on
            for number, (log, port) in enumerate(zip(logs, ports)):
                # the same troubles at the same times for every system
                load.get(port, f"/afresh/{seed}-{number}")
                log.mark()
            return list(with_work(load.open_loop(system.port, planned, Numbered(messages)), worked(logs)))

        base = next((name for name in ("haproxy, leastconn", "lapwing, least_requests") if name in systems), None)
        for load_ in LOADS if base else ():
            title = f"{trouble}, {load_:.0%} load"
            answers, plans, others = bench.interleaved(title, systems, UNSTEADY, load_, cost_ms, messages, 3.0, run)
            runs = {name: Runs(of, plans) for name, of in answers.items()}
            said = f"{cost_ms}, noise {NOISE}; {sum(len(block) for block in runs[base].blocks.values())} requests"
            table = bench.report(f"Hedging, three of {UNSTEADY.said}, {title}", f"{trouble} {load_:.0%}", runs, base, COLUMNS, others, said, systems)
            bench.answered(title, runs)
            judged(bench, title, table, base, MOST[trouble].get(load_))


def judged(bench, title, table, base, most):
    """The bounds of one table: hedging brings so much at some loads, and harms at none."""
    name = "lapwing, dispatch, hedge"
    if most is not None:
        bench.bound(f"{title}, {name}: {VARIANCE} to {base}", table, name, VARIANCE, most)
    bench.bound(f"{title}, {name}: {COPIES}", table, name, COPIES, COPIED, part="value")
    for column in (VARIANCE, P99):
        cell = table.get(name, {}).get(column)
        low = None if cell is None or math.isnan(cell["low"]) else cell["low"]
        what = f"{title}, {name}: {column} to {base}, the interval's low end"
        bench.verdicts.append(timed(what, "not measured" if low is None else f"{low:.3f}", "at most 1: not worse with confidence", None if low is None else low <= 1))
