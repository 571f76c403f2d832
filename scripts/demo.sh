#!/bin/bash
# Shows what tessera is for: installs what it needs, builds, brings a small model, asks it a question, and then answers
# the same request on two devices under both splits, with speeds, memory and proof that every bit is the same, and a long
# one that switches from one split to the other, or lets --split-policy choose.
#
#   demo.sh ["QUESTION"]
#   demo.sh --rounds N      of the long request, for medians that can be relied on; default 3
#
# Safe to repeat; a second run takes seconds.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
cd "$root"
rounds=3
case ${1:-} in
    -h | --help) usage; exit 0 ;;
    --rounds) rounds=${2:-}; shift $(($# < 2 ? $# : 2)) ;;
esac
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die "--rounds is '$rounds'; it is a whole number from 1"

question=${1:-"Explain in a few sentences why the sky is blue at noon and red in the evening."}
model=models/smollm2-135m-instruct-q4_1.gguf
work=$root/build/demo
mkdir -p "$work"

quietly() {   # quietly TITLE COMMAND...: shows a command's output only when it fails
    local title=$1
    shift
    say "$title"
    "$@" >"$work/step.log" 2>&1 || { tail -n 40 "$work/step.log" >&2; die "$title: failed; the end of its output is above"; }
}

scripts/install_deps.sh
quietly "configuring the release build" cmake --preset release
quietly "building: 5 to 15 minutes the first time (to watch: tail -f build/demo/step.log)" cmake --build --preset release --target tessera
ln -sfn release/tessera build/tessera
scripts/fetch_models.sh smollm2

# Enough tokens to time; greedy, so that every placement must say the same.
common=(-m "$model" -c 2048 --cuts 2 --temp 0 --seed 1)
printf '\n> %s\n\n' "$question"
build/tessera run "${common[@]}" -n 200 -p "$question"
printf '\n'

for placement in "cpu:0 none" "cpu:0,cpu:1 layer" "cpu:0,cpu:1 tensor"; do
    devices=${placement% *} split=${placement#* }
    say "the same request with --device $devices -sm $split, and a digest of all its logits"
    for command in "run ${common[*]} -n 64 --json" "logits -m $model -c 2048 --cuts 2 -n 8 --json -"; do
        file=$work/$split.${command%% *}.json
        # shellcheck disable=SC2086
        build/tessera $command --device "$devices" -sm "$split" -p "$question" >"$file" 2>"$work/step.log" ||
            { tail -n 10 "$work/step.log" >&2; die "tessera ${command%% *} failed under -sm $split"; }
    done
done
"$python" scripts/demo_table.py "$work" none layer tensor

# One placement for the prompt and another for the answer, and what the policy chooses, in turns, so that a busy minute
# slows all of them. The policy measures in a run of its own, since it keeps what it found.
head -c 8000 HACKING.md >"$work/long.txt"
rm -f "$work"/*-*.json "$work/policy.json"   # what was measured in another hour says nothing of this one
long_run() {   # long_run OUT FLAGS...
    local out=$1
    shift
    build/tessera run -m "$model" -c 4096 --cuts 2 --temp 0 -n 128 --ignore-eos --no-conversation --json \
        --device cpu:0,cpu:1 "$@" -f "$work/long.txt" >"$out" 2>"$work/step.log" ||
        { tail -n 10 "$work/step.log" >&2; die "tessera run failed with $*"; }
}
say "a long prompt read under one split and answered under another, $rounds times each"
policy=(--split-policy auto --policy-cache "$work/policy.json")
long_run "$work/measured.json" "${policy[@]}"
for round in $(seq "$rounds"); do
    say "round $round of $rounds"
    for splits in "layer layer" "tensor tensor" "layer tensor" "tensor layer"; do
        read -r reads answers <<<"$splits"
        long_run "$work/$reads-$answers.$round.json" -psm "$reads" -sm "$answers"
    done
    long_run "$work/policy-auto.$round.json" "${policy[@]}"
done
"$python" scripts/demo_switches.py "$work"
