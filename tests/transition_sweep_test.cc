// A context that was switched to another placement is one that was there all along: same state, same logits of the last
// decode, same bits of all that comes after, same memory.
//
// Every small model goes from each placement of a list to another and back and there again, with four sequences that
// share pages, a second context on the same model, and snapshots of recurrent state. It is held against a model that
// was loaded in the second placement and handed the state. TESSERA_SWEEP=full adds cache types, kernel sets and
// placements.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <iostream>
#include <random>

#include "runtime/model_state.h"
#include "tests/support/decorated_devices.h"
#include "tests/support/model_names.h"
#include "tests/support/run_model.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int64_t kCtx = 224;
constexpr int32_t kSeqs = 4;
constexpr int kGreedySteps = 32;
constexpr uint64_t kAllAhead = uint64_t{1} << 30;  // more than any of these models

struct Switch {
  int n_devices;
  int n_cuts;
  PlacementRequest from;
  PlacementRequest to;
  uint64_t unit_bytes = 64 << 10;  // grid: with a small one, tiles and pages of tiny models have several units
};

struct Setting {
  DType kv = DType::kF16;
  std::string kernels = "auto";
};

bool full_sweep() {
  const char* wanted = std::getenv("TESSERA_SWEEP");
  return wanted != nullptr && std::string(wanted) == "full";
}

std::vector<Switch> switches() {
  std::vector<Switch> list = {
      {2, 2, {"layer", {}}, {"tensor", {}}},
      {2, 4, {"none", {3, 1}}, {"tensor", {1, 3}}, 1024},
  };
  if (full_sweep()) {
    list.insert(list.end(), {{2, 2, {"tensor", {}}, {"layer", {}}},
                             {2, 2, {"tensor", {}}, {"none", {}}},
                             {2, 4, {"layer", {3, 1}}, {"tensor", {1, 3}}},
                             {2, 4, {"tensor", {3, 1}}, {"tensor", {0, 1}}},
                             {3, 3, {"layer", {}}, {"tensor", {}}},
                             {3, 4, {"tensor", {2, 1, 1}}, {"layer", {0, 1, 1}}},
                             {3, 2, {"layer", {1, 0, 0}}, {"tensor", {0, 1, 1}}},
                             {5, 5, {"tensor", {}}, {"layer", {}}}});
  }
  return list;
}

std::vector<Setting> settings() {
  std::vector<Setting> list = {{}};
  if (full_sweep()) {
    list.insert(list.end(), {{DType::kQ8_0, "auto"}, {DType::kF32, "scalar"}});
  }
  return list;
}

std::string name_of(const PlacementRequest& request) {
  return fmt::format("{}({})", request.split_mode, fmt::join(request.tensor_split, ","));
}

struct Opened {
  std::shared_ptr<Model> model;
  std::unique_ptr<Context> context;
  std::unique_ptr<Context> other;  // a second context, smaller
};

Result<Opened> open(const std::string& path, const Switch& how, const PlacementRequest& where, const Setting& setting) {
  ModelOptions options;
  options.path = path;
  options.devices = cpu_names(how.n_devices);
  options.split_mode = where.split_mode;
  options.tensor_split = where.tensor_split;
  options.n_cuts = how.n_cuts;
  options.n_threads = 2;
  options.kernels = setting.kernels;
  options.context = {
      .n_ctx = kCtx, .n_batch = 128, .n_ubatch = 24, .n_seq_max = kSeqs, .k_type = setting.kv, .v_type = setting.kv};
  options.open_devices =
      decorated([&](size_t, std::unique_ptr<Device> device) { return with_unit(std::move(device), how.unit_bytes); });
  Opened opened;
  ASSIGN_OR_RETURN(opened.model, Model::load(options));
  ASSIGN_OR_RETURN(opened.context, Context::create(opened.model, options.context));
  ContextOptions small = options.context;
  small.n_ctx = 40;
  small.n_seq_max = 1;
  ASSIGN_OR_RETURN(opened.other, Context::create(opened.model, small));
  return opened;
}

std::vector<BatchToken> tokens(int32_t seq, int64_t n, int32_t from) {
  std::vector<BatchToken> batch;
  for (int64_t i = 0; i < n; ++i) {
    batch.push_back({static_cast<int32_t>((from + i * 7) % 97), seq, i + 1 == n});
  }
  return batch;
}

