"""`lapwing webhook`, called as the API server calls it: over TLS, with AdmissionReview v1; its patches are applied by a library of RFC 6902."""

import base64
import contextlib
import http.client
import json
import pathlib
import signal
import socket
import time

import jsonpatch
import kubernetes_validate
import pytest
import yaml

from certificates import Authority, Secret
from ports import free_port
from process import wait_for, wait_listening

pytestmark = pytest.mark.beside

MANIFESTS = pathlib.Path(__file__).parents[1] / "fixtures" / "manifests"
VERSIONS = ("1.29", "1.31", "1.34")


class Webhook:
    def __init__(self, binary, processes, folder, *args):
        self.authority = Authority(folder)
        self.secret = Secret(folder / "secret")
        self.secret.write(*self.authority.issue("first"))
        self.port, self.admin = free_port(), free_port()
        command = [binary, "webhook", "--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"]
        command += ["--tls-certificate", str(self.secret.certificate), "--tls-key", str(self.secret.key), *args]
        self.process = processes("webhook", command)
        wait_listening(self.port)

    def connect(self):
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=self.authority.context())
        connection.connect()
        return connection

    def post(self, body, path="/inject", connection=None):
        """(status, body)."""
        connection = connection or self.connect()
        connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def review(self, pod, path="/inject", **request):
        request = {"uid": "705ab4f5", "operation": "CREATE", "object": pod, "dryRun": False, **request}
        status, body = self.post({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}, path)
        assert status == 200, body
        answer = json.loads(body)
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        response = answer["response"]
        assert response["uid"] == "705ab4f5" and response["allowed"] is True
        return response

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=10)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.fixture(scope="module")
def webhook(binary, processes, tmp_path_factory):
    return Webhook(binary, processes, tmp_path_factory.mktemp("webhook"))


def pods():
    """The pods that the corpus' objects make, as the API server sees them."""
    for path in sorted(MANIFESTS.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            for one in (document or {}).get("items", [document] if document else []):
                template = {"CronJob": lambda: one["spec"]["jobTemplate"]["spec"]["template"], "Pod": lambda: one}
                found = template.get(one["kind"], lambda: one["spec"].get("template"))() if "spec" in one else None
                if found and one["apiVersion"] in ("v1", "apps/v1", "batch/v1") and "containers" in found["spec"]:
                    metadata = {"generateName": "pod-", **{k: v for k, v in (found.get("metadata") or {}).items() if v}}
                    yield path.name, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": found["spec"]}


def patched(pod, response):
    patch = json.loads(base64.b64decode(response["patch"]))
    return jsonpatch.apply_patch(pod, patch)


def test_pods_of_a_namespace_that_asks_are_patched(webhook):
    injected = refused = 0
    for name, pod in pods():
        response = webhook.review(pod, "/inject/namespace")
        result = response["auditAnnotations"]["result"]
        if result == "injected":
            after = patched(pod, response)
            names = [one["name"] for one in after["spec"]["initContainers"]]
            assert names[-1] == "lapwing", name
            for version in VERSIONS:
                kubernetes_validate.validate({**after, "metadata": {**after["metadata"], "name": "pod"}}, version, strict=True)
            # asked again, after another webhook changed it, there is nothing to do
            again = webhook.review(after, "/inject/namespace")
            assert again["auditAnnotations"]["result"] == "unchanged" and "patch" not in again
            injected += 1
        else:
            assert result == "refused" and response["warnings"] and "patch" not in response, name
            refused += 1
    assert injected > 70 and refused > 5


def test_a_pod_asks_or_declines_by_its_annotation(webhook):
    pod = next(pod for name, pod in pods() if name.startswith("01-"))

    def result(value, path):
        metadata = {"generateName": "x-", "annotations": {"lapwing.dev/inject": value}} if value else {"generateName": "x-"}
        return webhook.review({**pod, "metadata": metadata}, path)["auditAnnotations"]["result"]

    assert [result(value, "/inject") for value in (None, "true", "false")] == ["left", "injected", "left"]
    assert [result(value, "/inject/namespace") for value in (None, "true", "false")] == ["injected", "injected", "left"]
    # a dry run is answered alike: nothing is kept
    assert webhook.review(pod, "/inject/namespace", dryRun=True)["auditAnnotations"]["result"] == "injected"
    assert webhook.review(pod, "/inject/namespace", operation="UPDATE")["auditAnnotations"]["result"] == "left"


def hostile():
    yield "empty", b"", 400, "it is no AdmissionReview"
    yield "no JSON", b"\x00\xff{", 400, "it is no AdmissionReview"
    yield "deep", b"[" * 200_000, 400, "it is no AdmissionReview"
    yield "another version", json.dumps({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}).encode(), 400, "apiVersion is"
    yield "no request", json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).encode(), 400, "request is missing"
    yield "8 MiB", b" " * (8 << 20), 413, "more than 7340032 bytes"


