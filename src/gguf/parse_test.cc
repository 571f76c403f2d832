// One test per check of the reader (docs/gguf-facts.md 1.2 and the reports about files): each is refused with one
// sentence that names the key or tensor.

#include "gguf/parse.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gguf/gguf.h"
#include "gguf/raw_gguf.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int32_t kF32Id = 0;

// A file of one key and one tensor "w" of four floats; the parts around what a test changes.
RawGguf good_file() {
  RawGguf raw;
  raw.header(1, 1).entry("answer", MetaType::kU32, uint32_t{42}).tensor("w", {4}, kF32Id, 0).pad();
  return raw.number(1.0F).number(2.0F).number(3.0F).number(4.0F);
}

// The message with which the bytes are refused; empty when they are accepted.
std::string refusal(const RawGguf& raw, ErrorCode wanted = ErrorCode::kInvalidData) {
  const auto file = GgufFile::open_memory(raw.bytes(), "x.gguf");
  if (file.ok()) {
    return "";
  }
  EXPECT_EQ(error_code_name(file.status().code()), error_code_name(wanted)) << file.status().message();
  EXPECT_THAT(file.status().message(), AllOf(HasSubstr("cannot read 'x.gguf': "), Not(HasSubstr("\n"))));
  return file.status().message();
}

std::string refusal_of_text(std::string_view text, ErrorCode wanted = ErrorCode::kInvalidData) {
  return refusal(RawGguf().text(text), wanted);
}

// ---------------------------------------------------------------------------------------------------------------------
// What is accepted.

TEST(Parse, AGoodFileIsRead) {
  const RawGguf raw = good_file();
  const auto file = GgufFile::open_memory(raw.bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->version(), 3U);
  EXPECT_EQ(file->metadata().get_u32("answer").value(), 42U);
  const TensorInfo* w = file->find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->n_elems, 4U);
  EXPECT_EQ(w->n_bytes, 16U);
  EXPECT_EQ(w->n_rows(), 1U);
  std::vector<std::byte> bytes(16);
  ASSERT_TRUE(file->read(*w, 0, bytes).ok());
  EXPECT_TRUE(std::ranges::equal(bytes, raw.bytes().last(16)));
  EXPECT_EQ(file->find("W"), nullptr);
}

// The head comes in pieces of any length: too short a one says nothing, neither good nor bad.
TEST(Parse, AHeadThatIsTooShortIsNoVerdict) {
  const RawGguf raw = good_file();
  size_t n_short = 0;
  for (size_t n = 0; n <= raw.size(); ++n) {
    const auto parsed = parse_gguf(raw.bytes().first(n), raw.size());
    ASSERT_TRUE(parsed.ok()) << n << ": " << parsed.status().message();
    n_short += parsed->has_value() ? 0 : 1;
    if (parsed->has_value()) {
      EXPECT_EQ((*parsed)->tensors.size(), 1U);
      EXPECT_EQ((*parsed)->ends[0], raw.size());
    }
    const auto whole = parse_gguf(raw.bytes().first(n), n);
    EXPECT_EQ(whole.ok(), n == raw.size()) << "without more bytes in the file it is cut off at " << n;
  }
  EXPECT_GT(n_short, 50U);
  EXPECT_LT(n_short, raw.size() - 15) << "the tensors' bytes are not needed";
}

TEST(Parse, Version2AndEmptyFilesAreRead) {
  EXPECT_EQ(refusal(RawGguf().header(0, 0, 2)), "");
  EXPECT_EQ(refusal(RawGguf().header(0, 0, 3)), "");
}

TEST(Parse, TensorsWithoutElementsOrDimensionsAreRead) {
  RawGguf raw;
  raw.header(3, 0).tensor("none", {0, 7}, kF32Id, 0).tensor("one", {}, kF32Id, 0).tensor("end", {5, 0}, kF32Id, 32);
  raw.pad().number(1.5F).pad();
  const auto file = GgufFile::open_memory(raw.bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->find("none")->n_elems, 0U);
  EXPECT_TRUE(file->read(*file->find("none"), 0, {}).ok());
  EXPECT_EQ(file->find("one")->n_elems, 1U);
  EXPECT_EQ(file->find("one")->n_bytes, 4U);
  EXPECT_TRUE(file->read(*file->find("end"), 0, {}).ok());
}

