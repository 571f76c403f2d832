// Dependencies between devices under random delays, and faults planted to show that the comparison of bits sees them.

#include <cmath>
#include <gtest/gtest.h>
#include <iostream>
#include <map>

#include "device/faulty/faulty_device.h"
#include "tests/support/decorated_devices.h"
#include "tests/support/run_model.h"

namespace tessera {
namespace {

struct Placed {
  int n_devices;
  const char* mode;
  std::vector<double> shares;
  int n_cuts;
};
const std::vector<Placed> kPlacements = {
    {2, "layer", {}, 2}, {2, "tensor", {}, 2}, {2, "layer", {3, 1}, 4}, {2, "tensor", {3, 1}, 4},
    {3, "layer", {}, 3}, {3, "tensor", {}, 3}, {5, "layer", {}, 5},     {5, "tensor", {}, 5},
};

ModelRun run_of(const std::string& model, const Placed& placed, int n_threads) {
  ModelRun run;
  run.model.path = TESSERA_TEST_DATA + model;
  run.model.devices = cpu_names(placed.n_devices);
  run.model.split_mode = placed.mode;
  run.model.tensor_split = placed.shares;
  run.model.n_cuts = placed.n_cuts;
  run.model.n_threads = n_threads;
  run.n_seqs = 3;
  return run;
}

// Adds up what a faulty device has done, when the device goes away.
class CountingQueue final : public ForwardingQueue {
 public:
  CountingQueue(Queue& inner, const FaultyDevice* device, FaultCounts& total)
      : ForwardingQueue(inner), device_(device), total_(total) {}
  ~CountingQueue() override {
    total_.n_delays += device_->counts().n_delays;
    total_.n_commands += device_->counts().n_commands;
  }

 private:
  const FaultyDevice* device_;
  FaultCounts& total_;
};

// Every device delays a tenth of its commands by up to 200 us: whatever does not wait for what it needs reads what an
// earlier step left there.
TEST(Delays, ChangeNoBit) {
  const std::vector<std::string> models = {"/tiny/tiny-gemma3.gguf", "/models/qwen2-q4_1.gguf",
                                           "/models/llama-q4_k.gguf", "/models/qwen35-q8_0.gguf"};
  constexpr uint64_t kSeeds = 128;
  std::map<std::pair<std::string, int>, std::vector<float>> references;
  FaultCounts total;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Placed& placed = kPlacements[seed % kPlacements.size()];
    const std::string& model = models[seed / kPlacements.size() % models.size()];
    std::vector<float>& reference = references[{model, placed.n_cuts}];
    if (reference.empty()) {
      const auto result = run_model(run_of(model, {1, "none", {}, placed.n_cuts}, 1));
      ASSERT_TRUE(result.ok()) << result.status().message();
      reference = result->logits;
    }
    ModelRun run = run_of(model, placed, 1 + static_cast<int>(seed / 8 % 3));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + model + " " + describe(run));
    run.model.open_devices = decorated([&](size_t i, std::unique_ptr<Device> device) {
      FaultPlan plan;
      plan.seed = seed * 16 + i;
      plan.delay_probability = 0.1;
      plan.max_delay_us = 200;
      auto faulty = std::make_unique<FaultyDevice>(std::move(device), plan);
      const FaultyDevice* counts = faulty.get();
      return with_queue(std::move(faulty),
                        [&, counts](Queue& inner) { return std::make_unique<CountingQueue>(inner, counts, total); });
    });
    const auto result = run_model(run);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(n_different(reference, result->logits), 0U) << "of " << reference.size() << " logits";
  }
  std::cout << "seeds 0 to " << kSeeds - 1 << ": " << total.n_delays << " of " << total.n_commands
            << " commands delayed\n";
  EXPECT_GT(total.n_delays, static_cast<int64_t>(kSeeds) * 10);
}

#if !defined(__SANITIZE_THREAD__)  // the planted fault is a data race, which the thread sanitizer reports as such
// A device that ignores its dependencies is caught.
TEST(PlantedFaults, AMissingDependencyShows) {
  const Placed placed = {2, "tensor", {}, 2};
  const auto reference = run_model(run_of("/models/llama-q4_k.gguf", {1, "none", {}, 2}, 1));
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  int n_caught = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    ModelRun run = run_of("/models/llama-q4_k.gguf", placed, 2);
    run.model.open_devices = decorated([&](size_t i, std::unique_ptr<Device> device) {
      return i == 1 ? without_waits(std::move(device), seed) : std::move(device);
    });
    const auto result = run_model(run);
    n_caught += !result.ok() || n_different(reference->logits, result->logits) > 0 ? 1 : 0;
  }
  std::cout << n_caught << " of 16 caught\n";
  EXPECT_GE(n_caught, 3);
}
#endif

// Threads that split the sum over K instead of rows are caught: bits follow the number of threads.
TEST(PlantedFaults, ThreadsThatSplitKShow) {
  const auto run = [&](int n_threads, bool planted) {
    ModelRun r = run_of("/tiny/tiny-llama.gguf", {1, "none", {}, 2}, n_threads);
    r.model.kernels = "scalar";
    if (planted) {
      r.model.open_devices =
          decorated([](size_t, std::unique_ptr<Device> device) { return with_split_k(std::move(device)); });
    }
    auto result = run_model(r);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return std::move(result->logits);
  };
  const std::vector<float> healthy = run(1, false);
  EXPECT_EQ(n_different(healthy, run(2, false)), 0U);
  EXPECT_EQ(n_different(healthy, run(3, false)), 0U);
  const std::vector<float> one = run(1, true);
  for (const int n_threads : {2, 3, 7}) {
    const std::vector<float> split = run(n_threads, true);
    EXPECT_GT(n_different(one, split), one.size() / 10) << n_threads << " threads";
    // It is a rounding fault and nothing else: the sums are right.
    float worst = 0;
    for (size_t i = 0; i < split.size(); ++i) {
      worst = std::max(worst, std::abs(split[i] - healthy[i]));
    }
    EXPECT_LT(worst, 1e-3F);
  }
}

}  // namespace
}  // namespace tessera
