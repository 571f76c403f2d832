#include "memory/state_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "base/xxh64.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "TSRSTATE";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kAlignment = 8;

struct Header {
  std::array<char, 8> magic{};
  uint32_t version = 0;
  uint32_t n_sections = 0;
  uint64_t n_bytes = 0;
  ModelFingerprint fingerprint{};
  uint32_t scope = 0;  // 0: a whole context, 1: one sequence
  uint32_t zero = 0;
  uint64_t zeros = 0;
  uint64_t checksum = 0;
};
static_assert(sizeof(Header) == kStateHeaderBytes);

enum class Kind : uint32_t { kMemory = 1, kSequence = 2, kKv = 3, kLogits = 4, kRecurrent = 5 };

struct Section {
  uint32_t kind = 0;
  uint32_t zero = 0;
  uint64_t n_bytes = 0;
  uint64_t checksum = 0;
};
static_assert(sizeof(Section) == 24);

struct MemoryHead {
  uint32_t k_type = 0;
  uint32_t v_type = 0;
  int64_t n_vocab = 0;
  int64_t n_layers = 0;
};
static_assert(sizeof(MemoryHead) == 24);
static_assert(sizeof(StateLayer) == 32);
static_assert(sizeof(StateRecLayer) == 48);

struct SequenceHead {
  int64_t seq = 0;
  int64_t first_position = 0;
  int64_t n_tokens = 0;
};
static_assert(sizeof(SequenceHead) == 24);

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kMemory: return "memory";
    case Kind::kSequence: return "sequence";
    case Kind::kKv: return "kv";
    case Kind::kLogits: return "logits";
    case Kind::kRecurrent: return "recurrent";
  }
  return "unknown";
}

uint64_t header_checksum(const Header& header) {
  return xxh64(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum)));
}

uint64_t section_checksum(const Section& section, std::span<const std::byte> content) {
  return xxh64(content, uint64_t{section.kind} << 56 ^ section.n_bytes);
}

uint64_t k_row_bytes(const StateShape& shape, const StateLayer& layer) {
  return row_bytes(shape.k_type, static_cast<uint64_t>(layer.k_dim));
}
uint64_t v_row_bytes(const StateShape& shape, const StateLayer& layer) {
  return row_bytes(shape.v_type, static_cast<uint64_t>(layer.v_dim));
}

// ---- planning and writing

uint64_t memory_bytes(const StateShape& shape) {
  return sizeof(MemoryHead) + shape.layers.size() * sizeof(StateLayer) + sizeof(int64_t) +
         shape.rec_layers.size() * sizeof(StateRecLayer);
}

uint64_t sequence_bytes(uint64_t n_tokens) {
  return sizeof(SequenceHead) + n_tokens * sizeof(int32_t);
}

// Lays a sequence's rows out from `begin` on, where the list of first positions stands. Bytes of the content; nothing
// when they are more than 64 bits count.
std::optional<uint64_t> lay_out_kv(const StateShape& shape, uint64_t begin, uint64_t n_tokens,
                                   std::vector<StateKv>& kv) {
  std::optional<uint64_t> at = checked_add(begin, shape.layers.size() * sizeof(int64_t));
  const auto take = [&](const StateLayer& layer, uint64_t row, uint64_t n_rows) {
    const uint64_t offset = *at;
    const auto rows = checked_mul(static_cast<uint64_t>(layer.n_kv_heads), n_rows);
    const auto bytes = rows ? checked_mul(*rows, row) : rows;
    at = bytes ? checked_add(*at, *bytes) : bytes;
    return offset;
  };
  for (size_t l = 0; at && l < shape.layers.size(); ++l) {
    const StateLayer& layer = shape.layers[l];
    const uint64_t n_rows = n_tokens - static_cast<uint64_t>(kv[l].first);
    kv[l].k_offset = take(layer, k_row_bytes(shape, layer), n_rows);
    kv[l].v_offset = at ? take(layer, v_row_bytes(shape, layer), n_rows) : 0;
  }
  return at ? std::optional(*at - begin) : at;
}

uint64_t rec_bytes(const StateShape& shape, int64_t length) {
  uint64_t bytes = 0;
  for (const StateRecLayer& layer : shape.rec_layers) {
    bytes += layer.conv_bytes(length) + static_cast<uint64_t>(layer.n_value_heads) * layer.matrix_bytes();
  }
  return bytes;
}

