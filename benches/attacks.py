#!/usr/bin/env python3
"""Attacks, before and after: what each fault that was once found costs now. Each attack has a fresh process; what it cost before is quoted.

For each: the most memory that was resident above what was at rest, the processor time of the data plane's threads and of all others (the
control plane's; of an engine, all), for each input that was sent, and how long `/livez` took at worst. An input of at most 1 MB may take 64 MiB,
100 ms of the control plane and 10 ms of the data plane; where an attack is larger than that, its bound is in its row.

usage: .venv/bin/python benches/attacks.py [--lapwing PATH] [--only TEXT] [--names N] [--markdown] [--json FILE]
Needs the packages of tests/requirements.txt. Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import contextlib
import dataclasses
import http.client
import pathlib
import resource
import subprocess
import sys
import tempfile
import threading
import time

from parts import ROOT, arguments, finish, machine, resident, table, timed

sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("hostile", "faults")]

MEMORY_MIB, CONTROL_MS, DATA_MS = 64, 100, 10
QUIET_S, PATIENCE_S = 0.4, 60
ATTACKS = []


@dataclasses.dataclass
class Attack:
    """One attack: `act` attacks what `start` began, and returns what it saw and whether that is as it must be."""

    name: str
    before: str
    act: object
    start: object
    mib: float = MEMORY_MIB
    control_ms: float = CONTROL_MS
    data_ms: float = DATA_MS
    inputs: int = 1
    "How many inputs it sends; processor time is for each."


def attack(name, before, start, **bounds):
    def add(act):
        ATTACKS.append(Attack(name, before, act, start, **bounds))
        return act

    return add


# === what is measured


class Cost:
    """What a process takes while the context is entered, and until it is quiet after that."""

    def __init__(self, pid, livez=None):
        self.proc, self.livez, self.worst_s = pathlib.Path("/proc", str(pid)), livez, 0.0

    def __enter__(self):
        (self.proc / "clear_refs").write_text("5")  # the peak starts here
        self.rest_kib, self.began, self.over = self.kib("VmRSS"), self.processor(), threading.Event()
        self.thread = threading.Thread(target=self.ask, daemon=True)
        if self.livez:
            self.thread.start()
        return self

    def __exit__(self, *_):
        quiet_since, last = time.monotonic(), self.processor()
        end = quiet_since + PATIENCE_S
        while time.monotonic() - quiet_since < QUIET_S and time.monotonic() < end:
            time.sleep(0.05)
            now = self.processor()
            if sum(now.values()) - sum(last.values()) > 0.01:
                quiet_since, last = time.monotonic(), now
        self.over.set()
        if self.livez:
            self.thread.join()
        self.mib = (self.kib("VmHWM") - self.rest_kib) / 1024
        spent = {name: s - self.began.get(name, 0) for name, s in self.processor().items()}
        self.data_s = sum(s for name, s in spent.items() if "data" in name)
        self.control_s = sum(spent.values()) - self.data_s

    def kib(self, name):
        return next(int(line.split()[1]) for line in (self.proc / "status").read_text().splitlines() if line.startswith(name + ":"))

    def processor(self):
        """Seconds on a processor by the names of threads; those that ended are lost."""
        spent = {}
        for task in (self.proc / "task").iterdir():
            with contextlib.suppress(OSError):
                name = (task / "comm").read_text().strip()
                spent[name] = spent.get(name, 0) + int((task / "schedstat").read_text().split()[0]) / 1e9
        return spent

    def ask(self):
        while not self.over.wait(0.1):
            began = time.monotonic()
            with contextlib.suppress(OSError):
                self.livez()
            self.worst_s = max(self.worst_s, time.monotonic() - began)


class Ended:
    """What a process took that has ended: that of a command which loads a model, with the process that tries it."""

    def __init__(self, command):
        before, peaks = resource.getrusage(resource.RUSAGE_CHILDREN), {}
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=out, env={})
            while process.poll() is None:
                for pid in [process.pid, *children(process.pid)]:  # what wait4 says begins with the memory of this process
                    with contextlib.suppress(OSError, StopIteration):
                        status = pathlib.Path("/proc", str(pid), "status").read_text().splitlines()
                        peaks[pid] = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
                time.sleep(0.001)
            out.seek(0)
            self.text = out.read().decode(errors="replace")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.code, self.mib, self.worst_s, self.data_s = process.returncode, sum(peaks.values()) / 1024, 0, 0
        self.control_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def children(pid):
    """The processes that a process has started and not yet waited for."""
    with contextlib.suppress(OSError):
        return [int(child) for task in pathlib.Path("/proc", str(pid), "task").iterdir() for child in (task / "children").read_text().split()]
    return []


def run(one, options):
    """The attack's cost, what it saw and whether that holds."""
    with one.start(options) as target:
        if isinstance(target, Models):
            seen, holds, cost = one.act(target)
        else:
            with Cost(target.process.pid, livez=getattr(target, "livez", None)) as cost:
                seen, holds = one.act(target)
        return cost, seen, holds