// Four sequences: a long one, a fork of its head that went on, one that was cut, and a short one. Two rows of logits.
Status fill(const Opened& opened) {
  Context& context = *opened.context;
  TRY(context.decode(tokens(0, 40, 1)));
  TRY(context.snapshot(0));
  TRY(context.fork(0, 2, 40));
  TRY(context.decode(tokens(0, 60, 41)));
  TRY(context.decode(tokens(2, 9, 11)));
  TRY(context.decode(tokens(1, 33, 3)));
  TRY(context.rewind(1, 20).status());
  TRY(context.decode(tokens(1, 2, 8)));
  std::vector<BatchToken> last = tokens(3, 5, 2);
  last.push_back({4, 0, true});
  TRY(context.decode(last));
  return opened.other->decode(tokens(0, 35, 6));
}

std::vector<float> all_logits(const Context& context) {
  std::vector<float> logits;
  for (int64_t i = 0; i < context.n_outputs(); ++i) {
    logits.insert(logits.end(), context.logits(i).begin(), context.logits(i).end());
  }
  return logits;
}

/// All that a switch must leave alone.
struct Contents {
  Bytes state;
  std::vector<float> logits;
  bool operator==(const Contents&) const = default;
};

Contents contents_of(Context& context) {
  Contents contents;
  const auto n_bytes = context.state_bytes(kAllSequences);
  EXPECT_TRUE(n_bytes.ok()) << n_bytes.status().message();
  contents.state.resize(n_bytes.ok() ? *n_bytes : 0);
  const Status status = context.get_state(kAllSequences, contents.state);
  EXPECT_TRUE(status.ok()) << status.message();
  contents.logits = all_logits(context);
  return contents;
}

// What comes next: 32 tokens of every sequence, each the likeliest after the one before; every logit is kept.
std::vector<float> go_on(Context& context, int32_t n_seqs) {
  std::vector<float> logits;
  std::vector<int32_t> next(static_cast<size_t>(n_seqs), 5);
  for (int step = 0; step < kGreedySteps; ++step) {
    std::vector<BatchToken> batch;
    for (int32_t s = 0; s < n_seqs; ++s) {
      if (context.length(s) < context.options().n_ctx) {
        batch.push_back({next[static_cast<size_t>(s)], s, true});
      }
    }
    if (batch.empty()) {
      break;
    }
    const Status status = context.decode(batch);
    EXPECT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; status.ok() && i < batch.size(); ++i) {
      const auto row = context.logits(static_cast<int64_t>(i));
      next[static_cast<size_t>(batch[i].seq)] = static_cast<int32_t>(std::ranges::max_element(row) - row.begin());
      logits.insert(logits.end(), row.begin(), row.end());
    }
  }
  return logits;
}

void expect_same_memory(const Model& a, const Model& b) {
  const std::vector<DeviceUse> uses = a.device_use();
  const std::vector<DeviceUse> wanted = b.device_use();
  for (size_t d = 0; d < uses.size(); ++d) {
    EXPECT_EQ(uses[d].n_tiles, wanted[d].n_tiles) << uses[d].name;
    EXPECT_EQ(uses[d].kv_bytes, wanted[d].kv_bytes) << uses[d].name;
    EXPECT_EQ(uses[d].rec_bytes, wanted[d].rec_bytes) << uses[d].name;
    EXPECT_EQ(uses[d].scratch_bytes, wanted[d].scratch_bytes) << uses[d].name;
    // Tiles of many sizes may leave gaps (keep_offsets).
    EXPECT_GE(uses[d].weight_bytes, wanted[d].weight_bytes) << uses[d].name;
    EXPECT_LE(uses[d].weight_bytes, wanted[d].weight_bytes + wanted[d].weight_bytes / 16) << uses[d].name;
  }
}

// Peaks as the issue wants them: no more than the larger of both modes, the staging, and what may be copied ahead.
// REQUIRES: both are open.
void check_report(const TransitionReport& report, const Switch& how, const Opened& before, const Opened& after,
                  uint64_t ahead_bytes) {
  EXPECT_EQ(report.from, how.from.split_mode);
  EXPECT_EQ(report.to, how.to.split_mode);
  EXPECT_GT(report.moved_bytes, 0U);
  EXPECT_GT(report.n_moves, 0);
  EXPECT_LE(report.ahead_bytes, report.moved_bytes);
  EXPECT_EQ(report.held_bytes, 0U);
  ASSERT_EQ(report.shares.size(), static_cast<size_t>(how.n_devices));
  const std::vector<DeviceUse> a = before.model->device_use();
  const std::vector<DeviceUse> b = after.model->device_use();
  const auto total = [](const DeviceUse& use) {
    return use.weight_bytes + use.kv_bytes + use.rec_bytes + use.scratch_bytes;
  };
  for (size_t d = 0; d < a.size(); ++d) {
    EXPECT_GE(report.peak_bytes[d], std::max(total(a[d]), total(b[d]))) << a[d].name;
    EXPECT_LE(report.peak_bytes[d], std::max(total(a[d]), total(b[d])) + ahead_bytes + (uint64_t{64} << 20))
        << a[d].name;
  }
}

