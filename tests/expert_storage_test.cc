// Experts in one tensor, in one tensor of gates and ups, and in a tensor each are the same model: equal logits.

#include <array>
#include <gtest/gtest.h>

#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace tessera {
namespace {

enum class Storage { kTogether, kFused, kSeparate };

std::vector<std::byte> bytes_of(const GgufFile& file, const TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.n_bytes);
  const Status status = file.read(tensor, 0, bytes);
  EXPECT_TRUE(status.ok()) << status.message();
  return bytes;
}

// Expert by expert, the bytes of gate and up.
std::vector<std::byte> interleaved(std::span<const std::byte> gate, std::span<const std::byte> up, uint64_t n_experts) {
  std::vector<std::byte> both;
  const size_t expert_bytes = gate.size() / n_experts;
  for (uint64_t e = 0; e < n_experts; ++e) {
    for (const std::span<const std::byte> part : {gate, up}) {
      const auto one = part.subspan(e * expert_bytes, expert_bytes);
      both.insert(both.end(), one.begin(), one.end());
    }
  }
  return both;
}

// Weights and, of models that have them, biases.
void add_fused(const GgufFile& file, const TensorInfo& gate, GgufWriter& writer) {
  const size_t at = gate.name.find("ffn_gate_exps");
  const std::string suffix = gate.name.substr(at + std::string("ffn_gate_exps").size());
  const uint64_t n_experts = gate.dims[gate.n_dims - 1];
  const TensorInfo& up = *file.find(gate.name.substr(0, at) + "ffn_up_exps" + suffix);
  std::vector<uint64_t> dims(gate.dims.begin(), gate.dims.begin() + gate.n_dims);
  dims[gate.n_dims - 2] *= 2;
  EXPECT_TRUE(writer
                  .add_tensor(gate.name.substr(0, at) + "ffn_gate_up_exps" + suffix, gate.dtype, dims,
                              interleaved(bytes_of(file, gate), bytes_of(file, up), n_experts))
                  .ok());
}

void add_separate(const GgufFile& file, const TensorInfo& experts, GgufWriter& writer) {
  const std::vector<std::byte> bytes = bytes_of(file, experts);
  const uint64_t n_experts = experts.dims[2];
  const size_t expert_bytes = bytes.size() / n_experts;
  const std::string prefix = experts.name.substr(0, experts.name.find("_exps.weight"));
  for (uint64_t e = 0; e < n_experts; ++e) {
    const auto one = std::span(bytes).subspan(e * expert_bytes, expert_bytes);
    EXPECT_TRUE(writer
                    .add_tensor(prefix + "." + std::to_string(e) + ".weight", experts.dtype,
                                std::array{experts.dims[0], experts.dims[1]}, std::vector(one.begin(), one.end()))
                    .ok());
  }
}

std::vector<std::byte> with_storage(const std::string& model, Storage storage) {
  const GgufFile file = GgufFile::open(model).value();
  GgufWriter writer;
  writer.copy_metadata(file.metadata());
  for (const TensorInfo& tensor : file.tensors()) {
    const auto is = [&](std::string_view part) { return tensor.name.find(part) != std::string::npos; };
    if (storage == Storage::kSeparate && is("_exps.weight")) {
      add_separate(file, tensor, writer);
    } else if (storage == Storage::kFused && is("ffn_gate_exps.")) {
      add_fused(file, tensor, writer);
    } else if (storage != Storage::kFused || !is("ffn_up_exps.")) {
      const std::span<const uint64_t> dims(tensor.dims.data(), tensor.n_dims);
      EXPECT_TRUE(writer.add_tensor(tensor.name, tensor.dtype, dims, bytes_of(file, tensor)).ok());
    }
  }
  return writer.to_bytes();
}

void expect_equal_logits(const std::string& model, std::initializer_list<Storage> storages) {
  const TempFolder folder;
  ModelRun run;
  run.model.path = model;
  run.model.n_cuts = 2;
  const auto original = run_model(run);
  ASSERT_TRUE(original.ok()) << original.status().message();
  for (const Storage storage : storages) {
    run.model.path = folder.write("variant.gguf", with_storage(model, storage));
    run.model.devices = cpu_names(2);
    run.model.split_mode = "tensor";
    run.model.n_threads = 2;
    const auto result = run_model(run);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(n_different(original->logits, result->logits), 0U);
  }
}

TEST(ExpertStorage, EveryFormGivesEqualLogits) {
  expect_equal_logits(TESSERA_TEST_DATA "/tiny/tiny-qwen3moe.gguf",
                      {Storage::kTogether, Storage::kFused, Storage::kSeparate});
}

TEST(ExpertStorage, BiasesOfGatesAndUpsInOneTensorToo) {
  expect_equal_logits(TESSERA_TEST_DATA "/tiny/tiny-gpt-oss.gguf", {Storage::kTogether, Storage::kFused});
}

}  // namespace
}  // namespace tessera
