#pragma once
// The book of kept states: which beginnings of prompts lie in host memory or in files, and which of them go when there
// are too many bytes.
//
// Pure: no thread, no device, no file; times are the order of calls. A state is an opaque block of bytes with an
// outline that says for which prompts it is good: all its tokens, or as many of them as it can be cut back to
// afterwards. States of which another one gives nearly as much are not kept beside it. Bytes go by last use, when
// whoever counts them (prompt_ram.h) says so; an entry that has a file stays known when its bytes go, one that has none
// goes with them.
//
// Not thread-safe: KeptPrompts guards it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/prompt_ram.h"

namespace tessera {

/// What a kept state holds.
struct PromptOutline {
  std::vector<int32_t> tokens;
  /// The shortest length other than the whole and 0 to which it can be cut: above 0 where windows have let go.
  int64_t least_length = 0;
  /// Recurrent state can be cut to these lengths only (ascending), besides the whole and 0.
  bool recurrent = false;
  std::vector<int64_t> snapshots = {};

  [[nodiscard]] int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  /// How many of these tokens the state can give.
  [[nodiscard]] int64_t usable(std::span<const int32_t> wanted) const;
};

/// Whether a sequence of `length` tokens is worth copying, so that `n_lost` of them need not be read again: a page of
/// tokens at least, and a sixteenth of all. Copying a token's state costs less than a sixteenth of reading
/// it: docs/decisions/012-kept-prompts.md.
[[nodiscard]] bool worth_keeping(int64_t n_lost, int64_t length);

struct StateBytes {
  std::shared_ptr<std::byte[]> data;  // null: none
  uint64_t n_bytes = 0;
  [[nodiscard]] std::span<std::byte> span() const { return {data.get(), static_cast<size_t>(n_bytes)}; }
};

class PromptStore {
 public:
  struct Entry {
    PromptOutline outline;
    uint64_t n_bytes = 0;
    StateBytes bytes;      // null: only in its file
    std::string file;      // empty: in none
    bool unsaved = false;  // its bytes must stay until they are in a file
    uint64_t last_use = 0;
  };
  struct Match {
    uint64_t id = 0;     // 0: nothing fits
    int64_t length = 0;  // tokens that it gives
  };

  /// ram: whose order of use this is; outlives it.
  explicit PromptStore(PromptRam& ram) : ram_(ram) {}

  /// The entry that gives most of these tokens; of equal ones, one whose bytes are there.
  [[nodiscard]] Match find(std::span<const int32_t> tokens) const;

  /// Adds a state whose bytes are there and lets go of entries that it makes needless. unsaved: they have to be written
  /// yet. Result: its id. What went and had a file is in dropped_files().
  uint64_t add(PromptOutline outline, StateBytes bytes, bool unsaved);
  /// Adds one that lies in a file. An entry with this file is replaced.
  uint64_t add_file(PromptOutline outline, uint64_t n_bytes, std::string file);

  /// The bytes of an entry have come from its file.
  void set_bytes(uint64_t id, StateBytes bytes);
  /// An entry's bytes are in this file now, or, where empty, will not be.
  void set_saved(uint64_t id, std::string file);
  /// The file is gone.
  void forget_file(const std::string& file);
  /// The entry was used.
  void touch(uint64_t id);
  void drop(uint64_t id);
  /// Lets go of the bytes that were used least recently, but for those that wait for their file.
  void drop_oldest();

  /// Null when there is none. Valid until the next change.
  [[nodiscard]] const Entry* entry(uint64_t id) const;
  [[nodiscard]] uint64_t bytes_held() const { return bytes_held_; }
  [[nodiscard]] uint64_t bytes_unsaved() const { return bytes_unsaved_; }
  /// What drop_oldest() could let go of.
  [[nodiscard]] PromptRam::Holding holding() const;
  [[nodiscard]] size_t n_entries() const { return entries_.size(); }
  /// Files whose entries went since the last call, which nobody needs any more.
  [[nodiscard]] std::vector<std::string> dropped_files();
  [[nodiscard]] bool has_dropped_files() const { return !dropped_files_.empty(); }

 private:
  using Entries = std::map<uint64_t, Entry>;

  Entries::iterator erase(Entries::iterator at);
  void take_bytes(Entry& entry);
  void drop_needless(uint64_t id);
  template <typename Map>
  static auto oldest(Map& entries);  // what drop_oldest() takes, or the end; Map: Entries, const or not

  PromptRam& ram_;
  Entries entries_;
  uint64_t bytes_held_ = 0;     // in memory, unsaved ones included
  uint64_t bytes_unsaved_ = 0;  // of these
  uint64_t next_id_ = 1;
  std::vector<std::string> dropped_files_;
};

}  // namespace tessera
