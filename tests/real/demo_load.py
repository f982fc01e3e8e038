"""Four Lapwings under a load that has something of everything a dashboard shows, each as a pod of its own to Prometheus.

`ranker`: FastAPI with ONNX Runtime, two shadow targets, budgets, a quota, a declared optimum, and models that Lapwing serves itself.
`writer`: vLLM replayed from its source, streams of tokens. `batcher`: TensorFlow Serving likewise, polled.
`talker`: connections that upgrade, and a model whose server reports nothing, behind a queue; of another one answers are given again. Two
others observe what both would bring. The ranker's feature store is read through Lapwing.
"""

import contextlib
import json
import random
import re
import socket
import threading
import time

import redis

from lapwing import NO_SPANS
from ports import free_port
from process import wait_for, wait_listening
from prometheus import Scraped
from raw_server import RawServer
from replayers.replayer import Ports
from replayers.tf_serving import PAGE, Histogram, TfServing
from replayers.vllm import Vllm
from shadowing import SHADOW, ask, body_of, post

INFER = "POST /v2/models/{model}/infer"
RANKER = """\
metrics:
  budgets:
    "{infer}": {{p50: 3ms, p99: 4ms, total: 4ms}}
cost:
  models:
    m: {{ns_per_unit: 2000, fixed_ns: 20000, unit: row, source: a test}}
shadow:
  noise: 5%
  quotas: [{{route: "{infer}", per_minute: 600}}]
  max_body: 16KiB
engine:
  models: {{mlp: {model}}}
  listen: 127.0.0.1:{port}
  max_body: 64KiB
downstreams: [{{name: features, listen: "127.0.0.1:{store}", to: "redis://127.0.0.1:{redis}", kind: redis}}]
"""
TALKER = "cache: {proof: 4, verify: 20%, ttl: 2s, routes: [{match: {model: again}, mode: 'on'}]}\n"
QUEUE = {"LAPWING_DISPATCH__MODE": "observe", "LAPWING_CACHE__MODE": "observe"}
QUEUED = {"LAPWING_DISPATCH__MODE": "on", "LAPWING_DISPATCH__SLOTS": "1", "LAPWING_DISPATCH__HEDGE__MODE": "observe"}
CHAT = {"model": "org/model", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 6}
UPGRADE = b"GET /canned/upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"


class Batching(TfServing):
    """With the metrics of a batching session that pads."""

    def __init__(self, ports):
        super().__init__(ports)
        of = lambda name: Histogram(f"/tensorflow/serving/batching_session/{name}", {"model_name": "half_plus_two"}, 1, 2, 12)
        self.batch, self.padding = of("processed_batch_size"), of("padding_size")

    def metrics_page(self, path):
        found = super().metrics_page(path)
        return found and found + "\n".join(line for one in (self.batch, self.padding) for line in one.lines()) + "\n"

    def answer(self, exchange):
        super().answer(exchange)
        self.batch.add(8)
        self.padding.add(8 - len(exchange.body["instances"]))


class Unreported(RawServer):
    """One request after the other, half a millisecond for each of its rows; it says nothing of that. The model `again` has one answer."""

    turn = threading.Lock()

    def answer(self, connection, stream, head):
        rows = re.search(rb"(?im)^x-rows: *(\d+)", head)
        if rows:
            with self.turn:
                time.sleep(1e-3 + 0.5e-3 * int(rows[1]))
        return super().answer(connection, stream, head.replace(b" /v2/models/again/infer ", b" /canned/again "))


