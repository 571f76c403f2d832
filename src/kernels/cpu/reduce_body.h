#pragma once
// reduce (kernels/ops/reduce.h), compiled once per instruction set (see vec.h).

#include <cstdint>

#include "base/check.h"
#include "device/device.h"
#include "kernels/cpu/spans.h"
#include "kernels/cpu/vec.h"
#include "kernels/ops/reduce.h"
#include "tensor/cut_rule.h"

namespace tessera::TESSERA_ISA {

/// Value of the postfix expression at columns i .. i + n of a row.
inline F32x16 reduce_at(const ReduceArgs& args, int64_t row, int64_t i, int64_t n) {
  F32x16 stack[kMaxCuts];
  int64_t depth = 0;
  for (const int8_t entry : args.order) {
    if (entry == kReduceAdd) {
      --depth;
      stack[depth - 1] = stack[depth - 1] + stack[depth];
    } else {
      const ReduceLeaf& leaf = args.leaves[static_cast<size_t>(entry)];
      stack[depth++] = load_n(leaf.data + row * leaf.stride + i, n);
    }
  }
  return stack[0];
}

void reduce(void* launch, const void* raw_args, const LaunchSizes& sizes) {  // NOLINT(misc-definitions-in-headers)
  const auto& args = *static_cast<const ReduceArgs*>(raw_args);
  CHECK(!args.order.empty() && args.leaves.size() <= kMaxCuts);
  for_each_span(launch, sizes.n_tokens, args.width, [&](int64_t row, int64_t begin, int64_t end) {
    float* y = args.y + row * args.y_stride;
    for (int64_t i = begin; i < end; i += 16) {
      const int64_t n = end - i;
      F32x16 v = reduce_at(args, row, i, n);
      if (args.scale != nullptr) {
        v = v * splat(*args.scale);
      }
      if (args.bias != nullptr) {
        v = v + load_n(args.bias + i, n);
      }
      if (args.residual != nullptr) {
        v = load_n(args.residual + row * args.residual_stride + i, n) + v;
      }
      store_n(y + i, v, n);
    }
  });
}

}  // namespace tessera::TESSERA_ISA
