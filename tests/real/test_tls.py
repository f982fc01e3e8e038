"""TLS at each listener and to the upstream: clients, servers and tools that speak it, certificates that are swapped, and who is refused."""

import http.client
import http.server
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from concurrent import futures
from xml.etree import ElementTree

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from certificates import Authority, Secret
from lapwing import NO_SPANS
from over_tls import Echo, TlsServer, asking, metric, tls_of
from ports import free_port
from process import wait_for, wait_listening
from raw_server import RawServer

pytestmark = pytest.mark.beside
IN_EFFECT_S = 3
"""Within what time a new certificate is in effect."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.issue("s")
    return made


def connect(lapwing, context, timeout=20):
    return http.client.HTTPSConnection("localhost", lapwing.port, timeout=timeout, context=context)


# --- bytes and versions

def test_bytes_are_as_without_tls_on_both_sides(start_lapwing, authority):
    answers = {}
    for is_tls in (False, True):
        with TlsServer(authority.server_context("s")) if is_tls else RawServer() as server:
            lapwing = start_lapwing(server.url, env=NO_SPANS | (tls_of(authority) if is_tls else {}))
            answers[is_tls] = []
            for name in server.canned.keys() - {"head"}:
                plain = socket.create_connection(("localhost", lapwing.port), timeout=20)
                with authority.context().wrap_socket(plain, server_hostname="localhost") if is_tls else plain as client:
                    head = f"GET /canned/{name} HTTP/1.1\r\nHost: model\r\nConnection: close\r\n\r\n"
                    client.sendall(head.encode())
                    answer = b""
                    while piece := client.recv(65536):
                        answer += piece
                    answers[is_tls].append((name, answer))
            body = os.urandom(3_000_001)
            client = connect(lapwing, authority.context()) if is_tls else http.client.HTTPConnection("localhost", lapwing.port)
            client.request("POST", "/head", body=body, headers={"x-Name": "a,  b"})
            answer = client.getresponse().read()
            assert server.seen[-1][1] == body and answer.endswith(body) and b"\r\nx-Name: a,  b\r\n" in answer
    assert answers[True] == answers[False]


@pytest.mark.parametrize("version, name", [("--http1.1", "1.1"), ("--http2", "2")])
@pytest.mark.parametrize("upstream", [("http/1.1",), ("h2", "http/1.1")], ids=["http/1.1", "h2"])
def test_curl_and_nginx_agree_on_a_version(start_lapwing, processes, authority, tmp_path, version, name, upstream):
    """Whatever the two sides chose: an upstream of one version answers clients of the other."""
    if not (binary := shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")):
        pytest.skip("no nginx: apt-get install nginx-light")
    port = free_port()
    (tmp_path / "conf").write_text(f"""
