#!/bin/bash
# Formats every C++ source in place (clang-format-19), or the files given.
#
#   format.sh [FILE]...
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
case ${1:-} in -h | --help) usage; exit 0 ;; esac
command -v clang-format-19 >/dev/null || die "no clang-format-19; scripts/install_deps.sh --lint brings it"

files=("$@")
if [ ${#files[@]} -eq 0 ]; then
    cd "$root"
    mapfile -t files < <(cpp_sources)
fi
[ ${#files[@]} -eq 0 ] || clang-format-19 -i "${files[@]}"
