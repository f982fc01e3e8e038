"""Several upstreams: uvicorn and grpcio servers behind one Lapwing, killed and restarted under load. Each request is answered, or refused
once, and reaches one server once."""

import collections
import contextlib
import http.client
import json
import socket
import subprocess
import threading
import time
from concurrent import futures

import grpc
import pytest

from lapwing import NO_SPANS
from named_servers import Server, ask, sample
from ports import free_port
from process import wait_for, wait_listening

pytestmark = pytest.mark.beside


@pytest.fixture
def several(start_lapwing, tmp_path, logs):
    """Starts servers by name, and Lapwing in front of them."""

    def start(names, more="", weights=None, unix=()):
        servers = {name: Server(name, tmp_path, logs, name in unix) for name in names}
        of = [f"  {name}: {{url: '{server.url}', weight: {(weights or {}).get(name, 1)}}}\n" for name, server in servers.items()]
        file = tmp_path / "lapwing.yaml"
        file.write_text("upstreams:\n" + "".join(of) + more)
        lapwing = start_lapwing(None, config=file, env=NO_SPANS)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        return servers, lapwing

    return start


class Clients:
    """Clients that ask one request after the other on connections that stay open; each request has a number of its own."""

    def __init__(self, port, n, path="/x"):
        self.port, self.path, self.stopped, self.answers = port, path, threading.Event(), []
        self.moved, self.lock, self.number = 0, threading.Lock(), 0
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(n)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def next_number(self):
        with self.lock:
            self.number += 1
            return self.number

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.connect()
        socket_of = connection.sock
        while not self.stopped.is_set():
            number = self.next_number()
            connection.request("POST", self.path, body=str(number))
            response = connection.getresponse()
            self.answers.append((number, response.status, response.read().decode()))
            with self.lock:
                self.moved += connection.sock is not socket_of
            time.sleep(0.001)
        connection.close()

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def test_three_of_which_one_is_killed_and_comes_back(several):
    servers, lapwing = several(["a", "b", "c"], unix=["c"])
    with Clients(lapwing.port, 6) as clients:
        wait_for(lambda: len(clients.answers) > 300, 20, "answers come")
        servers["b"].kill()
        wait_for(lambda: sample(lapwing, "lapwing_upstream_up")["b"] == 0, 5, "its absence is shown")
        assert lapwing.is_ready()
        before = len(clients.answers)
        wait_for(lambda: len(clients.answers) > before + 300, 20, "answers come")
        assert {name for _, _, name in clients.answers[before + 12 :]} == {"a", "c"}
        servers["b"].start()
        wait_for(lambda: sample(lapwing, "lapwing_upstream_up")["b"] == 1, 5, "it is found again")
        back = len(clients.answers)
        wait_for(lambda: len(clients.answers) > back + 300, 20, "answers come")
    assert collections.Counter(name for _, _, name in clients.answers[back:])["b"] > 60
    # what was under way at the kill cannot be sent again
    refused = [number for number, status, _ in clients.answers if status != 200]
    assert len(refused) <= 6, clients.answers
    asked = collections.Counter(number for server in servers.values() for number in server.asked())
    assert max(asked.values()) == 1, "a request was sent twice"
    assert all(asked[str(number)] == 1 for number, status, _ in clients.answers if status == 200)
    assert clients.moved == 0, "clients keep their connections"
    wait_for(lambda: lapwing.count() == len(clients.answers), 10, "each is counted once")
    counted = {one["upstream"]: one["count"] for one in lapwing.series()}
    assert counted.keys() == {"a", "b", "c"}
    for name, server in servers.items():
        assert abs(counted[name] - len(server.asked())) <= len(refused), (counted, name)
    assert "its share of the requests goes to the others" in lapwing.process.output()
    assert {one["name"]: one["up"] for one in lapwing.stats()["upstreams"]} == {"a": True, "b": True, "c": True}
    wait_for(lambda: set(sample(lapwing, "lapwing_upstream_requests_in_flight").values()) == {0.0}, 5, "nothing is in flight")