// The same for the recurrent states of a sequence of so many tokens, behind the list of the snapshots' lengths.
std::optional<uint64_t> lay_out_rec(const StateShape& shape, uint64_t begin, uint64_t n_tokens,
                                    StateSequence& sequence) {
  std::optional<uint64_t> at = checked_add(begin, (1 + sequence.snapshots.size()) * sizeof(int64_t));
  const auto take = [&](StateRec& rec) {
    rec.offset = *at;
    at = checked_add(*at, rec_bytes(shape, rec.length));
  };
  for (StateRec& snapshot : sequence.snapshots) {
    if (at) {
      take(snapshot);
    }
  }
  sequence.rec.length = static_cast<int64_t>(n_tokens);
  if (at && sequence.rec.length > 0) {
    take(sequence.rec);
  }
  return at ? std::optional(*at - begin) : at;
}

uint64_t logits_bytes(const StateShape& shape, int64_t n_rows) {
  return sizeof(int64_t) + static_cast<uint64_t>(n_rows * shape.n_vocab) * sizeof(float);
}

// Lays the sections out and calls fn(kind, offset of the content, its bytes, index of the sequence) for each. Returns
// the offset behind the last.
template <typename Fn>
uint64_t walk_sections(const StateShape& shape, StateContent& content, const Fn& fn) {
  uint64_t at = sizeof(Header);
  const auto section = [&](Kind kind, size_t index, const auto& n_bytes_at) {
    const uint64_t begin = at + sizeof(Section);
    const uint64_t n_bytes = n_bytes_at(begin);
    fn(kind, begin, n_bytes, index);
    at = begin + round_up(n_bytes, kAlignment);
  };
  section(Kind::kMemory, 0, [&](uint64_t) { return memory_bytes(shape); });
  for (size_t s = 0; s < content.sequences.size(); ++s) {
    StateSequence& sequence = content.sequences[s];
    section(Kind::kSequence, s, [&](uint64_t) { return sequence_bytes(sequence.tokens.size()); });
    section(Kind::kKv, s, [&](uint64_t begin) {
      const auto n_bytes = lay_out_kv(shape, begin, sequence.tokens.size(), sequence.kv);
      CHECK(n_bytes);  // what a cache holds can be counted
      return *n_bytes;
    });
    if (!shape.rec_layers.empty()) {
      section(Kind::kRecurrent, s, [&](uint64_t begin) {
        const auto n_bytes = lay_out_rec(shape, begin, sequence.tokens.size(), sequence);
        CHECK(n_bytes);
        return *n_bytes;
      });
    }
  }
  if (content.whole) {
    section(Kind::kLogits, 0, [&](uint64_t begin) {
      content.logits_offset = begin + sizeof(int64_t);
      return logits_bytes(shape, content.n_logits);
    });
  }
  return at;
}

template <typename T>
void put(std::span<std::byte> out, uint64_t at, const T* values, size_t n = 1) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (n > 0) {
    std::memcpy(out.subspan(at, n * sizeof(T)).data(), values, n * sizeof(T));
  }
}

void put_memory(const StateShape& shape, std::span<std::byte> out, uint64_t at) {
  const MemoryHead head{static_cast<uint32_t>(shape.k_type), static_cast<uint32_t>(shape.v_type), shape.n_vocab,
                        static_cast<int64_t>(shape.layers.size())};
  put(out, at, &head);
  at += sizeof head;
  put(out, at, shape.layers.data(), shape.layers.size());
  at += shape.layers.size() * sizeof(StateLayer);
  const auto n_rec_layers = static_cast<int64_t>(shape.rec_layers.size());
  put(out, at, &n_rec_layers);
  put(out, at + sizeof n_rec_layers, shape.rec_layers.data(), shape.rec_layers.size());
}

void put_sequence(const StateSequence& sequence, std::span<std::byte> out, uint64_t at) {
  const SequenceHead head{sequence.seq, 0, static_cast<int64_t>(sequence.tokens.size())};
  put(out, at, &head);
  put(out, at + sizeof head, sequence.tokens.data(), sequence.tokens.size());
}

void put_rec_head(const StateSequence& sequence, std::span<std::byte> out, uint64_t at) {
  const auto n_snapshots = static_cast<int64_t>(sequence.snapshots.size());
  put(out, at, &n_snapshots);
  for (const StateRec& snapshot : sequence.snapshots) {
    put(out, at += sizeof(int64_t), &snapshot.length);
  }
}

