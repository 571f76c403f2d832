#!/usr/bin/env python3
"""Makes tests/data/goldens/grammar/cases.jsonl anew: what the reference engine (llama.cpp) accepts as texts of grammars.

  grammar_golden.py VALIDATOR...     the command that runs its test-gbnf-validator GRAMMAR_FILE TEXT_FILE, with {} where
                                     the folder stands that the command sees as the one named by --folder
  options: --folder DIR   where grammars and texts are written (default: a temporary one)

Each line: a grammar and texts with 1 where the reference accepts one. Texts are drawn at random from the grammar's
letters, seed fixed, and left out where neither half would have any.
"""
import argparse
import json
import pathlib
import random
import subprocess
import tempfile

CASES = [  # grammar, letters
    ('root ::= "ab"* "c"?', "abc"),
    ('root ::= ("a" | "bc"){2,3}', "abc"),
    ('root ::= [a-b]{0,2} [^a]', "abx\n"),
    ('root ::= "(" root ")" root | ""', "()"),
    ('root ::= "a" root "a" | "b"', "ab"),
    ('root ::= x y\nx ::= "a" | "ab"\ny ::= "c" | "bc"', "abc"),
    ('root ::= s "!"\ns ::= "x" s s | "x"', "x!"),
    ('root ::= "a"+ | "b"{2,} "a"', "ab"),
    ('root ::= . "é" [é-ü]?', "éüax"),
    ('root ::= ("a"? "b"?){1,3} "c"', "abc"),
    ('root ::= e "a" e\ne ::= "-"?', "a-"),
    ('root ::= [0-9]{1,2} ("." [0-9]+)?', "01."),
    ('root ::= "\\"" ([^"\\\\] | "\\\\" ["\\\\n])* "\\""', '"\\na'),
    ('root ::= term ("+" term)*\nterm ::= "1" | "(" root ")"', "1+()"),
    ('root ::= (\n "a" # first\n | "b"\n)* "c"', "abc"),
    ('root ::= "\\x41" "\\u00e9"? "\\U0001F600"*', "Aé😀"),
    ('root ::= "a" ("b" ("c" "d"?)?)?', "abcd"),
    ('root ::= ([ab] | "c" [ab])* "c"', "abc"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("validator", nargs="+")
    args = parser.parse_args()
    folder = args.folder or pathlib.Path(tempfile.mkdtemp())
    rng = random.Random(9)
    cases = []
    for i, (grammar, letters) in enumerate(CASES):
        texts = sorted({"".join(rng.choice(letters) for _ in range(rng.randrange(1, 8))) for _ in range(150)})
        (folder / f"{i}.gbnf").write_text(grammar, encoding="utf-8")
        for j, text in enumerate(texts):
            (folder / f"{i}_{j}.txt").write_text(text, encoding="utf-8", newline="")
        cases.append((grammar, texts))
    # One call for all: a shell loop over the files, an exit status for each.
    loop = ("for t in *_*.txt; do test-gbnf-validator ${t%%_*}.gbnf $t 2>/dev/null | grep -q 'is valid' && echo $t; "
            "done; true")
    done = subprocess.run([*args.validator, "sh", "-c", loop], capture_output=True, text=True, check=True)
    accepted = set(done.stdout.split())
    lines = []
    for i, (grammar, texts) in enumerate(cases):
        fits = [int(f"{i}_{j}.txt" in accepted) for j in range(len(texts))]
        good = [j for j, f in enumerate(fits) if f][:40]
        bad = [j for j, f in enumerate(fits) if not f][:40]
        print(f"{len(good)} accepted, {len(bad)} refused: {grammar!r}")
        if not good or not bad:
            raise SystemExit("a case that shows nothing")
        lines.append(json.dumps({"grammar": grammar, "texts": [[texts[j], fits[j]] for j in sorted(good + bad)]}))
    target = pathlib.Path("tests/data/goldens/grammar")
    target.mkdir(parents=True, exist_ok=True)
    (target / "cases.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
