#!/usr/bin/env bash
# Runs everything that needs a GPU in less than 8 minutes, without a network: kernels, plans, then the benchmark. Writes
# gpu-<commit>.json (driver, device, clocks, raw samples), from which report.py makes the section of docs/BENCHMARKS.md, and
# gpu-<commit>.log.
#
#     tests/gpu.sh [FOLDER]        FOLDER: where both are written (default: benches/device)
#
# Needs these files, which can be built on any machine; environment variables name other places:
#     LAPWING_BIN     the binary, built from the PTX below       target/dist/lapwing
#     LAPWING_CHECK   the kernels' check program                 tests/gpu/build/check (make -C tests/gpu check)
#     LAPWING_PTX     the PTX                                    crates/lapwing-engine/kernels/ptx
#     LAPWING_GPU_TESTS  optional: the test binary of tests/gpu/main.rs (cargo test --test gpu --no-run), which needs the sources at the
#                     path where it was built
# Settings and their defaults:
#     LAPWING_COMMIT  the commit in the names of the files       git rev-parse, and -dirty if files have changed
#     LAPWING_GPU_SECONDS  time limit of the whole run           470
#     LAPWING_GPU_ONLY     regular expression of steps to run    all
#     LAPWING_GPU_REHEARSAL  1: accept only the emulated device of the tests; writes rehearsal-<commit>.json, which report.py ignores
#     PYTHON          a Python with numpy, onnx, onnxruntime and, for the baseline, PyTorch      python3
# If Python lacks a package, only the steps that need it are left out.
# Exit code 0: no step failed; 1: a step failed; 2: there is no device, or a needed file is missing, and nothing is written. The files are
# also written after a failed step and when a signal ends the run.
set -uo pipefail
case ${1:-} in
-h | --help)
    echo 'usage: tests/gpu.sh [FOLDER]'
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
-*)
    echo "tests/gpu.sh: unknown option $1 (see --help)" >&2
    exit 2
    ;;
esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
here=$root/tests/gpu
bin=$(realpath -m "${LAPWING_BIN:-$root/target/dist/lapwing}")
check=$(realpath -m "${LAPWING_CHECK:-$here/build/check}")
ptx=$(realpath -m "${LAPWING_PTX:-$root/crates/lapwing-engine/kernels/ptx}")
python=${PYTHON:-python3}
out=$(realpath -m "${1:-$root/benches/device}")
rust=${LAPWING_GPU_TESTS:-}
# The time limit, in seconds since this shell began, and the seconds of it that are reserved for writing the files at the end.
limit=${LAPWING_GPU_SECONDS:-470} ending=12
only=${LAPWING_GPU_ONLY:-}
kind=gpu
[[ ${LAPWING_GPU_REHEARSAL:-} != 1 ]] || kind=rehearsal

fail() {
    echo "tests/gpu.sh: $*" >&2
    exit 2
}
for file in "$bin" "$check"; do
    [[ -f $file && -x $file ]] || fail "$file is missing: build it on a machine with a compiler, and name it by its variable (see --help)"
