"""Files with a fault (variants.py), each given to `engine serve` by every executor, with ONNX Runtime's library and without. It refuses the
file with a message that names the part and the reason, or it serves it; then calls are answered, by an error in JSON if not by tensors. In
both cases nothing panics or hangs, and neither the process nor its trial takes more memory than it may.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import time

import numpy as np
import onnxruntime
import pytest
from engine import Engine
from variants import FILES, variant

LIBRARY = next((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
WAYS = [(executor, library) for executor in ("auto", "plan", "tabular", "rten") for library in ("off", LIBRARY)]
WAYS.append(("onnxruntime", LIBRARY))
SHORT, LONG, BLOCK = 6, 90, 10
LIMIT_MIB, SECONDS = 1024, 25
# what a refusal names: a part of the file, or a node and its operator; else a limit that was exceeded
PARTS = r"file|graph|node .+|initializer .*|input .*|output .*|function .*|model|operator sets?.*"
REASON = rf"^(executor: \w+ cannot run it: (\w+ (fails|differs) .*: )?)?((model: cannot run: )?({PARTS})( \(.*\))?|.* \(.+\)|.*{{}}: could not be loaded): .+"
NUMPY = {"FP32": "f4", "FP64": "f8", "FP16": "f2", "INT64": "i8", "INT32": "i4", "INT16": "i2", "INT8": "i1", "UINT64": "u8",
         "UINT32": "u4", "UINT16": "u2", "UINT8": "u1", "BOOL": "?"}  # fmt: skip
ELEMENTS = 1 << 20


class Served:
    """A variant that is given to the engine."""

    def __init__(self, folder, data, executor, library):
        path = folder / "variant.onnx"
        path.write_bytes(data)
        bounds = {"load_memory": f"{LIMIT_MIB}MiB", "load_time": "4s", "threads": 1, "device": "cpu"}
        self.engine = Engine(folder, path, executor=executor, ort_lib=library, **bounds)
        self.peak_mib = self.code = None

    def wait(self):
        end = time.monotonic() + SECONDS
        while not self.has_ended() and not self.is_ready():
            assert time.monotonic() < end, "neither refused nor ready"
            time.sleep(0.01)

    def close(self):
        if not self.has_ended():
            self.engine.process.kill()
            self.engine.process.wait()

    def said(self):
        return self.engine.out.read_text(errors="replace")

    def has_ended(self):
        """Whether the process has ended; then its exit status, and the most memory that it or its trial had resident, are known."""
        if self.code is None:
            pid, status, used = os.wait4(self.engine.process.pid, os.WNOHANG)
            if pid:
                self.code = self.engine.process.returncode = os.waitstatus_to_exitcode(status)
                self.peak_mib = used.ru_maxrss / 1024
        return self.code is not None

    def is_ready(self):
        try:
            return self.engine.ask("GET", "/v2/health/ready").status == 200
        except OSError:
            return False

    def stop(self):
        self.engine.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + SECONDS
        while not self.has_ended():
            assert time.monotonic() < end, "it does not end"
            time.sleep(0.01)
        assert self.code == 0, self.code

    def calls(self, rng):
        """Bodies of calls, with their headers: of one row and of three, of ordinary values and of extreme ones."""
        about = json.loads(self.engine.ask("GET", "/v2/models/m").body)
        for rows, is_extreme in ((1, False), (3, False), (1, True)):
            inputs, data = [], b""
            for port in about["inputs"]:
                shape = [length if length >= 0 else rows if axis == 0 else 5 for axis, length in enumerate(port["shape"])]
                if np.prod(shape, dtype=float) > ELEMENTS:
                    shape = [1] * len(shape)
                tensor = {"name": port["name"], "shape": shape, "datatype": port["datatype"]}
                if port["datatype"] not in NUMPY:
                    tensor["data"] = ["AT"] * int(np.prod(shape))
                else:
                    raw = values(NUMPY[port["datatype"]], shape, is_extreme, rng).tobytes()
                    tensor["parameters"], data = {"binary_data_size": len(raw)}, data + raw
                inputs.append(tensor)
            head = json.dumps({"inputs": inputs}).encode()
            yield head + data, {"inference_header_content_length": str(len(head))}


def values(kind, shape, is_extreme, rng):
    kind = np.dtype(kind)
    if kind.kind == "f":
        return (rng.choice([np.nan, np.inf, -1e30, 0], shape) if is_extreme else rng.standard_normal(shape)).astype(kind)
    most = 1 if kind.kind == "b" else np.iinfo(kind).max if is_extreme else 1
    return rng.integers(0, most, shape, endpoint=True, dtype="u1" if kind.kind == "b" else kind).astype(kind)


def check(folder, name, n, executor, library):
    """Gives a variant to the engine; whether it was served."""
    what, data = variant(name, n)
    with contextlib.closing(Served(folder, data, executor, library)) as served, told(served, f"{name} {n}, {what}"):
        served.wait()
        answers = []
        if served.code is None:
            for body, headers in served.calls(np.random.default_rng(n)):
                answer = served.engine.infer(body, **headers)
                assert answer.status in (200, 400, 413, 500, 504), (answer.status, answer.body[:300])
                assert answer.status == 200 or json.loads(answer.body)["error"]
                answers.append(answer.status)
            served.stop()
        else:
            assert served.code == 1, served.code
            check_refusal(served.said(), folder / "variant.onnx")
        assert "panicked" not in served.said()
        assert served.peak_mib < LIMIT_MIB, f"{served.peak_mib:.0f} MiB"
        return bool(answers)


@contextlib.contextmanager
def told(served, what):
    """Has a failure say of which variant, and what the engine wrote."""
    try:
        yield
    except (AssertionError, OSError) as error:
        error.add_note(f"{what}\n{served.said()[-3000:]}")
        raise


def check_refusal(said, path):
    """One message of at most three lines, which names what is at fault and why."""
    _, begins, message = said.partition(f"model m, {path}: ")
    assert begins, said
    assert len(message.strip().splitlines()) <= 3 and len(message) < 1200, message
    assert re.match(REASON.format(re.escape(str(path))), message), message


@pytest.mark.parametrize("name", FILES)
def test_a_variant_is_refused_or_answers(tmp_path, name):
    """Each variant by one of the ways, in turn."""
    for n in range(SHORT):
        check(tmp_path, name, n, *WAYS[(n + [*FILES].index(name) * SHORT) % len(WAYS)])


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, LONG, BLOCK))
@pytest.mark.parametrize("way", WAYS, ids=[f"{executor}-{'off' if library == 'off' else 'library'}" for executor, library in WAYS])
@pytest.mark.parametrize("name", FILES)
def test_900_variants_are_refused_or_answer_by_every_executor(tmp_path, name, way, first):
    for n in range(first, first + BLOCK):
        check(tmp_path, name, n, *way)


def test_the_files_themselves_are_served(tmp_path):
    """So that what is refused is refused for its fault."""
    for name, make in FILES.items():
        with contextlib.closing(Served(tmp_path, make().SerializeToString(), "auto", LIBRARY)) as served, told(served, name):
            served.wait()
            assert served.code is None
            answers = [served.engine.infer(body, **headers).status for body, headers in served.calls(np.random.default_rng(0))]
            assert answers[:2] == [200, 200], answers
            served.stop()
