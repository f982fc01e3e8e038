"""Troubles of outcomes and of missing telemetry before the real binary: the first lines of `lapwing diagnose` name each, and the exit code says so.

`crates/lapwing-diagnosis/src/tests/troubles.rs` has more of them, without sockets.
"""

import concurrent.futures
import http.client
import json
import os
import secrets
import subprocess
import time

import pytest

import spans
from lapwing import NO_SPANS
from ports import free_port
from process import wait_for, wait_listening
from raw_server import RawServer, read_body
from test_admin_reads import Asked

pytestmark = pytest.mark.beside
NOT_ENOUGH_EVIDENCE, FAILING = 2, 3
ROUTE = "/v1/completions"
BODY = json.dumps({"model": "m", "prompt": "x"})
ERROR = b'{"error":{"message":"CUDA error: out of memory","type":"server_error","code":500}}'
COMPLETION = b'{"id":"1","object":"text_completion","model":"m","choices":[{"index":0,"text":"x"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}'


class Trouble(RawServer):
    """Answers by the query: `?status=500`, `?error` (in a 200), `?encoding=…`, `?ms=…`."""

    def answer(self, connection, stream, head):
        query = head.split(b" ", 2)[1].decode().partition("?")[2]
        asked = dict(part.partition("=")[::2] for part in query.split("&"))
        read_body(stream, head)
        time.sleep(int(asked.get("ms", 0)) / 1e3)
        status, more = int(asked.get("status", 200)), ""
        body = COMPLETION if status == 200 and "error" not in asked else ERROR
        if "encoding" in asked:
            more = f"Content-Encoding: {asked['encoding']}\r\n"
        connection.sendall(f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return True


@pytest.fixture(scope="module")
def upstream():
    with Trouble() as server:
        yield server


def ask(lapwing, n, query="", timeout=20.0, path=ROUTE):
    """Sends `n` requests on one connection as far as it stays, and returns their statuses; None for one that the client gave up."""
    statuses, connection = [], None
    for _ in range(n):
        connection = connection or http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=timeout)
        try:
            connection.request("POST", f"{path}?{query}" if query else path, BODY, {"content-type": "application/json"})
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
            if response.will_close:
                connection = connection.close()
        except OSError:
            statuses.append(None)
            connection = connection.close()
    if connection:
        connection.close()
    return statuses


class Said:
    """What the command says, in words and as JSON."""

    def __init__(self, binary, lapwing):
        command = [binary, "diagnose", "--admin", f"127.0.0.1:{lapwing.admin}"]
        run = lambda *more: subprocess.run([*command, *more], capture_output=True, text=True, timeout=60, env=dict(os.environ), check=False)
        words, figures = run(), run("--json")
        assert words.returncode == figures.returncode and not words.stderr
        self.code, self.text, self.json = words.returncode, words.stdout, json.loads(figures.stdout)
        self.routes, self.missing = self.json["routes"], self.json["missing"]

    def first(self):
        """The kind that makes the first route fail."""
        failures = self.routes[0]["outcomes"]["failures"] if self.routes else []
        return next((one["kind"] for one in failures if one["is_trouble"]), None)


def counted(lapwing, n):
    """Waits until `n` requests are in the diagnosis."""
    asked = lambda: sum(route["outcomes"]["ended"] for route in lapwing.json("/diagnosis?format=json")["routes"]) >= n
    wait_for(asked, 20, f"{n} requests are diagnosed", 0.3)


FAILURES = [
    # name, settings, what is sent, kind, a word of the first line
    ("always-500", {}, [(40, "status=500")], "upstream_failing", "status 500"),
    ("mixed", {}, [(60, ""), (20, "status=503")], "upstream_failing", "20 of 80 requests"),
    ("body-error", {}, [(40, "error")], "upstream_failing", "error in the body"),
    ("429", {}, [(40, ""), (20, "status=429")], "upstream_refusing", "429"),
    ("504", {"proxy__header_timeout": "200ms"}, [(6, "ms=600"), (10, "")], "upstream_too_slow", "too slow"),
]


@pytest.mark.parametrize(("settings", "sent", "kind", "word"), [case[1:] for case in FAILURES], ids=[case[0] for case in FAILURES])
def test_a_route_whose_requests_fail_says_how_first(binary, processes, upstream, settings, sent, kind, word):
    lapwing = Asked(processes, binary, upstream.url, **settings)
    for n, query in sent:
        ask(lapwing, n, query)
    counted(lapwing, sum(n for n, _ in sent))
    said = Said(binary, lapwing)
    assert (said.code, said.first(), said.routes[0]["status"]) == (FAILING, kind, "failing"), said.text
    lines = said.text.splitlines()
    title = next(at for at, line in enumerate(lines) if line.endswith(": failing"))
    assert lines[title + 1].startswith("  ! ") and word in lines[title + 1], said.text
    assert lines[title + 2].startswith("     first: "), said.text
    low, high = said.routes[0]["outcomes"]["failures"][0]["share_interval"]
    assert 0 < low < said.routes[0]["outcomes"]["failures"][0]["share"] <= high <= 1


