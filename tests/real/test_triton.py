"""A real Triton Inference Server through Lapwing: an ensemble with dynamic batching, used by tritonclient.

Every request is profiled from Triton's own spans; over a run the sums must agree with Triton's own statistics.
"""

import collections
import json
import queue
import time
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as by_grpc

from lapwing import NO_SPANS, Counted
from oip_clients import KINDS, Client, load, rows_of
from process import wait_for

STEPS = ("pre", "fwd", "post")
ONLY_TRACED = ("queue", "preprocessing", "forward", "postprocessing")


def served_by(kind, request):
    return request.getfixturevalue("triton_grpc" if kind == "grpc" else "triton_http")


def port_of(kind, served):
    return served.server.grpc if kind == "grpc" else served.server.http


def ask(client, rows):
    out = client.infer("pipe", "RAW", rows, "OUT")
    np.testing.assert_allclose(out, (rows - rows.mean(axis=1, keepdims=True)) * 2 + 1, atol=1e-5)


def stages_of(exchange):
    return {s["stage"]: s for s in exchange["stages"]}


class Run:
    """A load through Lapwing: its exchanges, and Triton's own counts for the same time."""

    def __init__(self, kind, served, **kw):
        self.kind, self.served = kind, served
        lapwing, triton = served.lapwing, served.server
        with Client(kind, lapwing.port) as client:
            ask(client, rows_of(1))  # the first request of a model is slower than the others
        wait_for(lambda: lapwing.count() >= 1, 20, "it is counted", 0.1)
        with Counted(lapwing, kw["clients"] * kw["each"]):
            known = {e["span_id"] for e in lapwing.exchanges()}
            before, spans = triton.statistics(), lapwing.stats()["profiler"]["spans"]
            self.rows = load(kind, lapwing.port, ask, **kw)
        self.exchanges = [e for e in lapwing.exchanges() if e["span_id"] not in known]
        # Triton does not trace some gRPC requests of any client, because it reads `traceparent` as a zero-terminated text, which
        # gRPC's metadata are not
        has_spans = [e for e in self.exchanges if any(s["source"] == "traced" for s in e["spans"])]
        self.traced = has_spans if kind == "grpc" else self.exchanges
        assert len(self.traced) >= 0.7 * len(self.exchanges)
        after = triton.statistics()
        self.spans = {k: v - spans[k] for k, v in lapwing.stats()["profiler"]["spans"].items()}
        self.counted = {m: Statistics(before[m], after[m]) for m in (*STEPS, "pipe")}

    def sum_of(self, stage):
        """Sums over all requests; those that Triton did not trace are assumed to be like the others."""
        return sum(stages_of(e).get(stage, {"ns": 0})["ns"] for e in self.traced) * len(self.exchanges) / len(self.traced)

    def said_by_triton(self):
        """The same sums, from Triton's statistics. A step's work counts as the stage of its role, its copies as pre- and postprocessing."""
        ns = {step: self.counted[step].ns for step in STEPS}
        return {
            "queue": sum(ns[s]["queue"] for s in STEPS),
            "preprocessing": sum(ns[s]["compute_input"] for s in STEPS) + ns["pre"]["compute_infer"],
            "forward": ns["fwd"]["compute_infer"],
            "postprocessing": sum(ns[s]["compute_output"] for s in STEPS) + ns["post"]["compute_infer"],
        }


class Statistics:
    """The increase of a model's statistics."""

    def __init__(self, before, after):
        self.inferences = after["inference_count"] - before["inference_count"]
        self.executions = after["execution_count"] - before["execution_count"]
        both = {k: (v, before["inference_stats"][k]) for k, v in after["inference_stats"].items()}
        self.ns = {k: int(a["ns"]) - int(b["ns"]) for k, (a, b) in both.items()}
        self.requests = both["success"][0]["count"] - both["success"][1]["count"]


@pytest.fixture(scope="module", params=KINDS)
def run(request):
    """Eight clients, 25 requests each, of 1 to 8 rows."""
    return Run(request.param, served_by(request.param, request), clients=8, each=25)


# --- the bytes

