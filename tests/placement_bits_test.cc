// The project's strongest promise: with equal cuts, logits and embeddings have equal bits in every placement, with any
// number of threads, and for fast kernels on every instruction set.
//
// Every small model runs under layer and tensor placements on two to five devices, with even and uneven shares, a share
// of zero, and 1, 2, 3 and 7 threads, against one device that has the same cuts. Each case prints what it ran on.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <set>

#include "kernels/cpu/cpu_kernels.h"
#include "tests/support/model_names.h"
#include "tests/support/run_model.h"

namespace tessera {
namespace {

struct Placed {
  int n_devices;
  const char* mode;
  std::vector<double> shares;
  int n_threads;
};

// By the number of cuts that devices and shares ask for; the first of each list is what the others are held against.
const std::map<int, std::vector<Placed>>& placements() {
  static const std::map<int, std::vector<Placed>> all = {
      {1, {{1, "none", {}, 1}, {1, "none", {}, 7}, {2, "none", {}, 2}, {2, "layer", {1, 0}, 3}}},
      {2,
       {{1, "none", {}, 1},
        {1, "none", {}, 2},
        {1, "none", {}, 3},
        {1, "none", {}, 7},
        {2, "layer", {}, 2},
        {2, "tensor", {}, 2},
        {2, "tensor", {}, 7},
        {2, "tensor", {0, 1}, 3}}},
      {3, {{1, "none", {}, 1}, {3, "layer", {}, 3}, {3, "tensor", {}, 3}}},
      {4, {{1, "none", {}, 1}, {2, "layer", {3, 1}, 2}, {2, "tensor", {3, 1}, 1}, {2, "tensor", {3, 1}, 3}}},
      {5, {{1, "none", {}, 1}, {5, "layer", {}, 2}, {5, "tensor", {}, 7}, {2, "tensor", {4, 1}, 2}}},
  };
  return all;
}

struct KernelChoice {
  std::string kernels;
  std::string isa;
};

// The fast set on every instruction set of this machine, and the scalar set.
std::vector<std::vector<KernelChoice>> kernel_classes() {
  std::vector<KernelChoice> fast;
  for (const CpuIsa isa : cpu_isas()) {
    fast.push_back({"fast", std::string(cpu_isa_name(isa))});
  }
  return {fast, {{"scalar", "auto"}}};
}

ModelRun placed_run(const std::string& path, const Placed& placed, int n_cuts, const KernelChoice& choice) {
  ModelRun run;
  run.model.path = path;
  run.model.devices = cpu_names(placed.n_devices);
  run.model.split_mode = placed.mode;
  run.model.tensor_split = placed.shares;
  run.model.n_threads = placed.n_threads;
  run.model.n_cuts = n_cuts;
  run.model.kernels = choice.kernels;
  run.model.cpu_isa = choice.isa;
  return run;
}

// A device with a share has work, one without has nothing.
void check_devices(const Placed& placed, const RunResult& result) {
  for (size_t d = 0; d < placed.shares.size(); ++d) {
    const DeviceUse& use = result.devices[d];
    if (placed.shares[d] == 0) {
      EXPECT_EQ(use.weight_bytes + use.kv_bytes + use.rec_bytes + use.scratch_bytes, 0U) << use.name;
    } else {
      EXPECT_GT(use.n_tiles, 0) << use.name;
    }
  }
}

struct SweepCount {
  int64_t n_runs = 0;
  int64_t n_cut_both = 0;  // of these, with attention and feed-forward in two or more cuts
};

struct SweepCase {
  DType kv;
  int32_t n_seqs;
  int index;  // of the case in its list: shifts which placement meets which instruction set
};

// Cases in which every placement runs; in the others every second one is left out. Sanitizers look for errors of
// memory, and the release build looks at every bit.
constexpr int kWholeCases = kFewModels ? 0 : 2;

// Placements of one kernel class, for one cache type and number of sequences: each placement on one of the instruction
// sets. Over all cases every pair of two settings occurs; tests/placement_sweep.py runs the whole product.
void sweep(const std::string& path, const std::vector<KernelChoice>& choices, const SweepCase& c, SweepCount& count) {
  for (const auto& [n_cuts, list] : placements()) {
    std::vector<float> reference;
    std::vector<float> embeddings;
    for (size_t p = 0; p < list.size(); ++p) {
      if (p > 0 && c.index >= kWholeCases && (p + static_cast<size_t>(c.index)) % 2 == 0) {
        continue;
      }
      const size_t choice = p == 0 ? 0 : (p + static_cast<size_t>(c.index)) % choices.size();
      ModelRun run = placed_run(path, list[p], n_cuts, choices[choice]);
      run.kv = c.kv;
      run.n_seqs = c.n_seqs;
      run.embeddings = c.index % 2 == 0;
      SCOPED_TRACE(describe(run));
      const auto result = run_model(run);
      ASSERT_TRUE(result.ok()) << result.status().message();
      ++count.n_runs;
      if (reference.empty()) {
        reference = result->logits;
        embeddings = result->embeddings;
        EXPECT_EQ(embeddings.empty(), !run.embeddings);
        ASSERT_TRUE(std::ranges::all_of(reference, [](float x) { return std::isfinite(x); }));
      }
      EXPECT_EQ(n_different(reference, result->logits), 0U) << "of " << reference.size() << " logits";
      EXPECT_EQ(n_different(embeddings, result->embeddings), 0U) << "of " << embeddings.size() << " numbers";
      EXPECT_EQ(result->summary.n_cuts, n_cuts);
      check_devices(list[p], *result);
      count.n_cut_both += result->summary.n_layers_attn_cut > 0 && result->summary.n_layers_ffn_cut > 0 ? 1 : 0;
      std::cout << "  " << describe(run) << ": " << describe(*result) << "\n";
    }
  }
}

bool has_blocks_of_heads(const std::string& path, DType kv) {
  ModelRun run;
  run.model.path = path;
  run.kv = kv;
  run.n_prompt = 1;
  run.n_steps = 0;
  const auto result = run_model(run);
  if (!result.ok()) {
    EXPECT_EQ(result.status().code(), ErrorCode::kUnsupported) << result.status().message();
    EXPECT_NE(result.status().message().find("--cache-type-k"), std::string::npos) << result.status().message();
  }
  return result.ok();
}

class PlacementBits : public testing::TestWithParam<std::string> {};

TEST_P(PlacementBits, AreEqual) {
  const TempFolder folder;
  const std::string path = model_path(GetParam(), folder);
  SweepCount count;
  std::string caches;
  int index = 0;
  std::vector<DType> cache_types = {DType::kF16, DType::kQ8_0};
  if (!kFewModels) {
    cache_types.push_back(DType::kF32);  // the scalar set below has it in any build
  }
  for (const DType kv : cache_types) {
    if (kv == DType::kQ8_0 && !has_blocks_of_heads(path, kv)) {
      caches += " (no q8_0: heads are no multiple of 32)";
      continue;
    }
    caches += " " + std::string(dtype_name(kv));
    for (const int32_t n_seqs : {4, 1}) {
      sweep(path, kernel_classes()[0], {kv, n_seqs, index++}, count);
    }
  }
  sweep(path, kernel_classes()[1], {DType::kF32, 4, 0}, count);
  std::cout << GetParam() << ": " << count.n_runs << " runs, " << count.n_cut_both
            << " with attention and FFN in two or more cuts; caches" << caches << "\n";
}

std::vector<std::string> model_names() {
  if (kFewModels) {
    return {"tiny-llama", "tiny-gemma3", "tiny-quantmix-a", "llama-q4_k_m", "qwen2-q4_1", "gemma2-q5_0", "qwen35-q8_0"};
  }
  std::vector<std::string> names;
  for (const char* stem :
       {"llama", "llama-tied", "llama-linear", "llama-yarn", "qwen2", "qwen3", "qwen35", "qwen35moe", "qwen3next",
        "gemma3", "quantmix-a", "quantmix-b", "qwen3moe", "llama-moe", "gpt-oss-mxfp4"}) {
    names.push_back(std::string("tiny-") + stem);
  }
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_TEST_DATA "/models")) {
    if (entry.path().extension() == ".gguf") {
      names.push_back(entry.path().stem());
    }
  }
  for (const std::string& arch : arch_model_names()) {
    if (!arch.ends_with("-moe")) {  // for these the tiny ones stand, and SharedExpertsAndEmptyCuts
      names.push_back(arch);
    }
  }
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, PlacementBits, testing::ValuesIn(model_names()), test_name);