// ---- reading

Status damaged(uint64_t at, std::string_view what) {
  return {ErrorCode::kInvalidData, fmt::format("the state is damaged at byte {}: {}", at, what)};
}

std::string hex(const ModelFingerprint& fingerprint) {
  std::string text;
  for (const uint8_t byte : fingerprint) {
    fmt::format_to(std::back_inserter(text), "{:02x}", byte);
  }
  return text;
}

std::string type_text(uint32_t type) {
  const auto dtype = dtype_from_gguf(type);
  return dtype ? std::string(dtype_name(*dtype)) : fmt::format("type {}", type);
}

// head: as check_state_header() takes it.
Status check_header(const StateShape& shape, bool whole, std::span<const std::byte> head, uint64_t n_bytes) {
  TRY(check_state_header(head, n_bytes));
  Header header;
  std::memcpy(&header, head.data(), sizeof header);
  if (header.fingerprint != shape.fingerprint) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("the state was saved with another model (fingerprint {}; this model has {})",
                        hex(header.fingerprint), hex(shape.fingerprint))};
  }
  if ((header.scope == 0) != whole) {
    return {ErrorCode::kInvalidArgument, whole ? "the state is that of one sequence, not of a whole context"
                                               : "the state is that of a whole context, not of one sequence"};
  }
  return {};
}

Status check_cache_types(const StateShape& shape, const MemoryHead& head) {
  if (head.k_type != static_cast<uint32_t>(shape.k_type) || head.v_type != static_cast<uint32_t>(shape.v_type)) {
    return {ErrorCode::kUnsupported,
            fmt::format("the state has keys as {} and values as {}, this context has {} and {}; states are not "
                        "converted, so set --cache-type-k and --cache-type-v as they were",
                        type_text(head.k_type), type_text(head.v_type), dtype_name(shape.k_type),
                        dtype_name(shape.v_type))};
  }
  return {};
}

// Walks the bytes from front to back.
class Reader {
 public:
  Reader(const StateShape& shape, bool whole, std::span<const std::byte> bytes)
      : shape_(shape), whole_(whole), bytes_(bytes) {}

  Result<StateContent> run() {
    TRY(read_header());
    TRY(read_memory());
    const uint32_t n_others = whole_ ? 2 : 1;                           // memory, logits
    const uint32_t n_per_sequence = shape_.rec_layers.empty() ? 2 : 3;  // sequence, kv, recurrent
    if (n_sections_ < n_others || (n_sections_ - n_others) % n_per_sequence != 0 ||
        (!whole_ && n_sections_ != n_others + n_per_sequence)) {
      return damaged(offsetof(Header, n_sections), fmt::format("{} sections", n_sections_));
    }
    for (uint32_t s = 0; s < (n_sections_ - n_others) / n_per_sequence; ++s) {
      TRY(read_sequence());
      TRY(read_kv());
      if (!shape_.rec_layers.empty()) {
        TRY(read_recurrent());
      }
    }
    if (whole_) {
      TRY(read_logits());
    }
    if (at_ != bytes_.size()) {
      return damaged(at_, fmt::format("{} bytes behind the last section", bytes_.size() - at_));
    }
    content_.whole = whole_;
    content_.n_bytes = bytes_.size();
    return std::move(content_);
  }

 private:
  // REQUIRES: the bytes are there.
  template <typename T>
  T get(uint64_t at) const {
    T value;
    std::memcpy(&value, bytes_.subspan(at, sizeof value).data(), sizeof value);
    return value;
  }

  Status read_header() {
    TRY(check_header(shape_, whole_, bytes_, bytes_.size()));
    const auto header = get<Header>(0);
    n_sections_ = header.n_sections;
    at_ = sizeof(Header);
    return {};
  }

