#!/bin/bash
# Builds everything with the thread sanitizer (preset tsan) and runs the whole suite under it: every test program, and
# every test of the program from outside. Prints how many reports there were of each; ends with a line
# `N passed, N failed`, exit status 1 when one failed. A report is a failure, whatever the test itself says.
#
#   thread_check.sh [NAME...]     NAMEs: of ctest's tests (ctest -N) and of tests/NAME.py; default all
#
# It takes hours on a small machine, and is therefore no part of test.sh. Of the kernels' many shapes a tenth is run:
# they have no threads but the team's, which share out all of them alike.
#
# Logs lie in build/thread-logs: NAME.log, and NAME.report.PID of each process that had something to report.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"

case ${1:-} in
    -h | --help) usage; exit 0 ;;
esac
build=build/tsan logs=$root/build/thread-logs
cmake --preset tsan >/dev/null
cmake --build --preset tsan
mkdir -p "$logs"

# The sanitizer has fixed places in the address space, which more random bits than these would reach into.
run=()
[ "$(cat /proc/sys/vm/mmap_rnd_bits)" -le 28 ] || run=(setarch -R)

mapfile -t programs < <(ctest --test-dir $build -N | sed -n 's/^ *Test *#[0-9]*: //p')
mapfile -t scripts < <(find tests -maxdepth 1 -name '*_test.py' ! -name grammar_schemas_test.py -printf '%f\n' | sed 's/\.py$//' | sort)
names=("$@")
[ $# -gt 0 ] || names=("${programs[@]}" "${scripts[@]}")

# run_test NAME: the test of that name; its status.
run_test() {
    local shards=1
    case $1 in kernels | kernels_matmul) shards=10 ;; esac
    export TSAN_OPTIONS="exitcode=66:second_deadlock_stack=1:log_path=$logs/$1.report"
    if [ -e "tests/$1.py" ]; then
        "${run[@]}" "$python" "tests/$1.py" $build/tessera
    else
        GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=0 "${run[@]}" ctest --test-dir $build --timeout 14400 \
            --output-on-failure --no-tests=error -R "^$1\$"
    fi
}

n_passed=0 n_failed=0
for test in "${names[@]}"; do
    printf '%-28s ' "$test"
    rm -f "$logs/$test".report.*
    status=0 began=$SECONDS
    run_test "$test" >"$logs/$test.log" 2>&1 </dev/null || status=$?
    n_reports=$(cat "$logs/$test".report.* 2>/dev/null | grep -c 'WARNING: ThreadSanitizer' || true)
    if [ $status -eq 0 ] && [ "$n_reports" -eq 0 ]; then
        n_passed=$((n_passed + 1)) result=ok
    else
        n_failed=$((n_failed + 1)) result="FAILED, see $logs/$test.log"
    fi
    printf '%5d s  %3d reports  %s\n' $((SECONDS - began)) "$n_reports" "$result"
    cat "$logs/$test".report.* 2>/dev/null | grep 'SUMMARY:' | sort | uniq -c || true
done
printf '%d passed, %d failed\n' $n_passed $n_failed
[ $n_failed -eq 0 ]
