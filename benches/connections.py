#!/usr/bin/env python3
"""What client connections cost: Lapwing with all profiling on beside nginx, with the same upstream, in one run.

Memory: --connections connections are opened, make one request each, and are idle from then on; resident memory per connection is taken
before their request, after it, and when they have been idle for 5 seconds. While they are idle, --busy busy connections are measured
in turn with as many of a second process that has no others: idle ones must not slow them down. Then all are closed.
Opening: CPU microseconds per request where each request has a connection of its own, and per request on connections that stay.
Proxies run on core 0; the upstream (nginx, fixed answers) and the load (this file, wrk) on core 1.

usage: python3 benches/connections.py [--lapwing PATH] [--connections N] [--busy N] [--rounds N] [--json FILE]
Needs wrk, nginx and taskset, and a limit of descriptors (ulimit -Hn) above the number of connections. Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import contextlib
import os
import resource
import selectors
import shutil
import socket
import statistics
import tempfile
import time

from overhead import LOAD_CORE, NGINX_CONF, NGINX_PROXY, PROXY_CORE, cpu_seconds, post_script, profiling, rss_mib, tensors, wrk, written
from parts import Child, Lapwing, arguments, finish, free_port, resident, table, timed

IDLE_KIB, LEFT_MIB, SLOWER = 4, 5, 1.1
REST_S = 5
BUSY_ROUNDS = 7


class Crowd:
    """Many client connections, driven from one thread."""

    def __init__(self, port, n, request):
        self.sockets, self.request = [], request
        for _ in range(n):
            self.sockets.append(socket.create_connection(("127.0.0.1", port), 10))

    def ask(self, at_once=64):
        """One request on each connection; an answer comes in one piece or its end does."""
        waiting, todo = selectors.DefaultSelector(), iter(self.sockets)
        open_now = 0
        while True:
            while open_now < at_once and (one := next(todo, None)):
                one.sendall(self.request)
                waiting.register(one, selectors.EVENT_READ, bytearray())
                open_now += 1
            if not open_now:
                return
            ready = waiting.select(30)
            if not ready:
                raise SystemExit(f"{open_now} requests got no answer within 30 s")
            for key, _ in ready:
                got = key.fileobj.recv(65536)
                if not got:
                    raise SystemExit("a connection was closed")
                key.data.extend(got)
                if key.data.rstrip().endswith(b"]}]}"):
                    if not key.data.startswith(b"HTTP/1.1 200"):
                        raise SystemExit(f"answered {bytes(key.data[:60])!r}")
                    waiting.unregister(key.fileobj)
                    open_now -= 1

    def close(self):
        for one in self.sockets:
            one.close()


def memory(child, alone, options, request, script):
    """KiB per connection, in the life of a crowd; and the p50 of busy connections beside it, and of a process that is alone, by rounds."""
    for one in (alone, child):
        wrk(one.port, max(32, options.busy), 3, script)  # all that it needs for any request
    time.sleep(REST_S)
    before = rss_mib(child.pid)
    per_connection = lambda: (rss_mib(child.pid) - before) * 1024 / options.connections  # noqa: E731
    crowd = Crowd(child.port, options.connections, request)
    time.sleep(1)
    figures = {"accepted_kib": per_connection()}
    crowd.ask()
    figures["asked_kib"] = per_connection()
    time.sleep(REST_S)
    figures["idle_kib"] = per_connection()
    busy = [[wrk(one.port, options.busy, 2, script)["p50_us"] for one in (alone, child)] for _ in range(BUSY_ROUNDS)]
    crowd.ask()
    crowd.close()
    wrk(child.port, 8, 2, script)  # an allocator gives memory back while it is asked for some
    time.sleep(REST_S)
    alone_us, beside_us = (statistics.median(values) for values in zip(*busy))
    slower = statistics.median(beside / alone for alone, beside in busy)
    return figures | {"left_mib": rss_mib(child.pid) - before, "alone_us": alone_us, "beside_us": beside_us, "slower": slower}


def opening(child, options, scripts):
    """CPU µs per request: on connections that stay, and with a connection for each."""
    out = {}
    for what, script in scripts.items():
        values = []
        for _ in range(options.rounds):
            before = cpu_seconds(child.pid)
            done = wrk(child.port, 32, 2, script)
            values.append((cpu_seconds(child.pid) - before) / done["n"] * 1e6)
        out[what] = statistics.median(values)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--connections", type=int, default=10_000, help="(default: 10000)")
    parser.add_argument("--busy", type=int, default=8, help="busy connections beside the idle ones (default: 8)")
    parser.add_argument("--rounds", type=int, default=3, help="of the requests that open a connection each (default: 3)")
    options = parser.parse_args()
    for needed in ("wrk", "nginx", "taskset"):
        if not shutil.which(needed):
            raise SystemExit(f"{needed} is not installed")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.connections + 2 * options.busy + 1000 > most:
        raise SystemExit(f"--connections {options.connections} --busy {options.busy}: the limit of descriptors is {most} (ulimit -Hn)")
    os.sched_setaffinity(0, {LOAD_CORE})
    body, figures = tensors("inputs", "x", 1024), {}
    request = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    with tempfile.TemporaryDirectory(prefix="connections-") as folder, contextlib.ExitStack() as stack:
        close = 'wrk.headers["Connection"] = "close"\n'
        scripts = {"stays_us": post_script(folder, 1024, "stays"), "opened_us": post_script(folder, 1024, "opened", close)}
        conf = NGINX_CONF.replace("worker_connections 4096", "worker_connections 65536")
        answers, port = f"return 200 '{tensors('outputs', 'y', 256)}';", free_port()
        up = written(folder, "upstream.conf", conf, name="upstream", port=port, upstream=port, does=answers)
        stack.enter_context(Child(["nginx", "-c", up], port, LOAD_CORE))

        def nginx_proxy(name):
            listen = free_port()
            proxy = written(folder, f"{name}.conf", conf, name=name, port=listen, upstream=port, does=NGINX_PROXY)
            return Child(["nginx", "-c", proxy], listen, PROXY_CORE)

        # the one with the crowd, and the one without
        pairs = {
            "nginx": [nginx_proxy(name) for name in ("nginx", "alone")],
            "lapwing": [Lapwing(options.lapwing, port, core=PROXY_CORE) for _ in range(2)],
        }
        for name, pair in pairs.items():
            child, alone = (stack.enter_context(one) for one in pair)
            figures[name] = memory(child, alone, options, request.encode(), scripts["stays_us"]) | opening(child, options, scripts)
        counts = profiling(pairs["lapwing"][0])
    keys = ["accepted_kib", "asked_kib", "idle_kib", "left_mib", "alone_us", "beside_us", "stays_us", "opened_us"]
    header = ["", "KiB accepted", "KiB asked", "KiB idle 5 s", "MiB left", "p50 µs alone", "p50 µs beside", "CPU µs/req", "CPU µs/req opened"]
    table(header, [[name, *(f"{one[key]:.1f}" for key in keys)] for name, one in figures.items()])
    mine, nginx = figures["lapwing"], figures["nginx"]
    slower = mine["slower"]
    opened = mine["opened_us"] / nginx["opened_us"]
    verdicts = [
        resident(f"resident memory per connection idle for {REST_S} s", f"{mine['idle_kib']:.1f} KiB", f"≤ {IDLE_KIB} KiB", mine["idle_kib"] <= IDLE_KIB),
        resident("memory left once they are closed", f"{mine['left_mib']:.1f} MiB", f"≤ {LEFT_MIB} MiB", mine["left_mib"] <= LEFT_MIB),
        timed(f"p50 of {options.busy} busy connections beside them, of that without", f"{slower:.2f}×", f"≤ {SLOWER}×", slower <= SLOWER),
    ]
    print(f"p50 of busy connections beside idle ones, of that without: nginx {nginx['slower']:.2f} times, Lapwing {slower:.2f}")
    print(f"CPU per request with a connection for each: {opened:.2f} times nginx's\n")
    return finish(options, {"figures": figures, "lapwing": counts}, verdicts)


if __name__ == "__main__":
    raise SystemExit(main())
