#include "sampling_flags.h"

#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "common.h"
#include "runtime/sampler_grammar.h"
#include "runtime/sampler_json.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// \n, \t, \r, \" and \\ as shells pass them on; other backslashes stay.
std::string without_escapes(std::string_view text) {
  constexpr std::string_view kNames = "ntr\"\\";
  constexpr std::string_view kBytes = "\n\t\r\"\\";
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t found = text[i] == '\\' && i + 1 < text.size() ? kNames.find(text[i + 1]) : std::string_view::npos;
    if (found == std::string_view::npos) {
      result += text[i];
    } else {
      result += kBytes[found];
      ++i;
    }
  }
  return result;
}

Status apply_number(const ParsedFlags& flags, const FlagRow& row, const SamplerSetting& setting,
                    SamplerOptions& options) {
  const double value =
      row.kind == FlagKind::kFloat ? flags.get_float(row.name) : static_cast<double>(flags.get_int(row.name));
  return set_sampler_option(options, setting, value);
}

// As people separate the steps elsewhere: one ';' for each run of commas and blanks.
std::string with_semicolons(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool separates = c == ';' || c == ',' || c == ' ';
    if (!separates) {
      result += c;
    } else if (!result.empty() && !result.ends_with(';')) {
      result += ';';
    }
  }
  return result;
}

Result<std::vector<SamplerStep>> parse_samplers(const std::string& text) {
  Result<std::vector<SamplerStep>> steps = parse_sampler_names(text);
  const std::string meant = with_semicolons(text);
  if (!steps.ok() && meant != text && parse_sampler_names(meant).ok()) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("steps are separated by ';', in quotes because of the shell: --samplers \"{}\"", meant));
  }
  return steps;
}

bool names_grammar(std::string_view flag) {
  return flag == "grammar" || flag == "grammar-file" || flag == "json-schema" || flag == "json-schema-file";
}

// One of the four flags, once.
Status apply_grammar(const ParsedFlags::Use& use, SamplerOptions& options) {
  const std::string_view name = use.row->name;
  if (!options.grammar.empty() || !options.json_schema.empty()) {
    return {ErrorCode::kInvalidArgument,
            "another grammar or JSON schema was given; use one of --grammar, --grammar-file, --json-schema and "
            "--json-schema-file"};
  }
  std::string text = use.text;
  if (name.ends_with("-file")) {
    ASSIGN_OR_RETURN(text, read_input(use.text));
  }
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    return {ErrorCode::kInvalidArgument, "it is empty"};
  }
  (name.starts_with("grammar") ? options.grammar : options.json_schema) = std::move(text);
  return {};
}

Status apply(const ParsedFlags& flags, const ParsedFlags::Use& use, bool& has_breakers, SamplerOptions& options) {
  const std::string_view name = use.row->name;
  if (const SamplerSetting* setting = find_sampler_setting(flag_json_name(*use.row))) {
    return apply_number(flags, *use.row, *setting, options);
  }
  if (name == "samplers") {
    ASSIGN_OR_RETURN(options.samplers, parse_samplers(use.text));
  } else if (name == "sampling-seq") {
    ASSIGN_OR_RETURN(options.samplers, parse_sampler_letters(use.text));
  } else if (name == "logit-bias") {
    ASSIGN_OR_RETURN(const LogitBias bias, parse_logit_bias(use.text));
    options.logit_bias.push_back(bias);
  } else if (names_grammar(name)) {
    TRY(apply_grammar(use, options));
  } else if (name == "dry-sequence-breaker") {
    if (!std::exchange(has_breakers, true) || use.text == "none") {
      options.dry_sequence_breakers.clear();
    }
    if (use.text != "none") {
      options.dry_sequence_breakers.push_back(without_escapes(use.text));
    }
  }
  return {};
}

// Whether the flag names a grammar or schema in what is no file.
bool is_read_once(const ParsedFlags::Use& use) {
  if (!names_grammar(use.row->name) || !use.row->name.ends_with("-file")) {
    return false;
  }
  std::error_code failed;
  const std::filesystem::file_status found = std::filesystem::status(use.text, failed);
  return use.text == "-" || std::filesystem::is_fifo(found) || std::filesystem::is_character_file(found);
}

// In their order. is_check: before a model is loaded, so that what can be read once only waits, and texts of grammars
// are looked at.
Status apply_all(const ParsedFlags& flags, bool is_check, SamplerOptions& options) {
  bool has_breakers = false;
  for (const ParsedFlags::Use& use : flags.uses()) {
    if (is_check && is_read_once(use)) {
      continue;
    }
    Status status = apply(flags, use, has_breakers, options);
    if (is_check && status.ok() && names_grammar(use.row->name)) {
      status = check_grammar_text(options);
    }
    if (!status.ok()) {
      return status.with_context(fmt::format("--{}", use.row->name));
    }
  }
  return {};
}

}  // namespace

Status check_sampling_flags(const ParsedFlags& flags) {
  SamplerOptions options;
  return apply_all(flags, /*is_check=*/true, options);
}

Result<SamplerOptions> sampler_options(const ParsedFlags& flags, const SamplerOptions& defaults) {
  SamplerOptions options = defaults;
  const int64_t seed = flags.get_int("seed");
  options.seed = seed < 0 ? kRandomSeed : static_cast<uint64_t>(seed);
  TRY(apply_all(flags, /*is_check=*/false, options));
  return options;
}

std::string sampler_options_json(const SamplerOptions& options) {
  Json json = sampler_settings_json(options);
  json["logit_bias"] = Json::array();
  for (const LogitBias& b : options.logit_bias) {
    json["logit_bias"].push_back(Json::array({b.id, std::isinf(b.bias) ? Json() : Json(b.bias)}));
  }
  json["grammar"] = options.grammar;
  json["json_schema"] = options.json_schema;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
