#!/usr/bin/env python3
"""Compares the reference engine with ONNX Runtime, each with one thread on one core, in alternating rounds.

For each case (a model, a batch, a length) and each round, `lapwing engine bench` runs for some seconds, then ONNX Runtime with all
optimisations for the same time, then rten. The ratio of a round is that of the two medians; the table has the median of the ratios,
with the least and the greatest. Before anything is timed, both run the same batch, the engine through `lapwing engine serve`, and
their answers must agree. int8 is compared with the engine's fp32 and with ONNX Runtime's quantize_dynamic. Then the engine is started
repeatedly, to measure the time until it is ready, and the first request after that in relation to the later ones.

usage: .venv/bin/python benches/engine.py [--lapwing PATH] [--rounds N] [--seconds S] [--core N] [--quick] [--json FILE] [CASE ...]
CASE is the beginning of a case's name (`mlp`, `minilm-32x32`, `int8`, `magika`, `cold`); the default is all. Needs the packages of
tests/requirements.txt and tests/requirements-models.txt (tests/run installs them into .venv). Prints Markdown. Exit code 1 if
a count misses its bound, 3 if only a time does.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from parts import ROOT, Child, arguments, finish, free_port, machine, timed


def command_line():
    """Parses the options, before the imports below, so that --help needs only the standard library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--rounds", type=int, default=7, help="(default: 7)")
    parser.add_argument("--seconds", type=float, default=2, help="seconds for each side of a round, with at least five forwards (default: 2)")
    parser.add_argument("--core", type=int, default=1, help="the core on which everything runs (default: 1)")
    parser.add_argument("--starts", type=int, default=10, help="cold starts (default: 10)")
    parser.add_argument("--after", type=int, default=50, help="requests after the first one of each start (default: 50)")
    parser.add_argument("--no-rten", action="store_true", help="do not measure rten")
    parser.add_argument("--quick", action="store_true", help="a small encoder instead of MiniLM, and 2 rounds: only to try the script, not for figures")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    return parser.parse_args()


OPTIONS = command_line() if __name__ == "__main__" else None

import numpy as np  # noqa: E402

sys.path.insert(0, str(ROOT / "tests/real"))
from engine import fixtures  # noqa: E402
from engine.reference import cosines, over, session  # noqa: E402
from engine.served import Rest  # noqa: E402

LEAST_FORWARDS = 5
FIRST_OF_MEDIAN, OWN_SPEED_UP, OF_THEIR_INT8, COSINE = 1.5, 1.8, 1.25, 0.98
AVX2_BOUND = 1.25
HEADER = ["model", "shape", "executor", "precision", "engine p50", "ONNX Runtime p50", "ratio [min–max]", "ratio to rten"]
HEADER += ["GFLOP/s", "utilisation (bound)"]


@dataclass(frozen=True)
class Case:
    """A case to time. On AVX-512, the engine may take at most `bound` times ONNX Runtime's time; `None` means no bound."""

    name: str
    model: str
    batch: int
    length: int | None = None
    bound: float | None = None
    precision: str = "fp32"


CASES = [
    Case("mlp-1", "mlp", 1, bound=1.0),
    Case("mlp-32", "mlp", 32, bound=1.0),
    Case("minilm-1x16", "minilm", 1, 16),
    Case("minilm-1x64", "minilm", 1, 64, bound=1.10),
    Case("minilm-32x32", "minilm", 32, 32, bound=1.0),
    Case("minilm-32x128", "minilm", 32, 128),
    Case("magika-1", "magika", 1),
    Case("int8-minilm-32x32", "minilm", 32, 32, bound=OF_THEIR_INT8, precision="int8"),
]


class Models:
    """The model files, ONNX Runtime's sessions, and the inputs."""

    def __init__(self, folder, quick):
        self.quick = quick
        self.paths = {"mlp": fixtures.mlp(folder / "mlp.onnx"), "magika": fixtures.magika()}
        self.paths["minilm"] = fixtures.small_encoder(folder / "minilm.onnx") if quick else fixtures.minilm(folder / "minilm.onnx")
        self.sessions = {}

    def session(self, case):
        """ONNX Runtime's session for a case, with all optimisations and one thread."""
        key = case.model, case.precision
        if key not in self.sessions:
            path = self.paths[case.model]
            if case.precision == "int8":
                from onnxruntime.quantization import QuantType, quantize_dynamic

                path = path.with_suffix(".int8.onnx")
                quantize_dynamic(self.paths[case.model], path, weight_type=QuantType.QInt8)
            self.sessions[key] = session(path, threads=1, optimised=True)
        return self.sessions[key]

    def feeds(self, case):
        """The input of a case, the same in all rounds: random ids or numbers, nothing masked."""
        rng, out = np.random.default_rng(1), {}
        for port in self.session(case).get_inputs():
            shape = (case.batch, case.length) if case.length else (case.batch, port.shape[1])
            if port.name == "attention_mask":
                out[port.name] = np.ones(shape, np.int64)
            elif port.name == "token_type_ids":
                out[port.name] = np.zeros(shape, np.int64)
            elif port.type == "tensor(float)":
                out[port.name] = rng.standard_normal(shape).astype(np.float32)
            elif case.model == "magika":
                out[port.name] = rng.integers(0, 257, shape).astype(np.int32)
            else:
                out[port.name] = rng.integers(0, 1000 if self.quick else 20000, shape)
        return out


