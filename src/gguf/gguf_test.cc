// Files on disk: the real shapes of GGUF files, split files, and what people do to them.

#include "gguf/gguf.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gguf/raw_gguf.h"
#include "gguf/writer.h"
#include "tensor/quants.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<std::byte> bytes_of(const GgufFile& file, const TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.n_bytes);
  const Status status = file.read(tensor, 0, bytes);
  EXPECT_TRUE(status.ok()) << status.message();
  return bytes;
}

// A folder of its own, removed afterwards.
class GgufFileTest : public testing::Test {
 protected:
  GgufFileTest() {
    std::string pattern = (fs::temp_directory_path() / "gguf_test_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~GgufFileTest() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }

  // Five tensors t0 … t4 of two floats, 10 i and 10 i + 1.
  static GgufWriter five_tensors(uint32_t alignment = 32) {
    GgufWriter writer(alignment);
    writer.set_string("general.architecture", "llama");
    for (int i = 0; i < 5; ++i) {
      const float values[2] = {10.0F * static_cast<float>(i), 10.0F * static_cast<float>(i) + 1.0F};
      std::vector<std::byte> bytes(sizeof values);
      std::memcpy(bytes.data(), values, sizeof values);
      const uint64_t dims[] = {2};
      EXPECT_TRUE(writer.add_tensor("t" + std::to_string(i), DType::kF32, dims, std::move(bytes)).ok());
    }
    return writer;
  }
  static void expect_five_tensors(const GgufFile& file) {
    ASSERT_EQ(file.tensors().size(), 5U);
    EXPECT_EQ(file.metadata().get_string("general.architecture").value(), "llama");
    for (size_t i = 0; i < 5; ++i) {
      const TensorInfo* info = file.find("t" + std::to_string(i));
      ASSERT_EQ(info, &file.tensors()[i]);
      float values[2];
      ASSERT_EQ(info->n_bytes, sizeof values);
      ASSERT_TRUE(file.read(*info, 0, std::as_writable_bytes(std::span(values))).ok());
      EXPECT_EQ(values[1], 10.0F * static_cast<float>(i) + 1.0F);
    }
  }
  // The three shards of five_tensors(), two tensors each.
  [[nodiscard]] std::vector<std::string> three_shards(uint32_t alignment = 32) const {
    auto paths = five_tensors(alignment).write_split(path("model"), 2);
    EXPECT_TRUE(paths.ok());
    return *paths;
  }
  static std::string failure(const std::string& at, ErrorCode wanted = ErrorCode::kInvalidData) {
    const auto file = GgufFile::open(at);
    if (file.ok()) {
      return "";
    }
    EXPECT_EQ(error_code_name(file.status().code()), error_code_name(wanted)) << file.status().message();
    return file.status().message();
  }

  fs::path folder_;
};

TEST_F(GgufFileTest, EveryTinyModelIsRead) {
  int n_files = 0;
  for (const auto& entry : fs::directory_iterator(TESSERA_TEST_DATA "/tiny")) {
    if (entry.path().extension() != ".gguf") {
      continue;
    }
    ++n_files;
    const auto file = GgufFile::open(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_TRUE(file->metadata().get_string("general.architecture").ok());
    EXPECT_GT(file->tensors().size(), 10U);
    // The last tensor ends where the file does, but for padding.
    const TensorInfo& last = file->tensors().back();
    EXPECT_LE(file->file_bytes() - last.file_offset - last.n_bytes, 31U) << entry.path();
    EXPECT_TRUE(file->check_unchanged().ok());
  }
  EXPECT_GE(n_files, 20);
}

TEST_F(GgufFileTest, LargeArraysCanBeForgotten) {
  GgufWriter writer = five_tensors();
  writer.set_u32("a.before", 7);
  writer.set_string_array("a.texts", std::vector<std::string>(10000, "text"));
  writer.set_string("a.between", std::string(100000, 'x'));
  writer.set_f32_array("b.numbers", std::vector<float>(20000, 0.5F));
  writer.set_u32_array("a.few", std::vector<uint32_t>{1, 2, 3});
  const std::string whole = path("whole.gguf");
  ASSERT_TRUE(writer.write(whole).ok());
  auto file = GgufFile::open(whole);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::string_view between = file->metadata().get_string("a.between").value();
  const std::vector<std::string_view> texts = file->metadata().get_string_array("a.texts").value();
  EXPECT_THAT(texts, AllOf(SizeIs(10000), Each("text")));

  file->forget_arrays("a.");
  const MetaValue* forgotten = file->metadata().find("a.texts");
  EXPECT_TRUE(forgotten->is_forgotten() && forgotten->bytes.empty());
  EXPECT_EQ(forgotten->type_text(), "array of 10000 string");
  EXPECT_EQ(file->metadata().get_string_array("a.texts").status().code(), ErrorCode::kInternal);
  // Everything else is still there, views too.
  EXPECT_EQ(between, std::string(100000, 'x'));
  EXPECT_EQ(file->metadata().get_string("a.between").value().data(), between.data());
  EXPECT_EQ(file->metadata().get_u32("a.before").value(), 7U);
  EXPECT_EQ(file->metadata().get_u32_array("a.few").value(), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(file->metadata().get_f32_array("b.numbers").value(), std::vector<float>(20000, 0.5F));
  expect_five_tensors(*file);
  // What was forgotten can be read.
  auto bytes = file->read_value(*forgotten);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  MetaValue again = *forgotten;
  again.bytes = *bytes;
  EXPECT_EQ(Metadata({again}).get_string_array("a.texts").value(), std::vector<std::string_view>(10000, "text"));
  const MetaValue* few = file->metadata().find("a.few");
  bytes = file->read_value(*few);
  EXPECT_TRUE(bytes.ok() && std::ranges::equal(*bytes, few->bytes));
  fs::resize_file(whole, 1000);
  EXPECT_EQ(file->read_value(*forgotten).status().code(), ErrorCode::kIo);

  // Bytes in memory are the caller's.
  const std::vector<std::byte> memory = writer.to_bytes();
  auto in_memory = GgufFile::open_memory(memory);
  ASSERT_TRUE(in_memory.ok());
  in_memory->forget_arrays("");
  EXPECT_EQ(in_memory->metadata().get_string_array("a.texts").value().size(), 10000U);
  const MetaValue* lent = in_memory->metadata().find("a.few");
  EXPECT_TRUE(std::ranges::equal(in_memory->read_value(*lent).value(), lent->bytes));
}

uint64_t fnv1a64(std::span<const std::byte> bytes) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const std::byte b : bytes) {
    hash = (hash ^ std::to_integer<uint64_t>(b)) * 0x100000001B3ULL;
  }
  return hash;
}

// From the file to the numbers, tensor by tensor: nearly every block type occurs in the two quantmix models.
TEST_F(GgufFileTest, TensorsStandForTheSameNumbersAsInTheReference) {
  std::ifstream in(TESSERA_TEST_DATA "/dequant_models.tsv");
  std::string line;
  int n_tensors = 0;
  while (std::getline(in, line)) {
    if (line.starts_with('#')) {
      continue;
    }
    std::istringstream fields(line);
    std::string file_name, name, type;
    uint64_t wanted = 0;
    fields >> file_name >> name >> type >> std::hex >> wanted;
    ASSERT_FALSE(fields.fail()) << line;
    const auto file = GgufFile::open(TESSERA_TEST_DATA "/tiny/" + file_name);
    ASSERT_TRUE(file.ok()) << file.status().message();
    const TensorInfo* info = file->find(name);
    ASSERT_NE(info, nullptr) << name;
    EXPECT_EQ(dtype_name(info->dtype), type);
    std::vector<float> values(info->n_elems);
    dequantize_row(info->dtype, bytes_of(*file, *info).data(), values.data(), static_cast<int64_t>(values.size()));
    EXPECT_EQ(fnv1a64(std::as_bytes(std::span(values))), wanted) << line;
    ++n_tensors;
  }
  EXPECT_GE(n_tensors, 30);
}

TEST_F(GgufFileTest, MovingKeepsEveryViewValid) {
  const std::string at = path("m.gguf");
  ASSERT_TRUE(five_tensors().write(at).ok());
  auto file = GgufFile::open(at);
  ASSERT_TRUE(file.ok());
  const std::string_view before = file->metadata().get_string("general.architecture").value();
  const GgufFile moved = std::move(file).value();
  expect_five_tensors(moved);
  EXPECT_EQ(moved.metadata().get_string("general.architecture").value().data(), before.data());
}

TEST_F(GgufFileTest, WhatIsNoModelFileIsRefusedByName) {
  EXPECT_THAT(failure(path("absent.gguf"), ErrorCode::kNotFound),
              AllOf(HasSubstr("absent.gguf"), HasSubstr("No such")));
  EXPECT_THAT(failure(folder_.string(), ErrorCode::kInvalidArgument), HasSubstr("is a folder"));
  EXPECT_THAT(failure(write("empty.gguf", "")), AllOf(HasSubstr("empty.gguf"), HasSubstr("it is empty")));
  EXPECT_THAT(failure(write("page.gguf", "<!doctype html><html>…")), HasSubstr("HTML page"));
}

TEST_F(GgufFileTest, AFileThatShrinksIsNoticed) {
  const std::string at = path("m.gguf");
  ASSERT_TRUE(five_tensors().write(at).ok());
  const auto file = GgufFile::open(at);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->check_unchanged().ok());
  fs::resize_file(at, 100);
  EXPECT_THAT(file->check_unchanged().message(), AllOf(HasSubstr("m.gguf"), HasSubstr("now has 100")));
}

TEST_F(GgufFileTest, WhatIsGoneFromAFileIsAnErrorOfReading) {
  const std::string at = path("m.gguf");
  ASSERT_TRUE(five_tensors().write(at).ok());
  const auto file = GgufFile::open(at);
  ASSERT_TRUE(file.ok());
  fs::resize_file(at, file->find("t3")->file_offset + 4);
  std::vector<std::byte> bytes(8);
  EXPECT_TRUE(file->read(*file->find("t2"), 0, bytes).ok());
  const Status status = file->read(*file->find("t3"), 0, bytes);
  EXPECT_EQ(status.code(), ErrorCode::kIo);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("m.gguf"), HasSubstr("changed while in use")));
  EXPECT_EQ(file->metadata().get_string("general.architecture").value(), "llama") << "the head is in memory";
}

