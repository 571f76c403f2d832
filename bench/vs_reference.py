#!/usr/bin/env python3
"""Interleaved speed pairs of tessera and the reference engine. Run through vs_reference.sh, which explains the options."""
import argparse
import csv
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass

COLUMNS = ["machine", "model", "format", "test", "batch", "depth", "threads", "pairs", "tessera_median", "tessera_least",
           "tessera_most", "reference_median", "reference_least", "reference_most", "ratio_median", "ratio_least", "ratio_most",
           "cpu_isa", "int8_gop_per_s", "share_of_int8", "share_of_int8_least", "share_of_int8_most", "read_gb_per_s",
           "share_of_read", "share_of_read_least", "share_of_read_most", "reference_fa", "tessera_build", "reference_build"]

WHICH = ("median", "least", "most")


@dataclass(frozen=True)
class Test:
    """One figure: the speed of a prompt (pp) or a generation (tg)."""
    name: str
    kind: str
    n_tokens: int
    batch: int
    depth: int

    @staticmethod
    def parse(name):
        found = re.fullmatch(r"(pp|tg)(\d+)(?:x(\d+))?(?:@(\d+))?", name)
        if not found or (found[1] == "pp" and found[3]):
            raise argparse.ArgumentTypeError(f"'{name}' is no test: give names such as pp512, tg32, tg32x4, tg32@4096")
        return Test(name, found[1], int(found[2]), int(found[3] or 1), int(found[4] or 0))


@dataclass(frozen=True)
class Pair:
    """Tokens per second of both engines, and the ceilings beside our run: the higher of before and after."""
    ours: float
    theirs: float
    int8_gop_per_s: float
    read_gb_per_s: float


@dataclass(frozen=True)
class Engine:
    """Both engines' benches take the same settings and name their results alike."""
    single: list    # command of the bench of one sequence
    batched: list   # and of several
    folder: str     # where they see the models; empty: where we do

    def run(self, model, tests, threads, warmup, fa=None):
        """{test: tokens per second} of tests that differ in length or batch only, and what the bench says of itself."""
        where = os.path.join(self.folder or model.parent, model.name)
        flags = ["-m", where, "-t", str(threads)] + (["-fa", fa, "-dev", "none"] if fa else [])
        lengths = {kind: sorted({t.n_tokens for t in tests if t.kind == kind}) for kind in ("pp", "tg")}
        if tests[0].batch == 1:
            records = self.records(self.single + flags + [
                "-p", joined(lengths["pp"]), "-n", joined(lengths["tg"]), "-d", str(tests[0].depth), "-r", "1", "-o", "jsonl"]
                + ([] if warmup else ["--no-warmup"]))
            speeds = {t: next(r["avg_ts"] for r in records if (r["n_prompt"], r["n_gen"]) == (
                (t.n_tokens, 0) if t.kind == "pp" else (0, t.n_tokens))) for t in tests}
        else:
            batches = sorted({t.batch for t in tests})
            prompt, gen = max(tests[0].depth, 1), tests[0].n_tokens
            if fa:   # ours takes what the largest test needs
                flags += ["-c", str(batches[-1] * (prompt + gen)), "-b", "2048", "-ub", "512"]
            records = self.records(self.batched + flags + [
                "-npp", str(prompt), "-ntg", str(gen), "-npl", joined(batches), "--output-format", "jsonl"]
                + (["-pps"] if tests[0].depth else []))
            speeds = {t: next(r["speed_tg"] for r in records if r["pl"] == t.batch) for t in tests}
        return speeds, records[0]

    @staticmethod
    def records(command):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not records:
            last = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {last}")
        return records


def highest(rates):
    return max((r for r in rates if r), default=None)


def joined(numbers):
    return ",".join(map(str, numbers)) or "0"


