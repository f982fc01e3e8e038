"""What `/metrics` says, from its protobuf and from its text, as plain Python values; only the standard library is used."""

import re
import struct

ACCEPT = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
KINDS = {0: "counter", 1: "gauge", 4: "histogram"}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """A message's fields by number: a list of integers, 8-byte strings (doubles) or bytes (texts, messages, packed numbers)."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            length, at = (8, at) if key & 7 == 1 else varint(data, at)
            value, at = data[at : at + length], at + length
        found.setdefault(key >> 3, []).append(value)
    return found


def double(found, number):
    return struct.unpack("<d", found[number][0])[0] if number in found else 0.0


def signed(value):
    """The number that zigzag encodes."""
    return value >> 1 ^ -(value & 1)


def labels_of(found, number=1):
    pairs = map(fields, found.get(number, []))
    return {pair[1][0].decode(): pair.get(2, [b""])[0].decode() for pair in pairs}


def histogram_of(found):
    deltas, at, packed = [], 0, b"".join(found.get(13, []))
    while at < len(packed):
        delta, at = varint(packed, at)
        deltas.append(signed(delta))
    counts, spans = [], [fields(span) for span in found.get(12, [])]
    index = count = 0
    for span in spans:
        index += signed(span.get(1, [0])[0])
        for _ in range(span[2][0]):
            count += deltas.pop(0)
            counts.append((index, count))
            index += 1
    assert not deltas
    return {
        "count": found.get(1, [0])[0],
        "sum": double(found, 2),
        "classic": [(double(b, 2), b.get(1, [0])[0]) for b in map(fields, found.get(3, []))],
        "schema": signed(found.get(5, [0])[0]),
        "zero": found.get(7, [0])[0],
        "buckets": counts,
        "exemplars": [(labels_of(e), double(e, 2)) for e in map(fields, found.get(16, []))],
        "since": fields(found[15][0]).get(1, [0])[0],
    }


def families(data):
    """Each family's kind and its samples, (labels, value), by its name."""
    found, at = {}, 0
    while at < len(data):
        length, at = varint(data, at)
        family, at = fields(data[at : at + length]), at + length
        kind = KINDS[family.get(3, [0])[0]]
        samples = []
        for metric in map(fields, family[4]):
            if kind == "histogram":
                value = histogram_of(fields(metric[7][0]))
            else:
                value = double(fields(metric[3 if kind == "counter" else 2][0]), 1)
            samples.append((labels_of(metric), value))
        found[family[1][0].decode()] = (kind, samples)
    return found


def text_sum(text, sample, **labels):
    """The sum of a sample over all its lines in text that have these labels."""
    total = 0.0
    for line in text.splitlines():
        if line.startswith((sample + "{", sample + " ")):
            own = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line.split(" # ")[0]))
            if labels.items() <= own.items():
                total += float(line.split(" # ")[0].rsplit(" ", 1)[1])
    return total
