#include "runtime/fit.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/units.h"
#include "runtime/fit_search.h"
#include "runtime/memory_plan.h"
#include "runtime/outline.h"
#include "runtime/placement_switch.h"

namespace tessera {
namespace {

constexpr int64_t kContextStep = 256;
// Divisions counted for one context and host part. Only where scratch or a switch alone decides are there more than a
// few.
constexpr int kMostDivisions = 256;
// The smallest lack is found to this many bytes, a unit of the CPU's pools.
constexpr uint64_t kLackStep = 64 << 10;

/// What goes to the host.
struct HostPart {
  int64_t n_expert_layers = 0;  // experts of the layers below
  int64_t n_ffn_layers = 0;     // feed-forward parts of the layers below
  int64_t n_layers = 0;         // layers below as a whole
};

/// One mode in one attempt.
struct Placed {
  Shares shares;
  std::vector<DeviceNeed> needs;  // by device
};

/// What one context and host part are counted with.
struct Attempt {
  ContextOptions context;
  ContextSizes sizes;
  std::vector<uint64_t> room;  // by device
  int n_left = kMostDivisions;
};

struct Choice {
  int n_cuts = 1;
  size_t host = 0;  // index of the host part
  int64_t n_ctx = 0;
  std::vector<Placed> modes;
};

class Fitter {
 public:
  Fitter(ModelState& model, const FitRequest& request) : m_(model), request_(request), options_(request.model) {}

  Result<Fit> run() {
    TRY(prepare());
    ASSIGN_OR_RETURN(std::optional<Choice> choice, best(0));
    if (!choice) {
      return explain();
    }
    return answer(*choice);
  }

 private:
  // Before the search.
  Status prepare();
  Status read_margins();
  void find_host();
  void list_host_parts();
  Status list_cuts();
  [[nodiscard]] bool names_allow_layers() const;
  [[nodiscard]] bool has_ffn(int64_t layer) const {
    return m_.definition.table.layers[static_cast<size_t>(layer)].n_ff > 0;
  }

  // The search. `extra`: bytes added to the room of every device.
  Result<std::optional<Choice>> best(uint64_t extra);
  Result<std::optional<Choice>> first_host_part(int n_cuts, size_t n_parts, uint64_t extra);
  Result<std::optional<Choice>> longest_context(int n_cuts, size_t host, uint64_t extra);
  Result<std::optional<Choice>> try_all_modes(int n_cuts, size_t host, int64_t n_ctx, uint64_t extra);
  Result<bool> place_modes(Attempt& attempt, std::vector<Placed>& placed);
  Result<std::optional<Placed>> try_shares(const Attempt& attempt, const std::vector<Placed>& others,
                                           const Shares& shares);
  [[nodiscard]] ItemCosts costs_of(SplitMode mode, const ContextOptions& context, const ContextSizes& sizes) const;

  // After it.
  Result<Fit> answer(const Choice& choice);
  Result<Fit> explain();
  [[nodiscard]] std::string part_text(const Placement& placement, int32_t device) const;
  [[nodiscard]] std::string flags_of(const Choice& choice, const ModelOptions& found) const;

  [[nodiscard]] ModelOptions options_with(const HostPart& part) const;
  [[nodiscard]] bool is_free(size_t mode) const {
    return modes_[mode] != SplitMode::kNone && request_.modes[mode].tensor_split.empty();
  }
  [[nodiscard]] std::vector<uint64_t> room(uint64_t extra) const {
    std::vector<uint64_t> bytes = room_;
    for (uint64_t& each : bytes) {
      each += extra;
    }
    return bytes;
  }
  [[nodiscard]] static bool within(const std::vector<DeviceNeed>& needs, const std::vector<uint64_t>& room) {
    return std::ranges::equal(needs, room, [](const DeviceNeed& n, uint64_t bytes) { return n.total() <= bytes; });
  }
  /// What device d needs while the model switches.
  [[nodiscard]] uint64_t switch_bytes(const Placed& a, const Placed& b, size_t d) const {
    return larger_of(a.needs[d], b.needs[d]).total() + m_.devices[d].info().unit_bytes;
  }
  [[nodiscard]] Shares even_shares() const {
    Shares shares;
    if (only_overflow_) {
      shares.parts.assign(m_.devices.size(), 1);
      shares.parts[static_cast<size_t>(host_)] = 0;
    }
    return shares;
  }
  /// Context lengths that may be chosen, shortest first: index 0 .. n_contexts() - 1.
  [[nodiscard]] int64_t n_contexts() const {
    const int64_t steps = (n_ctx_most_ + kContextStep - 1) / kContextStep - n_ctx_least_ / kContextStep;
    return n_ctx_most_ == n_ctx_least_ ? 1 : 1 + steps;
  }
  [[nodiscard]] int64_t context_at(int64_t i) const {
    const int64_t first = n_ctx_least_ / kContextStep * kContextStep;
    return i == 0 ? n_ctx_least_ : std::min(n_ctx_most_, first + i * kContextStep);
  }

