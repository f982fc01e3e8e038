# Sourced by tests/run and .ci/run: what they found besides passed and failed, and their last line, which says all of it.
#
# The report is one file, named by TESTS_REPORT, to which whoever runs a test adds lines: bash by `lacks` and `passed_again`, pytest
# by tests/not_run.py, Rust by `lapwing_testing::not_run`.
#
#   not run<TAB>WHAT: WHY      something that was to run, and could not, because a tool is missing or the machine has no such part
#   again<TAB>TEST             a test that failed, and passed when it ran once more, alone
#
# In CI (the variable CI is set, and is neither `false` nor 0) nothing may be missing: each of the three fails instead.

in_ci() { [[ -n ${CI:-} && ${CI,,} != false && $CI != 0 ]]; }

# The report of this run. A script that another one started adds to the other's.
report_begins() {
    [[ -z ${TESTS_REPORT:-} ]] || return 0
    TESTS_REPORT=$(mktemp)
    export TESTS_REPORT
}

# lacks WHAT WHY: fails in CI; elsewhere WHAT counts as not run
lacks() {
    printf '%s was not run: %s\n' "$1" "$2" >&2
    ! in_ci || return 1
    printf 'not run\t%s: %s\n' "$1" "$2" >>"$TESTS_REPORT"
}

# passed_again TEST...
passed_again() { printf 'again\t%s\n' "$@" >>"$TESTS_REPORT"; }

reported() { sed -n "s/^$1\t//p" "$TESTS_REPORT" | sort -u; }

# conclusion NAME [FAILED STEP]...: the last lines; 1 if a step failed. It says that everything passed only if everything ran.
conclusion() {
    local name=$1 again not_run lines=() last
    shift
    mapfile -t again < <(reported again)
    mapfile -t not_run < <(reported 'not run')
    ((${#again[@]} == 0)) || lines+=("$name: ${#again[@]} failed at first, and passed when run once more, alone:" "${again[@]/#/    }")
    ((${#not_run[@]} == 0)) || lines+=("$name: ${#not_run[@]} not run:" "${not_run[@]/#/    }")
    (($# == 0)) || lines+=("$name: $# failed:" "${@/#/    }")
    ((${#lines[@]} == 0)) || printf '%s\n' "${lines[@]}"
    if (($#)); then
        last="FAILED: $(joined "$@")"
    elif ((${#not_run[@]})); then
        last="what ran passed"
    else
        last='everything ran, and passed'
    fi
    ((${#again[@]} == 0)) || last+="; ${#again[@]} only when run once more"
    ((${#not_run[@]} == 0)) || last+="; NOT RUN: $(joined "${not_run[@]}")"
    printf '%s: %s\n' "$name" "$last"
    (($# == 0))
}

joined() {
    local text
    text=$(printf '%s; ' "$@")
    printf '%s' "${text%; }"
}
