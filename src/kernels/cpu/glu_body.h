#pragma once
// glu of the fast set (kernels/ops/glu.h), compiled once per instruction set (see vec.h).

#include <algorithm>
#include <cstdint>

#include "device/device.h"
#include "kernels/cpu/quantize_block.h"
#include "kernels/cpu/spans.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/ops/glu.h"

namespace tessera::TESSERA_ISA {

/// gate, up, y: [n] f32.
template <Activation kActivation>
inline void glu_span(const float* gate, const float* up, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    store(y + i, activate(kActivation, load(gate + i)) * load(up + i));
  }
  if (i < n) {
    store_n(y + i, activate(kActivation, load_n(gate + i, n - i)) * load_n(up + i, n - i), n - i);
  }
}

void glu(void* launch, const void* raw_args, const LaunchSizes& sizes) {  // NOLINT(misc-definitions-in-headers)
  const auto& args = *static_cast<const GluArgs*>(raw_args);
  const auto span =
      args.activation == Activation::kSilu ? glu_span<Activation::kSilu> : glu_span<Activation::kGeluTanh>;
  for_each_span(launch, sizes.n_tokens, args.width, [&](int64_t row, int64_t begin, int64_t end) {
    float unwanted[kSpanColumns];
    for (int64_t at = begin; at < end; at += kSpanColumns) {
      const int64_t n = std::min(kSpanColumns, end - at);
      float* y = args.y != nullptr ? args.y + row * args.y_stride + at : unwanted;
      span(args.gate + row * args.gate_stride + at, args.up + row * args.up_stride + at, y, n);
      if (args.q8 != nullptr) {
        quantize_part(y, args.q8, row, args.width, at, n);
      }
    }
  });
}

}  // namespace tessera::TESSERA_ISA