  ModelState& m_;
  const FitRequest& request_;
  ModelOptions options_;  // as asked for
  std::vector<SplitMode> modes_;
  std::vector<uint64_t> room_;  // by device: budget without margin
  int32_t host_ = -1;           // device; -1: none
  bool only_overflow_ = false;  // the host gets no share
  std::vector<HostPart> host_parts_;
  std::vector<int> cuts_;
  int64_t n_ctx_least_ = 0;
  int64_t n_ctx_most_ = 0;
};

Status Fitter::prepare() {
  for (const FitMode& mode : request_.modes) {
    ASSIGN_OR_RETURN(const SplitMode parsed, parse_split_mode(mode.split_mode));
    modes_.push_back(parsed);
    TRY(check_shares({mode.tensor_split}, m_.n_devices()));
  }
  TRY(read_margins());
  ASSIGN_OR_RETURN(const ContextOptions context, with_context_size(m_, options_.context));
  n_ctx_most_ = context.n_ctx;
  n_ctx_least_ = request_.finds_context ? std::clamp<int64_t>(request_.n_ctx_min, 1, n_ctx_most_) : n_ctx_most_;
  find_host();
  list_host_parts();
  return list_cuts();
}

Status Fitter::read_margins() {
  const std::vector<uint64_t>& margins = request_.margin_bytes;
  if (margins.size() > 1 && margins.size() != m_.devices.size()) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("--fit-target has {} values for {} devices; give one for all or one for each", margins.size(),
                        m_.devices.size())};
  }
  for (size_t d = 0; d < m_.devices.size(); ++d) {
    const uint64_t budget = m_.devices[d].budget_bytes();
    const uint64_t margin = margins.empty() ? 0 : margins[margins.size() == 1 ? 0 : d];
    room_.push_back(budget - std::min(budget, margin));
  }
  return {};
}

void Fitter::find_host() {
  bool has_others = false;
  for (int32_t d = 0; d < m_.n_devices(); ++d) {
    const bool is_cpu = m_.devices[static_cast<size_t>(d)].info().name.starts_with("cpu");
    host_ = is_cpu ? d : host_;
    has_others = has_others || !is_cpu;
  }
  only_overflow_ = has_others && host_ >= 0;
}

/// What may go to the host, least first. Nothing where the user has said what goes there.
void Fitter::list_host_parts() {
  host_parts_ = {{}};
  if (host_ < 0 || m_.n_devices() < 2 || options_.n_cpu_moe > 0 || !options_.override_tensor.empty()) {
    return;
  }
  const auto& layers = m_.definition.table.layers;
  const auto n_layers = static_cast<int64_t>(layers.size());
  HostPart part;
  for (int64_t l = 0; l < n_layers; ++l) {
    if (layers[static_cast<size_t>(l)].n_experts > 0) {
      part.n_expert_layers = l + 1;
      host_parts_.push_back(part);
    }
  }
  if (!names_allow_layers()) {
    return;
  }
  for (int64_t l = 0; part.n_expert_layers == 0 && l < n_layers; ++l) {
    if (has_ffn(l)) {
      part.n_ffn_layers = l + 1;
      host_parts_.push_back(part);
    }
  }
  for (int64_t l = 0; l < n_layers; ++l) {
    part.n_layers = l + 1;
    host_parts_.push_back(part);
  }
}

