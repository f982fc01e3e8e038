#!/usr/bin/env python3
"""Writes the inputs that fuzzing begins with, made of the captured traffic and the models in tests/fixtures.

usage: .venv/bin/python fuzz/seeds.py FOLDER     writes FOLDER/<target>/<hash>
"""

import hashlib
import json
import pathlib
import struct
import sys

FIXTURES = pathlib.Path(__file__).parents[1] / "tests/fixtures"
MOST_BYTES = 8192
PROTOCOLS = 27
"""How many exchanges `exchange_properties::EXCHANGES` has."""


def body(of):
    """A body as fixtures have it: pieces of text, or of hexadecimal."""
    return b"".join(bytes.fromhex(piece["hex"]) if isinstance(piece, dict) else piece.encode() for piece in of)


def exchanges():
    """The request's and the response's body of every captured exchange."""
    for file in sorted(FIXTURES.rglob("*.exchange.json")):
        captured = json.loads(file.read_text())
        yield body(captured["request"]["body"]), body(captured["response"]["body"])


def otlp():
    """Requests of traces in JSON and, where Google's own reader takes them, in protobuf."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    for file in sorted((FIXTURES / "otlp").rglob("*")):
        if not file.is_file():
            continue
        content = file.read_bytes()
        if file.suffix == ".json":
            yield "otlp_json", content
        elif file.suffix in (".bin", ".pb"):
            yield "otlp_proto", content
    for name, spans in [("forward", 1), ("gen_ai.latency.e2e", 3), ("queue", 8)]:
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        resource.resource.attributes.add(key="service.name").value.string_value = "server"
        resource.resource.attributes.add(key="process.pid").value.int_value = 7
        scope = resource.scope_spans.add()
        scope.scope.name = "vllm"
        for n in range(spans):
            span = scope.spans.add(name=name, trace_id=bytes(range(16)), span_id=bytes([n + 1] * 8), parent_span_id=bytes([9] * 8), kind=n % 6)
            span.start_time_unix_nano, span.end_time_unix_nano, span.flags = 10**18, 10**18 + n, 0x301
            span.attributes.add(key="lapwing.stage").value.string_value = "forward"
            span.attributes.add(key="gen_ai.latency.time_in_queue").value.double_value = 0.25
            span.attributes.add(key="list").value.array_value.values.add().kvlist_value.values.add(key="a")
            span.events.add(name="e", time_unix_nano=1).attributes.add(key="k")
            span.links.add(trace_id=bytes(16), span_id=bytes(8))
        yield "otlp_proto", request.SerializeToString()
        ids = {"traceId": "0123456789abcdef" * 2, "spanId": "0123456789abcdef"}
        text = {"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "m"}}]}, "scopeSpans": [
            {"scope": {"name": "s"}, "spans": [{**ids, "name": name, "kind": "SPAN_KIND_SERVER", "startTimeUnixNano": "1", "endTimeUnixNano": 2,
             "attributes": [{"key": "a", "value": {"arrayValue": {"values": [{"intValue": "3"}]}}}]}] * spans}]}]}  # fmt: skip
        yield "otlp_json", json.dumps(text).encode()


def rest():
    """Requests of the Open Inference Protocol: tensors in the JSON, and behind it."""
    x = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2.5], [3e2, -4]]}
    binary = {"name": "b", "shape": [2], "datatype": "INT64", "parameters": {"binary_data_size": 16}}
    texts = {"name": "t", "shape": [2], "datatype": "BYTES", "data": ["a", "\u00e9"]}
    for inputs in ([x], [x, binary], [binary], [texts], [{**x, "datatype": "BOOL", "data": [True, False, True, True]}]):
        for outputs in (None, [{"name": "y", "parameters": {"binary_data": True}}, {"name": "half", "parameters": {"binary_data": True}}]):
            request = {"id": "1", "parameters": {"timeout": 1000, "binary_data_output": True}, "inputs": inputs}
            text = json.dumps(request | ({"outputs": outputs} if outputs else {})).encode()
            behind = bytes(16) if binary in inputs else b""
            yield struct.pack("<H", len(text) if behind else 65535) + text + behind


def grpc():
    """Messages with raw and with typed contents of every kind."""
    from tritonclient.grpc.service_pb2 import ModelInferRequest

    kinds = ["bool", "int", "int64", "uint", "uint64", "fp32", "fp64", "bytes"]
    datatypes = ["BOOL", "INT32", "INT64", "UINT32", "UINT64", "FP32", "FP64", "BYTES"]
    for kind, datatype in zip(kinds, datatypes):
        request = ModelInferRequest(model_name="m", id="7")
        request.parameters["timeout"].int64_param = 1000
        tensor = request.inputs.add(name="x", datatype=datatype, shape=[2, 1])
        getattr(tensor.contents, f"{kind}_contents").extend([b"a", b"bc"] if kind == "bytes" else [0, 1])
        request.outputs.add(name="y")
        yield request.SerializeToString()
    for width, datatype in [(1, "BOOL"), (2, "FP16"), (4, "FP32"), (8, "INT64")]:
        request = ModelInferRequest(model_name="m")
        request.inputs.add(name="x", datatype=datatype, shape=[3])
        request.raw_input_contents.append(bytes(3 * width))
        yield request.SerializeToString()


def seeds():
    """Every input, with the target that it is for."""
    for number, (request, response) in enumerate(exchanges()):
        share = round(255 * len(request) / max(1, len(request) + len(response)))
        for which in {number % PROTOCOLS, (7 * number + 3) % PROTOCOLS}:
            yield "exchange", bytes([which, 5, share]) + request + response
        for side in (request, response):
            kind = "grpc" if side[:1] == b"\0" else "sse" if side.startswith((b"data:", b"event:", b"id:")) else "json"
            yield kind, side
            if kind == "grpc":
                yield "proto", side[5:]
            else:
                yield "amend", side
    yield from otlp()
    yield from (("engine_rest", one) for one in rest())
    yield from (("engine_grpc", one) for one in grpc())
    yield from (("proto", one) for one in grpc())
    yield from (("onnx", file.read_bytes()) for file in sorted((FIXTURES / "plans").glob("*.onnx")))


def main():
    """Writes each input once."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if sys.argv[1:] in (["--help"], ["-h"]) else 2
    written = {}
    for target, content in seeds():
        if not content or len(content) > MOST_BYTES:
            continue
        folder = pathlib.Path(sys.argv[1]) / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha1(content).hexdigest()).write_bytes(content)
        written[target] = written.get(target, 0) + 1
    print(", ".join(f"{target}: {count}" for target, count in sorted(written.items())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
