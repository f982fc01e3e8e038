"""Two llama.cpp servers, and prompts that begin alike: who sends a prompt where its beginning is still in memory?

Each server keeps six sequences and nothing beside; there are eight beginnings of 300 tokens, so that neither server keeps all, and both
together do. Beginnings are of the run's own, so that nobody profits from the run before.
"""

import contextlib
import itertools
import json
import math
import random
import statistics
import time
from typing import NamedTuple

import figures
import load
import proxies
from batchers import started
from figures import Column, Runs, p99_ms
from parts import timed
from servers.parts import Llama

PREFIXES, KEPT, WORDS, CHARS = 8, 6, 300, 256
LOAD = 0.25
"""Of both servers, if every second beginning were in memory."""
ROUTES = """
routes:
- {match: {route: /v1/chat/completions}, to: [s0, s1], affinity: {key: json:/messages/0/content, chars: %d, overload: %s}}
"""
OF_BEST = 0.95


class Tokens(NamedTuple):
    """Of a prompt."""

    cached: int
    all: int


class Prompts:
    """What is sent, by the number of its beginning, with an ending of its own each time; `salt` makes the beginnings others."""

    mix = staticmethod(lambda rng: rng.randrange(PREFIXES))

    def __init__(self, salt):
        self.salt, self.rng = salt, random.Random(0)
        self.prefixes = [words(random.Random(f"{salt} {number}"), WORDS) for number in range(PREFIXES)]

    def __getitem__(self, number):
        said = [{"role": "system", "content": self.prefixes[number]}, {"role": "user", "content": words(self.rng, self.rng.randint(4, 12))}]
        body = {"model": "tiny", "messages": said, "max_tokens": 8, "ignore_eos": True}
        return load.message("/v1/chat/completions", json.dumps(body).encode(), [f"x-prefix: {self.salt}-{number}"])


def words(rng, count):
    """Each is one token of the model."""
    return " ".join(rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") for _ in range(count))


def tokens(body):
    """As llama.cpp reports them."""
    usage = json.loads(body)["usage"]
    return Tokens(usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"])


def cached(answers, _):
    of = [one.found for one in answers if one.status == 200]
    return sum(one.cached for one in of) / sum(one.all for one in of) if of else math.nan


COLUMNS = [
    Column("cached, of prompt tokens", cached, False, "{:.1%}"),
    Column("p99, ms", p99_ms()),
    Column("mean, ms", figures.mean_ms),
    Column("failed", figures.failed, False, "{}"),
]
CACHED, P99, *_ = (column.title for column in COLUMNS)


def takes_ms(port):
    """(ms of a prompt whose beginning is in memory, of one that is new), medians of some, one after the other."""
    times, client = ([], []), load.Client(port)

    async def ask(message):
        began = time.perf_counter()
        status, _, body = await client.ask(message)
        if status != 200:
            raise SystemExit(f"llama.cpp answers {status}: {body[:300]!r}")
        return 1e3 * (time.perf_counter() - began)

    async def all_of_them():
        for salt in range(12):
            prompts = Prompts(f"calibration {salt}")
            times[1].append(await ask(prompts[0]))
            times[0].append(await ask(prompts[0]))
        client.close()

    load.precisely(all_of_them())
    return tuple(statistics.median(of) for of in times)


def affinity(bench, folder):
    options, salts = bench.options, itertools.count()
    with contextlib.ExitStack() as stack:
        servers = [Llama(), Llama()]
        try:
            for number, server in enumerate(servers):
                server.flags = ("--parallel", str(KEPT), "--context", "4096", "--cache-mib", "0")
                started(stack, server, folder / str(number))
        except AssertionError as missing:
            print(f"affinity left out: {str(missing)[-500:]}\n", flush=True)
            bench.verdicts.append(timed("affinity", "not measured", f"at least {OF_BEST}", None))
            return
        ports = [server.http for server in servers]
        (hit_ms, miss_ms), _ = bench.calmly(lambda: takes_ms(ports[0]))
        routes, bounded = ROUTES % (CHARS, options.overload), "hdr(x-prefix)\n  hash-type consistent\n  hash-balance-factor 125"
        named = [
            ("lapwing, round_robin", lambda: proxies.lapwing(options, ports, policy="round_robin"), False),
            ("nginx, hash of a header", lambda: proxies.nginx(ports, "hash $http_x_prefix consistent;"), False),
            ("haproxy, hash of a header, bounded", lambda: proxies.haproxy(ports, bounded), False),
            ("sglang, cache_aware", lambda: proxies.SglangRouter(ports), False),
            ("lapwing, affinity", lambda: proxies.lapwing(options, ports, routes=routes), False),
            ("lapwing, affinity, dispatch", lambda: proxies.lapwing(options, ports, routes=routes, dispatch=True), True),
        ]
        systems = bench.systems(stack, named)
        if "lapwing, round_robin" not in systems:
            raise SystemExit("affinity: round robin, the base, is lapwing's: do not leave that out")

        def run(system, planned, _):
            answers = load.open_loop(system.port, planned, Prompts(next(salts)))
            return [one._replace(found=tokens(one.body), body=b"") if one.status == 200 else one for one in answers]

        cost_ms = lambda _: (hit_ms + miss_ms) / 2
        answers, plans, others = bench.interleaved("affinity", systems, Prompts, LOAD, cost_ms, Prompts("warm-up"), len(ports), run)
        runs, base = {name: Runs(of, plans) for name, of in answers.items()}, "lapwing, round_robin"
        said = f"{hit_ms:.1f} ms for a prompt whose beginning is cached, {miss_ms:.1f} for another; {sum(map(len, runs[base].blocks.values()))} requests"
        title = f"Affinity, two of llama.cpp, {PREFIXES} beginnings, {KEPT} kept by each"
        table = bench.report(title, "affinity", runs, base, COLUMNS, others, said, systems)
        bench.answered("affinity", runs)
        judged(bench, table, runs)


def judged(bench, table, runs):
    best = max(table, key=lambda name: table[name][CACHED]["value"])
    for name in ("lapwing, affinity", "lapwing, affinity, dispatch"):
        if name in table:
            share = table[name][CACHED]["value"] / table[best][CACHED]["value"]
            bench.verdicts.append((f"{name}: cached tokens to the best, {best}", f"{share:.3f}", f"at least {OF_BEST}", share >= OF_BEST))
    for peer in (one for one in runs if one.startswith(("sglang", "nginx", "haproxy"))):
        for name in (one for one in runs if one.startswith("lapwing, affinity")):
            cell = figures.compared({peer: runs[peer], name: runs[name]}, peer, COLUMNS)[name][P99]
            what = f"{name}: p99 to {peer}'s, {cell['ratio']:.2f}, the interval's low end"
            bench.verdicts.append(timed(what, f"{cell['low']:.3f}", "at most 1: not worse with confidence", cell["low"] <= 1))
