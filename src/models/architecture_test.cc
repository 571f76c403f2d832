#include "models/architecture.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>

#include "gguf/writer.h"

namespace tessera {
namespace {

GgufFile open_tiny(const std::string& name) {
  auto file = GgufFile::open(TESSERA_TEST_DATA "/tiny/" + name + ".gguf");
  EXPECT_TRUE(file.ok()) << file.status().message();
  return std::move(file).value();
}

// A tiny model written anew: `metadata` may change keys, `keep` drops tensors, `rename` gives others.
Status build_variant(const std::string& name, const std::function<void(GgufWriter&)>& metadata,
                     const std::function<std::string(const std::string&)>& rename) {
  const GgufFile file = open_tiny(name);
  GgufWriter writer;
  writer.copy_metadata(file.metadata());
  metadata(writer);
  for (const TensorInfo& tensor : file.tensors()) {
    const std::string renamed = rename(tensor.name);
    if (!renamed.empty()) {
      std::vector<std::byte> bytes(tensor.n_bytes);
      TRY(file.read(tensor, 0, bytes));
      TRY(writer.add_tensor(renamed, tensor.dtype, std::span(tensor.dims).first(tensor.n_dims), std::move(bytes)));
    }
  }
  const std::vector<std::byte> bytes = writer.to_bytes();
  ASSIGN_OR_RETURN(const GgufFile variant, GgufFile::open_memory(bytes, "variant.gguf"));
  return build_model(variant).status();
}

Status with_keys(const std::string& name, const std::function<void(GgufWriter&)>& metadata) {
  return build_variant(name, metadata, [](const std::string& n) { return n; });
}

Status with_tensors(const std::string& name, const std::function<std::string(const std::string&)>& rename) {
  return build_variant(name, [](GgufWriter&) {}, rename);
}

TEST(Architectures, AreRegistered) {
  const std::vector<std::string_view> names = architecture_names();
  for (const std::string_view name : {"gemma2", "gemma3", "gpt-oss", "llama", "qwen2", "qwen2moe", "qwen3", "qwen35",
                                      "qwen35moe", "qwen3moe", "qwen3next"}) {
    EXPECT_NE(std::ranges::find(names, name), names.end()) << name;
  }
}

TEST(Architectures, BuildTheTinyModels) {
  for (const char* name :
       {"tiny-llama", "tiny-llama-tied", "tiny-llama-yarn", "tiny-qwen2", "tiny-qwen3", "tiny-qwen35", "tiny-qwen35moe",
        "tiny-qwen3next", "tiny-gemma3", "tiny-quantmix-a", "tiny-quantmix-b", "tiny-qwen3moe", "tiny-llama-moe",
        "tiny-gpt-oss", "tiny-gpt-oss-mxfp4"}) {
    const GgufFile file = open_tiny(name);
    const auto model = build_model(file);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->program.kv_layers.size(), static_cast<size_t>(model->info.n_layer));
    EXPECT_EQ(model->table.n_vocab, model->program.n_vocab);
  }
}

TEST(Architectures, GemmaWindowsFollowThePattern) {
  const GgufFile file = open_tiny("tiny-gemma3");
  const auto model = build_model(file);
  ASSERT_TRUE(model.ok());
  for (size_t l = 0; l < model->program.kv_layers.size(); ++l) {
    EXPECT_EQ(model->program.kv_layers[l].window, (l + 1) % 6 == 0 ? 0 : 8) << "layer " << l;
  }
}

// Three delta nets to one attention layer; what predicts several tokens at the file's end is known and left alone.
TEST(Architectures, HybridLayersAndBlocksBehindThem) {
  const GgufFile file = open_tiny("tiny-qwen35");
  const auto model = build_model(file);
  ASSERT_TRUE(model.ok());
  for (size_t l = 0; l < 4; ++l) {
    EXPECT_EQ(model->program.rec_layers[l].n_key_heads, l == 3 ? 0 : 2) << "layer " << l;
    EXPECT_EQ(model->program.kv_layers[l].n_kv_heads, l == 3 ? 2 : 0) << "layer " << l;
  }
  EXPECT_EQ(model->program.rec_layers[0].n_rep, 2);
  const auto with_block = [](uint32_t n_predict) {
    return with_keys("tiny-qwen35", [=](GgufWriter& w) {
      w.set_u32("qwen35.block_count", 5);
      w.set_u32("qwen35.nextn_predict_layers", n_predict);
      const float value = 1;
      const uint64_t dims[] = {1};
      EXPECT_TRUE(
          w.add_tensor("blk.4.nextn.enorm.weight", DType::kF32, dims, std::as_bytes(std::span(&value, 1))).ok());
    });
  };
  EXPECT_TRUE(with_block(1).ok()) << with_block(1).message();
  EXPECT_NE(with_block(0).message().find("blk.4."), std::string::npos) << with_block(0).message();
}

TEST(Architectures, UnknownOneNamesItselfAndTheKnown) {
  const Status status = with_keys("tiny-llama", [](GgufWriter& w) { w.set_string("general.architecture", "llamb"); });
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_NE(status.message().find("'llamb'"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("gemma3, gpt-oss, llama"), std::string::npos) << status.message();
}

TEST(Architectures, MissingTensorIsNamed) {
  const Status status =
      with_tensors("tiny-llama", [](const std::string& n) { return n == "blk.1.ffn_up.weight" ? "" : n; });
  EXPECT_EQ(status.code(), ErrorCode::kInvalidData);
  EXPECT_NE(status.message().find("tensor blk.1.ffn_up.weight is missing"), std::string::npos) << status.message();
}

TEST(Architectures, TensorThatNothingReadsIsRefused) {
  const Status status =
      with_tensors("tiny-llama", [](const std::string& n) { return n == "output.weight" ? "output_extra.weight" : n; });
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_NE(status.message().find("output_extra.weight"), std::string::npos) << status.message();
}

TEST(Architectures, WrongShapesAndNumbersAreNamed) {
  struct Case {
    const char* key;
    uint32_t value;
    const char* says;
  };
  for (const Case& c :
       {Case{"llama.embedding_length", 32, "token_embd.weight"},
        Case{"llama.feed_forward_length", 100, "ffn_gate.weight"},
        Case{"llama.feed_forward_length", 0, "feed-forward width of 0"},
        Case{"llama.attention.head_count", 0, "0 heads"},
        Case{"llama.attention.head_count_kv", 3, "4 heads on 3 KV heads"}, Case{"llama.block_count", 0, "0 layers"},
        Case{"llama.block_count", 100000, "layers"}, Case{"llama.block_count", 3, "blk.2."},
        Case{"llama.rope.dimension_count", 1000, "rope.dimension_count"},
        Case{"llama.expert_count", 8, "expert_used_count"}}) {
    const Status status = with_keys("tiny-llama", [&](GgufWriter& w) { w.set_u32(c.key, c.value); });
    EXPECT_FALSE(status.ok()) << c.key << " " << c.value;
    EXPECT_NE(status.message().find(c.says), std::string::npos) << c.key << ": " << status.message();
  }
  for (const Case& c :
       {Case{"qwen3moe.expert_count", 5000, "experts"}, Case{"qwen3moe.expert_count", 7, "ffn_gate_inp"},
        Case{"qwen3moe.expert_used_count", 0, "experts"}, Case{"qwen3moe.expert_used_count", 9, "experts"},
        Case{"qwen3moe.expert_feed_forward_length", 23, "blk.0.ffn_gate_exps.weight"}}) {
    const Status status = with_keys("tiny-qwen3moe", [&](GgufWriter& w) { w.set_u32(c.key, c.value); });
    EXPECT_FALSE(status.ok()) << c.key << " " << c.value;
    EXPECT_NE(status.message().find(c.says), std::string::npos) << c.key << ": " << status.message();
  }
  const Status scaling = with_keys("tiny-llama", [](GgufWriter& w) { w.set_string("llama.rope.scaling.type", "new"); });
  EXPECT_NE(scaling.message().find("'new'"), std::string::npos) << scaling.message();
}

}  // namespace
}  // namespace tessera
