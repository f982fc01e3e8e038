#!/usr/bin/env python3
"""The cost of a proxy: Lapwing with all profiling on, nginx, HAProxy and Envoy, with the same upstream, in one run.

Requests and answers are tensors of the Open Inference Protocol (1 KiB up, 256 bytes down), which Lapwing parses as it forwards them.
Each target is measured in turn, --rounds times: latency with one connection (the proxy adds the difference to the direct one),
requests per second with 32 connections, CPU microseconds per request (user and system time of the proxy's processes, the figure
that a busy machine changes least), and resident memory. Proxies run on core 0; upstream (nginx, fixed answers) and load (wrk) on
core 1. Ratios to nginx, HAProxy and Envoy are medians of the rounds' ratios. With --requests N, Lapwing then serves N more requests, and its
memory is sampled meanwhile and at rest.

usage: python3 benches/overhead.py [--lapwing PATH] [--rounds N] [--seconds S] [--requests N] [--json FILE] [TARGET ...]
TARGET is direct, nginx, haproxy, envoy, lapwing, NAME=lapwing:BINARY (another build of Lapwing, started in the same way; the builds
are compared round by round), or NAME=CMD@PORT, where CMD starts a proxy from PORT to 127.0.0.1:18080 (or --upstream-port), such as hyper
alone: bare='../target/dist/examples/bare 127.0.0.1:18081 127.0.0.1:18080@18081' (cargo build --profile dist --example bare).
The default is all that are installed. Needs wrk, nginx and taskset; ENVOY names Envoy's binary if it is not in PATH.
Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parts import ROOT, Child, Lapwing, arguments, finish, free_port, resident, table, timed

PROXY_CORE, LOAD_CORE = 0, 1
CONNECTIONS = 32
CPU_OF_NGINX, CPU_OF_HAPROXY, CPU_OF_ENVOY, ADDED_OF_NGINX = 1.1, 1.2, 0.33, 1.0
RSS_BUSY_MIB, RSS_REST_MIB = 30, 20
REST_S = 3  # the allocator gives pages back that were free for a second

NGINX_CONF = """worker_processes 1; pid {dir}/{name}.pid; error_log {dir}/{name}.err; daemon off;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; client_max_body_size 64m; client_body_buffer_size 8m;
  client_body_temp_path {dir}/{name}.body; proxy_temp_path {dir}/{name}.proxy; fastcgi_temp_path {dir}/{name}.fastcgi;
  uwsgi_temp_path {dir}/{name}.uwsgi; scgi_temp_path {dir}/{name}.scgi; default_type application/json;
  upstream u {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port}{http2} backlog=4096; location / {{ {does} }} }}
}}
"""
NGINX_PROXY = 'proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection "";'
HAPROXY_CONF = """global
 nbthread 1
 maxconn 4096
defaults
 mode http
 timeout connect 5s
 timeout client 60s
 timeout server 60s
 option http-keep-alive
 http-reuse always
frontend f
 bind 127.0.0.1:{port}{proto}
 default_backend b
backend b
 server s 127.0.0.1:{upstream}{proto}
"""
ENVOY_CONF = """static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: h
          codec_type: {codec}
          route_config:
            virtual_hosts: [{{name: v, domains: ["*"], routes: [{{match: {{prefix: "/"}}, route: {{cluster: u, timeout: 60s}}}}]}}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: u
    connect_timeout: 5s
    type: STATIC
{cluster}    load_assignment:
      cluster_name: u
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {upstream}}}}}}}}}]}}]
"""


HTTP1 = {"http2": "", "proto": "", "codec": "AUTO", "cluster": ""}
HTTP2 = {
    "http2": " http2",
    "proto": " proto h2",
    "codec": "HTTP2",
    "cluster": """    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
