"""The Helm chart and the Kustomize component: for every combination of a table of values what they render is valid and fits together; what
the values must not be is refused; the certificate and the arguments are those with which `lapwing webhook` serves."""

import base64
import http.client
import itertools
import json
import os
import re
import shutil
import ssl
import subprocess
import tarfile
from collections import Counter

import kubernetes_validate
import pytest
import yaml

from charts import CHART, KUSTOMIZE, NAMESPACE, ROOT, build, closed, custom_resource, helm, objects, options, rendered
from ports import free_port
from process import wait_listening

pytestmark = pytest.mark.beside

VERSIONS = ("1.29", "1.30", "1.31", "1.32", "1.33", "1.34")
CUSTOM = ("monitoring.coreos.com", "cert-manager.io")
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
MODES = {
    "generated": {},
    "cert-manager": {},
    "cert-manager of the cluster's issuer": {"certificate.certManager.issuerRef": '{"name": "internal-ca", "kind": "ClusterIssuer"}'},
    "secret": {"certificate.secret": json.dumps({"name": "own-tls", "caBundle": PEM})},
}
MONITORS = ("none", "PodMonitor", "ServiceMonitor")
SCOPES = (
    {},
    {"webhook.excludedNamespaces": '["a", "lapwing-system"]', "webhook.namespaceSelector": '{"matchLabels": {"team": "ranking"}}',
     "webhook.objectSelector": '{"matchExpressions": [{"key": "app", "operator": "Exists"}]}', "monitors.namespaces": '["models"]',
     "monitors.matchLabels": '{"app": "ranker"}', "monitors.interval": '"15s"', "monitors.labels": '{"release": "prometheus"}',
     "rules.labels": '{"release": "prometheus"}', "dashboards.namespace": '"grafana"', "dashboards.folder": '""',
     "networkPolicy.metricsFrom": '[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]',
     "serviceAccount": '{"create": false, "name": "shared"}', "image.digest": f'"sha256:{"0" * 64}"', "podLabels": '{"team": "x"}',
     "podAnnotations": '{"a": "b"}', "nodeSelector": '{"kubernetes.io/os": "linux"}', "priorityClassName": '"high"',
     "tolerations": '[{"key": "gpu", "operator": "Exists"}]', "imagePullSecrets": '[{"name": "registry"}]',
     "inject.arguments": '["--trace-sampling=off"]', "inject.image": '"registry.example:5000/lapwing:0.1.0"'},
)
WAYS = ("redirect", "named", "service")
seen = set()
"""What has been validated: most objects are the same in many combinations."""


def validate(one, version):
    group = one["apiVersion"].split("/")[0]
    # the certificates are new each time
    key = re.sub(r"LS0t[\w+/=]+", "", json.dumps(one, sort_keys=True)), version if group not in CUSTOM else ""
    if key in seen:
        return
    if group in CUSTOM:
        custom_resource(one["kind"], group).validate(one)
    else:
        kubernetes_validate.validate(one, version, strict=True)
    seen.add(key)


def only(found, kind):
    [one] = [one for one in found if one["kind"] == kind]
    return one


def expected(mode, monitor, rules, dashboards, policy, replicas, scope):
    """How many objects of each kind there are."""
    kinds = Counter({"Deployment": 1, "Service": 1, "MutatingWebhookConfiguration": 1})
    kinds += Counter({"ServiceAccount": not scope, "Secret": mode == "generated", "NetworkPolicy": policy, "PrometheusRule": rules})
    kinds += Counter({"PodDisruptionBudget": replicas > 1, "ConfigMap": 7 * dashboards})
    kinds += Counter({"Certificate": 2, "Issuer": 2} if mode == "cert-manager" else {"Certificate": mode.startswith("cert-manager")})
    return +(kinds + Counter({monitor: 2 * (monitor != "none")}))


