#!/usr/bin/env python3
"""Starts an image's containers by crun, in a network namespace of its own, and asks of them what a pod asks: the proxy, the admin address,
the engine, SIGTERM with a request on its way. Prints a line for each check, and a row of a table for each figure.

usage: smoke.py ROOT IMAGE.json [--executor NAME] [--only-engine] [--rounds N]
ROOT is the image's root file system, IMAGE.json what `buildah inspect --type image` says. As root, with crun. Exit code 1: a check failed.
"""

import argparse
import csv
import http.client
import http.server
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from container import Container, Image, run

TESTS = pathlib.Path(__file__).resolve().parents[1]
DIGITS = TESTS / "fixtures/digits"
MANIFEST = TESTS / "fixtures/manifests/01-vllm-docs-cpu.yaml"
PROXY, ADMIN, ENGINE, UPSTREAM = 8080, 9464, 8081, 8000
REQUESTS = 20
SLOW_S = 1.5
IDLE_S = 5
failures = []


def check(what, is_so, detail=""):
    print(f"{'ok  ' if is_so else 'FAIL'}  {what}{'' if is_so else f': {detail}'}", flush=True)
    if not is_so:
        failures.append(what)


def figure(what, value):
    print(f"| {what} | {value} |", flush=True)


def ask(port, path, body=None):
    """(status, body); (0, reason) if nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST" if body else "GET", path, body, {"content-type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error).encode()
    finally:
        connection.close()


def ready(container, port, path, seconds=30):
    """Milliseconds from the call of crun until the path answers 200."""
    while time.monotonic() - container.began < seconds and container.process.poll() is None:
        if ask(port, path)[0] == 200:
            return (time.monotonic() - container.began) * 1000
        time.sleep(0.001)
    raise SystemExit(f"{path} on port {port} did not become ready:\n{container.output()}")


class ModelServer(http.server.BaseHTTPRequestHandler):
    """Answers what it was sent; on /slow after a while, whose beginning `arrived` tells."""

    protocol_version = "HTTP/1.1"
    arrived = threading.Event()

    def do_GET(self):
        self.answer(b"ready")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/slow":
            self.arrived.set()
            time.sleep(SLOW_S)
        self.answer(body)

    def answer(self, body):
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def contents(image):
    """What is in it, and what is not."""
    programs = {file.name for of in ("bin", "sbin", "local") for file in (image.root / "usr" / of).rglob("*")}
    unwanted = programs & {"sh", "bash", "dash", "busybox", "apt", "apt-get", "dpkg", "perl", "python3", "curl"}
    check("no shell, no package manager", not unwanted, unwanted)
    for needed in ("etc/ssl/certs/ca-certificates.crt", "usr/share/zoneinfo/UTC", "etc/passwd", "var/lib/dpkg/status.d/libgcc-s1"):
        check(f"/{needed} is there", (image.root / needed).exists())
    bundle = (image.root / "etc/ssl/certs/ca-certificates.crt").read_bytes()
    debian = b"".join(file.read_bytes() for file in (image.root / "usr/share/ca-certificates").rglob("*.crt"))
    counted = bundle.count(b"BEGIN CERT"), debian.count(b"BEGIN CERT")
    check("its certificates are Debian's, and none of the machine that built it", counted[0] == counted[1] > 100, counted)


def restricted(container, image):
    """What the kernel says of the process."""
    check("the image's user is 65532:65532", image.config["User"] == "65532:65532", image.config["User"])
    for field in ("Uid", "Gid"):
        check(f"{field} is 65532", container.status(field) == ["65532"] * 4, container.status(field))
    for field, wanted in (("CapEff", "0" * 16), ("CapPrm", "0" * 16), ("CapBnd", "0" * 16), ("NoNewPrivs", "1"), ("Seccomp", "2")):
        check(f"{field} is {wanted}", container.status(field) == [wanted], container.status(field))
    root = next(line.split() for line in container.proc("mountinfo").splitlines() if line.split()[4] == "/")
    check("its root file system is read only", "ro" in root[5].split(","), root)


def observed():
    """What the admin address says of the requests."""
    for path in ("/livez", "/readyz"):
        check(f"{path} is 200", ask(ADMIN, path)[0] == 200)
    deadline = time.monotonic() + 10
    counted = 0
    while counted < REQUESTS and time.monotonic() < deadline:
        lines = ask(ADMIN, "/metrics")[1].decode().splitlines()
        counted = sum(float(line.split()[-1]) for line in lines if line.startswith("lapwing_requests_total{"))
        time.sleep(0.1)
    check(f"/metrics counts {REQUESTS} requests", counted == REQUESTS, counted)
    status, stats = ask(ADMIN, "/stats?window=all")
    check("/stats has their series", status == 200 and len(json.loads(stats)["series"]) == 1, stats[:300])


def drain(container):
    """A request is on its way when SIGTERM comes."""
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask(PROXY, "/slow", b'{"wait": true}')))
    asking.start()
    ModelServer.arrived.wait(10)
    container.signal(signal.SIGTERM)
    told = time.monotonic()
    code = container.wait(20)
    took = time.monotonic() - told
    asking.join(10)
    check("the request that is on its way at SIGTERM is answered", answers == [(200, b'{"wait": true}')], answers)
    check("the container exits with 0", code == 0, f"{code}\n{container.output()}")
    check("after that answer, and soon", SLOW_S * 0.8 < took < SLOW_S + 3, f"{took:.2f} s after SIGTERM")


def proxy(image, folder):
    with Container(image, folder, "--upstream", f"http://127.0.0.1:{UPSTREAM}") as container:
        ready(container, ADMIN, "/readyz")
        restricted(container, image)
        time.sleep(IDLE_S)
        figure("proxy, idle: RSS, MiB", f"{container.mib('VmRSS'):.1f}")
        body = json.dumps({"model": "ranker", "prompt": "image"}).encode()
        answers = [ask(PROXY, "/v1/completions", body) for _ in range(REQUESTS)]
        check(f"{REQUESTS} requests come back as the server answers them", answers == [(200, body)] * REQUESTS, answers[0])
        observed()
        drain(container)


def engine(image, folder, executor):
    """A model answers as its fixture says."""
    rows = list(csv.DictReader((DIGITS / "digits.csv").open()))[:32]
    about = json.loads((DIGITS / "digits.json").read_text())
    normal = list(enumerate(zip(about["mean"], about["scale"], strict=True)))
    pixels = [(float(row[f"p{n}"]) - mean) / scale for row in rows for n, (mean, scale) in normal]
    call = {"inputs": [{"name": "x", "shape": [len(rows), 64], "datatype": "FP32", "data": pixels}]}
    arguments = ["engine", "serve", "--model", "/mnt/digits.onnx", *(["--executor", executor] if executor else [])]
    name = f"`engine serve`, executor {executor or 'plan'}"
    with Container(image, folder, *arguments, binds={"/mnt": DIGITS}) as container:
        figure(f"{name}: from crun to a warm model, ms", f"{ready(container, ENGINE, '/v2/health/ready'):.0f}")
        time.sleep(IDLE_S)
        figure(f"{name}, idle: RSS, MiB", f"{container.mib('VmRSS'):.1f}")
        status, said = ask(ENGINE, "/v2/models/digits")
        by = json.loads(said)["parameters"]["executor"] if status == 200 else said
        check(f"the model's executor is {executor or 'plan'}", by == (executor or "plan"), by)
        status, said = ask(ENGINE, "/v2/models/digits/infer", json.dumps(call))
        logits = json.loads(said)["outputs"][0]["data"] if status == 200 else []
        predicted = [max(range(10), key=logits[at : at + 10].__getitem__) for at in range(0, len(logits), 10)]
        check(f"{len(rows)} digits are predicted as in the fixture", predicted == [int(row["prediction"]) for row in rows], said[:300])
        container.signal(signal.SIGTERM)
        check("the engine exits with 0 after SIGTERM", container.wait(20) == 0, container.output())


def inject(image, folder):
    code, said = run(image, folder, "inject", f"/mnt/{MANIFEST.name}", binds={"/mnt": MANIFEST.parent})
    check("`lapwing inject` puts the sidecar into a manifest", code == 0 and "image: lapwing:" in said and "kind: Deployment" in said, said[:500])


def starts(image, folder, rounds):
    """From crun to /readyz, with the image's files out of the page cache, and in it."""
    for what, is_cold in (("cold: its files are not in the page cache", True), ("warm", False)):
        took = []
        for _ in range(rounds):
            if is_cold:
                image.forget()
            with Container(image, folder, "--upstream", f"http://127.0.0.1:{UPSTREAM}") as container:
                took.append(ready(container, ADMIN, "/readyz"))
        median = statistics.median(took)
        figure(f"proxy, {what}: from crun to `/readyz` 200, ms, median of {rounds}", f"{median:.0f} ({min(took):.0f} to {max(took):.0f})")


def own_namespaces():
    """Goes on in a network namespace and a mount namespace of its own."""
    if os.environ.pop("LAPWING_IMAGE_NAMESPACES", None) is None:
        os.environ["LAPWING_IMAGE_NAMESPACES"] = "own"
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # crun refuses a machine with both versions of cgroups, even where it is to use none
    subprocess.run(["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, usage="smoke.py ROOT IMAGE.json [--executor NAME] [--only-engine] [--rounds N]")
    parser.add_argument("root")
    parser.add_argument("image")
    parser.add_argument("--executor")
    parser.add_argument("--only-engine", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    own_namespaces()
    image = Image(options.root, json.loads(pathlib.Path(options.image).read_text()))
    with tempfile.TemporaryDirectory() as folder:
        engine(image, folder, options.executor)
        if not options.only_engine:
            server = http.server.ThreadingHTTPServer(("127.0.0.1", UPSTREAM), ModelServer)
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            contents(image)
            proxy(image, folder)
            inject(image, folder)
            starts(image, folder, options.rounds)
    if failures:
        raise SystemExit(f"{len(failures)} failed: {'; '.join(failures)}")


if __name__ == "__main__":
    main()
