"""tests/gpu/report.py: figures of devices in the documentation come only from files that tests/gpu.sh wrote on a device."""

import json
import os
import subprocess
import sys

import pytest

from engine import gpu

pytestmark = [pytest.mark.beside, pytest.mark.timeout(300)]
REPORT = gpu.ROOT / "tests/gpu/report.py"
STEP = {"name": "every kernel", "ok": True, "code": 0, "seconds": 9, "last_line": "42 checks passed, 0 failed"}


def report(*args, **env):
    done = subprocess.run([sys.executable, str(REPORT), *map(str, args)], capture_output=True, text=True, timeout=60, env=os.environ | env)
    return done.returncode, done.stdout + done.stderr


def test_the_documentation_has_what_the_files_give_and_no_other_figure_of_a_device():
    code, said = report("check")
    assert code == 0, said


def made_up(seconds=19e-6, name="NVIDIA H200", by=None):
    """A run as tests/gpu.sh writes it, in which every bound is met if `seconds` is small."""
    fast, slow = [seconds * 1e6] * 50, [seconds * 20e6] * 50
    row = {"flops": 3148000, "utilisation": 0.5, "bound": "memory", "calls": 50}
    rows = [
        row | {"model": "mlp", "precision": "fp32", "batch": 1, "length": None, "samples_us": fast},
        row | {"model": "minilm", "precision": "fp16", "batch": 32, "length": 128, "samples_us": slow},
        row | {"model": "minilm", "precision": "fp16", "batch": 32, "length": 128, "samples_us": slow, "gemm": "own"},
    ]
    torch = [one | {"by": "torch.compile", "torch": "2", "samples_us": [2 * us for us in one["samples_us"]]} for one in rows[:2]]
    device = {"name": name, "driver": "570", "cuda": "12.8", "capability": "9.0", "multiprocessors": 132, "l2_bytes": 1, "memory_bytes": 1}
    run = {"format": 1, "commit": "0123456789", "date": "2026-11-21T00:00:00+00:00", "seconds": 400, "device": device, "host": {}}
    return run | {"clocks": [], "steps": [STEP], "plans": None, "rows": rows, "others": [], "torch": torch}


