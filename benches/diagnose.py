#!/usr/bin/env python3
"""Is the diagnosis right? Every scenario of `lapwing demo`, with several seeds, at two loads, against what counts as right.

Each run is `lapwing demo --scenario NAME --seed N --load LEVEL`. Near its end /diagnosis is asked, and its first verdict is right, wrong, or
there is not enough evidence; on `healthy` any verdict is a false alarm. A trouble that is called healthy counts as wrong. The demo then writes
what it did to each request: where a tail stands out, the share of each stage in what the tail takes beyond the body of the distribution is held
against /diagnosis (docs/SCENARIOS.md).

usage: python3 benches/diagnose.py [--lapwing PATH] [--scenarios NAME,…] [--seeds N] [--first-seed N] [--loads low,high] [--seconds S]
                                 [--at-once N] [--json FILE]
The requirement: per load, 62 of 65 right, none wrong, no false alarm, shares within 5 percentage points. Exit code 1 if one is
wrong or a false alarm, 3 if only the rest is missed.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from parts import arguments, finish, free_port, quantile, table, timed

SCENARIOS = (
    "cold-cache slow-store pauses bursts saturated long-inputs slow-client far-region cold-start oversized-bodies "
    "heavy-postprocessing split-writes healthy"
).split()
RIGHT, MISSING, WRONG, ALARM = "right", "not enough evidence", "wrong", "false alarm"
BEFORE_END = 2.0
"""Seconds before the end at which the diagnosis is asked for; the demo ends its load then."""
STANDS_OUT = 2.0
"""A tail is compared if its mean is at least this many times that of the body."""
WITHIN = 0.05
SHARE_RIGHT = 62 / 65


def ask(port, path):
    """(status, JSON or None) of the admin address; status 0 if nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"accept": "application/json"})
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if response.status == 200 else None
    except OSError:
        return 0, None
    finally:
        connection.close()


def busiest(found):
    """The series with the most requests."""
    return max(found["routes"], key=lambda route: route["requests"], default=None) if found else None


def judge(route, right):
    """The word for a diagnosis, given the bound and cause that count as right (None: nothing is wrong)."""
    if route is None:
        return MISSING
    first = next(iter(route["verdicts"]), None)
    if route["status"] == "not_enough_evidence":
        return MISSING
    if right is None:
        return RIGHT if route["status"] == "healthy" else ALARM
    if first is None:
        return MISSING if route["status"] != "healthy" else WRONG
    is_right = first["cause"] == right["cause"] and right["bound"] in (None, first["bound"])
    return RIGHT if is_right else WRONG


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def shares(records, limit_ns):
    """What each stage explains of that by which the requests over the budget exceed the middle fifth; None if they do not stand out."""
    if len(records) < 100:
        return None
    totals = [record["total_ns"] for record in records]
    low, high = quantile(totals, 0.4), quantile(totals, 0.6)
    tail = [record for record in records if record["total_ns"] > limit_ns]
    body = [record for record in records if low <= record["total_ns"] <= high]
    of_all = [mean(record["total_ns"] for record in some) for some in (tail, body)]
    if of_all[0] < STANDS_OUT * of_all[1]:
        return None
    stages = {stage for record in tail + body for stage in record["injected_ns"]}
    by = lambda stage, some: mean(record["injected_ns"].get(stage, 0) for record in some)
    return {stage: (by(stage, tail) - by(stage, body)) / (of_all[0] - of_all[1]) for stage in sorted(stages)}


def play_demo(options, arguments, truth):
    """One run of the demo with `arguments`: the status and body of /diagnosis near its end, then the head and the records of its truth."""
    admin = free_port()
    command = [options.lapwing, "demo", *arguments, "--seconds", options.seconds, "--admin", f"127.0.0.1:{admin}", "--truth", truth]
    command = [str(part) for part in command]
    env = {name: value for name, value in os.environ.items() if not name.startswith("LAPWING_")}
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    try:
        deadline = time.monotonic() + 60
        while ask(admin, "/stats")[0] == 0 and time.monotonic() < deadline and demo.poll() is None:
            time.sleep(0.1)
        time.sleep(max(options.seconds - BEFORE_END, 1))
        status, found = ask(admin, "/diagnosis?format=json")
        out, _ = demo.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            demo.send_signal(signal.SIGKILL)
        demo.wait()
    if demo.returncode != 0 or not truth.exists():
        raise SystemExit(f"{' '.join(command)} ended with {demo.returncode}:\n{out[-3000:]}")
    with open(truth) as lines:
        head, *records = map(json.loads, lines)
    truth.unlink()
    return status, found, head, records