// What precedes the tensors is read in growing pieces; this one does not fit into the first.
TEST_F(GgufFileTest, ALongVocabularyIsReadWhole) {
  GgufWriter writer = five_tensors();
  std::vector<std::string> words;
  for (int i = 0; i < 100'000; ++i) {
    words.push_back("word number " + std::to_string(i));
  }
  writer.set_string_array("tokenizer.ggml.tokens", words);
  const std::string at = path("m.gguf");
  ASSERT_TRUE(writer.write(at).ok());
  ASSERT_GT(fs::file_size(at), 2U << 20);
  const auto file = GgufFile::open(at);
  ASSERT_TRUE(file.ok()) << file.status().message();
  expect_five_tensors(*file);
  EXPECT_EQ(file->metadata().get_string_array("tokenizer.ggml.tokens")->back(), words.back());
  fs::resize_file(at, 2U << 20);
  EXPECT_THAT(failure(at), HasSubstr("in the array of key 'tokenizer.ggml.tokens' does not fit into the file"));
}

// A sparse file: the length fits into it, yet no real string is longer than 1 GiB.
TEST_F(GgufFileTest, StringsOfMoreThanAGibibyteAreRefused) {
  const uint64_t too_long = (1ULL << 30) + 1;
  const std::string scalar =
      write("scalar.gguf", RawGguf().header(0, 1).string("k").type(MetaType::kString).number(too_long).str());
  fs::resize_file(scalar, too_long + 4096);
  EXPECT_THAT(failure(scalar), AllOf(HasSubstr("the string of key 'k'"), HasSubstr("at most 1073741824")));
  const std::string array =
      write("array.gguf", RawGguf().header(0, 1).entry_array("k", MetaType::kString, 1).number(too_long).str());
  fs::resize_file(array, too_long + 4096);
  EXPECT_THAT(failure(array), HasSubstr("string 1 of 1 in the array of key 'k'"));
}

