// The C++ wrapper: every class on a tiny model, errors as exceptions, exceptions of callbacks, lifetimes.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <tessera/tessera.hpp>
#include <thread>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::string kLlama = TESSERA_TEST_DATA "/tiny/tiny-llama.gguf";

tsr::Context small_context(const tsr::Model& model, int32_t n_seq_max = 1) {
  tsr::ContextOptions options;
  options.n_ctx = 64;
  options.n_batch = 8;
  options.n_seq_max = n_seq_max;
  return tsr::Context(model, options);
}

template <typename Call>
tsr_status status_of(Call&& call) {
  try {
    call();
    return TSR_OK;
  } catch (const tsr::Error& error) {
    EXPECT_STREQ(error.what(), tsr_last_error());
    return error.status();
  }
}

TEST(Wrapper, FailuresAreErrorsWithStatusAndText) {
  EXPECT_EQ(status_of([] { tsr::Model("no/such/file.gguf"); }), TSR_NOT_FOUND);
  EXPECT_THAT(tsr_last_error(), HasSubstr("no/such/file.gguf"));
  tsr::ModelOptions options;
  options.split_mode = "diagonal";
  EXPECT_EQ(status_of([&] { tsr::Model(kLlama, options); }), TSR_INVALID_ARGUMENT);
}

TEST(Wrapper, AnErrorBelongsToItsThread) {
  EXPECT_EQ(status_of([] { tsr::Model("here.gguf"); }), TSR_NOT_FOUND);
  std::thread([] {
    EXPECT_STREQ(tsr_last_error(), "");
    EXPECT_EQ(status_of([] { tsr::Model("there.gguf"); }), TSR_NOT_FOUND);
  }).join();
  EXPECT_THAT(tsr_last_error(), HasSubstr("here.gguf"));
}

TEST(Wrapper, OptionsReachTheModel) {
  tsr::ModelOptions options;
  options.devices = {"cpu:0", "cpu:0"};
  options.tensor_split = {1, 1};
  options.split_mode = "tensor";
  options.kernels = "scalar";
  options.n_threads = 1;
  options.planned_context.emplace().n_ctx = 32;
  double last = 0;
  options.progress = [&](double fraction) {
    last = fraction;
    return true;
  };
  const tsr::Model model(kLlama, options);
  EXPECT_EQ(last, 1);
  EXPECT_STREQ(model.info().split_mode, "tensor");
  EXPECT_EQ(model.info().n_cuts, 2);
  EXPECT_THAT(model.devices(), SizeIs(2));
  int64_t n_tiles = 0;
  for (const tsr_device_use& use : model.devices()) {
    n_tiles += use.n_tiles;
  }
  EXPECT_EQ(static_cast<size_t>(n_tiles), model.tiles().size());
  EXPECT_GE(tsr::devices().size(), 1U);
}

TEST(Wrapper, OptionsOfExpertsAndThreadsReachTheModel) {
  const std::string path = TESSERA_TEST_DATA "/tiny/tiny-qwen3moe.gguf";
  tsr::ModelOptions options;
  options.devices = {"cpu:0", "cpu:0"};
  options.tensor_split = {1, 0};
  options.override_tensor = {"ffn_.*_exps=cpu:0#2"};
  options.expert_slots = 2;
  options.numa = "distribute";
  options.cpu_strict = true;
  EXPECT_GT(tsr::Model(path, options).devices()[1].n_tiles, 0);
  options.override_tensor.clear();
  EXPECT_EQ(tsr::Model(path, options).devices()[1].n_tiles, 0);
  options.n_cpu_moe = 1;
  EXPECT_GT(tsr::Model(path, options).devices()[1].n_tiles, 0);
  options.cpu_mask = "wide";
  EXPECT_EQ(status_of([&] { tsr::Model(path, options); }), TSR_INVALID_ARGUMENT);
  options.cpu_mask = "";
  options.cpu_range = "7";
  EXPECT_EQ(status_of([&] { tsr::Model(path, options); }), TSR_INVALID_ARGUMENT);
}

TEST(Wrapper, SequencesGoBackToSnapshots) {
  const tsr::Model model(TESSERA_TEST_DATA "/tiny/tiny-qwen35.gguf");
  tsr::Context context = small_context(model);
  EXPECT_TRUE(context.keeps_snapshots());
  context.append({1, 5, 9});
  context.snapshot();
  context.append({13, 17});
  EXPECT_EQ(context.rewind(0, 4), 3);
  EXPECT_EQ(context.length(), 3);
  EXPECT_EQ(status_of([&] { context.rewind(7, 0); }), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { context.snapshot(7); }), TSR_INVALID_ARGUMENT);
}

