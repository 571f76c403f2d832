#!/usr/bin/env bash
# Speed against the reference engine, run in the same minutes: interleaved pairs, medians and spread.
#
#   bench/vs_reference.sh [--pairs 7] [--threads 2] [--csv FILE] MODEL...
#
# REFERENCE_BENCH   the reference's llama-bench as a command, e.g. "llama-bench"; it must take the model as it is named
#                   after REFERENCE_MODELS is put in front of its file name
# REFERENCE_MODELS  the folder of the models as that command sees it (default: the folder given here)
#
# The reference runs with `-dev none` and the better of its two flash-attention settings, which the first round finds.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${REFERENCE_BENCH:?set REFERENCE_BENCH to the command of the reference bench, see the head of this script}"
exec python3 "$here/vs_reference.py" --speed-bench "${SPEED_BENCH:-$here/../build/release/speed_bench}" "$@"
