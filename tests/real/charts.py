"""Helm and Kustomize on what is in deploy/, and the schemas of custom resources as their projects publish them."""

import os
import pathlib
import shutil
import subprocess

import jsonschema_rs
import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[2]
GO = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "tmp/go"
CHART = ROOT / "deploy/charts/lapwing"
KUSTOMIZE = ROOT / "deploy/kustomize"
NAMESPACE = "lapwing-system"
MODULES = {
    "monitoring.coreos.com": "github.com/prometheus-operator/prometheus-operator@*/example/prometheus-operator-crd/{group}_{plural}.yaml",
    "cert-manager.io": "github.com/cert-manager/cert-manager@*/deploy/crds/{group}_{plural}.yaml",
}
"""Where modules of Go, which tests/run downloads, have the definitions of custom resources."""


def tool(name):
    """The path of a tool that tests/run installs by Go."""
    found = shutil.which(name, path=f"{GO / 'bin'}:{os.environ['PATH']}")
    return found or pytest.skip(f"{name} is not installed: tests/run installs it where Go is there")


def helm(*arguments, check=True):
    """Runs Helm, with no settings of the user's. Its output, or what it said if `check` is false and it failed."""
    done = subprocess.run([tool("helm"), *map(str, arguments)], capture_output=True, text=True, timeout=100)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout if check else done


def options(values):
    """`--set-json` for each of the values, by their paths."""
    return [part for path, value in values.items() for part in ("--set-json", f"{path}={value}")]


def rendered(*arguments, chart=CHART, version="1.31.0", release="lapwing"):
    return helm("template", release, chart, "--namespace", NAMESPACE, "--kube-version", version, *arguments)


def objects(text):
    return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]


def build(folder):
    """What Kustomize builds."""
    done = subprocess.run([tool("kustomize"), "build", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def closed(schema):
    """The schema of a custom resource, but with no fields that it does not know. The API server drops those, `helm lint` cannot see them."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items() if not (key.startswith("x-") or key == "format")}
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if schema.get("type") == "object" and "properties" in schema and not is_open:
        made["additionalProperties"] = False
    return made


def definition(kind, group):
    """The CustomResourceDefinition."""
    pattern = MODULES[group].format(group=group, plural=kind.lower() + "s")
    found = sorted((GO / "pkg/mod").glob(pattern))
    if not found:
        pytest.skip(f"no definitions of {group}: tests/run downloads the Go module {pattern.split('@')[0]}")
    return yaml.load(found[-1].read_text(), yaml.CSafeLoader)


def custom_resource(kind, group):
    """The validator of a custom resource."""
    served = next(one for one in definition(kind, group)["spec"]["versions"] if one["storage"])
    schema = closed(served["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object", "required": ["name", "namespace"]}
    return jsonschema_rs.validator_for(schema)
