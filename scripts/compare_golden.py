#!/usr/bin/env python3
"""Compares the program with the reference engine over all goldens of the delivered architectures, through its commands.

  compare_golden.py [--bin build/tessera] [--archs FOLDER] [--variants FOLDER] [--only TEXT]... [--threads N]

--archs: where the reference's dummy models lie; without it make_arch_models, which is built beside the program, makes
them. --variants: where requantised models lie (bench/make_models.py makes them). --only: just the rows whose name contains TEXT. Models that are not here (scripts/fetch_models.sh brings the real ones)
count as skipped. Prints a table and ends with `N passed, N failed`.

scalar   Logits with `--kernels scalar`, teacher-forced on the reference's ids, against every float32 and `*.exact`
         golden: each number it states (argmax, the eight largest, min, max, mean, rms, lse, next; the last row) within
         1e-3. Where the reference looks GELU up in half precision (gemma) one step of one lookup is worth up to 1.1e-3
         (tests/golden_logits_test.cc), which is allowed for and shown.
fast     Top tokens with the fast kernels, wherever the reference's margin (first minus second) exceeds
         max(2 x its own distance from exact, the bound below); at least 80 % of rows must be compared. Exact is the
         `*.exact` golden or, where there is none, our scalar logits for the same ids; the reference's own distance is
         the largest over its eight listed logits of that row.
ppl      Perplexity of goldens/corpus.txt within 0.5 % of the reference's; of the variants in other formats
         (goldens/real/*.quants.tsv) within 0.5 % from 5 bits up and 1 % below: of that figure, or of the one for the same
         weights as float32 (*.exact_ppl.tsv), which the reference's rounding of activations does not move. A reference
         above 1,000 says nothing and counts as skipped. Files of formats that need an importance matrix hold its name,
         so their bytes may differ from those that the reference measured: said, not judged.
tokens   `tokenize --hex-lines`: ids of all cases, as special text, as plain text and framed. Where byte-level BPE meets
         bytes that are no UTF-8 the reference reads U+FFFD and we keep the byte: there the ids of the text with U+FFFD
         must be the reference's, and the case counts as `kept`.
template `template`: the prompt, or the error.

The bound. The fast kernels round each run of 32 activations to 8 bits: step s = max|x| / 127, error uniform in +-s/2.
For values that are about normal the largest of 32 is 2.5 deviations on average, so one rounding has a relative error of
e = 2.5 / 127 / sqrt(12) = 0.57 %, and a product of rounded values has it too, since errors and values meet the same
weights. A branch of a layer has three roundings in a row (its input, where gate and up or query and key share it, what
the non-linearity makes of that, and the input of its last product): sqrt(3) e, beside what it inherits. Branches of equal size add up on the
residual stream: the n-th contributes 1/n of the stream's square, so the stream's relative error after 2 L branches is
e sqrt(3 (1 + ln 2L)), and with the head's own rounding r = e sqrt(3 (1 + ln 2L) + 1). Logits that spread by d (their
standard deviation over the vocabulary) then have errors of r d, the difference of two sqrt(2) r d; the bound is twice
that: 2 sqrt(2) r d. Where all weights are float32 nothing is rounded and the bound is 1e-3.
"""
import argparse
import base64
import csv
import hashlib
import json
import math
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data"
ARCHITECTURES = ("llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe",
                 "gemma2", "gemma3", "gpt-oss")
TOLERANCE = 1e-3
GELU_STEP = 0.2e-3


class Failed(Exception):
    pass


def run(command, ok=(0,)):
    done = subprocess.run([str(part) for part in command], capture_output=True, check=False)
    if done.returncode not in ok:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise Failed(f"{' '.join(map(str, command[1:4]))} … ended with {done.returncode}: {' '.join(last)}")
    return done


class Goldens:
    """Golden files with their models, of the delivered architectures."""

    def __init__(self, arch_folder):
        self.logits = []   # (path, model, exact: path or None, quantised)
        for path in sorted([*DATA.glob("tiny/*.json"), *DATA.glob("models/*.json"),
                            *DATA.glob("goldens/archs/*.json"), *DATA.glob("goldens/real/*.p*.json")]):
            golden = json.loads(path.read_text())
            if golden.get("format") != "logit-golden-1" or golden["arch"] not in ARCHITECTURES:
                continue
            if path.parent.name == "archs":
                model = arch_folder / golden["model"]
                if not (DATA / "archs" / (model.stem + ".head")).exists():
                    continue   # another variant of the architecture
            elif path.parent.name == "real":
                model = ROOT / "models" / golden["model"]
            else:
                model = path.parent / (path.name.split(".")[0] + ".gguf")
            name, dot, rest = path.name.partition(".")
            exact = path.with_name(f"{name}.exact{dot}{rest}")
            is_exact = rest.startswith("exact")
            quantised = path.parent.name in ("models", "real") or "quantmix" in name or "mxfp4" in name
            self.logits.append((path, model, exact if exact.exists() else None, is_exact, quantised))