// Without models whose layers are really divided the promise would be empty.
TEST(PlacementModels, SixHaveAttentionAndFeedForwardInTwoCuts) {
  std::set<std::string> cut;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_TEST_DATA "/models")) {
    if (entry.path().extension() == ".gguf") {
      const auto result = run_model(placed_run(entry.path(), {2, "tensor", {}, 2}, 2, {"fast", "auto"}));
      ASSERT_TRUE(result.ok()) << result.status().message();
      if (result->summary.n_layers_attn_cut == result->summary.n_layer &&
          result->summary.n_layers_ffn_cut == result->summary.n_layer && result->stats.n_reduces > 0) {
        cut.insert(entry.path().stem());
      }
    }
  }
  EXPECT_GE(cut.size(), 6U);
}

// Different cuts are different sums: if their bits were equal too, the comparison would compare nothing.
TEST(PlacementModels, OtherCutsHaveOtherBits) {
  const std::string path = TESSERA_TEST_DATA "/models/llama-q4_k.gguf";
  const auto one = run_model(placed_run(path, {1, "none", {}, 2}, 1, {"fast", "auto"}));
  const auto two = run_model(placed_run(path, {1, "none", {}, 2}, 2, {"fast", "auto"}));
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_GT(n_different(one->logits, two->logits), one->logits.size() / 2);
}

