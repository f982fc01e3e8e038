"""Budgets of single requests, their goodput, times that are passed on, and load reports: FastAPI on uvicorn and grpcio through Lapwing.

Load reports are read by protobuf's own parsers, of JSON and of its encoding, with the fields of the public definition
(xds/data/orca/v3/orca_load_report.proto).
"""

import base64
import json
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent import futures

import grpc
import pytest
import requests
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from lapwing import NO_SPANS
from ports import free_port
from process import wait_for, wait_listening

pytestmark = pytest.mark.beside
SERVER = pathlib.Path(__file__).parent / "servers" / "budgeted_server.py"
OWN = "TEXT cpu_utilization=0.3"
"""A load report of a server's own."""
BUDGETS = """
metrics:
  budgets:
    "POST /predict": {total: 30s}
    "POST /v1/chat/completions": {first_token: 30s, per_token: 500ms}
  model_budgets:
    hasty: {first_token: 1ms}
proxy:
  deadline_header: X-Latency-Budget-Ms
"""


class Budgeted:
    """The server behind Lapwing with these settings in addition."""

    def __init__(self, processes, start_lapwing, folder, settings):
        port = free_port()
        processes("budgeted_server", [sys.executable, str(SERVER), str(port)])
        wait_listening(port, 60)
        config = folder / "lapwing.yaml"
        config.write_text(settings)
        self.lapwing = start_lapwing(f"http://127.0.0.1:{port}", config=config, env=NO_SPANS)
        wait_for(self.lapwing.is_ready, 20, "lapwing is ready")
        self.session, self.sent = requests.Session(), 0

    def post(self, path, asked, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.sent += 1
        response = self.session.post(f"{self.lapwing.url}{path}", json=asked, headers=headers, timeout=30)
        response.raise_for_status() if asked.get("status", 200) == 200 else None
        return response

    def counted(self):
        wait_for(lambda: self.lapwing.count() >= self.sent, 20, "all requests are counted", 0.05)

    def goodput(self, route, model=None):
        """The goodput of a series once all requests are counted."""
        self.counted()
        (one,) = [s for s in self.lapwing.series() if (s["route"], s["model"]) == (route, model)]
        return one["goodput"]

    def last(self, route):
        """The latest exchange of a route."""
        self.counted()
        return next(one for one in self.lapwing.exchanges() if one["route"] == route)

    def samples(self, metric):
        """The values of a metric by its labels."""
        lines = [line for line in self.lapwing.metrics().splitlines() if line.startswith(f"{metric}{{")]
        return {frozenset(re.findall(r'(\w+)="([^"]*)"', line)): float(line.rsplit(None, 1)[1]) for line in lines}


@pytest.fixture(scope="module")
def budgeted(processes, start_lapwing, tmp_path_factory):
    return Budgeted(processes, start_lapwing, tmp_path_factory.mktemp("budgeted"), BUDGETS)


def test_a_request_keeps_its_own_budget_or_its_routes(budgeted):
    budgeted.post("/predict", {})
    assert budgeted.last("POST /predict")["deadline"] == {"budget_ns": 30 * 10**9, "source": "route"}
    budgeted.post("/predict", {"ms": 60}, X_Latency_Budget_Ms="20")
    assert budgeted.last("POST /predict")["deadline"] == {"budget_ns": 20 * 10**6, "source": "header"}
    budgeted.post("/predict", {"status": 500}, X_Latency_Budget_Ms="30000")
    goodput = budgeted.goodput("POST /predict")
    assert (goodput["requests"], goodput["within"], goodput["missed"]) == (3, 1, {"total": 1, "failed": 1})
    assert goodput["share"] == pytest.approx(1 / 3)
    route = ("route", "POST /predict")
    (requests_,) = [v for k, v in budgeted.samples("lapwing_budgeted_requests_total").items() if route in k]
    (within,) = [v for k, v in budgeted.samples("lapwing_goodput_requests_total").items() if route in k]
    missed = {dict(k)["missed"]: v for k, v in budgeted.samples("lapwing_budget_missed_requests_total").items() if route in k}
    assert (requests_, within, missed) == (3, 1, {"total": 1, "failed": 1})


def test_a_malformed_budget_counts_for_nothing_and_is_counted(budgeted):
    def malformed():
        budgeted.counted()
        return {dict(k)["field"]: v for k, v in budgeted.samples("lapwing_deadlines_malformed_total").items()}

    before = malformed()
    for text in ("soon", "1.5", "-1", "99999999999999"):
        assert budgeted.post("/predict", {}, X_Latency_Budget_Ms=text).json()["x-latency-budget-ms"] == text
        assert budgeted.last("POST /predict")["deadline"]["source"] == "route"
    infer = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}], "parameters": {"timeout": "soon"}}
    budgeted.post("/v2/models/m/infer", infer)
    assert "deadline" not in budgeted.last("POST /v2/models/{model}/infer")
    after = malformed()
    assert (after["head"] - before["head"], after["parameter"] - before["parameter"]) == (4, 1)


