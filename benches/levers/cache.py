#!/usr/bin/env python3
"""What the prediction cache costs and brings, beside nginx's `proxy_cache` where that can do the same: POST, keyed by the body.

Systems take turns in each round of one run; ratios are medians over the rounds, with intervals that hold 95 % (rounds drawn anew). Proxies
run on core 0, upstream and load on core 1. Wherever the upstream is cache_server.py, it counts what it is asked, and answers are checked to
be those to their questions.

Cases:
- hits: wrk asks 16 questions again and again; processor time of the proxy's processes for a hit (16 connections), and latency (one).
  Bounds, at bodies of 1 and 63 KiB (more nginx cannot have as a key): processor time and p50 no more than nginx's; questions that reached the upstream: `verify`'s share.
- misses: no question twice, one connection each to Lapwing with the cache off, observing and on. Bound: +3 us in the median.
- herd: the same question 100 times at once before an upstream of 50 ms. Bounds: one call, all answered within 55 ms. nginx has
  proxy_cache_lock, whose followers look each 500 ms.
- zipf: questions by Zipf(1.0) of 10,000 bodies, of 5 ms and 1 ms a row, once with `observe` and once with `on`, the same ones at the same
  times. Bounds: the predicted hit rate within 2 points, the predicted saving within 10 %. Beside them an LRU cache, computed.
- redis (needs `cache.redis`): a hit in the second level beside a bare round trip to that Redis; then Redis dead, stopped, full, and
  restarting, beside Lapwing without it. Bounds: +60 us; +1 ms at p99.

usage: python3 benches/levers/cache.py [--lapwing PATH] [--cases LIST] [--rounds N] [--seconds S] [--json FILE]
Needs nginx, wrk and taskset, redis-server for the last case, and two cores. Times are of the binary: use a build that is optimised.
Exit code 1 if a count misses its bound, 3 if only a time does.
"""

import argparse
import contextlib
import json
import os
import pathlib
import selectors
import socket
import statistics
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import caches  # noqa: E402
import figures  # noqa: E402
import proxies  # noqa: E402
from caches import PATH, Client, Rounds, Upstream, body, cpu_ns, is_hit, is_own, message, prove, within  # noqa: E402
from overhead import wrk  # noqa: E402
from parts import arguments, finish, timed  # noqa: E402
from unqueued import SERVER  # noqa: E402

QUESTIONS = 16
"""In turn, each a hit."""
BUSY = 16
"""Connections that keep the proxy's core busy."""
MOST_MISS_US = 3.0
HERD, HERD_MS, HERD_WITHIN_MS = 100, 50, 55
ON = {"mode": "on", "ttl": "1h"}
WRK = """
local questions = {}
init = function()
  for line in io.lines("%s") do
    questions[#questions + 1] = wrk.format("POST", "%s", {["Content-Type"] = "application/json"}, line)
  end
end
local at = 0
request = function()
  at = at %% #questions + 1
  return questions[at]
end
"""


class Run:
    """The options, verdicts and figures of all cases."""

    def __init__(self, options):
        self.options, self.verdicts, self.results = options, [], {}

    def table(self, title, header, rows, said=""):
        figures.markdown(title, header, rows)
        if said:
            print(f"{said}\n", flush=True)
        self.results[title] = {"header": header, "rows": rows, "said": said}


def hits(run):
    for size in run.options.sizes:
        hits_of(run, size)


