// `tessera plan`: what a switch between two placements would move, need and take. Only the head of the model file is
// read.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "common.h"
#include "fit_flags.h"
#include "link_flag.h"
#include "report.h"
#include "runtime/switch_plan.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Result<SwitchRequest> read_request(const ParsedFlags& flags) {
  SwitchRequest request;
  request.model = placement_options(flags);
  request.model.split_mode = flags.get_string("from");
  request.to_mode = flags.get_string("to");
  request.to_split =
      flags.given("to-tensor-split") ? flags.get_float_list("to-tensor-split") : request.model.tensor_split;
  request.n_kv_tokens = static_cast<int64_t>(flags.get_uint("kv-tokens"));
  request.staging_bytes = flags.get_bytes("transition-staging");
  ASSIGN_OR_RETURN(const SimulatedLinks links, parse_sim_link(flags.get_string("sim-link")));
  request.link = {links.bytes_per_second, links.seconds_per_copy};
  request.local = {links.local_bytes_per_second, links.local_seconds_per_copy};
  return request;
}

struct Totals {
  int64_t n_staged = 0;
  uint64_t crossing_bytes = 0;  // between devices
  uint64_t local_bytes = 0;
};

Totals totals_of(const SwitchPlan& plan) {
  Totals totals;
  for (const Move& move : plan.plan.moves) {
    totals.n_staged += move.to_staging ? 1 : 0;
    (move.from.device == move.to.device ? totals.local_bytes : totals.crossing_bytes) += move.bytes;
  }
  return totals;
}

const std::string& device_name(const SwitchPlan& plan, int32_t device) {
  return plan.devices[static_cast<size_t>(device)].name;
}

Json need_json(const DeviceNeed& need) {
  return {{"weight_bytes", need.weight_bytes},
          {"kv_bytes", need.kv_bytes},
          {"rec_bytes", need.rec_bytes},
          {"scratch_bytes", need.scratch_bytes},
          {"total_bytes", need.total()}};
}

Json move_json(const SwitchPlan& plan, const Move& move) {
  const SwitchExtent& what = plan.extents[static_cast<size_t>(move.extent)];
  Json json = {{"kind", what.kind}};
  for (const auto& [name, index] : {std::pair("layer", what.layer), {"cut", what.cut}, {"expert", what.expert}}) {
    if (index >= 0) {
      json[name] = index;
    }
  }
  json.update({{"offset", move.extent_offset},
               {"bytes", move.bytes},
               {"from", device_name(plan, move.from.device)},
               {"from_offset", move.from.offset},
               {"from_staging", move.from_staging},
               {"to", device_name(plan, move.to.device)},
               {"to_offset", move.to.offset},
               {"to_staging", move.to_staging},
               {"after", move.after}});
  return json;
}

