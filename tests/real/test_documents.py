"""Every command of the documents runs as it is written: all `sh` blocks of a document in their order, in a folder with the repository's
files and a network of its own, with a model server on port 8000, another on 9000, and clients of port 8080. What needs a cluster, a daemon
or minutes has a stand-in (stand_ins.py) that checks its arguments."""

import functools
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import stand_ins
from certificates import Authority
from engine import fixtures
from shadowing import WIDTHS

pytestmark = pytest.mark.beside
ROOT = pathlib.Path(__file__).parents[2]
GO = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "tmp/go/bin"
PLACES = ("*.md", "docs/*.md", "dashboards/*.md", "deploy/**/README.md", "examples/**/README.md")
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for place in PLACES for path in ROOT.glob(place))
COMMANDS = r"(\$ )?(lapwing|cargo|curl|kubectl|helm|docker|pip|python3?|for|export|systemctl|apt-get|tests/run) "

GOES_ON = {
    r"lapwing (--upstream|serve\b)": ("lapwing", 8080, 9464),
    r"lapwing demo": ("lapwing", 9464),
    r"lapwing engine serve": ("engine", 8081),
    r"lapwing webhook": ("webhook", 8443),
    r"uvicorn \S+ --port 8000": ("server", 8000),
}
"""What runs until it is stopped: what it takes the place of, and where it listens."""
SHORTENED = {"--for 10m": "--for 8s", "--seconds 15": "--seconds 5", "--seconds 120": "--seconds 60", "sleep 40": "sleep 28"}
"""Options that make a command last long, and those that it has here."""
NOT_HERE = {r"lapwing engine serve .*--device cuda": "this machine has no GPU: it must say so"}
"""What fails here."""
VERDICTS = {r"(kubectl exec .* -- |sleep \d+ && )?lapwing diagnose": 3, r"lapwing replay .*--gate": 1, r"lapwing doctor": 1, r"lapwing warm": 1}
"""Commands whose exit code is a verdict, and the greatest."""
ELSEWHERE = {"/etc/lapwing/": "etc/", "/usr/share/": "share/", "/tls/": "tls/"}
"""Folders of the machine, and those that stand for them."""
TOOLS = {"ip": "ip link", "jq": r"\| jq ", "helm": "(?m)^helm ", "kustomize": "apply -k"}
"""What commands need that is not everywhere, and where that shows."""
BEFORE = {
    # Lapwing counts requests of which spans may come some seconds later
    "docs/FLEET.md": ["lapwing --upstream http://127.0.0.1:8000", "sleep 8"]
    + [f"curl -s 127.0.0.1:9464/hdr > {day}.hlog" for day in ("monday", "tuesday")],
    "docs/CACHE.md": ["export LAPWING_CACHE='{mode: on, proof: 4, max_stale: 50%, scope: shared}'", "lapwing --upstream http://127.0.0.1:8000"],
    "docs/DISPATCH.md": ["lapwing --upstream http://127.0.0.1:8000"],
    "docs/OPERATIONS.md": ["lapwing --upstream http://127.0.0.1:8000"],
    "docs/RECORDING.md": ["lapwing --upstream http://127.0.0.1:8000"],
    "docs/HYDRATION.md": ["lapwing --upstream http://127.0.0.1:8000"],
    "docs/SPLIT.md": ["lapwing --upstream http://127.0.0.1:8000"],
    "examples/servers": ["lapwing --upstream http://127.0.0.1:8000"],
}
"""What a document takes for granted."""
OWN_SERVER = {"examples/README.md", "docs/TUTORIAL.md"}
"""Those that start the server themselves."""
SEEN = {
    "docs/TUTORIAL.md": (
        "Queue-bound", "in bursts of about", "then: raise instances, threads or the batch limit, so that a burst is worked on at once",
        "POST /v2/models/{model}/infer, model digits", "int8 (http://127.0.0.1:9000): ", "outputs agree in 0 % of ",
        "vLLM in container vllm, port 8000 (its argument --port)", "way redirect (Service/vllm leads to the pod's own port)",
    ),
}
"""What a document says that its reader sees."""

