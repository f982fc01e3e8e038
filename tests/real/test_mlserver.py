"""A real MLServer through Lapwing: the Open Inference Protocol by REST and gRPC, used by tritonclient.

It sends one server span per request without stages, so Lapwing must find the model and the rows, and claim nothing more.
"""

import collections

import numpy as np
import pytest

from lapwing import Counted
from oip_clients import Client, load, rows_of
from process import wait_for

ROUTES = {"json": "POST /v2/models/{model}/infer", "grpc": "POST /inference.GRPCInferenceService/ModelInfer"}
KINDS = tuple(ROUTES)
CLIENTS, EACH = 4, 20


def ask(client, rows):
    np.testing.assert_allclose(client.infer("rowsum", "x", rows, "y"), rows.sum(axis=1, keepdims=True), atol=1e-4)


class Run:
    """A load, and Lapwing's exchanges of it."""

    def __init__(self, kind, served):
        self.kind, self.served = kind, served
        with Counted(served.lapwing, CLIENTS * EACH) as counted:
            known = {e["span_id"] for e in served.lapwing.exchanges()}
            self.rows = load(kind, served.lapwing.port, ask, CLIENTS, EACH)
        self.outcomes = counted.outcomes
        self.exchanges = [e for e in served.lapwing.exchanges() if e["span_id"] not in known]


@pytest.fixture(scope="module", params=KINDS)
def run(request):
    return Run(request.param, request.getfixturevalue("mlserver_grpc" if request.param == "grpc" else "mlserver_http"))


def test_each_request_is_counted_once(run):
    assert run.outcomes == {"ok": CLIENTS * EACH}
    assert len(run.exchanges) == len(run.rows)


def test_model_and_rows_are_named(run):
    assert {(e["route"], e["model"]) for e in run.exchanges} == {(ROUTES[run.kind], "rowsum")}
    assert {e["work"]["primary"] for e in run.exchanges} == {"row"}
    amounts = [e["work"]["row"] for e in run.exchanges]
    assert collections.Counter(a["amount"] for a in amounts) == collections.Counter(run.rows)
    assert {a["basis"] for a in amounts} == {"counted"}


def test_the_server_is_named(run):
    """By its metadata, which Lapwing requests once requests arrive; exchanges before that have no server name."""
    lapwing = run.served.lapwing

    def named():
        with Client(run.kind, lapwing.port) as client:
            ask(client, rows_of(1))
        return lapwing.exchanges(limit=1)[0]["server"] == "mlserver"

    wait_for(named, 20, "an exchange names its server", 0.5)
    assert {e["server"] for e in run.exchanges} <= {None, "mlserver"}


def test_a_span_without_stages_claims_nothing(run):
    """The model's 5 ms are within the window, but no report names their stage, so the window is `upstream`, undivided."""
    spans = run.served.lapwing.stats()["profiler"]["spans"]
    assert spans["joined"] >= len(run.exchanges) and spans["ambiguous"] == spans["unmatched"] == 0, spans
    for exchange in run.exchanges:
        stages = {s["stage"]: s for s in exchange["stages"]}
        assert sum(s["ns"] for s in exchange["stages"]) == exchange["total_ns"]
        assert {s["source"] for s in exchange["stages"]} == {"observed"}, exchange["stages"]
        assert stages["upstream"]["ns"] >= 5e6 and "forward" not in stages
        assert exchange["coverage"] == 0


def test_spans_of_a_runtime_come_if_it_installs_the_tracer_provider(mlserver_http):
    lapwing = mlserver_http.lapwing
    with Client("json", lapwing.port) as client:
        client.infer("staged", "x", rows_of(2), "y")
    exchange = lambda: next((e for e in lapwing.exchanges() if e["model"] == "staged"), None)
    stages = {s["stage"]: s for s in wait_for(exchange, 15, "the exchange is merged", 0.2)["stages"]}
    assert {stages[name]["source"] for name in ("preprocessing", "forward")} == {"traced"}, stages
    assert stages["preprocessing"]["ns"] >= 3e6 and stages["forward"]["ns"] >= 8e6


def test_answers_are_those_of_mlserver(run):
    port = run.served.server.grpc if run.kind == "grpc" else run.served.server.http
    rows = rows_of(64)
    with Client(run.kind, port) as direct, Client(run.kind, run.served.lapwing.port) as proxied:
        wanted = direct.infer("rowsum", "x", rows, "y", request_id="one")
        np.testing.assert_array_equal(proxied.infer("rowsum", "x", rows, "y", request_id="one"), wanted)
