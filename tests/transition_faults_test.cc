// A switch of the placement that fails, is stopped, runs short of memory or meets another call: the old placement is
// whole, every byte is given back, and the next token is the right one. Made for the sanitizers.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iostream>
#include <optional>
#include <thread>

#include "device/faulty/faulty_device.h"
#include "runtime/context.h"
#include "tests/support/decorated_devices.h"
#include "tests/support/run_model.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr size_t kDevices = 2;
constexpr int32_t kSeqs = 3;
const PlacementRequest kLayer = {"layer", {}};
const PlacementRequest kTensor = {"tensor", {}};
constexpr uint64_t kAllAhead = uint64_t{1} << 30;  // more than the models have

ModelOptions options_of(const std::string& name) {
  ModelOptions options;
  options.path = std::string(TESSERA_TEST_DATA "/tiny/") + name + ".gguf";
  options.devices = cpu_names(kDevices);
  options.n_cuts = 2;
  options.n_threads = 2;
  options.context = {.n_ctx = 320, .n_ubatch = 16, .n_seq_max = kSeqs};
  return options;
}

struct Opened {
  std::vector<FaultyDevice*> devices;  // live as long as the model
  std::shared_ptr<Model> model;
  std::unique_ptr<Context> context;
};

void open(const ModelOptions& wanted, Opened& opened) {
  ModelOptions options = wanted;
  opened.devices.assign(kDevices, nullptr);
  options.open_devices = decorated([&opened](size_t i, std::unique_ptr<Device> device) -> std::unique_ptr<Device> {
    auto made = std::make_unique<FaultyDevice>(std::move(device), FaultPlan{});
    opened.devices[i] = made.get();
    return made;
  });
  auto model = Model::load(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  opened.model = std::move(model).value();
  auto context = Context::create(opened.model, options.context);
  ASSERT_TRUE(context.ok()) << context.status().message();
  opened.context = std::move(context).value();
  std::vector<BatchToken> batch;
  for (int32_t i = 0; i < 70; ++i) {
    batch.push_back({i * 7 % 97, i % 2, i >= 68});
  }
  ASSERT_TRUE(opened.context->decode(batch).ok());
  ASSERT_TRUE(opened.context->fork(0, 2, opened.context->length(0)).ok());
}

std::vector<uint64_t> used_bytes(const Opened& opened) {
  std::vector<uint64_t> bytes;
  for (const FaultyDevice* device : opened.devices) {
    bytes.push_back(device->used_bytes());
  }
  return bytes;
}

std::vector<float> all_logits(const Context& context) {
  std::vector<float> logits;
  for (int64_t i = 0; i < context.n_outputs(); ++i) {
    logits.insert(logits.end(), context.logits(i).begin(), context.logits(i).end());
  }
  return logits;
}

std::vector<std::byte> state_of(Context& context) {
  const auto n_bytes = context.state_bytes(kAllSequences);
  EXPECT_TRUE(n_bytes.ok()) << n_bytes.status().message();
  std::vector<std::byte> bytes(n_bytes.ok() ? *n_bytes : 0);
  EXPECT_TRUE(context.get_state(kAllSequences, bytes).ok());
  return bytes;
}

/// Returns once `holds` does. An end for what never comes: many more looks than anything here takes, and each of them
/// lets others run; then the test fails, and goes on.
void wait_until(const char* what, const std::function<bool()>& holds) {
  constexpr int kMostLooks = 1'000'000;
  for (int n = 0; n < kMostLooks; ++n) {
    if (holds()) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  ADD_FAILURE() << "waited in vain for " << what;
}

/// A model whose switches fail, beside one that stays where it is: whatever happens, they agree.
class Pair {
 public:
  explicit Pair(const ModelOptions& options) {
    open(options, still_);
    open(options, moving_);
    remember();
  }
  [[nodiscard]] Model& model() const { return *moving_.model; }
  [[nodiscard]] const std::shared_ptr<Model>& shared_model() const { return moving_.model; }
  [[nodiscard]] Context& context() const { return *moving_.context; }
  [[nodiscard]] Context& still() const { return *still_.context; }
  void arm(size_t device, const FaultPlan& plan) {
    for (size_t d = 0; d < kDevices; ++d) {
      moving_.devices[d]->arm(d == device ? plan : FaultPlan{});
    }
  }
  [[nodiscard]] FaultCounts counts(size_t device) const { return moving_.devices[device]->counts(); }
  [[nodiscard]] const FaultyDevice& device(size_t d) const { return *moving_.devices[d]; }

  /// After a failed switch: as before, to the last byte; then one token more.
  void expect_unchanged() {
    arm(0, {});
    EXPECT_EQ(model().placement().split_mode, request_.split_mode);
    EXPECT_EQ(used_now(), used_);
    expect_agreement();
  }
  /// The same contents, and the same next token.
  void expect_agreement() {
    EXPECT_EQ(n_different(all_logits(context()), all_logits(*still_.context)), 0U);
    EXPECT_TRUE(state_of(context()) == state_of(*still_.context));
    const std::vector<BatchToken> batch = {{n_tokens_ % 90, 0, true}, {3, 1, true}, {n_tokens_ % 7, 2, true}};
    if (context().length(0) + 1 >= context().options().n_ctx) {
      ASSERT_TRUE(context().clear().ok() && still_.context->clear().ok());
    }
    ++n_tokens_;
    ASSERT_TRUE(still_.context->decode(batch).ok());
    const Status status = context().decode(batch);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(n_different(all_logits(context()), all_logits(*still_.context)), 0U);
  }
  /// The present placement is the one to be kept.
  void remember() {
    request_ = model().placement();
    used_ = used_now();
  }
  [[nodiscard]] const std::vector<uint64_t>& used() const { return used_; }
  [[nodiscard]] std::vector<uint64_t> used_now() const { return used_bytes(moving_); }

 private:
  Opened still_;
  Opened moving_;
  PlacementRequest request_;
  std::vector<uint64_t> used_;
  int32_t n_tokens_ = 0;
};

class TransitionFaults : public testing::TestWithParam<const char*> {};

// Both ways, on either device: every command of a switch fails once, and every growth of a range.
TEST_P(TransitionFaults, AtEveryStepLeaveTheOldPlacement) {
  Pair pair(options_of(GetParam()));
  int64_t n_failures = 0;
  for (const PlacementRequest& to : {kTensor, kLayer}) {
    for (size_t d = 0; d < kDevices; ++d) {
      for (const bool grows : {false, true}) {
        bool failed = true;
        for (int64_t n = 0; failed; ++n) {
          SCOPED_TRACE(fmt::format("to {}, device {}, {} {}", to.split_mode, d, grows ? "growth" : "command", n));
          FaultPlan plan;
          (grows ? plan.fail_growth_at : plan.fail_at_command) = n;
          pair.arm(d, plan);
          const auto report = pair.model().set_placement(to);
          failed = !report.ok();
          if (failed) {
            ++n_failures;
            EXPECT_EQ(report.status().code(), grows ? ErrorCode::kOutOfMemory : ErrorCode::kInternal);
            EXPECT_THAT(report.status().message(), HasSubstr("planned failure"));
            EXPECT_THAT(report.status().message(), HasSubstr("placement holds"));
            pair.expect_unchanged();
          } else {
            const FaultCounts counts = pair.counts(d);
            EXPECT_LE(grows ? counts.n_growths : counts.n_commands, n) << "no step was left out";
            pair.arm(0, {});
            const PlacementRequest back = to.split_mode == "tensor" ? kLayer : kTensor;
            pair.expect_agreement();
            if (d + 1 < kDevices || !grows) {
              ASSERT_TRUE(pair.model().set_placement(back).ok());
            }
          }
          if (HasFatalFailure()) {
            return;
          }
        }
      }
    }
    pair.remember();
  }
  std::cout << GetParam() << ": " << n_failures << " failures undone\n";
  EXPECT_GT(n_failures, 20);
}

// The same with weights copied ahead. A failure there costs the copies only, and one after the switch only leaves room
// in use, which the next switch gives back.
TEST_P(TransitionFaults, AtEveryStepWithCopiesAheadOnePlacementIsWhole) {
  Pair pair(options_of(GetParam()));
  int64_t n_undone = 0;
  int64_t n_without_copies = 0;
  int64_t n_held = 0;
  for (const uint64_t ahead_bytes : {uint64_t{256} << 10, kAllAhead}) {
    for (size_t d = 0; d < kDevices; ++d) {
      for (const bool grows : {false, true}) {
        bool reached = true;
        for (int64_t n = 0; reached; ++n) {
          SCOPED_TRACE(fmt::format("{} ahead, device {}, {} {}", ahead_bytes, d, grows ? "growth" : "command", n));
          FaultPlan plan;
          (grows ? plan.fail_growth_at : plan.fail_at_command) = n;
          pair.arm(d, plan);
          const auto report = pair.model().set_placement(kTensor, {.ahead_bytes = ahead_bytes});
          const FaultCounts counts = pair.counts(d);
          reached = (grows ? counts.n_growths : counts.n_commands) > n;
          if (!report.ok()) {
            ++n_undone;
            EXPECT_THAT(report.status().message(), HasSubstr("planned failure"));
            EXPECT_THAT(report.status().message(), HasSubstr("the layer placement holds"));
            pair.expect_unchanged();
          } else {
            n_without_copies += report->ahead_bytes == 0 ? 1 : 0;
            n_held += report->held_bytes > 0 ? 1 : 0;
            pair.arm(0, {});
            pair.expect_agreement();
            ASSERT_TRUE(pair.model().set_placement(kLayer).ok());
            pair.expect_unchanged();
          }
          if (HasFatalFailure()) {
            return;
          }
        }
      }
    }
  }
  std::cout << GetParam() << ": " << n_undone << " failures undone, " << n_without_copies
            << " switches without their copies, " << n_held << " that held room\n";
  EXPECT_GT(n_undone, 5);
  EXPECT_GT(n_without_copies, 5);
}

/// Progress that asks `go_on` when the switch is over and its holes are about to be closed: only then is 1 told on the
/// thread that asked.
std::function<bool(double)> before_closing(std::function<bool()> go_on) {
  return [go_on = std::move(go_on), caller = std::this_thread::get_id()](double fraction) {
    return fraction < 1 || std::this_thread::get_id() != caller || go_on();
  };
}

// Holes cannot be closed, with copies and then without, or nobody waits for that: the switch has succeeded, and the
// report says what they hold. The next switch leaves what a fresh load takes.
TEST_P(TransitionFaults, HolesThatStayAreSaidAndTheNextSwitchClosesThem) {
  Pair pair(options_of(GetParam()));
  ModelOptions options = options_of(GetParam());
  options.split_mode = "tensor";
  Opened fresh;
  open(options, fresh);
  const std::vector<uint64_t> in_tensor = used_bytes(fresh);
  const auto fail_on = [&pair](size_t device) {
    return [&pair, device] {
      pair.arm(device, {.fail_from_command = 0});
      return true;
    };
  };
  const std::function<bool()> ways[] = {fail_on(0), fail_on(1), [] { return false; }};
  for (size_t way = 0; way < std::size(ways); ++way) {
    for (const PlacementRequest& next : {kLayer, kTensor}) {
      for (const uint64_t ahead_bytes : {uint64_t{0}, kAllAhead}) {
        SCOPED_TRACE(fmt::format("way {}, then to {}, {} ahead", way, next.split_mode, ahead_bytes));
        const auto report =
            pair.model().set_placement(kTensor, {.ahead_bytes = kAllAhead, .progress = before_closing(ways[way])});
        ASSERT_TRUE(report.ok()) << report.status().message();
        pair.arm(0, {});
        const std::vector<uint64_t> held = pair.used_now();
        EXPECT_GT(report->held_bytes, 0U);
        EXPECT_EQ(report->held_bytes, held[0] + held[1] - in_tensor[0] - in_tensor[1]);
        pair.expect_agreement();
        const auto closed = pair.model().set_placement(next, {.ahead_bytes = ahead_bytes});
        ASSERT_TRUE(closed.ok()) << closed.status().message();
        EXPECT_EQ(closed->held_bytes, 0U);
        if (next.split_mode == "tensor") {
          EXPECT_EQ(pair.used_now(), in_tensor);
          pair.expect_agreement();
          ASSERT_TRUE(pair.model().set_placement(kLayer).ok());
        }
        pair.expect_unchanged();
      }
    }
  }
}

TEST_P(TransitionFaults, ADeadDeviceEndsTheContextsAndNothingElse) {
  Pair pair(options_of(GetParam()));
  pair.arm(1, {.die_at_command = 2});
  const auto report = pair.model().set_placement(kTensor);
  EXPECT_EQ(report.status().code(), ErrorCode::kDeviceLost) << report.status().message();
  EXPECT_THAT(report.status().message(), HasSubstr("cpu:1"));
  const BatchToken token = {1, 0, true};
  const Status decoded = pair.context().decode({&token, 1});
  EXPECT_EQ(decoded.code(), ErrorCode::kDeviceLost);
  EXPECT_THAT(decoded.message(), HasSubstr("load the model again"));
  EXPECT_EQ(pair.context().state_bytes(0).status().code(), ErrorCode::kDeviceLost);
  EXPECT_EQ(pair.model().set_placement(kTensor).status().code(), ErrorCode::kDeviceLost);
  ContextOptions small;
  small.n_ctx = 8;
  const auto model = Model::load(options_of(GetParam()));
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE(Context::create(*model, small).ok()) << "other models live";
}

// Wherever a device dies that weights are copied ahead to or from: what needs it says so, and nothing hangs.
TEST_P(TransitionFaults, ADeviceMayDieWhileWeightsAreCopiedAhead) {
  bool reached = true;
  for (int64_t n = 0; reached; ++n) {
    SCOPED_TRACE(n);
    Pair pair(options_of(GetParam()));
    pair.arm(1, {.die_at_command = n});
    const auto report = pair.model().set_placement(kTensor, {.ahead_bytes = kAllAhead});
    reached = pair.counts(1).n_commands > n;
    EXPECT_EQ(report.status().code(), reached ? ErrorCode::kDeviceLost : ErrorCode::kOk) << report.status().message();
    if (!reached) {
      pair.arm(1, {});  // nor may it die afterwards
    }
    const BatchToken token = {1, 0, true};
    EXPECT_EQ(pair.context().decode({&token, 1}).code(), reached ? ErrorCode::kDeviceLost : ErrorCode::kOk);
    ASSERT_LT(n, 1000);
  }
}

TEST_P(TransitionFaults, StopsWhereverProgressSaysSo) {
  Pair pair(options_of(GetParam()));
  for (const uint64_t ahead_bytes : {uint64_t{0}, kAllAhead}) {
    bool stopped = true;
    for (int n = 0; stopped; ++n) {
      SCOPED_TRACE(fmt::format("{} ahead, call {}", ahead_bytes, n));
      int n_calls = 0;
      double last = -1;
      const auto progress = [&](double fraction) {
        EXPECT_GE(fraction, last);
        last = fraction;
        return n_calls++ < n;
      };
      const auto report = pair.model().set_placement(kTensor, {.ahead_bytes = ahead_bytes, .progress = progress});
      stopped = !report.ok();
      if (stopped) {
        EXPECT_EQ(report.status().code(), ErrorCode::kCancelled) << report.status().message();
        pair.expect_unchanged();
      } else {
        EXPECT_EQ(last, 1);
        EXPECT_GT(n, 4);
        pair.expect_agreement();
        ASSERT_TRUE(pair.model().set_placement(kLayer).ok());
      }
      ASSERT_LT(n, 1000);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TransitionFaults, testing::Values("tiny-llama", "tiny-qwen35"),
                         [](const auto& model) { return std::string(model.param).substr(5); });

TEST(TransitionLimits, TheDeadlineEndsASwitch) {
  Pair pair(options_of("tiny-llama"));
  EXPECT_EQ(pair.model().set_placement(kTensor, {.deadline_s = 1e-9}).status().code(), ErrorCode::kDeadlineExceeded);
  pair.expect_unchanged();
  // In the middle: the first call comes after the clock has started.
  std::optional<std::chrono::steady_clock::time_point> first;
  const auto slow = [&](double fraction) {
    first = first.value_or(std::chrono::steady_clock::now());
    while (fraction > 0 && std::chrono::steady_clock::now() < *first + std::chrono::milliseconds(51)) {
      std::this_thread::yield();
    }
    return true;
  };
  const auto late = pair.model().set_placement(kTensor, {.deadline_s = 0.05, .progress = slow});
  EXPECT_EQ(late.status().code(), ErrorCode::kDeadlineExceeded) << late.status().message();
  pair.expect_unchanged();
  EXPECT_TRUE(pair.model().set_placement(kTensor, {.deadline_s = 3600}).ok());
  pair.expect_agreement();
}

/// What a switch takes of each device at its peak, but for staging and recurrent state.
std::vector<uint64_t> peaks_without_staging(const std::vector<DeviceUse>& before, const std::vector<DeviceUse>& after) {
  std::vector<uint64_t> peaks;
  for (size_t d = 0; d < before.size(); ++d) {
    peaks.push_back(std::max(before[d].weight_bytes, after[d].weight_bytes) +
                    std::max(before[d].kv_bytes, after[d].kv_bytes) +
                    std::max(before[d].scratch_bytes, after[d].scratch_bytes));
  }
  return peaks;
}

TEST(TransitionLimits, ABudgetTooSmallIsSaidAndOneUnitOfStagingIsEnough) {
  const ModelOptions options = options_of("tiny-llama");
  Pair free(options);
  // By device: what layer uses, and what a switch to tensor takes at its peak but for staging.
  const std::vector<uint64_t> layer = free.used();
  const std::vector<DeviceUse> before = free.model().device_use();
  ASSERT_TRUE(free.model().set_placement(kTensor).ok());
  const std::vector<DeviceUse> after = free.model().device_use();
  const std::vector<uint64_t> peak = peaks_without_staging(before, after);
  ASSERT_GT(peak[0], layer[0]);

  ModelOptions tight = options;
  tight.device_memory = layer;
  Pair refused(tight);
  const auto report = refused.model().set_placement(kTensor);
  EXPECT_EQ(report.status().code(), ErrorCode::kDoesNotFit);
  EXPECT_THAT(report.status().message(), HasSubstr("device cpu:0 lacks"));
  EXPECT_THAT(report.status().message(), HasSubstr("the layer placement holds"));
  refused.expect_unchanged();

  constexpr uint64_t kUnit = 64 << 10;
  for (const uint64_t staging : {kUnit - 1, kUnit}) {
    ModelOptions edge = options;
    edge.device_memory = {peak[0] + staging, peak[1] + staging};
    Pair pair(edge);
    const auto at_edge = pair.model().set_placement(kTensor);
    EXPECT_EQ(at_edge.status().code(), staging < kUnit ? ErrorCode::kDoesNotFit : ErrorCode::kOk)
        << at_edge.status().message();
    at_edge.ok() ? pair.expect_agreement() : pair.expect_unchanged();
  }
}

TEST(TransitionLimits, WrongRequestsChangeNothing) {
  Pair pair(options_of("tiny-llama"));
  const auto refuse = [&](const PlacementRequest& request, const TransitionOptions& options, const char* part) {
    const auto report = pair.model().set_placement(request, options);
    EXPECT_EQ(report.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(report.status().message(), HasSubstr(part));
    pair.expect_unchanged();
  };
  refuse({"rows", {}}, {}, "--split-mode rows");
  refuse({"tensor", {1, 2, 3}}, {}, "--tensor-split");
  refuse({"tensor", {0, 0}}, {}, "--tensor-split");
  refuse(kTensor, {.staging_bytes = 1}, "--transition-staging");
  EXPECT_TRUE(pair.model().set_placement({"layer", {0, 1}}).ok());
  EXPECT_EQ(pair.model().device_use()[0].weight_bytes, 0U);
  pair.expect_agreement();
  EXPECT_TRUE(pair.model().set_placement(kTensor).ok()) << "the first device gets its replicas back";
  pair.expect_agreement();
  ModelOptions text = options_of("tiny-llama");
  text.vocab_only = true;
  const auto vocab = Model::load(text);
  ASSERT_TRUE(vocab.ok()) << vocab.status().message();
  EXPECT_EQ((*vocab)->set_placement(kTensor).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ((*vocab)->placement().split_mode, "");
}

TEST(TransitionLimits, AnotherCallIsWaitedForOrIsBusy) {
  Pair pair(options_of("tiny-llama"));
  std::atomic<bool> decoding = false;
  std::atomic<bool> go_on = false;
  ErrorCode nested = ErrorCode::kOk;
  std::thread other([&] {
    const BatchToken token = {1, 2, true};
    const Status status = pair.context().decode({&token, 1}, [&](int64_t) {
      nested = pair.model().set_placement(kTensor).status().code();
      decoding = true;
      wait_until("leave to go on", [&] { return go_on.load(); });
      return false;  // nothing is decoded: the pair still agrees
    });
    EXPECT_EQ(status.code(), ErrorCode::kCancelled);
  });
  wait_until("a decode to begin", [&] { return decoding.load(); });
  EXPECT_EQ(nested, ErrorCode::kBusy) << "from within a decode";
  EXPECT_EQ(pair.model().set_placement(kTensor, {.wait = false}).status().code(), ErrorCode::kBusy);
  EXPECT_EQ(pair.model().set_placement(kTensor, {.deadline_s = 0.01}).status().code(), ErrorCode::kDeadlineExceeded);
  std::thread waiting([&] { EXPECT_TRUE(pair.model().set_placement(kTensor).ok()); });
  go_on = true;
  other.join();
  waiting.join();
  EXPECT_EQ(pair.model().placement().split_mode, "tensor");

  // From within a switch nothing else may be called.
  const auto report = pair.model().set_placement(
      kLayer, {.wait = false, .progress = [&](double) {
                 const BatchToken token = {1, 0, true};
                 EXPECT_EQ(pair.context().decode({&token, 1}).code(), ErrorCode::kBusy);
                 EXPECT_EQ(pair.model().set_placement(kTensor).status().code(), ErrorCode::kBusy);
                 return true;
               }});
  EXPECT_TRUE(report.ok()) << report.status().message();
}

// One thread is in the middle of a batch, which does not end before another has copied weights ahead: the devices see
// commands while the batch has none on them.
TEST(TransitionAhead, WeightsAreCopiedWhileABatchRuns) {
  Pair pair(options_of("tiny-llama"));
  const auto n_commands = [&] { return pair.counts(0).n_commands + pair.counts(1).n_commands; };
  const BatchToken token = {1, 2, true};
  std::atomic<bool> copying = false;
  std::atomic<bool> decoding = false;
  std::thread other([&] {
    wait_until("copying to begin", [&] { return copying.load(); });
    const Status status = pair.context().decode({&token, 1}, [&](int64_t) {
      const int64_t before = n_commands();
      decoding = true;
      wait_until("weights to be copied meanwhile", [&] { return n_commands() != before; });
      return true;
    });
    EXPECT_TRUE(status.ok()) << status.message();
  });
  const auto progress = [&](double) {
    copying = true;
    wait_until("a decode to begin", [&] { return decoding.load(); });
    return true;
  };
  const auto report = pair.model().set_placement(kTensor, {.ahead_bytes = kAllAhead, .progress = progress});
  other.join();
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_GT(report->ahead_bytes, 0U);
  ASSERT_TRUE(pair.still().decode({&token, 1}).ok());
  pair.expect_agreement();
}

// What ends the copying, in its middle: another switch, or a new context, which needs the room. The switch comes all
// the same, and takes no more memory than one without copies.
TEST(TransitionAhead, OthersMayEndTheCopying) {
  for (const bool by_context : {false, true}) {
    Pair pair(options_of("tiny-llama"));
    ASSERT_TRUE(pair.model().set_placement(kTensor).ok());
    pair.remember();
    const std::vector<uint64_t> used = pair.used();
    ASSERT_TRUE(pair.model().set_placement(kLayer).ok());
    pair.remember();
    ContextOptions small;
    small.n_ctx = 8;
    bool ended = false;
    const auto end_it = [&](double) {
      if (!ended) {
        ended = true;
        const Status status = by_context ? Context::create(pair.shared_model(), small).status()
                                         : pair.model().set_placement({"none", {}}).status();
        EXPECT_TRUE(status.ok()) << status.message();
      }
      return true;
    };
    const auto report = pair.model().set_placement(kTensor, {.ahead_bytes = kAllAhead, .progress = end_it});
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->ahead_bytes, 0U);
    EXPECT_EQ(report->from, by_context ? "layer" : "none");
    pair.remember();
    EXPECT_EQ(pair.used(), used);
    pair.expect_agreement();
  }
}

// Another call begins to copy before the holes of this one are closed, and cannot close them itself: they stay until it
// has its turn, and this one says what they hold.
TEST(TransitionAhead, HolesThatStayForAnotherCallAreSaid) {
  Pair pair(options_of("tiny-llama"));
  const auto switch_ahead = [&](const PlacementRequest& to, std::function<bool(double)> progress) {
    return pair.model().set_placement(to, {.ahead_bytes = kAllAhead, .progress = std::move(progress)});
  };
  const auto stopped = switch_ahead(kTensor, before_closing([] { return false; }));
  ASSERT_TRUE(stopped.ok()) << stopped.status().message();
  ASSERT_TRUE(pair.model().set_placement(kLayer).ok());
  pair.expect_unchanged();

  std::atomic<bool> copying = false;
  std::atomic<bool> go_on = false;
  const auto hold = [&](double) {
    copying = true;
    wait_until("leave to go on", [&] { return go_on.load(); });
    return true;
  };
  std::thread other;
  const auto let_another_begin = [&] {
    pair.arm(0, {.fail_at_command = 0});  // a copy with which it closes holes
    other = std::thread([&] {
      const auto report = switch_ahead(kLayer, hold);
      ASSERT_TRUE(report.ok()) << report.status().message();
      EXPECT_EQ(report->held_bytes, 0U);
    });
    wait_until("copying to begin", [&] { return copying.load(); });
    return true;
  };
  const auto report = switch_ahead(kTensor, before_closing(let_another_begin));
  EXPECT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report.ok() ? report->held_bytes : 0, stopped->held_bytes);
  go_on = true;
  other.join();
  pair.expect_unchanged();
}

/// Logits of n more tokens of sequence 1, decoded one by one.
std::vector<float> logits_of_next(Context& context, int32_t n) {
  std::vector<float> logits;
  for (int32_t i = 0; i < n; ++i) {
    const BatchToken token = {i * 5 % 90, 1, true};
    EXPECT_TRUE(context.decode({&token, 1}).ok());
    logits.insert(logits.end(), context.logits(0).begin(), context.logits(0).end());
  }
  return logits;
}

// Two that switch with copies ahead, with no regard for each other, one of them also without; contexts come and go, and
// a third decodes. None ends what another one copies unseen: every token is as if nobody had.
TEST(TransitionAhead, CallsThatMeetLeaveEachOtherWhole) {
  const ModelOptions options = options_of("tiny-llama");
  Opened still;
  Opened moving;
  open(options, still);
  open(options, moving);
  const auto run = [](Context& context) { return logits_of_next(context, 60); };
  ASSERT_TRUE(still.context->clear().ok());
  const std::vector<float> wanted = run(*still.context);
  std::atomic<bool> done = false;
  std::atomic<int> n_done = 0;
  const auto switch_to_and_fro = [&](bool always_ahead) {
    for (int i = 0; !done; ++i) {
      const uint64_t ahead_bytes = always_ahead || i % 3 == 0 ? kAllAhead : 0;
      const auto report = moving.model->set_placement(i % 2 == 0 ? kTensor : kLayer, {.ahead_bytes = ahead_bytes});
      EXPECT_TRUE(report.ok()) << report.status().message();
      ++n_done;
    }
  };
  std::thread first(switch_to_and_fro, true);
  std::thread second(switch_to_and_fro, false);
  std::thread opening([&] {
    ContextOptions small;
    small.n_ctx = 8;
    while (!done) {
      EXPECT_TRUE(Context::create(moving.model, small).ok());
    }
  });
  constexpr int kMostRuns = 2'000;  // many more than it takes
  int n_runs = 0;
  for (; n_done < 200 && n_runs < kMostRuns && !::testing::Test::HasFailure(); ++n_runs) {
    EXPECT_TRUE(moving.context->clear().ok());
    EXPECT_EQ(n_different(run(*moving.context), wanted), 0U);
  }
  EXPECT_LT(n_runs, kMostRuns) << "only " << n_done << " switches came about";
  done = true;
  first.join();
  second.join();
  opening.join();
}

// With budgets from what a switch needs at least on, unit by unit, there is room for no tile, for some, for all.
TEST(TransitionAhead, TakesNoMoreThanThereIs) {
  constexpr uint64_t kUnit = 64 << 10;
  Pair free(options_of("tiny-llama"));
  const std::vector<DeviceUse> before = free.model().device_use();
  ASSERT_TRUE(free.model().set_placement(kTensor).ok());
  const std::vector<uint64_t> least = peaks_without_staging(before, free.model().device_use());
  std::vector<uint64_t> copied;
  for (uint64_t n_units = 1; n_units < 7; ++n_units) {
    SCOPED_TRACE(n_units);
    ModelOptions tight = options_of("tiny-llama");
    tight.device_memory = {least[0] + n_units * kUnit, least[1] + n_units * kUnit};
    Pair pair(tight);
    const auto report = pair.model().set_placement(kTensor, {.ahead_bytes = kAllAhead});
    ASSERT_TRUE(report.ok()) << report.status().message();
    copied.push_back(report->ahead_bytes);
    for (size_t d = 0; d < kDevices; ++d) {
      EXPECT_LE(report->peak_bytes[d], tight.device_memory[d]);
    }
    pair.expect_agreement();
  }
  EXPECT_LT(copied.front(), copied.back());
}

// What a range grows by in every second switch stays at hand meanwhile: within the budget, and within the limit.
TEST(TransitionLimits, WhatIsGivenBackStaysAtHand) {
  Pair free(options_of("tiny-llama"));
  ModelOptions tight = options_of("tiny-llama");
  const std::vector<DeviceUse> before = free.model().device_use();
  ASSERT_TRUE(free.model().set_placement(kTensor).ok());
  tight.device_memory = peaks_without_staging(before, free.model().device_use());
  for (uint64_t& bytes : tight.device_memory) {
    bytes += 64 << 10;
  }
  for (const uint64_t limit : {uint64_t{64} << 10, uint64_t{64} << 20}) {
    Pair pair(tight);
    uint64_t most = 0;
    for (int i = 0; i < 4; ++i) {
      const TransitionOptions options = {.staging_bytes = limit, .ahead_bytes = i < 2 ? 0 : kAllAhead};
      const auto report = pair.model().set_placement(i % 2 == 0 ? kTensor : kLayer, options);
      ASSERT_TRUE(report.ok()) << report.status().message();
      for (size_t d = 0; d < kDevices; ++d) {
        const FaultyDevice& device = pair.device(d);
        EXPECT_LE(report->peak_bytes[d], device.budget_bytes());
        EXPECT_LE(device.used_bytes() + device.spare_bytes(), device.budget_bytes());
        EXPECT_LE(device.spare_bytes(), limit);
        EXPECT_EQ(pair.model().device_use()[d].spare_bytes, device.spare_bytes());
        most = std::max(most, device.spare_bytes());
      }
      pair.expect_agreement();
    }
    EXPECT_GT(most, 0U);
  }
}

// Two threads decode while a third switches: every token is as if nobody had.
TEST(TransitionLimits, OthersDecodeMeanwhile) {
  const ModelOptions options = options_of("tiny-llama");
  Opened still;
  Opened moving;
  open(options, still);
  open(options, moving);
  const auto second = Context::create(moving.model, options.context);
  ASSERT_TRUE(second.ok());
  const auto run = [](Context& context) { return logits_of_next(context, 40); };
  const std::vector<float> wanted = run(*still.context);
  ASSERT_TRUE(still.context->clear().ok());
  const std::vector<float> wanted_second = run(*still.context);
  std::vector<float> got;
  std::vector<float> got_second;
  std::atomic<bool> done = false;
  std::thread switching([&] {
    for (int i = 0; !done; ++i) {
      const uint64_t ahead_bytes = i % 4 < 2 ? kAllAhead : 0;
      EXPECT_TRUE(moving.model->set_placement(i % 2 == 0 ? kTensor : kLayer, {.ahead_bytes = ahead_bytes}).ok());
    }
  });
  std::thread other([&] { got_second = run(**second); });
  got = run(*moving.context);
  other.join();
  done = true;
  switching.join();
  EXPECT_EQ(n_different(got, wanted), 0U);
  EXPECT_EQ(n_different(got_second, wanted_second), 0U);
}

}  // namespace
}  // namespace tessera