READY = """
curl() { command curl --fail --silent --show-error "$@"; }
listens() { for _ in $(seq 300); do if (echo > "/dev/tcp/127.0.0.1/$1") 2>&-; then return; fi; sleep 0.1; done; echo "nothing on port $1"; false; }
warm() { listens "$1" && for _ in $(seq 100); do if curl "127.0.0.1:$1/v2/health/ready" > ready.txt 2>&1; then return; fi; sleep 0.1; done; cat ready.txt; false; }
declare -A running
begin() { running[$1]=$2; }
end() { if [[ -n ${running[$1]-} ]]; then kill "${running[$1]}"; wait "${running[$1]}" || true; running[$1]=; fi; }
"""
LOAD = """
import http.client, json, random, threading, time
data = [[random.uniform(-1, 1) for _ in range(WIDTH)] for _ in range(64)]


def ask():
    while True:
        rows = random.choice([1, 1, 1, 2, 4])
        tensor = {"name": "x", "shape": [rows, WIDTH], "datatype": "FP32", "data": random.choice(data) * rows}
        body = json.dumps({"inputs": [tensor]})
        try:
            own = http.client.HTTPConnection("127.0.0.1", 8080, timeout=5)
            for _ in range(50):
                own.request("POST", "/v2/models/m/infer", body, {"content-type": "application/json"})
                own.getresponse().read()
                time.sleep(0.01)
        except OSError:
            time.sleep(0.05)


for _ in range(6):
    threading.Thread(target=ask).start()
"""


def blocks(document, language="sh"):
    """The fenced blocks of a language: the number of the first line, and the text."""
    text = (ROOT / document).read_text()
    found = re.finditer(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.S | re.M)
    return [(text[: one.start(3)].count("\n") + 1, one[3]) for one in found if one[2] == language]


def scene_of(document):
    """The recipes are one after the other in one, which saves their starts."""
    return "examples/servers" if document.startswith("examples/servers/") else document


SCENES = {}
for each in DOCUMENTS:
    if blocks(each):
        SCENES.setdefault(scene_of(each), []).append(each)


def first(table, command):
    return next((value for pattern, value in table.items() if re.match(pattern, command)), None)


def lines_of(command, label):
    """A command as lines of a script."""
    words = command.split("#")[0].strip() if command.startswith(("lapwing", "uvicorn")) else command
    for folder, instead in {**ELSEWHERE, **SHORTENED}.items():
        command, words = command.replace(folder, instead), words.replace(folder, instead)
    yield f"at={shlex.quote(label)}"
    if first(NOT_HERE, command):
        yield f"! timeout 30 {words}"
    elif going := first(GOES_ON, command):
        name, *ports = going
        if "--listen 127.0.0.1:" in words:
            ports = [words.split("--listen 127.0.0.1:")[1].split()[0]]
            name += ports[0]
        yield f"end {name}"
        yield f"{words} > {name}.log 2>&1 & begin {name} $!"
        waits = "warm" if name.startswith("engine") else "listens"
        yield from (f"{waits} {port} || {{ cat {name}.log; false; }}" for port in ports)
    elif most := first(VERDICTS, command):
        yield f"{words} || (($? <= {most}))"
    else:
        yield command


