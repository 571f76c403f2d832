#include "tests/support/gguf_mutator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>

#include "base/check.h"

namespace tessera {
namespace {

// splitmix64 (Steele, Lea, Flood 2014): the standard library's distributions differ between implementations.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    uint64_t z = state_;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
    return z ^ z >> 31;
  }
  // 0 … n-1. REQUIRES: n > 0.
  size_t below(size_t n) { return static_cast<size_t>(next() % n); }
  bool chance(int percent) { return below(100) < static_cast<size_t>(percent); }

 private:
  uint64_t state_;
};

// Sizes of the fixed-size value types; 0 for string (8) and array (9).
constexpr std::array<size_t, 13> kValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr int32_t kStringType = 8;
constexpr int32_t kArrayType = 9;

uint64_t load(std::span<const std::byte> bytes, size_t offset, size_t size) {
  CHECK(size <= sizeof(uint64_t) && offset + size <= bytes.size());
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, size);
  return value;
}

void store(std::vector<std::byte>& bytes, size_t offset, size_t size, uint64_t value) {
  if (offset + size <= bytes.size()) {  // an earlier change may have cut the file
    std::memcpy(bytes.data() + offset, &value, size);
  }
}

}  // namespace

// Notes the fields of a valid file front to back.
class GgufMutator::Walk {
 public:
  explicit Walk(GgufMutator& m) : m_(m) {}

  void run() {
    take("magic", 4);
    take("version", 4);
    const uint64_t n_tensors = take("n_tensors", 8);
    const uint64_t n_entries = take("n_entries", 8);
    for (uint64_t i = 0; i < n_entries; ++i) {
      const size_t begin = at_;
      walk_entry(take_string("key", "entry " + std::to_string(i)));
      m_.entries_.push_back({begin, at_});
    }
    for (uint64_t i = 0; i < n_tensors; ++i) {
      const size_t begin = at_;
      const std::string name = take_string("name", "info " + std::to_string(i));
      m_.names_.push_back({begin + 8, at_});
      walk_info(name);
      m_.infos_.push_back({begin, at_});
    }
    m_.head_bytes_ = at_;
    for (auto& [kind, fields] : by_kind_) {
      m_.fields_.push_back(std::move(fields));
    }
  }

 private:
  // Notes a field of this kind and returns its value.
  uint64_t take(const std::string& kind, size_t size, const std::string& of = "") {
    by_kind_[kind].push_back({of.empty() ? kind : kind + " of " + of, at_, size});
    const uint64_t value = load(m_.valid_, at_, size);
    at_ += size;
    return value;
  }

  // Notes a string's length and the byte in its middle.
  std::string take_string(const std::string& kind, const std::string& of) {
    const auto length = static_cast<size_t>(take(kind + " length", 8, of));
    CHECK(length <= m_.valid_.size() - at_);
    const std::string text(reinterpret_cast<const char*>(m_.valid_.data()) + at_, length);
    if (length > 0) {
      by_kind_[kind + " text"].push_back({kind + " text of " + of, at_ + length / 2, 1});
    }
    at_ += length;
    return text;
  }

  void walk_entry(const std::string& key) {
    const auto type = static_cast<int32_t>(take("value type", 4, key));
    if (key == "general.alignment") {
      m_.alignment_ = load(m_.valid_, at_, 4);
    }
    if (type != kArrayType) {
      walk_value("", type, key);
      return;
    }
    const auto elem_type = static_cast<int32_t>(take("element type", 4, key));
    const uint64_t count = take("count", 8, key);
    for (uint64_t i = 0; i < count; ++i) {
      walk_value("element ", elem_type, key);
    }
  }

  void walk_value(const std::string& prefix, int32_t type, const std::string& key) {
    if (type == kStringType) {
      take_string(prefix + "string", key);
    } else {
      take(prefix + "value", kValueBytes.at(static_cast<size_t>(type)), key);
    }
  }

  void walk_info(const std::string& name) {
    const uint64_t n_dims = take("n_dims", 4, name);
    const size_t dims_begin = at_;
    for (uint64_t d = 0; d < n_dims; ++d) {
      take("dim", 8, name);
    }
    m_.dims_.push_back({dims_begin, at_});
    take("dtype", 4, name);
    take("offset", 8, name);
  }

  GgufMutator& m_;
  size_t at_ = 0;
  std::map<std::string, std::vector<Field>> by_kind_;
};

GgufMutator::GgufMutator(std::span<const std::byte> valid) : valid_(valid.begin(), valid.end()) {
  Walk(*this).run();
}

