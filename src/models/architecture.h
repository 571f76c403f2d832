#pragma once
// Architectures: one self-registering file each turns a model file into a tensor table and a program.
//
// build_model() picks the architecture by `general.architecture`. A missing key or tensor, a shape that does not fit,
// an unknown architecture, or a tensor that the architecture does not know is an error that names it: wrong but fluent
// text is worse than none. Pure: reads the file, allocates nothing on devices. Thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "program/build/program.h"
#include "tensor/tensor_table.h"

namespace tessera {

/// What people ask about a model.
struct ModelInfo {
  std::string architecture;
  std::string name;
  int64_t n_layer = 0;
  int64_t n_embd = 0;
  int64_t n_head = 0;     // of the first layer
  int64_t n_kv_head = 0;  // of the first layer
  int64_t n_vocab = 0;
  int64_t n_ctx_train = 0;
};

/// A model without its bytes.
struct ModelDefinition {
  ModelInfo info;
  TensorTable table;
  Program program;
};

using BuildArchitecture = Result<ModelDefinition> (*)(const GgufFile& file);

/// Static object of an architecture's file: `const ArchitectureRegistration kRegistration{"llama", build_llama};`
struct ArchitectureRegistration {
  ArchitectureRegistration(std::string_view name, BuildArchitecture build);
};

/// Names of all registered architectures, sorted.
std::vector<std::string_view> architecture_names();

/// Errors: kUnsupported (unknown architecture: lists the known ones), kInvalidData.
Result<ModelDefinition> build_model(const GgufFile& file);

}  // namespace tessera
