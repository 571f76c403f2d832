#include "runtime/cache_types.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

namespace tessera {

Result<DType> cache_type_from_name(std::string_view name) {
  const std::optional<DType> type = dtype_from_name(name);
  std::string_view rest = kCacheTypeNames;
  while (type && !rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, end) == dtype_name(*type)) {
      return *type;
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return Status(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no type of a KV cache; there are {}", name.substr(0, 40), kCacheTypeNames));
}

}  // namespace tessera
