#include "tests/support/arch_models.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string_view>

#include "base/files.h"
#include "gguf/gguf.h"

namespace tessera {
namespace {

struct ArchModel {
  const char* name;
  size_t file_bytes;  // of goldens/archs/index.tsv
};
constexpr ArchModel kModels[] = {{"llama-dense", 4764672},   {"qwen2-dense", 4754272},  {"qwen3-dense", 3966560},
                                 {"qwen35-dense", 5557824},  {"gemma2-dense", 4627168}, {"gemma3-dense", 4760544},
                                 {"llama-moe", 7119840},     {"qwen2moe-moe", 8301152}, {"qwen3moe-moe", 7120096},
                                 {"qwen35moe-moe", 8841088}, {"gpt-oss-moe", 7137024},  {"qwen3next-moe", 9889472}};

}  // namespace

std::vector<std::string> arch_model_names() {
  std::vector<std::string> names;
  for (const ArchModel& model : kModels) {
    names.emplace_back(model.name);
  }
  return names;
}

std::vector<std::byte> make_arch_model(const std::string& name) {
  const auto head = read_file(TESSERA_TEST_DATA "/archs/" + name + ".head", 1 << 20);
  CHECK(head.ok());
  std::vector<std::byte> bytes(head->size());
  std::memcpy(bytes.data(), head->data(), head->size());
  for (const ArchModel& model : kModels) {
    if (name == model.name) {
      bytes.resize(model.file_bytes);
    }
  }
  const auto file = GgufFile::open_memory(bytes, name);
  CHECK(file.ok());
  for (const TensorInfo& tensor : file->tensors()) {
    std::mt19937 twister(static_cast<uint32_t>(std::hash<std::string_view>()(tensor.name) ^ 1));
    std::normal_distribution<float> normal(0.0F, 0.1F);
    for (uint64_t i = 0; i < tensor.n_elems; ++i) {
      const float drawn = normal(twister);
      // The reference keeps logarithms of decays negative, and knows them by the beginning of their names.
      const float x = tensor.name.find("ssm_a") != std::string::npos ? -std::abs(drawn) : drawn;
      std::memcpy(bytes.data() + tensor.file_offset + i * sizeof(x), &x, sizeof(x));
    }
  }
  return bytes;
}

}  // namespace tessera
