"""A table of truth against figure, per stage, for each model server that runs here: docs/ACCURACY.md.

Written anew by

    ACCURACY_FILE=docs/ACCURACY.md .venv/bin/python -m pytest tests/real/test_accuracy.py

after `cargo build` and `tests/run --long` (which installs the servers). With `-k`, the other sections stay as they are in the file, if they
were taken on such a machine. The truth is what the handler, or the server itself, measured
by its own clock; Lapwing's figure is what it says of the very same requests.
"""

import http.client
import json
import os
import pathlib
import platform
import random
import re
import secrets
import statistics
import subprocess
import time
import urllib.request

import pytest

import test_kserve as kserve_suite
import test_llama as llama_suite
import test_ray as ray_suite
import test_triton as triton_suite
from conftest import BINARY, HERE
from lapwing import NO_SPANS, OPENER
from process import wait_for
from servers.parts import BentoMl, KServe, MlServer
from test_stages import STAGES, knobs, predict, stages_of

pytestmark = pytest.mark.long
REQUESTS = 100
RELATIVE, ABSOLUTE_NS = 0.03, 300_000
HEAD = """# Accuracy

Means of the same requests in milliseconds, as the server measured a stage (**truth**) and as Lapwing reports it (**figure**), on one machine of {cores} cores ({cpu}); half of the requests are off by no more than **half within**, unknown for sums. This command writes the page, and fails if a mean is off by more than 3 % or 0.3 ms, the greater, or by more than the section's bound; times by a client's clock have none:

    ACCURACY_FILE=docs/ACCURACY.md .venv/bin/python -m pytest tests/real/test_accuracy.py

[Servers](UPSTREAMS.md) that cannot run here are replayed by `tests/real/test_replayed.py`, with the same bounds.
"""


class Table:
    """The rows of one server."""

    def __init__(self):
        self.sections = {}

    def add(self, server, how, truth_by, pairs=None, sums=None, relative=RELATIVE, most=None, seen_by_client=()):
        """`pairs`: by stage, (figure, truth) of each request in ns; `sums`: by stage, (figure, truth, requests). What a client saw has
        no bound: a busy machine keeps it from its socket. `most`: by stage, what each request took at most, where the truth ends early."""
        highest = {stage: statistics.mean(each) for stage, each in (most or {}).items()}
        rows = []
        for stage, both in (pairs or {}).items():
            offs = [abs(figure - truth) for figure, truth in both]
            rows.append((stage, len(both), *(statistics.mean(column) for column in zip(*both)), statistics.median(offs)))
        for stage, (figure, truth, n) in (sums or {}).items():
            rows.append((stage, n, figure / n, truth / n, None))
        bounded = [row for row in rows if row[0] not in seen_by_client]
        off = []
        for stage, _, figure, truth, _ in bounded:
            room = max(relative * truth, ABSOLUTE_NS)
            if not truth - room <= figure <= highest.get(stage, truth) + room:
                off.append((stage, figure, truth, highest.get(stage)))
        assert not off, off
        bound = "" if relative == RELATIVE else f" Bound: {100 * relative:g} % or 0.3 ms."
        self.sections[f"## {server}: {how}\n"] = (f"{truth_by}. {rows[0][1]} requests.{bound}", rows)

    def text(self, old=""):
        """With the sections of the old text that were not made now, in its order; of another machine's there is no use."""
        head = HEAD.format(cores=os.cpu_count(), cpu=processor()) + "\n"
        kept = re.split("^(?=## )", old.removeprefix(head), flags=re.M) if old.startswith(head) else []
        sections = {one.splitlines(keepends=True)[0]: one.strip("\n") + "\n" for one in kept if one}
        return head + "\n".join((sections | self.made()).values())

    def made(self):
        """The text of each section by its title."""
        made = {}
        for title, (truth_by, rows) in self.sections.items():
            lines = [title, f"Truth: {truth_by}\n"]
            lines += ["| stage | truth | figure | off | half within |", "|---|---|---|---|---|"]
            for stage, _, figure, truth, half in rows:
                within = "" if half is None else f"{half / 1e3:.0f} µs"
                lines.append(f"| {stage} | {truth / 1e6:.3f} | {figure / 1e6:.3f} | {100 * (figure - truth) / truth:+.2f} % | {within} |")
            made[title] = "\n".join(lines) + "\n"
        return made


