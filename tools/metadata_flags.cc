#include "metadata_flags.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>

#include "gguf/override.h"

namespace tessera {
namespace {

struct RopeFlag {
  std::string_view name;
  std::string_view key;
  std::string_view type;
  bool is_inverse = false;  // the key has 1 / the flag's value
};

constexpr RopeFlag kRopeFlags[] = {
    {"rope-scaling", ".rope.scaling.type", "str"},
    {"rope-scale", ".rope.scaling.factor", "float"},
    {"rope-freq-scale", ".rope.scaling.factor", "float", true},
    {"rope-freq-base", ".rope.freq_base", "float"},
    {"yarn-orig-ctx", ".rope.scaling.original_context_length", "int"},
    {"yarn-attn-factor", ".rope.scaling.attn_factor", "float"},
};

// Nothing: the value stands for the file's own.
std::string rope_override(const RopeFlag& flag, const std::string& text) {
  const double number = flag.type == "str" ? 1 : std::strtod(text.c_str(), nullptr);
  if (number <= 0) {
    return {};
  }
  return fmt::format("{}={}:{}", flag.key, flag.type, flag.is_inverse ? fmt::format("{}", 1 / number) : text);
}

}  // namespace

std::vector<std::string> metadata_overrides(const ParsedFlags& flags) {
  std::vector<std::string> overrides;
  for (const ParsedFlags::Use& use : flags.uses()) {
    const auto* const rope = std::ranges::find(kRopeFlags, use.row->name, &RopeFlag::name);
    if (use.row->name == "override-kv") {
      std::ranges::move(split_at_commas(use.text), std::back_inserter(overrides));
    } else if (rope != std::end(kRopeFlags)) {
      if (std::string text = rope_override(*rope, use.text); !text.empty()) {
        overrides.push_back(std::move(text));
      }
    }
  }
  return overrides;
}

Status check_metadata_flags(const ParsedFlags& flags) {
  for (const std::string& text : metadata_overrides(flags)) {
    if (const Status status = parse_override(text).status(); !status.ok()) {
      return status.with_context(fmt::format("--override-kv {}", text));
    }
  }
  return {};
}

}  // namespace tessera
