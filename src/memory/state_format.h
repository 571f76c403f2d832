#pragma once
// The state format: the contents of a context as bytes that depend on the model and the tokens alone, not on cuts,
// pages, placement, backend or kernel class. Pure: plans, writes and reads bytes; copying them from and to devices is
// runtime's work (runtime/context_state.h).
//
// All numbers are little-endian. A header, then sections in this order, each padded with zeros to 8 bytes:
//
//   header    "TSRSTATE", u32 version (1), u32 sections, u64 bytes in all, u8[16] model fingerprint, u32 scope (0: a
//             whole context, 1: one sequence), u32 0, u64 0, u64 XXH64 of these 56 bytes
//   section   u32 kind, u32 0, u64 bytes of its content, u64 XXH64 of the content (seed: kind << 56 ^ bytes)
//   memory    (kind 1) u32 type of keys, u32 type of values (as GGUF numbers them), i64 rows of the vocabulary, i64
//             layers, then per layer i64 KV heads, i64 elements of a key, i64 of a value, i64 window
//   and for each sequence that holds something, ascending:
//   sequence  (kind 2) i64 number (0 in a state of one sequence), i64 position of the first token (0), i64 tokens, then
//             an i32 token id each
//   kv        (kind 3) per layer i64 first position held (above 0 only behind a window); then per layer the keys
//             [kv_head][position][k_dim], then the values [kv_head][position][v_dim], in the cache's own types
//   and in a whole context's state:
//   logits    (kind 4) i64 rows that the last decode left, then [rows, n_vocab] f32
//
// What a state will have to hold one day (recurrent state, hashes of images) comes as further kinds. A reader refuses
// kinds that it does not know: each of them is part of what the model remembers.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace tessera {

/// Names a model's weights and hyper-parameters (runtime/fingerprint.h).
using ModelFingerprint = std::array<uint8_t, 16>;

struct StateLayer {
  int64_t n_kv_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t window = 0;  // 0: full attention
  bool operator==(const StateLayer&) const = default;
};

/// What a context's memory is, wherever it lives. Two contexts of equal shape can hold each other's states, if they are
/// long enough. REQUIRES: dims are whole blocks of the types.
struct StateShape {
  ModelFingerprint fingerprint{};
  DType k_type = DType::kF16;
  DType v_type = DType::kF16;
  int64_t n_vocab = 0;
  std::vector<StateLayer> layers;
};

/// Where a layer's rows of one sequence lie in the bytes: keys and values of positions first .. n_tokens - 1.
struct StateKv {
  int64_t first = 0;
  uint64_t k_offset = 0;
  uint64_t v_offset = 0;
};

struct StateSequence {
  int32_t seq = 0;
  std::vector<int32_t> tokens;
  std::vector<StateKv> kv;  // by layer
};

struct StateContent {
  bool whole = true;                     // false: one sequence, numbered 0, without logits
  std::vector<StateSequence> sequences;  // ascending; none is empty, unless it is the one of !whole
  int64_t n_logits = 0;                  // rows
  uint64_t logits_offset = 0;
  uint64_t n_bytes = 0;
};

/// Fills in the offsets and n_bytes of content. REQUIRES: the rest of content is set; first is 0 where a layer has no
/// window, and at most the number of tokens.
void plan_state(const StateShape& shape, StateContent& content);

/// Writes everything but keys, values and logits, which the caller puts at their offsets. out: content.n_bytes bytes.
/// REQUIRES: content is planned.
void write_state(const StateShape& shape, const StateContent& content, std::span<std::byte> out);

/// Writes the checksums: the last step of saving. REQUIRES: out was written by write_state().
void seal_state(std::span<std::byte> out);

/// Checks all of bytes against the shape and tells what they hold and where. Work and memory are linear in the bytes.
/// whole: what the caller wants. Errors: kInvalidData (no state, cut short, damaged: says where), kUnsupported (another
/// version or kind of section, other cache types), kInvalidArgument (another model, or a sequence where a whole context
/// is wanted and the other way round).
Result<StateContent> read_state(const StateShape& shape, bool whole, std::span<const std::byte> bytes);

}  // namespace tessera