  // Enters the next section, which must be of this kind: content_at_, content_bytes_.
  Status enter(Kind kind) {
    if (bytes_.size() - at_ < sizeof(Section)) {
      return damaged(at_, fmt::format("section {} is missing", kind_name(kind)));
    }
    const auto section = get<Section>(at_);
    const uint64_t room = bytes_.size() - at_ - sizeof(Section);
    if (section.zero != 0 || section.n_bytes > room || round_up(section.n_bytes, kAlignment) > room) {
      return damaged(at_, fmt::format("a section of {} bytes where {} are left", section.n_bytes, room));
    }
    content_at_ = at_ + sizeof(Section);
    content_bytes_ = section.n_bytes;
    if (section.checksum != section_checksum(section, bytes_.subspan(content_at_, content_bytes_))) {
      return damaged(at_, fmt::format("section {} does not match its checksum", kind_name(kind)));
    }
    if (section.kind != static_cast<uint32_t>(kind)) {
      if (section.kind >= 1 && section.kind <= static_cast<uint32_t>(Kind::kRecurrent)) {
        return damaged(at_, fmt::format("section {} where {} is due", kind_name(static_cast<Kind>(section.kind)),
                                        kind_name(kind)));
      }
      return {ErrorCode::kUnsupported,
              fmt::format("the state has a section of kind {} at byte {}, which this build does not know", section.kind,
                          at_)};
    }
    at_ = content_at_ + round_up(content_bytes_, kAlignment);
    for (uint64_t i = content_at_ + content_bytes_; i < at_; ++i) {
      if (bytes_[i] != std::byte{0}) {
        return damaged(i, "padding that is not 0");
      }
    }
    return {};
  }

  // The content's size must be what its head says.
  Status expect_bytes(Kind kind, std::optional<uint64_t> wanted) const {
    if (!wanted || content_bytes_ != *wanted) {
      return damaged(content_at_, fmt::format("section {} has {} bytes, not as many as its content takes",
                                              kind_name(kind), content_bytes_));
    }
    return {};
  }

  Status read_memory() {
    TRY(enter(Kind::kMemory));
    if (content_bytes_ < sizeof(MemoryHead)) {
      return expect_bytes(Kind::kMemory, sizeof(MemoryHead));
    }
    const auto head = get<MemoryHead>(content_at_);
    TRY(check_cache_types(shape_, head));
    TRY(expect_bytes(Kind::kMemory, memory_bytes(shape_)));
    bool same = head.n_vocab == shape_.n_vocab && head.n_layers == static_cast<int64_t>(shape_.layers.size());
    uint64_t at = content_at_ + sizeof head;
    const auto expect = [&](const auto& value) {
      same = same && get<std::remove_cvref_t<decltype(value)>>(at) == value;
      at += sizeof value;
    };
    std::ranges::for_each(shape_.layers, expect);
    expect(static_cast<int64_t>(shape_.rec_layers.size()));
    std::ranges::for_each(shape_.rec_layers, expect);
    return same ? Status() : damaged(content_at_, "its layers are not those of the model that its header names");
  }

  Status read_sequence() {
    TRY(enter(Kind::kSequence));
    if (content_bytes_ < sizeof(SequenceHead)) {
      return expect_bytes(Kind::kSequence, sizeof(SequenceHead));
    }
    const auto head = get<SequenceHead>(content_at_);
    const int64_t least = content_.sequences.empty() ? 0 : content_.sequences.back().seq + int64_t{1};
    const int64_t most = whole_ ? std::numeric_limits<int32_t>::max() : 0;
    if (head.seq < least || head.seq > most || head.first_position != 0 || head.n_tokens < (whole_ ? 1 : 0)) {
      return damaged(content_at_, fmt::format("sequence {} of {} tokens from position {}", head.seq, head.n_tokens,
                                              head.first_position));
    }
    const auto ids = checked_mul(static_cast<uint64_t>(head.n_tokens), sizeof(int32_t));
    TRY(expect_bytes(Kind::kSequence, ids ? checked_add(*ids, sizeof head) : ids));
    StateSequence sequence;
    sequence.seq = static_cast<int32_t>(head.seq);
    sequence.tokens.resize(static_cast<size_t>(head.n_tokens));
    for (size_t i = 0; i < sequence.tokens.size(); ++i) {
      const auto id = get<int32_t>(content_at_ + sizeof head + i * sizeof(int32_t));
      if (id < 0 || id >= shape_.n_vocab) {
        return damaged(content_at_, fmt::format("token {} in a vocabulary of {}", id, shape_.n_vocab));
      }
      sequence.tokens[i] = id;
    }
    content_.sequences.push_back(std::move(sequence));
    return {};
  }

