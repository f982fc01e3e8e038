#!/usr/bin/env python3
"""Live A/B: how often Lapwing calls two servers of a kind different, and how soon it finds a sleep of 3 %.

A run is three minutes of a Lapwing of its own that copies every request of an ONNX Runtime server to a second one, started anew
for the run: of the same kind (A/A), or one that sleeps longer, by 3 % of what a request takes in all. Each second the report is
looked at, as a user would who waits for a verdict: a single look that says `faster` or `slower` of two of a kind is a false verdict.
Several runs go on side by side, and disturb one another as neighbours on a node do. Two processes of one Python program differ by
a few percent by the hash seed and the addresses that they happen to get; so both get the same (util-linux' setarch).

usage: python3 benches/live_ab.py [--lapwing PATH] [--python PATH] [--runs N] [--seconds S] [--rate R] [--share PERCENT] [--parallel N]
       [--json FILE]
Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import pathlib
import random
import subprocess
import tempfile
import time

from parts import ROOT, Child, Lapwing, arguments, finish, free_port, quantile, table, timed

SERVER = ROOT / "tests/real/servers/oip_server.py"
WIDTHS = (30, 64, 2)
FORWARD_MS = 40
WARM_UP, CALIBRATION = 50, 100
FIGURES = ("forward", "total")
SETTINGS = """
shadow:
  targets: {candidate: "http://127.0.0.1:%d"}
  sample: 100%%
  noise: 0%%
attribution: {poll: off}
"""
BUILD = "import sys; sys.path[:0] = [sys.argv[1]]; from engine import fixtures; fixtures.mlp(__import__('pathlib').Path(sys.argv[2]), %r)"


class Client:
    """Calls a server over one connection."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        data = [i * 37 % 101 / 50 - 1 for i in range(WIDTHS[0])]
        tensor = {"name": "x", "shape": [1, WIDTHS[0]], "datatype": "FP32", "data": data}
        self.body = json.dumps({"inputs": [tensor]}).encode()

    def call(self):
        """Nanoseconds until the whole answer was there."""
        began = time.perf_counter_ns()
        self.connection.request("POST", "/v2/models/m/infer", self.body, {"content-type": "application/json"})
        response = self.connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise SystemExit(f"{response.status} {answer[:300]!r}")
        return time.perf_counter_ns() - began


def server(options, model, forward_ms=FORWARD_MS):
    """A model server that waits to be entered."""
    port = free_port()
    alike = ["env", "PYTHONHASHSEED=0", "setarch", "--addr-no-randomize"]
    return Child([*alike, options.python, SERVER, port, model, "--forward-ms", f"{forward_ms:.4f}"], port)


def calibrate(options, model):
    """What a request takes in all at the median, in milliseconds."""
    with server(options, model) as alone:
        client = Client(alone.port)
        [client.call() for _ in range(WARM_UP)]
        return quantile([client.call() for _ in range(CALIBRATION)], 0.5) / 1e6


def verdicts_of(lapwing):
    """The verdict and the interval of the ratio at p50, by figure."""
    (target,) = lapwing.get("/shadow")["targets"]
    figures = target["comparisons"][0]["figures"] if target["comparisons"] else {}
    pairs = target["paired"]
    return {name: figures[name] | {"pairs": pairs} for name in FIGURES if name in figures}


def run(options, model, number, share):
    """One run with a candidate that takes longer by `share` of a request's time; what was seen."""
    request_ms = calibrate(options, model)
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(server(options, model, ms)) for ms in (FORWARD_MS, FORWARD_MS + share * request_ms)]
        for client in [Client(one.port) for one in servers]:
            [client.call() for _ in range(WARM_UP)]
        upstream, candidate = (one.port for one in servers)
        lapwing = stack.enter_context(Lapwing(options.lapwing, upstream, config=SETTINGS % candidate))
        return {"run": number, "share": share, "request_ms": request_ms, **watch(options, lapwing)}


