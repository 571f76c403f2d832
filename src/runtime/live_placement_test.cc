// Switches that are asked for and switches of a policy, on a tiny model with two devices.

#include "runtime/live_placement.h"

#include <atomic>
#include <condition_variable>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/serving.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// A model under layer, one context, and what is tested.
struct Rig {
  std::shared_ptr<Model> model;
  std::unique_ptr<Context> context;
  std::unique_ptr<LivePlacement> live;

  explicit Rig(const std::string& name = "tiny-llama", std::vector<uint64_t> budgets = {}) {
    ModelOptions options;
    options.path = std::string(TESSERA_TEST_DATA) + "/tiny/" + name + ".gguf";
    options.n_threads = 2;
    options.devices = {"cpu:0", "cpu:1"};
    options.device_memory = std::move(budgets);
    options.context = {.n_ctx = 128, .n_ubatch = 64, .n_seq_max = 2};
    auto loaded = Model::load(options);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    CHECK(loaded.ok());
    model = std::move(loaded).value();
    auto made = Context::create(model, options.context);
    CHECK(made.ok());
    context = std::move(made).value();
    auto started = LivePlacement::start(model, {});
    CHECK(started.ok());
    live = std::move(started).value();
  }

  // Asks and waits for the outcome.
  Status ask(PlacementWish wish) {
    std::mutex mutex;
    std::condition_variable heard;
    std::optional<Status> outcome;
    const Status asked = live->ask(std::move(wish), [&](const Status& status, const SwitchRecord*) {
      const std::lock_guard lock(mutex);
      outcome = status;
      heard.notify_all();
    });
    TRY(asked);
    std::unique_lock lock(mutex);
    heard.wait(lock, [&] { return outcome.has_value(); });
    return *outcome;
  }
};

PlacementWish go_to(const std::string& mode, std::vector<double> shares = {}) {
  return {.placement = PlacementRequest{mode, std::move(shares)}};
}

// Layer reads a hundred times as fast, tensor generates so.
SplitMeasures two_sided() {
  SplitMeasures m;
  m.splits[0] = {"layer", {{128, 1e4}}, {{1, 1}}};
  m.splits[1] = {"tensor", {{128, 1e2}}, {{1, 100}}};
  m.switch_s = {1e-3, 1e-3};
  return m;
}

TEST(LivePlacement, TheViewCountsEveryByte) {
  for (const char* name : {"tiny-llama", "tiny-qwen35", "tiny-qwen3moe"}) {
    SCOPED_TRACE(name);
    Rig rig(name);
    for (const char* mode : {"layer", "tensor", "none"}) {
      ASSERT_TRUE(rig.ask(go_to(mode)).ok());
      const auto view = rig.live->view();
      EXPECT_EQ(view->request.split_mode, mode);
      EXPECT_EQ(view->version, rig.model->placement_version());
      std::map<std::pair<int32_t, std::string_view>, uint64_t> bytes;
      std::map<std::pair<int32_t, std::string_view>, uint64_t> n_pieces;
      for (const PlacedPiece& piece : view->pieces) {
        const bool is_state = piece.kind == "kv" || piece.kind == "rec";
        const std::pair key(piece.device, is_state ? piece.kind : "weights");
        bytes[key] += piece.bytes;
        ++n_pieces[key];
        EXPECT_EQ(piece.device < 0, piece.kind == "host");
      }
      EXPECT_GT((bytes[{-1, "weights"}]), 0U);
      for (size_t d = 0; d < view->devices.size(); ++d) {
        const DeviceUse& use = view->devices[d];
        const auto device = static_cast<int32_t>(d);
        // Each piece begins on the grid; what moved before may have left a gap of others' size.
        const auto fits = [&](std::string_view kind, uint64_t held) {
          EXPECT_LE((bytes[{device, kind}]), held) << kind;
          EXPECT_EQ((bytes[{device, kind}]) == 0, held == 0) << kind;
        };
        fits("weights", use.weight_bytes);
        fits("kv", use.kv_bytes);
        fits("rec", use.rec_bytes);
      }
    }
  }
}

