"""Lapwing as a process: its shutdown, its configuration from outside, and the demo."""

import json
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import pytest

from lapwing import OPENER
from ports import free_port
from process import wait_for

pytestmark = pytest.mark.beside


def ask(port, ms, answers):
    """Sends a slow request; records the answer, or the error."""
    try:
        with OPENER.open(f"http://127.0.0.1:{port}/head?ms={ms}", timeout=20) as r:
            answers.append((r.status, len(r.read()) > 0))
    except OSError as e:
        answers.append(e)


@pytest.fixture
def started(start_lapwing, raw_server):
    def start(*args):
        lapwing = start_lapwing(raw_server.url, *args)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        return lapwing

    return start


def in_flight(lapwing, ms):
    """A request that has reached the upstream and takes `ms` there."""
    answers = []
    thread = threading.Thread(target=ask, args=(lapwing.port, ms, answers))
    thread.start()
    time.sleep(0.3)
    assert not answers
    return thread, answers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_drains(started, number):
    lapwing = started()
    thread, answers = in_flight(lapwing, 1500)
    lapwing.process.send(number)
    time.sleep(0.3)
    assert lapwing.process.is_running(), "a request is in flight"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", lapwing.port), 1).close()
    assert lapwing.process.wait(10) == 0
    thread.join(10)
    assert answers == [(200, True)]


def test_idle_connections_do_not_hold_the_end_up(started):
    lapwing = started()
    with socket.create_connection(("127.0.0.1", lapwing.port), 5) as s:
        s.sendall(b"GET /head HTTP/1.1\r\nhost: h\r\n\r\n")
        assert s.recv(65536)
        start = time.monotonic()
        lapwing.process.send(signal.SIGTERM)
        assert lapwing.process.wait(10) == 0
        assert time.monotonic() - start < 5


def test_drain_timeout_bounds_the_end(started):
    lapwing = started("--drain-timeout", "500ms")
    thread, answers = in_flight(lapwing, 8000)
    start = time.monotonic()
    lapwing.process.send(signal.SIGTERM)
    assert lapwing.process.wait(10) == 0
    assert time.monotonic() - start < 5
    thread.join(10)
    assert isinstance(answers[0], OSError), "it was cut"


def test_the_second_signal_ends_at_once(started):
    lapwing = started()
    thread, answers = in_flight(lapwing, 5000)
    lapwing.process.send(signal.SIGTERM)
    time.sleep(0.3)
    start = time.monotonic()
    lapwing.process.send(signal.SIGTERM)
    assert lapwing.process.wait(5) != 0
    assert time.monotonic() - start < 1
    thread.join(10)


# --- configuration

def run(binary, *args, env=None):
    done = subprocess.run([binary, *args], capture_output=True, text=True, timeout=20, env=env, check=False)
    return done.returncode, done.stdout, done.stderr


def test_check_tells_every_fault_at_once(binary, tmp_path):
    path = tmp_path / "lapwing.yaml"
    path.write_text("upstream: ftp://m:1\nlisten: nowhere\nproxy:\n  conect_timeout: 1s\n  max_in_flight: 0\n")
    code, out, err = run(binary, "check", "--config", str(path))
    assert (code, out) == (64, "")
    for part in ("upstream", "ftp://m:1", "listen", "nowhere", "proxy.conect_timeout", "connect_timeout", "proxy.max_in_flight"):
        assert part in err, err


def test_check_says_what_is_in_force_and_where_from(binary, tmp_path):
    path = tmp_path / "lapwing.yaml"
    path.write_text("upstream: http://m:1\notlp_forward: http://c:4318\notlp_forward_headers: {api-key: hunter2}\n")
    code, out, err = run(binary, "check", "--config", str(path), "--listen", ":7000", env={"LAPWING_PROXY__MAX_IN_FLIGHT": "77"})
    assert code == 0, err
    assert re.search(r"listen: .*7000 .*flag", out) and re.search(r"max_in_flight: 77 .*LAPWING_PROXY__MAX_IN_FLIGHT", out), out
    assert re.search(r"upstream: http://m:1 .*lapwing\.yaml", out) and "hunter2" not in out + err
    again = tmp_path / "again.yaml"
    again.write_text(out)
    assert run(binary, "check", "--config", str(again))[0] == 0, "what it prints is a configuration"


@pytest.mark.parametrize("args", [[], ["--upstream", "ftp://x"], ["--upstream", "http://m:1", "--no-such-flag"], ["serve", "--config", "/nowhere"]])
def test_what_cannot_be_run_exits_with_64(binary, args):
    code, _, err = run(binary, *args)
    assert code == 64 and err.strip(), (code, err)


def test_a_port_that_is_taken_is_named(binary):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        others = [arg for flag in ("--admin", "--otlp-grpc", "--otlp-http") for arg in (flag, f"127.0.0.1:{free_port()}")]
        code, _, err = run(binary, "--upstream", "http://127.0.0.1:9", "--listen", at, *others)
    assert code not in (0, 64) and at in err, (code, err)


# --- the demo

def test_the_demo_shows_every_stage_and_ends_with_a_summary(binary):
    admin = free_port()
    child = subprocess.Popen(
        [binary, "demo", "--seconds", "12", "--rate", "50", "--admin", f"127.0.0.1:{admin}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:

        def seen():
            try:
                with OPENER.open(f"http://127.0.0.1:{admin}/stats?window=all", timeout=2) as r:
                    series = json.load(r)["series"]
            except (OSError, urllib.request.URLError):
                return None
            stages = {name for s in series for name, figures in s["stages"].items() if figures["count"]}
            return stages >= {"ingress", "hydration", "preprocessing", "forward", "postprocessing"} and series

        series = wait_for(seen, 12, "the five stages are seen", 0.25)
        sources = {source for s in series for source in s["stages"]["forward"]["sources"]}
        assert sources & {"reported", "traced"}, sources
        out, _ = child.communicate(timeout=40)
    finally:
        child.kill()
    assert child.returncode == 0, out[-2000:]
    for word in ("hydration", "preprocessing", "forward", "postprocessing", "p99", f"127.0.0.1:{admin}"):
        assert word in out, (word, out[-2000:])