def hits_of(run, size):
    options = run.options
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bodies = [body(number, size) for number in range(QUESTIONS)]
        (folder / "bodies").write_bytes(b"\n".join(bodies) + b"\n")
        script = folder / "hits.lua"
        script.write_text(WRK % (folder / "bodies", PATH))
        upstream = stack.enter_context(Upstream("--answer", options.answer))
        systems = {"nginx": stack.enter_context(caches.nginx(upstream.port))}
        systems["lapwing"] = stack.enter_context(caches.lapwing(options, upstream.port, {**ON, "verify": options.verify}))
        prove(systems["lapwing"], size)
        for system in systems.values():
            # learnt, stored, and checked
            client = Client(system.port)
            for sent in [message(number, size) for number in range(QUESTIONS)] * 3:
                if not is_own(sent, client.ask(sent)[2]):
                    raise SystemExit(f"not the answer to the question: {client.read[:300]!r}")
            client.close()
            wrk(system.port, BUSY, 1, script)

        def turn(name):
            system = systems[name]
            upstream.afresh()
            one = wrk(system.port, 1, options.seconds, script)
            before = cpu_ns(system.pid)
            busy = wrk(system.port, BUSY, options.seconds, script)
            cpu_us = (cpu_ns(system.pid) - before) / 1e3 / busy["n"]
            asked = upstream.counts()["questions"]
            return {"cpu": cpu_us, "p50": one["p50_us"], "p99": one["p99_us"], "per_s": busy["per_s"], "n": one["n"] + busy["n"], "asked": asked, "bad": one["bad"] + busy["bad"]}

        turns = Rounds(options, options.rounds)
        rounds = turns.run(systems, turn)
    rows, ratios = [], {}
    columns = (("cpu", "processor us"), ("p50", "p50, us"), ("p99", "p99, us"), ("per_s", "hits/s"))
    for name in systems:
        row = [name]
        for key, _ in columns:
            row.append(within([one[name][key] for one in rounds], "{:.1f}" if key != "per_s" else "{:.0f}"))
        sums = {key: sum(one[name][key] for one in rounds) for key in ("n", "asked", "bad")}
        rows.append([*row, f"{sums['asked'] / sums['n']:.2%}"])
        run.verdicts.append((f"hits, {size} bytes, {name}: failed", sums["bad"], 0, sums["bad"] == 0))
        most = 0.0 if name == "nginx" else options.share
        run.verdicts.append((f"hits, {size} bytes, {name}: share that reached the upstream", rows[-1][-1], f"{most:.2%}", sums["asked"] <= sums["n"] * most * 1.2 + 20))
    row = ["lapwing to nginx"]
    for key, _ in columns:
        ratios[key] = [one["lapwing"][key] / one["nginx"][key] for one in rounds]
        row.append(within(ratios[key]) + "×")
    rows.append([*row, ""])
    run.table(f"Hits, bodies of {size} bytes, answers of {options.answer}", ["", *(title for _, title in columns), "asked upstream"], rows, turns.said())
    for key, title in columns[:2]:
        run.verdicts.append(timed(f"hits, {size} bytes: {title.split(',')[0]} to nginx", within(ratios[key]), "at most 1", statistics.median(ratios[key]) <= 1))


def misses(run):
    options = run.options
    modes = ("off", "observe", "on")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(proxies.nginx_by(SERVER, {}, caches.LOAD_CORE))
        lapwings = {mode: stack.enter_context(caches.lapwing(options, server.port, {**ON, "mode": mode})) for mode in modes}
        prove(lapwings["on"])
        clients, number = {mode: Client(one.port) for mode, one in lapwings.items()}, 0
        found = 0

        def turn(mode):
            nonlocal number, found
            took = []
            for _ in range(options.requests):
                number += 1
                ns, head, _ = clients[mode].ask(message(number, options.miss_size))
                took.append(ns)
                found += is_hit(head)
            return statistics.median(took) / 1e3, statistics.fmean(took) / 1e3

        for mode in modes * 3:
            turn(mode)  # what only first requests cost
        turns = Rounds(options, options.rounds * 10)
        rounds = turns.run(modes, turn)
    rows = []
    for mode in modes:
        more = [[one[mode][at] - one["off"][at] for one in rounds] for at in (0, 1)]
        rows.append([mode, *(f"{statistics.median(one[mode][at] for one in rounds):.1f}" for at in (0, 1)), *("" if mode == "off" else within(of, "{:+.2f}") for of in more)])
        if mode != "off":
            took = statistics.median(more[0])
            run.verdicts.append(timed(f"misses: us more in the median, {mode} to off", within(more[0], "{:+.2f}"), f"at most {MOST_MISS_US}", took <= MOST_MISS_US))
    run.table(f"Misses, bodies of {options.miss_size} bytes, one connection", ["cache", "median, us", "mean, us", "median to off", "mean to off"], rows, turns.said())
    run.verdicts.append(("misses: answered by a cache all the same", found, 0, found == 0))


def at_once(port, sent, clients):
    """[(ms, whether its own answer)] of the same question on so many connections, each from when the first was sent."""
    selector, sockets = selectors.DefaultSelector(), []
    for _ in range(clients):
        one = socket.create_connection(("127.0.0.1", port))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(one, selectors.EVENT_READ, bytearray())
        sockets.append(one)
    time.sleep(0.05)  # accepted
    out, began = [], time.perf_counter()
    for one in sockets:
        one.sendall(sent)
    end = began + 60
    while len(out) < clients and time.perf_counter() < end:
        for key, _ in selector.select(1):
            piece = key.fileobj.recv(1 << 16)
            key.data.extend(piece)
            head, _, got = bytes(key.data).partition(b"\r\n\r\n")
            at = head.lower().find(b"\r\ncontent-length:")
            whole = at >= 0 and len(got) >= int(head[at + 17 :].split(b"\r\n", 1)[0])
            if whole or not piece:
                out.append((1e3 * (time.perf_counter() - began), head.startswith(b"HTTP/1.1 200") and is_own(sent, got)))
                selector.unregister(key.fileobj)
    for one in sockets:
        one.close()
    return out + [(float("inf"), False)] * (clients - len(out))