// `none` is the placement of all shares on the first device.
TEST(PlacementModels, NoneIsTheSameAsAllOnTheFirstDevice) {
  const std::string path = TESSERA_TEST_DATA "/models/llama-q4_k.gguf";
  const auto none = run_model(placed_run(path, {3, "none", {}, 2}, 2, {"fast", "auto"}));
  ASSERT_TRUE(none.ok());
  for (const char* mode : {"layer", "tensor"}) {
    const auto first = run_model(placed_run(path, {3, mode, {100, 0, 0}, 2}, 2, {"fast", "auto"}));
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_EQ(n_different(none->logits, first->logits), 0U);
    for (size_t d = 0; d < 3; ++d) {
      EXPECT_EQ(none->devices[d].weight_bytes, first->devices[d].weight_bytes);
      EXPECT_EQ(none->devices[d].kv_bytes, first->devices[d].kv_bytes);
      EXPECT_EQ(none->devices[d].scratch_bytes, first->devices[d].scratch_bytes);
    }
    EXPECT_EQ(first->devices[1].weight_bytes + first->devices[2].weight_bytes, 0U);
  }
}

// Every cache type, mixed pairs too, under tensor and layer placements, with an odd number of sequences.
TEST(PlacementModels, EveryCacheTypeInEveryMode) {
  const std::string path = TESSERA_TEST_DATA "/models/gemma3-q4_k_m.gguf";
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    std::vector<float> reference;
    for (const Placed& placed : std::vector<Placed>{{1, "none", {}, 1}, {2, "layer", {}, 2}, {2, "tensor", {}, 3}}) {
      ModelRun run = placed_run(path, placed, 2, {"fast", "auto"});
      run.kv = kv;
      run.n_seqs = 3;
      SCOPED_TRACE(describe(run));
      const auto result = run_model(run);
      ASSERT_TRUE(result.ok()) << result.status().message();
      if (reference.empty()) {
        reference = result->logits;
      }
      EXPECT_EQ(n_different(reference, result->logits), 0U);
    }
  }
}

// Experts that live elsewhere than the split mode would put them, for all layers or one, compute the same bits there.
TEST(PlacementModels, ExpertsMayLiveElsewhere) {
  for (const char* name : {"tiny-qwen3moe", "tiny-llama-moe", "tiny-gpt-oss-mxfp4"}) {
    const std::string path = std::string(TESSERA_TEST_DATA "/tiny/") + name + ".gguf";
    for (const auto& [kernels, n_seqs] : {std::pair("fast", 4), std::pair("fast", 1), std::pair("scalar", 4)}) {
      const auto run_with = [&](const Placed& placed, int64_t n_cpu_moe, const std::vector<std::string>& overrides) {
        ModelRun run = placed_run(path, placed, 2, {kernels, "auto"});
        run.n_seqs = n_seqs;
        run.model.n_cpu_moe = n_cpu_moe;
        run.model.override_tensor = overrides;
        return run_model(run);
      };
      const auto reference = run_with({1, "none", {}, 2}, 0, {});
      ASSERT_TRUE(reference.ok()) << reference.status().message();
      const std::vector<std::tuple<Placed, int64_t, std::vector<std::string>>> cases = {
          {{2, "layer", {1, 0}, 3}, 99, {}},
          {{2, "layer", {1, 0}, 2}, 1, {}},
          {{3, "tensor", {1, 1, 0}, 3}, 99, {}},
          {{3, "tensor", {1, 1, 0}, 2}, 0, {"blk.0.ffn_.*_exps=cpu:2", "ffn_.*_exps=cpu:0"}},
          {{2, "layer", {}, 1}, 0, {"attn_=cpu:1"}}};
      for (const auto& [placed, n_cpu_moe, overrides] : cases) {
        const auto moved = run_with(placed, n_cpu_moe, overrides);
        ASSERT_TRUE(moved.ok()) << moved.status().message();
        EXPECT_EQ(n_different(reference->logits, moved->logits), 0U) << name << " " << kernels << " " << n_cpu_moe;
        EXPECT_GT(moved->devices.back().n_tiles, 0);
      }
    }
  }
}

