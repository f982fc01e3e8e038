"""Ports for servers that tests start."""

import itertools
import os
import random
import socket

# Below those that Linux gives to connections of its own (32768 on): one of these may be taken between being found free and being used.
# Of processes that run tests at the same time (pytest-xdist), each has its own: one might take what another has only found.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
PORTS = range(20_000, 32_000)[WORKER % WORKERS :: WORKERS]
ORDER = itertools.cycle(random.Random().sample(PORTS, len(PORTS)))


def free_port():
    """A loopback port that nobody listens on now; each is given once, as who asks twice needs two."""
    for port in itertools.islice(ORDER, len(PORTS)):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"no free port from {PORTS[0]} to {PORTS[-1]}")
