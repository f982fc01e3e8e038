#!/usr/bin/env python3
"""Compares batching by cost and arrival rate with fixed batches, on requests of very different lengths.

Each request has one sequence for MiniLM. There are two mixes of lengths: bimodal (90 % with 16 tokens, 10 % with 512) and uniform in
1–512. Three policies take turns in each round, with the same arrivals and lengths:
  adaptive  `lapwing engine serve` with its defaults;
  fixed     the same engine with batches of 8 calls, or of those that came within 5 ms; also without padding;
  padded    batches of 8 calls, or of those that came within 5 ms, made in front of the engine, padded to the longest and sent as one
            request with a mask, like a server without ragged batches. The next batch is sent when the previous one is answered.
Measures rows per second at saturation (32 clients, each with one request at a time), and p50 and p99 at a fraction of the slowest
policy's capacity (Poisson arrivals; latency is counted from the moment at which a request was due). Padding is taken from the engine's
counters: executed tokens that were masked out. The engine has one thread on core 1; the load runs on core 0.

usage: .venv/bin/python benches/batching.py [--lapwing PATH] [--rounds N] [--seconds S] [--share X] [--quick] [--json FILE] [MIX ...]
MIX is bimodal or uniform. Needs what benches/engine.py needs. Prints Markdown. Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import asyncio
import contextlib
import os
import pathlib
import statistics
import sys
import tempfile
import time
import urllib.request
from parts import ROOT, Child, arguments, finish, free_port, machine, quantile, timed


def command_line():
    """Parses the options, before the imports below, so that --help needs only the standard library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--rounds", type=int, default=7, help="(default: 7)")
    parser.add_argument("--seconds", type=float, default=6, help="seconds of saturation in each round; arrivals take twice as long (default: 6)")
    parser.add_argument("--share", type=float, default=0.7, help="arrival rate as a fraction of the slowest policy's capacity (default: 0.7)")
    parser.add_argument("--quick", action="store_true", help="a small encoder, short texts and 2 rounds: only to try the script, not for figures")
    parser.add_argument("mixes", nargs="*", metavar="MIX", help="bimodal, uniform (default: both)")
    return parser.parse_args()


OPTIONS = command_line() if __name__ == "__main__" else None

import numpy as np  # noqa: E402

sys.path.insert(0, str(ROOT / "tests/real"))
from engine import fixtures  # noqa: E402
from engine.reference import Reference  # noqa: E402
from engine.served import encode  # noqa: E402

LOAD_CORE, ENGINE_CORE = 0, 1
MOST_CALLS, MOST_WAIT_S, CLIENTS = 8, 0.005, 32
SHORT, LONG, SHARE_OF_LONG = 16, 512, 0.1
OUTPUT, MODEL = "sentence_embedding", "minilm"
WASTE, NOISE = 0.10, 0.02
HEADER = ["policy", "rows/s at saturation", "of padded's", "padding", "p50 ms", "p99 ms", "p99 of all rounds", "p99 of padded's", "padding"]
POLICIES = ("adaptive", "fixed", "padded")
MIXES = {
    "bimodal": lambda rng, n, longest: np.where(rng.random(n) < SHARE_OF_LONG, longest, SHORT),
    "uniform": lambda rng, n, longest: rng.integers(1, longest + 1, n),
}


# === requests ===


def sequence(rng, length, vocabulary):
    return rng.integers(0, vocabulary, length)


