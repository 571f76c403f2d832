#pragma once
// Layout of KV pages, shared by append_kv and attention (docs/design.md, memory).
//
// A page holds kPageTokens consecutive positions of one sequence for the KV heads of one cut:
//   K [kv_head][token][k_dim] in k_type, then V [kv_head][token][v_dim] in v_type.
// Page p of a panel lies at base + p * page_bytes. All panels of a layer class share page numbers.

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/kv_page.h"

namespace tessera {

/// What a layer's cache stores per head and token.
struct KvFormat {
  DType k_type = DType::kF16;
  DType v_type = DType::kF16;
  int64_t k_dim = 0;  // multiple of the type's block
  int64_t v_dim = 0;
};

/// The pages of one cut on this device.
struct KvPanel {
  std::byte* base = nullptr;
  int64_t n_kv_heads = 0;
  int64_t kv_head_begin = 0;  // index of this cut's first KV head among the KV heads on this device
};

[[nodiscard]] inline int64_t kv_k_bytes(const KvFormat& f, int64_t n_kv_heads) {
  return n_kv_heads * kPageTokens * static_cast<int64_t>(row_bytes(f.k_type, static_cast<uint64_t>(f.k_dim)));
}
[[nodiscard]] inline int64_t kv_page_bytes(const KvFormat& f, int64_t n_kv_heads) {
  return kv_k_bytes(f, n_kv_heads) +
         n_kv_heads * kPageTokens * static_cast<int64_t>(row_bytes(f.v_type, static_cast<uint64_t>(f.v_dim)));
}

}  // namespace tessera
