// A context that was switched to another placement is one that was there all along: same state, same logits of the last
// decode, same bits of all that comes after, same memory.
//
// Every small model goes from each placement of a list to another and back and there again, with four sequences, a
// second context on the same model, and snapshots of recurrent state. It is held against a model that was loaded in the
// second placement and handed the state. Requests that are refused, for what they say or for lack of memory, leave it
// as it was; and a model that is switched while no context exists is one that was loaded there.
//
// Unified and separate caches take turns: sequences that share pages of a pool with room for one context's length, and
// sequences that share none, each with room of its own. TESSERA_SWEEP=full adds cache types, kernel sets and
// placements, and takes all of them together. TESSERA_SWEEP_MODELS=FOLDER sweeps the models of a folder instead, the
// reference's dummy models for one; those of architectures that are not there are skipped, with the reason.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <iostream>
#include <random>

#include "memory/sequence_memory.h"
#include "runtime/model_state.h"
#include "tests/support/decorated_devices.h"
#include "tests/support/model_names.h"
#include "tests/support/run_model.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int32_t kSeqs = 4;
constexpr int kGreedySteps = 32;
constexpr uint64_t kAllAhead = uint64_t{1} << 30;  // more than any of these models
constexpr int kFewSteps = 4;                       // enough to see that a context still works

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
  bool unified = true;  // sequences share pages of a pool that holds n_ctx positions; else each has n_ctx of its own
};

struct Case {
  std::string path;
  Switch how;
  Setting setting;
};

bool full_sweep() {
  const char* wanted = std::getenv("TESSERA_SWEEP");
  return wanted != nullptr && std::string(wanted) == "full";
}

/// The folder whose models are swept; empty: our own.
std::string models_folder() {
  const char* folder = std::getenv("TESSERA_SWEEP_MODELS");
  return folder != nullptr ? folder : "";
}

std::vector<Switch> switches() {
  std::vector<Switch> list = {
      {2, 2, {"layer", {}}, {"tensor", {}}},
      {2, 4, {"none", {3, 1}}, {"tensor", {1, 3}}, 1024},
  };
  if (full_sweep()) {
    list.insert(list.end(), {{2, 2, {"tensor", {}}, {"layer", {}}},
                             {2, 2, {"tensor", {}}, {"none", {}}},
                             {2, 2, {"layer", {}}, {"none", {}}},
                             {2, 4, {"layer", {3, 1}}, {"tensor", {1, 3}}},
                             {2, 4, {"tensor", {3, 1}}, {"tensor", {0, 1}}},
                             {3, 3, {"layer", {}}, {"tensor", {}}},
                             {3, 4, {"tensor", {2, 1, 1}}, {"layer", {0, 1, 1}}},
                             {3, 2, {"layer", {1, 0, 0}}, {"tensor", {0, 1, 1}}},
                             {5, 5, {"tensor", {}}, {"layer", {}}}});
  }
  return list;
}

