// `tessera batched-bench`: speed of many sequences that are decoded together: first all prompts, then one token of each
// sequence a step. Columns and JSON names are those of llama-batched-bench. With --break-even the same under layer and
// under tensor, side by side.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench_lists.h"
#include "break_even.h"
#include "commands.h"
#include "common.h"
#include "fit_flags.h"
#include "link_flag.h"
#include "runtime/context.h"
#include "runtime/switch_plan.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Shape {
  int64_t n_prompt = 0;
  int64_t n_gen = 0;
  int64_t n_seqs = 0;
};

struct Timing {
  double prompt_s = 0;
  double gen_s = 0;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class BatchedBench {
 public:
  BatchedBench(Context& context, bool shared) : context_(context), shared_(shared) {}

  Result<Timing> run(const Shape& shape) {
    TRY(context_.clear());
    Timing timing;
    auto start = Clock::now();
    const int64_t n_prompts = shared_ ? 1 : shape.n_seqs;
    for (int64_t s = 0; s < n_prompts; ++s) {
      for (int64_t i = 0; i < shape.n_prompt; ++i) {
        TRY(add({token(s + i), static_cast<int32_t>(s), i + 1 == shape.n_prompt}));
      }
    }
    TRY(flush());
    for (int64_t s = n_prompts; s < shape.n_seqs; ++s) {
      TRY(context_.fork(0, static_cast<int32_t>(s), shape.n_prompt));
    }
    timing.prompt_s = seconds_since(start);
    start = Clock::now();
    for (int64_t i = 0; i < shape.n_gen; ++i) {
      for (int64_t s = 0; s < shape.n_seqs; ++s) {
        TRY(add({token(7 * s + i), static_cast<int32_t>(s), true}));
      }
      TRY(flush());
    }
    timing.gen_s = seconds_since(start);
    return timing;
  }

 private:
  [[nodiscard]] int32_t token(int64_t i) const {
    return static_cast<int32_t>((i * 7919 + 13) % context_.model().summary().n_vocab);
  }

  Status add(const BatchToken& token) {
    batch_.push_back(token);
    return std::cmp_equal(batch_.size(), context_.options().n_batch) ? flush() : Status();
  }

  Status flush() {
    const Status status = batch_.empty() ? Status() : context_.decode(batch_);
    batch_.clear();
    return status;
  }

  Context& context_;
  bool shared_;
  std::vector<BatchToken> batch_;
};

struct Row {
  std::string text;   // for people
  std::string jsonl;  // for programs
};

Row row_of(const Context& context, const ParsedFlags& flags, const Shape& shape, const Timing& timing) {
  const bool shared = flags.get_bool("prompt-shared");
  const int64_t n_prompts = shape.n_prompt * (shared ? 1 : shape.n_seqs);
  const int64_t n_gens = shape.n_gen * shape.n_seqs;
  const auto per_s = [](int64_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; };
  const double total = timing.prompt_s + timing.gen_s;
  const int64_t n_kv = n_prompts + n_gens;
  Row row;
  row.text =
      fmt::format("|{:6} |{:6} |{:5} |{:7} |{:9.3f} |{:9.2f} |{:9.3f} |{:9.2f} |{:9.3f} |{:9.2f} |\n", shape.n_prompt,
                  shape.n_gen, shape.n_seqs, n_kv, timing.prompt_s, per_s(n_prompts, timing.prompt_s), timing.gen_s,
                  per_s(n_gens, timing.gen_s), total, per_s(n_kv, total));
  row.jsonl = Json{{"n_kv_max", context.options().n_ctx * context.options().n_seq_max},
                   {"n_batch", context.options().n_batch},
                   {"n_ubatch", context.options().n_ubatch},
                   {"flash_attn", 1},
                   {"is_pp_shared", shared ? 1 : 0},
                   {"n_gpu_layers", 0},
                   {"n_threads", context.model().summary().n_threads},
                   {"pp", shape.n_prompt},
                   {"tg", shape.n_gen},
                   {"pl", shape.n_seqs},
                   {"n_kv", n_kv},
                   {"t_pp", timing.prompt_s},
                   {"speed_pp", per_s(n_prompts, timing.prompt_s)},
                   {"t_tg", timing.gen_s},
                   {"speed_tg", per_s(n_gens, timing.gen_s)},
                   {"t", total},
                   {"speed", per_s(n_kv, total)}}
                  .dump() +
              "\n";
  return row;
}

Result<std::vector<Shape>> read_shapes(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const auto prompts, parse_numbers("-npp", flags.get_string("prompts"), 1));
  ASSIGN_OR_RETURN(const auto gens, parse_numbers("-ntg", flags.get_string("generations"), 0));
  const bool compares = flags.get_bool("break-even") && !flags.given("parallel");
  ASSIGN_OR_RETURN(const auto parallels, parse_numbers("-npl", compares ? "1,2,4,8" : flags.get_string("parallel"), 1));
  std::vector<Shape> shapes;
  for (const int64_t n_prompt : prompts) {
    for (const int64_t n_gen : gens) {
      for (const int64_t n_seqs : parallels) {
        shapes.push_back({n_prompt, n_gen, n_seqs});
      }
    }
  }
  return shapes;
}

