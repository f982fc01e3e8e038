"""One upstream of one slot, 1.3 times what it can do, and budgets: who answers most in time? Triton's own queue policy among them."""

import bisect
import contextlib
import math
import random
import statistics
from collections import Counter

import proxies
from batchers import started
from bench import System
from figures import Column, Runs, p99_ms
from load import Answer
from parts import quantile, timed
from servers.parts import Triton
from upstreams import SCRIPTED, Scripted

LOAD = 1.3
TRITON_MODEL = """
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            rows = len(pb_utils.get_input_tensor_by_name(request, "x").as_numpy())
            time.sleep((2 + rows) / 1e3)
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", np.zeros((1, 1), np.float32))]))
        return out
"""
TRITON_CONFIG = """
name: "%s"
backend: "python"
max_batch_size: 0
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1, 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1, 1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
%s
"""
TRITON_POLICY = """
dynamic_batching {
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: %d allow_timeout_override: false max_queue_size: %d }
}
"""


def is_in_budget(budget_ms):
    return lambda one: one.status == 200 and one.took_ms <= budget_ms


def is_at_the_door(budget_ms):
    """Refused, not given up later: the answer came within a quarter of the budget."""
    return lambda one: one.status != 200 and one.took_ms <= budget_ms / 4


class SlotTimes:
    """What the one slot did in a run, by the answers: one request after the other, in the order of their ends."""

    def __init__(self, answers):
        served = sorted((1e3 * one.due + one.took_ms, 1e3 * one.due, one.units) for one in answers if one.status == 200)
        self.came, self.ends, self.works = sorted(came for _, came, _ in served), [end for end, *_ in served], []
        free = -math.inf
        for end, came, units in served:
            self.works.append((came, max(came, free), end, units))
            free = end

    def margin_ms(self, cost_ms):
        """What 99 of 100 requests took at most beyond the line of cost."""
        beyond = [end - begin - cost_ms(units) for _, begin, end, units in self.works]
        return max(0.0, quantile(beyond, 0.99)) if beyond else 0.0

    def ahead_ms(self, now):
        """How long it still worked after `now` on what had come before."""
        at, total = bisect.bisect_right(self.ends, now), 0.0
        left = bisect.bisect_left(self.came, now) - at
        while left > 0:
            came, begin, end, _ = self.works[at]
            at += 1
            # who came later may have gone first: that is no part of it
            if came < now:
                total += end - max(now, begin)
                left -= 1
        return total


def refused_falsely(answers, budget_ms, cost_ms):
    """Marks the refusals, with the ms that they would have had to spare, that would have met their budget in that very run, had this one request been let in too.

    At the time of a refusal, the slot still had to work on what had been let in before it; for how long, this run's own answers tell.
    All have the same budget, so the order of arrival is the order of deadlines, and nobody let in before is harmed by one more at the
    end: if that work, the request's own and the margin are within the budget, an admission that knew all would have let it in. The
    margin is what 99 of 100 requests took at most beyond the line of cost, also in this run: who promises that 99 % of what he lets in is
    in time must leave it, so to refuse what only fits without it is no fault. Requests let in later are left out, on purpose: a refusal
    is judged by what could be known then. What was let in and given up later took no time of the slot.

    The bound of 2 % is on the refusals: the share of them that were wrong. As a share of all requests it would be met by whoever
    refuses few, and tell nothing of how well he chooses; that share is shown beside it.
    """
    slot, is_refused = SlotTimes(answers), is_at_the_door(budget_ms)
    margin_ms = slot.margin_ms(cost_ms)

    def judged(one):
        spare_ms = budget_ms - slot.ahead_ms(1e3 * one.due) - cost_ms(one.units) - margin_ms
        return one._replace(is_false=spare_ms >= 0, found=(spare_ms,))

    return [judged(one) if is_refused(one) else one for one in answers]


def known_ahead(plans, budget_ms, cost_ms):
    """Answers by seed of a server without a proxy's or a clock's fault that lets in, in order, what it knows to fit into its budget."""
    out = {}
    for seed, planned in plans.items():
        ahead_ms, before, out[seed] = 0.0, 0.0, []
        for one in planned:
            ahead_ms, before = max(0.0, ahead_ms - 1e3 * (one.due - before)), one.due
            took_ms = ahead_ms + cost_ms(one.units)
            is_in = took_ms <= budget_ms
            ahead_ms = took_ms if is_in else ahead_ms
            out[seed].append(Answer(one.due, one.units, 0.0, took_ms if is_in else 0.0, 200 if is_in else 429, ""))
    return out


def of_overload(budget_ms, capacity):
    """The columns of a case in which more comes than can be answered."""
    met, at_door = is_in_budget(budget_ms), is_at_the_door(budget_ms)

    def share(many, of):
        counted = sum(map(of, many))
        return counted / len(many) if many else math.nan

    return [
        Column("goodput, of capacity", lambda answers, s: sum(one.units for one in answers if met(one)) / s / capacity, False, "{:.1%}"),
        Column("answered in budget, of all", lambda answers, _: share(answers, met), False, "{:.1%}"),
        Column("admitted, of all", lambda answers, _: 1 - share(answers, at_door), False, "{:.1%}"),
        Column("in budget, of admitted", lambda answers, _: share([one for one in answers if not at_door(one)], met), False, "{:.2%}"),
        Column("false, of refused", lambda answers, _: share([one for one in answers if at_door(one)], lambda one: one.is_false), False, "{:.1%}"),
        Column("false, of all", lambda answers, _: share(answers, lambda one: one.is_false), False, "{:.2%}"),
        Column("p99 of the admitted, ms", p99_ms(), False),
    ]


