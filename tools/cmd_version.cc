// `tessera version`: what this program is and what this processor lets it do.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "build_commit.h"
#include "commands.h"
#include "common.h"
#include "kernels/cpu/cpu_kernels.h"

namespace tessera {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

Status cmd_version(const ParsedFlags& flags) {
  std::vector<std::string> isas;
  std::vector<std::string> classes;
  for (const CpuIsa isa : cpu_isas()) {
    isas.emplace_back(cpu_isa_name(isa));
    for (const CpuKernelSet set : {CpuKernelSet::kScalar, CpuKernelSet::kFast}) {
      ASSIGN_OR_RETURN(const KernelTable* table, cpu_kernel_table(set, isa));
      if (std::ranges::find(classes, table->kernel_class()) == classes.end()) {
        classes.push_back(table->kernel_class());
      }
    }
  }
  if (flags.get_bool("json")) {
    return print(nlohmann::ordered_json{{"version", TESSERA_VERSION},
                                        {"commit", kBuildCommit},
                                        {"build_number", kBuildNumber},
                                        {"compiler", kCompiler},
                                        {"cpu_isas", isas},
                                        {"kernel_classes", classes}}
                     .dump() +
                 "\n");
  }
  return print(fmt::format(
      "tessera {}\ncommit: {} ({})\ncompiler: {}\ninstruction sets of this processor: {}\nkernel classes: {}\n",
      TESSERA_VERSION, kBuildCommit, kBuildNumber, kCompiler, joined(isas), joined(classes)));
}

}  // namespace tessera
