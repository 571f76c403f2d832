#include "gguf/metadata.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gguf/gguf.h"
#include "gguf/writer.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A file in memory with one key of each kind.
class MetadataTest : public testing::Test {
 protected:
  MetadataTest() {
    GgufWriter writer;
    writer.set_u32("n", 7);
    writer.set_i32("minus", -3);
    writer.set_u64("huge", 1ULL << 40);
    writer.set_f32("eps", 0.5F);
    writer.set_bool("yes", true);
    writer.set_string("name", "tessera");
    writer.set_u32_array("heads", std::vector<uint32_t>{4, 2, 4});
    writer.set_i32_array("signed", std::vector<int32_t>{-1, 5});
    writer.set_f32_array("scores", std::vector<float>{0.25F, -1.0F});
    writer.set_bool_array("window", std::vector<uint8_t>{1, 0, 1});
    writer.set_string_array("tokens", std::vector<std::string>{"a", "", "ccc"});
    const double wide = 1e300;
    writer.set_raw({"wide", MetaType::kF64, MetaType::kF64, 1, std::as_bytes(std::span(&wide, 1))});
    bytes_ = writer.to_bytes();
    auto file = GgufFile::open_memory(bytes_);
    EXPECT_TRUE(file.ok()) << file.status().message();
    metadata_ = file->metadata();
  }

  std::vector<std::byte> bytes_;
  Metadata metadata_;
};

template <typename T>
std::string failure(const Result<T>& result, ErrorCode wanted = ErrorCode::kInvalidData) {
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), wanted);
  return result.status().message();
}

TEST_F(MetadataTest, ScalarsOfAnyFittingTypeAreTaken) {
  EXPECT_EQ(metadata_.get_u32("n").value(), 7U);
  EXPECT_EQ(metadata_.get_i32("n").value(), 7);
  EXPECT_EQ(metadata_.get_u64("n").value(), 7U);
  EXPECT_EQ(metadata_.get_f32("n").value(), 7.0F);
  EXPECT_EQ(metadata_.get_i32("minus").value(), -3);
  EXPECT_EQ(metadata_.get_u64("huge").value(), 1ULL << 40);
  EXPECT_EQ(metadata_.get_f32("eps").value(), 0.5F);
  EXPECT_TRUE(metadata_.get_bool("yes").value());
  EXPECT_EQ(metadata_.get_string("name").value(), "tessera");
}

TEST_F(MetadataTest, WrongTypesNameKeyWantedAndFound) {
  EXPECT_THAT(failure(metadata_.get_u32("minus")), HasSubstr("the key 'minus' must be u32, but is i32 -3"));
  EXPECT_THAT(failure(metadata_.get_u32("huge")), HasSubstr("the key 'huge' must be u32, but is u64 1099511627776"));
  EXPECT_THAT(failure(metadata_.get_u32("eps")), HasSubstr("the key 'eps' must be u32, but is f32 0.5"));
  EXPECT_THAT(failure(metadata_.get_u32("yes")), HasSubstr("but is bool"));
  EXPECT_THAT(failure(metadata_.get_u32("heads")), HasSubstr("must be u32, but is array of 3 u32"));
  EXPECT_THAT(failure(metadata_.get_f32("name")), HasSubstr("the key 'name' must be f32, but is string"));
  EXPECT_THAT(failure(metadata_.get_f32("wide")), HasSubstr("must be f32, but is f64"));
  EXPECT_THAT(failure(metadata_.get_bool("n")), HasSubstr("must be bool, but is u32 7"));
  EXPECT_THAT(failure(metadata_.get_string("n")), HasSubstr("must be string, but is u32 7"));
  EXPECT_THAT(failure(metadata_.get_string("tokens")), HasSubstr("must be string, but is array of 3 string"));
}