def number(value):
    """Two digits that matter, without an exponent."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}" if value >= 0.01 else "<0.01" if value else "0"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--only", default="", help="attacks whose name has this text")
    parser.add_argument("--names", type=int, default=100_000, help="distinct names of the attack by names (default: %(default)s)")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    options = parser.parse_args()
    import attacks_h2, attacks_sent  # noqa: E401, F401  which add them to ATTACKS

    rows, verdicts, figures = [], [], []
    for one in ATTACKS:
        if options.only not in one.name:
            continue
        try:
            cost, seen, holds = run(one, options)
        except AssertionError as error:
            if "unknown key" not in str(error):
                raise
            print(f"skip  {one.name}: this Lapwing lacks a setting: {str(error).splitlines()[-1].strip()}", flush=True)
            verdicts.append((one.name, "not measured", "held off", None))
            continue
        inputs = one.inputs or options.names
        control_ms, data_ms = cost.control_s * 1e3 / inputs, cost.data_s * 1e3 / inputs
        fits, in_time = cost.mib <= one.mib, control_ms <= one.control_ms and data_ms <= one.data_ms
        rows.append([one.name, one.before, f"{cost.mib:.1f}", number(control_ms), number(data_ms), number(cost.worst_s * 1e3), seen])
        measured = f"{cost.mib:.1f} MiB, {number(control_ms)} ms control, {number(data_ms)} ms data, {seen}"
        verdicts.append((one.name, seen, "held off", holds))
        verdicts.append(resident(f"{one.name}, memory", f"{cost.mib:.1f} MiB", f"{one.mib} MiB", fits))
        verdicts.append(timed(f"{one.name}, an input", measured, f"{one.control_ms} ms, {one.data_ms} ms", in_time))
        figures.append({"attack": one.name, "before": one.before, "inputs": inputs, "mib": cost.mib, "control_s": cost.control_s, "data_s": cost.data_s,
                        "livez_worst_s": cost.worst_s, "seen": seen})  # fmt: skip
        print(f"{'ok  ' if fits and in_time and holds else 'MISS'}  {one.name}: {measured}", flush=True)
    header = ["attack", "before", "MiB", "control, ms", "data, ms", "/livez, ms", "now"]
    print()
    if options.markdown:
        print("\n".join("| " + " | ".join(map(str, row)) + " |" for row in [header, ["---"] * len(header), *rows]), end="\n\n")
    else:
        table(header, rows)
    print(machine())
    return finish(options, {"attacks": figures}, verdicts)


# === what is attacked


class Models:
    """Models to be loaded by a command."""

    def __init__(self, options):
        self.binary = options.lapwing

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def inspect(self, *model):
        """What it takes to load this model and to say what it is."""
        from crafted import model as write

        return Ended([self.binary, "engine", "inspect", write(pathlib.Path(self.folder.name, "model.onnx"), *model)])


@contextlib.contextmanager
def engine(options):
    """An engine with the digits."""
    import engine as hostile
    import sidecar

    sidecar.BINARY = options.lapwing
    with tempfile.TemporaryDirectory() as folder, hostile.Engine(folder) as started:
        yield started.wait_ready()


def proxy(*scripts, prepare=None, **settings):
    """What starts a Lapwing, with its OTLP receivers, before an upstream whose connections follow these scripts; `prepare` is no attack yet."""

    @contextlib.contextmanager
    def start(options):
        import sidecar
        from fake import Upstream

        sidecar.BINARY = options.lapwing
        with Upstream(*scripts * 64) as up, sidecar.Sidecar(up.url, otlp=True, grace="300ms", **settings) as started:
            started.up, started.names, started.livez = up, options.names, lambda: started.get("/livez")
            for path in ("/metrics", "/stats", "/exchanges"):
                started.get(path)  # what is made at the first look is there
            started.get_path("/warm")
            if prepare:
                prepare(started)
            time.sleep(0.7)
            yield started

    return start


def post(port, body, kind, path="/v1/traces", timeout=60, **headers):
    """The status of an answer, and its body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", path, body, {"content-type": kind} | {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


if __name__ == "__main__":
    sys.modules["attacks"] = sys.modules["__main__"]
    raise SystemExit(main())