def rows_of(record):
    """[(name, row)] of all rows, the prompt's first."""
    rows = [(f"position {row['p']}", row) for row in record.get("positions", [])]
    return rows + [(f"step {row['i']}", row) for row in record["greedy"]["steps"]]


def last_row(record):
    """{id: logit} of the last prompt position."""
    last = record["last"]
    if last["encoding"] == "f32le-base64":
        data = base64.b64decode(last["data"])
        return dict(enumerate(struct.unpack(f"<{len(data) // 4}f", data)))
    return dict(map(tuple, last["top"]))


class Compare:
    def __init__(self, args, arch_folder):
        self.bin, self.args, self.arch_folder = args.bin, args, arch_folder
        self.passed = self.failed = self.skipped = 0
        self.cache = {}

    def row(self, kind, name, work):
        if self.args.only and not any(text in f"{kind} {name}" for text in self.args.only):
            return
        try:
            ok, detail = work()
        except Failed as error:
            ok, detail = False, str(error)
        if ok is None:
            self.skipped += 1
        elif ok:
            self.passed += 1
        else:
            self.failed += 1
        print(f"{kind:8} {name:44} {'skipped' if ok is None else 'ok' if ok else 'FAILED':7} {detail}", flush=True)

    def logits(self, golden, model, kernels):
        key = (str(model), kernels, tuple(golden["prompt"]), tuple(golden["greedy"]["tokens"]))
        if key not in self.cache:
            with tempfile.TemporaryDirectory() as folder:
                tokens = pathlib.Path(folder, "tokens")
                tokens.write_text(",".join(map(str, golden["prompt"])))
                fed = golden["greedy"]["tokens"]
                out = run([self.bin, "logits", "-m", model, "--tokens-file", tokens, "-n", len(fed), "--force",
                           ",".join(map(str, fed)), "--kernels", kernels, "-ctk", "f32", "-ctv", "f32", "--top", 96,
                           "-t", self.args.threads, "--json", "-"]).stdout
            self.cache = {k: v for k, v in self.cache.items() if k[2:] == key[2:]}   # one golden's at a time
            self.cache[key] = json.loads(out)
        return self.cache[key]

    def scalar(self, path, model):
        if not model.exists():
            return None, f"{model.name} is not here"
        golden = json.loads(path.read_text())
        ours = self.logits(golden, model, "scalar")
        allowed = TOLERANCE + (GELU_STEP if golden["arch"].startswith("gemma") else 0)
        worst, where, n, beyond = 0.0, "", 0, 0

        def take(what, wanted, found):
            nonlocal worst, where, n, beyond
            distance = abs(wanted - found) if found is not None and math.isfinite(found) else math.inf
            n += 1
            beyond += distance > TOLERANCE
            if distance > worst:
                worst, where = distance, what

        mine = dict(rows_of(ours))
        for name, row in rows_of(golden):
            top = dict(map(tuple, mine[name]["top"]))
            for field in ("min", "max", "mean", "rms", "lse", "next"):
                if field in row:
                    take(f"{name}: {field}", row[field], mine[name].get(field))
            for token, logit in row["top"]:
                take(f"{name}: logit {token}", logit, top.get(token))
            if row["top"][0][1] - row["top"][1][1] > 2 * allowed and mine[name]["top"][0][0] != row["top"][0][0]:
                take(f"{name}: top token", 0, None)
        wanted, found = last_row(golden), last_row(ours)
        for token, logit in wanted.items():
            take(f"last: logit {token}", logit, found.get(token))
        note = f", {beyond} beyond 1e-3 by a GELU step" if beyond and worst <= allowed else ""
        return worst <= allowed, f"{n} numbers, worst {worst:.1e} ({where}){note}"

    def fast(self, path, model, exact, quantised):
        if not model.exists():
            return None, f"{model.name} is not here"
        golden = json.loads(path.read_text())
        ours = dict(rows_of(self.logits(golden, model, "fast")))
        exact_rows = dict(rows_of(json.loads(exact.read_text()) if exact else self.logits(golden, model, "scalar")))
        if exact and json.loads(exact.read_text())["greedy"]["tokens"] != golden["greedy"]["tokens"]:
            exact_rows = dict(rows_of(self.logits(golden, model, "scalar")))   # another path after the prompt
        layers = golden["n_layer"]
        r = 2.5 / 127 / math.sqrt(12) * math.sqrt(3 * (1 + math.log(2 * layers)) + 1)
        n = compared = wrong = 0
        own = []   # our distance from exact over the bound, and the reference's
        wrong_at = ""
        for name, row in rows_of(golden):
            n += 1
            truth = dict(map(tuple, exact_rows[name]["top"]))
            pairs = [(logit, truth[token]) for token, logit in row["top"] if token in truth]
            reference_distance = max((abs(a - b) for a, b in pairs), default=0.0)
            spread = math.sqrt(max(row["rms"] ** 2 - row["mean"] ** 2, 0))
            bound = 2 * math.sqrt(2) * r * spread if quantised else 1e-3
            mine = dict(map(tuple, ours[name]["top"]))
            common = [token for token, _ in exact_rows[name]["top"][:8] if token in mine]
            own.append((max((abs(mine[t] - truth[t]) for t in common), default=0.0) / bound, reference_distance / bound))
            if row["top"][0][1] - row["top"][1][1] > max(2 * reference_distance, bound):
                compared += 1
                if ours[name]["top"][0][0] != row["top"][0][0]:
                    wrong += 1
                    wrong_at = wrong_at or name
        self.n_rows += n
        self.n_compared += compared
        ours_mean, theirs_mean = (sum(pair[i] for pair in own) / n for i in (0, 1))
        ours_max = max(pair[0] for pair in own)
        text = (f"{compared} of {n} rows compared ({100 * compared / n:.0f} %), {wrong} differ"
                f"{f' (first: {wrong_at})' if wrong else ''}; distance / bound: ours {ours_mean:.2f} on average, "
                f"{ours_max:.2f} at most, the reference's {theirs_mean:.2f}")
        return wrong == 0, text

    def perplexity(self, model, ctx, reference, allowed, exact=None):
        """exact: the reference's figure without rounding of activations; ours may be as near to that."""
        if not model.exists():
            return None, f"{model.name} is not here"
        out = run([self.bin, "perplexity", "-m", model, "-f", DATA / "goldens/corpus.txt", "-c", ctx, "-ctk", "f32",
                   "-ctv", "f32", "-t", self.args.threads, "--json"]).stdout
        ours = json.loads(out)["ppl"]
        if reference > 1000:
            return None, f"{ours:.4f}, the reference {reference}: too large to say anything"
        off = ours / reference - 1
        text = f"{ours:.4f}, the reference {reference} ({100 * off:+.3f} %"
        if exact:
            text += f"), exact {exact} ({100 * (ours / exact - 1):+.3f} %"
            off = min(off, ours / exact - 1, key=abs)
        return abs(off) <= allowed, f"{text}, allowed {100 * allowed} %)"

    def perplexity_golden(self, path):
        golden = json.loads(path.read_text())
        return self.perplexity(ROOT / "models" / golden["model"], golden["ctx"], golden["ppl"], 0.005)

    def variant(self, stem, row, exact):
        model = self.args.variants / f"{stem}.{row['type']}.gguf"
        bits = int(re.search("[0-9]+", row["type"]).group())
        ok, text = self.perplexity(model, 512, float(row["ppl"]), 0.005 if bits >= 5 else 0.01, exact)
        if model.exists() and hashlib.sha256(model.read_bytes()).hexdigest() != row["sha256"]:
            text += "; other bytes than measured there"
        return ok, text

    def variants(self, path):
        comment, *lines = path.read_text().splitlines()
        stem = comment.split()[2].removesuffix(".gguf;")   # "# base STEM.gguf; ..."
        exact_lines = path.with_name(path.name.replace(".quants.", ".exact_ppl.")).read_text().splitlines()[1:]
        exact = {row["type"]: float(row["ppl"]) for row in csv.DictReader(exact_lines, delimiter="\t")}
        for row in csv.DictReader(lines, delimiter="\t"):
            if row["sha256"] != "-" and row["type"] != "original":
                self.row("ppl", f"{stem}.{row['type']}", lambda row=row: self.variant(stem, row, exact.get(row["type"])))

    def encode(self, model, texts, *flags):
        with tempfile.NamedTemporaryFile("w", suffix=".hex") as lines:
            lines.write("".join(text.hex() + "\n" for text in texts))
            lines.flush()
            out = run([self.bin, "tokenize", "-m", model, *flags, "--hex-lines", lines.name]).stdout.decode()
        return [json.loads(line) for line in out.splitlines()]

    def tokens(self, path, model):
        if not model.exists():
            return None, f"{model.name} is not here"
        header, *cases = map(json.loads, path.read_text().splitlines())
        texts = [bytes.fromhex(case["hex"]) for case in cases]
        # Each byte that is no part of a character as the reference reads it.
        twins = [text if decodes(text) else with_replacements(text) for text in texts]
        wrong, kept = [], 0
        for flags, field in (((), "special"), (("--no-parse-special",), "plain"), (("--add-bos",), "framed")):
            for case, ours, twin in zip(cases, self.encode(model, texts, *flags), self.encode(model, twins, *flags)):
                if ours["tokens"] == case[field]:
                    if field == "special" and "pieces" in case and ours["pieces"] != case["pieces"]:
                        wrong.append(case["hex"][:40] + " (pieces)")
                elif twin["tokens"] == case[field] and case["category"] in ("invalid", "noise"):
                    kept += field == "special"
                else:
                    wrong.append(f"{case['hex'][:40]} ({field})")
        text = f"{3 * len(cases)} encodings of {len(cases)} texts, {len(wrong)} differ"
        return not wrong, text + (f", {kept} kept bytes that are no UTF-8" if kept else "") + (f": {wrong[0]}" if wrong else "")

    def templates(self, path):
        golden = json.loads(path.read_text())
        model = ROOT / "models" / golden["model"]
        if not model.exists():
            return None, f"{model.name} is not here"
        wrong = []
        with tempfile.TemporaryDirectory() as folder:
            request, template = pathlib.Path(folder, "request.json"), pathlib.Path(folder, "template.jinja")
            own = path.parent.name != "real"   # the model's own template otherwise
            if own:
                template.write_text(golden["chat_template"])
            for case in golden["cases"]:
                request.write_text(case.get("raw_request") or json.dumps(case["request"]))
                done = run([self.bin, "template", "-m", model, "--messages", request,
                            *(["--chat-template-file", template] if own else [])], ok=(0, 1))
                if done.returncode != (0 if case["status"] == 200 else 1) or \
                        (case["status"] == 200 and done.stdout.decode() != case["prompt"]):
                    wrong.append(case["name"])
        return not wrong, f"{len(golden['cases'])} requests, {len(wrong)} differ{': ' + ', '.join(wrong) if wrong else ''}"

    def all(self):
        goldens = Goldens(self.arch_folder)
        self.n_rows = self.n_compared = 0
        for path, model, exact, is_exact, quantised in goldens.logits:
            if is_exact or not quantised:
                self.row("scalar", path.stem, lambda: self.scalar(path, model))
        for path, model, exact, is_exact, quantised in goldens.logits:
            if not is_exact:
                self.row("fast", path.stem, lambda: self.fast(path, model, exact, quantised))
        if self.n_rows:
            share = self.n_compared / self.n_rows
            self.row("fast", "share of rows compared", lambda: (share >= 0.8, f"{self.n_compared} of {self.n_rows}: {100 * share:.1f} %"))
        for path in sorted((DATA / "goldens/real").glob("*.ppl.json")):
            self.row("ppl", path.stem, lambda: self.perplexity_golden(path))
        if self.args.variants:
            for path in sorted((DATA / "goldens/real").glob("*.quants.tsv")):
                self.variants(path)
        for path in sorted([*DATA.glob("tiny/*.tokens.jsonl"), *DATA.glob("goldens/real/*.tokens.jsonl")]):
            name = path.name.split(".")[0] + ".gguf"
            model = path.parent / name if path.parent.name == "tiny" else ROOT / "models" / name
            self.row("tokens", path.stem, lambda: self.tokens(path, model))
        for path in sorted([*DATA.glob("goldens/real/*.templates.json"), *DATA.glob("goldens/jinja/*.json")]):
            self.row("template", path.stem, lambda: self.templates(path))