TEST_F(MetadataTest, MissingKeysFailOrFallBack) {
  EXPECT_THAT(failure(metadata_.get_u32("absent"), ErrorCode::kNotFound), HasSubstr("the key 'absent' is missing"));
  EXPECT_EQ(metadata_.get_u32("absent", 9).value(), 9U);
  EXPECT_EQ(metadata_.get_f32("absent", 1.5F).value(), 1.5F);
  EXPECT_TRUE(metadata_.get_bool("absent", true).value());
  EXPECT_EQ(metadata_.get_string("absent", "x").value(), "x");
  EXPECT_EQ(metadata_.get_u32("n", 9).value(), 7U);
  // A fallback does not hide a wrong type.
  EXPECT_THAT(failure(metadata_.get_u32("name", 9)), HasSubstr("must be u32"));
}

TEST_F(MetadataTest, ArraysAreCopiedElementByElement) {
  EXPECT_THAT(metadata_.get_u32_array("heads").value(), ElementsAre(4, 2, 4));
  EXPECT_THAT(metadata_.get_i32_array("signed").value(), ElementsAre(-1, 5));
  EXPECT_THAT(metadata_.get_f32_array("scores").value(), ElementsAre(0.25F, -1.0F));
  EXPECT_THAT(metadata_.get_bool_array("window").value(), ElementsAre(1, 0, 1));
  EXPECT_THAT(metadata_.get_string_array("tokens").value(), ElementsAre("a", "", "ccc"));
  EXPECT_THAT(failure(metadata_.get_u32_array("signed")), AllOf(HasSubstr("'signed'"), HasSubstr("element 0")));
  EXPECT_THAT(failure(metadata_.get_u32_array("n")), HasSubstr("must be an array of u32, but is u32 7"));
  EXPECT_THAT(failure(metadata_.get_f32_array("tokens")), HasSubstr("array of f32, but is array of 3 string"));
  EXPECT_THAT(failure(metadata_.get_string_array("heads")), HasSubstr("array of string, but is array of 3 u32"));
  EXPECT_THAT(failure(metadata_.get_bool_array("heads")), HasSubstr("element 0"));
}

TEST_F(MetadataTest, PerLayerTakesAScalarOrAnArrayOfTheRightLength) {
  EXPECT_THAT(metadata_.get_u32_per_layer("n", 2).value(), ElementsAre(7, 7));
  EXPECT_THAT(metadata_.get_u32_per_layer("heads", 3).value(), ElementsAre(4, 2, 4));
  EXPECT_THAT(metadata_.get_f32_per_layer("scores", 2).value(), ElementsAre(0.25F, -1.0F));
  EXPECT_THAT(metadata_.get_bool_per_layer("window", 3).value(), ElementsAre(1, 0, 1));
  EXPECT_THAT(metadata_.get_bool_per_layer("absent", 2, true).value(), ElementsAre(1, 1));
  EXPECT_THAT(metadata_.get_u32_per_layer("absent", 2, 5).value(), ElementsAre(5, 5));
  EXPECT_THAT(failure(metadata_.get_u32_per_layer("absent", 2), ErrorCode::kNotFound), HasSubstr("'absent'"));
  EXPECT_THAT(failure(metadata_.get_u32_per_layer("heads", 2)),
              AllOf(HasSubstr("'heads'"), HasSubstr("each of 2 layers"), HasSubstr("array of 3 u32")));
  EXPECT_THAT(failure(metadata_.get_u32_per_layer("name", 2)), HasSubstr("'name'"));
  EXPECT_THAT(failure(metadata_.get_u32_per_layer("n", std::numeric_limits<uint32_t>::max())),
              HasSubstr("taken for damage"));
}

TEST_F(MetadataTest, FindsEveryEntryInFileOrder) {
  EXPECT_EQ(metadata_.entries().front().key, "n");
  for (const MetaValue& value : metadata_.entries()) {
    EXPECT_EQ(metadata_.find(value.key), &value);
  }
  EXPECT_EQ(metadata_.find("heads")->type_text(), "array of 3 u32");
  EXPECT_EQ(Metadata().find("n"), nullptr);
}

}  // namespace
}  // namespace tessera