def play(options, scenario, seed, load, folder):
    """One run: the verdict, and what stands beside it."""
    truth = folder / f"{scenario}-{seed}-{load}.jsonl"
    status, found, head, records = play_demo(options, ["--scenario", scenario, "--seed", seed, "--load", load], truth)
    if status != 200:
        raise SystemExit(f"/diagnosis: status {status}")
    route = busiest(found)
    first = next(iter(route["verdicts"]), None) if route else None
    said = {one["stage"]: one["share_of_excess"] for one in route["tail"]} if route else {}
    true = shares(records, head["budget"]["limit_ms"] * 1e6)
    off = max((abs(said.get(stage, 0.0) - share) for stage, share in true.items()), default=0.0) if true and said else None
    return {
        "scenario": scenario,
        "seed": seed,
        "load": load,
        "requests": len(records),
        "judged": judge(route, head["right"]),
        "first": f"{first['bound']}, {first['cause']}" if first else (route or {}).get("status", "no series"),
        "confidence": first and first["confidence"],
        "p99_ns": route and route["p99_ns"],
        "true_shares": true,
        "said_shares": said,
        "off": off,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="which ones (default: all)")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds of each (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--loads", default="low,high", help="which loads (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=40, help="how long each run is (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=2, help="runs at the same time (default: %(default)s)")
    options = parser.parse_args()
    names, loads = options.scenarios.split(","), options.loads.split(",")
    if unknown := set(names) - set(SCENARIOS):
        parser.error(f"unknown scenarios: {', '.join(sorted(unknown))}")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    asked = [(name, seed, load) for load in loads for name in names for seed in seeds]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        runs = list(pool.map(lambda run: play(options, *run, pathlib.Path(folder)), asked))
    return report(options, names, loads, runs)


def report(options, names, loads, runs):
    """Prints the table and the sums; the exit code."""
    rows = []
    for name in names:
        for load in loads:
            of = [run for run in runs if (run["scenario"], run["load"]) == (name, load)]
            words = collections.Counter(run["judged"] for run in of)
            offs = [run["off"] for run in of if run["off"] is not None]
            other = collections.Counter(run["first"] for run in of if run["judged"] != RIGHT)
            off = f"{100 * max(offs):.1f}" if offs else "-"
            rows.append([name, load, *(words[word] for word in (RIGHT, MISSING, WRONG, ALARM)), off, "; ".join(other) or "-"])
    table(["scenario", "load", RIGHT, MISSING, WRONG, ALARM, "off, points", "said instead"], rows)
    verdicts = []
    for load in loads:
        of = [run for run in runs if run["load"] == load]
        words = collections.Counter(run["judged"] for run in of)
        verdicts.append(timed(f"{load}: right", f"{words[RIGHT]} of {len(of)}", f">= {SHARE_RIGHT:.3f}", words[RIGHT] >= SHARE_RIGHT * len(of)))
        verdicts.append((f"{load}: wrong first verdicts", words[WRONG], 0, words[WRONG] == 0))
        verdicts.append((f"{load}: false alarms", words[ALARM], 0, words[ALARM] == 0))
    offs = [run["off"] for run in runs if run["off"] is not None]
    if offs:
        verdicts.append(timed("shares of the tail, most off", f"{100 * max(offs):.1f} points", f"{100 * WITHIN:.0f}", max(offs) <= WITHIN))
    return finish(options, {"runs": runs}, verdicts)


if __name__ == "__main__":
    raise SystemExit(main())
