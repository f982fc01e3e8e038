"""examples/compose: the files are what the tools take that read them, and the parts run by them: server, Lapwing, Collector, Prometheus."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request

import pytest
import yaml

from config_schema import assert_valid
from lapwing import OPENER, Lapwing
from otlp_sink import OtlpSink
from ports import free_port
from process import wait_for, wait_listening
from test_dashboards import needs_promtool
from test_telemetry import OTELCOL, needs_otelcol

pytestmark = pytest.mark.beside
ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "examples/compose"
COMPOSE = OTELCOL.parent / "compose-spec"
needs_compose = pytest.mark.skipif(not COMPOSE.exists(), reason="no compose-go: it needs Go, and tests/run")


def read(name):
    return yaml.safe_load((FOLDER / name).read_text())


def services():
    return read("docker-compose.yaml")["services"]


def mounted():
    """(service, path on the host, path in the container)."""
    for name, service in services().items():
        for volume in service.get("volumes", []):
            source, target = volume.removesuffix(":ro").split(":")
            yield name, (FOLDER / source).resolve(), target


def content_of(service, target):
    """What a container finds at a path, by its mounts."""
    (found,) = [source / target.removeprefix(at).lstrip("/") for name, source, at in mounted() if name == service and target.startswith(at)]
    return found


def loads(text):
    """Whether the specification's own loader takes it, and what it says."""
    made = subprocess.run([COMPOSE, "/dev/stdin"], input=text, cwd=FOLDER, capture_output=True, text=True, check=False)
    return made.returncode == 0, made.stdout + made.stderr


@needs_compose
def test_compose_takes_it():
    text = (FOLDER / "docker-compose.yaml").read_text()
    taken, said = loads(text)
    assert taken and set(yaml.safe_load(said)["services"]) == set(services()), said
    for old, new in [("read_only: true", "read_only: perhaps"), ("depends_on: [jaeger]", "depend_on: [jaeger]")]:
        taken, said = loads(text.replace(old, new))
        assert old in text and not taken, said


def test_what_is_mounted_and_built_is_there():
    assert len(list(mounted())) >= 7
    for _, source, _ in mounted():
        assert source.exists(), source
    for service in services().values():
        assert set(service.get("depends_on", [])) <= set(services())
        if build := service.get("build"):
            context, file = (build["context"], build["dockerfile"]) if isinstance(build, dict) else (build, "Dockerfile")
            assert (FOLDER / context / file).exists()
    # the network that Lapwing shares, and the hosts that files name
    assert services()["lapwing"]["network_mode"] == "service:server" and {"server", "collector", "jaeger", "prometheus"} <= set(services())


def test_the_servers_image_has_the_tested_packages():
    """And Lapwing's image is of this version; the Collector's is that which runs here."""
    pinned = set((ROOT / "tests/requirements.txt").read_text().splitlines())
    named = re.findall(r"[a-z-]+==\S+", (ROOT / "examples/servers/fastapi/Dockerfile").read_text())
    assert len(named) == 5 and set(named) <= pinned
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    assert services()["lapwing"]["image"] == f"lapwing:{version}"
    built = re.search(r"version=v(\S+)", (ROOT / "tests/real/otelcol.sh").read_text())[1]
    assert services()["collector"]["image"] == f"otel/opentelemetry-collector:{built}"


