#!/usr/bin/env python3
"""Digests of all logits (`tessera logits`, logits_sha256) over placements, caches, sequences, threads and kernels.

  placement_sweep.py [--bin build/tessera] [--archs FOLDER] [--only MODEL]... [--full]

Every placement must give the digest of one device with the same cuts; every instruction set that of the portable fast
kernels. Without --full each placement runs with one number of threads and one instruction set, which change from case
to case; with it, the whole product (hours). The two real models run when they are in models/. A cache type that a
model's heads cannot take must be refused, and is counted as such. Prints one line per run and ends with
`N passed, N failed`.
"""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data"
TINY = ["llama", "llama-tied", "llama-linear", "llama-yarn", "qwen2", "qwen3", "gemma3", "quantmix-a", "quantmix-b"]
ARCHS = ["llama", "qwen2", "qwen3", "gemma2", "gemma3"]
THREADS = [1, 2, 3, 7]


def devices(n):
    return ",".join(f"cpu:{i}" for i in range(n))


# By cuts: the flags of each placement; the first is what the others are held against.
PLACEMENTS = {
    2: [("one device", 1, "none", None), ("layer, 2", 2, "layer", None), ("tensor, 2", 2, "tensor", None)],
    4: [("one device", 1, "none", None), ("layer, 3:1", 2, "layer", "3,1"), ("tensor, 3:1", 2, "tensor", "3,1")],
    3: [("one device", 1, "none", None), ("layer, 3", 3, "layer", None), ("tensor, 3", 3, "tensor", None)],
    5: [("one device", 1, "none", None), ("layer, 5", 5, "layer", None), ("tensor, 5", 5, "tensor", None)],
}


class Sweep:
    def __init__(self, args):
        self.args, self.passed, self.failed, self.refused = args, 0, 0, 0
        self.cut_models = set()

    def logits(self, model, placement, cuts, cache, n_seqs, threads, kernels, isa, ids):
        _, n_devices, mode, shares = placement
        command = [self.args.bin, "logits", "-m", str(model), "--device", devices(n_devices), "-sm", mode, "--cuts", str(cuts),
                   "-ctk", cache, "-ctv", cache, "-t", str(threads), "--kernels", kernels, "-n", "3", "-ub", "24", "--json", "-"]
        command += ["-ts", shares] if shares else []
        command += ["--cpu-isa", isa] if kernels == "fast" else []
        for s in range(n_seqs):
            command += ["--tokens", ",".join(str((i * 7 + 3 * s + 1) % ids) for i in range(34 if s == 0 else 9 + s))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return (json.loads(done.stdout), "") if done.returncode == 0 else (None, done.stderr.strip())

    def case(self, model, cuts, cache, n_seqs, kernels, isas, turn, ids):
        """One cache type and number of sequences of one kernel class; False when the cache type is refused."""
        wanted = None
        runs = []
        for p, placement in enumerate(PLACEMENTS[cuts]):
            if self.args.full:
                runs += [(placement, t, isa) for isa in isas for t in THREADS]
            elif p == 0:
                runs += [(placement, 1, isas[0]), (placement, THREADS[1 + turn % 3], isas[-1])]
            else:
                runs.append((placement, THREADS[(turn + p) % 4], isas[(turn + p) % len(isas)]))
        for placement, threads, isa in runs:
            result, error = self.logits(model, placement, cuts, cache, n_seqs, threads, kernels, isa, ids)
            name = f"{model.stem} cuts {cuts} {placement[0]} {cache} x{n_seqs} {threads}t {kernels}/{isa}"
            if result is None and wanted is None and cache == "q8_0" and "--cache-type" in error:
                self.refused += 1
                return False
            if result is None:
                self.failed += 1
                print(f"FAILED {name}: {error[-300:]}", flush=True)
                continue
            digest, stats = result["logits_sha256"], result["stats"]
            wanted = wanted or digest
            ok = digest == wanted
            self.passed += ok
            self.failed += not ok
            if stats["n_layers_attn_cut"] > 0 and stats["n_layers_ffn_cut"] > 0 and "tensor" in placement[0]:
                self.cut_models.add(model.stem)
            use = " ".join(f"{d['name']}:{d['weight_bytes']}+{d['kv_bytes']}+{d['scratch_bytes']}" for d in result["devices"])
            print(f"{'ok    ' if ok else 'FAILED'} {name}: {digest[:16]} tiles {stats['n_tiles']} steps {stats['n_steps']} "
                  f"reduces {stats['n_reduces']} bytes {use}", flush=True)
        return True

    def model(self, path, isas):
        real = path.parent.name == "models" and path.parent.parent == ROOT
        turn = 0
        for cache in ("f16", "f32", "q8_0"):
            for n_seqs in (1, 4):
                for cuts in PLACEMENTS:
                    turn += 1
                    if not self.case(path, cuts, cache, n_seqs, "fast", isas, turn, 100):
                        break
        # The scalar set is slow on the real models: one cache type and one number of cuts there.
        for cuts in ([2] if real and not self.args.full else PLACEMENTS):
            turn += 1
            self.case(path, cuts, "f32", 1 if real else 4, "scalar", ["portable"], turn, 100)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=str(ROOT / "build/tessera"))
    parser.add_argument("--archs", type=pathlib.Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--full", action="store_true")
    args = parser.parse_args()
    models = [DATA / f"tiny/tiny-{name}.gguf" for name in TINY] + sorted(DATA.glob("models/*.gguf"))
    models += [args.archs / f"{name}-dense.gguf" for name in ARCHS] if args.archs else []
    models += sorted((ROOT / "models").glob("*.gguf"))
    sweep = Sweep(args)
    isas = []
    for isa in ("portable", "avx2", "avxvnni", "avx512"):
        probe = subprocess.run([args.bin, "logits", "-m", str(models[0]), "--tokens", "1", "--kernels", "fast", "--cpu-isa",
                                isa, "--json", "-"], capture_output=True, text=True, check=False)
        if probe.returncode == 0:
            isas.append(isa)
        elif "this processor cannot run" not in probe.stderr:   # anything else would leave kernels untested unnoticed
            sweep.failed += 1
            print(f"FAILED --cpu-isa {isa}: {probe.stderr.strip()[-300:]}")
    print(f"instruction sets: {', '.join(isas)}")
    for path in models:
        if not args.only or path.stem in args.only:
            sweep.model(path, isas)
    print(f"models with attention and FFN in two or more cuts under a tensor placement: {len(sweep.cut_models)} "
          f"({', '.join(sorted(sweep.cut_models))})")
    print(f"{sweep.passed} passed, {sweep.failed} failed ({sweep.refused} refused: heads that q8_0 blocks do not divide)")
    sys.exit(1 if sweep.failed else 0)


if __name__ == "__main__":
    main()
