"""Shadow-serving with real servers: copies arrive whole and marked, both sides have stages, and no client notices.

What the copies say of a candidate is compared with what the servers were told to do.
"""

import http.client
import json
import socket
import threading
import time

import pytest

from documented import assert_documented
from lapwing import NO_SPANS
from oip_clients import Client
from ports import free_port
from process import wait_for
from servers.parts import OtherLlama, get_json
from shadowing import SHADOW, WIDTHS, ask, await_compared, await_paired, body_of, dropped, shadow, target

@pytest.fixture(scope="module")
def primary(start_server):
    return start_server("--forward-ms", 6)


@pytest.fixture(scope="module")
def other_llama(behind):
    return behind(OtherLlama, env=NO_SPANS)


@pytest.fixture
def start_shadowed(shadowed, primary):
    """The same before the primary, unless another upstream is named."""
    return lambda *targets, upstream=primary, env=None: shadowed(upstream, *targets, env=env)


def load(lapwing, seconds, clients=2, rows=1):
    """Calls for so long; how many."""
    counts, until = [0] * clients, time.monotonic() + seconds

    def client(n):
        connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
        while time.monotonic() < until:
            status, _ = ask(lapwing.port, body_of(rows, counts[n]), connection=connection)
            assert status == 200
            counts[n] += 1
        connection.close()

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return sum(counts)


def load_until(lapwing, condition, most=110):
    """Calls until the condition holds; how many. A busy machine takes longer to a verdict."""
    sent, until = 0, time.monotonic() + most
    while not condition() and time.monotonic() < until:
        sent += load(lapwing, 5)
    return sent


def decided(lapwing, name, *figures):
    """Whether there is a verdict on each of these figures of the target."""
    found = target(lapwing, name)["comparisons"]
    return bool(found) and all(found[0]["figures"].get(figure, {}).get("verdict", "undecided") != "undecided" for figure in figures)


@pytest.mark.timeout(240)
def test_a_slower_candidate_is_found_and_both_sides_have_stages(start_server, start_shadowed, primary):
    candidate = start_server("--forward-ms", 9)
    lapwing = start_shadowed(f"slow=http://127.0.0.1:{candidate}", env={"LAPWING_SHADOW__NOISE": "0%"})
    before = len(get_json(f"http://127.0.0.1:{primary}/seen"))
    sent = load_until(lapwing, lambda: decided(lapwing, "slow", "forward"))
    slow = await_paired(lapwing, "slow", sent)
    (comparison,) = slow["comparisons"]
    figures = comparison["figures"]
    assert (comparison["route"], comparison["model"], comparison["class"]) == ("POST /v2/models/{model}/infer", "m", 1)
    assert figures["forward"]["verdict"] == "slower", comparison["text"]
    # of which the rest is noise: a busy machine may leave it undecided, and never says anything else
    assert figures["total"]["verdict"] in ("slower", "undecided"), comparison["text"]
    assert "preprocessing" in figures
    # the copies' own stages, in series of their own
    (series,) = slow["series"]
    assert series["count"] == slow["paired"] and {"preprocessing", "forward"} <= set(series["stages"])
    (clients,) = lapwing.series()
    truth = series["stages"]["forward"]["p50_ns"] / clients["stages"]["forward"]["p50_ns"]
    ratio = figures["forward"]["paired_ratio"]["p50"]
    # 1.5, as far as a busy machine lets both sleep as long as they want to
    assert 1.2 < truth < 1.8 and abs(ratio["value"] / truth - 1) < 0.1, (truth, ratio)
    assert 1 < ratio["low"] <= ratio["value"] <= ratio["high"], ratio
    assert "slower at p50" in comparison["text"], comparison["text"]
    assert (clients["count"], clients["upstream"]) == (sent, f"http://127.0.0.1:{primary}")
    assert len(get_json(f"http://127.0.0.1:{primary}/seen")) - before == sent, "the primary is asked once a request"
    assert slow["sent"] == slow["answered"] and slow["failed"] == 0
    # the same in words
    status, headers, text = lapwing.get("/shadow")
    assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert "POST /v2/models/{model}/infer, model m" in text.decode() and "candidate `slow`: forward " in text.decode(), text


