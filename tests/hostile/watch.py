"""Watches Lapwing during an attack: how much memory it takes at most, and how long `/livez` takes at most."""

import http.client
import pathlib
import threading
import time


class Watch:
    """`with Watch(proxy) as watch:` around the attack; the figures are there after it."""

    def __init__(self, proxy):
        self.proxy, self.worst_s, self.failures = proxy, 0.0, []

    def __enter__(self):
        proc = pathlib.Path("/proc", str(self.proxy.process.pid))
        self.status = proc / "status"
        (proc / "clear_refs").write_text("5")  # the peak starts here
        self.before_kib, self.over = self._kib("VmRSS"), threading.Event()
        self.thread = threading.Thread(target=self._ask)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.growth_mib = (self._kib("VmHWM") - self.before_kib) / 1024

    def check(self, most_mib=64):
        print(f"{self.growth_mib:.1f} MiB more at the peak, /livez within {self.worst_s:.2f} s")
        assert not self.failures and self.worst_s < 1, (self.failures, self.worst_s)
        assert self.growth_mib < most_mib, f"{self.growth_mib:.1f} MiB"

    def _kib(self, name):
        return next(int(line.split()[1]) for line in self.status.read_text().splitlines() if line.startswith(name + ":"))

    def _ask(self):
        while not self.over.wait(0.02):
            began = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", self.proxy.admin, timeout=5)
            try:
                connection.request("GET", "/livez")
                answer = connection.getresponse().read()
                assert answer == b"alive\n", answer
            except (OSError, AssertionError) as error:
                self.failures.append(repr(error))
            finally:
                connection.close()
            self.worst_s = max(self.worst_s, time.monotonic() - began)
