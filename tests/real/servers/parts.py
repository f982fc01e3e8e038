"""Starts the model servers that come as Python packages with requirements of their own (tests/run installs them)."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import urllib.request

from ports import free_port
from process import is_listening, wait_for

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "models"
ROOT = HERE.parents[2]
EXPORT_EVERY_MS = 200


def python_of(name):
    """The interpreter of `.venv-NAME`; a server that cannot be started is a failure, never a skipped test."""
    path = ROOT / f".venv-{name}" / "bin" / "python"
    assert path.exists(), f"{path} is missing: tests/run installs it"
    return path


def site_packages(python):
    """(where its packages lie, the version as in `3.11`, where its shared library may lie)."""
    ask = "import sysconfig as s; print(s.get_path('purelib'), s.get_python_version(), s.get_config_var('LIBDIR'))"
    out = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout
    lib, version, shared = out.split()
    return pathlib.Path(lib), version, shared


def get_json(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def is_ready(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except OSError:
        return False


def await_ready(process, condition, seconds):
    """Until the server answers; if it ended or never does, what it wrote is in the failure."""

    def ready():
        assert process.is_running(), f"{process.name} ended early:\n{process.output()[-6000:]}"
        return condition()

    try:
        wait_for(ready, seconds, f"{process.name} is ready", 0.1)
    except AssertionError as e:
        raise AssertionError(f"{e}\n{process.output()[-6000:]}") from None


class Server:
    """A model server's process, and where it listens."""

    def __init__(self):
        self.http, self.grpc, self.metrics = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.http}"
        self.grpc_url = f"http://127.0.0.1:{self.grpc}"
        self.process = None


class Triton(Server):
    """Triton Inference Server on the CPU; it traces only the requests that come with a `traceparent` (rate 0)."""

    def start(self, start, folder, otlp_port):
        binary, backends, env = self.install(folder)
        models = folder / "models"
        self.copy_models(models)
        command = [binary, f"--model-repository={models}", f"--backend-directory={backends}"]
        for name in ("http", "grpc", "metrics"):
            command += [f"--{name}-address=127.0.0.1", f"--{name}-port={getattr(self, name)}"]
        url = f"http://127.0.0.1:{otlp_port}/v1/traces"
        traced = ("mode=opentelemetry", "level=TIMESTAMPS", "rate=0", "count=-1")
        traced += (f"opentelemetry,url={url}", f"opentelemetry,bsp_schedule_delay={EXPORT_EVERY_MS}")
        for one in traced:
            command += ["--trace-config", one]
        self.process = start("triton", [str(part) for part in command], env=env)
        await_ready(self.process, lambda: is_ready(f"{self.url}/v2/health/ready"), 60)

    @staticmethod
    def install(folder):
        """Puts it there as its wheel does not; (the program, the folder of its backends, the variables)."""
        python = python_of("triton")
        packages, version, shared = site_packages(python)
        # the wheel keeps a stub for each Python beside the backend; the backend wants one, executable, in its own folder
        installed, backends = packages / "pytriton/tritonserver", folder / "backends"
        shutil.copytree(installed / "backends", backends)
        stub = backends / "python/triton_python_backend_stub"
        shutil.copy(installed / f"python_backend_stubs/{version}/triton_python_backend_stub", stub)
        binary = folder / "tritonserver"
        shutil.copy(installed / "bin/tritonserver", binary)
        stub.chmod(0o755)
        binary.chmod(0o755)
        libraries = [packages / "nvidia_pytriton.libs", shared, os.environ.get("LD_LIBRARY_PATH")]
        env = dict(
            os.environ,
            PATH=f"{python.parent}:{os.environ['PATH']}",
            LD_LIBRARY_PATH=":".join(str(one) for one in libraries if one),
            PYTHONPATH=str(packages),
        )
        return binary, backends, env

    def copy_models(self, to):
        """Writes the model repository there."""
        shutil.copytree(MODELS / "triton", to)
        (to / "pipe/1").mkdir()  # an ensemble has no files, but a version

    def statistics(self):
        """Its own account: by model, count and nanoseconds of each part since start."""
        stats = get_json(f"{self.url}/v2/models/stats")["model_stats"]
        return {one["name"]: one for one in stats}


class TritonOnnx(Triton):
    """Triton with ONNX files by the names of their models, each run by ONNX Runtime in its Python backend."""

    def __init__(self, files):
        super().__init__()
        self.files = files

    def copy_models(self, to):
        for name, file in self.files.items():
            shutil.copytree(MODELS / "triton_onnx", to / name)
            shutil.copy(file, to / name / "1/model.onnx")