def processor():
    with open("/proc/cpuinfo") as info:
        models = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return models[0] if models else platform.machine()


@pytest.fixture(scope="module")
def table():
    made = Table()
    yield made
    print(made.text())
    if (where := os.environ.get("ACCURACY_FILE")) and made.sections:
        file = HERE.parents[1] / pathlib.Path(where)
        version = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        print(f"{version}: {where} is written")
        file.write_text(made.text(file.read_text() if file.exists() else ""))


@pytest.mark.parametrize("how", ["spans", "header"])
def test_fastapi(by_http, table, how):
    rng = random.Random(3)
    predict(by_http)
    report = "header" if how == "header" else "none"
    answers = [predict(by_http, report, stages=knobs(rng)) for _ in range(REQUESTS)]
    exchanges = by_http.lapwing.exchanges_of([answer["trace_id"] for answer in answers], 30)
    pairs = {stage: [] for stage in STAGES.values()}
    for answer in answers:
        stages = stages_of(exchanges[answer["trace_id"]])
        for span, stage in STAGES.items():
            pairs[stage].append((stages[stage]["ns"], answer["truth_ns"][span]))
    named = {"spans": "spans of opentelemetry-sdk, at its defaults", "header": "a `Server-Timing` header"}[how]
    table.add("FastAPI", named, "`perf_counter` in the handler", pairs)


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_triton(request, table, kind):
    """The ensemble of three models with dynamic batching: sums, because its statistics are sums."""
    run = triton_suite.Run("grpc" if kind == "grpc" else "json", request.getfixturevalue(f"triton_{kind}"), clients=8, each=25)
    by_triton = run.said_by_triton()
    sums = {stage: (run.sum_of(stage), ns, len(run.exchanges)) for stage, ns in by_triton.items()}
    # it closes a step's last span late, and loses some traces of gRPC requests (test_triton.py)
    relative = 0.1 if kind == "grpc" else 0.05
    table.add("Triton", f"an ensemble by {kind}, its spans", "its own statistics of each model, as sums (with the end of a last step that comes after the answer)", sums=sums, relative=relative)


@pytest.fixture(scope="module")
def bentoml(behind):
    served = behind(BentoMl, env=NO_SPANS)
    ask_bentoml(served.lapwing, report=False)
    return served


def ask_bentoml(lapwing, report):
    """The trace, what the handler tells, and the nanoseconds that the client waited."""
    body = json.dumps({"rows": [[1.0, 2.0]], "report": report}).encode()
    trace_id = secrets.token_hex(16)
    headers = {"content-type": "application/json", "traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01"}
    request = urllib.request.Request(f"{lapwing.url}/predict", body, headers)
    began = time.perf_counter_ns()
    with OPENER.open(request, timeout=30) as answer:
        told = json.load(answer)
    assert told["sums"] == [3.0]
    return trace_id, told, time.perf_counter_ns() - began


@pytest.mark.parametrize("report", [True, False], ids=["header", "nothing"])
def test_bentoml(bentoml, table, report):
    answers = [ask_bentoml(bentoml.lapwing, report) for _ in range(REQUESTS)]
    exchanges = bentoml.lapwing.exchanges_of([trace_id for trace_id, *_ in answers], 30)
    answers = [(stages_of(exchanges[trace_id]), told, waited) for trace_id, told, waited in answers]
    if report:
        names = answers[0][1]["truth_ns"]
        pairs = {stage: [(stages[stage]["ns"], told["truth_ns"][stage]) for stages, told, _ in answers] for stage in names}
        table.add("BentoML", "a `Server-Timing` header by its service", "`perf_counter` in the handler", pairs)
        return
    assert all("forward" not in stages for stages, *_ in answers)
    pairs = {"upstream": [(stages["upstream"]["ns"], told["handler_ns"]) for stages, told, _ in answers]}
    truth_by = (
        "`perf_counter` around the handler, without what BentoML does before and after it, which `upstream` includes; the upper bound is "
        "what the client waited"
    )
    table.add("BentoML", "nothing reported", truth_by, pairs, most={"upstream": [waited for *_, waited in answers]})


