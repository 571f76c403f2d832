// The dummy models that we make anew are the reference engine's, byte for byte.

#include "tests/support/arch_models.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sha2.h>
#include <span>

namespace tessera {
namespace {

std::string sha256_of(std::span<const std::byte> bytes) {
  SHA2_CTX context;
  SHA256Init(&context);
  SHA256Update(&context, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  char hex[SHA256_DIGEST_STRING_LENGTH];
  return SHA256End(&context, hex);
}

TEST(ArchModels, AreTheReferenceEnginesByteForByte) {
  std::ifstream index(TESSERA_TEST_DATA "/goldens/archs/index.tsv");
  size_t n_found = 0;
  for (std::string line; std::getline(index, line);) {
    for (const std::string& name : arch_model_names()) {
      if (line.starts_with(name + ".gguf\t")) {
        EXPECT_NE(line.find("\t" + sha256_of(make_arch_model(name)) + "\t"), std::string::npos) << line;
        ++n_found;
      }
    }
  }
  EXPECT_EQ(n_found, arch_model_names().size());
}

}  // namespace
}  // namespace tessera
