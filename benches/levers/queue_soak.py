#!/usr/bin/env python3
"""A soak of the queue: `dispatch: {mode: on}` before two scripted servers of one slot, while all that can come and go does.

A part of the requests is for models that nobody has asked for before; sessions with an affinity come and go; the configuration file has
classes of other names each 20 s; a server is killed each minute and comes back after 5 s; some clients leave while they wait. Each
request has an id, which the servers append to their logs and return.

- Memory is flat: a line through the least resident anonymous memory of each minute, from the seventh on, rises by 1 MiB at most until the
  end of the run. What is freed is given back at once (the allocator is told so), so that a minute's least is what is kept when requests are
  gone. A run of ten minutes has 7,000 new models in that time: 150 bytes kept of each would be seen. Before that, the windows of five
  minutes fill that /stats has, with dispatch off as well: --mode off shows how much of it is the queue's.
- Nothing is lost or answered twice: each client that stays gets one answer, with its own id; each answer of 200 is of work that a server
  did; no server got a request again, but for hedges, of at most 2 % and a burst of 10. Other answers come only while a server is dead.
- Lapwing counted each request once, and its queue is empty at the end: nothing waits or runs.

usage: python3 benches/levers/queue_soak.py [--lapwing PATH] [--minutes N] [--rate R] [--json FILE]
Exit code 1 if a count misses its bound, 3 if only a time or memory does. Needs only the standard library.
"""

import argparse
import asyncio
import math
import os
import pathlib
import random
import sys
import tempfile
import time
import urllib.request
from collections import Counter

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import load  # noqa: E402
import proxies  # noqa: E402
from parts import Child, Lapwing, arguments, finish, free_port, resident, table  # noqa: E402
from stalls import Log  # noqa: E402
from upstreams import HERE, Scripted, lognormal  # noqa: E402

KIND = Scripted("soak", "a scripted server of one slot", lognormal(2.0, 0.8, 64), 64)
STEADY = 3
"""Models that are asked for all the time: what they take gets known."""
NEW, IN_SESSION, LEAVES, OF_ONE = 0.3, 0.5, 0.03, 0.1
"""The shares of requests for a new model, with a session, whose client leaves, and with a connection of their own."""
LIFE_S, DEATH_S = 60, 5
BACK_S = 15
"""How long after a server's return an answer other than 200 is still put down to its death: requests waited meanwhile."""
ANSWER_S = 60
"""A client that has no answer after this time never gets one."""
CALM_S = 30
RISE_MIB = 1.0
FULL_MINUTES = 6
"""The first, and those in which windows of five minutes fill."""
HEDGES, BURST = 0.02, 10
CONFIG = """
config: {watch: 1s}
attribution: {poll: off, expect_spans: never}
metrics: {idle_after: %(idle)s}
upstreams: {a: {url: "http://127.0.0.1:%(a)d"}, b: {url: "http://127.0.0.1:%(b)d"}}
routes:
- {match: {header: "x-session: *"}, to: [a, b], affinity: {key: "header:x-session"}}
dispatch:
  mode: %(mode)s
  slots: %(slots)s
  %(hedge)s
  classes:
  - {name: tier-%(n)d, match: {header: "x-tier: tier-%(n)d"}, weight: 3}
  - {name: night-%(n)d, match: {header: "x-tier: night*"}, background: on}
"""


class Upstream:
    """A server that can be killed and started again at the same port, with the same log."""

    def __init__(self, folder, name):
        self.port, self.log, self.deaths, self.child = free_port(), Log(folder / f"{name}.log"), [], None

    def start(self):
        self.child = Child([sys.executable, HERE / "scripted_server.py", self.port, "--log", self.log.path], self.port)
        self.child.__enter__()

    def die(self):
        self.deaths.append(time.monotonic())
        self.child.process.kill()
        self.child.process.wait()

    def stop(self):
        if self.child:
            self.child.__exit__()


