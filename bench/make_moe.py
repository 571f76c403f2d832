#!/usr/bin/env python3
"""A synthetic mixture of experts of realistic shape, for speed only: random weights, no vocabulary.

  make_moe.py OUT.gguf [--layers 4] [--experts 128] [--used 8] [--type Q4_K]

The shape is that of the 30B models with 3B active weights (width 2048, 32 heads on 4 KV heads of 128, experts of 768),
with fewer layers. Weights are one random pool per type, tiled from another place for every tensor, so that a gigabyte
takes seconds. Then: bench/vs_reference.sh OUT.gguf
"""
import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
from make_models import write_gguf  # noqa: E402
from make_test_models import TYPES, random_blocks  # noqa: E402

WIDTH, N_HEAD, N_KV_HEAD, HEAD, N_FF, N_VOCAB = 2048, 32, 4, 128, 768, 32768
POOL_BLOCKS = 1 << 15


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
    rng = np.random.default_rng(1)
    pools = {}

    def blocks(kind, at):
        """The pool's blocks from block `at` on, around its end."""
        if kind not in pools:
            pools[kind] = np.ascontiguousarray(random_blocks(rng, kind, POOL_BLOCKS, 0.02)).reshape(POOL_BLOCKS, -1)
        return np.roll(pools[kind], -at, axis=0).tobytes()

    def data_of(i, dims, kind, n_bytes):
        if len(dims) == 1:
            return np.ones(dims[0], "<f4").tobytes()
        pool = blocks(kind, i * 7919)
        return (pool * (n_bytes // len(pool) + 1))[:n_bytes]

    numbers = {"block_count": args.layers, "context_length": 32768, "embedding_length": WIDTH,
               "feed_forward_length": 6144, "attention.head_count": N_HEAD, "attention.head_count_kv": N_KV_HEAD,
               "attention.key_length": HEAD, "attention.value_length": HEAD, "expert_count": args.experts,
               "expert_used_count": args.used, "expert_feed_forward_length": N_FF, "vocab_size": N_VOCAB,
               "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6}
    metadata = {"general.architecture": "qwen3moe", "tokenizer.ggml.model": "no_vocab"}
    metadata |= {f"qwen3moe.{key}": value for key, value in numbers.items()}
    described = []
    for i, (name, dims, kind) in enumerate(tensors(args)):
        type_id, block, block_bytes = TYPES[kind]
        n_bytes = int(np.prod(dims)) // block * block_bytes
        described.append((name, dims, type_id, n_bytes,
                          lambda i=i, dims=dims, kind=kind, n_bytes=n_bytes: data_of(i, dims, kind, n_bytes)))
    out = pathlib.Path(args.out)
    write_gguf(out, metadata, described)
    print(f"{out}: {out.stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
