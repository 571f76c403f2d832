// Measuring what the split policy decides from, where somebody interrupts it.

#include "split_measure.h"

#include <array>
#include <atomic>
#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(SplitMeasure, AnInterruptionEndsItBeforeTheNextBatch) {
  ModelOptions options;
  options.path = TESSERA_TEST_DATA "/tiny/tiny-llama.gguf";
  options.n_threads = 2;
  options.devices = {"cpu:0", "cpu:1"};
  options.split_mode = "tensor";
  options.context.n_ctx = 64;
  const auto model = Model::load(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto context = Context::create(*model, options.context);
  ASSERT_TRUE(context.ok()) << context.status().message();
  const std::array<PlacementRequest, 2> splits = {PlacementRequest{"layer", {}}, PlacementRequest{"tensor", {}}};

  std::atomic<bool> interrupted = false;
  TransitionOptions transition;
  transition.progress = [&](double fraction) {
    interrupted = fraction == 1;  // when the first switch has copied all
    return true;
  };
  const auto measured = measure_splits(**model, **context, splits, transition, &interrupted);
  EXPECT_EQ(measured.status().code(), ErrorCode::kCancelled);
  EXPECT_EQ((*context)->length(0), 0);
  EXPECT_EQ((*model)->placement().split_mode, "layer");

  // A switch that has not begun is not done.
  interrupted = true;
  EXPECT_EQ(
      measure_splits(**model, **context, std::array{splits[1], splits[0]}, transition, &interrupted).status().code(),
      ErrorCode::kCancelled);
  EXPECT_EQ((*model)->placement().split_mode, "layer");

  EXPECT_EQ(measure_generation(**context, &interrupted).status().code(), ErrorCode::kCancelled);

  EXPECT_TRUE(measure_splits(**model, **context, splits, {}).ok());
  const auto speed = measure_generation(**context);
  ASSERT_TRUE(speed.ok()) << speed.status().message();
  EXPECT_GT(*speed, 0);
}

}  // namespace
}  // namespace tessera
