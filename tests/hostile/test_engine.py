"""The engine against requests whose bytes are few and whose meaning is large. The laws: no input of at most 1 MB raises the
resident memory by more than 64 MiB, each refusal says why and is counted, and the next good request is answered."""

import json
import socket

import pytest
from engine import Engine, zipped
from fake import await_true
from payloads import MODEL, ROW, field, varint

MIB = 64
INPUT = json.dumps(ROW).encode()
NUMBERS = 500_000


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    with Engine(tmp_path_factory.mktemp("engine")) as engine:
        yield engine.wait_ready()
        assert engine.process.poll() is None, "the engine ended"


@pytest.fixture(autouse=True)
def still_answers(engine):
    yield
    assert engine.infer({"inputs": [ROW]}).status == 200
    assert await_true(lambda: engine.metric("lapwing_engine_body_bytes") == 0), "all room is given back"


TYPED = field(5, field(1, b"x") + field(2, b"INT64") + field(3, varint(8_000_000)) + field(5, field(3, bytes(8_000_000))))
BOUND = "above the bound, which is"
# name, message, whether it is compressed, status, part of its text, bound
GRPC = [
    ("4 M empty inputs", MODEL + field(5, b"") * 4_000_000, True, "INVALID_ARGUMENT", f"inputs: 1025 is {BOUND} 1024", "tensors"),
    ("400 K empty inputs",
     MODEL + field(5, b"") * 400_000, False, "INVALID_ARGUMENT", f"inputs: 1025 is {BOUND} 1024", "tensors"),
    ("400 K outputs", MODEL + field(6, b"") * 400_000, False, "INVALID_ARGUMENT", f"outputs: 1025 is {BOUND} 1024", "tensors"),
    ("400 K raw tensors",
     MODEL + field(7, b"") * 400_000, False, "INVALID_ARGUMENT", f"raw_input_contents: 1025 is {BOUND}", "tensors"),
    ("400 K parameters",
     MODEL + field(4, b"") * 400_000, False, "INVALID_ARGUMENT", f"parameters: 65 is {BOUND} 64", "parameters"),
    ("parameters of an input",
     MODEL + field(5, field(4, b"") * 65), False, "INVALID_ARGUMENT", "inputs[0].parameters: 65", "parameters"),
    ("parameters of an output",
     MODEL + field(6, field(2, b"") * 65), False, "INVALID_ARGUMENT", "outputs[0].parameters: 65", "parameters"),
    ("900 K axes",
     MODEL + field(5, field(3, bytes(900_000))), False, "INVALID_ARGUMENT", f"inputs[0].shape: 900000 is {BOUND} 32", "axes"),
    ("blobs", MODEL + field(5, field(5, field(8, b"") * 400_000)), False, "RESOURCE_EXHAUSTED", "which is the bound; send it uncompressed", "expansion"),
    ("a long id", MODEL + field(3, b"i" * 900_000), False, "INVALID_ARGUMENT", f"id: 900000 is {BOUND} 1024", "id"),
    ("typed zeros", MODEL + TYPED, True, "RESOURCE_EXHAUSTED", "which is the bound; send it uncompressed", "expansion"),
    ("zeros",
     MODEL + field(7, bytes(60 << 20)), True, "RESOURCE_EXHAUSTED", "which is the bound; send it uncompressed", "expansion"),
]


@pytest.mark.parametrize("case", GRPC, ids=[case[0] for case in GRPC])
def test_grpc(engine, case):
    _, message, packed, code, text, bound = case
    counter = f'lapwing_engine_bounds_exceeded_total{{bound="{bound}"}}'
    before = engine.metric(counter)
    (got, told), mib = engine.peak_of(lambda: engine.grpc(message, packed))
    assert got == code and text in told, (got, told)
    assert mib < MIB, f"{mib:.0f} MiB"
    assert engine.metric(counter) == before + 1


def test_an_error_quotes_a_bounded_part_of_the_message(engine):
    (code, told), mib = engine.peak_of(lambda: engine.grpc(field(1, b"n" * 900_000)))
    assert code == "NOT_FOUND" and len(told.encode()) <= 1024 and told.endswith("…")
    assert mib < MIB, f"{mib:.0f} MiB"
    got = engine.infer({"inputs": [dict(ROW, datatype="T" * 900_000)]})
    assert got.status == 400 and len(got.body) < 1100


def body(inputs=INPUT, more=b""):
    return b'{"inputs":[' + inputs + b"]" + more + b"}"


