#!/usr/bin/env python3
"""Writes src/tensor/iq_grids.inc: the codebooks of the IQ tensor formats.

    gen_iq_grids.py > src/tensor/iq_grids.inc        needs the python packages gguf (MIT, PyPI) and numpy

The codebooks are constants of the file format; the gguf package holds them as arrays of values. Each row is written as
one code: element i's position in the list of levels, in bits [b*i, b*i+b). iq_grids.cc expands the codes.
"""
import gguf
import gguf.quants as quants

# Name here, class there, bits per element.
GRIDS = [
    ("Iq2xxs", quants.IQ2_XXS, 2),
    ("Iq2xs", quants.IQ2_XS, 2),
    ("Iq2s", quants.IQ2_S, 2),
    ("Iq3xxs", quants.IQ3_XXS, 3),
    ("Iq3s", quants.IQ3_S, 3),
    ("Iq1", quants.IQ1_S, 2),
]


def main():
    version = getattr(gguf, "__version__", None)
    if version is None:
        import importlib.metadata
        version = importlib.metadata.version("gguf")
    print(f"// Made by scripts/gen_iq_grids.py from the python package gguf {version} (MIT). Do not edit.")
    for name, kind, bits in GRIDS:
        kind.init_grid()
        rows = kind.grid.reshape(-1, kind.grid.shape[-1]).astype(int).tolist()
        levels = sorted({v for row in rows for v in row})
        assert len(levels) <= 1 << bits and len(rows[0]) * bits <= 16
        codes = [sum(levels.index(v) << bits * i for i, v in enumerate(row)) for row in rows]
        values = ", ".join(map(str, levels))
        print(f"\nconstexpr std::array<int8_t, {len(levels)}> k{name}Levels = {{{values}}};")
        print(f"constexpr std::array<uint16_t, {len(codes)}> k{name}Codes = {{")
        for i in range(0, len(codes), 14):
            print("    " + " ".join(f"0x{c:04x}," for c in codes[i:i + 14]))
        print("};")


if __name__ == "__main__":
    main()