class Soak:
    def __init__(self, options, lapwing, upstreams, has_hedge):
        self.options, self.lapwing, self.upstreams, self.has_hedge = options, lapwing, upstreams, has_hedge
        self.rng, self.generation, self.sent, self.models = random.Random(1), 0, 0, 0
        self.ended, self.answers, self.odd, self.asking, self.tasks, self.memory = [], {}, [], set(), set(), []
        self.messages = KIND.messages()

    def config(self):
        options, ports = self.options, dict(zip("ab", (one.port for one in self.upstreams)))
        hedge = f"hedge: {options.hedge}" if self.has_hedge else ""
        return CONFIG % {**ports, "n": self.generation, "mode": options.mode, "slots": options.slots, "idle": options.idle_after, "hedge": hedge}

    # --- clients

    def message(self, number):
        """A request of what comes and goes."""
        rng, model = self.rng, f"steady-{self.rng.randrange(STEADY)}"
        if rng.random() < NEW:
            self.models += 1
            model = f"new-{self.models}"
        # of the class that is there now, of one that is gone, of the background, or of none
        tier = rng.choice([f"tier-{self.generation}", f"tier-{max(0, self.generation - 1)}", f"night-{number}", "none"])
        headers = [f"x-bench-id: {number}", f"x-tier: {tier}"]
        if rng.random() < IN_SESSION:
            headers.append(f"x-session: {number // 200}-{rng.randrange(20)}")
        body = self.messages[KIND.mix(rng)].split(b"\r\n\r\n", 1)[1]
        return load.message(f"/v2/models/{model}/infer", body, headers)

    async def one(self, client, number):
        rng = random.Random(number)
        leaves, alone = rng.random() < LEAVES, rng.random() < OF_ONE
        if alone:
            client = load.Client(self.lapwing.port)
        connection = await client.connection()
        if connection is None:
            self.answers[number] = "no connection"
            return
        was_used, asked = connection.used, connection.ask(self.message(number))
        self.sent += 1
        try:
            answer = await asyncio.wait_for(asked, rng.uniform(0.002, 0.05) if leaves else ANSWER_S)
        except TimeoutError:
            self.answers[number] = "left" if leaves else "none in a minute"
            # an answer that came just now has given the connection back, and another may have it already
            if connection.answered is asked:
                connection.transport.abort()
            return
        if answer is None:
            self.answers[number] = "connection ended"
            self.ended.append((number, time.monotonic(), "kept" if was_used else "new", bytes(connection.read)[:60]))
            return
        status, head, _ = answer
        own = b"\r\nx-bench-id: %d\r\n" % number in head
        self.answers[number] = f"{status}" if own or status != 200 else "another's"
        if status != 200:
            self.odd.append((time.monotonic(), f"{status} {load.why(head)}".strip()))
        if alone:
            client.close()

    async def clients(self):
        client, number, due = load.Client(self.lapwing.port), 0, time.monotonic()
        while not self.is_over():
            due += self.rng.expovariate(self.options.rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.go(self.one(client, number), self.asking)
            number += 1
        while self.asking:
            await asyncio.sleep(0.1)
        client.close()

    # --- what else goes on

    def go(self, what, among):
        task = asyncio.get_running_loop().create_task(what)
        among.add(task)
        task.add_done_callback(among.discard)

    def is_over(self):
        return time.monotonic() - self.began > 60 * self.options.minutes

    async def reload(self):
        while not self.is_over():
            await asyncio.sleep(self.options.reload)
            self.generation += 1
            path = pathlib.Path(self.lapwing.config.name)
            new = path.with_suffix(".new")
            new.write_text(self.config())
            os.replace(new, path)

    async def kill(self):
        at = 0
        while not self.is_over():
            await asyncio.sleep(LIFE_S / 2)
            one = self.upstreams[at % len(self.upstreams)]
            await asyncio.to_thread(one.die)
            await asyncio.sleep(DEATH_S)
            await asyncio.to_thread(one.start)
            await asyncio.sleep(LIFE_S / 2 - DEATH_S)
            at += 1

    async def look(self):
        """Memory each second; what an operator asks for, now and then; a line each minute."""
        second = 0
        while not self.is_over():
            await asyncio.sleep(max(0.0, self.began + second - time.monotonic()))
            second += 1
            self.memory.append((time.monotonic() - self.began, self.lapwing.rss_mib("RssAnon")))
            if second % 10 == 0:
                await asyncio.to_thread(self.ask_admin)
            if second % 60 == 0:
                least = self.least()[-1][1]
                counts = ", ".join(f"{n} {what}" for what, n in sorted(Counter(self.answers.values()).items()))
                print(f"minute {second // 60:3}: {least:6.1f} MiB at least; {counts}; {self.models} new models", flush=True)

    def ask_admin(self):
        self.dispatch()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.lapwing.admin}/metrics", timeout=10) as response:
            return response.read().decode()

    def dispatch(self):
        return self.lapwing.get("/dispatch")

    def least(self):
        """By minute, (its number, the least memory)."""
        out = {}
        for second, mib in self.memory:
            minute = int(second // 60)
            out[minute] = min(mib, out.get(minute, mib))
        return sorted(out.items())

    async def run(self):
        self.began = time.monotonic()
        for what in (self.reload(), self.kill()):
            self.go(what, self.tasks)
        look = asyncio.create_task(self.look())
        await self.clients()
        await look
        await asyncio.gather(*self.tasks)

    # --- the end

    def in_a_death(self, moment):
        return any(died <= moment <= died + DEATH_S + BACK_S for one in self.upstreams for died in one.deaths)

    def counted(self):
        """Requests that Lapwing counted, of shown and of retired series, by outcome."""
        stats, out = self.lapwing.get("/stats?window=all"), Counter()
        for of in [*(series["outcomes"] for series in stats["series"]), stats["retired"]["outcomes"]]:
            out.update({name: n for name, n in of.items() if n})
        return out

    def until(self, read, wanted):
        """What is read once it is as wanted, or at the end of patience."""
        end = time.monotonic() + CALM_S
        while (seen := read()) != wanted and time.monotonic() < end:
            time.sleep(0.5)
        return seen

    def left_over(self):
        seen = self.dispatch() or {"waiting": 0, "upstreams": []}
        return seen["waiting"] + sum(one["running"] for one in seen["upstreams"])

    def verdicts(self):
        came, worked = Counter(), set()
        # what a killed server had begun has no end in its log
        for what, name, *_ in (line for one in self.upstreams for line in one.log.lines()):
            if what == "came":
                came[int(name)] += 1
            else:
                worked.add(int(name))
        answers = Counter(self.answers.values())
        table(["answer", "clients"], sorted(answers.items()))
        lost = sum(n for what, n in answers.items() if what in ("no connection", "none in a minute", "connection ended", "another's"))
        lost += self.sent - sum(answers.values())
        unworked = sum(what == "200" and number not in worked for number, what in self.answers.items())
        again = sum(n - 1 for n in came.values())
        odd = [what for moment, what in self.odd if not self.in_a_death(moment)]
        total = self.until(lambda: sum(self.counted().values()), self.sent)
        over = self.until(self.left_over, 0)
        metrics = self.ask_admin().splitlines()
        shown = {line.split('"')[1] for line in metrics if line.startswith("lapwing_dispatch_waiting{")}
        became = {line.split('"')[1]: int(line.split()[-1]) for line in metrics if line.startswith("lapwing_dispatch_requests_total{")}
        copies = HEDGES * self.sent + BURST if self.has_hedge else 0
        self.lapwing.log.seek(0)
        panics = self.lapwing.log.read().count("panicked")
        print(f"{self.models} new models, {self.generation} reloads, {sum(len(one.deaths) for one in self.upstreams)} deaths")
        print(f"other answers, most of all: {Counter(what for _, what in self.odd).most_common(5)}")
        for number, moment, connection, read in self.ended[:5]:
            since = min((moment - died for one in self.upstreams for died in one.deaths if died <= moment), default=math.nan)
            print(f"request {number}: its {connection} connection ended {since:.3f} s after a death, with {read!r}; came {came[number]} times, worked: {number in worked}")
        print(f"counted by outcome: {dict(self.counted())}; by dispatch: {became}")
        for one in (self.dispatch() or {"upstreams": []})["upstreams"]:
            print(f"upstream {one['upstream']}: {one['slots']} slots {one['reason'] or ''}")
        print()
        return [
            ("requests of which no answer, or another's, came back", lost, 0, lost == 0),
            ("answers that no server worked for", unworked, 0, unworked == 0),
            ("requests that a server got again", again, f"{copies:.0f}", again <= copies),
            ("answers other than 200 while both servers lived", f"{len(odd)} {Counter(odd).most_common(3)}", 0, not odd),
            ("requests sent that were not counted once", self.sent - total, 0, self.sent == total),
            ("requests that wait or run at the end", over, 0, over == 0),
            ("panics", panics, 0, panics == 0),
            self.flat(),
            *(self.queue_worked(became["queued"], shown) if self.options.mode == "on" else ()),
        ]

    def queue_worked(self, queued, shown):
        return [
            ("requests that waited in the queue", queued, "at least a tenth", queued >= self.sent / 10),
            ("classes shown at the end", len(shown), 3, len(shown) == 3),
        ]

    def flat(self):
        least = [(minute, mib) for minute, mib in self.least() if FULL_MINUTES <= minute < int(self.options.minutes)]
        what, bound = f"MiB that the least memory of a minute rose, from minute {FULL_MINUTES + 1} on", f"at most {RISE_MIB}"
        if len(least) < 3:
            return resident(what, f"not measured: {len(least)} such minutes, three are needed", bound, None)
        mean_t, mean_m = (sum(of) / len(least) for of in zip(*least))
        slope = sum((t - mean_t) * (m - mean_m) for t, m in least) / sum((t - mean_t) ** 2 for t, _ in least)
        rise = slope * (least[-1][0] - least[0][0])
        return resident(what, f"{rise:.2f}", bound, rise <= RISE_MIB)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--minutes", type=float, default=10, help="how long (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=100, help="requests a second; 160 is all that both can do (default: %(default)s)")
    parser.add_argument("--mode", choices=("off", "observe", "on"), default="on", help="dispatch.mode; others than on show what memory the queue does not take (default: %(default)s)")
    parser.add_argument("--slots", default="1", help="dispatch.slots; with auto a busy machine may hide them, and then nothing waits (default: %(default)s)")
    parser.add_argument("--reload", type=float, default=20, help="seconds from one configuration to the next (default: %(default)s)")
    parser.add_argument("--idle-after", default="30s", help="metrics.idle_after: how soon a series gives way to a new one (default: %(default)s)")
    parser.add_argument("--hedge", default="{mode: on}", help="dispatch.hedge, where the binary knows it (default: %(default)s)")
    options = parser.parse_args()
    has_hedge, _ = proxies.knows(options.lapwing, f"dispatch: {{mode: on, hedge: {options.hedge}}}")
    if not has_hedge:
        print(f"without hedging: {options.lapwing} does not know dispatch.hedge")
    os.environ["_RJEM_MALLOC_CONF"] = "dirty_decay_ms:0"  # freed pages go back at once
    with tempfile.TemporaryDirectory() as folder:
        upstreams = [Upstream(pathlib.Path(folder), name) for name in "ab"]
        try:
            for one in upstreams:
                one.start()
            soak = Soak(options, None, upstreams, has_hedge)
            with Lapwing(options.lapwing, None, config=soak.config()) as soak.lapwing:
                asyncio.run(soak.run())
                verdicts = soak.verdicts()
        finally:
            for one in upstreams:
                one.stop()
    return finish(options, {"least_mib_by_minute": soak.least(), "memory": soak.memory}, verdicts)


if __name__ == "__main__":
    sys.exit(main())