class Model:
    """What shares are counted from."""

    def __init__(self, tessera, path):
        self.path = path
        out = subprocess.run([tessera, "inspect", "-m", path, "--json"], check=True, capture_output=True, text=True).stdout
        report = json.loads(out)
        self.n_parameters = report["n_parameters"]
        weights = [t for t in report["tensors"] if len(t["shape"]) > 1]
        untied = any(t["name"] == "output.weight" for t in weights)
        meta, architecture = report["metadata"], report["metadata"].get("general.architecture")
        n_used = meta.get(f"{architecture}.expert_used_count", 0)  # of a layer's experts, for one token

        def drawn(tensor):
            """How many of the matrices that a tensor holds one token needs."""
            return n_used if "_exps." in tensor["name"] else 1

        self.read_bytes = sum(t["bytes"] * drawn(t) / (t["shape"] + [1])[2] for t in weights
                              if not (untied and t["name"] == "token_embd.weight"))
        self.layer_ops = 2 * sum(t["shape"][0] * t["shape"][1] * drawn(t) for t in weights if t["name"].startswith("blk."))
        stem, _, self.format = path.stem.replace("-", ".").rpartition(".")
        self.name = path.stem[:len(stem)]


class Bench:
    def __init__(self, args):
        self.args = args
        self.machine = f"{processor_name()}, {os.cpu_count()} processors"
        build, prefix = pathlib.Path(args.build), shlex.split(os.environ.get("REFERENCE", ""))
        self.tessera = str(build / "tessera")
        self.ceilings_command = [str(build / "ceilings_bench"), "--json", "--threads", str(args.threads), "--footprint", "512"]
        self.ours = Engine([self.tessera, "bench"], [self.tessera, "batched-bench"], "")
        self.theirs = Engine(prefix + ["llama-bench"], prefix + ["llama-batched-bench"], os.environ.get("REFERENCE_FOLDER", ""))
        self.fa = {}     # (parameters, test): the reference's better setting
        self.done = set()
        if args.csv and os.path.exists(args.csv):
            with open(args.csv, newline="") as rows:
                self.done = {(r["machine"], r["model"] + r["format"], r["test"], r["threads"]) for r in csv.DictReader(rows)}

    def ceilings(self, isa):
        """(Gop/s of that instruction set, None where it has no such rate; GB/s)"""
        command = self.ceilings_command + (["--isa", isa] if isa else [])
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        int8 = found["isas"].get(isa)
        return int8 and int8["int8_gop_per_s"]["all"], found["read_gb_per_s"]["all"]

    def choose_fa(self, model, tests):
        for test in tests:
            if self.args.fa != "best":
                self.fa[model.n_parameters, test] = self.args.fa
        for group in groups(t for t in tests if (model.n_parameters, t) not in self.fa):
            speeds = {fa: self.theirs.run(model.path, group, self.args.threads, self.args.warmup, fa)[0] for fa in ("on", "off")}
            for test in group:
                self.fa[model.n_parameters, test] = max(speeds, key=lambda fa, test=test: speeds[fa][test])

    def run(self, model):
        """Runs the tests that the CSV lacks, in pairs, and reports them."""
        tests = [t for t in self.args.tests
                 if (self.machine, model.name + model.format, t.name, str(self.args.threads)) not in self.done]
        if not tests:
            return
        self.choose_fa(model, tests)
        pairs = {t: [] for t in tests}
        said = {}
        for i in range(self.args.pairs):
            for group in groups(tests):
                speeds, ceilings = {}, []
                for engine in ("ours", "theirs") if i % 2 == 0 else ("theirs", "ours"):
                    if engine == "ours" and said.get("cpu_isa"):
                        ceilings.append(self.ceilings(said["cpu_isa"]))
                    speeds[engine] = self.measure(engine, model, group, said)
                    if engine == "ours":
                        ceilings.append(self.ceilings(said.get("cpu_isa")))
                for t in group:
                    pairs[t].append(Pair(speeds["ours"][t], speeds["theirs"][t], *map(highest, zip(*ceilings))))
        for t in tests:
            self.report(model, t, pairs[t], said)

    def measure(self, engine, model, group, said):
        if engine == "ours":
            speeds, record = self.ours.run(model.path, group, self.args.threads, self.args.warmup)
            said.update({k: record[k] for k in ("cpu_isa", "build_commit") if k in record})
            return speeds
        speeds = {}
        for fa in ("on", "off"):
            part = [t for t in group if self.fa[model.n_parameters, t] == fa]
            if part:
                found, record = self.theirs.run(model.path, part, self.args.threads, self.args.warmup, fa)
                speeds.update(found)
                said["reference"] = record.get("build_commit", said.get("reference", ""))
        return speeds

    def report(self, model, test, pairs, said):
        ours, theirs = summary([p.ours for p in pairs]), summary([p.theirs for p in pairs])
        ratio = summary([p.ours / p.theirs for p in pairs])
        row = dict.fromkeys(COLUMNS, "")
        row.update(machine=self.machine, model=model.name, format=model.format, test=test.name, batch=test.batch,
                   depth=test.depth, threads=self.args.threads, pairs=len(pairs), cpu_isa=said.get("cpu_isa", ""),
                   reference_fa=self.fa[model.n_parameters, test], tessera_build=said.get("build_commit", ""),
                   reference_build=said.get("reference", ""))
        for name, values in (("tessera", ours), ("reference", theirs), ("ratio", ratio)):
            row.update({f"{name}_{which}": f"{value:.3f}" for which, value in zip(WHICH, values)})
        said_share = ""
        if test.kind == "pp":
            name, column, unit, per_token = "int8", "int8_gop_per_s", "Gop/s", model.layer_ops
        else:
            name, column, unit, per_token = "read", "read_gb_per_s", "GB/s", model.read_bytes / test.batch
        rates = [getattr(p, column) for p in pairs]
        if all(rates):
            share = summary([p.ours * per_token / 1e9 / rate for p, rate in zip(pairs, rates)])
            rate = statistics.median(rates)
            row.update({column: f"{rate:.1f}", f"share_of_{name}": f"{share[0]:.3f}",
                        f"share_of_{name}_least": f"{share[1]:.3f}", f"share_of_{name}_most": f"{share[2]:.3f}"})
            said_share = f"{100 * share[0]:3.0f} % ({100 * share[1]:.0f} to {100 * share[2]:.0f}) of {rate:.1f} {unit}"
        print(f"{model.path.stem:32} {test.name:12} tessera {ours[0]:8.1f} ({ours[1]:.1f} to {ours[2]:.1f})  reference "
              f"{theirs[0]:8.1f} ({theirs[1]:.1f} to {theirs[2]:.1f}, -fa {row['reference_fa']})  ratio {ratio[0]:.2f} "
              f"({ratio[1]:.2f} to {ratio[2]:.2f})  {said_share}", flush=True)
        if self.args.csv:
            new = not os.path.exists(self.args.csv)
            with open(self.args.csv, "a", newline="") as out:
                writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(row)


