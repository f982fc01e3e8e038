"""What is copied, repeated and recorded by default: calls of models and nothing else, and of those no secret.

A web shop, a wallet that speaks JSON-RPC and login forms share a proxy with a shadow target that gets every request it may, an upstream that is
asked again whenever it may be, and a recording. Their paths are those of inference protocols; their bodies are not.
"""

import contextlib
import json
import re
import socket
import subprocess
import threading
import time

import pytest

from process import wait_for
from shadowing import SHADOW, body_of, post, shadow

pytestmark = pytest.mark.beside
SECRET = "s3cret-9f1c"
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
EVERYTHING = {**SHADOW, "LAPWING_SHADOW__NOISE": "100%"}


class Server:
    """Answers each path with what it was told to; knows the requests that it got: (path with query, headers, body)."""

    def __init__(self, answers, otherwise=(JSON, b'{"ok": true}')):
        self.answers, self.otherwise, self.seen = answers, otherwise, []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with contextlib.suppress(ConnectionError):  # a Lapwing that is killed resets it
            self.answer(connection)

    def answer(self, connection):
        pending = b""
        while True:
            while b"\r\n\r\n" not in pending:
                more = connection.recv(65536)
                if not more:
                    return
                pending += more
            head, _, pending = pending.partition(b"\r\n\r\n")
            first, *fields = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
            while len(pending) < int(headers.get("content-length", 0)):
                pending += connection.recv(65536)
            body, pending = pending[: int(headers.get("content-length", 0))], pending[int(headers.get("content-length", 0)) :]
            path = first.split(" ")[1]
            kind, answer = self.answers.get(path.split("?")[0], self.otherwise)
            if path != "/probe" and not first.startswith("GET"):
                self.seen.append((path, headers, body))
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (kind.encode(), len(answer), answer))


def raw(path, kind, body, **headers):
    body = body if isinstance(body, bytes) else (json.dumps(body) if kind == JSON else body).encode()
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\nhost: shop\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body


CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
EVERYDAY = [
    raw("/", FORM, f"user=a&password={SECRET}"),
    raw("/", FORM, f"user=a&password={SECRET}&csrf_token=1", cookie=f"session={SECRET}"),
    raw("/", JSON, {"jsonrpc": "2.0", "id": 1, "method": "transfer", "params": {"to": "b", "amount": 3}}),
    raw("/", JSON, [{"jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransaction", "params": ["0xf86c"]}]),
    raw("/", JSON, {"jsonrpc": "2.0", "id": 1, "method": "pay", "inputs": "a", "text": "b"}),
    raw("/", JSON, {"username": "a", "password": SECRET}),
    raw("/", JSON, {"query": "mutation { pay(amount: 3) { id } }", "variables": {}}),
    raw("/", JSON, {"text": "10 % off"}),
    raw("/predict", JSON, {"inputs": [1, 2, 3]}),
    raw("/predict", JSON, {"sku": 7, "quantity": 2}),
    raw("/generate", JSON, {"prompt": "coupon", "count": 1}),
    raw("/generate", FORM, "inputs=coupon"),
    raw("/rerank", JSON, {"query": "shoes", "page": 2}),
    raw("/embed", JSON, {"inputs": "video-7"}),
    raw("/invocations", JSON, {"invoice": 7}),
    raw("/v2/models/civic/infer", JSON, {"colour": "red", "price": 3}),
    raw("/v2/models/civic/infer", JSON, {"inputs": [{"name": "colour", "value": "red"}]}),
    raw("/v1/completions", JSON, {"prompt": "sho"}),
    raw("/v1/embeddings", JSON, {"input": "video-7"}),
    raw("/v1/responses", JSON, {"input": "yes", "survey": 7}),
    raw("/api/chat", JSON, {"model": "support", "messages": [{"role": "user", "content": "where is my order"}]}),
    raw("/v1/chat/completions", JSON, CHAT, cookie=f"session={SECRET}"),
    raw("/v1/chat/completions", JSON, CHAT, x_csrf_token=SECRET),
    raw("/predictions/rain", JSON, {"city": "a"}),
    raw("/v1/models/shoe:predict", JSON, {"inputs": {"size": 42}}),
    raw("/checkout", JSON, {"card_number": SECRET}),
    raw("/v1/batches", JSON, {"input_file_id": "f", "endpoint": "/v1/chat/completions"}),
    raw("/predict", "multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="inputs"\r\n\r\na\r\n--x--\r\n'),
]
"""Of these some have the body of a call; what their handlers answer is none of a model."""


def send(port, requests):
    """Sends raw requests on one connection, sixteen under way; asserts that each is answered with 200."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        for begin in range(0, len(requests), 16):
            part = requests[begin : begin + 16]
            for request in part:
                connection.sendall(request)
                answer = b""
                while b"\r\n\r\n" not in answer:
                    answer += connection.recv(65536)
                head, _, body = answer.partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200"), head
                length = int(re.search(rb"content-length: (\d+)", head)[1])
                while len(body) < length:
                    body += connection.recv(65536)


class Recording:
    """A recording of everything, into a file."""

    def __init__(self, binary, lapwing, path, *flags):
        command = [binary, "record", "--admin", f"127.0.0.1:{lapwing.admin}", "--out", str(path), "--sample", "100%", *flags]
        self.path, self.child = path, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(path.exists, 10, "the recording has begun")

    def lines(self):
        said, error = self.child.communicate(timeout=90)
        assert self.child.returncode == 0, (said, error)
        _, *exchanges, end = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [line["exchange"] for line in exchanges], end["end"]


def dropped_of(lapwing, family):
    found = re.findall(rf'^{family}_total\{{.*?reason="(\w+)"\}} (\d+)', lapwing.metrics(), re.M)
    return {reason: int(count) for reason, count in found}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("order", ["after", "concurrent"])
@pytest.mark.parametrize("count", [1_400, pytest.param(10_000, marks=pytest.mark.long)])
def test_nothing_of_a_shop_a_wallet_and_a_login_is_copied_repeated_or_recorded(binary, start_lapwing, tmp_path, order, count):
    primary, candidate = Server({}), Server({})
    env = {**EVERYTHING, "LAPWING_SHADOW__ORDER": order}
    url = f"http://127.0.0.1:{primary.port}"
    lapwing = start_lapwing(url, "--shadow", f"other=http://127.0.0.1:{candidate.port}", "--shadow-sample", "100%", env=env)
    recording = Recording(binary, lapwing, tmp_path / "traffic.lwr", "--for", "30s" if count > 2_000 else "8s")
    requests = [EVERYDAY[n % len(EVERYDAY)] for n in range(count)]
    threads = [threading.Thread(target=send, args=(lapwing.port, requests[n::4])) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    exchanges, end = recording.lines()
    wait_for(lambda: sum(shadow(lapwing)["dropped"].values()) == count, 30, "every request was judged")
    view = shadow(lapwing)
    assert len(primary.seen) == count and not any("x-lapwing-shadow" in headers for _, headers, _ in primary.seen), "none was repeated"
    assert candidate.seen == [] and {one["name"]: one["sent"] for one in view["targets"]} == {"other": 0, "upstream": 0}
    assert exchanges == [] and end["requests"] == 0 and SECRET not in recording.path.read_text()
    assert not any(route["is_repeatable"] for route in view["routes"]), view["routes"]
    # and why, on every surface
    assert {"unknown_route", "not_recognised", "session"} <= set(view["dropped"]), view["dropped"]
    assert sum(end["dropped"].values()) > 0 and dropped_of(lapwing, "lapwing_recording_dropped") == end["dropped"]
    assert dropped_of(lapwing, "lapwing_shadow_dropped") == view["dropped"]
    text = lapwing.get("/shadow")[2].decode()
    assert "POST /predict is not copied" in text and "name it in shadow.routes" in text, text
    assert "name it in shadow.routes" in lapwing.process.output()


CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"b"}}]}\n\n'
PROTOCOLS = {
    "oip": ("/v2/models/m/infer", json.loads(body_of(1)), (JSON, b'{"outputs":[{"name":"y","shape":[1],"datatype":"FP32","data":[1]}]}')),
    "chat": ("/v1/chat/completions", CHAT, (JSON, b'{"choices":[{"message":{"role":"assistant","content":"b"}}]}')),
    "chat stream": ("/p/v1/chat/completions", {**CHAT, "stream": True}, ("text/event-stream", CHUNK * 3 + b"data: [DONE]\n\n")),
    "completions": ("/v1/completions", {"model": "m", "prompt": "a"}, (JSON, b'{"choices":[{"text":"b"}]}')),
    "embeddings": ("/v1/embeddings", {"model": "m", "input": ["a"]}, (JSON, b'{"data":[{"embedding":[0.5]}]}')),
    "responses": ("/v1/responses", {"model": "m", "input": "a"}, (JSON, b'{"object":"response","output":[],"store":false}')),
    "tei": ("/embed", {"inputs": "a"}, (JSON, b"[[0.5,0.25]]")),
    "rerank": ("/rerank", {"query": "a", "texts": ["b"]}, (JSON, b'[{"index":0,"score":0.5}]')),
    "tgi": ("/generate", {"inputs": "a"}, (JSON, b'{"generated_text":"b"}')),
    "sagemaker": ("/", {"inputs": "a"}, (JSON, b'[{"generated_text":"b"}]')),
    "ollama": ("/api/generate", {"model": "m", "prompt": "a"}, ("application/x-ndjson", b'{"model":"m","response":"b","done":true}\n')),
    "tensorflow": ("/v1/models/m:predict", {"instances": [[1.0]]}, (JSON, b'{"predictions":[[0.5]]}')),
    "torchserve": ("/predictions/m", {"instances": [[1.0]]}, (JSON, b'{"predictions":[[0.5]]}')),
}
"""A route, a call and its answer, by the protocol."""


@pytest.fixture(scope="module")
def models():
    """(upstream, candidate) of every protocol."""
    answers = {path: answer for path, _, answer in PROTOCOLS.values()}
    return Server(answers), Server(answers)


def copies(candidate, path):
    return [(headers, body) for seen, headers, body in candidate.seen if seen.split("?")[0] == path]


def test_calls_of_every_protocol_are_copied_and_recorded_and_an_odd_one_is_not(binary, models, shadowed, tmp_path):
    upstream, candidate = models
    lapwing = shadowed(upstream.port, f"other=http://127.0.0.1:{candidate.port}", env={"LAPWING_SHADOW__NOISE": "0%"})
    recording = Recording(binary, lapwing, tmp_path / "traffic.lwr", "--for", "8s")
    for path, call, _ in PROTOCOLS.values():
        for n in range(5):
            assert post(lapwing.port, path, json.dumps({**call, "n": n}).encode(), {"content-type": JSON})[0] == 200
    for name, (path, _, _) in PROTOCOLS.items():
        wait_for(lambda path=path: len(copies(candidate, path)) >= 5, 20, f"the calls of {name} are copied")
    time.sleep(1)  # the recording has learnt the routes too; an odd exchange among the first ones would keep it from that
    for path, _, _ in PROTOCOLS.values():
        # the same route, learnt by now: its own body decides
        for odd in (b'{"jsonrpc":"2.0","method":"pay","inputs":"a"}', b"{}", b"user=a&password=b"):
            assert post(lapwing.port, path, odd, {"content-type": "text/plain"})[0] == 200
    for name, (path, _, _) in PROTOCOLS.items():
        numbers = [json.loads(body)["n"] for _, body in copies(candidate, path)]
        assert sorted(numbers) == [0, 1, 2, 3, 4], (name, numbers)
    exchanges, end = recording.lines()
    assert (len(exchanges), end["requests"]) == (5 * len(PROTOCOLS), 5 * len(PROTOCOLS))
    assert {one["path"] for one in exchanges} == {path for path, _, _ in PROTOCOLS.values()}
    assert shadow(lapwing)["dropped"] == {"not_recognised": 3 * len(PROTOCOLS)}
    assert not any("x-lapwing-shadow" in headers for _, headers, _ in upstream.seen), "the upstream is not asked again"


GIVEN = {
    "authorization": f"Bearer {SECRET}", "cookie": f"a={SECRET}", "proxy-authorization": f"Basic {SECRET}", "x-api-key": SECRET, "api-key": SECRET,
    "x-goog-api-key": SECRET, "ocp-apim-subscription-key": SECRET, "x-amz-security-token": SECRET, "x-our-own-key": SECRET, "x-tenant": SECRET,
    "accept": JSON, "content-type": JSON, "user-agent": "client/1", "openai-beta": "a=1", "grpc-timeout": "1S",
}  # fmt: skip


@pytest.mark.parametrize("rules", [{}, {"headers": "{x-tenant: keep, 'x-our-*': keep, user-agent: remove}", "fields": "{city: remove, code: keep}"}])
def test_a_copy_and_a_record_have_no_secret_but_those_that_the_user_names(binary, models, shadowed, tmp_path, rules):
    upstream, candidate = models
    env = {f"LAPWING_SHADOW__{name.upper()}": value for name, value in rules.items()}
    # a session's requests are copied where the user says so
    env |= {"LAPWING_SHADOW__ROUTES": '["POST /v1/completions"]'}
    lapwing = shadowed(upstream.port, f"other=http://127.0.0.1:{candidate.port}", env=env)
    recording = Recording(binary, lapwing, tmp_path / "traffic.lwr", "--for", "60s", "--max-requests", "4")
    candidate.seen.clear()
    call = {"model": "m", "prompt": "a"}
    query = f"?key={SECRET}&api_key={SECRET}&sig={SECRET}&X-Amz-Signature={SECRET}&city={SECRET}&code=7&version=1"
    for _ in range(3):
        assert post(lapwing.port, f"/v1/completions{query}", json.dumps(call).encode(), GIVEN)[0] == 200
    with_secret = json.dumps({**call, "api_key": SECRET, "extra": {"password": SECRET}, "token": SECRET}).encode()
    assert post(lapwing.port, "/v1/completions", with_secret, GIVEN)[0] == 200
    exchanges, _ = recording.lines()
    wait_for(lambda: len(candidate.seen) == 3 and shadow(lapwing)["dropped"] == {"secret": 1}, 20, "the requests are copied")
    kept = {"accept", "content-type", "user-agent", "openai-beta", "grpc-timeout", "host", "content-length", "accept-encoding"}
    named = {"x-tenant", "x-our-own-key"}
    for (path, headers, body), record in zip(candidate.seen, [one for one in exchanges if "?" in one["path"]], strict=True):
        recorded = dict(record["headers"])
        if not rules:
            assert SECRET in path and path == f"/v1/completions?city={SECRET}&version=1" == record["path"]
            assert set(headers) - {"x-lapwing-shadow", "traceparent"} <= kept, headers
            assert set(recorded) <= kept and SECRET not in json.dumps([headers, recorded])
        else:
            assert path == "/v1/completions?code=7&version=1" == record["path"]
            assert named <= set(headers) and named <= set(recorded) and "user-agent" not in {**headers, **recorded}
            assert set(headers) - {"x-lapwing-shadow", "traceparent"} <= kept | named, headers
        assert json.loads(body) == call
    import base64

    (hidden,) = [json.loads(base64.b64decode(one["body"])) for one in exchanges if "?" not in one["path"]]
    assert hidden == {**call, "api_key": "***", "extra": {"password": "***"}, "token": "***"}
    # nor does any other surface show them
    for surface in ("/exchanges", "/shadow", "/stats"):
        assert SECRET not in lapwing.get(surface, JSON)[2].decode(), surface
    assert SECRET not in lapwing.process.output()


def test_the_user_may_ask_for_repeats_and_name_what_is_copied(models, shadowed):
    upstream, candidate = models
    env = {"LAPWING_SHADOW__NOISE": "100%", "LAPWING_SHADOW__ROUTES": '["POST /score/*"]'}
    lapwing = shadowed(upstream.port, f"other=http://127.0.0.1:{candidate.port}", env=env)
    for _ in range(2):
        assert post(lapwing.port, "/score/a/b", b"row=1", {"content-type": FORM})[0] == 200
    wait_for(lambda: len(copies(candidate, "/score/a/b")) == 2, 20, "the named route is copied")
    wait_for(lambda: len(copies(upstream, "/score/a/b")) == 4, 20, "and the upstream asked again")
    assert sum("x-lapwing-shadow" in headers for headers, _ in copies(upstream, "/score/a/b")) == 2
