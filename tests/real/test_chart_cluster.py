"""The chart installed into a real API server, which calls `lapwing webhook` as the chart's Deployment would run it.

Nothing runs pods here. So the webhook is a process of this machine with the container's arguments, and an EndpointSlice leads to it.
"""

import base64
import signal
import subprocess

import pytest

from charts import CHART, NAMESPACE, definition, options
from cluster import Cluster
from ports import free_port
from process import wait_for, wait_listening

pytestmark = [pytest.mark.long, pytest.mark.beside]
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/lapwing"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/lapwing-generated-tls"


def own_address():
    """An address of this machine that an EndpointSlice may have: none of the loopback."""
    found = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    return next((one for one in found if ":" not in one), None) or pytest.skip("this machine has no IPv4 address but the loopback's")


class Installed:
    """The chart's release and the process that stands for its pods."""

    def __init__(self, cluster, binary, processes, folder):
        self.cluster, self.binary, self.processes, self.folder = cluster, binary, processes, folder
        self.address, self.port, self.admin = own_address(), free_port(), free_port()
        self.values = options({"webhook.port": self.port, "webhook.timeoutSeconds": 5})
        cluster.namespace(NAMESPACE)
        self.notes = cluster.helm("install", "lapwing", CHART, "--namespace", NAMESPACE, *self.values)
        cluster.create(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "lapwing-1", "labels": {"kubernetes.io/service-name": "lapwing"}},
            "ports": [{"name": "https", "port": self.port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [self.address], "conditions": {"ready": True}}],
        })
        self.start()

    def start(self):
        """As the kubelet would: the Secret's files, the container's arguments, no token."""
        for name, text in self.cluster.get(SECRET)["data"].items():
            (self.folder / name).write_bytes(base64.b64decode(text))
        deployment = self.cluster.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/lapwing")
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        arguments = [one.replace("/tls/", f"{self.folder}/").replace("[::]:9464", f"127.0.0.1:{self.admin}") for one in container["args"]]
        self.process = self.processes("webhook", [self.binary, *arguments])
        wait_listening(self.port)

    def sidecar(self, namespace, annotations=None, labels=None, **spec):
        """Makes a pod. The names of its init containers, and the warnings."""
        metadata = {"generateName": "ranker-", "annotations": annotations or {}, "labels": labels or {}}
        server = {"name": "server", "image": "vllm/vllm-openai:v0.10.0", "ports": [{"name": "http", "containerPort": 8000}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [server], **spec}}
        made = self.cluster.create(f"/api/v1/namespaces/{namespace}/pods", pod)
        return [one["name"] for one in made["spec"].get("initContainers", [])], made["warnings"]


@pytest.fixture(scope="module")
def installed(binary, processes, tmp_path_factory):
    cluster = Cluster(processes, tmp_path_factory.mktemp("cluster"))
    made = Installed(cluster, binary, processes, tmp_path_factory.mktemp("tls"))
    cluster.namespace("plain")
    asks = {"lapwing.dev/inject": "enabled"}
    cluster.namespace("models", asks)
    for level in ("baseline", "restricted"):
        cluster.namespace(level, {**asks, "pod-security.kubernetes.io/enforce": level})
    wait_for(lambda: made.sidecar("models")[0], 30, "the API server knows of the webhook", every=0.5)
    return made


REDIRECTED = ["lapwing-redirect", "lapwing"]
YES, NO = {"lapwing.dev/inject": "true"}, {"lapwing.dev/inject": "false"}


@pytest.mark.parametrize(
    "namespace, annotations, wanted",
    [
        ("plain", {}, []),
        ("plain", YES, REDIRECTED),
        ("plain", NO, []),
        ("plain", {**YES, "lapwing.dev/way": "named"}, ["lapwing"]),
        ("models", {}, REDIRECTED),
        ("models", YES, REDIRECTED),
        ("models", NO, []),
        ("models", {"kubernetes.io/config.mirror": "x"}, []),
        # it would be refused with NET_ADMIN
        ("baseline", {}, []),
        ("baseline", YES, []),
        ("baseline", {**YES, "lapwing.dev/way": "named"}, ["lapwing"]),
        (NAMESPACE, YES, []),
        ("kube-system", YES, []),
    ],
)
def test_who_gets_the_sidecar(installed, namespace, annotations, wanted):
    # a mirror pod names its node
    spec = {"nodeName": "node"} if "kubernetes.io/config.mirror" in annotations else {}
    assert installed.sidecar(namespace, annotations, **spec)[0] == wanted


def test_what_cannot_be_injected_is_said_and_made(installed):
    spec = {"containers": [{"name": "tool", "image": "busybox:1.37", "command": ["sleep", "1d"]}]}
    names, said = installed.sidecar("models", **spec)
    assert names == [] and "lapwing is not injected" in said


def test_a_dry_run_is_answered_alike(installed):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "dry"}, "spec": {"containers": [{"name": "s", "image": "vllm/vllm-openai:v0.10.0"}]}}
    made = installed.cluster.create("/api/v1/namespaces/models/pods?dryRun=All", pod)
    assert [one["name"] for one in made["spec"]["initContainers"]] == REDIRECTED
    assert installed.cluster.call("GET", "/api/v1/namespaces/models/pods/dry")[0] == 404


