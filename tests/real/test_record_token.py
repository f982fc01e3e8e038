"""The admin token: from another address it alone opens recordings and kept samples, and it is nowhere to be read."""

import base64
import http.client
import json
import os
import socket
import subprocess

import pytest

from lapwing import NO_SPANS
from ports import free_port
from process import wait_for, wait_listening
from shadowing import WIDTHS, ask, body_of

pytestmark = pytest.mark.beside
TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def elsewhere():
    """An address of this machine that is not loopback: who connects to it comes from it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has loopback addresses only")
        return probe.getsockname()[0]


@pytest.fixture(scope="module")
def token_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(TOKEN + "\n")
    return path


class Open:
    """A Lapwing whose admin address is reached from everywhere, with a target whose answers differ and samples of these."""

    def __init__(self, processes, binary, start_server, *settings):
        primary, candidate = start_server(), start_server("--wrong-every", 1)
        self.port, self.admin = free_port(), free_port()
        env = dict(os.environ, **NO_SPANS, LAPWING_SHADOW__COMPARE__KEEP_SAMPLES="4", LAPWING_ATTRIBUTION__POLL="off", **dict(settings))
        command = [binary, "--upstream", f"http://127.0.0.1:{primary}", "--listen", f"127.0.0.1:{self.port}", "--admin", f"0.0.0.0:{self.admin}"]
        command += ["--otlp-grpc", "off", "--otlp-http", "off", "--shadow", f"wrong=http://127.0.0.1:{candidate}", "--shadow-sample", "100%"]
        self.process = processes("lapwing", [*command, "--log", "debug"], env=env)
        wait_listening(self.admin, 20)

    def ask(self, n=0):
        status, _ = ask(self.port, body_of(1, n))
        assert status == 200

    def admin_answer(self, method, path, address="127.0.0.1", headers=None):
        """(status, headers, text) of the admin address."""
        connection = http.client.HTTPConnection(address, self.admin, timeout=30)
        connection.request(method, path, headers={"accept": "application/json", **(headers or {})})
        response = connection.getresponse()
        answer = response.status, response.headers, response.read().decode()
        connection.close()
        return answer


@pytest.fixture(scope="module")
def tokened(processes, binary, start_server, token_file):
    settings = ("LAPWING_ADMIN_TOKEN_FILE", str(token_file)), ("LAPWING_ADMIN_TOKEN_FOR", "payloads")
    return Open(processes, binary, start_server, *settings)


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def record(binary, lapwing, address, out, *flags, env=None):
    """Records three requests: (exit code, standard output, standard error)."""
    command = [binary, "record", "--admin", f"{address}:{lapwing.admin}", "--sample", "100%", "--for", "20s", "--max-requests", "3"]
    env = {**os.environ, **(env or {})}
    recording = subprocess.Popen([*command, "--out", str(out), *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    wait_for(lambda: out.exists() or recording.poll() is not None, 10, "the recording has begun or was refused")
    for n in range(3 if out.exists() else 0):
        lapwing.ask(n)
    said, error = recording.communicate(timeout=60)
    return recording.returncode, said, error


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_with_the_token_another_address_may_record(binary, tokened, elsewhere, token_file, tmp_path, by):
    flags, env = (["--token-file", str(token_file)], None) if by == "flag" else ([], {"LAPWING_ADMIN_TOKEN_FILE": str(token_file)})
    code, said, error = record(binary, tokened, elsewhere, tmp_path / "a.lwr", *flags, env=env)
    assert code == 0 and "3 requests" in said, (said, error)
    _, *exchanges, end = [json.loads(line) for line in (tmp_path / "a.lwr").read_text().splitlines()]
    bodies = [json.loads(base64.b64decode(one["exchange"]["body"])) for one in exchanges]
    assert len(bodies) == 3 and bodies[0]["inputs"][0]["shape"] == [1, WIDTHS[0]] and "accounts_lost" not in end["end"]


def test_without_it_only_this_machine_may(binary, tokened, elsewhere, tmp_path):
    status, _, why = tokened.admin_answer("POST", "/record", elsewhere)
    assert status == 403 and "admin_token_file" in why
    code, _, error = record(binary, tokened, elsewhere, tmp_path / "a.lwr")
    assert code == 69 and "403" in error and "admin_token_file" in error and not (tmp_path / "a.lwr").exists()
    # on this machine no token is needed, as ever
    code, said, error = record(binary, tokened, "127.0.0.1", tmp_path / "b.lwr")
    assert code == 0 and "3 requests" in said, error
    # a browser that a name was rebound for, and a proxy
    for name, value in (("host", "rebound.example"), ("origin", "http://x.example"), ("x-forwarded-for", "10.0.0.1")):
        assert tokened.admin_answer("POST", "/record", headers={name: value})[0] == 403, name


def test_a_wrong_token_opens_nothing_anywhere(binary, tokened, elsewhere, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text(TOKEN[:-1] + "X")
    for address in (elsewhere, "127.0.0.1"):
        for path, method in (("/record", "POST"), ("/shadow", "GET")):
            status, headers, why = tokened.admin_answer(method, path, address, bearer(wrong.read_text()))
            assert (status, headers["www-authenticate"]) == (401, "Bearer") and TOKEN[:-1] not in why
    code, _, error = record(binary, tokened, elsewhere, tmp_path / "a.lwr", "--token-file", str(wrong))
    assert code == 69 and "401" in error and TOKEN[:-1] not in error and not (tmp_path / "a.lwr").exists()
    code, _, error = record(binary, tokened, elsewhere, tmp_path / "a.lwr", "--token-file", str(tmp_path / "none"))
    assert code == 69 and "none" in error


def test_kept_samples_are_for_this_machine_and_for_the_token(binary, tokened, elsewhere, token_file):
    tokened.ask()

    def samples():
        view = json.loads(tokened.admin_answer("GET", "/shadow")[2])
        (target,) = [one for one in view["targets"] if one["name"] == "wrong"]
        return [sample for of in target["outputs"].values() for sample in of.get("samples", [])]

    wait_for(samples, 20, "a sample is kept")
    for address, headers, is_shown in [
        ("127.0.0.1", {}, True),
        ("127.0.0.1", {"origin": "http://x.example"}, False),
        (elsewhere, {}, False),
        (elsewhere, bearer(TOKEN), True),
    ]:
        status, _, text = tokened.admin_answer("GET", "/shadow", address, headers)
        (target,) = [one for one in json.loads(text)["targets"] if one["name"] == "wrong"]
        (outputs,) = target["outputs"].values()
        assert status == 200 and outputs["mismatches"]["answers"] > 0
        assert ("datatype" in json.dumps(outputs.get("samples", ""))) == is_shown, (address, headers)
        assert (target.get("samples_withheld", {}).get("count", 0) > 0) == (not is_shown)
    report = [binary, "shadow", "report", "--admin", f"{elsewhere}:{tokened.admin}", "--json"]
    withheld = subprocess.run(report, capture_output=True, text=True, timeout=30).stdout
    shown = subprocess.run([*report, "--token-file", str(token_file)], capture_output=True, text=True, timeout=30).stdout
    assert "samples_withheld" in withheld and "samples_withheld" not in shown and '"samples"' in shown


def test_the_token_is_shown_nowhere(binary, tokened, elsewhere, token_file):
    tokened.admin_answer("POST", "/record?sample=7", elsewhere, bearer(TOKEN))
    config = tokened.admin_answer("GET", "/config")[2]
    assert str(token_file) in config and TOKEN not in config
    for path in ("/stats", "/metrics", "/shadow", "/exchanges"):
        assert TOKEN not in tokened.admin_answer("GET", path)[2]
    assert TOKEN not in tokened.process.output()
    checked = subprocess.run(
        [binary, "check", "--upstream", "http://127.0.0.1:9"],
        capture_output=True, text=True, timeout=30, env={**os.environ, "LAPWING_ADMIN_TOKEN_FILE": str(token_file)},
    )
    assert checked.returncode == 0 and str(token_file) in checked.stdout and TOKEN not in checked.stdout + checked.stderr


@pytest.mark.parametrize(
    "text, reason",
    [("short", "fewer than 16"), ("", "no token"), ("two words of a token", "one token"), ("x" * 9000, "more than 4096"), (None, "is not a file")],
)
def test_a_file_that_has_no_token_stops_the_start(binary, tmp_path, text, reason):
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    ports = [flag for name in ("listen", "admin") for flag in (f"--{name}", f"127.0.0.1:{free_port()}")]
    command = [binary, "--upstream", "http://127.0.0.1:9", *ports, "--otlp-grpc", "off", "--otlp-http", "off"]
    env = {**os.environ, "LAPWING_ADMIN_TOKEN_FILE": str(path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env)
    assert done.returncode != 0 and "admin_token_file" in done.stderr and str(path) in done.stderr and reason in done.stderr, done.stderr
    assert not text or text not in done.stderr
