"""curl, h2load, raw sockets and WebSocket clients through Lapwing, each compared with the same client talking directly."""

import http.client
import json
import re
import shutil
import socket
import statistics
import subprocess
import time

import pytest
import websockets.exceptions
from websockets.sync.client import connect

from lapwing import NO_SPANS, Counted
from ports import free_port
from process import wait_for, wait_listening

pytestmark = pytest.mark.beside
MIB = 1 << 20


# --- curl

def curl(port, path, *args, show_head=True):
    """Runs curl and returns its output, with the head; the Host field is the same for every port."""
    command = ["curl", "-sS", "--noproxy", "*", "--max-time", "30", "--connect-to", f"model.test:80:127.0.0.1:{port}"]
    command += (["-i"] if show_head else []) + [*args, f"http://model.test{path}"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, (command, done.stderr)
    out = re.sub(rb"(?im)^date: .*\r\n", b"", done.stdout)
    # each hop states its own version (RFC 9110, 2.5): hyper answers HTTP/1.0 with HTTP/1.0, uvicorn does not
    out = out.replace(b"HTTP/1.0 ", b"HTTP/1.1 ", 1)
    # and hyper writes a length of 0 after all other fields
    return re.sub(rb"(?i)(content-length: 0\r\n)((?:[^\r\n]+\r\n)*)\r\n", rb"\2\1\r\n", out)


@pytest.fixture(scope="module")
def payload(tmp_path_factory):
    path = tmp_path_factory.mktemp("payload") / "payload"
    path.write_bytes(bytes(range(256)) * (3 * MIB // 256) + b"odd")
    return f"@{path}"


FROM_MODEL_SERVER = {
    "get": ("/page",),
    "head": ("/page", "--head"),
    "http10": ("/page", "--http1.0"),
    "no_content": ("/status/204",),
    "not_modified": ("/status/304", "-H", 'If-None-Match: "v1"'),
    "not_found": ("/nowhere",),
    "server_error": ("/status/500",),
    "wrong_method": ("/page", "-X", "DELETE"),
    "redirect_not_followed": ("/moved",),
    "redirect_followed": ("/moved", "-L"),
    "cookies": ("/cookies",),
    "gzip_untouched": ("/gzipped", "-H", "Accept-Encoding: gzip"),
    "gzip_decoded": ("/gzipped", "--compressed"),
    "post": ("/echo", "-d", "a=b&c=d"),
    "post_empty": ("/echo", "-d", ""),
    "query": ("/bytes?n=5&x=%20%2F&y=a+b",),
    "large_response": (f"/bytes?n={9 * MIB + 1}",),
}
COUNTED_TWICE = {"redirect_followed"}  # because each is two requests


@pytest.mark.parametrize("name", FROM_MODEL_SERVER)
def test_curl_sees_what_it_sees_directly(plain, name):
    path, *args = FROM_MODEL_SERVER[name]
    direct = curl(plain.port, path, *args)
    with Counted(plain.lapwing, 2 if name in COUNTED_TWICE else 1, settle=0):
        proxied = curl(plain.lapwing.port, path, *args)
    assert proxied == direct


@pytest.mark.parametrize("framing", [(), ("-H", "Transfer-Encoding: chunked")], ids=["length", "chunked"])
@pytest.mark.parametrize("expect", [("-H", "Expect:"), ("-H", "Expect: 100-continue")], ids=["plain", "expect"])
def test_curl_uploads(plain, payload, framing, expect):
    args = ("--data-binary", payload, *framing, *expect)
    direct = curl(plain.port, "/echo", *args)
    proxied = curl(plain.lapwing.port, "/echo", *args)
    assert proxied == direct
    assert len(proxied) > 3 * MIB
    assert proxied.startswith(b"HTTP/1.1 100 Continue\r\n\r\n") == ("Expect: 100-continue" in expect)


# --- below HTTP: the bytes themselves

@pytest.fixture(scope="module")
def before_raw(start_lapwing, raw_server):
    # its own polls must not be taken for requests of clients
    lapwing = start_lapwing(raw_server.url, env={**NO_SPANS, "LAPWING_ATTRIBUTION__POLL": "off"})
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    return lapwing


def raw(port, request, shut=False):
    """Sends `request` and returns all bytes until the server closes."""
    with socket.create_connection(("127.0.0.1", port), 10) as s:
        s.settimeout(10)
        s.sendall(request)
        if shut:
            s.shutdown(socket.SHUT_WR)
        out = b""
        while piece := s.recv(65536):
            out += piece
        return out


def fields(head):
    """(first line, [(name, value)]): names as they are spelt, in order."""
    first, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    return first, [(n, v.strip()) for n, v in (line.split(":", 1) for line in rest)]


def without(named, *names):
    return [(n, v) for n, v in named if n.lower() not in names]


def by_name(named):
    """By name in lower case: the spellings and values, in order."""
    out = {}
    for name, value in named:
        out.setdefault(name.lower(), []).append((name, value))
    return out


HEADS = {
    "case_and_duplicates": b"GET /head?q=1&q=2 HTTP/1.1\r\nHost: model.test\r\nX-MiXeD-CaSe: 1\r\nx-lower: a\r\n"
    b"X-Dup: one\r\nX-Other: z\r\nX-Dup: two\r\nX-dup: three\r\nX-Empty:\r\nX-Latin: caf\xe9\r\nConnection: close\r\n\r\n",
    "cookies": b"GET /head HTTP/1.1\r\nHost: model.test\r\nCookie: a=1\r\nCookie: b=2\r\nConnection: close\r\n\r\n",
    "forwarding_fields_are_left_alone": b"GET /head HTTP/1.1\r\nHost: model.test\r\nX-Forwarded-For: 1.2.3.4\r\nVia: 1.1 x\r\n"
    b"Accept-Encoding: br\r\nUser-Agent: t/1\r\nAccept: */*\r\nConnection: close\r\n\r\n",
    "odd_targets": b"GET /head/%7Euser/a%2Fb//c;p=1?x=%20+&y=|^ HTTP/1.1\r\nHost: model.test\r\nConnection: close\r\n\r\n",
    "tracestate": b"GET /head HTTP/1.1\r\nHost: model.test\r\ntracestate: v=1\r\nTraceParent: "
    b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nConnection: close\r\n\r\n",
    "post": b"POST /head HTTP/1.1\r\nHost: model.test\r\nContent-Length: 5\r\nContent-Type: a/b\r\nConnection: close\r\n\r\nhello",
    "custom_method": b"PURGE /head HTTP/1.1\r\nHost: model.test\r\nConnection: close\r\n\r\n",
}


@pytest.mark.parametrize("name", HEADS)
def test_the_upstream_sees_the_request_as_it_was_sent(before_raw, raw_server, name):
    raw_server.seen.clear()
    with Counted(before_raw, 1, settle=0):
        answer = raw(before_raw.port, HEADS[name])
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer
    ((head, body),) = raw_server.seen
    sent_head, sent_body = HEADS[name].split(b"\r\n\r\n", 1)
    assert body == sent_body
    (first, seen), (sent_first, sent) = fields(head), fields(sent_head)
    assert first == sent_first
    # connection fields belong to each hop, and traceparent carries Lapwing's span
    own = ("connection", "traceparent")
    assert by_name(without(seen, *own)) == by_name(without(sent, *own))
    assert list(by_name(without(seen, *own))) == list(by_name(without(sent, *own))), "in the order they were sent"
    assert len(by_name(seen)["traceparent"]) == 1


CLOSE = b"Host: model.test\r\nConnection: close\r\nTE: trailers\r\n\r\n"


@pytest.mark.parametrize(
    "name", ["cookies", "case", "no_content", "not_modified", "until_close", "reason", "redirect", "chunked", "trailers"]
)
def test_the_client_sees_the_response_as_it_was_sent(before_raw, raw_server, name):
    request = b"GET /canned/%s HTTP/1.1\r\n" % name.encode() + CLOSE
    with Counted(before_raw, 1, settle=0):
        proxied = raw(before_raw.port, request)
    head, body = proxied.split(b"\r\n\r\n", 1)
    sent_head, sent_body = raw_server.canned[name].split(b"\r\n\r\n", 1)
    (first, seen), (sent_first, sent) = fields(head), fields(sent_head)
    assert first == sent_first
    own = ("connection", "date", "transfer-encoding")
    if b" 304 " in sent_head:
        own += ("content-length",)  # hyper leaves it out, which RFC 9110, 8.6 allows
    assert by_name(without(seen, *own)) == by_name(without(sent, *own))
    assert list(by_name(without(seen, *own))) == list(by_name(without(sent, *own)))
    assert ("date" in by_name(seen)) == ("date" in by_name(sent)), "no field of our own"
    if b"chunked" in head.lower():
        data, trailers = unchunk(body)
        sent_data, sent_trailers = unchunk(sent_body) if b"chunked" in sent_head else (sent_body, [])
        # hyper writes the names of trailers in lower case
        assert (data, [t.lower() for t in trailers]) == (sent_data, [t.lower() for t in sent_trailers])
    else:
        assert body == sent_body


def unchunk(body):
    """(data, trailers); fails if the body is cut short."""
    data = b""
    while True:
        line, body = body.split(b"\r\n", 1)
        size = int(line.split(b";")[0], 16)
        if not size:
            break
        assert body[size : size + 2] == b"\r\n"
        data, body = data + body[:size], body[size + 2 :]
    assert body.endswith(b"\r\n")
    return data, [line for line in body.split(b"\r\n") if line]


def test_head_keeps_its_length_and_has_no_body(before_raw):
    answer = raw(before_raw.port, b"HEAD /canned/head HTTP/1.1\r\n" + CLOSE)
    head, body = answer.split(b"\r\n\r\n", 1)
    assert by_name(fields(head)[1])["content-length"] == [("Content-Length", "12345")]
    assert body == b""


def test_early_hints_do_not_hide_the_answer(before_raw):
    answer = raw(before_raw.port, b"GET /canned/early_hints HTTP/1.1\r\n" + CLOSE)
    final = answer[answer.index(b"HTTP/1.1 200 OK") :]
    assert final.endswith(b"\r\n\r\nlate")


def test_a_refused_expectation_costs_no_body(before_raw, raw_server):
    """The upstream answers Expect: 100-continue with 417, so the client never sends its body."""
    raw_server.seen.clear()
    request = b"POST /refuse HTTP/1.1\r\nHost: model.test\r\nContent-Length: 9\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    with Counted(before_raw, 1, settle=0) as counted:
        answer = raw(before_raw.port, request)
    assert answer.startswith(b"HTTP/1.1 417 ") and answer.endswith(b"no\n"), answer
    assert b"100 Continue" not in answer
    assert counted.outcomes == {"client_error": 1}
    ((head, body),) = raw_server.seen
    assert body == b"" and b"100-continue" in head


def test_request_trailers_pass(before_raw, raw_server):
    raw_server.seen.clear()
    request = (
        b"POST /head HTTP/1.1\r\nHost: model.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\nConnection: close\r\n\r\n"
        b"3\r\nabc\r\n4\r\ndefg\r\n0\r\nX-Sum: 7\r\n\r\n"
    )
    raw(before_raw.port, request)
    ((_, body),) = raw_server.seen
    data, trailers = unchunk(body)
    assert data == b"abcdefg"
    assert [t.lower() for t in trailers] == [b"x-sum: 7"]


def test_pipelined_requests_are_answered_in_order(before_raw):
    one, two = b"GET /canned/case HTTP/1.1\r\nHost: h\r\n\r\n", b"GET /canned/reason HTTP/1.1\r\n" + CLOSE
    with Counted(before_raw, 2, settle=0):
        answer = raw(before_raw.port, one + two)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"200", b"404"]


# --- load

def h2load(port, path, *args):
    command = ["h2load", *args, f"http://127.0.0.1:{port}{path}"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    out = done.stdout.decode()
    assert done.returncode == 0, out + done.stderr.decode()
    counts = re.search(r"requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed", out)
    return [int(n) for n in counts.groups()], out


@pytest.mark.parametrize("clients", [1, 16])
def test_h2load_over_http1(plain, clients):
    with Counted(plain.lapwing, 1000) as counted:
        counts, out = h2load(plain.lapwing.port, "/health", "--h1", "-n1000", f"-c{clients}")
    assert counts == [1000, 1000, 1000, 0], out
    assert counted.outcomes == {"ok": 1000}


@pytest.fixture(scope="module")
def before_h2c(start_lapwing, processes, tmp_path_factory):
    """nghttpd, which speaks h2c only, behind Lapwing."""
    if not shutil.which("nghttpd"):
        pytest.fail("nghttpd is missing: tests/run installs it")
    root = tmp_path_factory.mktemp("htdocs")
    (root / "small").write_bytes(b"small\n")
    (root / "large").write_bytes(bytes(range(256)) * 1024)
    port = free_port()
    processes("nghttpd", ["nghttpd", "--no-tls", "-a", "127.0.0.1", "-d", str(root), str(port)])
    wait_listening(port)
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", env=NO_SPANS)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    return port, lapwing


@pytest.mark.parametrize("path, n", [("/small", 2000), ("/large", 200)])
@pytest.mark.parametrize("shape", [("-c1", "-m1"), ("-c4", "-m32")], ids=["one", "many"])
def test_h2load_over_h2c(before_h2c, path, n, shape):
    _, lapwing = before_h2c
    with Counted(lapwing, n) as counted:
        counts, out = h2load(lapwing.port, path, f"-n{n}", *shape)
    assert counts == [n, n, n, 0], out
    assert counted.outcomes == {"ok": n}


# no HEAD of /nowhere: there nghttpd answers a HEAD with a body, which curl refuses
ASKED = [(path, args) for path in ("/small", "/large", "/nowhere") for args in ((), ("-d", "x=1"), ("-H", "X-Dup: 1", "-H", "X-Dup: 2"))]
ASKED += [("/small", ("--head",)), ("/large", ("--head",))]


@pytest.mark.parametrize("path, args", ASKED)
def test_curl_over_h2c_sees_what_it_sees_directly(before_h2c, path, args):
    port, lapwing = before_h2c
    direct = curl(port, path, "--http2-prior-knowledge", *args)
    with Counted(lapwing, 1, settle=0):
        proxied = curl(lapwing.port, path, "--http2-prior-knowledge", *args)
    assert proxied == direct


# --- streams

def tokens(port, n, every_ms):
    """[(number, milliseconds from the server's stamp to ours)], and the seconds from first to last."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", f"/tokens?n={n}&every_ms={every_ms}")
    response = connection.getresponse()
    assert response.headers["content-type"].startswith("text/event-stream")
    out, stamps = [], []
    while line := response.readline():
        now = time.time_ns()
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            out.append((event["i"], (now - event["sent_ns"]) / 1e6))
            stamps.append(now)
    connection.close()
    assert line == b""
    return out, (stamps[-1] - stamps[0]) / 1e9


@pytest.mark.alone
def test_tokens_come_as_they_are_sent(plain):
    direct, _ = tokens(plain.port, 100, 5)
    with Counted(plain.lapwing, 1):
        proxied, seconds = tokens(plain.lapwing.port, 100, 5)
    assert [i for i, _ in proxied] == [i for i, _ in direct] == list(range(100))
    assert seconds >= 0.8 * 99 * 0.005
    added = statistics.median(ms for _, ms in proxied) - statistics.median(ms for _, ms in direct)
    assert added < 2, f"{added:.3f} ms added to the median token"


def test_a_client_that_leaves_a_stream_is_cancelled(plain):
    with Counted(plain.lapwing, 1) as counted:
        with socket.create_connection(("127.0.0.1", plain.lapwing.port), 10) as s:
            s.sendall(b"GET /tokens?n=1000&every_ms=5 HTTP/1.1\r\nHost: h\r\n\r\n")
            assert s.recv(1024)
    assert counted.outcomes == {"cancelled": 1}


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1])


def test_large_bodies_stream_with_memory_flat(plain):
    lapwing = plain.lapwing
    before, peak = resident_kib(lapwing.process.pid), 0
    size = 64 * MIB
    piece = bytes(range(256)) * 256

    def pieces():
        nonlocal peak
        for _ in range(size // len(piece)):
            yield piece
        peak = max(peak, resident_kib(lapwing.process.pid))

    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=60)
    connection.request("POST", "/length", pieces(), {"content-length": str(size)})
    assert json.loads(connection.getresponse().read()) == {"bytes": size}
    connection.request("GET", f"/bytes?n={size}")
    response = connection.getresponse()
    received = 0
    while got := response.read(MIB):
        at = received % 256
        assert got == (bytes(range(256)) * (len(got) // 256 + 2))[at : at + len(got)], f"other bytes from {received} on"
        received += len(got)
        peak = max(peak, resident_kib(lapwing.process.pid))
    connection.close()
    assert received == size
    assert peak - before < 16 * 1024, f"{before} KiB before, {peak} KiB at the peak"


# --- WebSocket

def converse(port):
    """Runs a conversation and returns everything received."""
    seen = []
    with connect(
        f"ws://127.0.0.1:{port}/ws", subprotocols=["v1.test"], compression=None, max_size=None, proxy=None, additional_headers={"X-A": "1"}
    ) as ws:
        seen.append((ws.response.status_code, ws.subprotocol, ws.response.headers.get("sec-websocket-accept") is not None))
        for message in ("hello", "", "caf\u00e9 \U0001f426", b"\x00\xff", bytes(range(256)) * 4096, "x" * MIB):
            ws.send(message)
            seen.append(ws.recv(timeout=10))
        ws.send(["in ", "three ", "fragments"])
        seen.append(ws.recv(timeout=10))
        seen.append(ws.ping().wait(10))
        ws.send("close 4001 enough")
        try:
            ws.recv(timeout=10)
        except websockets.exceptions.ConnectionClosed as e:
            seen.append((e.rcvd.code, e.rcvd.reason))
    return seen


def test_a_websocket_conversation_is_the_same(plain):
    direct = converse(plain.port)
    with Counted(plain.lapwing, 1):
        proxied = converse(plain.lapwing.port)
    assert proxied == direct
    assert proxied[-1] == (4001, "enough")


def test_the_servers_end_sees_the_clients_close_code(plain):
    with Counted(plain.lapwing, 1):
        with connect(f"ws://127.0.0.1:{plain.lapwing.port}/ws", proxy=None) as ws:
            ws.send("hello")
            assert ws.recv(timeout=10) == "hello"
            ws.close(4002, "bye")
    assert (ws.close_code, ws.close_reason) == (4002, "bye")


def test_a_refused_upgrade_is_an_ordinary_answer(plain):
    refused = []
    for port in (plain.port, plain.lapwing.port):
        with pytest.raises(websockets.exceptions.InvalidStatus) as e:
            connect(f"ws://127.0.0.1:{port}/nowhere", proxy=None)
        refused.append((e.value.response.status_code, e.value.response.body))
    assert refused[0] == refused[1]
