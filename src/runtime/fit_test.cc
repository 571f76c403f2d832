// What --fit answers loads, and where it says no, nothing in its search space would.

#include "runtime/fit.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iostream>
#include <random>

#include "runtime/context.h"
#include "runtime/memory_plan.h"
#include "runtime/outline.h"
#include "runtime/placement_switch.h"

namespace tessera {
namespace {

using testing::HasSubstr;

ModelOptions options_of(const std::string& model, int n_devices) {
  ModelOptions options;
  options.path = TESSERA_TEST_DATA "/" + model;
  options.devices.clear();
  for (int d = 0; d < n_devices; ++d) {
    options.devices.push_back("cpu:" + std::to_string(d));
  }
  options.n_threads = 2;
  options.context.n_batch = 32;
  options.context.n_ubatch = 32;
  return options;
}

/// Whether weights and context find room, under every mode with its shares, and switches between them.
void expect_loads(const Fit& fit) {
  for (const FitMode& mode : fit.modes) {
    ModelOptions options = fit.model;
    options.split_mode = mode.split_mode;
    options.tensor_split = mode.tensor_split;
    const auto model = Model::load(options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto context = Context::create(*model, options.context);
    ASSERT_TRUE(context.ok()) << context.status().message();
    const size_t index = static_cast<size_t>(&mode - fit.modes.data());
    const std::vector<DeviceUse> uses = (*model)->device_use();
    for (size_t d = 0; d < uses.size(); ++d) {
      EXPECT_EQ(uses[d].used_bytes(), fit.devices[d].needs[index].total());
    }
    for (const FitMode& other : fit.modes) {
      const auto switched = (*model)->set_placement({other.split_mode, other.tensor_split}, {});
      EXPECT_TRUE(switched.ok()) << switched.status().message();
    }
  }
}

/// All ways to give n items to devices in runs.
std::vector<std::vector<double>> divisions(int n_devices, int n_items) {
  if (n_devices == 1) {
    return {{static_cast<double>(n_items)}};
  }
  std::vector<std::vector<double>> all;
  for (int n = 0; n <= n_items; ++n) {
    for (std::vector<double>& rest : divisions(n_devices - 1, n_items - n)) {
      rest.insert(rest.begin(), n);
      all.push_back(std::move(rest));
    }
  }
  return all;
}

/// Every host part of the search space, written down anew.
std::vector<ModelOptions> with_host_parts(const ModelState& model, const ModelOptions& options) {
  const auto& layers = model.definition.table.layers;
  const std::string host = options.devices.back();
  std::vector<ModelOptions> all = {options};
  if (options.devices.size() < 2) {
    return all;
  }
  const bool has_experts = std::ranges::any_of(layers, [](const LayerAxes& l) { return l.n_experts > 0; });
  const auto name = [](size_t layer) { return "^blk[.]" + std::to_string(layer) + "[.]"; };
  for (size_t n = 1; n <= layers.size(); ++n) {
    ModelOptions part = options;
    part.n_cpu_moe = has_experts ? static_cast<int64_t>(n) : 0;
    for (size_t l = 0; l < n && !has_experts; ++l) {
      part.override_tensor.push_back(name(l) + "ffn_=" + host);
    }
    all.push_back(part);
  }
  for (size_t n = 1; n <= layers.size(); ++n) {
    ModelOptions part = options;
    part.n_cpu_moe = has_experts ? static_cast<int64_t>(layers.size()) : 0;
    for (size_t l = 0; l < layers.size(); ++l) {
      if (l < n || !has_experts) {
        part.override_tensor.push_back(name(l) + (l < n ? "=" : "ffn_=") + host);
      }
    }
    all.push_back(part);
  }
  return all;
}

/// Whether any point of the search space fits, with the shortest context.
bool anything_fits(const FitRequest& request) {
  auto opened = open_outline(request.model);
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  ModelState& m = **opened;
  const int n_devices = m.n_devices();
  ContextOptions context = request.model.context;
  if (request.finds_context) {
    context.n_ctx = std::min(request.n_ctx_min, m.definition.info.n_ctx_train);
  }
  EXPECT_TRUE(cut_model(m, 1).ok());  // sizes of recurrent state are sums over cuts
  const ContextSizes sizes = context_sizes(m, context).value();
  const bool has_tensor =
      std::ranges::any_of(request.modes, [](const FitMode& mode) { return mode.split_mode == "tensor"; });
  for (int n_cuts = n_devices; n_cuts <= (has_tensor ? kMaxCuts : n_devices); ++n_cuts) {
    EXPECT_TRUE(cut_model(m, n_cuts).ok());
    for (const ModelOptions& part : with_host_parts(m, request.model)) {
      if (!fix_homes(m, part).ok()) {
        continue;  // a layer without a feed-forward part
      }
      std::vector<std::vector<std::vector<DeviceNeed>>> fitting;  // by mode, division and device
      for (const FitMode& mode : request.modes) {
        const SplitMode split = parse_split_mode(mode.split_mode).value();
        std::vector<std::vector<double>> shares = {{}};
        if (split != SplitMode::kNone) {
          shares =
              divisions(n_devices, split == SplitMode::kLayer ? static_cast<int>(m.tiles.attn_cuts.size()) : n_cuts);
          shares.emplace_back();
        }
        fitting.emplace_back();
        for (const std::vector<double>& parts : shares) {
          place_model(m, make_placement(m.tiles, split, {parts}, m.placement_target(), 1));
          if (check_fit(m, needs_without_scratch(m, context, sizes)).ok()) {
            const std::vector<DeviceNeed> needs = memory_needs(m, context, sizes).value();
            if (check_fit(m, needs).ok()) {
              fitting.back().push_back(needs);
            }
          }
        }
      }
      const auto switch_fits = [&](const std::vector<DeviceNeed>& a, const std::vector<DeviceNeed>& b) {
        std::vector<DeviceNeed> larger;
        for (size_t d = 0; d < a.size(); ++d) {
          larger.push_back(larger_of(a[d], b[d]));
          larger[d].scratch_bytes += m.devices[d].info().unit_bytes;
        }
        return check_fit(m, larger).ok();
      };
      const bool all_modes = std::ranges::any_of(fitting.front(), [&](const std::vector<DeviceNeed>& first) {
        return fitting.size() == 1 || std::ranges::any_of(fitting[1], [&](const std::vector<DeviceNeed>& second) {
                 return switch_fits(first, second);
               });
      });
      if (all_modes) {
        return true;
      }
    }
  }
  return false;
}

/// Bytes of everything on one device with the shortest context.
uint64_t total_bytes(const std::string& model) {
  FitRequest request;
  request.model = options_of(model, 1);
  request.model.device_memory = {uint64_t{1} << 40};
  request.modes = {{"none", {}}};
  request.model.context.n_ctx = 64;
  const auto fit = fit_model(request);
  EXPECT_TRUE(fit.ok()) << fit.status().message();
  return fit->devices[0].needs[0].total();
}

double smallest_lack_mib(const Status& status) {
  const std::string& text = status.message();
  const size_t at = text.find("smallest lack is ");
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? 0 : std::stod(text.substr(at + 17));
}

FitRequest random_request(std::mt19937& random, const std::string& model, uint64_t total) {
  FitRequest request;
  const int n_devices = 1 + static_cast<int>(random() % 3);
  request.model = options_of(model, n_devices);
  const std::vector<std::vector<FitMode>> modes = {
      {{"layer", {}}}, {{"tensor", {}}}, {{"none", {}}}, {{"layer", {}}, {"tensor", {}}}};
  request.modes = modes[random() % modes.size()];
  const double scale = 0.8 + static_cast<double>(random() % 100) / 40;
  for (int d = 0; d < n_devices; ++d) {
    const double part = scale * static_cast<double>(10 + random() % 90) / 100 / std::max(1, n_devices - 1);
    request.model.device_memory.push_back(static_cast<uint64_t>(part * static_cast<double>(total)));
  }
  request.finds_context = random() % 4 != 0;
  request.model.context.n_ctx = request.finds_context ? 0 : 64;
  request.n_ctx_min = 64;
  return request;
}

class FitTest : public testing::TestWithParam<const char*> {};

TEST_P(FitTest, WhatItAnswersLoadsAndWhereItSaysNoNothingFits) {
  const std::string model = GetParam();
  const uint64_t total = total_bytes(model);
  std::mt19937 random(11);
  int n_fit = 0;
  int n_moved = 0;
  int n_none = 0;
  for (int i = 0; i < 24; ++i) {
    const FitRequest request = random_request(random, model, total);
    const auto fit = fit_model(request);
    if (fit.ok()) {
      ++n_fit;
      n_moved += fit->model.n_cpu_moe > 0 || !fit->model.override_tensor.empty() ? 1 : 0;
      expect_loads(*fit);
      continue;
    }
    ++n_none;
    ASSERT_EQ(fit.status().code(), ErrorCode::kDoesNotFit) << fit.status().message();
    EXPECT_FALSE(anything_fits(request)) << "instance " << i << ": " << fit.status().message();
    // The lack is what would help, to the tenth of a MiB that is printed.
    const double lack = smallest_lack_mib(fit.status());
    for (const auto& [change, helps] : {std::pair(lack + 0.06, true), {lack - 0.12, false}}) {
      FitRequest more = request;
      for (uint64_t& budget : more.model.device_memory) {
        budget += static_cast<uint64_t>(std::max(change, 0.0) * (1 << 20));
      }
      EXPECT_EQ(fit_model(more).ok(), helps) << "instance " << i << ", " << change << ": " << fit.status().message();
    }
  }
  std::cout << model << ": " << n_fit << " fit, " << n_moved << " of them with parts on the host; " << n_none
            << " do not\n";
  EXPECT_GE(n_fit, 5);
  EXPECT_GE(n_none, 2);
}

INSTANTIATE_TEST_SUITE_P(Models, FitTest,
                         testing::Values("tiny/tiny-llama.gguf", "tiny/tiny-llama-moe.gguf", "tiny/tiny-gemma3.gguf",
                                         "tiny/tiny-qwen35moe.gguf", "models/llama-q4_k.gguf"));

FitRequest request_of(const std::string& model, int n_devices, std::vector<FitMode> modes) {
  FitRequest request;
  request.model = options_of(model, n_devices);
  request.model.device_memory = {uint64_t{1} << 32};
  request.model.context.n_ctx = 64;
  request.modes = std::move(modes);
  return request;
}

TEST(Fit, WhatFitsAnywayStaysAsItWasGiven) {
  FitRequest request = request_of("tiny/tiny-llama.gguf", 2, {{"tensor", {}}});
  const auto even = fit_model(request);
  ASSERT_TRUE(even.ok()) << even.status().message();
  EXPECT_EQ(even->flags, "");
  EXPECT_TRUE(even->model.tensor_split.empty());
  EXPECT_EQ(even->model.n_cuts, 0);
  EXPECT_EQ(even->model.context.n_ctx, 64);

  request.modes = {{"tensor", {3, 1}}};
  const auto given = fit_model(request);
  ASSERT_TRUE(given.ok()) << given.status().message();
  EXPECT_EQ(given->model.tensor_split, (std::vector<double>{3, 1}));
  EXPECT_EQ(given->flags, "");
}

TEST(Fit, TheContextIsAsLongAsTheBudgetAllows) {
  FitRequest request = request_of("tiny/tiny-llama.gguf", 1, {{"none", {}}});
  request.model.context.n_seq_max = 64;  // so that lengths differ by more than the grid
  const auto bytes_of = [&](int64_t n_ctx) {
    request.model.context.n_ctx = n_ctx;
    return fit_model(request)->devices[0].needs[0].total();
  };
  const uint64_t whole = bytes_of(512);
  const uint64_t half = bytes_of(256);
  ASSERT_LT(half, whole);
  request.finds_context = true;
  request.model.context.n_ctx = 0;
  request.n_ctx_min = 64;
  for (const auto& [budget, n_ctx] : {std::pair(whole, 512), {whole - 1, 256}, {half, 256}, {half - 1, 64}}) {
    request.model.device_memory = {budget};
    const auto fit = fit_model(request);
    ASSERT_TRUE(fit.ok()) << fit.status().message();
    EXPECT_EQ(fit->model.context.n_ctx, n_ctx);
    EXPECT_EQ(fit->flags, n_ctx == 512 ? "" : "--ctx-size " + std::to_string(n_ctx));
    expect_loads(*fit);
  }
  request.n_ctx_min = 256;
  EXPECT_EQ(fit_model(request).status().code(), ErrorCode::kDoesNotFit);
}

TEST(Fit, MarginsAreKeptFree) {
  FitRequest request = request_of("tiny/tiny-llama.gguf", 2, {{"layer", {}}});
  const auto counted = fit_model(request);
  ASSERT_TRUE(counted.ok());
  for (const FitDevice& device : counted->devices) {
    request.model.device_memory.resize(2);
    request.model.device_memory[static_cast<size_t>(&device - counted->devices.data())] =
        device.needs[0].total() + (1 << 20);
  }
  request.modes = {{"layer", {1, 1}}};
  request.margin_bytes = {1 << 20};
  EXPECT_TRUE(fit_model(request).ok());
  request.margin_bytes = {1 << 20, (1 << 20) + 1};
  const auto tight = fit_model(request);
  EXPECT_EQ(tight.status().code(), ErrorCode::kDoesNotFit);
  EXPECT_THAT(tight.status().message(), HasSubstr("cpu:1 needs"));
  request.margin_bytes = {1, 2, 3};
  EXPECT_THAT(fit_model(request).status().message(), HasSubstr("--fit-target has 3 values for 2 devices"));
}

// A device that is no CPU takes what it can; the CPU beside it gets what overflows, experts before whole layers.
TEST(Fit, BesideOtherDevicesTheCpuTakesOnlyWhatOverflows) {
  FitRequest request = request_of("tiny/tiny-llama-moe.gguf", 1, {{"layer", {}}});
  request.model.devices = {"null:0", "cpu:0"};
  const auto roomy = fit_model(request);
  ASSERT_TRUE(roomy.ok()) << roomy.status().message();
  EXPECT_EQ(roomy->devices[1].needs[0].total(), 0U);
  EXPECT_EQ(roomy->model.n_cpu_moe, 0);

  const uint64_t whole = roomy->devices[0].needs[0].total();
  request.model.device_memory = {whole - 1, uint64_t{1} << 32};
  const auto less = fit_model(request);
  ASSERT_TRUE(less.ok()) << less.status().message();
  EXPECT_EQ(less->model.n_cpu_moe, 1);
  EXPECT_LT(less->devices[0].needs[0].total(), whole);
  EXPECT_GT(less->devices[1].needs[0].total(), 0U);

  request.model.device_memory = {whole / 3, uint64_t{1} << 32};
  const auto little = fit_model(request);
  ASSERT_TRUE(little.ok()) << little.status().message();
  EXPECT_GE(little->model.n_cpu_moe, less->model.n_cpu_moe);
  EXPECT_LE(little->devices[0].needs[0].total(), whole / 3);
}

TEST(Fit, WhatTheUserSentElsewhereStaysThere) {
  FitRequest request = request_of("tiny/tiny-llama-moe.gguf", 2, {{"tensor", {}}});
  request.model.n_cpu_moe = 1;
  request.model.device_memory = {1 << 16, uint64_t{1} << 32};
  const auto fit = fit_model(request);
  if (fit.ok()) {
    EXPECT_EQ(fit->model.n_cpu_moe, 1);
    EXPECT_TRUE(fit->model.override_tensor.empty());
  }
  request.model.device_memory = {1 << 16, 1 << 16};
  EXPECT_EQ(fit_model(request).status().code(), ErrorCode::kDoesNotFit);
}

TEST(Fit, BothModesOfASwitchGetTheSameContextAndCuts) {
  FitRequest request = request_of("models/llama-q4_k.gguf", 2, {{"layer", {}}, {"tensor", {}}});
  const auto even = fit_model(request);
  ASSERT_TRUE(even.ok());
  uint64_t total = 0;
  for (const FitDevice& device : even->devices) {
    total += std::max(device.needs[0].total(), device.needs[1].total());
  }
  request.model.device_memory = {total * 3 / 4, total / 2};
  const auto fit = fit_model(request);
  ASSERT_TRUE(fit.ok()) << fit.status().message();
  EXPECT_NE(fit->flags, "");
  expect_loads(*fit);
}

TEST(Fit, ASwitchBetweenTheModesMustFit) {
  FitRequest request = request_of("tiny/tiny-llama.gguf", 2, {{"layer", {1, 1}}, {"tensor", {1, 1}}});
  const auto free = fit_model(request);
  ASSERT_TRUE(free.ok()) << free.status().message();
  request.model.device_memory.clear();
  for (const FitDevice& device : free->devices) {
    const uint64_t unit = uint64_t{64} << 10;
    request.model.device_memory.push_back(larger_of(device.needs[0], device.needs[1]).total() + unit);
  }
  const auto fit = fit_model(request);
  ASSERT_TRUE(fit.ok()) << fit.status().message();
  expect_loads(*fit);
  for (uint64_t& budget : request.model.device_memory) {
    --budget;  // still enough for each of them
  }
  EXPECT_THAT(fit_model(request).status().message(), HasSubstr("in a switch between layer and tensor"));
}

TEST(Fit, WrongRequestsAreErrors) {
  FitRequest request = request_of("tiny/tiny-llama.gguf", 2, {{"layers", {}}});
  EXPECT_THAT(fit_model(request).status().message(), HasSubstr("known are none, layer, tensor"));
  request.modes = {{"layer", {1, 2, 3}}};
  EXPECT_THAT(fit_model(request).status().message(), HasSubstr("--tensor-split has 3 shares for 2 devices"));
  request.modes = {{"layer", {}}};
  request.model.n_cuts = 9;
  EXPECT_THAT(fit_model(request).status().message(), HasSubstr("--cuts"));
  request.model.n_cuts = 0;
  request.model.context.n_ctx = -1;
  EXPECT_THAT(fit_model(request).status().message(), HasSubstr("--ctx-size"));
  request.model.context.n_ctx = 64;
  request.model.path += ".nothing";
  EXPECT_EQ(fit_model(request).status().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tessera