// ---------------------------------------------------------------------------------------------------------------------
// Split files.

TEST_F(GgufFileTest, SplitFilesAreOneModel) {
  for (const uint32_t alignment : {32U, 4096U}) {
    const auto paths = three_shards(alignment);
    ASSERT_EQ(paths.size(), 3U);
    EXPECT_EQ(fs::path(paths[0]).filename(), "model-00001-of-00003.gguf");
    const auto file = GgufFile::open(paths[0]);
    ASSERT_TRUE(file.ok()) << file.status().message();
    expect_five_tensors(*file);
    EXPECT_EQ(file->n_shards(), 3U);
    EXPECT_EQ(file->find("t4")->shard, 2U);
    file->will_need(*file->find("t4"), 0, 8);
    uint64_t sum = 0;
    for (const auto& at : paths) {
      sum += fs::file_size(at);
    }
    EXPECT_EQ(file->file_bytes(), sum);
  }
}

TEST_F(GgufFileTest, AnotherShardThanTheFirstIsToldWhichOneToOpen) {
  const auto paths = three_shards();
  EXPECT_THAT(failure(paths[1], ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("it is file 2 of 3"), HasSubstr("first file: model-00001-of-00003.gguf")));
}

TEST_F(GgufFileTest, AMissingOrDamagedShardIsNamed) {
  const auto paths = three_shards();
  fs::resize_file(paths[2], fs::file_size(paths[2]) - 40);
  EXPECT_THAT(failure(paths[0]), AllOf(HasSubstr("file 3 of 3"), HasSubstr("'t4'")));
  fs::remove(paths[1]);
  EXPECT_THAT(failure(paths[0], ErrorCode::kNotFound),
              AllOf(HasSubstr("file 2 of 3"), HasSubstr("model-00002-of-00003.gguf"), HasSubstr("No such file")));
}

