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

template <Activation kActivation>
inline F32x16 glu_lanes(const GluArgs& args, F32x16 gate, F32x16 up) {
  if constexpr (kActivation == Activation::kSiluClamped) {
    const F32x16 limit = splat(args.limit);
    const F32x16 x = min(limit, gate);
    const F32x16 y = max(zero() - limit, min(limit, up));
    return x / (splat(1.0F) + exp(x * splat(-args.alpha))) * (y + splat(1.0F));
  } else {
    return activate(kActivation, gate) * up;
  }
}

/// gate, up, y: [n] f32.
template <Activation kActivation>
inline void glu_span(const GluArgs& args, const float* gate, const float* up, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    store(y + i, glu_lanes<kActivation>(args, load(gate + i), load(up + i)));
  }
  if (i < n) {
    store_n(y + i, glu_lanes<kActivation>(args, load_n(gate + i, n - i), load_n(up + i, n - i)), n - i);
  }
}

using GluSpan = void (*)(const GluArgs& args, const float* gate, const float* up, float* y, int64_t n);

inline GluSpan glu_span_of(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return glu_span<Activation::kSilu>;
    case Activation::kGeluTanh: return glu_span<Activation::kGeluTanh>;
    case Activation::kSigmoid: return glu_span<Activation::kSigmoid>;
    case Activation::kSiluClamped: break;
  }
  return glu_span<Activation::kSiluClamped>;
}

void glu(void* launch, const void* raw_args, const LaunchSizes& sizes) {  // NOLINT(misc-definitions-in-headers)
  const auto& args = *static_cast<const GluArgs*>(raw_args);
  const auto span = glu_span_of(args.activation);
  const int64_t n_rows = args.n_rows == nullptr ? sizes.n_tokens : *args.n_rows;
  for_each_span(launch, n_rows, args.width, [&](int64_t row, int64_t begin, int64_t end) {
    float unwanted[kSpanColumns];
    for (int64_t at = begin; at < end; at += kSpanColumns) {
      const int64_t n = std::min(kSpanColumns, end - at);
      float* y = args.y != nullptr ? args.y + row * args.y_stride + at : unwanted;
      span(args, args.gate + row * args.gate_stride + at, args.up + row * args.up_stride + at, y, n);
      if (args.q8 != nullptr) {
        quantize_part(y, args.q8, row, args.width, at, n);
      }
    }
  });
}

}  // namespace tessera::TESSERA_ISA