TEST(Wrapper, WhatCallbacksThrowComesOutOfTheConstructor) {
  tsr::ModelOptions options;
  options.progress = [](double) -> bool { throw std::out_of_range("from progress"); };
  EXPECT_THROW(tsr::Model(kLlama, options), std::out_of_range);
  options.progress = [](double) { return false; };
  EXPECT_EQ(status_of([&] { tsr::Model(kLlama, options); }), TSR_CANCELLED);
  options.progress = nullptr;
  options.devices = {"cpu:0", "cpu:0"};
  options.split_mode = "tensor";
  options.tensor_split = {5, 4};  // nine cuts would express it; the log says what became of it
  options.log = [](tsr_log_level, std::string_view message) { throw std::out_of_range(std::string(message)); };
  EXPECT_THROW(tsr::Model(kLlama, options), std::out_of_range);
}

TEST(Wrapper, TextAndMetadata) {
  const tsr::Model model(kLlama);
  EXPECT_EQ(model.metadata("general.architecture"), "llama");
  EXPECT_EQ(model.metadata("nothing"), std::nullopt);
  EXPECT_THAT(model.metadata_keys(), testing::Contains("general.architecture"));
  const std::vector<int32_t> ids = model.tokenize("hello there", 0);
  EXPECT_EQ(model.detokenize(ids), "hello there");
  EXPECT_THAT(model.tokenize("", 0), IsEmpty());
  std::string pieces;
  tsr::Stream stream(model);
  std::string streamed;
  for (const int32_t id : ids) {
    pieces += model.piece(id);
    streamed += stream.push(id);
    const tsr_token_info info = model.token(id);
    EXPECT_EQ(model.find_token({info.text, info.n_text_bytes}), id);
  }
  streamed += stream.flush();
  EXPECT_EQ(pieces, streamed);
  EXPECT_EQ(model.find_token("no such token"), std::nullopt);
  EXPECT_EQ(model.vocab().n_tokens, 288);
}

TEST(Wrapper, Templates) {
  const tsr::Model model(kLlama);
  const tsr::ChatTemplate chat(model, "{{ messages[0].content }}!");
  const std::string json = R"({"messages": [{"role": "user", "content": "hi"}]})";
  EXPECT_EQ(chat.render({{"user", "hi"}}), "hi!");
  EXPECT_EQ(chat.render_json(json), "hi!");
  EXPECT_EQ(chat.encode({{"user", "hi"}}), chat.encode_json(json));
  EXPECT_EQ(status_of([&] { tsr::ChatTemplate(model, "{% if %}"); }), TSR_INVALID_DATA);
}

TEST(Wrapper, ContextsOutliveTheirModelAndMove) {
  auto model = std::make_unique<tsr::Model>(kLlama);
  tsr::SamplerOptions greedy(*model);
  greedy.temperature = 0;
  tsr::Sampler sampler(*model, greedy);
  tsr::Context first = small_context(*model, 2);
  model.reset();
  tsr::Context context = std::move(first);
  context.append({1, 5, 9, 13, 17, 21, 25, 29, 33, 37});  // more than a batch
  EXPECT_EQ(context.length(), 10);
  EXPECT_EQ(context.n_logits(), 1);
  const int32_t best = sampler.sample(context);
  const tsr::Logits row = context.logits();
  EXPECT_EQ(best, std::max_element(row.begin(), row.end()) - row.begin());
  EXPECT_EQ(sampler.sample(row.data(), row.size()), best);
  sampler.accept({best});
  sampler.reset();

  context.fork(0, 1, 10);
  context.truncate(0, 5);
  context.decode({{best, 0, false}, {best, 1, true}});
  EXPECT_EQ(context.length(0), 6);
  EXPECT_EQ(context.length(1), 11);
  EXPECT_EQ(context.n_logits(), 1);
  context.clear();
  EXPECT_EQ(context.length(1), 0);
  EXPECT_EQ(status_of([&] { static_cast<void>(context.logits(9)); }), TSR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { static_cast<void>(context.embedding()); }), TSR_INVALID_ARGUMENT);
}

