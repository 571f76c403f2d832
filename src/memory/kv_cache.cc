#include "memory/kv_cache.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "base/check.h"

namespace tessera {
namespace {

int64_t pages_for(int64_t n_positions) {
  return (n_positions + kPageTokens - 1) / kPageTokens;
}

}  // namespace

KvCache::KvCache(KvCacheConfig config) : config_(std::move(config)) {
  for (const KvClassConfig& klass : config_.classes) {
    Pool pool;
    pool.refs.assign(static_cast<size_t>(klass.n_pages), 0);
    pool.free_pages.reserve(static_cast<size_t>(klass.n_pages));
    for (int64_t page = klass.n_pages - 1; page >= 0; --page) {  // so that page 0 is taken first
      pool.free_pages.push_back(static_cast<int32_t>(page));
    }
    pools_.push_back(std::move(pool));
  }
  sequences_.resize(static_cast<size_t>(config_.n_seq_max));
  for (Sequence& s : sequences_) {
    s.tables.resize(config_.classes.size());
  }
  row_of_.assign(sequences_.size(), -1);
}

Result<KvCache> KvCache::create(KvCacheConfig config) {
  if (config.n_seq_max < 1) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("a KV cache needs at least 1 sequence, not {}", config.n_seq_max));
  }
  if (config.n_ctx < 1 || config.n_ctx > std::numeric_limits<int32_t>::max()) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("context length must be 1 to {} positions, not {}",
                                                           std::numeric_limits<int32_t>::max(), config.n_ctx));
  }
  if (config.quota_pages < 0) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("KV page quota is negative: {}", config.quota_pages));
  }
  for (const KvClassConfig& klass : config.classes) {
    if (klass.window < 0) {
      return Status(ErrorCode::kInvalidArgument, fmt::format("attention window is negative: {}", klass.window));
    }
    if (klass.n_pages < 1 || klass.n_pages > kMaxPages) {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("a KV class needs 1 to {} pages, not {}", kMaxPages, klass.n_pages));
    }
  }
  return KvCache(std::move(config));
}

Result<KvBatch> KvCache::prepare(std::span<const KvToken> tokens) {
  KvBatch batch;
  TRY(prepare(tokens, batch));
  return batch;
}

Status KvCache::prepare(std::span<const KvToken> tokens, KvBatch& out) {
  out.row_seqs.clear();
  out.copies.clear();
  growth_.clear();
  Status status = count_rows(tokens, out);
  if (status.ok()) {
    status = check_room(out);
  }
  if (status.ok()) {
    take_pages(out);
    fill_batch(tokens, out);
  }
  for (const int32_t seq : out.row_seqs) {
    row_of_[static_cast<size_t>(seq)] = -1;
  }
  return status;
}

// Finds the rows of the batch and how far each grows.
Status KvCache::count_rows(std::span<const KvToken> tokens, KvBatch& out) {
  for (const KvToken& token : tokens) {
    if (!has(token.seq)) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("no sequence {}: the cache has 0 to {}", token.seq, config_.n_seq_max - 1)};
    }
    int32_t& row = row_of_[static_cast<size_t>(token.seq)];
    if (row < 0) {
      row = static_cast<int32_t>(out.row_seqs.size());
      out.row_seqs.push_back(token.seq);
      growth_.push_back({0, sequences_[static_cast<size_t>(token.seq)].length});
    }
    ++growth_[static_cast<size_t>(row)].n_tokens;
  }
  return {};
}

// Sees whether every row's pages are there. Afterwards out.copies lists the shared partial pages to leave, one
// reference of each already given up; on failure these references are taken again.
Status KvCache::check_room(KvBatch& out) {
  for (size_t row = 0; row < growth_.size(); ++row) {
    const int64_t room = config_.n_ctx - growth_[row].next_position;
    if (growth_[row].n_tokens > room) {
      return {ErrorCode::kCacheFull, fmt::format("sequence {} needed {} positions, free {} of a context of {}",
                                                 out.row_seqs[row], growth_[row].n_tokens, room, config_.n_ctx)};
    }
  }
  for (size_t klass = 0; klass < pools_.size(); ++klass) {
    const Status status = check_class(static_cast<int32_t>(klass), out);
    if (!status.ok()) {
      for (const KvPageCopy& copy : out.copies) {
        ++pools_[static_cast<size_t>(copy.klass)].refs[static_cast<size_t>(copy.from)];
      }
      return status;
    }
  }
  return {};
}

