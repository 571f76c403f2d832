#pragma once
// add (kernels/ops/add.h), compiled once per instruction set (see vec.h).

#include <cstdint>

#include "device/device.h"
#include "kernels/cpu/spans.h"
#include "kernels/cpu/vec.h"
#include "kernels/ops/add.h"

namespace tessera::TESSERA_ISA {

void add(void* launch, const void* raw_args, const LaunchSizes& sizes) {  // NOLINT(misc-definitions-in-headers)
  const auto& args = *static_cast<const AddArgs*>(raw_args);
  const int64_t n_rows = args.per_output ? sizes.n_outputs : sizes.n_tokens;
  for_each_span(launch, n_rows, args.width, [&](int64_t row, int64_t begin, int64_t end) {
    const float* a = args.a + row * args.a_stride;
    const float* b = args.b + row * args.b_stride;
    float* y = args.y + row * args.y_stride;
    for (int64_t i = begin; i < end; i += 16) {
      store_n(y + i, load_n(a + i, end - i) + load_n(b + i, end - i), end - i);
    }
  });
}

}  // namespace tessera::TESSERA_ISA
