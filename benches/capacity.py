#!/usr/bin/env python3
"""Is the capacity right? The rate at which p99 crosses its budget, as /diagnosis estimates it, against the rate found by load.

The server is that of `lapwing demo --scenario healthy` with a model that takes one request after the other. It is watched at less than its
capacity, and /diagnosis asked for `capacity.rate_at_budget`. Then rates around that are sent, each by several seeds, and p99 is taken of what
the clients saw; where it crosses the budget, on straight lines between the rates, is the measured rate. Of each rate the median of the runs'
p99 counts: a machine that stands still for a second lengthens that of one run.

usage: python3 benches/capacity.py [--lapwing PATH] [--model-ms N] [--budget-ms N] [--rate R] [--seconds S] [--seeds N] [--at-once N] [--json FILE]
The requirement: estimate and measurement within 15 % of each other, and the measured rate within the estimate's interval for most seeds.
Exit code 3, as a clock decides, if an estimate is further off.
"""

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import tempfile

from diagnose import ask, busiest, play_demo
from parts import arguments, finish, quantile, table, timed

WITHIN = 0.15
AROUND = (0.8, 0.9, 0.97, 1.03, 1.1, 1.2)
"""The rates that are tried, as multiples of the estimate."""


def play(options, rate, seed, folder):
    """One run: what /diagnosis says of the capacity near its end, and what the clients saw, in nanoseconds."""
    arguments = ["--scenario", "healthy", "--instances", 1, "--model-ms", options.model_ms, "--budget-ms", options.budget_ms]
    arguments += ["--rate", f"{rate:.2f}", "--seed", seed]
    status, found, _, records = play_demo(options, arguments, folder / f"{rate:.2f}-{seed}.jsonl")
    route = busiest(found)
    if status != 200 or route is None:
        raise SystemExit(f"/diagnosis: status {status}, {found}")
    return route["capacity"], [record["total_ns"] for record in records]


def crossing(by_rate, budget_ns):
    """Where p99 crosses the budget, on a straight line between neighbouring rates; None if it does not."""
    points = [(rate, statistics.median(of_runs)) for rate, of_runs in sorted(by_rate.items())]
    for (low, below), (high, above) in zip(points, points[1:]):
        if below <= budget_ns < above:
            return low + (high - low) * (budget_ns - below) / (above - below)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--model-ms", type=int, default=15, help="what the model takes for a request without rows (default: %(default)s)")
    parser.add_argument("--budget-ms", type=int, default=100, help="the budget of p99 (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=34.0, help="requests per second while the server is watched (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=90, help="how long each run is (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=4, help="how many seeds of each (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=4, help="runs at the same time (default: %(default)s)")
    options = parser.parse_args()
    seeds = range(1, options.seeds + 1)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        folder = pathlib.Path(folder)
        watched = list(pool.map(lambda seed: play(options, options.rate, seed, folder)[0], seeds))
        refused = [one["refused"]["reason"] if one else "no fit" for one in watched if not (one and one["rate_at_budget"])]
        estimates = [one["rate_at_budget"] for one in watched if one and one["rate_at_budget"]]
        if not estimates:
            raise SystemExit(f"no capacity was estimated: {refused}")
        middle = quantile([estimate["value"] for estimate in estimates], 0.5)
        tries = [(middle * factor, seed) for factor in AROUND for seed in range(101, 101 + options.seeds)]
        by_rate = {}
        for (rate, _), (_, totals) in zip(tries, pool.map(lambda one: play(options, *one, folder), tries)):
            by_rate.setdefault(rate, []).append(quantile(totals, 0.99))
    measured = crossing(by_rate, options.budget_ms * 1e6)
    if measured is None:
        raise SystemExit(f"p99 does not cross the budget between {min(by_rate):.1f} and {max(by_rate):.1f} requests/s")
    ms = lambda ns: f"{ns / 1e6:.1f}"
    table(["requests/s", "p99, ms", "of each run"], [[f"{rate:.1f}", ms(statistics.median(of)), ", ".join(map(ms, sorted(of)))] for rate, of in sorted(by_rate.items())])
    rows = [[seed, f"{of['value']:.1f}", f"{of['low']:.1f} to {of['high']:.1f}", f"{100 * (of['value'] / measured - 1):+.1f}"] for seed, of in zip(seeds, estimates)]
    table(["seed", "estimated, requests/s", "interval", "off, %"], rows)
    off = max(abs(of["value"] / measured - 1) for of in estimates)
    covered = sum(of["low"] <= measured <= of["high"] for of in estimates)
    verdicts = [
        timed("measured rate at the budget, requests/s", f"{measured:.1f}", "-", True),
        timed("estimates refused", f"{len(refused)} of {len(watched)}", 0, not refused),
        timed("estimate, most off", f"{100 * off:.1f} %", f"{100 * WITHIN:.0f} %", off <= WITHIN),
        timed("intervals that hold the measured rate", f"{covered} of {len(estimates)}", "most", 2 * covered > len(estimates)),
    ]
    figures = {"watched": watched, "p99_ns": {f"{rate:.2f}": of for rate, of in by_rate.items()}, "measured_rate": measured}
    return finish(options, figures, verdicts)


if __name__ == "__main__":
    raise SystemExit(main())