def test_a_dead_upstream_is_unreachable_and_not_no_request(binary, processes):
    lapwing = Asked(processes, binary, f"http://127.0.0.1:{free_port()}")
    assert {status for _ in range(40) for status in ask(lapwing, 1)} == {502}
    counted(lapwing, 40)
    said = Said(binary, lapwing)
    assert (said.code, said.first()) == (FAILING, "upstream_unreachable"), said.text
    assert "40 of 40 requests" in said.text and f"POST {ROUTE}" in said.text and "no request ended well" in said.text, said.text
    stats = subprocess.run([binary, "stats", "--admin", f"127.0.0.1:{lapwing.admin}"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert stats.splitlines()[1].startswith("  FAILING: 40 of 40 requests fail (91.2 % to 100.0 %)"), stats
    wait_for(lambda: "failing: The upstream is unreachable" in lapwing.process.output(), 40, "the log says it", 0.5)


def test_requests_that_are_shed_and_clients_that_leave(binary, processes, upstream):
    lapwing = Asked(processes, binary, upstream.url, proxy__max_in_flight=1)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        statuses = [status for part in pool.map(lambda _: ask(lapwing, 8, "ms=30"), range(6)) for status in part]
    assert statuses.count(503) >= 5, statuses
    counted(lapwing, 48)
    said = Said(binary, lapwing)
    assert (said.code, said.first()) == (FAILING, "shedding"), said.text
    assert "proxy.max_in_flight" in said.text

    lapwing = Asked(processes, binary, upstream.url)
    assert ask(lapwing, 20) == [200] * 20 and ask(lapwing, 6, "ms=1500", timeout=0.2) == [None] * 6
    counted(lapwing, 26)
    said = Said(binary, lapwing)
    assert (said.code, said.first()) == (FAILING, "clients_leaving"), said.text


def test_client_errors_are_said_and_make_nothing_fail(binary, processes, upstream):
    lapwing = Asked(processes, binary, upstream.url)
    ask(lapwing, 30, "status=404")
    counted(lapwing, 30)
    said = Said(binary, lapwing)
    assert (said.code, said.first()) == (NOT_ENOUGH_EVIDENCE, None), said.text
    assert "30 of 30 requests" in said.text and "clients ask for what the upstream does not take" in said.text


# --- what does not arrive


class Receiving(Asked):
    """With both receivers of spans, or none."""

    def __init__(self, processes, binary, upstream, is_on=True):
        self.port, self.admin, self.otlp_grpc, self.otlp_http = (free_port() for _ in range(4))
        command = [binary, "--upstream", upstream, "--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"]
        for flag, port in (("--otlp-grpc", self.otlp_grpc), ("--otlp-http", self.otlp_http)):
            command += [flag, f"127.0.0.1:{port}" if is_on else "off"]
        self.process = processes("lapwing", command, env=dict(os.environ, **NO_SPANS))
        wait_listening(self.admin, 20)


def begins_with(said, cause, count, of):
    gap = said.missing[0]
    assert (gap["cause"], gap["count"], gap["of"]) == (cause, count, of), said.text
    first, second, *_ = said.text.splitlines()
    assert first == f"missing: {gap['sentence']}" and second == f"  change: {gap['change']}", said.text
    assert str(count) in gap["sentence"] and gap["change"]


def test_both_receivers_off_is_said_and_logged_once(binary, processes, upstream):
    lapwing = Receiving(processes, binary, upstream.url, is_on=False)
    assert ask(lapwing, 30) == [200] * 30
    counted(lapwing, 30)
    begins_with(Said(binary, lapwing), "tracing_off", 30, 30)
    wait_for(lambda: "missing: tracing is off" in lapwing.process.output(), 30, "the log says it", 0.5)
    assert lapwing.process.output().count("missing: tracing is off") == 1


def test_spans_of_another_trace_are_said(binary, processes, upstream):
    """As of a server that continues B3: its spans have traces that Lapwing never saw."""
    lapwing = Receiving(processes, binary, upstream.url)
    assert ask(lapwing, 30) == [200] * 30
    now = time.time_ns()
    for _ in range(13):
        sent = [spans.span(secrets.token_hex(16), secrets.token_hex(8), "forward", now - 1_000_000, now) for _ in range(50)]
        assert spans.post(lapwing.otlp_http, spans.protobuf(spans.request(sent)))[0] == 200
    counted(lapwing, 30)
    wait_for(lambda: lapwing.json("/diagnosis?format=json")["missing"], 20, "it is missed", 0.5)
    said = Said(binary, lapwing)
    begins_with(said, "spans_unmatched", 650, 650)
    assert "OTEL_PROPAGATORS" in said.missing[0]["change"]


@pytest.mark.parametrize("way", ["compression", "port", "type"])
def test_exports_that_are_refused_are_said_and_logged_once(binary, processes, upstream, way):
    lapwing = Receiving(processes, binary, upstream.url)
    ask(lapwing, 30)
    headers = {"content-type": "application/x-protobuf"} | {"compression": {"content-encoding": "compress"}, "type": {"content-type": "text/plain"}}.get(way, {})
    port = lapwing.otlp_grpc if way == "port" else lapwing.otlp_http
    for _ in range(21):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", "/v1/traces", b"\x1f\x9d\x90", headers)
        connection.getresponse().read()
        connection.close()
    counted(lapwing, 30)
    said = Said(binary, lapwing)
    begins_with(said, "exports_refused", 21, 21)
    detail = {"compression": "content-encoding compress", "port": "path /v1/traces of the gRPC port", "type": "content-type text/plain"}[way]
    assert detail in said.missing[0]["sentence"], said.text
    assert lapwing.process.output().count("an OTLP export was refused") == 1


def test_answers_that_cannot_be_read_are_said(binary, processes, upstream):
    lapwing = Receiving(processes, binary, upstream.url)
    assert ask(lapwing, 30, "encoding=x-unheard-of") == [200] * 30
    counted(lapwing, 30)
    said = Said(binary, lapwing)
    gap = next(one for one in said.missing if one["cause"] == "compressed_answers")
    assert (gap["count"], gap["of"]) == (30, 30), said.text
    exchange = lapwing.json("/exchanges?limit=1")["exchanges"][0]
    assert {"unread_response", "compressed_response"} <= set(exchange["annotations"]), exchange