TEST(Parse, TheLastTensorNeedsNoPaddingAndBytesBehindItAreIgnored) {
  EXPECT_EQ(refusal(good_file()), "");
  EXPECT_EQ(refusal(good_file().text("some bytes behind the tensors")), "");
}

TEST(Parse, AnAlignmentInTheFileIsUsed) {
  RawGguf raw;
  raw.header(2, 1).entry("general.alignment", MetaType::kU32, uint32_t{64});
  raw.tensor("a", {1}, kF32Id, 0).tensor("b", {1}, kF32Id, 64).pad(64).number(1.0F).pad(64).number(2.0F);
  const auto file = GgufFile::open_memory(raw.bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->find("b")->file_offset % 64, 0U);
}

// ---------------------------------------------------------------------------------------------------------------------
// Files that are something else.

TEST(Foreign, EachKindIsToldInOneSentence) {
  EXPECT_THAT(refusal_of_text(""), HasSubstr("it is empty"));
  EXPECT_THAT(refusal_of_text("<!DOCTYPE html><html><head>"), HasSubstr("HTML page"));
  EXPECT_THAT(refusal_of_text("\xEF\xBB\xBF\n  <HTML lang=\"en\">"), HasSubstr("HTML page"));
  EXPECT_THAT(refusal_of_text("<?xml version=\"1.0\"?><Error><Code>AccessDenied"), HasSubstr("XML"));
  EXPECT_THAT(refusal_of_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 98362432\n"),
              HasSubstr("Git LFS pointer"));
  EXPECT_THAT(refusal_of_text("Entry not found"), HasSubstr("a text file"));
  EXPECT_THAT(refusal_of_text("{\"error\":\"unauthorized\"}"), HasSubstr("a text file"));
  EXPECT_THAT(refusal_of_text("PK\x03\x04 pytorch"), HasSubstr("ZIP archive or PyTorch"));
  EXPECT_THAT(refusal_of_text("\x1f\x8b\x08 packed"), HasSubstr("gzip"));
  EXPECT_THAT(refusal_of_text("tjgg\x03"), HasSubstr("before GGUF"));
  EXPECT_THAT(refusal(RawGguf().number(uint64_t{40}).text("{\"a\":{\"dtype\":\"F32\"}}")), HasSubstr("safetensors"));
  EXPECT_THAT(refusal(RawGguf().zeros(4096)), HasSubstr("unfinished download"));
  EXPECT_THAT(refusal_of_text("\x7f\x45LF\x02\x01"), HasSubstr("not a GGUF file: it begins with '\\x7fELF'"));
  EXPECT_THAT(refusal_of_text("GG"), HasSubstr("ends after 2 bytes"));
}

TEST(Foreign, VersionsAndByteOrdersThatAreNotSupportedAreNamed) {
  EXPECT_THAT(refusal(RawGguf().header(0, 0, 0)), HasSubstr("version is 0"));
  EXPECT_THAT(refusal(RawGguf().header(0, 0, 1), ErrorCode::kUnsupported), HasSubstr("version is 1"));
  EXPECT_THAT(refusal(RawGguf().header(0, 0, 4), ErrorCode::kUnsupported), HasSubstr("version is 4"));
  EXPECT_THAT(refusal(RawGguf().header(0, 0, 3U << 24), ErrorCode::kUnsupported), HasSubstr("big-endian"));
}

// ---------------------------------------------------------------------------------------------------------------------
// Truncation: every prefix of a good file is refused, and never read beyond its end (the sanitizers watch).

TEST(Parse, EveryTruncationIsRefused) {
  const std::string whole = good_file().str();
  for (size_t n = 0; n < whole.size(); ++n) {
    // A copy of exactly n bytes, so that reading one more is seen.
    const std::vector<std::byte> part(reinterpret_cast<const std::byte*>(whole.data()),
                                      reinterpret_cast<const std::byte*>(whole.data()) + n);
    EXPECT_FALSE(GgufFile::open_memory(part).ok()) << n << " bytes";
  }
}

TEST(Parse, ATruncatedDownloadNamesTheTensorThatIsCut) {
  RawGguf raw;
  raw.header(1, 0).tensor("blk.0.ffn_up.weight", {1024, 1024}, kF32Id, 0).pad().zeros(1000);
  EXPECT_THAT(refusal(raw), AllOf(HasSubstr("'blk.0.ffn_up.weight'"), HasSubstr("incomplete download")));
}