  Status read_kv() {
    TRY(enter(Kind::kKv));
    StateSequence& sequence = content_.sequences.back();
    const size_t n_layers = shape_.layers.size();
    if (content_bytes_ < n_layers * sizeof(int64_t)) {
      return expect_bytes(Kind::kKv, n_layers * sizeof(int64_t));
    }
    const auto n_tokens = static_cast<int64_t>(sequence.tokens.size());
    sequence.kv.resize(n_layers);
    for (size_t l = 0; l < n_layers; ++l) {
      const auto first = get<int64_t>(content_at_ + l * sizeof(int64_t));
      if (first < 0 || first > n_tokens || (first > 0 && shape_.layers[l].window == 0)) {
        return damaged(content_at_, fmt::format("layer {} holds {} tokens from position {}, with a window of {}", l,
                                                n_tokens, first, shape_.layers[l].window));
      }
      sequence.kv[l].first = first;
    }
    return expect_bytes(Kind::kKv, lay_out_kv(shape_, content_at_, static_cast<uint64_t>(n_tokens), sequence.kv));
  }

  Status read_recurrent() {
    TRY(enter(Kind::kRecurrent));
    StateSequence& sequence = content_.sequences.back();
    constexpr uint64_t kNumber = sizeof(int64_t);
    if (content_bytes_ < kNumber) {
      return expect_bytes(Kind::kRecurrent, kNumber);
    }
    const auto n_snapshots = get<int64_t>(content_at_);
    if (n_snapshots < 0 || static_cast<uint64_t>(n_snapshots) > content_bytes_ / kNumber - 1) {
      return damaged(content_at_, fmt::format("{} snapshots in {} bytes", n_snapshots, content_bytes_));
    }
    const auto n_tokens = static_cast<int64_t>(sequence.tokens.size());
    int64_t last = 0;
    for (int64_t i = 0; i < n_snapshots; ++i) {
      const auto length = get<int64_t>(content_at_ + static_cast<uint64_t>(1 + i) * kNumber);
      if (length <= last || length > n_tokens) {
        return damaged(content_at_, fmt::format("a snapshot of {} tokens behind one of {}, where the sequence has {}",
                                                length, last, n_tokens));
      }
      sequence.snapshots.push_back({length, 0});
      last = length;
    }
    return expect_bytes(Kind::kRecurrent, lay_out_rec(shape_, content_at_, sequence.tokens.size(), sequence));
  }

  Status read_logits() {
    TRY(enter(Kind::kLogits));
    if (content_bytes_ < sizeof(int64_t)) {
      return expect_bytes(Kind::kLogits, sizeof(int64_t));
    }
    const auto n_rows = get<int64_t>(content_at_);
    const uint64_t row = static_cast<uint64_t>(shape_.n_vocab) * sizeof(float);
    const auto rows = n_rows < 0 ? std::nullopt : checked_mul(static_cast<uint64_t>(n_rows), row);
    TRY(expect_bytes(Kind::kLogits, rows ? checked_add(*rows, sizeof n_rows) : rows));
    content_.n_logits = n_rows;
    content_.logits_offset = content_at_ + sizeof n_rows;
    return {};
  }

  const StateShape& shape_;
  bool whole_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
  uint64_t content_at_ = 0;
  uint64_t content_bytes_ = 0;
  uint32_t n_sections_ = 0;
  StateContent content_;
};

// Reads the beginnings of the sections of one sequence's state. Nothing is as long as a number says before all numbers
// fit each other and the bytes that there are: a damaged one costs no memory.
class OutlineReader {
 public:
  OutlineReader(const StateShape& shape, uint64_t n_bytes, const StateReadAt& read_at)
      : shape_(shape), n_bytes_(n_bytes), read_at_(read_at) {}

  Result<StateSequence> run() {
    std::array<std::byte, kStateHeaderBytes> head{};
    const std::span<std::byte> begin = std::span(head).first(std::min<uint64_t>(head.size(), n_bytes_));
    TRY(read_at_(0, begin));
    TRY(check_header(shape_, false, begin, n_bytes_));
    at_ = sizeof(Header);
    StateSequence sequence;
    TRY(read_memory());
    TRY(read_sequence());
    TRY(read_first(sequence));
    if (!shape_.rec_layers.empty()) {
      TRY(read_snapshots(sequence));
    }
    if (at_ != n_bytes_) {
      return damaged(at_, fmt::format("{} bytes, and its sections end here", n_bytes_));
    }
    TRY(read_tokens(sequence));
    return sequence;
  }

 private:
  template <typename T>
  Status get(uint64_t at, std::span<T> out) const {
    if (at > n_bytes_ || out.size_bytes() > n_bytes_ - at) {
      return damaged(at, "it ends too soon");
    }
    return read_at_(at, std::as_writable_bytes(out));
  }

