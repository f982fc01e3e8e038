#!/usr/bin/env python3
"""Do all surfaces show the same number of requests? N of them, counted by the upstream, in /stats, text, protobuf and /hdr.

h2load sends --requests requests over HTTP/1.1 to a fixed fast upstream, through Lapwing. When all are profiled, their counts must be
equal: those of the upstream, of h2load, of /stats, of OpenMetrics text, of protobuf (the count of the histogram, and the sum of
its native buckets), of the HdrHistogram log; and the sums of text, protobuf and /stats. Exchanges that were served and not
profiled, because the queue was full, are a counter of their own, and must make up the difference.

usage: python3 bench/agree.py [--lapwing PATH] [--requests N] [--json FILE]
The requirement is --requests 1000000; the default is 50,000. Needs h2load (nghttp2-client). Exit code 1 if anything differs.
"""

import argparse
import base64
import re
import struct
import subprocess
import sys
import urllib.request
import zlib
from pathlib import Path

from parts import Child, Lapwing, arguments, finish, free_port

from exposition import ACCEPT, families, text_sum, varint  # in tests/, which parts adds to the path

UPSTREAM = Path(__file__).with_name("fixed_upstream.py")
FAMILY = "lapwing_request_duration_seconds"
DEFLATED, PLAIN = 0x1C849304, 0x1C849303
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--requests", type=int, default=50_000)
    options = parser.parse_args()

    port = free_port()
    with Child([sys.executable, UPSTREAM, port], port), Lapwing(options.lapwing, port, config="attribution: {expect_spans: never}\n") as lapwing:
        command = ["h2load", "--h1", "-n", str(options.requests), "-c", "16", f"http://127.0.0.1:{lapwing.port}/score"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        succeeded = int(re.search(r"(\d+) succeeded", said)[1])
        dropped = lapwing.get("/stats?window=all")["profiler"]["dropped"]
        lapwing.await_count(options.requests - dropped, seconds=60)
        dropped = lapwing.get("/stats?window=all")["profiler"]["dropped"]

        totals = [one["total"] for one in lapwing.series()]
        text = get(lapwing.admin, "/metrics").decode()
        histograms = [value for labels, value in families(get(lapwing.admin, "/metrics", ACCEPT))[FAMILY][1] if labels["result"] == "answered"]
        counts = {
            "/stats": sum(one["count"] for one in totals),
            "OpenMetrics text": int(text_sum(text, f"{FAMILY}_count", result="answered")),
            "classic bucket +Inf": int(text_sum(text, f"{FAMILY}_bucket", result="answered", le="+Inf")),
            "protobuf": sum(one["count"] for one in histograms),
            "native buckets": sum(one["zero"] + sum(count for _, count in one["buckets"]) for one in histograms),
            "/hdr": hdr_total(get(lapwing.admin, "/hdr")),
        }
        sums = (text_sum(text, f"{FAMILY}_sum", result="answered"), sum(one["sum"] for one in histograms))
        answered = int(get(port, "/count"))
    print(f"{options.requests} requests, {succeeded} succeeded, the upstream answered {answered}, {dropped} were not profiled")
    wanted = options.requests - dropped
    verdicts = [("requests of h2load and of the upstream", f"{succeeded}, {answered}", options.requests, succeeded == answered == options.requests)]
    verdicts += [(f"requests in {where}", count, wanted, count == wanted) for where, count in counts.items()]
    verdicts.append(("sums of text and protobuf", f"{sums[0]!r} s, {sums[1]!r} s", "equal", sums[0] == sums[1]))
    figures = {"requests": options.requests, "dropped": dropped, "counts": counts, "sums": sums, "schema": histograms[0]["schema"]}
    return finish(options, figures, verdicts)


if __name__ == "__main__":
    sys.exit(main())
