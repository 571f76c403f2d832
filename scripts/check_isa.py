#!/usr/bin/env python3
"""Proves that code compiled for a special instruction set can reach no processor without it.

  check_isa.py BUILD_FOLDER    e.g. build/release

A function that several files define inline is kept once by the linker, from whichever file it likes. So a file compiled
for AVX2 or AVX-512 (its stem ends in _avx2, _avxvnni or _avx512) may define shared functions only inside its own
namespace, tessera::avx2 and so on (kernels/cpu/vec.h). Prints each that does not; exit status 1 when there is one.
"""
import pathlib
import re
import subprocess
import sys

OWN = re.compile(r"tessera::avx(2|vnni|512)::")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    objects = sorted(pathlib.Path(sys.argv[1]).rglob("*_avx*.cc.o"))
    n_faults = 0
    for path in objects:
        symbols = subprocess.run(["nm", "-C", "--defined-only", str(path)], check=True, capture_output=True, text=True).stdout
        for line in symbols.splitlines():
            _, kind, name = line.split(" ", 2)
            if kind in "Ww" and not OWN.search(name):   # weak code; unique data (u) is only constants
                n_faults += 1
                print(f"{path.name}: {name} is shared with files for other processors")
    print(f"check_isa: {len(objects)} objects, {n_faults} faults")
    sys.exit(1 if n_faults or not objects else 0)


if __name__ == "__main__":
    main()