  // Enters the next section: content_at_, content_bytes_.
  Status enter(Kind kind) {
    Section section;
    TRY(get(at_, std::span(&section, 1)));
    content_at_ = at_ + sizeof section;
    content_bytes_ = section.n_bytes;
    checksum_ = section.checksum;
    if (section.kind != static_cast<uint32_t>(kind) || section.n_bytes > n_bytes_ - content_at_) {
      return damaged(at_, fmt::format("section {} is missing", kind_name(kind)));
    }
    at_ = content_at_ + round_up(content_bytes_, kAlignment);
    return {};
  }

  // The content's size must be what its head says.
  Status expect_bytes(Kind kind, std::optional<uint64_t> wanted) const {
    return wanted && content_bytes_ == *wanted
               ? Status()
               : damaged(content_at_, fmt::format("section {} has {} bytes, not as many as its content takes",
                                                  kind_name(kind), content_bytes_));
  }

  Status read_memory() {
    TRY(enter(Kind::kMemory));
    MemoryHead head;
    TRY(get(content_at_, std::span(&head, 1)));
    TRY(check_cache_types(shape_, head));
    return expect_bytes(Kind::kMemory, memory_bytes(shape_));
  }

  // How many tokens there are; read_tokens() reads them.
  Status read_sequence() {
    TRY(enter(Kind::kSequence));
    SequenceHead head;
    TRY(get(content_at_, std::span(&head, 1)));
    const auto ids =
        head.n_tokens < 0 ? std::nullopt : checked_mul(static_cast<uint64_t>(head.n_tokens), sizeof(int32_t));
    TRY(expect_bytes(Kind::kSequence, ids ? checked_add(*ids, sizeof head) : ids));
    n_tokens_ = static_cast<uint64_t>(head.n_tokens);
    tokens_at_ = content_at_;
    tokens_checksum_ = checksum_;
    return {};
  }

  Status read_tokens(StateSequence& sequence) const {
    std::vector<std::byte> content(sequence_bytes(n_tokens_));
    TRY(get(tokens_at_, std::span(content)));
    const Section section{static_cast<uint32_t>(Kind::kSequence), 0, content.size(), 0};
    if (tokens_checksum_ != section_checksum(section, content)) {
      return damaged(tokens_at_, "its tokens do not match their checksum");
    }
    sequence.tokens.resize(n_tokens_);
    if (n_tokens_ > 0) {  // no pointer to no tokens for memcpy
      std::memcpy(sequence.tokens.data(), content.data() + sizeof(SequenceHead), n_tokens_ * sizeof(int32_t));
    }
    return {};
  }

  Status read_first(StateSequence& sequence) {
    TRY(enter(Kind::kKv));
    std::vector<int64_t> first(shape_.layers.size());
    TRY(get(content_at_, std::span(first)));
    for (size_t l = 0; l < first.size(); ++l) {
      if (first[l] < 0 || std::cmp_greater(first[l], n_tokens_) || (first[l] > 0 && shape_.layers[l].window == 0)) {
        return damaged(content_at_, fmt::format("layer {} begins at position {}", l, first[l]));
      }
      sequence.kv.push_back({first[l], 0, 0});
    }
    return expect_bytes(Kind::kKv, lay_out_kv(shape_, content_at_, n_tokens_, sequence.kv));
  }

  Status read_snapshots(StateSequence& sequence) {
    TRY(enter(Kind::kRecurrent));
    int64_t n_snapshots = 0;
    TRY(get(content_at_, std::span(&n_snapshots, 1)));
    // Each takes its length and a state.
    if (n_snapshots < 0 ||
        std::cmp_greater(n_snapshots, content_bytes_ / (sizeof n_snapshots + rec_bytes(shape_, 0)))) {
      return damaged(content_at_, fmt::format("{} snapshots in {} bytes", n_snapshots, content_bytes_));
    }
    std::vector<int64_t> lengths(static_cast<size_t>(n_snapshots));
    TRY(get(content_at_ + sizeof n_snapshots, std::span(lengths)));
    int64_t last = 0;
    for (const int64_t length : lengths) {
      if (length <= last || std::cmp_greater(length, n_tokens_)) {
        return damaged(content_at_, fmt::format("a snapshot of {} tokens behind one of {}", length, last));
      }
      sequence.snapshots.push_back({length, 0});
      last = length;
    }
    return expect_bytes(Kind::kRecurrent, lay_out_rec(shape_, content_at_, n_tokens_, sequence));
  }

