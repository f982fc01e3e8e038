"""Token usage in fields of the response: a rule's headers and trailers, over HTTP/1.1 and gRPC, and what gateways name."""

import http.client
from concurrent import futures

import grpc
import pytest

from lapwing import Counted
from process import wait_for

pytestmark = pytest.mark.beside
CONFIG = """\
attribution: {expect_spans: never}
protocol:
  custom:
    - route: /canned/rule-*
      model: {header: x-model, from: response}
      input_tokens: {header: x-in, from: response}
      output_tokens: {header: x-out, from: response}
    - route: POST /test.Usage/*
      input_tokens: {header: x-in, from: response}
      output_tokens: {header: x-out, from: response}
"""


def whole(*fields, status="200 OK"):
    return "\r\n".join([f"HTTP/1.1 {status}", *fields, "Content-Length: 2", "", "ok"]).encode()


def chunked(fields, trailers):
    head = ["HTTP/1.1 200 OK", *fields, "Transfer-Encoding: chunked"]
    return "\r\n".join([*head, "", "3", "abc", "3", "def", "0", *trailers, "", ""]).encode()


BEDROCK = ["X-Amzn-Bedrock-Input-Token-Count: 25", "X-Amzn-Bedrock-Output-Token-Count: 18"]
CACHED = ["X-Amzn-Bedrock-Cache-Read-Input-Token-Count: 1000", "X-Amzn-Bedrock-Cache-Write-Input-Token-Count: 200"]
CANNED = {
    "rule-head": whole("X-Model: a", "X-In: 7", "X-Out: 1"),
    "rule-trailers": chunked(["X-Model: a", "X-In: 7", "X-Out: 1"], ["X-Out: 40", "X-Model: b"]),
    "rule-only-trailers": chunked(["Trailer: X-In, X-Out"], ["X-In: 9", "X-Out: 41"]),
    "rule-refused": chunked(["X-In: 7"], ["X-In: -3", "X-Out: 5", "X-Out: 5"]),
    "rule-error": whole("X-In: 7", "X-Out: 1", status="500 Broken"),
    "bedrock": whole(*BEDROCK, *CACHED),
    "bedrock-refused": whole("X-Amzn-Bedrock-Input-Token-Count: many", BEDROCK[1], BEDROCK[1]),
    "bedrock-error": whole(*BEDROCK, status="429 Too Many Requests"),
    "fireworks": whole("fireworks-prompt-tokens: 2421", "fireworks-cached-prompt-tokens: 2420"),
    "none": whole("X-Kong-LLM-Model: openai/gpt"),
}


class Usage(grpc.GenericRpcHandler):
    """Answers with 12 tokens read and, in its trailing metadata, as many written as the request says."""

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.answer)

    def answer(self, request, context):
        context.send_initial_metadata((("x-in", "12"), ("x-out", "0")))
        context.set_trailing_metadata((("x-out", request.decode()),))
        return b"ok"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "lapwing.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def served(raw_server, start_lapwing, config):
    raw_server.canned.update(CANNED)
    lapwing = start_lapwing(raw_server.url, config=config)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    return lapwing


def malformed(lapwing):
    return lapwing.stats()["profiler"]["reports_malformed"]


def work_of(lapwing, ask):
    """The work and the model of the one exchange that `ask` makes, and how many fields were refused."""
    before = malformed(lapwing)
    with Counted(lapwing, 1):
        ask()
    newest = max(lapwing.exchanges(), key=lambda e: e["started_at"])
    work = newest["work"] or {}
    amounts = {unit: told["amount"] for unit, told in work.items() if unit.endswith("_token")}
    assert all(work[unit]["basis"] == "reported" for unit in amounts)
    return work.get("primary"), amounts, newest["model"], malformed(lapwing) - before


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rule-head", ("output_token", {"input_token": 7, "output_token": 1}, "a", 0)),
        ("rule-trailers", ("output_token", {"input_token": 7, "output_token": 40}, "b", 0)),
        ("rule-only-trailers", ("output_token", {"input_token": 9, "output_token": 41}, None, 0)),
        ("rule-refused", ("output_token", {"input_token": 7}, None, 2)),
        ("rule-error", (None, {}, None, 0)),
        ("bedrock", ("output_token", {"input_token": 1225, "output_token": 18}, None, 0)),
        ("bedrock-refused", (None, {}, None, 2)),
        ("bedrock-error", (None, {}, None, 0)),
        ("fireworks", ("input_token", {"input_token": 2421}, None, 0)),
        ("none", (None, {}, None, 0)),
    ],
)
def test_fields_over_http1(served, name, expected):
    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
        connection.request("GET", f"/canned/{name}", headers={"TE": "trailers"})
        assert connection.getresponse().read() in (b"ok", b"abcdef")
        connection.close()

    primary, amounts, model, refused = work_of(served, ask)
    assert (primary, amounts, model or None, refused) == expected


def test_trailing_metadata_of_grpc(start_lapwing, config):
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Usage()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    lapwing = start_lapwing(f"h2c://127.0.0.1:{port}", config=config)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    with grpc.insecure_channel(f"127.0.0.1:{lapwing.port}") as channel:
        call = channel.unary_unary("/test.Usage/Answer")
        for said, output, refused in [(b"33", 33, 0), (b"-1", 0, 1)]:
            got = work_of(lapwing, lambda said=said: call(said, timeout=10))
            assert got[:2] == ("output_token", {"input_token": 12, "output_token": output})
            assert got[3] == refused
    server.stop(0)
