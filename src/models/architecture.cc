#include "models/architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace tessera {
namespace {

std::map<std::string_view, BuildArchitecture>& registry() {
  static std::map<std::string_view, BuildArchitecture> architectures;
  return architectures;
}

}  // namespace

ArchitectureRegistration::ArchitectureRegistration(std::string_view name, BuildArchitecture build) {
  registry().emplace(name, build);
}

std::vector<std::string_view> architecture_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, build] : registry()) {
    names.push_back(name);
  }
  return names;
}

Result<ModelDefinition> build_model(const GgufFile& file) {
  ASSIGN_OR_RETURN(const std::string_view name, file.metadata().get_string("general.architecture"));
  const auto it = registry().find(name);
  if (it == registry().end()) {
    return Status(ErrorCode::kUnsupported, fmt::format("{}: architecture '{}' is not supported; this build runs {}",
                                                       file.path(), name, fmt::join(architecture_names(), ", ")));
  }
  auto model = it->second(file);
  if (!model.ok()) {
    return model.status().with_context(file.path());
  }
  return model;
}

}  // namespace tessera
