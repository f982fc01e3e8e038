"""tests/gpu.sh as a whole, run on the emulated device with programs that replace Lapwing, its checks and nvidia-smi.

A machine with a GPU sees the script once. What must not be lost then is tried here: steps that fail, hang or lack something, and an end
from outside.
"""

import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time

import pytest

from engine import gpu

sys.path.insert(0, str(gpu.ROOT / "tests/gpu"))
import jsonfile  # noqa: E402
import clocks  # noqa: E402
import record  # noqa: E402

pytestmark = [pytest.mark.beside, pytest.mark.timeout(120)]
SCRIPT = gpu.ROOT / "tests/gpu.sh"
ROW = '{"case":null,"model":"mlp","precision":"fp32","batch":1,"length":null,"samples_us":[10.0,11.0,12.0]}'
SMI = """#!/bin/sh
case "$*" in
*clocks_event_reasons*loop-ms*) while :; do echo "1500, [N/A], 0x4"; sleep 0.05; done ;;
*clocks_event_reasons*) echo 0x4 ;;
*clocks_throttle_reasons*) echo 'Field "clocks_throttle_reasons.active" is not a valid field to query.'; exit 2 ;;
*driver_version*) echo 570.1 ;;
*) echo "1500, 2600, 1980, 2619, [N/A], [Not Supported]" ;;
esac
"""


@pytest.fixture(scope="module")
def fakes(binary, tmp_path_factory):
    return gpu.built(binary, tmp_path_factory.mktemp("fakes"))


