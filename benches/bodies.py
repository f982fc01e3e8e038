#!/usr/bin/env python3
"""The cost of large bodies: Lapwing, which parses the bodies that it forwards, compared with nginx in one run, with the same upstream.

Tensor bodies of 950 KB (Open Inference Protocol, JSON), chat prompts of 220 KB and prompts of 32,000 token ids (224 KB) are posted on one
connection for each target, in turn: directly, and through each proxy. The upstream reads the whole body before it answers. The time
that a request takes longer than a direct one is added by the proxy. nginx is measured twice: with its defaults, where it receives the
whole body before it forwards any of it, and with proxy_request_buffering off. Afterwards the client sends half a body and asks the
upstream how much of it has arrived: a proxy that forwards bytes as they come has forwarded nearly all of it. With --unread, the bodies
have a media type that Lapwing does not read, though it reads the answers: what is left is the cost of forwarding. Proxies run on core 0; upstream and client, both in this file, on core 1.

Each round begins with new processes, because two that do the same may differ by half for as long as they run, and not in the same way after
the next start. The verdict is the median of the rounds' ratios.

usage: python3 benches/bodies.py [--lapwing PATH] [--requests N] [--rounds N] [--unread] [--json FILE]
Needs nginx and taskset. Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time

from overhead import LOAD_CORE, NGINX_CONF, NGINX_PROXY, PROXY_CORE, cpu_seconds, written
from parts import Child, Lapwing, arguments, finish, free_port, table, timed

TENSOR_BYTES, PROMPT_BYTES, IDS = 950_000, 220_000, 32_000
OF_NGINX = 1.0
BLOCK = 25  # consecutive requests to one target
PATHS = {"tensor": "/v2/models/m/infer", "prompt": "/v1/chat/completions", "ids": "/v1/completions"}
ANSWERS = {
    "/v2/models/m/infer": {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 4], "data": [1.5, 2.5, 3.5, 4.5]}]},
    "/v1/chat/completions": {
        "id": "1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 50_000, "completion_tokens": 1, "total_tokens": 50_001},
    },
    "/v1/completions": {
        "id": "1",
        "object": "text_completion",
        "model": "m",
        "choices": [{"index": 0, "text": "yes", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 32_000, "completion_tokens": 1, "total_tokens": 32_001},
    },
}
CONFIG = "attribution:\n  expect_spans: never\n"  # the upstream exports no spans


# === the upstream, in a separate process: bodies.py --serve PORT ===


def serve(port):
    """Has a thread for each connection. `/arrived` answers how many bytes of the latest body have arrived."""
    arrived = [0]
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_connection, args=(connection, arrived), daemon=True).start()


def serve_connection(connection, arrived):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    room = memoryview(bytearray(1 << 20))
    answers = {path: json.dumps(answer).encode() for path, answer in ANSWERS.items()}
    with connection, contextlib.suppress(OSError):
        text = b""
        while True:
            while b"\r\n\r\n" not in text:
                got = connection.recv(65536)
                if not got:
                    return
                text += got
            head, _, text = text.partition(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            path = lines[0].split(" ")[1]
            if path == "/arrived":
                answer = str(arrived[0]).encode()
            else:
                fields = dict(line.lower().split(": ", 1) for line in lines[1:])
                length, n = int(fields["content-length"]), len(text)
                arrived[0], text = n, b""
                while n < length:
                    got = connection.recv_into(room)
                    if not got:
                        return
                    n += got
                    arrived[0] = n
                answer = answers[path]
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))


# === the client ===


def tensor_body(size):
    """An inference request of about `size` bytes."""
    rng = random.Random(7)
    width = 64
    rows = size // (width * 20)
    data = [round(rng.uniform(-1, 1), 15) for _ in range(rows * width)]
    return json.dumps({"id": "1", "inputs": [{"name": "x", "shape": [rows, width], "datatype": "FP32", "data": data}]}).encode()


def prompt_body(size):
    """A chat with one long message."""
    rng = random.Random(7)
    words = ["the", "profile", "of", "a", "request", "is", "\"quoted\"", "and\nbroken", "caf\u00e9", "tokens"]
    text = []
    while sum(map(len, text)) + len(text) < size * 0.92:
        text += rng.choices(words, k=200)
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": " ".join(text)}]}).encode()


def ids_body(count):
    """A prompt of `count` token ids."""
    rng = random.Random(7)
    prompt = rng.choices(range(100_000, 128_000), k=count)
    return json.dumps({"model": "m", "max_tokens": 1, "prompt": prompt}, separators=(",", ":")).encode()


def request(kind, body, media="application/json"):
    head = f"POST {PATHS[kind]} HTTP/1.1\r\nhost: m\r\ncontent-type: {media}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Client:
    """One connection."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def read(self):
        """Reads an answer and returns its body."""
        text = b""
        while b"\r\n\r\n" not in text:
            got = self.socket.recv(65536)
            if not got:
                raise SystemExit("the connection was closed before an answer")
            text += got
        head, _, body = text.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise SystemExit(f"the answer is {head[:300]!r}")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        while len(body) < length:
            body += self.socket.recv(65536)
        return body

    def ask(self, message):
        """Sends a request and returns the nanoseconds from the first byte sent to the last byte read."""
        start = time.perf_counter_ns()
        self.socket.sendall(message)
        self.read()
        return time.perf_counter_ns() - start


