#!/bin/bash
# Brings the Python clients that tests/server_support.py drives the server with, from PyPI into build/clients. Safe to
# repeat: what is there is kept.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

dir=$root/build/clients
packages=(openai==3.57.0 anthropic==2.14.0 prometheus_client==0.26.0)

[ $# -eq 0 ] || { usage; exit 2; }
if [ "$(cat "$dir/installed" 2>/dev/null)" = "${packages[*]}" ]; then
    say "${packages[*]} are there"
    exit 0
fi
rm -rf "$dir"
mkdir -p "$dir"
attempt 3 "$python" -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --root-user-action=ignore \
    --target "$dir" "${packages[@]}" ||
    die "pip could not install ${packages[*]}; is this machine online? Repeat when it can reach its package index"
printf '%s' "${packages[*]}" >"$dir/installed"
say "installed ${packages[*]}"
