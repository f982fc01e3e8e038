"""Figures of answers, their ratios to a base under the same plans, and tables of them in Markdown.

Intervals hold 95 %: blocks of 5 s are drawn anew, the same ones of a system and of its base, since both had the same requests then.
"""

import math
import random
import statistics
from typing import Callable, NamedTuple

from parts import quantile

BLOCK_S = 5.0
DRAWS = 200


class Column(NamedTuple):
    title: str
    of: Callable
    """(answers, the seconds in which they were due) -> the figure."""
    is_ratio: bool = True
    """Shown as a ratio to the base, except the base's own."""
    form: str = "{:.3g}"


def took(keep=lambda _: True):
    return lambda answers: [one.took_ms for one in answers if one.status == 200 and keep(one.units)]


def mean_ms(answers, _):
    times = took()(answers)
    return statistics.fmean(times) if times else math.nan


def p99_ms(keep=lambda _: True):
    def of(answers, _):
        times = took(keep)(answers)
        return quantile(times, 0.99) if times else math.nan

    return of


def units_a_second(answers, seconds):
    return sum(one.units for one in answers if one.status == 200) / seconds


def failed(answers, _):
    return sum(one.status != 200 for one in answers)


class Sizes:
    """The smallest half and the largest twentieth of all planned requests."""

    def __init__(self, plans):
        units = [one.units for planned in plans.values() for one in planned if one.is_measured]
        half, twentieth = quantile(units, 0.5), quantile(units, 0.95)
        self.small = lambda units: units <= half
        self.large = lambda units: units >= twentieth
        self.said = f"small: up to {half} rows, large: {twentieth} and more, of {len(units)} requests"


class Runs:
    """Answers of a system by (seed, block)."""

    def __init__(self, by_seed, plans):
        self.blocks, self.lateness = {}, []
        for seed, answers in by_seed.items():
            for planned, one in zip(plans[seed], answers):
                if planned.is_measured:
                    self.blocks.setdefault((seed, int(one.due / BLOCK_S)), []).append(one)
                    self.lateness.append(one.late_ms)
        self.seconds = sum(seconds_of(planned) for planned in plans.values())

    def of(self, column, keys=None):
        """The figure of all blocks or of these."""
        keys = keys or list(self.blocks)
        seconds = self.seconds * len(keys) / len(self.blocks)
        return column.of([one for key in keys for one in self.blocks[key]], seconds)


def seconds_of(planned):
    """The length of a plan's measured part: its first request is due at the settling's end."""
    measured = [one.due for one in planned if one.is_measured]
    # n requests at random leave a gap of the mean one at each end
    return (measured[-1] - measured[0]) * (len(measured) + 1) / (len(measured) - 1)


def interval(measure, keys, seed=1):
    """The 2.5th and 97.5th percentile of a measure of blocks drawn anew."""
    rng = random.Random(seed)
    values = sorted(v for v in (measure(rng.choices(keys, k=len(keys))) for _ in range(DRAWS)) if not math.isnan(v))
    return (values[int(0.025 * len(values))], values[int(0.975 * len(values))]) if values else (math.nan, math.nan)


def compared(runs, base, columns):
    """By system and column's title: value, and ratio to the base or None, each with its interval."""
    out = {}
    for name, one in runs.items():
        keys = sorted(set(one.blocks) & set(runs[base].blocks))
        row = out[name] = {}
        for column in columns:
            cell = row[column.title] = {"value": one.of(column)}
            if column.is_ratio and name != base:
                below = runs[base].of(column)
                cell["ratio"] = cell["value"] / below if below else math.nan
                ratio = lambda drawn: one.of(column, drawn) / (runs[base].of(column, drawn) or math.nan)
                cell["low"], cell["high"] = interval(ratio, keys)
            elif not column.is_ratio and column.of is not failed:
                cell["low"], cell["high"] = interval(lambda drawn: one.of(column, drawn), keys)
    return out


def shown(cell, column):
    form = column.form.format
    if math.isnan(cell["value"]):
        return "none"
    if "ratio" in cell:
        return f"{cell['ratio']:.2f}× ({cell['low']:.2f} to {cell['high']:.2f})"
    within = f" ({form(cell['low'])} to {form(cell['high'])})" if "low" in cell else ""
    return form(cell["value"]) + within


def markdown(title, header, rows):
    print(f"\n{title}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")
    print(flush=True)


def print_compared(title, table, base, columns):
    rows = [[name + (" (base)" if name == base else ""), *(shown(row[c.title], c) for c in columns)] for name, row in table.items()]
    markdown(title, ["", *(column.title for column in columns)], rows)
