// A user whose names are the library's own, and who uses the libraries that it uses: nothing of it may show.
//
//   clash MODEL      prints {"architecture":"llama"}

#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <tessera/tessera.hpp>

namespace tessera {

class Model {
 public:
  ~Model();
};
Model::~Model() {
  std::fflush(stdout);
}

void check_failed(const char* condition, const char* file, int line) {
  fmt::print("{} {} {}\n", condition, file, line);
}

inline constexpr int kFp4Values[] = {1, 2, 3};
const int* fp4_values() {
  return kFp4Values;
}

}  // namespace tessera

int main(int argc, char** argv) {
  try {
    const tessera::Model own;
    const tsr::Model model(argc > 1 ? argv[1] : "");
    const nlohmann::ordered_json facts = {{"architecture", model.info().architecture}};
    fmt::print("{}\n", tessera::fp4_values()[0] == 1 ? facts.dump() : std::string());
    return 0;
  } catch (const std::exception& error) {
    tessera::check_failed(error.what(), __FILE__, __LINE__);
    return 1;
  }
}
