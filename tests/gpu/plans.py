#!/usr/bin/env python3
"""Whole models on the device, through the binary as users run it: `lapwing engine serve --device cuda` once for each precision.

Sends new random inputs to the two models of seeded.py and to random ones of tests/real/engine/models.py, and compares the answers with
those of ONNX Runtime on the CPU. Then sends one request a thousand times: every answer must have the same bits, and the memory in use on
the device must not grow. Needs numpy, onnx and onnxruntime.

usage: plans.py --lapwing BINARY [--device cuda] [--precision P …] [--random N] [--inputs N] [--replays N] [--seed N]
                [--patience SECONDS] [--json FILE]
Exit code 1 if there is a fault. The file of --json has the largest deviation for each precision and model, as a fraction of the allowed
one. It is written after each precision, so that an error in one precision does not lose the results of the others.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time

def command_line():
    """Parses the options, before the imports below, so that --help needs only the standard library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lapwing", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", action="append", choices=["fp32", "tf32", "fp16", "int8"])
    parser.add_argument("--random", type=int, default=12)
    parser.add_argument("--inputs", type=int, default=6)
    parser.add_argument("--replays", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--patience", type=float, default=120, help="seconds in which an engine must be ready, and in which an answer must come")
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


OPTIONS = command_line() if __name__ == "__main__" else None

import numpy as np  # noqa: E402

import jsonfile  # noqa: E402
import seeded  # noqa: E402

seeded.fixtures()  # puts tests/real on the path
from engine import gpu, models  # noqa: E402
from engine.reference import session  # noqa: E402

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("LAPWING_")}  # those are settings
KINDS = {"float32": "FP32", "int32": "INT32", "int64": "INT64", "bool": "BOOL"}
SHAPES = {"mlp": [(1, None), (5, None), (32, None)], "minilm": [(1, 16), (3, 33), (8, 128)]}


class Fault(Exception):
    """Ends the checks of one precision; the other precisions still run."""


class Engine:
    """`lapwing engine serve` with models by name; entering the context waits until it is ready."""

    def __init__(self, options, models, precision, log, device=None):
        self.patience = options.patience
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [options.lapwing, "engine", "serve", "--listen", f"127.0.0.1:{self.port}", "--device", device or options.device]
        command += ["--precision", precision]
        for name, path in models.items():
            command += ["--model", f"{name}={path}"]
        self.log = log
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ENVIRONMENT)

    def __enter__(self):
        end = time.monotonic() + self.patience
        while True:
            with contextlib.suppress(OSError):
                if self.ask("GET", "/v2/health/ready")[0] == 200:
                    self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.patience)
                    return self
            if self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                self.log.seek(0)
                raise Fault(f"the engine is not ready (code {self.process.returncode}):\n{self.log.read()[-3000:]}")
            time.sleep(0.02)

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, method, path, body=None, headers=None, connection=None):
        connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.patience)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read(), response.headers

    def infer(self, model, feeds):
        """(outputs by name, parameters of the response, bytes of the tensors)."""
        inputs = [
            {"name": n, "shape": list(a.shape), "datatype": KINDS[a.dtype.name], "parameters": {"binary_data_size": a.nbytes}} for n, a in feeds.items()
        ]
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        body = head + b"".join(np.ascontiguousarray(a).tobytes() for a in feeds.values())
        headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
        status, answer, got = self.ask("POST", f"/v2/models/{model}/infer", body, headers, self.connection)
        if status != 200:
            raise Fault(f"{model}: {status} {answer[:2000].decode(errors='replace')}")
        at = length = int(got["inference-header-content-length"])
        said, out = json.loads(answer[:length]), {}
        for tensor in said["outputs"]:
            size = tensor["parameters"]["binary_data_size"]
            out[tensor["name"]] = np.frombuffer(answer[at : at + size], np.float32).reshape(tensor["shape"])
            at += size
        return out, said.get("parameters", {}), answer[length:]


