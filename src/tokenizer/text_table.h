#pragma once
// Texts by number, one after the other in one run of bytes: what a vocabulary of hundreds of thousands of short texts
// takes is little more than their letters and four bytes each. Filled once, then safe for any thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace tessera {

class TextTable {
 public:
  /// What all texts together may take.
  static constexpr size_t kMaxBytes = UINT32_MAX;

  /// Makes room for n_texts of n_bytes together.
  void reserve(size_t n_texts, size_t n_bytes) {
    bounds_.reserve(n_texts + 1);
    bytes_.reserve(n_bytes);
  }

  /// Adds a text under the number size(); views handed out before end. REQUIRES: n_bytes() stays within kMaxBytes; text
  /// is not one of this table's.
  void push_back(std::string_view text) {
    CHECK(text.size() <= kMaxBytes - bytes_.size());
    bytes_ += text;
    bounds_.push_back(static_cast<uint32_t>(bytes_.size()));
  }

  /// Gives back room that was not needed; views handed out before end.
  void shrink_to_fit() {
    bounds_.shrink_to_fit();
    bytes_.shrink_to_fit();
  }

  /// Text i. REQUIRES: i < size().
  [[nodiscard]] std::string_view operator[](size_t i) const {
    return {bytes_.data() + bounds_[i], bounds_[i + 1] - bounds_[i]};
  }
  [[nodiscard]] size_t size() const { return bounds_.size() - 1; }
  [[nodiscard]] size_t n_bytes() const { return bytes_.size(); }

 private:
  std::string bytes_;
  std::vector<uint32_t> bounds_ = {0};  // text i lies between bounds i and i + 1
};

}  // namespace tessera
