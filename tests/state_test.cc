// Saved states: the same bytes from every placement, and from every placement restored into every other as if nothing
// had happened. Foreign, cut and damaged ones leave a context as it was.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

constexpr int64_t kCtx = 320;
constexpr int kCuts = 2;  // for all: equal cuts give equal bits

struct Placed {
  int n_devices;
  const char* mode;
  std::vector<double> shares;
};

const std::vector<Placed>& placements() {
  static const std::vector<Placed> all = {
      {1, "none", {}},   {2, "none", {}},          {2, "layer", {}},     {3, "layer", {}},
      {2, "tensor", {}}, {3, "tensor", {1, 0, 1}}, {2, "layer", {1, 3}}, {2, "tensor", {0, 1}},
  };
  return all;
}

std::string model_path(const std::string& name) {
  return std::string(TESSERA_TEST_DATA) + "/" + name + ".gguf";
}

struct Opened {
  std::shared_ptr<Model> model;
  std::unique_ptr<Context> context;
};

ModelOptions options_of(const std::string& name, const Placed& placed, DType kv) {
  ModelOptions options;
  options.path = model_path(name);
  options.devices = cpu_names(placed.n_devices);
  options.split_mode = placed.mode;
  options.tensor_split = placed.shares;
  options.n_cuts = kCuts;
  options.n_threads = 2;
  options.context = {.n_ctx = kCtx, .n_batch = 128, .n_ubatch = 24, .n_seq_max = 4, .k_type = kv, .v_type = kv};
  return options;
}

Opened open(const std::string& name, const Placed& placed = {1, "none", {}}, DType kv = DType::kF16) {
  Opened opened;
  const ModelOptions options = options_of(name, placed, kv);
  auto model = Model::load(options);
  CHECK(model.ok());
  opened.model = std::move(model).value();
  auto context = Context::create(opened.model, options.context);
  CHECK(context.ok());
  opened.context = std::move(context).value();
  return opened;
}

std::vector<BatchToken> tokens(int32_t seq, int64_t n, int32_t from, bool last_wants = true) {
  std::vector<BatchToken> batch;
  for (int64_t i = 0; i < n; ++i) {
    batch.push_back({static_cast<int32_t>((from + i * 7) % 97), seq, last_wants && i + 1 == n});
  }
  return batch;
}

void decode(Context& context, const std::vector<BatchToken>& batch) {
  const Status status = context.decode(batch);
  ASSERT_TRUE(status.ok()) << status.message();
}

// Three sequences: one that windows have moved over, a fork of its head that went on by itself, and one of two tokens.
// The last decode leaves two rows of logits.
void fill(Context& context) {
  decode(context, tokens(0, 20, 1));
  ASSERT_TRUE(context.snapshot(0).ok());  // recurrent state cannot be rewound without one
  decode(context, tokens(0, 10, 41));
  ASSERT_TRUE(context.fork(0, 2, 20).ok());
  decode(context, tokens(0, 70, 5));
  decode(context, tokens(0, 100, 9));
  decode(context, tokens(2, 5, 11));
  std::vector<BatchToken> last = tokens(3, 2, 2);
  last.push_back({4, 0, true});
  decode(context, last);
}

Bytes state_of(Context& context, int32_t seq = kAllSequences) {
  const auto n_bytes = context.state_bytes(seq);
  EXPECT_TRUE(n_bytes.ok()) << n_bytes.status().message();
  Bytes bytes(n_bytes.ok() ? *n_bytes : 0, std::byte{0xCD});
  const Status status = context.get_state(seq, bytes);
  EXPECT_TRUE(status.ok()) << status.message();
  return bytes;
}

std::vector<float> all_logits(const Context& context) {
  std::vector<float> logits;
  for (int64_t i = 0; i < context.n_outputs(); ++i) {
    logits.insert(logits.end(), context.logits(i).begin(), context.logits(i).end());
  }
  return logits;
}

