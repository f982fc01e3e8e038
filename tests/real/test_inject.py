"""`lapwing inject` over manifests as people publish them: what it prints is valid in every version of Kubernetes, and it is a filter."""

import json
import pathlib
import subprocess

import kubernetes_validate
import pytest
import yaml

pytestmark = pytest.mark.beside

MANIFESTS = pathlib.Path(__file__).parents[1] / "fixtures" / "manifests"
FILES = sorted(path for path in MANIFESTS.iterdir() if path.suffix in (".yaml", ".json"))
VERSIONS = ("1.29", "1.30", "1.31", "1.32", "1.33", "1.34")
BUILT_IN = ("v1", "apps/v1", "batch/v1", "policy/v1", "networking.k8s.io/v1", "autoscaling/v2", "rbac.authorization.k8s.io/v1")


@pytest.fixture(scope="module")
def inject(binary):
    def run(*arguments, text=""):
        return subprocess.run([binary, "inject", *arguments], input=text.encode(), capture_output=True)

    return run


def objects(text):
    for document in yaml.safe_load_all(text):
        yield from (document or {}).get("items", [document] if document else [])


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_injected_is_valid(inject, version):
    count = 0
    for path in FILES:
        made = inject("--kubernetes", version, str(path))
        if made.returncode:
            assert made.returncode == 65 and not made.stdout and made.stderr, path
            continue
        for one in objects(made.stdout):
            if one["apiVersion"] in BUILT_IN:
                kubernetes_validate.validate(one, version, strict=True)
                count += "lapwing.dev/injected" in json.dumps(one)
    assert count > 70


def test_it_is_a_filter(inject):
    before = (MANIFESTS / "01-vllm-docs-cpu.yaml").read_bytes().decode()
    after = inject("-", text=before)
    assert after.returncode == 0 and b"vLLM in container vllm, port 8000" in after.stderr
    again = inject("-", text=after.stdout.decode())
    assert again.stdout == after.stdout and b"unchanged" in again.stderr
    assert inject("--remove", "-", text=after.stdout.decode()).stdout.decode() == before
    diff = inject("--diff", "-", text=before)
    assert diff.returncode == 1 and b"\n+        - name: lapwing\n" in diff.stdout
    assert inject("--diff", "-", text=after.stdout.decode()).returncode == 0


def test_what_the_api_server_fills_in_is_not_changed(inject):
    """As `kubectl get -o json` shows it after `kubectl apply`: a list, with defaults in the sidecar too."""
    items = list(objects(inject(str(MANIFESTS / "01-vllm-docs-cpu.yaml")).stdout))
    pod = next(one for one in items if one["kind"] == "Deployment")["spec"]["template"]["spec"]
    for container in pod["initContainers"] + pod["containers"]:
        container |= {"imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log"}
        for port in container.get("ports", []):
            port["protocol"] = "TCP"
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=4)
    again = inject("-", text=text)
    assert again.stdout.decode() == text and b"unchanged" in again.stderr


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "the input has no object with a pod in it"),
        ("a: [", "it is neither YAML nor JSON"),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\n", "the input has no object with a pod in it"),
    ],
)
def test_what_it_cannot_do_it_says(inject, text, said):
    made = inject("-", text=text)
    assert made.returncode == 65 and not made.stdout and said in made.stderr.decode()


def test_a_file_that_is_not_there(inject):
    made = inject("/nowhere.yaml")
    assert made.returncode == 66 and b"/nowhere.yaml cannot be read" in made.stderr


def test_an_object_that_is_not_there(inject):
    made = inject("--workload", "Deployment/no", str(MANIFESTS / "01-vllm-docs-cpu.yaml"))
    assert made.returncode == 65 and b"no object of the input is Deployment/no" in made.stderr
    # not of a part: it would be taken out of all
    made = inject("--remove", "--workload", "Deployment/no", str(MANIFESTS / "01-vllm-docs-cpu.yaml"))
    assert made.returncode == 64 and b"--workload" in made.stderr