def decodes(text):
    try:
        text.decode()
        return True
    except UnicodeDecodeError:
        return False


def with_replacements(text):
    """U+FFFD for each byte that is no part of a character."""
    out, i = b"", 0
    while i < len(text):
        for n in (1, 2, 3, 4):
            if i + n <= len(text) and decodes(text[i:i + n]):
                out += text[i:i + n]
                i += n
                break
        else:
            out += "\ufffd".encode()
            i += 1
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=str(ROOT / "build/tessera"))
    parser.add_argument("--archs", type=pathlib.Path)
    parser.add_argument("--variants", type=pathlib.Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    binary = pathlib.Path(args.bin).resolve()   # build/tessera is a link into the build
    if not binary.exists():
        sys.exit(f"{args.bin} is not there; build it first (scripts/demo.sh), or name it with --bin")
    with tempfile.TemporaryDirectory() as folder:
        maker = binary.with_name("make_arch_models")
        if args.archs:
            folder = args.archs
        elif maker.exists():
            run([maker, folder])
        else:
            print(f"{maker} is not there (target make_arch_models): the reference's dummy models are skipped")
        compare = Compare(args, pathlib.Path(folder))
        compare.all()
    skipped = f", {compare.skipped} skipped" if compare.skipped else ""
    print(f"{compare.passed} passed, {compare.failed} failed{skipped}")
    sys.exit(1 if compare.failed else 0)


if __name__ == "__main__":
    main()
