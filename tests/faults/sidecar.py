"""Lapwing under test: one process per test, with the address of its upstream. Its counts are read at the end of the test.

The binary is `LAPWING_BIN`, or the newest of target/release and target/debug.
"""

import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

from fake import await_true
from ports import free_port
from wire import connect

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTCOMES = ("ok", "client_error", "server_error", "body_error", "rejected", "shed", "unreachable", "broken", "timed_out", "cancelled")


BINARY = os.environ.get("LAPWING_BIN") or os.environ.get("BINARY_OF_WORKERS")
for name in [n for n in os.environ if n.startswith("LAPWING_")]:
    os.environ.pop(name)  # all others are settings; those of the user's shell must not reach the Lapwing under test
if BINARY:
    os.environ["BINARY_OF_WORKERS"] = BINARY  # pytest-xdist starts its workers after this


def binary():
    """The path of the binary, or None."""
    if BINARY:
        return BINARY if os.access(BINARY, os.X_OK) else None
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    found = [p for p in (target / "release/lapwing", target / "debug/lapwing") if p.exists()]
    return str(max(found, key=lambda p: p.stat().st_mtime)) if found else None


class Sidecar:
    """A running Lapwing. `settings` are those under `proxy:`, except `drain_timeout` and `grace`; values are YAML scalars.

    `metrics` are those under `metrics:`, `hold` those under `hold:`, `attribution` those under `attribution:`, `flags` further flags,
    `sections` whole sections by name. The upstream is an address, or several by name. With `otlp` it listens for spans too, over HTTP and gRPC,
    and requests wait for theirs up to `grace`. `descriptors` is its RLIMIT_NOFILE, or the soft and the hard one: `64:4096`.
    """

    ended_on_purpose = False

    def __init__(self, upstream_url, otlp=False, descriptors=None, **settings):
        self.url, self.otlp, self.descriptors, self.settings = upstream_url, otlp, descriptors, settings

    def __enter__(self):
        for _ in range(5):  # a port that was free may be taken by now, because several suites may run at once
            self._start(dict(self.settings))
            if await_true(lambda: self.process.poll() is not None or self._is_up(), 15) and self.process.poll() is None:
                return self
            text = self.log()
            self.process.kill()
            self.process.wait()
            self.dir.cleanup()
            if "in use" not in text:
                break
        raise AssertionError(f"Lapwing did not start: {text}")

    def _start(self, settings):
        self.port, self.admin = free_port(), free_port()
        self.dir = tempfile.TemporaryDirectory(prefix="lapwing-faults-")
        command = [binary(), *([] if isinstance(self.url, dict) else ["--upstream", self.url]), "--listen", f"127.0.0.1:{self.port}"]
        self.otlp_http, self.otlp_grpc = free_port(), free_port()
        command += ["--admin", f"127.0.0.1:{self.admin}"]
        command += ["--otlp-http", f"127.0.0.1:{self.otlp_http}" if self.otlp else "off"]
        command += ["--otlp-grpc", f"127.0.0.1:{self.otlp_grpc}" if self.otlp else "off"]
        grace, metrics = settings.pop("grace", "6s"), settings.pop("metrics", {})
        attribution, hold = settings.pop("attribution", {}), settings.pop("hold", {})
        if drain := settings.pop("drain_timeout", None):
            command += ["--drain-timeout", drain]
        command += settings.pop("flags", [])
        self.sections = settings.pop("sections", {})
        if isinstance(self.url, dict):
            self.sections["upstreams"] = {name: {"url": url} for name, url in self.url.items()}
        self.path = pathlib.Path(self.dir.name, "lapwing.yaml")
        proxy = "".join(f"  {k}: {v}\n" for k, v in settings.items())
        metrics = "".join(f"  {k}: {v}\n" for k, v in metrics.items())
        hold = "".join(f"  {k}: {v}\n" for k, v in hold.items())
        sections = (("proxy", proxy), ("metrics", metrics), ("hold", hold))
        attribution = "".join(f"  {k}: {v}\n" for k, v in attribution.items())
        self.text = f"attribution:\n  grace: {grace}\n{attribution}" + "".join(f"{name}:\n{rows}" for name, rows in sections if rows)
        self._write()
        command += ["--config", str(self.path)]
        self.log_path = pathlib.Path(self.dir.name, "log")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LAPWING_")}  # they are settings
        with self.log_path.open("w") as log:
            if self.descriptors:
                command = ["prlimit", f"--nofile={self.descriptors}" if ":" in str(self.descriptors) else f"--nofile={self.descriptors}:{self.descriptors}", *command]  # which becomes the command
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def _write(self):
        """The file as a whole: a reader never sees a part of it."""
        new = self.path.with_suffix(".new")
        new.write_text(self.text + "".join(f"{name}: {json.dumps(section)}\n" for name, section in self.sections.items()))
        new.rename(self.path)

    def reload(self, by_signal=True, **sections):
        """Replaces sections of the configuration, until they are in force."""
        before = json.loads(self.get("/config"))["generation"]
        self.sections.update(sections)
        self._write()
        if by_signal:
            self.process.send_signal(signal.SIGHUP)
        assert await_true(lambda: json.loads(self.get("/config"))["generation"] > before, 20), self.log()

    def __exit__(self, *_):
        ended = self.process.poll()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        text = self.log()
        self.dir.cleanup()
        assert ended is None or self.ended_on_purpose, f"Lapwing died ({ended}): {text}"
        assert "panicked" not in text, text

    def log(self):
        return self.log_path.read_text(errors="replace")

    def _is_up(self):
        try:
            self.get("/livez")
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    # === the data plane ===

    def client(self, **options):
        return connect(("127.0.0.1", self.port), **options)

    def ask(self, raw, method=None):
        """Sends one request on its own connection and returns the whole response."""
        raw = raw.encode("latin-1") if isinstance(raw, str) else raw
        with self.client() as client:
            client.send(raw)
            return client.response(method or raw.split(b" ")[0].decode("latin-1"))

    def get_path(self, target, extra=""):
        return self.ask(f"GET {target} HTTP/1.1\r\nHost: m\r\n{extra}\r\n")

    # === the admin surface ===

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()

    def stats(self):
        return json.loads(self.get("/stats?window=all"))

    def outcomes(self):
        """Requests counted so far, by outcome, without zeros."""
        sums = dict.fromkeys(OUTCOMES, 0)
        for series in self.stats()["series"]:
            for name, n in series["outcomes"].items():
                sums[name] += n
        return {name: n for name, n in sums.items() if n}

    def exchanges(self):
        """Recent waterfalls, the latest first."""
        got = json.loads(self.get("/exchanges?order=recent&limit=100"))
        return got["exchanges"] if isinstance(got, dict) else got

    def exchange(self, part_of_route=""):
        """The latest exchange whose route holds the text."""
        found = []
        await_true(lambda: found.extend(e for e in self.exchanges() if part_of_route in e["route"]) or found)
        assert found, f"no exchange of {part_of_route}: {self.exchanges()}"
        return found[0]

    def rss_kib(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    def metric(self, name):
        """A sample of /metrics by its name and labels, as a number."""
        for line in self.get("/metrics").decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise AssertionError(f"no metric {name}")

    # === the checks at the end of every test ===

    def settled(self, quiet=0.15, plain=True, **expected):
        """Checks that each request is counted once with the expected outcome, stages sum to totals, and a plain request is still served."""
        assert await_true(lambda: self.outcomes() == expected), f"counted {self.outcomes()}, expected {expected}"
        time.sleep(quiet)
        assert self.outcomes() == expected, f"counted again: {self.outcomes()}, expected {expected}"
        exchanges = self.exchanges()
        assert exchanges or not expected, f"no exchange of {expected}"
        for e in exchanges:
            assert sum(s["ns"] for s in e["stages"]) == e["total_ns"], f"time is not conserved: {e}"
        if plain:
            answer = self.get_path("/still-alive")
            assert (answer.status, answer.body) == (200, b"ok"), answer
            expected["ok"] = expected.get("ok", 0) + 1
            assert await_true(lambda: self.outcomes() == expected), f"counted {self.outcomes()}, expected {expected}"
