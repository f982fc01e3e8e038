"""Hops: a gateway before Lapwing, a relay behind it, a gateway behind it. Which stage each one's time gets.

Every service says how long each of its steps took by its own clock. A mean may differ from that by 3 % or 2 ms.
"""

import functools
import http.client
import json
import os
import pathlib
import secrets
import shutil
import sys

import pytest

from ports import free_port
from process import wait_for, wait_listening
from servers.parts import EXPORT_EVERY_MS

HOP = pathlib.Path(__file__).parent / "servers" / "hop.py"
SOON = {"OTEL_BSP_SCHEDULE_DELAY": str(EXPORT_EVERY_MS)}
REQUESTS = 20
RELATIVE, ABSOLUTE_NS = 0.03, 2_000_000


def span(name, ms):
    return {"span": name, "ms": ms}


def post(port, steps, traceparent=None):
    """The answer of a hop that does `steps`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"content-type": "application/json"} | ({"traceparent": traceparent} if traceparent else {})
    connection.request("POST", "/do", json.dumps(steps), headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.status == 200, (response.status, body[:500])
    return json.loads(body)


def steps_of(answer):
    """What each step took, of this service and those that it called: (name, ns), in nanoseconds."""
    for step in answer["done"]:
        yield step["name"], step["ns"]
        if "answer" in step:
            yield from steps_of(step["answer"])


def stages_of(exchange):
    return {s["stage"]: s["ns"] for s in exchange["stages"]}


def mean(exchanges, stage):
    return sum(stages_of(e).get(stage, 0) for e in exchanges) / len(exchanges)


def assert_true(figure, truth):
    assert abs(figure - truth) <= max(RELATIVE * truth, ABSOLUTE_NS), (figure / 1e6, truth / 1e6)


class Hops:
    """Lapwing before `upstream`, and services that report to it."""

    def __init__(self, start_lapwing, processes, upstream_port):
        self.processes = processes
        self.lapwing = start_lapwing(f"http://127.0.0.1:{upstream_port}", env={"LAPWING_METRICS__RECENT_EXCHANGES": "4096"})

    def start(self, port, service=None):
        """Starts a hop, which reports nothing without a name."""
        env = dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{self.lapwing.otlp_http}", **SOON)
        self.processes(f"hop_{service}", [sys.executable, str(HOP), str(port), *([service] if service else [])], env=env)
        wait_listening(port, 60)

    def ready(self):
        wait_for(self.lapwing.is_ready, 20, "lapwing is ready")
        return self

    def run(self, steps, port=None):
        """(answers, exchanges) of requests one after another, the first of which only warms the hops up."""
        port = port or self.lapwing.port
        post(port, steps)
        answers = [post(port, steps, f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01" if i % 2 else None) for i in range(REQUESTS)]
        found = self.lapwing.exchanges_of([a["trace_id"] for a in answers], 30)
        exchanges = [found[a["trace_id"]] for a in answers]
        for exchange in exchanges:
            assert sum(s["ns"] for s in exchange["stages"]) == exchange["total_ns"]
        return answers, exchanges


def truth(answers, *names):
    """The mean over the answers of all steps of these names."""
    return sum(ns for answer in answers for name, ns in steps_of(answer) if name in names) / len(answers)


# --- a gateway before Lapwing, which reports to it too

@pytest.fixture(scope="module")
def gateway_before(start_lapwing, processes):
    port, gateway = free_port(), free_port()
    hops = Hops(start_lapwing, processes, port)
    hops.start(port, "model-server")
    hops.start(gateway, "gateway")
    hops.gateway = gateway
    return hops.ready()


def test_nothing_of_a_gateway_before_lapwing_is_the_servers(gateway_before):
    """What it does before, beside and after the call has names of stages, and belongs to no exchange."""
    inner = [span("preprocessing", 6), span("model_forward", 30)]
    steps = [
        span("gateway.preprocessing", 12),
        {"call": gateway_before.lapwing.url, "steps": inner, "meanwhile": span("gateway.hydration", 20)},
        span("gateway.postprocessing", 15),
    ]
    answers, exchanges = gateway_before.run(steps, gateway_before.gateway)
    for exchange in exchanges:
        assert not [s["name"] for s in exchange["spans"] if s["name"].startswith("gateway.")], exchange["spans"]
        assert not {"downstream", "hydration", "postprocessing"} & stages_of(exchange).keys()
    assert_true(mean(exchanges, "preprocessing"), truth(answers, "preprocessing"))
    assert_true(mean(exchanges, "forward"), truth(answers, "model_forward"))
    unmatched = gateway_before.lapwing.stats()["profiler"]["spans"]["unmatched"]
    assert unmatched >= 5 * (REQUESTS // 2), "spans of traces that the gateway began are known to be above at once"


# --- a relay between Lapwing and the server

SERVED = [span("preprocessing", 8), span("model_forward", 25), span("postprocessing", 5)]
NAMES = {"preprocessing": "preprocessing", "forward": "model_forward", "postprocessing": "postprocessing"}


def assert_served(answers, exchanges):
    """The server's stages are what they are without the relay."""
    for stage, name in NAMES.items():
        assert_true(mean(exchanges, stage), truth(answers, name))


