#pragma once
// Small models by name, for tests that run over many of them.

#include <algorithm>
#include <cctype>
#include <gtest/gtest.h>
#include <string>

#include "tests/support/arch_models.h"
#include "tests/support/temp_folder.h"

namespace tessera {

/// Sanitizers slow everything down: there a few models stand for their kind.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kFewModels = true;
#else
inline constexpr bool kFewModels = false;
#endif

/// The file of a model: "tiny-..." of tests/data/tiny, a dummy model of the reference, made into the folder, or one of
/// tests/data/models.
inline std::string model_path(const std::string& name, const TempFolder& folder) {
  const std::vector<std::string> archs = arch_model_names();
  if (std::ranges::find(archs, name) != archs.end()) {
    return folder.write(name + ".gguf", make_arch_model(name));
  }
  return std::string(TESSERA_TEST_DATA) + (name.starts_with("tiny-") ? "/tiny/" : "/models/") + name + ".gguf";
}

/// The name of a test with a model as its parameter.
inline std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace_if(name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace tessera