// The switch waits until the decode has ended, which asks for its next step again and again.
TEST(LivePlacement, ASwitchThatWaitsHoldsUpNoStep) {
  Rig rig;
  const BatchToken token = {1, 0, true};
  const auto ask_and_step = [&](int64_t) {
    EXPECT_TRUE(rig.live
                    ->ask(go_to("tensor"), [](const Status& status,
                                              const SwitchRecord*) { EXPECT_TRUE(status.ok()) << status.message(); })
                    .ok());
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(rig.live->before_step({}), ReadingPace::kShared);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  };
  ASSERT_TRUE(rig.context->decode({&token, 1}, ask_and_step).ok());
  ASSERT_TRUE(rig.ask(go_to("layer")).ok());
  EXPECT_EQ(rig.live->totals().n_switches, 2U);
}

TEST(LivePlacement, WhatIsAskedForIsDoneInTurn) {
  Rig rig;
  std::atomic<int> n_done = 0;
  for (const char* mode : {"tensor", "layer", "none", "tensor"}) {
    ASSERT_TRUE(rig.live
                    ->ask(go_to(mode, {3, 1}),
                          [&](const Status& status, const SwitchRecord* record) {
                            EXPECT_TRUE(status.ok()) << status.message();
                            EXPECT_EQ(record->report.placement_version, static_cast<uint64_t>(2 + n_done++));
                          })
                    .ok());
  }
  ASSERT_TRUE(rig.ask(go_to("layer")).ok());
  EXPECT_EQ(n_done, 4);
  const SwitchTotals totals = rig.live->totals();
  EXPECT_EQ(totals.n_switches, 5U);
  EXPECT_EQ(totals.n_failed, 0U);
  EXPECT_GT(totals.moved_bytes, totals.last->report.moved_bytes);
  EXPECT_EQ(totals.last->from, "tensor");
  EXPECT_EQ(totals.last->to, "layer");
  EXPECT_FALSE(totals.last->by_policy);
}

