#include "tests/support/architectures_page.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <set>
#include <vector>

#include "base/files.h"
#include "models/architecture.h"
#include "placement/tile.h"
#include "tests/support/arch_models.h"

namespace tessera {
namespace {

/// What is said of the tensors of one architecture, by name with N for the layer: rows of the table. A tensor may have
/// two, such as an embedding table that is the head as well.
using Entries = std::map<std::string, std::set<std::string>>;
using Page = std::map<std::string, Entries, std::less<>>;  // by architecture

std::string without_layer(const std::string& name) {
  if (!name.starts_with("blk.")) {
    return name;
  }
  const size_t end = name.find('.', 4);
  return "blk.N" + (end == std::string::npos ? "" : name.substr(end));
}

std::string home_of(const TensorSpec& spec) {
  switch (spec.tile) {
    case TileKind::kReplica: return spec.source < 0 ? "every device; computed while loading" : "every device";
    case TileKind::kHost: return "the model file, read as tokens need it";
    case TileKind::kAttn: return "attn(l, c)";
    case TileKind::kFfn: return "ffn(l, c)";
    case TileKind::kHead: return "head(c)";
    case TileKind::kExpert: return "expert(l, e)";
  }
  return "";
}

std::string cut_of(const TensorSpec& spec) {
  if (spec.tile == TileKind::kExpert) {
    return "by experts";
  }
  const auto groups = [&] {
    switch (spec.cut.axis) {
      case CutAxis::kAttention: return "KV heads";
      case CutAxis::kFeedForward: return "feed-forward columns";
      case CutAxis::kHead: return "vocabulary rows";
      case CutAxis::kExpert: return "experts";
      case CutAxis::kNone: break;
    }
    return "";
  };
  switch (spec.cut.dim) {
    case CutDim::kRows: return fmt::format("rows, by {}", groups());
    case CutDim::kColumns: return fmt::format("columns, by {}; a partial to be reduced", groups());
    case CutDim::kNone: break;
  }
  return "whole";
}

Status add_model(const GgufFile& file, Page& page) {
  ASSIGN_OR_RETURN(const ModelDefinition model, build_model(file));
  for (const TensorSpec& spec : model.table.tensors) {
    page[model.info.architecture][without_layer(spec.name)].insert(fmt::format("{} | {}", home_of(spec), cut_of(spec)));
  }
  return {};
}

Status add_models(Page& page) {
  for (const std::string& name : arch_model_names()) {
    const std::vector<std::byte> bytes = make_arch_model(name);
    ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open_memory(bytes, name));
    TRY(add_model(file, page));
  }
  const std::vector<std::string_view> known = architecture_names();
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_TEST_DATA "/tiny")) {
    if (entry.path().extension() != ".gguf") {
      continue;
    }
    ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(entry.path()));
    ASSIGN_OR_RETURN(const std::string_view architecture, file.metadata().get_string("general.architecture"));
    if (std::ranges::find(known, architecture) != known.end()) {
      TRY(add_model(file, page));
    }
  }
  return {};
}

}  // namespace

Result<std::string> architectures_page() {
  Page page;
  TRY(add_models(page));
  std::string text =
      "# Architectures\n\n"
      "Made by `build/release/make_architectures_page > docs/architectures.md` from what each architecture's file in "
      "`src/models` says about the\nsmall models of `tests/data`. `l` is a layer, `c` a cut, `e` an expert. A tensor "
      "cut "
      "by rows gives values that are divided over the same groups;\none cut by columns gives partial sums, which a "
      "reduce adds in the order of the cuts. Everything else is computed wherever it is used.\n";
  for (const std::string_view name : architecture_names()) {
    const auto found = page.find(name);
    if (found == page.end()) {
      return Status(ErrorCode::kNotFound, fmt::format("no model of architecture {} among the test data", name));
    }
    text += fmt::format("\n## {}\n\n| tensor | lives in | cut |\n|---|---|---|\n", name);
    for (const auto& [tensor, entries] : found->second) {
      for (const std::string& entry : entries) {
        text += fmt::format("| `{}` | {} |\n", tensor, entry);
      }
    }
  }
  return text;
}

}  // namespace tessera
