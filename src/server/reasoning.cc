#include "server/reasoning.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

constexpr std::string_view kLegacy = "deepseek-legacy";

Status check_format(std::string_view format, std::string_view label) {
  if (format == "none" || format == "auto" || format == "deepseek" || format == kLegacy) {
    return {};
  }
  return {ErrorCode::kInvalidArgument, fmt::format(R"({} is "{}"; known are none, auto, deepseek and deepseek-legacy)",
                                                   label, format.substr(0, 40))};
}

// gpt-oss was trained with three.
std::string_view gpt_oss_effort(std::string_view effort) {
  return effort == "none" || effort == "minimal" ? "low" : effort == "xhigh" || effort == "max" ? "high" : effort;
}

}  // namespace

Status check_reasoning(const ReasoningDefaults& defaults) {
  TRY(check_format(defaults.format, "--reasoning-format"));
  if (defaults.template_kwargs.empty() || parse_json_object(defaults.template_kwargs).ok()) {
    return {};
  }
  return {ErrorCode::kInvalidArgument,
          fmt::format("--chat-template-kwargs {} is no JSON object, such as {{\"enable_thinking\": false}}",
                      defaults.template_kwargs)};
}

Result<ReasoningSettings> read_reasoning(const ReasoningDefaults& defaults, bool is_gpt_oss, Json& body) {
  const Fields fields(body);
  ReasoningSettings settings;
  std::string format = defaults.format;
  TRY(fields.read("reasoning_format", format));
  TRY(check_format(format, fields.label("reasoning_format")));
  bool streams = false;
  TRY(fields.read("stream", streams));
  settings.is_apart = format != "none";
  settings.is_inline = format == kLegacy && streams;
  settings.budget = defaults.budget;
  for (const char* name : {"reasoning_budget", "thinking_budget_tokens"}) {
    TRY(fields.read(name, settings.budget, -1, 1'000'000'000));
  }
  std::string effort;
  TRY(fields.read("reasoning_effort", effort));
  if (!effort.empty() && std::ranges::find(kEfforts, effort) == kEfforts.end()) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format(R"({} is "{}"; known are none, minimal, low, medium, high, xhigh and max)",
                              fields.label("reasoning_effort"), effort.substr(0, 40)));
  }
  Json kwargs = Json::object();
  if (!defaults.template_kwargs.empty()) {
    ASSIGN_OR_RETURN(kwargs, parse_json_object(defaults.template_kwargs));
  }
  if (const Json* given = fields.find("chat_template_kwargs")) {
    if (!given->is_object()) {
      return fields.wrong("chat_template_kwargs", *given, "an object");
    }
    kwargs.update(*given);
  }
  if (effort == "none") {
    settings.budget = 0;
    body.erase("reasoning_effort");
  }
  if (is_gpt_oss && !effort.empty()) {
    body["reasoning_effort"] = gpt_oss_effort(effort);
  }
  if (settings.budget == 0 && !kwargs.contains("enable_thinking") && !fields.has("enable_thinking")) {
    body["enable_thinking"] = false;
  }
  if (!kwargs.empty()) {
    body["chat_template_kwargs"] = std::move(kwargs);
  }
  return settings;
}

}  // namespace tessera