ASKED = b",".join([b'{"name":"logits"}'] * 40_000)
LIGHT = b'{"name":"","shape":[],"datatype":""}'
SHAPE = b'{"name":"x","datatype":"FP32","data":[0],"shape":['
# name, body, its headers, status, part of the text
REST = [
    ("the same output 40,000 times", body(more=b',"outputs":[' + ASKED + b"]"), {}, 400, f"outputs: 40000 is {BOUND} 1024"),
    ("an output twice",
     body(more=b',"outputs":[{"name":"logits"},{"name":"logits"}]'), {}, 400, "outputs[1] (logits): is there already"),
    ("an input twice", body(INPUT + b"," + INPUT), {}, 400, "inputs[1] (x): is there already"),
    ("25 K inputs", body(b",".join([LIGHT] * 25_000)), {}, 400, f"inputs: 25000 is {BOUND} 1024"),
    ("500 K axes", body(SHAPE + b"1," * 499_999 + b"1]}"), {}, 400, f"shape: 500000 is {BOUND} 32"),
    ("a shape beyond counting", body(SHAPE + b"4294967296,4294967296,4]}"), {}, 400, "has more elements than can be counted"),
    ("a shape of 2^62", body(SHAPE + b"4611686018427387904]}"), {}, 400, "shape"),
    ("nested 500 K deep",
     body(b'{"name":"x","datatype":"FP32","shape":[1],"data":' + b"[" * 400_000 + b"]" * 400_000 + b"}"),
     {}, 400, "nor nested as the shape is"),
    ("a long id", body(more=b',"id":"' + b"i" * 900_000 + b'"'), {}, 400, f"id: 900000 is {BOUND} 1024"),
    ("a sum of binary sizes beyond counting",
     body(b'{"name":"x","datatype":"FP32","shape":[1,64],"parameters":{"binary_data_size":18446744073709551615}}'),
     {}, 400, "binary_data_size"),
    ("60 MiB of spaces, compressed",
     zipped(body(more=b" " * (60 << 20))), {"content_encoding": "gzip"}, 413, "which is the bound"),
    ("8 M numbers, compressed",
     zipped(b'{"inputs":[{"name":"x","datatype":"INT64","shape":[7000000],"data":[' + b"0," * 6_999_999 + b"0]}]}"),
     {"content_encoding": "gzip"}, 413, "which is the bound"),
]


@pytest.mark.parametrize("case", REST, ids=[case[0] for case in REST])
def test_rest(engine, case):
    _, sent, headers, status, text = case
    assert len(sent) <= 1 << 20, "an attack is at most 1 MB"
    got, mib = engine.peak_of(lambda: engine.infer(sent, **headers))
    assert got.status == status and text in json.loads(got.body)["error"], (got.status, got.body[:300])
    assert mib < MIB, f"{mib:.0f} MiB"


def test_numbers_in_json_are_served_as_before(engine):
    rows = NUMBERS // 64
    sent = {"inputs": [dict(ROW, shape=[rows, 64], data=[0] * (rows * 64))]}
    assert engine.infer(sent).status == 200
    assert engine.infer(zipped(json.dumps(sent).encode()), content_encoding="gzip").status == 200


def test_bodies_share_a_budget(tmp_path):
    """12 clients that hold back the last MB of 63 MB: 764 MiB before there was a budget."""
    size, held = 63 << 20, []
    head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: m\r\nContent-Length: {size}\r\n\r\n".encode()
    with Engine(tmp_path, body_budget="128MiB") as engine:
        engine.wait_ready()
        before = engine.memory_kib("VmRSS")
        answers = []
        for _ in range(12):
            client = socket.create_connection(("127.0.0.1", engine.port), timeout=20)
            held.append(client)
            try:
                client.sendall(head)
                for _ in range(62):
                    client.sendall(bytes(1 << 20))
                client.settimeout(0.2)
                answers.append(client.recv(4096))
            except TimeoutError:
                answers.append(b"")
            except OSError:  # refused while it was sending
                answers.append(b"cut")
        waiting = [answer for answer in answers if not answer]
        refused = [answer for answer in answers if b" 503 " in answer.split(b"\r\n")[0] and b"retry-after: 1" in answer]
        assert len(waiting) in (1, 2) and len(waiting) + len(refused) + answers.count(b"cut") == 12
        assert engine.metric('lapwing_engine_bounds_exceeded_total{bound="body_budget"}') == 12 - len(waiting)
        assert engine.metric("lapwing_engine_body_bytes") <= 128 << 20
        grown = (engine.memory_kib("VmRSS") - before) / 1024
        assert grown < 128 + MIB, f"{grown:.0f} MiB"
        for client in held:
            client.close()
        assert await_true(lambda: engine.metric("lapwing_engine_body_bytes") == 0)
        assert engine.infer({"inputs": [ROW]}).status == 200
