#!/usr/bin/env python3
"""Logits through the C interface are, bit for bit, those of `tessera logits`, in every split mode.

  logits_test.py C_API_LOGITS TESSERA     the two programs
"""
import hashlib
import json
import pathlib
import subprocess
import sys

TINY = pathlib.Path(__file__).resolve().parent.parent / "data" / "tiny"
# split mode, devices, cuts (0: as the devices ask)
PLACEMENTS = [("none", 1, 0), ("none", 1, 2), ("layer", 2, 2), ("tensor", 2, 2), ("tensor", 3, 3)]
TOKENS = [str(1 + i * 7 % 250) for i in range(40)]  # more than a page of the cache


def main():
    c_program, tessera = sys.argv[1:]
    digests = {}
    n_failed = 0
    for model in ("tiny-llama.gguf", "tiny-gemma3.gguf"):
        for mode, n_devices, n_cuts in PLACEMENTS:
            ours = subprocess.run([c_program, str(TINY / model), mode, str(n_devices), str(n_cuts), *TOKENS],
                                  capture_output=True, check=True).stdout
            theirs = json.loads(subprocess.run(
                [tessera, "logits", "-m", str(TINY / model), "--tokens", ",".join(TOKENS), "-n", "0", "--json", "-",
                 "-sm", mode, "--device", ",".join(["cpu:0"] * n_devices), *(["--cuts", str(n_cuts)] if n_cuts else [])],
                capture_output=True, check=True).stdout)
            digest = hashlib.sha256(ours).hexdigest()
            same = digest == theirs["logits_sha256"] and len(ours) == len(TOKENS) * theirs["n_vocab"] * 4
            digests.setdefault((model, theirs["placement"]["n_cuts"]), set()).add(digest)
            n_failed += not same
            print(f"{model} {mode} on {n_devices} with {theirs['placement']['n_cuts']} cuts: "
                  f"{'equal bits' if same else 'DIFFERENT'}")
    for (model, n_cuts), found in digests.items():
        if len(found) != 1:
            n_failed += 1
            print(f"{model}: {len(found)} different results with {n_cuts} cuts")
    if len({next(iter(found)) for found in digests.values()}) < 3:
        n_failed += 1
        print("too few different results: nothing was compared")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