TEST(LivePlacement, WhatFailsLeavesEverything) {
  Rig rig;
  PlacementWish wish = go_to("tensor");
  wish.deadline_s = 1e-9;
  EXPECT_EQ(rig.ask(wish).code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(rig.ask(go_to("sideways")).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(rig.ask({.policy = true}).code(), ErrorCode::kUnsupported);
  EXPECT_EQ(rig.live->view()->version, 1U);
  EXPECT_EQ(rig.live->totals().n_failed, 2U);
  EXPECT_FALSE(rig.live->totals().last->status.ok());

  const DeviceUse first = rig.live->view()->devices[0];
  const uint64_t held = first.weight_bytes + first.kv_bytes + first.scratch_bytes;
  Rig tight("tiny-llama", {held + 1000, uint64_t{1} << 30});
  const Status refused = tight.ask(go_to("none"));
  EXPECT_EQ(refused.code(), ErrorCode::kDoesNotFit);
  EXPECT_THAT(refused.message(), HasSubstr("device cpu:0 lacks"));
  EXPECT_THAT(refused.message(), HasSubstr("the layer placement holds"));
  EXPECT_EQ(tight.live->view()->request.split_mode, "layer");
}

TEST(LivePlacement, AfterTheEndNothingIsDone) {
  Rig rig;
  rig.live->stop();
  EXPECT_EQ(rig.ask(go_to("tensor")).code(), ErrorCode::kCancelled);
  EXPECT_EQ(rig.live->before_step({}), ReadingPace::kShared);
  EXPECT_EQ(rig.live->view()->version, 1U);
}

TEST(LivePlacement, ThePolicySwitchesUntilSomebodyElseDoes) {
  Rig rig;
  const ServingLoad reading = {.n_reading = 1, .n_prompt = 100, .n_predict = 50, .step_prompt = 64};
  const ServingLoad generating = {.n_generating = 1, .n_predict = 50, .step_generated = 1};
  EXPECT_EQ(rig.live->before_step(reading), ReadingPace::kShared);
  EXPECT_FALSE(rig.live->policy().measures.has_value());
  rig.live->set_policy(two_sided(), {PlacementRequest{"layer", {}}, PlacementRequest{"tensor", {}}});
  EXPECT_TRUE(rig.live->policy().is_on);
  EXPECT_EQ(rig.live->before_step(reading), ReadingPace::kWhole);
  EXPECT_EQ(rig.live->view()->version, 1U);  // it reads best where it is
  EXPECT_EQ(rig.live->policy().phase, "reading");
  EXPECT_EQ(rig.live->before_step(generating), ReadingPace::kShared);
  EXPECT_EQ(rig.live->view()->request.split_mode, "tensor");
  EXPECT_TRUE(rig.live->totals().last->by_policy);
  EXPECT_THAT(rig.live->policy().why, HasSubstr("about 50 to generate"));

  // A failure leaves the policy as it was, a switch ends it.
  PlacementWish late = go_to("layer");
  late.deadline_s = 1e-9;
  EXPECT_FALSE(rig.ask(late).ok());
  EXPECT_TRUE(rig.live->policy().is_on);
  ASSERT_TRUE(rig.ask(go_to("none")).ok());
  EXPECT_FALSE(rig.live->policy().is_on);
  rig.live->before_step(generating);
  EXPECT_EQ(rig.live->view()->request.split_mode, "none");
  ASSERT_TRUE(rig.ask({.policy = true}).ok());
  EXPECT_EQ(rig.live->view()->request.split_mode, "layer");
  rig.live->before_step(generating);
  EXPECT_EQ(rig.live->view()->request.split_mode, "tensor");
  ASSERT_TRUE(rig.ask({.policy = false}).ok());
  EXPECT_FALSE(rig.live->policy().is_on);
  EXPECT_EQ(rig.live->view()->request.split_mode, "tensor");
}

class CountingSink final : public ServingSink {
 public:
  explicit CountingSink(std::atomic<int>& n_ended) : n_ended_(n_ended) {}
  bool on_text(std::string_view, std::span<const ServingToken>, const ServingTimings&) override { return true; }
  void on_end(const ServingEnd& end) override {
    EXPECT_EQ(end.stop, StopReason::kLimit);
    ++n_ended_;
  }

 private:
  std::atomic<int>& n_ended_;
};

TEST(LivePlacement, RequestsGoOnUnderThePolicyAndUnderSwitches) {
  Rig rig;
  rig.live->set_policy(two_sided(), {PlacementRequest{"layer", {}}, PlacementRequest{"tensor", {}}});
  ServingOptions options;
  options.before_step = [&](const ServingLoad& load) { return rig.live->before_step(load); };
  auto serving = Serving::start(std::move(rig.context), options);
  ASSERT_TRUE(serving.ok());
  std::atomic<int> n_ended = 0;
  for (int i = 0; i < 6; ++i) {
    ServingRequest request;
    request.prompt.assign(40, 10 + i);
    request.max_tokens = 20;
    request.ignore_eos = true;
    ASSERT_TRUE((*serving)->submit(std::move(request), std::make_shared<CountingSink>(n_ended)).ok());
    if (i == 3) {
      EXPECT_TRUE(rig.ask(go_to("none")).ok());
      EXPECT_TRUE(rig.ask({.policy = true}).ok());
    }
  }
  EXPECT_TRUE((*serving)->drain(std::chrono::minutes(2)).ok());
  EXPECT_EQ(n_ended, 6);
  EXPECT_GE(rig.live->totals().n_switches, 3U);
  EXPECT_EQ(rig.live->totals().n_failed, 0U);
}

}  // namespace
}  // namespace tessera