@pytest.fixture(scope="module")
def fake(fakes, tmp_path_factory):
    """The folder of the emulated device's driver alone."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "libcuda.so.1").write_bytes((fakes / "libcuda.so.1").read_bytes())
    return folder


def program(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class Rehearsal:
    """Programs of one test, and the script run with them."""

    def __init__(self, folder, fake):
        self.folder, self.out, self.work = folder, folder / "out", folder / "tmp"
        self.work.mkdir()
        (folder / "ptx").mkdir()
        (folder / "ptx/one.ptx").write_text("// one module\n")
        (folder / "bin").mkdir()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("LAPWING_")}
        self.env |= {"LAPWING_GPU_REHEARSAL": "1", "LAPWING_COMMIT": "0123456789", "LAPWING_PTX": str(folder / "ptx"), "PYTHON": sys.executable}
        self.env |= {"LD_LIBRARY_PATH": str(fake), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(self.work)}
        self.lapwing(f"echo '{ROW}'")
        self.check("exit 0")

    def lapwing(self, body, module="// one module\n"):
        self.env["LAPWING_BIN"] = str(program(self.folder / "lapwing", f"#!/bin/sh\n{body}\nexit\n{module}"))

    def check(self, body):
        self.env["LAPWING_CHECK"] = str(program(self.folder / "check", f"#!/bin/sh\n{body}\n"))

    def start(self, only="", **env):
        given = self.env | {"LAPWING_GPU_ONLY": only} | env
        command = ["timeout", "100", str(SCRIPT), str(self.out)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=given, start_new_session=True)

    def run(self, only="", **env):
        """(exit code, output)."""
        process = self.start(only, **env)
        said = process.communicate(timeout=110)[0]
        return process.returncode, said

    def written(self):
        return json.loads((self.out / "rehearsal-0123456789.json").read_text())

    def steps(self):
        return {step["name"]: step for step in self.written()["steps"]}


@pytest.fixture
def rehearsal(tmp_path, fake):
    made = Rehearsal(tmp_path, fake)
    yield made
    assert not list(made.work.iterdir()), "it leaves something behind"


# --- before anything runs


def test_a_binary_of_other_kernels_is_refused(rehearsal):
    rehearsal.lapwing("exit 0", "// another module\n")
    code, said = rehearsal.run()
    assert code == 2 and "lacks one.ptx" in said and not rehearsal.out.exists(), said
    rehearsal.lapwing("exit 0")
    (rehearsal.folder / "ptx/primitives.ptx").write_text("// which serve checks alone\n")
    assert rehearsal.run(only="nothing")[0] == 0


def test_a_folder_that_cannot_be_written_to_is_refused_first(rehearsal):
    rehearsal.out.write_text("a file")
    code, said = rehearsal.run()
    assert code == 2 and "cannot be written to" in said, said


def test_without_git_the_commit_is_asked_for(rehearsal, tmp_path):
    copy = tmp_path / "tree/tests"
    copy.mkdir(parents=True)
    (copy / "gpu.sh").write_text(SCRIPT.read_text())
    given = rehearsal.env | {"LAPWING_COMMIT": ""}
    done = subprocess.run(["bash", str(copy / "gpu.sh"), str(rehearsal.out)], capture_output=True, text=True, env=given)
    assert done.returncode == 2 and "LAPWING_COMMIT" in done.stderr and not rehearsal.out.exists(), done.stderr


def test_a_rehearsal_is_of_the_emulated_device_and_nothing_is_made_of_it(rehearsal):
    assert rehearsal.run(only="nothing")[0] == 0
    assert rehearsal.written()["device"]["name"] == record.EMULATED
    assert not list(rehearsal.out.glob("gpu-*")), "report.py would take it"
    code, said = rehearsal.run(LAPWING_GPU_REHEARSAL="")
    assert code == 2 and "no figure comes from it" in said, said


# --- results that are kept


def test_all_is_well(rehearsal):
    program(rehearsal.folder / "bin/nvidia-smi", SMI)
    rehearsal.lapwing(f"sleep 0.4; echo '{ROW}'")
    code, said = rehearsal.run(only="primitive|every kernel$|seeded|bench MLP 1 fp32")
    assert code == 0, said
    run, steps = rehearsal.written(), rehearsal.steps()
    assert [name for name, step in steps.items() if step["ok"]] == [
        "each primitive against its twin", "every kernel", "seeded models", "bench MLP 1 fp32",
    ]  # fmt: skip
    assert "each kernel by itself" not in steps and steps["bench MiniLM 1x16 tf32"]["last_line"] == "not asked for"
    assert run["rows"][0]["samples_us"] == [10.0, 11.0, 12.0] and run["rows"][0]["calls"] == 3
    assert len(run["device"]["lapwing_sha256"]) == len(run["device"]["check_sha256"]) == 64
    assert run["device"]["cublaslt"] is None or run["device"]["cublaslt"]["version"]
    about = run["watched"][0]
    assert about["when"] == "during the benchmark" and about["samples"] >= 2, about
    assert about["sm_mhz"] == [1500, 1500, 1500] and about["power_w"] is None
    assert about["reasons"] == {"power cap by software": about["samples"]}
    assert run["clocks"][0]["clocks.max.sm"] == "1980" and "power.draw" not in run["clocks"][0]
    log = (rehearsal.out / "rehearsal-0123456789.log").read_text()
    assert "== every kernel" in log and "rehearsal-0123456789.json: 1 rows" in log and log in said + "\n", log


@pytest.mark.long
def test_the_kernels_beside_one_that_fails_have_their_own_fate(rehearsal):
    rehearsal.check(
        """case "$*" in
