"""Envoy as it is deployed before sidecars: it balances by the load that Lapwing reports, for servers that report none."""

import concurrent.futures
import http.client
import json
import threading

import pytest

from lapwing import NO_SPANS
from named_servers import Server
from ports import free_port
from process import wait_for, wait_listening

pytestmark = pytest.mark.beside
CLIENTS = 8
MS = {"quick": 5, "slow": 60}
"""How long the servers take."""
BALANCED = 320
"""Requests of which shares are taken."""
EXTENSIONS = "type.googleapis.com/envoy.extensions"


def endpoint(port):
    return {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}


def balancing(port, lapwings):
    """Envoy's configuration: one listener before all of these, weighted by the requests in flight that each reports."""
    policy = {
        "@type": f"{EXTENSIONS}.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
        "blackout_period": "0.5s",
        "weight_update_period": "0.2s",
        "metric_names_for_computing_utilization": ["named_metrics.lapwing.in_flight"],
    }
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{EXTENSIONS}.filters.http.router.v3.Router"}}
    asks = {"header": {"key": "endpoint-load-metrics-format", "value": "text"}}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "sidecars"}, "request_headers_to_add": [asks]}
    manager = {
        "@type": f"{EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [router],
    }
    cluster = {
        "name": "sidecars",
        "load_assignment": {"cluster_name": "sidecars", "endpoints": [{"lb_endpoints": [endpoint(each) for each in lapwings]}]},
        "load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "by_load", "typed_config": policy}}]},
    }
    listener = {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}],
    }
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})


def ask(port, number, until):
    """Asks one request after the other; which server answered each."""
    connection, answers = http.client.HTTPConnection("127.0.0.1", port, timeout=20), []
    while not until(number):
        connection.request("POST", "/x", body="n")
        response = connection.getresponse()
        answers.append(response.read().decode())
        assert response.status == 200, answers[-1]
    connection.close()
    return answers


def shares(port):
    """The share of the quick server's answers, of the last of many."""
    total, lock = [0], threading.Lock()

    def until(_):
        with lock:
            total[0] += 1
            return total[0] > 3 * BALANCED

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        answers = [answer for of in clients.map(lambda number: ask(port, number, until)[-BALANCED // CLIENTS :], range(CLIENTS)) for answer in of]
    return answers.count("quick") / len(answers)


@pytest.mark.parametrize("reports", ["off", "on"])
def test_envoy_weighs_by_the_load_reports(envoy_binary, start_lapwing, processes, tmp_path, logs, reports):
    servers = {name: Server(name, tmp_path, logs, MS=str(ms)) for name, ms in MS.items()}
    file = tmp_path / "lapwing.yaml"
    file.write_text(f"proxy: {{respond_orca: {reports}}}\n")
    lapwings = [start_lapwing(server.url, config=file, env=NO_SPANS) for server in servers.values()]
    for lapwing in lapwings:
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
    port, config = free_port(), tmp_path / "envoy.json"
    config.write_text(balancing(port, [lapwing.port for lapwing in lapwings]))
    processes("envoy", [envoy_binary, "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"])
    wait_listening(port, 60)
    quick = shares(port)
    if reports == "off":
        assert 0.45 <= quick <= 0.55, f"in turn: {quick}"
    else:
        assert quick >= 0.6, f"the one with fewer requests in flight gets more: {quick}"