@pytest.fixture
def place(tmp_path):
    """Documentation with an empty section, and a folder for runs."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "device").mkdir()
    docs = tmp_path / "docs/BENCHMARKS.md"
    docs.write_text("# Benchmarks\n\nA request takes 12 µs.\n\n## On a GPU\n\n<!-- device:begin -->\nNot run on a device.\n<!-- device:end -->\n")
    return docs, tmp_path / "device", ["--docs", docs, "--runs", tmp_path / "device"]


def test_without_a_run_the_section_says_so_and_nothing_else(place):
    docs, _, where = place
    assert report("check", *where)[0] == 0
    docs.write_text(docs.read_text().replace("Not run on a device.", "Not run on a device. It would take 12 µs."))
    code, said = report("check", *where)
    assert code == 1 and "section" in said, said
    assert report("write", *where)[0] == 0 and report("check", *where)[0] == 0


def test_a_run_becomes_the_section_and_a_changed_figure_is_found(place):
    docs, runs, where = place
    (runs / "gpu-0123456789.json").write_text(json.dumps(made_up()))
    code, said = report("check", *where)
    assert code == 1 and "section" in said, said
    assert report("write", *where)[0] == 0 and report("check", *where)[0] == 0
    text = docs.read_text()
    assert "NVIDIA H200" in text and "19.0" in text and "**missed**" not in text, text
    docs.write_text(text.replace("19.0", "18.0", 1))
    assert report("check", *where)[0] == 1


def test_a_figure_of_a_device_elsewhere_is_found(place):
    docs, _, where = place
    docs.write_text(docs.read_text().replace("A request takes", "On an H100 a request takes"))
    code, said = report("check", *where)
    assert code == 1 and "BENCHMARKS.md:3" in said, said
    docs.write_text(docs.read_text().replace("On an H100 a", "A"))
    (docs.parent / "ENGINE.md").write_text("`engine.max_wait` | period | `5ms` | 1ms–1h | The longest wait, on a GPU too.\n")
    assert report("check", *where)[0] == 0
    (docs.parent / "ENGINE.md").write_text("On a GPU it takes 4 ms.\n")
    code, said = report("check", *where)
    assert code == 1 and "ENGINE.md:1" in said, said


def test_a_bound_that_is_missed_is_explained(place):
    _, runs, where = place
    (runs / "gpu-0123456789.json").write_text(json.dumps(made_up(30e-6)))
    assert report("write", *where)[0] == 0
    code, said = report("check", *where)
    assert code == 1 and "gpu-0123456789.md" in said, said
    (runs / "gpu-0123456789.md").write_text("Its clocks were low.")
    assert report("write", *where)[0] == 0 and report("check", *where)[0] == 0


def test_no_section_is_made_of_the_emulated_device(place):
    _, runs, where = place
    (runs / "gpu-0123456789.json").write_text(json.dumps(made_up(name="lapwing-emulated")))
    for command in ("write", "check"):
        code, said = report(command, *where)
        assert code == 1 and "lapwing-emulated" in said, said


def made_into(place, run):
    """The section that is written for a run."""
    docs, runs, where = place
    (runs / "gpu-0123456789.json").write_text(json.dumps(run))
    (runs / "gpu-0123456789.md").write_text("A bound was missed.")
    code, said = report("write", *where)
    assert code == 0, said
    assert report("check", *where)[0] == 0
    return docs.read_text()


def test_a_step_that_failed_and_one_that_was_not_run_say_so(place):
    run = made_up()
    skipped = STEP | {"name": "compute-sanitizer, the primitives", "ok": None, "code": 3, "last_line": "compute-sanitizer is not installed here"}
    run["steps"] += [STEP | {"name": "plans", "ok": False, "code": 124, "last_line": "", "end": "secret words"}, skipped]
    kernels = [{"name": "gemv", "ok": True, "code": 0, "said": ""}, {"name": "gemm_mma", "ok": False, "code": 2, "said": "an address"}]
    text = made_into(place, run | {"kernels": kernels, "notes": ["torch.json is cut off and counts as absent"]})
    assert "plans (**failed**, code 124)" in text and "secret" not in text, text
    assert "the primitives (not run here: compute-sanitizer is not installed here)" in text, text
    assert "gemv (ok); gemm_mma (**failed**, code 2)" in text and "torch.json is cut off" in text, text


def test_how_fast_the_device_was_is_said_as_far_as_it_is_known(place):
    about = {"when": "during the benchmark", "samples": 40, "sm_mhz": [345.0, 1980.0, 1980.0], "power_w": [75.2, 301.0, 640.9]}
    nothing = {"when": "during PyTorch", "samples": 0, "sm_mhz": None, "power_w": None, "reasons": None}
    watched = [about | {"reasons": {"idle": 3, "power cap by software": 7}}, nothing]
    text = made_into(place, made_up() | {"watched": watched, "clocks": [{"when": "at the end", "clocks.max.sm": "1980"}]})
    assert "(at most 1980 MHz)" in text and "345 to 1980, at the median 1980 MHz" in text and "at the median 301 W" in text, text
    assert "(power cap by software 7 of 40 times)" in text and "PyTorch: " not in text, text
    assert "sampled twice" not in made_into(place, made_up()), "nothing was told"


def test_the_library_that_did_products_is_named(place):
    assert "no cublasLt found" in made_into(place, made_up())
    run = made_up()
    run["device"]["cublaslt"] = {"path": "/somewhere/libcublasLt.so.12", "version": "12.8", "by": "its folder"}
    assert "cublasLt 12.8" in made_into(place, run)


def test_what_lies_over_something_else_is_no_negative_time(place):
    run = made_up()
    parts = {"stage_us": 4.0, "launch_us": 9.0, "device_us": {"all": 12.0, "to_device": 1.0, "kernels": 11.0, "to_host": 0.0}}
    run["rows"][0] |= parts  # 19 µs in total, but the parts sum to 25
    text = made_into(place, run)
    assert "overlap of 6.0" in text and "-6.0" not in text and "An overlap: " in text, text
    assert "overlap" not in made_into(place, made_up(25e-6))


def test_beside_pytorch_it_is_said_what_is_in_each_time(place):
    text = made_into(place, made_up())
    assert "In Lapwing's times: " in text and "In PyTorch's: " in text, text
    assert "In PyTorch's: " not in made_into(place, made_up() | {"torch": []})


# --- tests/gpu.sh without a device


@pytest.fixture(scope="module")
def fakes(binary, tmp_path_factory):
    return gpu.built(binary, tmp_path_factory.mktemp("fakes"))


def everything(out, **env):
    """(exit code, output) of tests/gpu.sh; it must not have written anything."""
    done = subprocess.run([str(gpu.ROOT / "tests/gpu.sh"), str(out)], capture_output=True, text=True, timeout=60, env=os.environ | env)
    assert not out.exists(), list(out.iterdir())
    return done.returncode, (done.stdout + done.stderr).strip()


@pytest.mark.skipif(gpu.has_driver(), reason="this machine has a driver")
def test_without_a_device_nothing_is_run(fakes, binary, tmp_path):
    given = {"LAPWING_BIN": binary, "LAPWING_CHECK": str(fakes / "check"), "PYTHON": sys.executable}
    code, said = everything(tmp_path / "out", **given)
    assert code == 2 and said.startswith("tests/gpu.sh: no NVIDIA driver") and len(said.splitlines()) == 1, said
    for stub in ("stub-no-device", "stub-mismatch"):
        code, said = everything(tmp_path / "out", LD_LIBRARY_PATH=str(fakes / stub), **given)
        assert code == 2 and said.startswith("tests/gpu.sh: the driver finds no device (cuInit: "), said
    code, said = everything(tmp_path / "out", LD_LIBRARY_PATH=str(fakes), **given)
    assert code == 2 and said.startswith("tests/gpu.sh: lapwing-emulated is the fake libcuda"), said


def test_what_is_missing_is_said(fakes, binary, tmp_path):
    given = {"LAPWING_BIN": binary, "LAPWING_CHECK": str(fakes / "check"), "PYTHON": sys.executable}
    for name, value, why in (
        ("LAPWING_BIN", "no/binary", "no/binary is missing"),
        ("LAPWING_CHECK", "no/check", "no/check is missing"),
        ("LAPWING_PTX", str(tmp_path), "no PTX in"),
        ("LAPWING_CHECK", str(tmp_path), f"{tmp_path} is missing"),
        ("PYTHON", "false", "false is no Python"),
    ):
        code, said = everything(tmp_path / "out", **(given | {name: value}))
        assert code == 2 and said.startswith("tests/gpu.sh: ") and why in said, said
