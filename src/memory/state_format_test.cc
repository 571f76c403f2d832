#include "memory/state_format.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "base/xxh64.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StateShape small_shape() {
  StateShape shape;
  shape.fingerprint = {1, 2, 3, 4};
  shape.k_type = DType::kF16;
  shape.v_type = DType::kQ8_0;
  shape.n_vocab = 10;
  shape.layers = {{2, 8, 32, 0}, {1, 4, 32, 8}};
  return shape;
}

StateContent two_sequences() {
  StateContent content;
  content.sequences = {{1, {3, 4, 5}, {{0}, {0}}}, {6, {7, 8, 9, 0, 1}, {{0}, {2}}}};
  content.n_logits = 2;
  return content;
}

// With a layer of recurrent state: 8 channels, two matrices of 16 bytes, up to two inputs.
StateShape hybrid_shape() {
  StateShape shape = small_shape();
  shape.rec_layers = {{1, 1, 2, 2, 2, 3}};
  return shape;
}

StateContent hybrid_sequences() {
  StateContent content = two_sequences();
  content.sequences[0].snapshots = {{1, 0}};
  content.sequences[1].snapshots = {{2, 0}, {5, 0}};
  return content;
}

// Planned, written, every byte that the caller owns filled from `seed` on, sealed.
std::vector<std::byte> saved(const StateShape& shape, StateContent& content, uint8_t seed = 1) {
  plan_state(shape, content);
  std::vector<std::byte> bytes(content.n_bytes, std::byte{0xEE});
  uint8_t next = seed;
  for (std::byte& byte : bytes) {
    byte = std::byte{next++};
  }
  write_state(shape, content, bytes);
  seal_state(bytes);
  return bytes;
}

// Makes checksums right again, as somebody would who means harm.
void reseal(std::vector<std::byte>& bytes) {
  const uint64_t checksum = xxh64(std::span(bytes).first(56));
  std::memcpy(bytes.data() + 56, &checksum, sizeof checksum);
}

template <typename T>
void set(std::vector<std::byte>& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

Status error_of(const StateShape& shape, const std::vector<std::byte>& bytes, bool whole = true) {
  return read_state(shape, whole, bytes).status();
}

TEST(StateFormat, ReadsWhatWasWritten) {
  const StateShape shape = small_shape();
  StateContent content = two_sequences();
  const std::vector<std::byte> bytes = saved(shape, content);
  const auto read = read_state(shape, true, bytes);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->n_bytes, bytes.size());
  EXPECT_EQ(read->n_logits, 2);
  EXPECT_EQ(read->logits_offset, content.logits_offset);
  ASSERT_EQ(read->sequences.size(), 2U);
  EXPECT_EQ(read->sequences[0].seq, 1);
  EXPECT_EQ(read->sequences[1].seq, 6);
  EXPECT_THAT(read->sequences[1].tokens, ElementsAre(7, 8, 9, 0, 1));
  EXPECT_EQ(read->sequences[1].kv[1].first, 2);
  for (size_t s = 0; s < 2; ++s) {
    for (size_t l = 0; l < 2; ++l) {
      EXPECT_EQ(read->sequences[s].kv[l].k_offset, content.sequences[s].kv[l].k_offset);
      EXPECT_EQ(read->sequences[s].kv[l].v_offset, content.sequences[s].kv[l].v_offset);
    }
  }
}

// The layout by hand: what a reader of the header comment would compute.
TEST(StateFormat, BytesLieWhereTheCommentSays) {
  const StateShape shape = small_shape();
  StateContent content = two_sequences();
  const std::vector<std::byte> bytes = saved(shape, content);
  const uint64_t memory = 64 + 24;
  const uint64_t sequence = memory + 24 + 2 * 32 + 8 + 24;
  const uint64_t kv = sequence + 24 + 3 * 4 + 4 + 24;
  EXPECT_EQ(content.sequences[0].kv[0].k_offset, kv + 2 * 8);
  EXPECT_EQ(content.sequences[0].kv[0].v_offset, kv + 2 * 8 + 2 * 3 * 16);
  EXPECT_EQ(content.sequences[0].kv[1].k_offset, kv + 2 * 8 + 2 * 3 * 16 + 2 * 3 * 34);
  EXPECT_EQ(std::memcmp(bytes.data(), "TSRSTATE", 8), 0);
  EXPECT_EQ(bytes[8], std::byte{1});
  EXPECT_EQ(bytes[12], std::byte{6});  // sections
  int32_t token = 0;
  std::memcpy(&token, bytes.data() + sequence + 24 + 4, sizeof token);
  EXPECT_EQ(token, 4);
  EXPECT_EQ(bytes.size() % 8, 0U);
}

