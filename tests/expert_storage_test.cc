// Experts in one tensor, in one tensor of gates and ups, and in a tensor each are the same model: equal logits.

#include <array>
#include <gtest/gtest.h>

#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace tessera {
namespace {

const std::string kModel = TESSERA_TEST_DATA "/tiny/tiny-qwen3moe.gguf";

enum class Storage { kTogether, kFused, kSeparate };

std::vector<std::byte> bytes_of(const GgufFile& file, const TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.n_bytes);
  const Status status = file.read(tensor, 0, bytes);
  EXPECT_TRUE(status.ok()) << status.message();
  return bytes;
}

std::vector<std::byte> with_storage(Storage storage) {
  const GgufFile file = GgufFile::open(kModel).value();
  GgufWriter writer;
  writer.copy_metadata(file.metadata());
  const auto add = [&](const std::string& name, const TensorInfo& like, std::vector<uint64_t> dims,
                       std::span<const std::byte> bytes) {
    EXPECT_TRUE(writer.add_tensor(name, like.dtype, dims, std::vector(bytes.begin(), bytes.end())).ok());
  };
  for (const TensorInfo& tensor : file.tensors()) {
    const std::vector<std::byte> data = bytes_of(file, tensor);
    const std::span<const std::byte> bytes = data;
    const std::string prefix = tensor.name.substr(0, tensor.name.find("ffn_"));
    const size_t at = tensor.name.find("_exps.weight");
    const uint64_t n_experts = tensor.dims[2];
    const size_t expert_bytes = bytes.size() / n_experts;
    if (at != std::string::npos && storage == Storage::kSeparate) {
      for (uint64_t e = 0; e < n_experts; ++e) {
        add(tensor.name.substr(0, at) + "." + std::to_string(e) + ".weight", tensor, {tensor.dims[0], tensor.dims[1]},
            bytes.subspan(e * expert_bytes, expert_bytes));
      }
    } else if (storage == Storage::kFused && tensor.name.ends_with("ffn_gate_exps.weight")) {
      const std::vector<std::byte> up = bytes_of(file, *file.find(prefix + "ffn_up_exps.weight"));
      std::vector<std::byte> both;
      for (uint64_t e = 0; e < n_experts; ++e) {
        for (const std::span<const std::byte> part : {bytes, std::span<const std::byte>(up)}) {
          const auto one = part.subspan(e * expert_bytes, expert_bytes);
          both.insert(both.end(), one.begin(), one.end());
        }
      }
      const std::array dims = {tensor.dims[0], 2 * tensor.dims[1], n_experts};
      EXPECT_TRUE(writer.add_tensor(prefix + "ffn_gate_up_exps.weight", tensor.dtype, dims, std::move(both)).ok());
    } else if (storage != Storage::kFused || !tensor.name.ends_with("ffn_up_exps.weight")) {
      add(tensor.name, tensor, {tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims}, bytes);
    }
  }
  return writer.to_bytes();
}

TEST(ExpertStorage, EveryFormGivesEqualLogits) {
  const TempFolder folder;
  std::vector<float> reference;
  for (const Storage storage : {Storage::kTogether, Storage::kFused, Storage::kSeparate}) {
    ModelRun run;
    run.model.path = folder.write("variant.gguf", with_storage(storage));
    run.model.devices = cpu_names(2);
    run.model.split_mode = "tensor";
    run.model.n_threads = 2;
    const auto result = run_model(run);
    ASSERT_TRUE(result.ok()) << result.status().message();
    reference = reference.empty() ? result->logits : reference;
    EXPECT_EQ(n_different(reference, result->logits), 0U);
  }
  ModelRun original;
  original.model.path = kModel;
  original.model.n_cuts = 2;
  EXPECT_EQ(n_different(reference, run_model(original)->logits), 0U);
}

}  // namespace
}  // namespace tessera
