#!/usr/bin/env python3
"""How late `lapwing replay` sends: each request's time of sending less the time at which it was due, at a fixed rate.

Requests are recorded before an nginx that answers at once, then replayed to one such server (compared with the recorded answers)
and to two, several times each. What is measured is the replay itself, with measuring and comparing on.

usage: python3 benches/replay.py [--lapwing PATH] [--requests N] [--rate R] [--rounds N] [--json FILE]
Needs nginx. Exit code 3, as a clock decides, if the bound is missed: p99 of the lateness, median of the rounds.
"""

import argparse
import http.client
import json
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

from parts import Child, Lapwing, arguments, finish, free_port, table, timed

P99_MS = 2
ANSWER = '{"model_name":"m","outputs":[{"name":"y","shape":[1,2],"datatype":"FP32","data":[0.5,0.25]}]}'
BODY = '{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'
CONFIG = """worker_processes 1; daemon off; pid %(folder)s/%(port)s.pid; error_log %(folder)s/%(port)s.log;
events { worker_connections 1024; }
http { access_log off; keepalive_requests 10000000; client_body_temp_path %(folder)s/b; proxy_temp_path %(folder)s/p;
fastcgi_temp_path %(folder)s/f; uwsgi_temp_path %(folder)s/u; scgi_temp_path %(folder)s/s;
server { listen 127.0.0.1:%(port)s; location / { default_type application/json; return 200 '%(answer)s'; } } }
"""


def server(folder, nginx):
    """An nginx that waits to be entered."""
    port = free_port()
    path = pathlib.Path(folder) / f"{port}.conf"
    path.write_text(CONFIG % {"folder": folder, "port": port, "answer": ANSWER})
    return Child([nginx, "-c", path, "-p", folder], port)


def record(options, port, out):
    """Records so many requests before the server."""
    with Lapwing(options.lapwing, port) as lapwing:
        command = [options.lapwing, "record", "--admin", f"127.0.0.1:{lapwing.admin}", "--out", out, "--sample", "100%"]
        recording = subprocess.Popen([*command, "--for", "5m", "--max-requests", str(options.requests)], stdout=subprocess.DEVNULL)
        while not out.exists():
            time.sleep(0.02)
        connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
        while recording.poll() is None:
            connection.request("POST", "/v2/models/m/infer", BODY, {"content-type": "application/json"})
            connection.getresponse().read()
        if recording.returncode:
            raise SystemExit(f"lapwing record ended with {recording.returncode}")


def replay(options, recording, ports):
    """What one replay to these ports said of its sending."""
    targets = [part for port in ports for part in ("--to", f"to-{port}=http://127.0.0.1:{port}")]
    command = [options.lapwing, "replay", str(recording), *targets, "--rate", str(options.rate), "--json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    lateness = report["sending"]["lateness"]
    if lateness["count"] != options.requests * len(ports):
        raise SystemExit(f"{lateness['count']} of {options.requests * len(ports)} requests were sent")
    return {name: lateness[f"{name}_ns"] / 1e6 for name in ("p50", "p90", "p99", "max")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--requests", type=int, default=10_000, help="how many are recorded (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=500, help="requests a second to each target (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="replays of each kind (default: %(default)s)")
    options = parser.parse_args()
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin") or shutil.which("nginx")
    if not nginx:
        raise SystemExit("nginx is missing: install nginx-light")
    figures, rows, verdicts = {}, [], []
    with tempfile.TemporaryDirectory() as folder, server(folder, nginx) as one, server(folder, nginx) as other:
        recording = pathlib.Path(folder) / "traffic.lwr"
        record(options, one.port, recording)
        kinds = {"1 target": [one.port], "2 targets": [one.port, other.port]}
        for _ in range(options.rounds):
            for kind, ports in kinds.items():
                figures.setdefault(kind, []).append(replay(options, recording, ports))
    for kind, rounds in figures.items():
        middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        rows.append([kind, *(f"{ms:.3f}" for ms in middle.values())])
        bounded = middle["p99"] <= P99_MS
        verdicts.append(timed(f"{kind}, {options.rate:g} requests/s: p99 of the lateness", f"{middle['p99']:.3f} ms", f"{P99_MS} ms", bounded))
    table(["lateness, ms (medians of the rounds)", "p50", "p90", "p99", "max"], rows)
    return finish(options, {"rounds": figures}, verdicts)


if __name__ == "__main__":
    raise SystemExit(main())
