"""Shared by the benchmarks: Lapwing as a child process, its statistics, the memory of a process, tables on the terminal.

Measures no times. Uses only the standard library.
"""

import contextlib
import http.client
import json
import math
import os
import pathlib
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
MIB = 1 << 20

sys.path.append(str(ROOT / "tests"))
from ports import free_port  # noqa: E402, F401


def arguments(parser):
    """Adds the options that every benchmark has."""
    parser.add_argument("--lapwing", default=str(ROOT / "target/dist/lapwing"), help="the binary (default: target/dist/lapwing)")
    parser.add_argument("--json", metavar="FILE", help="write the raw figures there")


def wait_listening(port, process=None, seconds=20):
    """Returns once the port accepts connections; raises if the process ends or the time is over."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        if process and process.poll() is not None:
            raise SystemExit(f"{process.args[0]} ended early with {process.returncode}")
        if time.monotonic() > end:
            raise SystemExit(f"nothing listens on port {port} after {seconds} s")
        time.sleep(0.02)


class Child:
    """A process that runs while its context is entered. Its output goes to a file, which is shown if it ends early."""

    def __init__(self, command, port, core=None):
        self.command, self.port = [str(c) for c in command], port
        if core is not None:
            self.command = ["taskset", "-c", str(core), *self.command]

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            raise SystemExit(f"port {self.port} is taken")
        try:
            # settings in the user's environment must not affect the figures
            env = {name: value for name, value in os.environ.items() if not name.startswith("LAPWING_")}
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=env)
        except OSError as e:
            raise SystemExit(f"cannot start {self.command[0]}: {e}") from None
        self.pid = self.process.pid
        try:
            wait_listening(self.port, self.process)
        except SystemExit as e:
            self.__exit__()
            self.log.seek(0)
            raise SystemExit(f"{e}\n{self.log.read()[-4000:]}") from None
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def rss_mib(self, kind="VmRSS"):
        """Resident memory of the process now: all of it, or `RssAnon`, its own pages without those of files."""
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(kind + ":")) / 1024


class Lapwing(Child):
    """Lapwing with all profiling on and free ports, in front of an upstream or, if its port is None, of those that `config` names, the
    text of a YAML file."""

    def __init__(self, binary, upstream_port, port=None, core=None, config=None, scheme="http"):
        if not os.access(binary, os.X_OK):
            raise SystemExit(f"no binary at {binary}: run cargo build --profile dist, or name one by --lapwing PATH")
        self.admin, self.otlp_grpc, self.otlp_http = free_port(), free_port(), free_port()
        port = port or free_port()
        command = [binary, "--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{self.admin}"]
        command += ["--upstream", f"{scheme}://127.0.0.1:{upstream_port}"] if upstream_port else []
        command += ["--otlp-grpc", f"127.0.0.1:{self.otlp_grpc}", "--otlp-http", f"127.0.0.1:{self.otlp_http}"]
        if config:
            self.config = tempfile.NamedTemporaryFile("w", suffix=".yaml")
            self.config.write(config)
            self.config.flush()
            command += ["--config", self.config.name]
        super().__init__(command, port, core)

    def get(self, path):
        """The decoded answer of the admin server."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        try:
            connection.request("GET", path, headers={"accept": "application/json"})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {body[:300]!r}")
        return json.loads(body)

    def series(self, part_of_route=""):
        """The statistics since the start, of all series whose route contains the text."""
        return [s for s in self.get("/stats?window=all")["series"] if part_of_route in s["route"]]

    def await_count(self, n, part_of_route="", seconds=30):
        """Waits until `n` requests are counted or the time is over, and returns their count. Requests may be waiting for spans."""
        end = time.monotonic() + seconds
        while True:
            counted = sum(sum(s["outcomes"].values()) for s in self.series(part_of_route))
            if counted >= n or time.monotonic() > end:
                return counted
            time.sleep(0.25)

    def exchanges(self, limit):
        """The latest waterfalls."""
        return self.get(f"/exchanges?order=recent&limit={limit}")["exchanges"]


class Sampler:
    """While its context is entered, a thread calls `read` every `every_s` seconds; `peak` is the greatest result."""

    def __init__(self, read, every_s=0.02):
        self.read, self.every_s, self.peak, self.samples = read, every_s, 0, []

    def __enter__(self):
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def _run(self):
        while True:
            with contextlib.suppress(OSError, StopIteration):
                self.samples.append(self.read())
            if self.over.wait(self.every_s):
                return

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.peak = max(self.samples, default=0)


def quantile(values, q):
    """The smallest value that at least the share `q` of all values does not exceed, as HdrHistogram defines it."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def table(header, rows):
    """Prints columns: the first aligned to the left, the others to the right."""
    rows = [[str(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip())
    print(flush=True)


def machine():
    """The machine on which the figures were taken, and the date."""
    model = platform.machine()
    with contextlib.suppress(OSError, StopIteration), open("/proc/cpuinfo") as info:
        model = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    return {"date": time.strftime("%Y-%m-%d"), "cpu": model, "cores": os.cpu_count(), "kernel": platform.release()}


class Measured(tuple):
    """A verdict that a clock or the resident memory decides: another machine, a busy one or another build may miss its bound."""


class Timed(Measured):
    by = "clock"


class Resident(Measured):
    by = "memory"


def timed(what, measured, bound, holds):
    """A verdict that a clock decides. One that is a plain tuple is decided by a count: of requests, instructions, allocations."""
    return Timed((what, measured, bound, holds))


def resident(what, measured, bound, holds):
    """A verdict that resident memory decides."""
    return Resident((what, measured, bound, holds))


MISSED_NO_COUNT = 3
"""The exit code if bounds are missed, and no count decides one of them."""


def finish(options, figures, verdicts):
    """Prints each verdict (what, measured, bound, whether it holds; `None` if it was not measured) and writes the figures.

    Returns the exit code: 1 if a bound is missed that a count decides, else `MISSED_NO_COUNT` if one is missed, else 0.
    """
    verdicts = [(*verdict[:3], verdict[3] if verdict[3] is None else bool(verdict[3]), getattr(verdict, "by", "count")) for verdict in verdicts]
    for what, measured, bound, holds, by in verdicts:
        word = {True: "ok  ", False: "MISS", None: "none"}[holds]
        print(f"{word}  {what}: {measured} (bound: {bound}{f', missed by {by}' if holds is False else ''})")
    missed = [by for *_, holds, by in verdicts if holds is False]
    unmeasured = sum(holds is None for *_, holds, _ in verdicts)
    if missed or unmeasured:
        each = ", ".join(f"{missed.count(by)} missed by {by}" for by in ("count", "clock", "memory"))
        print(f"of {len(verdicts)} bounds, {each}, {unmeasured} not measured")
    if options.json:
        named = [dict(zip(("what", "measured", "bound", "holds", "by"), verdict)) for verdict in verdicts]
        with open(options.json, "w") as out:
            json.dump({"machine": machine(), "command": sys.argv, "verdicts": named, **figures}, out, indent=1)
    return 1 if "count" in missed else MISSED_NO_COUNT if missed else 0
