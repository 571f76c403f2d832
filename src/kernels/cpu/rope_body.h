#pragma once
// rope (kernels/ops/rope.h), compiled once per instruction set (see vec.h).

#include <algorithm>
#include <cstdint>

#include "device/cpu/cpu_launch.h"
#include "device/device.h"
#include "kernels/cpu/vec.h"
#include "kernels/ops/rope.h"

namespace tessera::TESSERA_ISA {

/// Rotates sixteen pairs (a, b) by the angles at `table`, n of which exist. Written out, because the compiler turns
/// such a loop into multiply-add-subtract instructions, -ffp-contract=off or not (g++ 12).
inline void rotate(F32x16& a, F32x16& b, const float* table, int64_t n) {
  F32x16 c;
  F32x16 s;
  deinterleave(load_n(table, 2 * n), load_n(table + 16, 2 * n - 16), c, s);
  const F32x16 rotated = a * c - b * s;
  b = a * s + b * c;
  a = rotated;
}

/// x, y: [head_dim] f32, equal or disjoint; table: [n_pairs, 2] f32.
inline void rotate_head_norm(const float* x, float* y, const float* table, int64_t n_pairs) {
  for (int64_t i = 0; i < n_pairs; i += 16) {
    const int64_t n = n_pairs - i;
    F32x16 a;
    F32x16 b;
    deinterleave(load_n(x + 2 * i, 2 * n), load_n(x + 2 * i + 16, 2 * n - 16), a, b);
    rotate(a, b, table + 2 * i, n);
    F32x16 low;
    F32x16 high;
    interleave(a, b, low, high);
    store_n(y + 2 * i, low, 2 * n);
    store_n(y + 2 * i + 16, high, 2 * n - 16);
  }
}
inline void rotate_head_neox(const float* x, float* y, const float* table, int64_t n_pairs) {
  for (int64_t i = 0; i < n_pairs; i += 16) {
    const int64_t n = n_pairs - i;
    F32x16 a = load_n(x + i, n);
    F32x16 b = load_n(x + n_pairs + i, n);
    rotate(a, b, table + 2 * i, n);
    store_n(y + i, a, n);
    store_n(y + n_pairs + i, b, n);
  }
}

void rope(void* launch, const void* raw_args, const LaunchSizes& sizes) {  // NOLINT(misc-definitions-in-headers)
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
    const auto rotate_head = args.neox ? rotate_head_neox : rotate_head_norm;
    rotate_head(x, y, args.table + token * args.n_pairs * 2, args.n_pairs);
    if (x != y) {
      std::copy(x + 2 * args.n_pairs, x + args.head_dim, y + 2 * args.n_pairs);
    }
  }
}

}  // namespace tessera::TESSERA_ISA
