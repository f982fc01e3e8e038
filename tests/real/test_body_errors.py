"""Servers that answer 200 and then say that they failed, through Lapwing: llama.cpp, and connect-node with its own clients."""

import concurrent.futures
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import threading
import time

import openai
import pytest

from lapwing import NO_SPANS, Counted
from ports import free_port
from process import wait_for, wait_listening
from shadowing import await_paired, post

pytestmark = pytest.mark.beside
HERE = pathlib.Path(__file__).parent
MODULES = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[1] / "target")) / "tmp/npm/node_modules"
has_connect = (MODULES / "@connectrpc/connect-node").exists() and shutil.which("node")
needs_connect = pytest.mark.skipif(not has_connect, reason="@connectrpc/connect-node is not installed: it needs npm")


# --- llama.cpp

def fill(served, stream):
    """Four requests at once that together need more than the context; returns how many failed, and the texts of their errors."""

    def ask(i):
        client = openai.OpenAI(base_url=f"{served.lapwing.url}/v1", api_key="none", max_retries=0, timeout=60)
        messages = [{"role": "user", "content": f"la mi re {i}"}]
        try:
            answer = client.chat.completions.create(
                model="tiny", messages=messages, max_tokens=400, stream=stream, extra_body={"ignore_eos": True}
            )
            if stream:
                list(answer)
        except openai.APIError as e:
            return str(e)
        return None

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return [said for said in pool.map(ask, range(4)) if said]


def test_a_full_context_is_an_error_in_a_stream(full_llama):
    """llama.cpp has sent its 200 and some sixty tokens by then. The client leaves at the error, before the end of the body."""
    with Counted(full_llama.lapwing, 4) as counted:
        said = fill(full_llama, stream=True)
    assert said and all("Context size has been exceeded" in text for text in said), said
    assert counted.outcomes.pop("body_error") == len(said)
    assert sum(counted.outcomes.values()) == counted.outcomes.get("ok", 0)
    (series,) = [s for s in full_llama.lapwing.series() if s["route"] == "POST /v1/chat/completions"]
    assert series["errors"] == series["failed"]["count"] == len(said)
    assert series["total"]["count"] == series["count"] - len(said), "what failed is in no histogram of answers"
    failed = [e for e in full_llama.lapwing.exchanges() if e["outcome"] == "body_error"]
    assert {e["status"] for e in failed} == {200} and len(failed) == len(said)


def test_a_full_context_is_a_status_where_nothing_was_sent(full_llama):
    with Counted(full_llama.lapwing, 4) as counted:
        said = fill(full_llama, stream=False)
    assert counted.outcomes.pop("server_error") == len(said) > 0
    assert "body_error" not in counted.outcomes


# --- copies

class Chat(http.server.ThreadingHTTPServer):
    """Answers chats with a stream: so many tokens, 2 ms apart, and then an error or the usual end."""

    daemon_threads = True

    def __init__(self, tokens, error=None):
        super().__init__(("127.0.0.1", 0), ChatHandler)
        self.tokens, self.error = tokens, error
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *of):
        # its loop spins for ever on a socket that is closed under it
        self.shutdown()
        super().__exit__(*of)


class ChatHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for n in range(self.server.tokens):
            time.sleep(0.002)
            self.event({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": f"w{n} "}, "finish_reason": None}]})
        if self.server.error:
            self.event({"error": {"message": self.server.error, "type": "server_error", "code": 500}})
        else:
            self.event({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.piece(b"data: [DONE]\n\n")
        self.piece(b"")

    def event(self, document):
        self.piece(b"data: " + json.dumps(document).encode() + b"\n\n")

    def piece(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


@pytest.mark.parametrize("tokens", [0, 5])
def test_a_candidate_that_answers_with_errors_has_failed_and_is_never_faster(shadowed, tokens):
    """At once, or after five tokens. Its streams are much shorter than good ones."""
    n, body = 40, json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}).encode()
    with Chat(20) as good, Chat(tokens, "out of memory") as bad:
        lapwing = shadowed(good.server_port, f"bad=http://127.0.0.1:{bad.server_port}", env={"LAPWING_SHADOW__NOISE": "0%"})
        with Counted(lapwing, n) as counted:
            for _ in range(n):
                assert post(lapwing.port, "/v1/chat/completions", body, {"content-type": "application/json"})[0] == 200
        assert counted.outcomes == {"ok": n}
        found = await_paired(lapwing, "bad", n)
    (series,) = found["series"]
    assert series["outcomes"] == {"body_error": n} and series["total"]["count"] == 0
    (comparison,) = found["comparisons"]
    total = comparison["figures"]["total"]
    assert total["candidate_failed"] == n and total["verdict"] in ("slower", "undecided"), total
    assert "faster" not in comparison["text"], comparison["text"]


# --- Connect and gRPC-Web

class Connect:
    """A service of connect-node, behind Lapwing over one version of HTTP on both sides."""

    def __init__(self, version, processes, start_lapwing):
        port = free_port()
        self.version = version
        self.script = [shutil.which("node"), str(HERE / "servers/connect.mjs")]
        self.env = dict(os.environ, LAPWING_TEST_MODULES=str(MODULES))
        processes("connect", [*self.script, "serve", str(port), version], env=self.env)
        wait_listening(port, 30)
        scheme = "http" if version == "1.1" else "h2c"
        self.lapwing = start_lapwing(f"{scheme}://127.0.0.1:{port}", env=NO_SPANS)
        wait_for(self.lapwing.is_ready, 20, "lapwing is ready")

    def call(self, protocol, calls):
        """What each of the calls ended with at the client: the number of its messages, and its code."""
        command = [*self.script, "call", self.lapwing.url, self.version, protocol, json.dumps(calls)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=self.env, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module", params=["1.1", "2"])
def connect(request, processes, start_lapwing):
    return Connect(request.param, processes, start_lapwing)


# messages before the end, the code at the end, and what it must be counted as
CALLS = {
    "fine": ({"messages": 3}, [3, None], "ok"),
    "fails-at-once": ({"messages": 0, "code": "unavailable"}, [0, "unavailable"], "server_error"),
    "fails-later": ({"messages": 3, "code": "internal"}, [3, "internal"], "server_error"),
    "refused": ({"messages": 2, "code": "invalid_argument"}, [2, "invalid_argument"], "client_error"),
    # of more than 1 KiB, which is compressed
    "fails-at-length": ({"messages": 1, "code": "data_loss", "text": 5000}, [1, "data_loss"], "server_error"),
}


@needs_connect
@pytest.mark.parametrize("protocol", ["connect", "grpc-web"])
@pytest.mark.parametrize("name", CALLS)
def test_a_stream_ends_by_its_code(connect, protocol, name):
    """In the body of a 200. Over HTTP/2 the client resets the stream then, which is no cancellation."""
    asked, seen, outcome = CALLS[name]
    with Counted(connect.lapwing, 8) as counted:
        assert connect.call(protocol, [asked] * 8) == [seen] * 8
    assert counted.outcomes == {outcome: 8}


@needs_connect
@pytest.mark.parametrize("protocol", ["connect", "grpc-web"])
def test_a_client_that_leaves_early_has_cancelled(connect, protocol):
    with Counted(connect.lapwing, 4) as counted:
        assert connect.call(protocol, [{"messages": 1000, "leave": 2}] * 4) == [[2, None]] * 4
    assert counted.outcomes == {"cancelled": 4}


@needs_connect
@pytest.mark.parametrize("protocol", ["connect", "grpc-web"])
def test_a_unary_call_ends_by_its_code(connect, protocol):
    with Counted(connect.lapwing, 2) as counted:
        calls = [{"unary": True}, {"unary": True, "code": "resource_exhausted"}]
        assert connect.call(protocol, calls) == [[1, None], [0, "resource_exhausted"]]
    # over Connect it is a status, 429; to gRPC a server without resources is not the caller's fault
    failed = "client_error" if protocol == "connect" else "server_error"
    assert counted.outcomes == {"ok": 1, failed: 1}