// What comes next: a decode into each sequence, every logit kept.
std::vector<float> go_on(Context& context) {
  std::vector<float> logits;
  for (int step = 0; step < 2; ++step) {
    std::vector<BatchToken> batch;
    for (const int32_t seq : {0, 2, 3, 0}) {
      batch.push_back({seq + 40 + step, seq, true});
    }
    const Status status = context.decode(batch);
    EXPECT_TRUE(status.ok()) << status.message();
    const std::vector<float> rows = all_logits(context);
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  return logits;
}

void expect_same_context(Context& context, const Bytes& state, const std::vector<float>& logits) {
  EXPECT_EQ(n_different(all_logits(context), logits), 0U);
  EXPECT_TRUE(state_of(context) == state);
}

struct Case {
  const char* model;
  DType kv;
};

class StateOf : public ::testing::TestWithParam<Case> {};

TEST_P(StateOf, IsTheSameFromEveryPlacementAndGoesIntoEveryOther) {
  const auto& [name, kv] = GetParam();
  Bytes state;
  std::vector<float> logits;
  std::vector<float> next;
  for (const Placed& placed : placements()) {
    SCOPED_TRACE(fmt::format("{} on {} devices", placed.mode, placed.n_devices));
    const Opened saved = open(name, placed, kv);
    fill(*saved.context);
    const Bytes bytes = state_of(*saved.context);
    if (state.empty()) {
      state = bytes;
      logits = all_logits(*saved.context);
      next = go_on(*saved.context);
      ASSERT_EQ(logits.size(), 2 * next.size() / 8);
    }
    EXPECT_TRUE(bytes == state);
    EXPECT_EQ(saved.model->summary().n_cuts, kCuts);
    // Into a context that holds something else.
    const Opened restored = open(name, placed, kv);
    decode(*restored.context, tokens(1, 40, 3));
    decode(*restored.context, tokens(0, 3, 8));
    const Status status = restored.context->set_state(kAllSequences, state);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(restored.context->length(0), 201);
    EXPECT_EQ(restored.context->length(1), 0);
    EXPECT_EQ(restored.context->length(2), 25);
    EXPECT_EQ(restored.context->tokens(3), (std::vector<int32_t>{2, 9}));
    expect_same_context(*restored.context, state, logits);
    EXPECT_EQ(n_different(go_on(*restored.context), next), 0U);
  }
}

TEST_P(StateOf, OneSequenceGoesIntoAnyOther) {
  const auto& [name, kv] = GetParam();
  const Opened from = open(name, {2, "tensor", {}}, kv);
  fill(*from.context);
  const Bytes sequence = state_of(*from.context, 0);
  const Opened to = open(name, {3, "layer", {}}, kv);
  decode(*to.context, tokens(1, 50, 3));
  decode(*to.context, tokens(3, 60, 4));
  const std::vector<float> logits = all_logits(*to.context);
  const Bytes bystander = state_of(*to.context, 3);
  ASSERT_TRUE(to.context->set_state(1, sequence).ok());
  EXPECT_EQ(n_different(all_logits(*to.context), logits), 0U);  // those of the context stay
  EXPECT_TRUE(state_of(*to.context, 1) == sequence);
  EXPECT_TRUE(state_of(*to.context, 3) == bystander);
  EXPECT_EQ(to.context->tokens(1), from.context->tokens(0));
  decode(*from.context, {{6, 0, true}});
  decode(*to.context, {{6, 1, true}});
  EXPECT_EQ(n_different(all_logits(*from.context), all_logits(*to.context)), 0U);
}

INSTANTIATE_TEST_SUITE_P(Models, StateOf,
                         ::testing::Values(Case{"tiny/tiny-llama", DType::kF16}, Case{"tiny/tiny-gemma3", DType::kF32},
                                           Case{"models/gemma2-q5_0", DType::kQ8_0},
                                           Case{"models/qwen3-q8_0", DType::kQ4_0},
                                           Case{"tiny/tiny-qwen35", DType::kF16},
                                           Case{"models/qwen35-q8_0", DType::kF16}));

// Snapshots come along, as many of the last ones as there is room for.
TEST(State, SnapshotsOfRecurrentStateAreRestored) {
  const Opened from = open("models/qwen35-q8_0", {2, "tensor", {}});
  for (const int64_t n : {2, 30, 50}) {
    decode(*from.context, tokens(0, n, static_cast<int32_t>(n)));
    ASSERT_TRUE(from.context->snapshot(0).ok());
  }
  decode(*from.context, tokens(0, 20, 3));
  const Bytes state = state_of(*from.context, 0);
  ModelOptions options = options_of("models/qwen35-q8_0", {3, "layer", {}}, DType::kF16);
  const auto model = Model::load(options);
  ASSERT_TRUE(model.ok());
  for (const int32_t n_snapshots : {32, 1, 0}) {
    SCOPED_TRACE(n_snapshots);
    options.context.n_snapshots = n_snapshots;
    const auto to = Context::create(*model, options.context);
    ASSERT_TRUE(to.ok());
    ASSERT_TRUE((*to)->set_state(2, state).ok());
    EXPECT_EQ(state_of(**to, 2) == state, n_snapshots == 32);
    const auto length = (*to)->rewind(2, 90);
    ASSERT_TRUE(length.ok());
    EXPECT_EQ(*length, n_snapshots > 0 ? 82 : 0);
    const auto earlier = (*to)->rewind(2, 40);
    ASSERT_TRUE(earlier.ok());
    EXPECT_EQ(*earlier, n_snapshots > 1 ? 32 : 0);
    if (n_snapshots == 32) {
      ASSERT_TRUE(from.context->truncate(0, 32).ok());
      decode(*from.context, {{6, 0, true}});
      decode(**to, {{6, 2, true}});
      EXPECT_EQ(n_different(all_logits(*from.context), all_logits(**to)), 0U);
      EXPECT_TRUE(state_of(**to, 2) == state_of(*from.context, 0));
    }
  }
}

TEST(State, WindowsLetGoOfThePastInTheState) {
  const Opened o = open("tiny/tiny-gemma3");
  decode(*o.context, tokens(0, 100, 1));
  const size_t shorter = state_of(*o.context, 0).size();
  decode(*o.context, tokens(0, 100, 1));
  decode(*o.context, tokens(0, 100, 1));
  const size_t longer = state_of(*o.context, 0).size();
  EXPECT_LT(longer, 2 * shorter);  // three times the tokens
}

// Any number of refusals, and the context goes on as one that met none.
TEST(State, WhatIsForeignOrDamagedLeavesTheContextAsItWas) {
  const Opened o = open("tiny/tiny-llama");
  fill(*o.context);
  const Bytes state = state_of(*o.context);
  const std::vector<float> logits = all_logits(*o.context);
  const auto refused = [&](const Bytes& bytes, ErrorCode code, const char* text, int32_t seq = kAllSequences) {
    const Status status = o.context->set_state(seq, bytes);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(text));
    expect_same_context(*o.context, state, logits);
  };
  refused(Bytes(state.begin(), state.end() - 1), ErrorCode::kInvalidData, "cut short");
  refused(Bytes(state.begin(), state.begin() + 20), ErrorCode::kInvalidData, "no saved state");
  refused({}, ErrorCode::kInvalidData, "no saved state");
  Bytes damaged = state;
  damaged[state.size() / 2] ^= std::byte{4};
  refused(damaged, ErrorCode::kInvalidData, "checksum");
  const Opened other = open("tiny/tiny-qwen3");
  fill(*other.context);
  refused(state_of(*other.context), ErrorCode::kInvalidArgument, "another model");
  const Opened f32 = open("tiny/tiny-llama", {1, "none", {}}, DType::kF32);
  fill(*f32.context);
  refused(state_of(*f32.context), ErrorCode::kUnsupported, "keys as f32");
  refused(state_of(*o.context, 2), ErrorCode::kInvalidArgument, "one sequence");
  refused(state, ErrorCode::kInvalidArgument, "whole context", 0);
  refused(state, ErrorCode::kInvalidArgument, "sequence 4", 4);
}

