#pragma once
// Text: a byte string that remembers, byte by byte, whether the template or the request wrote it.
//
// Only what the template wrote may later become a special token, so every string operation of the interpreter copies
// origins along with bytes. Nearly all strings have one origin, hence the encoding: the origin of byte 0 and the
// positions at which it toggles. A plain value; no thread rules.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool from_user) : bytes_(std::move(bytes)), from_user_(from_user) {}

  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] std::string_view view() const { return bytes_; }
  [[nodiscard]] size_t size() const { return bytes_.size(); }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  /// Whether all bytes share one origin (an empty text does).
  [[nodiscard]] bool uniform() const { return flips_.empty(); }
  /// Whether the request wrote byte `i`. For an empty text: the origin it was made with.
  [[nodiscard]] bool from_user_at(size_t i) const;
  /// Whether the request wrote any byte.
  [[nodiscard]] bool any_from_user() const { return from_user_ || !flips_.empty(); }

  void append(std::string_view bytes, bool from_user);
  void append(const Text& other) { append(other, 0, other.size()); }
  /// Bytes [begin, end) of `other`. REQUIRES: begin <= end <= other.size(), &other != this.
  void append(const Text& other, size_t begin, size_t end);
  void reserve(size_t n_bytes) { bytes_.reserve(n_bytes); }

  /// Bytes [begin, end). REQUIRES: begin <= end <= size().
  [[nodiscard]] Text slice(size_t begin, size_t end) const;

  /// Calls f(bytes, from_user) for each run of one origin in [begin, end), in order.
  template <typename F>
  void for_each_run(size_t begin, size_t end, F f) const;

 private:
  [[nodiscard]] size_t flips_up_to(size_t i) const;  // number of flips at positions <= i

  std::string bytes_;
  bool from_user_ = false;     // origin of byte 0
  std::vector<size_t> flips_;  // ascending positions in (0, size()) where the origin toggles
};

template <typename F>
void Text::for_each_run(size_t begin, size_t end, F f) const {
  size_t flip = flips_up_to(begin);
  while (begin < end) {
    const size_t stop = flip < flips_.size() && flips_[flip] < end ? flips_[flip] : end;
    f(std::string_view(bytes_).substr(begin, stop - begin), from_user_ != (flip % 2 == 1));
    begin = stop;
    ++flip;
  }
}

}  // namespace tessera::jinja
