#!/usr/bin/env python3
"""Prints the demonstration's table of switches from FOLDER/READS-ANSWERS.ROUND.json, the outputs of `tessera run --json`:
medians over the rounds, and their spread, and the policy's time against the better of both splits; exit status 1 unless all
gave the same tokens.

  demo_switches.py FOLDER
"""
import json
import pathlib
import statistics
import sys

ROWS = {"layer-layer": "layer", "tensor-tensor": "tensor", "layer-tensor": "layer → tensor", "tensor-layer": "tensor → layer",
        "policy-auto": "--split-policy auto"}


def main():
    folder = pathlib.Path(sys.argv[1])
    answers = set()
    wall = {}
    table = [["split", "prompt s", "switch ms", "answer s", "wall clock s", "least .. most"]]
    for stem, title in ROWS.items():
        runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"{stem}.*.json"))]
        answers |= {tuple(run["tokens"]) for run in runs}
        walls = wall[stem] = [run["wall_ms"] / 1e3 for run in runs]
        switch_ms = statistics.median(sum(switch["ms"] for switch in run["switches"]) for run in runs)
        table.append([title, f"{statistics.median(run['timings']['prompt_ms'] for run in runs) / 1e3:.2f}",
                      f"{switch_ms:.1f}" if runs[0]["switches"] else "",
                      f"{statistics.median(run['timings']['predicted_ms'] for run in runs) / 1e3:.2f}",
                      f"{statistics.median(walls):.2f}", f"{min(walls):.2f} .. {max(walls):.2f}"])
    n_prompt, n_answer = len(runs[0]["prompt_tokens"]), len(runs[0]["tokens"])
    print(f"\n{n_prompt} tokens read, {n_answer} generated")
    widths = [max(len(row[c]) for row in table) for c in range(len(table[0]))]
    for row in table:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
    fixed = min((wall["layer-layer"], wall["tensor-tensor"]), key=statistics.median)
    ratio = statistics.median(wall["policy-auto"]) / statistics.median(fixed)
    print(f"\nthe policy took {ratio:.3f} of the better fixed split's time, whose runs were {min(fixed) / statistics.median(fixed):.3f} .. "
          f"{max(fixed) / statistics.median(fixed):.3f} of their median")
    print(f"same answer in all of them: {'yes' if len(answers) == 1 else 'NO'}")
    return 0 if len(answers) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