/// Model options that hold the largest of the shapes.
ModelOptions options_for(const ParsedFlags& flags, const std::vector<Shape>& shapes) {
  ModelOptions options = model_options(flags);
  for (const Shape& shape : shapes) {
    options.context.n_seq_max =
        std::max(options.context.n_seq_max, static_cast<int32_t>(std::min<int64_t>(shape.n_seqs, 1 << 20)));
    if (!flags.given("ctx-size")) {
      options.context.n_ctx = std::max(options.context.n_ctx, shape.n_prompt + shape.n_gen);
    }
  }
  return options;
}

/// Loads the model and times every shape; `done` gets each as it is measured.
Status time_shapes(const ParsedFlags& flags, const ModelOptions& options, const std::vector<Shape>& shapes,
                   const std::function<Status(const Context&, const Shape&, const Timing&)>& done) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, load_model(options, command_log(flags)));
  ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::create(model, options.context));
  BatchedBench bench(*context, flags.get_bool("prompt-shared"));
  const Shape warm_up = {std::min<int64_t>(shapes[0].n_prompt, 16), std::min<int64_t>(shapes[0].n_gen, 1), 1};
  TRY(bench.run(warm_up).status());
  for (const Shape& shape : shapes) {
    ASSIGN_OR_RETURN(const Timing timing, bench.run(shape));
    TRY(done(*context, shape, timing));
  }
  return {};
}

// ---- layer against tensor

constexpr const char* kModes[] = {"layer", "tensor"};  // the reading one, the generating one

struct Comparison {
  Shape shape;
  Timing times[2];  // as kModes
  double switch_s = 0;
};

/// --switch-ms, or what a switch would take on the link of --sim-link.
Result<double> switch_seconds(const ParsedFlags& flags, const Fit& fit, const Shape& shape) {
  if (flags.given("switch-ms")) {
    return flags.get_float("switch-ms") * 1e-3;
  }
  ASSIGN_OR_RETURN(const SimulatedLinks links, parse_sim_link(flags.get_string("sim-link")));
  SwitchRequest request;
  request.model = fit.model;
  request.model.context.n_seq_max = static_cast<int32_t>(shape.n_seqs);
  request.to_mode = fit.modes[1].split_mode;
  request.to_split = fit.modes[1].tensor_split;
  request.n_kv_tokens = shape.n_prompt;
  request.link = {links.bytes_per_second, links.seconds_per_copy};
  request.local = {links.local_bytes_per_second, links.local_seconds_per_copy};
  ASSIGN_OR_RETURN(const SwitchPlan plan, plan_switch(request));
  return plan.seconds;
}

constexpr const char* kComparisonHead =
    "|    PP |    TG |    B | PP t/s layer | PP t/s tensor | layer's edge | TG t/s layer | TG t/s tensor | tensor's "
    "edge "
    "| switch ms | pays from PP | and from TG |\n"
    "|-------|-------|------|--------------|---------------|--------------|--------------|---------------|-------------"
    "--"
    "|-----------|--------------|-------------|\n";