Status KvCache::check_class(int32_t klass, KvBatch& out) {
  Pool& pool = pools_[static_cast<size_t>(klass)];
  int64_t n_needed = 0;
  for (size_t row = 0; row < growth_.size(); ++row) {
    const RowGrowth& growth = growth_[row];
    const Table& table = sequences_[static_cast<size_t>(out.row_seqs[row])].tables[static_cast<size_t>(klass)];
    const auto n_held = static_cast<int64_t>(table.pages.size());
    const int64_t n_new = pages_for(growth.next_position + growth.n_tokens) - n_held;
    const int64_t quota_room = config_.quota_pages - (n_held - table.n_gone);
    if (config_.quota_pages > 0 && n_new > quota_room) {
      return {ErrorCode::kCacheFull,
              fmt::format("sequence {} needed {} more KV pages of class {}, free {} of its quota of {}",
                          out.row_seqs[row], n_new, klass, quota_room, config_.quota_pages)};
    }
    n_needed += n_new;
    const auto n_partial = static_cast<int32_t>(growth.next_position % kPageTokens);
    if (n_partial > 0 && pool.refs[static_cast<size_t>(table.pages.back())] > 1) {
      // The reference is given up at once, so that the last writer of a page in this batch keeps the original.
      --pool.refs[static_cast<size_t>(table.pages.back())];
      out.copies.push_back({klass, table.pages.back(), out.row_seqs[row], n_partial});  // `to` follows in take_pages
      ++n_needed;
    }
  }
  const auto n_free = static_cast<int64_t>(pool.free_pages.size());
  if (n_needed > n_free) {
    const KvClassConfig& config = config_.classes[static_cast<size_t>(klass)];
    return {ErrorCode::kCacheFull, fmt::format("KV pages of class {} (window {}) needed {}, free {} of {}", klass,
                                               config.window, n_needed, n_free, config.n_pages)};
  }
  return {};
}

// Cannot fail: check_room has counted.
void KvCache::take_pages(KvBatch& out) {
  for (KvPageCopy& copy : out.copies) {
    const auto seq = static_cast<size_t>(copy.to);
    copy.to = take_page(pools_[static_cast<size_t>(copy.klass)]);
    sequences_[seq].tables[static_cast<size_t>(copy.klass)].pages.back() = copy.to;
  }
  for (size_t row = 0; row < growth_.size(); ++row) {
    Sequence& s = sequences_[static_cast<size_t>(out.row_seqs[row])];
    s.length += growth_[row].n_tokens;
    for (size_t klass = 0; klass < pools_.size(); ++klass) {
      while (static_cast<int64_t>(s.tables[klass].pages.size()) < pages_for(s.length)) {
        s.tables[klass].pages.push_back(take_page(pools_[klass]));
      }
    }
  }
}

void KvCache::fill_batch(std::span<const KvToken> tokens, KvBatch& out) {
  out.positions.resize(tokens.size());
  out.seq_rows.resize(tokens.size());
  for (size_t t = 0; t < tokens.size(); ++t) {
    const int32_t row = row_of_[static_cast<size_t>(tokens[t].seq)];
    out.seq_rows[t] = row;
    out.positions[t] = static_cast<int32_t>(growth_[static_cast<size_t>(row)].next_position++);
  }
  out.classes.resize(pools_.size());
  for (size_t klass = 0; klass < pools_.size(); ++klass) {
    KvBatchClass& c = out.classes[klass];
    c.slots.resize(tokens.size());
    for (size_t t = 0; t < tokens.size(); ++t) {
      const std::vector<int32_t>& pages = sequences_[static_cast<size_t>(tokens[t].seq)].tables[klass].pages;
      const int32_t position = out.positions[t];
      c.slots[t] = static_cast<int32_t>(pages[static_cast<size_t>(position / kPageTokens)] * kPageTokens +
                                        position % kPageTokens);
    }
    size_t row_pages = 0;
    for (const int32_t seq : out.row_seqs) {
      row_pages = std::max(row_pages, sequences_[static_cast<size_t>(seq)].tables[klass].pages.size());
    }
    c.row_pages = static_cast<int64_t>(row_pages);
    c.page_table.assign(out.row_seqs.size() * row_pages, -1);
    for (size_t row = 0; row < out.row_seqs.size(); ++row) {
      const std::vector<int32_t>& pages = sequences_[static_cast<size_t>(out.row_seqs[row])].tables[klass].pages;
      std::copy(pages.begin(), pages.end(), c.page_table.begin() + static_cast<std::ptrdiff_t>(row * row_pages));
    }
  }
}

void KvCache::trim_windows() {
  for (size_t klass = 0; klass < pools_.size(); ++klass) {
    const int64_t window = config_.classes[klass].window;
    if (window == 0) {
      continue;
    }
    for (Sequence& s : sequences_) {
      // The last position, length - 1, sees positions from length - window on.
      const int64_t n_behind = std::max<int64_t>(s.length - window, 0) / kPageTokens;
      Table& table = s.tables[klass];
      for (; table.n_gone < n_behind; ++table.n_gone) {
        int32_t& page = table.pages[static_cast<size_t>(table.n_gone)];
        drop_page(pools_[klass], page);
        page = -1;
      }
    }
  }
}

