"""What the cases of real.py share: systems that meet the same requests in turn on a calm machine, what a server's work takes, verdicts."""

import contextlib
import json
import math
import random
import statistics
import sys
import time
from typing import NamedTuple

import figures
import load
import proxies
from parts import quantile, timed

LATE_MS = 2.0
"""Above this the load itself is late, and latencies say less about the servers."""



class System:
    """What a load is sent to; `messages` if others are sent to it than to the others."""

    def __init__(self, port, learns=False, lapwing=None, messages=None):
        self.port, self.learns, self.lapwing, self.messages = port, learns, lapwing, messages


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
            out[name] = System(child.port, learns, child if "lapwing" in name else None)
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
        run = run or (lambda system, planned, seed: load.open_loop(system.port, planned, system.messages or messages))
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
