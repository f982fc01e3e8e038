#!/usr/bin/env python3
"""A fraud model from end to end, in one run: FastAPI, features from Redis by redis-py, LightGBM (fraud_server.py), Lapwing in front of it
and, as the outbound listener, between it and its Redis. Nothing in the server knows of Lapwing but the port of its Redis.

Users come by Zipf's law at random times. Lapwing is one process all the time, and its configuration is reloaded for each phase:
before (no cache), observe, trial (switchback, if the binary has one for this lever), on at first (the requests of observe again, so that its
prediction can be checked), on, and at last `changed`: on, but the features of all users have changed in Redis, which a share of hits, asked
again, must find out.

Shown of each phase: latency by the client's clock, the share answered from the cache, hydration as Lapwing observed it beside the
server's own clock, and the reads that reached Redis. With --picture the live page after `on`, by Debian's chromium.

usage: .venv-fraud/bin/python benches/levers/fraud.py [--lapwing PATH] [--seconds S] [--picture FILE] [--json FILE]
Needs redis-server, and tests/requirements-fraud.txt in the Python that runs the server: this one, or --python PATH.
Exit code 1 if a count misses its bound, 3 if only a time does.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import figures  # noqa: E402
import load  # noqa: E402
import proxies  # noqa: E402
from cache_redis import Resp, Store  # noqa: E402
from cache_zipf import predicted  # noqa: E402
from caches import cpu_ns, is_hit  # noqa: E402
from parts import Child, Lapwing, arguments, finish, free_port, quantile, timed  # noqa: E402
from upstreams import HERE  # noqa: E402

PATH = "/v2/models/fraud/infer"
EXPONENT = 1.0
POINTS, MAX_MIB = 2.0, 64
TRIAL = "trial: {lever: cache, block: 5s, drop: 1s}\n"
CONFIG = """
config: {watch: 1s}
attribution: {poll: off, expect_spans: never}
metrics: {recent_exchanges: 65536}
downstreams: [{name: features, listen: "127.0.0.1:%(store)d", to: "redis://127.0.0.1:%(redis)d", kind: redis}]
"""


class Fraud:
    """What runs, and what each phase found."""

    def __init__(self, options, stack):
        self.options, self.verdicts, self.rows, self.found = options, [], [], {}
        self.store = stack.enter_context(Store())
        model = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / "fraud.txt"
        server = [options.python, HERE / "fraud_server.py"]
        subprocess.run([*server, "--make", str(options.users), str(self.store.port), model], check=True)
        port, through = free_port(), free_port()
        self.config = CONFIG % {"store": through, "redis": self.store.port}
        self.lapwing = stack.enter_context(Lapwing(options.lapwing, port, config=self.config))
        self.server = stack.enter_context(Child([*server, port, through, model], port))
        self.messages = {user: self.message(user) for user in range(options.users)}
        self.cumulated = list(itertools.accumulate(1 / rank**EXPONENT for rank in range(1, options.users + 1)))

    @staticmethod
    def message(user):
        tensor = {"name": "user", "shape": [1], "datatype": "INT64", "data": [user]}
        return load.message(PATH, json.dumps({"inputs": [tensor]}).encode())

    def configure(self, more):
        """Puts these sections in force."""
        path = pathlib.Path(self.lapwing.config.name)
        before = self.generation()
        new = path.with_suffix(".new")
        new.write_text(self.config + more)
        os.replace(new, path)
        os.kill(self.lapwing.pid, signal.SIGHUP)
        end = time.monotonic() + 10
        while self.generation() == before:
            if time.monotonic() > end:
                raise SystemExit(f"not in force after 10 s: {more}; /config says {json.dumps(self.lapwing.get('/config'))[:2000]}")
            time.sleep(0.1)

    def generation(self):
        return self.lapwing.get("/config")["generation"]

    def reads(self):
        return self.lapwing.get("/downstreams?format=json")[0]["by_name"].get("HMGET", {"calls": 0})["calls"]

    def phase(self, name, seed=1, seconds=None):
        """Sends a load, and adds what it found to the table."""
        rng, seconds = random.Random(seed), seconds or self.options.seconds
        n = round(seconds * self.options.rate)
        dues = sorted(rng.uniform(0, seconds) for _ in range(n))
        users = rng.choices(range(self.options.users), cum_weights=self.cumulated, k=n)
        reads, cpu = self.reads(), cpu_ns(self.server.pid)
        with load.Others() as others:
            answers = load.open_loop(self.lapwing.port, [load.Planned(due, user, True) for due, user in zip(dues, users)], self.messages)
        cpu, reads = (cpu_ns(self.server.pid) - cpu) / 1e6 / n, self.reads() - reads
        end, counted = time.monotonic() + 10, []
        while len(counted) < n and time.monotonic() < end:
            counted = [one for one in self.lapwing.exchanges(n) if one["model"] == "fraud"]
        hits = [is_hit(one.head) for one in answers]
        took = [one.took_ms for one in answers]
        own = [float(re.search(rb"x-own-hydration-ms: ([\d.]+)", one.head)[1]) for one, hit in zip(answers, hits) if one.status == 200 and not hit]
        observed = [stage["ns"] / 1e6 for one in counted for stage in one["stages"] if stage["stage"] == "hydration"]
        median = lambda values: f"{statistics.median(values):.3f}" if values else "none"  # noqa: E731
        failed = sum(one.status != 200 for one in answers)
        row = [name, n, f"{quantile(took, 0.5):.2f}", f"{quantile(took, 0.99):.2f}", f"{sum(hits) / n:.1%}", median(observed), median(own), reads, f"{cpu:.2f}", f"{others.share:.0%}"]
        self.rows.append(row)
        print(" ".join(map(str, row)), file=sys.stderr, flush=True)
        self.verdicts.append((f"{name}: not answered", failed, 0, failed == 0))
        self.found[name] = {"hits": sum(hits) / n, "p50": quantile(took, 0.5), "p99": quantile(took, 0.99), "answers": [one.body for one in answers], "users": users, "hit": hits}
        return self.found[name]


def picture(lapwing, file):
    """The live page, as docs/STATS.md shows it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--no-proxy-server"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme="light")
        page.goto(f"http://127.0.0.1:{lapwing.admin}/")
        time.sleep(4)
        page.screenshot(path=file, full_page=True)
        browser.close()