def message(feeds):
    """A complete HTTP request."""
    headers, body = encode(feeds, outputs=[OUTPUT])
    lines = [f"POST /v2/models/{MODEL}/infer HTTP/1.1", "host: engine", f"content-length: {len(body)}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Connections:
    """A pool of keep-alive connections to one port."""

    def __init__(self, port):
        self.port, self.idle = port, []

    async def ask(self, request):
        """Sends a request and returns the embeddings in the answer, as bytes."""
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        writer.write(request)
        status, length, head_length = await reader.readline(), 0, 0
        while (line := await reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            elif name.lower() == b"inference-header-content-length":
                head_length = int(value)
        body = await reader.readexactly(length)
        if b" 200 " not in status:
            raise SystemExit(f"the engine answers {status!r} {body[:300]!r}")
        self.idle.append((reader, writer))
        return body[head_length:]

    def close(self):
        for _, writer in self.idle:
            writer.close()


class Alone:
    """Sends each request to the engine separately."""

    def __init__(self, port):
        self.connections = Connections(port)

    async def ask(self, ids):
        return await self.connections.ask(message(fixtures.padded([ids])))

    async def close(self):
        self.connections.close()


class Padded:
    """Collects requests and sends them to the engine as one padded request."""

    def __init__(self, port):
        self.connections, self.queue = Connections(port), asyncio.Queue()
        self.task = asyncio.create_task(self.run())

    async def ask(self, ids):
        answer = asyncio.get_running_loop().create_future()
        self.queue.put_nowait((ids, answer))
        return await answer

    async def run(self):
        while True:
            batch = [await self.queue.get()]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MOST_WAIT_S):
                    while len(batch) < MOST_CALLS:
                        batch.append(await self.queue.get())
            try:
                body = await self.connections.ask(message(fixtures.padded([ids for ids, _ in batch])))
            except BaseException as e:
                for _, answer in batch:
                    answer.cancel()
                raise e
            each = len(body) // len(batch)
            for row, (_, answer) in enumerate(batch):
                if not answer.done():
                    answer.set_result(body[row * each : (row + 1) * each])

    async def close(self):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        self.connections.close()


# === loads ===


async def saturated(client, sequences, seconds):
    """(rows per second, latencies in seconds) of CLIENTS clients; waits until all requests that were sent in time are answered."""
    took, place, begun = [], 0, time.perf_counter()

    async def one():
        nonlocal place
        while (start := time.perf_counter()) - begun < seconds:
            place += 1
            await client.ask(sequences[place % len(sequences)])
            took.append(time.perf_counter() - start)

    await asyncio.gather(*(one() for _ in range(CLIENTS)))
    return len(took) / (time.perf_counter() - begun), took


async def arriving(client, sequences, due):
    """Latencies in seconds of requests that are due at these times."""
    took, begun = [], time.perf_counter()

    async def one(ids, at):
        await client.ask(ids)
        took.append(time.perf_counter() - begun - at)

    async with asyncio.TaskGroup() as group:
        for i, at in enumerate(due):
            if (wait := at - (time.perf_counter() - begun)) > 0:
                await asyncio.sleep(wait)
            group.create_task(one(sequences[i % len(sequences)], at))
    return took


class Engine(Child):
    """`lapwing engine serve` with one thread on its core."""

    def __init__(self, binary, path, *args):
        port = free_port()
        command = [binary, "engine", "serve", "--listen", f"127.0.0.1:{port}", "--model", f"{MODEL}={path}", "--threads", 1, "--cpus", ENGINE_CORE]
        super().__init__([*command, *args], port, ENGINE_CORE)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as response:
            return response.read().decode()

    def wait_ready(self):
        while True:
            with contextlib.suppress(OSError):
                self.get("/v2/health/ready")
                return
            if self.process.poll() is not None:
                self.log.seek(0)
                raise SystemExit(f"the engine ended early with {self.process.returncode}\n{self.log.read()[-4000:]}")
            time.sleep(0.05)

    def tokens(self):
        """The counters of executed and of useful tokens, as an array."""
        out = {"executed": 0.0, "useful": 0.0}
        for line in self.get("/metrics").splitlines():
            if line.startswith("lapwing_engine_tokens_total{"):
                out["executed" if 'kind="executed"' in line else "useful"] += float(line.rpartition(" ")[2])
        return np.array([out["executed"], out["useful"]])


# === the runs ===


class Bench:
    """The engines, and the measurements by mix, policy and load."""

    def __init__(self, options, engines, vocabulary):
        self.options, self.engines, self.vocabulary, self.found = options, engines, vocabulary, {}

    def engine(self, policy):
        return self.engines["fixed" if policy == "fixed" else "adaptive"]

    def run(self, mix, policy, load, measure):
        """Runs one load with one policy: calls `measure` with the policy's client, and keeps its result and the share of padding."""

        async def whole():
            client = (Padded if policy == "padded" else Alone)(self.engine(policy).port)
            try:
                return await measure(client)
            finally:
                await client.close()

        before = self.engine(policy).tokens()
        result = asyncio.run(whole())
        executed, useful = self.engine(policy).tokens() - before
        self.found.setdefault((mix, policy, load), []).append((result, float(1 - useful / executed)))
        return result

    def sequences(self, mix, round_, n=4096):
        rng = np.random.default_rng((round_, list(MIXES).index(mix)))
        return [sequence(rng, int(length), self.vocabulary) for length in MIXES[mix](rng, n, self.options.longest)]

    def same_answers(self, reference):
        """Raises unless the answers of every policy agree with ONNX Runtime's."""
        for mix in MIXES:
            asked = self.sequences(mix, 0, 16)
            wanted = [reference(fixtures.padded([ids]))[OUTPUT] for ids in asked]
            for policy in POLICIES:

                async def ask(client):
                    return await asyncio.gather(*(client.ask(ids) for ids in asked))

                for ids, body, r in zip(asked, self.run(mix, policy, "check", ask), wanted):
                    got = {OUTPUT: np.frombuffer(body, np.float32).reshape(1, -1)}
                    reference.check(fixtures.padded([ids]), got, f"{mix} {policy}", {OUTPUT: r})

    def measure(self, mix):
        options = self.options
        for round_ in range(options.rounds):
            for policy in POLICIES:
                sequences = self.sequences(mix, round_)
                self.run(mix, policy, "saturated", lambda client: saturated(client, sequences, options.seconds))
            self.say(mix, "saturated", round_)
        rate = options.share * min(statistics.median(r for (r, _), _ in self.found[mix, policy, "saturated"]) for policy in POLICIES)
        for round_ in range(options.rounds):
            rng = np.random.default_rng((round_, 99))
            due = np.cumsum(rng.exponential(1 / rate, int(rate * options.seconds * 2)))
            for policy in POLICIES:
                sequences = self.sequences(mix, 1000 + round_)
                self.run(mix, policy, "arriving", lambda client: arriving(client, sequences, due))
            self.say(mix, "arriving", round_)
        return rate

    def say(self, mix, load, round_):
        print(f"{mix}, {load}: round {round_ + 1} of {self.options.rounds}", file=sys.stderr, flush=True)

    # --- results

    def rates(self, mix, policy):
        return [rate for (rate, _), _ in self.found[mix, policy, "saturated"]]

    def waste(self, mix, policy, load):
        # rounding may make a share slightly negative
        return max(0.0, statistics.median(waste for _, waste in self.found[mix, policy, load]))

    def tails(self, mix, policy):
        """(p50, p99) in milliseconds of each round."""
        return [[1000 * quantile(took, q) for took, _ in self.found[mix, policy, "arriving"]] for q in (0.5, 0.99)]

    def row(self, mix, policy):
        p50, p99 = self.tails(mix, policy)
        pooled = [t for took, _ in self.found[mix, policy, "arriving"] for t in took]
        cells = [policy, f"{statistics.median(self.rates(mix, policy)):.1f}", spread(ratio(self.rates(mix, policy), self.rates(mix, "padded")))]
        cells.append(f"{self.waste(mix, policy, 'saturated'):.1%}")
        cells += [f"{statistics.median(p50):.1f}", f"{statistics.median(p99):.1f}", f"{1000 * quantile(pooled, 0.99):.1f}"]
        cells += [spread(ratio(p99, self.tails(mix, "padded")[1])), f"{self.waste(mix, policy, 'arriving'):.1%}"]
        return cells

    def verdicts(self, mix):
        out = []
        for load in ("saturated", "arriving"):
            waste = self.waste(mix, "adaptive", load)
            out.append((f"{mix}, {load}: padding of the adaptive policy", f"{waste:.1%}", f"< {WASTE:.0%}", bool(waste < WASTE)))
        for other in ("fixed", "padded"):
            ratios = ratio(self.rates(mix, "adaptive"), self.rates(mix, other))
            low = 1 - NOISE
            out.append(timed(f"{mix}: rows/s of {other}", spread(ratios), f"≥ {low} (1 less the noise)", statistics.median(ratios) >= low))
        return out


def ratio(mine, theirs):
    return [a / b for a, b in zip(mine, theirs)]


def spread(ratios):
    return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}]"