std::string comparison_row(const Comparison& c, bool shared, bool table) {
  const auto n_prompt = static_cast<double>(c.shape.n_prompt);
  const auto n_gen = static_cast<double>(c.shape.n_gen);
  PhaseTimes times[2];
  double prompt_speed[2];
  double gen_speed[2];
  for (size_t mode = 0; mode < 2; ++mode) {
    times[mode] = {c.times[mode].prompt_s / n_prompt, c.times[mode].gen_s / n_gen};
    prompt_speed[mode] = (shared ? 1.0 : static_cast<double>(c.shape.n_seqs)) / times[mode].prompt_s;
    gen_speed[mode] = static_cast<double>(c.shape.n_seqs) / times[mode].step_s;
  }
  const BreakEven even = break_even(times[0], times[1], c.switch_s);
  if (table) {
    const auto from = [](const std::optional<double>& tokens) {
      return tokens ? fmt::format("{:.0f}", std::ceil(*tokens)) : std::string("never");
    };
    return fmt::format(
        "|{:6} |{:6} |{:5} |{:13.2f} |{:14.2f} |{:+11.1f} % |{:13.2f} |{:14.2f} |{:+12.1f} % |{:10.2f} |{:>13} |{:>12} "
        "|\n",
        c.shape.n_prompt, c.shape.n_gen, c.shape.n_seqs, prompt_speed[0], prompt_speed[1],
        (prompt_speed[0] / prompt_speed[1] - 1) * 100, gen_speed[0], gen_speed[1],
        (gen_speed[1] / gen_speed[0] - 1) * 100, c.switch_s * 1e3, from(even.prompt_tokens),
        from(even.generated_tokens));
  }
  const auto json_of = [](const std::optional<double>& tokens) { return tokens ? Json(*tokens) : Json(); };
  Json row = {{"pp", c.shape.n_prompt}, {"tg", c.shape.n_gen}, {"pl", c.shape.n_seqs}};
  for (size_t mode = 0; mode < 2; ++mode) {
    row[kModes[mode]] = {{"t_pp", c.times[mode].prompt_s},
                         {"speed_pp", prompt_speed[mode]},
                         {"t_tg", c.times[mode].gen_s},
                         {"speed_tg", gen_speed[mode]}};
  }
  row["switch_ms"] = c.switch_s * 1e3;
  row["break_even_prompt"] = json_of(even.prompt_tokens);
  row["break_even_generated"] = json_of(even.generated_tokens);
  return row.dump() + "\n";
}

Status compare_modes(const ParsedFlags& flags, const std::vector<Shape>& shapes, bool table) {
  const ModelOptions options = options_for(flags, shapes);
  const std::vector<FitMode> modes = {{kModes[0], options.tensor_split}, {kModes[1], options.tensor_split}};
  ASSIGN_OR_RETURN(Fit fit, fit_by_flags(flags, options, modes, false, command_log(flags)));
  fit.model.split_mode = kModes[0];
  std::vector<Comparison> comparisons;
  for (const Shape& shape : shapes) {
    ASSIGN_OR_RETURN(const double switch_s, switch_seconds(flags, fit, shape));
    comparisons.push_back({shape, {}, switch_s});
  }
  for (size_t mode = 0; mode < 2; ++mode) {
    ModelOptions placed = fit.model;
    placed.split_mode = kModes[mode];
    placed.tensor_split = fit.modes[mode].tensor_split;
    size_t next = 0;
    TRY(time_shapes(flags, placed, shapes, [&](const Context&, const Shape&, const Timing& timing) {
      comparisons[next++].times[mode] = timing;
      return Status();
    }));
  }
  if (table) {
    TRY(print(kComparisonHead));
  }
  for (const Comparison& comparison : comparisons) {
    TRY(print(comparison_row(comparison, flags.get_bool("prompt-shared"), table)));
  }
  return {};
}

}  // namespace

Status check_batched_bench(const ParsedFlags& flags) {
  if (flags.get_bool("break-even")) {
    if (flags.get_string_list("device").size() < 2) {
      return {ErrorCode::kInvalidArgument,
              "--break-even compares placements on several devices; give --device cpu:0,cpu:1"};
    }
    if (flags.given("split-mode")) {
      return {ErrorCode::kInvalidArgument, "--break-even runs layer and tensor; leave --split-mode out"};
    }
    TRY(parse_sim_link(flags.get_string("sim-link")).status());
  }
  ASSIGN_OR_RETURN(const std::vector<Shape> shapes, read_shapes(flags));
  const bool has_both = std::ranges::all_of(shapes, [](const Shape& shape) { return shape.n_gen > 0; });
  if (flags.get_bool("break-even") && !has_both) {
    return {ErrorCode::kInvalidArgument, "--break-even compares generation, too; give -ntg above 0"};
  }
  return {};
}

Status cmd_batched_bench(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<Shape> shapes, read_shapes(flags));
  const bool table = flags.get_string("output-format") == "md";
  if (flags.get_bool("break-even")) {
    return compare_modes(flags, shapes, table);
  }
  ModelOptions options = options_for(flags, shapes);
  TRY(apply_fit(flags, options, false, command_log(flags)));
  bool has_head = !table;
  return time_shapes(flags, options, shapes, [&](const Context& context, const Shape& shape, const Timing& timing) {
    if (!std::exchange(has_head, true)) {
      TRY(print(
          "|    PP |    TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |\n"
          "|-------|-------|------|--------|----------|----------|----------|----------|----------|----------|\n"));
    }
    const Row row = row_of(context, flags, shape, timing);
    return print(table ? row.text : row.jsonl);
  });
}

}  // namespace tessera