class MlServer(Server):
    """MLServer with one model; one server span a request, over OTLP/gRPC."""

    models = "mlserver"

    def start(self, start, folder, otlp_port=4317):
        python = python_of("mlserver")
        where = folder / "models"
        self.copy_models(where)
        settings = {
            "host": "127.0.0.1",
            "http_port": self.http,
            "grpc_port": self.grpc,
            "metrics_port": self.metrics,
            "parallel_workers": 0,
            "tracing_server": f"127.0.0.1:{otlp_port}",
        }
        (where / "settings.json").write_text(json.dumps(settings))
        env = dict(os.environ, OTEL_BSP_SCHEDULE_DELAY=str(EXPORT_EVERY_MS))
        self.process = start("mlserver", [str(python.parent / "mlserver"), "start", str(where)], env=env)
        await_ready(self.process, lambda: is_ready(f"{self.url}/v2/health/ready") and is_listening(self.grpc), 60)

    def copy_models(self, to):
        """Writes the model repository there."""
        shutil.copytree(MODELS / self.models, to)


class MlServerForest(MlServer):
    """MLServer with a forest that it runs by its runtime for scikit-learn, `stock` as it is and `traced` with a span around it."""

    models = "mlserver_sklearn"
    onnx = None
    """The same forest as an ONNX file, which `train` writes."""

    def train(self, folder):
        command = [python_of("mlserver"), HERE / "train_forest.py", folder / "forest"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.onnx = folder / "forest.onnx"

    def copy_models(self, to):
        super().copy_models(to)
        for model in ("stock", "traced"):
            shutil.copy(self.onnx.with_suffix(".joblib"), to / model / "model.joblib")


class BentoMl(Server):
    """BentoML with one service, which reports its steps if a request asks for it."""

    def start(self, start, folder):
        command = [python_of("bentoml"), "-m", "bentoml", "serve", "steps:Steps", "--working-dir", MODELS / "bentoml"]
        command += ["--host", "127.0.0.1", "--port", self.http]
        # its home, where it keeps records of its own, and no call home
        env = dict(os.environ, BENTOML_HOME=str(folder), BENTOML_DO_NOT_TRACK="True")
        self.process = start("bentoml", [str(part) for part in command], env=env)
        await_ready(self.process, lambda: is_ready(f"{self.url}/readyz"), 90)


class KServe(Server):
    """KServe's own server with one model, whose steps take time by rows."""

    def start(self, start, _):
        command = [str(python_of("kserve")), str(MODELS / "kserve/steps.py"), str(self.http)]
        self.process = start("kserve", command)
        await_ready(self.process, lambda: is_ready(f"{self.url}/v2/health/ready"), 90)

    def counted(self):
        """By step, (requests, nanoseconds) since its start, from its metrics."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as response:
            values = dict(line.rsplit(" ", 1) for line in response.read().decode().splitlines() if line[:1] not in ("#", ""))
        name = 'request_{}_seconds_{}{{model_name="steps"}}'
        steps = ("preprocess", "predict", "postprocess")
        return {s: (float(values[name.format(s, "count")]), float(values[name.format(s, "sum")]) * 1e9) for s in steps}


class RayServe(Server):
    """Ray Serve with the application of models/ray, whose processes each send their spans over OTLP/gRPC."""

    export_every_ms = EXPORT_EVERY_MS
    """`None` leaves the exporter at its default."""

    def start(self, start, folder, otlp_port):
        python = python_of("ray")
        env = dict(
            os.environ,
            PYTHONPATH=str(MODELS / "ray"),
            RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH="lapwing_tracing:processors",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{otlp_port}",
            RAY_USAGE_STATS_ENABLED="0",
            RAY_AUTH_MODE="disabled",  # else it writes a token into the user's home
            RAY_raylet_start_wait_time_s="120",
        )
        if self.export_every_ms:
            env["OTEL_BSP_SCHEDULE_DELAY"] = str(self.export_every_ms)
        short = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # Ray puts sockets below it, whose paths have 107 bytes
        command = [python, HERE / "ray_serve.py", self.http, self.metrics, short]
        self.process = start("ray", [str(part) for part in command], env=env)
        await_ready(self.process, lambda: "ready" in self.process.output().splitlines(), 240)

    def asked(self):
        """What reached the application's handler: (method, path, user agent)."""
        return [tuple(one) for one in get_json(f"{self.url}/asked")]


class RayServeByDefault(RayServe):
    """With the exporter's own delay: each process sends every 5 s, on a phase of its own."""

    export_every_ms = None


class Llama(Server):
    """llama.cpp's server with a model of random weights, made on the spot."""

    flags = ()
    seed = 7

    def start(self, start, folder):
        python = python_of("llama")
        model = folder / f"tiny_{self.seed}.gguf"
        command = [python, HERE / "write_gguf.py", model, "--seed", str(self.seed)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        self.process = start("llama", [str(python), str(HERE / "llama_server.py"), str(model), str(self.http), *self.flags])
        await_ready(self.process, lambda: is_ready(f"{self.url}/health"), 60)

    def counters(self):
        """Its counters by name."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        return {line.split()[0]: float(line.split()[1]) for line in lines if line and line[0] != "#"}


class FullLlama(Llama):
    """The same with a context that four sequences fill before they end."""

    flags = ("--context", "256", "--parallel", "4")


class OtherLlama(Llama):
    """The same with other weights."""

    seed = 8