std::string plan_json(const SwitchRequest& request, const SwitchPlan& plan, bool with_moves) {
  Json devices = Json::array();
  for (const SwitchDevice& device : plan.devices) {
    devices.push_back({{"name", device.name},
                       {"budget_bytes", device.budget_bytes},
                       {"from", need_json(device.from)},
                       {"to", need_json(device.to)},
                       {"peak_bytes", device.peak_bytes},
                       {"staging_bytes", device.staging_bytes}});
  }
  Json links = Json::array();
  for (const LinkUse& link : plan.links) {
    links.push_back({{"from", device_name(plan, link.from)},
                     {"to", device_name(plan, link.to)},
                     {"bytes", link.bytes},
                     {"n_moves", link.n_moves}});
  }
  const Totals totals = totals_of(plan);
  Json report = {{"from", request.model.split_mode},
                 {"to", request.to_mode},
                 {"n_cuts", plan.n_cuts},
                 {"n_moves", plan.plan.moves.size()},
                 {"n_staged", totals.n_staged},
                 {"moved_bytes", totals.crossing_bytes},
                 {"local_bytes", totals.local_bytes},
                 {"n_steps", plan.plan.n_steps},
                 {"predicted_ms", plan.seconds * 1e3},
                 {"links", links},
                 {"devices", devices}};
  if (with_moves) {
    report["moves"] = Json::array();
    for (const Move& move : plan.plan.moves) {
      report["moves"].push_back(move_json(plan, move));
    }
  }
  return report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string extent_name(const SwitchExtent& what) {
  std::string name(what.kind);
  for (const auto& [word, index] : {std::pair("layer", what.layer), {"cut", what.cut}, {"expert", what.expert}}) {
    name += index < 0 ? "" : fmt::format(" {} {}", word, index);
  }
  return name;
}

std::string moves_table(const SwitchPlan& plan) {
  std::vector<std::vector<std::string>> rows = {{"what", "at byte", "bytes", "from", "to", "after"}};
  const auto place = [&](const PoolPosition& position, bool staging) {
    return fmt::format("{}{}+{}", device_name(plan, position.device), staging ? " staging" : "", position.offset);
  };
  for (const Move& move : plan.plan.moves) {
    rows.push_back({extent_name(plan.extents[static_cast<size_t>(move.extent)]), std::to_string(move.extent_offset),
                    std::to_string(move.bytes), place(move.from, move.from_staging), place(move.to, move.to_staging),
                    fmt::format("{}", fmt::join(move.after, ","))});
  }
  return format_table(rows);
}

std::string plan_text(const SwitchRequest& request, const SwitchPlan& plan, bool with_moves) {
  const std::string& from = request.model.split_mode;
  const std::string& to = request.to_mode;
  std::vector<std::vector<std::string>> devices = {
      {"device", from + " MiB", to + " MiB", "switch MiB", "of it staging", "budget MiB"}};
  for (const SwitchDevice& device : plan.devices) {
    devices.push_back({device.name, mib_cell(device.from.total()), mib_cell(device.to.total()),
                       mib_cell(device.peak_bytes), mib_cell(device.staging_bytes), mib_cell(device.budget_bytes)});
  }
  const Totals totals = totals_of(plan);
  std::string text = fmt::format("{} -> {}, {} cut{}, {} tokens in the KV cache\n\n{}\n", from, to, plan.n_cuts,
                                 plan.n_cuts == 1 ? "" : "s", request.n_kv_tokens, format_table(devices));
  if (plan.plan.moves.empty()) {
    const bool is_alone = plan.devices.size() == 1;
    return text + (is_alone ? "nothing moves: there is one device; name several, such as --device cpu:0,cpu:1\n"
                            : "nothing moves\n");
  }
  std::vector<std::vector<std::string>> links = {{"link", "moves", "MiB"}};
  for (const LinkUse& link : plan.links) {
    links.push_back({link.from == link.to
                         ? "within " + device_name(plan, link.from)
                         : fmt::format("{} -> {}", device_name(plan, link.from), device_name(plan, link.to)),
                     std::to_string(link.n_moves), mib_cell(link.bytes)});
  }
  text += format_table(links) + "\n";
  text += fmt::format("{} moves, {} of them to staging first; {} MiB cross, {} MiB move within a device\n",
                      plan.plan.moves.size(), totals.n_staged, mib_cell(totals.crossing_bytes),
                      mib_cell(totals.local_bytes));
  text += fmt::format("predicted: {:.2f} ms at {:.1f} GB/s and {:.1f} us a copy\n", plan.seconds * 1e3,
                      request.link.bytes_per_second / 1e9, request.link.seconds_per_copy * 1e6);
  return with_moves ? text + "\n" + moves_table(plan) : text;
}

}  // namespace

Status check_plan(const ParsedFlags& flags) {
  return read_request(flags).status();
}

Status cmd_plan(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(SwitchRequest request, read_request(flags));
  const Log log = command_log(flags);
  const std::vector<FitMode> modes = {{request.model.split_mode, request.model.tensor_split},
                                      {request.to_mode, request.to_split}};
  ASSIGN_OR_RETURN(const Fit fit, fit_by_flags(flags, request.model, modes, true, log));
  request.model = fit.model;
  request.to_split = fit.modes[1].tensor_split;
  ASSIGN_OR_RETURN(const SwitchPlan plan, plan_switch(request, log));
  const bool with_moves = flags.get_bool("moves");
  return print(flags.get_bool("json") ? plan_json(request, plan, with_moves) : plan_text(request, plan, with_moves));
}

}  // namespace tessera
