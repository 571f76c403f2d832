#pragma once
// The fast set's product, compiled once per instruction set: who computes which rows and tokens, and with which tile.

#include <algorithm>
#include <array>
#include <span>

#include "base/check.h"
#include "device/cpu/cpu_launch.h"
#include "device/device.h"
#include "kernels/cpu/matmul_coded.h"
#include "kernels/cpu/matmul_float.h"
#include "kernels/cpu/matmul_part.h"
#include "kernels/cpu/matmul_split.h"
#include "kernels/cpu/matmul_tile.h"
#include "kernels/ops/matmul.h"

namespace tessera::TESSERA_ISA {

/// Calls product_tile for a token count that is known at run time, 1 .. kMaxTokens.
template <class Weights, int kMaxTokens, int kGroups>
void run_tile(Weights weights, int64_t n_blocks, const Activations& x, int64_t n_tokens, bool first, float* y,
              int64_t y_stride, int64_t n_rows, const std::byte* ask = nullptr) {
  using Tile = void (*)(Weights, int64_t, const Activations&, bool, float*, int64_t, int64_t, const std::byte*);
  static constexpr auto kTiles = []<int... i>(std::integer_sequence<int, i...>) {
    return std::array<Tile, kMaxTokens>{product_tile<Weights, i + 1, kGroups>...};
  }(std::make_integer_sequence<int, kMaxTokens>());
  kTiles[static_cast<size_t>(n_tokens - 1)](weights, n_blocks, x, first, y, y_stride, n_rows, ask);
}

/// n_rows rows from the start of a group, at most kLoneTokens tokens: weights are unpacked in registers, for few tokens
/// kDirectGroups groups at a time.
template <class Weights>
void rows_direct(Weights weights, int64_t n_blocks, const Activations& x, int64_t n_tokens, float* y, int64_t y_stride,
                 int64_t n_rows) {
  int64_t row = 0;
  int group = 0;
  constexpr int64_t kRows = kDirectGroups * kGroupRows;
  for (; n_tokens <= kDirectTokens && row + kRows <= n_rows; row += kRows, group += kDirectGroups) {
    run_tile<Weights, kDirectTokens, kDirectGroups>(weights.group(group), n_blocks, x, n_tokens, true, y + row,
                                                    y_stride, kGroupRows);
  }
  for (; row < n_rows; row += kGroupRows, ++group) {
    run_tile<Weights, kLoneTokens, 1>(weights.group(group), n_blocks, x, n_tokens, true, y + row, y_stride,
                                      std::min(kGroupRows, n_rows - row));
  }
}

/// The activations of a tile on slabs: x, or a copy of 16 bits.
template <class Unpacked>
class TileInput {
 public:
  Activations take(const Activations& x, int64_t n_tokens, int64_t n_blocks) {
    if constexpr (Unpacked::kBits == 16) {
      for (int64_t t = 0; t < n_tokens; ++t) {
        for (int64_t b = 0; b < n_blocks; ++b) {
          widen_block(x.word<kBlockLines>(t, b, 0), wide_[t][b]);
        }
      }
      return {reinterpret_cast<const int8_t*>(wide_), x.scales, sizeof(wide_[0]), x.scale_bytes};
    }
    return x;
  }

 private:
  alignas(64) std::byte wide_[Unpacked::kBits == 16 ? kSlabTokens : 1][Unpacked::kBlocks][2 * kQ8Block];
};

/// What the next slab is filled from, handed out to the tiles that are computed before.
class NextBlocks {
 public:
  explicit NextBlocks(std::span<const std::byte> bytes)
      : bytes_(bytes.data()), n_lines_(static_cast<int64_t>(bytes.size()) / kLineBytes) {}
  /// The next n lines; where fewer are left, the last n.
  const std::byte* take(int64_t n) {
    const int64_t line = std::min(taken_, std::max<int64_t>(n_lines_ - n, 0));
    taken_ += n;
    return bytes_ + line * kLineBytes;
  }

