#pragma once
// The seeds of a target, for a check that they still say what make_seeds.py meant: a seed of an older form is still an
// input, and nobody would notice how little it reaches.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace tessera {

/// The bytes of fuzz/corpus/`name`, such as "state/whole". Empty where there is no such file: only runs at the root of
/// the repository find them.
inline std::vector<uint8_t> seed_bytes(const std::string& name) {
  std::ifstream file(std::filesystem::path("fuzz/corpus") / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The names of a target's seeds, as seed_bytes() takes them.
inline std::vector<std::string> seed_names(const std::string& target) {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator("fuzz/corpus/" + target, missing)) {
    names.push_back(target + "/" + entry.path().filename().string());
  }
  return names;
}

}  // namespace tessera
