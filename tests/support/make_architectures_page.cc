// make_architectures_page: writes docs/architectures.md to standard output.

#include <cstdio>

#include "tests/support/architectures_page.h"

int main() {
  const tessera::Result<std::string> page = tessera::architectures_page();
  if (!page.ok()) {
    std::fprintf(stderr, "%s\n", page.status().message().c_str());
    return 1;
  }
  std::fputs(page->c_str(), stdout);
  return 0;
}
