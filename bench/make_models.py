#!/usr/bin/env python3
"""Makes the models that speed and perplexity are compared on, one file for each weight format, with the reference's tools.

  make_models.py random FOLDER [TYPE...]            FOLDER/random-1b-TYPE.gguf: 1.1 G random weights, no vocabulary
  make_models.py requantised BASE FOLDER [TYPE...]  FOLDER/STEM.TYPE.gguf: the model BASE in other formats

TYPE: a name that llama-quantize takes, or MXFP4 or NVFP4, which here mean all large tensors; default: all there are.
Files that are there already are left alone. The environment says where the reference is:

  REFERENCE         what comes before the name of its tools on a command line (default: nothing)
  REFERENCE_FOLDER  FOLDER as the tools see it (default: FOLDER itself)

random: quantising 1.1 G weights takes the tools minutes for some formats, and speed does not depend on values. So a twin
of the same depth, but 256 wide, is quantised, which shows what type the tool's mix gives each tensor; the large model is
filled with blocks of the twin's tensor in random order. Sizes: 22 layers, 2048 wide, feed-forward 5632, 32 heads with 4
for keys and values, 32,000 ids: 2.07 G operations a token.

requantised: as tests/data/goldens/real/*.quants.tsv was made (llama-quantize --allow-requantize). Formats below four
bits want an importance matrix: of tests/data/goldens/corpus.txt here, of ones for the random twin.
"""
import os
import pathlib
import shlex
import shutil
import struct
import subprocess
import sys
import time

import numpy as np

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "tests/data/goldens/corpus.txt"

WHOLE = ["F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "IQ4_NL",
         "IQ4_XS", "TQ2_0", "TQ1_0", "MXFP4_MOE", "MXFP4", "NVFP4"]
WITH_IMPORTANCE = ["Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K", "Q2_K_S", "Q2_0", "Q1_0", "IQ2_XXS", "IQ1_S", "IQ3_XXS", "IQ2_XS",
                   "IQ2_S", "IQ1_M", "IQ2_M", "IQ3_S", "IQ3_M", "IQ3_XS"]
RANDOM = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_XS", "IQ4_NL", "IQ3_XXS",
          "IQ3_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4", "Q1_0", "Q2_0", "F16",
          "BF16"]
REQUANTISED = [t for t in WHOLE if t not in ("MXFP4", "NVFP4")] + WITH_IMPORTANCE

LAYERS = 22
# of the large model, and of its twin, whose ratio of query to key heads is the same: the mixes look at it
LARGE = {"embd": 2048, "ffn": 5632, "heads": 32, "kv_heads": 4, "head": 64, "vocab": 32000}
TWIN = {"embd": 256, "ffn": 256, "heads": 8, "kv_heads": 1, "head": 32, "vocab": 256}

F32 = 0          # GGUF's number of the type
CHUNK = 256      # weights; whole blocks of every type
ALIGNMENT = 32


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def packed_entry(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):   # of texts
        return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return text(key) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


