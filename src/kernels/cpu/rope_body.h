#pragma once
// rope (kernels/ops/rope.h), compiled once per instruction set (see vec.h).

#include <algorithm>
#include <cstdint>

#include "device/cpu/cpu_launch.h"
#include "device/device.h"
#include "kernels/cpu/vec.h"
#include "kernels/ops/rope.h"

namespace tessera::TESSERA_ISA {

/// x, y: [head_dim] f32, equal or disjoint; table: [n_pairs, 2] f32. The compiler vectorises the loops: without fma and
/// without sums, that changes no bits.
inline void rotate_head(const float* x, float* y, const float* table, int64_t n_pairs, bool neox) {
  const int64_t second = neox ? n_pairs : 1;
  const int64_t step = neox ? 1 : 2;
  const auto rotate = [&](int64_t i, int64_t offset, int64_t stride) {
    const float a = x[i * stride];
    const float b = x[i * stride + offset];
    const float c = table[2 * i];
    const float s = table[2 * i + 1];
    y[i * stride] = a * c - b * s;
    y[i * stride + offset] = a * s + b * c;
  };
  if (neox) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n_pairs; ++i) {
      rotate(i, second, 1);
    }
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n_pairs; ++i) {
      rotate(i, 1, step);
    }
  }
}

void rope(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const RopeArgs*>(raw_args);
  int64_t n_heads = 0;
  for (const RopeInput& input : args.inputs) {
    n_heads += input.n_heads;
  }
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), sizes.n_tokens * n_heads);
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int64_t token = item / n_heads;
    int64_t head = item % n_heads;
    const RopeInput* input = args.inputs.data();
    for (; head >= input->n_heads; ++input) {
      head -= input->n_heads;
    }
    const float* x = input->x + token * input->x_stride + head * args.head_dim;
    float* y = input->y + token * input->y_stride + head * args.head_dim;
    rotate_head(x, y, args.table + token * args.n_pairs * 2, args.n_pairs, args.neox);
    if (x != y) {
      std::copy(x + 2 * args.n_pairs, x + args.head_dim, y + 2 * args.n_pairs);
    }
  }
}

}  // namespace tessera::TESSERA_ISA