/// Whether --override-tensor can name a layer, and its feed-forward part, by the beginning of its tensors' names.
bool Fitter::names_allow_layers() const {
  return std::ranges::all_of(m_.definition.table.tensors, [](const TensorSpec& spec) {
    const std::string layer = fmt::format("blk.{}.", spec.layer);
    const bool is_ffn = spec.name.starts_with(layer + "ffn_");
    switch (spec.tile) {
      case TileKind::kAttn: return spec.name.starts_with(layer) && !is_ffn;
      case TileKind::kFfn: return is_ffn;
      case TileKind::kExpert: return spec.name.starts_with(layer);
      case TileKind::kHead: return !spec.name.starts_with("blk.");
      case TileKind::kReplica:
      case TileKind::kHost: break;
    }
    return true;
  });
}

/// Fewest cuts first.
Status Fitter::list_cuts() {
  const std::vector<double>& given = request_.modes.front().tensor_split;
  ASSIGN_OR_RETURN(const int fewest, cuts_of(m_, options_, given.empty() ? even_shares() : Shares{given}));
  cuts_ = {fewest};
  bool cuts_matter = false;
  for (size_t mode = 0; mode < modes_.size(); ++mode) {
    cuts_matter = cuts_matter || (modes_[mode] == SplitMode::kTensor && is_free(mode));
  }
  cuts_matter = cuts_matter && m_.n_devices() - (only_overflow_ ? 1 : 0) > 1;
  while (cuts_matter && options_.n_cuts == 0 && given.empty() && cuts_.back() < kMaxCuts) {
    cuts_.push_back(cuts_.back() + 1);
  }
  return {};
}

ModelOptions Fitter::options_with(const HostPart& part) const {
  ModelOptions options = options_;
  options.n_cpu_moe = std::max(options.n_cpu_moe, part.n_expert_layers);
  std::vector<int64_t> layers(static_cast<size_t>(part.n_layers));
  std::iota(layers.begin(), layers.end(), 0);
  std::vector<int64_t> ffn_layers;
  for (int64_t l = part.n_layers; l < part.n_ffn_layers; ++l) {
    if (has_ffn(l)) {
      ffn_layers.push_back(l);
    }
  }
  for (const auto& [list, what] : {std::pair(&layers, ""), std::pair(&ffn_layers, "ffn_")}) {
    if (!list->empty()) {
      options.override_tensor.push_back(fmt::format("^blk\\.({})\\.{}={}", fmt::join(*list, "|"), what,
                                                    m_.devices[static_cast<size_t>(host_)].info().name));
    }
  }
  return options;
}

Result<std::optional<Choice>> Fitter::best(uint64_t extra) {
  std::optional<Choice> best;
  size_t n_parts = host_parts_.size();
  for (const int n_cuts : cuts_) {
    TRY(cut_model(m_, n_cuts));
    ASSIGN_OR_RETURN(std::optional<Choice> choice, first_host_part(n_cuts, n_parts, extra));
    if (choice && (!best || choice->host < best->host || choice->n_ctx > best->n_ctx)) {
      best = std::move(choice);
      n_parts = best->host + 1;
    }
    if (best && best->host == 0 && best->n_ctx == n_ctx_most_) {
      break;  // more cuts cannot do better
    }
  }
  return best;
}

/// With these cuts: the least part of the first n_parts that lets the model fit, and the longest context with it.
Result<std::optional<Choice>> Fitter::first_host_part(int n_cuts, size_t n_parts, uint64_t extra) {
  for (size_t host = 0; host < n_parts; ++host) {
    TRY(fix_homes(m_, options_with(host_parts_[host])));
    ASSIGN_OR_RETURN(std::optional<Choice> choice, longest_context(n_cuts, host, extra));
    if (choice) {
      return choice;
    }
  }
  return std::optional<Choice>();
}

Result<std::optional<Choice>> Fitter::longest_context(int n_cuts, size_t host, uint64_t extra) {
  ASSIGN_OR_RETURN(std::optional<Choice> choice, try_all_modes(n_cuts, host, n_ctx_most_, extra));
  if (choice || n_contexts() == 1) {
    return choice;
  }
  ASSIGN_OR_RETURN(choice, try_all_modes(n_cuts, host, n_ctx_least_, extra));
  int64_t low = 0;  // fits
  int64_t high = n_contexts() - 1;
  while (choice && low + 1 < high) {
    const int64_t middle = low + (high - low) / 2;
    ASSIGN_OR_RETURN(std::optional<Choice> longer, try_all_modes(n_cuts, host, context_at(middle), extra));
    (longer ? low : high) = middle;
    if (longer) {
      choice = std::move(longer);
    }
  }
  return choice;
}

