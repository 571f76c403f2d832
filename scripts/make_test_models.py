#!/usr/bin/env python3
"""Makes the quantised test models of tests/data/models anew, bit for bit.

  make_test_models.py FOLDER

Random weights, one seed per model, and no vocabulary: they are for token ids. Their shapes let attention *and* the
feed-forward part be cut in two or more where blocks of 256 weights would forbid it in a smaller model (a cut is whole
blocks of the weight's columns), and heads are multiples of 32, so that every cache type works. K-quant blocks are drawn
rather than quantised: any block is a legal weight, and these have about the spread that a trained one has.
"""
import struct
import sys

import numpy as np

# name: (GGUF id, weights per block, bytes per block)
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q8_0": (8, 32, 34),
         "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210)}


def f16_bytes(values):
    return np.ascontiguousarray(values.astype("<f2")).view(np.uint8).reshape(len(values), 2)


def packed_scales(scale, least):
    """12 bytes of eight 6-bit scales and eight 6-bit minima, as Q4_K and Q5_K store them."""
    low, high = scale[:, :4] | (scale[:, 4:] >> 4) << 6, least[:, :4] | (least[:, 4:] >> 4) << 6
    return np.concatenate([low, high, (scale[:, 4:] & 15) | (least[:, 4:] & 15) << 4], axis=1)


def random_blocks(rng, kind, n_blocks, deviation):
    """n_blocks blocks of weights with about this standard deviation and a mean near 0."""
    levels = lambda spread, middle, most: np.clip(
        np.rint(rng.standard_normal((n_blocks, TYPES[kind][1])) * spread + middle), 0, most).astype(np.uint8)
    d = rng.uniform(0.8, 1.2, n_blocks) * deviation
    if kind == "F32":
        return (rng.standard_normal(n_blocks) * deviation).astype("<f4").view(np.uint8)
    if kind == "F16":
        return f16_bytes(rng.standard_normal(n_blocks) * deviation)
    if kind == "Q8_0":
        q = np.clip(np.rint(rng.standard_normal((n_blocks, 32)) * 50), -127, 127).astype(np.int8).view(np.uint8)
        return np.concatenate([f16_bytes(d / 50), q], axis=1)
    if kind == "Q4_1":
        q = levels(3.4, 7.5, 15)
        return np.concatenate([f16_bytes(d / 3.4), f16_bytes(-7.5 * d / 3.4), q[:, :16] | q[:, 16:] << 4], axis=1)
    if kind == "Q5_0":
        q = levels(6.5, 16, 31)
        fifth = np.packbits(q >> 4, axis=1, bitorder="little")
        return np.concatenate([f16_bytes(d / 6.5), fifth, (q[:, :16] & 15) | (q[:, 16:] & 15) << 4], axis=1)
    if kind == "Q6_K":
        q = levels(11, 32, 63)
        halves = []
        for part in (q[:, :128], q[:, 128:]):
            a, b, c, e = (part[:, i:i + 32] for i in (0, 32, 64, 96))
            halves.append((np.concatenate([(a & 15) | (c & 15) << 4, (b & 15) | (e & 15) << 4], axis=1),
                           a >> 4 | (b >> 4) << 2 | (c >> 4) << 4 | (e >> 4) << 6))
        scales = rng.integers(64, 128, (n_blocks, 16)).astype(np.uint8)
        return np.concatenate([halves[0][0], halves[1][0], halves[0][1], halves[1][1], scales, f16_bytes(d / (95 * 11))],
                              axis=1)
    scale = rng.integers(40, 64, (n_blocks, 8)).astype(np.uint8)
    spread, middle, most = (3.4, 7.5, 15) if kind == "Q4_K" else (6.8, 15.5, 31)
    step = d / (52 * spread)
    head = np.concatenate([f16_bytes(step), f16_bytes(step * middle), packed_scales(scale, scale)], axis=1)
    q = levels(spread, middle, most)
    pairs = q.reshape(n_blocks, 4, 2, 32)   # two runs of 32 share 32 bytes: low nibbles, high nibbles
    nibbles = ((pairs[:, :, 0] & 15) | (pairs[:, :, 1] & 15) << 4).reshape(n_blocks, 128)
    if kind == "Q4_K":
        return np.concatenate([head, nibbles], axis=1)
    fifth = np.zeros((n_blocks, 32), np.uint8)
    for run in range(8):
        fifth |= (q[:, 32 * run:32 * run + 32] >> 4) << run
    return np.concatenate([head, fifth, nibbles], axis=1)


