#!/usr/bin/env python3
"""Interleaved speed pairs of tessera and the reference engine. Run through vs_reference.sh, which explains the setting."""
import argparse
import csv
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys


def ours(args, model):
    """(prefill, generation) tokens per second of one run."""
    command = [args.speed_bench, model, "--threads", str(args.threads), "--prefill", str(args.prefill),
               "--generate", str(args.generate)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    row = json.loads(out.splitlines()[-1])
    return row["prefill_per_second"], row["generate_per_second"]


def reference(args, model, flash_attention):
    """The same of the reference."""
    folder = os.environ.get("REFERENCE_MODELS", os.path.dirname(model) or ".")
    command = shlex.split(os.environ["REFERENCE_BENCH"]) + [
        "-m", os.path.join(folder, os.path.basename(model)), "-dev", "none", "-t", str(args.threads), "-p",
        str(args.prefill), "-n", str(args.generate), "-r", "1", "-fa", str(flash_attention), "-o", "json"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    speed = {bool(row["n_prompt"]): row["avg_ts"] for row in json.loads(out[out.index("["):])}
    return speed[True], speed[False]


def summary(values):
    return statistics.median(values), min(values), max(values)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--speed-bench", required=True)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--csv", help="append the rows to this file")
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    rows = []
    for model in args.models:
        tried = {fa: reference(args, model, fa) for fa in (0, 1)}
        best = [max((0, 1), key=lambda fa, i=i: tried[fa][i]) for i in (0, 1)]  # for prefill, for generation
        pairs = []
        for _ in range(args.pairs):
            mine = ours(args, model)
            theirs = {fa: reference(args, model, fa) for fa in sorted(set(best))}
            pairs.append((mine, (theirs[best[0]][0], theirs[best[1]][1])))
        for i, name in enumerate((f"prefill {args.prefill}", f"generation {args.generate}")):
            mine = summary([pair[0][i] for pair in pairs])
            theirs = summary([pair[1][i] for pair in pairs])
            ratio = summary([pair[0][i] / pair[1][i] for pair in pairs])
            rows.append([os.path.basename(model), name, args.threads, args.pairs, best[i], *mine, *theirs, *ratio])
            print(f"{os.path.basename(model):36} {name:15} tessera {mine[0]:8.1f} t/s ({mine[1]:.1f} to {mine[2]:.1f})  "
                  f"reference {theirs[0]:8.1f} t/s ({theirs[1]:.1f} to {theirs[2]:.1f}, -fa {best[i]})  "
                  f"ratio {ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})", flush=True)
    if args.csv:
        new = not os.path.exists(args.csv)
        with open(args.csv, "a", newline="") as out:
            writer = csv.writer(out)
            if new:
                writer.writerow(["model", "test", "threads", "pairs", "reference_fa", "tessera_median", "tessera_min",
                                 "tessera_max", "reference_median", "reference_min", "reference_max", "ratio_median",
                                 "ratio_min", "ratio_max"])
            writer.writerows([[f"{x:.3f}" if isinstance(x, float) else x for x in row] for row in rows])
    print(f"machine: {platform.machine()}, {os.cpu_count()} processors; medians (least to most) of {args.pairs} pairs",
          file=sys.stderr)


if __name__ == "__main__":
    main()
