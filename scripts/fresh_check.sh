#!/bin/bash
# Proves the two commands on a bare machine: makes a minimal Debian 12 and runs scripts/demo.sh and scripts/test.sh in
# it, each alone, in its own copy of that Debian and in a clean clone of the committed state of this repository.
#
#   fresh_check.sh [--keep] [DIR] [demo|test]...   default: a temporary folder, both
#
# DIR is kept, and its minimal Debian is used again, when it was given or with --keep. Logs: DIR/demo.log, DIR/test.log.
# Needs root on a Debian or Ubuntu machine. Package mirror, proxy, certificates and pip's settings are this machine's.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

release=bookworm
keep=0 dir='' wanted=()
for arg in "$@"; do
    case $arg in
        --keep) keep=1 ;;
        demo | test) wanted+=("$arg") ;;
        -h | --help) usage; exit 0 ;;
        -*) usage >&2; die "unknown argument $arg" ;;
        *) [ -z "$dir" ] || die "two folders given: $dir and $arg"; dir=$arg; keep=1 ;;
    esac
done
[ ${#wanted[@]} -gt 0 ] || wanted=(demo test)
[ "$(id -u)" = 0 ] || die "making a Debian root needs root"

if [ -z "$dir" ]; then dir=$(mktemp -d "${TMPDIR:-/tmp}/fresh_check.XXXXXX"); fi
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
cleanup() { [ $keep = 1 ] || rm -rf --one-file-system "$dir"; }
trap cleanup EXIT

# Package sources of this machine that serve the wanted release: `deb URI SUITE COMPONENT...`, main archive first.
# apt itself says what its source files mean, in whatever format they are.
host_sources() {
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(REPO_URI) $(COMPONENT)' 'Identifier: Packages' |
        awk -v release="$release" '$1 == "Debian" && $2 ~ "^" release && $3 ~ /^https?:/ && $4 == "main" {
            print ($2 == release ? 0 : 1), "deb", $3, $2, $4 }' | sort -u | cut -d' ' -f2-
}

# The pristine root: minbase, with this machine's way to its mirror.
make_base() {
    local base=$dir/base sources mirror bundle
    sources=$(host_sources)
    mirror=$(awk 'NR == 1 { print $3 == "'$release'" ? $2 : "" }' <<<"$sources")
    [ -n "$mirror" ] || die "apt on this machine has no Debian $release mirror to copy from"
    if ! command -v debootstrap >/dev/null; then
        apt-get install -y -q --no-install-recommends debootstrap >"$dir/apt.log" 2>&1 ||
            { tail -n 5 "$dir/apt.log" >&2; die "cannot install debootstrap"; }
    fi
    if [ ! -e "$base/.complete" ]; then
        say "making a minimal Debian ($release) in $base"
        rm -rf --one-file-system "$base"
        local extra=()
        [[ $mirror != https:* ]] || extra=(--include=ca-certificates)
        attempt 3 debootstrap --variant=minbase "${extra[@]}" "$release" "$base" "$mirror" >"$dir/debootstrap.log" 2>&1 ||
            { tail -n 5 "$dir/debootstrap.log" >&2; die "debootstrap failed"; }
        touch "$base/.complete"
    fi
    printf '%s\n' "$sources" >"$base/etc/apt/sources.list"
    apt-config dump | grep -E '^Acquire::(http|https)::Proxy |^Acquire::Check-(Valid-Until|Date) ' \
        >"$base/etc/apt/apt.conf.d/60host" || true
    printf '#!/bin/sh\nexit 101\n' >"$base/usr/sbin/policy-rc.d"   # no service starts inside
    chmod 755 "$base/usr/sbin/policy-rc.d"
    cp -L /etc/resolv.conf /etc/hosts "$base/etc/" 2>/dev/null || true

    # Certificates: authorities added on this machine, and its bundle for pip, under a name no package writes to.
    if [ -d /usr/local/share/ca-certificates ]; then
        mkdir -p "$base/usr/local/share/ca-certificates"
        cp -rL /usr/local/share/ca-certificates/. "$base/usr/local/share/ca-certificates/"
    fi
    bundle=${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
    mkdir -p "$base/etc/ssl" "$base/root/.config/pip"
    if [ -e "$bundle" ]; then cp -L "$bundle" "$base/etc/ssl/host-bundle.pem"; fi
    if [ -e /etc/pip.conf ]; then cp -L /etc/pip.conf "$base/etc/pip.conf"; fi
    for file in "$HOME/.pip/pip.conf" "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf"; do
        if [ -e "$file" ]; then cp -L "$file" "$base/root/.config/pip/pip.conf"; fi
    done
}

# Settings of this machine's environment that lead to its proxy and its package index.
environment() {
    local var
    printf '%s\n' PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
    if [ -e "$dir/base/etc/ssl/host-bundle.pem" ]; then printf 'PIP_CERT=/etc/ssl/host-bundle.pem\n'; fi
    for var in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL \
        PIP_TRUSTED_HOST PIP_DEFAULT_TIMEOUT; do
        if [ -n "${!var:-}" ]; then printf '%s=%s\n' "$var" "${!var}"; fi
    done
}

# run_fresh COMMAND: scripts/COMMAND.sh in a fresh copy of the root and a clean clone.
run_fresh() {
    local command=$1 fresh=$dir/$1 began=$SECONDS status=0 vars
    rm -rf --one-file-system "$fresh"
    cp -a --reflink=auto "$dir/base" "$fresh"
    git -c safe.directory='*' clone -q --no-hardlinks "$root" "$fresh/root/tessera"
    chown -R root:root "$fresh/root/tessera"
    mapfile -t vars < <(environment)
    say "scripts/$command.sh in a minimal Debian; log: $dir/$command.log"
    # Mounts of its own, which vanish with the command; standard input is empty, as for a machine.
    # shellcheck disable=SC2016
    unshare --mount --propagation private sh -c '
        fresh=$1; shift
        mount -t proc proc "$fresh/proc"
        mkdir -p "$fresh/dev/shm"; mount -t tmpfs tmpfs "$fresh/dev/shm"
        exec chroot "$fresh" env -i "$@"' sh "$fresh" "${vars[@]}" \
        /bin/bash -c "cd /root/tessera && exec scripts/$command.sh" </dev/null 2>&1 | tee "$dir/$command.log" ||
        status=$?
    printf '%s: scripts/%s.sh %s after %d min %02d s\n' "$name" "$command" \
        "$([ $status = 0 ] && echo passed || echo "FAILED (status $status)")" \
        $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60))
    [ $keep = 1 ] || rm -rf --one-file-system "$fresh"
    return $status
}

make_base
n_failed=0
for command in "${wanted[@]}"; do
    run_fresh "$command" || n_failed=$((n_failed + 1))
done
say "$((${#wanted[@]} - n_failed)) of ${#wanted[@]} commands passed from a minimal Debian"
[ $n_failed -eq 0 ]