class Fleet:
    """The pods; `scraped` says where Prometheus finds them. While its context is entered, requests come."""

    def __init__(self, start_lapwing, start_server, small_mlp, folder, redis_port):
        self.parts = [Unreported()]
        upstream, int8 = start_server("--forward-ms", "3"), start_server("--wrong-every", "9", "--forward-ms", "2")
        self.engine, store = free_port(), free_port()
        self.store = redis.Redis(port=store)
        config, self.talker_config = folder / "ranker.yaml", folder / "talker.yaml"
        self.talker_config.write_text(TALKER)
        config.write_text(RANKER.format(infer=INFER, model=small_mlp, port=self.engine, store=store, redis=redis_port))
        copies = ["--shadow", f"int8=http://127.0.0.1:{int8}", "--shadow", f"reference=engine:{small_mlp}", "--shadow-sample", "50%"]
        self.ranker = start_lapwing(f"http://127.0.0.1:{upstream}", *copies, config=config, env=SHADOW)
        self.writer = self.replayed(start_lapwing, lambda ports: Vllm(ports, spans=False))
        self.batcher = self.replayed(start_lapwing, Batching, PAGE)
        self.talker = None
        self.start_lapwing = start_lapwing

    def replayed(self, start_lapwing, make, page=None):
        port = free_port()
        env = {**NO_SPANS, **QUEUE, "LAPWING_ATTRIBUTION__POLL_INTERVAL": "1s", "LAPWING_ATTRIBUTION__POLL": f"http://127.0.0.1:{port}{page}" if page else "auto"}
        lapwing = start_lapwing(f"http://127.0.0.1:{port}", env=env)
        self.parts.append(make(Ports(port, lapwing.otlp_grpc)))
        return lapwing

    def lapwings(self):
        return {"ranker": self.ranker, "writer": self.writer, "batcher": self.batcher, "talker": self.talker}

    def scraped(self):
        pods = [Scraped(lapwing.admin, {"namespace": "demo", "pod": name}) for name, lapwing in self.lapwings().items()]
        return [*pods, Scraped(self.engine, {"namespace": "demo", "pod": "ranker-engine"})]

    def __enter__(self):
        for part in self.parts:
            part.__enter__()
        raw = self.parts[0]
        raw.canned["upgrade"] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        raw.canned["again"] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        self.talker = self.start_lapwing(raw.url, config=self.talker_config, env={**NO_SPANS, **QUEUED})
        wait_listening(self.engine, 60)
        wait_for(self.ranker.is_ready, 60, "the engine's models are ready")
        self.over, self.faults = threading.Event(), []
        jobs = (self.rank, self.serve, self.write, self.write, self.batch, self.talk, self.hydrate, *[self.guess] * 3, *[self.repeat] * 2)
        self.threads = [threading.Thread(target=self.keep, args=(job,), daemon=True) for job in jobs]
        [thread.start() for thread in self.threads]
        return self

    def __exit__(self, *_):
        self.over.set()
        [thread.join(30) for thread in self.threads]
        for part in self.parts:
            part.__exit__()

    def keep(self, job):
        """Calls `job` with 0, 1, 2 … until the end; a fault ends it, and is shown by `check`."""
        n = 0
        try:
            while not self.over.is_set():
                job(n)
                n += 1
        except Exception as fault:  # noqa: BLE001
            if not self.over.is_set():
                self.faults.append(f"{job.__name__}: {fault!r}")

    def check(self):
        assert not self.faults, self.faults

    def rank(self, n):
        # the largest has no room among copies
        status, _ = ask(self.ranker.port, body_of((1, 2, 3, 8, 30, 200)[n % 6], n))
        assert status == 200, status
        if n % 10 == 0:
            assert post(self.ranker.port, "/v2/models/m/nothing", b"{}")[0] == 404
        time.sleep(0.02)

    def serve(self, n):
        """Calls of the engine, of which some are too large."""
        status, _ = ask(self.engine, body_of(1 + n % 4, n), model="mlp")
        assert status == 200, status
        if n % 20 == 0:
            with_large = json.dumps({"inputs": [], "id": "x" * (70 << 10)}).encode()
            assert ask(self.engine, with_large, model="mlp")[0] == 413
        time.sleep(0.05)

    def call(self, lapwing, path, body):
        status, _ = post(lapwing.port, path, json.dumps(body).encode(), {"content-type": "application/json"})
        assert status == 200, (path, status)

    def write(self, n):
        self.call(self.writer, "/v1/chat/completions", {**CHAT, "stream": n % 4 != 0})

    def batch(self, n):
        self.call(self.batcher, "/v1/models/half_plus_two:predict", {"instances": [1.0] * (1 + n % 6)})

    def guess(self, n):
        """Requests of different work, of which some come together."""
        rows = 1 + n * 7 % 16
        body = json.dumps({"inputs": [{"name": "x", "shape": [rows, 1], "datatype": "FP32", "data": [0.5] * rows}]}).encode()
        status, _ = post(self.talker.port, "/v2/models/silent/infer", body, {"content-type": "application/json", "x-rows": str(rows)})
        assert status == 200, status
        time.sleep(random.expovariate(1 / 0.03))

    def repeat(self, n):
        """The same few questions over and over, of which one wants an answer of its own."""
        body = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [n % 4]}]}).encode()
        own = {"cache-control": "no-store"} if n % 10 == 0 else {}
        status, _ = post(self.talker.port, "/v2/models/again/infer", body, {"content-type": "application/json", "x-rows": "1", **own})
        assert status == 200, status
        time.sleep(0.05)

    def hydrate(self, n):
        """What a server reads of its feature store: there, not there, and of another kind than it asks for."""
        self.store.set("feature:1", n)
        assert self.store.mget("feature:1", "feature:none")[1] is None
        if n % 10 == 0:
            with contextlib.suppress(redis.ResponseError):
                self.store.lpush("feature:1", 1)
        time.sleep(0.05)

    def talk(self, n):
        connection = socket.create_connection(("127.0.0.1", self.talker.port), 10)
        connection.sendall(UPGRADE)
        assert b" 101 " in connection.recv(4096)
        connection.sendall(b"hello")
        time.sleep(0.2)
        connection.close()
