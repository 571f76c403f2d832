"""What the tests of the program from outside share."""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
TINY = DATA / "tiny"
PROGRAM = os.environ.get("TESSERA_BIN", str(ROOT / "build/release/tessera"))
LLAMA = str(TINY / "tiny-llama.gguf")
GEMMA = str(TINY / "tiny-gemma3.gguf")
EXACT = ["--kernels", "scalar", "-ctk", "f32", "-ctv", "f32"]
TIMEOUT_S = 300  # only against hanging for ever


def run(*args, stdin=b""):
    """The finished process; standard output and error as bytes."""
    return subprocess.run([PROGRAM, *map(str, args)], input=stdin, capture_output=True, timeout=TIMEOUT_S)


class CliTest(unittest.TestCase):
    def good(self, *args, stdin=b""):
        done = run(*args, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done.stdout

    def good_json(self, *args, stdin=b""):
        return json.loads(self.good(*args, stdin=stdin))

    def bad(self, status, pattern, *args, stdin=b""):
        done = run(*args, stdin=stdin)
        message = done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, status, message)
        self.assertEqual(done.stdout, b"", "a failure prints nothing on standard output")
        last = message.rstrip("\n").split("\n")[-1]
        self.assertTrue(last.startswith("tessera: "), message)
        self.assertRegex(last, pattern)


def golden(name):
    return json.loads((TINY / f"{name}.json").read_text(encoding="utf-8"))


def comma(ids):
    return ",".join(map(str, ids))


def with_metadata(path, numbers):
    """The bytes of a GGUF file with keys added in front of its own: floats, or unsigned numbers of 32 bits."""
    data = pathlib.Path(path).read_bytes()
    n_keys = struct.unpack_from("<Q", data, 16)[0]

    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    added = b"".join(text(key) + (struct.pack("<II", 4, value) if isinstance(value, int) else struct.pack("<If", 6, value))
                     for key, value in numbers.items())
    # One more key fills up to the alignment, so that the tensors' offsets stay right.
    added += text("test.fill") + struct.pack("<I", 8)
    added += text("x" * (-(len(added) + 8) % 32))
    return data[:16] + struct.pack("<Q", n_keys + len(numbers) + 1) + added + data[24:]


def q8_0_model(path, n_layer, n_embd, n_ff, n_vocab):
    """A llama with one random block of weights everywhere; returns the file's size."""
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    keys = {"block_count": n_layer, "embedding_length": n_embd, "feed_forward_length": n_ff, "context_length": 512,
            "attention.head_count": n_embd // 64, "attention.head_count_kv": n_embd // 64}
    meta = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    meta += b"".join(text("llama." + key) + struct.pack("<II", 4, value) for key, value in keys.items())
    meta += text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)
    shapes = [("token_embd.weight", n_vocab, n_embd), ("output_norm.weight", 0, n_embd)]
    for i in range(n_layer):
        shapes += [(f"blk.{i}.{name}.weight", rows, columns) for name, rows, columns in (
            ("attn_norm", 0, n_embd), ("attn_q", n_embd, n_embd), ("attn_k", n_embd, n_embd), ("attn_v", n_embd, n_embd),
            ("attn_output", n_embd, n_embd), ("ffn_norm", 0, n_embd), ("ffn_gate", n_ff, n_embd), ("ffn_up", n_ff, n_embd),
            ("ffn_down", n_embd, n_ff))]
    infos, offset = b"", 0
    for name, rows, columns in shapes:
        dims, kind = ((columns, rows), 8) if rows else ((columns,), 0)
        infos += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        offset += rows * columns // 32 * 34 if rows else columns * 4
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys) + 2) + meta + infos
    block = struct.pack("<e", 0.002) + bytes(random.Random(1).randbytes(32))
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        for _, rows, columns in shapes:
            file.write(block * (rows * columns // 32) if rows else struct.pack("<f", 1) * columns)
        return file.tell()


def main():
    """Runs the tests of the program's script. The first argument may be the program to test."""
    global PROGRAM
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-") and os.path.exists(sys.argv[1]):
        PROGRAM = sys.argv.pop(1)
    unittest.main()