def main(options):
    options.longest = LONG
    mixes = options.mixes or list(MIXES)
    if unknown := set(mixes) - set(MIXES):
        raise SystemExit(f"batching.py: unknown mix {unknown.pop()}: there are {', '.join(MIXES)}")
    if options.quick:
        options.rounds, options.seconds, options.longest = 2, 1, 96
    os.sched_setaffinity(0, {LOAD_CORE})
    verdicts, figures = [], {}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "minilm.onnx"
        fixtures.small_encoder(path) if options.quick else fixtures.minilm(path)
        fixed = ["--policy", f"fixed:{MOST_CALLS}", "--max-wait", f"{round(MOST_WAIT_S * 1000)}ms"]
        with Engine(options.lapwing, path) as adaptive, Engine(options.lapwing, path, *fixed) as other:
            adaptive.wait_ready()
            other.wait_ready()
            bench = Bench(options, {"adaptive": adaptive, "fixed": other}, 1000 if options.quick else 20000)
            bench.same_answers(Reference(path))
            print(f"{options.rounds} alternating rounds, one thread on one core; {machine()['cpu']}\n")
            for mix in mixes:
                rate = bench.measure(mix)
                print(f"Lengths {mix}; arrivals at {rate:.1f} rows/s ({options.share:.0%} of the slowest policy's capacity)\n")
                rows = [bench.row(mix, policy) for policy in POLICIES]
                print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER))
                print("\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n", flush=True)
                verdicts += bench.verdicts(mix)
                by_policy = {p: {"rows_per_s": bench.rates(mix, p), "p50_p99_ms": bench.tails(mix, p)} for p in POLICIES}
                figures[mix] = {"rate": rate, "rows": rows, "rounds": by_policy}
    return finish(options, figures, verdicts)


if __name__ == "__main__":
    sys.exit(main(OPTIONS))
