#include "gguf/metadata_json.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "gguf/gguf.h"
#include "gguf/writer.h"

namespace tessera {
namespace {

TEST(MetadataJson, EveryKindOfValue) {
  GgufWriter writer;
  writer.set_u32("n", 7);
  writer.set_i32("minus", -3);
  writer.set_u64("huge", std::numeric_limits<uint64_t>::max());
  writer.set_f32("eps", 1e-5F);
  writer.set_f32("whole", 10000);
  writer.set_f32("nan", std::numeric_limits<float>::quiet_NaN());
  writer.set_bool("yes", true);
  writer.set_string("text", "a \"b\"\n");
  writer.set_string("bytes", "\xff.");
  writer.set_u32_array("heads", std::vector<uint32_t>{4, 2, 4});
  writer.set_f32_array("scores", std::vector<float>{0.1F, -1.0F});
  writer.set_bool_array("window", std::vector<uint8_t>{1, 0});
  writer.set_string_array("tokens", std::vector<std::string>{"a", "", "ccc"});
  writer.set_string_array("none", std::vector<std::string>{});
  const std::vector<std::byte> bytes = writer.to_bytes();
  const auto file = GgufFile::open_memory(bytes);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto json = [&](const char* key, uint64_t most = 100) {
    return metadata_json(*file->metadata().find(key), most);
  };
  EXPECT_EQ(json("n"), "7");
  EXPECT_EQ(json("minus"), "-3");
  EXPECT_EQ(json("huge"), "18446744073709551615");
  EXPECT_EQ(json("eps"), "1e-05");
  EXPECT_EQ(json("whole"), "10000.0");
  EXPECT_EQ(json("nan"), "null");
  EXPECT_EQ(json("yes"), "true");
  EXPECT_EQ(json("text"), R"("a \"b\"\n")");
  EXPECT_EQ(json("bytes"), "\"\xEF\xBF\xBD.\"");
  EXPECT_EQ(json("heads"), "[4,2,4]");
  EXPECT_EQ(json("heads", 2), "[4,2]");
  EXPECT_EQ(json("scores"), "[0.1,-1.0]");
  EXPECT_EQ(json("window"), "[true,false]");
  EXPECT_EQ(json("tokens"), R"(["a","","ccc"])");
  EXPECT_EQ(json("tokens", 0), "[]");
  EXPECT_EQ(json("none"), "[]");
}

// The bytes may be read again from a file that somebody has written to meanwhile.
TEST(MetadataJson, BytesThatAreNotWhatTheyWere) {
  MetaValue value;
  value.type = MetaType::kArray;
  value.elem_type = MetaType::kString;
  value.count = 3;
  const char text[] = "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x41";
  value.bytes = std::as_bytes(std::span(text, 9));
  EXPECT_EQ(metadata_json(value), R"(["A"])");
  value.bytes = value.bytes.last(3);
  EXPECT_EQ(metadata_json(value), R"([""])");
  value.elem_type = MetaType::kU32;
  EXPECT_EQ(metadata_json(value), "[4325375]");
}

}  // namespace
}  // namespace tessera
