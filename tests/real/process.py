"""Child processes with captured output, and functions that wait for a condition."""

import pathlib
import signal
import socket
import subprocess
import time


def wait_for(condition, seconds, what, every=0.05):
    """Waits until `condition()` is true and returns its value; fails after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s in vain until {what}")
        time.sleep(every)


def is_listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def wait_listening(port, seconds=20):
    wait_for(lambda: is_listening(port), seconds, f"port {port} listens")


class Process:
    """A child whose output goes to a file, so that no pipe ever fills."""

    all = []
    set_up_by = []
    """The scopes of the fixtures that pytest is setting up, the outermost first."""

    def __init__(self, name, command, logs, env=None):
        self.name = name
        self.log = pathlib.Path(logs) / f"{name}-{len(Process.all)}.log"
        with open(self.log, "wb") as out:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)
        self.pid = self.child.pid
        self.mark = 0
        self.is_of_session = "session" in Process.set_up_by
        Process.all.append(self)

    @classmethod
    def mark_all(cls):
        for process in cls.all:
            process.mark = process.log.stat().st_size

    def output(self):
        return self.log.read_text(errors="replace")

    def output_since_mark(self):
        return self.log.read_bytes()[self.mark :].decode(errors="replace")

    def send(self, number):
        self.child.send_signal(number)

    def wait(self, seconds):
        return self.child.wait(seconds)

    def is_running(self):
        return self.child.poll() is None

    def stop(self, number=signal.SIGTERM):
        if self.is_running():
            self.child.send_signal(number)
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait(5)