def test_grafana_finds_its_dashboards_and_sources():
    sources = yaml.safe_load(content_of("grafana", "/etc/grafana/provisioning/datasources/lapwing.yaml").read_text())["datasources"]
    uids = {one["uid"] for one in sources}
    (dots,) = sources[0]["jsonData"]["exemplarTraceIdDestinations"]
    assert dots["datasourceUid"] in uids and {one["url"] for one in sources} == {"http://prometheus:9090", "http://jaeger:16686"}
    (provider,) = yaml.safe_load(content_of("grafana", "/etc/grafana/provisioning/dashboards/lapwing.yaml").read_text())["providers"]
    folder = content_of("grafana", provider["options"]["path"])
    assert len(list(folder.glob("*.json"))) >= 7
    home = services()["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert json.loads(content_of("grafana", home).read_text())["title"]


def test_lapwing_takes_its_file(binary):
    file = content_of("lapwing", "/etc/lapwing/lapwing.yaml")
    checked = subprocess.run([binary, "check", "--config", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert_valid(binary, file)


@needs_promtool
def test_prometheus_takes_its_file(tmp_path):
    for name, source, target in mounted():
        if name == "prometheus":
            shutil.copy(source, tmp_path / pathlib.Path(target).name)
    checked = subprocess.run(["promtool", "check", "config", "prometheus.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert checked.returncode == 0 and "1 rule files found" in checked.stdout, checked.stdout + checked.stderr


@needs_otelcol
def test_the_collector_takes_its_file():
    command = [OTELCOL, "validate", f"--config=file:{content_of('collector', '/etc/otelcol/config.yaml')}"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


# --- all of it but Grafana and Jaeger, on ports of this machine

def replaced(text, **hosts):
    """A file with addresses of this machine instead of those of the services; each must be there."""
    for old, new in hosts.items():
        old = old.replace("__", ".").replace("_", ":")
        assert old in text, old
        text = text.replace(old, new)
    return text


@needs_otelcol
@pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")
def test_they_run_together(binary, processes, logs, tmp_path):
    with OtlpSink() as jaeger:
        grpc, http, port, direct = free_port(), free_port(), free_port(), free_port()
        local = "127.0.0.1:{}".format
        text = replaced(
            (FOLDER / "collector.yaml").read_text(),
            **{"0__0__0__0_4317": local(grpc), "0__0__0__0_4318": local(http), "jaeger_4318": jaeger.url.removeprefix("http://")},
        )
        # its own metrics have one port
        (tmp_path / "collector.yaml").write_text(text + "  telemetry: {metrics: {level: none}}\n")
        processes("collector", [str(OTELCOL), f"--config=file:{tmp_path}/collector.yaml"])
        wait_listening(grpc, 30)

        text = replaced((FOLDER / "lapwing.yaml").read_text(), collector_4317=local(grpc), **{"127__0__0__1_8000": local(direct)})
        (tmp_path / "lapwing.yaml").write_text(text)
        lapwing = Lapwing(binary, logs, None, config=tmp_path / "lapwing.yaml").wait_live()
        env = dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{local(lapwing.otlp_http)}", OTEL_BSP_SCHEDULE_DELAY="200")
        command = [sys.executable, "-m", "uvicorn", "python_otel:app", "--app-dir", str(ROOT / "examples"), "--port", str(direct)]
        processes("server", command, env=env)
        wait_listening(direct, 60)

        text = replaced((FOLDER / "prometheus.yaml").read_text(), server_9464=local(lapwing.admin))
        (tmp_path / "prometheus.yaml").write_text(text)
        shutil.copy(ROOT / "dashboards/prometheus/lapwing.rules.yaml", tmp_path)
        flags = [one for one in services()["prometheus"]["command"] if one.startswith("--enable")]
        command = ["prometheus", f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/data", *flags]
        processes("prometheus", [*command, f"--web.listen-address={local(port)}"])
        wait_listening(port, 30)

        # the request of the load
        load = services()["load"]["command"][0]
        body, path = re.search(r"-d '([^']*)'", load)[1], re.search(r"http://server:8080(/\S+)", load)[1]

        def ask():
            request = urllib.request.Request(lapwing.url + path, body.encode(), {"content-type": "application/json"})
            with OPENER.open(request, timeout=30) as answer:
                assert answer.status == 200

        def asked(query):
            ask()
            with OPENER.open(f"http://{local(port)}/api/v1/query?query={query}", timeout=10) as answer:
                return json.load(answer)["data"]["result"]

        found = wait_for(lambda: asked('lapwing_requests_total{model="scorer",pod="server"}'), 60, "Prometheus has scraped", 0.1)
        assert found[0]["metric"]["route"] == "POST /predict"
        wait_for(lambda: asked('lapwing_stage_duration_seconds_count{stage="hydration"}'), 60, "the stages are there", 0.1)

        def traced_by_both():
            ask()
            with jaeger.lock:
                resources = [one for message in jaeger.requests["traces"] for one in message.resource_spans]
            names = {"model-server": set(), "lapwing": set()}
            for one in resources:
                (name,) = [a.value.string_value for a in one.resource.attributes if a.key == "service.name"]
                names[name] |= {span.trace_id for scope in one.scope_spans for span in scope.spans}
            return names["model-server"] & names["lapwing"]

        wait_for(traced_by_both, 60, "a trace has spans of both", 0.1)
