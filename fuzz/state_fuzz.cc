// libFuzzer target: the first byte chooses whole context or sequence, and a model with or without recurrent layers; the
// rest is a state whose checksums are made right, so that the numbers behind them are reached. Aborts when what was
// accepted lies outside the bytes, when the outline of a sequence differs from it, or at the start when a seed is
// refused.

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/xxh64.h"
#include "fuzz/seeds.h"
#include "memory/state_format.h"

namespace {

using tessera::StateContent;
using tessera::StateRec;
using tessera::StateRecLayer;
using tessera::StateSequence;
using tessera::StateShape;

constexpr size_t kHeaderBytes = 64;
constexpr size_t kSectionBytes = 24;

// A state and how it is to be read.
struct Input {
  bool whole = true;
  StateShape shape;
  std::vector<std::byte> bytes;
};

StateShape shape(bool is_recurrent) {
  StateShape shape;
  shape.k_type = tessera::DType::kF16;
  shape.v_type = tessera::DType::kQ8_0;
  shape.n_vocab = 10;
  shape.layers = {{2, 8, 32, 0}, {1, 4, 32, 8}};
  if (is_recurrent) {
    shape.layers.push_back({0, 0, 0, 0});
    shape.rec_layers = {{2, 1, 2, 2, 3, 4}, {3, 1, 1, 1, 1, 2}};
    shape.layers.push_back({0, 0, 0, 0});
  }
  return shape;
}

void make_checksums_right(std::vector<std::byte>& bytes) {
  for (size_t at = kHeaderBytes; at + kSectionBytes <= bytes.size();) {
    uint32_t kind = 0;
    uint64_t n_bytes = 0;
    std::memcpy(&kind, bytes.data() + at, sizeof kind);
    std::memcpy(&n_bytes, bytes.data() + at + 8, sizeof n_bytes);
    if (n_bytes > bytes.size() - at - kSectionBytes) {
      break;
    }
    const uint64_t checksum =
        tessera::xxh64(std::span(bytes).subspan(at + kSectionBytes, n_bytes), uint64_t{kind} << 56 ^ n_bytes);
    std::memcpy(bytes.data() + at + 16, &checksum, sizeof checksum);
    at += kSectionBytes + (n_bytes + 7) / 8 * 8;
  }
  if (bytes.size() >= kHeaderBytes) {
    const uint64_t n_bytes = bytes.size();
    std::memcpy(bytes.data() + 16, &n_bytes, sizeof n_bytes);
    const uint64_t checksum = tessera::xxh64(std::span(bytes).first(56));
    std::memcpy(bytes.data() + 56, &checksum, sizeof checksum);
  }
}

// REQUIRES: data is not empty.
Input decoded(std::span<const uint8_t> data) {
  Input input{.whole = data[0] % 2 == 0, .shape = shape(data[0] / 2 % 2 == 1), .bytes = {}};
  const std::span<const std::byte> bytes = std::as_bytes(data.subspan(1));
  input.bytes.assign(bytes.begin(), bytes.end());
  make_checksums_right(input.bytes);
  return input;
}

// That a part begins at or behind `at` and ends within the bytes; `at` is its end then.
void check_part(uint64_t& at, uint64_t offset, uint64_t n_bytes, const Input& input) {
  CHECK(offset >= at && offset <= input.bytes.size() && n_bytes <= input.bytes.size() - offset);
  at = offset + n_bytes;
}

// at: where the parts before it end.
void check_sequence(const Input& input, const StateSequence& sequence, uint64_t& at) {
  const auto n_tokens = static_cast<int64_t>(sequence.tokens.size());
  CHECK(sequence.kv.size() == input.shape.layers.size());
  for (size_t l = 0; l < sequence.kv.size(); ++l) {
    const tessera::StateLayer& layer = input.shape.layers[l];
    const tessera::StateKv& kv = sequence.kv[l];
    CHECK(kv.first >= 0 && kv.first <= n_tokens);
    const auto n_rows = static_cast<uint64_t>(layer.n_kv_heads * (n_tokens - kv.first));
    check_part(at, kv.k_offset, n_rows * row_bytes(input.shape.k_type, static_cast<uint64_t>(layer.k_dim)), input);
    check_part(at, kv.v_offset, n_rows * row_bytes(input.shape.v_type, static_cast<uint64_t>(layer.v_dim)), input);
  }
  const auto check_rec = [&](const StateRec& rec) {
    uint64_t n_bytes = 0;
    for (const StateRecLayer& layer : input.shape.rec_layers) {
      n_bytes += layer.conv_bytes(rec.length) + static_cast<uint64_t>(layer.n_value_heads) * layer.matrix_bytes();
    }
    check_part(at, rec.offset, n_bytes, input);
  };
  CHECK(sequence.snapshots.empty() || !input.shape.rec_layers.empty());
  int64_t length = 0;
  for (const StateRec& snapshot : sequence.snapshots) {
    CHECK(snapshot.length > length && snapshot.length <= n_tokens);
    length = snapshot.length;
    check_rec(snapshot);
  }
  if (n_tokens > 0 && !input.shape.rec_layers.empty()) {
    CHECK(sequence.rec.length == n_tokens);
    check_rec(sequence.rec);
  }
}

// What the heads alone say: as the whole where that was accepted.
void check_outline(const Input& input, const StateSequence* whole) {
  const auto read_at = [&](uint64_t offset, std::span<std::byte> out) {
    CHECK(offset <= input.bytes.size() && out.size() <= input.bytes.size() - offset);
    std::copy_n(input.bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return tessera::Status();
  };
  const auto outline = tessera::read_state_outline(input.shape, input.bytes.size(), read_at);
  if (whole == nullptr) {
    return;
  }
  CHECK(outline.ok() && outline->tokens == whole->tokens && outline->kv.size() == whole->kv.size());
  CHECK(std::ranges::equal(outline->kv, whole->kv, {}, &tessera::StateKv::first, &tessera::StateKv::first));
  CHECK(std::ranges::equal(outline->snapshots, whole->snapshots, {}, &StateRec::length, &StateRec::length));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  for (const std::string& name : tessera::seed_names("state")) {
    const Input input = decoded(tessera::seed_bytes(name));
    CHECK(tessera::read_state(input.shape, input.whole, input.bytes).ok());  // else run make_seeds.py again
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const Input input = decoded({data, size});
  const auto read = tessera::read_state(input.shape, input.whole, input.bytes);
  check_outline(input, read.ok() && !input.whole ? &read->sequences[0] : nullptr);
  if (!read.ok()) {
    CHECK(!read.status().message().empty());
    return 0;
  }
  uint64_t at = kHeaderBytes;
  for (const StateSequence& sequence : read->sequences) {
    check_sequence(input, sequence, at);
  }
  if (input.whole) {
    check_part(at, read->logits_offset, static_cast<uint64_t>(read->n_logits * input.shape.n_vocab) * sizeof(float),
               input);
  }
  return 0;
}
