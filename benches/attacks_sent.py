"""The attacks of benches/attacks.py: each with what it cost before it was mended, and what must be seen now."""

import gzip
import itertools
import socket
import threading
import time

import numpy as np
from attacks import Models, attack, engine, post, proxy
from crafted import node
from payloads import MODEL, ROW, field, listed, one_span, resource, spans
from wire import Closed, held

PROTOBUF, JSON = "application/x-protobuf", "application/json"
LONG = "x" * 60_000
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
HINT = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
HALF = b"GET /metrics HTTP/1.1\r\nHost:"


def anything(peer):
    while True:
        peer.request()
        peer.send(OK)


def only_real(peer):
    while True:
        peer.send(OK if peer.request().target.startswith(("/v2/models/real", "/warm")) else NOT_FOUND)


def ask_all(target, requests):
    with target.client() as client:
        for method, path in requests:
            client.send(f"{method} {path} HTTP/1.1\r\nHost: m\r\nContent-Length: 0\r\n\r\n")
            client.response(method)


def pipelined(target, paths, depth=64):
    """Requests for these paths, many on their way at once. Returns how many were answered."""
    answered, paths = 0, iter(paths)
    with target.client() as client:
        while some := list(itertools.islice(paths, depth)):
            client.send("".join(f"POST {path} HTTP/1.1\r\nHost: m\r\nContent-Length: 0\r\n\r\n" for path in some))
            answered += sum(client.response("POST").status == 200 for _ in some)
    return answered


# === names


def scrape(target):
    size = len(target.get("/metrics"))
    target.get("/stats")
    return f"a scrape of {size / 1e6:.1f} MB", size < 8e6


@attack("20 models of 60 KB", "439 MiB, a scrape of 194 MB", proxy(anything), inputs=20)
def long_models(target):
    ask_all(target, [("GET", f"/v2/models/{n}{LONG}") for n in range(20)])
    time.sleep(0.7)
    return scrape(target)


@attack("100 models of 60 KB", "1.5 GB, a scrape of 968 MB", proxy(anything), inputs=100)
def more_long_models(target):
    ask_all(target, [("GET", f"/v2/models/{n}{LONG}") for n in range(100)])
    time.sleep(0.7)
    return scrape(target)


@attack("20 verbs of 60 KB", "as the models", proxy(anything), inputs=20)
def long_verbs(target):
    ask_all(target, [("POST", f"/v1/models/m:{n}{LONG}") for n in range(20)])
    time.sleep(0.7)
    return scrape(target)


@attack("20 methods of 60 KB", "as the models", proxy(anything), inputs=20)
def long_methods(target):
    ask_all(target, [(f"M{n}{LONG}", "/a") for n in range(20)])
    time.sleep(0.7)
    return scrape(target)


@attack("250 paths and 150 models that nobody knows", "a real model is counted as `other` until restart", proxy(only_real), inputs=401)
def junk_names(target):
    ask_all(target, [("GET", f"/junk-{n:x}{'abc'[n % 3]}") for n in range(250)])
    ask_all(target, [("POST", f"/v2/models/junk{n}/infer") for n in range(150)])
    ask_all(target, [("POST", "/v2/models/real/infer")])
    end = time.monotonic() + 5
    while not (known := any(s["model"] == "real" for s in target.stats()["series"])) and time.monotonic() < end:
        time.sleep(0.1)
    return ("the real model has its series" if known else "the real model is `other`"), known


@attack("distinct names without end", "the tables are full until restart", proxy(anything), inputs=0)
def names_without_end(target):
    answered = pipelined(target, (f"/v2/models/m-{n:x}/infer" for n in range(target.names)))
    return f"{answered} names answered", answered == target.names


# === spans

IN_SPAN = ("resourceSpans", "scopeSpans", "spans")


def send_spans(target, body, kind, expected):
    packed = gzip.compress(body, 9)
    status, _ = post(target.otlp_http, packed, kind, content_encoding="gzip")
    return f"{status} to {len(packed):,} bytes", status == expected


@attack("2,090,000 empty spans, in gzip", "1,079 MiB, the admin port stalls for 1.1 s", proxy(anything))
def empty_spans(target):
    return send_spans(target, spans(b"\x12\0" * 2_090_000), PROTOBUF, 200)


@attack('`"spans":[{},{}…]`, in gzip', "671 MiB", proxy(anything))
def empty_spans_in_json(target):
    return send_spans(target, listed(IN_SPAN, "{}", 1_390_000), JSON, 200)