done
compgen -G "$ptx/*.ptx" >/dev/null || fail "no PTX in $ptx"
[[ $("$python" -c 'import ctypes, json, select; print(json.dumps(1))' 2>/dev/null) == 1 ]] || fail "$python is no Python that runs"
# git in this tree; a repository that contains it does not count
of_tree() { GIT_CEILING_DIRECTORIES=${root%/*} git -C "$root" "$@" 2>/dev/null; }
commit=${LAPWING_COMMIT:-$(of_tree rev-parse --short=10 HEAD)}
[[ -n $commit ]] || fail "git knows no commit of $root: name it by LAPWING_COMMIT"
[[ -n ${LAPWING_COMMIT:-} || -z $(of_tree status --porcelain) ]] || commit+=-dirty
unset "${!LAPWING_@}" # the engines under test would read them as settings

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/rows"
"$python" "$here/record.py" device "$kind" "$bin" "$check" "$ptx" "$work/device.json" || exit 2
log=$out/$kind-$commit.log
{ mkdir -p "$out" && : >"$log"; } 2>/dev/null || fail "$out cannot be written to"

# From here on, all output also goes into the log, and the measurements are written however this script ends.
exec > >(trap '' INT TERM HUP && exec tee -p "$log") 2>&1
tee=$! running='' sampler='' failed=0 is_ending=''
# shellcheck disable=SC2329 # called by the trap
finish() {
    local code=$? note=''
    is_ending=1
    trap '' INT TERM HUP
    ((code < 128)) || note="ended from outside (code $code)"
    [[ -z $running ]] || kill "$running"
    while [[ -n $running ]] && kill -0 "$running"; do wait "$running"; done 2>/dev/null
    unwatched
    "$python" "$here/record.py" collect "$work" "$commit" "$out/$kind-$commit.json" "$SECONDS" "$note" || code=1
    rm -rf "$work"
    exec >&- 2>&-
    for _ in {1..20}; do kill -0 "$tee" && sleep 0.1; done
    exit "$code"
}
# A signal may come twice, from the terminal to the process group and from the parent process. The second must not interrupt what the
# first one started.
# shellcheck disable=SC2329 # called by the traps
ended() {
    [[ -z $is_ending ]] || return 0
    is_ending=1
    exit "$1"
}
trap finish EXIT
trap 'ended 129' HUP
trap 'ended 130' INT
trap 'ended 143' TERM

# step NAME SECONDS COMMAND…: runs a command of commands.sh for at most SECONDS. It runs in the background, so that `wait` lets signals
# through.
step() {
    local name=$1 most=$2 code=0 left=$((limit - ending - SECONDS))
    shift 2
    printf '\n== %s\n' "$name"
    [[ $name =~ $only ]] || { set -- eval 'echo "not asked for"; exit 3' && left=$most; }
    "$python" "$here/step.py" "$work" "$name" $((most < left ? most : left)) bash "$here/commands.sh" "$@" &
    running=$!
    wait "$running" || code=$?
    running=''
    ((code == 0 || code == 3)) || failed=1
    return "$code"
}
# Samples clocks and power while a benchmark runs; their values after it has ended would say nothing about it.
watched() {
    unwatched
    "$python" "$here/record.py" sample "$work" "$1" &
    sampler=$!
}
unwatched() {
    [[ -z $sampler ]] || { kill "$sampler" && wait "$sampler"; } 2>/dev/null
    sampler=''
}

libraries=$("$python" "$here/record.py" libraries "$work/device.json")
seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') # new inputs in each run; the log has the seed
export bin check ptx work rust python libraries seed
# All steps share these caches, so that each kernel is compiled once, even if the home folder cannot be written to.
export CUDA_CACHE_PATH=$work/cache TRITON_CACHE_DIR=$work/triton TORCHINDUCTOR_CACHE_DIR=$work/inductor

step 'each primitive against its twin' 40 checks --filter primitive
step 'every kernel' 100 checks || (($? == 3)) || step 'each kernel by itself' 90 "$python" "$here/each_kernel.py" "$work" "$check" "$ptx" "$seed"
step 'the executor on a device' 60 rust_tests
step 'seeded models' 60 needs numpy,onnx "$python" "$here/seeded.py" "$work"
step 'plans in all precisions, a thousand replays, memory' 90 needs numpy,onnx,onnxruntime \
    with_libraries "$python" "$here/plans.py" --lapwing "$bin" --patience 40 --json "$work/plans.json"
step 'compute-sanitizer, the primitives' 30 sanitized --filter primitive

# the rows with a bound come first
"$python" "$here/record.py" clocks "$work" 'before the benchmark'
watched 'during the benchmark'
step 'bench MiniLM 32x128 fp16' 40 bench minilm --batch 32 --length 128 --seconds 3 --precision fp16
step 'bench MLP 1 fp32' 20 bench mlp --batch 1 --seconds 3 --precision fp32
step 'bench MiniLM 32x128 fp16, own products only' 30 bench minilm --batch 32 --length 128 --seconds 2 --precision fp16 --gemm own
watched 'during PyTorch'
step 'PyTorch, the same models' 170 needs numpy,onnx,torch "$python" "$here/torch_baseline.py" --seconds 3 --json "$work/torch.json"
watched 'during the other benchmarks'
for precision in fp16 fp32 tf32 int8; do
    batch=1,32
    [[ $precision != fp32 ]] || batch=32
    step "bench MLP ${batch/,/, } $precision" 20 bench mlp --batch "$batch" --seconds 2 --precision "$precision"
    step "bench MiniLM 1x16 $precision" 15 bench minilm --batch 1 --length 16 --seconds 2 --precision "$precision"
    [[ $precision == fp16 ]] || step "bench MiniLM 32x128 $precision" 20 bench minilm --batch 32 --length 128 --seconds 2 --precision "$precision"
done
unwatched
"$python" "$here/record.py" clocks "$work" 'at the end'
# The sanitizer must run over the primitives; it runs over every kernel only if time is left.
if ((limit - ending - SECONDS >= 12)); then
    step 'compute-sanitizer, every kernel' 120 sanitized
else
    limit=$((SECONDS + ending + 5)) step 'compute-sanitizer, every kernel' 5 eval 'echo "no time was left"; exit 3'
fi
exit "$failed"
