"""Services of several processes, each with an exporter of its own at the SDK's defaults: no stage is lost, and nothing waits longer
than its spans take to come."""

import collections
import contextlib
import http.client
import json
import os
import pathlib
import secrets
import signal
import statistics
import sys
import threading
import time
import urllib.request

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from otlp_sink import OtlpSink
from ports import free_port
from process import wait_for, wait_listening

pytestmark = [pytest.mark.beside, pytest.mark.timeout(300)]
SERVER = pathlib.Path(__file__).parent / "worker_server.py"
WORKERS = 4
CLIENTS = 8
MS = {"feature_hydration": 2, "preprocessing": 4, "model_forward": 12, "postprocessing": 3}
OUTER = {"feature_hydration": "hydration", "postprocessing": "postprocessing"}
INNER = {"preprocessing": "preprocessing", "model_forward": "forward"}
BOTH = OUTER | INNER


class TimedSink(OtlpSink):
    """A collector that knows when the last span of each trace came."""

    def __enter__(self):
        self.last_came = {}
        return super().__enter__()

    def take(self, signal, body, is_json=False):
        super().take(signal, body, is_json)
        if signal == "traces":
            message = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
            now = time.monotonic()
            for resource in message.resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        self.last_came[span.trace_id.hex()] = now


class Watched:
    """Asks a service through Lapwing, and notes when each exchange ended, when it was merged, and what it was then."""

    def __init__(self, lapwing, sink):
        self.lapwing, self.sink = lapwing, sink
        self.ended, self.truth, self.merged, self.exchanges = {}, {}, {}, {}
        self.pids, self.inner_pids = set(), collections.Counter()
        self.is_over = False

    def ask(self, n, pause=0.0):
        connection = http.client.HTTPConnection("127.0.0.1", self.lapwing.port, timeout=30)
        for _ in range(n):
            trace = secrets.token_hex(16)
            headers = {"content-type": "application/json", "traceparent": f"00-{trace}-{secrets.token_hex(8)}-01"}
            connection.request("POST", "/predict", json.dumps({"ms": MS}), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
            assert response.status == 200, answer
            self.ended[trace] = time.monotonic()
            self.truth[trace] = answer["truth_ns"]
            self.pids.update(answer["pids"])
            self.inner_pids[answer["pids"][0]] += 1
            time.sleep(pause)
        connection.close()

    def look(self):
        """Notes what appears in /exchanges as soon as it does."""
        while not self.is_over:
            now = time.monotonic()
            for exchange in self.lapwing.exchanges(400):
                trace = exchange["trace_id"]
                if trace in self.ended and trace not in self.merged:
                    self.merged[trace], self.exchanges[trace] = now, exchange
            time.sleep(0.15)

    def run(self, n, pause):
        looker = threading.Thread(target=self.look)
        looker.start()
        clients = [threading.Thread(target=self.ask, args=(n // CLIENTS, pause)) for _ in range(CLIENTS)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        try:
            wait_for(lambda: len(self.merged) == len(self.ended), 20, "all exchanges are merged", 0.2)
        finally:
            self.is_over = True
            looker.join()
        return self


@pytest.fixture(scope="module")
def start_workers(processes):
    """Starts a service of four processes on a port."""

    def start(service, port, lapwing_otlp, inner=None):
        env = dict(os.environ, SERVICE=service, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{lapwing_otlp}")
        for name in [n for n in env if n.startswith("OTEL_BSP")]:
            env.pop(name)
        command = [sys.executable, str(SERVER), str(port), *([str(inner)] if inner else [])]
        processes(f"workers_{service}", command, env=env)
        wait_listening(port, 60)
        pids = set()

        def all_answer():
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
                    pids.add(json.load(response)["pid"])
            return len(pids) == WORKERS

        wait_for(all_answer, 60, "every worker answers", 0.01)

    return start


@pytest.fixture(scope="module")
def sink():
    with TimedSink() as sink:
        yield sink


@pytest.fixture(scope="module")
def start_watched(start_lapwing, start_workers, sink):
    """Starts Lapwing before a service of four processes, or before a gateway of four and a service of four behind it."""

    def start(has_gateway):
        port = free_port()
        env = {"LAPWING_METRICS__RECENT_EXCHANGES": "4096"}
        lapwing = start_lapwing(f"http://127.0.0.1:{port}", otlp_forward=sink.url, env=env)
        inner = free_port() if has_gateway else port
        start_workers("model", inner, lapwing.otlp_http)
        if has_gateway:
            start_workers("gateway", port, lapwing.otlp_http, inner)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        return lapwing

    return start


def stages_of(exchange):
    return {s["stage"]: s for s in exchange["stages"]}


def has_all(exchange, wanted):
    stages = stages_of(exchange)
    return all(stages.get(stage, {}).get("source") == "traced" for stage in wanted)


def assert_settles_in_time(watched):
    """Settled at the latest 6 s after its end, and half of them within a second of their last span; reading costs up to 0.5 s."""
    after_last = [watched.merged[t] - watched.sink.last_came[t] for t in watched.merged if t in watched.sink.last_came]
    in_all = [watched.merged[t] - watched.ended[t] for t in watched.merged]
    print(f"settled after the last span: median {statistics.median(after_last):.2f} s; in all at most {max(in_all):.2f} s")
    assert statistics.median(after_last) <= 1.0
    assert max(in_all) <= 6.0 + 0.5


def assert_true(watched, stages, share=0.9):
    for span, stage in stages.items():
        pairs = [(stages_of(e)[stage]["ns"], watched.truth[t][span]) for t, e in watched.exchanges.items() if stage in stages_of(e)]
        wrong = [(said, truth) for said, truth in pairs if abs(said - truth) > max(0.03 * truth, 1_000_000)]
        assert len(pairs) - len(wrong) >= round(share * len(pairs), 6), (stage, wrong[:5], len(wrong), len(pairs))


def series_of(lapwing):
    return next(s for s in lapwing.series() if s["route"] == "POST /predict")


@pytest.mark.parametrize("requests", [400, pytest.param(1_200, marks=pytest.mark.long)])
def test_no_stage_of_four_workers_is_lost(requests, start_watched, sink):
    lapwing = start_watched(has_gateway=False)
    watched = Watched(lapwing, sink).run(requests, pause=0.06)
    assert len(watched.pids) == WORKERS, "every worker was asked"
    complete = [e for e in watched.exchanges.values() if has_all(e, INNER.values())]
    print(f"complete: {len(complete)} of {len(watched.exchanges)}")
    assert len(complete) >= 0.999 * len(watched.exchanges)
    assert_settles_in_time(watched)
    assert_true(watched, INNER)
    series, spans = series_of(lapwing), lapwing.stats()["profiler"]["spans"]
    assert (series["incomplete"], series["mended"], series["clipped"], spans["late"]) == (0, 0, 0, 0)


@pytest.mark.long
def test_no_stage_behind_a_gateway_is_lost(start_watched, sink):
    """The gateway's spans and the model's come from eight processes, each up to 5 s late by a phase of its own."""
    lapwing = start_watched(has_gateway=True)
    # what is not known yet is learnt from what comes late
    first = Watched(lapwing, sink).run(80, pause=0.05)
    time.sleep(6)
    late_before = lapwing.stats()["profiler"]["spans"]["late"]
    mended = {e["trace_id"]: e for e in lapwing.exchanges(4096)}
    lacking = [t for t in first.exchanges if not has_all(mended[t], BOTH.values())]
    assert lacking == [], "late spans mend what stands in /exchanges"
    series = series_of(lapwing)
    assert series["mended"] >= sum(not has_all(e, BOTH.values()) for e in first.exchanges.values())
    assert (series["mended_ns"] > 0) == (series["mended"] > 0)

    watched = Watched(lapwing, sink).run(1_200, pause=0.1)
    complete = [e for e in watched.exchanges.values() if has_all(e, BOTH.values())]
    print(f"complete: {len(complete)} of {len(watched.exchanges)}; mended at first: {series['mended']} of {len(first.exchanges)}")
    for e in watched.exchanges.values():
        if not has_all(e, BOTH.values()):
            t = e["trace_id"]
            print(f"lacks: {sorted(stages_of(e))} incomplete={e['incomplete']} settled={watched.merged[t] - watched.ended[t]:.2f}", end=" ")
            print(f"last span={watched.sink.last_came.get(t, 0) - watched.ended[t]:.2f}")
    assert len(complete) >= 0.999 * len(watched.exchanges)
    assert_settles_in_time(watched)
    assert_true(watched, BOTH)
    spans = lapwing.stats()["profiler"]["spans"]
    assert spans["late"] - late_before <= 0.001 * spans["received"], spans
    assert series_of(lapwing)["clipped"] == 0


@pytest.mark.long
def test_what_a_killed_process_never_sent_is_counted(start_watched, sink):
    """An exchange whose inner spans were lost lacks stages; `incomplete` says of how many."""
    lapwing = start_watched(has_gateway=True)
    Watched(lapwing, sink).run(160, pause=0.05)
    before = series_of(lapwing)["incomplete"]
    watched = Watched(lapwing, sink)
    victims = []

    def kill():
        for _ in range(2):
            time.sleep(2.3)
            victims.append(next(pid for pid, _ in watched.inner_pids.most_common() if pid not in victims))
            os.kill(victims[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    watched.run(400, pause=0.1)
    killer.join()
    assert victims
    lacking = [e for e in watched.exchanges.values() if not has_all(e, INNER.values())]
    assert lacking, "it had spans that it had not sent yet"
    assert all(e["incomplete"] for e in lacking)
    assert series_of(lapwing)["incomplete"] - before == sum(e["incomplete"] for e in watched.exchanges.values())
