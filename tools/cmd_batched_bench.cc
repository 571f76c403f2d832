// `tessera batched-bench`: speed of many sequences that are decoded together: first all prompts, then one token of each
// sequence a step. Columns and JSON names are those of llama-batched-bench.

#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench_lists.h"
#include "commands.h"
#include "common.h"
#include "runtime/context.h"

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
                   {"n_threads", flags.get_uint("threads")},
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
  ASSIGN_OR_RETURN(const auto parallels, parse_numbers("-npl", flags.get_string("parallel"), 1));
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

}  // namespace

Status check_batched_bench(const ParsedFlags& flags) {
  return read_shapes(flags).status();
}

Status cmd_batched_bench(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<Shape> shapes, read_shapes(flags));
  ModelOptions options = model_options(flags);
  for (const Shape& shape : shapes) {
    options.context.n_seq_max =
        std::max(options.context.n_seq_max, static_cast<int32_t>(std::min<int64_t>(shape.n_seqs, 1 << 20)));
    if (!flags.given("ctx-size")) {
      options.context.n_ctx = std::max(options.context.n_ctx, shape.n_prompt + shape.n_gen);
    }
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, load_model(options, command_log(flags)));
  ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::create(model, options.context));
  const bool table = flags.get_string("output-format") == "md";
  if (table) {
    TRY(
        print("|    PP |    TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |\n"
              "|-------|-------|------|--------|----------|----------|----------|----------|----------|----------|\n"));
  }
  BatchedBench bench(*context, flags.get_bool("prompt-shared"));
  TRY(bench.run({std::min<int64_t>(shapes[0].n_prompt, 16), 1, 1}).status());  // warm up
  for (const Shape& shape : shapes) {
    ASSIGN_OR_RETURN(const Timing timing, bench.run(shape));
    const Row row = row_of(*context, flags, shape, timing);
    TRY(print(table ? row.text : row.jsonl));
  }
  return {};
}

}  // namespace tessera