void switch_there_and_back(const std::string& path, const Switch& how, const Setting& setting) {
  auto before = open(path, how, how.from, setting);
  auto after = open(path, how, how.to, setting);
  ASSERT_TRUE(before.ok()) << before.status().message();
  ASSERT_TRUE(after.ok()) << after.status().message();
  auto switched = open(path, how, how.from, setting);
  ASSERT_TRUE(switched.ok()) << switched.status().message();
  const Status filled = fill(*switched);
  ASSERT_TRUE(filled.ok()) << filled.message();
  Context& context = *switched->context;
  const Contents first = contents_of(context);
  const Contents other_first = contents_of(*switched->other);
  ASSERT_FALSE(first.logits.empty());

  // Ways of getting there: as one switch, and with weights copied ahead, some or all.
  const auto go = [&](const PlacementRequest& where, uint64_t ahead_bytes) {
    const auto report = switched->model->set_placement(where, {.ahead_bytes = ahead_bytes});
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(n_different(all_logits(context), first.logits), 0U) << "before anything else is asked";
    EXPECT_TRUE(contents_of(context) == first) << "in " << where.split_mode;
    EXPECT_TRUE(contents_of(*switched->other) == other_first) << "in " << where.split_mode;
    EXPECT_EQ(switched->model->placement().split_mode, where.split_mode);
    const bool is_back = where.split_mode != how.to.split_mode;
    if (!is_back) {
      check_report(*report, how, *before, *after, ahead_bytes);
    }
    if (ahead_bytes == kAllAhead) {
      // All but caches and states: what of them moves is no more than they hold.
      EXPECT_GT(report->ahead_bytes, 0U);
    }
    expect_same_memory(*switched->model, is_back ? *before->model : *after->model);
  };
  for (const uint64_t ahead_bytes : {uint64_t{0}, 3 * how.unit_bytes, kAllAhead}) {
    go(how.to, ahead_bytes);
    go(how.from, ahead_bytes);
  }
  go(how.to, 0);

  ASSERT_TRUE(after->context->set_state(kAllSequences, first.state).ok());
  ASSERT_TRUE(after->other->set_state(kAllSequences, other_first.state).ok());
  const std::vector<float> next = go_on(context, kSeqs);
  EXPECT_EQ(n_different(next, go_on(*after->context, kSeqs)), 0U) << "of " << next.size() << " logits";
  EXPECT_EQ(n_different(go_on(*switched->other, 1), go_on(*after->other, 1)), 0U);
  // What happened after the switch goes back with it, and on as where it had always been.
  const Contents later = contents_of(context);
  const auto back = switched->model->set_placement(how.from);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_TRUE(contents_of(context) == later);
  ASSERT_TRUE(before->context->set_state(kAllSequences, later.state).ok());
  EXPECT_EQ(n_different(go_on(context, kSeqs), go_on(*before->context, kSeqs)), 0U);
}

struct Count {
  int64_t n_passed = 0, n_failed = 0, n_skipped = 0;
};
Count total;

class TransitionSweep : public testing::TestWithParam<std::string> {};

TEST_P(TransitionSweep, SwitchedEqualsLoaded) {
  const TempFolder folder;
  const std::string& name = GetParam();
  const std::string path = model_path(name, folder);
  for (const Switch& how : switches()) {
    for (const Setting& setting : settings()) {
      SCOPED_TRACE(fmt::format("{}: {} > {} on {} devices, {} cuts, {}", name, name_of(how.from), name_of(how.to),
                               how.n_devices, how.n_cuts, dtype_name(setting.kv)));
      if (setting.kv != DType::kF16 && open(path, how, how.from, setting).status().code() == ErrorCode::kUnsupported) {
        continue;  // heads are no multiple of the cache type's block: no such context can exist
      }
      const auto n_bad = testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
      switch_there_and_back(path, how, setting);
      const auto n_after = testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
      ++(n_bad == n_after ? total.n_passed : total.n_failed);
    }
  }
}

bool has_architecture(const std::string& path) {
  ModelOptions options;
  options.path = path;
  options.context.n_ctx = 8;
  return Model::load(options).status().code() != ErrorCode::kUnsupported;
}

std::vector<std::string> model_names() {
  if (kFewModels && !full_sweep()) {
    return {"tiny-llama", "tiny-gemma3", "tiny-qwen35", "tiny-gpt-oss-mxfp4"};
  }
  std::vector<std::string> names = arch_model_names();
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_TEST_DATA "/tiny")) {
    if (entry.path().extension() == ".gguf" && has_architecture(entry.path())) {
      names.push_back(entry.path().stem());
    }
  }
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, TransitionSweep, testing::ValuesIn(model_names()), test_name);

