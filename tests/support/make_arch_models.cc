// make_arch_models FOLDER: writes the reference engine's dummy models there, for scripts/compare_golden.py.

#include <cstdio>
#include <string_view>

#include "base/files.h"
#include "tests/support/arch_models.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: make_arch_models FOLDER\n", stderr);
    return 2;
  }
  for (const std::string& name : tessera::arch_model_names()) {
    const std::vector<std::byte> bytes = tessera::make_arch_model(name);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const tessera::Status written = tessera::write_file(std::string(argv[1]) + "/" + name + ".gguf", text);
    if (!written.ok()) {
      std::fprintf(stderr, "%s\n", written.message().c_str());
      return 1;
    }
  }
  return 0;
}
