// `tessera bench-switch`, also spelt `bench switch`: how long a switch between two placements takes, how much it moves
// against plain copies of the same run, how much memory it needs, and what it leaves of the speed.
//
// The first switch there and back is not timed: the process's memory is watched instead, some hundred times a second,
// so that watching disturbs no time. A device's peak needs no watching: all that it takes is taken before the first
// byte moves, and given back after the last (runtime/placement_switch.h).

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/proc.h"
#include "base/threads.h"
#include "commands.h"
#include "common.h"
#include "copy_rate.h"
#include "decode_timer.h"
#include "report.h"
#include "runtime/context.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kWatchPause = std::chrono::milliseconds(2);  // 500 looks a second

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Memory of this process that is in use, in bytes; 0 where the system does not say.
uint64_t resident_bytes() {
  unsigned long long pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file != nullptr) {
    if (std::fscanf(file, "%*u %llu", &pages) != 1) {
      pages = 0;
    }
    std::fclose(file);
  }
  return pages * page_bytes();
}

/// Looks at resident_bytes() from another thread until it is stopped.
class MemoryWatch {
 public:
  Status start() {
    ASSIGN_OR_RETURN(thread_, start_thread("watch", [this] {
                       const auto begin = std::chrono::steady_clock::now();
                       int64_t n_looks = 0;
                       do {
                         most_ = std::max(most_, resident_bytes());
                         ++n_looks;
                         std::this_thread::sleep_for(kWatchPause);
                       } while (!stops_);
                       const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
                       looks_per_s_ = static_cast<double>(n_looks) / time.count();
                     }));
    return {};
  }
  void stop() {
    stops_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  /// The most that was seen, and how often it looked. REQUIRES: it was stopped.
  [[nodiscard]] uint64_t most() const { return most_; }
  [[nodiscard]] double looks_per_s() const { return looks_per_s_; }
  ~MemoryWatch() { stop(); }

 private:
  std::atomic<bool> stops_ = false;
  uint64_t most_ = 0;  // the thread's, until it has ended
  double looks_per_s_ = 0;
  std::thread thread_;
};

/// One placement of the two: the device's bytes under it, and the switches away from it.
struct Side {
  PlacementRequest request;
  std::vector<uint64_t> bytes;  // by device
  uint64_t resident = 0;
  std::vector<double> ms;  // of each timed switch to the other side
  std::vector<double> ahead_ms, stall_ms;
  TransitionReport last;  // of these
};

class SwitchBench {
 public:
  SwitchBench(const ParsedFlags& flags, std::shared_ptr<Model> model, Context& context)
      : flags_(flags),
        model_(std::move(model)),
        context_(context),
        timer_(context),
        depth_(static_cast<int64_t>(flags.get_uint("kv-tokens"))),
        prefill_{static_cast<int64_t>(flags.get_uint("n-prompt")), 0, depth_},
        generation_{0, static_cast<int64_t>(flags.get_uint("n-gen")), depth_} {
    transition_.staging_bytes = flags.get_bytes("transition-staging");
    transition_.ahead_bytes = flags.get_bytes("transition-ahead");
    sides_[0].request = model_->placement();
    sides_[1].request = {flags.get_string("to"), sides_[0].request.tensor_split};
  }

  Status run() {
    TRY(time_speeds(prefill_before_, generation_before_));
    TRY(watch_memory());
    const uint64_t n_bytes = sides_[0].last.moved_bytes + sides_[1].last.moved_bytes;
    ASSIGN_OR_RETURN(CopyRate copies, CopyRate::create(n_bytes / 2));
    TRY(copies.measure().status());
    for (Side& side : sides_) {
      side.ms.clear();
      side.ahead_ms.clear();
      side.stall_ms.clear();
    }
    for (uint64_t i = 0; i < flags_.get_uint("repetitions"); ++i) {
      TRY(timer_.go_back_to(depth_));
      TRY(leave(0));
      TRY(leave(1));
      ASSIGN_OR_RETURN(const double rate, copies.measure());
      copy_rates_.push_back(rate / 1e9);
    }
    return time_speeds(prefill_after_, generation_after_);
  }