// ---------------------------------------------------------------------------------------------------------------------
// Counts and strings.

TEST(Counts, AreHeldAgainstTheFileAndALimit) {
  EXPECT_THAT(refusal(RawGguf().header(~0ULL, 0)), HasSubstr("tensors; more than"));
  EXPECT_THAT(refusal(RawGguf().header(0, ~0ULL)), HasSubstr("metadata keys; more than"));
  EXPECT_THAT(refusal(RawGguf().header(1ULL << 63, 0)), HasSubstr("tensors"));
  EXPECT_THAT(refusal(RawGguf().header(100000, 0).zeros(1000)), HasSubstr("100000 tensors, which do not fit"));
  EXPECT_THAT(refusal(RawGguf().header(0, 60000).zeros(1000)), HasSubstr("60000 metadata keys, which do not fit"));
}

TEST(Strings, LongerThanTheirLimitOrTheFileAreRefusedByName) {
  EXPECT_THAT(refusal(RawGguf().header(0, 1).number(~0ULL).zeros(64)), HasSubstr("the name of key 1 of 1"));
  EXPECT_THAT(refusal(RawGguf().header(0, 1).number(uint64_t{65536}).zeros(70000)),
              AllOf(HasSubstr("the name of key 1 of 1"), HasSubstr("at most 65535")));
  EXPECT_THAT(refusal(RawGguf().header(0, 1).string("k").type(MetaType::kString).number(uint64_t{1} << 31).zeros(64)),
              AllOf(HasSubstr("the string of key 'k'"), HasSubstr("at most")));
  EXPECT_THAT(refusal(RawGguf().header(0, 1).string("k").type(MetaType::kString).number(uint64_t{65}).zeros(64)),
              AllOf(HasSubstr("the string of key 'k'"), HasSubstr("only 64 left")));
}

TEST(Keys, EmptyAndDuplicateOnesAreRefused) {
  EXPECT_THAT(refusal(RawGguf().header(0, 1).entry("", MetaType::kU8, uint8_t{1}).zeros(8)), HasSubstr("empty name"));
  EXPECT_THAT(refusal(RawGguf()
                          .header(0, 3)
                          .entry("a.b", MetaType::kU8, uint8_t{1})
                          .entry("c", MetaType::kU8, uint8_t{1})
                          .entry("a.b", MetaType::kU8, uint8_t{1})
                          .zeros(8)),
              HasSubstr("the key 'a.b' occurs twice"));
}

TEST(Keys, MessagesEscapeAndShortenWhatTheyQuote) {
  const std::string key = "evil\n\x1b[31m'" + std::string(60000, 'x');
  const std::string message = refusal(RawGguf().header(0, 1).string(key).number(int32_t{99}).zeros(8));
  EXPECT_THAT(message, HasSubstr("'evil\\x0a\\x1b[31m\\x27xxx"));
  EXPECT_LT(message.size(), 300U);
}

TEST(Values, OfUnknownTypesAndImpossibleBoolsAreRefused) {
  EXPECT_THAT(refusal(RawGguf().header(0, 1).string("k").number(int32_t{13}).zeros(8)),
              HasSubstr("the key 'k' has the unknown value type 13"));
  EXPECT_THAT(refusal(RawGguf().header(0, 1).string("k").number(int32_t{-1}).zeros(8)), HasSubstr("type -1"));
  EXPECT_THAT(refusal(RawGguf().header(0, 1).entry("k", MetaType::kBool, uint8_t{2}).zeros(8)),
              HasSubstr("the key 'k' is a bool of value 2"));
}

