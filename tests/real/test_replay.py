"""Recording from a running Lapwing, and replaying to real servers: what is recorded, what gates say, and how late requests are sent."""

import base64
import http.client
import json
import subprocess
import threading

import pytest

from lapwing import NO_SPANS
from ports import free_port
from process import wait_for
from shadowing import WIDTHS, body_of, post, record

ENV = {**NO_SPANS, "LAPWING_ATTRIBUTION__POLL": "off"}


@pytest.fixture(scope="module")
def primary(start_server):
    return start_server("--forward-ms", 4)


def request_of(n):
    return body_of(3, n, parameters={"user": f"secret {n}"})


def run(binary, *args, env=None):
    done = subprocess.run([binary, *map(str, args)], capture_output=True, text=True, timeout=120, env=env)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def recorded(binary, start_lapwing, primary, tmp_path_factory):
    """A recording of 300 requests; its path and its lines."""
    env = {**ENV, "LAPWING_SHADOW__COMPARE__REDACT": "[$..user]", "LAPWING_SHADOW__HEADERS": "{x-tenant: keep}"}
    # a request with a cookie is recorded only where the user says so
    env["LAPWING_SHADOW__ROUTES"] = '["POST /v2/models/{model}/infer"]'
    lapwing = start_lapwing(f"http://127.0.0.1:{primary}", env=env)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    path = tmp_path_factory.mktemp("recording") / "traffic.lwr"
    given = {"content-type": "application/json", "authorization": "Bearer x", "cookie": "a=b", "x-tenant": "t"}

    def call(n):
        assert post(lapwing.port, "/v2/models/m/infer", request_of(n), given)[0] == 200

    return path, record(binary, lapwing, path, 300, call)


def replay(binary, *args):
    code, out, error = run(binary, "replay", *args, "--json")
    assert code in (0, 1), error
    return code, json.loads(out), error


def test_a_recording_has_requests_answers_and_accounts_and_no_secrets(recorded):
    path, (header, *lines, end) = recorded
    assert (header["format"], header["version"], header["sample"]) == ("lapwing-recording", 1, 1.0)
    assert path.stat().st_mode & 0o777 == 0o600
    exchanges = [line["exchange"] for line in lines]
    assert len(exchanges) == end["end"]["requests"] == 300 and end["end"]["reason"] == "requests"
    assert sorted(one["at_ns"] for one in exchanges)[0] > 0
    for one in exchanges:
        headers = dict(one["headers"])
        assert headers["x-tenant"] == "t" and not {"authorization", "cookie", "content-length"} & set(headers)
        asked, answer = (json.loads(base64.b64decode(body)) for body in (one["body"], one["answer"]["body"]))
        assert asked["parameters"] == {"user": "***"} and len(asked["inputs"][0]["data"]) == 90
        assert one["answer"]["status"] == 200 and answer["outputs"][0]["shape"] == [3, WIDTHS[1 + 1]]
        account = one["account"]
        assert (account["route"], account["model"], account["is_answered"]) == ("POST /v2/models/{model}/infer", "m", True)
        assert account["figures_ns"]["total"] > account["figures_ns"]["forward"] >= 4_000_000
    assert "secret" not in path.read_text()


def test_gates_pass_for_the_same_server_and_fail_for_a_slower_one(binary, recorded, start_server, primary, tmp_path):
    slow = start_server("--forward-ms", 9, "--wrong-every", 10)
    pairs = tmp_path / "pairs.lwp"
    gates = ["--gate", "forward.p50_ratio<=1.5", "--gate", "mismatch<=0.1%", "--gate", "failed<=0"]
    targets = ["--to", f"base=http://127.0.0.1:{primary}", "--to", f"slow=http://127.0.0.1:{slow}"]
    code, report, error = replay(binary, recorded[0], *targets, "--rate", 40, "--pairs", pairs, *gates)
    held = {gate["field"]: gate for gate in report["gates"]}
    assert code == 1 and [gate for gate, one in held.items() if not one["holds"]] == ["forward.p50_ratio", "mismatch"], error
    assert 1.9 < held["forward.p50_ratio"]["value"] < 2.6 and held["mismatch"]["value"] == 0.1, held
    assert "gate forward.p50_ratio<=1.5 of slow FAILS: forward.p50_ratio is 2." in error and "gate mismatch<=0.1% of slow FAILS" in error
    (target,) = report["targets"]
    assert (target["name"], target["sent"], target["answered"], target["paired"]) == ("slow", 300, 300, 300)
    assert report["baseline"] == "base" and report["sending"]["baseline"]["answered"] == 300
    # from the pairs alone: the same comparison, and the same gates
    code, again, error = replay(binary, pairs, *gates)
    assert code == 1 and again["targets"][0]["comparisons"] == target["comparisons"] and target["comparisons"]
    assert again["gates"] == report["gates"]
    # against what was recorded, at the recorded times; the same server
    code, report, error = replay(binary, recorded[0], "--to", f"http://127.0.0.1:{primary}", *gates)
    assert code == 0, error
    (target,) = report["targets"]
    assert report["baseline"] == "recorded" and target["paired"] == 300
    assert target["comparisons"][0]["figures"]["total"]["mismatches"] | {"rate": 0, "block_share": 0, "blocks": 0} == {
        "mismatches": 0, "compared": 300, "excused": 0, "unjudged": 0, "rate": 0, "blocks_with_mismatch": 0, "blocks": 0, "block_share": 0
    }