/// Of the n-th switch. Unified caches go with the small grid of the second, where each page is moved by itself.
std::vector<Setting> settings(size_t n) {
  if (!full_sweep()) {
    return {{DType::kF16, "auto", n % 2 == 1}};
  }
  std::vector<Setting> list;
  for (const bool unified : {true, false}) {
    list.insert(list.end(),
                {{DType::kF16, "auto", unified}, {DType::kQ8_0, "auto", unified}, {DType::kF32, "scalar", unified}});
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

ContextOptions context_options(const Setting& setting) {
  ContextOptions options = {
      .n_ctx = 224, .n_batch = 128, .n_ubatch = 24, .n_seq_max = kSeqs, .k_type = setting.kv, .v_type = setting.kv};
  if (setting.unified) {
    options.n_ctx = 512;  // for all four, also where a state that was handed over shares no pages
    options.n_kv_tokens = ContextOptions::kAsOne;
  }
  return options;
}

/// budgets: bytes by device; none: no limit.
Result<std::shared_ptr<Model>> load(const Case& c, const PlacementRequest& where, std::vector<uint64_t> budgets = {}) {
  ModelOptions options;
  options.path = c.path;
  options.devices = cpu_names(c.how.n_devices);
  options.device_memory = std::move(budgets);
  options.split_mode = where.split_mode;
  options.tensor_split = where.tensor_split;
  options.n_cuts = c.how.n_cuts;
  options.n_threads = 2;
  options.kernels = c.setting.kernels;
  options.context = context_options(c.setting);
  options.open_devices =
      decorated([&](size_t, std::unique_ptr<Device> device) { return with_unit(std::move(device), c.how.unit_bytes); });
  return Model::load(options);
}

Result<Opened> open_contexts(std::shared_ptr<Model> model, const Setting& setting) {
  Opened opened;
  opened.model = std::move(model);
  ContextOptions options = context_options(setting);
  ASSIGN_OR_RETURN(opened.context, Context::create(opened.model, options));
  options.n_ctx = 40;
  options.n_seq_max = 1;
  ASSIGN_OR_RETURN(opened.other, Context::create(opened.model, options));
  return opened;
}

Result<Opened> open(const Case& c, const PlacementRequest& where, std::vector<uint64_t> budgets = {}) {
  ASSIGN_OR_RETURN(std::shared_ptr<Model> model, load(c, where, std::move(budgets)));
  return open_contexts(std::move(model), c.setting);
}

std::vector<BatchToken> tokens(int32_t seq, int64_t n, int32_t from) {
  std::vector<BatchToken> batch;
  for (int64_t i = 0; i < n; ++i) {
    batch.push_back({static_cast<int32_t>((from + i * 7) % 97), seq, i + 1 == n});
  }
  return batch;
}

// Four sequences: a long one, another with the same head (the same pages where caches are unified), one that was cut,
// and a short one. Two rows of logits.
Status fill(const Opened& opened, bool unified) {
  Context& context = *opened.context;
  TRY(context.decode(tokens(0, 40, 1)));
  TRY(context.snapshot(0));
  TRY(unified ? context.fork(0, 2, 40) : context.decode(tokens(2, 40, 1)));
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

int64_t n_shared_pages(const Context& context) {
  const KvCache& kv = context.memory().kv();
  int64_t n_shared = 0;
  for (size_t k = 0; k < kv.config().classes.size(); ++k) {
    for (int64_t page = 0; page < kv.config().classes[k].n_pages; ++page) {
      n_shared += kv.page_refs(static_cast<int32_t>(k), static_cast<int32_t>(page)) > 1 ? 1 : 0;
    }
  }
  return n_shared;
}

/// All that a switch must leave alone.
struct Contents {
  Bytes state;
  std::vector<float> logits;
  int64_t n_shared_pages = 0;
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
  contents.n_shared_pages = n_shared_pages(context);
  return contents;
}

// What comes next: tokens of every sequence, each the likeliest after the one before; every logit is kept.
std::vector<float> go_on(Context& context, int32_t n_seqs, int n_steps = kGreedySteps) {
  std::vector<float> logits;
  std::vector<int32_t> next(static_cast<size_t>(n_seqs), 5);
  for (int step = 0; step < n_steps; ++step) {
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

std::vector<uint64_t> used_bytes(const Model& model) {
  std::vector<uint64_t> bytes;
  for (const auto& device : model.state()->devices.devices) {
    bytes.push_back(device->used_bytes());
  }
  return bytes;
}

std::vector<int32_t> homes_of(const Model& model) {
  std::vector<int32_t> homes;
  for (const TileHome& tile : model.tile_homes()) {
    homes.push_back(tile.device);
  }
  return homes;
}

/// Refused, with all as it was. What `opened` decodes from then on is for the caller to compare.
void refuse(const Opened& opened, const PlacementRequest& request, ErrorCode code) {
  const Contents contents = contents_of(*opened.context);
  const Contents other = contents_of(*opened.other);
  const std::vector<uint64_t> used = used_bytes(*opened.model);
  const std::vector<int32_t> homes = homes_of(*opened.model);
  const std::string mode = opened.model->placement().split_mode;
  const uint64_t version = opened.model->placement_version();
  const auto report = opened.model->set_placement(request);
  EXPECT_EQ(report.status().code(), code) << name_of(request) << ": " << report.status().message();
  EXPECT_TRUE(contents_of(*opened.context) == contents) << name_of(request);
  EXPECT_TRUE(contents_of(*opened.other) == other) << name_of(request);
  EXPECT_EQ(used_bytes(*opened.model), used);
  EXPECT_EQ(homes_of(*opened.model), homes);
  EXPECT_EQ(opened.model->placement().split_mode, mode);
  EXPECT_EQ(opened.model->placement_version(), version);
}

void refuse_what_is_wrong(const Opened& opened, const Switch& how) {
  refuse(opened, {"rows", {}}, ErrorCode::kInvalidArgument);
  refuse(opened, {"tensor", std::vector<double>(static_cast<size_t>(how.n_devices), 0)}, ErrorCode::kInvalidArgument);
  refuse(opened, {"custom", {}, {how.n_devices}}, ErrorCode::kInvalidArgument);
}

/// Contents of the four sequences and the second context, and what comes next.
struct Expected {
  Contents first;
  Contents other_first;
  std::vector<float> next;
};

// A device that has what one placement takes and not a byte more cannot switch: every switch grows a range or needs
// staging.
void refuse_what_does_not_fit(const Case& c, const Opened& loaded, const PlacementRequest& to,
                              const Expected& expected) {
  std::vector<uint64_t> budgets = used_bytes(*loaded.model);
  std::ranges::replace(budgets, uint64_t{0}, uint64_t{1});  // 0 asks for a share of what the machine has
  const auto opened = open(c, loaded.model->placement(), budgets);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Status filled = fill(*opened, c.setting.unified);
  ASSERT_TRUE(filled.ok()) << filled.message();
  refuse(*opened, to, ErrorCode::kDoesNotFit);
  EXPECT_TRUE(contents_of(*opened->context) == expected.first);
  const std::vector<float> next = go_on(*opened->context, kSeqs, kFewSteps);
  const auto n_next = static_cast<ptrdiff_t>(next.size());
  ASSERT_LE(next.size(), expected.next.size());
  EXPECT_EQ(n_different(next, {expected.next.begin(), expected.next.begin() + n_next}), 0U);
}

// The call on a model that has no context, there and back: each time as if it had been loaded so.
void switch_without_contexts(const Case& c, const Opened& before, const Opened& after, const Expected& expected) {
  const auto model = load(c, c.how.from);
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const auto& [where, loaded] : {std::pair(c.how.to, &after), std::pair(c.how.from, &before)}) {
    SCOPED_TRACE("without contexts, in " + where.split_mode);
    const auto report = (*model)->set_placement(where);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(homes_of(**model), homes_of(*loaded->model));
    const auto opened = open_contexts(*model, c.setting);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    expect_same_memory(**model, *loaded->model);
    const Status filled = fill(*opened, c.setting.unified);
    ASSERT_TRUE(filled.ok()) << filled.message();
    EXPECT_TRUE(contents_of(*opened->context) == expected.first);
    EXPECT_TRUE(contents_of(*opened->other) == expected.other_first);
    EXPECT_EQ(n_different(go_on(*opened->context, kSeqs), expected.next), 0U);
  }
}

void switch_there_and_back(const Case& c) {
  const Switch& how = c.how;
  auto before = open(c, how.from);
  auto after = open(c, how.to);
  ASSERT_TRUE(before.ok()) << before.status().message();
  ASSERT_TRUE(after.ok()) << after.status().message();
  auto switched = open(c, how.from);
  ASSERT_TRUE(switched.ok()) << switched.status().message();
  const Status filled = fill(*switched, c.setting.unified);
  ASSERT_TRUE(filled.ok()) << filled.message();
  Context& context = *switched->context;
  Expected expected = {contents_of(context), contents_of(*switched->other), {}};
  const Contents& first = expected.first;
  ASSERT_FALSE(first.logits.empty());
  ASSERT_EQ(first.n_shared_pages > 0, c.setting.unified);

  // Ways of getting there: as one switch, and with weights copied ahead, some or all.
  const auto go = [&](const PlacementRequest& where, uint64_t ahead_bytes) {
    const auto report = switched->model->set_placement(where, {.ahead_bytes = ahead_bytes});
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(n_different(all_logits(context), first.logits), 0U) << "before anything else is asked";
    EXPECT_TRUE(contents_of(context) == first) << "in " << where.split_mode;
    EXPECT_TRUE(contents_of(*switched->other) == expected.other_first) << "in " << where.split_mode;
    EXPECT_EQ(switched->model->placement().split_mode, where.split_mode);
    const bool is_back = &where == &how.from;
    if (!is_back) {
      check_report(*report, how, *before, *after, ahead_bytes);
    }
    if (ahead_bytes == kAllAhead) {
      EXPECT_GT(report->ahead_bytes, 0U);
    }
    expect_same_memory(*switched->model, is_back ? *before->model : *after->model);
  };
  refuse_what_is_wrong(*switched, how);
  for (const uint64_t ahead_bytes : {uint64_t{0}, 3 * how.unit_bytes, kAllAhead}) {
    go(how.to, ahead_bytes);
    go(how.from, ahead_bytes);
  }
  go(how.to, 0);
  refuse_what_is_wrong(*switched, how);

  ASSERT_TRUE(after->context->set_state(kAllSequences, first.state).ok());
  ASSERT_TRUE(after->other->set_state(kAllSequences, expected.other_first.state).ok());
  expected.next = go_on(context, kSeqs);
  EXPECT_EQ(n_different(expected.next, go_on(*after->context, kSeqs)), 0U) << "of " << expected.next.size();
  EXPECT_EQ(n_different(go_on(*switched->other, 1), go_on(*after->other, 1)), 0U);
  // What happened after the switch goes back with it, and on as where it had always been.
  const Contents later = contents_of(context);
  const auto back = switched->model->set_placement(how.from);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_TRUE(contents_of(context) == later);
  ASSERT_TRUE(before->context->set_state(kAllSequences, later.state).ok());
  EXPECT_EQ(n_different(go_on(context, kSeqs), go_on(*before->context, kSeqs)), 0U);

  switch_without_contexts(c, *before, *after, expected);
  refuse_what_does_not_fit(c, *before, how.to, expected);
  if (full_sweep()) {
    refuse_what_does_not_fit(c, *after, how.from, expected);
  }
}

struct Count {
  int64_t n_passed = 0, n_failed = 0;
  std::vector<std::string> skipped;  // models, with the reason
};
Count total;

class TransitionSweep : public testing::TestWithParam<std::string> {};

/// Why there can be no context of this model; ok: there can be, or what is wrong is for the sweep to find.
Status reason_to_skip(const std::string& path) {
  ModelOptions options;
  options.path = path;
  options.context.n_ctx = 8;
  const Status status = Model::load(options).status();
  return status.code() == ErrorCode::kUnsupported ? status : Status();
}

/// A cache type that the model's heads are no multiple of gives way to another of 16 bits.
Setting possible(const Case& c) {
  Setting setting = c.setting;
  if (setting.kv == DType::kQ8_0 && open(c, c.how.from).status().code() == ErrorCode::kUnsupported) {
    setting.kv = DType::kBF16;
  }
  return setting;
}

TEST_P(TransitionSweep, SwitchedEqualsLoaded) {
  const TempFolder folder;
  const std::string& name = GetParam();
  const std::string path = models_folder().empty() ? model_path(name, folder) : models_folder() + "/" + name + ".gguf";
  if (const Status reason = reason_to_skip(path); !reason.ok()) {
    total.skipped.push_back(name + ": " + reason.message());
    GTEST_SKIP() << reason.message();
  }
  const std::vector<Switch> list = switches();
  for (size_t n = 0; n < list.size(); ++n) {
    for (const Setting& wanted : settings(n)) {
      Case c = {path, list[n], wanted};
      c.setting = possible(c);
      SCOPED_TRACE(fmt::format("{}: {} > {} on {} devices, {} cuts, {} {}", name, name_of(c.how.from),
                               name_of(c.how.to), c.how.n_devices, c.how.n_cuts, dtype_name(c.setting.kv),
                               c.setting.unified ? "unified" : "separate"));
      const auto n_bad = testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
      switch_there_and_back(c);
      const auto n_after = testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
      ++(n_bad == n_after ? total.n_passed : total.n_failed);
    }
  }
}

std::vector<std::string> stems_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf") {
      names.push_back(entry.path().stem());
    }
  }
  return names;
}

std::vector<std::string> model_names() {
  if (!models_folder().empty()) {
    std::vector<std::string> names = stems_of(models_folder());
    std::ranges::sort(names);
    return names;
  }
  if (kFewModels && !full_sweep()) {
    return {"tiny-llama", "tiny-gemma3", "tiny-qwen35", "tiny-gpt-oss-mxfp4"};
  }
  std::vector<std::string> names = arch_model_names();
  const auto add = [&](const std::string& subfolder) {
    for (const std::string& name : stems_of(TESSERA_TEST_DATA "/" + subfolder)) {
      // Models of architectures that are still to come: only the full sweep says that it skips them.
      if (full_sweep() || reason_to_skip(TESSERA_TEST_DATA "/" + subfolder + "/" + name + ".gguf").ok()) {
        names.push_back(name);
      }
    }
  };
  add("tiny");
  if (full_sweep()) {
    add("models");
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
    auto opened = open({path, how, {}}, how.from);
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
    auto still = open({path, how, {}}, how.from);
    auto moving = open({path, how, {}}, how.from);
    ASSERT_TRUE(still.ok() && moving.ok());
    ASSERT_TRUE(fill(*still, true).ok() && fill(*moving, true).ok());
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
    for (const std::string& model : total.skipped) {
      std::cout << "skipped " << model << '\n';
    }
    std::cout << "sweep: " << total.n_passed << " passed, " << total.n_failed << " failed, " << total.skipped.size()
              << " skipped\n";
  }
};
const auto* const print_count = testing::AddGlobalTestEnvironment(new PrintCount);

}  // namespace
}  // namespace tessera