def herd(run):
    options, number = run.options, 0
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(Upstream("--ms", HERD_MS))
        systems = {
            "direct": upstream,
            "nginx, proxy_cache_lock": stack.enter_context(caches.nginx(upstream.port)),
            "nginx without": stack.enter_context(caches.nginx(upstream.port, "off")),
            "lapwing": stack.enter_context(caches.lapwing(options, upstream.port, ON)),
        }
        prove(systems["lapwing"])

        def turn(name):
            nonlocal number
            number += 1
            upstream.afresh()
            answers = at_once(systems[name].port, message(number, 1024), HERD)
            time.sleep(0.1)
            return {"calls": upstream.counts()["questions"], "slowest": max(ms for ms, _ in answers), "median": statistics.median(ms for ms, _ in answers), "wrong": sum(not own for _, own in answers)}

        turns = Rounds(options, options.rounds)
        rounds = turns.run(systems, turn)
    rows = []
    for name in systems:
        calls, slowest, median = ([one[name][key] for one in rounds] for key in ("calls", "slowest", "median"))
        rows.append([name, f"{min(calls)} to {max(calls)}", within(median, "{:.1f}"), within(slowest, "{:.1f}"), f"{max(slowest):.1f}"])
        wrong = sum(one[name]["wrong"] for one in rounds)
        run.verdicts.append((f"herd, {name}: not answered, or another's answer", wrong, 0, wrong == 0))
    calls, slowest = ([one["lapwing"][key] for one in rounds] for key in ("calls", "slowest"))
    run.verdicts.append(("herd, lapwing: most calls that reached the upstream", max(calls), 1, max(calls) == 1))
    run.verdicts.append(timed("herd, lapwing: ms until all had their answer, median of rounds", within(slowest, "{:.1f}"), f"at most {HERD_WITHIN_MS}", statistics.median(slowest) <= HERD_WITHIN_MS))
    header = ["", "calls upstream", "median answer, ms", "slowest, ms", "slowest of all rounds, ms"]
    run.table(f"Herd: the same question {HERD} times at once, upstream of {HERD_MS} ms", header, rows, turns.said())


def cases():
    import cache_redis
    import cache_zipf

    return {"hits": hits, "misses": misses, "herd": herd, "zipf": cache_zipf.zipf, "redis": cache_redis.redis}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    known, listed = cases(), lambda text: [one for one in text.split(",") if one]
    parser.add_argument("--cases", type=listed, default=",".join(known), help="which (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds; ten times as many, shorter ones, of misses (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=2, help="of each run of wrk (default: %(default)s)")
    parser.add_argument("--sizes", type=lambda text: [int(one) for one in listed(text)], default="1024,64512", help="of bodies of hits; nginx has a file's head, with the key in it, in 64 KiB at most (default: %(default)s)")
    parser.add_argument("--answer", type=int, default=1024, help="bytes of an answer of hits (default: %(default)s)")
    parser.add_argument("--verify", default="1%", help="cache.verify of hits (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=200, help="of each mode in a round of misses (default: %(default)s)")
    parser.add_argument("--miss-size", type=int, default=1024, help="of bodies of misses (default: %(default)s)")
    parser.add_argument("--zipf-seconds", type=float, default=60, help="of each run of zipf (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=300, help="questions a second of zipf (default: %(default)s)")
    cells = lambda text: [tuple(map(int, one.split("x"))) for one in listed(text)]  # noqa: E731
    parser.add_argument("--cells", type=cells, default="10x4,60x16", help="seconds that answers of zipf are good for, and MiB for them, as /cache has both; all are 40 MiB (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="runs of zipf (default: %(default)s)")
    parser.add_argument("--others", type=float, default=0.1, help="the share of the machine that others may take in a round (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=300, help="seconds in which a case's rounds must be so calm (default: %(default)s)")
    options = parser.parse_args()
    options.share = float(options.verify.rstrip("%")) / 100
    if unknown := set(options.cases) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if (os.cpu_count() or 1) < 2:
        parser.error("needs two cores: proxies have one for themselves")
    for program in ("nginx", "wrk", "taskset"):
        proxies.found(program)
    understood, said = proxies.knows(options.lapwing, f"cache: {json.dumps(ON)}")
    if not understood:
        parser.error(f"{options.lapwing} does not take cache: {said}")
    run = Run(options)
    os.sched_setaffinity(0, {caches.LOAD_CORE})
    for name in options.cases:
        known[name](run)
    return finish(options, run.results, run.verdicts)


if __name__ == "__main__":
    sys.exit(main())
