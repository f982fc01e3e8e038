"""Case zipf of cache.py: whether what `observe` predicts is what `on` then brings, of questions by Zipf's law at the same times."""

import contextlib
import itertools
import os
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
TTL_S, MAX_MIB = 30, 16
"""Both take something: popular questions expire, and the bodies' answers are 40 MiB."""
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


def run_of(options, mode, planned, messages):
    """(answers, what /cache says, the server's counts) of a plan, from an empty cache on."""
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(Upstream("--ms", FIXED_MS, "--row-ms", ROW_MS, "--answer", ANSWER, core=caches.PROXY_CORE))
        cache = {"mode": mode, "ttl": f"{TTL_S}s", "max_bytes": f"{MAX_MIB}MiB"}
        lapwing = stack.enter_context(caches.lapwing(options, upstream.port, cache))
        asked = prove(lapwing) if mode == "on" else 0
        upstream.afresh()
        answers = load.open_loop(lapwing.port, planned, messages)
        return answers, lapwing.get("/cache"), upstream.counts(), asked


def predicted(said):
    """(hit rate, saved seconds) that /cache predicts for the size and time to live that are set."""
    ghost = said["ghost"]
    return ghost["hit_rate"], ghost["saved_s"]


def zipf(run):
    options, rows = run.options, []
    # the load, too, has a core of its own then
    os.sched_setaffinity(0, {caches.LOAD_CORE})
    messages = {rank: message(rank, 512, rows_of(rank)) for rank in range(BODIES)}
    for seed in range(1, options.seeds + 1):
        planned = plan(seed, options.zipf_seconds, options.rate)
        _, said, counts, _ = run_of(options, "observe", planned, messages)
        answers, _, _, _ = run_of(options, "on", planned, messages)
        cost_s = {int(of): counts["seconds"][of] / n for of, n in counts["rows"].items()}
        of_rank = lambda rank: cost_s[rows_of(rank)]  # noqa: E731
        wrong = sum(one.status != 200 or not is_own(messages[one.units], one.body) for one in answers)
        entry = ANSWER + 1024
        by = {"on, true": [is_hit(one.head) for one in answers], "LRU, computed": lru(planned, TTL_S, MAX_MIB << 20, entry, of_rank)}
        shown = {"observe, predicted": predicted(said)}
        for name, hit in by.items():
            shown[name] = sum(hit) / len(hit), sum(of_rank(one.units) for one, is_one in zip(planned, hit) if is_one)
        true_rate, true_s = shown["on, true"]
        late = quantile([one.late_ms for one in answers], 0.99)
        for name, (rate, saved_s) in shown.items():
            rows.append([seed, name, f"{rate:.2%}", f"{saved_s:.1f}", f"{100 * (rate - true_rate):+.2f}", f"{saved_s / true_s - 1:+.1%}", f"{late:.1f}"])
        rate, saved_s = shown["observe, predicted"]
        points, off = 100 * (rate - true_rate), saved_s / true_s - 1
        run.verdicts.append((f"zipf, seed {seed}: not answered, or another's answer", wrong, 0, wrong == 0))
        run.verdicts.append(timed(f"zipf, seed {seed}: points of hit rate, predicted to true", f"{points:+.2f}", f"within {POINTS}", abs(points) <= POINTS))
        run.verdicts.append(timed(f"zipf, seed {seed}: seconds saved, predicted to true", f"{off:+.1%}", f"within {OFF:.0%}", abs(off) <= OFF))
    title = f"Zipf({EXPONENT}) of {BODIES} bodies, {options.rate:.0f} a second for {options.zipf_seconds:.0f} s, ttl {TTL_S} s, {MAX_MIB} MiB"
    run.table(title, ["seed", "", "hits", "saved, s", "points to true", "saved to true", "sent late p99, ms"], rows)