def measure(n, message, ports, children):
    """By target: p50 and CPU time of the proxy per request of a round with at least `n` requests, in microseconds."""
    took, cpu = {name: [] for name in ports}, dict.fromkeys(ports, 0.0)
    with contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(Client(port)) for name, port in ports.items()}
        for client in clients.values():
            for _ in range(BLOCK):
                client.ask(message)
        while min(map(len, took.values())) < n:
            for name, client in clients.items():
                before = cpu_seconds(children[name].pid) if name in children else 0
                took[name] += [client.ask(message) for _ in range(BLOCK)]
                cpu[name] += cpu_seconds(children[name].pid) - before if name in children else 0
    p50 = {name: statistics.median(values) / 1e3 for name, values in took.items()}
    return {name: {"p50_us": p50[name], "added_us": p50[name] - p50["direct"], "cpu_us": cpu[name] / len(took[name]) * 1e6} for name in ports}


def verdicts_of(kind, rounds):
    """Prints the medians of the rounds, and compares Lapwing with each nginx. Where nginx adds nothing measurable, a round's ratio is infinite."""
    keys = ("p50_us", "added_us", "cpu_us")
    table(["", "p50 µs", "added", "CPU µs/req"], [[name, *(f"{statistics.median(r[name][k] for r in rounds):.0f}" for k in keys)] for name in rounds[0]])
    for name in (n for n in rounds[0] if n.startswith("nginx")):
        ratios = [r["lapwing"]["added_us"] / r[name]["added_us"] if r[name]["added_us"] > 0 else float("inf") for r in rounds]
        ratio = statistics.median(ratios)
        print(f"{kind}: added p50, of {name}'s, by round: {', '.join(f'{one:.2f}' for one in ratios)}")
        yield timed(f"{kind}: added p50, of {name}'s", f"{ratio:.2f}×", f"≤ {OF_NGINX}×", ratio <= OF_NGINX)


def arrived_of(ports, name, message):
    """The share of a message's first half that reaches the upstream while the client holds back the second half."""
    half = len(message) // 2
    head = message.index(b"\r\n\r\n") + 4
    with Client(ports[name]) as client, Client(ports["direct"]) as asker:
        # resets the count, so that the previous body is not mistaken for this one
        asker.ask(b"POST /v2/models/m/infer HTTP/1.1\r\nhost: m\r\ncontent-length: 0\r\n\r\n")
        client.socket.sendall(message[:half])
        end, got = time.monotonic() + 1, 0
        while time.monotonic() < end and got < half - head:
            asker.socket.sendall(b"GET /arrived HTTP/1.1\r\nhost: m\r\n\r\n")
            got = int(asker.read())
            time.sleep(0.005)
        client.socket.sendall(message[half:])
        client.read()
    return got / (half - head)