def test_weights_are_kept(several):
    servers, lapwing = several(["a", "b"], weights={"a": 3})
    for _ in range(40):
        assert ask(lapwing)[0] == 200
    assert [len(servers[name].asked()) for name in "ab"] == [30, 10]


def test_the_fewest_requests_in_flight(several):
    more = "upstream_policy: least_requests\nroutes:\n- {match: {route: /slow}, to: [a]}\n"
    _, lapwing = several(["a", "b"], more)
    with contextlib.ExitStack() as uploads:
        # uploads that stop half way are in flight until they are given up
        for _ in range(4):
            upload = uploads.enter_context(socket.create_connection(("127.0.0.1", lapwing.port)))
            upload.sendall(b"POST /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n1")
        wait_for(lambda: sample(lapwing, "lapwing_upstream_requests_in_flight")["a"] == 4, 10, "a is busy")
        assert {ask(lapwing) for _ in range(40)} == {(200, "b")}


def test_routes_lead_to_their_upstreams(several):
    more = """
routes:
- {match: {header: "x-tier: batch*"}, to: [b]}
- {match: {model: "bert*"}, to: [c], policy: least_requests}
- {match: {route: "GET /v1/*"}, to: [a]}
"""
    _, lapwing = several(["a", "b", "c"], more)
    for _ in range(5):
        assert ask(lapwing, x_tier="batch-7") == (200, "b")
        assert ask(lapwing, "/v2/models/bert-base/infer") == (200, "c")
        assert ask(lapwing, "/v2/models/bert-base/infer", x_tier="batch") == (200, "b"), "the first route decides"
        assert ask(lapwing, "/v1/models", "GET") == (200, "a")
    assert {ask(lapwing, "/v1/models")[1] for _ in range(6)} == {"a", "b", "c"}, "no route takes a POST"
    of_model = lambda: {(one["model"], one["upstream"]) for one in lapwing.series() if one["model"]}  # noqa: E731
    wait_for(lambda: of_model() == {("bert-base", "b"), ("bert-base", "c")}, 10, "series are of both")


def complete(lapwing, model, pieces=1, **more):
    """Asks for a completion whose body names the model last, and comes in so many pieces."""
    body = json.dumps({"prompt": "x" * 3_000, **more, "model": model}, separators=(",", ":")).encode()
    size = -(-len(body) // pieces)

    def parts():
        for at in range(0, len(body), size):
            time.sleep(0.02 * (at > 0))
            yield body[at : at + size]

    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=20)
    chunked = {"encode_chunked": True} if pieces > 2 else {}
    length = {} if chunked else {"content-length": str(len(body))}
    connection.request("POST", "/v1/completions", body=parts(), headers={"content-type": "application/json", **length}, **chunked)
    response = connection.getresponse()
    return body.decode(), (response.status, response.read().decode())


def test_models_that_bodies_name_lead_to_their_upstreams(several):
    more = """
routes:
- {match: {model: "llama*"}, to: [b]}
- {match: {model: "bert*"}, to: [c]}
- {match: {route: "/v1/*"}, to: [a]}
hold: {max_body: 64KiB}
"""
    servers, lapwing = several(["a", "b", "c"], more)
    sent = collections.defaultdict(list)
    for model, name in [("llama-3", "b"), ("bert-base", "c"), ("gpt", "a")] * 3:
        for pieces in (1, 2, 4):
            body, answer = complete(lapwing, model, pieces)
            assert answer == (200, name), (model, pieces)
            sent[name].append(body)
    # what is too large to be held goes where its head leads
    body, answer = complete(lapwing, "llama-3", 1, suffix="y" * 70_000)
    assert answer == (200, "a")
    sent["a"].append(body)
    assert all(servers[name].asked() == bodies for name, bodies in sent.items()), "bodies are as they were sent"
    wait_for(lambda: lapwing.count() == 28, 10, "each is counted once")
    assert "lapwing_held_requests_total 27\n" in lapwing.metrics()
    assert 'lapwing_hold_passed_total{reason="body"} 1\n' in lapwing.metrics()
    for one in lapwing.series():
        assert {"llama-3": "b", "bert-base": "c", "gpt": "a"}[one["model"]] == one["upstream"] or one["count"] == 1
        if one["count"] > 1:
            queue, dispatch = one["stages"]["queue"], one["phases"]["dispatch"]
            assert dispatch["count"] == 9 and queue["sources"] == {"observed": 9}
            assert dispatch["p99_ns"] < 20e6, "the wait for the client is ingress"