def write_gguf(path, metadata, tensors):
    """tensors: [(name, dims, type id, bytes in all, function that gives the bytes)]. Complete or not there."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    head += b"".join(packed_entry(key, value) for key, value in metadata.items())
    offset = 0
    for name, dims, type_id, n_bytes, _ in tensors:
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, type_id, offset)
        offset += n_bytes + -n_bytes % ALIGNMENT
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as out:
        out.write(head + bytes(-len(head) % ALIGNMENT))
        for name, _, _, n_bytes, data in tensors:
            content = data()
            assert len(content) == n_bytes, name
            out.write(content)
            out.write(bytes(-n_bytes % ALIGNMENT))
    partial.rename(path)


class Reader:
    """What a GGUF file says of itself: entries (scalars and texts), tensors {name: (dims, type id, offset)}, data_begin."""

    SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}

    def __init__(self, path):
        self.data = path.read_bytes()
        self.at = 8
        n_tensors, n_entries = self.take("<Q"), self.take("<Q")
        self.entries = {}
        for _ in range(n_entries):
            key = self.take_text()
            self.entries[key] = self.take_value(self.take("<I"))
        self.tensors = {}
        for _ in range(n_tensors):
            name = self.take_text()
            dims = [self.take("<Q") for _ in range(self.take("<I"))]
            self.tensors[name] = dims, self.take("<I"), self.take("<Q")
        self.data_begin = self.at + -self.at % self.entries.get("general.alignment", ALIGNMENT)

    def take(self, form):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def take_text(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def take_value(self, kind):
        if kind == 8:
            return self.take_text()
        if kind == 9:
            kind, n = self.take("<I"), self.take("<Q")
            return [self.take_value(kind) for _ in range(n)]
        return self.take(self.SCALARS[kind])

    def chunks(self, name):
        """[chunks, bytes of CHUNK weights] of a tensor. Less than ALIGNMENT bytes lie between its end and the next one,
        and it has at least as many chunks: so the bytes of a chunk are the quotient, whatever its type."""
        dims, _, begin = self.tensors[name]
        n_chunks = dims[0] * dims[1] // CHUNK
        assert n_chunks >= ALIGNMENT and dims[0] % CHUNK == 0, name
        end = min([offset for _, _, offset in self.tensors.values() if offset > begin],
                  default=len(self.data) - self.data_begin)
        n_bytes = (end - begin) // n_chunks
        flat = np.frombuffer(self.data, np.uint8, n_chunks * n_bytes, self.data_begin + begin)
        return flat.reshape(n_chunks, n_bytes)


def llama_metadata(sizes, name):
    numbers = {"vocab_size": sizes["vocab"], "block_count": LAYERS, "context_length": 131072,
               "embedding_length": sizes["embd"], "feed_forward_length": sizes["ffn"], "attention.head_count": sizes["heads"],
               "attention.head_count_kv": sizes["kv_heads"], "attention.key_length": sizes["head"],
               "attention.value_length": sizes["head"], "rope.dimension_count": sizes["head"], "rope.freq_base": 500000.0,
               "attention.layer_norm_rms_epsilon": 1e-5}
    return {"general.architecture": "llama", "general.name": name, "tokenizer.ggml.model": "no_vocab",
            **{f"llama.{key}": value for key, value in numbers.items()}}


def llama_tensors(sizes):
    """[(name, dims)] of a model, in the order of the file."""
    embd, ffn, q, kv = sizes["embd"], sizes["ffn"], sizes["heads"] * sizes["head"], sizes["kv_heads"] * sizes["head"]
    shapes = [("token_embd", (embd, sizes["vocab"])), ("output_norm", (embd,)), ("output", (embd, sizes["vocab"]))]
    for i in range(LAYERS):
        shapes += [(f"blk.{i}.{name}", dims) for name, dims in [
            ("attn_norm", (embd,)), ("attn_q", (embd, q)), ("attn_k", (embd, kv)), ("attn_v", (embd, kv)),
            ("attn_output", (q, embd)), ("ffn_norm", (embd,)), ("ffn_gate", (embd, ffn)), ("ffn_up", (embd, ffn)),
            ("ffn_down", (ffn, embd))]]
    return [(name + ".weight", dims) for name, dims in shapes]


def write_twin(path):
    rng = np.random.default_rng(1)

    def values(dims):
        if len(dims) == 1:
            return np.ones(dims[0], "<f4").tobytes()
        return (rng.standard_normal(dims[0] * dims[1]) * LARGE["embd"] ** -0.5).astype("<f4").tobytes()

    write_gguf(path, llama_metadata(TWIN, "twin"),
               [(name, dims, F32, 4 * int(np.prod(dims)), lambda dims=dims: values(dims)) for name, dims in llama_tensors(TWIN)])


def write_even_importance(path):
    """An importance matrix of ones, as llama-imatrix would write it."""
    tensors = []
    for name, dims in llama_tensors(TWIN):
        if len(dims) == 2:
            ones = np.ones(dims[0], "<f4").tobytes()
            tensors += [(name + ".in_sum2", (dims[0], 1), F32, len(ones), lambda ones=ones: ones),
                        (name + ".counts", (1, 1), F32, 4, lambda: np.ones(1, "<f4").tobytes())]
    write_gguf(path, {"general.type": "imatrix", "imatrix.datasets": ["ones"], "imatrix.chunk_count": 1,
                      "imatrix.chunk_size": 512}, tensors)


def widen(twin, path, name):
    """Writes the large model whose tensors have the types and blocks of the twin's."""
    rng = np.random.default_rng(2)
    tensors = []
    for tensor, dims in llama_tensors(LARGE):
        if len(dims) == 1:
            tensors.append((tensor, dims, F32, 4 * dims[0], lambda n=dims[0]: np.ones(n, "<f4").tobytes()))
            continue
        chunks, n = twin.chunks(tensor), dims[0] * dims[1] // CHUNK
        tensors.append((tensor, dims, twin.tensors[tensor][1], n * chunks.shape[1],
                        lambda chunks=chunks, n=n: chunks[rng.integers(0, len(chunks), n)].tobytes()))
    kind = {key: twin.entries[key] for key in ("general.file_type", "general.quantization_version") if key in twin.entries}
    write_gguf(path, {**llama_metadata(LARGE, name), **kind}, tensors)


