#!/usr/bin/env python3
"""A synthetic mixture of experts of realistic shape, for speed only: random weights, no vocabulary.

  make_moe.py OUT.gguf [--layers 4] [--experts 128] [--used 8] [--type Q4_K]

The shape is that of the 30B models with 3B active weights (width 2048, 32 heads on 4 KV heads of 128, experts of 768),
with fewer layers. Weights are one random pool per type, tiled from another place for every tensor, so that a gigabyte
takes seconds. Then: bench/vs_reference.sh OUT.gguf
"""
import argparse
import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
from make_test_models import TYPES, random_blocks  # noqa: E402

WIDTH, N_HEAD, N_KV_HEAD, HEAD, N_FF, N_VOCAB = 2048, 32, 4, 128, 768, 32768
POOL_BLOCKS = 1 << 15


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def tensors(args):
    """(name, dimensions fastest first, type)"""
    kind = args.type
    yield "token_embd.weight", (WIDTH, N_VOCAB), kind
    yield "output.weight", (WIDTH, N_VOCAB), "Q6_K"
    yield "output_norm.weight", (WIDTH,), "F32"
    for layer in range(args.layers):
        p = f"blk.{layer}."
        for norm, n in (("attn_norm", WIDTH), ("ffn_norm", WIDTH), ("attn_q_norm", HEAD), ("attn_k_norm", HEAD)):
            yield f"{p}{norm}.weight", (n,), "F32"
        yield f"{p}attn_q.weight", (WIDTH, N_HEAD * HEAD), kind
        yield f"{p}attn_k.weight", (WIDTH, N_KV_HEAD * HEAD), kind
        yield f"{p}attn_v.weight", (WIDTH, N_KV_HEAD * HEAD), "Q6_K"
        yield f"{p}attn_output.weight", (N_HEAD * HEAD, WIDTH), kind
        yield f"{p}ffn_gate_inp.weight", (WIDTH, args.experts), "F32"
        yield f"{p}ffn_gate_exps.weight", (WIDTH, N_FF, args.experts), kind
        yield f"{p}ffn_up_exps.weight", (WIDTH, N_FF, args.experts), kind
        yield f"{p}ffn_down_exps.weight", (N_FF, WIDTH, args.experts), kind


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--experts", type=int, default=128)
    parser.add_argument("--used", type=int, default=8)
    parser.add_argument("--type", default="Q4_K", choices=["Q4_K", "Q8_0", "Q5_0", "F16"])
    args = parser.parse_args()
    arch = "qwen3moe"
    rng = np.random.default_rng(1)
    pools = {}

    def blocks(kind, n, at):
        """n blocks of the pool from block `at` on, around its end."""
        if kind not in pools:
            pools[kind] = np.ascontiguousarray(random_blocks(rng, kind, POOL_BLOCKS, 0.02)).reshape(POOL_BLOCKS, -1)
        return np.take(pools[kind], np.arange(at, at + n), axis=0, mode="wrap")

    numbers = {"block_count": args.layers, "context_length": 32768, "embedding_length": WIDTH,
               "feed_forward_length": 6144, "attention.head_count": N_HEAD, "attention.head_count_kv": N_KV_HEAD,
               "attention.key_length": HEAD, "attention.value_length": HEAD, "expert_count": args.experts,
               "expert_used_count": args.used, "expert_feed_forward_length": N_FF, "vocab_size": N_VOCAB}
    meta = [text("general.architecture") + struct.pack("<I", 8) + text(arch),
            text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("no_vocab")]
    meta += [text(f"{arch}.{key}") + struct.pack("<II", 4, value) for key, value in numbers.items()]
    meta += [text(f"{arch}.{key}") + struct.pack("<If", 6, value)
             for key, value in (("attention.layer_norm_rms_epsilon", 1e-6), ("rope.freq_base", 1e6))]
    infos, offset, sizes = b"", 0, []
    for name, dims, kind in tensors(args):
        type_id, block, block_bytes = TYPES[kind]
        n_blocks = int(np.prod(dims)) // block
        infos += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        infos += struct.pack("<IQ", type_id, offset)
        sizes.append(n_blocks)
        offset += -(-n_blocks * block_bytes // 32) * 32
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(sizes), len(meta)) + b"".join(meta) + infos
    with open(args.out, "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        for i, ((name, dims, kind), n_blocks) in enumerate(zip(tensors(args), sizes)):
            if len(dims) == 1:
                data = np.ones(dims[0], "<f4").tobytes()
                file.write(data + bytes(-len(data) % 32))
                continue
            for begin in range(0, n_blocks, POOL_BLOCKS):
                file.write(blocks(kind, min(POOL_BLOCKS, n_blocks - begin), i * 7919).tobytes())
            file.write(bytes(-n_blocks * TYPES[kind][2] % 32))
    print(f"{args.out}: {(len(head) + offset) / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