def test_the_rows_that_bodies_ask_for_lead_to_their_upstreams(several):
    more = "routes:\n- {match: {route: '/v2/*', class: ..8}, to: [b]}\n- {match: {class: 9..}, to: [c]}\n"
    _, lapwing = several(["a", "b", "c"], more)
    for rows, name in [(1, "b"), (8, "b"), (9, "c"), (4000, "c")]:
        tensor = {"name": "x", "shape": [rows, 1], "datatype": "FP32", "data": [0.5] * rows}
        connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=20)
        connection.request("POST", "/v2/models/m/infer", json.dumps({"inputs": [tensor]}), {"content-type": "application/json"})
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, name.encode()), rows


def test_a_value_of_the_body_divides_a_split(several):
    _, lapwing = several(["a", "b"], "split: {candidate: b, key: 'json:/meta/user', share: 50%}\n")

    def side(user, text):
        connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=20)
        body = json.dumps({"text": text, "meta": {"user": user}})
        connection.request("POST", "/x", body, {"content-type": "application/json"})
        return connection.getresponse().read()

    sides = [side(user, "x" * 5_000) for user in range(40)]
    assert sides == [side(user, "y") for user in range(40)] and set(sides) == {b"a", b"b"}
    assert "lapwing_held_requests_total 80\n" in lapwing.metrics()


def test_none_is_there(several):
    servers, lapwing = several(["a", "b"])
    assert ask(lapwing)[0] == 200
    for server in servers.values():
        server.kill()
    status, body = ask(lapwing)
    assert status == 502 and "127.0.0.1" in body, body
    wait_for(lambda: not lapwing.is_ready(), 5, "nobody can be asked")
    assert all(server.url.removeprefix("http://") in lapwing.get("/readyz")[2].decode() for server in servers.values())
    servers["b"].start()
    wait_for(lapwing.is_ready, 5, "one can")
    wait_for(lambda: ask(lapwing) == (200, "b"), 5, "it is asked")


def test_grpc_calls_go_to_the_server_that_is_left(start_lapwing, tmp_path):
    asked = collections.Counter()

    def serve(name, port=0):
        def answer(request, _):
            asked[name] += 1
            return request

        handler = grpc.unary_unary_rpc_method_handler(answer)
        server = grpc.server(futures.ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"M": handler}),))
        port = server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        return server, port

    (first, port), (second, other) = serve("a"), serve("b")
    file = tmp_path / "lapwing.yaml"
    file.write_text(f"upstreams:\n  a: {{url: 'h2c://127.0.0.1:{port}'}}\n  b: {{url: 'http://127.0.0.1:{other}'}}\n")
    lapwing = start_lapwing(None, config=file, env=NO_SPANS)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    with grpc.insecure_channel(f"127.0.0.1:{lapwing.port}") as channel:
        call = channel.unary_unary("/t.T/M")
        assert [call(b"%d" % n, timeout=10) for n in range(20)] == [b"%d" % n for n in range(20)]
        assert asked == {"a": 10, "b": 10}
        first.stop(None).wait()
        time.sleep(0.1)
        answers = [call(b"%d" % n, timeout=10) for n in range(20)]
        assert answers == [b"%d" % n for n in range(20)] and asked["b"] >= 29, asked
        again, _ = serve("a", port)
        wait_for(lambda: sample(lapwing, "lapwing_upstream_up")["a"] == 1, 5, "it is found again")
        before = asked["a"]
        for n in range(10):
            call(b"%d" % n, timeout=10)
        assert asked["a"] == before + 5, asked
        again.stop(None)
    second.stop(None)


