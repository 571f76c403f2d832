#include "split_measure.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "decode_timer.h"

namespace tessera {
namespace {

constexpr int kRounds = 2;          // the best of two: a pause of the machine spoils one
constexpr int64_t kGenerated = 16;  // tokens generated to find the speed
static_assert(kGenerated < kMeasurableContext);
constexpr double kLongest_ns = 2e9;  // after a prompt that takes this long no longer one is read

std::vector<int64_t> prompt_lengths(const Context& context) {
  const int64_t room = context.options().n_ctx - kGenerated;
  std::vector<int64_t> lengths = {std::min<int64_t>(room, 128)};
  for (const int64_t n : {512, 2048}) {
    if (n <= room) {
      lengths.push_back(n);
    }
  }
  return lengths;
}

// Tokens per second behind a prompt of n_depth tokens.
Result<double> time_generation(DecodeTimer& timer, int64_t n_depth) {
  ASSIGN_OR_RETURN(const double ns, timer.run({0, kGenerated, n_depth}));
  return static_cast<double>(kGenerated) * 1e9 / ns;
}

class SplitMeter {
 public:
  SplitMeter(Model& model, Context& context, std::span<const PlacementRequest, 2> placements,
             TransitionOptions transition, const std::atomic<bool>* interrupted)
      : model_(model),
        timer_(context, interrupted),
        placements_(placements),
        transition_(std::move(transition)),
        lengths_(prompt_lengths(context)) {}

  Result<SplitMeasures> run() {
    SplitMeasures measures;
    TRY(model_.set_placement(placements_[0], transition_).status());
    for (int round = 0; round < kRounds; ++round) {
      for (const size_t split : {0U, 1U}) {
        measures.splits[split].split_mode = placements_[split].split_mode;
        TRY(measure(measures.splits[split]));
        ASSIGN_OR_RETURN(const TransitionReport report, model_.set_placement(placements_[1 - split], transition_));
        const double seconds = report.total_ms / 1000;
        double& best = measures.switch_s[split];
        best = round == 0 ? seconds : std::min(best, seconds);
      }
    }
    for (SplitSpeeds& speeds : measures.splits) {
      std::erase_if(speeds.prefill, [&](const SpeedPoint& point) { return point.n > lengths_.back(); });
    }
    return measures;
  }

 private:
  Status measure(SplitSpeeds& speeds) {
    TRY(timer_.run({1, 0, 0}).status());  // the first decode after a switch touches scratch anew
    for (size_t i = 0; i < lengths_.size(); ++i) {
      ASSIGN_OR_RETURN(const double ns, timer_.run({lengths_[i], 0, 0}));
      note(speeds.prefill, lengths_[i], static_cast<double>(lengths_[i]) * 1e9 / ns);
      if (ns > kLongest_ns) {
        lengths_.resize(i + 1);  // for both splits: a length that one of them lacks could not be compared
      }
    }
    ASSIGN_OR_RETURN(const double tokens_per_s, time_generation(timer_, lengths_.front()));
    note(speeds.generation, 1, tokens_per_s);
    return {};
  }

  static void note(std::vector<SpeedPoint>& points, int64_t n, double tokens_per_s) {
    const auto known = std::ranges::find(points, n, &SpeedPoint::n);
    if (known == points.end()) {
      points.push_back({n, tokens_per_s});
    } else {
      known->tokens_per_s = std::max(known->tokens_per_s, tokens_per_s);
    }
  }

  Model& model_;
  DecodeTimer timer_;
  std::span<const PlacementRequest, 2> placements_;
  const TransitionOptions transition_;
  std::vector<int64_t> lengths_;
};

// As these options, and cancelled once `interrupted` is true.
TransitionOptions stoppable(const TransitionOptions& transition, const std::atomic<bool>* interrupted) {
  TransitionOptions options = transition;
  if (interrupted != nullptr) {
    options.progress = [interrupted, before = transition.progress](double fraction) {
      return !*interrupted && (before == nullptr || before(fraction));
    };
  }
  return options;
}

}  // namespace

Result<SplitMeasures> measure_splits(Model& model, Context& context, std::span<const PlacementRequest, 2> placements,
                                     const TransitionOptions& transition, const std::atomic<bool>* interrupted) {
  return SplitMeter(model, context, placements, stoppable(transition, interrupted), interrupted).run();
}

Result<double> measure_generation(Context& context, const std::atomic<bool>* interrupted) {
  DecodeTimer timer(context, interrupted);
  TRY(timer.run({1, 0, 0}).status());  // touches scratch
  return time_generation(timer, 0);
}

std::string measuring_text(const Context& context) {
  return fmt::format("{} rounds, each under both splits: prompts of {} tokens, and an answer of {}", kRounds,
                     fmt::join(prompt_lengths(context), ", "), kGenerated);
}

std::string measures_text(const SplitMeasures& measures) {
  std::string text = "tokens/s:";
  for (const SplitSpeeds& speeds : measures.splits) {
    text += fmt::format(" {}", speeds.split_mode);
    for (const SpeedPoint& point : speeds.prefill) {
      text += fmt::format(" pp{} {:.1f},", point.n, point.tokens_per_s);
    }
    text += fmt::format(" tg {:.1f};", speeds.generation.front().tokens_per_s);
  }
  return text +
         fmt::format(" switches take {:.1f} and {:.1f} ms", measures.switch_s[0] * 1000, measures.switch_s[1] * 1000);
}

}  // namespace tessera
