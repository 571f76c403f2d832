// `tessera doctor`: whether this machine can serve this model, and what to do where it cannot.

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "common.h"
#include "doctor.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::string_view word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kWarn: return "warn";
    case Verdict::kBad: return "bad";
  }
  return "";
}

// Without what would do something to a terminal.
std::string printable(std::string text) {
  std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

std::string report_json(const std::vector<Check>& checks, bool can_serve, int64_t n_ctx_max) {
  Json list = Json::array();
  for (const Check& check : checks) {
    list.push_back(
        {{"name", check.name}, {"status", word_of(check.verdict)}, {"found", check.found}, {"to_do", check.to_do}});
  }
  Json report = {{"can_serve", can_serve}, {"checks", std::move(list)}};
  if (n_ctx_max > 0) {
    report["n_ctx_max"] = n_ctx_max;
  }
  return report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string report_text(const std::vector<Check>& checks) {
  std::string text;
  for (const Check& check : checks) {
    text += fmt::format("{:<5} {:<14} {}\n", word_of(check.verdict), check.name, printable(check.found));
    if (!check.to_do.empty()) {
      text += fmt::format("{:>20} {}\n", "->", printable(check.to_do));
    }
  }
  return text;
}

}  // namespace

Status cmd_doctor(const ParsedFlags& flags) {
  const bool has_model = flags.given("model");
  ModelChecks model = has_model ? check_model(flags) : ModelChecks();
  const MachineFacts facts = machine_facts();
  std::vector<Check> checks = {check_processor(facts),
                               check_threads(facts, static_cast<uint64_t>(wanted_threads(flags))),
                               check_nodes(facts, flags.get_string("numa")),
                               check_memory(facts),
                               check_memory_limit(facts),
                               check_swap(facts),
                               check_overcommit(facts, model.needed_bytes),
                               check_huge_pages(facts),
                               check_address_space(facts, model.needed_bytes),
                               check_open_files(facts, flags.get_uint("max-connections"))};
  for (const std::string& host : flags.get_string_list("host")) {
    checks.push_back(check_address(host, static_cast<uint16_t>(flags.get_uint("port"))));
  }
  std::ranges::move(model.checks, std::back_inserter(checks));
  const auto n_bad = std::ranges::count(checks, Verdict::kBad, &Check::verdict);
  TRY(print(flags.get_bool("json") ? report_json(checks, n_bad == 0, model.n_ctx_max) : report_text(checks)));
  if (n_bad > 0) {
    return {ErrorCode::kUnsupported, fmt::format("{} of {} checks found what keeps {} from being served", n_bad,
                                                 checks.size(), has_model ? flags.get_string("model") : "a model")};
  }
  return {};
}

}  // namespace tessera