TEST_F(GgufFileTest, ShardsUnderWrongNamesAreRefused) {
  const auto paths = three_shards();
  fs::rename(paths[1], path("swap"));
  fs::rename(paths[2], paths[1]);
  fs::rename(path("swap"), paths[2]);
  EXPECT_THAT(failure(paths[0]), HasSubstr("says that it is file 3 of 3, but is named file 2 of 3"));
  fs::copy(paths[0], path("renamed.gguf"));
  EXPECT_THAT(failure(path("renamed.gguf")), HasSubstr("must end in '-00001-of-00003.gguf'"));
  fs::copy(paths[0], path("model-00001-of-00004.gguf"));
  EXPECT_THAT(failure(path("model-00001-of-00004.gguf")), HasSubstr("must end in '-00001-of-00003.gguf'"));
}

TEST_F(GgufFileTest, AShardOfAnotherModelIsRefused) {
  const auto paths = three_shards();
  ASSERT_TRUE(five_tensors().write_split(path("other"), 3).ok());  // two files
  fs::copy_file(path("other-00002-of-00002.gguf"), paths[1], fs::copy_options::overwrite_existing);
  EXPECT_THAT(failure(paths[0]), HasSubstr("says that it is file 2 of 2, but is named file 2 of 3"));
  // A whole model in a shard's place has no split keys at all.
  ASSERT_TRUE(five_tensors().write(paths[1]).ok());
  EXPECT_THAT(failure(paths[0]), HasSubstr("model-00002-of-00003.gguf"));
}

// A shard written by hand: keys, then one tensor of one float.
std::string shard(uint16_t no, uint16_t count, int32_t n_tensors, std::string_view name) {
  RawGguf raw;
  raw.header(1, 3).entry("split.no", MetaType::kU16, no).entry("split.count", MetaType::kU16, count);
  raw.entry("split.tensors.count", MetaType::kI32, n_tensors).tensor(name, {1}, 0, 0).pad().number(1.0F).pad();
  return raw.str();
}

TEST_F(GgufFileTest, DuplicateNamesAcrossShardsAreRefused) {
  const std::string first = write("m-00001-of-00002.gguf", shard(0, 2, 2, "same"));
  write("m-00002-of-00002.gguf", shard(1, 2, 2, "same"));
  EXPECT_THAT(failure(first), HasSubstr("the tensor 'same' occurs in two"));
}

TEST_F(GgufFileTest, TheTotalNumberOfTensorsIsChecked) {
  write("m-00002-of-00002.gguf", shard(1, 2, 0, "b"));
  for (const int32_t n : {1, 3, -1}) {
    EXPECT_THAT(failure(write("m-00001-of-00002.gguf", shard(0, 2, n, "a"))), HasSubstr("'split.tensors.count'")) << n;
  }
  EXPECT_EQ(failure(write("m-00001-of-00002.gguf", shard(0, 2, 2, "a"))), "");
}

TEST_F(GgufFileTest, SplitKeysThatMakeNoSenseAreRefused) {
  EXPECT_THAT(failure(write("m-00001-of-00002.gguf", shard(7, 2, 2, "a"))), HasSubstr("'split.no' is 7 of 2"));
  RawGguf raw;
  raw.header(0, 1).entry("split.count", MetaType::kU32, uint32_t{1} << 20).zeros(8);
  EXPECT_THAT(failure(write("m.gguf", raw.str())), HasSubstr("'split.count' is 1048576"));
  RawGguf text;
  text.header(0, 1).entry_string("split.count", "2");
  EXPECT_THAT(failure(write("m.gguf", text.str())), HasSubstr("'split.count' must be u32, but is string"));
}

TEST_F(GgufFileTest, ANameThatOnlyLooksLikeAShardIsASingleFile) {
  const std::string at = path("model-00001-of-00003.gguf");
  ASSERT_TRUE(five_tensors().write(at).ok());
  const auto file = GgufFile::open(at);
  ASSERT_TRUE(file.ok()) << file.status().message();
  expect_five_tensors(*file);
}

