#include "tests/support/gguf_walk.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "tensor/quants.h"

namespace tessera {
namespace {

template <typename T>
double touch(const Result<T>& result) {
  if (!result.ok()) {
    CHECK(!result.status().message().empty());
    return 1.0;
  }
  if constexpr (requires { result->size(); }) {
    return static_cast<double>(result->size());
  } else {
    return static_cast<double>(*result);
  }
}

double walk_key(const Metadata& metadata, const MetaValue& value) {
  CHECK(metadata.find(value.key) == &value);
  double sum = touch(metadata.get_u32(value.key)) + touch(metadata.get_i32(value.key)) +
               touch(metadata.get_u64(value.key)) + touch(metadata.get_bool(value.key));
  sum += touch(metadata.get_f32(value.key)) + touch(metadata.get_string(value.key));
  sum += touch(metadata.get_u32_array(value.key)) + touch(metadata.get_i32_array(value.key));
  sum += touch(metadata.get_f32_array(value.key)) + touch(metadata.get_bool_array(value.key));
  sum += touch(metadata.get_u32_per_layer(value.key, 4)) + touch(metadata.get_bool_per_layer(value.key, 4));
  const auto strings = metadata.get_string_array(value.key);
  if (strings.ok()) {
    for (const std::string_view text : *strings) {
      sum += text.empty() ? 0.0 : static_cast<double>(text.front()) + static_cast<double>(text.back());
    }
  }
  return sum + static_cast<double>(value.type_text().size());
}

// The sum of the finite values of up to a few blocks at `offset` of the tensor's bytes.
double walk_blocks(const GgufFile& file, const TensorInfo& info, uint64_t offset, uint64_t n_blocks) {
  const DTypeInfo& layout = dtype_info(info.dtype);
  std::vector<std::byte> bytes(n_blocks * layout.block_bytes);
  CHECK(file.read(info, offset, bytes).ok());
  const uint64_t n = n_blocks * layout.block_elems;
  std::vector<float> values(n);
  dequantize_row(info.dtype, bytes.data(), values.data(), static_cast<int64_t>(n));
  double sum = 0.0;
  for (const float v : values) {
    sum += std::isfinite(v) ? static_cast<double>(v) : 0.0;
  }
  return sum;
}

}  // namespace

double walk_gguf(const GgufFile& file) {
  double sum = static_cast<double>(file.version());
  for (const MetaValue& value : file.metadata().entries()) {
    sum += walk_key(file.metadata(), value);
  }
  for (const TensorInfo& info : file.tensors()) {
    CHECK(file.find(info.name) == &info);
    const DTypeInfo& layout = dtype_info(info.dtype);
    const uint64_t n_blocks = std::min<uint64_t>(info.n_bytes / layout.block_bytes, 8);
    if (n_blocks > 0) {
      sum += walk_blocks(file, info, 0, n_blocks);
      sum += walk_blocks(file, info, info.n_bytes - n_blocks * layout.block_bytes, n_blocks);
    }
  }
  return sum;
}

}  // namespace tessera