--list) printf 'good\\nbad\\nhangs\\nlast\\n' ;;
*--filter*) exit 0 ;;
*"--only good"|*"--only last") echo "ok" ;;
*"--only hangs") exec sleep 100 ;;
*) echo "cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)" >&2; exit 2 ;;
esac"""
    )
    code, said = rehearsal.run(only="kernel")
    assert code == 1, said
    steps, kernels = rehearsal.steps(), {one["name"]: one for one in rehearsal.written()["kernels"]}
    assert {name: one["ok"] for name, one in kernels.items()} == {"good": True, "bad": False, "hangs": False, "last": True}
    assert kernels["hangs"]["code"] == 124 and "ILLEGAL_ADDRESS" in kernels["bad"]["said"]
    assert "ILLEGAL_ADDRESS" in steps["every kernel"]["end"] and steps["every kernel"]["code"] == 2
    assert steps["each kernel by itself"]["last_line"] == "4 checks by themselves; failed: bad hangs"


@pytest.mark.long
def test_rows_before_a_fault_or_a_hang_are_kept(rehearsal):
    rehearsal.lapwing(f"""case "$*" in *tf32*) echo '{ROW}'; exec sleep 100 ;; *fp32*) echo '{ROW}'; echo '{{"model": "ml' ; exit 1 ;; esac""")
    code, said = rehearsal.run(only="seeded|bench MLP (1 fp32|.*tf32)", LAPWING_GPU_SECONDS="60")
    assert code == 1, said
    run, steps = rehearsal.written(), rehearsal.steps()
    assert len(run["rows"]) == 2 and any("line 2 is cut off" in note for note in run["notes"]), run["notes"]
    assert (steps["bench MLP 1 fp32"]["code"], steps["bench MLP 1, 32 tf32"]["code"]) == (1, 124)


@pytest.mark.parametrize("deaf", [False, True], ids=["a step that ends", "a step that does not listen"])
def test_a_run_that_is_ended_writes_what_it_has(deaf, rehearsal):
    wait = f"{'trap : TERM; ' * deaf}touch {rehearsal.folder}/begun; while :; do sleep 0.1; done"
    rehearsal.check(f'case "$*" in *--filter*) exit 0 ;; *) {wait} ;; esac')
    process = rehearsal.start()
    end = time.monotonic() + 60
    while not (rehearsal.folder / "begun").exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)  # as timeout does, which started it
    said = process.communicate(timeout=60)[0]
    run, steps = rehearsal.written(), rehearsal.steps()
    assert steps["each primitive against its twin"]["ok"] and steps["every kernel"]["code"] == 143, said
    assert any("ended from outside" in note for note in run["notes"]) and "bench MLP 1 fp32" not in steps
    running = [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if str(rehearsal.folder / "check").encode() in read_bytes(path)]
    assert not running, running


def read_bytes(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_without_onnx_what_needs_none_runs(rehearsal):
    bare = program(rehearsal.folder / "bin/bare", f'#!/bin/sh\nexec "{os.path.realpath(sys.executable)}" -S "$@"\n')
    code, said = rehearsal.run(only="primitive|seeded|plans|bench MLP 1 fp32|PyTorch", PYTHON=str(bare))
    steps = rehearsal.steps()
    assert code == 0 and steps["each primitive against its twin"]["ok"], said
    for name in ("seeded models", "plans in all precisions, a thousand replays, memory", "PyTorch, the same models"):
        assert steps[name]["ok"] is None and steps[name]["code"] == 3 and " lacks numpy" in steps[name]["last_line"], steps[name]
    assert steps["bench MLP 1 fp32"]["ok"] is None and "there is no mlp.onnx" in steps["bench MLP 1 fp32"]["last_line"]


def test_time_that_is_up_leaves_the_end_its_own(rehearsal):
    rehearsal.check("exec sleep 100")
    begun = time.monotonic()
    code, said = rehearsal.run(LAPWING_GPU_SECONDS="18")
    assert code == 1 and time.monotonic() - begun < 35, said
    steps = rehearsal.steps()
    assert steps["each primitive against its twin"]["code"] == 124
    assert steps["bench MLP 1 fp32"]["ok"] is False and steps["bench MLP 1 fp32"]["last_line"] == "no time is left for it"
    last = steps["compute-sanitizer, every kernel"]
    assert last["ok"] is None and last["last_line"] == "no time was left", last


def test_cublaslt_of_a_python_package_is_found_and_named(rehearsal, fakes):
    folder = rehearsal.folder / "packages/nvidia/cublas/lib"
    folder.mkdir(parents=True)
    library = folder / "libcublasLt.so.12"
    library.write_bytes((fakes / "libcublasLt.so.12").read_bytes())
    rehearsal.lapwing(f"""echo "$LD_LIBRARY_PATH" >{rehearsal.folder}/path; echo '{ROW}'""")
    assert rehearsal.run(only="seeded|bench MLP 1 fp32", PYTHONPATH=str(folder.parents[2]))[0] == 0
    found = rehearsal.written()["device"]["cublaslt"]
    assert found["path"] == str(library) and found["version"].startswith("12."), found
    # before the existing entries
    assert (rehearsal.folder / "path").read_text().strip() == f"{folder}:{rehearsal.env['LD_LIBRARY_PATH']}"
    both = f"{folder}:{rehearsal.env['LD_LIBRARY_PATH']}"
    assert rehearsal.run(only="nothing", LD_LIBRARY_PATH=both)[0] == 0
    assert rehearsal.written()["device"]["cublaslt"] == found | {"by": "the loader"}


# --- compute-sanitizer


@pytest.mark.parametrize("said,code,ok", [
    ("========= ERROR SUMMARY: 0 errors", 0, True),
    ("========= Invalid __global__ read of size 4 bytes\n========= ERROR SUMMARY: 1 error", 1, False),
    ("========= Error: Device not supported", 1, None),
    ("FAILED gemm_mma", 1, False),
], ids=["clean", "an error", "it cannot attach", "a check fails"])  # fmt: skip
def test_what_the_sanitizer_says_counts(said, code, ok, rehearsal):
    program(rehearsal.folder / "bin/compute-sanitizer", f"#!/bin/sh\necho \"$@\" >>{rehearsal.folder}/asked\necho '{said}'\nexit {code}\n")
    assert rehearsal.run(only="sanitizer")[0] == int(ok is False)
    some, all_of_them = (rehearsal.steps()[f"compute-sanitizer, {what}"] for what in ("the primitives", "every kernel"))
    assert some["ok"] is ok and all_of_them["ok"] is ok
    asked = (rehearsal.folder / "asked").read_text().splitlines()
    assert len(asked) == 2 and all("--error-exitcode 1" in line for line in asked)
    assert asked[0].endswith("--filter primitive") and "--filter" not in asked[1]


@pytest.mark.alone
@pytest.mark.long
def test_a_sanitizer_that_needs_longer_says_how_far_it_came(rehearsal):
    program(rehearsal.folder / "bin/compute-sanitizer", "#!/bin/sh\necho 'ok     gemv (9 s)'\nexec sleep 100\n")
    assert rehearsal.run(only="sanitizer, every", LAPWING_GPU_SECONDS="27")[0] == 0
    step = rehearsal.steps()["compute-sanitizer, every kernel"]
    assert step["ok"] is None and step["last_line"] == "no error in the first 1 checks; there was no time for more", step


# --- truncated files and answers


def test_a_precision_that_fails_leaves_the_others_theirs(tmp_path):
    lapwing = program(tmp_path / "lapwing", "#!/bin/sh\necho \"$@ fails\" >&2\nexit 1\n")
    command = [sys.executable, gpu.ROOT / "tests/gpu/plans.py", "--lapwing", lapwing, "--random", "0", "--json", tmp_path / "plans.json"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60)
    faults = json.loads((tmp_path / "plans.json").read_text())["faults"]
    assert done.returncode == 1 and len(faults) == len(gpu.LIMITS) + 1, done.stdout + done.stderr
    for precision, fault in zip(gpu.LIMITS, faults):
        assert fault.startswith(f"{precision}: Fault: the engine is not ready (code 1)") and f"--precision {precision}" in fault, fault


def test_a_file_that_is_cut_off_counts_as_absent(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/1.jsonl").write_text(ROW + "\n" + ROW[:40])
    (tmp_path / "torch.json").write_text('[{"model": "mlp", "samples')
    (tmp_path / "plans.json").write_text("")
    jsonfile.keep(tmp_path / "device.json", {"name": "a device"})
    record.collect(tmp_path, "0123456789", tmp_path / "run.json", "12")
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["torch"], run["plans"], len(run["rows"])) == ([], None, 1)
    assert any("torch.json is cut off" in note for note in run["notes"]) and len(run["notes"]) == 2, run["notes"]
    assert [path.name for path in tmp_path.glob("*.part")] == []


def test_clocks_that_are_not_told_are_left_out():
    fields = ("clocks.sm", "power.draw")
    assert clocks.answer(fields, "") == {} and clocks.answer(fields, "\n") == {}
    assert clocks.answer(fields, "1500") == {}, "an error's text"
    assert clocks.answer(fields, "1500, [N/A]\n1400, 3") == {"clocks.sm": "1500"}
    assert clocks.reasons_of("[N/A]") is None and clocks.reasons_of("0x0000000000000000") == []
    assert clocks.reasons_of("0x0000000000000225") == ["idle", "power cap by software", "heat, by software", "0x200"]
    rows = [{"when": "a", "clocks.sm": mhz, "clocks_throttle_reasons.active": "0x1"} for mhz in ("3", "N/A", "1", "8")]
    about = {"when": "a", "samples": 4, "sm_mhz": [1, 3, 8], "power_w": None, "reasons": {"idle": 4}}
    assert clocks.watched(rows) == [about] and clocks.watched([]) == []