def test_the_parameter_timeout_is_a_budget_in_microseconds(budgeted):
    infer = {"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 3]}], "parameters": {"timeout": 30_000_000}}
    budgeted.post("/v2/models/m/infer", infer)
    assert budgeted.last("POST /v2/models/{model}/infer")["deadline"] == {"budget_ns": 30 * 10**9, "source": "parameter"}
    work = {one["unit"]: one for one in budgeted.goodput("POST /v2/models/{model}/infer", "m")["work"]}
    assert work["element"] == {"unit": "element", "basis": "counted", "amount": 3, "within": 3}


def test_tokens_have_budgets_by_route_and_by_model(budgeted):
    chat = {"messages": [{"role": "user", "content": "hello"}], "stream": True}
    for model, first_ms, gap_ms in (("calm", 0, 10), ("calm", 0, 700), ("hasty", 50, 10)):
        budgeted.post("/v1/chat/completions", {**chat, "model": model, "first_ms": first_ms, "gap_ms": gap_ms})
    calm, hasty = (budgeted.goodput("POST /v1/chat/completions", model) for model in ("calm", "hasty"))
    assert (calm["requests"], calm["within"], calm["missed"]) == (2, 1, {"per_token": 1})
    assert (hasty["requests"], hasty["within"], hasty["missed"]) == (1, 0, {"first_token": 1})
    by_basis = {(one["unit"], one["basis"]): (one["amount"], one["within"]) for one in calm["work"]}
    assert by_basis[("output_token", "counted")] == (8, 4)
    assert ("input_token", "estimated") in by_basis and ("input_token", "counted") not in by_basis


# --- gRPC

class Echo(grpc.GenericRpcHandler):
    """Answers with the metadata that it got, as JSON; `Stream` twice."""

    def service(self, details):
        if details.method.endswith("Stream"):
            return grpc.unary_stream_rpc_method_handler(lambda _, context: iter([self.told(context)] * 2))
        return grpc.unary_unary_rpc_method_handler(lambda _, context: self.told(context))

    @staticmethod
    def told(context):
        metadata = {k: v for k, v in context.invocation_metadata() if not k.endswith("-bin")}
        if metadata.get("x-own-report"):
            context.set_trailing_metadata((("endpoint-load-metrics", OWN),))
        return json.dumps({"left": context.time_remaining(), **metadata}).encode()


@pytest.fixture(scope="module")
def grpc_port():
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Echo()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(0)


def start_before(start_lapwing, port, **settings):
    env = {f"LAPWING_PROXY__{name.upper()}": value for name, value in settings.items()}
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", env={**NO_SPANS, **env})
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    return lapwing


class SlowHead(threading.Thread):
    """Sends the head of a request, which is HTTP/1.1, in two halves; `answer` is what comes back."""

    def __init__(self, port, head, pause_s):
        super().__init__()
        self.port, self.head, self.pause_s, self.answer = port, head, pause_s, None

    def run(self):
        with socket.create_connection(("127.0.0.1", self.port), 20) as s:
            first, rest = self.head[:20], self.head[20:]
            s.sendall(first)
            time.sleep(self.pause_s)
            s.sendall(rest)
            answer = b""
            while piece := s.recv(65536):
                answer += piece
            self.answer = answer


def test_what_is_left_of_a_time_is_passed_on(processes, start_lapwing, tmp_path_factory):
    settings = "proxy:\n  deadline_header: x-latency-budget-ms\n  pass_deadline: on\n"
    budgeted = Budgeted(processes, start_lapwing, tmp_path_factory.mktemp("passing"), settings)
    head = b"POST /predict HTTP/1.1\r\nhost: m\r\nx-latency-budget-ms: 20000\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
    slow = SlowHead(budgeted.lapwing.port, head, 1)  # twice as long: Lapwing may see the first bytes late
    slow.start()
    slow.join()
    (left,) = re.findall(rb'"x-latency-budget-ms":"(\d+)"', slow.answer)
    assert 0 < int(left) <= 19_500, left
    assert budgeted.post("/predict", {}, X_Latency_Budget_Ms="0").json()["x-latency-budget-ms"] == "1"


def call(port, method="/t.S/Call", timeout=None, metadata=()):
    """What the server was told, and the trailers."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        kind = channel.unary_stream if method.endswith("Stream") else channel.unary_unary
        if kind == channel.unary_stream:
            answer = kind(method)(b"", timeout=timeout, metadata=metadata)
            return json.loads(list(answer)[0]), dict(answer.trailing_metadata())
        answer, done = kind(method).with_call(b"", timeout=timeout, metadata=metadata)
        return json.loads(answer), dict(done.trailing_metadata())


@pytest.mark.parametrize("passes", ["on", "off"])
def test_a_deadline_of_grpc_is_a_budget_and_may_be_passed_on(start_lapwing, grpc_port, passes):
    lapwing = start_before(start_lapwing, grpc_port, pass_deadline=passes)
    told, _ = call(lapwing.port, timeout=20)
    assert 0 < told["left"] <= 20
    wait_for(lambda: lapwing.count() == 1, 20, "the call is counted", 0.05)
    (exchange,) = [one for one in lapwing.exchanges() if one["route"].endswith("/Call")]
    assert exchange["deadline"]["source"] == "grpc_timeout"
    assert 19 * 10**9 < exchange["deadline"]["budget_ns"] <= 20 * 10**9
    (series,) = [one for one in lapwing.series() if one["route"].endswith("/Call")]
    assert (series["goodput"]["requests"], series["goodput"]["within"]) == (1, 1)
    told, _ = call(lapwing.port)
    assert told["left"] is None or told["left"] > 10**6, "no deadline"


# --- load reports

def report_type():
    """`xds.data.orca.v3.OrcaLoadReport` for protobuf, with the fields that are not deprecated."""
    file = descriptor_pb2.FileDescriptorProto(name="orca.proto", package="xds.data.orca.v3", syntax="proto3")
    report = file.message_type.add(name="OrcaLoadReport")
    field = descriptor_pb2.FieldDescriptorProto
    for name, number in (("cpu_utilization", 1), ("mem_utilization", 2), ("rps_fractional", 6), ("eps", 7), ("application_utilization", 9)):
        report.field.add(name=name, number=number, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    entry = report.nested_type.add(name="NamedMetricsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    of_entry = ".xds.data.orca.v3.OrcaLoadReport.NamedMetricsEntry"
    report.field.add(name="named_metrics", number=8, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED, type_name=of_entry)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("xds.data.orca.v3.OrcaLoadReport"))


REPORT = report_type()


def read_text(text):
    """Triton's and vLLM's form: names with values, and those of a map behind its name."""
    report = REPORT()
    for pair in text.split(", "):
        name, value = pair.split("=")
        if name.startswith("named_metrics."):
            report.named_metrics[name.removeprefix("named_metrics.")] = float(value)
        else:
            setattr(report, name, float(value))
    return report


def report_of(headers, asked):
    if asked == "bin":
        return REPORT.FromString(base64.b64decode(headers["endpoint-load-metrics-bin"]))
    form, text = headers["endpoint-load-metrics"].split(" ", 1)
    assert form == asked.upper()
    return json_format.Parse(text, REPORT()) if asked == "json" else read_text(text)


@pytest.fixture(scope="module")
def reporting(processes, start_lapwing, tmp_path_factory):
    budgeted = Budgeted(processes, start_lapwing, tmp_path_factory.mktemp("reporting"), "proxy:\n  respond_orca: on\n")
    for n in range(20):
        budgeted.post("/predict", {"status": 500 if n % 2 else 200})
    wait_for(lambda: "rps_fractional" in reported(budgeted)["endpoint-load-metrics"], 20, "a slot of time has ended", 0.2)
    return budgeted


def reported(budgeted, asked="json", path="/predict"):
    return budgeted.post(path, {}, endpoint_load_metrics_format=asked).headers


@pytest.mark.parametrize("asked", ["json", "text", "bin"])
def test_a_load_report_is_given_in_the_form_that_is_asked_for(reporting, asked):
    report = report_of(reported(reporting, asked), asked)
    assert 0 < report.rps_fractional < 1000 and 0 < report.eps < report.rps_fractional
    assert report.named_metrics["lapwing.in_flight"] == 1
    assert report.application_utilization == 0, "it is not known"


def test_nobody_gets_a_report_who_does_not_ask_and_the_upstreams_own_stays(reporting, budgeted):
    names = ("endpoint-load-metrics", "endpoint-load-metrics-bin")
    assert not any(name in reporting.post("/predict", {}).headers for name in names)
    assert not any(name in reported(reporting, "yaml") for name in names)
    assert not any(name in reported(budgeted) for name in names), "off by default"
    assert reported(reporting, path="/reporting")["endpoint-load-metrics"] == OWN


@pytest.mark.parametrize("method", ["/t.S/Call", "/t.S/Stream"])
def test_over_grpc_a_load_report_is_in_the_trailers(start_lapwing, grpc_port, tmp_path, method):
    lapwing = start_before(start_lapwing, grpc_port, respond_orca="on")
    asks = (("endpoint-load-metrics-format", "json"),)
    report = report_of(call(lapwing.port, method, metadata=asks)[1], "json")
    assert report.named_metrics["lapwing.in_flight"] == 1
    assert "endpoint-load-metrics" not in call(lapwing.port, method)[1]
    _, trailers = call(lapwing.port, method, metadata=(*asks, ("x-own-report", "1")))
    assert trailers["endpoint-load-metrics"] == OWN
    # grpcio keeps the binary form for its load balancers
    (tmp_path / "message").write_bytes(bytes(5))
    command = ["curl", "-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-D", "-", "--data-binary", f"@{tmp_path}/message"]
    for name, value in (("content-type", "application/grpc"), ("te", "trailers"), ("endpoint-load-metrics-format", "bin")):
        command += ["-H", f"{name}: {value}"]
    done = subprocess.run([*command, f"{lapwing.url}{method}"], capture_output=True, text=True, timeout=20, check=True)
    head, trailers = done.stdout.replace("\r", "").split("\n\n")[:2]
    assert "endpoint-load-metrics" not in head and "grpc-status: 0" in trailers
    fields = dict(line.split(": ", 1) for line in trailers.strip().splitlines())
    assert report_of(fields, "bin").named_metrics["lapwing.in_flight"] == 1