TEST(StateFormat, OneSequenceHasNoNumberAndNoLogits) {
  const StateShape shape = small_shape();
  StateContent content;
  content.whole = false;
  content.sequences = {{0, {}, {{0}, {0}}}};
  const std::vector<std::byte> empty = saved(shape, content);
  ASSERT_TRUE(read_state(shape, false, empty).ok());
  content.sequences = {{0, {5}, {{0}, {0}}}};
  const std::vector<std::byte> bytes = saved(shape, content);
  const auto read = read_state(shape, false, bytes);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_THAT(read->sequences[0].tokens, ElementsAre(5));
  EXPECT_EQ(error_of(shape, bytes, true).code(), ErrorCode::kInvalidArgument);
  StateContent whole = two_sequences();
  EXPECT_THAT(error_of(shape, saved(shape, whole), false).message(), HasSubstr("a whole context"));
}

TEST(StateFormat, RefusesWhatIsForeignAndSaysWhatWasFound) {
  const StateShape shape = small_shape();
  StateContent content = two_sequences();
  const std::vector<std::byte> good = saved(shape, content);
  StateShape other = shape;
  other.fingerprint[15] = 9;
  EXPECT_EQ(error_of(other, good).code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error_of(other, good).message(), HasSubstr("another model (fingerprint 01020304"));
  other = shape;
  other.k_type = DType::kF32;
  EXPECT_EQ(error_of(other, good).code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error_of(other, good).message(), HasSubstr("keys as f16 and values as q8_0"));
  other = shape;
  other.layers[1].window = 9;
  EXPECT_EQ(error_of(other, good).code(), ErrorCode::kInvalidData);
  other.layers.pop_back();
  EXPECT_EQ(error_of(other, good).code(), ErrorCode::kInvalidData);

  std::vector<std::byte> bad = good;
  set(bad, 8, uint32_t{2});
  EXPECT_THAT(error_of(shape, bad).message(), HasSubstr("format version 2"));
  EXPECT_EQ(error_of(shape, bad).code(), ErrorCode::kUnsupported);
  bad = good;
  bad[0] = std::byte{'G'};
  EXPECT_THAT(error_of(shape, bad).message(), HasSubstr("no saved state"));
  bad = good;  // a kind of a later version, with its checksum
  set(bad, 64, uint32_t{6});
  uint64_t n_bytes = 0;
  std::memcpy(&n_bytes, bad.data() + 72, sizeof n_bytes);
  set(bad, 80, xxh64(std::span(bad).subspan(88, n_bytes), uint64_t{6} << 56 ^ n_bytes));
  EXPECT_EQ(error_of(shape, bad).code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error_of(shape, bad).message(), HasSubstr("section of kind 6"));
}

TEST(StateFormat, RecurrentStateLiesBehindTheCacheWithItsSnapshots) {
  const StateShape shape = hybrid_shape();
  StateContent content = hybrid_sequences();
  const std::vector<std::byte> bytes = saved(shape, content);
  const auto read = read_state(shape, true, bytes);
  ASSERT_TRUE(read.ok()) << read.status().message();
  const StateSequence& first = read->sequences[0];
  const uint64_t kv_end = first.kv[1].v_offset + 1 * 3 * 34;
  const uint64_t begin = (kv_end + 7) / 8 * 8 + 24;
  ASSERT_EQ(first.snapshots.size(), 1U);
  EXPECT_EQ(first.snapshots[0].length, 1);
  EXPECT_EQ(first.snapshots[0].offset, begin + 2 * 8);
  EXPECT_EQ(first.rec.length, 3);
  EXPECT_EQ(first.rec.offset, begin + 2 * 8 + 1 * 8 * 4 + 2 * 16);
  const StateSequence& second = read->sequences[1];
  ASSERT_EQ(second.snapshots.size(), 2U);
  EXPECT_EQ(second.snapshots[1].offset - second.snapshots[0].offset, 2U * 8 * 4 + 2 * 16);
  EXPECT_EQ(second.rec.offset - second.snapshots[1].offset, 2U * 8 * 4 + 2 * 16);

  StateContent bad = hybrid_sequences();
  bad.sequences[0].snapshots[0].length = 4;
  EXPECT_THAT(error_of(shape, saved(shape, bad)).message(), HasSubstr("a snapshot of 4 tokens"));
  bad = hybrid_sequences();
  std::swap(bad.sequences[1].snapshots[0], bad.sequences[1].snapshots[1]);
  EXPECT_THAT(error_of(shape, saved(shape, bad)).message(), HasSubstr("2 tokens behind one of 5"));
  EXPECT_EQ(error_of(small_shape(), bytes).code(), ErrorCode::kInvalidData);
  StateShape other = shape;
  other.rec_layers[0].n_taps = 4;
  EXPECT_THAT(error_of(other, bytes).message(), HasSubstr("its layers are not those"));

  StateContent empty;
  empty.whole = false;
  empty.sequences = {{0, {}, {{0}, {0}}}};
  EXPECT_TRUE(read_state(shape, false, saved(shape, empty)).ok());
}

