#pragma once
// append_kv (kernels/ops/append_kv.h), compiled once per instruction set (see vec.h).

#include <cstdint>
#include <cstring>

#include "device/cpu/cpu_launch.h"
#include "device/device.h"
#include "kernels/cpu/vec.h"
#include "kernels/ops/append_kv.h"
#include "tensor/half.h"
#include "tensor/quants.h"

namespace tessera::TESSERA_ISA {

/// Writes n values in a cache's type.
inline void write_cache_row(DType dtype, const float* src, std::byte* dst, int64_t n) {
  if (dtype == DType::kF32) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
  } else if (dtype == DType::kF16) {
    auto* half = reinterpret_cast<uint16_t*>(dst);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
      store_f16(half + i, load(src + i));
    }
    for (; i < n; ++i) {
      half[i] = f32_to_f16(src[i]);
    }
  } else if (dtype == DType::kBF16) {
    auto* half = reinterpret_cast<uint16_t*>(dst);
    for (int64_t i = 0; i < n; ++i) {
      half[i] = f32_to_bf16(src[i]);
    }
  } else {
    quantize_row(dtype, src, dst, n);
  }
}

void append_kv(void* launch, const void* raw_args, const LaunchSizes& sizes) {  // NOLINT(misc-definitions-in-headers)
  const auto& args = *static_cast<const AppendKvArgs*>(raw_args);
  const KvFormat& format = args.format;
  const auto k_row = static_cast<int64_t>(row_bytes(format.k_type, static_cast<uint64_t>(format.k_dim)));
  const auto v_row = static_cast<int64_t>(row_bytes(format.v_type, static_cast<uint64_t>(format.v_dim)));
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), sizes.n_tokens);
  for (int64_t token = share.begin; token < share.end; ++token) {
    const int64_t page = args.slots[token] / kPageTokens;
    const int64_t place = args.slots[token] % kPageTokens;
    for (const KvPanel& panel : args.panels) {
      std::byte* k_base = panel.base + page * kv_page_bytes(format, panel.n_kv_heads);
      std::byte* v_base = k_base + kv_k_bytes(format, panel.n_kv_heads);
      for (int64_t head = 0; head < panel.n_kv_heads; ++head) {
        const float* k = args.k + token * args.k_stride + (panel.kv_head_begin + head) * format.k_dim;
        const float* v = args.v + token * args.v_stride + (panel.kv_head_begin + head) * format.v_dim;
        write_cache_row(format.k_type, k, k_base + (head * kPageTokens + place) * k_row, format.k_dim);
        write_cache_row(format.v_type, v, v_base + (head * kPageTokens + place) * v_row, format.v_dim);
      }
    }
  }
}

}  // namespace tessera::TESSERA_ISA
