// libFuzzer target: the first byte chooses whole context or sequence, the rest is a state whose checksums are made
// right, so that the numbers behind them are reached. Aborts when what was accepted lies outside the bytes.

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/xxh64.h"
#include "memory/state_format.h"

namespace {

constexpr size_t kHeaderBytes = 64;
constexpr size_t kSectionBytes = 24;

tessera::StateShape shape() {
  tessera::StateShape shape;
  shape.k_type = tessera::DType::kF16;
  shape.v_type = tessera::DType::kQ8_0;
  shape.n_vocab = 10;
  shape.layers = {{2, 8, 32, 0}, {1, 4, 32, 8}};
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  std::vector<std::byte> bytes(size - 1);
  std::transform(data + 1, data + size, bytes.begin(), [](uint8_t byte) { return std::byte{byte}; });
  make_checksums_right(bytes);
  const auto read = tessera::read_state(shape(), data[0] % 2 == 0, bytes);
  if (!read.ok()) {
    CHECK(!read.status().message().empty());
    return 0;
  }
  for (const tessera::StateSequence& sequence : read->sequences) {
    for (size_t l = 0; l < 2; ++l) {
      const uint64_t n_rows = sequence.tokens.size() - static_cast<size_t>(sequence.kv[l].first);
      CHECK(sequence.kv[l].v_offset + n_rows * 34 <= bytes.size());
    }
  }
  CHECK(read->logits_offset + static_cast<uint64_t>(read->n_logits) * 40 <= bytes.size());
  return 0;
}
