#pragma once
// From the text of a token to its id: a read-only hash table over strings that somebody else owns.
// Flat and open-addressed because encoding does little else than look up; built once, then safe for any thread.

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace tessera {

class TextIndex {
 public:
  static constexpr int32_t kAbsent = -1;

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

  /// Adds text → id unless text is known already; returns the id that text has now. text must outlive the index.
  int32_t insert(std::string_view text, int32_t id) {
    if ((n_entries_ + 1) * 2 > slots_.size()) {
      rehash(slots_.empty() ? 16 : slots_.size() * 2);
    }
    const uint64_t h = hash(text);
    Slot& slot = slots_[probe(text, h)];
    if (slot.id != kAbsent) {
      return slot.id;
    }
    slot = {text.data(), static_cast<uint32_t>(text.size()), id, h};
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
    const char* data = nullptr;
    uint32_t size = 0;
    int32_t id = kAbsent;
    uint64_t hash = 0;
  };

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
    while (slots_[i].id != kAbsent && !(slots_[i].hash == h && slots_[i].size == text.size() &&
                                        std::memcmp(slots_[i].data, text.data(), text.size()) == 0)) {
      i = (i + 1) & mask;
    }
    return i;
  }

  void rehash(size_t n_slots) {
    std::vector<Slot> old(n_slots);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id != kAbsent) {
        slots_[probe({slot.data, slot.size}, slot.hash)] = slot;
      }
    }
  }

  std::vector<Slot> slots_;  // a power of two of them, at most half used
  size_t n_entries_ = 0;
  size_t max_bytes_ = 0;
};

}  // namespace tessera
