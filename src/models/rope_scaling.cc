#include "models/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>

namespace tessera {
namespace {

constexpr int64_t kMaxRot = 65536;  // no head is wider

Status bad(const char* what, double value, const char* wanted) {
  return {ErrorCode::kInvalidData, fmt::format("rope: {} is {}, but must be {}", what, value, wanted)};
}

bool positive(float x) {
  return std::isfinite(x) && x > 0;
}

double factor_of(const RopeParams& p) {
  return p.scaling == RopeScaling::kNone || p.factor == 0 ? 1.0 : p.factor;
}

double ext_factor_of(const RopeParams& p) {
  if (p.ext_factor < 0) {
    return p.scaling == RopeScaling::kYarn ? 1.0 : 0.0;
  }
  return p.ext_factor;
}

// The pair, as a real number, that turns `turns` times within the original context.
double pair_that_turns(const RopeParams& p, double turns) {
  const auto context = static_cast<double>(p.original_context);
  return static_cast<double>(p.n_rot) * std::log(context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(static_cast<double>(p.freq_base)));
}

double temperature(double factor, double multiplier) {
  return factor <= 1 ? 1.0 : 1 + 0.1 * multiplier * std::log(factor);
}

}  // namespace

Status check_rope(const RopeParams& params) {
  if (params.n_rot < 0 || params.n_rot > kMaxRot || params.n_rot % 2 != 0) {
    return bad("the number of rotated elements", static_cast<double>(params.n_rot), "even and 0 to 65536");
  }
  if (!positive(params.freq_base)) {
    return bad("freq_base", params.freq_base, "above 0");
  }
  if (params.factor != 0 && !positive(params.factor)) {
    return bad("scaling.factor", params.factor, "above 0");
  }
  if (!std::isfinite(params.attn_factor)) {
    return bad("scaling.attn_factor", params.attn_factor, "finite");
  }
  if (!std::isfinite(params.ext_factor)) {
    return bad("scaling.yarn_ext_factor", params.ext_factor, "finite");
  }
  if (ext_factor_of(params) > 0) {
    if (params.freq_base <= 1) {
      return bad("freq_base", params.freq_base, "above 1 with YaRN");
    }
    if (params.original_context < 1) {
      return bad("scaling.original_context_length", static_cast<double>(params.original_context), "at least 1");
    }
    if (!positive(params.beta_fast) || !positive(params.beta_slow)) {
      return bad("scaling.yarn_beta_fast or yarn_beta_slow", std::min(params.beta_fast, params.beta_slow), "above 0");
    }
    if (!std::isfinite(params.yarn_log_multiplier) || params.yarn_log_multiplier < 0) {
      return bad("scaling.yarn_log_multiplier", params.yarn_log_multiplier, "0 or more");
    }
  }
  if (!params.freq_factors.empty() && static_cast<int64_t>(params.freq_factors.size()) != params.n_rot / 2) {
    return bad("the length of rope_freqs", static_cast<double>(params.freq_factors.size()),
               "half the number of rotated elements");
  }
  for (const float f : params.freq_factors) {
    if (!std::isfinite(f) || f == 0) {
      return bad("a divisor in rope_freqs", f, "a finite number other than 0");
    }
  }
  const RopeSetting setting = make_rope(params);
  for (const float f : setting.inv_freq) {
    if (!std::isfinite(f)) {
      return bad("a frequency", f, "finite");
    }
  }
  return std::isfinite(setting.magnitude) ? Status() : bad("the magnitude", setting.magnitude, "finite");
}

RopeSetting make_rope(const RopeParams& params) {
  const double factor = factor_of(params);
  const double ext_factor = ext_factor_of(params);
  const auto n_rot = static_cast<double>(params.n_rot);
  const auto n_pairs = static_cast<size_t>(std::clamp<int64_t>(params.n_rot, 0, kMaxRot) / 2);
  const bool yarn = ext_factor > 0;
  const double low = yarn ? std::max(0.0, std::floor(pair_that_turns(params, params.beta_fast))) : 0;
  const double high = yarn ? std::min(n_rot - 1, std::ceil(pair_that_turns(params, params.beta_slow))) : 0;
  RopeSetting setting;
  for (size_t i = 0; i < n_pairs; ++i) {
    double plain = std::pow(static_cast<double>(params.freq_base), -2.0 * static_cast<double>(i) / n_rot);
    if (i < params.freq_factors.size()) {
      plain /= params.freq_factors[i];
    }
    double kept = 0;  // share of the plain frequency
    if (yarn) {
      const double ramp = (static_cast<double>(i) - low) / std::max(0.001, high - low);
      kept = (1 - std::clamp(ramp, 0.0, 1.0)) * ext_factor;
    }
    setting.inv_freq.push_back(static_cast<float>(plain / factor * (1 - kept) + plain * kept));
  }
  setting.magnitude = params.attn_factor;
  if (yarn) {
    double magnitude = temperature(factor, 1);
    if (params.yarn_log_multiplier > 0) {
      magnitude /= temperature(factor, params.yarn_log_multiplier);
    }
    setting.magnitude *= static_cast<float>(magnitude);
  }
  return setting;
}

}  // namespace tessera