def test_two_of_a_kind_are_never_called_different(start_server, start_shadowed):
    candidate = start_server("--forward-ms", 6)
    lapwing = start_shadowed(f"same=http://127.0.0.1:{candidate}", env={"LAPWING_SHADOW__NOISE": "5%"})
    sent = load(lapwing, 20)
    same = await_paired(lapwing, "same", sent)
    (comparison,) = same["comparisons"]
    assert comparison["figures"]["forward"]["verdict"] in ("same", "undecided"), comparison["text"]
    assert comparison["figures"]["total"]["mismatches"]["mismatches"] == 0
    # the upstream was asked again for some of them
    again = target(lapwing, "upstream")
    assert again["is_upstream"] and 0 < again["sent"] < sent / 4


def test_the_wrong_row_is_found_and_the_time_of_day_is_noise(start_server, start_shadowed):
    candidate, upstream = start_server("--timestamp", "--wrong-every", 10), start_server("--timestamp")
    env = {"LAPWING_SHADOW__NOISE": "100%", "LAPWING_SHADOW__COMPARE__TOLERANCE": "{absolute: 1e-4, relative: 0}"}
    lapwing = start_shadowed(f"wrong=http://127.0.0.1:{candidate}", upstream=upstream, env=env)
    for n in range(100):
        assert ask(lapwing.port, body_of(5, n))[0] == 200
    wrong = await_paired(lapwing, "wrong", 100)
    assert dropped(wrong) == dropped(target(lapwing, "upstream")) == 0, wrong["dropped"]

    def compared():
        (outputs,) = target(lapwing, "wrong")["outputs"].values()
        return outputs if outputs["compared"] == outputs["repeats"]["compared"] == 100 else None

    outputs = wait_for(compared, 10, "all outputs are compared")
    assert outputs["mismatches"]["answers"] == 10, outputs
    (tensor,) = [field for field in outputs["fields"] if field["field"] == "y"]
    assert (tensor["numbers"]["rows_outside"], tensor["numbers"]["elements"]) == (10, 1000)
    assert tensor["worst"] and all(worst["row"] == 2 and abs(worst["error"] - 1) < 1e-3 for worst in tensor["worst"]), tensor["worst"]
    assert_documented(lapwing, "/shadow", shadow(lapwing))
    text = lapwing.get("/shadow")[2].decode()
    assert "Outputs agree within 1e-4 in 90 % of 100 answers; the 10 that differ:" in text, text
    sampled = [line for line in lapwing.metrics().splitlines() if line.startswith("lapwing_shadow_")]
    assert 'lapwing_shadow_mismatches_total{target="wrong",cause="share",kind="value"} 10' in sampled, sampled
    assert 'lapwing_shadow_requests_total{target="wrong",result="answered"} 100' in sampled, sampled


def test_copies_are_marked_and_have_no_secrets(start_server, start_shadowed):
    candidate = start_server()
    rules = {"LAPWING_SHADOW__HEADERS": "{'x-*': keep, x-inner: remove}", "LAPWING_SHADOW__ROUTES": '["POST /v2/models/{model}/infer"]'}
    lapwing = start_shadowed(f"http://127.0.0.1:{candidate}", env=rules)
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    given = {"authorization": "Bearer x", "cookie": "a=b", "x-tenant": "t", "x-inner": "i", "traceparent": trace}
    assert ask(lapwing.port, body_of(3), given)[0] == 200
    # of no known protocol: it may not be safe to repeat
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
    connection.request("POST", "/orders", b"{}", {"content-type": "application/json"})
    assert connection.getresponse().status == 404
    await_paired(lapwing, "shadow", 1)
    (seen,) = get_json(f"http://127.0.0.1:{candidate}/seen")
    assert seen["x-lapwing-shadow"] == "1" and seen["x-tenant"] == "t"
    assert not {"authorization", "cookie", "x-inner", "x-lapwing-pair"} & set(seen), seen
    assert "4bf92f3577b34da6a3ce929d0e0e4736" not in seen.get("traceparent", ""), "a trace of its own"
    # a copy that reaches another Lapwing is not copied again
    assert ask(lapwing.port, body_of(1), {"x-lapwing-shadow": "1"})[0] == 200
    assert shadow(lapwing)["sampled"] == 1


