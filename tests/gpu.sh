#!/usr/bin/env bash
# Everything that needs a GPU, by one command in less than 8 minutes, with no network: kernels, plans, then the benchmark. Writes
# gpu-<commit>.json (driver, device, clocks, raw samples), of which report.py makes the section of docs/BENCHMARKS.md.
#
#     tests/gpu.sh [FOLDER]        FOLDER: where gpu-<commit>.json goes (default: bench/device)
#
# Prebuilt, on a machine of any kind; named by the environment where they lie elsewhere:
#     LAPWING_BIN     the binary                                 target/release/lapwing
#     LAPWING_CHECK   the kernels' check program                 tests/gpu/build/check (make -C tests/gpu check)
#     LAPWING_PTX     the PTX                                    src/engine/gpu/kernels/ptx
#     LAPWING_GPU_TESTS  optional: the test binary of tests/gpu.rs (cargo test --test gpu --no-run); needs the sources where it was built
#     LAPWING_COMMIT  what the file is named after               git rev-parse; -dirty where files are changed
#     PYTHON          a Python with numpy, onnx, onnxruntime and, for the baseline, PyTorch      python3
# Exit code 0: all well; 1: a step failed (the file is written all the same); 2: no device or nothing to run: nothing is written.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
here=$root/tests/gpu
bin=$(realpath -m "${LAPWING_BIN:-$root/target/release/lapwing}")
check=$(realpath -m "${LAPWING_CHECK:-$here/build/check}")
ptx=$(realpath -m "${LAPWING_PTX:-$root/src/engine/gpu/kernels/ptx}")
python=${PYTHON:-python3}
out=$(realpath -m "${1:-$root/bench/device}")
limit=${LAPWING_GPU_SECONDS:-470} # of all steps: the last ones get what is left
rust=${LAPWING_GPU_TESTS:-}
changed() { [[ -z $(git -C "$root" status --porcelain) ]] || echo -dirty; }
commit=${LAPWING_COMMIT:-$(git -C "$root" rev-parse --short=10 HEAD 2>/dev/null && changed || echo unknown)}
commit=${commit//$'\n'/}
unset "${!LAPWING_@}" # they would be settings of the engines under test

fail() {
    echo "tests/gpu.sh: $*" >&2
    exit 2
}
for file in "$bin" "$check"; do
    [[ -x $file ]] || fail "$file is missing: build it where there is a compiler, and name it (see the head of this file)"
done
compgen -G "$ptx/*.ptx" >/dev/null || fail "no PTX in $ptx"
"$python" -c 'import numpy, onnx, onnxruntime' 2>/dev/null || fail "$python lacks numpy, onnx or onnxruntime"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" "$here/report.py" device >"$work/device.json" || exit 2

# step NAME SECONDS COMMAND…: runs it for as long as it may, shows it, and keeps how it ended. 3 of `skip`: not run here, and why.
begun=$SECONDS failed=0
step() {
    local name=$1 most=$2 code=0 start=$SECONDS left=$((limit - (SECONDS - begun)))
    shift 2
    printf '\n== %s\n' "$name"
    if ((left < 5)); then
        echo "no time is left for it"
        code=124
    else
        timeout --kill-after=5 $((most < left ? most : left)) "$@" 2>&1 | tee "$work/log"
        code=${PIPESTATUS[0]}
    fi
    ((code == 0 || code == 3)) || failed=1
    "$python" - "$name" "$code" $((SECONDS - start)) "$work/log" >>"$work/steps.jsonl" <<'END'
import json, sys
name, code, seconds, log = sys.argv[1:]
ok = {"0": True, "3": None}.get(code, False)  # null: not run here
try:
    last = [line.strip() for line in open(log, errors="replace") if line.strip()][-1:]
except OSError:
    last = []
print(json.dumps({"name": name, "ok": ok, "code": int(code), "seconds": int(seconds), "last_line": "".join(last)[:300]}))
END
    : >"$work/log"
    return $((code == 0 ? 0 : 1))
}
bench() { # FILE of rows, then arguments of `engine bench`; with raw samples
    local rows=$1
    shift
    "$bin" engine bench "$@" --device cuda --json --samples >"$rows.part" || return 1
    grep '^{' "$rows.part" >>"$rows"
    sed -n '/"batch"/{s/"samples_us": *\[[^]]*\]/"samples_us":[]/;s/^\(.\{250\}\).*/\1/;p}' "$rows.part"
}
sanitized() {
    command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed here" && return 3; }
    compute-sanitizer --tool memcheck "$check" --cuda libcuda.so.1 --ptx "$ptx" --filter primitive --slack 0 >"$work/sanitizer" 2>&1 && return 0
    tail -n 20 "$work/sanitizer"
    # where it cannot attach (gVisor and the like) that is no fault of the kernels
    grep -qiE 'device not supported|unable to|not supported' "$work/sanitizer" && ! grep -q 'Invalid __' "$work/sanitizer" && return 3
    return 1
}
rust_tests() {
    [[ -n $rust ]] || { echo "LAPWING_GPU_TESTS names no test binary" && return 3; }
    LAPWING_TEST_CUDA=1 "$rust" --test-threads 1
}
export -f bench sanitized rust_tests
export bin check ptx work rust

seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') # fresh inputs each time; the log has it
step 'each primitive against its twin' 40 "$check" --cuda libcuda.so.1 --ptx "$ptx" --filter primitive --seed "$seed"
step 'every kernel' 60 "$check" --cuda libcuda.so.1 --ptx "$ptx" --seed "$seed"
step 'the executor on a device' 40 bash -c rust_tests
step 'seeded models' 30 "$python" "$here/seeded.py" "$work"
step 'plans in all precisions, a thousand replays, memory' 80 "$python" "$here/plans.py" --lapwing "$bin" --json "$work/plans.json"
step 'compute-sanitizer' 40 bash -c sanitized
"$python" "$here/report.py" clocks 'before the benchmark' >>"$work/clocks.jsonl"
for precision in fp32 tf32 fp16 int8; do
    step "bench MLP 1, 32 $precision" 20 bash -c "bench $work/rows.jsonl $work/mlp.onnx --batch 1,32 --seconds 2 --precision $precision"
    step "bench MiniLM 1x16, 32x128 $precision" 20 bash -c \
        "bench $work/rows.jsonl $work/minilm.onnx --batch 1,32 --length 16,128 --seconds 2 --precision $precision"
done
step 'bench MiniLM 32x128 fp16, own products only' 20 bash -c \
    "bench $work/rows.jsonl $work/minilm.onnx --batch 32 --length 128 --seconds 2 --precision fp16 --gemm own"
"$python" "$here/report.py" clocks 'after the benchmark' >>"$work/clocks.jsonl"
step 'PyTorch, the same models' 200 "$python" "$here/torch_baseline.py" --seconds 3 --json "$work/torch.json"
"$python" "$here/report.py" clocks 'after PyTorch' >>"$work/clocks.jsonl"

mkdir -p "$out"
"$python" "$here/report.py" collect "$work" "$commit" "$out/gpu-$commit.json" $((SECONDS - begun)) || failed=1
exit "$failed"
