"""The servers of one slot that the levers are measured on, and the work that is sent to them."""

import json
import pathlib
import random
import subprocess
import sys

from load import message
from parts import Child, free_port

HERE = pathlib.Path(__file__).parent
MAGIKA_FILE = """
import glob, importlib.util
print(glob.glob(importlib.util.find_spec("magika").submodule_search_locations[0] + "/models/*/model.onnx")[0])
"""
ROWS = (1, 2, 4, 8, 8, 16)
"""Of a request to an unsteady server; each as likely."""


def lognormal(mu, sigma, most):
    return lambda rng: round(min(most, max(1.0, rng.lognormvariate(mu, sigma))))


class Kind:
    """A kind of server; `mix(rng)` draws the rows of a request."""

    def __init__(self, name, said, mix, most, budget_ms=None):
        self.name, self.said, self.mix, self.most, self.budget_ms = name, said, mix, most, budget_ms

    def messages(self, headers=()):
        """What is sent for a request, by its rows."""
        return {rows: message(self.path, json.dumps({"inputs": [self.tensor(rows)]}).encode(), headers) for rows in range(1, self.most + 1)}


class Scripted(Kind):
    path = "/v2/models/m/infer"

    def server(self, _, speed=1, more=()):
        port = free_port()
        return Child([sys.executable, HERE / "scripted_server.py", port, "--speed", speed, *more], port)

    @staticmethod
    def tensor(rows):
        return {"name": "x", "shape": [rows, 1], "datatype": "FP32", "data": [0.5] * rows}


class Magika(Kind):
    path = "/v2/models/magika/infer"

    def server(self, options, speed=1):
        if speed != 1:
            raise SystemExit("magika runs at its own speed only: use --placement-server scripted")
        file = subprocess.run([options.python, "-c", MAGIKA_FILE], capture_output=True, text=True, check=True).stdout.strip()
        port = free_port()
        return Child([options.python, HERE / "magika_server.py", port, file], port)

    @staticmethod
    def tensor(rows):
        rng = random.Random(rows)
        return {"name": "bytes", "shape": [rows, 2048], "datatype": "INT32", "data": [rng.randrange(257) for _ in range(2048 * rows)]}


class Numbered:
    """Messages with an id each, in the header x-bench-id: 0, 1, 2 and so on, as they are asked for."""

    def __init__(self, messages):
        self.messages, self.next = messages, 0

    def __getitem__(self, units):
        head, body = self.messages[units].split(b"\r\n\r\n", 1)
        self.next += 1
        return b"%b\r\nx-bench-id: %d\r\n\r\n%b" % (head, self.next - 1, body)


SCRIPTED = Scripted("scripted", "a scripted server of one slot", lognormal(2.2, 1.3, 256), 256, 100)
MAGIKA = Magika("magika", "FastAPI with magika", lognormal(1.0, 1.1, 32), 32)
UNSTEADY = Scripted("unsteady", "a scripted server of 5 ms and 1 ms a row", lambda rng: rng.choice(ROWS), max(ROWS))
