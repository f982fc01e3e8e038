"""Clients of one HTTP version before servers of the other, as Lapwing is by default; and what it says where nothing can work."""

import pathlib
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent import futures

import grpc
import pytest

from lapwing import NO_SPANS
from ports import free_port
from process import Process, wait_for, wait_listening
from test_clients import curl

pytestmark = pytest.mark.beside
SERVERS = pathlib.Path(__file__).parent / "servers"
H2 = "--http2-prior-knowledge"

NODE_H1 = """
require("http").createServer((req, res) => {
  const pieces = [];
  req.on("data", (piece) => pieces.push(piece));
  req.on("end", () => {
    if (req.url === "/trailers") {
      res.writeHead(200, { trailer: "x-last", "x-got": String(req.trailers["x-sent"]) });
      res.write("body");
      res.addTrailers({ "x-last": "1" });
      return res.end();
    }
    res.end(req.url === "/echo" ? Buffer.concat(pieces) : "ok");
  });
}).listen(PORT, "127.0.0.1");
"""
NODE_H2 = """
require("http2").createServer((req, res) => {
  const pieces = [];
  req.on("data", (piece) => pieces.push(piece));
  req.on("end", () => {
    res.setHeader("x-version", req.httpVersion);
    res.end(req.url === "/echo" ? Buffer.concat(pieces) : "ok");
  });
}).listen(PORT, "127.0.0.1");
"""
GO_H2 = """
package main

import ("io"; "net/http")

func main() {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("x-version", r.Proto)
		if r.URL.Path == "/echo" { io.Copy(w, r.Body); return }
		io.WriteString(w, "ok")
	})
	panic((&http.Server{Addr: "127.0.0.1:PORT", Protocols: protocols}).ListenAndServe())
}
"""


def uvicorn(logs, port, http):
    command = [sys.executable, "-m", "uvicorn", "streaming_app:app", "--app-dir", str(SERVERS), "--port", str(port), "--http", http]
    return Process("uvicorn", [*command, "--log-level", "warning"], logs)


def node(logs, port, script):
    return Process("node", ["node", "-e", script.replace("PORT", str(port))], logs)


@pytest.fixture(scope="module", params=["uvicorn h11", "node", "python"])
def http1(request, start_lapwing, logs):
    """Lapwing before a server that speaks HTTP/1.1 only."""
    port = free_port()
    if request.param == "python":
        Process("python", [sys.executable, str(SERVERS / "plain_http.py"), str(port)], logs)
    elif request.param == "node":
        node(logs, port, NODE_H1)
    else:
        uvicorn(logs, port, "h11")
    wait_listening(port)
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", env=NO_SPANS)
    return lapwing


def test_an_h2_client_is_answered_by_an_h1_server(http1, tmp_path):
    body = bytes(range(256)) * 4000
    (tmp_path / "body").write_bytes(body)
    assert curl(http1.port, "/x", H2).startswith(b"HTTP/2 200")
    assert curl(http1.port, "/echo", H2, "--data-binary", f"@{tmp_path / 'body'}", show_head=False) == body
    head = curl(http1.port, "/x", H2, "--head")
    assert head.startswith(b"HTTP/2 200") and head.endswith(b"\r\n\r\n")
    # and so is one of HTTP/1.1 beside it
    assert curl(http1.port, "/x").startswith(b"HTTP/1.1 200")
    assert http1.is_ready()
    assert http1.process.output().count("does not speak HTTP/2") == 1


@pytest.mark.parametrize("http1", ["node"], indirect=True)  # the others' answers have no trailers
def test_trailers_pass_from_h1_to_h2(http1):
    assert b"x-last: 1" in curl(http1.port, "/trailers", H2)


def test_grpc_needs_h2_and_is_told_so(http1):
    curl(http1.port, "/x", H2)
    with grpc.insecure_channel(f"127.0.0.1:{http1.port}") as channel, pytest.raises(grpc.RpcError) as failed:
        channel.unary_unary("/t.T/Unary")(b"x", timeout=10)
    assert failed.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "gRPC needs HTTP/2" in failed.value.details()
    assert http1.is_ready(), "what it can answer it answers"


@pytest.fixture(scope="module", params=["node", "go", "grpcio"])
def http2(request, start_lapwing, logs, tmp_path_factory):
    """Lapwing before a server that speaks HTTP/2 only."""
    port = free_port()
    server = None
    if request.param == "node":
        node(logs, port, NODE_H2)
    elif request.param == "go":
        source = tmp_path_factory.mktemp("go") / "main.go"
        source.write_text(GO_H2.replace("PORT", str(port)))
        Process("go", ["go", "run", str(source)], logs)
    else:
        server = grpc.server(futures.ThreadPoolExecutor(2))
        server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
    wait_listening(port, 120)
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", env=NO_SPANS)
    lapwing.server = request.param
    yield lapwing
    if server:
        server.stop(0)


