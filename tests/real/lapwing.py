"""Lapwing as a child process, and a client of its admin address."""

import json
import os
import time
import urllib.error
import urllib.request

from config_schema import assert_valid
from ports import free_port
from process import Process, wait_for

NO_SPANS = {"LAPWING_ATTRIBUTION__EXPECT_SPANS": "never"}
"""For upstreams without an exporter, so that requests are counted at once; Lapwing would learn it in one grace period."""
AUTO = {"LAPWING_ATTRIBUTION__POLL": "auto"}
"""Polling as by default, where a fixture names an address otherwise."""
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Lapwing:
    """One Lapwing with its own ports."""

    def __init__(self, binary, logs, upstream, *args, otlp_forward=None, config=None, env=None):
        self.port, self.admin, self.otlp_grpc, self.otlp_http = (free_port() for _ in range(4))
        self.url = f"http://127.0.0.1:{self.port}"
        command = [binary, "serve"] if config else [binary]
        command += ["--config", str(config)] if config else []
        if config:
            assert_valid(binary, config)
        command += ["--upstream", upstream] if upstream else []
        command += ["--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"]
        command += ["--otlp-grpc", f"127.0.0.1:{self.otlp_grpc}", "--otlp-http", f"127.0.0.1:{self.otlp_http}"]
        command += ["--otlp-forward", otlp_forward] if otlp_forward else []
        self.process = Process("lapwing", command + list(args), logs, env=dict(os.environ, **(env or {})))

    def wait_live(self):
        def live():
            assert self.process.is_running(), f"lapwing ended early:\n{self.process.output()}"
            return self.status_of("/livez") == 200

        wait_for(live, 20, "lapwing is live")
        return self

    # --- admin surfaces

    def get(self, path, accept=None):
        """(status, headers, body)."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin}{path}")
        if accept:
            request.add_header("accept", accept)
        try:
            with OPENER.open(request, timeout=10) as r:
                return r.status, r.headers, r.read()
        except urllib.error.HTTPError as e:
            return e.code, e.headers, e.read()

    def status_of(self, path):
        try:
            return self.get(path)[0]
        except OSError:
            return 0

    def is_ready(self):
        return self.status_of("/readyz") == 200

    def json(self, path):
        status, _, body = self.get(path)
        assert status == 200, (path, status, body[:500])
        return json.loads(body)

    def stats(self, window="all"):
        return self.json(f"/stats?window={window}")

    def series(self, window="all"):
        return self.stats(window)["series"]

    def polled(self, model, window="all"):
        """What polls of the server's statistics counted for the model; `None` before that."""
        found = [one for one in self.stats(window)["polled"] if one["model"] == model]
        assert len(found) <= 1, found
        return found[0] if found else None

    def polls(self):
        """How many polls were read."""
        (line,) = [one for one in self.metrics().splitlines() if one.startswith('lapwing_polls_total{result="ok"}')]
        return float(line.split()[-1])

    def outcomes(self):
        """Requests by outcome, over all series, since start."""
        sums = {}
        for one in self.series():
            for name, n in one["outcomes"].items():
                sums[name] = sums.get(name, 0) + n
        return sums

    def is_settled(self):
        """Whether everything is counted: nothing runs, and no exchange waits for its spans."""
        profiler = self.stats()["profiler"]
        return profiler["in_flight"] == profiler["queue_depth"] == profiler["pending"] == 0

    def count(self):
        """Requests counted since start, of any outcome."""
        return sum(self.outcomes().values())

    def exchanges(self, limit=1000, order="recent"):
        found = self.json(f"/exchanges?order={order}&limit={limit}")
        return found["exchanges"] if isinstance(found, dict) else found

    def exchange_of(self, trace_id, seconds=15):
        """The only exchange of that trace."""
        return self.exchanges_of([trace_id], seconds)[trace_id]

    def exchanges_of(self, trace_ids, seconds=15):
        """The exchange of each trace, once all are merged."""
        wanted = set(trace_ids)

        def find():
            found = {e["trace_id"]: e for e in self.exchanges() if e["trace_id"] in wanted}
            return found if len(found) == len(wanted) else None

        return wait_for(find, seconds, f"{len(wanted)} exchanges are merged", 0.2)

    def metrics(self):
        status, _, body = self.get("/metrics")
        assert status == 200
        return body.decode()


class Counted:
    """Checks that exactly `n` requests are counted within the block, each once; `outcomes` holds how they ended."""

    def __init__(self, lapwing, n, settle=0.3):
        self.lapwing, self.n, self.settle = lapwing, n, settle

    def __enter__(self):
        wait_for(self.lapwing.is_settled, 20, "earlier requests are counted", 0.1)
        time.sleep(0.3)  # a request that a client has just sent may be in none of the gauges yet
        wait_for(self.lapwing.is_settled, 20, "earlier requests are counted", 0.1)
        self.before = self.lapwing.outcomes()
        return self

    def __exit__(self, kind, *_):
        if kind:
            return
        total = sum(self.before.values()) + self.n
        try:
            # an exchange may wait for spans for the whole grace period before it counts
            wait_for(lambda: self.lapwing.count() >= total, 12, f"{self.n} more requests are counted", 0.1)
        except AssertionError as e:
            raise AssertionError(f"{e}; before: {self.before}, now: {self.lapwing.outcomes()}") from None
        time.sleep(self.settle)
        after = self.lapwing.outcomes()
        delta = {k: v - self.before.get(k, 0) for k, v in after.items()}
        self.outcomes = {k: v for k, v in delta.items() if v}
        assert sum(self.outcomes.values()) == self.n, self.outcomes