StateReadAt reader_of(std::span<const std::byte> bytes) {
  return [bytes](uint64_t at, std::span<std::byte> out) -> Status {
    const auto part = bytes.subspan(at, out.size());
    std::copy(part.begin(), part.end(), out.begin());
    return {};
  };
}

TEST(StateFormat, AnOutlineIsReadFromTheHeadsAlone) {
  const StateShape shape = hybrid_shape();
  StateContent content;
  content.whole = false;
  content.sequences = {{0, {7, 8, 9, 0, 1}, {{0}, {2}}, {{2, 0}, {5, 0}}}};
  std::vector<std::byte> bytes = saved(shape, content);
  bytes[content.sequences[0].kv[1].k_offset] ^= std::byte{1};  // not looked at
  const auto outline = read_state_outline(shape, bytes.size(), reader_of(bytes));
  ASSERT_TRUE(outline.ok()) << outline.status().message();
  EXPECT_THAT(outline->tokens, ElementsAre(7, 8, 9, 0, 1));
  ASSERT_EQ(outline->kv.size(), 2u);
  EXPECT_EQ(outline->kv[1].first, 2);
  ASSERT_EQ(outline->snapshots.size(), 2u);
  EXPECT_EQ(outline->snapshots[1].length, 5);

  StateShape other = shape;
  other.fingerprint[0] ^= 1;
  EXPECT_EQ(read_state_outline(other, bytes.size(), reader_of(bytes)).status().code(), ErrorCode::kInvalidArgument);
  other = shape;
  other.k_type = DType::kF32;
  EXPECT_EQ(read_state_outline(other, bytes.size(), reader_of(bytes)).status().code(), ErrorCode::kUnsupported);
  for (size_t n = 0; n < bytes.size(); ++n) {
    const std::span<const std::byte> cut = std::span(bytes).first(n);
    EXPECT_EQ(read_state_outline(shape, n, reader_of(cut)).status().code(), ErrorCode::kInvalidData) << n;
  }
  // Whatever stands in the heads, nothing outside of the bytes is read.
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> damaged = bytes;
    damaged[64 + random() % (damaged.size() - 64)] = static_cast<std::byte>(random());
    (void)read_state_outline(shape, damaged.size(), reader_of(damaged));
  }
}

TEST(StateFormat, AnOutlineOfNoTokensIsEmpty) {
  for (const StateShape& shape : {small_shape(), hybrid_shape()}) {
    StateContent content;
    content.whole = false;
    content.sequences = {{0, {}, {{0}, {0}}}};
    const std::vector<std::byte> bytes = saved(shape, content);
    const auto outline = read_state_outline(shape, bytes.size(), reader_of(bytes));
    ASSERT_TRUE(outline.ok()) << outline.status().message();
    EXPECT_TRUE(outline->tokens.empty() && outline->snapshots.empty());
    EXPECT_EQ(outline->kv.size(), 2u);
  }
}

