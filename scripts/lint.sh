#!/bin/bash
# Format (clang-format-19), static analysis (clang-tidy-19, checks in .clang-tidy) and shell scripts (shellcheck).
#
#   lint.sh                everything; minutes, as clang-tidy reads each source with all it includes
#   lint.sh --changed [R]  only what differs from revision R (default: main) or is not committed yet
#   lint.sh FILE...        only these files (paths from the root of the repository)
#
# clang-tidy needs build/release/compile_commands.json: configure first (cmake --preset release).
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    --changed)
        mapfile -t changed < <({ git diff --name-only --diff-filter=d "${2:-main}" -- &&
            git ls-files --others --exclude-standard; } | sort -u)
        set -- "${changed[@]}"
        [ $# -gt 0 ] || { say "nothing has changed"; exit 0; }
        ;;
esac
for tool in clang-format-19 clang-tidy-19 shellcheck; do
    command -v $tool >/dev/null || die "no $tool; scripts/install_deps.sh --lint brings it"
done

if [ $# -gt 0 ]; then all=("$@"); else mapfile -t all < <(cpp_sources; find scripts .ci -name '*.sh' -o -path '.ci/run'); fi
formatted=() compiled=() scripts=()
for file in "${all[@]}"; do
    case $file in
        *.h | *.hpp | *.cuh | *.cu | *.c) formatted+=("$file") ;;
        *.cc) formatted+=("$file"); compiled+=("$file") ;;
        *.sh | .ci/run) scripts+=("$file") ;;
    esac
done

n_faults=0
if [ ${#formatted[@]} -gt 0 ]; then
    say "clang-format on ${#formatted[@]} files"
    clang-format-19 --dry-run -Werror "${formatted[@]}" || n_faults=$((n_faults + 1))
fi
if [ ${#scripts[@]} -gt 0 ]; then
    say "shellcheck on ${#scripts[@]} files"
    shellcheck "${scripts[@]}" || n_faults=$((n_faults + 1))
fi
if [ ${#compiled[@]} -gt 0 ]; then
    [ -e build/release/compile_commands.json ] || die "no build/release/compile_commands.json; run: cmake --preset release"
    say "clang-tidy on ${#compiled[@]} files"
    # g++ options that clang does not know are no fault of the source.
    printf '%s\0' "${compiled[@]}" | xargs -0 -n 4 -P "$(nproc)" clang-tidy-19 --quiet -p build/release \
        --extra-arg=-Wno-unknown-warning-option 2> >(grep -vE '^[0-9]+ (warning|error)s?.* (generated|treated)|^\[[0-9/]+\] Processing|^$' >&2) ||
        n_faults=$((n_faults + 1))
fi
[ $n_faults -eq 0 ] || die "$n_faults of the checks above found faults"
say "no faults"