@pytest.mark.parametrize("name, body, status, said", list(hostile()), ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_no_review_gets_a_clear_answer(webhook, name, body, status, said):
    got = webhook.post(body)
    assert got[0] == status and said in got[1].decode()


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"containers": None},
        {"containers": "many"},
        {"containers": [None, 7, [], {}]},
        {"containers": [{"name": "x" * 100_000, "image": "vllm/" * 10_000}]},
        {"containers": [{"name": str(at), "image": "vllm/vllm-openai", "ports": [{"containerPort": 70_000}]} for at in range(5_000)]},
        {"containers": [{"name": "s", "image": "vllm/vllm-openai", "command": ["sh", "-c", "$" * 300_000 + "'" * 300_001]}]},
        {"containers": [{"name": "s", "image": "vllm/vllm-openai", "ports": {"containerPort": 8000}}], "initContainers": {}},
    ],
    ids=list(range(8)),
)
def test_a_pod_that_cannot_be_is_admitted_as_it_is(webhook, spec):
    """The API server refuses it, if it must."""
    began = time.monotonic()
    response = webhook.review({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}, "/inject/namespace")
    assert response["auditAnnotations"]["result"] in ("refused", "injected") and time.monotonic() - began < 5
    assert all(len(line) <= 250 for line in response.get("warnings", []))
    assert webhook.process.is_running()


def test_it_says_what_it_did(webhook):
    webhook.review({"apiVersion": "v1", "kind": "Pod"})
    assert webhook.get("/livez")[0] == webhook.get("/readyz")[0] == 200
    text = webhook.get("/metrics")[1]
    assert 'lapwing_webhook_reviews_total{result="left"}' in text and text.endswith("# EOF\n")
    assert "lapwing_webhook_review_duration_seconds_bucket" in text
    expiry = float(text.split("\nlapwing_webhook_certificate_expiry_timestamp_seconds ")[1].split()[0])
    assert 9 < (expiry - time.time()) / 86400 < 11
    with socket.create_connection(("127.0.0.1", webhook.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        stranger.settimeout(10)
        while stranger.recv(1024):
            pass
    failed = int(text.split("\nlapwing_webhook_tls_handshake_failures_total ")[1].split()[0])
    wait_for(lambda: f"tls_handshake_failures_total {failed + 1}\n" in webhook.get("/metrics")[1], 10, "the stranger is counted")


def test_its_certificate_is_swapped_and_it_drains(binary, processes, tmp_path):
    webhook = Webhook(binary, processes, tmp_path)

    def subject():
        with contextlib.closing(webhook.connect()) as connection:
            return dict(pair[0] for pair in connection.sock.getpeercert()["subject"])["commonName"]

    kept = webhook.connect()
    assert subject() == "first"
    webhook.secret.write(*webhook.authority.issue("second"))
    wait_for(lambda: subject() == "second", 20, "the new certificate is shown")
    assert webhook.post(b"{}", connection=kept)[0] == 400, "a connection of before stays"
    (tmp_path / "bad").write_text("nothing")
    webhook.secret.write(tmp_path / "bad", tmp_path / "bad")
    wait_for(lambda: "stays in force" in webhook.process.output(), 20, "the failure is said")
    assert subject() == "second" and "certificate_reload_failures_total 1" in webhook.get("/metrics")[1]
    webhook.process.send(signal.SIGTERM)
    assert webhook.process.wait(15) == 0


def test_faults_of_the_start_are_named(binary, processes, tmp_path):
    def said(*args):
        process = processes("webhook", [binary, "webhook", *args])
        assert process.wait(10) != 0
        return process.output()

    text = said("--tls-certificate", "/nowhere/tls.crt", "--tls-key", "/nowhere/tls.key")
    assert "certificate" in text and "/nowhere/tls.crt" in text
    assert "--tls-certificate" in said()
    assert "no version of Kubernetes, as in 1.29" in said("--kubernetes", "new", "--tls-certificate", "x", "--tls-key", "y")
    taken = socket.create_server(("127.0.0.1", 0))
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.issue("one"))
    at = f"127.0.0.1:{taken.getsockname()[1]}"
    assert f"cannot listen on {at}" in said("--tls-certificate", certificate, "--tls-key", key, "--listen", at)