Result<std::optional<Choice>> Fitter::try_all_modes(int n_cuts, size_t host, int64_t n_ctx, uint64_t extra) {
  ContextOptions wanted = options_.context;
  wanted.n_ctx = n_ctx;
  Attempt attempt;
  ASSIGN_OR_RETURN(attempt.context, with_context_size(m_, wanted));
  ASSIGN_OR_RETURN(attempt.sizes, context_sizes(m_, attempt.context));
  attempt.room = room(extra);
  Choice choice{n_cuts, host, n_ctx, {}};
  ASSIGN_OR_RETURN(const bool found, place_modes(attempt, choice.modes));
  return found ? std::optional(std::move(choice)) : std::nullopt;
}

/// Finds shares for the modes behind those that are placed. Returns whether there are any; if not, nothing changed.
Result<bool> Fitter::place_modes(Attempt& attempt, std::vector<Placed>& placed) {
  const size_t mode = placed.size();
  if (mode == modes_.size()) {
    return true;
  }
  bool found = false;
  Status failed;
  const auto ends_with = [&](const Shares& shares) {
    Result<std::optional<Placed>> tried = try_shares(attempt, placed, shares);
    failed = tried.status();
    if (tried.ok() && *tried) {
      placed.push_back(std::move(**tried));
      const Result<bool> rest = place_modes(attempt, placed);
      failed = rest.status();
      found = rest.ok() && *rest;
      if (!found) {
        placed.pop_back();
      }
    }
    return found || !failed.ok() || --attempt.n_left <= 0;
  };
  if (!ends_with(is_free(mode) ? even_shares() : Shares{request_.modes[mode].tensor_split}) && is_free(mode)) {
    (void)find_division(costs_of(modes_[mode], attempt.context, attempt.sizes), attempt.room,
                        [&](const std::vector<int>& counts) { return ends_with({{counts.begin(), counts.end()}}); });
  }
  TRY(failed);
  return found;
}

/// The needs of the mode behind `others` with these shares, for the cuts and the host part at hand; nothing where they,
/// or those of a switch from one of the others, exceed the room.
Result<std::optional<Placed>> Fitter::try_shares(const Attempt& attempt, const std::vector<Placed>& others,
                                                 const Shares& shares) {
  place_model(m_, make_placement(m_.tiles, modes_[others.size()], shares, m_.placement_target(), 1));
  Placed placed{shares, needs_without_scratch(m_, attempt.context, attempt.sizes)};
  if (within(placed.needs, attempt.room)) {
    ASSIGN_OR_RETURN(placed.needs, memory_needs(m_, attempt.context, attempt.sizes));
  }
  bool fits = within(placed.needs, attempt.room);
  for (const Placed& other : others) {
    for (size_t d = 0; d < attempt.room.size(); ++d) {
      fits = fits && switch_bytes(other, placed, d) <= attempt.room[d];
    }
  }
  return fits ? std::optional(std::move(placed)) : std::nullopt;
}

