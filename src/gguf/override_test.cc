#include "gguf/override.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/gguf.h"
#include "gguf/writer.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

GgufWriter model() {
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_u32("llama.block_count", 2);
  writer.set_f32("llama.rope.freq_base", 10000);
  writer.set_bool("tokenizer.ggml.add_bos_token", true);
  writer.set_string("tokenizer.ggml.pre", "default");
  writer.set_u64("llama.wide", 1);
  const uint32_t numbers[] = {1, 2};
  writer.set_u32_array("llama.numbers", numbers);
  return writer;
}

// The file of `bytes` with the values of these texts; empty: what went wrong is in `error`.
std::optional<GgufFile> overridden(const std::vector<std::byte>& bytes, const std::vector<std::string>& texts,
                                   std::string* error = nullptr) {
  GgufFile file = GgufFile::open_memory(bytes).value();
  for (const std::string& text : texts) {
    const Result<MetadataOverride> given = parse_override(text);
    const Status status = given.ok() ? file.override_value(*given) : given.status();
    if (!status.ok()) {
      EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
      if (error != nullptr) {
        *error = status.message();
      }
      return std::nullopt;
    }
  }
  return file;
}

std::string error_of(const std::string& text) {
  std::string error = "ok";
  (void)overridden(model().to_bytes(), {text}, &error);
  return error;
}

// Key, types and bytes of every entry.
std::vector<std::string> described(const GgufFile& file) {
  std::vector<std::string> all;
  for (const MetaValue& value : file.metadata().entries()) {
    all.push_back(std::string(value.key) + " " + value.type_text() + " " +
                  std::string(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()));
    EXPECT_EQ(value.n_bytes, value.bytes.size());
    EXPECT_EQ(file.metadata().find(value.key), &value);
  }
  return all;
}

TEST(MetadataOverride, CannotBeToldFromAFileWithTheValues) {
  const std::vector<std::byte> bytes = model().to_bytes();
  const auto file = overridden(bytes, {"llama.rope.freq_base=float:5e5", "llama.block_count=int:3", "llama.wide=int:7",
                                       "tokenizer.ggml.add_bos_token=bool:false", "tokenizer.ggml.pre=str:a=b:c, d",
                                       ".rope.scaling.factor=float:4", "llama.new=int:5", "llama.deep=int:-1",
                                       "llama.flag=bool:true", "x=str:", "llama.new=int:6"});
  ASSERT_TRUE(file);
  GgufWriter writer = model();
  writer.set_f32("llama.rope.freq_base", 5e5F);
  writer.set_u32("llama.block_count", 3);
  writer.set_u64("llama.wide", 7);
  writer.set_bool("tokenizer.ggml.add_bos_token", false);
  writer.set_string("tokenizer.ggml.pre", "a=b:c, d");
  writer.set_f32("llama.rope.scaling.factor", 4);
  writer.set_u32("llama.new", 6);
  const int64_t deep = -1;
  writer.set_raw({.key = "llama.deep",
                  .type = MetaType::kI64,
                  .elem_type = MetaType::kI64,
                  .count = 1,
                  .bytes = std::as_bytes(std::span(&deep, 1)),
                  .file_offset = 0,
                  .n_bytes = sizeof deep});
  writer.set_bool("llama.flag", true);
  writer.set_string("x", "");
  const std::vector<std::byte> other = writer.to_bytes();
  EXPECT_EQ(described(*file), described(GgufFile::open_memory(other).value()));
}

TEST(MetadataOverride, StaysWhenTheFileMovesAndForgets) {
  GgufWriter writer = model();
  const std::vector<std::string> words(20000, "word");
  writer.set_string_array("tokenizer.ggml.tokens", words);
  const std::string path = testing::TempDir() + "/override_test.gguf";
  ASSERT_TRUE(writer.write(path).ok());
  auto file = std::make_unique<GgufFile>(GgufFile::open(path).value());
  ASSERT_TRUE(file->override_value(parse_override("llama.rope.freq_base=float:2").value()).ok());
  ASSERT_TRUE(file->override_value(parse_override("a=str:b").value()).ok());
  const GgufFile moved = [&] {
    file->forget_arrays("tokenizer.");
    GgufFile out = std::move(*file);
    file.reset();
    return out;
  }();
  EXPECT_EQ(moved.metadata().get_f32("llama.rope.freq_base").value(), 2);
  EXPECT_EQ(moved.metadata().get_string("a").value(), "b");
  EXPECT_TRUE(moved.metadata().find("tokenizer.ggml.tokens")->is_forgotten());
}

TEST(MetadataOverride, TextsThatAreNone) {
  for (const char* text : {"", "a", "=int:1", "a=int", "a:int=1", "a=1"}) {
    EXPECT_THAT(error_of(text), HasSubstr("wanted KEY=TYPE:VALUE")) << text;
  }
  EXPECT_THAT(error_of("a=i32:1"), HasSubstr("'i32' is none of the types int, float, bool, str"));
  for (const char* value : {"", "x", "1.5", "1 ", " 1", "9223372036854775808", "+1"}) {
    EXPECT_THAT(error_of(std::string("a=int:") + value), HasSubstr("is no whole number")) << value;
  }
  for (const char* value : {"", "x", "1,5", "inf", "nan", "1e999"}) {
    EXPECT_THAT(error_of(std::string("a=float:") + value), HasSubstr("is no finite number")) << value;
  }
  for (const char* value : {"", "1", "True", "on"}) {
    EXPECT_THAT(error_of(std::string("a=bool:") + value), HasSubstr("write true or false")) << value;
  }
}

TEST(MetadataOverride, ValuesThatDoNotFitTheFile) {
  EXPECT_EQ(error_of("llama.rope.freq_base=int:5"),
            "the key 'llama.rope.freq_base' is f32 in the file; write float:VALUE");
  EXPECT_EQ(error_of("llama.block_count=str:5"), "the key 'llama.block_count' is u32 in the file; write int:VALUE");
  EXPECT_THAT(error_of("llama.block_count=int:-1"), HasSubstr("is u32 in the file, whose range has no such number"));
  EXPECT_THAT(error_of("llama.block_count=int:4294967296"), HasSubstr("whose range has no such number"));
  EXPECT_THAT(error_of("llama.rope.freq_base=float:1e39"), HasSubstr("whose range has no such number"));
  EXPECT_THAT(error_of("llama.numbers=int:1"), HasSubstr("array of 2 u32 in the file, which cannot be overridden"));
  EXPECT_THAT(error_of("split.count=int:1"), HasSubstr("how the file is laid out"));
  EXPECT_THAT(error_of("general.alignment=int:64"), HasSubstr("how the file is laid out"));
}

TEST(MetadataOverride, FileWithoutArchitectureHasNoKeysOfIt) {
  const std::vector<std::byte> bytes = GgufWriter().to_bytes();
  GgufFile file = GgufFile::open_memory(bytes).value();
  EXPECT_EQ(file.override_value(parse_override(".x=int:1").value()).code(), ErrorCode::kNotFound);
  EXPECT_TRUE(file.metadata().entries().empty());
}

}  // namespace
}  // namespace tessera