def watch(options, lapwing):
    """Calls at random times with this rate until the time is over, and looks each second."""
    client, began, look = Client(lapwing.port), time.monotonic(), 1
    due = began
    seen = {name: {"verdicts": [], "first": {}} for name in FIGURES}
    for number in itertools.count(1):
        client.call()
        now = time.monotonic() - began
        if now >= look:
            look = int(now) + 1
            for name, figure in verdicts_of(lapwing).items():
                seen[name]["verdicts"].append(figure["verdict"])
                seen[name]["first"].setdefault(figure["verdict"], round(now, 1))
                seen[name]["last"] = {"pairs": figure["pairs"], "verdict": figure["verdict"], **figure["paired_ratio"]["p50"]}
        if now >= options.seconds:
            return {"requests": number, "seen": seen}
        # at a fixed beat, runs side by side would meet at the same place of each request
        due += random.expovariate(options.rate)
        time.sleep(max(0, due - time.monotonic()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"), help="an interpreter with ONNX Runtime and FastAPI")
    parser.add_argument("--runs", type=int, default=20, help="runs of each kind (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=180, help="how long each takes (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=12, help="requests a second (default: %(default)s)")
    parser.add_argument("--share", type=float, default=3, help="the injected delay, %% of a request (default: %(default)s)")
    parser.add_argument("--parallel", type=int, default=8, help="how many runs go on side by side (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "m.onnx"
        subprocess.run([options.python, "-c", BUILD % (WIDTHS,), str(ROOT / "tests/real"), str(model)], check=True)
        kinds = [0, options.share / 100] * options.runs
        with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
            pending = [pool.submit(run, options, model, number, share) for number, share in enumerate(kinds)]
            runs = []
            for done in concurrent.futures.as_completed(pending):
                runs.append(done.result())
                show(runs[-1])
    return report(options, sorted(runs, key=lambda one: one["run"]))


def show(one):
    last = {name: seen.get("last") for name, seen in one["seen"].items()}
    said = "; ".join(f"{name} {of['verdict']} {of['value']:.4f} [{of['low']:.4f}, {of['high']}]" for name, of in last.items() if of)
    print(f"run {one['run']}, {one['share']:.0%} longer: {one['requests']} requests; {said}", flush=True)


def report(options, runs):
    """Prints the table and the bounds. Returns the exit code."""
    same, slowed = [one for one in runs if not one["share"]], [one for one in runs if one["share"]]
    different = {name: [one for one in same if {"faster", "slower"} & set(one["seen"][name]["verdicts"])] for name in FIGURES}
    found = {name: [one for one in slowed if "slower" in one["seen"][name]["first"]] for name in FIGURES}
    wrong = {name: [one for one in slowed if "faster" in one["seen"][name]["first"]] for name in FIGURES}
    rows = []
    for name in FIGURES:
        decided = sorted(one["seen"][name]["first"]["slower"] for one in found[name])
        alike = sorted(one["seen"][name]["first"]["same"] for one in same if "same" in one["seen"][name]["first"])
        spread = [f"{quantile(times, 0.5):.0f} / {quantile(times, 0.9):.0f}" if times else "" for times in (alike, decided)]
        rows.append([name, len(different[name]), len(alike), spread[0], len(found[name]), spread[1]])
    print()
    table(["figure", "A/A different", "A/A same", "s to it, p50 / p90", "delay found", "s to it, p50 / p90"], rows)
    verdicts = []
    for name in FIGURES:
        verdicts += [
            (f"{name}: two of a kind called different", len(different[name]), f"0 of {len(same)}", not different[name]),
            timed(f"{name}: the delay found", len(found[name]), f"{len(slowed)} of {len(slowed)}", len(found[name]) == len(slowed)),
            (f"{name}: the delay called faster", len(wrong[name]), "0", not wrong[name]),
        ]
    return finish(options, {"runs": runs}, verdicts)


if __name__ == "__main__":
    raise SystemExit(main())