TEST(Arrays, AreHeldAgainstTheFileAndALimit) {
  const auto array = [](MetaType type, uint64_t count) { return RawGguf().header(0, 1).entry_array("k", type, count); };
  EXPECT_THAT(refusal(array(MetaType::kU8, (1ULL << 30) + 1).zeros(64)), AllOf(HasSubstr("'k'"), HasSubstr("at most")));
  EXPECT_THAT(refusal(array(MetaType::kU64, ~0ULL).zeros(64)), AllOf(HasSubstr("'k'"), HasSubstr("at most")));
  EXPECT_THAT(refusal(array(MetaType::kU64, 9).zeros(64)), AllOf(HasSubstr("'k'"), HasSubstr("only 64 bytes left")));
  EXPECT_THAT(refusal(array(MetaType::kString, 1000).zeros(64)), AllOf(HasSubstr("'k'"), HasSubstr("bytes left")));
  EXPECT_THAT(refusal(array(MetaType::kString, 2).string("fits").number(uint64_t{50}).zeros(40)),
              HasSubstr("string 2 of 2 in the array of key 'k'"));
  EXPECT_THAT(refusal(array(MetaType::kString, 1).number(~0ULL).zeros(40)), HasSubstr("string 1 of 1"));
  EXPECT_THAT(refusal(array(MetaType::kArray, 1).zeros(64)), HasSubstr("the key 'k' is an array of arrays"));
  EXPECT_THAT(refusal(array(static_cast<MetaType>(77), 1).zeros(64)), HasSubstr("array of the unknown type 77"));
  EXPECT_THAT(refusal(array(MetaType::kBool, 2).number(uint8_t{1}).number(uint8_t{7}).zeros(8)),
              AllOf(HasSubstr("'k'"), HasSubstr("other than 0 and 1")));
  EXPECT_EQ(refusal(array(MetaType::kU64, 8).zeros(64)), "");
}

TEST(Alignment, MustBeAU32PowerOfTwo) {
  const auto with = [](MetaType type, auto value) {
    return RawGguf().header(0, 1).entry("general.alignment", type, value).zeros(8);
  };
  EXPECT_THAT(refusal(with(MetaType::kU64, uint64_t{32})), HasSubstr("'general.alignment' must be u32, but is u64"));
  EXPECT_THAT(refusal(with(MetaType::kF32, 32.0F)), HasSubstr("'general.alignment' must be u32, but is f32"));
  EXPECT_THAT(refusal(with(MetaType::kU32, uint32_t{0})), HasSubstr("'general.alignment' is 0"));
  EXPECT_THAT(refusal(with(MetaType::kU32, uint32_t{24})), HasSubstr("'general.alignment' is 24"));
  EXPECT_EQ(refusal(with(MetaType::kU32, uint32_t{1} << 31)), "");  // no tensors: nothing to align
}

TEST(Alignment, AHugeOneCannotMoveTensorsOutOfTheFile) {
  RawGguf raw;
  raw.header(1, 1).entry("general.alignment", MetaType::kU32, uint32_t{1} << 31).tensor("w", {1}, kF32Id, 0).zeros(64);
  EXPECT_THAT(refusal(raw), HasSubstr("the tensor 'w' ends at byte 2147483652"));
}

// ---------------------------------------------------------------------------------------------------------------------
// Tensor infos.

std::string refusal_of_tensor(std::string_view name, std::initializer_list<uint64_t> dims, int32_t dtype_id,
                              uint64_t offset, ErrorCode wanted = ErrorCode::kInvalidData) {
  return refusal(RawGguf().header(1, 0).tensor(name, dims, dtype_id, offset).pad().zeros(256), wanted);
}

TEST(Tensors, NamesHaveAtMost63BytesAndOccurOnce) {
  EXPECT_EQ(refusal_of_tensor(std::string(63, 'n'), {4}, kF32Id, 0), "");
  EXPECT_THAT(refusal_of_tensor(std::string(64, 'n'), {4}, kF32Id, 0),
              AllOf(HasSubstr("the name of tensor 1 of 1"), HasSubstr("at most 63")));
  RawGguf twice;
  twice.header(2, 0).tensor("same", {4}, kF32Id, 0).tensor("same", {4}, kF32Id, 32).pad().zeros(64);
  EXPECT_THAT(refusal(twice), HasSubstr("the tensor 'same' occurs twice"));
}