def groups(tests):
    """Tests that one call of a bench can run."""
    found = {}
    for t in tests:
        found.setdefault((t.depth, t.n_tokens if t.batch > 1 else 0), []).append(t)
    return list(found.values())


def summary(values):
    return statistics.median(values), min(values), max(values)


def processor_name():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown processor")


def main():
    parser = argparse.ArgumentParser(usage="see the head of bench/vs_reference.sh")
    parser.add_argument("--build", required=True)
    parser.add_argument("--tests", type=lambda text: [Test.parse(name) for name in text.split(",")], default="pp512,tg32")
    parser.add_argument("--models", type=lambda text: text.split(","), default="")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--csv")
    parser.add_argument("--fa", choices=("on", "off", "best"), default="best")
    parser.add_argument("--warmup", action="store_true")
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    bench = Bench(args)
    files = [file for path in args.paths for file in (sorted(path.glob("*.gguf")) if path.is_dir() else [path])
             if path.is_file() or not args.models or any(text in file.name for text in args.models)]
    n_failed = 0
    for file in files:
        try:
            bench.run(Model(bench.tessera, file.resolve()))
        except (RuntimeError, subprocess.CalledProcessError) as error:
            n_failed += 1
            print(f"{file.stem}: {error}", file=sys.stderr, flush=True)
    print(f"{bench.machine}; medians (least to most) of {args.pairs} pairs", file=sys.stderr)
    sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    main()