int64_t KvCache::length(int32_t seq) const {
  return has(seq) ? sequences_[static_cast<size_t>(seq)].length : 0;
}

int64_t KvCache::min_length(int32_t seq) const {
  if (!has(seq)) {
    return 0;
  }
  int64_t least = 0;
  for (size_t klass = 0; klass < pools_.size(); ++klass) {
    const int64_t n_gone = sequences_[static_cast<size_t>(seq)].tables[klass].n_gone;
    if (n_gone > 0) {
      // The next position, equal to the length, sees positions from length - window + 1 on.
      least = std::max(least, n_gone * kPageTokens + config_.classes[klass].window - 1);
    }
  }
  return least;
}

Status KvCache::check_rewind(int32_t seq, int64_t new_length) const {
  if (!has(seq)) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("no sequence {}: the cache has 0 to {}", seq, config_.n_seq_max - 1)};
  }
  if (new_length < 0 || new_length > length(seq)) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("sequence {} has {} positions: cannot keep {}", seq, length(seq), new_length)};
  }
  if (new_length > 0 && new_length < min_length(seq)) {
    return {ErrorCode::kUnsupported,
            fmt::format("sequence {} has given back the pages behind its window: it can keep no fewer than {} "
                        "positions, or none, not {}",
                        seq, min_length(seq), new_length)};
  }
  return {};
}

Status KvCache::truncate(int32_t seq, int64_t new_length) {
  TRY(check_rewind(seq, new_length));
  Sequence& s = sequences_[static_cast<size_t>(seq)];
  s.length = new_length;
  for (size_t klass = 0; klass < pools_.size(); ++klass) {
    drop_pages_from(static_cast<int32_t>(klass), s.tables[klass], pages_for(new_length));
  }
  return {};
}

Status KvCache::fork(int32_t from, int32_t to, int64_t length) {
  if (to == from) {
    return {ErrorCode::kInvalidArgument, fmt::format("sequence {} cannot become a copy of itself", from)};
  }
  TRY(check_rewind(from, length));
  TRY(truncate(to, 0));
  const Sequence& source = sequences_[static_cast<size_t>(from)];
  Sequence& target = sequences_[static_cast<size_t>(to)];
  if (length == 0) {
    return {};
  }
  target.length = length;
  for (size_t klass = 0; klass < pools_.size(); ++klass) {
    const Table& table = source.tables[klass];
    target.tables[klass].pages.assign(table.pages.begin(), table.pages.begin() + pages_for(length));
    target.tables[klass].n_gone = table.n_gone;
    for (int64_t i = table.n_gone; i < pages_for(length); ++i) {
      ++pools_[klass].refs[static_cast<size_t>(table.pages[static_cast<size_t>(i)])];
    }
  }
  return {};
}

Status KvCache::check_restore(int32_t seq, int64_t length, std::span<const int64_t> first) const {
  if (!has(seq)) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("no sequence {}: the cache has 0 to {}", seq, config_.n_seq_max - 1)};
  }
  if (length < 0 || length > config_.n_ctx) {
    return {ErrorCode::kCacheFull,
            fmt::format("sequence {} would have {} positions, the context holds {}", seq, length, config_.n_ctx)};
  }
  CHECK(first.size() == pools_.size());
  for (size_t klass = 0; klass < pools_.size(); ++klass) {
    const int64_t window = config_.classes[klass].window;
    const int64_t visible = window == 0 ? 0 : std::max<int64_t>(length - window + 1, 0);
    if (first[klass] < 0 || first[klass] > visible || first[klass] % kPageTokens != 0) {
      return {ErrorCode::kInvalidArgument, fmt::format("a window of {} over {} positions cannot begin at position {}",
                                                       window, length, first[klass])};
    }
    const Table& table = sequences_[static_cast<size_t>(seq)].tables[klass];
    const auto n_own = std::ranges::count_if(
        table.pages, [&](int32_t page) { return page >= 0 && pools_[klass].refs[static_cast<size_t>(page)] == 1; });
    const int64_t n_needed = pages_for(length) - first[klass] / kPageTokens;
    const int64_t n_free = pages_free(static_cast<int32_t>(klass)) + n_own;
    if (n_needed > n_free || (config_.quota_pages > 0 && n_needed > config_.quota_pages)) {
      return {ErrorCode::kCacheFull,
              fmt::format("sequence {} needed {} KV pages of class {} (window {}), free {} of {}", seq, n_needed, klass,
                          window, n_free, config_.classes[klass].n_pages)};
    }
  }
  return {};
}