@pytest.mark.parametrize("kind", ["json", "binary", "grpc"])
def test_the_engine_in_this_process_is_a_target(start_engine, start_lapwing, small_mlp, kind):
    """The primary is an engine of its own, called by tritonclient; the shadow knows the model by another name."""
    import numpy as np

    engine = start_engine([("ranker", small_mlp)])
    upstream = f"{'h2c' if kind == 'grpc' else 'http'}://127.0.0.1:{engine.port}"
    lapwing = start_lapwing(upstream, "--shadow", f"ref=engine:{small_mlp}", "--shadow-sample", "100%", env=SHADOW)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    rng = np.random.default_rng(1)
    with Client(kind, lapwing.port) as client:
        for n in range(1, 21):
            client.infer("ranker", "x", rng.standard_normal((n, WIDTHS[0])).astype(np.float32), "y")
    ref = await_paired(lapwing, "ref", 20)
    assert (ref["answered"], ref["failed"], dropped(ref)) == (20, 0, 0), ref
    assert ref["comparisons"] and all("forward" in one["figures"] for one in ref["comparisons"]), "both engines report it"


def chat(lapwing, n, **options):
    """One chat with llama.cpp, of twelve tokens."""
    body = {"messages": [{"role": "user", "content": f"la mi re {n}"}], "max_tokens": 12, "cache_prompt": False, "ignore_eos": True, **options}
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    response.read()
    connection.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_generated_text_is_compared_as_a_whole(llama, start_lapwing, stream):
    """llama.cpp against itself: with a seed it writes the same again, and its ids and times are no difference."""
    url = llama.server.url
    lapwing = start_lapwing(url, "--shadow", f"again={url}", "--shadow-sample", "100%", env={**SHADOW, "LAPWING_SHADOW__NOISE": "0%"})
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    for n in range(8):
        chat(lapwing, n, seed=n, temperature=0, stream=stream)
    again = await_paired(lapwing, "again", 8)
    assert (again["answered"], dropped(again)) == (8, 0), again
    outputs = await_compared(lapwing, "again", 8)
    assert outputs["mismatches"]["answers"] == 0, outputs
    figures = [set(one["figures"]) for one in again["comparisons"]]
    assert figures and all({"prefill", "decode", "forward"} <= of for of in figures), figures


def test_text_that_is_drawn_anew_is_noise(llama, start_lapwing):
    url = llama.server.url
    lapwing = start_lapwing(url, "--shadow", f"again={url}", "--shadow-sample", "100%", env={**SHADOW, "LAPWING_SHADOW__NOISE": "100%"})
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    for n in range(10):
        chat(lapwing, n, temperature=2)
    outputs = await_compared(lapwing, "again", 10)
    wait_for(lambda: await_compared(lapwing, "again", 10)["repeats"]["compared"] == 10, 30, "the noise is known")
    outputs = await_compared(lapwing, "again", 10)
    assert outputs["different"] > 5 and outputs["mismatches"]["answers"] == 0, outputs
    assert outputs["verdict"] == "cannot_be_compared", outputs["summary"]
    assert "Outputs cannot be compared in " in lapwing.get("/shadow")[2].decode()


@pytest.mark.parametrize("noise", ["0%", "100%"])
def test_another_model_that_draws_its_text_is_never_said_to_agree(llama, other_llama, start_lapwing, noise):
    """Two llama.cpp of the same form with different weights, at temperature 1."""
    upstream, candidate = llama.server.url, other_llama.server.url
    lapwing = start_lapwing(upstream, "--shadow", f"other={candidate}", "--shadow-sample", "100%", env={**SHADOW, "LAPWING_SHADOW__NOISE": noise})
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    for n in range(25):
        chat(lapwing, n, temperature=1)
    outputs = await_compared(lapwing, "other", 25)
    wait_for(lambda: await_compared(lapwing, "other", 25)["repeats"]["compared"] == (25 if noise == "100%" else 0), 30, "the noise is known")
    outputs = await_compared(lapwing, "other", 25)
    assert outputs["verdict"] in ("cannot_be_compared", "differ"), outputs["summary"]
    if noise == "0%":
        assert outputs["unjudged"]["reasons"] == {"noise_not_measured": outputs["different"]}, outputs["unjudged"]
    # with nothing drawn, the same two differ
    for n in range(5):
        chat(lapwing, n, temperature=0, seed=1)
    outputs = await_compared(lapwing, "other", 30)
    assert noise == "100%" or outputs["mismatches"]["answers"] >= 4, outputs["summary"]


