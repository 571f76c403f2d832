// ModelReader's experts: three ways in which files store them, one way in which tables list them.

#include <fmt/format.h>
#include <utility>

#include "models/model_reader.h"

namespace tessera {

TensorIndex ModelReader::expert_tensor(const std::string& name, int32_t layer, int64_t rows, int64_t columns,
                                       int64_t part, int64_t n_parts, bool required) {
  const int64_t n_experts = table_.layers[static_cast<size_t>(layer)].n_experts;
  const int32_t index = source(name, required);
  if (index < 0) {
    return kNoTensor;
  }
  const TensorInfo& info = file_.tensors()[static_cast<size_t>(index)];
  const auto n = static_cast<uint64_t>(n_experts);
  const auto width = static_cast<uint64_t>(columns);
  const bool matrices = info.dims[0] == width && info.dims[1] == static_cast<uint64_t>(n_parts * rows) &&
                        info.n_elems == info.dims[0] * info.dims[1] * n;
  const bool vectors =
      rows == 1 && info.dims[0] == width * static_cast<uint64_t>(n_parts) && info.n_elems == info.dims[0] * n;
  if (!matrices && !vectors) {
    fail(ErrorCode::kInvalidData,
         fmt::format("tensor {} is [{}, {}, {}], wanted {} experts of [{}, {}]", name, info.dims[0], info.dims[1],
                     info.dims[2], n_experts, columns, n_parts * rows));
    return kNoTensor;
  }
  TensorSpec spec;
  spec.name = name;
  spec.dtype = info.dtype;
  spec.rows = rows;
  spec.columns = columns;
  spec.tile = TileKind::kExpert;
  spec.layer = layer;
  for (int64_t e = 0; e < n_experts; ++e) {
    spec.experts.push_back({index, (e * n_parts + part) * rows});
  }
  return add(std::move(spec));
}

TensorIndex ModelReader::separate_experts(const std::string& prefix, int32_t layer, int64_t rows, int64_t columns) {
  TensorSpec spec;
  spec.name = prefix + ".E.weight";
  spec.rows = rows;
  spec.columns = columns;
  spec.tile = TileKind::kExpert;
  spec.layer = layer;
  for (int64_t e = 0; e < table_.layers[static_cast<size_t>(layer)].n_experts; ++e) {
    const std::string name = fmt::format("{}.{}.weight", prefix, e);
    const int32_t index = matrix_source(name, rows, columns);
    if (index < 0) {
      return kNoTensor;
    }
    const TensorInfo& info = file_.tensors()[static_cast<size_t>(index)];
    spec.dtype = e == 0 ? info.dtype : spec.dtype;
    if (info.dtype != spec.dtype) {
      fail(ErrorCode::kUnsupported, fmt::format("tensor {} has another type than the first expert's", name));
      return kNoTensor;
    }
    spec.experts.push_back({index, 0});
  }
  return add(std::move(spec));
}

Weight ModelReader::experts(int32_t layer, std::string_view name, int64_t rows, int64_t columns, ScaleRule rule,
                            int64_t part, int64_t n_parts) {
  const std::string prefix = fmt::format("blk.{}.{}", layer, name);
  const std::string stem = prefix + "_exps";
  Weight w;
  if (!has_tensor(stem + ".weight") && has_tensor(prefix + ".0.weight")) {
    w.weight = separate_experts(prefix, layer, rows, columns);
    return w;
  }
  w.weight = expert_tensor(stem + ".weight", layer, rows, columns, part, n_parts, true);
  w.scale = optional_vector(stem + ".scale", table_.layers[static_cast<size_t>(layer)].n_experts);
  w.scale = rule == ScaleRule::kUnused ? kNoTensor : w.scale;
  w.bias = expert_tensor(stem + ".bias", layer, 1, rows, part, n_parts, false);
  if (w.bias != kNoTensor && table_.tensors[static_cast<size_t>(w.bias)].dtype != DType::kF32) {
    fail(ErrorCode::kUnsupported, fmt::format("tensor {}.bias is not float32", stem));
  }
  return w;
}

}  // namespace tessera
