"""Several uvicorn servers that tell their names, a client of Lapwing in front of them, and what its metrics say of them."""

import http.client
import os
import signal
import sys

from ports import free_port
from process import Process, wait_for, wait_listening
from test_leaving import SERVERS


class Server:
    """A uvicorn that tells its name, and remembers what it was asked."""

    def __init__(self, name, folder, logs, uds=False, **env):
        self.name, self.logs, self.env, self.seen = name, logs, env, folder / f"{name}.seen"
        self.port, self.uds = free_port(), folder / f"{name}.sock" if uds else None
        self.url = f"unix:{self.uds}" if uds else f"http://127.0.0.1:{self.port}"
        self.seen.touch()
        self.start()

    def start(self):
        at = ["--uds", str(self.uds)] if self.uds else ["--port", str(self.port)]
        command = [sys.executable, "-m", "uvicorn", "named_app:app", "--app-dir", str(SERVERS), *at, "--log-level", "warning"]
        env = dict(os.environ, NAME=self.name, SEEN=str(self.seen), **self.env)
        self.process = Process(self.name, command, self.logs, env=env)
        if self.uds:
            wait_for(self.uds.exists, 20, f"{self.uds} is there")
        else:
            wait_listening(self.port)

    def kill(self):
        self.process.child.send_signal(signal.SIGKILL)
        self.process.child.wait()

    def asked(self):
        return self.seen.read_text().split()


def sample(lapwing, name):
    """The values of a metric by the label `upstream`."""
    lines = [line for line in lapwing.metrics().splitlines() if line.startswith(f"{name}{{upstream=")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


def ask(lapwing, path="/x", method="POST", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=20)
    connection.request(method, path, body="n" if method == "POST" else None, headers={k.replace("_", "-"): v for k, v in headers.items()})
    response = connection.getresponse()
    return response.status, response.read().decode()