TEST(Tensors, ShapesThatCannotBeAreRefused) {
  EXPECT_THAT(refusal_of_tensor("w", {1, 1, 1, 1, 1}, kF32Id, 0), HasSubstr("the tensor 'w' has 5 dimensions"));
  EXPECT_THAT(refusal_of_tensor("w", {4, ~0ULL}, kF32Id, 0), HasSubstr("dimension 1 of tensor 'w' is negative: -1"));
  EXPECT_THAT(refusal_of_tensor("w", {1ULL << 32, 1ULL << 31}, kF32Id, 0), HasSubstr("dimensions of tensor 'w'"));
  EXPECT_THAT(refusal_of_tensor("w", {INT64_MAX, 1}, kF32Id, 0), HasSubstr("dimensions of tensor 'w'"));
  EXPECT_THAT(refusal_of_tensor("w", {0, 1ULL << 40, 1ULL << 40}, kF32Id, 0), HasSubstr("dimensions of tensor 'w'"));
  // 2^62 elements of 4 bytes: countable, but 2^64 bytes are not.
  EXPECT_THAT(refusal_of_tensor("w", {1ULL << 31, 1ULL << 31}, kF32Id, 0), HasSubstr("too many to address"));
  // Addressable, but padding it is not.
  EXPECT_THAT(refusal_of_tensor("w", {INT64_MAX - 1}, 25, 0), HasSubstr("'w'"));
}

TEST(Tensors, TypesThatDoNotExistAreRefused) {
  for (const int32_t id : {-1, 4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, INT32_MIN, INT32_MAX}) {
    EXPECT_THAT(refusal_of_tensor("w", {256}, id, 0, ErrorCode::kUnsupported),
                HasSubstr("the tensor 'w' has the unknown type " + std::to_string(id)));
  }
}

TEST(Tensors, RowsMustBeWholeBlocks) {
  EXPECT_THAT(refusal_of_tensor("w", {33}, static_cast<int32_t>(DType::kQ8_0), 0),
              AllOf(HasSubstr("'w'"), HasSubstr("33"), HasSubstr("block of 32")));
  EXPECT_THAT(refusal_of_tensor("w", {128, 2}, static_cast<int32_t>(DType::kQ4_K), 0), HasSubstr("block of 256"));
  EXPECT_THAT(refusal_of_tensor("w", {}, static_cast<int32_t>(DType::kQ8_0), 0), HasSubstr("block of 32"));
  EXPECT_EQ(refusal_of_tensor("w", {64}, static_cast<int32_t>(DType::kQ8_0), 0), "");
}

TEST(Tensors, OffsetsMustFollowEachOtherWithoutGaps) {
  EXPECT_THAT(refusal_of_tensor("w", {4}, kF32Id, 32), HasSubstr("the tensor 'w' claims offset 32"));
  EXPECT_THAT(refusal_of_tensor("w", {4}, kF32Id, ~0ULL), HasSubstr("the tensor 'w' claims offset"));
  const auto second_at = [](uint64_t offset) {
    return RawGguf().header(2, 0).tensor("a", {4}, kF32Id, 0).tensor("b", {4}, kF32Id, offset).pad().zeros(256);
  };
  EXPECT_EQ(refusal(second_at(32)), "");
  EXPECT_THAT(refusal(second_at(0)), HasSubstr("the tensor 'b' claims offset 0, but the tensors before it end at 32"));
  EXPECT_THAT(refusal(second_at(16)), HasSubstr("'b'"));
  EXPECT_THAT(refusal(second_at(64)), HasSubstr("'b'"));
}

TEST(Tensors, SumsOfSizesThatOverflowAreRefused) {
  // Each alone is addressable (2^62 bytes); the fourth would wrap the running offset.
  RawGguf raw;
  raw.header(5, 0);
  for (uint64_t i = 0; i < 5; ++i) {
    raw.tensor("t" + std::to_string(i), {1ULL << 62}, static_cast<int32_t>(DType::kI8), i << 62);
  }
  EXPECT_THAT(refusal(raw.pad().zeros(64)), HasSubstr("'t0'"));
}

TEST(Files, JoinedEndToEndAreRefused) {
  const std::string one = good_file().str();
  EXPECT_THAT(refusal_of_text(one + one), HasSubstr("joined end to end"));
  EXPECT_THAT(refusal_of_text(good_file().pad().str() + one), HasSubstr("joined end to end"));
  EXPECT_THAT(refusal_of_text(RawGguf().header(0, 0).str() + one), HasSubstr("joined end to end"));
  EXPECT_THAT(refusal_of_text(RawGguf().header(0, 0).pad().str() + one), HasSubstr("joined end to end"));
}

}  // namespace
}  // namespace tessera
