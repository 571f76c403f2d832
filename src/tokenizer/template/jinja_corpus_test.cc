// Compares the interpreter with results recorded from the Jinja2 library (scripts/template_diff.py).

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "tokenizer/template/format.h"
#include "tokenizer/template/jinja.h"

namespace tessera::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream content;
  content << in.rdbuf();
  return content.str();
}

/// The recorded cases, or those of the folder that the script made for one run.
std::filesystem::path corpus() {
  const char* folder = std::getenv("TESSERA_TEMPLATE_CORPUS");
  return folder != nullptr ? std::filesystem::path(folder) : std::filesystem::path(TESSERA_TEST_DATA) / "templates";
}

Result<Text> render(const std::string& source, const Json& variables) {
  RuntimeOptions options;
  options.now = 1700000000;
  ASSIGN_OR_RETURN(const Template parsed, Template::parse(source));
  return parsed.render(
      [&](Runtime& runtime) -> Result<Variables> {
        Variables given;
        for (const auto& [name, value] : variables.items()) {
          ASSIGN_OR_RETURN(Value parsed_value, parse_json(runtime, value.dump(), true));
          given.emplace_back(name, std::move(parsed_value));
        }
        return given;
      },
      options);
}

TEST(JinjaCorpus, RendersAsTheLibraryDoes) {
  setenv("TZ", "UTC", 1);
  tzset();
  size_t n = 0;
  size_t wrong = 0;
  for (const auto& file : std::filesystem::directory_iterator(corpus())) {
    if (file.path().extension() != ".json") {
      continue;
    }
    std::filesystem::path whole = file.path();
    whole.replace_extension(".jinja");
    for (const Json& one : Json::parse(read(file.path()))) {
      const std::string source = std::filesystem::exists(whole) ? read(whole) : one["template"].get<std::string>();
      const Result<Text> result = render(source, one.value("variables", Json::object()));
      ++n;
      const bool as_recorded = one.contains("error") ? !result.ok() && result.status().code() != ErrorCode::kUnsupported
                                                     : result.ok() && result->bytes() == one["out"].get<std::string>();
      if (!as_recorded && ++wrong <= 20) {
        ADD_FAILURE() << file.path().filename() << "\n  template: " << source.substr(0, 1500)
                      << "\n  jinja2: " << (one.contains("error") ? one["error"].get<std::string>() : one["out"].dump())
                      << "\n  tessera: " << (result.ok() ? Json(result->bytes()).dump() : result.status().message());
      }
    }
  }
  EXPECT_EQ(wrong, 0U) << "of " << n;
  EXPECT_GT(n, 0U);
}

}  // namespace
}  // namespace tessera::jinja
