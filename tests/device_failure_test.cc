// A device that fails at any command of a decode, or at any growth of its memory: the call says so, the process lives,
// other models go on, and everything can be destroyed. Made for the sanitizers.

#include <gtest/gtest.h>
#include <iostream>

#include "device/faulty/faulty_device.h"
#include "runtime/context.h"
#include "tests/support/decorated_devices.h"
#include "tests/support/run_model.h"

namespace tessera {
namespace {

constexpr int kDevices = 2;

ModelOptions options_of(const char* mode) {
  ModelOptions options;
  options.path = TESSERA_TEST_DATA "/tiny/tiny-llama.gguf";
  options.devices = cpu_names(kDevices);
  options.split_mode = mode;
  options.n_threads = 2;
  options.context.n_ctx = 64;
  options.context.n_ubatch = 8;
  options.context.n_seq_max = 2;
  return options;
}

// Opens devices of which the one with this index has a plan. `faulty` learns the devices; they live as long as the
// model.
DeviceOpener with_plan(size_t index, const FaultPlan& plan, std::vector<FaultyDevice*>& faulty) {
  faulty.assign(kDevices, nullptr);
  return decorated([=, &faulty](size_t i, std::unique_ptr<Device> device) -> std::unique_ptr<Device> {
    auto made = std::make_unique<FaultyDevice>(std::move(device), i == index ? plan : FaultPlan{});
    faulty[i] = made.get();
    return made;
  });
}

// 20 tokens of two sequences: three micro-batches of up to 8.
Status decode(Context& context) {
  std::vector<BatchToken> batch;
  for (int32_t i = 0; i < 20; ++i) {
    batch.push_back({i * 7 % 288, i % 2, i % 5 == 0});
  }
  return context.decode(batch);
}

void check_refused(const Status& status, const std::string& device) {
  EXPECT_EQ(status.code(), ErrorCode::kDeviceLost) << status.message();
  EXPECT_NE(status.message().find(device), std::string::npos) << status.message();
}

class FailureAtEveryCommand : public testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(FailureAtEveryCommand, IsAnErrorAndNothingElse) {
  const auto [mode, dies] = GetParam();
  ModelOptions options = options_of(mode);
  const auto other_model = Model::load(options);
  ASSERT_TRUE(other_model.ok()) << other_model.status().message();
  const auto other = Context::create(*other_model, options.context);
  ASSERT_TRUE(other.ok()) << other.status().message();
  ASSERT_TRUE(decode(**other).ok());
  const std::vector<float> wanted((*other)->logits(3).begin(), (*other)->logits(3).end());

  std::vector<FaultyDevice*> faulty;
  int64_t n_failures = 0;
  for (size_t index = 0; index < kDevices; ++index) {
    bool reached = true;
    for (int64_t n = 0; reached; ++n) {
      SCOPED_TRACE("device " + std::to_string(index) + ", command " + std::to_string(n));
      FaultPlan plan;
      (dies ? plan.die_at_command : plan.fail_at_command) = n;
      options.open_devices = with_plan(index, plan, faulty);
      const auto model = Model::load(options);
      ASSERT_TRUE(model.ok()) << model.status().message();
      const auto context = Context::create(*model, options.context);
      ASSERT_TRUE(context.ok()) << context.status().message();
      const Status status = decode(**context);
      reached = faulty[index]->counts().n_commands > n;
      if (!reached) {
        EXPECT_TRUE(status.ok()) << status.message();
        break;
      }
      ++n_failures;
      check_refused(status, "cpu:" + std::to_string(index));
      EXPECT_EQ((*context)->n_outputs(), 0);
      // The context stays dead, and everything on it answers.
      check_refused(decode(**context), "cpu:");
      EXPECT_LE((*context)->length(0), 64);
      check_refused((*context)->truncate(0, 0), "cpu:");
      check_refused((*context)->fork(0, 1, 0), "cpu:");
      check_refused((*context)->clear(), "cpu:");
      if (dies) {
        const auto second = Context::create(*model, options.context);  // the dead device's memory cannot grow
        EXPECT_FALSE(second.ok());
      }
      if (n % 8 == 0) {  // other models go on
        ASSERT_TRUE((*other)->clear().ok());
        ASSERT_TRUE(decode(**other).ok());
        EXPECT_EQ(n_different(wanted, {(*other)->logits(3).begin(), (*other)->logits(3).end()}), 0U);
      }
    }
  }
  std::cout << mode << (dies ? ": died" : ": failed") << " at each of " << n_failures << " commands\n";
  EXPECT_GT(n_failures, 100);
}

INSTANTIATE_TEST_SUITE_P(Modes, FailureAtEveryCommand,
                         testing::Combine(testing::Values("layer", "tensor"), testing::Bool()));

// Memory that cannot grow: loading or opening the context fails with the device's message; then it works on the next
// try.
TEST(FailureAtEveryGrowth, IsAnErrorAndNothingElse) {
  ModelOptions options = options_of("tensor");
  std::vector<FaultyDevice*> faulty;
  int n_failures = 0;
  for (size_t index = 0; index < kDevices; ++index) {
    for (int64_t n = 0;; ++n) {
      FaultPlan plan;
      plan.fail_growth_at = n;
      options.open_devices = with_plan(index, plan, faulty);
      const auto model = Model::load(options);
      if (!model.ok()) {
        EXPECT_EQ(model.status().code(), ErrorCode::kOutOfMemory) << model.status().message();
        ++n_failures;
        continue;
      }
      auto context = Context::create(*model, options.context);
      if (!context.ok()) {
        EXPECT_EQ(context.status().code(), ErrorCode::kOutOfMemory) << context.status().message();
        ++n_failures;
        // Nothing is left behind: the same context opens now.
        context = Context::create(*model, options.context);
        ASSERT_TRUE(context.ok()) << context.status().message();
      } else {
        EXPECT_LE(faulty[index]->counts().n_growths, n);
        break;
      }
      EXPECT_TRUE(decode(**context).ok());
    }
  }
  EXPECT_GE(n_failures, 2 * 3);  // weights, KV, scratch of each device
}

}  // namespace
}  // namespace tessera
