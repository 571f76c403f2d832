#!/usr/bin/env bash
# Speed against the reference engine, run in the same minutes: interleaved pairs, medians, least and most, ratios.
#
#   bench/vs_reference.sh [--tests pp512,tg32] [--models TEXT,...] [--pairs 7] [--threads N] [--csv FILE] [--fa best]
#                         [--warmup] MODEL|FOLDER...
#
# --tests    pp512: a prompt of 512 tokens; tg32: 32 tokens one by one; tg32x4: 4 sequences together, as batch size 4;
#            @4096 after either: behind 4096 tokens (of a batch: one prompt that its sequences share)
# --models   of the files of a FOLDER only those whose name contains one of the texts
# --csv      rows are appended as they come; what it holds already for this machine is not run again
# --fa       flash attention of the reference: on, off, or the better of both, found once for each test and model size
# --warmup   both engines warm up first; without it both are timed cold, which costs little in a large model
# --threads  default: the processors there are
#
# The shares: of prefill, products of the layers' weights (two operations each) over the 8-bit integer peak of the
# instruction set that ran; of generation, bytes of the file's weights that a step reads over the memory's read rate;
# of experts those that one token draws.
# Both ceilings are measured before and after our run of every pair (ceilings_bench), and the higher is that pair's; the
# share is the median of the pairs'. Attention, and the cache it reads, is in neither share.
#
# REFERENCE         what comes before the name of its tools (llama-bench, llama-batched-bench) on a command line
# REFERENCE_FOLDER  the folder of the models as those tools see it (default: the folder given here)
# TESSERA_BUILD     the folder of tessera and ceilings_bench (default: build/release)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/vs_reference.py" --build "${TESSERA_BUILD:-$here/../build/release}" "$@"
