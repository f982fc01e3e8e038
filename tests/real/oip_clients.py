"""tritonclient as its users use it: HTTP with JSON or binary tensors, and gRPC. Rows of 30 floats in, floats out."""

import random
import threading

import numpy as np
import tritonclient.grpc as by_grpc
import tritonclient.http as by_http

FEATURES = 30
KINDS = ("json", "binary", "grpc")


class Client:
    """One client with its own connection."""

    def __init__(self, kind, port):
        self.kind = kind
        self.api = by_grpc if kind == "grpc" else by_http
        self.channel = self.api.InferenceServerClient(f"127.0.0.1:{port}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def infer(self, model, name, rows, output, **kw):
        """The output for an array of rows."""
        tensor = self.api.InferInput(name, list(rows.shape), "FP32")
        if self.kind == "grpc":
            tensor.set_data_from_numpy(rows)
            wanted = self.api.InferRequestedOutput(output)
        else:
            tensor.set_data_from_numpy(rows, binary_data=self.kind == "binary")
            wanted = self.api.InferRequestedOutput(output, binary_data=self.kind == "binary")
        return self.channel.infer(model, [tensor], outputs=[wanted], **kw).as_numpy(output)


def rows_of(n, seed=0):
    """Rows that every client and server must transfer unchanged."""
    return np.random.default_rng(seed).normal(size=(n, FEATURES)).astype(np.float32)


def load(kind, port, ask, clients, each, sizes=(1, 2, 4, 8)):
    """`clients` at once, each asking `ask(client, rows)` again and again; the sizes sent, in no order. Any error is raised."""
    sent, errors = [], []

    def run(mine):
        rng = random.Random(mine)
        try:
            with Client(kind, port) as client:
                for _ in range(each):
                    n = rng.choice(sizes)
                    ask(client, rows_of(n, seed=n))
                    sent.append(n)
        except BaseException as e:  # noqa: BLE001  the thread's error is the test's
            errors.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sent