@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_triton(kind, request):
    served = served_by(kind, request)
    for n in (1, 32):
        rows = rows_of(n, seed=n)
        with Client(kind, port_of(kind, served)) as direct, Client(kind, served.lapwing.port) as proxied:
            wanted = direct.infer("pipe", "RAW", rows, "OUT", request_id="one")
            np.testing.assert_array_equal(proxied.infer("pipe", "RAW", rows, "OUT", request_id="one"), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_those_of_triton(kind, request):
    served = served_by(kind, request)
    said = []
    for port in (port_of(kind, served), served.lapwing.port):
        with Client(kind, port) as client, pytest.raises(Exception) as e:
            client.infer("pipe", "RAW", np.ones((1, 7), np.float32), "OUT")
        said.append(str(e.value))
    assert said[0] == said[1]


# --- where the time went

def test_every_exchange_is_joined(run):
    assert len(run.exchanges) == len(run.rows) == 200
    assert all(sum(s["ns"] for s in e["stages"]) == e["total_ns"] for e in run.exchanges)
    for exchange in run.traced:
        stages = stages_of(exchange)
        assert {s: stages[s]["source"] for s in ONLY_TRACED} == dict.fromkeys(ONLY_TRACED, "traced"), exchange["stages"]
        # what Triton has begun before it closes the first step is the next one's
        assert stages["forward"]["ns"] > 8e6 and stages["preprocessing"]["ns"] > 2e6 and stages["postprocessing"]["ns"] > 20e6


def test_each_is_named(run):
    assert {e["model"] for e in run.exchanges} == {"pipe"}
    assert {e["server"] for e in run.traced} == {"triton"}
    assert {e["outcome"] for e in run.exchanges} == {"ok"}


@pytest.mark.parametrize("stage", ONLY_TRACED)
def test_sums_agree_with_tritons_own(run, stage):
    """Not to the nanosecond: Triton closes a step some tenths of a millisecond after it has begun the next one or has answered.
    Triton counts that time twice or beyond the request; Lapwing counts it once or not at all."""
    assert all(run.counted[m].requests == len(run.rows) for m in STEPS), "only this run was counted"
    # the last step's end is late, especially on a busy machine
    near = 0.1 if run.kind == "grpc" else 0.05 if stage == "postprocessing" else 0.02
    assert run.sum_of(stage) == pytest.approx(run.said_by_triton()[stage], rel=near)


def test_all_four_together_agree_with_tritons_own(run):
    owned, counted = sum(run.sum_of(s) for s in ONLY_TRACED), sum(run.said_by_triton().values())
    assert owned == pytest.approx(counted, rel=0.02 if run.kind != "grpc" else 0.1)


def test_nearly_all_of_the_window_is_explained(run):
    covered = sorted(e["coverage"] for e in run.traced)
    assert sum(covered) / len(covered) >= 0.9, covered[:10]


def test_only_what_lapwing_marked_is_traced(run):
    """One span for the request, two for each of the three steps and one for the ensemble: none in excess, none missing."""
    assert run.spans["received"] == run.spans["joined"] == 8 * len(run.traced), run.spans


def test_work_is_counted_in_rows(run):
    work = [e["work"] for e in run.exchanges]
    assert {w["primary"] for w in work} == {"row"}
    assert collections.Counter(w["row"]["amount"] for w in work) == collections.Counter(run.rows)
    assert all(w["element"]["amount"] == 30 * w["row"]["amount"] for w in work)
    assert all(2 ** e["class"] <= e["work"]["row"]["amount"] < 2 ** (e["class"] + 1) for e in run.exchanges)


def test_statistics_are_per_row(run):
    """Over all requests of this Lapwing, the ensemble's series has the same rows as the exchanges."""
    found = [s for s in run.served.lapwing.series() if s["model"] == "pipe" and s["total"]["count"]]
    assert len(found) == 1, [(s["route"], s["outcomes"]) for s in found]
    (series,) = found
    mine = [e for e in run.served.lapwing.exchanges(limit=65536) if e["model"] == "pipe"]
    forward = series["per_unit"]["forward"]
    rows = [(e["work"]["row"]["amount"], stages_of(e)["forward"]["ns"]) for e in mine if "forward" in stages_of(e)]
    assert series["server"] == "triton"
    assert series["units"]["row"] == sum(e["work"]["row"]["amount"] for e in mine)
    assert forward["units"] == sum(n for n, _ in rows)
    assert forward["unit"] == "row" and forward["count"] == len(rows)
    per_row = sorted(ns * 1000 / n for n, ns in rows)
    assert forward["max_ps"] == pytest.approx(per_row[-1], rel=0.002)
    assert forward["p50_ps"] == pytest.approx(per_row[(len(per_row) - 1) // 2], rel=0.01)
    by_class = {c["class"]: c["count"] for c in series["classes"]}
    assert by_class == collections.Counter(e["class"] for e in mine)


# --- what it counts itself

def test_an_ensembles_statistics_are_conserved_from_the_first_poll(triton_http, start_lapwing):
    """A Lapwing that gets no spans: every request is `upstream`, and `polled` waits for the ensemble's configuration."""
    triton = triton_http.server
    env = {**NO_SPANS, "LAPWING_ATTRIBUTION__POLL": triton.url, "LAPWING_ATTRIBUTION__POLL_INTERVAL": "1s"}
    lapwing = start_lapwing(triton.url, env=env)

    def ask(n):
        with Client("json", lapwing.port) as client:
            for _ in range(n):
                client.infer("pipe", "RAW", rows_of(4), "OUT")

    first = []

    def polled_once():
        if lapwing.polls() >= 1:
            return True
        first.append(triton.statistics())
        ask(1)
        return False

    wait_for(polled_once, 30, "the statistics are polled", 1.5)
    assert lapwing.polled("pipe") is None, "one poll counts nothing"
    before = triton.statistics()
    ask(30)
    polled = wait_for(lambda: lapwing.polled("pipe"), 20, "the ensemble is shown", 0.1)
    after = triton.statistics()
    (n,) = {one["count"] for one in polled["stages"].values()}
    assert n in (30, 31), "the last request before the first poll was read may have come after it"
    counted = {m: Statistics((before if n == 30 else first[-1])[m], after[m]) for m in (*STEPS, "pipe")}
    sums = {s: one["sum_ns"] for s, one in polled["stages"].items()}
    assert n == counted["pipe"].requests
    # its own queue and those of its steps; what its steps compute, by their roles
    own = counted["pipe"].ns
    queue = own["queue"] + sum(counted[s].ns["queue"] for s in STEPS)
    pre, post = counted["pre"].ns["compute_infer"], counted["post"].ns["compute_infer"]
    assert sums["queue"] == pytest.approx(queue, rel=0.001)
    assert sums["forward"] == pytest.approx(own["compute_infer"] - pre - post, rel=0.001)
    assert sums["preprocessing"] == pytest.approx(own["compute_input"] + pre, rel=0.001)
    assert sums["postprocessing"] == pytest.approx(own["compute_output"] + post, rel=0.001)
    stages = [stages_of(e) for e in lapwing.exchanges()]
    assert all("upstream" in one and not set(ONLY_TRACED) & set(one) for one in stages)


# --- other kinds of requests

def test_a_stream_of_words_by_http(triton_http):
    """`generate_stream` of a decoupled model: server-sent events, one each 10 ms."""
    words = "one two three four five six seven eight".split()
    body = json.dumps({"text_input": " ".join(words)}).encode()
    known = {e["span_id"] for e in triton_http.lapwing.exchanges()}
    with Counted(triton_http.lapwing, 1) as counted:
        url = f"{triton_http.lapwing.url}/v2/models/gen/generate_stream"
        with urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "application/json"}), timeout=30) as answer:
            came = [(time.perf_counter_ns(), json.loads(line[6:])) for line in answer if line.startswith(b"data: ")]
    events = [event for _, event in came]
    gap_ns = (came[-1][0] - came[0][0]) / (len(came) - 1)
    assert counted.outcomes == {"ok": 1}
    assert [e["text_output"] for e in events] == words
    (exchange,) = [e for e in triton_http.lapwing.exchanges() if e["span_id"] not in known]
    assert (exchange["model"], exchange["server"]) == ("gen", "triton")
    assert stages_of(exchange)["forward"]["ns"] >= 70e6
    generation = exchange["generation"]
    assert generation["streamed"] and generation["chunks"] == len(words)
    assert 10e6 <= generation["first_token_ns"] < exchange["total_ns"]
    assert generation["per_output_token_ns"] == pytest.approx(gap_ns, abs=1e6) and gap_ns >= 10e6
    assert exchange["work"]["output_token"] == {"amount": len(words), "basis": "counted"}