@attack("20,000 spans under 1.1 M empty attributes", "the control plane stops for 101 s", proxy(anything))
def wide_resource(target):
    return send_spans(target, resource(1_100_000, 20_000), PROTOBUF, 413)


@attack("2,090,000 empty attributes of one span", "(a sibling)", proxy(anything))
def wide_span(target):
    return send_spans(target, one_span(b"\x4a\0" * 2_090_000), PROTOBUF, 200)


@attack("16,000 spans under 32,000 empty attributes", "(a sibling, just within the bounds)", proxy(anything))
def widest_resource(target):
    return send_spans(target, resource(32_000, 16_000), PROTOBUF, 200)


@attack("the same during 20,000 requests", "`/livez` stops for 19 s, 15,904 exchanges lost", proxy(anything), inputs=20_001)
def wide_resource_amid_requests(target):
    sender = threading.Thread(target=send_spans, args=(target, resource(32_000, 16_000), PROTOBUF, 200))
    sender.start()
    answered = pipelined(target, ["/m"] * 20_000)
    sender.join()
    time.sleep(0.7)
    lost = target.metric('lapwing_exchanges_dropped_total{reason="channel_full"}')
    return f"{answered} answered, {lost:.0f} lost", answered == 20_000 and lost == 0


@attack("64 idle connections to the OTLP receiver", "no spans for 300 s", proxy(anything), inputs=64)
def idle_exporters(target):
    waiting = held(target.otlp_http, 64, b"") + held(target.otlp_grpc, 64, b"")
    began = time.monotonic()
    status, _ = post(target.otlp_http, spans(b"\x12\0"), PROTOBUF)
    took = time.monotonic() - began
    for sock in waiting:
        sock.close()
    return f"{status} within {took * 1e3:.0f} ms", status == 200 and took < 5


# === the admin port


@attack("1,132 half heads, 1,024 descriptors", "the data plane serves nobody", proxy(anything, descriptors=1024), inputs=1132)
def half_heads(target):
    waiting = held(target.admin, 1132, HALF)
    served = sum(target.get_path("/served").status == 200 for _ in range(20))
    alive = target.get("/livez") == b"alive\n"
    for sock in waiting:
        sock.close()
    return f"{served} of 20 served", served == 20 and alive


def many_series(target):
    long = "a-segment-of-some-length" * 2
    pipelined(target, [f"/{long}/{long}-{n}" for n in range(250)])
    time.sleep(1)
    target.get("/metrics")


@attack("60 scrapers that do not read", "493 MiB", proxy(anything, prepare=many_series), inputs=60)
def deaf_scrapers(target):
    waiting = held(target.admin, 60, b"GET /metrics HTTP/1.1\r\nHost: m\r\n\r\n" * 2, rcvbuf=4096)
    time.sleep(1)
    alive = target.get("/livez") == b"alive\n"
    for sock in waiting:
        sock.close()
    return "`/livez` answers", alive


# === the data plane


def hints_without_end(peer):
    peer.request()
    for _ in range(3200):
        peer.send(HINT * 64)
    peer.send(OK)
    peer.upstream.released.set()
    anything(peer)


@attack("204,800 × 103 to a client that does not read", "221 MiB and growing", proxy(anything), inputs=204_800)
def interim_responses(target):
    target.up.scripts = [hints_without_end] * 64
    target.up.live_before = list(target.up.live)
    for sock in target.up.live_before:
        sock.shutdown(socket.SHUT_RDWR)  # the next request needs a new connection
    time.sleep(0.1)
    with target.client(rcvbuf=4096) as client:
        client.send("GET /x HTTP/1.1\r\nHost: m\r\n\r\n")
        read = target.up.released.wait(60)
        return "the upstream is read, the answer comes", read and client.response().status == 200


@attack("a response head of 300 KB", "it passes", proxy(anything))
def long_answer(target):
    def script(peer):
        while True:
            target_of = peer.request().target
            peer.send(OK.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * 300_000 + b"\r\n\r\n") if target_of == "/x" else OK)

    target.up.scripts = [script] * 64
    for sock in list(target.up.live):
        sock.shutdown(socket.SHUT_RDWR)
    time.sleep(0.1)
    status = target.get_path("/x").status
    return f"{status}", status == 502


@attack("a client leaves an upload under back-pressure", "in flight 7 s later", proxy(anything))
def left_upload(target):
    target.up.scripts = [lambda peer: (peer.head(), peer.upstream.released.wait(20))] * 64
    for sock in list(target.up.live):
        sock.shutdown(socket.SHUT_RDWR)
    time.sleep(0.1)
    client = target.client().send("POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 64000000\r\n\r\n")
    client.sock.settimeout(0.5)
    try:
        while True:
            client.send(bytes(65536))
    except OSError:
        pass  # nobody takes more
    client.reset()  # an end would wait behind what nobody takes
    began = time.monotonic()
    while (left := target.metric("lapwing_requests_in_flight")) and time.monotonic() - began < 15:
        time.sleep(0.2)
    return f"in flight for {time.monotonic() - began:.1f} s", not left and time.monotonic() - began < 5


