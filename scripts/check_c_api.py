#!/usr/bin/env python3
"""The functions that tessera.h declares are those that the library has, and the library shows no other name of ours.

  check_c_api.py [--nm NM] LIBRARY     also: each function is called by tests/c_api/walk*.c and named in docs/c-api.md
  check_c_api.py --self-test           plants one fault of each kind and sees it found
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def declared_functions(header):
    """Names of functions declared with TSR_API."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*|^#[^\n]*", " ", header, flags=re.DOTALL | re.MULTILINE)
    return {match[1] for match in re.finditer(r"\bTSR_API\b[^;(]*?\b(\w+)\s*\(", text)}


def defined_symbols(nm_output):
    """{name: type} of global symbols."""
    symbols = {}
    for line in nm_output.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] != "U":
            symbols[words[2]] = words[1]
    return symbols


def faults_of(header, nm_output, walk, guide):
    declared = declared_functions(header)
    defined = defined_symbols(nm_output)
    faults = [] if declared else ["the header declares nothing"]
    faults += [f"{name}: declared, but not in the library" for name in sorted(declared - set(defined))]
    faults += [f"{name}: in the library, but not declared" for name in sorted(set(defined) - declared)]
    for name in sorted(declared):
        if not re.search(rf"\b{name}\(", walk):
            faults.append(f"{name}: not called in tests/c_api/walk*.c")
        if not re.search(rf"\b{name}\b", guide):
            faults.append(f"{name}: not named in docs/c-api.md")
    return faults, len(declared)


def self_test():
    header = "#define TSR_API f(x)\n/* TSR_API int tsr_no(int); */\nTSR_API const char *tsr_a(void);\nTSR_API int tsr_b(int (*f)(int),\n int);\n"
    nm_output = "0000 T tsr_a\n0010 T tsr_b\n     U malloc\n"
    walk, guide = "tsr_a(); tsr_b(0, 1);", "`tsr_a`, `tsr_b`"
    cases = [
        ((header, nm_output, walk, guide), None),
        ((header + "TSR_API void tsr_c(void);", nm_output, walk, guide), "tsr_c: declared, but not in the library"),
        ((header, nm_output + "0030 T tsr_d\n", walk, guide), "tsr_d: in the library, but not declared"),
        ((header, nm_output + "0030 W _ZN7tessera1xE\n", walk, guide), "_ZN7tessera1xE: in the library"),
        ((header, nm_output, "tsr_a();", guide), "tsr_b: not called"),
        ((header, nm_output, walk, "`tsr_b`"), "tsr_a: not named"),
        (("", "", "", ""), "declares nothing"),
    ]
    n_failed = 0
    for arguments, wanted in cases:
        faults, _ = faults_of(*arguments)
        good = not faults if wanted is None else any(wanted in fault for fault in faults)
        n_failed += not good
        if not good:
            print(f"expected {wanted!r}, found {faults}")
    print(f"check_c_api self-test: {len(cases) - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("library", nargs="?")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    nm_output = subprocess.run([args.nm, "-g", "--defined-only", args.library], capture_output=True, text=True,
                               check=True).stdout
    walk = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests/c_api").glob("walk*.c")))
    faults, n = faults_of((ROOT / "include/tessera/tessera.h").read_text(encoding="utf-8"), nm_output, walk,
                          (ROOT / "docs/c-api.md").read_text(encoding="utf-8"))
    for fault in faults:
        print(fault)
    print(f"check_c_api: {n} functions, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
