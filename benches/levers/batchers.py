"""Servers that batch by themselves: a window before them must not starve them. A closed loop's throughput, in turn with and without."""

import contextlib
import json
import pathlib
import random
import sys

import figures
import load
import proxies
from parts import ROOT, Child, free_port, quantile, timed
from upstreams import HERE, SCRIPTED

sys.path.append(str(ROOT / "tests/real"))

from process import Process  # noqa: E402
from servers.parts import Llama, Triton  # noqa: E402


class Batcher:
    """A server: `mix(rng)` draws the units of a request, `messages` has what is sent for them."""

    def __init__(self, name, units, messages, port):
        self.name, self.units, self.messages, self.port = name, units, messages, port

    def draw(self, seed):
        rng, units = random.Random(seed), list(self.messages)
        return lambda: rng.choice(units)


def triton(stack, folder):
    """Its model `fwd`: 8 ms a batch, 0.1 ms a row, batches of 32 rows at most."""
    body = lambda rows: {"inputs": [{"name": "FEAT", "shape": [rows, 30], "datatype": "FP32", "data": [0.5] * 30 * rows}]}
    messages = {rows: load.message("/v2/models/fwd/infer", json.dumps(body(rows)).encode()) for rows in (1, 1, 2, 4)}
    return Batcher("Triton, dynamic batching", "rows", messages, started(stack, Triton(), folder, 4318))


def llama(stack, folder):
    """Up to four sequences at once."""
    server = Llama()
    server.flags = ("--parallel", "4")
    body = lambda tokens: {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": tokens, "ignore_eos": True}
    messages = {tokens: load.message("/v1/chat/completions", json.dumps(body(tokens)).encode()) for tokens in (8, 16, 32)}
    return Batcher("llama.cpp, four sequences", "tokens asked", messages, started(stack, server, folder))


def scripted(stack, _):
    port = free_port()
    stack.enter_context(Child([sys.executable, HERE / "scripted_server.py", port, "--batch", 16], port))
    messages = SCRIPTED.messages()
    return Batcher("a scripted server, 16 together", "rows", {rows: messages[rows] for rows in (1, 2, 4)}, port)


def started(stack, server, folder, *more):
    folder.mkdir()
    server.start(lambda name, command, env=None: Process(name, command, folder, env), folder, *more)
    stack.callback(server.process.stop)
    return server.http


def batchers(bench, folder):
    for name, start in (("scripted", scripted), ("triton", triton), ("llama", llama)):
        with contextlib.ExitStack() as stack:
            try:
                server = start(stack, folder / name)
            except AssertionError as missing:
                print(f"{name} left out: {str(missing)[-500:]}\n", flush=True)
                bench.verdicts.append(timed(f"batchers, {name}", "not measured", "at least 0.98", None))
                continue
            throughput(bench, stack, name, server)


def throughput(bench, stack, key, server):
    """The table and verdicts of one server."""
    options, ports = bench.options, [server.port]
    named = [("lapwing", lambda: proxies.lapwing(options, ports), False)]
    named.append(("lapwing, dispatch", lambda: proxies.lapwing(options, ports, dispatch=True), True))
    systems = {"direct": server, **bench.systems(stack, named)}
    each, answers, others = options.seconds / 3, {name: [] for name in systems}, []
    for name, system in systems.items():
        for clients in (1, 4, options.clients) if getattr(system, "learns", False) else (options.clients,):
            load.closed_loop(system.port, clients, options.warm_up / 3, server.draw(0), server.messages)
    names = list(systems)
    for turn in range(3 * options.seeds):
        # the order turns, so that nobody always follows the same one
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            run = lambda: load.closed_loop(systems[name].port, options.clients, each, server.draw(turn), server.messages)
            got, share = bench.calmly(run)
            answers[name].append(got)
            others.append(share)
            bench.say(f"batchers, {server.name}, round {turn}, {name}: {len(got)} answers, others took {share:.0%} of the machine")
    rate = lambda got: sum(one.units for one in got if one.status == 200) / max(one.due + one.took_ms / 1e3 for one in got)
    rates = {name: [rate(got) for got in of] for name, of in answers.items()}
    rows, base = [], "lapwing"
    for name, of in answers.items():
        flat = [one for got in of for one in got]
        ratios = sorted(own / under for own, under in zip(rates[name], rates[base]))
        ratio = "1" if name == base else f"{quantile(ratios, 0.5):.3f}× ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        times = [one.took_ms for one in flat]
        lost = figures.failed(flat, 0)
        rows.append([name + (" (base)" if name == base else ""), f"{sum(rates[name]) / len(of):.1f}", ratio, f"{quantile(times, 0.5):.3g}", f"{quantile(times, 0.99):.3g}", lost])
        bench.verdicts.append((f"batchers, {server.name}, {name}: requests not answered", lost, 0, lost == 0))
        if "dispatch" in name:
            bench.verdicts.append(timed(f"batchers, {server.name}: {server.units}/s with dispatch to without", f"{quantile(ratios, 0.5):.3f}", "at least 0.98", quantile(ratios, 0.5) >= 0.98))
    header = ["", f"{server.units}/s", "to the base: median (least to greatest)", "p50, ms", "p99, ms", "failed"]
    figures.markdown(f"Batchers, {server.name}, {options.clients} clients, {3 * options.seeds} rounds", header, rows)
    print(f"Other processes took up to {max(others):.0%} of the machine.")
    for name, system in systems.items():
        if getattr(system, "lapwing", None):
            print(f"{name} says: {bench.lapwing_says(system.lapwing)}", flush=True)
    bench.results[f"batchers {key}"] = {"rates": rates}
