// What a caller may ask wrongly or too much of: every case is an error that names the flag or field, and what was there
// before still works.

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cache_types.h"
#include "runtime/cache_types.h"
#include "runtime/context.h"
#include "tests/support/run_model.h"

namespace tessera {
namespace {

using testing::HasSubstr;

ModelOptions tiny_options(const std::string& name = "/tiny/tiny-llama.gguf") {
  ModelOptions options;
  options.path = TESSERA_TEST_DATA + name;
  options.context.n_ctx = 40;
  options.context.n_batch = 64;
  options.context.n_ubatch = 16;
  options.n_threads = 2;
  return options;
}

TEST(CacheTypes, NamesAreThoseOfTheKernels) {
  for (const DTypeInfo& info : dtype_table()) {
    const bool is_one = std::ranges::find(kCacheTypes, info.dtype) != kCacheTypes.end();
    const Result<DType> found = cache_type_from_name(info.name);
    EXPECT_EQ(found.ok(), is_one) << info.name;
    EXPECT_TRUE(!found.ok() || *found == info.dtype) << info.name;
  }
  EXPECT_EQ(cache_type_from_name("").status().code(), ErrorCode::kInvalidArgument);
}

void expect_load_error(const ModelOptions& options, ErrorCode code, const std::string& part) {
  const auto model = Model::load(options);
  ASSERT_FALSE(model.ok()) << part;
  EXPECT_EQ(model.status().code(), code) << model.status().message();
  EXPECT_THAT(model.status().message(), HasSubstr(part));
  EXPECT_EQ(model.status().message().find('\n'), std::string::npos);
}

struct Opened {
  std::shared_ptr<Model> model;
  std::unique_ptr<Context> context;
};
Opened open(const ModelOptions& options) {
  auto model = Model::load(options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  auto context = Context::create(*model, options.context);
  EXPECT_TRUE(context.ok()) << context.status().message();
  return {*model, std::move(*context)};
}

std::vector<BatchToken> tokens(int64_t n, int32_t seq = 0) {
  std::vector<BatchToken> batch;
  for (int32_t i = 0; i < n; ++i) {
    batch.push_back({(i * 11 + seq) % 288, seq, i + 1 == n});
  }
  return batch;
}

std::vector<float> last_logits(const Context& context) {
  const auto row = context.logits(context.n_outputs() - 1);
  return {row.begin(), row.end()};
}

void expect_error(const Status& status, ErrorCode code, const std::string& part) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(Flags, WrongValuesAreNamed) {
  const auto with = [](auto change) {
    ModelOptions options = tiny_options();
    options.devices = cpu_names(2);
    change(options);
    return options;
  };
  using O = ModelOptions;
  constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
  expect_load_error(with([](O& o) { o.split_mode = "rows"; }), kBad, "--split-mode");
  expect_load_error(with([](O& o) { o.kernels = "slow"; }), kBad, "--kernels");
  expect_load_error(with([](O& o) { o.cpu_isa = "sse9"; }), kBad, "--cpu-isa");
  expect_load_error(with([](O& o) { o.n_cuts = 9; }), kBad, "--cuts");
  expect_load_error(with([](O& o) { o.n_cuts = -1; }), kBad, "--cuts");
  expect_load_error(with([](O& o) { o.tensor_split = {1}; }), kBad, "--tensor-split");
  expect_load_error(with([](O& o) { o.tensor_split = {1, 2, 3}; }), kBad, "--tensor-split");
  expect_load_error(with([](O& o) { o.tensor_split = {0, 0}; }), kBad, "--tensor-split");
  expect_load_error(with([](O& o) { o.tensor_split = {1, -1}; }), kBad, "--tensor-split");
  for (const char* rule : {"ffn", "=cpu:0", "ffn=gpu", "(=cpu:0", "nothing=cpu:0"}) {
    expect_load_error(with([&](O& o) { o.override_tensor = {rule}; }), kBad, "--override-tensor");
  }
  expect_load_error(with([](O& o) { o.override_tensor = {"ffn_up=cpu:0"}; }), ErrorCode::kUnsupported, "ffn_");
  expect_load_error(with([](O& o) { o.device_memory = {1, 2, 3}; }), kBad, "--device-memory");
  expect_load_error(with([](O& o) { o.devices = {"cuda:0"}; }), ErrorCode::kUnsupported, "cuda");
  expect_load_error(with([](O& o) { o.devices = {"null:0"}; }), ErrorCode::kUnsupported, "null:0");
  expect_load_error(with([](O& o) { o.devices = cpu_names(65); }), kBad, "--device");
  expect_load_error(with([](O& o) { o.context.n_ctx = -1; }), kBad, "--ctx-size");
  expect_load_error(with([](O& o) { o.context.n_batch = 0; }), kBad, "--batch-size");
  expect_load_error(with([](O& o) { o.context.n_ubatch = 0; }), kBad, "--ubatch-size");
  expect_load_error(with([](O& o) { o.context.n_seq_max = 0; }), kBad, "sequences");
  expect_load_error(with([](O& o) { o.context.n_snapshots = 1 << 30; }), kBad, "--ctx-checkpoints");
  expect_load_error(with([](O& o) { o.context.k_type = DType::kQ8_0; }), ErrorCode::kUnsupported, "--cache-type-k");
  expect_load_error(with([](O& o) { o.context.v_type = DType::kQ4_0; }), ErrorCode::kUnsupported, "--cache-type-v");
  expect_load_error(with([](O& o) { o.path += ".nothing"; }), ErrorCode::kNotFound, "tiny-llama.gguf.nothing");
  expect_load_error(with([](O& o) { o.path = TESSERA_TEST_DATA "/tiny/tiny-mamba2.gguf"; }), ErrorCode::kUnsupported,
                    "mamba2");
  expect_load_error(with([](O& o) { o.path = TESSERA_TEST_DATA "/tiny/tiny-llama.json"; }), ErrorCode::kInvalidData,
                    "tiny-llama.json");
}

TEST(Budgets, AModelThatDoesNotFitSaysWhatEachDeviceNeedsAndHas) {
  ModelOptions options = tiny_options("/models/llama-q4_k.gguf");
  options.devices = cpu_names(2);
  options.split_mode = "tensor";
  options.device_memory = {64 << 20, 256 << 10};
  const auto one = Model::load(options);
  ASSERT_FALSE(one.ok());
  EXPECT_EQ(one.status().code(), ErrorCode::kDoesNotFit);
  EXPECT_THAT(one.status().message(), HasSubstr("cpu:1 needs"));
  EXPECT_THAT(one.status().message(), testing::Not(HasSubstr("cpu:0 needs")));
  EXPECT_THAT(one.status().message(), HasSubstr("has 0.2"));
  options.device_memory = {256 << 10};
  const auto both = Model::load(options);
  ASSERT_FALSE(both.ok());
  EXPECT_THAT(both.status().message(), HasSubstr("cpu:0 needs"));
  EXPECT_THAT(both.status().message(), HasSubstr("cpu:1 needs"));
  options.device_memory = {};
  EXPECT_TRUE(Model::load(options).ok());
}

// The smallest budget that is accepted is enough for loading, the context and decoding, and one unit less is refused.
TEST(Budgets, WhatIsCountedIsWhatIsUsed) {
  for (const char* mode : {"layer", "tensor"}) {
    ModelOptions options = tiny_options("/models/llama-q4_k.gguf");
    options.devices = cpu_names(2);
    options.split_mode = mode;
    const Opened free = open(options);
    std::vector<uint64_t> used;
    for (const DeviceUse& use : free.model->device_use()) {
      used.push_back(use.weight_bytes + use.kv_bytes + use.rec_bytes + use.scratch_bytes);
    }
    options.device_memory = used;
    const Opened tight = open(options);
    EXPECT_TRUE(tight.context->decode(tokens(20)).ok());
    for (size_t d = 0; d < 2; ++d) {
      options.device_memory = used;
      options.device_memory[d] -= 64 << 10;
      expect_load_error(options, ErrorCode::kDoesNotFit, "cpu:" + std::to_string(d));
    }
  }
}

TEST(Budgets, ASecondContextThatDoesNotFitLeavesTheFirstAlone) {
  ModelOptions options = tiny_options();
  options.device_memory = {4 << 20};
  const Opened opened = open(options);
  ASSERT_TRUE(opened.context->decode(tokens(10)).ok());
  const std::vector<float> before = last_logits(*opened.context);
  ContextOptions huge = options.context;
  huge.n_ctx = 1 << 20;
  const auto second = Context::create(opened.model, huge);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), ErrorCode::kDoesNotFit) << second.status().message();
  ASSERT_TRUE(opened.context->clear().ok());
  ASSERT_TRUE(opened.context->decode(tokens(10)).ok());
  EXPECT_EQ(n_different(before, last_logits(*opened.context)), 0U);
}

// As many slots as a device's layer has experts are all that are taken.
TEST(Budgets, NoMoreSlotsThanExperts) {
  const auto scratch_with = [](int64_t n_slots) {
    ModelOptions options = tiny_options("/tiny/tiny-qwen3moe.gguf");
    options.devices = cpu_names(2);
    options.tensor_split = {1, 0};
    options.n_cpu_moe = 99;
    options.n_expert_slots = n_slots;
    const Opened opened = open(options);
    return opened.model->device_use()[0].scratch_bytes;
  };
  const uint64_t some = scratch_with(2);
  const uint64_t all = scratch_with(8);
  EXPECT_LT(some, all);
  EXPECT_EQ(scratch_with(kMaxExpertSlots), all);
}

TEST(Decode, WrongTokensAndSequencesChangeNothing) {
  ModelOptions options = tiny_options();
  options.context.n_seq_max = 2;
  const Opened opened = open(options);
  Context& context = *opened.context;
  ASSERT_TRUE(context.decode(tokens(5)).ok());
  constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
  for (const BatchToken& bad : {BatchToken{-1, 0, true}, BatchToken{288, 0, true}, BatchToken{INT32_MAX, 0, true}}) {
    expect_error(context.decode({&bad, 1}), kBad, "token id " + std::to_string(bad.token));
  }
  for (const BatchToken& bad : {BatchToken{1, -1, true}, BatchToken{1, 2, true}}) {
    expect_error(context.decode({&bad, 1}), kBad, "sequence " + std::to_string(bad.seq));
  }
  std::vector<BatchToken> mixed = tokens(5, 1);
  mixed.push_back({288, 1, true});
  expect_error(context.decode(mixed), kBad, "288");
  expect_error(context.decode(tokens(65)), kBad, "--batch-size");
  EXPECT_EQ(context.length(0), 5);
  EXPECT_EQ(context.length(1), 0);
  EXPECT_TRUE(context.decode({}).ok());  // nothing to do
  EXPECT_EQ(context.n_outputs(), 0);
  const auto bits = [&] {
    EXPECT_TRUE(context.decode(tokens(5, 1)).ok());
    return last_logits(context);
  };
  const std::vector<float> after = bits();
  const Opened fresh = open(tiny_options());
  ASSERT_TRUE(fresh.context->clear().ok());
  std::vector<BatchToken> same = tokens(5, 1);
  for (BatchToken& token : same) {
    token.seq = 0;
  }
  ASSERT_TRUE(fresh.context->decode(same).ok());
  EXPECT_EQ(n_different(after, last_logits(*fresh.context)), 0U);
}

TEST(Decode, AFullContextSaysSoAndGoesOnAfterwards) {
  for (const char* name : {"/tiny/tiny-llama.gguf", "/tiny/tiny-gemma3.gguf", "/tiny/tiny-qwen35.gguf"}) {
    const Opened opened = open(tiny_options(name));
    Context& context = *opened.context;
    ASSERT_TRUE(context.decode(tokens(38)).ok());
    expect_error(context.decode(tokens(3)), ErrorCode::kCacheFull, "--ctx-size");
    EXPECT_EQ(context.length(0), 38);
    ASSERT_TRUE(context.decode(tokens(2)).ok());  // to the last position
    const BatchToken one{1, 0, true};
    expect_error(context.decode({&one, 1}), ErrorCode::kCacheFull, "40");
    ASSERT_TRUE(context.clear().ok());
    ASSERT_TRUE(context.decode(tokens(40)).ok());
    const std::vector<float> again = last_logits(context);
    ASSERT_TRUE(context.truncate(0, 0).ok());
    ASSERT_TRUE(context.decode(tokens(40)).ok());
    EXPECT_EQ(n_different(again, last_logits(context)), 0U);
  }
}

TEST(Decode, LengthsOutsideTheSequenceAreRefused) {
  const Opened opened = open(tiny_options());
  Context& context = *opened.context;
  ASSERT_TRUE(context.decode(tokens(5)).ok());
  EXPECT_FALSE(context.truncate(0, -1).ok());
  EXPECT_FALSE(context.truncate(1, 0).ok());
  EXPECT_FALSE(context.truncate(-1, 0).ok());
  EXPECT_FALSE(context.fork(0, 1, 1).ok());
  EXPECT_FALSE(context.fork(0, 0, 6).ok());
  EXPECT_EQ(context.length(0), 5);
}

// Two requests in a row, in every mode, and a third beside them in a context of its own: equal bits each time.
TEST(Decode, TwoRequestsInARow) {
  for (const char* mode : {"none", "layer", "tensor"}) {
    ModelOptions options = tiny_options("/models/gemma3-q4_k_m.gguf");
    options.devices = cpu_names(2);
    options.split_mode = mode;
    const Opened opened = open(options);
    const auto second = Context::create(opened.model, options.context);
    ASSERT_TRUE(second.ok()) << second.status().message();
    std::vector<float> first;
    for (int round = 0; round < 3; ++round) {
      Context& context = round == 2 ? **second : *opened.context;
      ASSERT_TRUE(context.decode(tokens(37)).ok()) << mode;
      if (round == 0) {
        first = last_logits(context);
      }
      EXPECT_EQ(n_different(first, last_logits(context)), 0U) << mode << ", round " << round;
      ASSERT_TRUE(context.clear().ok());
    }
  }
}

// More sequences than devices, and numbers that no device count divides: each sequence gets the bits it has alone.
TEST(Decode, OddNumbersOfSequences) {
  for (const int32_t n_seqs : {3, 5, 7}) {
    ModelOptions options = tiny_options("/models/qwen2-q4_1.gguf");
    options.devices = cpu_names(2);
    options.split_mode = "tensor";
    options.context.n_seq_max = n_seqs;
    const Opened opened = open(options);
    ContextOptions one = options.context;
    one.n_seq_max = 1;
    std::vector<std::unique_ptr<Context>> alone;  // by sequence
    for (int32_t s = 0; s < n_seqs; ++s) {
      alone.push_back(Context::create(opened.model, one).value());
    }
    for (int step = 0; step < 3; ++step) {
      std::vector<BatchToken> batch;
      for (int32_t s = 0; s < n_seqs; ++s) {
        batch.push_back({7 + step + 31 * s, s, true});
      }
      ASSERT_TRUE(opened.context->decode(batch).ok());
      ASSERT_EQ(opened.context->n_outputs(), n_seqs);
      for (int32_t s = 0; s < n_seqs; ++s) {
        const BatchToken token{batch[static_cast<size_t>(s)].token, 0, true};
        ASSERT_TRUE(alone[static_cast<size_t>(s)]->decode({&token, 1}).ok());
        const auto row = opened.context->logits(s);
        EXPECT_EQ(n_different(last_logits(*alone[static_cast<size_t>(s)]), {row.begin(), row.end()}), 0U)
            << "sequence " << s << ", step " << step;
      }
    }
  }
}

// A fork shares pages and goes its own way; truncated, a sequence says again what it said.
TEST(Decode, ForksAndTruncationsKeepTheirBits) {
  for (const char* mode : {"layer", "tensor"}) {
    ModelOptions options = tiny_options("/models/llama-q4_k.gguf");
    options.devices = cpu_names(2);
    options.split_mode = mode;
    options.context.n_seq_max = 2;
    const Opened opened = open(options);
    Context& context = *opened.context;
    ASSERT_TRUE(context.decode(tokens(36)).ok());
    ASSERT_TRUE(context.fork(0, 1, 35).ok());
    BatchToken last = tokens(36).back();
    ASSERT_TRUE(context.truncate(0, 35).ok());
    ASSERT_TRUE(context.decode({&last, 1}).ok());
    const std::vector<float> original = last_logits(context);
    last.seq = 1;
    ASSERT_TRUE(context.decode({&last, 1}).ok());
    EXPECT_EQ(n_different(original, last_logits(context)), 0U) << mode;
    const BatchToken other{5, 1, true};
    ASSERT_TRUE(context.decode({&other, 1}).ok());
    const BatchToken same{5, 0, true};
    const std::vector<float> forked = last_logits(context);
    ASSERT_TRUE(context.decode({&same, 1}).ok());
    EXPECT_EQ(n_different(forked, last_logits(context)), 0U) << mode;
  }
}

TEST(Model, AVocabularyAloneDecodesNothing) {
  ModelOptions options = tiny_options();
  options.vocab_only = true;
  const auto model = Model::load(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto context = Context::create(*model, options.context);
  ASSERT_FALSE(context.ok());
  EXPECT_EQ(context.status().code(), ErrorCode::kInvalidArgument);
  options.path = TESSERA_TEST_DATA "/models/llama-q4_k.gguf";  // has none
  expect_load_error(options, ErrorCode::kUnsupported, "llama-q4_k.gguf");
}

TEST(Model, AFileWithoutAVocabularyDecodesIdsAndRefusesTexts) {
  ModelOptions options = tiny_options("/models/llama-q4_k.gguf");
  const Opened opened = open(options);
  EXPECT_TRUE(opened.context->decode(tokens(3)).ok());
  EXPECT_FALSE(opened.model->text_status().ok());
  EXPECT_EQ(opened.model->chat_template().status().code(), opened.model->text_status().code());
  options.needs_text = true;
  expect_load_error(options, ErrorCode::kUnsupported, "llama-q4_k.gguf");
}

}  // namespace
}  // namespace tessera
