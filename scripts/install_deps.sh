#!/bin/bash
# Installs the Debian packages that tessera needs; asks the network only for what is missing. Safe to repeat.
#
#   install_deps.sh         what building, running and testing need
#   install_deps.sh --lint  also clang-format, clang-tidy and shellcheck, for scripts/lint.sh and scripts/format.sh
#   install_deps.sh --fuzz  also clang and its runtime, for the fuzz preset
#
# Works as root; anyone else needs sudo.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

packages=(g++ cmake ninja-build pkg-config libfmt-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libmd-dev libxxhash-dev libedit-dev
    libboost1.81-dev prometheus-cpp-dev
    libgtest-dev libgmock-dev python3 python3-numpy python3-jinja2 python3-jsonschema python3-pip chromium chromium-driver curl git ca-certificates)
for arg in "$@"; do
    case $arg in
        --lint) packages+=(clang-format-19 clang-tidy-19 shellcheck) ;;
        --fuzz) packages+=(clang-19 libclang-rt-19-dev) ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; die "unknown argument $arg" ;;
    esac
done

command -v apt-get >/dev/null ||
    die "this machine has no apt; install by its own means what ${packages[*]} are called there"

missing=()
for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    say "all ${#packages[@]} packages are there"
    exit 0
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "installing ${missing[*]} needs root, and there is no sudo; run this as root"
    as_root=(sudo)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
        apt-get -y -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 "$@" >"$log" 2>&1
}

say "installing ${missing[*]}"
if ! { attempt 3 apt update && attempt 3 apt install --no-install-recommends "${missing[@]}"; }; then
    tail -n 15 "$log" >&2
    die "apt could not install ${missing[*]}; its last words are above. Check the network and apt's sources, then repeat"
fi
say "installed ${#missing[@]} packages"
