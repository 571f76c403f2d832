# shellcheck shell=bash disable=SC2034
# What the scripts share; source it, do not run it. Sets root to the repository and name to the script's own.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=$(basename "$0" .sh)
# Debian's own interpreter: the modules that install_deps.sh brings are its.
python=${PYTHON:-/usr/bin/python3}

say() { printf '%s\n' "$name: $*" >&2; }

# die MESSAGE: what was asked, what was found, what to do.
die() {
    say "$*"
    exit 1
}

# usage: prints the comment at the top of the script.
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# attempt N COMMAND...: runs the command up to N times, waiting a little longer each time.
attempt() {
    local n=$1 i
    shift
    for ((i = 1; ; i++)); do
        "$@" && return 0
        [ "$i" -lt "$n" ] || return 1
        sleep $((i * 3))
    done
}

# free_slot N: waits until fewer than N background jobs of this shell run.
free_slot() {
    while [ "$(jobs -rp | wc -l)" -ge "$1" ]; do wait -n || true; done
}

# cpp_sources: every C and C++ file of the project, one a line, relative to the root.
cpp_sources() {
    (cd "$root" && find src include tools bench tests fuzz examples -path tests/data -prune -o -type f \
        \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.c' -o -name '*.hpp' \) -print | sort)
}