  [[nodiscard]] Json report() const {
    const auto name = [&](size_t from) {
      return sides_[from].request.split_mode + ">" + sides_[1 - from].request.split_mode;
    };
    const auto pair = [&](const auto& value_of) {
      return Json{{name(0), value_of(sides_[0])}, {name(1), value_of(sides_[1])}};
    };
    const auto by_mode = [&](const auto& value_of) {
      return Json{{sides_[0].request.split_mode, value_of(sides_[0])},
                  {sides_[1].request.split_mode, value_of(sides_[1])}};
    };
    const double rate = rate_gb_s();
    const double copy_rate = median(copy_rates_);
    std::vector<std::string> names;
    for (const DeviceUse& use : model_->device_use()) {
      names.push_back(use.name);
    }
    return {{"model", model_->summary().architecture + " " + model_->summary().name},
            {"devices", names},
            {"n_cuts", model_->summary().n_cuts},
            {"n_kv_tokens", depth_},
            {"n_runs", flags_.get_uint("repetitions")},
            {"staging_bytes", transition_.staging_bytes},
            {"ahead_limit_bytes", transition_.ahead_bytes},
            {"switch_ms", pair([](const Side& side) { return median(side.ms); })},
            {"samples_ms", pair([](const Side& side) { return side.ms; })},
            {"phases_ms", pair([](const Side& side) {
               return Json{{"reserve", side.last.reserve_ms},
                           {"move", side.last.move_ms},
                           {"commit", side.last.commit_ms},
                           {"trim", side.last.trim_ms}};
             })},
            {"ahead_bytes", pair([](const Side& side) { return side.last.ahead_bytes; })},
            {"ahead_ms", pair([](const Side& side) { return median(side.ahead_ms); })},
            {"stall_ms", pair([](const Side& side) { return median(side.stall_ms); })},
            {"moved_bytes", sides_[0].last.moved_bytes},
            {"moved_back_bytes", sides_[1].last.moved_bytes},
            {"local_bytes", pair([](const Side& side) { return side.last.local_bytes; })},
            {"n_moves", pair([](const Side& side) { return side.last.n_moves; })},
            {"rate_gb_s", rate},
            {"copy_rate_gb_s", copy_rate},
            {"rate_share", rate / copy_rate},
            {"peak_bytes", peak_bytes()},
            {"mode_bytes", by_mode([](const Side& side) { return side.bytes; })},
            {"resident_bytes", by_mode([](const Side& side) { return side.resident; })},
            {"resident_peak_bytes", resident_peak_},
            {"resident_looks_per_s", looks_per_s_},
            {"n_prompt", prefill_.n_prompt},
            {"n_gen", generation_.n_gen},
            {"prefill_tokens_per_s", speeds_json(prefill_.n_prompt, prefill_before_, prefill_after_)},
            {"generation_tokens_per_s", speeds_json(generation_.n_gen, generation_before_, generation_after_)},
            {"prefill_kept", median(prefill_before_) / median(prefill_after_)},
            {"generation_kept", median(generation_before_) / median(generation_after_)}};
  }

 private:
  /// Switches from sides_[from] to the other.
  Status leave(size_t from) {
    Side& side = sides_[from];
    ASSIGN_OR_RETURN(side.last, model_->set_placement(sides_[1 - from].request, transition_));
    side.ms.push_back(side.last.total_ms);
    side.ahead_ms.push_back(side.last.ahead_ms);
    side.stall_ms.push_back(side.last.stall_ms);
    return {};
  }

  Status watch_memory() {
    TRY(timer_.go_back_to(depth_));
    MemoryWatch watch;
    note_bytes(sides_[0]);
    TRY(watch.start());
    TRY(leave(0));
    note_bytes(sides_[1]);
    TRY(leave(1));
    watch.stop();
    resident_peak_ = std::max({watch.most(), sides_[0].resident, sides_[1].resident});
    looks_per_s_ = watch.looks_per_s();
    return {};
  }

  void note_bytes(Side& side) const {
    for (const DeviceUse& use : model_->device_use()) {
      side.bytes.push_back(use.weight_bytes + use.kv_bytes + use.rec_bytes + use.scratch_bytes);
    }
    side.resident = resident_bytes();
  }

  Status time_speeds(std::vector<double>& prefill_ns, std::vector<double>& generation_ns) {
    TRY(timer_.run({1, 0, depth_}).status());
    for (uint64_t i = 0; i < flags_.get_uint("repetitions"); ++i) {
      ASSIGN_OR_RETURN(const double reading, timer_.run(prefill_));
      ASSIGN_OR_RETURN(const double generating, timer_.run(generation_));
      prefill_ns.push_back(reading);
      generation_ns.push_back(generating);
    }
    return {};
  }

  // Both ways together: bytes that changed their device over the time from reserve to trim. What was copied ahead is in
  // neither.
  [[nodiscard]] double rate_gb_s() const {
    uint64_t bytes = 0;
    for (const Side& side : sides_) {
      bytes += side.last.moved_bytes - side.last.ahead_bytes;
    }
    return static_cast<double>(bytes) / 1e6 / (median(sides_[0].ms) + median(sides_[1].ms));
  }

  [[nodiscard]] std::vector<uint64_t> peak_bytes() const {
    std::vector<uint64_t> peaks = sides_[0].last.peak_bytes;
    for (size_t d = 0; d < peaks.size(); ++d) {
      peaks[d] = std::max(peaks[d], sides_[1].last.peak_bytes[d]);
    }
    return peaks;
  }

