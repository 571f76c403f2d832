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
//             layers, then per layer i64 KV heads, i64 elements of a key, i64 of a value, i64 window; i64 layers with
//             recurrent state, then for each i64 layer, i64 key heads, i64 value heads, i64 elements of a key, i64 of a
//             value, i64 taps
//   and for each sequence that holds something, ascending:
//   sequence  (kind 2) i64 number (0 in a state of one sequence), i64 position of the first token (0), i64 tokens, then
//             an i32 token id each
//   kv        (kind 3) per layer i64 first position held (above 0 only behind a window); then per layer the keys
//             [kv_head][position][k_dim], then the values [kv_head][position][v_dim], in the cache's own types
//   recurrent (kind 5, where the memory lists layers with such state) i64 snapshots, then the i64 length at which each
//             was taken, ascending; then what each of them holds and, unless there are no tokens, the state behind the
//             last one: per listed layer the last min(taps - 1, length) inputs of the convolution [row][channel], that
//             of position p in row p mod (taps - 1), then the matrices [value head][k_dim][v_dim]; all f32, channels
//             (queries, keys, values) and heads in the order of the model's file
//   and in a whole context's state:
//   logits    (kind 4) i64 rows that the last decode left, then [rows, n_vocab] f32
//
// What a state will have to hold one day (hashes of images) comes as further kinds. A reader refuses kinds that it does
// not know: each of them is part of what the model remembers.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
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

/// A layer with recurrent state: a short convolution and a matrix per value head.
struct StateRecLayer {
  int64_t layer = 0;
  int64_t n_key_heads = 0;
  int64_t n_value_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t n_taps = 0;
  bool operator==(const StateRecLayer&) const = default;

  [[nodiscard]] int64_t channels() const { return 2 * n_key_heads * k_dim + n_value_heads * v_dim; }
  /// Inputs of the convolution that a state behind `length` tokens holds.
  [[nodiscard]] int64_t conv_rows(int64_t length) const { return std::min(n_taps - 1, length); }
  [[nodiscard]] uint64_t conv_bytes(int64_t length) const {
    return static_cast<uint64_t>(conv_rows(length) * channels()) * sizeof(float);
  }
  [[nodiscard]] uint64_t matrix_bytes() const { return static_cast<uint64_t>(k_dim * v_dim) * sizeof(float); }
};

/// What a context's memory is, wherever it lives. Two contexts of equal shape can hold each other's states, if they are
/// long enough. REQUIRES: dims are whole blocks of the types.
struct StateShape {
  ModelFingerprint fingerprint{};
  DType k_type = DType::kF16;
  DType v_type = DType::kF16;
  int64_t n_vocab = 0;
  std::vector<StateLayer> layers;
  std::vector<StateRecLayer> rec_layers;  // ascending; those that have such state
};

/// Where a layer's rows of one sequence lie in the bytes: keys and values of positions first .. n_tokens - 1.
struct StateKv {
  int64_t first = 0;
  uint64_t k_offset = 0;
  uint64_t v_offset = 0;
};

/// Where the recurrent state behind `length` tokens begins in the bytes.
struct StateRec {
  int64_t length = 0;
  uint64_t offset = 0;
};

struct StateSequence {
  int32_t seq = 0;
  std::vector<int32_t> tokens;
  std::vector<StateKv> kv = {};          // by layer
  std::vector<StateRec> snapshots = {};  // ascending; none without recurrent layers
  StateRec rec = {};                     // behind all tokens; not there without recurrent layers or tokens
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

/// Writes everything but keys, values, recurrent state and logits, which the caller puts at their offsets. out:
/// content.n_bytes bytes. REQUIRES: content is planned.
void write_state(const StateShape& shape, const StateContent& content, std::span<std::byte> out);

/// Writes the checksums: the last step of saving. REQUIRES: out was written by write_state().
void seal_state(std::span<std::byte> out);

/// Bytes of a state's header.
inline constexpr size_t kStateHeaderBytes = 64;

/// Whether n_bytes that begin with `head` may be a state, before anyone reads the rest: a header of a version that this
/// build knows, and of that many bytes. head: the first kStateHeaderBytes, or all that there are. Errors: as
/// read_state().
Status check_state_header(std::span<const std::byte> head, uint64_t n_bytes);

/// Checks all of bytes against the shape and tells what they hold and where. Work and memory are linear in the bytes.
/// whole: what the caller wants. Errors: kInvalidData (no state, cut short, damaged: says where), kUnsupported (another
/// version or kind of section, other cache types), kInvalidArgument (another model, or a sequence where a whole context
/// is wanted and the other way round).
Result<StateContent> read_state(const StateShape& shape, bool whole, std::span<const std::byte> bytes);

/// Fills `out` from the bytes at `offset` of a state, wherever it lies.
using StateReadAt = std::function<Status(uint64_t offset, std::span<std::byte> out)>;

/// What a state of one sequence holds, from its heads alone: keys, values and recurrent state are neither read nor
/// checked. What its numbers say is allocated only once they fit each other and n_bytes. REQUIRES of read_at: it
/// answers what lies within n_bytes. Errors: those of read_state() and read_at.
Result<StateSequence> read_state_outline(const StateShape& shape, uint64_t n_bytes, const StateReadAt& read_at);

}  // namespace tessera