def test_a_stream_of_words_by_grpc(triton_grpc):
    """`ModelStreamInfer` of a decoupled model."""
    words = "one two three four five".split()
    with Counted(triton_grpc.lapwing, 1):
        came = queue.Queue()
        with by_grpc.InferenceServerClient(f"127.0.0.1:{triton_grpc.lapwing.port}") as client:
            client.start_stream(lambda result, error: came.put((result, error)))
            tensor = by_grpc.InferInput("text_input", [1], "BYTES")
            tensor.set_data_from_numpy(np.array([" ".join(words).encode()], dtype=object))
            client.async_stream_infer("gen", [tensor])
            got = [came.get(timeout=10) for _ in words]
            client.stop_stream()
    assert all(error is None for _, error in got)
    assert [result.as_numpy("text_output")[0].decode() for result, _ in got] == words
    newest = triton_grpc.lapwing.exchanges()[0]
    assert newest["route"].endswith("ModelStreamInfer")
    assert (newest["model"], newest["server"]) == ("gen", "triton")


def test_batches_are_tritons(triton_http):
    """256 rows in one request are one batch of the model, and count in that class."""
    with Counted(triton_http.lapwing, 1), Client("binary", triton_http.lapwing.port) as client:
        rows = rows_of(256)
        np.testing.assert_allclose(client.infer("rowsum", "X", rows, "Y"), rows.sum(axis=1, keepdims=True), atol=1e-4)
    newest = triton_http.lapwing.exchanges()[0]
    assert (newest["model"], newest["class"], newest["work"]["row"]["amount"]) == ("rowsum", 8, 256)
