"""`lapwing doctor`: a healthy set-up of real parts has nothing to do, and of a broken one exactly what is broken is wrong."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from certificates import Authority
from ports import free_port
from process import wait_for, wait_listening
from test_stages import predict
from test_telemetry import needs_otelcol, otelcol

pytestmark = pytest.mark.beside


def doctor(binary, *args, before=(), env=None):
    """(exit code, checks by name, all lines): what it says as JSON, and the same as text."""
    run = lambda *more: subprocess.run([*before, binary, "doctor", *map(str, args), *more], capture_output=True, text=True,
                                       timeout=60, check=False, env={**os.environ, **(env or {})})
    said = run("--json")
    assert said.stderr == "", said.stderr
    report = json.loads(said.stdout)
    assert said.returncode == (1 if report["verdict"] == "wrong" else 0)
    for check in report["checks"]:
        assert (check["verdict"] != "ok") == ("advice" in check), check
    checks = {}
    for check in report["checks"]:
        checks.setdefault(check["name"], check)
    return report["checks"], checks


def wrong(checks):
    return [check["name"] for check in checks if check["verdict"] == "wrong"]


def settings(lapwing, upstream, *more):
    """What that Lapwing was started with."""
    return ["--upstream", upstream, "--listen", f"127.0.0.1:{lapwing.port}", "--admin", f"127.0.0.1:{lapwing.admin}",
            "--otlp-grpc", f"127.0.0.1:{lapwing.otlp_grpc}", "--otlp-http", f"127.0.0.1:{lapwing.otlp_http}", *more]


def unused(upstream, *more):
    """Settings of a Lapwing that does not run, and could."""
    ports = [f"127.0.0.1:{free_port()}" for _ in range(4)]
    names = ["--listen", "--admin", "--otlp-grpc", "--otlp-http"]
    given = dict(zip(names, ports)) | dict(zip(more[::2], more[1::2]))
    return ["--upstream", upstream, *(part for pair in given.items() for part in pair)]


# --- what is well

@pytest.fixture
def healthy(by_http):
    for n in range(20):
        predict(by_http, key=f"user:{n}")
    wait_for(by_http.lapwing.is_settled, 20, "all is counted")
    return by_http


def test_of_a_healthy_set_up_everything_is_well(binary, healthy, otlp_sink):
    lapwing = healthy.lapwing
    args = settings(lapwing, healthy.direct, "--otlp-forward", otlp_sink.url)
    checks, by_name = doctor(binary, *args)
    assert wrong(checks) == [], checks
    pid = f"pid {lapwing.process.pid}"
    for name, part in {
        "configuration": "no fault",
        "lapwing": f"({pid})",
        "listen": f"is held by lapwing ({pid})",
        "admin": pid,
        "otlp_grpc": pid,
        "otlp_http": pid,
        "upstream": f"{healthy.direct} answers ",
        "clocks": "lie within them",
        "otlp_forward": f"{otlp_sink.url} takes exports",
    }.items():
        assert by_name[name]["verdict"] == "ok" and part in by_name[name]["found"], by_name[name]
    assert f"of {pid}" in by_name["descriptors"]["found"]
    (reported, answered) = map(int, re.match(r"(\d+) of (\d+) ", by_name["reports"]["found"]).groups())
    assert 20 <= reported <= answered
    # the text has a line for each
    said = subprocess.run([binary, "doctor", *args], capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0 and said.stderr == ""
    lines = said.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[check["verdict"], check["name"]] for check in checks]
    assert all((" → " in line) == ("advice" in check) for line, check in zip(lines, checks)), said.stdout


def test_settings_that_are_not_the_running_ones_are_noted(binary, healthy, otlp_sink):
    args = settings(healthy.lapwing, healthy.direct, "--otlp-forward", otlp_sink.url, "--workers", "3")
    checks, by_name = doctor(binary, *args)
    assert wrong(checks) == [] and by_name["lapwing"]["verdict"] == "note", by_name["lapwing"]
    assert "proxy.workers" in by_name["lapwing"]["found"]


def test_without_reports_it_says_how_to_get_them(binary, start_lapwing, raw_server):
    lapwing = start_lapwing(raw_server.url)
    with socket.create_connection(("127.0.0.1", lapwing.port), 5) as s:
        s.sendall(b"GET /head HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
        while s.recv(65536):
            pass
    wait_for(lambda: lapwing.is_settled() and lapwing.count() == 1, 20, "it is counted")
    checks, by_name = doctor(binary, *settings(lapwing, raw_server.url))
    assert wrong(checks) == []
    assert by_name["reports"]["verdict"] == "note" and "0 of 1 " in by_name["reports"]["found"]
    assert by_name["server"]["verdict"] == "note" and "upstream-flags" in by_name["server"]["advice"]


@needs_otelcol
def test_a_real_collector_takes_the_export_over_both_transports(binary, processes, tmp_path, otlp_sink, raw_server):
    grpc = free_port()
    _, http = otelcol(processes, tmp_path, otlp_sink, grpc)
    wait_listening(http)
    env = {"LAPWING_TELEMETRY__METRICS": "on", "LAPWING_TELEMETRY__TRACES": "on",
           "LAPWING_TELEMETRY__ENDPOINT": f"grpc://127.0.0.1:{grpc}"}
    checks, by_name = doctor(binary, *unused(raw_server.url, "--otlp-forward", f"http://127.0.0.1:{http}"), env=env)
    assert wrong(checks) == []
    for name in ("otlp_forward", "telemetry.metrics", "telemetry.traces"):
        assert by_name[name]["verdict"] == "ok", by_name[name]
    # a path that it does not have
    _, by_name = doctor(binary, *unused(raw_server.url, "--otlp-forward", f"http://127.0.0.1:{http}/elsewhere"))
    assert by_name["otlp_forward"]["verdict"] == "wrong" and "404" in by_name["otlp_forward"]["found"]
    assert "path" in by_name["otlp_forward"]["advice"]


def test_a_server_of_the_open_inference_protocol_says_who_it_is(binary, mlserver_http):
    checks, by_name = doctor(binary, *unused(mlserver_http.server.url))
    assert wrong(checks) == []
    assert "answers 200 to /v2/health/ready" in by_name["upstream"]["found"]
    assert by_name["server"]["verdict"] == "ok" and by_name["server"]["found"] == "MLServer, as it says at /v2"


# --- one thing is broken

def only(checks, name):
    """The one check that is wrong."""
    assert wrong(checks) == [name], checks
    (found,) = [check for check in checks if check["verdict"] == "wrong"]
    return found


def test_an_upstream_that_is_down(binary, start_lapwing):
    gone = f"http://127.0.0.1:{free_port()}"
    lapwing = start_lapwing(gone)
    found = only(doctor(binary, *settings(lapwing, gone))[0], "upstream")
    assert gone in found["found"] and "Connection refused" in found["found"]
    assert "start the server" in found["advice"]
    # before the start it is the same
    only(doctor(binary, *unused(gone))[0], "upstream")


def test_a_port_of_another_process(binary, processes, raw_server):
    port = free_port()
    other = processes("other", [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"])
    wait_listening(port)
    for flag, name in [("--listen", "listen"), ("--otlp-grpc", "otlp_grpc"), ("--admin", "admin")]:
        found = only(doctor(binary, *unused(raw_server.url, flag, f"127.0.0.1:{port}"))[0], name)
        assert f"127.0.0.1:{port} is taken by python" in found["found"] and f"(pid {other.pid})" in found["found"]
        assert f"set {name} to another address" in found["advice"]


def test_a_port_whose_process_it_may_not_see(binary, raw_server):
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("this machine gives no other user: not root, or no setpriv")
    # a socket of root's, seen as nobody
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # nobody may not enter the build's folder: the open file is run
        with open(binary, "rb") as file:
            opened = f"/proc/self/fd/{file.fileno()}"
            said = subprocess.run(
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", opened, "doctor", "--json",
                 *unused(raw_server.url, "--listen", f"127.0.0.1:{port}")],
                capture_output=True, text=True, timeout=60, check=False, pass_fds=[file.fileno()])
    found = only(json.loads(said.stdout)["checks"], "listen")
    assert "another process" in found["found"] and f"ss -ltnp 'sport = :{port}'" in found["advice"]


def test_a_collector_that_is_away(binary, healthy):
    away = f"http://127.0.0.1:{free_port()}"
    found = only(doctor(binary, *unused(healthy.direct, "--otlp-forward", away))[0], "otlp_forward")
    assert away in found["found"] and "start the collector" in found["advice"]


def test_too_few_descriptors(binary, processes, logs, raw_server):
    before = ["prlimit", "--nofile=256:256"]
    found = only(doctor(binary, *unused(raw_server.url), before=before)[0], "descriptors")
    assert "256 open files here: 160 for clients" in found["found"] and "LimitNOFILE=" in found["advice"]
    # of the Lapwing that runs, whatever this shell may have
    args = unused(raw_server.url)
    lapwing = processes("lapwing", [*before, binary, *args])
    wait_listening(int(args[args.index("--admin") + 1].rsplit(":", 1)[1]))
    found = only(doctor(binary, *args)[0], "descriptors")
    assert f"256 open files of pid {lapwing.pid}" in found["found"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


def tls(authority, name, **issued):
    certificate, key = authority.issue(name, **issued)
    return {"LAPWING_TLS__LISTEN__CERTIFICATE": str(certificate), "LAPWING_TLS__LISTEN__KEY": str(key)}


def test_an_expired_certificate(binary, authority, raw_server):
    env = tls(authority, "short", days=0)
    time.sleep(1.1)  # its end is the second in which it was made
    found = only(doctor(binary, *unused(raw_server.url), env=env)[0], "tls.listen")
    assert "expired" in found["found"] and "renew" in found["advice"]
    checks, by_name = doctor(binary, *unused(raw_server.url), env=tls(authority, "good"))
    assert wrong(checks) == [] and re.search("valid for (9|10) days", by_name["tls.listen"]["found"])


def test_a_fault_of_the_configuration(binary, tmp_path, raw_server):
    path = tmp_path / "lapwing.yaml"
    path.write_text(f"upstream: {raw_server.url}\nproxy: {{workers: 65}}\n")
    found = only(doctor(binary, "--config", path)[0], "configuration")
    assert "proxy.workers: 65: must be between 0 and 64" in found["found"] and "docs/CONFIGURATION.md" in found["advice"]
    # each fault has a line
    path.write_text("upstream: ftp://m:1\nproxy: {workers: 65}\n")
    assert wrong(doctor(binary, "--config", path)[0]) == ["configuration"] * 2


def test_files_that_are_named_and_not_there(binary, authority, raw_server, tmp_path):
    env = tls(authority, "lost") | {"LAPWING_TLS__LISTEN__KEY": str(tmp_path / "none.key")}
    found = only(doctor(binary, *unused(raw_server.url), env=env)[0], "configuration")
    assert "tls.listen.key" in found["found"] and "none.key" in found["found"]


def test_a_reload_that_failed(binary, start_lapwing, raw_server, tmp_path):
    path = tmp_path / "lapwing.yaml"
    path.write_text("drain_timeout: 5s\nconfig: {watch: off}\n")
    lapwing = start_lapwing(raw_server.url, config=path)
    good = doctor(binary, "--config", path, *settings(lapwing, raw_server.url))
    assert wrong(good[0]) == [] and good[1]["lapwing"]["verdict"] == "ok", good[1]["lapwing"]
    path.write_text("drain_timeout: soon\nconfig: {watch: off}\n")
    lapwing.process.send(signal.SIGHUP)
    wait_for(lambda: lapwing.json("/config")["failed_reload"], 10, "the fault is seen")
    path.write_text("drain_timeout: 5s\nconfig: {watch: off}\n")
    found = only(doctor(binary, "--config", path, *settings(lapwing, raw_server.url))[0], "lapwing")
    assert "the last reload failed: drain_timeout: soon" in found["found"]


# --- the command

def test_help_teaches_and_wrong_usage_is_64(binary):
    run = lambda *args: subprocess.run([binary, "doctor", *args], capture_output=True, text=True, timeout=20, check=False)
    said = run("--help")
    assert said.returncode == 0
    for part in ("Examples:", "--json", "--admin-ca", "wrong", "Exit code: 0 if nothing is wrong; 1 if something is; 64"):
        assert part in said.stdout, said.stdout
    assert run("--jason").returncode == 64
