#pragma once
// From the text of a token to its id: a hash table over the texts of a table that somebody else owns.
// Flat and open-addressed because encoding does little else than look up, and of eight bytes a slot so that more of it
// stays in the caches; built once, then safe for any thread.

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "tokenizer/text_table.h"

namespace tessera {

class TextIndex {
 public:
  static constexpr int32_t kAbsent = -1;

  /// An index of none of texts so far; texts must outlive it, and may grow.
  explicit TextIndex(const TextTable& texts) : texts_(&texts) {}

  /// Makes room for n texts.
  void reserve(size_t n) {
    size_t slots = 16;
    while (slots < n * 2) {
      slots *= 2;
    }
    if (slots > slots_.size()) {
      rehash(slots);
    }
  }

  /// Adds text id of the table unless its like is known already; returns the id that the text has now.
  int32_t insert(int32_t id) {
    if ((n_entries_ + 1) * 2 > slots_.size()) {
      rehash(slots_.empty() ? 16 : slots_.size() * 2);
    }
    const std::string_view text = (*texts_)[static_cast<size_t>(id)];
    const uint64_t h = hash(text);
    Slot& slot = slots_[probe(text, h)];
    if (slot.id != kAbsent) {
      return slot.id;
    }
    slot = {tag(h), id};
    ++n_entries_;
    max_bytes_ = text.size() > max_bytes_ ? text.size() : max_bytes_;
    return id;
  }

  /// The id of text, or kAbsent.
  [[nodiscard]] int32_t find(std::string_view text) const {
    if (text.size() > max_bytes_ || n_entries_ == 0) {
      return kAbsent;
    }
    return slots_[probe(text, hash(text))].id;
  }

  /// Length of the longest text known.
  [[nodiscard]] size_t max_bytes() const { return max_bytes_; }

 private:
  struct Slot {
    uint32_t tag = 0;
    int32_t id = kAbsent;
  };

  // What a slot keeps of a hash: the half that does not choose the slot.
  static uint32_t tag(uint64_t h) { return static_cast<uint32_t>(h >> 32); }

  // Eight bytes a step, each mixed by a 64 × 64 → 128 bit product (the folded multiply of wyhash and its kin).
  static uint64_t hash(std::string_view text) {
    uint64_t h = 0x9E3779B97F4A7C15U ^ text.size();
    const char* p = text.data();
    size_t left = text.size();
    for (; left >= 8; p += 8, left -= 8) {
      uint64_t word = 0;
      std::memcpy(&word, p, 8);
      h = mix(h ^ word);
    }
    uint64_t word = 0;
    std::memcpy(&word, p, left);
    return mix(h ^ word);
  }

  static uint64_t mix(uint64_t x) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(x ^ 0xA0761D6478BD642FU) * 0xE7037ED1A0B428DBU;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  // The slot that holds text, or the free one where it belongs.
  [[nodiscard]] size_t probe(std::string_view text, uint64_t h) const {
    const size_t mask = slots_.size() - 1;
    size_t i = h & mask;
    while (slots_[i].id != kAbsent &&
           !(slots_[i].tag == tag(h) && (*texts_)[static_cast<size_t>(slots_[i].id)] == text)) {
      i = (i + 1) & mask;
    }
    return i;
  }

  void rehash(size_t n_slots) {
    std::vector<Slot> old(n_slots);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id != kAbsent) {
        const std::string_view text = (*texts_)[static_cast<size_t>(slot.id)];
        slots_[probe(text, hash(text))] = slot;
      }
    }
  }

  const TextTable* texts_;
  std::vector<Slot> slots_;  // a power of two of them, at most half used
  size_t n_entries_ = 0;
  size_t max_bytes_ = 0;
};

}  // namespace tessera
