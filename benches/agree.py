#!/usr/bin/env python3
"""Do all surfaces show the same number of requests? N of them, counted by the upstream, in /stats, text, protobuf, OTLP and /hdr.

h2load sends --requests requests over HTTP/1.1 to a fixed fast upstream, through Lapwing. When all are profiled, their counts must be
equal: those of the upstream, of h2load, of /stats, of OpenMetrics text, of protobuf (the count of the histogram, and the sum of
its native buckets), of the exponential histograms that a collector got last, of the HdrHistogram log; and the sums of text, protobuf and OTLP. Exchanges that were served and not
profiled, because the queue was full, are a counter of their own, and must make up the difference.

usage: .venv/bin/python benches/agree.py [--lapwing PATH] [--requests N] [--json FILE]
The requirement is --requests 1000000; the default is 50,000. Needs h2load (nghttp2-client). Exit code 1 if anything differs.
"""

import argparse
import base64
import re
import struct
import subprocess
import sys
import time
import urllib.request
import zlib
from pathlib import Path

from parts import ROOT, Child, Lapwing, arguments, finish, free_port

from exposition import ACCEPT, families, text_sum, varint  # in tests/, which parts adds to the path

UPSTREAM = Path(__file__).with_name("fixed_upstream.py")
FAMILY = "lapwing_request_duration_seconds"
DEFLATED, PLAIN = 0x1C849304, 0x1C849303
SETTINGS = """
attribution: {expect_spans: never}
telemetry: {metrics: on, metrics_interval: 1s, endpoint: "%s"}
"""
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(port, path, accept="*/*"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"accept": accept})
    with OPENER.open(request, timeout=60) as response:
        return response.read()


def hdr_count(encoded):
    """The number of values in a histogram of HdrHistogram's V2 encoding: zigzag counts, of which negative ones skip cells."""
    data = base64.b64decode(encoded)
    if int.from_bytes(data[:4], "big") & ~0xF0 == DEFLATED & ~0xF0:
        data = zlib.decompress(data[8:])
    cookie, length = struct.unpack(">II", data[:8])
    assert cookie & ~0xF0 == PLAIN & ~0xF0, hex(cookie)
    at, end, total = 40, 40 + length, 0
    while at < end:
        value, at = varint(data, at)
        total += max(value >> 1 ^ -(value & 1), 0)
    return total


def hdr_total(log):
    """The values of all histograms of totals in an interval log."""
    lines = (line.split(",") for line in log.decode().splitlines() if line.startswith("Tag=total;"))
    return sum(hdr_count(line[-1]) for line in lines)


def sent_points(sink):
    """The points of the totals of answered requests, as the collector got them last."""
    metrics = [
        metric
        for resource in sink.requests["metrics"][-1].resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == FAMILY
    ]
    points = [point for metric in metrics for point in metric.exponential_histogram.data_points]
    return [point for point in points if any(of.key == "result" and of.value.string_value == "answered" for of in point.attributes)]


def await_sent(sink, count, seconds=60):
    """The points whose counts add up to this, or those that came last."""
    end, points = time.monotonic() + seconds, []
    while time.monotonic() < end:
        points = sent_points(sink) if sink.requests["metrics"] else []
        if sum(point.count for point in points) == count:
            break
        time.sleep(0.2)
    return points


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--requests", type=int, default=50_000)
    options = parser.parse_args()

    sys.path.append(str(ROOT / "tests" / "real"))
    from otlp_sink import OtlpSink

    port = free_port()
    with Child([sys.executable, UPSTREAM, port], port), OtlpSink() as sink, Lapwing(options.lapwing, port, config=SETTINGS % sink.url) as lapwing:
        command = ["h2load", "--h1", "-n", str(options.requests), "-c", "16", f"http://127.0.0.1:{lapwing.port}/score"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        succeeded = int(re.search(r"(\d+) succeeded", said)[1])
        dropped = lapwing.get("/stats?window=all")["profiler"]["dropped"]
        lapwing.await_count(options.requests - dropped, seconds=60)
        dropped = lapwing.get("/stats?window=all")["profiler"]["dropped"]

        totals = [one["total"] for one in lapwing.series()]
        text = get(lapwing.admin, "/metrics").decode()
        histograms = [value for labels, value in families(get(lapwing.admin, "/metrics", ACCEPT))[FAMILY][1] if labels["result"] == "answered"]
        sent = await_sent(sink, options.requests - dropped)
        counts = {
            "/stats": sum(one["count"] for one in totals),
            "OpenMetrics text": int(text_sum(text, f"{FAMILY}_count", result="answered")),
            "classic bucket +Inf": int(text_sum(text, f"{FAMILY}_bucket", result="answered", le="+Inf")),
            "protobuf": sum(one["count"] for one in histograms),
            "native buckets": sum(one["zero"] + sum(count for _, count in one["buckets"]) for one in histograms),
            "OTLP": sum(point.count for point in sent),
            "exponential buckets": sum(point.zero_count + sum(point.positive.bucket_counts) for point in sent),
            "/hdr": hdr_total(get(lapwing.admin, "/hdr")),
        }
        sums = (text_sum(text, f"{FAMILY}_sum", result="answered"), sum(one["sum"] for one in histograms), sum(point.sum for point in sent))
        answered = int(get(port, "/count"))
    print(f"{options.requests} requests, {succeeded} succeeded, the upstream answered {answered}, {dropped} were not profiled")
    wanted = options.requests - dropped
    verdicts = [("requests of h2load and of the upstream", f"{succeeded}, {answered}", options.requests, succeeded == answered == options.requests)]
    verdicts += [(f"requests in {where}", count, wanted, count == wanted) for where, count in counts.items()]
    verdicts.append(("sums of text, protobuf and OTLP", ", ".join(f"{one!r} s" for one in sums), "equal", len(set(sums)) == 1))
    figures = {"requests": options.requests, "dropped": dropped, "counts": counts, "sums": sums, "schema": histograms[0]["schema"]}
    return finish(options, figures, verdicts)


if __name__ == "__main__":
    sys.exit(main())