def certificate(cluster):
    """The Secret's data, and what the API server trusts."""
    data = cluster.get(SECRET)["data"]
    trusted = {hook["clientConfig"]["caBundle"] for hook in cluster.get(CONFIGURATION)["webhooks"]}
    return data, trusted


def test_an_upgrade_keeps_the_certificate(installed):
    cluster = installed.cluster
    before = certificate(cluster)
    assert before[1] == {before[0]["ca.crt"]}
    cluster.helm("upgrade", "lapwing", CHART, "--namespace", NAMESPACE, *installed.values, "--set", "replicas=3")
    assert certificate(cluster) == before
    assert cluster.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/lapwing")["spec"]["replicas"] == 3


def test_without_the_secret_an_upgrade_makes_another(installed):
    cluster = installed.cluster
    before, _ = certificate(cluster)
    assert cluster.call("DELETE", SECRET)[0] == 200
    cluster.helm("upgrade", "lapwing", CHART, "--namespace", NAMESPACE, *installed.values)
    after, trusted = certificate(cluster)
    assert trusted == {after["ca.crt"]} and not set(after.values()) & set(before.values())
    # until the kubelet has brought it, the API server trusts another one than the webhook shows
    wait_for(lambda: installed.sidecar("models")[0] == [], 20, "the API server knows the new authority", every=0.5)
    for name, text in after.items():
        (installed.folder / name).write_bytes(base64.b64decode(text))
    wait_for(lambda: installed.sidecar("models")[0] == REDIRECTED, 30, "the webhook shows the new certificate", every=0.5)


def test_with_the_webhook_dead_pods_start(installed):
    """And the metric of the alert LapwingWebhookSilent says so."""

    def failed_open():
        text = installed.cluster.session.get(f"{installed.cluster.url}/metrics", timeout=30).text
        counted = [line for line in text.splitlines() if line.startswith("apiserver_admission_webhook_fail_open_count{")]
        return sum(float(line.split()[-1]) for line in counted if 'name="namespaces.lapwing.dev"' in line)

    before = failed_open()
    installed.process.stop(signal.SIGKILL)
    try:
        assert installed.sidecar("models")[0] == [] and installed.sidecar("plain")[0] == []
        assert failed_open() == before + 1, "the second pod did not ask"
    finally:
        installed.start()
    wait_for(lambda: installed.sidecar("models")[0] == REDIRECTED, 30, "the webhook is called again", every=0.5)


def test_everything_together_is_taken(installed):
    """With the definitions of cert-manager and the Prometheus operator, as their projects publish them. Helm applies on the server, which
    refuses fields that it does not know."""
    cluster = installed.cluster
    custom = {"cert-manager.io": ("Certificate", "Issuer"), "monitoring.coreos.com": ("PodMonitor", "ServiceMonitor", "PrometheusRule")}
    for group, kinds in custom.items():
        for kind in kinds:
            made = cluster.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(kind, group))
            assert made[0] in (201, 409), made
            served = f"{cluster.url}/apis/{group}/v1/{kind.lower()}s"
            wait_for(lambda: cluster.session.get(served, timeout=10).ok, 30, f"{kind}s are served")
    release = ("lapwing", CHART, "--namespace", NAMESPACE, *installed.values)
    everything = ("--set", "rules.enabled=true,dashboards.enabled=true,networkPolicy.enabled=true")
    found = f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}"
    before, _ = certificate(cluster)
    cluster.helm("upgrade", *release, *everything, "--set", "certificate.mode=cert-manager,monitors.kind=PodMonitor")
    assert len(cluster.get(f"{found}/podmonitors")["items"]) == 2 and len(cluster.get(f"{found}/prometheusrules")["items"]) == 1
    assert len(cluster.get(f"/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificates")["items"]) == 2
    assert cluster.call("GET", SECRET)[0] == 404
    cluster.helm("upgrade", *release, *everything, "--set", "monitors.kind=ServiceMonitor")
    assert not cluster.get(f"{found}/podmonitors")["items"] and len(cluster.get(f"{found}/servicemonitors")["items"]) == 2
    after, trusted = certificate(cluster)
    assert trusted == {after["ca.crt"]} and after != before
    cluster.helm("rollback", "lapwing", "1", "--namespace", NAMESPACE)


def test_uninstalled_nothing_is_left(installed):
    cluster = installed.cluster
    cluster.helm("uninstall", "lapwing", "--namespace", NAMESPACE)
    assert cluster.call("GET", CONFIGURATION)[0] == 404
    for kind in ("secrets", "services", "configmaps", "serviceaccounts"):
        left = cluster.get(f"/api/v1/namespaces/{NAMESPACE}/{kind}?labelSelector=app.kubernetes.io/instance=lapwing")["items"]
        assert left == [], kind
    assert installed.sidecar("models")[0] == []