/// Bytes of layers (layer) or cuts (tensor) on each device, scratch left out: no division needs less.
ItemCosts Fitter::costs_of(SplitMode mode, const ContextOptions& context, const ContextSizes& sizes) const {
  const size_t n_devices = m_.devices.size();
  const size_t n_items = mode == SplitMode::kLayer ? m_.tiles.attn_cuts.size() : static_cast<size_t>(m_.tiles.n_cuts);
  ItemCosts costs;
  costs.sums.assign(n_devices, std::vector<uint64_t>(n_items + 1, 0));
  costs.base.assign(n_devices, 0);
  costs.tail.assign(n_devices, 0);
  for (size_t d = 0; d < n_devices; ++d) {
    costs.start.push_back(round_up(m_.replicas.bytes, m_.devices[d].info().unit_bytes));
    costs.closed.push_back(only_overflow_ && static_cast<int32_t>(d) == host_);
  }
  const auto add = [&](size_t tile_index, const std::function<uint64_t(size_t device)>& bytes) {
    const Tile& tile = m_.tiles.tiles[tile_index];
    const int32_t fixed = m_.fixed_home[tile_index];
    for (size_t d = 0; d < n_devices; ++d) {
      const uint64_t whole = round_up(bytes(d), m_.devices[d].info().unit_bytes);
      if (fixed >= 0) {
        costs.base[d] += std::cmp_equal(fixed, d) ? whole : 0;
      } else if (mode == SplitMode::kLayer && tile.layer < 0) {
        costs.tail[d] += whole;
      } else {
        costs.sums[d][static_cast<size_t>(mode == SplitMode::kLayer ? tile.layer : tile.cut) + 1] += whole;
      }
    }
  };
  for (size_t t = 0; t < m_.tiles.tiles.size(); ++t) {
    add(t, [&](size_t d) { return m_.weights[d].tile_layouts[t].bytes; });
  }
  const std::vector<uint64_t> kv = kv_tile_bytes(m_, context, sizes);
  const std::vector<uint64_t> rec = rec_slot_bytes(m_);
  for (size_t i = 0; i < kv.size() + rec.size(); ++i) {
    const size_t state = i < kv.size() ? i : i - kv.size();
    const uint64_t bytes = i < kv.size() ? kv[state] : rec[state] * static_cast<uint64_t>(context.n_seq_max);
    if (bytes > 0) {
      const auto n_cuts = static_cast<size_t>(m_.tiles.n_cuts);
      const int tile =
          m_.tiles.find(TileKind::kAttn, static_cast<int32_t>(state / n_cuts), static_cast<int>(state % n_cuts));
      add(static_cast<size_t>(tile), [&](size_t) { return bytes; });
    }
  }
  for (std::vector<uint64_t>& sums : costs.sums) {
    std::partial_sum(sums.begin(), sums.end(), sums.begin());
  }
  return costs;
}

Result<Fit> Fitter::answer(const Choice& choice) {
  Fit fit;
  fit.modes = request_.modes;
  fit.devices.resize(m_.devices.size());
  TRY(cut_model(m_, choice.n_cuts));
  ModelOptions found = options_with(host_parts_[choice.host]);
  TRY(fix_homes(m_, found));
  for (size_t mode = modes_.size(); mode-- > 0;) {  // the first is the last one placed
    const Placed& placed = choice.modes[mode];
    fit.modes[mode].tensor_split = placed.shares.parts;
    place_model(m_, make_placement(m_.tiles, modes_[mode], placed.shares, m_.placement_target(), 1));
    for (size_t d = 0; d < fit.devices.size(); ++d) {
      FitDevice& device = fit.devices[d];
      device.needs.insert(device.needs.begin(), placed.needs[d]);
      device.parts.insert(device.parts.begin(), part_text(m_.placement, static_cast<int32_t>(d)));
    }
  }
  for (size_t d = 0; d < fit.devices.size(); ++d) {
    fit.devices[d].name = m_.devices[d].info().name;
    fit.devices[d].budget_bytes = m_.devices[d].budget_bytes();
    found.device_memory.resize(fit.devices.size());
    found.device_memory[d] = fit.devices[d].budget_bytes;  // also where the machine's free memory gave it
  }
  found.split_mode = request_.modes.front().split_mode;
  found.tensor_split = fit.modes.front().tensor_split;
  found.context.n_ctx = choice.n_ctx;
  ASSIGN_OR_RETURN(const int default_cuts, cuts_of(m_, options_, Shares{found.tensor_split}));
  found.n_cuts = choice.n_cuts == default_cuts ? options_.n_cuts : choice.n_cuts;
  fit.flags = flags_of(choice, found);
  fit.model = std::move(found);
  return fit;
}

/// "layers 0-16 of 24", "cuts 0-2 of 4", and what else a device holds.
std::string Fitter::part_text(const Placement& placement, int32_t device) const {
  std::vector<bool> layers(m_.tiles.attn_cuts.size());
  std::vector<bool> cuts(static_cast<size_t>(m_.tiles.n_cuts));
  for (size_t t = 0; t < m_.tiles.tiles.size(); ++t) {
    const Tile& tile = m_.tiles.tiles[t];
    if (placement.home[t] == device && tile.layer >= 0) {
      layers[static_cast<size_t>(tile.layer)] = true;
      cuts[static_cast<size_t>(tile.cut)] = true;
    }
  }
  const auto n_layers = std::ranges::count(layers, true);
  const auto n_cuts = std::ranges::count(cuts, true);
  if (n_layers == 0) {
    return placement.uses(device) ? "the head" : "nothing";
  }
  if (std::cmp_equal(n_cuts, cuts.size())) {
    return fmt::format("{} of {} layers", n_layers, layers.size());
  }
  return fmt::format("{} of {} cuts of {} layers", n_cuts, cuts.size(), n_layers);
}