def memory_used():
    """MiB of the device's memory in use, or None if nvidia-smi does not report it."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError, IndexError):
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return int(subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0])
    return None


def supply(options, folder):
    """{name: (file, feeds)} of each model; feeds(n) makes the n-th input."""
    found, rng = {}, np.random.default_rng(options.seed)
    for name, path in seeded.write(folder).items():

        def feeds(n, name=name):
            batch, length = SHAPES[name][n % len(SHAPES[name])]
            given = seeded.feed(name, batch, length, rng, ragged=True)
            return {"x": given} if name == "mlp" else dict(zip(("input_ids", "attention_mask", "token_type_ids"), given))

        found[name] = (path, feeds)
    for at in range(options.random):
        made = models.random_model(random.Random(f"{options.seed}-{at}"))
        path = folder / f"random-{at}.onnx"
        path.write_bytes(made.onnx)
        shapes = random.Random(options.seed + at)
        found[path.stem] = (path, lambda n, made=made, shapes=shapes: made.feeds(shapes.randrange(1, 12), shapes.randrange(1, 90)))
    return found


def check(options, precision, models, log, rows, faults):
    """Checks one precision; appends to `rows` and `faults`."""
    with Engine(options, {name: path for name, (path, _) in models.items()}, precision, log) as engine:
        for name, (path, feeds) in models.items():
            reference, worst = session(path), 0.0
            for n in range(options.inputs):
                given = feeds(n)
                outputs, said, _ = engine.infer(name, given)
                if not str(said.get("device", "")).startswith(options.device):
                    faults.append(f"{name} {precision}: it ran on {said.get('device')}")
                wanted = dict(zip(outputs, reference.run(list(outputs), given)))
                worst = max([worst, *(gpu.share(y, wanted[key], precision, name.startswith("random")) for key, y in outputs.items())])
            rows.append({"model": name, "precision": precision, "inputs": options.inputs, "worst_of_allowed": round(worst, 4)})
            if not worst <= 1:
                faults.append(f"{name} {precision}: {worst:.2f} times the allowed deviation (seed {options.seed})")
        for name in ("mlp", "minilm"):
            given = models[name][1](0)
            first = engine.infer(name, given)[2]
            before = memory_used()
            differ = sum(engine.infer(name, given)[2] != first for _ in range(options.replays))
            after = memory_used()
            rows.append({"model": name, "precision": precision, "replays": options.replays, "differ": differ, "memory_mib": [before, after]})
            if differ:
                faults.append(f"{name} {precision}: {differ} of {options.replays} replays differ in their bits")
            if before is not None and after > before:
                faults.append(f"{name} {precision}: memory in use grew from {before} to {after} MiB")


def refused(options):
    """Faults with a model that has a node which the device does not support.

    With the device named, `serve` must fail at its start; with `auto`, the CPU must run the model.
    """
    path, faults = seeded.ROOT / "tests/fixtures/plans/refused-conv.onnx", []
    command = [options.lapwing, "engine", "serve", "--device", options.device, "--model", str(path), "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.patience, env=ENVIRONMENT)
    if done.returncode == 0 or "the_conv (Conv)" not in done.stderr:
        faults.append(f"refused-conv: --device {options.device} ended with {done.returncode} and said {done.stderr[-500:]}")
    with tempfile.TemporaryFile("w+") as log, Engine(options, {"conv": path}, "fp32", log, "auto") as engine:
        said = json.loads(engine.ask("GET", "/v2/models/conv")[1])["parameters"]
    if said["device"] != "cpu" or not str(said.get("fallback")).startswith("node: the_conv (Conv)"):
        faults.append(f"refused-conv: --device auto says {said}")
    return faults


def main(options):
    rows, faults = [], []

    def attempt(what, run):
        """Calls `run`; an exception becomes a fault of `what`. Then writes the results so far."""
        try:
            run()
        except Exception as error:
            faults.append(f"{what}: {type(error).__name__}: {error}")
        if options.json:
            jsonfile.keep(options.json, {"seed": options.seed, "rows": rows, "faults": faults})

    with tempfile.TemporaryDirectory() as folder:
        models = supply(options, pathlib.Path(folder))
        for precision in options.precision or gpu.LIMITS:
            before = len(rows), len(faults)
            with tempfile.TemporaryFile("w+") as log:
                attempt(precision, lambda precision=precision, log=log: check(options, precision, models, log, rows, faults))
            compared = [row["worst_of_allowed"] for row in rows[before[0] :] if "worst_of_allowed" in row]
            found = f"{len(compared)} of {len(models)} models, at worst {max(compared, default=0):.2f} of the allowed deviation"
            print(f"{precision}: {found}; {len(faults) - before[1]} faults", flush=True)
            print("".join(f"FAULT {fault}\n" for fault in faults[before[1] :]), end="", flush=True)
    before = len(faults)
    attempt("a node that the device does not support", lambda: faults.extend(refused(options)))
    print("".join(f"FAULT {fault}\n" for fault in faults[before:]), end="", flush=True)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(OPTIONS))
