// A model whose metadata are overridden is the model of a file with those values: the same bits, and the same states.

#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/writer.h"
#include "runtime/model_file.h"
#include "runtime/outline.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kLlama = TESSERA_TEST_DATA "/tiny/tiny-llama.gguf";

class MetadataOverrides : public testing::Test {
 protected:
  // The path of tiny-llama with other keys.
  [[nodiscard]] std::string file_with(const std::function<void(GgufWriter&)>& change) const {
    const GgufFile file = GgufFile::open(kLlama).value();
    GgufWriter writer;
    writer.copy_metadata(file.metadata());
    change(writer);
    for (const TensorInfo& tensor : file.tensors()) {
      std::vector<std::byte> bytes(tensor.n_bytes);
      CHECK(file.read(tensor, 0, bytes).ok());
      CHECK(writer.add_tensor(tensor.name, tensor.dtype, std::span(tensor.dims).first(tensor.n_dims), std::move(bytes))
                .ok());
    }
    return folder_.write("changed.gguf", writer.to_bytes());
  }

  static ModelOptions options(const std::string& path, std::vector<std::string> overrides = {}) {
    ModelOptions options;
    options.path = path;
    options.override_kv = std::move(overrides);
    options.n_threads = 2;
    options.context = {.n_ctx = 64, .n_batch = 64, .n_ubatch = 32};
    return options;
  }

  static std::vector<float> logits(const ModelOptions& model) {
    const Result<RunResult> result = run_model({.model = model});
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? result->logits : std::vector<float>();
  }

  static std::unique_ptr<Context> open(const ModelOptions& options) {
    auto context = Context::create(Model::load(options).value(), options.context);
    CHECK(context.ok());
    return std::move(context).value();
  }

  TempFolder folder_;
};

TEST_F(MetadataOverrides, TheFilesOwnValuesChangeNothing) {
  const std::vector<float> plain = logits(options(kLlama));
  const GgufFile file = GgufFile::open(kLlama).value();
  const Metadata& meta = file.metadata();
  const auto own = {
      fmt::format("llama.rope.freq_base=float:{}", meta.get_f32("llama.rope.freq_base").value()),
      fmt::format("llama.block_count=int:{}", meta.get_u32("llama.block_count").value()),
      fmt::format("tokenizer.ggml.pre=str:{}", meta.get_string("tokenizer.ggml.pre", "default").value()),
  };
  EXPECT_EQ(n_different(logits(options(kLlama, own)), plain), 0U);
  const auto before = open(options(kLlama));
  ASSERT_TRUE(before->decode(std::vector<BatchToken>{{1, 0, true}}).ok());
  std::vector<std::byte> state(before->state_bytes(0).value());
  ASSERT_TRUE(before->get_state(0, state).ok());
  EXPECT_TRUE(open(options(kLlama, own))->set_state(0, state).ok());
}

TEST_F(MetadataOverrides, AreTheFileWithThoseValues) {
  const std::vector<float> plain = logits(options(kLlama));
  const std::string path = file_with([](GgufWriter& writer) {
    writer.set_f32("llama.rope.freq_base", 500);
    writer.set_string("llama.rope.scaling.type", "yarn");
    writer.set_f32("llama.rope.scaling.factor", 4);
    writer.set_u32("llama.rope.scaling.original_context_length", 16);
    writer.set_f32("llama.rope.scaling.attn_factor", 1.5);
  });
  const std::vector<float> changed = logits(options(path));
  EXPECT_GT(n_different(changed, plain), plain.size() / 2);
  const ModelOptions overridden =
      options(kLlama, {"llama.rope.freq_base=float:500", ".rope.scaling.type=str:yarn", ".rope.scaling.factor=float:4",
                       ".rope.scaling.original_context_length=int:16", ".rope.scaling.attn_factor=float:1.5"});
  EXPECT_EQ(n_different(logits(overridden), changed), 0U);

  // States are of the file that this stands for, and of no other.
  const auto context = open(overridden);
  ASSERT_TRUE(context->decode(std::vector<BatchToken>{{1, 0, false}, {2, 0, true}}).ok());
  std::vector<std::byte> state(context->state_bytes(0).value());
  ASSERT_TRUE(context->get_state(0, state).ok());
  EXPECT_TRUE(open(options(path))->set_state(0, state).ok());
  EXPECT_THAT(open(options(kLlama))->set_state(0, state).message(), HasSubstr("another model"));
}

TEST_F(MetadataOverrides, ReachTheVocabularyAndTheOutline) {
  const auto begins = [](std::vector<std::string> overrides) {
    const auto model = Model::load(options(kLlama, std::move(overrides)));
    CHECK(model.ok());
    return (*model)->tokenizer().add_bos();
  };
  EXPECT_NE(begins({"tokenizer.ggml.add_bos_token=bool:true"}), begins({"tokenizer.ggml.add_bos_token=bool:false"}));
  const auto outline = open_outline(options(kLlama, {"llama.context_length=int:77"}));
  ASSERT_TRUE(outline.ok());
  EXPECT_EQ((*outline)->definition.info.n_ctx_train, 77);
}

TEST_F(MetadataOverrides, ErrorsNameTheFlagAndTheKey) {
  const auto error = [](const std::string& text) {
    const Status status = Model::load(options(kLlama, {text})).status();
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(error("llama.block_count=int:x"),
              AllOf(HasSubstr("--override-kv llama.block_count=int:x: "), HasSubstr("'x'")));
  EXPECT_THAT(error("llama.block_count=float:2"), AllOf(HasSubstr("--override-kv"), HasSubstr("write int:VALUE")));
}

TEST_F(MetadataOverrides, KeysThatTheFileLacksAreTold) {
  std::vector<std::string> told;
  const Log log([&](LogLevel, std::string_view text) { told.emplace_back(text); }, LogLevel::kInfo);
  ASSERT_TRUE(open_model_file(options(kLlama, {"llama.mispelt=int:1", ".rope.scaling.factor=float:2"}), log).ok());
  EXPECT_THAT(told, testing::ElementsAre(HasSubstr("llama.mispelt=int:1: the file has no such key"),
                                         HasSubstr(".rope.scaling.factor=float:2: the file has no such key")));
}

}  // namespace
}  // namespace tessera
