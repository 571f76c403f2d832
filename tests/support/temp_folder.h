#pragma once
// A folder that vanishes with its object, for test programs.

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/files.h"

namespace tessera {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera_test_XXXXXX").string();
    CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Writes a file and returns its path.
  [[nodiscard]] std::string write(const std::string& name, std::span<const std::byte> bytes) const {
    std::string path = path_ + "/" + name;
    CHECK(write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}).ok());
    return path;
  }

 private:
  std::string path_;
};

}  // namespace tessera