@attack("101 uploads at 2 B/s, `max_in_flight` 100", "everybody is shed", proxy(anything, max_in_flight=100, client_min_rate="1KiB"), inputs=101)
def slow_uploads(target):
    head = b"POST /slow HTTP/1.1\r\nHost: m\r\nContent-Length: 100000\r\n\r\nx"
    slow, over = held(target.port, 101, head), threading.Event()

    def drip():
        while not over.wait(0.5):
            for sock in slow:
                try:
                    sock.sendall(b"x")
                except OSError:
                    pass  # it gave way

    threading.Thread(target=drip, daemon=True).start()
    time.sleep(7)
    served = 0
    for _ in range(20):
        try:
            served += target.get_path("/served").status == 200
        except Closed:
            pass
    over.set()
    for sock in slow:
        sock.close()
    return f"{served} of 20 others served", served == 20


# === the engine


@attack("4 M empty inputs over gRPC, in gzip", "1.88 GB", engine)
def empty_inputs(target):
    code, _ = target.grpc(MODEL + field(5, b"") * 4_000_000, packed=True)
    return code, code == "INVALID_ARGUMENT"


@attack("the same output 40,000 times", "434 MB out of 826 KB", engine)
def one_output(target):
    asked = [{"name": "logits"}] * 40_000
    got = target.infer({"inputs": [ROW], "outputs": asked})
    return f"{got.status}, {len(got.body)} bytes", got.status == 400


# `engine.body_budget` is 256 MiB, and a buffer that grows has its old pages for a moment
@attack("12 clients hold back the last of 63 MB", "764 MiB, and 1,024 may", engine, inputs=12, mib=2 * 256 + 64)
def held_back(target):
    size, waiting, clients = 63 << 20, 0, []
    for _ in range(12):
        client = socket.create_connection(("127.0.0.1", target.port), timeout=20)
        clients.append(client)
        try:
            client.sendall(f"POST /v2/models/m/infer HTTP/1.1\r\nHost: m\r\nContent-Length: {size}\r\n\r\n".encode())
            for _ in range(62):
                client.sendall(bytes(1 << 20))
            client.settimeout(0.2)
            client.recv(4096)
        except TimeoutError:
            waiting += 1
        except OSError:
            pass  # refused while it was sending
    held_bytes = target.metric("lapwing_engine_body_bytes")
    for client in clients:
        client.close()
    return f"{waiting} wait, {held_bytes / (1 << 20):.0f} MiB of bodies", held_bytes <= 256 << 20


# === models

ONE = ("one", np.ones((1, 1, 1, 4), np.float32))
SUM = node("Add", ["x", "s"], "y")
PADS = ("pads", np.array([0] * 7 + [1 << 33], np.int64))
SCALES = ("scales", np.array([1, 1, 1e9, 1e9], np.float32))
MODELS = [
    ("a model that pads to 2³³", "the process is aborted", "Pad", [node("Pad", ["one", "pads"], "s"), SUM], [ONE, PADS]),
    ("a model that resizes by 10⁹", "the process is aborted", "Resize", [node("Resize", ["one", "", "scales"], "s"), SUM], [ONE, SCALES]),
    ("a model with `perm=[0,0]`", "3.6 GB", "perm", [node("Transpose", ["x"], "y", perm=[0, 0])]),
]


def refused(name, before, told, *model):
    """The error names what asks for too much."""

    @attack(name, before, Models)
    def load(target):
        ended = target.inspect(*model)
        return f"an error, exit code {ended.code}", ended.code == 1 and told in ended.text and "panicked" not in ended.text, ended


for of in MODELS:
    refused(*of)


# it ends after `engine.load_time`, 10 s of processor time; reading the file, and starting, come before that
@attack("a model of 20,000 nodes", "24 s", Models, mib=2600, control_ms=15_000)
def many_nodes(target):
    nodes = [node("Add", ["x" if i == 0 else f"n{i - 1}", "x"], f"n{i}" if i < 19_999 else "y") for i in range(20_000)]
    ended = target.inspect(nodes)
    return "refused by `engine.load_time`" if "load_time" in ended.text else f"exit code {ended.code}", ended.code in (0, 1), ended


