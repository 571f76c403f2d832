#pragma once
// A context: the memory of many sequences, and decoding into it.
//
// A sequence is a list of tokens at positions 0 .. length - 1. decode() appends tokens to sequences and leaves logits
// for the tokens that asked. Calls may come from any thread, one at a time per context; they run on the model's loop
// thread. A failed call leaves every sequence as it was, with two exceptions: a sequence whose window let go of
// pages, or whose recurrent state went on, in an earlier micro-batch of the same failed batch is emptied, and the
// message says so; and after kDeviceLost (any failure on a device's queue), or when the host's memory runs out in the
// middle of a batch or of a change to sequences, the context is dead and every later call says so.
//
// KV pages and scratch are taken when the context is created: pages for n_seq_max sequences of n_ctx positions (fewer
// for windows; n_kv_tokens positions where that is given), scratch for one micro-batch of n_ubatch tokens. Nothing on a
// device grows afterwards; on the host, the logits of a batch of several micro-batches do.
//
// A context's state as bytes (memory/state_format.h) depends on the model and the tokens alone: what was saved under
// one placement is restored under any other, and saved again it is the same.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/engine.h"

namespace tessera {

struct BatchToken {
  int32_t token = 0;
  int32_t seq = 0;
  bool wants_logits = false;
  bool wants_embedding = false;  // only with ContextOptions::embeddings
};

/// In place of a sequence: all of them, and the logits of the last decode, but not its embeddings.
inline constexpr int32_t kAllSequences = -1;

/// Called on the loop thread before each micro-batch of a decode, with the tokens that the devices were given so far;
/// false stops the decode.
using DecodeProgress = std::function<bool(int64_t n_tokens)>;

/// What lowering made of the placement, for people and tests.
struct ContextStats {
  int64_t n_tiles = 0;
  int64_t n_steps = 0;               // kernel calls per micro-batch, over all devices; copies are counted apart
  int64_t n_reduces = 0;             // of these, reduces that add two or more pieces
  int64_t n_copies = 0;              // between devices, per micro-batch
  int64_t copy_bytes_per_token = 0;  // between devices
  int64_t n_segments = 0;
};

class SequenceMemory;  // memory/sequence_memory.h

class Context {
 public:
  /// Errors: kInvalidArgument (names the field), kDoesNotFit (per device: needed and budget), kUnsupported (cache
  /// types), kOutOfMemory (the machine lacks what the budget allows).
  static Result<std::unique_ptr<Context>> create(std::shared_ptr<Model> model, const ContextOptions& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Appends the batch's tokens, in order, each to its sequence. Afterwards logits(i) and embedding(i) are those of the
  /// i-th token that asked for them. Errors: kInvalidArgument (token or sequence out of range, more than n_batch
  /// tokens, an embedding of a context without), kCacheFull (needed and free), kOutOfMemory (on the host), kIo (the
  /// model file changed or cannot be read), kDeviceLost; kCancelled by progress: then the sequences hold what was given
  /// to the devices before, and there are no logits.
  Status decode(std::span<const BatchToken> batch, const DecodeProgress& progress = {});

  /// Logits of the last decode, [n_vocab] f32. Valid until the next decode. REQUIRES: 0 <= i < n_outputs().
  [[nodiscard]] std::span<const float> logits(int64_t i) const;
  [[nodiscard]] int64_t n_outputs() const;
  /// What the head reads: a token's row behind the last norm, [n_embd] f32, of the last decode and as valid as logits.
  /// The same bits in every placement. REQUIRES: 0 <= i < n_embeddings().
  [[nodiscard]] std::span<const float> embedding(int64_t i) const;
  [[nodiscard]] int64_t n_embeddings() const;

  [[nodiscard]] int64_t length(int32_t seq) const;
  /// What a sequence holds; nothing when there is no such sequence.
  [[nodiscard]] std::vector<int32_t> tokens(int32_t seq) const;
  /// Forgets positions >= new_length. Errors: kInvalidArgument; kUnsupported where a window has already let go of what
  /// the new end would need, or where recurrent state has no snapshot (0 always works).
  Status truncate(int32_t seq, int64_t new_length);
  /// Forgets positions behind the largest length <= wanted that truncate() would accept, and returns that length: for
  /// models with recurrent state a snapshot's position, else `wanted` or, where a window has let go, 0.
  /// Errors: kInvalidArgument (no such sequence, wanted below 0).
  Result<int64_t> rewind(int32_t seq, int64_t wanted);
  /// Keeps a snapshot of the sequence at its present length, so that it can be rewound to here, within n_snapshots and
  /// snapshot_bytes (the one used least recently makes room). Does nothing where keeps_snapshots() is false.
  /// Errors: kInvalidArgument; kOutOfMemory (on the host), then there is none.
  Status snapshot(int32_t seq);
  /// Whether the model has recurrent state and room for snapshots was asked for.
  [[nodiscard]] bool keeps_snapshots() const;
  /// Makes `to` a copy of the first `length` positions of `from`, sharing whole pages. Errors: as truncate; to == from
  /// is kInvalidArgument.
  Status fork(int32_t from, int32_t to, int64_t length);
  /// Empties every sequence. Errors: only while the model goes away.
  Status clear();

  /// Bytes of the state of a sequence, or of everything (kAllSequences). Errors: kInvalidArgument; kIo when the model's
  /// file has changed.
  [[nodiscard]] Result<uint64_t> state_bytes(int32_t seq);
  /// Writes that state. out: state_bytes(seq) bytes. Sequences that share pages are written one by one. Errors: those
  /// of state_bytes(); kDeviceLost.
  Status get_state(int32_t seq, std::span<std::byte> out);
  /// Replaces the sequence (everything) by a state of a sequence (of everything), whichever number it had when it was
  /// saved. Errors: those of read_state(); kCacheFull (more tokens or sequences than the context holds), kOutOfMemory:
  /// then the context is as it was. kDeviceLost.
  Status set_state(int32_t seq, std::span<const std::byte> bytes);
  /// The same into a file, which is replaced as a whole or not at all, and from one. Errors also: kNotFound, kIo; the
  /// message names the file.
  Status save_state(int32_t seq, const std::string& path);
  Status load_state(int32_t seq, const std::string& path);

  [[nodiscard]] const ContextOptions& options() const;
  /// Of the model's present placement.
  [[nodiscard]] ContextStats stats() const;
  [[nodiscard]] Model& model() const;

  /// For runtime only: the book of what sequences hold. REQUIRES: no call of this context runs.
  [[nodiscard]] const SequenceMemory& memory() const;

 private:
  class Impl;
  explicit Context(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