class Tools:
    """The reference's tools over one folder."""

    def __init__(self, folder):
        self.prefix = shlex.split(os.environ.get("REFERENCE", ""))
        self.folder = os.environ.get("REFERENCE_FOLDER", str(folder))

    def run(self, tool, *args):
        """args: paths are given by their name in the folder. Whether it ended well, and what it said last, of faults first."""
        command = [*self.prefix, tool, *(f"{self.folder}/{arg.name}" if isinstance(arg, pathlib.Path) else arg for arg in args)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        lines = done.stdout.decode(errors="replace").strip().splitlines()
        faults = [line for line in lines if "failed" in line or "error" in line]
        return done.returncode == 0, (faults or lines or [""])[-1]

    def quantise(self, source, target, kind, importance):
        """Returns what was wrong, or nothing. A target that is incomplete does not stay."""
        flags = ["--allow-requantize"]
        if kind in ("MXFP4", "NVFP4"):
            flags += ["--tensor-type", f"weight={kind.lower()}", "--token-embedding-type", kind.lower(), "--output-tensor-type",
                      kind.lower()]
            kind = "Q8_0"
        if importance:
            flags += ["--imatrix", importance]
        partial = target.with_suffix(".partial")
        ok, said = self.run("llama-quantize", *flags, source, partial, kind)
        if ok:
            partial.rename(target)
        else:
            partial.unlink(missing_ok=True)
        return "" if ok else said or "failed without a word"


def make(kinds, target_of, work):
    """Runs work(kind, target) for each kind whose target is not there. Returns whether all are there in the end."""
    complete = True
    for kind in kinds:
        target = target_of(kind)
        if target.exists():
            continue
        start = time.monotonic()
        fault = work(kind, target)
        complete = complete and not fault
        print(f"{kind:10} {f'not made: {fault}' if fault else f'{target.stat().st_size} bytes'}, "
              f"{time.monotonic() - start:.0f} s", flush=True)
    return complete


def make_random(folder, kinds):
    tools = Tools(folder)
    source, importance = folder / "twin.gguf", folder / "twin.imatrix.gguf"
    write_twin(source)
    write_even_importance(importance)

    def work(kind, target):
        twin = folder / "twin.quantised.gguf"
        fault = tools.quantise(source, twin, kind, importance if kind in WITH_IMPORTANCE else None)
        if not fault:
            widen(Reader(twin), target, f"random 1B {kind}")
            twin.unlink()
        return fault

    complete = make(kinds or RANDOM, lambda kind: folder / f"random-1b-{kind.lower()}.gguf", work)
    source.unlink()
    importance.unlink()
    return complete


def make_requantised(base, folder, kinds):
    tools = Tools(folder)
    source, corpus, importance = folder / base.name, folder / CORPUS.name, folder / f"{base.stem}.imatrix.gguf"
    for here, there in ((base, source), (CORPUS, corpus)):
        if not there.exists():
            shutil.copyfile(here, there)
    kinds = kinds or REQUANTISED
    if not importance.exists() and set(kinds) & set(WITH_IMPORTANCE):
        ok, said = tools.run("llama-imatrix", "-m", source, "-f", corpus, "-o", importance, "-c", "512", "-dev", "none")
        if not ok:
            sys.exit(f"llama-imatrix: {said}")
    return make(kinds, lambda kind: folder / f"{base.stem}.{kind}.gguf",
                lambda kind, target: tools.quantise(source, target, kind, importance if kind in WITH_IMPORTANCE else None))


def main():
    args = sys.argv[1:]
    if len(args) >= 2 and args[0] == "random":
        folder, work = pathlib.Path(args[1]), lambda: make_random(folder, args[2:])
    elif len(args) >= 3 and args[0] == "requantised":
        folder, work = pathlib.Path(args[2]), lambda: make_requantised(pathlib.Path(args[1]), folder, args[3:])
    else:
        sys.exit(__doc__)
    folder.mkdir(parents=True, exist_ok=True)
    sys.exit(0 if work() else 1)


if __name__ == "__main__":
    main()
