"""What the admin address shows of what is asked for, to whom, and the access log."""

import http.client
import json
import os
import subprocess
import urllib.parse

import pytest

from lapwing import NO_SPANS
from ports import free_port
from process import wait_for, wait_listening

pytestmark = pytest.mark.beside
TOKEN = "correct-horse-battery-staple"
GUARDED = ["/stats", "/exchanges", "/diagnosis", "/metrics", "/hdr", "/shadow", "/config"]
OPEN = ["/", "/livez", "/readyz"]


class Asked:
    """A Lapwing before the raw server, configured by variables."""

    def __init__(self, processes, binary, upstream, **settings):
        self.port, self.admin, otlp = free_port(), free_port(), free_port()
        command = [binary, "--upstream", upstream, "--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"]
        env = {f"LAPWING_{name.upper()}": str(value) for name, value in settings.items()}
        self.process = processes("lapwing", [*command, "--otlp-grpc", f"127.0.0.1:{otlp}", "--otlp-http", "off"], env=dict(os.environ, **NO_SPANS, **env))
        wait_listening(self.admin, 20)

    def infer(self, model, trace=None, ms=0):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"} if trace else {}
        connection.request("POST", f"/v2/models/{model}/infer?ms={ms}", b"{}", headers)
        status = connection.getresponse().status
        connection.close()
        assert status == 200

    def get(self, path, token=None):
        """(status, headers, text)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        connection.request("GET", path, headers={"authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        answer = response.status, response.headers, response.read().decode()
        connection.close()
        return answer

    def json(self, path, token=None):
        status, _, text = self.get(path, token)
        assert status == 200, text
        return json.loads(text)

    def lost(self):
        return {line.split('reason="')[1].split('"')[0]: int(line.split()[-1])
                for line in self.get("/metrics")[2].splitlines() if line.startswith("lapwing_access_log_lines_dropped_total{")}  # fmt: skip


@pytest.fixture(scope="module")
def asked(processes, binary, raw_server):
    lapwing = Asked(processes, binary, raw_server.url)
    for model in ("a", "b", "b"):
        lapwing.infer(model)
    lapwing.infer("c", trace="4bf92f3577b34da6a3ce929d0e0e4736")
    wait_for(lambda: len(lapwing.json("/exchanges")["exchanges"]) == 4, 10, "all are recorded")
    return lapwing


def test_names_choose_series_and_exchanges(asked):
    everything = asked.json("/stats?window=all")["series"]
    assert len(everything) == 3
    route = everything[0]["route"]
    for model, count in (("a", 1), ("b", 2), ("c", 1), ("d", 0)):
        query = urllib.parse.urlencode({"route": route, "model": model})
        series = asked.json(f"/stats?window=all&{query}")["series"]
        assert sum(one["count"] for one in series) == count and all(one["model"] == model for one in series)
        assert len(asked.json(f"/exchanges?{query}")["exchanges"]) == count
    assert len(asked.json("/exchanges?model=b&limit=1")["exchanges"]) == 1
    assert asked.json("/stats?window=all&model=")["series"] == asked.json("/exchanges?model=")["exchanges"] == []
    assert asked.json("/stats?window=all&route=GET%20%2F")["series"] == []


def test_a_trace_id_leads_to_its_exchange(asked):
    (one,) = asked.json("/exchanges?trace_id=4bf92f3577b34da6a3ce929d0e0e4736")["exchanges"]
    assert one["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736" and one["model"] == "c"
    assert asked.json("/exchanges?trace_id=4bf92f3577b34da6a3ce929d0e0e4737")["exchanges"] == []
    status, _, why = asked.get("/exchanges?trace_id=xyz")
    assert status == 400 and 'trace_id="xyz": must be 32 hexadecimal digits' in why
    status, _, why = asked.get("/stats?routes=x")
    assert status == 400 and "there is window, route, model" in why


@pytest.mark.parametrize("by", ["file", "text"])
def test_with_a_token_everything_asks_for_it(processes, binary, raw_server, tmp_path, by):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    lapwing = Asked(processes, binary, raw_server.url, **({"admin_token_file": path} if by == "file" else {"admin_token": TOKEN}))
    for open_path in OPEN:
        assert lapwing.get(open_path)[0] == 200, open_path
    for guarded in GUARDED:
        status, headers, why = lapwing.get(guarded)
        assert (status, headers["www-authenticate"]) == (401, "Bearer") and "Authorization: Bearer" in why, guarded
        assert lapwing.get(guarded, TOKEN[:-1] + "X")[0] == 401, guarded
        status, _, text = lapwing.get(guarded, TOKEN)
        assert status == 200 and TOKEN not in text, guarded
    report = subprocess.run([binary, "shadow", "report", "--admin", f"127.0.0.1:{lapwing.admin}"], capture_output=True, text=True, timeout=30)
    assert report.returncode == 69 and "401" in report.stderr
    path.write_text(TOKEN)
    report = [binary, "shadow", "report", "--admin", f"127.0.0.1:{lapwing.admin}", "--token-file", str(path)]
    assert subprocess.run(report, capture_output=True, text=True, timeout=30).returncode == 0
    assert TOKEN not in lapwing.process.output()


def test_a_token_that_is_none_stops_the_start(binary, tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN)

    def check(**settings):
        env = {**os.environ, **{f"LAPWING_{name.upper()}": str(value) for name, value in settings.items()}}
        return subprocess.run([binary, "check", "--upstream", "http://127.0.0.1:9"], capture_output=True, text=True, timeout=30, env=env)

    short = check(admin_token="hunter2")
    assert short.returncode == 64 and "admin_token" in short.stderr and "fewer than 16" in short.stderr and "hunter2" not in short.stderr
    both = check(admin_token=TOKEN, admin_token_file=path)
    assert both.returncode == 64 and "give one of them" in both.stderr and TOKEN not in both.stderr
    assert "must be" in check(admin_token=TOKEN, admin_token_for="nobody").stderr or "unknown variant" in check(admin_token_for="nobody").stderr
    good = check(admin_token=TOKEN)
    assert good.returncode == 0 and TOKEN not in good.stdout and "***" in good.stdout


@pytest.mark.parametrize("to", ["file", "stdout"])
def test_the_access_log_has_a_line_for_each_request(processes, binary, raw_server, tmp_path, to):
    path = tmp_path / "access.jsonl"
    path.write_text('{"from": "before"}\n')
    lapwing = Asked(processes, binary, raw_server.url, access_log=path if to == "file" else "-", log="error")
    for n in range(50):
        lapwing.infer(f"m{n % 3}")

    def lines():
        text = path.read_text() if to == "file" else lapwing.process.output()
        whole = text[: text.rfind("\n") + 1]
        found = [json.loads(line) for line in whole.splitlines()]
        return [line for line in found if "trace_id" in line]

    wait_for(lambda: len(lines()) == 50, 10, "every request has its line")
    for line in lines():
        assert sum(stage["ns"] for stage in line["stages"]) == line["total_ns"] and line["outcome"] == "ok" and "spans" not in line
    assert {line["model"] for line in lines()} == {"m0", "m1", "m2"}
    assert to == "stdout" or path.read_text().startswith('{"from": "before"}\n')
    assert lapwing.lost() == {"queue_full": 0, "write_failed": 0}
    shown = {one["trace_id"]: one for one in lapwing.json("/exchanges?limit=50")["exchanges"]}
    for line in lines():
        assert {**shown[line["trace_id"]], "spans": None} == {**line, "spans": None}


def test_a_full_disk_costs_lines_only(processes, binary, raw_server):
    lapwing = Asked(processes, binary, raw_server.url, access_log="/dev/full")
    for _ in range(20):
        lapwing.infer("m")
    wait_for(lambda: lapwing.lost()["write_failed"] == 20, 10, "every lost line is counted")
    assert lapwing.process.output().count("lines cannot be written") == 1


def test_a_log_that_cannot_be_opened_stops_the_start(binary, tmp_path):
    ports = [flag for name in ("listen", "admin") for flag in (f"--{name}", f"127.0.0.1:{free_port()}")]
    command = [binary, "--upstream", "http://127.0.0.1:9", *ports, "--otlp-grpc", "off", "--otlp-http", "off"]
    env = {**os.environ, "LAPWING_ACCESS_LOG": str(tmp_path / "no" / "folder.jsonl")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env)
    assert done.returncode != 0 and "access_log: " in done.stderr and "folder.jsonl" in done.stderr, done.stderr
