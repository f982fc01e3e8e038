#!/usr/bin/env bash
# What the steps of tests/gpu.sh run, each in a process of its own: commands.sh NAME ARGUMENT…, a function below or any program. Exit code 3
# is "not run here", and the last line says why. The variables are those that tests/gpu.sh exports.
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
# needs MODULE,MODULE… COMMAND…: where Python has these
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
# cublasLt where $libraries says that it lies. Not for PyTorch, which brings its own
with_libraries() {
    LD_LIBRARY_PATH=$libraries${libraries:+${LD_LIBRARY_PATH:+:}}${LD_LIBRARY_PATH:-} "$@"
}
# bench MODEL ARGUMENT…: rows with raw samples; each goes into the file when it is measured, so that those before a fault stay
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
# sanitized ARGUMENT…: memcheck over these checks; buffers have no slack, so that what lies beside one is seen
sanitized() {
    local tool code=0 clean
    tool=$(command -v compute-sanitizer || command -v /usr/local/cuda/bin/compute-sanitizer) ||
        { echo "compute-sanitizer is not installed here" && return 3; }
    # in the foreground: a group of its own would outlive the step
    timeout --foreground --kill-after=3 $((STEP_SECONDS > 10 ? STEP_SECONDS - 7 : 3)) "$tool" --tool memcheck --error-exitcode 1 \
        "$check" --cuda libcuda.so.1 --ptx "$ptx" --seed "$seed" --slack 0 "$@" >"$work/sanitizer" 2>&1 || code=$?
    tail -n 25 "$work/sanitizer"
    ((code)) || return 0
    grep -qE 'Invalid __|Misaligned|out of bounds|Program hit' "$work/sanitizer" && return 1
    # where it cannot attach (gVisor and the like) that is no fault of the kernels
    grep -qiE 'device not supported|unable to|not supported' "$work/sanitizer" && return 3
    clean=$(grep -c '^ok ' "$work/sanitizer")
    ((code == 124 && clean > 0)) && echo "no error in the first $clean checks; there was no time for more" && return 3
    return 1
}

"$@"