daemon off; error_log {tmp_path}/error; pid {tmp_path}/pid; events {{}}
http {{
  access_log {tmp_path}/access; client_body_temp_path {tmp_path}/body; proxy_temp_path {tmp_path}/proxy;
  fastcgi_temp_path {tmp_path}/f; uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;
  server {{
    listen 127.0.0.1:{port} ssl{" http2" if "h2" in upstream else ""}; ssl_protocols TLSv1.2 TLSv1.3;
    ssl_certificate {authority.folder}/s.pem; ssl_certificate_key {authority.folder}/s.key;
    location / {{ return 200 "$server_protocol $ssl_protocol $uri"; }}
  }}
}}""")
    processes("nginx", [binary, "-c", str(tmp_path / "conf")])
    wait_listening(port)
    lapwing = start_lapwing(f"https://localhost:{port}", env=NO_SPANS | tls_of(authority))
    for n in range(3):
        curl = ["curl", "-sS", version, "--cacert", str(authority.ca), "-w", " %{http_version}", f"https://localhost:{lapwing.port}/a{n}"]
        spoken = "HTTP/2.0" if name == "2" and "h2" in upstream else "HTTP/1.1"
        assert subprocess.check_output(curl, text=True, timeout=30) == f"{spoken} TLSv1.3 /a{n} {name}"
    wait_for(lambda: lapwing.count() == 3, 20, "all are counted")
    assert lapwing.outcomes()["ok"] == 3
    assert metric(lapwing, 'lapwing_tls_handshakes_total{result="failed"}') == 0


def test_grpc_passes_with_certificates_on_both_sides(start_lapwing, authority):
    """Each side asks for the other's certificate: grpcio as client and as server."""
    own = authority.issue("client")
    pem = {name: (authority.folder / name).read_bytes() for name in ("ca.pem", "s.pem", "s.key", "client.pem", "client.key")}
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[Echo()])
    shown = grpc.ssl_server_credentials([(pem["s.key"], pem["s.pem"])], pem["ca.pem"], require_client_auth=True)
    port = server.add_secure_port("localhost:0", shown)
    server.start()
    ours = {"CA": authority.ca, "CERTIFICATE": own[0], "KEY": own[1]}
    lapwing = start_lapwing(f"https://localhost:{port}", env=NO_SPANS | tls_of(authority, LISTEN=asking(authority), UPSTREAM=ours))
    channel = grpc.secure_channel(
        f"localhost:{lapwing.port}", grpc.ssl_channel_credentials(pem["ca.pem"], pem["client.key"], pem["client.pem"])
    )
    with channel:
        call = channel.unary_unary("/echo.Echo/Call")
        bodies = [os.urandom(size) for size in (0, 1, 5_000, 300_000)]
        assert [call(body, timeout=20) for body in bodies] == bodies
        streamed = [os.urandom(70_000) for _ in range(20)]
        assert list(channel.stream_stream("/echo.Echo/Stream")(iter(streamed), timeout=20)) == streamed
    # it speaks HTTP/2 only: it is ready, and an HTTP/1.1 client's request is translated
    wait_for(lapwing.is_ready, 10, "the upstream is reached")
    client = connect(lapwing, authority.context(own=own))
    client.request("POST", "/echo.Echo/Call", body=b"\0\0\0\0\1x", headers={"content-type": "application/grpc", "te": "trailers"})
    answer = client.getresponse()
    assert (answer.status, answer.read()) == (200, b"\0\0\0\0\1x")
    stranger = grpc.secure_channel(f"localhost:{lapwing.port}", grpc.ssl_channel_credentials(pem["ca.pem"]))
    with stranger, pytest.raises(grpc.RpcError) as refused:
        stranger.unary_unary("/echo.Echo/Call")(b"x", timeout=10)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    server.stop(None)
    wait_for(lambda: metric(lapwing, 'lapwing_tls_handshakes_total{result="failed"}') > 0, 20, "the refusal is counted")
    wait_for(lambda: lapwing.count() == 6, 20, "every call is counted once")
    assert lapwing.outcomes()["ok"] == 6


@pytest.mark.skipif(not shutil.which("h2load"), reason="h2load is not installed")
@pytest.mark.parametrize("version", [["--h1"], []], ids=["h1", "h2"])
def test_h2load_loses_nothing(start_lapwing, authority, version):
    with TlsServer(authority.server_context("s", "http/1.1")) as server:
        server.canned["ok"] = b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n" + b"x" * 1024
        lapwing = start_lapwing(server.url, env=NO_SPANS | tls_of(authority))
        command = ["h2load", *version, "-n", "600", "-c", "8", "-m", "4", f"https://localhost:{lapwing.port}/canned/ok"]
        said = subprocess.check_output(command, text=True, timeout=60)
        assert "600 succeeded, 0 failed, 0 errored" in said, said
        wait_for(lambda: lapwing.count() == 600, 20, "all are counted")
        assert metric(lapwing, 'lapwing_tls_handshakes_total{result="full"}') + metric(
            lapwing, 'lapwing_tls_handshakes_total{result="resumed"}'
        ) == 8


# --- truth

