#!/bin/bash
# Builds the fuzz targets (preset fuzz: clang, libFuzzer, address and undefined-behaviour sanitizers) and runs each for
# its share of the time; ends with a line `N passed, N failed`, exit status 1 when one failed.
#
#   fuzz.sh [SECONDS] [NAME...]    SECONDS in all, default 60; NAMEs: gguf tokenizer template sampler state grammar
#                                   schema request http api, default all
#
# Continuous integration runs all targets for a minute together. Half an hour each of what clients send to the server:
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
n_passed=0 n_failed=0
for target in "${targets[@]}"; do
    corpus=build/fuzz/corpus/$target log=$findings/$target.log
    mkdir -p "$corpus"
    dictionary=()
    [ ! -e "fuzz/$target.dict" ] || dictionary=("-dict=fuzz/$target.dict")
    printf '%-12s ' "$target"
    if "build/fuzz/${target}_fuzz" "$corpus" "fuzz/corpus/$target" -max_total_time=$each -timeout=60 -max_len=20000 "${dictionary[@]}" \
        -artifact_prefix="$findings/$target-" >"$log" 2>&1; then
        n_passed=$((n_passed + 1))
        tail -n 1 "$log"
    else
        n_failed=$((n_failed + 1))
        printf 'FAILED, see %s\n' "$log"
        grep -E 'ERROR|SUMMARY|check failed|Test unit written' "$log" | head -n 5 | sed 's/^/    /'
    fi
done
printf '%d passed, %d failed\n' $n_passed $n_failed
[ $n_failed -eq 0 ]
