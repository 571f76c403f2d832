#pragma once
// The reference engine's dummy models (tests/data/goldens/FORMAT.md, "Dummy models"), made anew bit for bit.
//
// tests/data/archs/NAME.head holds a file's metadata and tensor infos. The weights follow from the tensors' names: the
// 64-bit standard library's hash of the name, xor the seed 1, seeds a Mersenne twister from which a normal distribution
// of deviation 0.1 draws every element. arch_models_test.cc holds the result to the checksums of
// goldens/archs/index.tsv.

#include <cstddef>
#include <string>
#include <vector>

namespace tessera {

/// Names of the dummy models of delivered architectures: "llama-dense", …
std::vector<std::string> arch_model_names();

/// The whole GGUF file. REQUIRES: a name of arch_model_names().
std::vector<std::byte> make_arch_model(const std::string& name);

}  // namespace tessera