def test_stages_are_as_without_tls(start_lapwing, authority):
    """A slow upload, a slow server: the time is where it is without TLS, and the handshake is in no request."""
    slow_s, upload_s = 0.15, 0.2
    figures = {}
    for is_tls in (False, True):
        with TlsServer(authority.server_context("s")) if is_tls else RawServer() as server:
            lapwing = start_lapwing(server.url, env=NO_SPANS | (tls_of(authority) if is_tls else {}))
            plain = socket.create_connection(("localhost", lapwing.port), timeout=20)
            client = authority.context().wrap_socket(plain, server_hostname="localhost") if is_tls else plain
            time.sleep(0.3)  # after the handshake, before the first byte: nobody's time
            client.sendall(b"POST /head?ms=%d HTTP/1.1\r\nHost: m\r\nContent-Length: 8\r\n\r\n1234" % (slow_s * 1000))
            time.sleep(upload_s)
            client.sendall(b"5678")
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
            (exchange,) = wait_for(lapwing.exchanges, 20, "the exchange is merged")
            figures[is_tls] = {one["stage"]: one["ns"] / 1e9 for one in exchange["stages"]} | {"total": exchange["total_ns"] / 1e9}
            client.close()
    for name, truth in (("ingress", upload_s), ("upstream", slow_s), ("total", slow_s + upload_s)):
        for is_tls in (False, True):
            assert truth - 0.02 <= figures[is_tls].get(name, 0) <= truth + 0.06, (name, is_tls, figures)


# --- files that change