def test_an_h1_client_is_answered_by_an_h2_server(http2, tmp_path):
    body = bytes(range(256)) * 100
    (tmp_path / "body").write_bytes(body)
    echoed = curl(http2.port, "/echo", "-H", "Expect:", "--data-binary", f"@{tmp_path / 'body'}")
    if http2.server == "grpcio":  # which resets what is no call
        assert b"upstream_garbage" not in echoed and b"upstream_protocol" not in echoed
    else:
        assert echoed.endswith(b"\r\n\r\n" + body), "the first request, whose body had been sent"
        got = curl(http2.port, "/x")
        assert got.startswith(b"HTTP/1.1 200") and b"x-version: 2" in got.lower().replace(b"http/", b"")
        assert curl(http2.port, "/x", "--head").startswith(b"HTTP/1.1 200")
        (tmp_path / "body").write_bytes(body * 100)
        assert curl(http2.port, "/echo", "--data-binary", f"@{tmp_path / 'body'}", show_head=False) == body * 100
        assert curl(http2.port, "/x", H2).startswith(b"HTTP/2 200")
    assert http2.is_ready()
    assert http2.process.output().count("speaks HTTP/2 only") == 1


# --- where nothing works

class Speaking:
    """Accepts connections and answers each with the same bytes."""

    def __init__(self, first):
        self.first = first
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        with connection:
            try:
                if connection.recv(1000):
                    connection.sendall(self.first)
                    time.sleep(0.2)
            except OSError:
                pass


def reason(lapwing, *args):
    """The body of its own 502, which the log has once and `/readyz` has too."""
    for _ in range(3):
        got = curl(lapwing.port, "/x", *args)
        assert b" 502" in got.split(b"\r\n", 1)[0], got
    said = got.split(b"\r\n\r\n", 1)[1].decode()
    status, _, why = lapwing.get("/readyz")
    return said, status, why.decode()


@pytest.mark.parametrize("client", [(H2,), ()], ids=["h2", "h1"])
def test_h2c_before_an_h1_server(start_lapwing, logs, client):
    port = free_port()
    node(logs, port, NODE_H1)
    wait_listening(port)
    lapwing = start_lapwing(f"h2c://127.0.0.1:{port}", env=NO_SPANS)
    said, status, why = reason(lapwing, *client)
    for text in (said, why):
        assert "speaks HTTP/1.1" in text and "proxy.upstream_protocol" in text, text
    assert status == 503
    assert lapwing.process.output().count("speaks HTTP/1.1") == 1


def test_h1_before_an_h2_server(start_lapwing, logs):
    port = free_port()
    server = node(logs, port, NODE_H2)
    wait_listening(port)
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", env={**NO_SPANS, "LAPWING_PROXY__UPSTREAM_PROTOCOL": "h1"})
    said, status, why = reason(lapwing)
    assert status == 503 and all("speaks HTTP/2 only" in text and "upstream_protocol" in text for text in (said, why)), (said, why)
    # it heals without a request
    server.stop()
    node(logs, port, NODE_H1)
    wait_for(lapwing.is_ready, 15, "lapwing is ready")


@pytest.mark.parametrize("client", [(H2,), ()], ids=["h2", "h1"])
@pytest.mark.parametrize("first, says", [(b"\x15\x03\x01\x00\x02\x02\x46", "speaks TLS"), (b"-ERR unknown command\r\n", "HTTP")], ids=["tls", "other"])
def test_no_http_server(start_lapwing, client, first, says):
    lapwing = start_lapwing(f"http://{Speaking(first).url}", env=NO_SPANS)
    said, status, why = reason(lapwing, *client)
    assert says in said and says in why and status == 503, (said, why)


def test_a_real_tls_port(start_lapwing, tmp_path):
    key, cert = tmp_path / "key", tmp_path / "cert"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    subprocess.run([*command, "-subj", "/CN=m", "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            connection, _ = listener.accept()
            try:
                context.wrap_socket(connection, server_side=True)
            except OSError:
                connection.close()

    threading.Thread(target=serve, daemon=True).start()
    lapwing = start_lapwing(f"http://127.0.0.1:{listener.getsockname()[1]}", env=NO_SPANS)
    said, status, why = reason(lapwing)
    assert "speaks TLS" in said and "speaks TLS" in why and status == 503, (said, why)


def test_the_server_is_replaced_by_one_of_the_other_version(start_lapwing, logs):
    port = free_port()
    lapwing = None
    for script, only in ((NODE_H1, "1"), (NODE_H2, "2"), (NODE_H1, "1")):
        server = node(logs, port, script)
        wait_listening(port)
        lapwing = lapwing or start_lapwing(f"http://127.0.0.1:{port}", env=NO_SPANS)
        wait_for(lambda: b" 200" in curl(lapwing.port, "/x", H2)[:20], 10, f"HTTP/2 clients are answered by HTTP/{only}")
        wait_for(lambda: b" 200" in curl(lapwing.port, "/x")[:20], 10, f"HTTP/1.1 clients are answered by HTTP/{only}")
        server.stop()
