// libFuzzer target: any bytes as a GGUF file, opened and walked. Seeds: fuzz/corpus/gguf.

#include <cstddef>
#include <cstdint>
#include <span>

#include "gguf/gguf.h"
#include "tests/support/gguf_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = tessera::GgufFile::open_memory(std::as_bytes(std::span(data, size)));
  if (file.ok()) {
    static_cast<void>(tessera::walk_gguf(*file));
  }
  return 0;
}
