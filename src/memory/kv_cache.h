#pragma once
// The book of the paged KV cache: which page of each layer class holds which positions of which sequence.
//
// Pure bookkeeping on the host: no device, no bytes. A page number means the same on every device and in every
// kv(l, c) tile of its class, so moves of tiles touch nothing here. Layers of one window form a class; a class has one
// page pool, one reference count per page and one page table per sequence. Positions of a sequence are 0 .. length - 1
// without holes; position p lies in the sequence's page p / kPageTokens.
//
// Sharing: fork() makes a second sequence that refers to the same pages; whole pages stay shared, a partial last page
// is copied when one side writes to it (copy on write: prepare() returns the copies to make before the batch runs).
// Windows: pages wholly behind a class's window are given back by trim_windows(); rewinding past them is refused.
//
// Not thread-safe: owned by the model's loop thread.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace tessera {

/// Layers that share a page table: all of one window (0: full attention).
struct KvClassConfig {
  int64_t window = 0;
  int64_t n_pages = 0;
};

struct KvCacheConfig {
  std::vector<KvClassConfig> classes;
  int32_t n_seq_max = 1;
  int64_t n_ctx = 0;               // positions one sequence may have
  int64_t quota_pages = 0;         // pages of a class that one sequence may hold ("separate" caches); 0: no quota
};

/// One token of a batch: the next position of its sequence.
struct KvToken {
  int32_t seq = 0;
};

/// Copies the first n_tokens places of page `from` to page `to`, in every tile of the class, before the batch runs.
struct KvPageCopy {
  int32_t klass = 0;
  int32_t from = 0;
  int32_t to = 0;
};

/// What a prepared batch tells the kernels, per class.
struct KvBatchClass {
  std::vector<int32_t> slots;       // [n_tokens] page * kPageTokens + place where each token is written
  std::vector<int32_t> page_table;  // [n_rows, row_pages]; -1 where a page was freed or does not exist
  int64_t row_pages = 0;
};

struct KvBatch {
  std::vector<int32_t> positions;   // [n_tokens]
  std::vector<int32_t> seq_rows;    // [n_tokens] row of the page tables: index into row_seqs
  std::vector<int32_t> row_seqs;    // [n_rows] distinct sequences, in order of first appearance
  std::vector<KvBatchClass> classes;
  std::vector<KvPageCopy> copies;
};

class KvCache {
 public:
  static Result<KvCache> create(KvCacheConfig config);

  /// Takes the next positions of each token's sequence and the pages they need. All or nothing.
  /// Errors: kInvalidArgument (no such sequence), kCacheFull (context length, quota or pool exhausted: the message says
  /// needed and free); then nothing changed.
  Result<KvBatch> prepare(std::span<const KvToken> tokens);

  /// Gives back pages that no later position of their sequence can see. Call after each prepared batch was submitted.
  void trim_windows();

  /// Positions of a sequence so far.
  [[nodiscard]] int64_t length(int32_t seq) const;

  /// The smallest length that truncate() accepts: above 0 when window pages are gone.
  [[nodiscard]] int64_t min_length(int32_t seq) const;

  /// Forgets positions >= new_length. Errors: kInvalidArgument (longer than now, no such sequence), kUnsupported (below
  /// min_length, unless 0, which always works).
  Status truncate(int32_t seq, int64_t new_length);

  /// Makes `to` a copy of the first `length` positions of `from`, dropping what `to` held.
  /// Errors: as truncate; to == from is kInvalidArgument.
  Status fork(int32_t from, int32_t to, int64_t length);

  void clear();

  [[nodiscard]] int64_t pages_used(int32_t klass) const;
  [[nodiscard]] const KvCacheConfig& config() const { return config_; }

 private:
  explicit KvCache(KvCacheConfig config);
  // (the implementer completes this)
  KvCacheConfig config_;
};

}  // namespace tessera
