#!/bin/bash
# Everything that must hold: installs what is needed, builds, and runs every test; quick steps first. Goes on after a
# failure and ends with a line `N passed, N failed` that counts single cases; exit status 1 when one failed.
#
#   test.sh          both builds: release, and dev with the address and undefined-behaviour sanitizers; where clang-19 is
#                    installed also eight minutes of fuzzing
#   test.sh --quick  the release build only
#
# Logs of every step lie in build/test-logs.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"

presets=(release dev)
case ${1:-} in
    "") ;;
    --quick) presets=(release) ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die "unknown argument $1" ;;
esac

logs=$root/build/test-logs
rm -rf "$logs"
mkdir -p "$logs"
n_passed=0 n_failed=0 n_skipped=0
SECONDS=0

log_of() { printf '%s/%s.log' "$logs" "$(printf '%s' "$1" | tr -c 'A-Za-z0-9' _)"; }

# step TITLE COMMAND...: runs it with its output in a log; prints the time, and the end of the log on failure.
step() {
    local title=$1 log began=$SECONDS status=0
    shift
    log=$(log_of "$title")
    printf '%-58s ' "$title"
    "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ $status -eq 0 ]; then
        printf 'ok      %4d s\n' $((SECONDS - began))
    else
        printf 'FAILED  %4d s\n' $((SECONDS - began))
        grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking)' "$log" | tail -n 40 | sed 's/^/    /'
    fi
    return $status
}

# check TITLE COMMAND...: a step that counts as one test.
check() {
    if step "$@"; then n_passed=$((n_passed + 1)); else n_failed=$((n_failed + 1)); fi
}

# need TITLE COMMAND...: a step that is no test, but whose failure is one.
need() {
    step "$@" || { n_failed=$((n_failed + 1)); return 1; }
}

build() {
    cmake --preset "$1" && cmake --build --preset "$1" || return 1
    [ "$1" != release ] || ln -sfn release/tessera build/tessera
}

# add_counts TITLE STATUS "PASSED FAILED SKIPPED": adds to the totals. STATUS: of the program that was counted.
add_counts() {
    local title=$1 status=$2 counts
    read -r -a counts <<<"$3"
    if [ "$status" -ne 0 ] && [ "${counts[1]}" -eq 0 ]; then
        say "$title: failed although no case did"
        counts[1]=1
    fi
    n_passed=$((n_passed + counts[0])) n_failed=$((n_failed + counts[1])) n_skipped=$((n_skipped + counts[2]))
    printf '    %d passed, %d failed, %d skipped\n' "${counts[@]}"
}

unittest_title() { printf '%s: %s' "$1" "$(basename "$2" .py)"; }

# run_unittests PRESET SCRIPT...: programs of Python's unittest over a build, each case counted. One for each processor
# runs at a time, since they mostly wait for the program; reports come in the order of the list once all have ended.
run_unittests() {
    local preset=$1 scripts=("${@:2}") script title status
    for script in "${scripts[@]}"; do
        free_slot "$(nproc)"
        title=$(unittest_title "$preset" "$script")
        {
            status=0
            step "$title" "$python" "$script" "build/$preset/tessera" >"$(log_of "$title").report" || status=$?
            echo $status >"$(log_of "$title").status"
        } &
    done
    wait
    for script in "${scripts[@]}"; do
        title=$(unittest_title "$preset" "$script")
        cat "$(log_of "$title").report"
        status=$(cat "$(log_of "$title").status") || status=1
        add_counts "$title" "$status" "$("$python" scripts/count_tests.py --unittest "$(log_of "$title")")"
    done
}

# run_ctest PRESET: the test programs of a build, each case counted.
run_ctest() {
    local preset=$1 status=0 counts
    local results=$logs/$preset
    mkdir -p "$results"
    GTEST_OUTPUT="xml:$results/" step "$preset: test programs" ctest --test-dir "build/$preset" --timeout 900 \
        --output-on-failure --no-tests=error -j "$(nproc)" --output-junit "$results.junit.xml" || status=$?
    if counts=$("$python" scripts/count_tests.py "build/$preset" "$results.junit.xml" "$results"); then
        add_counts "$preset: test programs" $status "$counts"
    else
        say "cannot count the cases of the $preset build"
        n_failed=$((n_failed + 1))
    fi
}

need "packages" scripts/install_deps.sh || die "without its packages nothing can be built"

check "rooms: the checker finds planted faults" "$python" scripts/check_rooms.py --self-test
check "rooms: includes follow the table" "$python" scripts/check_rooms.py
check "sizes: the checker finds planted faults" "$python" scripts/size_table.py --self-test
check "sizes: no file over 1,000 lines" "$python" scripts/size_table.py
check "counting: crashes and leaks count as failures" "$python" scripts/count_tests.py --self-test

need "models" scripts/fetch_models.sh || true   # tests that need one say so when it is missing
need "clients of the server" scripts/install_clients.sh || true   # the same

flags_page_is_current() { diff -u docs/flags.md <(build/release/tessera help --markdown); }

for preset in "${presets[@]}"; do
    need "$preset: build" build "$preset" || continue
    run_ctest "$preset"
    run_unittests "$preset" tests/cli_*test.py tests/server_*test.py
    if [ "$preset" = release ]; then
        check "chat templates: 1,000 random ones, as Jinja2 has them" "$python" scripts/template_diff.py \
            random 1000 --seed 1 --test build/release/tokenizer_test
        check "instruction sets: no code leaks between them" "$python" scripts/check_isa.py build/release
        check "docs/flags.md is what the flag table says" flags_page_is_current
    fi
done

if [ ${#presets[@]} -gt 1 ] && command -v clang++-19 >/dev/null; then
    check "fuzzing: what clients send, 3 minutes each" scripts/fuzz.sh 900 http api request grammar schema
    check "fuzzing: the other targets, 6 s each" scripts/fuzz.sh 30 gguf tokenizer template sampler state
fi

printf 'total time %d min %02d s\n' $((SECONDS / 60)) $((SECONDS % 60))
skipped=
[ $n_skipped -eq 0 ] || skipped=", $n_skipped skipped"
printf '%d passed, %d failed%s\n' $n_passed $n_failed "$skipped"
[ $n_failed -eq 0 ]