# === the three engines ===


def bench(options, path, case, executor="auto"):
    """The object that `lapwing engine bench` prints for the case, and the list of all its objects."""
    command = [options.lapwing, "engine", "bench", path, "--batch", case.batch, "--threads", 1, "--seconds", options.seconds]
    command += ["--length", case.length] if case.length else []
    command += ["--precision", case.precision] if case.precision != "fp32" else []
    command += ["--executor", executor] if executor != "auto" else []
    command += ["--device", "cpu", "--cpus", options.core, "--json"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stderr[-2000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    (one,) = [line for line in lines if line.get("case", "forward") == "forward" and line.get("batch") == case.batch]
    return one, lines


def onnx_runtime(options, ort_session, feeds):
    """The median in microseconds, over `options.seconds`."""
    took, names = [], [o.name for o in ort_session.get_outputs()]
    ort_session.run(names, feeds)
    end = time.perf_counter() + options.seconds
    while len(took) < LEAST_FORWARDS or time.perf_counter() < end:
        start = time.perf_counter()
        ort_session.run(names, feeds)
        took.append(1e6 * (time.perf_counter() - start))
    return statistics.median(took)


@contextlib.contextmanager
def served(options, models, *args):
    """Starts `lapwing engine serve` with models by name; yields the child, its port and its start time once it is ready."""
    port = free_port()
    command = [options.lapwing, "engine", "serve", "--listen", f"127.0.0.1:{port}", "--threads", 1, "--cpus", options.core, *args]
    for name, path in models.items():
        command += ["--model", f"{name}={path}"]
    begun = time.perf_counter()
    with Child(command, port) as child:
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5) as response:
                if response.status == 200:
                    break
            if child.process.poll() is not None:
                child.log.seek(0)
                raise SystemExit(f"the engine ended early with {child.process.returncode}\n{child.log.read()[-4000:]}")
            time.sleep(0.002)
        yield child, port, begun


def same_answers(options, models, cases):
    """Raises unless the engine's answers agree with ONNX Runtime's. Returns the least cosines of int8 cases: the engine's and ONNX Runtime's."""
    least = {}
    for precision in sorted({case.precision for case in cases}):
        mine = [case for case in cases if case.precision == precision]
        paths = {case.model: models.paths[case.model] for case in mine}
        with served(options, paths, "--precision", precision) as (_, port, _), Rest(port) as rest:
            for case in mine:
                feeds, ort_session = models.feeds(case), models.session(case)
                reply = rest.infer(case.model, feeds)
                if reply.status != 200:
                    raise SystemExit(f"{case.name}: {reply.status} {reply.error}")
                wanted = dict(zip(reply.outputs, session(models.paths[case.model]).run(list(reply.outputs), feeds)))
                for name, r in wanted.items():
                    y = reply.outputs[name]
                    if not np.isfinite(y).all() or y.shape != r.shape:
                        raise SystemExit(f"{case.name}: {name}: the shape is {y.shape}, not {r.shape}, or a number is not finite")
                    if precision == "fp32" and (worst := over(y, r).max()) > 1:
                        raise SystemExit(f"{case.name}: {name}: the deviation from ONNX Runtime is {worst:.2f} times the allowed one")
                    if precision == "int8":
                        theirs = dict(zip(reply.outputs, ort_session.run(list(reply.outputs), feeds)))[name]
                        least[case.name, name] = cosines(y, r).min(), cosines(theirs, r).min()
    return least


# === rounds ===


class Timed:
    """The times of a case in all rounds, in microseconds."""

    def __init__(self, case):
        self.case, self.mine, self.theirs, self.rten, self.own, self.said = case, [], [], [], [], {}

    def round(self, options, models):
        case, path = self.case, models.paths[self.case.model]
        self.said, lines = bench(options, path, case)
        self.peaks = next((line for line in lines if line.get("case") == "peaks"), {})
        self.mine.append(self.said["p50_us"])
        self.theirs.append(onnx_runtime(options, models.session(case), models.feeds(case)))
        if case.precision == "int8":
            whole = Case(case.name, case.model, case.batch, case.length)
            self.own.append(bench(options, path, whole)[0]["p50_us"])
        elif self.said["executor"] == "plan" and not options.no_rten:
            self.rten.append(bench(options, path, case, "rten")[0]["p50_us"])

    def ratios(self, other):
        return [a / b for a, b in zip(self.mine, other)]

    def figures(self):
        times = {"mine_us": self.mine, "onnxruntime_us": self.theirs, "rten_us": self.rten, "own_fp32_us": self.own}
        return {"case": self.case.name, **times, "said": self.said, "peaks": self.peaks}

    def row(self):
        said, case = self.said, self.case
        shape = f"{case.batch}×{case.length}" if case.length else str(case.batch)
        cells = [case.model, shape, said["executor"], said["precision"], us(self.mine), us(self.theirs), spread(self.ratios(self.theirs))]
        cells.append(spread(self.ratios(self.rten)) if self.rten else "")
        cells.append("" if said.get("flops_per_s") is None else f"{said['flops_per_s'] / 1e9:.1f}")
        cells.append("" if said.get("utilisation") is None else f"{said['utilisation']:.2f} ({said['bound']})")
        return cells

    def verdicts(self):
        case, out = self.case, []
        ratio = statistics.median(self.ratios(self.theirs))
        is_wide = any("avx512f" in str(flag).lower() for flag in flags(self.said))
        bound = case.bound if is_wide or case.bound is None else max(case.bound, AVX2_BOUND)
        if bound is not None:
            out.append(timed(f"{case.name}: time ÷ ONNX Runtime's", f"{ratio:.3f}", f"≤ {bound}", ratio <= bound))
        if self.own:
            own = [b / a for a, b in zip(self.mine, self.own)]
            holds = statistics.median(own) >= OWN_SPEED_UP
            out.append(timed(f"{case.name}: speed-up over own fp32", spread(own), f"≥ {OWN_SPEED_UP}", holds))
        return out


def us(values):
    median = statistics.median(values)
    return f"{median:.0f} µs" if median < 10_000 else f"{median / 1000:.1f} ms"


def spread(ratios):
    return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}]"