// One mutant in the making.
class MutationRun {
 public:
  MutationRun(const GgufMutator& mutator, uint64_t seed, MutationZone zone)
      : m_(mutator), random_(seed ^ (zone == MutationZone::kHead ? 0 : 0xA5A5A5A5A5A5A5A5ULL)), zone_(zone) {
    out_.bytes = m_.valid_;
  }

  Mutant run() {
    // Changes of single fields first: afterwards offsets may no longer hold.
    const size_t n_fields = random_.chance(70) ? 1 + random_.below(2) : 0;
    for (size_t i = 0; i < n_fields; ++i) {
      change_field();
    }
    if (n_fields == 0 || random_.chance(20)) {
      change_structure();
    }
    return std::move(out_);
  }

 private:
  using Part = GgufMutator::Part;

  void note(const std::string& what) { out_.what += (out_.what.empty() ? "" : "; ") + what; }
  size_t reach() const {
    return std::min(zone_ == MutationZone::kHead ? m_.head_bytes_ : m_.valid_.size(), out_.bytes.size());
  }

  // A value that readers get wrong: limits of types, neighbours of the right one, sizes of the file, anything.
  uint64_t interesting(uint64_t old) {
    constexpr std::array<uint64_t, 18> kLimits = {
        0,     1,          2,         3,          5,          31,         127,       255,        32767,
        65535, 1ULL << 20, INT32_MAX, 1ULL << 31, UINT32_MAX, 1ULL << 32, INT64_MAX, 1ULL << 63, UINT64_MAX};
    switch (random_.below(6)) {
      case 0: return old + 1;
      case 1: return old - 1;
      case 2: return old * 2;
      case 3: return m_.valid_.size() - random_.below(m_.valid_.size());
      case 4: return random_.next() >> random_.below(64);
      default: return kLimits[random_.below(kLimits.size())];
    }
  }

  void change_field() {
    const auto& kind = m_.fields_[random_.below(m_.fields_.size())];
    const auto& field = kind[random_.below(kind.size())];
    const uint64_t old = load(m_.valid_, field.offset, field.size);
    const uint64_t value = random_.chance(25) ? old ^ 1ULL << random_.below(8 * field.size) : interesting(old);
    store(out_.bytes, field.offset, field.size, value);
    note(field.name + " := " + std::to_string(value));
  }

  void change_structure() {
    switch (random_.below(zone_ == MutationZone::kHead ? 9 : 11)) {
      case 0: return truncate();
      case 1: return flip_bits();
      case 2: return drop_part();
      case 3: return repeat_part();
      case 4: return swap_parts();
      case 5: return swap_sections();
      case 6: return repeat_name();
      case 7: return swap_dims();
      case 8: return insert_or_erase();
      case 9: return overwrite();
      default: return append();
    }
  }

  void truncate() {
    const size_t size = random_.below(reach() + 1);
    out_.bytes.resize(size);
    note("cut to " + std::to_string(size) + " bytes");
  }

  void flip_bits() {
    const size_t n = 1 + random_.below(16);
    for (size_t i = 0; i < n && reach() > 0; ++i) {
      out_.bytes[random_.below(reach())] ^= static_cast<std::byte>(1U << random_.below(8));
    }
    note(std::to_string(n) + " bits flipped");
  }

  void insert_or_erase() {
    const size_t at = random_.below(reach() + 1);
    const size_t n = std::min(1 + random_.below(40), out_.bytes.size() - at);
    const auto begin = out_.bytes.begin() + static_cast<ptrdiff_t>(at);
    if (random_.chance(50)) {
      out_.bytes.erase(begin, begin + static_cast<ptrdiff_t>(n));
      note(std::to_string(n) + " bytes erased at " + std::to_string(at));
    } else {
      std::vector<std::byte> extra(1 + random_.below(40));
      std::ranges::generate(extra, [&] { return static_cast<std::byte>(random_.next()); });
      out_.bytes.insert(begin, extra.begin(), extra.end());
      note(std::to_string(extra.size()) + " bytes inserted at " + std::to_string(at));
    }
  }

  void overwrite() {
    const size_t at = random_.below(out_.bytes.size() + 1);
    const size_t n = std::min(random_.below(4096), out_.bytes.size() - at);
    const auto fill = static_cast<std::byte>(random_.chance(50) ? 0xFF : random_.next());
    std::fill_n(out_.bytes.begin() + static_cast<ptrdiff_t>(at), n, fill);
    note(std::to_string(n) + " bytes overwritten at " + std::to_string(at));
  }

  void append() {
    const size_t n = 1 + random_.below(5000);
    out_.bytes.insert(out_.bytes.end(), n, static_cast<std::byte>(random_.next()));
    note(std::to_string(n) + " bytes appended");
  }

