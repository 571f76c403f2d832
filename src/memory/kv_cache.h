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
#include <limits>
#include <span>
#include <vector>

#include "base/status.h"
#include "tensor/kv_page.h"

namespace tessera {

/// Layers that share a page table: all of one window (0: full attention).
struct KvClassConfig {
  int64_t window = 0;  // position p sees positions > p - window
  int64_t n_pages = 0;
};

struct KvCacheConfig {
  std::vector<KvClassConfig> classes;  // may be empty: a model without attention still counts positions
  int32_t n_seq_max = 1;
  int64_t n_ctx = 0;        // positions one sequence may have
  int64_t quota_pages = 0;  // pages of a class that one sequence may hold ("separate" caches); 0: no quota
};

/// Most pages of a class: slots are int32, page * kPageTokens + place.
inline constexpr int64_t kMaxPages = std::numeric_limits<int32_t>::max() / kPageTokens;

/// One token of a batch: the next position of its sequence.
struct KvToken {
  int32_t seq = 0;
};

/// Tokens that are to be added to a sequence.
struct KvGrowth {
  int32_t seq = 0;
  int64_t n_tokens = 0;
};

/// Copies the first n_tokens places of page `from` to page `to`, in every tile of the class, before the batch runs.
/// `to` is written by no other copy and read by none, so copies may run in any order, and copying the whole page does
/// no harm.
struct KvPageCopy {
  int32_t klass = 0;
  int32_t from = 0;
  int32_t to = 0;
  int32_t n_tokens = 0;
};

/// What a prepared batch tells the kernels, per class.
struct KvBatchClass {
  std::vector<int32_t> slots;       // [n_tokens] page * kPageTokens + place where each token is written
  std::vector<int32_t> page_table;  // [n_rows, row_pages]; -1 where a page was freed or does not exist
  int64_t row_pages = 0;            // pages up to the last position of the longest row
};

struct KvBatch {
  std::vector<int32_t> positions;  // [n_tokens]
  std::vector<int32_t> seq_rows;   // [n_tokens] row of the page tables: index into row_seqs
  std::vector<int32_t> row_seqs;   // [n_rows] distinct sequences, in order of first appearance
  std::vector<KvBatchClass> classes;
  std::vector<KvPageCopy> copies;
};

class KvCache {
 public:
  /// Errors: kInvalidArgument for a field that is out of range.
  static Result<KvCache> create(KvCacheConfig config);

  /// Takes the next positions of each token's sequence and the pages they need. All or nothing. An empty batch is fine.
  /// Cost: tokens + pages touched + entries of the page tables.
  /// Errors: kInvalidArgument (no such sequence), kCacheFull (context length, quota or pool exhausted: the message says
  /// needed and free); then nothing changed.
  Result<KvBatch> prepare(std::span<const KvToken> tokens);

  /// The same, into a batch whose vectors keep their capacity from call to call. After an error `out` is unspecified.
  Status prepare(std::span<const KvToken> tokens, KvBatch& out);

  /// Gives back pages that neither a later position nor the last one, decoded again, can see, so that the last position
  /// may still be taken back. Call after each prepared batch was submitted.
  void trim_windows();

  /// Positions of a sequence so far; 0 when there is no such sequence.
  [[nodiscard]] int64_t length(int32_t seq) const;

  /// The smallest length other than 0 that truncate() accepts: above 0 when window pages are gone.
  [[nodiscard]] int64_t min_length(int32_t seq) const;

  /// Forgets positions >= new_length. Errors: kInvalidArgument (longer than now, no such sequence), kUnsupported (below
  /// min_length, unless 0, which always works); then nothing changed.
  Status truncate(int32_t seq, int64_t new_length);

  /// Makes `to` a copy of the first `length` positions of `from`, dropping what `to` held.
  /// Errors: as truncate; to == from is kInvalidArgument; then nothing changed.
  Status fork(int32_t from, int32_t to, int64_t length);

  /// Gives `seq` `length` positions in pages of its own, dropping what it held; the caller fills the pages. first, by
  /// class: positions below it are gone, as behind a window.
  /// Errors: kInvalidArgument (no such sequence; first is no multiple of kPageTokens, or reaches into what the next
  /// position sees), kCacheFull (as prepare); then nothing changed.
  Status restore(int32_t seq, int64_t length, std::span<const int64_t> first);

  /// Empties every sequence.
  void clear();

  /// REQUIRES (these six): 0 <= klass < classes, 0 <= seq < n_seq_max, 0 <= page < n_pages.
  [[nodiscard]] int64_t pages_used(int32_t klass) const;
  [[nodiscard]] int64_t pages_free(int32_t klass) const;
  /// How many free pages prepare() would take for so many more tokens in each of these sequences, copies on write
  /// included. REQUIRES: each sequence exists and comes once.
  [[nodiscard]] int64_t pages_needed(int32_t klass, std::span<const KvGrowth> growth) const;
  /// How many sequences refer to a page; 0: free.
  [[nodiscard]] int32_t page_refs(int32_t klass, int32_t page) const;
  /// The pages of a sequence, -1 where freed behind the window. Valid until the next change.
  [[nodiscard]] std::span<const int32_t> pages(int32_t klass, int32_t seq) const;
  /// The first position that a sequence holds: above 0 where pages behind the window are gone.
  [[nodiscard]] int64_t first_position(int32_t klass, int32_t seq) const;

  [[nodiscard]] const KvCacheConfig& config() const { return config_; }

 private:
  // Invariants: pages.size() == ceil(length / kPageTokens); entries below n_gone are -1, the others are pages in use;
  // refs[p] counts the table entries equal to p; p is in free_pages exactly when refs[p] == 0.
  struct Table {
    std::vector<int32_t> pages;
    int64_t n_gone = 0;
  };
  struct Sequence {
    int64_t length = 0;
    std::vector<Table> tables;  // one per class
  };
  struct Pool {
    std::vector<int32_t> refs;
    std::vector<int32_t> free_pages;  // a stack
  };
  // The new length of one row of the batch being prepared.
  struct RowGrowth {
    int64_t n_tokens = 0;
    int64_t next_position = 0;
  };

  explicit KvCache(KvCacheConfig config);
  [[nodiscard]] bool has(int32_t seq) const { return seq >= 0 && seq < config_.n_seq_max; }
  Status check_rewind(int32_t seq, int64_t new_length) const;
  Status check_restore(int32_t seq, int64_t length, std::span<const int64_t> first) const;
  Status count_rows(std::span<const KvToken> tokens, KvBatch& out);
  Status check_room(KvBatch& out);
  Status check_class(int32_t klass, KvBatch& out);
  void take_pages(KvBatch& out);
  void fill_batch(std::span<const KvToken> tokens, KvBatch& out);
  int32_t take_page(Pool& pool);
  void drop_page(Pool& pool, int32_t page);
  void drop_pages_from(int32_t klass, Table& table, int64_t n_kept);

  KvCacheConfig config_;
  std::vector<Pool> pools_;  // one per class
  std::vector<Sequence> sequences_;
  std::vector<int32_t> row_of_;    // [n_seq_max] row of a sequence while a batch is being prepared, else -1
  std::vector<RowGrowth> growth_;  // one per row
};

}  // namespace tessera
