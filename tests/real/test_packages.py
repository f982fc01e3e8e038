"""Installed on one machine: what systemd is told, the unit, the Debian package, and what describes the wheel."""

import contextlib
import gzip
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib

import pytest
import requests

from lapwing import OPENER
from ports import free_port
from process import wait_for, wait_listening
from test_process import in_flight

pytestmark = pytest.mark.beside
ROOT = pathlib.Path(__file__).parents[2]
UNIT = ROOT / "deploy/systemd/lapwing.service"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
CARGO_TOOLS = TARGET / "tmp/cargo/bin"
MOST_EXPOSED = 2.0
"""What `systemd-analyze security` may give."""


def needs(*tools):
    return pytest.mark.skipif(not all(map(shutil.which, tools)), reason=f"{' or '.join(tools)} is not installed: tests/run installs them")


def run(*command, **kw):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False, **kw)


# --- what the service manager is told

class Manager:
    """The end of NOTIFY_SOCKET that systemd has."""

    def __init__(self):
        # the path of a socket has at most 107 bytes
        self.folder = tempfile.TemporaryDirectory(prefix="notify")
        self.path = f"{self.folder.name}/s"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.env = {"NOTIFY_SOCKET": self.path}

    def told(self, seconds=20):
        """The next message, by its fields; `None` if there is none in that time."""
        self.socket.settimeout(seconds)
        try:
            message = self.socket.recv(65536).decode()
        except TimeoutError:
            return None
        return dict(line.split("=", 1) for line in message.splitlines())

    def close(self):
        self.socket.close()
        self.folder.cleanup()


@pytest.fixture
def manager():
    with contextlib.closing(Manager()) as manager:
        yield manager


@pytest.fixture
def args(raw_server):
    def of(**flags):
        ports = {name: f"127.0.0.1:{free_port()}" for name in ("listen", "admin", "otlp-grpc", "otlp-http")}
        given = {"upstream": raw_server.url} | ports | flags
        return given, [f"--{name}={value}" for name, value in given.items()]

    return of


def test_it_is_ready_when_every_port_is_bound_and_livez_answers(processes, binary, manager, args):
    given, flags = args()
    processes("lapwing", [binary, *flags], env={**os.environ, **manager.env})
    told = manager.told()
    # at this moment, and not a moment later
    for name in ("listen", "admin", "otlp-grpc", "otlp-http"):
        host, port = given[name].split(":")
        socket.create_connection((host, int(port)), 5).close()
    with OPENER.open(f"http://{given['admin']}/livez", timeout=5) as answer:
        assert answer.status == 200
    assert told["READY"] == "1"
    assert given["listen"] in told["STATUS"] and given["upstream"] in told["STATUS"] and given["admin"] in told["STATUS"]
    assert manager.told(1) is None


