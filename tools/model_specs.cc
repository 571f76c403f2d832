#include "model_specs.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <system_error>
#include <utility>

#include "flag_rows.h"

namespace tessera {
namespace {

// Flags of the heading "Server" that a model may have for itself.
constexpr std::array<std::string_view, 2> kOfOneModel = {"queue-size", "batch-invariant"};
// Flags of other headings that it may not have.
constexpr std::array<std::string_view, 3> kOfTheServer = {"model", "device-memory", "verbose"};

template <size_t n>
bool is_one_of(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::ranges::find(names, name) != names.end();
}

bool holds_for_server(const FlagRow& row) {
  return is_one_of(row.name, kOfTheServer) || (row.group == kServer && !is_one_of(row.name, kOfOneModel));
}

Status invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

// Where the name of a --model ends; 0: it has none.
size_t name_length(std::string_view text) {
  const size_t equals = text.find('=');
  const bool has_name =
      equals != std::string_view::npos && text.substr(0, equals).find_first_of("/,") == std::string::npos;
  return has_name ? equals : 0;
}

// Flags behind a file that has no name, which looks like a file's own name with a comma in it.
Status check_nameless(const std::string& text) {
  std::error_code ignored;
  const size_t comma = text.find(',');
  if (comma == std::string::npos || std::filesystem::exists(text, ignored)) {
    return {};
  }
  if (text.find('=', comma) != std::string::npos || std::filesystem::exists(text.substr(0, comma), ignored)) {
    return invalid(fmt::format("--model {}: flags behind a file need a name; write --model NAME={}", text, text));
  }
  return {};
}

Result<ModelSpec> named_spec(const ParsedFlags& flags, const std::string& text) {
  ModelSpec spec{text.substr(0, name_length(text)), flags};
  std::vector<std::string> settings = split_at_commas(std::string_view(text).substr(spec.name.size() + 1));
  if (settings.front().empty()) {
    return invalid(fmt::format("--model {}: the file is missing; write NAME=FILE", text));
  }
  settings.front().insert(0, "model=");
  auto with_own = add_flags(flags, settings);
  if (!with_own.ok()) {
    return with_own.status().with_context(fmt::format("--model {}", text));
  }
  spec.flags = std::move(*with_own);
  const std::vector<ParsedFlags::Use>& uses = spec.flags.uses();
  for (size_t i = flags.uses().size() + 1; i < uses.size(); ++i) {
    if (holds_for_server(*uses[i].row)) {
      return invalid(
          fmt::format("--model {}: --{} holds for the whole server; give it by itself", text, uses[i].row->name));
    }
  }
  return spec;
}

}  // namespace

Result<std::vector<ModelSpec>> model_specs(const ParsedFlags& flags) {
  const std::vector<std::string> texts = flags.get_texts("model");
  if (texts.size() == 1 && name_length(texts[0]) == 0) {
    TRY(check_nameless(texts[0]));
    const std::string alias = flags.get_string("alias");
    ASSIGN_OR_RETURN(ParsedFlags own, add_flags(flags, {}));
    return std::vector<ModelSpec>{
        {alias.empty() ? texts[0].substr(texts[0].find_last_of('/') + 1) : alias, std::move(own)}};
  }
  if (flags.given("alias")) {
    return invalid("--alias names a model without a name; these have some by --model NAME=FILE");
  }
  std::vector<ModelSpec> specs;
  for (const std::string& text : texts) {
    if (name_length(text) == 0) {
      return invalid(fmt::format("--model {}: of several models each needs a name; write --model NAME=FILE", text));
    }
    ASSIGN_OR_RETURN(ModelSpec spec, named_spec(flags, text));
    if (std::ranges::find(specs, spec.name, &ModelSpec::name) != specs.end()) {
      return invalid(fmt::format("--model {}: the name {} is there twice", text, spec.name));
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace tessera
