// `tessera perplexity`: how well a model predicts a text, as the reference engine measures it. The text's tokens are
// cut into chunks of --ctx-size that do not overlap; each begins with an empty context, and where the model wants a
// begin token it stands in for the chunk's first. Scored are the ids behind the middle one: 257..511 of 512.

#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "common.h"
#include "fit_flags.h"
#include "logit_stats.h"
#include "report.h"
#include "runtime/context.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

class Perplexity {
 public:
  Perplexity(const ParsedFlags& flags, Context& context)
      : json_(flags.get_bool("json")),
        n_chunks_max_(flags.get_int("chunks")),
        log_(command_log(flags)),
        context_(context) {}

  Status run(std::span<const int32_t> tokens) {
    const auto n_ctx = static_cast<size_t>(context_.options().n_ctx);
    if (n_chunks_max_ >= 0 && std::cmp_less(n_chunks_max_, tokens.size() / n_ctx)) {
      tokens = tokens.first(static_cast<size_t>(n_chunks_max_) * n_ctx);
    }
    for (size_t begin = 0; begin + n_ctx <= tokens.size(); begin += n_ctx) {
      TRY(score_chunk(tokens.subspan(begin, n_ctx)));
      running_.push_back(std::exp(sum_ / static_cast<double>(n_scored_)));
      if (!json_) {
        TRY(print(fmt::format("chunk {:4}  perplexity {:.4f}\n", running_.size(), running_.back())));
      }
      tell_time_left(tokens.size() / n_ctx);
    }
    return report();
  }

 private:
  // How long the rest takes if it goes on as so far.
  void tell_time_left(size_t n_chunks) const {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - started_;
    const auto n_done = static_cast<double>(running_.size());
    log_.detail(fmt::format("chunk {} of {}; about {:.0f} s to go", running_.size(), n_chunks,
                            passed.count() / n_done * (static_cast<double>(n_chunks) - n_done)));
  }

  Status score_chunk(std::span<const int32_t> chunk) {
    TRY(context_.clear());
    const Tokenizer& tokenizer = context_.model().tokenizer();
    const size_t first = chunk.size() / 2;  // its logits are the first to be scored, against the id after it
    std::vector<BatchToken> batch;
    for (size_t i = 0; i < chunk.size(); ++i) {
      batch.push_back({chunk[i], 0, i >= first && i + 1 < chunk.size()});
    }
    if (tokenizer.add_bos() && tokenizer.bos()) {
      batch[0].token = *tokenizer.bos();
    }
    const auto n_batch = static_cast<size_t>(context_.options().n_batch);
    for (size_t begin = 0; begin < batch.size(); begin += n_batch) {
      const auto piece = std::span(batch).subspan(begin, std::min(n_batch, batch.size() - begin));
      TRY(context_.decode(piece));
      int64_t output = 0;
      for (size_t i = 0; i < piece.size(); ++i) {
        if (piece[i].wants_logits) {
          score(context_.logits(output++), chunk[begin + i + 1]);
        }
      }
    }
    return {};
  }

  void score(std::span<const float> row, int32_t next) {
    const double surprise = logit_stats(row).lse - static_cast<double>(row[static_cast<size_t>(next)]);
    sum_ += surprise;
    squares_ += surprise * surprise;
    ++n_scored_;
  }

  Status report() const {
    const auto n = static_cast<double>(n_scored_);
    const double mean = sum_ / n;
    const double variance = std::max(squares_ / n - mean * mean, 0.0);
    if (!std::isfinite(mean)) {
      return {ErrorCode::kInvalidData, "the model's logits are no numbers; the file is damaged, or its type overflows"};
    }
    const double perplexity = std::exp(mean);
    const double error = n_scored_ > 1 ? std::sqrt(variance / (n - 1)) * perplexity : 0;  // of the mean, as a factor
    if (!json_) {
      // The second line is llama.cpp's, which scripts look for.
      return print(fmt::format("perplexity {:.4f} +/- {:.4f} over {} tokens\nFinal estimate: PPL = {:.4f} +/- {:.5f}\n",
                               perplexity, error, n_scored_, perplexity, error));
    }
    const Json report = {{"ppl", perplexity},
                         {"error", error},
                         {"ctx", context_.options().n_ctx},
                         {"n_chunks", running_.size()},
                         {"n_scored", n_scored_},
                         {"running_ppl_by_chunk", running_},
                         {"placement", Json::parse(placement_json(context_.model()))},
                         {"devices", Json::parse(devices_json(context_.model()))}};
    return print(report.dump() + "\n");
  }

  bool json_;
  int64_t n_chunks_max_;  // -1: all
  const Log log_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  Context& context_;
  double sum_ = 0;  // of negative log-probabilities
  double squares_ = 0;
  int64_t n_scored_ = 0;
  std::vector<double> running_;  // perplexity after each chunk
};

}  // namespace

Status check_perplexity(const ParsedFlags& flags) {
  if (flags.get_int("chunks") == 0) {
    return {ErrorCode::kInvalidArgument, "--chunks 0 scores nothing; give at least 1, or -1 for all"};
  }
  return {};
}

Status cmd_perplexity(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const std::string text, read_input(flags.get_string("file")));
  ModelOptions options = model_options(flags);
  options.needs_text = true;
  const Log log = command_log(flags);
  TRY(apply_fit(flags, options, false, log));
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, load_model(options, log));
  const std::vector<int32_t> tokens = model->tokenizer().encode(text, {.parse_special = false, .add_special = true});
  if (std::cmp_less(tokens.size(), options.context.n_ctx)) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("the text has {} tokens and one chunk {}; give more text or lower --ctx-size", tokens.size(),
                        options.context.n_ctx)};
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::create(model, options.context));
  return Perplexity(flags, *context).run(tokens);
}

}  // namespace tessera