// Of a cache only the pages in use move.
TEST(TransitionSizes, EmptyCachesStayWhereTheyAre) {
  const Switch how = {2, 2, {"layer", {}}, {"tensor", {}}, 1024};
  const std::string path = TESSERA_TEST_DATA "/tiny/tiny-llama.gguf";
  std::vector<uint64_t> moved;
  for (const int64_t n_tokens : {0, 1, 33, 192}) {
    auto opened = open(path, how, how.from, {});
    ASSERT_TRUE(opened.ok());
    for (int64_t n = 0; n < n_tokens; n += 96) {
      ASSERT_TRUE(opened->context->decode(tokens(0, std::min<int64_t>(96, n_tokens - n), 1)).ok());
    }
    const auto report = opened->model->set_placement(how.to);
    ASSERT_TRUE(report.ok()) << report.status().message();
    moved.push_back(report->moved_bytes);
  }
  const uint64_t page = moved[1] - moved[0];
  EXPECT_GT(page, 0U);
  EXPECT_EQ(moved[2], moved[0] + 2 * page);
  EXPECT_EQ(moved[3], moved[0] + 6 * page);
}

// Any map is legal: tiles scattered at random, layers torn apart, and every time the same tokens.
TEST(TransitionHomes, RandomMapsAreAsGoodAsAny) {
  const Switch how = {3, 4, {"layer", {}}, {"tensor", {}}};
  for (const char* name : {"tiny-llama", "tiny-qwen3moe", "tiny-qwen35"}) {
    const std::string path = std::string(TESSERA_TEST_DATA "/tiny/") + name + ".gguf";
    auto still = open(path, how, how.from, {});
    auto moving = open(path, how, how.from, {});
    ASSERT_TRUE(still.ok() && moving.ok());
    ASSERT_TRUE(fill(*still).ok() && fill(*moving).ok());
    std::mt19937 random(11);
    ModelState& state = *moving->model->state();
    for (int round = 0; round < 12; ++round) {
      SCOPED_TRACE(fmt::format("{}, round {}", name, round));
      std::vector<int32_t> homes = state.placement.home;
      for (size_t t = 0; t < homes.size(); ++t) {
        homes[t] = random() % 2 == 0 ? static_cast<int32_t>(random() % 3) : homes[t];
        // Experts of a cut stay together: lowering asks for that.
        const Tile& tile = state.tiles.tiles[t];
        const bool follows = t > 0 && tile.kind == TileKind::kExpert && state.tiles.tiles[t - 1].kind == tile.kind &&
                             state.tiles.tiles[t - 1].cut == tile.cut && state.tiles.tiles[t - 1].layer == tile.layer;
        homes[t] = follows ? homes[t - 1] : homes[t];
      }
      const auto report = moving->model->set_placement({"custom", {}, homes});
      ASSERT_TRUE(report.ok()) << report.status().message();
      EXPECT_EQ(state.placement.home, homes);
      EXPECT_TRUE(contents_of(*moving->context) == contents_of(*still->context));
      const std::vector<BatchToken> batch = {{round, 0, true}, {round + 1, 1, true}, {round + 2, 3, true}};
      ASSERT_TRUE(still->context->decode(batch).ok() && moving->context->decode(batch).ok());
      EXPECT_EQ(n_different(all_logits(*still->context), all_logits(*moving->context)), 0U);
    }
    // What is asked for can be asked for again, and leads to the same homes.
    const PlacementRequest scattered = moving->model->placement();
    ASSERT_TRUE(moving->model->set_placement({"none", {}}).ok());
    ASSERT_TRUE(moving->model->set_placement(scattered).ok());
    EXPECT_EQ(state.placement.home, scattered.homes);
    EXPECT_TRUE(contents_of(*moving->context) == contents_of(*still->context));
    for (const PlacementRequest& wrong : std::vector<PlacementRequest>{{"custom", {}, {0, 1}},
                                                                       {"custom", {}, {}},
                                                                       {"layer", {}, scattered.homes},
                                                                       {"custom", {1}, scattered.homes}}) {
      EXPECT_EQ(moving->model->set_placement(wrong).status().code(), ErrorCode::kInvalidArgument);
    }
  }
}

class PrintCount : public testing::Environment {
 public:
  void TearDown() override {
    std::cout << "sweep: " << total.n_passed << " passed, " << total.n_failed << " failed, " << total.n_skipped
              << " skipped\n";
  }
};
const auto* const print_count = testing::AddGlobalTestEnvironment(new PrintCount);

}  // namespace
}  // namespace tessera
