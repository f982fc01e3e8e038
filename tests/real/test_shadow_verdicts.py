"""What is said of candidates that are off by much, and of answers that cannot be compared: live, and by the gates of a replay.

The servers answer as Python's `json` writes; the whole table of candidates and protocols is crates/lapwing-shadow/src/tests.
"""

import json
import random
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lapwing import NO_SPANS
from process import wait_for
from shadowing import SHADOW, post, record, target

pytestmark = pytest.mark.beside
ROUTE = "/v1/models/m:predict"
NAMED = {"LAPWING_SHADOW__ROUTES": "['POST /v1/models/{model}:predict']"}
"""So that broken answers are copied and recorded too."""
NOISY = {**SHADOW, **NAMED, "LAPWING_SHADOW__NOISE": "100%"}
ONCE = {**SHADOW, **NAMED, "LAPWING_SHADOW__NOISE": "0%"}


@pytest.fixture
def serve():
    """Starts a server whose answer to the instance `n` is `answer(n)`, as Python writes it, or these bytes; its address."""
    servers = []

    def start(answer):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answered = answer(asked["instances"][0])
                body = answered if isinstance(answered, bytes) else json.dumps({"predictions": answered}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()


def call(lapwing, n):
    body = json.dumps({"instances": [n]}).encode()
    assert post(lapwing.port, ROUTE, body, {"content-type": "application/json"})[0] == 200


def judged(start_lapwing, upstream, candidate, env, n=60):
    """What is said of the candidate's outputs after `n` requests; the same and the page in words."""
    lapwing = start_lapwing(upstream, "--shadow", f"new={candidate}", "--shadow-sample", "100%", env=env)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    for at in range(n):
        call(lapwing, at)

    def found():
        outputs = list(target(lapwing, "new")["outputs"].values())
        # the first requests of a route may not be copied
        is_all = outputs and sum(outputs[0]["incomparable"].values()) + outputs[0]["compared"] >= n - 5
        is_known = outputs and (env is ONCE or outputs[0]["repeats"]["compared"] >= n - 5)
        return outputs[0] if is_all and is_known else None

    outputs = wait_for(found, 30, "all outputs are compared", 0.2)
    return outputs, lapwing.get("/shadow")[2].decode()


def test_noise_does_not_excuse_a_hundred_times_its_size(serve, start_lapwing):
    def near(value):
        return lambda _: [value + random.uniform(-0.02, 0.02)]

    upstream = serve(near(0.5))
    outputs, words = judged(start_lapwing, upstream, serve(near(50)), NOISY)
    assert outputs["verdict"] == "differ" and outputs["mismatches"]["rate"] == 1, outputs["summary"]
    assert "Outputs agree" in words and "in 0 % of" in words, words
    outputs, words = judged(start_lapwing, upstream, serve(near(0.5)), NOISY)
    assert outputs["verdict"] == "agree" and outputs["mismatches"]["answers"] == 0, outputs["summary"]
    assert "only within the upstream's own noise" in words, words


def test_what_is_drawn_anew_cannot_be_compared(serve, start_lapwing):
    def drawn(_):
        return [" ".join(random.choice(["red", "green", "blue", "dark", "light", "sky"]) for _ in range(12))]

    outputs, words = judged(start_lapwing, serve(drawn), serve(drawn), NOISY)
    assert outputs["verdict"] == "cannot_be_compared" and outputs["unjudged"]["reasons"]["upstream_varies"] > 50, outputs["summary"]
    assert "Outputs cannot be compared in " in words and "Outputs agree" not in words, words
    assert ", but its outputs cannot be compared in " in words, words


def test_zeros_for_small_probabilities_differ(serve, start_lapwing):
    small = serve(lambda n: [1e-4 * (1 + (n + at) % 8) for at in range(4)])
    outputs, _ = judged(start_lapwing, small, serve(lambda _: [0.0] * 4), ONCE)
    assert outputs["verdict"] == "differ" and outputs["mismatches"]["rate"] == 1, outputs["summary"]
    outputs, _ = judged(start_lapwing, small, small, ONCE)
    assert outputs["verdict"] == "agree", outputs["summary"]


NAN = float("nan")
REPLAYS = {
    "another number beside NaN": (lambda n: [NAN, float("-inf"), 9.0 if n % 2 else 1.0], 1, "mismatch is 50.0000 %"),
    "the same": (lambda _: [NAN, float("-inf"), 1.0], 0, None),
    "a broken body in a half": (lambda n: b"{\"predictions\": [1" if n % 2 else [NAN, float("-inf"), 1.0], 1, "mismatch is 50.0000 %"),
}


@pytest.mark.parametrize("name", REPLAYS)
def test_a_gate_sees_what_strict_parsers_refuse(serve, binary, start_lapwing, tmp_path, name):
    answer, expected, said = REPLAYS[name]
    upstream = serve(lambda _: [NAN, float("-inf"), 1.0])
    path = recorded(binary, start_lapwing, upstream, tmp_path)
    code, words, error = replayed(binary, path, serve(answer), "mismatch<=0.01")
    assert code == expected, words + error
    assert said is None or said in error, error
    assert ("Outputs agree" in words) and ("in 100 % of 40 answers." in words) == (expected == 0), words


def test_a_gate_fails_by_what_it_cannot_judge(serve, binary, start_lapwing, tmp_path):
    """Half of what the upstream answered is understood by nobody."""
    upstream = serve(lambda n: b"{\"predictions\": <broken %d>" % n if n % 2 else [1.0])
    path = recorded(binary, start_lapwing, upstream, tmp_path)
    right = serve(lambda _: [1.0])
    code, words, error = replayed(binary, path, right, "mismatch<=0.01")
    assert code == 1 and "50.0000 % could not be judged, of which 5.0000 % may be" in error, error
    assert "Outputs cannot be compared in 50 % of 40 answers (the upstream's answers are not understood)" in words, words
    assert replayed(binary, path, right, "mismatch<=0.01", "unjudged<=60%")[0] == 0
    code, _, error = replayed(binary, path, right, "unjudged<=5%")
    assert code == 1 and "unjudged is 50.0000 %" in error, error


def recorded(binary, start_lapwing, upstream, folder):
    """A recording of 40 requests."""
    lapwing = start_lapwing(upstream, env={**NO_SPANS, **NAMED, "LAPWING_ATTRIBUTION__POLL": "off"})
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    path = folder / "traffic.lwr"
    record(binary, lapwing, path, 40, lambda n: call(lapwing, n))
    return path


def replayed(binary, path, candidate, *gates):
    flags = [flag for gate in gates for flag in ("--gate", gate)]
    done = subprocess.run([binary, "replay", str(path), "--to", f"new={candidate}", "--rate", "200", *flags], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr
