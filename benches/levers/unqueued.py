#!/usr/bin/env python3
"""What the queue costs a request that does not wait: Lapwing with `dispatch` off, observe and on, before a server that is never busy.

Three processes of Lapwing on one core; client and server (nginx with a fixed answer) on another. `dispatch.slots` is stated and what
requests take has been learnt before, so that each goes through the queue and leaves it at once: Lapwing's own count says whether that was
so. Latency: one request after the other over one kept connection each; in each round every mode has a block of them, in an order that
turns. A round gives the differences of its blocks' medians and means to those of `off`; shown are the medians over the rounds, with
intervals that hold 95 % (rounds drawn anew). A round in which other processes took more than a share of the machine is left out and
repeated. System calls: counted by strace over many requests, less those of as long a time without any, three times in turn.

usage: python3 benches/levers/unqueued.py [--lapwing PATH] [--rounds N] [--requests N] [--json FILE]
Bounds: +3 us in the median, and no extra system call, on to off. Needs nginx, taskset and strace, two cores, and the right to trace
(root, or kernel.yama.ptrace_scope=0). Times are of the binary: use a release build. Exit code 1 if a count misses its bound, 3 if only a
time does.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import load  # noqa: E402
import proxies  # noqa: E402
from parts import Lapwing, arguments, finish, table, timed  # noqa: E402
from upstreams import SCRIPTED  # noqa: E402

LAPWING_CORE, LOAD_CORE = 0, 1
MODES = ("off", "observe", "on")
MOST_US, MOST_CALLS = 3.0, 0.02
"""A system call is one more if most requests have it: what is left is of timers and threads that were counted unevenly."""
LEARNT = 500
"""Requests before anything is measured: 64 are enough to know what they take."""
TRACED, TRACES = 1000, 3
DRAWS = 1000
SERVER = """
daemon off; worker_processes 1; %(user)s pid nginx.pid; error_log stderr; events { worker_connections 64; }
http {
  access_log off; keepalive_requests 100000000; keepalive_timeout 10m; client_body_temp_path body; default_type application/json;
  server { listen 127.0.0.1:%(port)d; location / { return 200 '{"model_name":"m","outputs":[]}'; } }
}
"""


class Client:
    """One kept connection."""

    def __init__(self, port, message):
        self.message, self.socket = message, socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, times):
        """The nanoseconds of each."""
        clock, out = time.perf_counter_ns, []
        for _ in range(times):
            began = clock()
            self.socket.sendall(self.message)
            answer = self.socket.recv(65536)
            out.append(clock() - began)
            if not answer.startswith(b"HTTP/1.1 200") or not answer.endswith(b"]}"):
                raise SystemExit(f"not an answer in one piece: {answer!r}")
        return out


def interval(values):
    rng = random.Random(1)
    drawn = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(DRAWS))
    return drawn[int(0.025 * DRAWS)], drawn[int(0.975 * DRAWS)]


def latencies(options, clients):
    """By mode, the (median, mean) in us of each round; refuses to answer if the machine is never calm."""
    rounds, end, left_out = [], time.monotonic() + options.patience, 0
    while len(rounds) < options.rounds:
        if time.monotonic() > end:
            raise SystemExit(f"others took more than {options.others:.0%} of the machine in {left_out} rounds; {len(rounds)} of {options.rounds} were calm: no figures")
        turn = (len(rounds) + left_out) % len(MODES)
        with load.Others() as others:
            took = {mode: clients[mode].ask(options.requests) for mode in MODES[turn:] + MODES[:turn]}
        if others.share > options.others:
            left_out += 1
            continue
        rounds.append({mode: (statistics.median(of) / 1e3, statistics.fmean(of) / 1e3) for mode, of in took.items()})
    return rounds, left_out


def calls_of(pid, during):
    """The system calls of a process, by name, while this goes on."""
    with tempfile.NamedTemporaryFile("r") as said:
        strace = subprocess.Popen(["strace", "-c", "-f", "-p", str(pid), "-o", said.name], stderr=subprocess.PIPE, text=True)
        # it says so when it has attached
        first = strace.stderr.readline()
        if "attached" not in first:
            strace.wait()
            raise SystemExit(f"strace cannot trace: {first.strip()}")
        during()
        strace.send_signal(signal.SIGINT)
        strace.communicate()
        rows = [line.split() for line in said.read().splitlines()]
    # % time, seconds, usecs/call, calls, errors if there were any, name
    return {row[-1]: int(row[3]) for row in rows if len(row) in (5, 6) and row[3].isdigit() and row[-1] != "total"}


def system_calls(clients, lapwings):
    """By mode, system calls of a request by name: medians of some traces."""
    out = {mode: [] for mode in MODES}
    for _ in range(TRACES):
        for mode in MODES:
            began = time.monotonic()
            busy = calls_of(lapwings[mode].pid, lambda: clients[mode].ask(TRACED))
            took = time.monotonic() - began
            idle = calls_of(lapwings[mode].pid, lambda: time.sleep(took))
            out[mode].append({name: (busy.get(name, 0) - idle.get(name, 0)) / TRACED for name in {*busy, *idle}})
    names = {name for traces in out.values() for one in traces for name in one}
    return {mode: {name: statistics.median(one.get(name, 0.0) for one in traces) for name in names} for mode, traces in out.items()}


def became(lapwing):
    """What became of requests that asked to be sent; {} where dispatch is off."""
    with urllib.request.urlopen(f"http://127.0.0.1:{lapwing.admin}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return {line.split('"')[1]: int(line.split()[-1]) for line in lines if line.startswith("lapwing_dispatch_requests_total{")}


def run(options):
    body = json.dumps({"inputs": [SCRIPTED.tensor(1)]}).encode()
    message = load.message(SCRIPTED.path, body)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(proxies.nginx_by(SERVER, {}, LOAD_CORE))
        lapwings = {}
        for mode in MODES:
            config = proxies.LAPWING + f"dispatch: {{mode: {mode}, slots: {options.slots}}}\n"
            lapwings[mode] = stack.enter_context(Lapwing(options.lapwing, server.port, core=LAPWING_CORE, config=config))
        os.sched_setaffinity(0, {LOAD_CORE})
        clients = {mode: Client(one.port, message) for mode, one in lapwings.items()}
        for client in clients.values():
            client.ask(LEARNT)
        time.sleep(2.5)  # what was learnt is in force each second
        before = became(lapwings["on"])
        rounds, left_out = latencies(options, clients)
        after, asked = became(lapwings["on"]), (len(rounds) + left_out) * options.requests
        calls = system_calls(clients, lapwings)
    through = after["sent"] - before["sent"]
    verdicts = show(rounds, calls)
    print(f"{len(rounds)} rounds of {options.requests} requests, {left_out} left out, in which others took more than {options.others:.0%} of the machine")
    verdicts.append(("measured requests that went through the queue without a wait", f"{through} of {asked}", "all", through == asked))
    return finish(options, {"rounds": rounds, "system_calls": calls}, verdicts)


def show(rounds, calls):
    """Prints the tables; the verdicts."""
    rows, more_of = [], {}
    for mode in MODES:
        row = [mode, *(f"{statistics.median(one[mode][at] for one in rounds):.1f}" for at in (0, 1))]
        for at in (0, 1):
            more = [one[mode][at] - one["off"][at] for one in rounds]
            low, high = interval(more)
            more_of[mode, at] = statistics.median(more), f"{statistics.median(more):+.2f} ({low:+.2f} to {high:+.2f})"
            row.append("" if mode == "off" else more_of[mode, at][1])
        rows.append([*row, f"{sum(calls[mode].values()):.2f}"])
    table(["dispatch", "median, us", "mean, us", "median to off", "mean to off", "system calls"], rows)
    names = sorted(name for name in calls["off"] if any(abs(calls[mode][name]) >= MOST_CALLS for mode in MODES))
    table(["system calls of a request", *MODES], [[name, *(f"{calls[mode][name]:.2f}" for mode in MODES)] for name in names])
    took, said = more_of["on", 0]
    more = sum(calls["on"].values()) - sum(calls["off"].values())
    return [
        timed("us that a request takes more, on to off, in the median", said, f"at most {MOST_US}", took <= MOST_US),
        ("system calls of a request more, on to off", f"{more:.3f}", f"at most {MOST_CALLS}", more <= MOST_CALLS),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--rounds", type=int, default=200, help="calm rounds (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=200, help="of each mode in a round (default: %(default)s)")
    parser.add_argument("--others", type=float, default=0.1, help="the share of the machine that others may take in a round (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=600, help="seconds in which as many rounds must be calm (default: %(default)s)")
    parser.add_argument("--slots", default="1", help="dispatch.slots (default: %(default)s)")
    options = parser.parse_args()
    if (os.cpu_count() or 1) < 2:
        parser.error("needs two cores: Lapwing has one for itself")
    for program in ("strace", "taskset"):
        if not shutil.which(program):
            parser.error(f"{program} is missing: install it (apt-get install strace util-linux)")
    knows, said = proxies.knows(options.lapwing, f"dispatch: {{mode: on, slots: {options.slots}}}")
    if not knows:
        parser.error(f"{options.lapwing} does not take dispatch: {said}")
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