  static Json speeds_json(int64_t n, const std::vector<double>& before_ns, const std::vector<double>& after_ns) {
    const auto speed = [n](const std::vector<double>& ns) { return static_cast<double>(n) * 1e9 / median(ns); };
    return {{"before", speed(before_ns)}, {"after", speed(after_ns)}};
  }

  const ParsedFlags& flags_;
  std::shared_ptr<Model> model_;
  Context& context_;
  DecodeTimer timer_;
  int64_t depth_;
  DecodeTest prefill_;
  DecodeTest generation_;
  TransitionOptions transition_;
  Side sides_[2];  // the first is the one that the model was loaded under
  std::vector<double> copy_rates_;
  std::vector<double> prefill_before_, prefill_after_;        // nanoseconds
  std::vector<double> generation_before_, generation_after_;  // nanoseconds
  uint64_t resident_peak_ = 0;
  double looks_per_s_ = 0;
};

std::string report_text(const Json& r) {
  const auto mib = [](const Json& bytes) { return fmt::format("{:.1f}", bytes.get<double>() / (1 << 20)); };
  std::vector<std::vector<std::string>> rows = {{"switch", "ms", "MiB moved", "MiB within devices"}};
  for (const auto& [name, ms] : r.at("switch_ms").items()) {
    const char* moved = rows.size() == 1 ? "moved_bytes" : "moved_back_bytes";
    rows.push_back(
        {name, fmt::format("{:.2f}", ms.get<double>()), mib(r.at(moved)), mib(r.at("local_bytes").at(name))});
  }
  std::string text = format_table(rows);
  if (r.at("ahead_limit_bytes").get<uint64_t>() > 0) {
    rows = {{"copied ahead", "MiB", "ms before", "ms nobody decodes"}};
    for (const auto& [name, bytes] : r.at("ahead_bytes").items()) {
      rows.push_back({name, mib(bytes), fmt::format("{:.2f}", r.at("ahead_ms").at(name).get<double>()),
                      fmt::format("{:.2f}", r.at("stall_ms").at(name).get<double>())});
    }
    text += format_table(rows);
  }
  text += fmt::format("rate {:.2f} GB/s, {:.0f} % of two threads that copy ({:.2f} GB/s)\n\n",
                      r.at("rate_gb_s").get<double>(), 100 * r.at("rate_share").get<double>(),
                      r.at("copy_rate_gb_s").get<double>());
  rows = {{"device"}};
  for (const auto& [mode, bytes] : r.at("mode_bytes").items()) {
    rows[0].push_back(mode + " MiB");
  }
  rows[0].emplace_back("peak MiB");
  for (size_t d = 0; d < r.at("devices").size(); ++d) {
    rows.push_back({r.at("devices")[d].get<std::string>()});
    for (const auto& [mode, bytes] : r.at("mode_bytes").items()) {
      rows.back().push_back(mib(bytes[d]));
    }
    rows.back().push_back(mib(r.at("peak_bytes")[d]));
  }
  text += format_table(rows) + "\n";
  rows = {{"speed", "before", "after", "kept"}};
  for (const char* phase : {"prefill", "generation"}) {
    const Json& speeds = r.at(std::string(phase) + "_tokens_per_s");
    rows.push_back({fmt::format("{} tokens/s", phase), fmt::format("{:.1f}", speeds.at("before").get<double>()),
                    fmt::format("{:.1f}", speeds.at("after").get<double>()),
                    fmt::format("{:.1f} %", 100 * r.at(std::string(phase) + "_kept").get<double>())});
  }
  return text + format_table(rows);
}

}  // namespace

Status check_bench_switch(const ParsedFlags& flags) {
  if (flags.get_string_list("device").size() < 2) {
    return {ErrorCode::kInvalidArgument, "a switch needs several devices, such as --device cpu:0,cpu:1"};
  }
  if (flags.get_string("to") == flags.get_string("split-mode")) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("--split-mode and --to are both {}; nothing would move", flags.get_string("to"))};
  }
  return {};
}

Status cmd_bench_switch(const ParsedFlags& flags) {
  ModelOptions options = model_options(flags);
  const auto longest = static_cast<int64_t>(std::max(flags.get_uint("n-prompt"), flags.get_uint("n-gen")));
  if (!flags.given("ctx-size")) {
    options.context.n_ctx = static_cast<int64_t>(flags.get_uint("kv-tokens")) + longest;
  }
  const Log log = command_log(flags);
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, load_model(options, log));
  ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::create(model, options.context));
  SwitchBench bench(flags, model, *context);
  TRY(bench.run());
  const Json report = bench.report();
  return print(flags.get_bool("json") ? report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"
                                      : report_text(report));
}

}  // namespace tessera