def check_references(found, mode):
    """What names another object, a port or a label names one that is there."""
    deployment, service, hooks = (only(found, kind) for kind in ("Deployment", "Service", "MutatingWebhookConfiguration"))
    template = deployment["spec"]["template"]
    labels, [container] = template["metadata"]["labels"].items(), template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    selectors = [deployment["spec"]["selector"]["matchLabels"], service["spec"]["selector"]]
    selectors += [one["spec"]["selector"]["matchLabels"] for one in found if one["kind"] == "PodDisruptionBudget"]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in found if one["kind"] == "NetworkPolicy"]
    selectors += [constraint["labelSelector"]["matchLabels"] for constraint in template["spec"]["topologySpreadConstraints"]]
    assert all(selector and selector.items() <= labels for selector in selectors)
    assert all(port["targetPort"] in ports for port in service["spec"]["ports"])
    for policy in (one for one in found if one["kind"] == "NetworkPolicy"):
        assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == set(ports)
    [volume] = template["spec"]["volumes"]
    secret = volume["secret"]["secretName"]
    made = {one["metadata"]["name"] for one in found if one["kind"] == "Secret"}
    made |= {one["spec"]["secretName"] for one in found if one["kind"] == "Certificate"}
    assert secret == "own-tls" if mode == "secret" else secret in made
    for hook in hooks["webhooks"]:
        called = hook["clientConfig"]["service"]
        assert (called["name"], called["namespace"]) == (service["metadata"]["name"], NAMESPACE)
        assert ("caBundle" in hook["clientConfig"]) == (not mode.startswith("cert-manager"))
        assert (hook["failurePolicy"], hook["sideEffects"]) == ("Ignore", "None")
        assert NAMESPACE in hook["namespaceSelector"]["matchExpressions"][0]["values"]
    if mode.startswith("cert-manager"):
        certificate = hooks["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
        leaf = next(one for one in found if one["kind"] == "Certificate" and one["spec"]["secretName"] == secret)
        assert certificate == f"{NAMESPACE}/{leaf['metadata']['name']}"
        assert f"{service['metadata']['name']}.{NAMESPACE}.svc" in leaf["spec"]["dnsNames"]
    monitors = [one for one in found if one["kind"].endswith("Monitor")]
    if monitors:
        pods, webhook = monitors
        field, port = ("podMetricsEndpoints", "port") if pods["kind"] == "PodMonitor" else ("endpoints", "targetPort")
        assert pods["spec"][field][0][port] == "lapwing-admin" and "lapwing-admin" not in ports
        of = labels if pods["kind"] == "PodMonitor" else service["metadata"]["labels"].items()
        assert webhook["spec"]["selector"]["matchLabels"].items() <= of
        assert webhook["spec"][field][0]["port"] in (ports if pods["kind"] == "PodMonitor" else [one["name"] for one in service["spec"]["ports"]])


@pytest.mark.parametrize("monitor", MONITORS)
@pytest.mark.parametrize("mode", MODES)
def test_every_combination_is_valid(mode, monitor):
    ways = itertools.cycle(WAYS)
    for rules, dashboards, policy, replicas, scope in itertools.product((0, 1), (0, 1), (0, 1), (1, 2), SCOPES):
        way = next(ways)
        values = {"certificate.mode": f'"{mode.split()[0]}"', **MODES[mode], "monitors.kind": f'"{monitor}"', "replicas": replicas, **scope}
        values |= {f"{name}.enabled": json.dumps(bool(on)) for name, on in
                   (("rules", rules), ("dashboards", dashboards), ("networkPolicy", policy))}
        values["inject.way"] = f'"{way}"'
        found = objects(rendered(*options(values)))
        assert Counter(one["kind"] for one in found) == expected(mode, monitor, rules, dashboards, policy, replicas, scope)
        check_references(found, mode)
        for one in found:
            # no rights are asked for, and none are given: the webhook asks the API server nothing
            assert not one["apiVersion"].startswith("rbac.authorization.k8s.io"), one["kind"]
            for version in VERSIONS:
                validate(one, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_rendered_for_a_version_is_valid_there(version):
    for vendor in ("", "-eks-5f1a3b2", "+k3s1"):
        found = objects(rendered(version=f"{version}.4{vendor}"))
        for one in found:
            kubernetes_validate.validate(one, version, strict=True)
        [container] = only(found, "Deployment")["spec"]["template"]["spec"]["containers"]
        assert f"--kubernetes={version}" in container["args"]
        assert ("lifecycle" in container) == (version != "1.29"), "pods sleep before they stop from 1.30 on"


def test_its_own_pods_may_nothing():
    found = objects(rendered())
    assert only(found, "ServiceAccount")["automountServiceAccountToken"] is False
    spec = only(found, "Deployment")["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    wanted = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == wanted
    assert all(mount["readOnly"] for mount in container["volumeMounts"])


def test_helm_lint():
    for mode, values in MODES.items():
        helm("lint", "--strict", CHART, *options({"certificate.mode": f'"{mode.split()[0]}"', **values}))


WRONG = {
    "replicas=two": "at '/replicas': got string, want integer",
    "replicas=0": "at '/replicas': minimum: got 0, want 1",
    "replica=3": "at '': additional properties 'replica' not allowed",
    "image.name=lapwing": "at '/image': additional properties 'name' not allowed",
    "image.repository=": "at '/image/repository': minLength: got 0, want 1",
    "image.repository=lapwing:0.1.0": "at '/image/repository': 'lapwing:0.1.0' does not match pattern",
    "image.digest=abc": "at '/image/digest': 'abc' does not match pattern",
    "inject.way=detour": "at '/inject/way': value must be one of 'redirect', 'named', 'service'",
    "inject.kubernetes=v1.31": "at '/inject/kubernetes': 'v1.31' does not match pattern",
    "inject.listenPort=80": "at '/inject/listenPort': minimum: got 80, want 1,024",
    "inject.arguments={off}": "at '/inject/arguments/0': 'off' does not match pattern",
    "webhook.timeoutSeconds=60": "at '/webhook/timeoutSeconds': maximum: got 60, want 10",
    "webhook.failurePolicy=Fail": "at '/webhook': additional properties 'failurePolicy' not allowed",
    "webhook.objectSelector.app=x": "at '/webhook/objectSelector': additional properties 'app' not allowed",
    "certificate.mode=none": "at '/certificate/mode': value must be one of 'generated', 'cert-manager', 'secret'",
    "certificate.mode=secret": "at '/certificate/secret/name': minLength: got 0, want 1",
    "certificate.mode=secret,certificate.secret.name=x": "at '/certificate/secret/caBundle': '' does not match pattern",
    "certificate.certManager.issuerRef.kind=Issuer": "at '/certificate/certManager/issuerRef': properties 'name' required, if 'kind' exists",
    "certificate.certManager.duration=90d": "at '/certificate/certManager/duration': '90d' does not match pattern",
    "monitors.kind=both": "at '/monitors/kind': value must be one of 'none', 'PodMonitor', 'ServiceMonitor'",
    "rules.enabled=1": "at '/rules/enabled': got number, want boolean",
    "dashboards.namespace=Grafana": "at '/dashboards/namespace': 'Grafana' does not match pattern",
    "networkPolicy.metricsFrom={monitoring}": "at '/networkPolicy/metricsFrom/0': got string, want object",
    "podDisruptionBudget.maxUnavailable=0": "at '/podDisruptionBudget/maxUnavailable': minimum: got 0, want 1",
    "resources.requests.cpu=lots": "at '/resources/requests/cpu': 'lots' does not match pattern",
    "tolerations[0].effect=Never": "at '/tolerations/0/effect': value must be one of",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_values_are_refused(wrong):
    done = helm("template", "lapwing", CHART, "--set", wrong, check=False)
    assert done.returncode != 0 and WRONG[wrong] in done.stderr and not done.stdout, done.stderr


def test_an_older_cluster_is_refused():
    """It would drop the matchConditions, and send every pod."""
    done = helm("template", "lapwing", CHART, "--kube-version", "1.27.0", check=False)
    assert done.returncode != 0 and "requires kubeVersion: >=1.28.0-0" in done.stderr


def schemas(at, path=""):
    yield path, at
    for key, value in (at.get("properties") or {}).items():
        yield from schemas(value, f"{path}.{key}")
    if isinstance(at.get("items"), dict):
        yield from schemas(at["items"], f"{path}[]")


def test_the_schema_is_closed_and_knows_every_value():
    schema = json.loads((CHART / "values.schema.json").read_text())
    for root in (schema, *schema["definitions"].values()):
        for path, one in schemas(root):
            assert {"type", "$ref"} & one.keys(), f"{path} has no type"
            if "properties" in one:
                assert one["additionalProperties"] is False, path
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    # what a chart gives to all that it depends on is not of this one
    of_schema = {path.lstrip(".").split("[")[0] for path, _ in schemas(schema)} - {"", "global"}
    optional = {f"certificate.certManager.issuerRef.{key}" for key in ("name", "kind", "group")}
    assert of_schema - optional == {path for path in paths(values) if path in of_schema}
    assert {path for path in paths(values) if not path.startswith("resources.")} <= of_schema


def test_the_values_of_the_documentation_are_there():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    text = (ROOT / "docs/KUBERNETES.md").read_text().split("## A webhook for the whole cluster")[1].split("\n## ")[0]
    named = [name for row in re.findall(r"^(`[^|\n]*) \|", text, re.M) for name in re.findall("`([^`]+)`", row)]
    assert len(named) > 9 and set(named) <= set(paths(values))


def paths(values, path=""):
    for key, value in values.items():
        yield f"{path}{key}"
        if isinstance(value, dict):
            yield from paths(value, f"{path}{key}.")


def test_the_package_is_the_chart(tmp_path):
    helm("package", CHART, "--destination", tmp_path)
    [package] = tmp_path.iterdir()
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    assert package.name == f"lapwing-{version}.tgz"
    with tarfile.open(package) as archive:
        members = {one.name: archive.extractfile(one).read() for one in archive if one.isfile()}
        assert all(one.isfile() for one in archive)
    for path in (ROOT / "dashboards/grafana").glob("*.json"):
        assert members[f"lapwing/files/dashboards/{path.name}"] == path.read_bytes()
    assert members["lapwing/files/lapwing.rules.yaml"] == (ROOT / "dashboards/prometheus/lapwing.rules.yaml").read_bytes()
    assert not [path for path in (ROOT / "deploy").rglob("*") if path.is_symlink()]
    all_of_it = options({"certificate.mode": '"cert-manager"', "rules.enabled": "true", "dashboards.enabled": "true"})
    assert rendered(*all_of_it, chart=package) == rendered(*all_of_it)


def test_the_dashboards_are_those_of_the_repository():
    maps = [one for one in objects(rendered("--set", "dashboards.enabled=true")) if one["kind"] == "ConfigMap"]
    wanted = {f"lapwing-{path.name}": json.loads(path.read_text()) for path in (ROOT / "dashboards/grafana").glob("*.json")}
    assert {name: json.loads(text) for one in maps for name, text in one["data"].items()} == wanted
    for one in maps:
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["annotations"] == {"grafana_folder": "Lapwing"}


FAILS_OPEN = """
rule_files: [rules.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'apiserver_admission_webhook_fail_open_count{name="pods.lapwing.dev",type="admit"}', values: '0x10 0+1x20'}
      - {series: 'apiserver_admission_webhook_fail_open_count{name="other.example",type="admit"}', values: '0+1x30'}
    alert_rule_test:
      - {eval_time: 10m, alertname: LapwingWebhookSilent}
      - eval_time: 22m
        alertname: LapwingWebhookSilent
        exp_alerts:
          - exp_labels: {severity: ticket, name: pods.lapwing.dev}
            exp_annotations:
              summary: 'pods.lapwing.dev: 10 pods started without Lapwing in 10 minutes'
              description: 'The API server got no answer in time, and let them start. See whether the webhook has ready pods, and whether its certificate is the one that caBundle trusts; then restart these pods.'
"""


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool_takes_the_rules(tmp_path):
    rule = only(objects(rendered("--set", "rules.enabled=true")), "PrometheusRule")
    committed = yaml.safe_load((ROOT / "dashboards/prometheus/lapwing.rules.yaml").read_text())["groups"]
    assert rule["spec"]["groups"][:-1] == committed
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    (tmp_path / "test.yaml").write_text(FAILS_OPEN)
    for command in (("check", "rules", "rules.yaml"), ("test", "rules", "test.yaml")):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_the_webhook_serves_with_what_is_rendered(binary, processes, tmp_path, way):
    """The container's arguments and the generated certificate, checked as the API server does."""
    port, admin = free_port(), free_port()
    found = objects(rendered(*options({"inject.way": f'"{way}"', "inject.image": '"registry.example/lapwing:9"', "webhook.port": port,
                                       "inject.listenPort": 19463, "inject.arguments": '["--trace-sampling=off"]'})))
    [container] = only(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    for name, text in only(found, "Secret")["data"].items():
        (tmp_path / name).write_bytes(base64.b64decode(text))
    command = [argument.replace("/tls/", f"{tmp_path}/").replace("[::]:9464", f"[::]:{admin}") for argument in container["args"]]
    processes("webhook", [binary, *command])
    wait_listening(port)
    hooks = {hook["name"].split(".")[0]: hook["clientConfig"] for hook in only(found, "MutatingWebhookConfiguration")["webhooks"]}
    assert set(hooks) == {"pods", "namespaces", "secured"} if way == "redirect" else {"pods", "namespaces"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "ranker-"},
           "spec": {"containers": [{"name": "server", "image": "vllm/vllm-openai:v0.10.0", "ports": [{"name": "http", "containerPort": 8000}]}]}}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                       "request": {"uid": "1", "operation": "CREATE", "object": pod}})
    client = hooks["namespaces"]
    context = ssl.create_default_context(cadata=base64.b64decode(client["caBundle"]).decode())
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.connect()
    connection.sock = context.wrap_socket(connection.sock, server_hostname=f"{client['service']['name']}.{NAMESPACE}.svc")
    connection.request("POST", client["service"]["path"], body, {"content-type": "application/json"})
    response = json.loads(connection.getresponse().read())["response"]
    assert response["auditAnnotations"]["result"] == "injected", response
    patch = base64.b64decode(response["patch"]).decode()
    assert ("lapwing-redirect" in patch) == (way == "redirect")
    for part in ("registry.example/lapwing:9", "--trace-sampling=off", "--listen=[::]:19463"):
        assert part in patch
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = http.client.HTTPConnection("127.0.0.1", admin, timeout=10)
        asked.request("GET", container[probe]["httpGet"]["path"])
        assert asked.getresponse().status == 200


# --- Kustomize

@pytest.mark.parametrize("version", VERSIONS)
def test_the_example_of_kustomize_is_valid(version):
    found = build(KUSTOMIZE / "example")
    assert Counter(one["kind"] for one in found) == {"Deployment": 1, "Service": 2, "ConfigMap": 1}
    for one in found:
        kubernetes_validate.validate(one, version, strict=True)


def test_the_component_adds_what_inject_adds(binary):
    built = {(one["kind"], one["metadata"]["name"].split("-")[0]): one for one in build(KUSTOMIZE / "example")}
    text = (KUSTOMIZE / "example/ranker.yaml").read_text()
    before = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}
    command = [binary, "inject", "--way=service", "--image=registry.example/lapwing:0.1.0", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=20)
    injected = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout)}
    assert built["Service", "cache"] == before["Service", "cache"]
    assert built["Service", "ranker"]["spec"] == injected["Service", "ranker"]["spec"] != before["Service", "ranker"]["spec"]
    ours, theirs = (of["Deployment", "ranker"]["spec"]["template"] for of in (built, injected))
    # where the server is, is a parameter here, and the record of changes there
    sidecar = ours["spec"]["initContainers"][0]
    upstream = theirs["spec"]["initContainers"][0]["args"].pop(0)
    parameters = built["ConfigMap", "lapwing"]
    assert sidecar.pop("envFrom") == [{"configMapRef": {"name": parameters["metadata"]["name"]}}]
    assert upstream == f"--upstream={parameters['data']['LAPWING_UPSTREAM']}"
    assert ours["metadata"]["annotations"].pop("lapwing.dev/inject") == "false"
    assert theirs["metadata"]["annotations"].pop("lapwing.dev/injected")
    assert ours == theirs
    # the variables are settings
    done = subprocess.run([binary, "check"], env={**os.environ, **parameters["data"]}, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and "# env LAPWING_UPSTREAM" in done.stdout and "# env LAPWING_TRACE_SAMPLING" in done.stdout


def test_the_component_changes_what_is_marked(tmp_path):
    shutil.copytree(KUSTOMIZE, tmp_path / "kustomize")
    template = {"metadata": {"labels": {"app": "x"}},
                "spec": {"initContainers": [{"name": "fetch", "image": "fetch:1"}], "containers": [{"name": "server", "image": "server:1"}]}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    marked = {"lapwing.dev/sidecar": "true"}
    added = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "plain"}, "spec": spec},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "sharded", "annotations": marked}, "spec": {**spec, "serviceName": "x"}},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "everywhere", "annotations": marked}, "spec": spec},
    ]
    with (tmp_path / "kustomize/example/ranker.yaml").open("a") as file:
        file.write("---\n" + yaml.safe_dump_all(added))
    built = {one["metadata"]["name"]: one for one in build(tmp_path / "kustomize/example")}
    assert built["plain"] == added[0]
    for name, kind in (("sharded", "StatefulSet"), ("everywhere", "DaemonSet")):
        assert built[name]["kind"] == kind
        assert {one["name"] for one in built[name]["spec"]["template"]["spec"]["initContainers"]} == {"lapwing", "fetch"}
        kubernetes_validate.validate(built[name], "1.29", strict=True)


def test_a_field_that_a_custom_resource_does_not_know_is_found():
    monitor = custom_resource("PodMonitor", "monitoring.coreos.com")
    one = only(objects(rendered("--set", "monitors.kind=PodMonitor", "--show-only", "templates/monitors.yaml"))[:1], "PodMonitor")
    assert monitor.is_valid(one)
    one["spec"]["podMetricsEndpoints"][0]["intervall"] = "15s"
    assert not monitor.is_valid(one)
    assert closed({"type": "object", "properties": {}})["additionalProperties"] is False
