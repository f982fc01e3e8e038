"""What `lapwing inject` makes of a manifest, run as a pod: network namespaces joined by veth pairs, containers started, probed and ended in the
kubelet's order, a Service by nftables. All three ways, both families, restarts, and rollouts under load, beside none and beside Envoy."""

import collections
import http.client
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
import yaml

from pods import VIRTUAL_IP, Node, Pod, need_namespaces
from process import wait_for
from test_leaving import SERVERS

pytestmark = pytest.mark.beside

MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: ranker}
spec:
  selector: {matchLabels: {app: ranker}}
  template:
    metadata:
      labels: {app: ranker}
    spec:
      containers:
      - name: server
        image: registry.example/ranker:7
        command: [uvicorn, app:app]
        ports:
        - {name: http, containerPort: 8000}
        readinessProbe:
          httpGet: {path: /health, port: 8000}
        # while Services forget the pod
        lifecycle: {preStop: {sleep: {seconds: 1}}}
---
apiVersion: v1
kind: Service
metadata: {name: ranker}
spec:
  selector: {app: ranker}
  ports:
  - {port: 80, targetPort: TARGET}
"""
NAMED, NUMBERED = MANIFEST.replace("TARGET", "http"), MANIFEST.replace("TARGET", "8000")
UVICORN = [sys.executable, "-m", "uvicorn", "streaming_app:app", "--app-dir", str(SERVERS), "--host", "", "--port", "8000", "--log-level", "warning"]
# uvicorn ends by the signal that asked it to
ENDED = {"server": -signal.SIGTERM, "lapwing": 0}


def parsed(text):
    """(pod spec, the port to which the Service leads)."""
    deployment, service = yaml.safe_load_all(text)
    spec, target = deployment["spec"]["template"]["spec"], service["spec"]["ports"][0]["targetPort"]
    if isinstance(target, str):
        # as the endpoints controller resolves it, before Kubernetes 1.33
        ports = [port for container in spec["containers"] for port in container.get("ports", [])]
        target = next(port["containerPort"] for port in ports if port.get("name") == target)
    return spec, target


@pytest.fixture(scope="module")
def node():
    need_namespaces()
    node = Node()
    yield node
    node.delete()


@pytest.fixture
def pods(node, binary, logs):
    """Starts pods of injected manifests."""
    made = []

    def start(text, *args, but=(), start=True):
        done = subprocess.run([binary, "inject", *args, "-"], input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        spec, target = parsed(done.stdout)
        return begin(spec, target, but, start)

    def begin(spec, target, but=(), start=True, commands=None):
        commands = commands or {"server": UVICORN, "lapwing": [binary], "lapwing-redirect": [binary]}
        pod = Pod(node, spec, commands, logs)
        made.append(pod)
        pod.target = target
        return pod.start(but) if start else pod

    start.begin = begin
    yield start
    for pod in made:
        pod.delete()


def served(node, pod):
    """How many requests its Lapwing has counted."""
    text = node.ask(pod.address, 9464, "/metrics")[2].decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("lapwing_requests_total{"))


@pytest.mark.parametrize("way, text", [("named", NAMED), ("redirect", NUMBERED), ("service", NUMBERED)])
def test_traffic_comes_to_the_sidecar(node, pods, way, text):
    pod = pods(text, "--way", way)
    wait_for(pod.is_ready, 30, "the pod is ready")
    probed = served(node, pod)
    for address in (pod.address, pod.address6):
        status, headers, body = node.ask(address, pod.target, "/echo", "POST", b"x" * 100_000)
        assert (status, body) == (200, b"x" * 100_000), address
    wait_for(lambda: served(node, pod) >= probed + 2, 10, "Lapwing has counted both")
    # what the pod itself sends to the port goes to the server, as the sidecar's own calls do
    counted = served(node, pod)
    inside = [sys.executable, "-c", "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000/x').read())"]
    assert "ok" in pod.run(*inside).stdout
    assert pod.run(*inside[:2], inside[2].replace("127.0.0.1", pod.address)).stdout.strip() == "b'ok'"
    time.sleep(1)
    assert served(node, pod) == counted
    assert pod.terminate() == ENDED


def test_a_server_that_comes_later_and_comes_again(node, pods):
    pod = pods(NUMBERED, "--way", "redirect", but=("server",))
    # the sidecar is alive, and the pod not ready: its server is not there
    assert not pod.is_ready()
    began = time.monotonic()
    assert node.ask(pod.address, 8000)[0] == 502 and time.monotonic() - began < 5
    server = pod.start_container(pod.spec["containers"][0])
    wait_for(pod.is_ready, 30, "the pod is ready")
    assert node.ask(pod.address, 8000)[0] == 200
    server.stop(signal.SIGKILL)
    wait_for(lambda: not pod.is_ready(), 10, "the pod is not ready without its server")
    pod.start_container(pod.spec["containers"][0])
    wait_for(pod.is_ready, 30, "the pod is ready again")
    assert node.ask(pod.address, 8000)[0] == 200


def test_long_streams_end_whole_when_the_pod_does(node, pods):
    pod = pods(NUMBERED)
    wait_for(pod.is_ready, 30, "the pod is ready")
    results = []

    def stream():
        with node.entered():
            connection = http.client.HTTPConnection(pod.address, 8000, timeout=30)
            connection.connect()
        connection.request("GET", "/stream?4")
        results.append(connection.getresponse().read())

    threads = [threading.Thread(target=stream) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    began = time.monotonic()
    assert pod.terminate() == ENDED
    assert 2 < time.monotonic() - began < 15
    for thread in threads:
        thread.join(10)
    assert [result.endswith(b"done\n") and result.count(b"tick\n") for result in results] == [40] * 4


def test_clients_are_told_to_leave_before_the_server_does(node, pods, binary):
    pod = pods(NUMBERED)
    wait_for(pod.is_ready, 30, "the pod is ready")
    with node.entered():
        kept = http.client.HTTPConnection(pod.address, 8000, timeout=10)
        kept.connect()
        other = http.client.HTTPConnection(pod.address, 8000, timeout=10)
        other.connect()
    kept.request("GET", "/x")
    answer = kept.getresponse()
    assert answer.read() == b"ok" and answer.headers["connection"] != "close"
    # from another machine it is not for anybody to say
    assert node.ask(pod.address, 9464, "/leave", "POST")[0] == 403
    assert pod.run(binary, "leave").returncode == 0
    assert node.ask(pod.address, 9464, "/readyz")[0] == 503
    kept.request("GET", "/x")
    answer = kept.getresponse()
    assert answer.read() == b"ok" and answer.headers["connection"] == "close"
    # one that has carried nothing yet stays for its first request, and new ones are served
    time.sleep(2)
    other.request("GET", "/x")
    answer = other.getresponse()
    assert answer.read() == b"ok" and answer.headers["connection"] == "close"
    status, headers, body = node.ask(pod.address, 8000)
    assert (status, body, headers["connection"]) == (200, b"ok", "close")


STOOD_STILL = 0.8
"""Seconds: less than there are from a pod's hook to its end. A client that says nothing for so long, as it may on a busy machine, can find its
connection closed, and has lost nothing by Lapwing."""


class Load:
    """Clients that keep connections to the Service and send what must not be sent twice, one request after the other."""

    def __init__(self, node, clients=8):
        self.node, self.stop = node, threading.Event()
        self.answers, self.lost, self.stood_still = collections.Counter(), [], 0
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self):
        connection, seen, still = None, 0, 0
        while not self.stop.is_set():
            try:
                if connection is None:
                    seen = time.monotonic()
                    with self.node.entered():
                        connection = http.client.HTTPConnection(VIRTUAL_IP, 80, timeout=10)
                        connection.connect()
                still = time.monotonic() - seen
                connection.request("POST", "/echo", b"once")
                answer = connection.getresponse()
                body = answer.read()
                seen = time.monotonic()
                self.answers[answer.status] += 1
                if answer.status != 200 or body != b"once":
                    self.lost.append((time.monotonic(), answer.status))
                if answer.headers.get("connection") == "close":
                    connection.close()
                    connection = None
            except (OSError, http.client.HTTPException) as error:
                if still > STOOD_STILL:
                    self.stood_still += 1
                else:
                    self.lost.append((time.monotonic(), still, repr(error)))
                connection = None
            time.sleep(0.005)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(15)
        return self


def rollouts(node, start, times):
    """Replaces the pod behind the Service, again and again, under load; the Service forgets a pod 0.3 s after it began to end."""
    old = start()
    wait_for(old.is_ready, 30, "the first pod is ready")
    node.lead(80, [(old.address, old.target)])
    load = Load(node)
    try:
        for _ in range(times):
            new = start()
            wait_for(new.is_ready, 30, "the next pod is ready")
            node.lead(80, [(old.address, old.target), (new.address, new.target)])
            time.sleep(0.5)
            forget = threading.Timer(0.3, node.lead, (80, [(new.address, new.target)]))
            forget.start()
            codes = old.terminate()
            assert codes["server"] == ENDED["server"] and codes.get("lapwing", 0) == 0, codes
            forget.join()
            old.delete()
            old = new
        time.sleep(0.5)
    finally:
        load.end()
    assert load.answers[200] > 100 * times
    return load


@pytest.mark.parametrize("way, text", [("named", NAMED), ("redirect", NUMBERED)])
def test_rollouts_lose_nothing(node, pods, way, text):
    load = rollouts(node, lambda: pods(text, "--way", way), 2)
    assert load.lost == []


ENVOY = """\
admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 9901}}}}}}
static_resources:
  listeners:
  - address: {{socket_address: {{address: "::", port_value: 9463, ipv4_compat: true}}}}
    drain_type: MODIFY_ONLY
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts: [{{name: all, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: server, timeout: 0s}}}}]}}]
          http_filters: [{{name: r, typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}]
  clusters:
  - name: server
    load_assignment:
      cluster_name: server
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 8000}}}}}}}}]}}]
"""


def envoy_pod(pods, binary, folder):
    """The injected pod with Envoy in Lapwing's place: the same redirection, and a hook that drains its listeners as Istio's does."""
    envoy = shutil.which("envoy", path=f"{sys.prefix}/bin") or pytest.skip("no envoy")
    config = folder / "envoy.yaml"
    config.write_text(ENVOY.format())
    done = subprocess.run([binary, "inject", "--way", "redirect", "-"], input=NUMBERED, capture_output=True, text=True)
    spec, target = parsed(done.stdout)
    sidecar = spec["initContainers"][-1]
    hook = "import urllib.request as r; r.urlopen(r.Request('http://127.0.0.1:9901/drain_listeners?graceful&skip_exit', method='POST'))"
    sidecar |= {"args": ["-c", str(config), "--drain-time-s", "1", "--drain-strategy", "immediate", "--log-level", "error", "--use-dynamic-base-id"]}
    sidecar["lifecycle"]["preStop"]["exec"]["command"] = [sys.executable, "-c", hook]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        sidecar.pop(probe, None)
    sidecar["startupProbe"] = {"tcpSocket": {"port": 9463}}
    commands = {"server": UVICORN, "lapwing": [envoy], "lapwing-redirect": [binary]}
    return pods.begin(spec, target, commands=commands)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sidecar", ["lapwing", "envoy", "none"])
def test_twenty_rollouts(node, pods, binary, tmp_path, sidecar):
    """Lapwing loses nothing. What Envoy and the server alone lose here is printed, not judged."""
    starts = {
        "lapwing": lambda: pods(NUMBERED),
        "envoy": lambda: envoy_pod(pods, binary, tmp_path),
        "none": lambda: pods.begin(*parsed(NUMBERED)),
    }
    load = rollouts(node, starts[sidecar], 20)
    print(f"{sidecar}: {load.answers[200]} answered, {len(load.lost)} lost: {load.lost[:5]}")
    assert sidecar != "lapwing" or load.lost == []