class Gguf:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.entries, self.infos, self.data = b"", b"", b""
        self.n_entries = self.n_tensors = 0

    @staticmethod
    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()

    def put(self, key, value):
        code, form = (8, None) if isinstance(value, str) else (6, "<f") if isinstance(value, float) else (4, "<I")
        packed = self.string(value) if form is None else struct.pack(form, value)
        self.entries += self.string(key) + struct.pack("<I", code) + packed
        self.n_entries += 1

    def put_ints(self, key, values):
        self.entries += self.string(key) + struct.pack(f"<IIQ{len(values)}i", 9, 5, len(values), *values)
        self.n_entries += 1

    def tensor(self, name, rows, columns, kind, deviation=None, around=0.0):
        """rows 0: a vector of `columns` values; those are float32 and lie around `around`."""
        code, block, n_bytes = TYPES[kind]
        n = max(rows, 1) * columns
        dims = (columns, rows) if rows else (columns,)
        assert columns % block == 0, name
        self.infos += self.string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, code, len(self.data))
        self.n_tensors += 1
        deviation = columns ** -0.5 if deviation is None else deviation
        if kind == "F32":
            packed = (self.rng.standard_normal(n) * deviation + around).astype("<f4").tobytes()
        else:
            packed = random_blocks(self.rng, kind, n // block, deviation).tobytes()
        assert len(packed) == n // block * n_bytes, name
        self.data += packed + bytes(-len(packed) % 32)

    def bytes(self):
        head = struct.pack("<4sIQQ", b"GGUF", 3, self.n_tensors, self.n_entries) + self.entries + self.infos
        return head + bytes(-len(head) % 32) + self.data


def make_model(seed, arch, layers, embd, heads, kv_heads, head, ffn, types, window=0):
    """types: of attention's q, k, v, o, the feed-forward's gate, up, down, and of embedding and head."""
    wq, wk, wv, wo, gate, up, down, embedding, output = types
    n_vocab = 320  # five cuts of whole units of 64 rows
    f = Gguf(seed)
    f.put("general.architecture", arch)
    f.put("general.name", f"test {arch} {seed}")
    for key, value in [("vocab_size", n_vocab), ("block_count", layers), ("context_length", 4096), ("embedding_length", embd),
                       ("feed_forward_length", ffn), ("attention.head_count", heads),
                       ("attention.head_count_kv", kv_heads), ("attention.key_length", head),
                       ("attention.value_length", head), ("rope.dimension_count", head), ("rope.freq_base", 10000.0),
                       ("attention.layer_norm_rms_epsilon", 1e-5)]:
        f.put(f"{arch}.{key}", value)
    if window:
        f.put(f"{arch}.attention.sliding_window", window)
        f.put(f"{arch}.attention.sliding_window_pattern", 2)
    f.put("tokenizer.ggml.model", "no_vocab")
    gemma = arch.startswith("gemma")
    f.tensor("token_embd.weight", n_vocab, embd, embedding, 0.06 if gemma else 1.0)
    f.tensor("output_norm.weight", 0, embd, "F32", 0.1, 1.0)
    if not gemma:
        f.tensor("output.weight", n_vocab, embd, output, 2.5 * embd ** -0.5)
    for layer in range(layers):
        b = f"blk.{layer}."
        f.tensor(b + "attn_norm.weight", 0, embd, "F32", 0.1, 1.0)
        f.tensor(b + "attn_q.weight", heads * head, embd, wq)
        f.tensor(b + "attn_k.weight", kv_heads * head, embd, wk)
        f.tensor(b + "attn_v.weight", kv_heads * head, embd, wv)
        f.tensor(b + "attn_output.weight", embd, heads * head, wo)
        if arch == "qwen2":
            f.tensor(b + "attn_q.bias", 0, heads * head, "F32", 0.3)
            f.tensor(b + "attn_k.bias", 0, kv_heads * head, "F32", 0.3)
            f.tensor(b + "attn_v.bias", 0, kv_heads * head, "F32", 0.3)
        if arch in ("qwen3", "gemma3"):
            f.tensor(b + "attn_q_norm.weight", 0, head, "F32", 0.1, 1.0)
            f.tensor(b + "attn_k_norm.weight", 0, head, "F32", 0.1, 1.0)
        if gemma:
            f.tensor(b + "post_attention_norm.weight", 0, embd, "F32", 0.1, 1.0)
            f.tensor(b + "post_ffw_norm.weight", 0, embd, "F32", 0.1, 1.0)
        f.tensor(b + "ffn_norm.weight", 0, embd, "F32", 0.1, 1.0)
        f.tensor(b + "ffn_gate.weight", ffn, embd, gate)
        f.tensor(b + "ffn_up.weight", ffn, embd, up)
        f.tensor(b + "ffn_down.weight", embd, ffn, down)
    return f.bytes()


def make_qwen35(seed, kind):
    """Delta nets and gated attention in turn. Four key heads with two value heads each, tiled: the columns of ssm_out that
    belong to a cut lie in two places."""
    n_vocab, layers, embd, heads, kv_heads, head, ffn = 320, 4, 64, 4, 2, 64, 128
    key_heads, value_heads, state, taps = 4, 8, 32, 4
    inner, channels = value_heads * state, (2 * key_heads + value_heads) * state
    f = Gguf(seed)
    f.put("general.architecture", "qwen35")
    f.put("general.name", f"test qwen35 {seed}")
    for key, value in [("vocab_size", n_vocab), ("block_count", layers), ("context_length", 4096), ("embedding_length", embd),
                       ("feed_forward_length", ffn), ("attention.head_count", heads),
                       ("attention.head_count_kv", kv_heads), ("attention.key_length", head),
                       ("attention.value_length", head), ("rope.dimension_count", head // 2), ("rope.freq_base", 10000.0),
                       ("attention.layer_norm_rms_epsilon", 1e-6), ("full_attention_interval", 2),
                       ("ssm.conv_kernel", taps), ("ssm.state_size", state), ("ssm.group_count", key_heads),
                       ("ssm.time_step_rank", value_heads), ("ssm.inner_size", inner)]:
        f.put(f"qwen35.{key}", value)
    f.put_ints("qwen35.rope.dimension_sections", [6, 5, 5, 0])
    f.put("tokenizer.ggml.model", "no_vocab")
    f.tensor("token_embd.weight", n_vocab, embd, kind, 1.0)
    f.tensor("output_norm.weight", 0, embd, "F32", 0.1, 1.0)
    f.tensor("output.weight", n_vocab, embd, kind, 2.5 * embd ** -0.5)
    for layer in range(layers):
        b = f"blk.{layer}."
        f.tensor(b + "attn_norm.weight", 0, embd, "F32", 0.1, 1.0)
        if layer % 2 == 1:
            f.tensor(b + "attn_q.weight", 2 * heads * head, embd, kind)
            f.tensor(b + "attn_k.weight", kv_heads * head, embd, kind)
            f.tensor(b + "attn_v.weight", kv_heads * head, embd, kind)
            f.tensor(b + "attn_output.weight", embd, heads * head, kind)
            f.tensor(b + "attn_q_norm.weight", 0, head, "F32", 0.1, 1.0)
            f.tensor(b + "attn_k_norm.weight", 0, head, "F32", 0.1, 1.0)
        else:
            f.tensor(b + "attn_qkv.weight", channels, embd, kind)
            f.tensor(b + "attn_gate.weight", inner, embd, kind)
            f.tensor(b + "ssm_conv1d.weight", channels, taps, "F32", 0.5)
            f.tensor(b + "ssm_dt.bias", 0, value_heads, "F32", 0.8, -1.0)
            f.tensor(b + "ssm_a", 0, value_heads, "F32", 0.15, -0.6)
            f.tensor(b + "ssm_alpha.weight", value_heads, embd, kind)
            f.tensor(b + "ssm_beta.weight", value_heads, embd, kind)
            f.tensor(b + "ssm_norm.weight", 0, state, "F32", 0.1, 1.0)
            f.tensor(b + "ssm_out.weight", embd, inner, kind)
        f.tensor(b + "post_attention_norm.weight", 0, embd, "F32", 0.1, 1.0)
        f.tensor(b + "ffn_gate.weight", ffn, embd, kind)
        f.tensor(b + "ffn_up.weight", ffn, embd, kind)
        f.tensor(b + "ffn_down.weight", embd, ffn, kind)
    return f.bytes()


def all_of(kind, output="Q6_K"):
    return (kind,) * 7 + (kind, output)


MODELS = {
    # K-quants throughout: attention's columns are 512, so two cuts of one block
    "llama-q4_k": make_model(1, "llama", 2, 256, 8, 4, 64, 512, all_of("Q4_K")),
    "llama-q5_k": make_model(2, "llama", 1, 256, 4, 4, 128, 512, all_of("Q5_K")),
    "llama-q6_k": make_model(3, "llama", 1, 256, 4, 2, 128, 512, all_of("Q6_K")),
    # as Q4_K_M mixes them, feed-forward cut in up to four
    "llama-q4_k_m": make_model(4, "llama", 1, 256, 8, 4, 64, 1024,
                               ("Q4_K", "Q4_K", "Q6_K", "Q4_K", "Q4_K", "Q4_K", "Q6_K", "Q4_K", "Q6_K")),
    "gemma3-q4_k_m": make_model(5, "gemma3", 2, 256, 4, 2, 128, 512,
                                ("Q4_K", "Q4_K", "Q6_K", "Q4_K", "Q4_K", "Q5_K", "Q6_K", "Q6_K", None), window=24),
    # blocks of 32
    "qwen2-q4_1": make_model(6, "qwen2", 2, 128, 4, 4, 32, 512,
                             ("Q4_1", "Q5_0", "Q8_0", "Q4_1", "Q4_1", "Q5_0", "Q4_1", "Q5_0", "Q8_0")),
    "qwen3-q8_0": make_model(7, "qwen3", 2, 128, 8, 4, 32, 384, all_of("Q8_0", "Q8_0")),
    "gemma2-q5_0": make_model(8, "gemma2", 3, 128, 4, 2, 32, 256,
                              ("Q5_0", "F16", "Q5_0", "Q5_0", "Q4_1", "Q5_0", "Q8_0", "Q8_0", None), window=16),
    "qwen35-q8_0": make_qwen35(9, "Q8_0"),
}


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    for name, data in MODELS.items():
        with open(f"{sys.argv[1]}/{name}.gguf", "wb") as out:
            out.write(data)
        print(f"{name}.gguf {len(data)} bytes")


if __name__ == "__main__":
    main()