  // ---- whole entries and infos: the head is put together anew ----

  // The head from these parts, with counts as given, then padding and the data as it was.
  void rebuild(const std::vector<Part>& first, const std::vector<Part>& second, uint64_t n_tensors,
               uint64_t n_entries) {
    const auto& old = out_.bytes;
    if (old.size() < m_.head_bytes_) {
      return;
    }
    std::vector<std::byte> bytes(old.begin(), old.begin() + 24);
    store(bytes, 8, 8, n_tensors);
    store(bytes, 16, 8, n_entries);
    for (const auto* parts : {&first, &second}) {
      for (const Part& part : *parts) {
        bytes.insert(bytes.end(), old.begin() + static_cast<ptrdiff_t>(part.begin),
                     old.begin() + static_cast<ptrdiff_t>(part.end));
      }
    }
    const auto aligned = [&](size_t n) { return (n + m_.alignment_ - 1) / m_.alignment_ * m_.alignment_; };
    bytes.resize(aligned(bytes.size()));
    const size_t data = std::min(aligned(m_.head_bytes_), old.size());
    bytes.insert(bytes.end(), old.begin() + static_cast<ptrdiff_t>(data), old.end());
    out_.bytes = std::move(bytes);
  }
  void rebuild(const std::vector<Part>& entries, const std::vector<Part>& infos) {
    // Sometimes the counts stay as they were and so become wrong.
    const bool honest = random_.chance(75);
    rebuild(entries, infos, honest ? infos.size() : m_.infos_.size(), honest ? entries.size() : m_.entries_.size());
  }

  // Applies change to the list of entries or of infos and puts the file together again.
  void with_parts(const std::string& what, const std::function<void(std::vector<Part>&)>& change) {
    auto entries = m_.entries_;
    auto infos = m_.infos_;
    const bool of_infos = random_.chance(50);
    auto& parts = of_infos ? infos : entries;
    if (parts.empty()) {
      return;
    }
    change(parts);
    rebuild(entries, infos);
    note((of_infos ? "info " : "entry ") + what);
  }

  void drop_part() {
    with_parts("dropped", [&](auto& parts) {
      // Dropping the last tensor keeps every offset right: a well-formed file without one tensor.
      const size_t i = random_.chance(50) ? parts.size() - 1 : random_.below(parts.size());
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(i));
    });
  }
  void repeat_part() {
    with_parts("repeated", [&](auto& parts) {
      const Part part = parts[random_.below(parts.size())];
      parts.insert(parts.begin() + static_cast<ptrdiff_t>(random_.below(parts.size() + 1)), part);
    });
  }
  void swap_parts() {
    with_parts("swapped with another",
               [&](auto& parts) { std::swap(parts[random_.below(parts.size())], parts[random_.below(parts.size())]); });
  }
  void swap_sections() {
    rebuild(m_.infos_, m_.entries_, m_.infos_.size(), m_.entries_.size());
    note("tensor infos before metadata");
  }

  // One tensor takes another's name, as far as its own length reaches.
  void repeat_name() {
    if (m_.names_.empty()) {
      return;
    }
    const Part from = m_.names_[random_.below(m_.names_.size())];
    const Part to = m_.names_[random_.below(m_.names_.size())];
    const size_t n = std::min(from.end - from.begin, to.end - to.begin);
    for (size_t i = 0; i < n && to.begin + i < out_.bytes.size(); ++i) {
      out_.bytes[to.begin + i] = m_.valid_[from.begin + i];
    }
    note("the name at " + std::to_string(to.begin) + " copied from " + std::to_string(from.begin));
  }

  // Two dims of a tensor change places: mostly a well-formed file with a wrong shape.
  void swap_dims() {
    if (m_.dims_.empty()) {
      return;
    }
    const Part dims = m_.dims_[random_.below(m_.dims_.size())];
    const size_t n = (dims.end - dims.begin) / 8;
    if (n < 2) {
      return flip_bits();
    }
    const size_t a = dims.begin + 8 * random_.below(n);
    const size_t b = dims.begin + 8 * random_.below(n);
    store(out_.bytes, a, 8, load(m_.valid_, b, 8));
    store(out_.bytes, b, 8, load(m_.valid_, a, 8));
    note("dims at " + std::to_string(a) + " and " + std::to_string(b) + " swapped");
  }

  const GgufMutator& m_;
  Random random_;
  MutationZone zone_;
  Mutant out_;
};

Mutant GgufMutator::mutate(uint64_t seed, MutationZone zone) const {
  return MutationRun(*this, seed, zone).run();
}

}  // namespace tessera
