"""Servers that cannot run here, replayed from their source (replayers/): each stage against what the replayer really did.

Spans come by the servers' own exporters at their own delays (5 s, SGLang's 0.5 s), so a test waits for them once.
"""

import contextlib
import http.client
import json
import time

import pytest

from lapwing import NO_SPANS
from ports import free_port
from replayers.hugging_face import Tei, Tgi, debug
from replayers.replayer import Ports
from replayers.sglang import Sglang
from replayers.tensorrt_llm import TensorRtLlm
from replayers.tf_serving import PAGE, TfServing
from replayers.vllm import Vllm

REQUESTS = 8
CHAT = {"model": "org/model", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 10}
IDS = {"input_ids": [1, 2, 3, 4], "sampling_params": {"max_new_tokens": 10}}
LONG = {"input_ids": [1, 2, 3, 4], "sampling_params": {"max_new_tokens": 300}}
TEXT = {"inputs": "some text", "parameters": {"max_new_tokens": 6, "details": True}}
BY_SPANS, BY_BODY, BY_HEADER = "spans", "body", "header"

CASES = {
    "vllm: spans": (lambda ports: Vllm(ports, metrics=False), "/v1/chat/completions", CHAT, BY_SPANS),
    "vllm: spans of a stream": (lambda ports: Vllm(ports, metrics=False), "/v1/chat/completions", {**CHAT, "stream": True}, BY_SPANS),
    "vllm: body": (lambda ports: Vllm(ports, spans=False), "/v1/chat/completions", CHAT, BY_BODY),
    "vllm: last chunk": (lambda ports: Vllm(ports, spans=False), "/v1/chat/completions", {**CHAT, "stream": True}, BY_BODY),
    "vllm: both": (Vllm, "/v1/chat/completions", CHAT, BY_BODY),
    "sglang: spans": (Sglang, "/generate", IDS, BY_SPANS),
    "sglang: spans of a stream": (Sglang, "/generate", {**IDS, "stream": True}, BY_SPANS),
    "sglang: meta_info": (lambda ports: Sglang(ports, spans=False), "/generate", IDS, BY_BODY),
    "sglang: meta_info of a stream": (lambda ports: Sglang(ports, spans=False), "/generate", {**IDS, "stream": True}, BY_BODY),
    "sglang: a span a token": (Sglang, "/generate", LONG, BY_SPANS),
    "tensorrt-llm: spans": (TensorRtLlm, "/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 10}, BY_SPANS),
    "tei: embed": (Tei, "/embed", {"inputs": "some text"}, BY_HEADER),
    "tei: predict": (Tei, "/predict", {"inputs": "some text"}, BY_HEADER),
    "tgi: generate": (Tgi, "/generate", TEXT, BY_HEADER),
    "tgi: generate_stream": (Tgi, "/generate_stream", TEXT, BY_SPANS),
}


def post(lapwing, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    assert response.status == 200, answer


def started(start_lapwing, make, port, **kw):
    """Lapwing, and the replayer behind it on `port`, which is yet to be entered."""
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", **kw)
    return lapwing, make(Ports(port, lapwing.otlp_grpc))


def figures(exchange):
    """Nanoseconds by stage; prefill and decode where the exchange has them."""
    found = {stage["stage"]: stage["ns"] for stage in exchange["stages"]}
    for phase in exchange.get("phases") or []:
        found[phase["phase"]] = phase["ns"]
    return found


@pytest.fixture(scope="module")
def asked(start_lapwing):
    """(Lapwing, what each request really took) of each case, or what went wrong in it. One case at a time is asked, and then all of their
    exporters are waited for at once."""
    with contextlib.ExitStack() as replayers:

        def ask(make, path, body, _):
            lapwing, replayer = started(start_lapwing, make, free_port())
            replayers.enter_context(replayer)
            for _ in range(REQUESTS):
                post(lapwing, path, body)
            return lapwing, replayer.truths

        def tried(case):
            try:
                return ask(*case)
            except Exception as error:  # noqa: BLE001: its own test shows it
                return error

        yield {name: tried(case) for name, case in CASES.items()}


@pytest.mark.parametrize("case", CASES)
def test_stages_are_those_of_the_server(case, asked):
    source = CASES[case][-1]
    if isinstance(asked[case], Exception):
        raise asked[case]
    lapwing, truths = asked[case]
    exchanges = lapwing.exchanges_of(truths, seconds=20)
    # the headers are whole milliseconds, rounded down
    wrong, resolution_ns = [], 1_000_000 if source == BY_HEADER else 0
    for trace_id, truth in truths.items():
        said = figures(exchanges[trace_id])
        assert sum(stage["ns"] for stage in exchanges[trace_id]["stages"]) == exchanges[trace_id]["total_ns"]
        for stage, ns in truth.items():
            if abs(said.get(stage, 0) - ns) > resolution_ns + max(0.03 * ns, 300_000):
                wrong.append((stage, said.get(stage, 0), ns))
    assert len(wrong) <= 0.1 * REQUESTS * len(truth), wrong
    assert case.split(":")[0] in {exchange["server"] for exchange in exchanges.values()}


def test_durations_are_printed_as_rust_prints_them():
    assert [debug(ns) for ns in (5, 686_200, 11_230_000, 1_200_000_000, 3_000_000)] == ["5ns", "686.2µs", "11.23ms", "1.2s", "3ms"]


def total(lapwing, name):
    """A counter's value, over all labels."""
    lines = [line for line in lapwing.metrics().splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


PAGES = {
    "vllm": (Vllm, "/v1/chat/completions", CHAT),
    "sglang": (Sglang, "/generate", IDS),
    "tensorflow-serving": (TfServing, "/v1/models/half_plus_two:predict", {"instances": [1.0, 2.0]}),
}


def polls(lapwing):
    return total(lapwing, 'lapwing_polls_total{result="ok"}')


@pytest.fixture(scope="module")
def polling(start_lapwing):
    """Lapwing before each server with a page, after some seconds of requests to all of them at once."""
    with contextlib.ExitStack() as replayers:
        found = {}
        for server, (make, _, _) in PAGES.items():
            port = free_port()
            env = {**NO_SPANS, "LAPWING_ATTRIBUTION__POLL_INTERVAL": "1s"}
            if server == "tensorflow-serving":  # which says nowhere who it is
                env["LAPWING_ATTRIBUTION__POLL"] = f"http://127.0.0.1:{port}{PAGE}"
            found[server], replayer = started(start_lapwing, make, port, env=env)
            replayers.enter_context(replayer)
        end = time.monotonic() + 40
        while time.monotonic() < end and min(map(polls, found.values())) < 3:
            for server, (_, path, body) in PAGES.items():
                post(found[server], path, body)
            time.sleep(0.3)
        yield found


@pytest.mark.parametrize("server", PAGES)
def test_pages_of_metrics_are_found_and_read(server, polling):
    """In the text that the server's own exporter writes; vLLM and SGLang are recognised by their answers."""
    assert polls(polling[server]) >= 3, "its page is read"
    assert server in {exchange["server"] for exchange in polling[server].exchanges()}