def beyond(answers, exchanges):
    """What the window holds besides the server's own steps."""
    steps = truth(answers, *NAMES.values())
    return sum(sum(stages_of(e).get(s, 0) for s in (*NAMES, "downstream", "unattributed")) for e in exchanges) / len(exchanges) - steps


NGINX = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  log_format times '$request_time $upstream_response_time'; access_log {folder}/times times;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  limit_req_zone $binary_remote_addr zone=slow:1m rate=2r/s;
  server {{
    listen 127.0.0.1:{port}; limit_req zone=slow burst=100;
    location / {{ proxy_pass http://127.0.0.1:{server}; }}
  }}
}}
"""


@pytest.fixture(scope="module")
def nginx(start_lapwing, processes, tmp_path_factory):
    """Without tracing; it holds requests back to 2 a second."""
    if not (binary := shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")):
        pytest.skip("no nginx: apt-get install nginx-light")
    port, server, folder = free_port(), free_port(), tmp_path_factory.mktemp("nginx")
    hops = Hops(start_lapwing, processes, port)
    hops.start(server, "model-server")
    (folder / "conf").write_text(NGINX.format(folder=folder, port=port, server=server))
    processes("nginx", [binary, "-c", str(folder / "conf")])
    wait_listening(port)
    hops.times = folder / "times"
    return hops.ready()


def test_a_relay_that_reports_nothing_is_unattributed(nginx):
    """nginx passes `traceparent` on, so the server's spans join; what nginx itself takes, by its log, nobody reports."""
    answers, exchanges = nginx.run(SERVED)
    assert_served(answers, exchanges)
    assert not {"downstream", "queue"} & {stage for e in exchanges for stage in stages_of(e)}
    times = [[float(t) * 1e9 for t in line.split()] for line in nginx.times.read_text().splitlines()][-REQUESTS:]
    held = sum(in_all - behind for in_all, behind in times) / REQUESTS
    assert held > 5e6, "it held them back"
    whole = sum(in_all for in_all, _ in times) / REQUESTS
    steps, unattributed = truth(answers, *NAMES.values()), mean(exchanges, "unattributed")
    # between nginx's clock, which begins when it reads, and the client's
    total = sum(e["total_ns"] for e in exchanges) / len(exchanges)
    assert whole - steps - ABSOLUTE_NS <= unattributed <= total - steps + ABSOLUTE_NS, (whole - steps, unattributed, total - steps)


HELD_MS = 20
ENVOY = """{{
  "layered_runtime": {{"layers": [{{"name": "s", "static_layer": {{"tracing.opentelemetry.flush_interval_ms": 200}}}}]}},
  "static_resources": {{
    "listeners": [{{
      "address": {{"socket_address": {{"address": "127.0.0.1", "port_value": {port}}}}},
      "filter_chains": [{{"filters": [{{
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {{
          "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
          "stat_prefix": "in",
          "tracing": {{
            "spawn_upstream_span": {spawn},
            "provider": {{
              "name": "envoy.tracers.opentelemetry",
              "typed_config": {{
                "@type": "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig",
                "service_name": "relay",
                "grpc_service": {{"envoy_grpc": {{"cluster_name": "spans"}}, "timeout": "1s"}}
              }}
            }}
          }},
          "route_config": {{"virtual_hosts": [{{"name": "all", "domains": ["*"],
            "routes": [{{"match": {{"prefix": "/"}}, "route": {{"cluster": "server"}}}}]}}]}},
          "http_filters": [
            {{"name": "envoy.filters.http.fault", "typed_config": {{
              "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
              "delay": {{"fixed_delay": "{held}s", "percentage": {{"numerator": 100}}}}}}}},
            {{"name": "envoy.filters.http.router", "typed_config": {{
              "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}}}
          ]
        }}
      }}]}}]
    }}],
    "clusters": [
      {{"name": "server", "load_assignment": {{"cluster_name": "server", "endpoints": [{{"lb_endpoints": [{{"endpoint":
        {{"address": {{"socket_address": {{"address": "127.0.0.1", "port_value": {server}}}}}}}}}]}}]}}}},
      {{"name": "spans", "load_assignment": {{"cluster_name": "spans", "endpoints": [{{"lb_endpoints": [{{"endpoint":
        {{"address": {{"socket_address": {{"address": "127.0.0.1", "port_value": {otlp}}}}}}}}}]}}]}},
        "typed_extension_protocol_options": {{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {{
          "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
          "explicit_http_config": {{"http2_protocol_options": {{}}}}}}}}}}
    ]
  }}
}}
"""


