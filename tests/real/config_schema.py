"""Configuration files against the JSON Schema that `lapwing schema` prints, by a validator that knows nothing of Lapwing."""

import functools
import json
import pathlib
import re
import subprocess

import jsonschema_rs
import yaml


class Yaml12(yaml.SafeLoader):
    """YAML 1.2, which Lapwing and editors read: `on`, `off` and `yes` are text, and `1e-3` is a number."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


Yaml12.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
Yaml12.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"), list("-+.0123456789"))


def parsed(text):
    return yaml.load(text, Loader=Yaml12)  # a safe loader


@functools.cache
def schema_of(binary):
    done = subprocess.run([binary, "schema"], capture_output=True, text=True, timeout=20, check=True)
    return json.loads(done.stdout)


@functools.cache
def validator(binary):
    return jsonschema_rs.Draft202012Validator(schema_of(binary))


def faults(binary, text):
    """What the schema has against a file with this text."""
    return [f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in validator(binary).iter_errors(parsed(text) or {})]


def assert_valid(binary, path):
    """A file that Lapwing takes is one that the schema takes."""
    assert not (found := faults(binary, pathlib.Path(path).read_text())), (path, found)