def same(fraud, *names):
    """How many answers to a user differ from the first one of these phases."""
    first, wrong = {}, 0
    for name in names:
        found = fraud.found.get(name, {"users": [], "answers": []})
        for user, answer in zip(found["users"], found["answers"]):
            wrong += first.setdefault(user, answer) != answer
    return wrong


def change(fraud):
    """Other features for all users."""
    client = Resp(fraud.store.port)
    for user in range(fraud.options.users):
        client.ask(b"HSET", f"fraud:user:{user}".encode(), b"chargebacks", b"3", b"new_payees_7d", b"9")
    client.close()


def run(options, fraud):
    cache = lambda mode: f"cache: {{mode: {mode}, ttl: {options.ttl_s}s, max_bytes: {MAX_MIB}MiB, verify: {options.verify}}}\n"  # noqa: E731
    fraud.phase("before")
    fraud.configure(cache("observe"))
    fraud.phase("observe")
    said = fraud.lapwing.get("/cache")
    has_trial, why = proxies.knows(options.lapwing, TRIAL)
    if has_trial:
        fraud.configure(cache("observe") + TRIAL)
        fraud.phase("trial", 3, options.seconds * 2)
        trial = fraud.lapwing.get("/trials")
        time.sleep(options.ttl_s + 1)  # what it stored is no longer good
    else:
        trial = None
        print(f"No phase of a trial: {why.splitlines()[0] if why else ''}", flush=True)
    fraud.configure(cache("on"))
    first = fraud.phase("on, at first")
    fraud.phase("on", 2)
    if options.picture:
        picture(fraud.lapwing, options.picture)
    wrong = same(fraud, "before", "observe", "trial", "on, at first", "on")
    fraud.verdicts.append(("answers that were another's, or not what the model says", wrong, 0, wrong == 0))
    change(fraud)
    changed = fraud.phase("changed", 4)
    header = ["phase", "requests", "p50, ms", "p99, ms", "from the cache", "hydration p50, ms", "by the server's clock", "reads of Redis", "server's processor, ms", "others"]
    figures.markdown(f"Fraud: Zipf({EXPONENT}) of {options.users} users, {options.rate:.0f} a second, {options.seconds:.0f} s a phase", header, fraud.rows)
    old = {user: answer for name in ("before", "observe", "on") for user, answer in zip(fraud.found[name]["users"], fraud.found[name]["answers"])}
    stale = [at for at, (user, answer) in enumerate(zip(changed["users"], changed["answers"])) if changed["hit"][at] and old.get(user) == answer]
    last = f"; the last was number {stale[-1] + 1}" if stale else ""
    print(f"After the features changed, {len(stale)} answers were stale{last}, of {len(changed['users'])}.\n/cache after observe: {json.dumps(said)[:1500]}")
    print(f"/trials: {json.dumps(trial)[:1500]}\n/cache at the end: {json.dumps(fraud.lapwing.get('/cache'))[:1500]}\n")
    told, _ = predicted(said, options.ttl_s, MAX_MIB)
    points = 100 * (told - first["hits"])
    fraud.verdicts.append(timed("points of hit rate, predicted in observe to true in on at first", f"{points:+.2f} of {first['hits']:.1%}", f"within {POINTS}", abs(points) <= POINTS))
    before, on = fraud.found["before"], fraud.found["on"]
    fraud.verdicts.append(("on: share answered from the cache", f"{on['hits']:.1%}", "above 0", on["hits"] > 0))
    fraud.verdicts.append(timed("on: p50 to before", f"{on['p50'] / before['p50']:.2f}", "below 1", on["p50"] < before["p50"]))
    return {"rows": fraud.rows, "observe": said, "trial": trial}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--python", default=sys.executable, help="runs the server (default: this one)")
    parser.add_argument("--users", type=int, default=5000, help="(default: %(default)s)")
    parser.add_argument("--rate", type=float, default=60, help="requests a second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="of a phase (default: %(default)s)")
    parser.add_argument("--ttl-s", type=int, default=60, help="cache.ttl, one that /cache tells of (default: %(default)s)")
    parser.add_argument("--verify", default="1%", help="cache.verify (default: %(default)s)")
    parser.add_argument("--picture", metavar="FILE", help="write a picture of the live page there")
    options = parser.parse_args()
    understood, said = proxies.knows(options.lapwing, "cache: {mode: observe}")
    if not understood:
        parser.error(f"{options.lapwing} does not take cache: {said}")
    with contextlib.ExitStack() as stack:
        fraud = Fraud(options, stack)
        found = run(options, fraud)
    return finish(options, found, fraud.verdicts)


if __name__ == "__main__":
    sys.exit(main())
