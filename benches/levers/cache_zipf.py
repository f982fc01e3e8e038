"""Case zipf of cache.py: whether what `observe` predicts is what `on` then brings, of questions by Zipf's law at the same times."""

import contextlib
import itertools
import random
from collections import OrderedDict

import caches
import load
from caches import Upstream, is_hit, is_own, message, prove
from parts import quantile, timed

BODIES, EXPONENT = 10_000, 1.0
FIXED_MS, ROW_MS = 5, 1
ROWS = (1, 2, 4, 8, 16)
ANSWER = 4096
MORE = 1024
"""Bytes that an entry has beside: what keeps it."""
POINTS, OFF = 2.0, 0.10


def rows_of(rank):
    """Of a body: as likely of each size, whatever its rank."""
    return ROWS[random.Random(rank).randrange(len(ROWS))]


def plan(seed, seconds, rate):
    """Poisson arrivals; the units of each are the rank of its body."""
    rng = random.Random(seed)
    dues = sorted(rng.uniform(0, seconds) for _ in range(round(seconds * rate)))
    cumulated = list(itertools.accumulate(1 / rank**EXPONENT for rank in range(1, BODIES + 1)))
    ranks = rng.choices(range(BODIES), cum_weights=cumulated, k=len(dues))
    return [load.Planned(due, rank, True) for due, rank in zip(dues, ranks)]


def lru(planned, ttl_s, max_bytes, entry_bytes, delay_s):
    """Whether each is a hit in an LRU cache of so many bytes whose answers are good for so long, stored when they have come."""
    stored, out = OrderedDict(), []
    for one in planned:
        rank, since = one.units, stored.get(one.units)
        # what is being asked for is waited for: a hit too
        out.append(since is not None and one.due - since < ttl_s + delay_s(rank))
        if out[-1]:
            stored.move_to_end(rank)
            continue
        stored[rank] = one.due
        stored.move_to_end(rank)
        while len(stored) * entry_bytes > max_bytes:
            stored.popitem(last=False)
    return out


def run_of(options, mode, planned, messages, ttl_s, max_mib):
    """(answers, what /cache says, the server's counts) of a plan, from an empty cache on."""
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(Upstream("--ms", FIXED_MS, "--row-ms", ROW_MS, "--answer", ANSWER, core=caches.PROXY_CORE))
        cache = {"mode": mode, "ttl": f"{ttl_s}s", "max_bytes": f"{max_mib}MiB", "max_entry": "64KiB", "verify": "0%"}
        lapwing = stack.enter_context(caches.lapwing(options, upstream.port, cache))
        if mode == "on":
            prove(lapwing)
        upstream.afresh()
        answers = load.open_loop(lapwing.port, planned, messages)
        return answers, lapwing.get("/cache"), upstream.counts()


def predicted(said, ttl_s, max_mib):
    """(hit rate, saved seconds) that /cache predicts."""
    ghost = said["ghost"]
    (cell,) = (one for one in ghost["cells"] if (one["ttl_s"], one["max_bytes"]) == (ttl_s, max_mib << 20))
    return cell["hit_rate"], cell["saved_ns_an_hour"] / 1e9 * ghost["observed_ns"] / 3600e9


def zipf(run):
    options, rows = run.options, []
    messages = {rank: message(rank, 512, rows_of(rank)) for rank in range(BODIES)}
    for seed in range(1, options.seeds + 1):
        planned = plan(seed, options.zipf_seconds, options.rate)
        _, said, counts = run_of(options, "observe", planned, messages, *options.cells[0])
        cost_s = {int(of): counts["seconds"][of] / n for of, n in counts["rows"].items()}
        of_rank = lambda rank: cost_s[rows_of(rank)]  # noqa: E731
        for ttl_s, max_mib in options.cells:
            answers, *_ = run_of(options, "on", planned, messages, ttl_s, max_mib)
            where = f"seed {seed}, {ttl_s} s, {max_mib} MiB"
            by = {"on, true": [is_hit(one.head) for one in answers]}
            by["LRU, computed"] = lru(planned, ttl_s, max_mib << 20, ANSWER + MORE, of_rank)
            shown = {"observe, predicted": predicted(said, ttl_s, max_mib)}
            for name, hit in by.items():
                shown[name] = sum(hit) / len(hit), sum(of_rank(one.units) for one, is_one in zip(planned, hit) if is_one)
            true_rate, true_s = shown["on, true"]
            late = quantile([one.late_ms for one in answers], 0.99)
            for name, (rate, saved_s) in shown.items():
                off = f"{saved_s / true_s - 1:+.1%}" if true_s else "none"
                rows.append([where, name, f"{rate:.2%}", f"{saved_s:.1f}", f"{100 * (rate - true_rate):+.2f}", off, f"{late:.1f}"])
            judge(run, where, answers, messages, shown)
    title = f"Zipf({EXPONENT}) of {BODIES} bodies, {options.rate:.0f} a second for {options.zipf_seconds:.0f} s"
    run.table(title, ["", "", "hits", "saved, s", "points to true", "saved to true", "sent late p99, ms"], rows)


def judge(run, where, answers, messages, shown):
    (rate, saved_s), (true_rate, true_s) = shown["observe, predicted"], shown["on, true"]
    wrong = sum(one.status != 200 or not is_own(messages[one.units], one.body) for one in answers)
    points, off = 100 * (rate - true_rate), saved_s / true_s - 1 if true_s else float("inf")
    run.verdicts.append((f"zipf, {where}: not answered, or another's answer", wrong, 0, wrong == 0))
    run.verdicts.append(timed(f"zipf, {where}: points of hit rate, predicted to true", f"{points:+.2f}", f"within {POINTS}", abs(points) <= POINTS))
    run.verdicts.append(timed(f"zipf, {where}: seconds saved, predicted to true", f"{off:+.1%}", f"within {OFF:.0%}", abs(off) <= OFF))
