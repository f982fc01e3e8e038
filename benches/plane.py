#!/usr/bin/env python3
"""What those who look cost requests: instructions of the data plane's thread for each request, with and without scrapes and telemetry.

Lapwing runs under valgrind's callgrind, which counts each thread's instructions exactly. Each run sends --requests requests over one
connection to a fixed upstream, after as many that are not counted: nobody looks; two scrapers ask for /metrics and /stats all the time;
metrics and every trace go to a collector. Who looks does so on other threads, so the data plane's count must be the same, within --bound.

usage: python3 benches/plane.py [--lapwing PATH] [--requests N] [--bound PERCENT] [--json FILE]
Needs valgrind. Exit code 1 if the bound is missed.
"""

import argparse
import contextlib
import http.client
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from counting_collector import CountingCollector
from parts import Child, Lapwing, arguments, finish, free_port, table

from exposition import ACCEPT  # in tests/, which parts adds to the path

UPSTREAM = Path(__file__).with_name("fixed_upstream.py")
SETTINGS = """
attribution: {{expect_spans: never, poll: off}}
telemetry: {{metrics: {on}, metrics_interval: 1s, traces: {on}, traces_share: 100%, endpoint: "http://127.0.0.1:{port}"}}
"""
RUNS = {"nobody looks": (0, "off"), "two scrapers": (2, "off"), "telemetry": (0, "on")}


def under_callgrind(binary, folder, more=""):
    """A program that runs `binary` under callgrind, with `more` options, which writes a file for each thread."""
    script = folder / "lapwing"
    options = f"--tool=callgrind --separate-threads=yes --callgrind-out-file={folder}/out {more}"
    script.write_text(f'#!/bin/sh\nexec valgrind -q {options} {binary} "$@"\n')
    script.chmod(0o755)
    return script


def control(what, pid):
    subprocess.run(["callgrind_control", what, str(pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def thread_number(pid, seconds=60):
    """Which of the threads, in the order of their start, is the data plane's."""
    end, names = time.monotonic() + seconds, {}
    while time.monotonic() < end:
        names = {int(task.name): (task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()}
        planes = [number for number, tid in enumerate(sorted(names), 1) if names[tid].startswith("lapwing-data")]
        if len(planes) == 1:
            return planes[0]
        time.sleep(0.1)
    raise SystemExit(f"not one data plane among the threads {sorted(names.values())}")


def send(connection, requests):
    for _ in range(requests):
        connection.request("POST", "/v2/models/m/infer", b'{"inputs": []}' + b" " * 1010)
        connection.getresponse().read()


def scrape(port, over):
    paths = [("/metrics", ACCEPT), ("/metrics", "application/openmetrics-text"), ("/stats", "application/json")]
    while not over.is_set():
        with contextlib.suppress(OSError, http.client.HTTPException):
            for path, accept in paths:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", path, headers={"accept": accept})
                connection.getresponse().read()
                connection.close()


def counted(binary, upstream_port, requests, scrapers, telemetry, collector_port):
    """Instructions of the data plane for each request."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        config = SETTINGS.format(on=telemetry, port=collector_port)
        with Lapwing(under_callgrind(Path(binary).resolve(), folder), upstream_port, config=config) as lapwing:
            number, over = thread_number(lapwing.pid), threading.Event()
            looking = [threading.Thread(target=scrape, args=(lapwing.admin, over), daemon=True) for _ in range(scrapers)]
            for thread in looking:
                thread.start()
            connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=60)
            send(connection, requests)
            control("--zero", lapwing.pid)
            send(connection, requests)
            control("--dump", lapwing.pid)
            over.set()
            for thread in looking:
                thread.join()
            connection.close()
            totals = {}
            for path in folder.glob("out.*"):
                text = path.read_text()
                thread, total = re.search(r"^thread: (\d+)$", text, re.M), re.search(r"^(?:totals|summary): (\d+)", text, re.M)
                if thread and total and path.name.startswith("out.1"):
                    totals[int(thread[1])] = int(total[1])
            lapwing.process.send_signal(signal.SIGKILL)
    if not totals.get(number):
        raise SystemExit(f"callgrind counted nothing of thread {number}: {totals}")
    return totals[number] / requests


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--requests", type=int, default=1500, help="requests that are counted in each run")
    parser.add_argument("--bound", type=float, default=1.0, help="by how many percent a run may differ from the first")
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        raise SystemExit("valgrind is not installed")

    upstream_port = free_port()
    figures = {}
    with Child([sys.executable, UPSTREAM, upstream_port], upstream_port), CountingCollector() as collector:
        for what, (scrapers, telemetry) in RUNS.items():
            figures[what] = counted(options.lapwing, upstream_port, options.requests, scrapers, telemetry, collector.port)
    alone = figures["nobody looks"]
    table(("who looks", "instructions", "against nobody"), [(what, f"{n:,.0f}", f"{(n / alone - 1) * 100:+.2f} %") for what, n in figures.items()])
    if not collector.sizes:
        raise SystemExit("the collector got nothing")
    bound = f"{options.bound:g} %"
    verdicts = [(what, f"{(n / alone - 1) * 100:+.2f} %", bound, abs(n / alone - 1) * 100 <= options.bound) for what, n in figures.items() if n != alone]
    return finish(options, {"instructions": figures, "requests": options.requests}, verdicts)


if __name__ == "__main__":
    sys.exit(main())
