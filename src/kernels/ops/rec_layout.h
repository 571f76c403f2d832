#pragma once
// Layout of recurrent state and of the values of a layer that has one, shared by short_conv, delta_gates and
// delta_rule (docs/design.md, memory).
//
// A group is a key head with its n_rep value heads. A slot holds one sequence's state of the groups of one cut: the
// last n_taps - 1 inputs of the convolution, a ring in which position p lies at p % (n_taps - 1), as [n_taps - 1]
// [channel]; then, on a multiple of 64 bytes, a matrix per value head, [value head][k_dim][v_dim]; all f32. Slot s of
// a panel lies at base + s * rec_slot_bytes. Rows of q, k and v hold, cut by cut: the query heads, the key heads, the
// value heads of the cut's groups, value heads in the order of the file (RecFormat::tiled).

#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "tensor/rec_run.h"

namespace tessera {

/// Largest k_dim that kernels take, and most taps: their scratch is sized for them. Whoever makes arguments refuses
/// more.
inline constexpr int64_t kDeltaMaxDim = 256;
inline constexpr int64_t kConvMaxTaps = 16;

/// Heads of one layer.
struct RecFormat {
  int64_t n_key_heads = 0;  // of the whole layer
  int64_t n_rep = 1;        // value heads per key head
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t n_taps = 2;  // at least 2
  bool tiled = false;  // value head r of key head g is r * n_key_heads + g; otherwise g * n_rep + r
};

/// The slots of one cut on this device.
struct RecPanel {
  std::byte* base = nullptr;
  int64_t n_groups = 0;
  int64_t group_begin = 0;  // index of the first group among the groups on this device
  int64_t first_group = 0;  // the same among the groups of the layer
};

/// Where a run of rows lies in a micro-batch: rows[run.row_begin + i] is the row of its i-th token.
struct RecRows {
  const int32_t* rows = nullptr;  // [n_tokens] i32
  const RecRun* runs = nullptr;   // [n_seqs]
};

[[nodiscard]] inline int64_t rec_group_channels(const RecFormat& f) {
  return 2 * f.k_dim + f.n_rep * f.v_dim;
}
[[nodiscard]] inline int64_t rec_conv_bytes(const RecFormat& f, int64_t n_groups) {
  const int64_t bytes = (f.n_taps - 1) * n_groups * rec_group_channels(f) * static_cast<int64_t>(sizeof(float));
  return static_cast<int64_t>(round_up(static_cast<uint64_t>(bytes), 64));
}
[[nodiscard]] inline int64_t rec_slot_bytes(const RecFormat& f, int64_t n_groups) {
  const int64_t bytes = n_groups * f.n_rep * f.k_dim * f.v_dim * static_cast<int64_t>(sizeof(float));
  return rec_conv_bytes(f, n_groups) + static_cast<int64_t>(round_up(static_cast<uint64_t>(bytes), 64));
}

/// The group, counted within the panel, of a value head counted within the panel; and that head's number in the layer.
[[nodiscard]] inline int64_t rec_group_of(const RecFormat& f, const RecPanel& panel, int64_t value_head) {
  return f.tiled ? value_head % panel.n_groups : value_head / f.n_rep;
}
[[nodiscard]] inline int64_t rec_layer_head(const RecFormat& f, const RecPanel& panel, int64_t value_head) {
  return f.tiled ? value_head / panel.n_groups * f.n_key_heads + panel.first_group + value_head % panel.n_groups
                 : panel.first_group * f.n_rep + value_head;
}

/// Channels that are neighbours both in a panel's rows and in the layer.
struct RecSegment {
  int64_t column = 0;   // within the panel's rows
  int64_t channel = 0;  // within the layer
  int64_t size = 0;
};
[[nodiscard]] inline int64_t rec_n_segments(const RecFormat& f) {
  return f.tiled ? 2 + f.n_rep : 3;
}
/// q, k, then v: one run of heads, or when tiled one for each value head of a key head.
[[nodiscard]] inline RecSegment rec_segment(const RecFormat& f, const RecPanel& panel, int64_t i) {
  if (i < 2) {
    return {i * panel.n_groups * f.k_dim, (i * f.n_key_heads + panel.first_group) * f.k_dim, panel.n_groups * f.k_dim};
  }
  const int64_t per_group = f.tiled ? f.v_dim : f.n_rep * f.v_dim;
  const int64_t keys_here = 2 * panel.n_groups * f.k_dim;
  const int64_t keys = 2 * f.n_key_heads * f.k_dim;
  return {keys_here + (i - 2) * panel.n_groups * per_group,
          keys + ((i - 2) * f.n_key_heads + panel.first_group) * per_group, panel.n_groups * per_group};
}

}  // namespace tessera
