#pragma once
// append_kv: writes this batch's keys and values into their pages, converting to the cache's types.
//
// Token t goes to page slots[t] / kPageTokens, place slots[t] % kPageTokens, of every panel. Quantised types are
// written with quantize_row's rounding (tensor/quants.h). Bytes: reads n_tokens * heads * dims * 4, writes the
// converted rows.

#include <cstdint>
#include <vector>

#include "kernels/ops/kv_layout.h"

namespace tessera {

struct AppendKvArgs {
  const float* k = nullptr;  // [n_tokens, k_stride] f32; row t holds this device's KV heads of k_dim
  int64_t k_stride = 0;
  const float* v = nullptr;  // [n_tokens, v_stride] f32; row t holds this device's KV heads of v_dim
  int64_t v_stride = 0;
  const int32_t* slots = nullptr;  // [n_tokens] i32
  KvFormat format;
  std::vector<KvPanel> panels;
};

}  // namespace tessera
