"""Spans by hand, as any exporter may send them, and the receiver they are sent to."""

import gzip
import http.client
import json
import secrets
import time

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2


def span(trace_id, parent_id, name, start_ns, end_ns, own_id=None, kind=1, attributes=()):
    """A span in the JSON form of OTLP; ids in hex."""
    return {
        "traceId": trace_id,
        "spanId": own_id or secrets.token_hex(8),
        "parentSpanId": parent_id,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(end_ns),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes],
    }


def request(spans, service="by-hand"):
    """An export request in the JSON form of OTLP."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def protobuf(message):
    """The same as protobuf; OTLP's JSON has ids in hex where protobuf's JSON has base64."""
    out = trace_service_pb2.ExportTraceServiceRequest()
    copy = json.loads(json.dumps(message))
    for resource in copy["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            ids = [[s.pop(key) for key in ("traceId", "spanId", "parentSpanId")] for s in scope["spans"]]
            scope["ids"] = ids
    all_ids = [ids for r in copy["resourceSpans"] for s in r["scopeSpans"] for ids in s.pop("ids")]
    json_format.ParseDict(copy, out)
    made = [s for r in out.resource_spans for sc in r.scope_spans for s in sc.spans]
    for s, (trace, own, parent) in zip(made, all_ids):
        s.trace_id, s.span_id, s.parent_span_id = (bytes.fromhex(i) for i in (trace, own, parent))
    return out.SerializeToString()


def snake(value):
    """The same JSON with names in snake_case."""
    if isinstance(value, list):
        return [snake(v) for v in value]
    if not isinstance(value, dict):
        return value
    return {"".join(f"_{c.lower()}" if c.isupper() else c for c in key): snake(v) for key, v in value.items()}


def post(port, body, content_type="application/x-protobuf", gzipped=False, path="/v1/traces"):
    """(status, content type, body) of the receiver's answer."""
    headers = {"content-type": content_type}
    if gzipped:
        body, headers["content-encoding"] = gzip.compress(body), "gzip"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.headers.get("content-type"), response.read()
    finally:
        connection.close()


class Asked:
    """A request through Lapwing to a raw server that takes `ms` to answer; what the upstream's exporter would know of it."""

    def __init__(self, lapwing, raw_server, ms=80, path="/head"):
        raw_server.seen.clear()
        self.start_ns = time.time_ns()
        connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=10)
        connection.request("GET", f"{path}?ms={ms}")
        response = connection.getresponse()
        self.headers = response.headers
        self.answer = response.read()
        connection.close()
        assert response.status == 200
        self.end_ns = time.time_ns()
        ((head, _),) = raw_server.seen
        fields = dict(line.lower().split(": ", 1) for line in head.decode("latin-1").split("\r\n")[1:] if line)
        _, self.trace_id, self.span_id, self.flags = fields["traceparent"].split("-")

    def spans(self, *stages, **more):
        """Spans below Lapwing's own: (name, milliseconds from the start, milliseconds to)."""
        ns = lambda ms: self.start_ns + int(ms * 1e6)
        return [span(self.trace_id, self.span_id, name, ns(start), ns(end), **more) for name, start, end in stages]