  const StateShape& shape_;
  uint64_t n_bytes_;
  const StateReadAt& read_at_;
  uint64_t at_ = 0;
  uint64_t content_at_ = 0;
  uint64_t content_bytes_ = 0;
  uint64_t checksum_ = 0;
  uint64_t n_tokens_ = 0;
  uint64_t tokens_at_ = 0;
  uint64_t tokens_checksum_ = 0;
};

}  // namespace

Status check_state_header(std::span<const std::byte> head, uint64_t n_bytes) {
  if (head.size() < sizeof(Header)) {
    return {ErrorCode::kInvalidData,
            fmt::format("{} bytes are no saved state, whose header alone has {}", n_bytes, sizeof(Header))};
  }
  Header header;
  std::memcpy(&header, head.data(), sizeof header);
  if (std::string_view(header.magic.data(), header.magic.size()) != kMagic) {
    return {ErrorCode::kInvalidData, fmt::format("this is no saved state: it does not begin with {}", kMagic)};
  }
  if (header.version != kVersion) {
    return {ErrorCode::kUnsupported,
            fmt::format("the state has format version {}; this build knows {}", header.version, kVersion)};
  }
  if (header.checksum != header_checksum(header) || header.zero != 0 || header.zeros != 0 || header.scope > 1) {
    return damaged(0, "its header does not match its checksum");
  }
  if (header.n_bytes != n_bytes) {
    return {ErrorCode::kInvalidData,
            fmt::format("the state should have {} bytes and has {}; it was cut short or joined with something else",
                        header.n_bytes, n_bytes)};
  }
  return {};
}

void plan_state(const StateShape& shape, StateContent& content) {
  content.n_bytes = walk_sections(shape, content, [](Kind, uint64_t, uint64_t, size_t) {});
}

void write_state(const StateShape& shape, const StateContent& content, std::span<std::byte> out) {
  CHECK(out.size() == content.n_bytes);
  StateContent planned = content;
  uint32_t n_sections = 0;
  walk_sections(shape, planned, [&](Kind kind, uint64_t begin, uint64_t n_bytes, size_t s) {
    ++n_sections;
    const Section section{static_cast<uint32_t>(kind), 0, n_bytes, 0};
    put(out, begin - sizeof section, &section);
    std::ranges::fill(out.subspan(begin + n_bytes, round_up(n_bytes, kAlignment) - n_bytes), std::byte{0});
    switch (kind) {
      case Kind::kMemory: put_memory(shape, out, begin); break;
      case Kind::kSequence: put_sequence(content.sequences[s], out, begin); break;
      case Kind::kKv:
        for (size_t l = 0; l < shape.layers.size(); ++l) {
          put(out, begin + l * sizeof(int64_t), &content.sequences[s].kv[l].first);
        }
        break;
      case Kind::kRecurrent: put_rec_head(content.sequences[s], out, begin); break;
      case Kind::kLogits: put(out, begin, &content.n_logits); break;
    }
  });
  Header header;
  kMagic.copy(header.magic.data(), kMagic.size());
  header.version = kVersion;
  header.n_sections = n_sections;
  header.n_bytes = out.size();
  header.fingerprint = shape.fingerprint;
  header.scope = content.whole ? 0 : 1;
  put(out, 0, &header);
}

void seal_state(std::span<std::byte> out) {
  Header header;
  std::memcpy(&header, out.data(), sizeof header);
  uint64_t at = sizeof header;
  for (uint32_t s = 0; s < header.n_sections; ++s) {
    Section section;
    std::memcpy(&section, out.subspan(at, sizeof section).data(), sizeof section);
    section.checksum = section_checksum(section, out.subspan(at + sizeof section, section.n_bytes));
    put(out, at, &section);
    at += sizeof section + round_up(section.n_bytes, kAlignment);
  }
  header.checksum = header_checksum(header);
  put(out, 0, &header);
}

Result<StateSequence> read_state_outline(const StateShape& shape, uint64_t n_bytes, const StateReadAt& read_at) {
  return OutlineReader(shape, n_bytes, read_at).run();
}

Result<StateContent> read_state(const StateShape& shape, bool whole, std::span<const std::byte> bytes) {
  return Reader(shape, whole, bytes).run();
}

}  // namespace tessera
