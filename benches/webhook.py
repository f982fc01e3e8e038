#!/usr/bin/env python3
"""How many reviews `lapwing webhook` answers on one processor, and how long one takes: over TLS, with a pod of a model server that gets a patch,
and one that does not ask for Lapwing.

usage: python3 benches/webhook.py [--lapwing PATH] [--seconds N] [--json FILE]
wrk keeps 8 connections (the API server keeps a few); the webhook has processor 0, and wrk another where there is one. Bounds: 1,000 reviews a
second, 99 of 100 within 5 ms.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from parts import Child, arguments, finish, free_port, table, timed

REVIEWS_PER_S, P99_MS = 1000, 5.0
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "ranker-7d4-", "labels": {"app": "ranker"}, "annotations": {"lapwing.dev/inject": "true"}},
    "spec": {
        "containers": [
            {
                "name": "server",
                "image": "vllm/vllm-openai:v0.9.1",
                "args": ["--model", "Qwen/Qwen3-0.6B", "--port", "8000"],
                "env": [{"name": f"SETTING_{at}", "value": "x" * 40} for at in range(40)],
                "ports": [{"name": "http", "containerPort": 8000}],
                "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
                "volumeMounts": [{"name": f"volume-{at}", "mountPath": f"/data/{at}"} for at in range(10)],
            }
        ],
        "volumes": [{"name": f"volume-{at}", "emptyDir": {}} for at in range(10)],
    },
}


def review(pod):
    request = {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "object": pod}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def milliseconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()
    return float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def load(port, body, seconds, folder):
    """(reviews a second, p50 and p99 in ms)."""
    script = folder / "post.lua"
    script.write_text(f"wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nwrk.body = [=[{body}]=]\n")
    command = ["wrk", "-t1", "-c8", f"-d{seconds}s", "--latency", "-s", str(script), f"https://127.0.0.1:{port}/inject"]
    said = subprocess.run(["taskset", "-c", str(os.cpu_count() - 1), *command], capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in said and "Socket errors" not in said, said
    p50, p99 = (milliseconds(re.search(rf"{p}%\s+(\S+)", said)[1]) for p in (50, 99))
    return float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]), p50, p99


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--seconds", type=int, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        certificate = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=webhook"]
        subprocess.run(["openssl", "req", "-x509", *certificate, "-keyout", folder / "key", "-out", folder / "crt"], check=True, capture_output=True)
        port, admin = free_port(), free_port()
        command = [args.lapwing, "webhook", "--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"]
        command += ["--tls-certificate", str(folder / "crt"), "--tls-key", str(folder / "key"), "--log", "error"]
        rows, result, verdicts = [], {}, []
        with Child(command, port, core=0):
            asks = review(POD)
            declines = review({**POD, "metadata": {"generateName": "other-"}})
            for name, body in (("a pod that gets a patch", asks), ("a pod that does not ask", declines)):
                rate, p50, p99 = load(port, body, args.seconds, folder)
                rows.append((name, len(body), f"{rate:,.0f}", f"{p50:.2f}", f"{p99:.2f}"))
                result[name] = {"bytes": len(body), "reviews_per_s": rate, "p50_ms": p50, "p99_ms": p99}
                verdicts.append(timed(f"{name}, reviews/s", f"{rate:,.0f}", f">= {REVIEWS_PER_S:,}", rate >= REVIEWS_PER_S))
                verdicts.append(timed(f"{name}, p99", f"{p99:.2f} ms", f"<= {P99_MS} ms", p99 <= P99_MS))
    table(("review", "bytes", "reviews/s", "p50, ms", "p99, ms"), rows)
    return finish(args, {"reviews": result}, verdicts)


if __name__ == "__main__":
    sys.exit(main())