""",
}
"""What the configurations say of the protocol, at both ends."""


# === targets ===


def written(folder, file, template, **values):
    path = Path(folder, file)
    path.write_text(template.format(dir=folder, **{**HTTP1, **values}))
    return path


def tensors(side, name, size):
    """A request or response of the Open Inference Protocol with a tensor of one row, `size` bytes long (at least about 80)."""
    head, tail = f'{{"{side}":[{{"name":"{name}","datatype":"FP32","shape":[1,', "]}]}"
    values = []
    while True:
        values.append(f"{(len(values) * 0.37) % 1:.4f}")
        text = f'{head}{len(values)}],"data":[{",".join(values)}{tail}'
        if len(text) >= size - 6:
            return text + " " * (size - len(text))


def upstream(folder, options):
    port, does = options.upstream_port, f"return 200 '{tensors('outputs', 'y', options.answer)}';"
    conf = written(folder, "upstream.conf", NGINX_CONF, name="upstream", port=port, upstream=port, does=does)
    return Child(["nginx", "-c", conf], port, LOAD_CORE)


def target(folder, name, options, does=NGINX_PROXY, protocol=HTTP1):
    """The process of a target; it starts when its context is entered. nginx `does` that, and all speak that protocol."""
    if "=lapwing:" in name:
        return Lapwing(name.split("=lapwing:", 1)[1], options.upstream_port, core=PROXY_CORE)
    if "=" in name:
        command, port = name.split("=", 1)[1].rsplit("@", 1)
        return Child(shlex.split(command), int(port), PROXY_CORE)
    if name == "lapwing":
        return Lapwing(options.lapwing, options.upstream_port, core=PROXY_CORE)
    ports = {"port": free_port(), "upstream": options.upstream_port, **protocol}
    if name == "nginx":
        conf = written(folder, "nginx.conf", NGINX_CONF, name="nginx", does=does, **ports)
        return Child(["nginx", "-c", conf], ports["port"], PROXY_CORE)
    if name == "haproxy":
        conf = written(folder, "haproxy.cfg", HAPROXY_CONF, **ports)
        return Child(["haproxy", "-db", "-f", conf], ports["port"], PROXY_CORE)
    if name == "envoy":
        conf = written(folder, "envoy.yaml", ENVOY_CONF, **ports)
        command = [envoy(), "-c", conf, "--concurrency", "1", "-l", "error", "--disable-hot-restart"]
        return Child(command, ports["port"], PROXY_CORE)
    raise SystemExit(f"unknown target {name}")


def envoy():
    return os.environ.get("ENVOY") or shutil.which("envoy") or shutil.which("envoy", path=ROOT / ".venv/bin")


def installed():
    """All known targets that are installed here."""
    return ["direct", *(n for n in ("nginx", "haproxy") if shutil.which(n)), *(["envoy"] if envoy() else []), "lapwing"]


def post_script(folder, size, name="post", more=""):
    """The script with which wrk posts a tensor of `size` bytes; `more` are further statements."""
    lua = 'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n{more}wrk.body = [===[{body}]===]\n'
    return written(folder, f"{name}.lua", lua, body=tensors("inputs", "x", size), more=more)


# === measurements ===


def family(pid):
    """A process and all its descendants."""
    out, todo = [], [pid]
    while todo:
        out.append(todo.pop())
        for task in Path(f"/proc/{out[-1]}/task").glob("*/children"):
            todo += [int(child) for child in task.read_text().split()]
    return out


def cpu_seconds(pid, user_only=False):
    """User and system time, or user time alone, of a process and its descendants so far."""
    ticks = 0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + (0 if user_only else int(fields[12]))
    return ticks / os.sysconf("SC_CLK_TCK")


def rss_mib(pid):
    texts = (Path(f"/proc/{one}/status").read_text() for one in family(pid))
    return sum(int(found[1]) for text in texts if (found := re.search(r"VmRSS:\s+(\d+)", text))) / 1024


def wrk(port, connections, seconds, script, scheme="http"):
    """Runs wrk, which sends each request as soon as the previous one is answered."""
    url = f"{scheme}://127.0.0.1:{port}/v2/models/m/infer"
    command = ["taskset", "-c", str(LOAD_CORE), "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", script, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    unit = {"us": 1, "ms": 1e3, "s": 1e6}
    us = {q: float(value) * unit[u] for q, value, u in re.findall(r"\s+(\d+)%\s+([\d.]+)(us|ms|s)\b", done.stdout)}
    errors = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    sockets = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", done.stdout)
    return {
        "p50_us": us["50"],
        "p99_us": us["99"],
        "n": int(re.search(r"(\d+) requests in", done.stdout)[1]),
        "per_s": float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)[1]),
        "bad": (int(errors[1]) if errors else 0) + (sum(map(int, sockets.groups())) if sockets else 0),
    }


def round_of(child, port, seconds, script, scheme="http"):
    """The figures of one target in one round."""
    wrk(port, 8, 1, script, scheme)
    one = wrk(port, 1, seconds, script, scheme)
    times = lambda: [cpu_seconds(child.pid, user_only) if child else 0 for user_only in (False, True)]  # noqa: E731
    before = times()
    many = wrk(port, CONNECTIONS, seconds, script, scheme)
    spent, user = (now - then for now, then in zip(times(), before))
    return {
        "p50_us": one["p50_us"],
        "p99_us": one["p99_us"],
        "per_s": many["per_s"],
        "p99_many_us": many["p99_us"],
        "cpu_us": spent / many["n"] * 1e6,
        "user_us": user / many["n"] * 1e6,
        "rss_mib": rss_mib(child.pid) if child else 0,
        "bad": one["bad"] + many["bad"],
    }


def measure(options, targets, script, scheme="http"):
    """Measures all targets in turn, in each round."""
    rounds = {name: [] for name in targets}
    for _ in range(options.rounds):
        for name, child in targets.items():
            rounds[name].append(round_of(child, child.port if child else options.upstream_port, options.seconds, script, scheme))
        if "direct" in rounds:
            for name in targets:
                rounds[name][-1]["added_p50_us"] = rounds[name][-1]["p50_us"] - rounds["direct"][-1]["p50_us"]
    return rounds


def soak(options, lapwing, script):
    """(requests so far, MiB of resident memory) while many requests come, and in the end once more after a rest."""
    served, memory = 0, [(0, rss_mib(lapwing.pid))]
    while served < options.requests:
        served += wrk(lapwing.port, CONNECTIONS, 5, script)["n"]
        memory.append((served, rss_mib(lapwing.pid)))
    time.sleep(REST_S)
    return [*memory, (served, rss_mib(lapwing.pid))]


# === results ===


def report(rounds):
    """Prints the medians and returns them."""
    medians = {name: {k: statistics.median(r[k] for r in rows) for k in rows[0]} for name, rows in rounds.items()}
    header = ["", "p50 µs", "added", "p99 µs", f"req/s @{CONNECTIONS}", f"p99 µs @{CONNECTIONS}", "CPU µs/req", "of it user", "RSS MiB", "failed"]
    keys = ["p50_us", "added_p50_us", "p99_us", "per_s", "p99_many_us", "cpu_us", "user_us", "rss_mib", "bad"]
    digits = [1, 1, 1, 0, 0, 2, 2, 1, 0]
    table(header, [[name, *(f"{m.get(k, 0):.{d}f}" for k, d in zip(keys, digits))] for name, m in medians.items()])
    return medians


def ratio_verdicts(rounds):
    """Compares Lapwing with the others, for each bound that this run has measured."""
    wanted = [
        ("CPU per request, of nginx's", "cpu_us", "nginx", CPU_OF_NGINX),
        ("CPU per request, of HAProxy's", "cpu_us", "haproxy", CPU_OF_HAPROXY),
        ("CPU per request, of Envoy's", "cpu_us", "envoy", CPU_OF_ENVOY),
        ("added p50 at one connection, of nginx's", "added_p50_us", "nginx", ADDED_OF_NGINX),
    ]
    for what, key, other, bound in wanted:
        if "lapwing" in rounds and other in rounds and key in rounds[other][0]:
            ratios = [mine[key] / theirs[key] for mine, theirs in zip(rounds["lapwing"], rounds[other]) if theirs[key] > 0]
            ratio = statistics.median(ratios) if ratios else float("inf")
            yield timed(what, f"{ratio:.2f}×", f"≤ {bound}×", ratio <= bound)
        elif "lapwing" in rounds:
            yield timed(what, "not measured", f"≤ {bound}×", None)
    if "lapwing" in rounds:
        bad = sum(r["bad"] for r in rounds["lapwing"])
        yield "failed requests", str(bad), "0", bad == 0


def compare_builds(rounds, targets):
    """Compares `lapwing` with each other build of Lapwing: prints medians of the rounds' differences and ratios."""
    others = [name for name, child in targets.items() if isinstance(child, Lapwing) and name != "lapwing"]
    rows = []
    for other in others if "lapwing" in rounds else ():
        pairs = list(zip(rounds["lapwing"], rounds[other]))
        by = {key: statistics.median(mine[key] - theirs[key] for mine, theirs in pairs) for key in ("p50_us", "cpu_us")}
        ratio = statistics.median(mine["cpu_us"] / theirs["cpu_us"] for mine, theirs in pairs if theirs["cpu_us"] > 0)
        rows.append([f"lapwing beside {other}", f"{by['p50_us']:+.1f}", f"{by['cpu_us']:+.2f}", f"{ratio:.3f}×"])
    if rows:
        table(["", "p50 µs", "CPU µs/req", "CPU"], rows)


