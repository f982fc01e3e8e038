"""`lapwing schema` beside `lapwing check`: what one takes the other takes, and what an editor should mark is a fault of both."""

import json
import pathlib
import re
import subprocess

import jsonschema_rs
import pytest

from config_schema import faults, parsed, schema_of, validator

pytestmark = pytest.mark.beside
ROOT = pathlib.Path(__file__).parents[2]
UPSTREAM = "upstream: http://127.0.0.1:8000\n"
INFER = "POST /v2/models/{model}/infer"

RIGHT = [
    "otlp_forward: https://c:4318\ntls: {collector: {ca: off}}",
    "telemetry: {metrics: on, endpoint: 'grpcs://c:4317'}",
    "proxy:",
    "proxy: {workers: , connect_timeout: 1m 30s}",
    "log: 5\nadmin: ' :9464 '\notlp_grpc: off\notlp_http: false",
    "proxy: {max_header_bytes: 8192, max_request_bytes: off, quick_ack: off, quick_ack_unhelped: 0.5, header_timeout: .5s}",
    "proxy: {max_request_bytes: 1.5 KIB, amend: {include_usage: true}}",
    "shadow: {sample: 1, noise: .5, header: x-shadow, targets: {a: h2c://m, b: unix:/run/m.sock}}",
    f"shadow: {{quotas: [{{route: '{INFER}'}}], headers: {{'x-*': remove}}, only: [{{route: , model: m}}]}}",
    "shadow: {compare: {tolerance: {absolute: 1e-3}, cosine: -1, routes: [{route: /a, tolerance: {absolute: auto}, top_k: 32}], ignore: [$.a]}}",
    "protocol: {custom: [{route: /x, model: {fixed: 5}, rows: {json: /a, header: }, primary: row}], flops: {m: {per_row: 1e9}, n: }}",
    "attribution: {spans: [{attribute: cached, value: true, stage: hydration}], server_timing: {tok: preprocessing}, poll: http://m/metrics}",
    "metrics: {budgets: {'*': {p99: 1s}}, native_schema: -4}",
    "cost: {models: {m: {ns_per_unit: 2.5, unit: row, source: by hand}}, devices: {d: {bytes_per_s: 1e12, fp16: 1e15}}}",
    "telemetry: {metrics: on, endpoint: grpc://c:4317, headers: {authorization: abc}, resource_attributes: {team: 7, live: true}}",
    "engine: {threads: 1024, cpus: 3, policy: 'fixed:8', timeout: off, device: cpu, load_memory: 64MiB}",
    "trace_contexts: xray, b3\notlp_forward_sampler: parentbased_traceidratio:0.1\nrespond_server_timing: true",
]

WRONG = [
    ("prxy: {}", "prxy"),
    ("proxy: {conect_timeout: 1s}", "conect_timeout"),
    ("protocol: {custom: [{route: /x, rows: {jsn: /a}}]}", "jsn"),
    ("metrics: {budgets: {'*': {p95: 1s}}}", "p95"),
    ("cost: {models: {m: {speed: 5}}}", "speed"),
    ("proxy: 5", "proxy"),
    ("proxy: [workers]", "proxy"),
    ("protocol: {custom: {route: /x}}", "custom"),
    ("shadow: {routes: POST /a}", "routes"),
    ("shadow: {targets: [http://m:1]}", "targets"),
    ("attribution: {spans: [{name: tok}]}", "stage"),
    ("proxy: {workers: many}", "workers"),
    ("proxy: {workers: '4'}", "workers"),
    ("proxy: {workers: 65}", "workers"),
    ("proxy: {max_in_flight: 0}", "max_in_flight"),
    ("proxy: {max_header_bytes: 1}", "max_header_bytes"),
    ("proxy: {quick_ack: false}", "quick_ack"),
    ("proxy: {connect_timeout: 5}", "connect_timeout"),
    ("proxy: {connect_timeout: 5 parsecs}", "connect_timeout"),
    ("proxy: {max_request_bytes: 12XB}", "max_request_bytes"),
    ("respond_server_timing: yes", "respond_server_timing"),
    ("log_format: xml", "log_format"),
    ("trace_sampling: maybe", "trace_sampling"),
    ("trace_contexts: b4", "trace_contexts"),
    ("listen: http://m:1", "listen"),
    ("listen: '8080'", "listen"),
    ("otlp_forward: ftp://c:4318", "otlp_forward"),
    ("otlp_forward: grpc://c", "otlp_forward"),
    ("admin_token: 12345678901234567", "admin_token"),
    ("shadow: {sample: 1.5}", "sample"),
    ("shadow: {order: before}", "order"),
    ("shadow: {targets: {a: 'm:8000'}}", "targets"),
    (f"shadow: {{quotas: [{{route: '{INFER}', per_minute: 0}}]}}", "per_minute"),
    ("shadow: {compare: {cosine: 2}}", "cosine"),
    ("shadow: {compare: {routes: [{route: /a, top_k: 33}]}}", "top_k"),
    ("attribution: {server_timing: {x: ingress}}", "server_timing"),
    ("attribution: {poll: false}", "poll"),
    ("metrics: {native_schema: 9}", "native_schema"),
    ("cost: {models: {m: {ns_per_unit: -1, unit: row, source: s}}}", "ns_per_unit"),
    ("cost: {devices: {d: {bytes_per_s: 1e12, fp16: 1e19}}}", "fp16"),
    ("diagnosis: {window: 2m}", "window"),
    ("engine: {device: gpu}", "device"),
    ("engine: {policy: 'fixed:x'}", "policy"),
    ("engine: {precision: int4}", "precision"),
    ("engine: {cpus: 3-}", "cpus"),
]