class TimedMlServer(MlServer):
    models = "mlserver_timed"


def test_mlserver(behind, table):
    served = behind(TimedMlServer, env=NO_SPANS)
    truths = []
    for i in range(REQUESTS + 1):
        connection = http.client.HTTPConnection("127.0.0.1", served.lapwing.port, timeout=30)
        inputs = [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, float(i)]}]
        connection.request("POST", "/v2/models/timed/infer", json.dumps({"inputs": inputs}), {"content-type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        assert response.status == 200, answer
        truths.append(json.loads(answer["parameters"]["truth_ns"]))

    def kept():
        found = [e for e in served.lapwing.exchanges(limit=65536) if e["model"] == "timed"]
        return sorted(found, key=lambda e: e["started_at"]) if len(found) == len(truths) else None

    found = wait_for(kept, 10, "every exchange is kept")
    pairs = {stage: [(stages_of(e)[stage]["ns"], truth[stage]) for e, truth in zip(found, truths)][1:] for stage in truths[0]}
    table.add("MLServer", "a `Server-Timing` header by a custom runtime", "`perf_counter` in the runtime", pairs)


def test_llama(llama, table):
    run = llama_suite.Run(llama, **llama_suite.MODES["chat-streamed"])
    pairs = {"prefill": [], "decode": [], "time to first token": []}
    for asked, exchange in run.pairs:
        phases = {phase["phase"]: phase["ns"] for phase in exchange["phases"]}
        pairs["prefill"].append((phases["prefill"], asked.timings["prompt_ms"] * 1e6))
        pairs["decode"].append((phases["decode"], asked.timings["predicted_ms"] * 1e6))
        pairs["time to first token"].append((exchange["generation"]["first_token_ns"], asked.first))
    truth_by = "`timings`; time to first token by the client's clock"
    table.add("llama.cpp", "`timings` of a streamed chat", truth_by, pairs, seen_by_client=("time to first token",))


@pytest.mark.timeout(400)  # Ray starts eight processes
def test_ray(ray, table):
    """The waits before the inner deployments; the wait before the gateway is in no handler's answer."""
    ray_suite.load(ray.lapwing, clients=2, each=3)
    answers = ray_suite.load(ray.lapwing)
    exchanges = ray.lapwing.exchanges_of(answers, 30)
    pairs, most = {"queue": [], "preprocessing": [], "forward": []}, {"preprocessing": [], "forward": []}
    for trace_id, told in answers.items():
        exchange, tok = exchanges[trace_id], told["tok"]
        stages, waited = stages_of(exchange), ray_suite.waits_of(told)
        preprocessing = tok["ended"] - tok["taken"]
        pairs["queue"].append((ray_suite.inner_waits_of(exchange), waited))
        pairs["preprocessing"].append((stages["preprocessing"]["ns"], preprocessing))
        pairs["forward"].append((stages["forward"]["ns"], told["ended"] - told["taken"] - waited - preprocessing))
        most["preprocessing"].append(tok["answered"] - tok["taken"])
        most["forward"].append(told["answered"] - told["taken"] - waited - preprocessing)
    truth_by = (
        "the handlers' wall clocks, and when Ray's replica took each request, without what a replica does after its handler returned; "
        "the upper bound is when the caller had the answer. `queue` is that before the inner deployments"
    )
    how = "a gateway and two deployments that take one request at a time, five clients, its spans"
    table.add("Ray Serve", how, truth_by, pairs, most=most)


def test_kserve(behind, table):
    """Sums over requests of 1 and of 40 rows: no request has a figure of its own."""
    run = kserve_suite.Run(behind(KServe, env={**NO_SPANS, "LAPWING_ATTRIBUTION__POLL_INTERVAL": "1s"}))
    sums = {stage: (run.polled[stage][1], sum(told[step] for told in run.told), len(run.told)) for stage, step in kserve_suite.STEPS.items()}
    table.add("KServe", "its metrics, polled (`/stats`: `polled`)", "`perf_counter` in the handler, over requests of 1 and of 40 rows", sums=sums)
