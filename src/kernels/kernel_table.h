#pragma once
// Kernel tables: which kernels a backend has, and how it wants its weights laid out.
//
// One table describes one numeric class: all devices that use it compute equal bits. A backend fills rows
// {op, dtypes, function}; an op it has no row for, it lacks. Tables are immutable and live for the whole process.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "tensor/dtype.h"

namespace tessera {

/// Operations that a device runs. One header kernels/ops/<op>.h each states arguments and meaning.
enum class Op : uint8_t {
  kRmsNorm,
  kQuantize,
  kMatmul,
  kRopeTable,
  kRope,
  kAppendKv,
  kAttention,
  kGlu,
  kReduce,
  kAdd,
  kScale,
  kAffine,
  kGatherRows,
  kRoute,
  kExpertRows,
  kExpertGather,
  kExpertUpload,
  kExpertMatmul,
  kExpertSum,
  kGateRows,
  kSplitHeads,
  kShortConv,
  kDeltaGates,
  kDeltaRule,
  kGatedNorm,
};

/// lower_snake_case stem of the op's files.
const char* op_name(Op op);

/// One kernel. `a` and `b` are the dtypes it is for: kAppendKv and kAttention the cache's (k, v); kF32 for the rest,
/// also for kMatmul and kExpertMatmul, whose panels carry their own: which these may be, KernelTable::layout() says.
struct KernelRow {
  Op op;
  DType a;
  DType b;
  KernelFn function;
};

/// How one kernel class stores the weights of one dtype.
///
/// A packed panel is a whole number of row groups of `row_group` rows (the last one padded); groups follow each other
/// in memory, so the packed bytes of rows [0, r), r a multiple of row_group, are a prefix of the panel.
struct WeightLayout {
  DType dtype = DType::kF32;
  int64_t row_group = 1;
  /// True: the product reads activations quantised by Op::kQuantize; false: float32 activations.
  bool quantized_input = false;
  /// Bytes of a packed [rows, columns] panel.
  uint64_t (*packed_bytes)(DType dtype, int64_t rows, int64_t columns) = nullptr;
  /// Packs rows.size() rows of `columns` elements into dst. rows[i]: first byte of the i-th row's first wanted block,
  /// as GGUF stores it. dst: packed_bytes(dtype, rows.size(), columns) bytes, 64-byte aligned.
  void (*pack)(DType dtype, int64_t columns, std::span<const std::byte* const> rows, std::byte* dst) = nullptr;
};

class KernelTable {
 public:
  KernelTable(std::string kernel_class, std::vector<KernelRow> rows, std::vector<WeightLayout> layouts);

  /// The numeric class, e.g. "cpu-scalar".
  [[nodiscard]] const std::string& kernel_class() const { return class_; }
  /// The kernel for an op and its dtypes; null when the table has none.
  [[nodiscard]] KernelFn find(Op op, DType a = DType::kF32, DType b = DType::kF32) const;
  /// How weights of this dtype are stored; null when the table has no product for it.
  [[nodiscard]] const WeightLayout* layout(DType dtype) const;
  [[nodiscard]] std::span<const KernelRow> rows() const { return rows_; }

 private:
  std::string class_;
  std::vector<KernelRow> rows_;
  std::vector<WeightLayout> layouts_;
};

}  // namespace tessera