TEST_F(GgufFileTest, AFirstShardWithoutTensorsIsFine) {
  RawGguf first;
  first.header(0, 3).entry("split.no", MetaType::kU16, uint16_t{0}).entry("split.count", MetaType::kU16, uint16_t{2});
  first.entry("split.tensors.count", MetaType::kI32, int32_t{1}).pad();
  write("m-00002-of-00002.gguf", shard(1, 2, 0, "b"));
  EXPECT_EQ(failure(write("m-00001-of-00002.gguf", first.str())), "");
}

TEST_F(GgufFileTest, ShardsJoinedEndToEndAreRefused) {
  std::string joined;
  for (const auto& at : three_shards()) {
    std::ifstream in(at, std::ios::binary);
    joined.append(std::istreambuf_iterator<char>(in), {});
  }
  EXPECT_THAT(failure(write("joined.gguf", joined)), HasSubstr("joined end to end"));
}

TEST_F(GgufFileTest, AShardInMemoryCannotFindTheOthers) {
  const std::string bytes = shard(0, 2, 2, "a");
  const auto file = GgufFile::open_memory(std::as_bytes(std::span(bytes)));
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.status().message(), HasSubstr("can only be opened by path"));
}

// ---------------------------------------------------------------------------------------------------------------------
// The writer.

TEST_F(GgufFileTest, WhatIsWrittenReadsBack) {
  const std::string at = path("m.gguf");
  ASSERT_TRUE(five_tensors(64).write(at).ok());
  const auto file = GgufFile::open(at);
  ASSERT_TRUE(file.ok()) << file.status().message();
  expect_five_tensors(*file);
  EXPECT_EQ(file->metadata().get_u32("general.alignment").value(), 64U);
  EXPECT_FALSE(fs::exists(at + "." + std::to_string(getpid()) + ".partial"));
}

TEST_F(GgufFileTest, AModelCopiedThroughTheWriterHasTheSameBytesInEveryPart) {
  const auto original = GgufFile::open(TESSERA_TEST_DATA "/tiny/tiny-quantmix-a.gguf");
  ASSERT_TRUE(original.ok());
  GgufWriter writer;
  writer.copy_metadata(original->metadata());
  for (const TensorInfo& info : original->tensors()) {
    ASSERT_TRUE(
        writer.add_tensor(info.name, info.dtype, std::span(info.dims).first(info.n_dims), bytes_of(*original, info))
            .ok());
  }
  const auto bytes = writer.to_bytes();
  const auto copy = GgufFile::open_memory(bytes);
  ASSERT_TRUE(copy.ok()) << copy.status().message();
  ASSERT_EQ(copy->tensors().size(), original->tensors().size());
  for (const TensorInfo& info : original->tensors()) {
    EXPECT_EQ(bytes_of(*original, info), bytes_of(*copy, *copy->find(info.name))) << info.name;
  }
  ASSERT_EQ(copy->metadata().entries().size(), original->metadata().entries().size());
  for (const MetaValue& value : original->metadata().entries()) {
    EXPECT_TRUE(std::ranges::equal(value.bytes, copy->metadata().find(value.key)->bytes)) << value.key;
  }
}

TEST_F(GgufFileTest, TheWriterRefusesTensorsThatTheReaderWould) {
  GgufWriter writer;
  const std::vector<std::byte> bytes(34);
  const std::span<const std::byte> view = bytes;
  const auto add = [&](std::string_view name, std::vector<uint64_t> dims) {
    return writer.add_tensor(name, DType::kQ8_0, dims, view).message();
  };
  EXPECT_EQ(add("w", {32}), "");
  EXPECT_THAT(add("w", {32}), HasSubstr("'w'"));
  EXPECT_THAT(add(std::string(64, 'n'), {32}), HasSubstr("63 bytes"));
  EXPECT_THAT(add("x", {31}), HasSubstr("whole blocks"));
  EXPECT_THAT(add("x", {32, 2}), HasSubstr("34 bytes"));
  EXPECT_THAT(add("x", {32, 1ULL << 63, 4}), HasSubstr("34 bytes"));
  EXPECT_THAT(add("x", {32, 1, 1, 1, 1}), HasSubstr("4 dimensions"));
}

TEST_F(GgufFileTest, AFileThatCannotBeWrittenLeavesNothingBehind) {
  const Status status = five_tensors().write(path("absent/m.gguf"));
  EXPECT_EQ(status.code(), ErrorCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("absent/m.gguf"));
}

}  // namespace
}  // namespace tessera
