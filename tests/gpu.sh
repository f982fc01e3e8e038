#!/usr/bin/env bash
# Everything that needs a GPU, by one command in less than 8 minutes, with no network: kernels, plans, then the benchmark. Writes
# gpu-<commit>.json (driver, device, clocks, raw samples), of which report.py makes the section of docs/BENCHMARKS.md, and gpu-<commit>.log.
#
#     tests/gpu.sh [FOLDER]        FOLDER: where they go (default: bench/device)
#
# Prebuilt, on a machine of any kind; named by the environment where they lie elsewhere:
#     LAPWING_BIN     the binary, with the PTX below in it       target/dist/lapwing
#     LAPWING_CHECK   the kernels' check program                 tests/gpu/build/check (make -C tests/gpu check)
#     LAPWING_PTX     the PTX                                    crates/lapwing-engine/kernels/ptx
#     LAPWING_GPU_TESTS  optional: the test binary of tests/gpu/main.rs (cargo test --test gpu --no-run); needs the sources where it was built
#     LAPWING_COMMIT  what the files are named after             git rev-parse; -dirty where files are changed
#     LAPWING_GPU_SECONDS  all that it may take                  470
#     LAPWING_GPU_ONLY     steps by a regular expression         all
#     LAPWING_GPU_REHEARSAL  1: on the emulated device of the tests, and on no other; writes rehearsal-<commit>.json, of which nothing is made
#     PYTHON          a Python with numpy, onnx, onnxruntime and, for the baseline, PyTorch      python3
# What Python lacks leaves out the steps that need it, and no others.
# Exit code 0: all well; 1: a step failed (the files are written all the same, also by a run that is ended from outside); 2: no device or
# nothing to run: nothing is written.
set -uo pipefail
case ${1:-} in
-h | --help)
    echo 'usage: tests/gpu.sh [FOLDER]'
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
-*)
    echo "tests/gpu.sh: there is no option $1 (--help says what there is)" >&2
    exit 2
    ;;
esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
here=$root/tests/gpu
bin=$(realpath -m "${LAPWING_BIN:-$root/target/dist/lapwing}")
check=$(realpath -m "${LAPWING_CHECK:-$here/build/check}")
ptx=$(realpath -m "${LAPWING_PTX:-$root/crates/lapwing-engine/kernels/ptx}")
python=${PYTHON:-python3}
out=$(realpath -m "${1:-$root/bench/device}")
rust=${LAPWING_GPU_TESTS:-}
limit=${LAPWING_GPU_SECONDS:-470} ending=12 # seconds since this shell began, and what of them is left for the end
only=${LAPWING_GPU_ONLY:-}
kind=gpu
[[ ${LAPWING_GPU_REHEARSAL:-} != 1 ]] || kind=rehearsal

fail() {
    echo "tests/gpu.sh: $*" >&2
    exit 2
}
for file in "$bin" "$check"; do
    [[ -f $file && -x $file ]] || fail "$file is missing: build it where there is a compiler, and name it (see the head of this file)"
done
compgen -G "$ptx/*.ptx" >/dev/null || fail "no PTX in $ptx"
[[ $("$python" -c 'import ctypes, json, select; print(json.dumps(1))' 2>/dev/null) == 1 ]] || fail "$python is no Python that runs"
of_tree() { GIT_CEILING_DIRECTORIES=${root%/*} git -C "$root" "$@" 2>/dev/null; } # no tree around this one
commit=${LAPWING_COMMIT:-$(of_tree rev-parse --short=10 HEAD)}
[[ -n $commit ]] || fail "git knows no commit of $root: say which one this is by LAPWING_COMMIT"
[[ -n ${LAPWING_COMMIT:-} || -z $(of_tree status --porcelain) ]] || commit+=-dirty
unset "${!LAPWING_@}" # they would be settings of the engines under test

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/rows"
"$python" "$here/record.py" device "$kind" "$bin" "$check" "$ptx" "$work/device.json" || exit 2
log=$out/$kind-$commit.log
{ mkdir -p "$out" && : >"$log"; } 2>/dev/null || fail "$out cannot be written to"

# From here on all that is said goes into the log too, and whatever ends this script, what was measured is written.
exec > >(trap '' INT TERM HUP && exec tee -p "$log") 2>&1
tee=$! running='' sampler='' failed=0 is_ending=''
# shellcheck disable=SC2329 # by the trap
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
# A signal may come several times, as to a group and from whoever began it: the second must not end what the first began.
# shellcheck disable=SC2329 # by the traps
ended() {
    [[ -z $is_ending ]] || return 0
    is_ending=1
    exit "$1"
}
trap finish EXIT
trap 'ended 129' HUP
trap 'ended 130' INT
trap 'ended 143' TERM

# step NAME SECONDS COMMAND…: one of commands.sh, for as long as it may. Waited for in the background, so that a signal comes through.
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
# Clocks and power while something runs: what they are just after tells nothing.
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
seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') # fresh inputs each time; the log has it
export bin check ptx work rust python libraries seed
# compiled once for all steps, also where there is no home to write to
export CUDA_CACHE_PATH=$work/cache TRITON_CACHE_DIR=$work/triton TORCHINDUCTOR_CACHE_DIR=$work/inductor

step 'each primitive against its twin' 40 checks --filter primitive
step 'every kernel' 100 checks || (($? == 3)) || step 'each kernel by itself' 90 "$python" "$here/each_kernel.py" "$work" "$check" "$ptx" "$seed"
step 'the executor on a device' 60 rust_tests
step 'seeded models' 30 needs numpy,onnx "$python" "$here/seeded.py" "$work"
step 'plans in all precisions, a thousand replays, memory' 90 needs numpy,onnx,onnxruntime \
    with_libraries "$python" "$here/plans.py" --lapwing "$bin" --patience 40 --json "$work/plans.json"
step 'compute-sanitizer, the primitives' 30 sanitized --filter primitive

# first what has a bound
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
# that over primitives is what must be; this is for what time is left
if ((limit - ending - SECONDS >= 12)); then
    step 'compute-sanitizer, every kernel' 120 sanitized
else
    limit=$((SECONDS + ending + 5)) step 'compute-sanitizer, every kernel' 5 eval 'echo "no time was left"; exit 3'
fi
exit "$failed"
