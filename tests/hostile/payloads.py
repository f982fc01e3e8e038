"""Messages that are small on the wire and large in memory: protobuf by hand, messages of spans, calls of the engine."""


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, *parts):
    body = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(body)) + body


# === OTLP


def spans(*parts):
    """One message: a resource with one scope."""
    return field(1, field(2, *parts))


def one_span(*parts):
    return spans(field(2, field(1, b"\7" * 16), field(2, b"\1" * 8), *parts))


def timed_span(number):
    latency = field(9, field(1, b"gen_ai.latency.e2e"), field(2, b"\x21" + b"\0" * 8))
    return field(2, field(1, b"\7" * 16), field(2, number.to_bytes(8, "big")), field(5, b"llm_request"), latency)


def resource(attributes, n):
    """Empty attributes of a resource, and spans under it that have to be read with them."""
    return field(1, field(1, b"\x0a\0" * attributes), field(2, *map(timed_span, range(1, n + 1))))


def nested(depth):
    value = b""
    for _ in range(depth):
        value = field(5, field(1, value))
    return one_span(field(9, field(1, b"k"), field(2, value)))


def listed(path, element, n):
    """JSON with a list of elements at the end of a path."""
    return ("".join(f'{{"{key}":[' for key in path) + ",".join([element] * n) + "]}" * len(path)).encode()


# === the engine

ROW = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0] * 64}
"""The input of a row of the digits."""
MODEL = field(1, b"m")
"""The beginning of a `ModelInfer` for the model `m`."""
