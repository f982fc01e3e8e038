"""Clients of Go and Java over TLS: they get, and the upstream gets, what passes without it, and both agree on the version that they ask for."""

import json
import os
import pathlib
import shutil
import subprocess
from concurrent import futures

import grpc
import pytest

from certificates import Authority
from lapwing import NO_SPANS
from over_tls import Echo, TlsServer, asking, metric, tls_of
from process import wait_for
from raw_server import CANNED, RawServer

pytestmark = pytest.mark.beside
CLIENTS = pathlib.Path(__file__).parent / "clients"
GO = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or pathlib.Path(__file__).parents[2] / "target") / "tmp/go/bin/client"
needs_go = pytest.mark.skipif(not GO.exists(), reason="no client of grpc-go: it needs Go, and tests/run")
needs_java = pytest.mark.skipif(not shutil.which("javac"), reason="no Java: apt-get install default-jdk-headless")
ASKED = sorted(CANNED.keys() - {"head"})
"""All but the one without its body."""
PLAIN = {"LAPWING_PROXY__UPSTREAM_PROTOCOL": "h1", "LAPWING_TRACE_SAMPLING": "off"}
"""The upstream is not asked for HTTP/2, and what it gets is the client's."""
SENT = bytes(n * 7 % 251 for n in range(300_000))
BIG = b"HTTP/1.1 200 OK\r\nContent-Length: 300001\r\n\r\n" + b"0123456789" * 30_000 + b"!"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.issue("s")
    made.issue("client")
    return made


def run(command, asked=ASKED, fails=False):
    done = subprocess.run([*map(str, command)], input="\n".join(asked), capture_output=True, text=True, timeout=90)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stdout


def go(version, url, *files):
    # over HTTP/2 it takes the length of a 304 for that of a body that is missing
    asked = [name for name in ASKED if (version, name) != ("http2", "not_modified")]
    return json.loads(run([GO, version, url, len(SENT), *files], asked))


def java(version, url, *files):
    """(version, TLS, status, fields, body) of each answer."""
    said = run(["java", "-Xshare:auto", CLIENTS / "Client.java", version, url, len(SENT), *files])
    return [line.split("\t") for line in said.splitlines()]


def own(authority):
    return [authority.ca, authority.folder / "client.pem", authority.folder / "client.key"]


class Exchanged:
    """What a client wrote, and what the upstream got."""

    def __init__(self, start_lapwing, authority, client, is_tls, *files, listen=None):
        with TlsServer(authority.server_context("s")) if is_tls else RawServer() as server:
            server.canned["big"] = BIG
            sections = {"LISTEN": listen} if listen else {}
            self.lapwing = start_lapwing(server.url, env=NO_SPANS | PLAIN | (tls_of(authority, **sections) if is_tls else {}))
            self.said = client(f"{'https' if is_tls else 'http'}://localhost:{self.lapwing.port}", *files)
            port = str(self.lapwing.port).encode()
            self.seen = [(head.replace(port, b"PORT"), body) for head, body in server.seen]
        assert [body for _, body in self.seen if body] == [SENT]
        wait_for(lambda: self.lapwing.count() == len(self.seen), 20, "all are counted")


@needs_go
@pytest.mark.parametrize("version, protocol", [("http1", "http/1.1"), ("http2", "h2")])
def test_go(start_lapwing, authority, version, protocol):
    plain, tls = (
        Exchanged(start_lapwing, authority, lambda *to: go(version, *to), is_tls, *([authority.ca] if is_tls else [])) for is_tls in (False, True)
    )
    assert len(tls.said["Answers"]) >= len(ASKED) + 1
    assert tls.said["Answers"] == plain.said["Answers"]
    assert tls.seen == plain.seen
    sessions = tls.said["Sessions"]
    assert {(one["Version"], one["Protocol"]) for one in sessions} == {("TLS 1.3", protocol)}
    # the first is made in full, and resumed by those that follow an answer whose end was the connection's, or a connection that was closed
    assert [one["IsResumed"] for one in sessions] == [False] + [True] * (len(sessions) - 1) and len(sessions) > 1
    counted = {kind: metric(tls.lapwing, f'lapwing_tls_handshakes_total{{result="{kind}"}}') for kind in ("full", "resumed", "failed")}
    assert counted == {"full": 1, "resumed": len(sessions) - 1, "failed": 0}


@needs_java
def test_java(start_lapwing, authority):
    plain, tls, h2 = (
        Exchanged(start_lapwing, authority, lambda *to: java(version, *to), is_tls, *([authority.ca] if is_tls else []))
        for version, is_tls in [("http1", False), ("http1", True), ("http2", True)]
    )
    assert len(tls.said) == len(ASKED) + 1
    assert {(one[0], one[1]) for one in tls.said} == {("HTTP_1_1", "TLSv1.3")}
    assert [one[2:] for one in tls.said] == [one[2:] for one in plain.said]
    assert tls.seen == plain.seen
    # without TLS it has no HTTP/2 but by an upgrade
    assert {(one[0], one[1]) for one in h2.said} == {("HTTP_2", "TLSv1.3")}
    assert [(one[2], one[4]) for one in h2.said] == [(one[2], one[4]) for one in plain.said]
    for one in tls, h2:
        assert metric(one.lapwing, 'lapwing_tls_handshakes_total{result="failed"}') == 0


@pytest.mark.parametrize(
    "client, refused",
    [
        pytest.param(lambda *to: go("http2", *to), [GO], marks=needs_go, id="go"),
        pytest.param(lambda *to: java("http2", *to), ["java", CLIENTS / "Client.java"], marks=needs_java, id="java"),
    ],
)
def test_who_shows_a_certificate_is_served(start_lapwing, authority, client, refused):
    made = Exchanged(start_lapwing, authority, client, True, *own(authority), listen=asking(authority))
    assert len(made.seen) >= len(ASKED)
    failed = 'lapwing_tls_handshakes_total{result="failed"}'
    assert metric(made.lapwing, failed) == 0
    run([*refused, "http2", f"https://localhost:{made.lapwing.port}", 10, authority.ca], fails=True)
    wait_for(lambda: metric(made.lapwing, failed) > 0, 20, "it is counted")
    assert made.lapwing.count() == len(made.seen)


@needs_go
def test_grpc_of_go(start_lapwing, authority):
    pem = {name: (authority.folder / name).read_bytes() for name in ("ca.pem", "s.pem", "s.key")}
    said = {}
    for is_tls in (False, True):
        server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[Echo()])
        if is_tls:
            port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([(pem["s.key"], pem["s.pem"])]))
        else:
            port = server.add_insecure_port("localhost:0")
        server.start()
        scheme, files = ("https", own(authority)) if is_tls else ("http", [])
        env = NO_SPANS | (tls_of(authority, LISTEN=asking(authority)) if is_tls else {})
        lapwing = start_lapwing(f"{scheme}://localhost:{port}", env=env)
        said[is_tls] = go("grpc", f"{scheme}://localhost:{lapwing.port}", *files)
        wait_for(lambda: lapwing.count() == 4, 20, "all are counted")
        assert lapwing.outcomes()["ok"] == 4
        if is_tls:
            # it shows no certificate
            run([GO, "grpc", f"https://localhost:{lapwing.port}", 10, authority.ca], fails=True)
            assert lapwing.count() == 4
        server.stop(None)
    assert said[True]["Answers"] == said[False]["Answers"] and len(said[True]["Answers"]) == 3 + 20
    assert said[True]["Sessions"] == [{"Version": "TLS 1.3", "Protocol": "h2", "IsResumed": False}]
