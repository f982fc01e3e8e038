#!/usr/bin/env python3
"""What a scrape costs: milliseconds, processor time and bytes of /metrics in each of its formats, with thousands of time series.

An upstream that reports five stages answers requests on --routes routes, --requests each. Then /metrics is asked --scrapes times in each
format, one after the other, over one connection; and as many OTLP requests go to a collector, one a second. A time series is what Prometheus stores: each line of the text, and of the protobuf
each counter, gauge and native histogram. The bound is on the protobuf: 5,000 time series within 100 ms.

usage: python3 benches/scrape.py [--lapwing PATH] [--routes N] [--requests N] [--scrapes N] [--json FILE]
Exit code 3, as a clock decides, if the bound is missed.
"""

import argparse
import http.client
import os
import statistics
import sys
import time
from pathlib import Path

from counting_collector import CountingCollector
from parts import Child, Lapwing, arguments, finish, free_port, table, timed

from exposition import ACCEPT, families  # in tests/, which parts adds to the path

BOUND_MS, BOUND_SERIES = 100, 5_000
FORMATS = {"protobuf, native and classic": ACCEPT, "OpenMetrics text": "application/openmetrics-text", "text 0.0.4": "text/plain"}
UPSTREAM = Path(__file__).with_name("fixed_upstream.py")
CONFIG = "metrics: {{max_series: {n}, max_routes: {n}, classic_buckets: {classic}}}\nattribution: {{expect_spans: never}}\n"
OTLP = 'telemetry: {{metrics: on, metrics_interval: 1s, endpoint: "{url}"}}\n'


def name(n):
    """A path without digits, which would be taken for an id."""
    return "/score/" + "".join(chr(ord("a") + n // 26**place % 26) for place in range(3))


def load(lapwing, routes, requests):
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
    for _ in range(requests):
        for route in range(routes):
            connection.request("GET", name(route))
            connection.getresponse().read()
    connection.close()
    counted = lapwing.await_count(routes * requests)
    if counted != routes * requests:
        raise SystemExit(f"{counted} requests are counted instead of {routes * requests}")


def series_of(body, accept):
    """How many time series Prometheus makes of an answer. Classic buckets of a native histogram are not stored."""
    if accept == ACCEPT:
        return sum(len(samples) for _, samples in families(body).values())
    return sum(not line.startswith(b"#") for line in body.splitlines())


def cpu_ms(pid):
    """Processor time of a process since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1e3 / os.sysconf("SC_CLK_TCK")


def scrape(lapwing, accept, times):
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.admin, timeout=30)
    took, before = [], cpu_ms(lapwing.pid)
    for _ in range(times):
        start = time.perf_counter()
        connection.request("GET", "/metrics", headers={"accept": accept})
        response = connection.getresponse()
        body = response.read()
        took.append((time.perf_counter() - start) * 1e3)
        if response.status != 200:
            raise SystemExit(f"/metrics: {response.status} {body[:200]!r}")
    connection.close()
    cpu = (cpu_ms(lapwing.pid) - before) / times
    return {"cpu_ms": cpu, "ms": statistics.median(took), "max_ms": max(took), "bytes": len(body), "series": series_of(body, accept)}


def export(lapwing, collector, times, series):
    """The same figures of OTLP requests; only the processor's time, because nobody waits for them."""

    def await_requests(count):
        end = time.monotonic() + 30 + 2 * times
        while len(collector.sizes) < count:
            if time.monotonic() > end:
                raise SystemExit(f"{len(collector.sizes)} requests with metrics came instead of {count}")
            time.sleep(0.005)

    first = len(collector.sizes) + 1
    await_requests(first)
    cpu = cpu_ms(lapwing.pid)
    await_requests(first + times)
    return {"series": series, "bytes": collector.sizes[-1], "cpu_ms": (cpu_ms(lapwing.pid) - cpu) / times}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--routes", type=int, default=200)
    parser.add_argument("--requests", type=int, default=50, help="requests on each route")
    parser.add_argument("--scrapes", type=int, default=21, help="scrapes in each format")
    options = parser.parse_args()

    formats = {}
    upstream_port = free_port()
    with Child([sys.executable, UPSTREAM, upstream_port], upstream_port):
        for classic in ("on", "off"):
            config = CONFIG.format(n=options.routes + 8, classic=classic)
            with Lapwing(options.lapwing, upstream_port, config=config) as lapwing:
                load(lapwing, options.routes, options.requests)
                if classic == "off":
                    formats["protobuf, native only"] = scrape(lapwing, ACCEPT, options.scrapes)
                    break
                for what, accept in FORMATS.items():
                    formats[what] = scrape(lapwing, accept, options.scrapes)
        with CountingCollector() as collector:
            config = CONFIG.format(n=options.routes + 8, classic="off") + OTLP.format(url=collector.url)
            with Lapwing(options.lapwing, upstream_port, config=config) as lapwing:
                load(lapwing, options.routes, options.requests)
                formats["OTLP, cumulative"] = export(lapwing, collector, options.scrapes, formats["protobuf, native only"]["series"])

    def shown(figures, name):
        return f"{figures[name]:.1f} ms" if name in figures else "-"

    rows = [
        (what, f["series"], f"{f['bytes'] / 1024:,.0f} KiB", *(shown(f, name) for name in ("cpu_ms", "ms", "max_ms")))
        for what, f in formats.items()
    ]
    table(("format", "time series", "bytes", "processor", "median", "longest"), rows)
    verdicts = []
    for what, figures in formats.items():
        if what.startswith("protobuf"):
            allowed = BOUND_MS * max(1, figures["series"] / BOUND_SERIES)
            verdicts.append(timed(what, f"{figures['ms']:.1f} ms for {figures['series']} time series", f"{allowed:.0f} ms", figures["ms"] <= allowed))
    return finish(options, {"formats": formats}, verdicts)


if __name__ == "__main__":
    sys.exit(main())
