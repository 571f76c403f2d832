// Damaged model files through everything that loading and a first decode do. Under the sanitizers: no crash, no leak,
// no read outside a buffer; and no file takes longer than 10 s, or makes the reader allocate more than its size + 64
// MiB before it is validated.

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iostream>
#include <iterator>
#include <limits>

#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "models/architecture.h"
#include "runtime/context.h"
#include "tests/support/allocations.h"
#include "tests/support/gguf_mutator.h"
#include "tests/support/temp_folder.h"

namespace tessera {
namespace {

constexpr uint64_t kSeeds = 2000;
constexpr uint64_t kHeadSeeds = 1400;  // of these, damaged in header, metadata and tensor infos only
constexpr size_t kSlackBytes = size_t{64} << 20;
constexpr double kSecondsMax = 10;

std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_FALSE(text.empty()) << path;
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

struct Counts {
  int64_t n_refused = 0;  // by the container or the architecture
  int64_t n_unfit = 0;    // loaded no further: memory, context, devices
  int64_t n_decoded = 0;
  int64_t n_with_text = 0;  // whose vocabulary was accepted
  double slowest_s = 0;
  size_t most_bytes = 0;  // allocated before the file was validated, beyond its size
};

// Container and architecture: what is allocated before a file is known to be sound.
void validate(const std::string& path, size_t file_bytes, Counts& counts) {
  reset_peak();
  const size_t before = live_bytes();
  auto file = GgufFile::open(path);
  if (file.ok()) {
    const auto definition = build_model(*file);
    if (!definition.ok()) {
      EXPECT_LT(definition.status().message().size(), 600U);
      ++counts.n_refused;
    }
  } else {
    EXPECT_LT(file.status().message().size(), 600U);
    ++counts.n_refused;
  }
  const size_t used = peak_bytes() - before;
  EXPECT_LE(used, file_bytes + kSlackBytes);
  counts.most_bytes = std::max(counts.most_bytes, used - std::min(used, file_bytes));
}

// Loads, asks the tokenizer and the template for something, and decodes a few tokens.
void use(const std::string& path, uint64_t seed, Counts& counts) {
  ModelOptions options;
  options.path = path;
  options.n_threads = 1;
  options.devices = seed % 4 == 0 ? std::vector<std::string>{"cpu:0", "cpu:1"} : std::vector<std::string>{"cpu:0"};
  options.split_mode = seed % 8 == 0 ? "tensor" : "layer";
  options.device_memory = {64 << 20};
  options.context.n_ctx = 16;
  options.context.n_batch = options.context.n_ubatch = 8;
  const auto model = Model::load(options);
  if (!model.ok()) {
    ++counts.n_unfit;
    return;
  }
  if ((*model)->text_status().ok()) {
    ++counts.n_with_text;
    const Tokenizer& tokenizer = (*model)->tokenizer();
    const auto ids =
        tokenizer.encode("Hello \xf0\x9f\x98\x80 world\xff 12", {.parse_special = true, .add_special = true});
    (void)tokenizer.decode(ids);
    const auto chat_template = (*model)->chat_template();
    if (chat_template.ok()) {
      (void)chat_template->render(R"({"messages":[{"role":"user","content":"hi"}]})");
    }
  }
  const auto context = Context::create(*model, options.context);
  if (!context.ok()) {
    ++counts.n_unfit;
    return;
  }
  std::vector<BatchToken> batch;
  for (int32_t i = 0; i < 4; ++i) {
    batch.push_back({static_cast<int32_t>(i % (*model)->summary().n_vocab), 0, i == 3});
  }
  const Status status = (*context)->decode(batch);
  EXPECT_TRUE(status.ok()) << status.message();
  counts.n_decoded += status.ok() ? 1 : 0;
}

TEST(HostileModels, NoneOfThemHarmsLoadingOrDecoding) {
  const std::vector<std::string> names = {
      "/tiny/tiny-llama.gguf",         "/tiny/tiny-gemma3.gguf",   "/tiny/tiny-quantmix-a.gguf",
      "/tiny/tiny-qwen2.gguf",         "/tiny/tiny-qwen3.gguf",    "/tiny/tiny-llama-yarn.gguf",
      "/tiny/tiny-llama-tied.gguf",    "/models/gemma2-q5_0.gguf", "/tiny/tiny-qwen3moe.gguf",
      "/tiny/tiny-gpt-oss-mxfp4.gguf", "/tiny/tiny-qwen35.gguf"};
  std::vector<GgufMutator> mutators;
  for (const std::string& name : names) {
    mutators.emplace_back(read_bytes(TESSERA_TEST_DATA + name));
  }
  const TempFolder folder;
  Counts counts;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const size_t which = seed % mutators.size();
    const auto zone = seed < kHeadSeeds ? MutationZone::kHead : MutationZone::kAnywhere;
    const Mutant mutant = mutators[which].mutate(seed, zone);
    SCOPED_TRACE(names[which] + " seed " + std::to_string(seed) + ": " + mutant.what);
    const std::string path = folder.write("mutant.gguf", mutant.bytes);
    const auto begin = std::chrono::steady_clock::now();
    const int64_t n_refused = counts.n_refused;
    validate(path, mutant.bytes.size(), counts);
    if (counts.n_refused == n_refused) {
      use(path, seed, counts);
    } else {
      ModelOptions options;
      options.path = path;
      EXPECT_FALSE(Model::load(options).ok());
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(taken.count(), kSecondsMax);
    counts.slowest_s = std::max(counts.slowest_s, taken.count());
    if (HasFailure()) {
      std::cout << "failed: " << names[which] << " seed " << seed << ": " << mutant.what << "\n";
    }
  }
  std::cout << "seeds 0 to " << kSeeds - 1 << ", the first " << kHeadSeeds << " in the head: " << counts.n_refused
            << " refused, " << counts.n_unfit << " without room, " << counts.n_decoded << " decoded ("
            << counts.n_with_text << " with a vocabulary); slowest " << counts.slowest_s << " s, at most "
            << counts.most_bytes << " bytes beyond the file's size before it was validated\n";
  // Both ways must be walked, or the mutants have lost their point.
  EXPECT_GE(counts.n_refused, 500);
  EXPECT_GE(counts.n_decoded, 250);
}

// A tiny model with one fact changed, as a file.
std::string changed(const TempFolder& folder, const std::string& name, const std::function<void(GgufWriter&)>& change) {
  const GgufFile file = GgufFile::open(TESSERA_TEST_DATA + name).value();
  GgufWriter writer;
  writer.copy_metadata(file.metadata());
  for (const TensorInfo& tensor : file.tensors()) {
    const std::span<const uint64_t> dims(tensor.dims.data(), tensor.n_dims);
    std::vector<std::byte> bytes(tensor.n_bytes);
    EXPECT_TRUE(file.read(tensor, 0, bytes).ok());
    EXPECT_TRUE(writer.add_tensor(tensor.name, tensor.dtype, dims, std::move(bytes)).ok());
  }
  change(writer);
  return folder.write("changed.gguf", writer.to_bytes());
}

// Facts that would only bend the numbers: read late or not at all, they would give fluent nonsense.
TEST(HostileModels, FactsThatBendTheNumbersAreRefused) {
  const TempFolder folder;
  const auto divisors = [](float value) {
    return [value](GgufWriter& writer) {
      const std::vector<float> values(8, value);  // heads of 16
      const auto bytes = std::as_bytes(std::span(values));
      const uint64_t dims[] = {values.size()};
      EXPECT_TRUE(
          writer.add_tensor("rope_freqs.weight", DType::kF32, dims, std::vector<std::byte>(bytes.begin(), bytes.end()))
              .ok());
    };
  };
  struct Case {
    std::string model;
    std::function<void(GgufWriter&)> change;
    std::string part;  // of the message; empty: the model is sound
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string llama = "/tiny/tiny-llama.gguf";
  const std::string gemma = "/tiny/tiny-gemma3.gguf";
  const std::string hybrid = "/tiny/tiny-qwen35.gguf";
  const Case cases[] = {
      {llama, [](GgufWriter&) {}, ""},
      {llama, divisors(2), ""},
      {llama, divisors(std::numeric_limits<float>::infinity()), "rope"},
      {llama, divisors(0), "rope"},
      {llama, divisors(nan), "rope"},
      {llama, [](GgufWriter& w) { w.set_string("llama.attention.scale", "big"); }, "llama.attention.scale"},
      {gemma, [](GgufWriter& w) { w.set_string("gemma3.attention.scale", "big"); }, "gemma3.attention.scale"},
      {gemma, [&](GgufWriter& w) { w.set_f32("gemma3.final_logit_softcapping", nan); },
       "gemma3.final_logit_softcapping"},
      {llama, [](GgufWriter& w) { w.set_f32("llama.attention.layer_norm_rms_epsilon", -1); }, "rms_epsilon"},
      {hybrid, [](GgufWriter&) {}, ""},
      {hybrid, [](GgufWriter& w) { w.set_u32("qwen35.ssm.group_count", 3); }, "no delta net"},
      {hybrid, [](GgufWriter& w) { w.set_u32("qwen35.ssm.group_count", 1); }, "attn_qkv"},
      {hybrid, [](GgufWriter& w) { w.set_u32("qwen35.ssm.conv_kernel", 1); }, "no delta net"},
      {hybrid, [](GgufWriter& w) { w.set_u32("qwen35.ssm.conv_kernel", 5); }, "ssm_conv1d"},
      {hybrid, [](GgufWriter& w) { w.set_u32("qwen35.ssm.time_step_rank", 1U << 30); }, "no delta net"},
      {hybrid, [](GgufWriter& w) { w.set_u32("qwen35.full_attention_interval", 3); }, "blk.2."},
      {hybrid, [](GgufWriter& w) { w.set_u32("qwen35.nextn_predict_layers", 4); }, "no part of the forward pass"},
  };
  for (const Case& test : cases) {
    const std::string path = changed(folder, test.model, test.change);
    const auto definition = build_model(GgufFile::open(path).value());
    if (test.part.empty()) {
      EXPECT_TRUE(definition.ok()) << definition.status().message();
    } else {
      ASSERT_FALSE(definition.ok()) << test.part;
      EXPECT_NE(definition.status().message().find(test.part), std::string::npos) << definition.status().message();
    }
  }
}

TEST(HostileModels, AContextNeedsALength) {
  const TempFolder folder;
  ModelOptions options;
  options.path = changed(folder, "/tiny/tiny-llama.gguf", [](GgufWriter& w) { w.set_u32("llama.context_length", 0); });
  const auto without = Model::load(options);
  ASSERT_FALSE(without.ok());
  EXPECT_NE(without.status().message().find("--ctx-size"), std::string::npos) << without.status().message();
  options.context.n_ctx = 32;
  EXPECT_TRUE(Model::load(options).ok());
}

}  // namespace
}  // namespace tessera
