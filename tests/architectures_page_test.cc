// docs/architectures.md is what the registered architectures say.

#include "tests/support/architectures_page.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace tessera {
namespace {

TEST(ArchitecturesPage, IsUpToDate) {
  std::ifstream file("docs/architectures.md");  // tests run from the root of the repository
  ASSERT_TRUE(file.is_open());
  std::stringstream text;
  text << file.rdbuf();
  const Result<std::string> page = architectures_page();
  ASSERT_TRUE(page.ok()) << page.status().message();
  EXPECT_EQ(text.str(), *page) << "run: build/release/make_architectures_page > docs/architectures.md";
}

}  // namespace
}  // namespace tessera
