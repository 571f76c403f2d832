#include "kernels/kernel_table.h"

#include <utility>

namespace tessera {

const char* op_name(Op op) {
  switch (op) {
    case Op::kRmsNorm: return "rms_norm";
    case Op::kQuantize: return "quantize";
    case Op::kMatmul: return "matmul";
    case Op::kRopeTable: return "rope_table";
    case Op::kRope: return "rope";
    case Op::kAppendKv: return "append_kv";
    case Op::kAttention: return "attention";
    case Op::kGlu: return "glu";
    case Op::kReduce: return "reduce";
    case Op::kAdd: return "add";
    case Op::kScale: return "scale";
    case Op::kAffine: return "affine";
    case Op::kGatherRows: return "gather_rows";
    case Op::kRoute: return "route";
    case Op::kExpertRows: return "expert_rows";
    case Op::kExpertGather: return "expert_gather";
    case Op::kExpertUpload: return "expert_upload";
    case Op::kExpertMatmul: return "expert_matmul";
    case Op::kExpertSum: return "expert_sum";
    case Op::kGateRows: return "gate_rows";
    case Op::kSplitHeads: return "split_heads";
    case Op::kShortConv: return "short_conv";
    case Op::kDeltaGates: return "delta_gates";
    case Op::kDeltaRule: return "delta_rule";
    case Op::kGatedNorm: return "gated_norm";
  }
  return "unknown";
}

KernelTable::KernelTable(std::string kernel_class, std::vector<KernelRow> rows, std::vector<WeightLayout> layouts)
    : class_(std::move(kernel_class)), rows_(std::move(rows)), layouts_(std::move(layouts)) {}

KernelFn KernelTable::find(Op op, DType a, DType b) const {
  for (const KernelRow& row : rows_) {
    if (row.op == op && row.a == a && row.b == b) {
      return row.function;
    }
  }
  return nullptr;
}

const WeightLayout* KernelTable::layout(DType dtype) const {
  for (const WeightLayout& layout : layouts_) {
    if (layout.dtype == dtype) {
      return &layout;
    }
  }
  return nullptr;
}

}  // namespace tessera