def script(scene):
    """The whole scene for bash: it ends at the first command that fails, and says which."""
    lines = ["set -eEo pipefail", "trap 'echo \"failed: $at\"' ERR", READY, "ip link set lo up"]
    text = "".join(block for document in SCENES[scene] for _, block in blocks(document))
    if "lapwing" in text:
        servers = [port for port in (8000, 9000) if f":{port}" in text + str(BEFORE.get(scene)) and scene not in OWN_SERVER]
        lines += [f"lapwing engine serve --model m=model.onnx --listen 127.0.0.1:{port} > server{port}.log 2>&1 &" for port in servers]
        lines += [f"warm {port} || {{ cat server{port}.log; false; }}" for port in servers]
        lines.append(f"{shlex.quote(sys.executable)} load.py > load.log 2>&1 &")
    for command in BEFORE.get(scene, []):
        lines += lines_of(command, command)
    for document in SCENES[scene]:
        folder = pathlib.Path(document).parent
        # commands of the documents in docs/ are for the repository's root
        lines.append(f"cd {'.' if str(folder) in ('docs', 'dashboards', '.') else folder}")
        for number, block in blocks(document):
            lines.append("pushd . > /dev/null")
            for command in re.sub(r" *\\\n\s*", " ", block).splitlines():
                lines += lines_of(command, f"{document}:{number}: {command}")
            lines.append("popd > /dev/null")
        lines.append('cd "$scene"')
    return "\n".join(lines) + "\n"


def write_stand_in(path):
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(stand_ins.__file__)} {path.name} "$@"\n')
    path.chmod(0o755)


@pytest.fixture
def folder(binary, tmp_path):
    """The repository's files, of which none is changed, and what the documents say that their reader has."""
    where = tmp_path / "scene"
    where.mkdir()
    for path in ROOT.iterdir():
        if path.name not in ("target", "tests", "deploy", "examples", ".ci") and not path.name.startswith((".git", ".venv")):
            (where / path.name).symlink_to(path)
    for name in ("deploy", "examples"):
        shutil.copytree(ROOT / name, where / name, ignore=shutil.ignore_patterns("__pycache__"))
    commands = tmp_path / "commands"
    commands.mkdir()
    for made in ("tests", ".ci", "etc", "share/bash-completion/completions", "share/man/man1", "tls"):
        (where / made).mkdir(parents=True)
    for name in stand_ins.WHY:
        write_stand_in(commands / name)
    (commands / "lapwing").symlink_to(pathlib.Path(binary).resolve())
    for stand_in in ("tests/run", ".ci/run", "deploy/debian/build"):
        write_stand_in(where / stand_in)
    (where / "tests/fixtures").symlink_to(ROOT / "tests/fixtures")
    shutil.copy(ROOT / "deploy/systemd/lapwing.yaml", where / "etc")
    certificate, _ = Authority(where / "tls").issue("tls")
    certificate.rename(certificate.with_suffix(".crt"))
    (where / "load.py").write_text(LOAD.replace("WIDTH", str(WIDTHS[0])))
    fixtures.mlp(where / "model.onnx", WIDTHS)
    shutil.copy(fixtures.DIGITS, where)
    np.save(where / "rows.npy", np.random.default_rng(1).uniform(-1, 1, (64, WIDTHS[0])).astype(np.float32))
    return where


@pytest.mark.timeout(230)
@pytest.mark.parametrize("scene", SCENES)
def test_commands_run_as_written(scene, folder, tmp_path):
    alone = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives nobody a network of their own")
    path = os.pathsep.join([str(tmp_path / "commands"), str(pathlib.Path(sys.executable).parent), str(GO), os.environ["PATH"], "/usr/sbin", "/sbin"])
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LAPWING_", "OTEL_"))}
    lines = script(scene)
    for tool, sign in TOOLS.items():
        if re.search(sign, lines) and not shutil.which(tool, path=path.split(os.pathsep, 1)[1]):
            pytest.skip(f"{tool} is not installed: tests/run installs it")
    (folder / "script").write_text(lines)
    with open(tmp_path / "output", "w+") as output:
        child = subprocess.Popen([*alone, "bash", "script"], cwd=folder, env={**env, "PATH": path, "scene": str(folder)}, stdout=output, stderr=output)
        try:
            code = child.wait(220)
        finally:
            child.send_signal(signal.SIGKILL)
            output.seek(0)
            text = output.read()
            logs = "".join(f"\n--- {log.name}\n{log.read_text()[-1500:]}" for log in folder.glob("**/*.log"))
    assert code == 0, text[-5000:] + logs
    assert not [one for one in SEEN.get(scene, ()) if one not in text]


