#!/usr/bin/env bash
# Runs the command of one step of tests/gpu.sh: commands.sh NAME ARGUMENT…, where NAME is a function below or any program. Exit code 3
# means "not run here", and the last line of the output says why. Needs the variables that tests/gpu.sh exports.
# shellcheck disable=SC2154
set -uo pipefail
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    echo 'usage: commands.sh NAME [ARGUMENT…]'
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
fi

checks() {
    "$check" --cuda libcuda.so.1 --ptx "$ptx" --seed "$seed" "$@"
}
# needs MODULE,MODULE… COMMAND…: runs the command if Python has these modules
needs() {
    "$python" - "$1" <<'END' || return 3
import importlib.util, sys
missing = [name for name in sys.argv[1].split(",") if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(print(f"{sys.executable} lacks {', '.join(missing)}") or 1)
END
    shift
    "$@"
}
# Adds the folders of cublasLt ($libraries) to the loader's path. Not for PyTorch, which has its own cublasLt.
with_libraries() {
    LD_LIBRARY_PATH=$libraries${libraries:+${LD_LIBRARY_PATH:+:}}${LD_LIBRARY_PATH:-} "$@"
}
# bench MODEL ARGUMENT…: rows with raw samples. Each row is written as soon as it is measured, so that a later fault does not lose it.
bench() {
    local model=$work/$1.onnx rows code=0
    rows=$work/rows/$(date +%s%N).jsonl
    shift
    [[ -s $model ]] || { echo "there is no ${model##*/}: see the step that writes the seeded models" && return 3; }
    with_libraries "$bin" engine bench "$model" "$@" --device cuda --json --samples >"$rows" || code=1
    sed -n '/"batch"/{s/"samples_us": *\[[^]]*\]/"samples_us":[]/;s/^\(.\{250\}\).*/\1/;p}' "$rows"
    return "$code"
}
rust_tests() {
    [[ -n $rust ]] || { echo "LAPWING_GPU_TESTS names no test binary" && return 3; }
    LAPWING_TEST_CUDA=1 with_libraries "$rust" --test-threads 1
}
# sanitized ARGUMENT…: memcheck over these checks. Buffers have no slack, so that an access beside one is noticed.
sanitized() {
    local tool code=0 clean
    tool=$(command -v compute-sanitizer || command -v /usr/local/cuda/bin/compute-sanitizer) ||
        { echo "compute-sanitizer is not installed here" && return 3; }
    # in the foreground: otherwise timeout makes a new process group, which would outlive the step
    timeout --foreground --kill-after=3 $((STEP_SECONDS > 10 ? STEP_SECONDS - 7 : 3)) "$tool" --tool memcheck --error-exitcode 1 \
        "$check" --cuda libcuda.so.1 --ptx "$ptx" --seed "$seed" --slack 0 "$@" >"$work/sanitizer" 2>&1 || code=$?
    tail -n 25 "$work/sanitizer"
    ((code)) || return 0
    grep -qE 'Invalid __|Misaligned|out of bounds|Program hit' "$work/sanitizer" && return 1
    # It cannot attach to the process, as under gVisor: no fault of the kernels.
    grep -qiE 'device not supported|unable to|not supported' "$work/sanitizer" && return 3
    clean=$(grep -c '^ok ' "$work/sanitizer")
    ((code == 124 && clean > 0)) && echo "no error in the first $clean checks; there was no time for more" && return 3
    return 1
}

"$@"