def memory_verdicts(memory):
    """Prints some of a soak's samples; judges the most while requests came, and what is left after them."""
    *busy, (served, rest) = memory
    step, most = max(1, len(busy) // 8), max(mib for _, mib in busy)
    print("resident memory of Lapwing, MiB")
    table(["requests", "MiB"], [[n, f"{mib:.1f}"] for n, mib in [*busy[:-1:step], busy[-1], (f"{REST_S} s after", rest)]])
    yield resident(f"memory while {served} requests came, at most", f"{most:.1f} MiB", f"≤ {RSS_BUSY_MIB} MiB", most <= RSS_BUSY_MIB)
    yield resident(f"memory {REST_S} s after them", f"{rest:.1f} MiB", f"≤ {RSS_REST_MIB} MiB", rest <= RSS_REST_MIB)


def profiling(lapwing, at_least=1):
    """Lapwing's counts of requests, once there are `at_least` so many, and of lost records. The run is invalid if profiling was off or lost records."""
    profiler = lapwing.get("/stats?window=all")["profiler"]
    while profiler["in_flight"] or profiler["queue_depth"]:
        time.sleep(0.1)
        profiler = lapwing.get("/stats?window=all")["profiler"]
    counted = lapwing.await_count(at_least)
    lost = profiler["dropped"] + profiler["pending_evicted"]
    print(f"Lapwing counted {counted} requests and lost the records of {lost}\n")
    return {"counted": counted, "profiler": profiler}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--seconds", type=int, default=4, help="seconds of each measurement (default: 4)")
    parser.add_argument("--requests", type=int, default=0, help="serve this many more requests and sample the memory (default: none)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a request's body (default: 1024)")
    parser.add_argument("--answer", type=int, default=256, help="bytes of an answer's body (default: 256)")
    parser.add_argument("--upstream-port", type=int, default=18080, help="the port of the upstream (default: 18080)")
    parser.add_argument("targets", nargs="*")
    options = parser.parse_args()
    for needed in ("wrk", "nginx", "taskset"):
        if not shutil.which(needed):
            raise SystemExit(f"{needed} is not installed")
    names = options.targets or installed()
    figures, verdicts, started = {}, [], []
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        script = post_script(folder, options.body)
        try:
            started.append(upstream(folder, options).__enter__())
            targets = {}
            for name in names:
                child = None if name == "direct" else target(folder, name, options)
                if child:
                    started.append(child.__enter__())
                targets[name.split("=")[0]] = child
            rounds = measure(options, targets, script)
            figures = {"rounds": rounds, "medians": report(rounds)}
            compare_builds(rounds, targets)
            verdicts += ratio_verdicts(rounds)
            lapwing = targets.get("lapwing")
            if lapwing and options.requests:
                memory = figures["memory"] = soak(options, lapwing, script)
                verdicts += memory_verdicts(memory)
            if isinstance(lapwing, Lapwing):
                figures["lapwing"] = profiling(lapwing)
        finally:
            for child in reversed(started):
                child.__exit__()
    return finish(options, figures, verdicts)


if __name__ == "__main__":
    sys.exit(main())