class Handshakes:
    """Opens a connection after the other, each with a request, and keeps one open; notes the serial number that each is shown."""

    def __init__(self, lapwing, authority):
        self.lapwing, self.context = lapwing, authority.context()
        self.stopped, self.failed, self.serial, self.answered = threading.Event(), [], None, 0
        self.threads = [threading.Thread(target=self.run, args=(keep,)) for keep in (False, False, True)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def run(self, keep):
        connection = None
        while not self.stopped.is_set():
            try:
                if connection is None:
                    connection = connect(self.lapwing, self.context)
                    connection.connect()
                    if not keep:
                        self.serial = int(connection.sock.getpeercert()["serialNumber"], 16)
                connection.request("POST", "/head", body=b"12345678")
                response = connection.getresponse()
                response.read()
                assert response.status == 200, response.status
                self.answered += 1
                if not keep:
                    connection.close()
                    connection = None
            except Exception as error:
                self.failed.append(repr(error))
                return
            time.sleep(0.005)

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join(20)


@pytest.mark.parametrize("swaps", [4, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_certificates_are_swapped_under_load(start_lapwing, raw_server, authority, tmp_path, swaps):
    secret = Secret(tmp_path / "secret")
    secret.write(*authority.issue("first", serial=1000))
    shown = {"CERTIFICATE": secret.certificate, "KEY": secret.key}
    lapwing = start_lapwing(raw_server.url, env=NO_SPANS | tls_of(authority, LISTEN=shown))
    expiry = 'lapwing_tls_certificate_expiry_timestamp_seconds{certificate="listen"}'
    with Handshakes(lapwing, authority) as load:
        wait_for(lambda: load.serial == 1000, 20, "the first certificate is shown")
        for swap in range(1, swaps + 1):
            secret.write(*authority.issue("next", serial=1000 + swap, days=10 + swap))
            wait_for(lambda: load.failed or load.serial == 1000 + swap, IN_EFFECT_S + 1, f"swap {swap} is in effect", 0.02)
            assert not load.failed, load.failed
        before = metric(lapwing, expiry)
        assert abs(before - time.time() - (10 + swaps) * 86400) < 7200
        # a key of another certificate: nothing changes, and it is said
        other = authority.issue("other", serial=9)
        secret.write(authority.folder / "next.pem", other[1])
        wait_for(lambda: metric(lapwing, "lapwing_tls_reload_failures_total") == 1, 8, "the faulty file is seen")
        time.sleep(0.3)
    assert not load.failed and load.serial == 1000 + swaps
    assert metric(lapwing, expiry) == before
    assert re.search(r"tls\.listen\.key: .*/tls\.key: is not the key of the certificate in .*/tls\.crt", lapwing.process.output())
    wait_for(lambda: lapwing.count() == load.answered, 20, "every request is counted once")
    assert lapwing.outcomes()["ok"] == load.answered


def test_an_upstream_with_another_authority_is_trusted_once_its_file_says_so(start_lapwing, tmp_path):
    (tmp_path / "new").mkdir()
    old, new = Authority(tmp_path), Authority(tmp_path / "new", "new")
    new.issue("s")
    trusted = tmp_path / "trusted.pem"
    shutil.copy(old.ca, trusted)
    with TlsServer(new.server_context("s")) as server:
        lapwing = start_lapwing(server.url, env=NO_SPANS | {"LAPWING_TLS__UPSTREAM__CA": str(trusted)})
        client = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=20)
        client.request("GET", "/head")
        answer = client.getresponse()
        assert answer.status == 502 and "UnknownIssuer" in answer.read().decode(), answer.headers
        shutil.copy(new.ca, trusted)

        def is_served():
            client.request("GET", "/head")
            return client.getresponse().read().startswith(b"GET /head")

        wait_for(is_served, IN_EFFECT_S + 1, "the new authority is in effect")


def test_each_upstream_has_its_own_authority_and_certificate(start_lapwing, tmp_path):
    """Two authorities, one server that asks for a certificate, files that are swapped, and one that is not trusted any more."""
    (tmp_path / "b").mkdir()
    authorities = {"a": Authority(tmp_path, "a"), "b": Authority(tmp_path / "b", "b")}
    contexts = {name: (one.issue("s"), one.server_context("s"))[1] for name, one in authorities.items()}
    contexts["b"].verify_mode = ssl.CERT_REQUIRED
    contexts["b"].load_verify_locations(authorities["b"].ca)
    own, trusted = Secret(tmp_path / "own"), tmp_path / "trusted.pem"
    own.write(*authorities["b"].issue("own", serial=0x77, days=5))
    shutil.copy(authorities["a"].ca, trusted)
    with TlsServer(contexts["a"]) as a, TlsServer(contexts["b"]) as b:
        config = tmp_path / "lapwing.yaml"
        config.write_text(f"""
upstreams:
  a: {{url: '{a.url}', tls: {{ca: {trusted}}}}}
  b: {{url: '{b.url}', tls: {{ca: {authorities["b"].ca}, certificate: {own.certificate}, key: {own.key}}}}}
proxy: {{pool_idle_timeout: 0s}}
""")
        lapwing = start_lapwing(None, config=config, env=NO_SPANS)
        client = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=20)
        asked = 0

        def ask(n):
            nonlocal asked
            before = len(a.seen), len(b.seen)
            for _ in range(n):
                client.request("GET", "/head")
                response = client.getresponse()
                assert (response.status, response.read()[:9]) == (200, b"GET /head")
            asked += n
            return len(a.seen) - before[0], len(b.seen) - before[1]

        def days_left():
            return (metric(lapwing, 'lapwing_upstream_certificate_expiry_timestamp_seconds{upstream="b"}') - time.time()) / 86400

        def is_up(name):
            return metric(lapwing, f'lapwing_upstream_up{{upstream="{name}"}}') == 1

        assert ask(10) == (5, 5) and b.shown[-1] == "77" and 4.9 < days_left() < 5.1
        assert [one.get("certificate_expiry_unix_s") is None for one in lapwing.stats()["upstreams"]] == [True, False]
        own.write(*authorities["b"].issue("next", serial=0x78, days=20))
        wait_for(lambda: days_left() > 19, IN_EFFECT_S + 1, "the new certificate is in effect")
        assert ask(2) == (1, 1) and b.shown[-1] == "78"
        # a's certificate is of nobody who is trusted: its share goes to b
        shutil.copy(authorities["b"].ca, trusted)
        wait_for(lambda: ask(2) and not is_up("a"), IN_EFFECT_S + 1, "a does not prove itself")
        assert ask(10) == (0, 10)
        assert "InvalidCertificate" in lapwing.process.output() or "UnknownIssuer" in lapwing.process.output()
        shutil.copy(authorities["a"].ca, trusted)
        wait_for(lambda: is_up("a"), IN_EFFECT_S + 2, "a is trusted again")
        assert ask(10) == (5, 5)
        wait_for(lambda: lapwing.count() == asked, 20, "every request is counted once")
        assert lapwing.outcomes()["ok"] == asked


# --- who is refused, and what is bounded

def test_handshakes_and_records_that_do_not_end_are_ended(start_lapwing, raw_server, authority):
    """As a head that does not end. Others are served meanwhile."""
    limit = {"LAPWING_PROXY__CLIENT_HEADER_TIMEOUT": "1s"}
    lapwing = start_lapwing(raw_server.url, env=NO_SPANS | limit | tls_of(authority))
    silent = [socket.create_connection(("localhost", lapwing.port), timeout=20) for _ in range(20)]
    for at, one in enumerate(silent):
        one.sendall([b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", os.urandom(3)][at % 4])
    started = time.monotonic()
    amid = authority.context().wrap_socket(socket.create_connection(("localhost", lapwing.port), timeout=20), server_hostname="localhost")
    socket.socket(fileno=os.dup(amid.fileno())).sendall(b"\x17\x03\x03\x00\x80abc")  # the beginning of a record
    client = connect(lapwing, authority.context())
    client.request("GET", "/head")
    assert client.getresponse().status == 200
    for one in silent:
        try:
            while one.recv(4096):
                pass
        except ConnectionResetError:
            pass
    os.read(amid.fileno(), 65536)
    assert time.monotonic() - started < 8
    slow = 'lapwing_client_connections_failed_total{reason="slow_head"}'
    wait_for(lambda: metric(lapwing, slow) >= 11, 10, "they are counted")
    handshakes = 'lapwing_tls_handshakes_total{result="failed"}'
    wait_for(lambda: metric(lapwing, handshakes) == len(silent), 10, "each handshake is counted")


def test_plain_http_gets_no_answer_and_is_counted(start_lapwing, raw_server, authority):
    lapwing = start_lapwing(raw_server.url, env=NO_SPANS | tls_of(authority))
    client = http.client.HTTPConnection("localhost", lapwing.port, timeout=20)
    with pytest.raises((http.client.BadStatusLine, OSError)):
        client.request("GET", "/head")
        client.getresponse()
    wait_for(lambda: metric(lapwing, 'lapwing_tls_handshakes_total{result="failed"}') == 1, 10, "it is counted")
    assert lapwing.count() == 0


def test_an_answer_that_is_cut_off_is_not_whole(start_lapwing, authority):
    """The end of a body that only the end of the connection tells needs TLS's own (close_notify): else anybody could cut it off."""
    with TlsServer(authority.server_context("s"), is_polite=False) as server:
        server.canned["cut"] = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nnot the whole"
        lapwing = start_lapwing(server.url, env=NO_SPANS | tls_of(authority))
        client = connect(lapwing, authority.context())
        client.request("GET", "/canned/cut")
        with pytest.raises((http.client.IncompleteRead, ssl.SSLError, ConnectionError)):
            client.getresponse().read()


def test_faults_are_all_said_at_once(binary, authority, tmp_path):
    config = tmp_path / "lapwing.yaml"
    listen = f"{{certificate: {authority.folder}/s.pem, key: {authority.ca}}}"
    config.write_text(f"upstream: http://m:1\ntls: {{listen: {listen}, upstream: {{ca: /none.pem}}}}\n")
    for command in ("check", "serve"):
        done = subprocess.run([binary, command, "--config", config], capture_output=True, text=True, timeout=20)
        assert done.returncode != 0, done
        assert f"tls.listen.key: {authority.ca}: has no private key that can be read without a password" in done.stderr
        assert "tls.upstream.ca: /none.pem: No such file or directory" in done.stderr
    config.write_text("upstream: http://m:1\ntls: {admin: {key: /k}, otlp: {client_ca: /ca}}\n")
    done = subprocess.run([binary, "check", "--config", config], capture_output=True, text=True, timeout=20)
    assert "tls.admin.certificate: off: is missing: a private key needs its certificate" in done.stderr
    assert "tls.otlp.client_ca: /ca: needs certificate and key" in done.stderr
    config.write_text("upstreams: {a: {url: https://m:1, tls: {ca: /none.pem}}, b: {url: https://n:1, tls: {server_name: '-'}}}\n")
    done = subprocess.run([binary, "check", "--config", config], capture_output=True, text=True, timeout=20)
    assert "upstreams.a.tls.ca: /none.pem: No such file or directory" in done.stderr
    assert "upstreams.b.tls.server_name: -: is neither a DNS name nor an IP address" in done.stderr


ALLOWED = {
    "TLSv1.3": {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"},
    "TLSv1.2": {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"},
}
"""The suites with authenticated encryption and a key of their own for each session."""


def start_over_tls(processes, binary, upstream, env):
    """Lapwing whose admin address may speak TLS; its ports."""
    ports = {name: free_port() for name in ("listen", "admin", "otlp-grpc", "otlp-http")}
    flags = [text for name, port in ports.items() for text in (f"--{name}", f"127.0.0.1:{port}")]
    processes("lapwing-tls", [binary, "--upstream", upstream, *flags], env=dict(os.environ, **env))
    wait_listening(ports["admin"])
    return ports


@pytest.fixture(scope="module")
def scanned(processes, binary, raw_server, authority):
    """The ports of a Lapwing that speaks TLS on each."""
    shown = {"CERTIFICATE": authority.folder / "s.pem", "KEY": authority.folder / "s.key"}
    return start_over_tls(processes, binary, raw_server.url, tls_of(authority, ADMIN=shown, OTLP=shown))


@pytest.mark.skipif(not shutil.which("sslscan"), reason="no sslscan: apt-get install sslscan")
def test_a_scan_finds_nothing_old(scanned, tmp_path):
    def scan(port):
        found = tmp_path / f"{port}.xml"
        command = ["sslscan", "--no-colour", f"--xml={found}", f"127.0.0.1:{port}"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        (scan,) = ElementTree.parse(found).iter("ssltest")
        return said, scan

    with futures.ThreadPoolExecutor() as at_once:  # each mostly waits
        for said, found in at_once.map(scan, scanned.values()):
            check_scan(said, found)


def check_scan(said, scan):
    on = {f"{one.get('type')} {one.get('version')}" for one in scan.iter("protocol") if one.get("enabled") == "1"}
    assert on == {"tls 1.2", "tls 1.3"}, said
    suites = {}
    for one in scan.iter("cipher"):
        suites.setdefault(one.get("sslversion"), set()).add(one.get("cipher"))
    assert suites == ALLOWED, said
    assert {one.get("name") for one in scan.iter("group")} == {"secp256r1 (NIST P-256)", "secp384r1 (NIST P-384)", "x25519"}
    # a client cannot have it made anew (Debian's sslscan is built without compression, so it cannot ask for that: the next test does)
    assert [one.get("supported") for one in scan.iter("renegotiation")] == ["0"], said
    assert {one.get("vulnerable") for one in scan.iter("heartbleed")} == {"0"}, said
    (certificate,) = scan.iter("certificate")
    assert [certificate.findtext(name) for name in ("subject", "issuer", "signature-algorithm")] == ["s", "ca", "ecdsa-with-SHA256"]
    assert certificate.find("pk").get("curve_name") == "prime256v1"
    assert certificate.findtext("altnames") == "DNS:localhost, IP Address:127.0.0.1"


def test_compression_is_not_agreed_on(scanned):
    """A ClientHello of TLS 1.2 that offers DEFLATE (RFC 3749) beside none."""
    suites, groups, signed = b"\xc0\x2b\xc0\x2c", b"\0\x0a\0\x04\0\x02\0\x17", b"\0\x0d\0\x04\0\x02\x04\x03"
    for methods in (b"\x01\0", b"\x02\x01\0"):
        body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x04" + suites + methods + b"\0\x10" + groups + signed
        hello = b"\x01" + len(body).to_bytes(3, "big") + body
        with socket.create_connection(("127.0.0.1", scanned["listen"]), timeout=20) as client:
            client.sendall(b"\x16\x03\x01" + len(hello).to_bytes(2, "big") + hello)
            answer = client.recv(4096)
        # a ServerHello: its version, random number and session, then the suite and the method
        assert answer[:1] == b"\x16" and answer[5:6] == b"\x02", (methods, answer)
        after = 9 + 2 + 32 + 1 + answer[9 + 2 + 32]
        assert answer[after : after + 2] in (b"\xc0\x2b", b"\xc0\x2c") and answer[after + 2] == 0


# --- the other listeners

def test_commands_and_exporters_reach_them(processes, binary, raw_server, authority, monkeypatch):
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)  # requests prefers them to what the exporter names
    shown = {"CERTIFICATE": authority.folder / "s.pem", "KEY": authority.folder / "s.key"}
    ports = start_over_tls(processes, binary, raw_server.url, tls_of(authority, ADMIN=shown, OTLP=shown, LISTEN={}))
    curl = ["curl", "-sS", "--cacert", str(authority.ca), f"https://localhost:{ports['admin']}/livez"]
    assert subprocess.check_output(curl, text=True, timeout=20).strip() == "alive"
    stats = [binary, "stats", "--json", "--admin", f"https://localhost:{ports['admin']}"]
    trusted = subprocess.run([*stats, "--admin-ca", authority.ca], capture_output=True, text=True, timeout=20)
    assert json.loads(trusted.stdout)["series"] == [], trusted
    stranger = subprocess.run(stats, capture_output=True, text=True, timeout=20)
    assert stranger.returncode == 69 and "UnknownIssuer" in stranger.stderr, stranger
    pem = grpc.ssl_channel_credentials(authority.ca.read_bytes())
    exporters = [
        GrpcExporter(endpoint=f"https://localhost:{ports['otlp-grpc']}", credentials=pem),
        HttpExporter(endpoint=f"https://localhost:{ports['otlp-http']}/v1/traces", certificate_file=str(authority.ca)),
    ]
    for exporter in exporters:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        provider.get_tracer("t").start_span("forward").end()
        provider.shutdown()
    metrics = ["curl", "-sS", "--cacert", str(authority.ca), f"https://localhost:{ports['admin']}/metrics"]
    wait_for(
        lambda: "\nlapwing_spans_received_total 2\n" in subprocess.check_output(metrics, text=True, timeout=20), 20, "both spans came"
    )


class Sink(grpc.GenericRpcHandler):
    """Notes the methods of its calls, and answers each with an empty message."""

    def __init__(self):
        self.called = set()

    def service(self, details):
        self.called.add(details.method)
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")


def test_collectors_are_reached_over_it(start_lapwing, raw_server, authority):
    sink, pem = Sink(), {name: (authority.folder / name).read_bytes() for name in ("s.pem", "s.key")}
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[sink])
    port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([(pem["s.key"], pem["s.pem"])]))
    server.start()
    with TlsServer(authority.server_context("s", "http/1.1")) as collector:
        telemetry = {
            "LAPWING_TELEMETRY__METRICS": "on",
            "LAPWING_TELEMETRY__METRICS_INTERVAL": "1s",
            "LAPWING_TELEMETRY__ENDPOINT": f"grpcs://localhost:{port}",
            "LAPWING_OTLP_FORWARD": collector.url,
        }
        lapwing = start_lapwing(raw_server.url, env=NO_SPANS | telemetry | tls_of(authority, LISTEN={}, COLLECTOR={"CA": authority.ca}))
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(HttpExporter(endpoint=f"http://127.0.0.1:{lapwing.otlp_http}/v1/traces")))
        provider.get_tracer("t").start_span("forward").end()
        provider.shutdown()
        wait_for(lambda: any(head.startswith(b"POST /v1/traces ") for head, _ in collector.seen), 20, "the span is passed on")
        wait_for(lambda: any(method.endswith("MetricsService/Export") for method in sink.called), 20, "metrics are sent")
    server.stop(None)


def test_nobody_is_given_what_was_told_to_another_certificate(start_lapwing, authority, tmp_path):
    """Who asks is part of a question where clients show certificates (`cache`)."""

    class Counting(http.server.BaseHTTPRequestHandler):
        protocol_version, asked = "HTTP/1.1", []

        def log_message(self, *_):
            pass

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.asked.append(1)
            answer = b'{"model_name": "m", "outputs": []}'
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = tmp_path / "lapwing.yaml"
    config.write_text("cache: {mode: on, proof: 0, verify: 0%}\n")
    lapwing = start_lapwing(
        f"http://127.0.0.1:{server.server_address[1]}", config=config, env=NO_SPANS | tls_of(authority, LISTEN=asking(authority))
    )
    body = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}'

    def is_hit(own):
        before = len(Counting.asked)
        client = connect(lapwing, authority.context(own=own))
        client.request("POST", "/v2/models/m/infer", body, {"content-type": "application/json"})
        assert client.getresponse().status == 200
        return len(Counting.asked) == before

    one, other = authority.issue("one"), authority.issue("other")
    wait_for(lambda: is_hit(one), 10, "an answer is given again")
    assert not is_hit(other), "who asks is another"
    wait_for(lambda: is_hit(other), 10, "it has its own")
    server.shutdown()