// A file may have any size, without as many bytes on the disk.
TEST(StateFormat, AnOutlineAllocatesNothingThatADamagedNumberSays) {
  const StateShape shape = hybrid_shape();
  StateContent content;
  content.whole = false;
  content.sequences = {{0, {7, 8, 9, 0, 1}, {{0}, {2}}, {{2, 0}, {5, 0}}}};
  const std::vector<std::byte> good = saved(shape, content);
  constexpr uint64_t kFileBytes = uint64_t{1} << 50;  // far more than memory
  const auto outline_of = [&](std::vector<std::byte> bytes) {
    set(bytes, 16, kFileBytes);
    reseal(bytes);
    return read_state_outline(shape, kFileBytes,
                              [&](uint64_t at, std::span<std::byte> out) -> Status {
                                for (size_t i = 0; i < out.size(); ++i) {
                                  out[i] = at + i < bytes.size() ? bytes[at + i] : std::byte{0};
                                }
                                return {};
                              })
        .status();
  };
  EXPECT_EQ(outline_of(good).code(), ErrorCode::kInvalidData) << "its sections end too soon";
  constexpr uint64_t kSizes[] = {uint64_t{1} << 20, uint64_t{1} << 40, kFileBytes / 2, kFileBytes - 1000,
                                 kFileBytes,        uint64_t{1} << 62, UINT64_MAX - 7};
  for (size_t at = 64; at + 40 <= good.size(); at += 4) {  // every number of every head, and tokens
    for (const uint64_t size : kSizes) {
      std::vector<std::byte> bad = good;
      set(bad, at, size);
      EXPECT_FALSE(outline_of(bad).ok()) << size << " at byte " << at;
      // Where that is a section's size: with as many tokens as fit it.
      set(bad, at, 24 + size / 4 * 4);
      set(bad, at + 16 + 16, size / 4);
      EXPECT_FALSE(outline_of(bad).ok()) << size << " at byte " << at;
    }
  }
}

TEST(StateFormat, EveryTruncationAndEveryFlippedBitIsFound) {
  const StateShape shape = hybrid_shape();
  StateContent content = hybrid_sequences();
  const std::vector<std::byte> good = saved(shape, content);
  for (size_t n = 0; n < good.size(); ++n) {
    const std::vector<std::byte> cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_EQ(error_of(shape, cut).code(), ErrorCode::kInvalidData) << n;
  }
  std::vector<std::byte> bad = good;
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bad[i] ^= std::byte{1} << bit;
      EXPECT_FALSE(error_of(shape, bad).ok()) << "bit " << bit << " of byte " << i;
      bad[i] = good[i];
    }
  }
  bad.push_back(std::byte{0});
  EXPECT_EQ(error_of(shape, bad).code(), ErrorCode::kInvalidData);
}

// Numbers changed at random under checksums made right again: read or refused, never read past the end (the address
// sanitizer would see), and what is accepted lies within the bytes.
TEST(StateFormat, HostileNumbersAreReadOrRefused) {
  const StateShape shape = hybrid_shape();
  StateContent content = hybrid_sequences();
  const std::vector<std::byte> good = saved(shape, content);
  std::mt19937_64 random(20);
  constexpr int64_t kNumbers[] = {0, 1, -1, 2, 3, 31, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN};
  int n_read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bad = good;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      const size_t at = random() % (bad.size() / 4 - 1) * 4;
      random() % 2 == 0 ? set(bad, at, kNumbers[random() % std::size(kNumbers)])
                        : set(bad, at, static_cast<int32_t>(random() % 64));
    }
    for (size_t at = 64; at + 24 <= bad.size();) {  // as many sections as still hang together
      uint64_t head[3];
      std::memcpy(head, bad.data() + at, sizeof head);
      if (head[1] > bad.size() - at - 24) {
        break;
      }
      set(bad, at + 16,
          xxh64(std::span(bad).subspan(at + 24, head[1]), uint64_t{static_cast<uint32_t>(head[0])} << 56 ^ head[1]));
      at += 24 + (head[1] + 7) / 8 * 8;
    }
    reseal(bad);
    const auto read = read_state(shape, true, bad);
    if (!read.ok()) {
      EXPECT_FALSE(read.status().message().empty());
      continue;
    }
    ++n_read;
    for (const StateSequence& sequence : read->sequences) {
      EXPECT_LE(sequence.kv[1].v_offset + (sequence.tokens.size() - static_cast<size_t>(sequence.kv[1].first)) * 34,
                bad.size());
      EXPECT_LE(sequence.rec.offset + shape.rec_layers[0].conv_bytes(sequence.rec.length) + 2 * 16, bad.size());
    }
    EXPECT_LE(read->logits_offset + static_cast<uint64_t>(read->n_logits) * 40, bad.size());
  }
  EXPECT_GT(n_read, 1000);
  EXPECT_LT(n_read, 19000);
}

}  // namespace
}  // namespace tessera
