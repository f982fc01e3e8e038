"""The clients of benches/soak.py, polite and rude: what each does, and how often."""

import http.client
import json
import os
import random
import socket
import sys
import time
from types import SimpleNamespace

from parts import ROOT

BIG = 1 << 20
"""Bytes of a large body."""
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()
CHAT = json.dumps({"model": "chat", "stream": True, "messages": [{"role": "user", "content": "hello"}]}).encode()


class Client:
    """One kind of client: `act` does what it does once. `whole` counts the requests that Lapwing had wholly, `answers` what came back."""

    def __init__(self, lapwing, act, per_s):
        self.lapwing, self.act, self.per_s = lapwing, act, per_s
        self.whole, self.answers, self.random = 0, {}, random.Random(act.__name__)
        self.number, self.is_busy = 0, False

    def run(self, over, going):
        while not over.wait(self.random.expovariate(self.per_s)):
            self.is_busy = False
            going.wait()
            self.is_busy = True
            self.number += 1
            try:
                seen = self.act(self)
            except (OSError, http.client.HTTPException) as error:
                seen = type(error).__name__
            self.answers[seen] = self.answers.get(seen, 0) + 1
            self.is_busy = False

    def connect(self, rcvbuf=None):
        connection = socket.socket()
        if rcvbuf:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", self.lapwing.port))
        return connection

    def call(self, path, body, headers=(), **options):
        connection = http.client.HTTPConnection("127.0.0.1", self.lapwing.port, timeout=30)
        try:
            try:
                connection.request("POST", path, body, dict(headers) | {"content-type": "application/json"}, **options)
            except (BrokenPipeError, ConnectionResetError):
                self.whole += 1  # it was answered amid its body, and counted
                raise
            self.whole += 1
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()


def infer(client):
    return client.call("/v2/models/m/infer", BODY)


def names(client):
    kind, number = client.number % 2, f"{client.number:x}"
    return client.call(f"/v2/models/model-{number}/infer" if kind else f"/path-{number}-of-its-own/run", BODY)


def chat(client):
    return client.call("/v1/chat/completions", CHAT)


def upload(client):
    pieces = (b"x" * 65536 for _ in range(16))
    return client.call("/v2/models/m/infer", pieces, encode_chunked=True, headers={"transfer-encoding": "chunked"})


def traced(client):
    """A request, and its span, which the collector gets too."""
    trace, span = os.urandom(16).hex(), os.urandom(8).hex()
    began = time.time_ns()
    status = client.call("/v2/models/m/infer", BODY, {"traceparent": f"00-{trace}-{span}-01"})
    spans = [{"traceId": trace, "spanId": os.urandom(8).hex(), "parentSpanId": span, "name": "forward", "kind": 1,
              "startTimeUnixNano": str(began), "endTimeUnixNano": str(time.time_ns())}]  # fmt: skip
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    connection = http.client.HTTPConnection("127.0.0.1", client.lapwing.otlp_http, timeout=30)
    try:
        connection.request("POST", "/v1/traces", body, {"content-type": "application/json"})
        connection.getresponse().read()
    finally:
        connection.close()
    return status


def http2(client):
    sys.path.append(str(ROOT / "tests/faults"))
    from http2 import Client as H2Client

    with H2Client(SimpleNamespace(port=client.lapwing.port)) as connection:
        number = connection.ask("/v2/models/m/infer", "POST", BODY, extra=[("content-type", "application/json")])
        client.whole += 1
        of = connection.streams[number]
        while not (of.ended or of.reset is not None or connection.closed):
            connection.pump()
        return int(of.fields[":status"]) if of.ended else "reset"


def slow_reader(client):
    with client.connect(rcvbuf=4096) as connection:
        connection.sendall(b"GET /big HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")
        client.whole += 1
        got = 0
        while piece := connection.recv(32768):
            got += len(piece)
            time.sleep(0.01)
        return "whole" if got > BIG else "short"


def leaves_an_answer(client):
    with client.connect() as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: m\r\nContent-Length: %d\r\n\r\n" % len(CHAT) + CHAT)
        client.whole += 1
        return "left" if connection.recv(64) else "closed"


def leaves_an_upload(client):
    with client.connect() as connection:
        connection.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: m\r\nContent-Length: %d\r\n\r\n" % BIG + b"x" * 4096)
        client.whole += 1
        time.sleep(0.05)
        return "left"


def half_a_head(client):
    with client.connect() as connection:
        connection.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHo")
        time.sleep(1)
        return "left"


def garbage(client):
    with client.connect() as connection:
        connection.sendall(client.random.choice([b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"{}\r\n\r\n", b"GET  HTTP/1.1\r\n\r\n"]))
        client.whole += 1
        return connection.recv(64).split(b"\r\n")[0].decode(errors="replace")


def scrape(client):
    for path in ("/metrics", "/stats", "/exchanges", "/shadow", "/livez"):
        connection = http.client.HTTPConnection("127.0.0.1", client.lapwing.admin, timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
        finally:
            connection.close()
        if response.status != 200:
            return f"{path} {response.status}"
    return "read"


KINDS = {infer: 0.4, names: 0.3, chat: 0.04, upload: 0.03, traced: 0.1, http2: 0.05, slow_reader: 0.01, leaves_an_answer: 0.02,
         leaves_an_upload: 0.02, half_a_head: 0.01, garbage: 0.02}  # fmt: skip
"""What share of the rate each kind has."""
