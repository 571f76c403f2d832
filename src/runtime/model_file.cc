#include "runtime/model_file.h"

#include <fmt/format.h>
#include <utility>

namespace tessera {

Status override_metadata(GgufFile& file, std::span<const std::string> overrides, const Log& log) {
  for (const std::string& text : overrides) {
    // Flags of several names end here (tools/metadata_flags.h); this one says the same as each of them.
    const auto named = [&](const Status& status) { return status.with_context(fmt::format("--override-kv {}", text)); };
    const Result<MetadataOverride> given = parse_override(text);
    if (!given.ok()) {
      return named(given.status());
    }
    const size_t n_entries = file.metadata().entries().size();
    if (const Status status = file.override_value(*given); !status.ok()) {
      return named(status);
    }
    if (file.metadata().entries().size() > n_entries) {
      log.info(fmt::format("note: --override-kv {}: the file has no such key; it is added", text));
    }
  }
  return {};
}

Result<std::unique_ptr<GgufFile>> open_model_file(const ModelOptions& options, const Log& log) {
  ASSIGN_OR_RETURN(GgufFile opened, GgufFile::open(options.path));
  auto file = std::make_unique<GgufFile>(std::move(opened));
  TRY(override_metadata(*file, options.override_kv, log));
  return file;
}

}  // namespace tessera
