#pragma once
// expert_sum (kernels/ops/expert_sum.h), compiled once per instruction set (see vec.h).

#include <cstdint>
#include <cstring>

#include "device/device.h"
#include "kernels/cpu/spans.h"
#include "kernels/cpu/vec.h"
#include "kernels/ops/expert_sum.h"

namespace tessera::TESSERA_ISA {

// NOLINTNEXTLINE(misc-definitions-in-headers)
void expert_sum(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const ExpertSumArgs*>(raw_args);
  const auto n_pieces = static_cast<int64_t>(args.pieces.size());
  for_each_span(launch, sizes.n_tokens * n_pieces, args.width, [&](int64_t item, int64_t begin, int64_t end) {
    const int64_t token = item / n_pieces;
    const ExpertSumPiece& piece = args.pieces[static_cast<size_t>(item % n_pieces)];
    const int32_t* experts = args.routing + token * 2 * args.n_used;
    const int32_t* rows = args.rows + token * args.n_used;
    int64_t first = 0;
    while (first < args.n_used && experts[first] < piece.expert_begin) {
      ++first;
    }
    for (int64_t i = begin; i < end; i += 16) {
      F32x16 sum = zero();
      for (int64_t e = first; e < args.n_used && experts[e] < piece.expert_end; ++e) {
        float weight = 0;
        std::memcpy(&weight, experts + args.n_used + e, sizeof(weight));
        sum = fma(splat(weight), load_n(args.x + rows[e] * args.width + i, end - i), sum);
      }
      store_n(piece.y + token * args.width + i, sum, end - i);
    }
  });
}

}  // namespace tessera::TESSERA_ISA
