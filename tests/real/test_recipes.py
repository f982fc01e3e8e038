"""The recipes of examples/servers: they are what `lapwing inject` makes, they are valid, their servers are asked for what
`lapwing upstream-flags` says, and where this machine has the server, the pod's own commands show the stages that the table names."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml

from config_schema import assert_valid
from pod import OF_THE_POD, Pod, container_of, objects, spec_of, variables_of
from process import wait_for
from servers.parts import MODELS, Triton, python_of
from test_inject import BUILT_IN, VERSIONS

pytestmark = pytest.mark.beside
ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "examples/servers"
sys.path.append(str(FOLDER))
import write_injected as recipes  # noqa: E402

FOLDERS = recipes.recipes()
CONFIGURED = sorted(name for name, folder in FOLDERS.items() if (folder / "lapwing.yaml").exists())
TITLES = {"kserve": "a runtime of KServe"}
"""What the command calls a server, where that is not what `lapwing upstream-flags` calls it."""
GO = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "tmp/go/bin"
KUSTOMIZE = shutil.which("kustomize", path=os.pathsep.join([str(GO), os.environ["PATH"]]))
needs_kustomize = pytest.mark.skipif(not KUSTOMIZE, reason="no kustomize: it needs Go, and tests/run")


def flags(binary, *server):
    return subprocess.run([binary, "upstream-flags", *server], capture_output=True, text=True, check=True).stdout


def table():
    """The cells of each row of README.md's table, by its name."""
    rows = [line.split("|")[1:-1] for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("| [")]
    cells = [[cell.strip() for cell in row] for row in rows]
    return {re.match(r"\[.*\]\((.*)/\)", row[0])[1]: row[1:] for row in cells}


