// Where the model lives: GET /placement tells it, POST /placement changes it while requests run.

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/server.h"

namespace tessera {
namespace {

constexpr double kLongestDeadline_ms = 1e9;

Json or_null(int32_t index) {
  return index < 0 ? Json() : Json(index);
}

// "weight", "expert", "kv", "state", "replica".
std::string_view piece_kind(std::string_view kind) {
  return kind == "attn" || kind == "ffn" || kind == "head" || kind == "host" ? "weight"
         : kind == "rec"                                                     ? "state"
                                                                             : kind;
}

// "blk.0.attn.1", "blk.3.expert.17", "blk.0.kv.1", "head.0", "replica.0", "token_embd.weight".
std::string piece_name(const PlacedPiece& piece) {
  if (!piece.tensor.empty()) {
    return piece.tensor;
  }
  const std::string_view what = piece.kind == "rec" ? "state" : piece.kind;
  const int32_t number = piece.expert >= 0 ? piece.expert : piece.kind == "replica" ? piece.device : piece.cut;
  return piece.layer < 0 ? fmt::format("{}.{}", what, number) : fmt::format("blk.{}.{}.{}", piece.layer, what, number);
}

Json devices_json(const PlacementView& view) {
  constexpr uint64_t kNoBudget = uint64_t{1} << 60;
  Json devices = Json::array();
  for (const DeviceUse& use : view.devices) {
    devices.push_back({{"name", use.name},
                       {"kind", use.name.substr(0, use.name.find(':'))},
                       {"capacity_bytes", use.budget_bytes >= kNoBudget ? Json() : Json(use.budget_bytes)},
                       {"used_bytes", use.used_bytes()},
                       {"weights_bytes", use.weight_bytes},
                       {"kv_bytes", use.kv_bytes},
                       {"state_bytes", use.rec_bytes},
                       {"scratch_bytes", use.scratch_bytes},
                       {"spare_bytes", use.spare_bytes}});
  }
  return devices;
}

Json tiles_json(const PlacementView& view) {
  Json tiles = Json::array();
  for (const PlacedPiece& piece : view.pieces) {
    tiles.push_back({{"name", piece_name(piece)},
                     {"kind", piece_kind(piece.kind)},
                     {"layer", or_null(piece.layer)},
                     {"cut", piece.cut},
                     {"device", piece.device < 0 ? "file" : view.devices[static_cast<size_t>(piece.device)].name},
                     {"bytes", piece.bytes},
                     {"version", view.version}});
  }
  return tiles;
}

Json speeds_json(const std::vector<SpeedPoint>& points) {
  Json json = Json::array();
  for (const SpeedPoint& point : points) {
    json.push_back({point.n, point.tokens_per_s});
  }
  return json;
}

Json policy_json(const PolicyView& policy) {
  Json json = {{"mode", policy.is_on ? "auto" : "off"}};
  if (!policy.measures) {
    return json;
  }
  Json splits = Json::array();
  for (size_t i = 0; i < policy.measures->splits.size(); ++i) {
    const SplitSpeeds& speeds = policy.measures->splits[i];
    splits.push_back({{"split_mode", speeds.split_mode},
                      {"prefill_tokens_per_second", speeds_json(speeds.prefill)},
                      {"generation_tokens_per_second", speeds_json(speeds.generation)},
                      {"switch_ms", policy.measures->switch_s[i] * 1000},
                      {"caution", policy.caution[i]}});
  }
  json.update({{"splits", splits}, {"phase", policy.phase}, {"phase_ms", policy.phase_ms}, {"why", policy.why}});
  return json;
}

Json last_switch_json(const SwitchRecord& record) {
  return {{"from", record.from},
          {"to", record.to},
          {"by", record.by_policy ? "policy" : "request"},
          {"ms", record.report.total_ms},
          {"waited_ms", record.waited_ms},
          {"moved_bytes", record.report.moved_bytes},
          {"error", record.status.ok() ? Json() : Json(record.status.message())}};
}

Json switch_json(const SwitchRecord& record) {
  const TransitionReport& report = record.report;
  Json json = last_switch_json(record);
  json.update({{"version", report.placement_version},
               {"reserve_ms", report.reserve_ms},
               {"move_ms", report.move_ms},
               {"commit_ms", report.commit_ms},
               {"trim_ms", report.trim_ms},
               {"ahead_ms", report.ahead_ms},
               {"stall_ms", report.stall_ms},
               {"ahead_bytes", report.ahead_bytes},
               {"local_bytes", report.local_bytes},
               {"n_moves", report.n_moves},
               {"shares", report.shares},
               {"peak_bytes", report.peak_bytes}});
  return json;
}

Json placement_json(const std::string& model, const LivePlacement& placement) {
  const std::shared_ptr<const PlacementView> view = placement.view();
  const SwitchTotals totals = placement.totals();
  return {{"model", model},
          {"split_mode", view->request.split_mode},
          {"tensor_split", view->request.tensor_split},
          {"cuts", view->n_cuts},
          {"shares", view->shares},
          {"shares_note", view->shares_note.empty() ? Json() : Json(view->shares_note)},
          {"version", view->version},
          {"devices", devices_json(*view)},
          {"tiles", tiles_json(*view)},
          {"policy", policy_json(placement.policy())},
          {"switches",
           {{"count", totals.n_switches},
            {"failed", totals.n_failed},
            {"last", totals.last ? last_switch_json(*totals.last) : Json()}}}};
}

Status read_split_mode(const Fields& fields, std::string& mode) {
  TRY(fields.read("split_mode", mode));
  if (mode != "none" && mode != "layer" && mode != "tensor") {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{} is {}; it must be none, layer or tensor", fields.label("split_mode"), dump_json(mode))};
  }
  return {};
}

// Empty: even. n_devices: 0 where it is not known.
Status read_shares(const Fields& fields, size_t n_devices, std::vector<double>& shares) {
  const Json* found = fields.find("tensor_split");
  if (found == nullptr) {
    return {};
  }
  const std::string wanted = fmt::format("an array of {}numbers from 0 to 1e9, not all 0, one for each device",
                                         n_devices > 0 ? fmt::format("{} ", n_devices) : "");
  if (!found->is_array()) {
    return fields.wrong("tensor_split", *found, wanted);
  }
  shares.clear();
  double sum = 0;
  for (const Json& share : *found) {
    const double value = share.is_number() ? share.get<double>() : std::nan("");
    if (!(value >= 0 && value <= 1e9)) {
      return fields.wrong("tensor_split", share, wanted);
    }
    sum += value;
    shares.push_back(value);
  }
  if (!shares.empty() && ((n_devices > 0 && shares.size() != n_devices) || sum == 0)) {
    return {ErrorCode::kInvalidArgument, fmt::format("{} has {} numbers with the sum {}; it must be {}",
                                                     fields.label("tensor_split"), shares.size(), sum, wanted)};
  }
  return {};
}

// What is left out stays as it is. n_devices: 0 where it is not known.
Result<PlacementWish> read_wish(const Fields& fields, const PlacementRequest& now, size_t n_devices) {
  PlacementWish wish;
  double deadline_ms = 0;
  TRY(fields.read("deadline_ms", deadline_ms, 0, kLongestDeadline_ms));
  wish.deadline_s = deadline_ms / 1000;
  const bool moves = fields.has("split_mode") || fields.has("tensor_split");
  if (const Json* policy = fields.find("policy")) {
    if (*policy != "off" && *policy != "auto") {
      return Status(ErrorCode::kInvalidArgument, fmt::format("{} is {}; it must be \"off\" or \"auto\"",
                                                             fields.label("policy"), dump_json(*policy).substr(0, 40)));
    }
    wish.policy = *policy == "auto";
  } else if (!moves) {
    return Status(ErrorCode::kInvalidArgument, "one of the fields split_mode, tensor_split and policy must be there");
  }
  if (moves && wish.policy == true) {
    return Status(ErrorCode::kInvalidArgument,
                  "field \"policy\" is \"auto\", which chooses the placement; leave split_mode and tensor_split out");
  }
  if (moves) {
    PlacementRequest request = {now.split_mode, now.tensor_split};
    TRY(read_split_mode(fields, request.split_mode));
    TRY(read_shares(fields, n_devices, request.tensor_split));
    wish.placement = std::move(request);
  }
  return wish;
}

// A placement that cannot be had, or not in time: the old one holds.
bool is_conflict(const Status& status) {
  return status.code() == ErrorCode::kDoesNotFit || status.code() == ErrorCode::kOutOfMemory ||
         status.code() == ErrorCode::kDeadlineExceeded;
}

}  // namespace

Status api_placement(Call& call) {
  call.reply_json(placement_json(call.model->name, *call.model->placement));
  return {};
}

Result<LoadPlacement> asked_placement(const Json& body) {
  const Fields fields(body);
  ASSIGN_OR_RETURN(PlacementWish wish, read_wish(fields, {"layer", {}}, 0));
  LoadPlacement placement;
  if (fields.has("split_mode")) {
    placement.split_mode = std::move(wish.placement->split_mode);
  }
  if (fields.has("tensor_split")) {
    placement.tensor_split = std::move(wish.placement->tensor_split);
  }
  return placement;
}

Status api_set_placement(Call& call) {
  ASSIGN_OR_RETURN(const Json body, call.take_body());
  LivePlacement* const placement = call.model->placement.get();
  const std::shared_ptr<const PlacementView> now = placement->view();
  ASSIGN_OR_RETURN(PlacementWish wish, read_wish(Fields(body), now->request, now->devices.size()));
  // With the model, which must not go to make room while somebody waits for its switch.
  const Call later{call.server, line_of(call.request), call.exchange, call.model, call.begun};
  TRY(placement->ask(std::move(wish), [later](const Status& status, const SwitchRecord* record) {
    if (status.ok()) {
      Json json = placement_json(later.model->name, *later.model->placement);
      json["switch"] = record != nullptr ? switch_json(*record) : Json();
      later.reply_json(json);
    } else if (is_conflict(status)) {
      later.exchange->reply(409, "application/json; charset=utf-8",
                            error_body(409, status.message(), asks_anthropic(later.request)));
    } else {
      reply_error(*later.exchange, status, asks_anthropic(later.request));
    }
    later.server.log_request(later.request, later.exchange->status(), later.begun, {});
  }));
  call.logs_itself = true;
  return {};
}

}  // namespace tessera
