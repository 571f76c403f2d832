#pragma once
// The greedy merging that both kinds of vocabulary are built on: as long as two neighbours may be merged, the pair with
// the lowest priority number is, and of equal ones the leftmost. What may be merged the caller's lookup says.
// O(n log n) for long runs of symbols; short ones, nearly all there are, are scanned, which is quicker.

#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

namespace tessera {

/// A part of a text that is one unit so far.
struct Symbol {
  int32_t id = -1;   // what the lookup calls it; -1: nothing it knows
  size_t begin = 0;  // bytes, in the text that the caller has in mind
  size_t size = 0;
};

/// What a lookup says about two neighbours. REQUIRES: not NaN.
template <typename Priority>
struct Merge {
  Priority priority{};
  int32_t id = -1;  // of the merged symbol; below 0: they do not merge
};

namespace merge_internal {

constexpr size_t kMaxScanned = 40;  // symbols; beyond, the queue is quicker

template <typename Priority, typename Lookup>
void merge_by_scan(std::vector<Symbol>& symbols, const Lookup& lookup) {
  Merge<Priority> merges[kMaxScanned];  // of symbols i and i + 1
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) {
    merges[i] = lookup(symbols[i], symbols[i + 1]);
  }
  while (n > 1) {
    size_t best = n;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (merges[i].id >= 0 && (best == n || merges[i].priority < merges[best].priority)) {
        best = i;
      }
    }
    if (best == n) {
      break;
    }
    symbols[best].id = merges[best].id;
    symbols[best].size += symbols[best + 1].size;
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      symbols[i] = symbols[i + 1];
    }
    for (size_t i = best; i + 1 < n; ++i) {
      merges[i] = merges[i + 1];
    }
    if (best > 0) {
      merges[best - 1] = lookup(symbols[best - 1], symbols[best]);
    }
    if (best + 1 < n) {
      merges[best] = lookup(symbols[best], symbols[best + 1]);
    }
  }
  symbols.resize(n);
}

template <typename Priority, typename Lookup>
void merge_by_queue(std::vector<Symbol>& symbols, const Lookup& lookup) {
  struct Entry {
    Priority priority;
    int32_t id;
    size_t left, right;
    size_t size;  // of both together: symbols only grow, so an entry holds exactly as long as this does
    bool operator<(const Entry& other) const {  // std::priority_queue hands out the greatest
      return priority != other.priority ? other.priority < priority : other.left < left;
    }
  };
  const size_t n = symbols.size();
  std::vector<size_t> previous(n);
  std::vector<size_t> next(n);
  std::priority_queue<Entry> queue;
  const auto offer = [&](size_t left, size_t right) {
    const Merge<Priority> merge = lookup(symbols[left], symbols[right]);
    if (merge.id >= 0) {
      queue.push({merge.priority, merge.id, left, right, symbols[left].size + symbols[right].size});
    }
  };
  for (size_t i = 0; i < n; ++i) {
    previous[i] = i - 1;  // wraps for the first, which nobody follows back
    next[i] = i + 1;
    if (i > 0) {
      offer(i - 1, i);
    }
  }
  while (!queue.empty()) {
    const Entry entry = queue.top();
    queue.pop();
    Symbol& left = symbols[entry.left];
    Symbol& right = symbols[entry.right];
    if (left.size == 0 || right.size == 0 || left.size + right.size != entry.size) {
      continue;
    }
    left.id = entry.id;
    left.size = entry.size;
    right.size = 0;
    next[entry.left] = next[entry.right];
    if (next[entry.left] < n) {
      previous[next[entry.left]] = entry.left;
      offer(entry.left, next[entry.left]);
    }
    if (entry.left > 0) {
      offer(previous[entry.left], entry.left);
    }
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.size == 0; });
}

}  // namespace merge_internal

/// Merges symbols in place until nothing more can be. lookup(left, right) → Merge<Priority>, a pure function.
/// REQUIRES: no symbol has size 0.
template <typename Priority, typename Lookup>
void merge_symbols(std::vector<Symbol>& symbols, const Lookup& lookup) {
  if (symbols.size() <= merge_internal::kMaxScanned) {
    merge_internal::merge_by_scan<Priority>(symbols, lookup);
  } else {
    merge_internal::merge_by_queue<Priority>(symbols, lookup);
  }
}

}  // namespace tessera