def curl(lapwing, *options):
    """(status, HTTP version, body) by curl."""
    command = ["curl", "-sS", "--max-time", "20", "-w", "\\n%{http_code} %{http_version}", *options, f"http://127.0.0.1:{lapwing.port}/x"]
    asked = subprocess.run(command, capture_output=True, text=True, check=True)
    body, _, said = asked.stdout.rpartition("\n")
    return (*said.split(), body)


CLIENTS = {"HTTP/1.1": ([], "1.1"), "HTTP/2": (["--http2-prior-knowledge"], "2")}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("left", ["speaks HTTP/1.1", "speaks HTTP/2"])
def test_the_one_that_is_left_speaks_another_version(start_lapwing, processes, tmp_path, logs, left, client):
    """The first that is asked takes no connection, and the other one does not speak as the request was to go."""
    if left == "speaks HTTP/2":
        (tmp_path / "x").write_text("h2")
        port, gone, alive = free_port(), "http", "h2c"
        processes("nghttpd", ["nghttpd", "--no-tls", "-a", "127.0.0.1", "-d", str(tmp_path), str(port)])
        wait_listening(port)
    else:
        port, gone, alive = Server("h1", tmp_path, logs).port, "h2c", "http"
    file = tmp_path / "lapwing.yaml"
    file.write_text(
        f"upstreams:\n  gone: {{url: '{gone}://127.0.0.1:{free_port()}', weight: 9}}\n  left: {{url: '{alive}://127.0.0.1:{port}'}}\n"
    )
    lapwing = start_lapwing(None, config=file, env=NO_SPANS)
    options, version = CLIENTS[client]
    assert curl(lapwing, *options) == ("200", version, "h2" if alive == "h2c" else "h1")
    assert 'lapwing_upstream_failovers_total{result="moved"} 1' in lapwing.metrics().replace("1.0", "1")
    if alive == "http":
        posted = curl(lapwing, *options, "-d", "body", "-H", "expect: 100-continue")
        assert posted == ("200", version, "h1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("upstreams: {a: {url: 'http://h:1'}}\nroutes: [{match: {model: m}, to: [b]}]\n", "routes[0].to[0]: b: is none of `upstreams`: a"),
        ("upstreams: {a: {url: 'http://h:1'}}\nupstream: http://h:2\n", "upstream: http://h:2: cannot be given with upstreams"),
        ("upstreams: {a: {weight: 2}}\n", "upstreams.a.url"),
        ("upstreams: {a: {url: 'http://h:1'}}\nroutes: [{match: {class: 9..3}, to: [a]}]\n", "routes[0].match.class: 9..3: has its ends the wrong way round"),
        ("upstream: http://h:1\nhold: {budget: 1KiB}\n", "hold.budget: 1KiB: has no room for one body of max_body, 1MiB"),
        ("upstreams: {a: {url: 'http://127.0.0.1:8080'}}\n", "upstreams.a.url: http://127.0.0.1:8080: is Lapwing itself"),
        ("upstreams: {a: {url: 'http://h:1'}, b: {url: 'http://h:2'}}\nattribution: {poll: 'http://h:3/metrics'}\n", "attribution.poll"),
    ],
)
def test_faults_name_the_key(binary, tmp_path, text, says):
    file = tmp_path / "lapwing.yaml"
    file.write_text(text)
    checked = subprocess.run([binary, "check", "--config", str(file)], capture_output=True, text=True)
    assert checked.returncode != 0 and says in checked.stdout + checked.stderr, checked