def test_all_tables_are_of_the_documents():
    """Nothing is excused that no document has."""
    commands = [line for document in DOCUMENTS for _, block in blocks(document) for line in re.sub(r" *\\\n\s*", " ", block).splitlines()]
    assert all(any(option in command for command in commands) for option in {**ELSEWHERE, **SHORTENED})
    for table in (GOES_ON, NOT_HERE, VERDICTS):
        for pattern in table:
            assert any(re.match(pattern, command) for command in commands), pattern
    words = {pathlib.PurePath(word).name for command in commands for word in command.split()}
    assert set(stand_ins.WHY) <= words, set(stand_ins.WHY) - words
    assert BEFORE.keys() | OWN_SERVER | SEEN.keys() <= SCENES.keys()
    assert not [one for document, texts in SEEN.items() for one in texts if one not in (ROOT / document).read_text()]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_are_in_blocks_that_are_run(document):
    for number, block in blocks(document, "") + blocks(document, "bash") + blocks(document, "console"):
        assert not re.match(COMMANDS, block) or block.startswith("$ "), f"{document}:{number}: a block of commands begins with ```sh"


def test_operations_has_every_alert():
    rules = [ROOT / "dashboards/prometheus/lapwing.rules.yaml", ROOT / "deploy/charts/lapwing/templates/rules.yaml"]
    alerts = {name for path in rules for name in re.findall(r"- alert: (\w+)", path.read_text())}
    page = (ROOT / "docs/OPERATIONS.md").read_text()
    assert alerts == set(re.findall(r"`(Lapwing[A-Z]\w+)`", page)) and len(alerts) > 15


# --- commands in sentences

def sentences(document):
    """The code in a document's sentences."""
    prose = re.sub(r"^ *```.*?^ *```$", "", (ROOT / document).read_text(), flags=re.S | re.M)
    return [" ".join(one.split()) for one in re.findall(r"`([^`]+)`", prose)]


@functools.cache
def help_of(binary, *command):
    """The help of a command, empty if there is none of that name."""
    done = subprocess.run([binary, *command, "--help"], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def fault_of(binary, code):
    """What is wrong with a command in a sentence; `None` if the code is no command of the repository."""
    words = code.split()
    if words[0] == "lapwing" and len(words) > 1 and re.match(r"[a-z-]", words[1]):
        command = []
        while len(command) < 2 and (rest := words[1 + len(command) :]) and re.match(r"[a-z][a-z-]*$", rest[0]):
            if help_of(binary, *command, rest[0]) in ("", help_of(binary, *command)):
                break
            command.append(rest[0])
        if not command and not words[1].startswith("-"):
            return f"no command {words[1]}"
        text = help_of(binary, *command)
        unknown = [word for word in words[1:] if word.startswith("--") and not re.search(rf"{re.escape(word.split('=')[0])}\b", text)]
        return f"no {unknown}" if unknown else ""
    if re.match(r"(\.venv/bin/)?python3? (benches|docs|dashboards|examples)/", code):
        if not (ROOT / words[1]).exists():
            return f"no {words[1]}"
        if words[1].startswith("benches/"):
            command = [sys.executable, stand_ins.__file__, "python3", *words[1:]]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
            return done.stderr[-300:] if done.returncode else ""
        return ""
    return None


def test_commands_in_sentences_are_there(binary):
    found = [(document, code, fault_of(binary, code)) for document in DOCUMENTS for code in sentences(document)]
    assert not [one for one in found if one[2]]
    assert len([one for one in found if one[2] == ""]) > 100


@pytest.mark.parametrize(
    "code", ["lapwing inspect", "lapwing inject --undo", "lapwing engine serve --modell x", "python3 benches/none.py", "python3 benches/tls.py --nothing"]
)
def test_a_command_that_is_not_there_is_found(binary, code):
    assert fault_of(binary, code)
