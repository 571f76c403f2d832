#!/bin/bash
# Builds the fuzz targets (preset fuzz: clang, libFuzzer, address and undefined-behaviour sanitizers) and runs each for
# its share of the time; ends with a line `N passed, N failed`, exit status 1 when one failed.
#
#   fuzz.sh [SECONDS] [NAME...]    SECONDS of all targets together, default 60; NAMEs: gguf tokenizer template sampler
#                                   state grammar schema request http api, default all
#
# One target for each processor runs at a time: on two, SECONDS take half as long. scripts/test.sh gives what clients send
# to the server three minutes each. Half an hour each:
#   fuzz.sh 9000 http api request grammar schema
#
# Seeds lie in fuzz/corpus; what a run finds new joins them in build/fuzz/corpus, inputs that failed and the logs lie in
# build/fuzz/findings. To see a failure again: build/fuzz/NAME_fuzz FILE.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"

seconds=60
case ${1:-} in
    -h | --help) usage; exit 0 ;;
    [0-9]*) seconds=$1; shift ;;
esac
[[ $seconds =~ ^[0-9]+$ ]] || die "SECONDS is $seconds; it is a whole number"
targets=("$@")
[ $# -gt 0 ] || targets=(gguf tokenizer template sampler state grammar schema request http api)
command -v clang++-19 >/dev/null || die "clang-19 is missing; run scripts/install_deps.sh --fuzz"

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${targets[@]/%/_fuzz}"

each=$((seconds / ${#targets[@]}))
[ $each -gt 0 ] || each=1
findings=build/fuzz/findings
mkdir -p $findings

# fuzz TARGET: runs it for its share of the time; its output and exit status go to files among the findings.
fuzz() {
    local target=$1 corpus=build/fuzz/corpus/$1 dictionary=() status=0
    mkdir -p "$corpus"
    [ ! -e "fuzz/$target.dict" ] || dictionary=("-dict=fuzz/$target.dict")
    "build/fuzz/${target}_fuzz" "$corpus" "fuzz/corpus/$target" -max_total_time=$each -timeout=60 -max_len=20000 \
        "${dictionary[@]}" -artifact_prefix="$findings/$target-" >"$findings/$target.log" 2>&1 || status=$?
    echo $status >"$findings/$target.status"
}

for target in "${targets[@]}"; do
    rm -f "$findings/$target.status"
    free_slot "$(nproc)"
    fuzz "$target" &
done
wait

n_passed=0 n_failed=0
for target in "${targets[@]}"; do
    log=$findings/$target.log
    printf '%-12s ' "$target"
    if [ "$(cat "$findings/$target.status")" = 0 ]; then
        n_passed=$((n_passed + 1))
        tail -n 1 "$log"
    else
        n_failed=$((n_failed + 1))
        printf 'FAILED, see %s\n' "$log"
        grep -E 'ERROR|SUMMARY|check failed|Test unit written' "$log" | head -n 5 | sed 's/^/    /' || true
    fi
done
printf '%d passed, %d failed\n' $n_passed $n_failed
[ $n_failed -eq 0 ]
