"""The proxies that the levers are measured beside, each as a child process before servers on the given ports."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.request

from parts import ROOT, Child, Lapwing, free_port

ENVOY = "type.googleapis.com/envoy.extensions"
LAPWING = "attribution: {poll: off, expect_spans: never}\n"
"""The servers here send no spans."""
SGLANG = """SGLang's router is missing: leave it out with --without sglang, or, as only benchmarks need it,
  python3 -m venv .venv-sglang && .venv-sglang/bin/pip install -r tests/requirements-sglang.txt"""
NGINX = """
daemon off; worker_processes 1; %(user)s pid nginx.pid; error_log stderr; worker_rlimit_nofile 65536;
events { worker_connections 16384; }
http {
  access_log off; client_max_body_size 64m; client_body_buffer_size 1m; client_body_temp_path body; proxy_temp_path proxy;
  keepalive_requests 1000000; proxy_http_version 1.1;
  upstream servers { %(policy)s %(servers)s keepalive 64; keepalive_timeout 3s; keepalive_requests 1000000; }
  server { listen 127.0.0.1:%(port)d backlog=4096;
    location / { proxy_pass http://servers; proxy_set_header Connection ""; proxy_read_timeout 10m; proxy_connect_timeout 1m; } }
}
"""
HAPROXY = """
global
  maxconn 4096
  nbthread 1
defaults
  mode http
  maxconn 4096
  timeout queue %(queue)s
  timeout connect 1m
  timeout client 10m
  timeout server 10m
  timeout http-keep-alive 1m
frontend in
  bind 127.0.0.1:%(port)d
  default_backend servers
backend servers
  balance %(policy)s
%(servers)s
"""


def found(name):
    """The program's path."""
    path = shutil.which(name, path=f"{ROOT}/.venv/bin:/usr/sbin:/usr/bin:/usr/local/bin") or shutil.which(name)
    if not path:
        raise SystemExit(f"{name} is missing: install it, or leave it out with --without {name}")
    return path


class Filed(Child):
    """A child with a configuration file of its own; `%(port)d` in its text is where it listens."""

    def __init__(self, command, name, text, core=None):
        self.folder = tempfile.TemporaryDirectory()
        port, path = free_port(), pathlib.Path(self.folder.name) / name
        path.write_text(text(port))
        super().__init__([part.format(file=path, folder=self.folder.name) for part in command], port, core)


def nginx(upstreams, policy=""):
    """By turns, or as `policy` says: a directive of the section `upstream`."""
    servers = " ".join(f"server 127.0.0.1:{port};" for port in upstreams)
    return nginx_by(NGINX, {"servers": servers, "policy": policy})


def nginx_by(text, values, core=None):
    user = "user root;" if os.geteuid() == 0 else ""
    return Filed([found("nginx"), "-p", "{folder}", "-c", "{file}"], "nginx.conf", lambda port: text % {"port": port, "user": user, **values}, core)


def haproxy(upstreams, policy, at_once=0, queue="10m"):
    """`at_once` requests at each server, or any number; the others wait, all together and so long at most."""
    servers = "\n".join(f"  server s{n} 127.0.0.1:{port} maxconn {at_once} pool-purge-delay 3s" for n, port in enumerate(upstreams))
    text = lambda port: HAPROXY % {"port": port, "policy": policy, "servers": servers, "queue": queue}
    return Filed([found("haproxy"), "-db", "-f", "{file}"], "haproxy.cfg", text)


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def adaptive(interval, least, window):
    """Envoy's filter that finds how many requests may be out. Its documents' example has 60 s, 50 requests and windows of 0.1 s."""
    return {
        "name": "envoy.filters.http.adaptive_concurrency",
        "typed_config": {
            "@type": f"{ENVOY}.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency",
            "gradient_controller_config": {
                "sample_aggregate_percentile": {"value": 90},
                "concurrency_limit_params": {"concurrency_update_interval": window},
                "min_rtt_calc_params": {"jitter": {"value": 10}, "interval": interval, "request_count": 50, "min_concurrency": least},
            },
            "enabled": {"default_value": True, "runtime_key": "adaptive_concurrency.enabled"},
        },
    }


def hedging(per_try_s):
    """Envoy's: what has no answer after this time is also sent to another host, once; the first answer counts."""
    other = f"{ENVOY}.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    return {
        "hedge_policy": {"hedge_on_per_try_timeout": True},
        "retry_policy": {
            "retry_on": "5xx",
            "num_retries": 1,
            "per_try_timeout": f"{per_try_s:.4f}s",
            "retry_host_predicate": [{"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {"@type": other}}],
            "host_selection_retry_max_attempts": 5,
        },
    }


def envoy(upstreams, policy="ROUND_ROBIN", filters=(), **route):
    """Without limits of its own, but for those of the filters; `route` has more settings of the route's action."""
    http = f"{ENVOY}.upstreams.http.v3.HttpProtocolOptions"
    route = {"match": {"prefix": "/"}, "route": {"cluster": "servers", "timeout": "0s", **route}}
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{ENVOY}.filters.http.router.v3.Router"}}
    manager = {
        "@type": f"{ENVOY}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [*filters, router],
    }
    most = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 1_000_000)
    cluster = {
        "name": "servers",
        "lb_policy": policy,
        "circuit_breakers": {"thresholds": [most]},
        "load_assignment": {"cluster_name": "servers", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(p)}} for p in upstreams]}]},
        "typed_extension_protocol_options": {
            http.split("/")[1]: {"@type": http, "common_http_protocol_options": {"idle_timeout": "3s"}, "explicit_http_config": {"http_protocol_options": {}}}
        },
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}

    def text(port):
        listener = {"address": address(port), "filter_chains": [chain]}
        return json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})

    return Filed([found("envoy"), "-c", "{file}", "--use-dynamic-base-id", "--concurrency", "1", "-l", "error"], "envoy.json", text)


