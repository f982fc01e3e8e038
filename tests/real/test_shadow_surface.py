"""What `/shadow` and a replay's report say beside the figures: which pairs differ most and where their time went on both sides, which
models changed, which side went first, and which time is which."""

import json
import os
import subprocess
import sys
import time

import pytest

from ports import free_port
from process import wait_for, wait_listening
from servers.parts import HERE
from shadowing import SHADOW, body_of, post, record, target
from shadowing import ask as ask_server


@pytest.fixture
def start_shadowed(shadowed):
    """Starts a Lapwing before the server at a port that copies every request to `other`, at another port."""

    def start(upstream, candidate, env=None):
        return shadowed(upstream, f"other=http://127.0.0.1:{candidate}", env={"LAPWING_SHADOW__NOISE": "0%", **(env or {})})

    return start


@pytest.fixture
def start_plain(start_lapwing):
    """Starts a Lapwing before the server at a port, without shadow."""

    def start(upstream):
        lapwing = start_lapwing(f"http://127.0.0.1:{upstream}", env=SHADOW)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        return lapwing

    return start


def ask(port, model="m", n=0):
    status, _ = ask_server(port, body_of(5, n), model=model)
    assert status == 200


def other(lapwing):
    return target(lapwing, "other")


def test_pairs_that_differ_have_both_waterfalls(start_server, start_shadowed):
    lapwing = start_shadowed(start_server("--forward-ms", 6), start_server("--forward-ms", 2, "--wrong-every", 3))
    for n in range(60):
        ask(lapwing.port, n=n)

    def compared():
        target = other(lapwing)
        return target if sum(of["compared"] for of in target["outputs"].values()) == target["paired"] == 60 else None

    target = wait_for(compared, 20, "60 pairs are compared")
    (outputs,) = target["outputs"].values()
    assert outputs["mismatches"]["answers"] == 20
    differing = wait_for(lambda: other(lapwing)["differing"], 10, "both sides are known")
    assert len(differing) == 8, "the worst of 20"
    errors = [pair["greatest_error"] for pair in differing]
    assert errors == sorted(errors, reverse=True) and all(abs(error - 1) < 1e-3 for error in errors), errors
    exchanges = {one["trace_id"]: one for one in lapwing.exchanges()}
    # which of equal errors are the worst cases of the field is open
    (field,) = [field for field in outputs["fields"] if field["field"] == "y"]
    assert {worst["trace"] for worst in field["worst"]} <= set(exchanges)
    for pair in differing:
        assert (pair["route"], pair["model"]) == ("POST /v2/models/{model}/infer", "m")
        rows = {row["stage"]: row for row in pair["waterfall"]}
        assert {"preprocessing", "forward"} <= set(rows), pair
        for side, most_ms in (("primary", 6), ("copy", 2)):
            forward = rows["forward"][side]
            assert most_ms * 1e6 <= forward["duration_ns"] == pair[side]["forward"] < pair[side]["total"]
            assert forward["start_ns"] + forward["duration_ns"] <= pair[side]["total"], "inside the window at the server"
            before = rows["preprocessing"][side]
            assert before["start_ns"] + before["duration_ns"] <= forward["start_ns"]
        # the same as the request's own waterfall
        (bar,) = [bar for bar in exchanges[pair["primary_trace_id"]]["spans"] if bar["stage"] == "forward"]
        assert bar["end_ns"] - bar["start_ns"] == rows["forward"]["primary"]["duration_ns"]
        assert pair["copy_trace_id"] not in exchanges, "a trace of its own, which is no client's"
    text = lapwing.get("/shadow")[2].decode()
    assert "outputs that differ most, in ms from the last byte sent (offset + duration)" in text, text
    rows = [line for line in text.splitlines() if line.strip().startswith("· forward")]
    assert len(rows) == 2 and all(line.count(" + ") == 2 and len(line) <= 80 for line in rows), text
    assert "6 more in the JSON of this page" in text


@pytest.mark.parametrize("order, words", [("after", "the copy after the upstream's answer"), ("concurrent", "the copy beside it")])
def test_the_order_of_a_target_is_told(start_server, start_shadowed, order, words):
    server = start_server()
    lapwing = start_shadowed(server, server, {"LAPWING_SHADOW__ORDER": order})
    assert other(lapwing)["order"] == order
    assert f"every figure: primary first, {words}" in lapwing.get("/shadow")[2].decode()


@pytest.mark.timeout(240)
def test_the_model_that_changed_is_named(start_server, start_shadowed):
    """Of five models the target is much slower in one."""
    lapwing = start_shadowed(start_server(), start_server("--forward-ms", 40, "--only-model", "m3"))

    def changed():
        return {one["model"]: one for one in other(lapwing)["changed"]["named"]}

    until, n = time.monotonic() + 110, 0
    while "m3" not in changed() and time.monotonic() < until:
        for _ in range(100):
            ask(lapwing.port, f"m{n % 5}", n)
            if n % 5 == 3:
                time.sleep(0.08)  # the copy keeps the target's only thread busy, and the next one must not wait for that
            n += 1
    said, named = other(lapwing)["changed"], changed()
    assert said["of"] == 5 and said["claim"] == "at most 5 % of those named are expected to be false"
    assert named["m3"]["direction"] == "slower" and named["m3"]["losses"] > 3 * named["m3"]["wins"], said
    # another process on a busy machine may be the slower one throughout, but not by so much
    assert all(one["paired_p50"] < named["m3"]["paired_p50"] for model, one in named.items() if model != "m3"), said
    evidence = [one["log_e_value"] for one in said["named"]]
    assert evidence == sorted(evidence, reverse=True)
    text = lapwing.get("/shadow")[2].decode()
    assert "of 5 routes, models and classes; at most 5 % of those named are expected to be false" in text
    lines = text[text.index("changed in total, strongest first") :].splitlines()[1:6]
    assert any(line.startswith("    POST /v2/models/{model}/infer, model m3, from 4 units of work: slower, ") for line in lines), lines


