#include "runtime/prompt_store.h"

#include <algorithm>
#include <utility>

#include "runtime/common_prefix.h"
#include "tensor/kv_page.h"

namespace tessera {

int64_t PromptOutline::usable(std::span<const int32_t> wanted) const {
  const int64_t common = common_prefix(tokens, wanted);
  if (common == length()) {
    return common;
  }
  int64_t best = recurrent ? 0 : common;
  if (recurrent) {
    for (const int64_t snapshot : snapshots) {
      best = snapshot <= common ? std::max(best, snapshot) : best;
    }
  }
  return best >= least_length ? best : 0;
}

bool worth_keeping(int64_t n_lost, int64_t length) {
  return n_lost >= std::max(kPageTokens, length / 16);
}

PromptStore::Match PromptStore::find(std::span<const int32_t> tokens) const {
  Match best;
  bool best_is_here = false;
  for (const auto& [id, entry] : entries_) {
    const int64_t length = entry.outline.usable(tokens);
    const bool is_here = entry.bytes.data != nullptr;
    if (length > best.length || (length > 0 && length == best.length && is_here && !best_is_here)) {
      best = {id, length};
      best_is_here = is_here;
    }
  }
  return best;
}

uint64_t PromptStore::add(PromptOutline outline, StateBytes bytes, bool unsaved) {
  const uint64_t id = next_id_++;
  Entry& entry = entries_[id];
  entry.outline = std::move(outline);
  entry.n_bytes = bytes.n_bytes;
  entry.bytes = std::move(bytes);
  entry.unsaved = unsaved;
  entry.last_use = ram_.next_use();
  bytes_held_ += entry.n_bytes;
  bytes_unsaved_ += unsaved ? entry.n_bytes : 0;
  drop_needless(id);
  return id;
}

uint64_t PromptStore::add_file(PromptOutline outline, uint64_t n_bytes, std::string file) {
  forget_file(file);
  const uint64_t id = next_id_++;
  Entry& entry = entries_[id];
  entry.outline = std::move(outline);
  entry.n_bytes = n_bytes;
  entry.file = std::move(file);
  entry.last_use = ram_.next_use();
  return id;
}

void PromptStore::set_bytes(uint64_t id, StateBytes bytes) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.bytes.data != nullptr) {
    return;
  }
  bytes_held_ += found->second.n_bytes;
  found->second.bytes = std::move(bytes);
  found->second.last_use = ram_.next_use();
}

void PromptStore::set_saved(uint64_t id, std::string file) {
  std::erase(dropped_files_, file);  // it was written anew
  const auto found = entries_.find(id);
  if (found == entries_.end()) {
    if (!file.empty()) {
      dropped_files_.push_back(std::move(file));
    }
    return;
  }
  Entry& entry = found->second;
  bytes_unsaved_ -= std::exchange(entry.unsaved, false) ? entry.n_bytes : 0;
  entry.file = std::move(file);
}

void PromptStore::forget_file(const std::string& file) {
  for (auto at = entries_.begin(); at != entries_.end();) {
    Entry& entry = at->second;
    if (entry.file == file) {
      entry.file.clear();
      if (entry.bytes.data == nullptr) {
        at = entries_.erase(at);
        continue;
      }
    }
    ++at;
  }
}

void PromptStore::touch(uint64_t id) {
  if (const auto found = entries_.find(id); found != entries_.end()) {
    found->second.last_use = ram_.next_use();
  }
}

void PromptStore::drop(uint64_t id) {
  if (const auto found = entries_.find(id); found != entries_.end()) {
    erase(found);
  }
}

const PromptStore::Entry* PromptStore::entry(uint64_t id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<std::string> PromptStore::dropped_files() {
  return std::exchange(dropped_files_, {});
}

PromptStore::Entries::iterator PromptStore::erase(Entries::iterator at) {
  take_bytes(at->second);
  if (!at->second.file.empty()) {
    dropped_files_.push_back(std::move(at->second.file));
  }
  return entries_.erase(at);
}

void PromptStore::take_bytes(Entry& entry) {
  if (entry.bytes.data != nullptr) {
    bytes_held_ -= entry.n_bytes;
    bytes_unsaved_ -= std::exchange(entry.unsaved, false) ? entry.n_bytes : 0;
    entry.bytes = {};
  }
}

// Entries of which the new one gives nearly as much.
void PromptStore::drop_needless(uint64_t id) {
  const PromptOutline& outline = entries_.at(id).outline;
  for (auto at = entries_.begin(); at != entries_.end();) {
    const PromptOutline& other = at->second.outline;
    const bool needless =
        at->first != id && !worth_keeping(other.length() - outline.usable(other.tokens), other.length());
    at = needless ? erase(at) : std::next(at);
  }
}

template <typename Map>
auto PromptStore::oldest(Map& entries) {
  auto oldest = entries.end();
  for (auto at = entries.begin(); at != entries.end(); ++at) {
    const bool may_go = at->second.bytes.data != nullptr && !at->second.unsaved;
    if (may_go && (oldest == entries.end() || at->second.last_use < oldest->second.last_use)) {
      oldest = at;
    }
  }
  return oldest;
}

PromptRam::Holding PromptStore::holding() const {
  const auto found = oldest(entries_);
  return found == entries_.end() ? PromptRam::Holding()
                                 : PromptRam::Holding{bytes_held_ - bytes_unsaved_, found->second.last_use};
}

void PromptStore::drop_oldest() {
  const auto at = oldest(entries_);
  if (at == entries_.end()) {
    return;
  }
  if (at->second.file.empty()) {
    erase(at);
  } else {
    take_bytes(at->second);
  }
}

}  // namespace tessera
