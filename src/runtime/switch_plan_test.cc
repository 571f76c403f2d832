#include "runtime/switch_plan.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/context.h"

namespace tessera {
namespace {

using testing::HasSubstr;

SwitchRequest request_of(const std::string& model, const std::string& from, const std::string& to) {
  SwitchRequest request;
  request.model.path = TESSERA_TEST_DATA "/" + model;
  request.model.devices = {"cpu:0", "cpu:1"};
  request.model.device_memory = {uint64_t{1} << 32};
  request.model.n_threads = 2;
  request.model.context.n_ctx = 96;
  request.model.context.n_batch = 32;
  request.model.context.n_ubatch = 32;
  request.model.split_mode = from;
  request.to_mode = to;
  request.link = {1e9, 1e-5};
  request.local = {1e10, 1e-6};
  return request;
}

std::shared_ptr<Model> load(const SwitchRequest& request, const std::string& mode, const std::vector<double>& shares,
                            int n_cuts) {
  ModelOptions options = request.model;
  options.split_mode = mode;
  options.tensor_split = shares;
  options.n_cuts = n_cuts;
  auto model = Model::load(options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *model;
}

/// Bytes that cross under the plan, by kind of extent; what moves within a device is left out.
uint64_t crossing(const SwitchPlan& plan, bool states) {
  uint64_t bytes = 0;
  for (const Move& move : plan.plan.moves) {
    const std::string_view kind = plan.extents[static_cast<size_t>(move.extent)].kind;
    const bool is_state = kind == "kv" || kind == "rec";
    bytes += move.from.device != move.to.device && is_state == states ? move.bytes : 0;
  }
  return bytes;
}

// Both placements are counted as they load, and the weights that cross are the tiles whose homes differ.
TEST(PlanSwitch, AgreesWithWhatLoads) {
  for (const char* name : {"tiny/tiny-llama.gguf", "tiny/tiny-llama-moe.gguf", "tiny/tiny-gemma3.gguf",
                           "tiny/tiny-qwen35moe.gguf", "models/llama-q4_k.gguf"}) {
    for (const auto& [from, to] : {std::pair("layer", "tensor"), {"tensor", "layer"}, {"none", "tensor"}}) {
      SwitchRequest request = request_of(name, from, to);
      request.to_split = {1, 2};
      request.model.n_cuts = 3;
      const auto plan = plan_switch(request);
      ASSERT_TRUE(plan.ok()) << name << ": " << plan.status().message();
      EXPECT_EQ(plan->n_cuts, 3);
      const auto before = load(request, from, {}, 3);
      const auto after = load(request, to, {1, 2}, 3);
      const auto before_context = Context::create(before, request.model.context);
      const auto after_context = Context::create(after, request.model.context);
      ASSERT_TRUE(before_context.ok() && after_context.ok());
      for (size_t d = 0; d < 2; ++d) {
        const SwitchDevice& device = plan->devices[d];
        for (const auto& [need, use] :
             {std::pair(device.from, before->device_use()[d]), {device.to, after->device_use()[d]}}) {
          EXPECT_EQ(need.weight_bytes, use.weight_bytes);
          EXPECT_EQ(need.kv_bytes, use.kv_bytes);
          EXPECT_EQ(need.rec_bytes, use.rec_bytes);
          EXPECT_EQ(need.scratch_bytes, use.scratch_bytes);
        }
        EXPECT_GE(device.peak_bytes, std::max(device.from.total(), device.to.total()));
      }
      uint64_t tiles = 0;
      const std::vector<TileHome> old_homes = before->tile_homes();
      const std::vector<TileHome> new_homes = after->tile_homes();
      for (size_t t = 0; t < old_homes.size(); ++t) {
        tiles += old_homes[t].device != new_homes[t].device ? old_homes[t].bytes : 0;
      }
      uint64_t replicas = 0;  // of a device that had none
      for (const Move& move : plan->plan.moves) {
        replicas += plan->extents[static_cast<size_t>(move.extent)].kind == "replica" ? move.bytes : 0;
      }
      EXPECT_EQ(replicas > 0, std::string(from) == "none") << name;
      EXPECT_EQ(crossing(*plan, false), tiles + replicas) << name << " " << from << " to " << to;
      EXPECT_EQ(crossing(*plan, true), 0U);
      EXPECT_GT(plan->seconds, 0);
    }
  }
}

// Of the KV cache only pages that tokens fill move; recurrent state moves whole.
TEST(PlanSwitch, UsedPagesMove) {
  SwitchRequest request = request_of("tiny/tiny-llama.gguf", "none", "layer");
  request.to_split = {0, 1};  // everything goes to the second device
  uint64_t page = 0;
  for (const int64_t n_tokens : {int64_t{1}, int64_t{32}, int64_t{33}, int64_t{96}}) {
    request.n_kv_tokens = n_tokens;
    const auto plan = plan_switch(request);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const uint64_t moved = crossing(*plan, true);
    page = page == 0 ? moved : page;
    EXPECT_GT(page, 0U);
    EXPECT_EQ(moved, page * static_cast<uint64_t>((n_tokens + 31) / 32));
  }
  request = request_of("tiny/tiny-qwen35.gguf", "none", "layer");
  request.to_split = {0, 1};
  EXPECT_EQ(crossing(*plan_switch(request), true), 0U);
  request.n_kv_tokens = 1;
  const auto plan = plan_switch(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(std::ranges::any_of(plan->extents, [](const SwitchExtent& e) { return e.kind == "rec"; }));
}

TEST(PlanSwitch, TheSamePlacementMovesNothing) {
  for (const char* mode : {"none", "layer", "tensor"}) {
    SwitchRequest request = request_of("tiny/tiny-llama-moe.gguf", mode, mode);
    request.n_kv_tokens = 40;
    const auto plan = plan_switch(request);
    ASSERT_TRUE(plan.ok());
    EXPECT_TRUE(plan->plan.moves.empty());
    EXPECT_EQ(plan->seconds, 0);
  }
}

TEST(PlanSwitch, DevicesThatDoNotExistCanBePlannedFor) {
  SwitchRequest request = request_of("models/llama-q4_k.gguf", "layer", "tensor");
  request.model.devices = {"null:0", "null:1", "null:2", "null:3"};
  const auto plan = plan_switch(request);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->devices.size(), 4U);
  EXPECT_FALSE(plan->plan.moves.empty());
}

TEST(PlanSwitch, ASlowerLinkTakesLonger) {
  SwitchRequest request = request_of("tiny/tiny-llama.gguf", "layer", "tensor");
  const double fast = plan_switch(request)->seconds;
  request.link.bytes_per_second /= 10;
  EXPECT_GT(plan_switch(request)->seconds, fast);
}

void expect_error(const SwitchRequest& request, ErrorCode code, const std::string& part) {
  const auto plan = plan_switch(request);
  ASSERT_FALSE(plan.ok()) << part;
  EXPECT_EQ(plan.status().code(), code) << plan.status().message();
  EXPECT_THAT(plan.status().message(), HasSubstr(part));
}

TEST(PlanSwitch, WhatDoesNotFitSaysNeededAndFree) {
  const SwitchRequest request = request_of("models/llama-q4_k.gguf", "layer", "tensor");
  const auto whole = plan_switch(request);
  ASSERT_TRUE(whole.ok());
  const auto with_budgets = [&](uint64_t first, uint64_t second) {
    SwitchRequest tight = request;
    tight.model.device_memory = {first, second};
    return tight;
  };
  const SwitchDevice& a = whole->devices[0];
  const SwitchDevice& b = whole->devices[1];
  EXPECT_TRUE(plan_switch(with_budgets(a.peak_bytes, b.peak_bytes)).ok());
  expect_error(with_budgets(a.from.total() - 1, b.peak_bytes), ErrorCode::kDoesNotFit,
               "the layer placement does not fit: cpu:0 needs");
  expect_error(with_budgets(a.peak_bytes, std::max(b.to.total(), b.from.total()) - 1), ErrorCode::kDoesNotFit,
               "cpu:1 needs");
  // With less room staging shrinks; what both placements need at once does not.
  const uint64_t modes = std::max(a.from.total(), a.to.total());
  const uint64_t least = a.peak_bytes - a.staging_bytes;
  if (modes < least) {
    expect_error(with_budgets(least - 1, b.peak_bytes), ErrorCode::kDoesNotFit,
                 "the switch from layer to tensor does not: cpu:0 needs");
  }
}

TEST(PlanSwitch, WrongRequestsAreErrors) {
  const SwitchRequest good = request_of("tiny/tiny-llama.gguf", "layer", "tensor");
  const auto with = [&](auto change) {
    SwitchRequest request = good;
    change(request);
    return request;
  };
  using R = SwitchRequest;
  constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
  expect_error(with([](R& r) { r.model.split_mode = "rows"; }), kBad, "--from rows");
  expect_error(with([](R& r) { r.to_mode = "rows"; }), kBad, "--to rows");
  expect_error(with([](R& r) { r.n_kv_tokens = -1; }), kBad, "--kv-tokens");
  expect_error(with([](R& r) { r.n_kv_tokens = 97; }), kBad, "--kv-tokens is 97");
  expect_error(with([](R& r) { r.to_split = {1, 2, 3}; }), kBad, "--to-tensor-split has 3 shares");
  expect_error(with([](R& r) { r.model.tensor_split = {0, 0}; }), kBad, "--tensor-split");
  expect_error(with([](R& r) { r.staging_bytes = 1; }), kBad, "--transition-staging");
  expect_error(with([](R& r) { r.model.n_cuts = 9; }), kBad, "--cuts");
  expect_error(with([](R& r) { r.model.devices = {"cuda:0"}; }), ErrorCode::kUnsupported, "cuda");
  expect_error(with([](R& r) { r.model.path = TESSERA_TEST_DATA "/tiny/tiny-llama.json"; }), ErrorCode::kInvalidData,
               "tiny-llama.json");
}

}  // namespace
}  // namespace tessera