def profiled(lapwing, n):
    """Lapwing's counts, models and units of each route, which show that it parsed the bodies; otherwise the run is invalid."""
    lapwing.await_count(n)
    return {s["route"]: {"count": s["count"], "model": s["model"], "units": s.get("units")} for s in lapwing.series()}


@contextlib.contextmanager
def targets(options):
    """New processes of all targets: their ports, and the processes of the proxies."""
    with tempfile.TemporaryDirectory(prefix="bodies-") as folder, contextlib.ExitStack() as stack:
        upstream = free_port()
        stack.enter_context(Child([sys.executable, __file__, "--serve", upstream], upstream, LOAD_CORE))
        children = {}
        for name, extra in (("nginx", ""), ("nginx unbuffered", " proxy_request_buffering off;")):
            port = free_port()
            file = name.replace(" ", "-")
            conf = written(folder, f"{file}.conf", NGINX_CONF, name=file, port=port, upstream=upstream, does=NGINX_PROXY + extra)
            children[name] = stack.enter_context(Child(["nginx", "-c", conf], port, PROXY_CORE))
        children["lapwing"] = stack.enter_context(Lapwing(options.lapwing, upstream, core=PROXY_CORE, config=CONFIG))
        yield {"direct": upstream, **{name: child.port for name, child in children.items()}}, children


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--requests", type=int, default=1000, help="the least number of requests with each body to each target (default: 1000)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--unread", action="store_true", help="give the bodies a media type that Lapwing does not read: what forwarding costs by itself")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
    for needed in ("nginx", "taskset"):
        if not shutil.which(needed):
            raise SystemExit(f"{needed} is not installed")
    os.sched_setaffinity(0, {LOAD_CORE})
    bodies = {"tensor": tensor_body(TENSOR_BYTES), "prompt": prompt_body(PROMPT_BYTES), "ids": ids_body(IDS)}
    media = "application/octet-stream" if options.unread else "application/json"
    messages = {kind: request(kind, body, media) for kind, body in bodies.items()}
    n = -(-options.requests // options.rounds)
    rounds, arrived, read = {kind: [] for kind in bodies}, {kind: [] for kind in bodies}, []
    for _ in range(options.rounds):
        with targets(options) as (ports, children):
            for kind, message in messages.items():
                rounds[kind].append(measure(n, message, ports, children))
                arrived[kind].append({name: arrived_of(ports, name, message) for name in ports})
            read.append(profiled(children["lapwing"], len(bodies) * (n + BLOCK + 1)))
    verdicts = []
    for kind, message in messages.items():
        print(f"{kind}: {len(message) / 1e3:.0f} KB, {options.rounds} rounds of {n} requests each way")
        verdicts += verdicts_of(kind, rounds[kind])
        least = {name: min(shares[name] for shares in arrived[kind]) for name in arrived[kind][0]}
        print(f"{kind}: share of half a body that has reached the upstream: " + ", ".join(f"{name} {share:.0%}" for name, share in least.items()) + "\n")
        verdicts.append((f"{kind}: bytes of an incomplete body passed on", f"{least['lapwing']:.0%}", "100%", least["lapwing"] >= 1))
    print(f"parsed by Lapwing in the last round: {json.dumps(read[-1])}\n")
    models = sorted({one["model"] or "" for each in read for one in each.values()})
    verdicts.append(("models that Lapwing read from the bodies", ", ".join(models), "m", models == ["m"] and all(len(each) == len(bodies) for each in read)))
    return finish(options, {"rounds": rounds, "arrived": arrived, "profiled": read}, verdicts)


if __name__ == "__main__":
    sys.exit(main())