 private:
  const std::byte* bytes_;
  int64_t n_lines_;
  int64_t taken_ = 0;
};

/// The same for many tokens: weights are unpacked a slab at a time. All rows pass over `step` blocks of the activations
/// before the next ones, a multiple of those of a slab.
template <class Weights>
void rows_by_slabs(Weights weights, int64_t n_blocks, int64_t step, const Activations& x, int64_t n_tokens, float* y,
                   int64_t y_stride, int64_t n_rows) {
  using Unpacked = SlabOf<Weights>;
  Slab slabs[kSlabGroups];
  TileInput<Unpacked> input;
  // Where there are too few tiles to ask for all of the next slab, filling asks ahead itself.
  const bool streams = n_tokens < 16 * kSlabTokens;
  const auto group_at = [&](int64_t row) { return weights.group(static_cast<int>(row / kGroupRows)); };
  const auto product = [&]<int kGroups>(int64_t row, int64_t begin, int64_t end) {
    constexpr int kJoint = std::min(kGroups, kTileGroups);
    for (int64_t b = begin; b < end; b += Unpacked::kBlocks) {
      const int64_t n = std::min(Unpacked::kBlocks, end - b);
      for (int g = 0; g < kGroups; ++g) {
        fill_slab(group_at(row + g * kGroupRows), b, n, slabs[g], streams);
      }
      const int64_t next_b = b + n < end ? b + n : begin;
      const int64_t row_after = row + kGroups * kGroupRows < n_rows ? row + kGroups * kGroupRows : 0;
      const int64_t next_row = b + n < end ? row : row_after;
      const int64_t next_n = std::min(Unpacked::kBlocks, end - next_b);
      auto next = [&]<int... g>(std::integer_sequence<int, g...>) {
        return std::array{NextBlocks(group_at(next_row + g * kGroupRows).bytes(next_b, next_n))...};
      }(std::make_integer_sequence<int, kGroups>());
      for (int64_t t = 0; t < n_tokens; t += kSlabTokens) {
        const int64_t tokens = std::min<int64_t>(kSlabTokens, n_tokens - t);
        const Activations tile_x = input.take(x.from(t, b), tokens, n);
        const std::byte* ask = streams ? slabs[0].lines[0] : next[t / kSlabTokens % kGroups].take(n);
        for (int g = 0; g < kGroups; g += kJoint) {
          const int64_t tile_row = row + g * kGroupRows;
          run_tile<Unpacked, kSlabTokens, kJoint>(
              Unpacked(slabs[g]), n, tile_x, tokens, b == 0, y + t * y_stride + tile_row, y_stride,
              std::min(kGroupRows, n_rows - tile_row - (kJoint - 1) * kGroupRows), ask);
        }
      }
    }
  };
  for (int64_t b = 0; b < n_blocks; b += step) {
    const int64_t end = std::min(b + step, n_blocks);
    int64_t row = 0;
    // Few tokens, of coded weights: a group at a time is one stream of memory.
    for (; n_tokens > kDirectTokens && row + (kSlabGroups - 1) * kGroupRows < n_rows; row += kSlabGroups * kGroupRows) {
      product.template operator()<kSlabGroups>(row, b, end);
    }
    for (; row < n_rows; row += kGroupRows) {
      product.template operator()<1>(row, b, end);
    }
  }
}

/// Tokens and blocks of columns whose activations stay in a second-level cache while all rows pass over them: as many
/// tokens as leave room for a slab's blocks, so that weights are unpacked as rarely as can be.
struct Resident {
  int64_t tokens, blocks;
};
inline Resident resident_activations(int64_t n_tokens) {
  constexpr int64_t kBlocks = (768 << 10) / (kQ8Block + static_cast<int64_t>(sizeof(Q8Scale)));
  constexpr int64_t kMost = kBlocks / kSlabBlocks;
  const int64_t n_passes = (n_tokens + kMost - 1) / kMost;
  const int64_t tokens = (n_tokens + n_passes * kSlabTokens - 1) / (n_passes * kSlabTokens) * kSlabTokens;
  return {tokens, std::max(kBlocks / tokens / kSlabBlocks, int64_t{1}) * kSlabBlocks};
}

/// What reads the weights of a format.
template <PackedFormat kFormat, bool kCoded = kFormat.kind == ScaleKind::kCoded>
struct WeightsOf {
  using Type = PackedWeights<kFormat>;
};
template <PackedFormat kFormat>
struct WeightsOf<kFormat, true> {
  using Type = CodedWeights<kFormat.dtype>;
};

template <PackedFormat kFormat>
void product_packed(const MatmulPart& part, const MatmulArgs& args) {
  const MatmulPanel& panel = part.panel;
  const int64_t n_blocks = panel.columns / kQ8Block;
  const int64_t group_bytes = kFormat.group_bytes(n_blocks);
  using Weights = typename WeightsOf<kFormat>::Type;
  const Weights weights(static_cast<const std::byte*>(panel.weights) + part.row_begin / kGroupRows * group_bytes,
                        group_bytes);
  const Activations x = {static_cast<const int8_t*>(args.q8), q8_scales(args.q8, args.q8_columns),
                         q8_row_bytes(args.q8_columns), q8_row_bytes(args.q8_columns)};
  const int64_t n_tokens = part.token_end - part.token_begin;
  const int64_t n_rows = part.row_end - part.row_begin;
  const auto x_from = [&](int64_t t) { return x.from(t, panel.column_begin / kQ8Block); };
  const auto y_from = [&](int64_t t) { return panel.y + t * panel.y_stride + part.row_begin; };
  if constexpr (kFormat.kind != ScaleKind::kCoded) {
    if (n_tokens <= kLoneTokens) {
      return rows_direct(weights, n_blocks, x_from(part.token_begin), n_tokens, y_from(part.token_begin),
                         panel.y_stride, n_rows);
    }
  }
  const Resident step = resident_activations(n_tokens);
  for (int64_t t = part.token_begin; t < part.token_end; t += step.tokens) {
    rows_by_slabs(weights, n_blocks, step.blocks, x_from(t), std::min(step.tokens, part.token_end - t), y_from(t),
                  panel.y_stride, n_rows);
  }
}

inline void product_floats(const MatmulPart& part, const MatmulArgs& args) {
  const MatmulPanel& panel = part.panel;
  for (int64_t row = part.row_begin; row < part.row_end; row += kFloatRows) {
    for (int64_t t = part.token_begin; t < part.token_end; t += kFloatTokens) {
      float_rows(panel, row, std::min(kFloatRows, part.row_end - row), args.x + t * args.x_stride + panel.column_begin,
                 args.x_stride, std::min(kFloatTokens, part.token_end - t), panel.y + t * panel.y_stride);
    }
  }
}

/// Finds the panel's format among kPackedFormats.
template <size_t kIndex = 0>
void product_part(const MatmulPart& part, const MatmulArgs& args) {
  if constexpr (kIndex == std::size(kPackedFormats)) {
    product_floats(part, args);
  } else if (part.panel.dtype == kPackedFormats[kIndex].dtype) {
    product_packed<kPackedFormats[kIndex]>(part, args);
  } else {
    product_part<kIndex + 1>(part, args);
  }
}

// NOLINTNEXTLINE(misc-definitions-in-headers)
void matmul_part(const MatmulPart& part, const MatmulArgs& args) {
  product_part(part, args);
}

/// How many parts the tokens are split into, a divisor of n_threads: one as long as there are rows enough.
inline int token_parts(const MatmulArgs& args, int64_t n_tokens, int n_threads) {
  int64_t n_groups = 0;
  for (const MatmulPanel& panel : args.panels) {
    n_groups += (panel.rows + kGroupRows - 1) / kGroupRows;
  }
  int parts = 1;
  for (int d = 2; d <= n_threads && n_groups * parts < 4 * n_threads && n_tokens >= d * 2 * kSlabTokens; ++d) {
    parts = n_threads % d == 0 ? d : parts;
  }
  return parts;
}

/// Weights that a thread takes at once from what is left of a product of few tokens: 2 us of a core's share of DRAM.
constexpr int64_t kPieceBytes = 32 << 10;

void matmul(void* launch, const void* raw_args, const LaunchSizes& sizes) {
  const auto& cpu = *static_cast<const CpuLaunch*>(launch);
  const auto& args = *static_cast<const MatmulArgs*>(raw_args);
  const int64_t n_tokens = args.per_output ? sizes.n_outputs : sizes.n_tokens;
  // Few tokens: time goes with the bytes of weights; many: with their number, and decoding costs extra.
  const auto cost = [&](const MatmulPanel& panel) -> int64_t {
    const PackedFormat* format = packed_format(panel.dtype);
    if (n_tokens <= kDirectTokens) {
      return format != nullptr ? format->group_bytes(panel.columns / kQ8Block)
                               : kGroupRows * static_cast<int64_t>(row_bytes(panel.dtype, panel.columns));
    }
    return format != nullptr ? panel.columns : 4 * panel.columns;
  };
  const int n_token_parts = token_parts(args, n_tokens, cpu.n_threads);
  const int n_row_parts = cpu.n_threads / n_token_parts;
  const CpuShare tokens = cpu_share({cpu.thread / n_row_parts, n_token_parts}, n_tokens, kSlabTokens);
  if (tokens.begin == tokens.end) {
    return;
  }
  const RowLine line(args.panels, kGroupRows, cost);
  const auto visit = [&](const MatmulPanel& panel, int64_t begin, int64_t end) {
    matmul_part({panel, begin, end, tokens.begin, tokens.end}, args);
  };
  if (n_tokens <= kDirectTokens) {
    int64_t piece = kPieceBytes;
    for (const MatmulPanel& panel : args.panels) {
      piece = std::max(piece, kDirectGroups * cost(panel));
    }
    visit_share_evenly(line, cpu, piece, visit);
  } else {
    visit_share(line, cpu.thread % n_row_parts, n_row_parts, visit);
  }
}

}  // namespace tessera::TESSERA_ISA