TEST(State, AContextThatIsTooSmallRefusesIt) {
  const Opened o = open("tiny/tiny-llama");
  fill(*o.context);
  ContextOptions small = o.context->options();
  small.n_ctx = 200;
  const auto shorter = Context::create(o.model, small);
  ASSERT_TRUE(shorter.ok());
  decode(**shorter, tokens(1, 5, 1));
  const Bytes before = state_of(**shorter);
  Status status = (*shorter)->set_state(kAllSequences, state_of(*o.context));
  EXPECT_EQ(status.code(), ErrorCode::kCacheFull);
  EXPECT_THAT(status.message(), HasSubstr("201 positions, the context holds 200"));
  status = (*shorter)->set_state(1, state_of(*o.context, 0));
  EXPECT_EQ(status.code(), ErrorCode::kCacheFull);
  EXPECT_TRUE(state_of(**shorter) == before);
  EXPECT_TRUE((*shorter)->set_state(1, state_of(*o.context, 2)).ok());
  small.n_ctx = kCtx;
  small.n_seq_max = 2;
  const auto fewer = Context::create(o.model, small);
  ASSERT_TRUE(fewer.ok());
  EXPECT_EQ((*fewer)->set_state(kAllSequences, state_of(*o.context)).code(), ErrorCode::kInvalidArgument);
}

