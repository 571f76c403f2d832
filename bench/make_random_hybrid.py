#!/usr/bin/env python3
"""Makes a hybrid model (qwen35) of realistic shape with random weights and no vocabulary, for speed alone.

  make_random_hybrid.py OUT.gguf [--layers 12] [--embd 2048] [--ffn 6144] [--key-heads 16] [--value-heads 32]

Q4_K, with Q6_K for ffn_down and the output as Q4_K_M has them: about 0.8 billion weights, 0.5 GB. Three delta nets to one
attention layer, heads of 128 and 256, as the models of 2 to 9 billion have. A tensor repeats one pool of random blocks.
"""
import argparse
import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
from make_test_models import TYPES, Gguf, random_blocks  # noqa: E402

POOL_BLOCKS = 1 << 14


class Streamed(Gguf):
    """Tensors are described first and written one by one."""

    def __init__(self, seed):
        super().__init__(seed)
        self.pools, self.plan, self.size = {}, [], 0

    def tensor(self, name, rows, columns, kind, deviation=None, around=0.0):
        code, block, n_bytes = TYPES[kind]
        n = max(rows, 1) * columns
        dims = (columns, rows) if rows else (columns,)
        self.infos += self.string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, code, self.size)
        self.n_tensors += 1
        self.size += n // block * n_bytes + -(n // block * n_bytes) % 32
        self.plan.append((kind, n, columns ** -0.5 if deviation is None else deviation, around))

    def write(self, out):
        head = struct.pack("<4sIQQ", b"GGUF", 3, self.n_tensors, self.n_entries) + self.entries + self.infos
        out.write(head + bytes(-len(head) % 32))
        for kind, n, deviation, around in self.plan:
            _, block, n_bytes = TYPES[kind]
            if kind == "F32":
                data = (self.rng.standard_normal(n) * deviation + around).astype("<f4").tobytes()
            else:
                if (kind, deviation) not in self.pools:
                    self.pools[kind, deviation] = random_blocks(self.rng, kind, POOL_BLOCKS, deviation).tobytes()
                pool, size = self.pools[kind, deviation], n // block * n_bytes
                data = (pool * (size // len(pool) + 1))[:size]
            out.write(data + bytes(-len(data) % 32))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    for name, value in [("layers", 12), ("embd", 2048), ("ffn", 6144), ("key-heads", 16), ("value-heads", 32)]:
        parser.add_argument("--" + name, type=int, default=value)
    args = parser.parse_args()
    embd, ffn, n_vocab, heads, kv_heads, head, state, taps = args.embd, args.ffn, 32000, args.embd // 256, 2, 256, 128, 4
    inner, channels = args.value_heads * state, (2 * args.key_heads + args.value_heads) * state
    f = Streamed(1)
    f.put("general.architecture", "qwen35")
    f.put("general.name", "random hybrid")
    for key, value in [("vocab_size", n_vocab), ("block_count", args.layers), ("context_length", 32768),
                       ("embedding_length", embd), ("feed_forward_length", ffn), ("attention.head_count", heads),
                       ("attention.head_count_kv", kv_heads), ("attention.key_length", head),
                       ("attention.value_length", head), ("rope.dimension_count", head // 4), ("rope.freq_base", 1e7),
                       ("attention.layer_norm_rms_epsilon", 1e-6), ("full_attention_interval", 4),
                       ("ssm.conv_kernel", taps), ("ssm.state_size", state), ("ssm.group_count", args.key_heads),
                       ("ssm.time_step_rank", args.value_heads), ("ssm.inner_size", inner)]:
        f.put(f"qwen35.{key}", value)
    f.put_ints("qwen35.rope.dimension_sections", [11, 11, 10, 0])
    f.put("tokenizer.ggml.model", "no_vocab")
    f.tensor("token_embd.weight", n_vocab, embd, "Q4_K", 1.0)
    f.tensor("output_norm.weight", 0, embd, "F32", 0.1, 1.0)
    f.tensor("output.weight", n_vocab, embd, "Q6_K")
    for layer in range(args.layers):
        b = f"blk.{layer}."
        f.tensor(b + "attn_norm.weight", 0, embd, "F32", 0.1, 1.0)
        if layer % 4 == 3:
            for name, rows in [("attn_q", 2 * heads * head), ("attn_k", kv_heads * head), ("attn_v", kv_heads * head)]:
                f.tensor(f"{b}{name}.weight", rows, embd, "Q4_K")
            f.tensor(b + "attn_output.weight", embd, heads * head, "Q4_K")
            f.tensor(b + "attn_q_norm.weight", 0, head, "F32", 0.1, 1.0)
            f.tensor(b + "attn_k_norm.weight", 0, head, "F32", 0.1, 1.0)
        else:
            for name, rows in [("attn_qkv", channels), ("attn_gate", inner), ("ssm_alpha", args.value_heads),
                               ("ssm_beta", args.value_heads)]:
                f.tensor(f"{b}{name}.weight", rows, embd, "Q4_K")
            f.tensor(b + "ssm_conv1d.weight", channels, taps, "F32", 0.5)
            f.tensor(b + "ssm_dt.bias", 0, args.value_heads, "F32", 0.8, -1.0)
            f.tensor(b + "ssm_a", 0, args.value_heads, "F32", 0.1, -0.6)
            f.tensor(b + "ssm_norm.weight", 0, state, "F32", 0.1, 1.0)
            f.tensor(b + "ssm_out.weight", embd, inner, "Q4_K")
        f.tensor(b + "post_attention_norm.weight", 0, embd, "F32", 0.1, 1.0)
        f.tensor(b + "ffn_gate.weight", ffn, embd, "Q4_K")
        f.tensor(b + "ffn_up.weight", ffn, embd, "Q4_K")
        f.tensor(b + "ffn_down.weight", embd, ffn, "Q6_K")
    with open(args.out, "wb") as out:
        f.write(out)


if __name__ == "__main__":
    main()