// Experts that are streamed into slots, whichever number of slots, compute the same bits as resident ones; what a batch
// does not draw is not read.
TEST(PlacementModels, ExpertsMayBeStreamed) {
  for (const char* name : {"tiny-qwen3moe", "tiny-gpt-oss-mxfp4"}) {
    const std::string path = std::string(TESSERA_TEST_DATA "/tiny/") + name + ".gguf";
    for (const char* kernels : {"fast", "scalar"}) {
      const auto run_with = [&](const Placed& placed, int64_t n_cpu_moe, int64_t n_slots) {
        ModelRun run = placed_run(path, placed, 2, {kernels, "auto"});
        run.n_seqs = 4;
        run.model.n_cpu_moe = n_cpu_moe;
        run.model.n_expert_slots = n_slots;
        return run_model(run);
      };
      const auto reference = run_with({1, "none", {}, 2}, 0, 0);
      ASSERT_TRUE(reference.ok()) << reference.status().message();
      const auto elsewhere = run_with({2, "layer", {1, 0}, 2}, 99, 0);
      ASSERT_TRUE(elsewhere.ok()) << elsewhere.status().message();
      const std::vector<std::tuple<Placed, int64_t, int64_t>> cases = {
          {{2, "layer", {1, 0}, 3}, 99, 1},     {{2, "layer", {1, 0}, 1}, 99, 3},
          {{2, "layer", {1, 0}, 2}, 1, 2},      {{3, "tensor", {1, 1, 0}, 3}, 99, 100},
          {{3, "tensor", {1, 1, 0}, 2}, 99, 2}, {{2, "tensor", {}, 2}, 99, 2},
          {{2, "layer", {}, 2}, 99, 2}};
      for (const auto& [placed, n_cpu_moe, n_slots] : cases) {
        const auto streamed = run_with(placed, n_cpu_moe, n_slots);
        ASSERT_TRUE(streamed.ok()) << streamed.status().message();
        EXPECT_EQ(n_different(reference->logits, streamed->logits), 0U)
            << name << " " << kernels << ", " << n_slots << " slots, " << placed.mode << " on " << placed.n_devices;
        EXPECT_GT(streamed->devices.back().n_tiles, 0);
      }
      // With slots the other device computes nothing: it has no scratch.
      const auto streamed = run_with({2, "layer", {1, 0}, 2}, 99, 2);
      ASSERT_TRUE(streamed.ok());
      EXPECT_GT(elsewhere->devices[1].scratch_bytes, 0U);
      EXPECT_EQ(streamed->devices[1].scratch_bytes, 0U);
      EXPECT_EQ(streamed->devices[1].weight_bytes, elsewhere->devices[1].weight_bytes);
    }
  }
}

// A shared expert beside the others, and fewer experts than cuts.
TEST(PlacementModels, SharedExpertsAndEmptyCuts) {
  const TempFolder folder;
  const std::string path = model_path("qwen2moe-moe", folder);
  for (const auto& [n_cuts, list] :
       std::map<int, std::vector<Placed>>{{2, {{1, "none", {}, 1}, {2, "tensor", {}, 2}}},
                                          {3, {{1, "none", {}, 2}, {3, "layer", {}, 3}, {3, "tensor", {}, 2}}}}) {
    std::vector<float> reference;
    for (const Placed& placed : list) {
      const auto result = run_model(placed_run(path, placed, n_cuts, {"fast", "auto"}));
      ASSERT_TRUE(result.ok()) << result.status().message();
      reference = reference.empty() ? result->logits : reference;
      EXPECT_EQ(n_different(reference, result->logits), 0U) << placed.mode << " on " << placed.n_devices;
    }
  }
}

// Bytes per device follow the shares, within what one layer's tiles and the grid are worth.
TEST(PlacementModels, BytesFollowTheShares) {
  const std::string path = TESSERA_TEST_DATA "/models/qwen3-q8_0.gguf";
  const auto result = run_model(placed_run(path, {2, "tensor", {3, 1}, 2}, 4, {"fast", "auto"}));
  ASSERT_TRUE(result.ok()) << result.status().message();
  const auto first = static_cast<double>(result->devices[0].weight_bytes);
  const auto second = static_cast<double>(result->devices[1].weight_bytes);
  EXPECT_GT(first / second, 1.5);
  EXPECT_LT(first / second, 3.5);
  EXPECT_EQ(result->devices[0].kv_bytes, 3 * result->devices[1].kv_bytes);
}

}  // namespace
}  // namespace tessera