TEST(Wrapper, StatesGoFromContextToContext) {
  const tsr::Model model(kLlama);
  tsr::Context from = small_context(model, 2);
  from.append({1, 5, 9});
  const std::vector<char> state = from.state();
  tsr::Context to = small_context(model, 2);
  to.set_state(state);
  EXPECT_EQ(to.tokens(), (std::vector<int32_t>{1, 5, 9}));
  EXPECT_EQ(to.state(), state);
  EXPECT_TRUE(std::equal(to.logits().begin(), to.logits().end(), from.logits().begin()));
  to.set_state(from.state(0), 1);
  EXPECT_EQ(to.length(1), 3);
  const std::string path = testing::TempDir() + "wrapper_test." + std::to_string(getpid()) + ".state";
  from.save_state(path, 0);
  to.clear();
  to.load_state(path, 0);
  EXPECT_EQ(to.tokens(), from.tokens());
  std::remove(path.c_str());
  EXPECT_EQ(status_of([&] { to.load_state(path, 0); }), TSR_NOT_FOUND);
}

TEST(Wrapper, PlacementsAreSwitchedUnderTheContexts) {
  tsr::ModelOptions options;
  options.devices = {"cpu:0", "cpu:0"};
  tsr::Model model(kLlama, options);
  tsr::Context context = small_context(model, 2);
  context.append({1, 5, 9});
  const std::vector<char> state = context.state();
  model.set_split_mode(TSR_SPLIT_TENSOR);
  EXPECT_EQ(model.split_mode(), TSR_SPLIT_TENSOR);
  EXPECT_EQ(context.state(), state);
  const uint64_t version = model.placement().version;
  context.set_placement({TSR_SPLIT_LAYER, {1, 3}});
  EXPECT_EQ(context.state(), state);
  EXPECT_EQ(model.placement().tensor_split, (std::vector<double>{1, 3}));
  EXPECT_EQ(model.placement().version, version + 1);
  tsr::Placement custom{TSR_SPLIT_CUSTOM};
  custom.homes.assign(model.tiles().size(), 1);
  model.set_placement(custom);
  EXPECT_EQ(model.placement().homes, custom.homes);
  EXPECT_EQ(model.devices()[0].weight_bytes, 0U);
  context.set_split_mode(TSR_SPLIT_NONE);
  tsr::Placement stopped;
  stopped.progress = [](double fraction) { return fraction < 0.1; };
  EXPECT_EQ(status_of([&] { context.set_placement(stopped); }), TSR_CANCELLED);
  stopped.progress = [](double) -> bool { throw std::runtime_error("enough"); };
  EXPECT_THROW(model.set_placement(stopped), std::runtime_error);
  EXPECT_EQ(model.split_mode(), TSR_SPLIT_NONE);
  EXPECT_EQ(context.state(), state);
  const std::thread::id caller = std::this_thread::get_id();
  int n_calls_ahead = 0;
  tsr::Placement ahead{TSR_SPLIT_TENSOR};
  ahead.ahead_bytes = 1 << 30;
  ahead.progress = [&](double) {
    n_calls_ahead += std::this_thread::get_id() == caller ? 1 : 0;
    return true;
  };
  model.set_placement(ahead);
  EXPECT_GT(n_calls_ahead, 0) << "weights were copied ahead, by this thread";
  EXPECT_EQ(context.state(), state);
}

TEST(Wrapper, OneCallAtATimeInAContext) {
  const tsr::Model model(kLlama);
  tsr::ContextOptions options;
  options.n_ctx = 1024;
  tsr::Context context(model, options);
  // While one thread decodes long batches without pause, the calls of another are refused sooner or later; the end is
  // only against hanging for ever.
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  std::atomic<bool> seen = false;
  std::thread other([&] {
    while (!seen) {
      const tsr_status status = status_of([&] {
        context.clear();
        context.append(std::vector<int32_t>(1024, 1));
      });
      EXPECT_TRUE(status == TSR_OK || status == TSR_BUSY) << tsr_last_error();
    }
  });
  while (!seen && std::chrono::steady_clock::now() < end) {
    const tsr_status status = status_of([&] { static_cast<void>(context.length()); });
    EXPECT_TRUE(status == TSR_OK || status == TSR_BUSY) << tsr_last_error();
    seen = status == TSR_BUSY;
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  EXPECT_TRUE(seen);
  seen = true;
  other.join();
}

}  // namespace