Status KvCache::restore(int32_t seq, int64_t length, std::span<const int64_t> first) {
  TRY(check_restore(seq, length, first));
  TRY(truncate(seq, 0));
  Sequence& s = sequences_[static_cast<size_t>(seq)];
  s.length = length;
  for (size_t klass = 0; klass < pools_.size(); ++klass) {
    Table& table = s.tables[klass];
    table.n_gone = first[klass] / kPageTokens;
    table.pages.assign(static_cast<size_t>(table.n_gone), -1);
    while (static_cast<int64_t>(table.pages.size()) < pages_for(length)) {
      table.pages.push_back(take_page(pools_[klass]));
    }
  }
  return {};
}

void KvCache::clear() {
  for (Sequence& s : sequences_) {
    s.length = 0;
    for (size_t klass = 0; klass < pools_.size(); ++klass) {
      drop_pages_from(static_cast<int32_t>(klass), s.tables[klass], 0);
    }
  }
}

int64_t KvCache::pages_used(int32_t klass) const {
  CHECK(klass >= 0 && static_cast<size_t>(klass) < pools_.size());
  return config_.classes[static_cast<size_t>(klass)].n_pages - pages_free(klass);
}

int64_t KvCache::pages_free(int32_t klass) const {
  CHECK(klass >= 0 && static_cast<size_t>(klass) < pools_.size());
  return static_cast<int64_t>(pools_[static_cast<size_t>(klass)].free_pages.size());
}

int64_t KvCache::pages_needed(int32_t klass, std::span<const KvGrowth> growth) const {
  int64_t n_needed = 0;
  std::vector<int32_t> left;  // shared partial pages, once for each sequence that writes
  for (const KvGrowth& g : growth) {
    CHECK(has(g.seq));
    const Sequence& s = sequences_[static_cast<size_t>(g.seq)];
    const Table& table = s.tables[static_cast<size_t>(klass)];
    n_needed += pages_for(s.length + g.n_tokens) - static_cast<int64_t>(table.pages.size());
    if (g.n_tokens > 0 && s.length % kPageTokens > 0 && page_refs(klass, table.pages.back()) > 1) {
      left.push_back(table.pages.back());
    }
  }
  // Where all who share a page write, the last one keeps it.
  std::ranges::sort(left);
  for (auto begin = left.begin(); begin != left.end();) {
    const auto end = std::upper_bound(begin, left.end(), *begin);
    n_needed += std::min<int64_t>(end - begin, page_refs(klass, *begin) - 1);
    begin = end;
  }
  return n_needed;
}

int32_t KvCache::page_refs(int32_t klass, int32_t page) const {
  CHECK(klass >= 0 && static_cast<size_t>(klass) < pools_.size());
  const std::vector<int32_t>& refs = pools_[static_cast<size_t>(klass)].refs;
  CHECK(page >= 0 && static_cast<size_t>(page) < refs.size());
  return refs[static_cast<size_t>(page)];
}

std::span<const int32_t> KvCache::pages(int32_t klass, int32_t seq) const {
  CHECK(klass >= 0 && static_cast<size_t>(klass) < pools_.size());
  CHECK(has(seq));
  return sequences_[static_cast<size_t>(seq)].tables[static_cast<size_t>(klass)].pages;
}

int64_t KvCache::first_position(int32_t klass, int32_t seq) const {
  CHECK(klass >= 0 && static_cast<size_t>(klass) < pools_.size());
  CHECK(has(seq));
  return sequences_[static_cast<size_t>(seq)].tables[static_cast<size_t>(klass)].n_gone * kPageTokens;
}

int32_t KvCache::take_page(Pool& pool) {
  CHECK(!pool.free_pages.empty());
  const int32_t page = pool.free_pages.back();
  pool.free_pages.pop_back();
  pool.refs[static_cast<size_t>(page)] = 1;
  return page;
}

void KvCache::drop_page(Pool& pool, int32_t page) {
  int32_t& refs = pool.refs[static_cast<size_t>(page)];
  CHECK(refs > 0);
  if (--refs == 0) {
    pool.free_pages.push_back(page);
  }
}

// Keeps the first n_kept entries of the table. REQUIRES: n_kept == 0 or n_kept >= table.n_gone.
void KvCache::drop_pages_from(int32_t klass, Table& table, int64_t n_kept) {
  while (static_cast<int64_t>(table.pages.size()) > n_kept) {
    if (table.pages.back() >= 0) {
      drop_page(pools_[static_cast<size_t>(klass)], table.pages.back());
    }
    table.pages.pop_back();
  }
  table.n_gone = std::min(table.n_gone, n_kept);
}

}  // namespace tessera
