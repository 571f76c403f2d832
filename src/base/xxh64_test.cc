#include "base/xxh64.h"

#include <gtest/gtest.h>
#include <set>
#include <string_view>
#include <vector>

namespace tessera {
namespace {

uint64_t of(std::string_view text, uint64_t seed = 0) {
  return xxh64(std::as_bytes(std::span(text)), seed);
}

// Values of the reference program, xxhsum -H64.
TEST(Xxh64, KnownValues) {
  EXPECT_EQ(of(""), 0xEF46DB3751D8E999);
  EXPECT_EQ(of("a"), 0xD24EC4F1A98C6E5B);
  EXPECT_EQ(of("abc"), 0x44BC2CF5AD770999);
  EXPECT_EQ(of("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1);
}

TEST(Xxh64, EveryLengthByteAndSeedCounts) {
  std::set<uint64_t> seen;
  std::vector<std::byte> bytes(70);
  for (size_t n = 0; n <= bytes.size(); ++n) {
    seen.insert(xxh64(std::span(bytes).first(n)));
  }
  for (std::byte& byte : bytes) {
    byte = std::byte{1};
    seen.insert(xxh64(bytes));
    byte = std::byte{0};
  }
  seen.insert(xxh64(bytes, 1));
  EXPECT_EQ(seen.size(), 71U + 70U + 1U);
}

}  // namespace
}  // namespace tessera
