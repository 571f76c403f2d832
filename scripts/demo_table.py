#!/usr/bin/env python3
"""Prints the demonstration's table from FOLDER/PLACEMENT.{run,logits}.json, the outputs of `tessera run --json` and
`tessera logits --json`; exit status 1 unless all placements gave the same text and bit-identical logits.

  demo_table.py FOLDER PLACEMENT...
"""
import json
import pathlib
import sys


def mebibytes(n_bytes):
    return f"{n_bytes / 2**20:.1f}"


def rows_of(folder, placement):
    """(table rows, one per device; digest of logits; text)"""
    run = json.loads((folder / f"{placement}.run.json").read_text(encoding="utf-8"))
    logits = json.loads((folder / f"{placement}.logits.json").read_text(encoding="utf-8"))
    timings = run["timings"]
    rows = []
    for i, device in enumerate(run["devices"]):
        first = i == 0
        rows.append([
            placement if first else "",
            f"{timings['prompt_per_second']:.1f}" if first else "",
            f"{timings['predicted_per_second']:.1f}" if first else "",
            device["name"], mebibytes(device["weight_bytes"]), mebibytes(device["kv_bytes"]),
            mebibytes(device["scratch_bytes"]), logits["logits_sha256"][:16] if first else ""])
    return rows, logits["logits_sha256"], run["text"]


def main():
    folder = pathlib.Path(sys.argv[1])
    results = [rows_of(folder, placement) for placement in sys.argv[2:]]
    table = [["split", "prefill t/s", "generation t/s", "device", "weights MiB", "KV MiB", "scratch MiB",
              "logits sha256"]] + [row for rows, _, _ in results for row in rows]
    widths = [max(len(row[c]) for row in table) for c in range(len(table[0]))]
    print()
    for row in table:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
    same_bits = len({digest for _, digest, _ in results}) == 1
    same_text = len({text for _, _, text in results}) == 1
    print(f"\nlogits bit-identical in all {len(results)} placements: {'yes' if same_bits else 'NO'}; "
          f"same answer: {'yes' if same_text else 'NO'}")
    return 0 if same_bits and same_text else 1


if __name__ == "__main__":
    sys.exit(main())