def overload(bench, kind):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(kind.server(bench.options))
        cost_ms = bench.calibrate(kind, server.port)
        budget_ms = kind.budget_ms or round(10 * mean_of(kind, cost_ms))
        envoy = lambda *adaptive: lambda: proxies.envoy([server.port], filters=[proxies.adaptive(*adaptive)])
        proxied = [
            ("envoy, adaptive as documented", envoy("60s", 3, "0.1s"), True),
            ("envoy, adaptive, tuned", envoy("30s", 1, "1s"), True),
            ("haproxy, 2 at once, queue for the budget", lambda: proxies.haproxy([server.port], "leastconn", 2, f"{budget_ms}ms"), False),
            lapwing(bench, server.port),
        ]
        systems = {"direct": System(server.port), **bench.systems(stack, proxied)}
        compared(bench, f"overload, {kind.name}", kind, systems, cost_ms, budget_ms)


def lapwing(bench, port):
    return "lapwing, dispatch", lambda: proxies.lapwing(bench.options, [port], dispatch=True, deadlines=True), True


def mean_of(kind, cost_ms):
    rng = random.Random(0)
    return statistics.fmean(cost_ms(kind.mix(rng)) for _ in range(20_000))


class TritonByOne(Triton):
    """Triton with the scripted server's work, one request at a time: as it is, and with policies of its queue, by the models' names."""

    def __init__(self, policies):
        super().__init__()
        self.policies = policies

    def copy_models(self, to):
        for name, policy in self.policies.items():
            (to / name / "1").mkdir(parents=True)
            (to / name / "config.pbtxt").write_text(TRITON_CONFIG % (name, policy))
            (to / name / "1/model.py").write_text(TRITON_MODEL)


class ByTriton(Scripted):
    """The scripted server's work, for a model of Triton's."""

    def __init__(self, model):
        super().__init__("triton", "Triton with the scripted server's work", SCRIPTED.mix, SCRIPTED.most, SCRIPTED.budget_ms)
        self.path = f"/v2/models/{model}/infer"


def triton_policy(bench, folder):
    """Triton with its own queue policy, and Lapwing's admission before the same Triton without."""
    plain = ByTriton("plain")
    # as many may wait as are done within the budget
    most = round(plain.budget_ms / mean_of(plain, lambda rows: 2 + rows))
    named = {"triton, timeout": (0, "timeout"), f"triton, timeout, {most} in the queue": (most, "timeout_and_size")}
    policies = {model: TRITON_POLICY % (1000 * plain.budget_ms, size) for size, model in named.values()}
    with contextlib.ExitStack() as stack:
        try:
            port = started(stack, TritonByOne({"plain": "", **policies}), folder / "triton", 4318)
        except AssertionError as missing:
            print(f"triton-policy left out: {str(missing)[-500:]}\n", flush=True)
            bench.verdicts.append(timed("overload, triton", "not measured", "goodput at least 0.9", None))
            return
        cost_ms = bench.calibrate(plain, port)
        systems = {"direct": System(port)}
        systems |= {name: System(port, messages=ByTriton(model).messages()) for name, (_, model) in named.items()}
        systems |= bench.systems(stack, [lapwing(bench, port)])
        compared(bench, "overload, triton", plain, systems, cost_ms, plain.budget_ms)


def compared(bench, what, kind, systems, cost_ms, budget_ms):
    """The table and the verdicts."""
    messages = kind.messages([f"x-latency-budget-ms: {budget_ms}"])
    answers, plans, others = bench.interleaved(what, systems, kind, LOAD, cost_ms, messages)
    judged = {name: {seed: refused_falsely(of, budget_ms, cost_ms) for seed, of in by.items()} for name, by in answers.items()}
    judged["simulated: in order, what fits"] = known_ahead(plans, budget_ms, cost_ms)
    runs = {name: Runs(of, plans) for name, of in judged.items()}
    units = [one.units for planned in plans.values() for one in planned if one.is_measured]
    capacity = 1e3 * sum(units) / sum(map(cost_ms, units))
    columns = of_overload(budget_ms, capacity)
    margin_ms = lambda by: max(SlotTimes(of).margin_ms(cost_ms) for of in by.values())
    margins = ", ".join(f"{name}: {margin_ms(by):.1f} ms" for name, by in answers.items())
    said = f"budget {budget_ms} ms, capacity {capacity:.1f} rows/s, {cost_ms}, {len(units)} requests; margins: {margins}"
    title = f"Overload, {kind.said}, {LOAD} times capacity"
    table = bench.report(title, what.replace(",", ""), runs, "direct", columns, others, f"{said}; {refusals(runs, budget_ms)}", systems)
    for at, (most, least) in ((0, (None, 0.9)), (3, (None, 0.99)), (4, (0.02, None))):
        bench.bound(f"{what}, dispatch: {columns[at].title}", table, "lapwing, dispatch", columns[at].title, most, least, "value")


def refusals(runs, budget_ms):
    """How often which status was answered, at the door or later, and by how much the false refusals were."""
    at_door, out = is_at_the_door(budget_ms), []
    for name, one in runs.items():
        counts, false = Counter(), []
        for answer in (answer for block in one.blocks.values() for answer in block if answer.status != 200):
            counts[f"{answer.status} {answer.why}".strip() + ("" if at_door(answer) else " later")] += 1
            false += [answer] if answer.is_false else []
        if counts:
            out.append(f"{name}: " + ", ".join(f"{n} times {word}" for word, n in counts.items()))
        if false:
            spare, rows = statistics.median(answer.found[0] for answer in false), statistics.median(answer.units for answer in false)
            out[-1] += f", {len(false)} falsely, which had {spare:.1f} ms to spare and {rows:.0f} rows in the median"
    return "; ".join(out) or "nothing refused"