// Weights that differ in one block of one tensor, under the same header, are another model.
TEST(State, TheFingerprintKnowsWeights) {
  const TempFolder folder;
  auto bytes = read_file(model_path("tiny/tiny-llama"), 1 << 26);
  ASSERT_TRUE(bytes.ok());
  const Opened o = open("tiny/tiny-llama");
  decode(*o.context, tokens(0, 5, 1));
  const Bytes state = state_of(*o.context);
  const auto try_copy = [&](size_t at) {
    (*bytes)[at] = static_cast<char>((*bytes)[at] ^ 1);
    const std::string path = folder.path() + "/copy.gguf";
    EXPECT_TRUE(write_file(path, *bytes).ok());
    ModelOptions options = options_of("tiny/tiny-llama", {1, "none", {}}, DType::kF16);
    options.path = path;
    const auto model = Model::load(options);
    EXPECT_TRUE(model.ok());
    const auto context = Context::create(*model, options.context);
    EXPECT_TRUE(context.ok());
    return (*context)->set_state(kAllSequences, state).code();
  };
  EXPECT_EQ(try_copy(bytes->size() - 1), ErrorCode::kInvalidArgument);  // the end of the last tensor
  EXPECT_EQ(try_copy(bytes->size() - 1), ErrorCode::kOk);               // and back
}

TEST(State, FilesAreReplacedAsAWholeOrNotAtAll) {
  const TempFolder folder;
  const std::string path = folder.path() + "/state";
  const Opened o = open("tiny/tiny-llama");
  fill(*o.context);
  EXPECT_EQ(o.context->load_state(kAllSequences, path).code(), ErrorCode::kNotFound);
  ASSERT_TRUE(o.context->save_state(kAllSequences, path).ok());
  const Bytes state = state_of(*o.context);
  const std::vector<float> logits = all_logits(*o.context);
  const auto content = read_file(path, 1 << 30);
  ASSERT_TRUE(content.ok());
  ASSERT_EQ(content->size(), state.size());
  EXPECT_EQ(std::memcmp(content->data(), state.data(), state.size()), 0);
  ASSERT_TRUE(o.context->clear().ok());
  ASSERT_TRUE(o.context->load_state(kAllSequences, path).ok());
  expect_same_context(*o.context, state, logits);
  EXPECT_EQ(o.context->save_state(9, path).code(), ErrorCode::kInvalidArgument);  // the file stays
  EXPECT_TRUE(o.context->load_state(kAllSequences, path).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  ASSERT_TRUE(write_file(path, "not a state at all, but longer than a header would be: 0123456789").ok());
  const Status status = o.context->load_state(kAllSequences, path);
  EXPECT_EQ(status.code(), ErrorCode::kInvalidData);
  EXPECT_THAT(status.message(), HasSubstr(path));
  std::filesystem::resize_file(path, uintmax_t{1} << 40);  // larger than any memory, and not read
  EXPECT_EQ(o.context->load_state(kAllSequences, path).code(), ErrorCode::kInvalidData);
}

// A decode that is stopped between two micro-batches keeps what it had read.
TEST(State, AStoppedDecodeKeepsItsMicroBatches) {
  const Opened o = open("tiny/tiny-llama", {2, "layer", {}});
  std::vector<BatchToken> batch = tokens(0, 100, 1);
  batch[10].wants_logits = true;
  std::vector<int64_t> seen;
  const Status status = o.context->decode(batch, [&](int64_t n) {
    seen.push_back(n);
    return n < 48;
  });
  EXPECT_EQ(status.code(), ErrorCode::kCancelled);
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 24, 48}));
  EXPECT_EQ(o.context->length(0), 48);
  EXPECT_EQ(o.context->n_outputs(), 0);
  EXPECT_EQ(o.context->tokens(0).size(), 48U);
  batch[10].wants_logits = false;
  decode(*o.context, {batch.begin() + 48, batch.end()});
  const std::vector<float> logits = all_logits(*o.context);
  ASSERT_TRUE(o.context->clear().ok());
  decode(*o.context, batch);
  EXPECT_EQ(n_different(all_logits(*o.context), logits), 0U);
}

}  // namespace
}  // namespace tessera