def test_without_its_ports_it_is_never_ready(processes, binary, manager, args):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        _, flags = args(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        lapwing = processes("lapwing", [binary, *flags], env={**os.environ, **manager.env})
        assert lapwing.wait(20) == 1
    assert manager.told(0.5) is None


def test_a_reload_is_told_with_its_time_and_ends_with_ready(processes, binary, manager, args, tmp_path):
    path = tmp_path / "lapwing.yaml"
    path.write_text("drain_timeout: 5s\nconfig: {watch: off}\n")
    given, flags = args()
    lapwing = processes("lapwing", [binary, "serve", "--config", str(path), *flags], env={**os.environ, **manager.env})
    assert manager.told()["READY"] == "1"

    def reloaded(text):
        path.write_text(text)
        before = time.monotonic_ns() // 1000
        lapwing.send(signal.SIGHUP)
        begins, ends = manager.told(), manager.told()
        assert begins["RELOADING"] == "1" and "READY" not in begins, begins
        assert before <= int(begins["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        assert ends["READY"] == "1", ends
        return ends["STATUS"]

    assert "fault" not in reloaded("drain_timeout: 6s\nconfig: {watch: off}\n")
    with OPENER.open(f"http://{given['admin']}/config", timeout=5) as answer:
        assert b'"drain_timeout":"6s"' in answer.read().replace(b" ", b""), "what was told is in force"
    # one that fails leaves it ready with what it had
    assert "1 fault in the configuration, so nothing of it is in force" in reloaded("drain_timeout: soon\n")
    assert manager.told(0.5) is None


def test_the_end_is_told_when_it_begins_and_asks_for_the_time_to_drain(start_lapwing, raw_server, manager):
    lapwing = start_lapwing(raw_server.url, "--drain-timeout", "8s", env=manager.env)
    assert manager.told()["READY"] == "1"
    thread, answers = in_flight(lapwing, 1500)
    lapwing.process.send(signal.SIGTERM)
    told = manager.told(1)
    assert told["STOPPING"] == "1" and lapwing.process.is_running() and not answers, "a request is in flight"
    assert int(told["EXTEND_TIMEOUT_USEC"]) >= 8_000_000
    assert lapwing.process.wait(10) == 0
    thread.join(10)
    assert answers == [(200, True)]


def test_the_engine_alone_tells_it_too(processes, binary, manager, tmp_path):
    model = ROOT / "tests/fixtures/plans/mlp-3.onnx"
    env = {**os.environ, **manager.env, "LAPWING_ENGINE__LISTEN": f"127.0.0.1:{free_port()}"}
    engine = processes("engine", [binary, "engine", "serve", "--model", str(model)], env=env)
    told = manager.told(60)
    assert told["READY"] == "1" and env["LAPWING_ENGINE__LISTEN"] in told["STATUS"]
    with OPENER.open(f"http://{env['LAPWING_ENGINE__LISTEN']}/v2/health/live", timeout=5) as answer:
        assert answer.status == 200
    engine.send(signal.SIGTERM)
    assert manager.told()["STOPPING"] == "1" and engine.wait(20) == 0


def test_a_manager_that_is_gone_does_not_matter(processes, binary, args):
    given, flags = args()
    lapwing = processes("lapwing", [binary, *flags], env={**os.environ, "NOTIFY_SOCKET": "/nowhere/notify"})
    wait_listening(int(given["listen"].split(":")[1]))
    wait_for(lambda: "the service manager (NOTIFY_SOCKET) could not be told" in lapwing.output(), 10, "it says so")
    assert lapwing.is_running()


# --- the unit

def unit_settings():
    """The values of each setting of the section Service, in order."""
    found = {}
    for line in UNIT.read_text().split("[Service]")[1].split("[Install]")[0].splitlines():
        if line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


@needs("systemd-analyze")
def test_the_unit_is_sound_and_hardened(binary, tmp_path):
    # the binary is not installed here
    unit = tmp_path / "lapwing.service"
    text = UNIT.read_text()
    assert text.count("=/usr/bin/lapwing ") == 1
    unit.write_text(text.replace("=/usr/bin/lapwing ", f"={binary} "))
    said = run("systemd-analyze", "verify", "--man=no", unit)
    assert (said.returncode, said.stdout + said.stderr) == (0, "")
    # it would say so
    unit.write_text(unit.read_text().replace("Restart=on-failure", "Restart=sometimes\nLimitFiles=7"))
    said = run("systemd-analyze", "verify", "--man=no", unit)
    assert "sometimes" in said.stderr and "LimitFiles" in said.stderr

    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", UNIT)
    exposure = float(re.search(r"exposure level for lapwing\.service: (\d+\.\d+)", said.stdout).group(1))
    assert exposure <= MOST_EXPOSED, said.stdout


def allowed_calls(filters):
    """The system calls that these values of SystemCallFilter= allow."""
    said = run("systemd-analyze", "syscall-filter", "--no-pager")
    assert said.returncode == 0, said.stderr
    groups, name = {}, None
    for line in said.stdout.splitlines():
        line = re.sub(r"\x1b\[[0-9;]*m", "", line)
        if line.startswith("@"):
            name = line.strip()
            groups[name] = set()
        elif line.startswith("    ") and not line.strip().startswith("#"):
            groups[name].add(line.strip())

    def calls(name):
        return {call for part in groups[name] for call in (calls(part) if part.startswith("@") else {part})}

    allowed = set()
    for value in filters:
        for name in value.lstrip("~").split():
            allowed = allowed - calls(name) if value.startswith("~") else allowed | calls(name)
    # systemd always allows these
    return allowed | calls("@default")


@needs("systemd-analyze", "strace")
def test_the_unit_allows_what_lapwing_does(processes, binary, args, manager, tmp_path):
    """Every system call and every family of sockets of a Lapwing that is used, reloaded and ended."""
    if run("strace", "-f", "true").returncode != 0:
        pytest.skip("this machine forbids strace")
    settings = unit_settings()
    path, log = tmp_path / "lapwing.yaml", tmp_path / "strace"
    path.write_text("config: {watch: 1s}\naccess_log: " + str(tmp_path / "access.log") + "\n")
    given, flags = args()
    env = {**os.environ, **manager.env, "LAPWING_ENGINE__MODEL": str(ROOT / "tests/fixtures/plans/mlp-3.onnx"),
           "LAPWING_ENGINE__LISTEN": f"127.0.0.1:{free_port()}", "LAPWING_ENGINE__CPUS": "0", "LAPWING_ENGINE__THREADS": "1"}
    command = ["strace", "-f", "-qq", "-o", str(log), binary, "serve", "--config", str(path), *flags]
    traced = processes("strace", command, env=env)
    assert manager.told(120)["READY"] == "1"
    ask = lambda url: OPENER.open(url, timeout=30).read()
    for _ in range(3):
        ask(f"http://{given['listen']}/head")
    wait_for(lambda: requests.get(f"http://{given['admin']}/readyz").ok, 60, "the model is warm")
    for page in ("stats", "metrics", "diagnosis", "exchanges", "hdr", "config", ""):
        ask(f"http://{given['admin']}/{page}")
    (pid,) = map(int, run("pgrep", "-P", traced.pid).stdout.split())
    os.kill(pid, signal.SIGHUP)
    assert "RELOADING" in manager.told() and "READY" in manager.told()
    time.sleep(3)  # the upstream is polled, and the diagnosis ticks
    os.kill(pid, signal.SIGTERM)
    assert "STOPPING" in manager.told() and traced.wait(60) == 0

    lines = log.read_text().splitlines()
    made = {found.group(1) for line in lines if (found := re.match(r"\d+ +([a-z0-9_]+)\(", line))}
    assert {"epoll_wait", "accept4", "sched_setaffinity"} <= made, "it was traced, and the engine pinned its threads"
    assert made - {"execve"} <= allowed_calls(settings["SystemCallFilter"]) | {"open"}
    families = {family for line in lines for family in re.findall(r"socket\((AF_[A-Z0-9]+)", line)}
    assert "AF_INET" in families and families <= set(settings["RestrictAddressFamilies"][0].split()), families
    # MemoryDenyWriteExecute=
    assert not [line for line in lines if re.search(r"(mmap|mprotect)\(.*PROT_WRITE.*PROT_EXEC", line)]


# --- the Debian package

@pytest.fixture(scope="module")
def package(binary, tmp_path_factory):
    if not (CARGO_TOOLS / "cargo-deb").exists():
        pytest.skip("cargo-deb is not installed: tests/run installs it")
    out = tmp_path_factory.mktemp("deb")
    # as that of the profile dist, without symbols
    stripped = out / "lapwing"
    assert run("strip", "-o", stripped, binary).returncode == 0
    env = {**os.environ, "PATH": f"{CARGO_TOOLS}:{os.environ['PATH']}"}
    said = run(ROOT / "deploy/debian/build", "--binary", stripped, "--fast", "--out", out, env=env)
    assert said.returncode == 0, said.stderr
    assert said.stdout.strip().startswith(str(out)) and said.stdout.count("\n") == 1, said.stdout
    return pathlib.Path(said.stdout.strip())


@pytest.fixture(scope="module")
def unpacked(package, tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    assert run("dpkg-deb", "-x", package, root).returncode == 0
    return root


def version():
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def test_the_package_says_what_it_is_and_needs(package):
    field = lambda name: run("dpkg-deb", "-f", package, name).stdout.strip()
    assert field("Package") == "lapwing" and field("Version") == f"{version()}-1"
    assert field("Architecture") == {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    assert {"libc6 (>= 2.36)", "libgcc-s1"} <= set(field("Depends").split(", "))


def test_the_package_has_all_that_belongs_to_it(binary, unpacked):
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    for path in ("usr/bin/lapwing", "usr/lib/systemd/system/lapwing.service", "etc/lapwing/lapwing.yaml",
                 "usr/share/doc/lapwing/copyright", "usr/share/doc/lapwing/changelog.Debian.gz",
                 "usr/share/doc/lapwing/changelog.gz", "usr/share/doc/lapwing/examples/lapwing.yaml",
                 "usr/share/man/man1/lapwing.1.gz", "usr/share/man/man1/lapwing-doctor.1.gz"):
        assert path in files, sorted(files)
    # what the binary says of itself is that of this binary
    for shell, path in (("bash", "bash-completion/completions/lapwing"), ("zsh", "zsh/vendor-completions/_lapwing"),
                        ("fish", "fish/vendor_completions.d/lapwing.fish")):
        assert (unpacked / "usr/share" / path).read_text() == run(binary, "completions", shell).stdout
    assert gzip.decompress((unpacked / "usr/share/man/man1/lapwing.1.gz").read_bytes()).decode() == run(binary, "man").stdout
    assert (unpacked / "usr/lib/systemd/system/lapwing.service").read_text() == UNIT.read_text()
    said = run(unpacked / "usr/bin/lapwing", "--version")
    assert said.stdout == f"lapwing {version()}\n" and os.access(unpacked / "usr/bin/lapwing", os.X_OK)
    # the unit names what the package brings
    assert "/etc/lapwing/lapwing.yaml" in unit_settings()["ExecStart"][0]
    said = run(unpacked / "usr/bin/lapwing", "check", "--config", unpacked / "etc/lapwing/lapwing.yaml")
    assert said.returncode == 0 and said.stderr == "", said.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="this machine gives no root, whom dpkg wants")
def test_dpkg_installs_it_keeps_its_configuration_and_purges_it(package, tmp_path):
    root = tmp_path / "root"
    (root / "var/lib/dpkg").mkdir(parents=True)
    # its scripts run here and know of the root by DPKG_ROOT; of its dependencies none is in the root
    dpkg = lambda *args: run("dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless", *args)
    said = dpkg("-i", package)
    assert said.returncode == 0, said.stderr
    config = root / "etc/lapwing/lapwing.yaml"
    links = lambda: [path for path in root.rglob("*.wants/*")]
    assert run(root / "usr/bin/lapwing", "--version").returncode == 0 and config.exists()
    assert links() == [], "it is not started before somebody has said where the server is"
    config.write_text("upstream: http://127.0.0.1:1\n")
    said = dpkg("-i", package)
    assert said.returncode == 0 and config.read_text() == "upstream: http://127.0.0.1:1\n", said.stderr
    assert dpkg("-r", "lapwing").returncode == 0
    assert config.exists() and not (root / "usr/bin/lapwing").exists()
    assert dpkg("-P", "lapwing").returncode == 0 and not config.exists()


@pytest.mark.long
@needs("lintian")
def test_lintian_finds_no_fault(package):
    said = run("lintian", "--allow-root", "--fail-on", "error", package)
    assert said.returncode == 0, said.stdout + said.stderr
    warned = {line.split()[2] for line in said.stdout.splitlines() if line.startswith("W: ")}
    assert warned <= {"initial-upload-closes-no-bugs", "description-synopsis-starts-with-article"}, said.stdout


# --- the wheel, which is not built here

@pytest.mark.parametrize("target", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"])
def test_the_wheel_is_described(target, tmp_path):
    """The metadata that `pip wheel` asks maturin for before it builds anything."""
    maturin = pathlib.Path(sys.executable).parent / "maturin"
    if not maturin.exists():
        pytest.skip("maturin is not installed: it is in tests/requirements.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    said = run(maturin, "pep517", "write-dist-info", "--metadata-directory", tmp_path, "--interpreter", sys.executable,
               "--target", target, cwd=ROOT)
    assert said.returncode == 0, said.stderr
    (info,) = tmp_path.glob(f"lapwing-{version()}.dist-info")
    head, readme = (info / "METADATA").read_text().split("\n\n", 1)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    expected = {"Name": "lapwing", "Version": version(), "License-Expression": project["project"]["license"],
                "Requires-Python": project["project"]["requires-python"], "Summary": project["project"]["description"]}
    assert {name: fields[name] for name in expected} == expected
    assert readme.startswith("# Lapwing") and (info / "licenses/LICENSE").exists()
    # a command and no module of Python, for this architecture: any Python takes it
    assert f"Tag: py3-none-linux_{target.split('-')[0]}" in (info / "WHEEL").read_text()