def check(binary, folder, text):
    """Faults of `lapwing check`, as text; nothing if there are none."""
    path = folder / "lapwing.yaml"
    path.write_text(UPSTREAM + text)
    done = subprocess.run([binary, "check", "--config", str(path)], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode in (0, 64), done.stderr
    return done.stderr if done.returncode else ""


def test_the_schema_is_a_schema_and_the_one_in_the_repository(binary):
    schema = schema_of(binary)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema" and jsonschema_rs.meta.is_valid(schema)
    assert schema == json.loads((ROOT / "examples/lapwing.schema.json").read_text())
    first = (ROOT / "examples/lapwing.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=lapwing.schema.json"


@pytest.mark.parametrize("text", RIGHT)
def test_what_lapwing_takes_the_schema_takes(binary, tmp_path, text):
    assert not check(binary, tmp_path, text)
    assert not faults(binary, UPSTREAM + text)


@pytest.mark.parametrize("text, named", WRONG)
def test_what_the_schema_refuses_is_a_fault(binary, tmp_path, text, named):
    told, marked = check(binary, tmp_path, text), faults(binary, UPSTREAM + text)
    assert named in told, told
    assert any(named in fault for fault in marked), marked


def documented():
    """Every example that is a configuration: the example file, and each block of a page that begins with a section."""
    yield "examples/lapwing.yaml", (ROOT / "examples/lapwing.yaml").read_text()
    sections = json.loads((ROOT / "examples/lapwing.schema.json").read_text())["properties"]
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]):
        for at, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)):
            if (first := re.match(r"(?:#.*\n)*(\w+):", block)) and first[1] in sections:
                yield f"{page.name} {at}", block


def test_every_documented_configuration_is_valid(binary):
    examples = dict(documented())
    assert len(examples) > 5, list(examples)
    wrong = {name: found for name, text in examples.items() if (found := faults(binary, text))}
    assert not wrong


def values(node, path=""):
    """Each default and example of the schema, with the schema of its key."""
    for key, inner in node.get("properties", {}).items():
        yield from ((f"{path}.{key}", inner, value) for value in ([inner["default"]] if inner.get("default") is not None else []))
        yield from values(inner, f"{path}.{key}")
    for branch in node.get("anyOf", []):
        yield from values(branch, path)
    for part in ("items", "additionalProperties"):
        if isinstance(node.get(part), dict):
            yield from values(node[part], f"{path}[]")
    yield from ((path, node, value) for value in node.get("examples", []))


def test_defaults_and_examples_are_of_their_own_kind(binary):
    found = list(values(schema_of(binary)))
    assert len(found) > 150, len(found)
    wrong = [(path, value) for path, node, value in found if not jsonschema_rs.is_valid(node, value)]
    assert not wrong
    assert all(validator(binary).is_valid(parsed(f"{{{key}: }}")) for key in schema_of(binary)["properties"]), "no value is none given"


def test_what_lapwing_prints_is_valid(binary, tmp_path):
    (tmp_path / "lapwing.yaml").write_text(UPSTREAM)
    done = subprocess.run([binary, "check", "--config", str(tmp_path / "lapwing.yaml")], capture_output=True, text=True, timeout=20, check=True)
    assert not faults(binary, done.stdout)


def test_tables_are_printed_and_a_page_without_them_is_refused(binary, tmp_path):
    done = subprocess.run([binary, "schema", "--markdown"], capture_output=True, text=True, timeout=20, check=True)
    assert "`proxy.workers`† ⚑ | number | `0` | 0–64 |" in done.stdout
    page = ROOT / "docs/CONFIGURATION.md"
    filled = subprocess.run([binary, "schema", "--markdown", str(page)], capture_output=True, text=True, timeout=20, check=True)
    assert filled.stdout == page.read_text(), "the page in the repository is not up to date"
    (tmp_path / "page.md").write_text("# no tables\n")
    refused = subprocess.run([binary, "schema", "--markdown", str(tmp_path / "page.md")], capture_output=True, text=True, timeout=20, check=False)
    assert refused.returncode == 66 and "no table for" in refused.stderr