class Broken:
    """A target that misbehaves: garbage, a flood without end, or silence."""

    def __init__(self, how):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.how = how
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            connection.recv(65536)
            if self.how == "garbage":
                connection.sendall(b"\x00\xff not HTTP at all\r\n\r\n" * 10)
                connection.close()
            elif self.how == "flood":
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n")
                while True:
                    connection.sendall(b"x" * 65536)
            else:
                time.sleep(60)
        except OSError:
            pass


@pytest.mark.parametrize("how", ["dead", "garbage", "flood", "silent"])
def test_a_broken_target_costs_no_client_anything(start_shadowed, how):
    url = f"http://127.0.0.1:{free_port()}" if how == "dead" else Broken(how).url
    env = {"LAPWING_SHADOW__TIMEOUT": "1s", "LAPWING_SHADOW__NOISE": "0%", "LAPWING_SHADOW__MAX_BODY": "1MiB", "LAPWING_SHADOW__BUDGET": "8MiB"}
    lapwing = start_shadowed(f"broken={url}", env=env)
    answers = set()
    # silence takes a second to become a failure, and eight copies are in flight meanwhile
    for _ in range(60 if how != "silent" else 200):
        status, answer = ask(lapwing.port, body_of(5))
        assert status == 200
        answers.add(answer)
        time.sleep(0.02 if how == "silent" else 0)
    assert len(answers) == 1, "the same bytes every time"
    sent = 200 if how == "silent" else 60
    broken = await_paired(lapwing, "broken", sent)
    assert lapwing.outcomes() == {"ok": sent}
    # one that answers without end is cut off, which is a failure too; after five failures a target is left alone
    assert (broken["answered"], broken["failed"]) == (0, broken["sent"]), broken
    assert sum(of["dropped"].get("circuit_open", 0) for of in (broken, shadow(lapwing))) > 0, broken
    total = broken["comparisons"][0]["figures"]["total"]
    assert total["candidate_failed"] == broken["paired"], "a failure is no fast answer"


@pytest.mark.parametrize("order", ["after", "concurrent"])
def test_a_target_as_slow_as_the_upstream_has_not_failed(start_server, start_shadowed, order):
    """Both take longer than the target's own limit; one that is much slower than the upstream is given up all the same."""
    upstream, same, slower = (start_server("--forward-ms", ms) for ms in (400, 400, 2500))
    env = {"LAPWING_SHADOW__TIMEOUT": "100ms", "LAPWING_SHADOW__NOISE": "0%", "LAPWING_SHADOW__ORDER": order}
    env["LAPWING_SHADOW__ROUTES"] = "[POST /v2/models/*/infer]"  # named, so that nothing has to be learnt first
    lapwing = start_shadowed(f"same=http://127.0.0.1:{same}", f"slower=http://127.0.0.1:{slower}", upstream=upstream, env=env)
    for _ in range(2):
        assert ask(lapwing.port, body_of(1))[0] == 200
    found = await_paired(lapwing, "same", 2)
    assert (found["answered"], found["failed"]) == (2, 0), found
    found = await_paired(lapwing, "slower", 2)
    assert (found["answered"], found["failed"]) == (0, 2), found
    assert {series["outcomes"].get("timed_out") for series in found["series"]} == {2}, "given up, not left by a client"


def test_clients_that_leave_are_counted_and_harm_nothing(start_server, start_shadowed):
    candidate = start_server()
    lapwing = start_shadowed(f"http://127.0.0.1:{candidate}", env={"LAPWING_SHADOW__NOISE": "0%"})
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", lapwing.port)) as connection:
            connection.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{")
    for _ in range(3):
        assert ask(lapwing.port, body_of(1))[0] == 200

    def cut():
        return shadow(lapwing)["dropped"].get("cut") == 10

    wait_for(cut, 10, "ten requests broke off")
    wait_for(lambda: target(lapwing, "shadow")["sent"] == 3, 10, "whole requests are copied once their route is learnt")
