#!/usr/bin/env python3
"""What dispatch brings on real servers, beside other proxies, at the same arrivals.

    .venv/bin/python benches/levers/real.py --lapwing PATH [--cases order,stalls,…] [--seconds N] [--seeds N] [--json FILE]

All systems of a table meet the same requests at the same times, one system after the other, seed by seed, in an order that turns.
Ratios are to the row named base. An open loop times from when a request was due. What learns (dispatch, Envoy's adaptive concurrency)
is warmed up first, at 1, 2, 4 and 8 requests at once and then at the case's load. Costs are fitted on the server alone before.
A run in which other processes took more than a share of the machine is repeated, whatever it showed; if it never is calm, the table says so.

- order: FastAPI with magika (rows lognormal(1.0, 1.1) within 1..32), and a scripted server of one slot (2 ms + 1 ms a row,
  lognormal(2.2, 1.3) within 1..256), at 70 % of what each can do.
- overload: the same at 1.3 times that, each request with a budget of ten times the mean cost or 100 ms. Goodput: rows answered in
  budget. Refused: an answer other than 200 within a quarter of the budget; what fails later was admitted. False refusals: see
  `refused_falsely` in overload.py.
- triton-policy: the same overload of Triton with the scripted server's work: with its own queue policy (a time-out of the budget; that and
  a queue as long as the budget), and with Lapwing's admission before the same Triton without one.
- placement: three servers, equal, then one at half speed, at 70 %. There a slow server's queue grows as long as the run by turns, so
  that round robin's figures say little but that.
- stalls, outliers: three servers of 5 ms + 1, 2, 4, 8, 8 or 16 ms that stand still for 300 ms each 20 s in the mean, at the same times for
  every system, or take ten times as long for one request of a hundred; at 30, 50, 70 and 95 % load. Unexplained variance: that of
  latencies within requests of equal work. Copies: what servers worked on beyond the first copy of each request, by their own logs.
  Envoy hedges after the 98th percentile of the mean request, and of the largest.
- affinity: two of llama.cpp, prompts of eight beginnings, of which each keeps six. Cached tokens as llama.cpp reports them.
- batchers: throughput of a closed loop before Triton with dynamic batching, llama.cpp, and a scripted server that batches.

Of Lapwing, what the binary does not know is left out, and said. Needs nginx, haproxy, Envoy (.venv), .venv-triton and .venv-llama, as
tests/run installs them, and for affinity .venv-sglang (--without sglang: without). All cases with their defaults take 6 hours, half of
it stalls and outliers. Exit code 1 if a count misses its bound, 3 if only a time does.
"""

import argparse
import contextlib
import pathlib
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import figures  # noqa: E402
import proxies  # noqa: E402
from affinity import affinity  # noqa: E402
from batchers import batchers  # noqa: E402
from bench import Bench, System  # noqa: E402
from figures import Column, Runs, Sizes, mean_ms, p99_ms, units_a_second  # noqa: E402
from overload import overload, triton_policy  # noqa: E402
from parts import arguments, finish, timed  # noqa: E402
from stalls import stalls  # noqa: E402
from upstreams import MAGIKA, SCRIPTED  # noqa: E402

KINDS = {"magika": MAGIKA, "scripted": SCRIPTED}
CASES = ("order", "overload", "placement", "stalls", "outliers", "affinity", "triton-policy", "batchers")


def order(bench, kind):
    """One upstream of one slot."""
    options = bench.options
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(kind.server(options))
        cost_ms = bench.calibrate(kind, server.port)
        ports, messages = [server.port], kind.messages()
        proxied = [
            ("nginx", lambda: proxies.nginx(ports), False),
            ("lapwing", lambda: proxies.lapwing(options, ports), False),
            ("lapwing, dispatch", lambda: proxies.lapwing(options, ports, dispatch=True), True),
        ]
        systems = {"direct": System(server.port), **bench.systems(stack, proxied)}
        answers, plans, others = bench.interleaved(f"order, {kind.name}", systems, kind, 0.7, cost_ms, messages)
        sizes, runs = Sizes(plans), {name: Runs(of, plans) for name, of in answers.items()}
        columns = [
            Column("mean, ms", mean_ms),
            Column("p99 of the small, ms", p99_ms(sizes.small)),
            Column("p99 of the large, ms", p99_ms(sizes.large)),
            Column("rows/s", units_a_second),
            Column("failed", figures.failed, False, "{}"),
        ]
        said = f"{cost_ms}; {sizes.said}"
        table = bench.report(f"Order, {kind.said}, 70 % load", f"order {kind.name}", runs, "direct", columns, others, said, systems)
        bench.answered(f"order, {kind.name}", runs)
        for at, (most, least) in enumerate(((0.8, None), (0.75, None), (1.3, None), (None, 0.98))):
            title = columns[at].title
            bench.bound(f"order, {kind.name}, dispatch: {title} to direct", table, "lapwing, dispatch", title, most, least)


def placement(bench, kind, speeds):
    """Three upstreams of one slot."""
    options, is_equal = bench.options, len(set(speeds)) == 1
    which = "equal" if is_equal else "one at half speed"
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(kind.server(options, speed)) for speed in speeds]
        ports, messages = [one.port for one in servers], kind.messages()
        cost_ms = bench.calibrate(kind, ports[0])
        named = [
            ("haproxy, leastconn", lambda: proxies.haproxy(ports, "leastconn"), False),
            ("haproxy, leastconn, 2 at once", lambda: proxies.haproxy(ports, "leastconn", 2), False),
            ("envoy, ROUND_ROBIN", lambda: proxies.envoy(ports), False),
            ("envoy, LEAST_REQUEST", lambda: proxies.envoy(ports, "LEAST_REQUEST"), False),
            ("lapwing, round_robin", lambda: proxies.lapwing(options, ports, policy="round_robin"), False),
            ("lapwing, least_requests", lambda: proxies.lapwing(options, ports, policy="least_requests"), False),
            ("lapwing, dispatch", lambda: proxies.lapwing(options, ports, dispatch=True), True),
        ]
        systems = bench.systems(stack, named)
        answers, plans, others = bench.interleaved(f"placement, {which}", systems, kind, 0.7, cost_ms, messages, sum(speeds))
        sizes, runs = Sizes(plans), {name: Runs(of, plans) for name, of in answers.items()}
        columns = [Column("p99, ms", p99_ms()), Column("p99 of the small, ms", p99_ms(sizes.small)), Column("mean, ms", mean_ms)]
        columns.append(Column("failed", figures.failed, False, "{}"))
        base, said = next(name for name in ("haproxy, leastconn", "lapwing, least_requests") if name in runs), sizes.said
        title, key = f"Placement, three of {kind.said}, {which}, 70 % load", f"placement {kind.name} {which}"
        table = bench.report(title, key, runs, base, columns, others, said, systems)
        bench.answered(f"placement, {which}", runs)
        what = f"placement, {which}, dispatch"
        bench.bound(f"{what}: p99 to {base}", table, "lapwing, dispatch", "p99, ms", 0.9 if is_equal else 0.75)
        bench.bound(f"{what}: p99 of the small to {base}", table, "lapwing, dispatch", "p99 of the small, ms", 0.5)
        for other, most in (("envoy, LEAST_REQUEST", 0.9 if is_equal else 0.75), ("envoy, ROUND_ROBIN", 0.55)):
            if {other, "lapwing, dispatch"} <= set(table):
                to = table["lapwing, dispatch"]["p99, ms"]["value"] / table[other]["p99, ms"]["value"]
                bench.verdicts.append(timed(f"{what}: p99 to {other}", f"{to:.3f}", f"at most {most}", to <= most))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    listed = lambda text: [one for one in text.split(",") if one]
    parser.add_argument("--cases", type=listed, default=",".join(CASES), help="which (default: %(default)s)")
    parser.add_argument("--servers", type=listed, default="scripted,magika", help="of order and overload (default: %(default)s)")
    parser.add_argument("--placement-server", choices=KINDS, default="scripted", help="(default: %(default)s; three of magika need four processors)")
    parser.add_argument("--without", type=listed, default="", help="peers to leave out, as nginx,haproxy,envoy,sglang")
    parser.add_argument("--seconds", type=float, default=60, help="the measured part of a run (default: %(default)s)")
    parser.add_argument("--settle", type=float, default=10, help="the part before it, at the same load (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="plans of arrivals, each for every system (default: %(default)s)")
    parser.add_argument("--warm-up", type=float, default=30, help="seconds before the first run of what learns (default: %(default)s)")
    parser.add_argument("--calibrate", type=float, default=15, help="seconds for the server's costs (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=16, help="of the closed loop before batchers (default: %(default)s)")
    parser.add_argument("--others", type=float, default=0.1, help="the share of the machine that others may take in a run (default: %(default)s)")
    parser.add_argument("--tries", type=int, default=3, help="runs until one is so calm; the last is kept (default: %(default)s)")
    parser.add_argument("--wait", type=float, default=120, help="seconds to wait for that before a run (default: %(default)s)")
    parser.add_argument("--slots", default="auto", help="dispatch.slots (default: %(default)s)")
    parser.add_argument("--order", default="due", help="dispatch.order (default: %(default)s)")
    parser.add_argument("--patience", default="2", help="dispatch.patience (default: %(default)s)")
    parser.add_argument("--overload", default="1.25", help="routes.affinity.overload (default: %(default)s)")
    parser.add_argument("--hedge", default="{mode: on}", help="dispatch.hedge of what hedges (default: %(default)s)")
    parser.add_argument("--python", default=str(proxies.ROOT / ".venv/bin/python"), help="has FastAPI and ONNX Runtime (default: %(default)s)")
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES) | set(options.servers) - set(KINDS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    bench = Bench(options)
    for name, case in (("order", order), ("overload", overload)):
        for kind in options.servers if name in options.cases else ():
            case(bench, KINDS[kind])
    for speeds in ((1, 1, 1), (1, 1, 0.5)) if "placement" in options.cases else ():
        placement(bench, KINDS[options.placement_server], speeds)
    for trouble in ("stalls", "outliers"):
        if trouble in options.cases:
            stalls(bench, trouble)
    for name, case in (("triton-policy", triton_policy), ("affinity", affinity), ("batchers", batchers)):
        if name in options.cases:
            with tempfile.TemporaryDirectory() as folder:
                case(bench, pathlib.Path(folder))
    return finish(options, bench.results, bench.verdicts)


if __name__ == "__main__":
    sys.exit(main())