# --- replays


def replay(binary, *args):
    done = subprocess.run([binary, "replay", *map(str, args)], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    return done


def test_total_is_the_time_at_the_server_and_waiting_is_apart(binary, start_server, start_plain, tmp_path):
    """100 requests/s at a server that takes 20 ms for each, two at a time: they wait here, and the server is as quick as recorded."""
    server = start_server("--forward-ms", 20)
    lapwing = start_plain(server)
    path = tmp_path / "traffic.lwr"
    record(binary, lapwing, path, 150, lambda n: ask(lapwing.port, n=n))
    flags = ["--rate", 100, "--max-in-flight", 1]
    report = json.loads(replay(binary, path, "--to", f"again=http://127.0.0.1:{server}", *flags, "--json").stdout)
    (target,) = report["targets"]
    figures = target["comparisons"][0]["figures"]
    assert (target["order"], target["paired"]) == ("recorded", 150)
    # like with like, one at a time in the recording and here; with the waiting in it, it would be 30 times as much
    assert 0.3 < figures["total"]["paired_ratio"]["p50"]["value"] < 3, figures["total"]
    assert "from_due" not in figures, "a recorded request was never due"
    (due,) = report["sending"]["from_due"]
    # 150 requests take 3 s; the last was due after 1.5 s
    assert due["target"] == "again" and due["count"] == 150 and due["max_ns"] > 1.2e9
    assert report["sending"]["lateness"]["max_ns"] < due["max_ns"] and report["sending"]["lateness"]["p99_ns"] > 1e9
    # against another target both were due, so this is compared too, and a gate may hold it
    gates = ["--gate", "from_due.p50_ratio<=1.5", "--gate", "p50_ratio<=1.5"]
    to = [f"a=http://127.0.0.1:{server}", f"b=http://127.0.0.1:{start_server('--forward-ms', 20)}"]
    done = replay(binary, path, "--to", to[0], "--to", to[1], *flags, *gates, "--json")
    report = json.loads(done.stdout)
    (target,) = report["targets"]
    figures = target["comparisons"][0]["figures"]
    assert target["order"] == "in_turn" and [one["target"] for one in report["sending"]["from_due"]] == ["a", "b"]
    assert figures["from_due"]["candidate_ns"]["p50"]["value"] > 3 * figures["total"]["candidate_ns"]["p50"]["value"]
    assert [gate["field"] for gate in report["gates"]] == ["from_due.p50_ratio", "p50_ratio"]
    assert all(gate["value"] is not None for gate in report["gates"]), report["gates"]
    words = replay(binary, path, "--to", f"again=http://127.0.0.1:{server}", "--closed", 1).stdout
    assert "again, from the due time to the last byte: p50 " in words
    assert "every figure: the baseline as it was recorded, the target as replayed" in words


def test_a_replay_joins_the_spans_of_its_target(binary, start_lapwing, processes, tmp_path):
    def traced(name, otlp):
        port = free_port()
        env = dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{otlp}", OTEL_SERVICE_NAME=name, OTEL_BSP_SCHEDULE_DELAY="200")
        processes(f"traced_{name}", [sys.executable, str(HERE / "traced_server.py"), str(port)], env=env)
        wait_listening(port, 60)
        return port

    def predict(n):
        status, _ = post(lapwing.port, "/predict", json.dumps({"n": n}), {"content-type": "application/json"})
        assert status == 200

    upstream = free_port()
    lapwing = start_lapwing(f"http://127.0.0.1:{upstream}", env={"LAPWING_SHADOW__ROUTES": "[POST /predict]", "LAPWING_ATTRIBUTION__POLL": "off"})
    env = dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{lapwing.otlp_http}", OTEL_BSP_SCHEDULE_DELAY="200")
    processes("traced_recorded", [sys.executable, str(HERE / "traced_server.py"), str(upstream)], env=env)
    wait_listening(upstream, 60)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    path = tmp_path / "traffic.lwr"
    record(binary, lapwing, path, 40, predict)
    otlp = free_port()
    to = ["--to", f"http://127.0.0.1:{traced('target', otlp)}", "--rate", 40, "--json"]
    (target,) = json.loads(replay(binary, path, *to, "--otlp-http", f"127.0.0.1:{otlp}").stdout)["targets"]
    (comparison,) = target["comparisons"]
    figures = comparison["figures"]
    assert {"total", "preprocessing", "forward", "downstream"} <= set(figures), figures.keys()
    assert figures["forward"]["pairs"] == target["paired"] == 40
    (series,) = target["series"]
    assert series["stages"]["forward"]["count"] == 40 and "traced" in json.dumps(series["stages"]["forward"])
    # without a receiver no stage is known, and none is made up
    (target,) = json.loads(replay(binary, path, *to).stdout)["targets"]
    assert target["paired"] == 40 and set(target["comparisons"][0]["figures"]) == {"total"}


def test_an_address_that_is_taken_is_named(binary, start_plain, start_server, tmp_path):
    lapwing = start_plain(start_server())
    path = tmp_path / "traffic.lwr"
    record(binary, lapwing, path, 3, lambda n: ask(lapwing.port, n=n))
    to = ["--to", "http://127.0.0.1:9", "--otlp-grpc", f"127.0.0.1:{lapwing.admin}"]
    done = subprocess.run([binary, "replay", str(path), *to], capture_output=True, text=True, timeout=30)
    assert done.returncode == 69 and f"--otlp-grpc: 127.0.0.1:{lapwing.admin}" in done.stderr, done.stderr