std::string Fitter::flags_of(const Choice& choice, const ModelOptions& found) const {
  std::string flags;
  if (found.context.n_ctx != n_ctx_most_) {
    flags += fmt::format(" --ctx-size {}", found.context.n_ctx);
  }
  for (size_t mode = 0; mode < modes_.size(); ++mode) {
    if (is_free(mode) && !choice.modes[mode].shares.parts.empty()) {
      flags +=
          fmt::format(" --{}tensor-split {}", mode == 0 ? "" : "to-", fmt::join(choice.modes[mode].shares.parts, ","));
    }
  }
  if (found.n_cuts != options_.n_cuts) {
    flags += fmt::format(" --cuts {}", found.n_cuts);
  }
  if (found.n_cpu_moe != options_.n_cpu_moe) {
    flags += fmt::format(" --n-cpu-moe {}", found.n_cpu_moe);
  }
  for (size_t i = options_.override_tensor.size(); i < found.override_tensor.size(); ++i) {
    flags += fmt::format(" --override-tensor '{}'", found.override_tensor[i]);
  }
  return flags.empty() ? flags : flags.substr(1);
}

/// Why nothing fits: the least that every device would have to have more.
Result<Fit> Fitter::explain() {
  n_ctx_most_ = n_ctx_least_;
  uint64_t too_little = 0;
  uint64_t enough = kLackStep;
  std::optional<Choice> choice;
  while (!choice) {
    ASSIGN_OR_RETURN(choice, best(enough));
    if (!choice) {
      too_little = enough;
      enough *= 2;
    }
  }
  while (enough - too_little > kLackStep) {
    const uint64_t middle = too_little + (enough - too_little) / 2 / kLackStep * kLackStep;
    ASSIGN_OR_RETURN(std::optional<Choice> less, best(middle));
    (less ? enough : too_little) = middle;
    if (less) {
      choice = std::move(less);
    }
  }
  std::string lacking;
  const auto add_lack = [&](size_t d, uint64_t needed, const std::string& when) {
    if (needed > room_[d]) {
      lacking += fmt::format("{}{} needs {:.1f} MiB {} and has {:.1f}", lacking.empty() ? "" : "; ",
                             m_.devices[d].info().name, mib(needed), when, mib(room_[d]));
    }
  };
  for (size_t mode = 0; mode < modes_.size(); ++mode) {
    const std::string& name = request_.modes[mode].split_mode;
    for (size_t d = 0; d < room_.size(); ++d) {
      add_lack(d, choice->modes[mode].needs[d].total(), "under " + name);
      for (size_t other = 0; other < mode; ++other) {
        add_lack(d, switch_bytes(choice->modes[other], choice->modes[mode], d),
                 fmt::format("in a switch between {} and {}", request_.modes[other].split_mode, name));
      }
    }
  }
  return Status(
      ErrorCode::kDoesNotFit,
      fmt::format("nothing fits with a context of {} tokens; the smallest lack is {:.1f} MiB on a device: {}. "
                  "Raise --device-memory, or lower {}",
                  n_ctx_least_, mib(enough), lacking, request_.to_lower));
}

}  // namespace

Result<std::vector<FitDevice>> count_model(const ModelOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelState> model, open_outline(options));
  TRY(place_by_options(*model, options));
  ASSIGN_OR_RETURN(const ContextOptions context, with_context_size(*model, options.context));
  ASSIGN_OR_RETURN(const ContextSizes sizes, context_sizes(*model, context));
  ASSIGN_OR_RETURN(const std::vector<DeviceNeed> needs, memory_needs(*model, context, sizes));
  TRY(check_fit(*model, needs));
  std::vector<FitDevice> devices;
  for (size_t d = 0; d < needs.size(); ++d) {
    devices.push_back({model->devices[d].info().name, model->devices[d].budget_bytes(), {needs[d]}, {}});
  }
  return devices;
}

Result<Fit> fit_outline(ModelState& model, const FitRequest& request) {
  return Fitter(model, request).run();
}

Result<Fit> fit_model(const FitRequest& request) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelState> model, open_outline(request.model));
  return fit_outline(*model, request);
}

}  // namespace tessera