def built(name):
    """The manifest that is applied: with the configuration, where there is one."""
    if name not in CONFIGURED:
        return (FOLDERS[name] / "injected.yaml").read_text()
    if not KUSTOMIZE:
        pytest.skip("no kustomize: it needs Go, and tests/run")
    made = subprocess.run([KUSTOMIZE, "build", FOLDERS[name]], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return made.stdout


def sidecar(text):
    return container_of(spec_of(text), "lapwing")


# --- what lies there

def test_the_committed_manifests_are_what_the_command_makes(binary):
    assert recipes.differing(binary) == [], f"run python3 examples/servers/write_injected.py {binary}"


def test_every_server_has_a_recipe_and_a_row(binary):
    known = {line.split()[0] for line in flags(binary).splitlines() if re.match(r"[a-z.-]+ {2,}", line)}
    # which Triton or trtllm-serve serves
    known -= {"tensorrt-llm", "lapwing"}
    assert set(FOLDERS) == known == set(table()) and len(known) == 14


@pytest.mark.parametrize("name", FOLDERS)
def test_server_and_port_are_found(binary, name):
    _, said = recipes.injected(binary, FOLDERS[name])
    title = TITLES.get(name) or flags(binary, name).split(":")[0]
    found = re.search(r"^  (.*) in container (\S+), port (\d+) ", said, re.M)
    assert found and title == found[1], said
    text = (FOLDERS[name] / "injected.yaml").read_text()
    assert f"--upstream=http://127.0.0.1:{found[3]}" in sidecar(text)["args"]
    way = re.search(r"^  way (\w+)", said, re.M)[1]
    assert (found[3], f"`{way}`") == tuple(table()[name][:2])


@pytest.mark.parametrize("version", VERSIONS)
def test_before_and_after_are_valid(version):
    count = 0
    for name, folder in FOLDERS.items():
        for text in ((folder / "server.yaml").read_text(), built(name)):
            for one in objects(text):
                if one["apiVersion"] in BUILT_IN:
                    kubernetes_validate.validate(one, version, strict=True)
                    count += 1
    assert count > 50


@pytest.mark.parametrize("version", VERSIONS)
def test_the_example_by_hand_and_its_network_policy_are_valid(version):
    deployment, service = objects((ROOT / "examples/kubernetes-sidecar.yaml").read_text())
    (policy,) = objects((ROOT / "examples/kubernetes-network-policy.yaml").read_text())
    for one in (deployment, service, policy):
        kubernetes_validate.validate(one, version, strict=True)
    template = deployment["spec"]["template"]
    assert policy["spec"]["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    # all that Lapwing serves to others, and no receiver: that is on loopback
    requests, admin = policy["spec"]["ingress"]
    ports = [port["port"] for rule in (requests, admin) for port in rule["ports"]]
    (container,) = template["spec"]["initContainers"]
    assert ports == [port["containerPort"] for port in container["ports"]] and not any("--otlp" in one for one in container["args"])
    assert "from" not in requests and admin["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]


@pytest.mark.parametrize("name", FOLDERS)
def test_each_page_has_the_commands(name):
    page = (FOLDERS[name] / "README.md").read_text()
    configured, plain = "lapwing inject --config-map lapwing server.yaml > injected.yaml", "lapwing inject server.yaml | kubectl apply -f -"
    way_in = configured if name in CONFIGURED else plain
    assert way_in in page and ("kubectl apply -k ." in page) == (name in CONFIGURED)
    assert " -c lapwing -- lapwing stats" in page and "UPSTREAMS.md" in page


@pytest.mark.parametrize("name", FOLDERS)
def test_the_sidecars_telemetry_names_the_pod(binary, name):
    variables = variables_of(sidecar(built(name)))
    checked = subprocess.run([binary, "check", "--upstream", "http://127.0.0.1:8000"], env=variables, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    attributes = yaml.safe_load(checked.stdout)["telemetry"]["resource_attributes"]
    assert attributes == dict(zip(("k8s.pod.name", "k8s.namespace.name", "k8s.node.name"), OF_THE_POD.values()))


# --- Lapwing's configuration

@pytest.mark.parametrize("name", CONFIGURED)
def test_the_configuration_is_sound_and_that_of_the_sidecar(binary, name):
    file = FOLDERS[name] / "lapwing.yaml"
    checked = subprocess.run([binary, "check", "--config", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert_valid(binary, file)
    settings = yaml.safe_load(file.read_text())
    arguments = sidecar((FOLDERS[name] / "injected.yaml").read_text())["args"]
    assert {f"--{key}={settings[key]}" for key in ("upstream", "listen")} <= set(arguments)


@pytest.mark.parametrize("name", CONFIGURED)
def test_the_configuration_gets_into_the_sidecar(binary, name):
    text = built(name)
    maps = {one["metadata"]["name"]: one["data"] for one in objects(text) if one["kind"] == "ConfigMap"}
    volumes = {one["name"]: one for one in spec_of(text)["volumes"]}
    container = sidecar(text)
    (mount,) = container["volumeMounts"]
    content = maps[volumes[mount["name"]]["configMap"]["name"]]
    assert content == {"lapwing.yaml": (FOLDERS[name] / "lapwing.yaml").read_text()}
    assert f"--config={mount['mountPath']}/lapwing.yaml" in container["args"]
    # the command still knows its own: it changes nothing, and takes itself out
    again = subprocess.run([binary, "inject", "--config-map", "lapwing", "-"], input=text, capture_output=True, text=True, check=True)
    assert again.stdout == text and "unchanged" in again.stderr


# --- what the server is asked for

def asked(text):
    """What `lapwing upstream-flags` has after "Turn it on": the words that each command line adds."""
    part = text.split("Turn it on:\n")[1].split("What it reports then:")[0]
    for line in re.sub(r" \\\n +", " ", part).splitlines():
        # what stands behind three spaces is prose
        command = re.split(r" {3,}", line.strip())[0]
        if "… " in command:
            yield shlex.split(command.split("… ")[1])


def given(container):
    """Its arguments and variables, as words: options without the sign that joins them to their values."""
    words = [*container.get("command", []), *container.get("args", [])]
    return [*pairs(words), *(f"{one['name']}={one.get('value')}" for one in container.get("env", []))]


def pairs(words):
    """`--a=b` and `--a b` as the same text."""
    found = []
    for word in words:
        if not word.startswith("--") and found and found[-1].startswith("--") and " " not in found[-1]:
            found[-1] = f"{found[-1]} {word}"
        elif word.startswith("--"):
            found.append(word.replace("=", " ", 1))
        else:
            found.append(word)
    return found


@pytest.mark.parametrize("name", [name for name in FOLDERS if name != "kserve"])
def test_the_server_is_asked_as_upstream_flags_says(binary, name):
    text, (server, *_) = flags(binary, name), spec_of((FOLDERS[name] / "server.yaml").read_text())["containers"]
    whole = (FOLDERS[name] / "server.yaml").read_text()
    lines = list(asked(text))
    if name in ("triton", "vllm", "sglang", "tei", "tgi", "llama.cpp"):
        # one of the lines, where there are several
        assert any(set(pairs(line)) <= set(given(server)) for line in lines), (lines, given(server))
    elif name == "tensorflow-serving":
        assert "--rest_api_port 8501" in given(server) and [one for one in given(server) if one.startswith("--monitoring_config_file ")]
        (config,) = re.findall(r"prometheus_config \{.*\}", text)
        assert config in whole
    elif name == "torchserve":
        assert "metrics_mode=prometheus" in text and "metrics_mode=prometheus" in whole
    elif name == "mlserver":
        told = json.loads("{" + re.search(r'"tracing_server".*', text)[0] + "}")
        assert {f"MLSERVER_{key.upper()}={value}" for key, value in told.items()} <= set(given(server))
    elif name == "ray-serve":
        assert re.search(r"RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH=\S+", text)[0] in given(server)
    elif name == "fastapi":
        assert set(re.findall(r"OTEL_EXPORTER_OTLP_\w+=\S+", text)) <= set(given(server))
    else:
        assert name in ("ollama", "bentoml"), "nothing can be asked of these"
    if poll := re.search(r"attribution\.poll: (\S+)", text):
        assert yaml.safe_load((FOLDERS[name] / "lapwing.yaml").read_text())["attribution"]["poll"] == poll[1]


# --- the server itself, in a pod

class Running:
    """A recipe's pod with its server and its sidecar."""

    def __init__(self, binary, processes, folder, name, given, text=None):
        self.binary, self.name = binary, name
        text = text or built(name)
        self.pod = Pod(processes, folder, text, given)
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("LAPWING_", "OTEL_"))}
        # an image's entry point is `lapwing`
        self.sidecar = self.pod.start("lapwing", [binary], self.env, sidecar(text)["args"])
        wait_for(lambda: self.pod.answers("http://127.0.0.1:9464/livez"), 20, "lapwing is live")

    def serves(self, process, probe, seconds=90):
        """Waits for a probe of the server at this port and path."""

        def ready():
            assert process.is_running(), process.output()[-4000:]
            return self.pod.answers(f"http://127.0.0.1:{probe}")

        wait_for(ready, seconds, f"{self.name} answers", 0.3)

    def ask(self, path, body, times=20):
        for _ in range(times):
            data = body if isinstance(body, str) else json.dumps(body)
            header = ["-H", "content-type: application/json"]
            self.pod.run("curl", "-fsS", "-m", "100", *header, "-d", data, f"http://127.0.0.1:9463{path}")

    def stats(self):
        """What `lapwing stats` shows by default, as the page says."""
        return json.loads(self.pod.run(self.binary, "stats", "--window", "all", "--json"))

    def series(self, route, seconds=20, times=20):
        """The route's series, once all its requests are counted with what their server reported."""

        def counted():
            found = [one for one in self.stats()["series"] if one["route"] == route]
            return found[0] if found and sum(found[0]["outcomes"].values()) >= times else None

        return wait_for(counted, seconds, f"{route} is counted", 0.5)


def reported(series):
    """The stages and phases that the server reported, and how much of each."""
    parts = {**series["stages"], **series["phases"]}
    return {name: one["sources"] for name, one in parts.items() if {"reported", "traced"} & set(one["sources"])}


@pytest.fixture
def running(binary, processes, tmp_path):
    return lambda name, **given: Running(binary, processes, tmp_path, name, given)


def stages_in_table(name):
    return set(re.findall(r"`(\w+)`", table()[name][2]))


def test_triton(running, tmp_path):
    program, backends, env = Triton.install(tmp_path)
    models = tmp_path / "models"
    Triton().copy_models(models)
    one = running("triton", models=models)
    process = one.pod.start("triton", [program, f"--backend-directory={backends}"], env)
    one.serves(process, "8000/v2/health/ready")
    rows = {"name": "RAW", "shape": [2, 30], "datatype": "FP32", "data": [0.5] * 60}
    one.ask("/v2/models/pipe/infer", {"inputs": [rows]})
    series = one.series("POST /v2/models/{model}/infer")
    assert series["model"] == "pipe" and set(reported(series)) == stages_in_table("triton"), reported(series)


def test_llama(running, tmp_path):
    """By its library, which takes no arguments: port and slots are those of the manifest."""
    model = tmp_path / "tiny.gguf"
    servers = pathlib.Path(__file__).parent / "servers"
    subprocess.run([python_of("llama"), servers / "write_gguf.py", model, "--seed", "7"], check=True, capture_output=True)
    one = running("llama.cpp")
    options = dict(word.split(" ", 1) for word in given(container_of(one.pod.spec, "llama")) if " " in word)
    words = [str(model), options["--port"], "--parallel", options["--parallel"], "--context", "4096"]
    process = one.pod.start("llama", [python_of("llama"), servers / "llama_server.py"], one.env, words)
    one.serves(process, "8080/health")
    one.ask("/v1/completions", {"prompt": "a b c", "max_tokens": 8})
    series = one.series("POST /v1/completions")
    assert set(reported(series)) == stages_in_table("llama.cpp"), reported(series)


def test_mlserver(running, tmp_path):
    models = tmp_path / "models"
    shutil.copytree(MODELS / "mlserver", models)
    one = running("mlserver", models=models)
    # the image's own command
    process = one.pod.start("mlserver", [python_of("mlserver").parent / "mlserver"], one.env, ["start", str(models)])
    one.serves(process, "8080/v2/health/ready")
    tensor = {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]}
    one.ask("/v2/models/staged/infer", {"inputs": [tensor]})
    series = one.series("POST /v2/models/{model}/infer")
    assert series["model"] == "staged" and {"preprocessing", "forward"} == set(reported(series)), reported(series)
    assert not stages_in_table("mlserver"), "those are the runtime's own"


def test_kserve(running):
    serves_kserve(running("kserve"))


def test_kserves_runtime(binary, processes, tmp_path):
    """The sidecar of a runtime is that of `lapwing inject` where sidecars are ordinary containers; KServe's Service leads to it."""
    text = (FOLDERS["kserve"] / "runtime.yaml").read_text()
    runtime, service = objects(text)
    assert service["spec"]["predictor"]["model"]["runtime"] == runtime["metadata"]["name"]
    server, ours = runtime["spec"]["containers"]
    # what KServe makes of it, but with the port as it was
    before = {**server, "ports": [{**server["ports"][0], "containerPort": 8080}]}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [before]}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}
    command = [binary, "inject", "--kubernetes=1.28", "--way=named", "-"]
    made = subprocess.run(command, input=json.dumps(deployment), capture_output=True, text=True, check=True)
    theirs, sidecar_of_theirs = json.loads(made.stdout)["spec"]["template"]["spec"]["containers"]
    assert theirs == server
    settings = [one for one in ours["env"] if one["name"].startswith("LAPWING_")]
    assert {**ours, "env": [one for one in ours["env"] if one not in settings]} == sidecar_of_theirs
    for version in VERSIONS:
        spec["template"]["spec"]["containers"] = [server, ours]
        kubernetes_validate.validate(deployment, version, strict=True)
    serves_kserve(Running(binary, processes, tmp_path, "kserve", {}, text))


def serves_kserve(one):
    # KServe makes the container of a model by itself
    command = [*one.pod.enter, str(python_of("kserve")), str(MODELS / "kserve/steps.py"), "8080"]
    process = one.pod.processes("container-kserve", command, env=one.env)
    one.serves(process, "8080/v2/health/ready")

    def polled():
        one.ask("/v1/models/steps:predict", {"instances": [[1.0, 2.0]]}, 2)
        found = [each for each in one.stats()["polled"] if each["model"] == "steps" and each["stages"]]
        return found[0] if found else None

    found = wait_for(polled, 40, "the server's metrics are polled", 1)
    assert set(found["stages"]) == set(re.findall(r"`(\w+)`", table()["kserve"][3]))
    (series,) = [each for each in one.stats()["series"] if each["route"] == "POST /v1/models/{model}:predict"]
    assert not reported(series) and not stages_in_table("kserve")


@pytest.mark.long
def test_bentoml(running, tmp_path):
    one = running("bentoml")
    program = [python_of("bentoml"), "-m", "bentoml"]
    words = container_of(one.pod.spec, "bento")
    env = dict(one.env, BENTOML_HOME=str(tmp_path), BENTOML_DO_NOT_TRACK="True", PYTHONPATH=str(MODELS / "bentoml"))
    process = one.pod.start("bento", program, env, [*words["command"][1:], *words["args"], "--working-dir", str(MODELS / "bentoml")])
    one.serves(process, "3000/readyz")
    one.ask("/predict", {"rows": [[1, 2], [3, 4]], "report": True})
    series = one.series("POST /predict")
    assert series["model"] == "steps", series
    assert set(reported(series)) == stages_in_table("bentoml") and series["units"]["row"] == 40


def test_fastapi(running):
    one = running("fastapi")
    env = dict(one.env, PYTHONPATH=str(ROOT / "examples"))
    process = one.pod.start("scorer", [sys.executable, "-m", "uvicorn"], env)
    one.serves(process, "8000/openapi.json")
    one.ask("/predict", {"entity_ids": [3, 1, 4]})
    series = one.series("POST /predict")
    assert series["model"] == "scorer" and set(reported(series)) == stages_in_table("fastapi"), reported(series)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_ray(running):
    one = running("ray-serve")
    env = dict(
        one.env,
        PYTHONPATH=str(MODELS / "ray"),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_AUTH_MODE="disabled",
        RAY_raylet_start_wait_time_s="120",
        # a machine that does other things too
        RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S="60",
    )
    process = one.pod.start("serve", [python_of("ray").parent / "serve"], env)
    one.serves(process, "8000/-/healthz", 300)
    one.ask("/", "text")
    series = one.series("POST /", 60)
    assert series["model"] == "ranker" and set(reported(series)) >= stages_in_table("ray-serve"), reported(series)