def test_latency_counts_from_the_due_time(binary, recorded, start_server):
    """100 requests/s are due at a server that takes 20 ms for each, one at a time: they queue, and that is seen."""
    slow = start_server("--forward-ms", 20)
    flags = ["--rate", 100, "--max-in-flight", 4]
    code, report, _ = replay(binary, recorded[0], "--to", f"http://127.0.0.1:{slow}", *flags)
    (target,) = report["targets"]
    total, forward = (target["comparisons"][0]["figures"][name]["candidate_ns"] for name in ("total", "forward"))
    assert target["answered"] == 300 and forward["p50"]["value"] < 40e6
    # the last ones wait for about half of 300 · 20 ms; the server itself has four of them at a time
    (due,) = report["sending"]["from_due"]
    assert due["p99_ns"] > 2e9 and report["sending"]["lateness"]["p99_ns"] > 2e9, report["sending"]
    assert total["p99"]["value"] < 1e9, total


def test_lateness_is_told(binary, recorded, primary):
    """A figure for the benchmarks, not a timed test: the machine may be busy."""
    code, report, error = replay(binary, recorded[0], "--to", f"http://127.0.0.1:{primary}", "--rate", 150, "--gate", "lateness_p99<=10s")
    assert code == 0, error
    lateness = report["sending"]["lateness"]
    assert lateness["count"] == 300 and 0 < lateness["p50_ns"] <= lateness["p99_ns"] <= lateness["max_ns"]
    print("lateness at 150 requests/s:", lateness)


def test_a_closed_loop_and_the_engine(binary, recorded, small_mlp):
    code, report, error = replay(binary, recorded[0], "--to", f"engine={'engine:' + str(small_mlp)}", "--closed", 4, "--gate", "mismatch<=0%")
    assert code == 0, error
    (target,) = report["targets"]
    assert (target["answered"], target["paired"], target["failed"]) == (300, 300, 0)
    assert "forward" in target["comparisons"][0]["figures"]


def test_a_target_that_is_gone_fails_every_pair(binary, recorded):
    code, report, error = replay(binary, recorded[0], "--to", f"http://127.0.0.1:{free_port()}", "--closed", 4, "--gate", "failed<=1%")
    assert code == 1 and "gate failed<=1% of target-1 FAILS: failed is 100.0000 %" in error
    assert report["targets"][0]["failed"] == 300


def test_broken_files_and_wrong_usage_are_told_apart(binary, recorded, tmp_path):
    path, _ = recorded
    cut, other = tmp_path / "cut.lwr", tmp_path / "other.lwr"
    cut.write_bytes(path.read_bytes()[:-200])
    other.write_bytes(b"\x00" * 1000)
    to = ["--to", "http://127.0.0.1:9"]
    for args, code, reason in [
        ([cut, *to], 65, "is cut off"),
        ([other, *to], 65, "is no lapwing-recording"),
        ([tmp_path / "none", *to], 65, "cannot be read"),
        ([path, "--max-size", "1KiB", *to], 65, "--max-size"),
        ([path], 64, "--to is required"),
        ([path, *to, *to, "--to", "target-2=http://127.0.0.1:9"], 64, "two targets are named target-2"),
        ([path, *to, "--gate", "p98_ratio<=1"], 64, "there are p50_ratio"),
        ([path, *to, "--rate", 5, "--closed", 5], 64, "cannot be used with"),
    ]:
        done = run(binary, "replay", *args)
        assert done[0] == code and reason in done[2], (args, done)


def test_only_a_process_on_this_machine_may_record(binary, start_lapwing, primary, tmp_path):
    lapwing = start_lapwing(f"http://127.0.0.1:{primary}", env=ENV)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    for name in ("origin", "x-forwarded-for"):
        status, why = post(lapwing.admin, "/record", b"", {name: "http://10.0.0.1"})
        assert (status, b"neither a browser nor a proxy" in why) == (403, True)
    assert post(lapwing.admin, "/record?sample=7", b"", {})[0] == 400
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.admin, timeout=10)
    connection.request("GET", "/record")
    assert connection.getresponse().status == 405
    # one at a time, and the first goes on
    first = threading.Thread(target=run, args=(binary, "record", "--admin", f"127.0.0.1:{lapwing.admin}", "--for", "5s", "--out", tmp_path / "a"))
    first.start()
    wait_for((tmp_path / "a").exists, 10, "the first recording has begun")
    code, _, error = run(binary, "record", "--admin", f"127.0.0.1:{lapwing.admin}", "--for", "1s", "--out", tmp_path / "b")
    assert code == 69 and "a recording runs already" in error and not (tmp_path / "b").exists()
    first.join()
    # a file is never overwritten
    code, _, error = run(binary, "record", "--admin", f"127.0.0.1:{lapwing.admin}", "--for", "1s", "--out", tmp_path / "a")
    assert code == 69 and "exists" in error