def flags(said):
    found = said.get("cpu_flags") or []
    return found.split() if isinstance(found, str) else found


def markdown(header, rows):
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print(flush=True)


# === cold start ===


def cold(options, models):
    """Cold starts: the time until ready, and the first request after that in relation to the median of the later ones."""
    case = Case("cold", "minilm", 1, 64)
    feeds, out = models.feeds(case), []
    for _ in range(options.starts):
        with served(options, {"minilm": models.paths["minilm"]}) as (_, port, begun), Rest(port) as rest:
            ready, took = time.perf_counter() - begun, []
            for _ in range(options.after + 1):
                start = time.perf_counter()
                if rest.infer("minilm", feeds, outputs=["sentence_embedding"]).status != 200:
                    raise SystemExit("a request failed")
                took.append(time.perf_counter() - start)
        begun = time.perf_counter()
        theirs = session(models.paths["minilm"], threads=1, optimised=True)
        theirs.run(["sentence_embedding"], feeds)
        other = time.perf_counter() - begun
        out.append((ready, took[0], statistics.median(took[1:]), other))
    ratios = [first / later for _, first, later, _ in out]
    columns = [[1000 * x for x in column] for column in zip(*out)]
    cells = [f"{statistics.median(c):.1f} [{min(c):.1f}–{max(c):.1f}]" for c in columns]
    print(f"Cold start, MiniLM, {options.starts} starts, ms: median [least–greatest]\n")
    header = ["process start to ready", "first request after", "median of later ones", "first / later", "ONNX Runtime: session and first run"]
    markdown(header, [[*cells[:3], spread(ratios), cells[3]]])
    ratio = statistics.median(ratios)
    verdict = timed("first request after ready ÷ the median", spread(ratios), f"≤ {FIRST_OF_MEDIAN}", ratio <= FIRST_OF_MEDIAN)
    return {"starts": out}, [verdict]


def main(options):
    if options.quick:
        options.rounds, options.seconds, options.starts, options.after = 2, 0.2, 2, 10
    is_wanted = lambda name: not options.cases or any(name.startswith(c) for c in options.cases)  # noqa: E731
    cases = [case for case in CASES if is_wanted(case.name)]
    os.sched_setaffinity(0, {options.core})
    figures, verdicts = {"cases": []}, []
    with tempfile.TemporaryDirectory() as folder:
        models = Models(pathlib.Path(folder), options.quick)
        least = same_answers(options, models, cases)
        runs = [Timed(case) for case in cases]
        for round_ in range(options.rounds):
            print(f"round {round_ + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for one in runs:
                one.round(options, models)
        if runs:
            cpu = f"{machine()['cpu']}; {' '.join(map(str, flags(runs[0].said)))}"
            print(f"One thread on one core, {options.rounds} alternating rounds of {options.seconds} s; {cpu}\n")
            markdown(HEADER, [one.row() for one in runs])
        for one in runs:
            verdicts += one.verdicts()
            figures["cases"].append(one.figures())
        for (case, name), (mine, theirs) in least.items():
            bound, holds = f"≥ {COSINE} and ONNX Runtime's {theirs:.5f}", bool(mine >= max(COSINE, theirs))
            verdicts.append((f"{case}: least cosine of {name}'s rows", f"{mine:.5f}", bound, holds))
        if is_wanted("cold"):
            starts, more = cold(options, models)
            figures, verdicts = {**figures, **starts}, verdicts + more
    return finish(options, figures, verdicts)


if __name__ == "__main__":
    sys.exit(main(OPTIONS))
