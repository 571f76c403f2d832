#include "fit_flags.h"

#include <fmt/format.h>

#include "base/units.h"

namespace tessera {
namespace {

// Left free on every device whose budget is what the machine happens to have: others want memory, too.
constexpr uint64_t kDefaultMarginBytes = uint64_t{1} << 30;

void report(const Fit& fit, const Log& log) {
  log.info(fmt::format("fit: a context of {} tokens{}", fit.model.context.n_ctx,
                       fit.flags.empty() ? "; nothing else had to be chosen" : "; the same as " + fit.flags));
  for (const FitDevice& device : fit.devices) {
    std::string line = fmt::format("fit: {}: ", device.name);
    for (size_t mode = 0; mode < fit.modes.size(); ++mode) {
      const DeviceNeed& need = device.needs[mode];
      line += fmt::format("{}{}: {}, {:.1f} MiB (weights {:.1f}, KV cache {:.1f}, {}scratch {:.1f})",
                          mode == 0 ? "" : "; ", fit.modes[mode].split_mode, device.parts[mode], mib(need.total()),
                          mib(need.weight_bytes), mib(need.kv_bytes),
                          need.rec_bytes == 0 ? "" : fmt::format("recurrent state {:.1f}, ", mib(need.rec_bytes)),
                          mib(need.scratch_bytes));
    }
    log.info(line + fmt::format(" of {:.1f}", mib(device.budget_bytes)));
  }
}

}  // namespace

std::vector<uint64_t> fit_margins(const ParsedFlags& flags) {
  if (!flags.given("fit-target")) {
    return flags.given("device-memory") ? std::vector<uint64_t>() : std::vector<uint64_t>{kDefaultMarginBytes};
  }
  std::vector<uint64_t> margins;
  for (const uint64_t margin_mib : flags.get_uint_list("fit-target")) {
    margins.push_back(margin_mib << 20);
  }
  return margins;
}

Result<Fit> fit_by_flags(const ParsedFlags& flags, const ModelOptions& options, const std::vector<FitMode>& modes,
                         bool finds_context, const Log& log) {
  if (flags.get_string("fit") == "off") {
    Fit fit;
    fit.model = options;
    fit.modes = modes;
    return fit;
  }
  FitRequest request;
  request.model = options;
  request.modes = modes;
  if (finds_context && (!flags.given("ctx-size") || flags.get_uint("ctx-size") == 0)) {
    request.finds_context = true;
    request.n_ctx_min = static_cast<int64_t>(flags.get_uint("fit-ctx"));
    request.model.context.n_ctx = 0;
    request.to_lower = "--fit-ctx or --ubatch-size";
  }
  request.margin_bytes = fit_margins(flags);
  ASSIGN_OR_RETURN(Fit fit, fit_model(request));
  report(fit, log);
  return fit;
}

Status apply_fit(const ParsedFlags& flags, ModelOptions& options, bool finds_context, const Log& log) {
  ASSIGN_OR_RETURN(Fit fit,
                   fit_by_flags(flags, options, {{options.split_mode, options.tensor_split}}, finds_context, log));
  options = std::move(fit.model);
  return {};
}

}  // namespace tessera
