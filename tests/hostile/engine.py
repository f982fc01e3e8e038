"""`lapwing engine serve` under attack: its process, and what it takes at the peak."""

import gzip
import http.client
import json
import pathlib
import subprocess
import time

from ports import free_port
from sidecar import ROOT, binary

DIGITS = ROOT / "tests/fixtures/digits/digits.onnx"


class Engine:
    """A running engine with one model, `m`: without a file, the digits (`x`: FP32 [N, 64]; `logits`)."""

    def __init__(self, logs, model=DIGITS, **settings):
        self.port, self.out = free_port(), pathlib.Path(logs) / f"engine-{time.monotonic_ns()}.log"
        command = [binary(), "engine", "serve", "--listen", f"127.0.0.1:{self.port}", "--model", f"m={model}"]
        env = {f"LAPWING_ENGINE__{name.upper()}": str(value) for name, value in settings.items()}
        self.process = subprocess.Popen(command, stdout=self.out.open("w"), stderr=subprocess.STDOUT, env=env)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def wait_ready(self):
        end = time.monotonic() + 40
        while time.monotonic() < end:
            assert self.process.poll() is None, self.out.read_text()
            try:
                if self.ask("GET", "/v2/health/ready").status == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(self.out.read_text())

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        response.body = response.read()
        connection.close()
        return response

    def infer(self, body, **headers):
        """The answer to a body of REST: bytes, or what becomes JSON."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", "/v2/models/m/infer", body, {name.replace("_", "-"): value for name, value in headers.items()})

    def grpc(self, message, packed=False):
        """The status code and text of `ModelInfer`, sent as bytes."""
        import grpc

        limits = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        compression = grpc.Compression.Gzip if packed else grpc.Compression.NoCompression
        with grpc.insecure_channel(f"127.0.0.1:{self.port}", limits) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", lambda b: b, lambda b: b)
            try:
                call(message, timeout=30, compression=compression)
                return "OK", ""
            except grpc.RpcError as error:
                return error.code().name, error.details()

    def memory_kib(self, what="VmHWM"):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(what))

    def peak_of(self, attack):
        """What `attack` returns, and the MiB by which it raised the most that was ever resident."""
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")  # the peak begins anew
        before = self.memory_kib()
        result = attack()
        return result, (self.memory_kib() - before) / 1024

    def metric(self, name):
        lines = self.ask("GET", "/metrics").body.decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def zipped(body):
    return gzip.compress(body, 9)