class SglangRouter(Child):
    """SGLang's router with its policy for caches, once it knows its workers."""

    def __init__(self, upstreams):
        self.python, port = ROOT / ".venv-sglang/bin/python", free_port()
        if not self.python.exists():
            raise SystemExit(SGLANG)
        self.workers = [f"http://127.0.0.1:{one}" for one in upstreams]
        command = [self.python, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", port, "--prometheus-port", free_port()]
        super().__init__([*command, "--policy", "cache_aware", "--log-level", "error", "--worker-urls", *self.workers], port)

    def __enter__(self):
        super().__enter__()
        end = time.monotonic() + 60
        while sum(one["is_healthy"] for one in self.known()) < len(self.workers):
            if time.monotonic() > end:
                self.__exit__()
                raise SystemExit(f"SGLang's router has not found its workers healthy after a minute: {self.known()}")
            time.sleep(0.1)
        return self

    def known(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/workers", timeout=5) as response:
                return json.load(response)["workers"]
        except OSError:
            return []


def lapwing(options, upstreams, dispatch=False, policy=None, deadlines=False, hedge=False, routes=""):
    """`dispatch` and `hedge` turn the levers on as the options say; `routes` is the section of that name."""
    config = LAPWING + ("proxy: {deadline_header: x-latency-budget-ms}\n" if deadlines else "")
    if len(upstreams) > 1:
        config += "upstreams:\n" + "".join(f"  s{n}: {{url: 'http://127.0.0.1:{port}'}}\n" for n, port in enumerate(upstreams))
    config += (f"upstream_policy: {policy}\n" if policy else "") + routes
    if dispatch:
        hedged = f", hedge: {options.hedge}" if hedge else ""
        config += f"dispatch: {{mode: on, slots: {options.slots}, order: {options.order}, patience: {options.patience}, reject: late{hedged}}}\n"
    return Lapwing(options.lapwing, upstreams[0] if len(upstreams) == 1 else None, config=config)


def knows(binary, settings):
    """Whether the binary takes these settings, a line of YAML; what it says if not."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(f"upstream: http://127.0.0.1:1\n{settings}\n")
        file.flush()
        try:
            checked = subprocess.run([binary, "check", "--config", file.name], capture_output=True, text=True, check=False)
        except OSError as e:
            raise SystemExit(f"cannot start {binary}: {e}; build it, or name one by --lapwing PATH") from None
    return checked.returncode == 0, (checked.stdout + checked.stderr).strip()