@pytest.fixture(scope="module")
def envoy(envoy_binary, start_lapwing, processes, tmp_path_factory):
    """Starts Envoy, which holds each request back, between Lapwing and a server; it reports its spans to Lapwing."""
    @functools.cache
    def start(has_client_span, service):
        port, server = free_port(), free_port()
        hops = Hops(start_lapwing, processes, port)
        hops.start(server, service)
        config = tmp_path_factory.mktemp("envoy") / "envoy.json"
        otlp, spawn = hops.lapwing.otlp_grpc, json.dumps(has_client_span)
        config.write_text(ENVOY.format(port=port, server=server, otlp=otlp, spawn=spawn, held=HELD_MS / 1e3))
        processes("envoy", [envoy_binary, "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"])
        wait_listening(port, 60)
        return hops.ready()

    return start


def test_a_relay_with_a_server_span_is_unattributed(envoy):
    """As Envoy traces by default: its one span is a server's, which claims nothing."""
    answers, exchanges = envoy(False, "model-server").run(SERVED)
    assert_served(answers, exchanges)
    for exchange in exchanges:
        assert "downstream" not in stages_of(exchange)
        assert len(exchange["spans"]) >= 2 + len(SERVED), "both hops' spans"
    rest = beyond(answers, exchanges)
    assert_true(mean(exchanges, "unattributed"), rest)
    assert rest >= HELD_MS * 1e6


def test_a_relays_client_span_hides_nothing_of_the_server(envoy):
    """With a client span, what the server's stages leave of it is `downstream`; what Envoy held before it is not."""
    answers, exchanges = envoy(True, "model-server").run(SERVED)
    assert_served(answers, exchanges)
    calls = [s for e in exchanges for s in e["spans"] if s["name"].startswith("router ")]
    assert len(calls) == len(exchanges) and {s["stage"] for s in calls} == {"downstream"}
    called = sum(s["end_ns"] - s["start_ns"] for s in calls) / len(calls)
    assert_true(sum(mean(exchanges, stage) for stage in ("downstream", *NAMES)), called)
    rest = truth(answers, *NAMES.values()) + beyond(answers, exchanges) - called
    assert_true(mean(exchanges, "unattributed"), rest)
    assert rest >= HELD_MS * 1e6


@pytest.mark.parametrize("has_client_span, stage", [(False, "upstream"), (True, "downstream")])
def test_a_silent_server_behind_a_relay_is_undivided(envoy, has_client_span, stage):
    """Never `forward`: `upstream` as long as nobody names any of it, else the relay's call."""
    answers, exchanges = envoy(has_client_span, None).run(SERVED)
    for exchange in exchanges:
        assert stages_of(exchange).keys() & {"upstream", "downstream", *NAMES} == {stage}, exchange["stages"]
    assert mean(exchanges, stage) >= truth(answers, *NAMES.values())


# --- a gateway behind Lapwing, which calls other services

@pytest.fixture(scope="module")
def gateway_behind(start_lapwing, processes):
    gateway, silent, telling = free_port(), free_port(), free_port()
    hops = Hops(start_lapwing, processes, gateway)
    hops.start(gateway, "gateway")
    hops.start(silent)
    hops.start(telling, "ranker")
    hops.silent, hops.telling = (f"http://127.0.0.1:{port}" for port in (silent, telling))
    return hops.ready()


def test_a_service_that_is_called_is_downstream_except_for_what_it_reports(gateway_behind):
    silent = {"call": gateway_behind.silent, "steps": [span("model_forward", 25)]}
    telling = {"call": gateway_behind.telling, "steps": [span("queue_wait", 8), span("model_forward", 40)]}
    answers, exchanges = gateway_behind.run([span("preprocessing", 10), silent, telling, span("postprocessing", 6)])
    calls = truth(answers, "call")
    asked = [answer["done"][2]["answer"] for answer in answers]
    for stage, name in (("queue", "queue_wait"), ("forward", "model_forward")):
        assert_true(mean(exchanges, stage), truth(asked, name))
    assert_true(mean(exchanges, "downstream"), calls - truth(asked, "queue_wait", "model_forward"))
    for stage in ("preprocessing", "postprocessing"):
        assert_true(mean(exchanges, stage), truth(answers, stage))
    assert mean(exchanges, "downstream") >= 25e6, "all of the silent one"


def test_a_call_within_a_stage_keeps_that_stage(gateway_behind):
    """The handler has said what the time of the call is: the called service divides nothing of it."""
    telling = {"call": gateway_behind.telling, "steps": [span("queue_wait", 8), span("postprocessing", 20)], "within": "model_forward"}
    answers, exchanges = gateway_behind.run([telling])
    for exchange in exchanges:
        assert not {"queue", "postprocessing", "downstream"} & stages_of(exchange).keys()
    assert_true(mean(exchanges, "forward"), truth(answers, "call"))
