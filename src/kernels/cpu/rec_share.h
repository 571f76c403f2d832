#pragma once
// How kernels with recurrent state share their work among threads. Included by kernel bodies.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "device/cpu/cpu_launch.h"
#include "device/device.h"
#include "kernels/cpu/spans.h"
#include "kernels/cpu/vec.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/short_conv.h"

namespace tessera::TESSERA_ISA {

/// Channels that one thread convolves at once, for all tokens of a run.
struct ConvSpan {
  int64_t column = 0;      // within the device's rows
  int64_t channel = 0;     // within the layer
  int64_t size = 0;        // at most kSpanColumns
  int64_t n_channels = 0;  // of the layer
  float* ring = nullptr;   // [n_taps - 1, ring_stride] f32, at the span's first channel
  int64_t ring_stride = 0;
};

/// The inputs of a run's i-th token by tap; null where a position is below 0.
inline void find_taps(const ShortConvArgs& args, const RecRun& run, const ConvSpan& span, int64_t i,
                      const float** taps) {
  const int64_t n_kept = args.format.n_taps - 1;
  for (int64_t j = 0; j <= n_kept; ++j) {
    const int64_t from = i - n_kept + j;  // relative to the run's first row
    if (from >= 0) {
      taps[j] = args.x + args.rows.rows[run.row_begin + from] * args.x_stride + span.column;
    } else {
      const int64_t position = run.position + from;
      taps[j] = position < 0 ? nullptr : span.ring + position % n_kept * span.ring_stride;
    }
  }
}

/// Leaves the run's last inputs in the ring.
inline void keep_inputs(const ShortConvArgs& args, const RecRun& run, const ConvSpan& span) {
  const int64_t n_kept = args.format.n_taps - 1;
  for (int64_t i = std::max<int64_t>(run.n_rows - n_kept, 0); i < run.n_rows; ++i) {
    const float* x = args.x + args.rows.rows[run.row_begin + i] * args.x_stride + span.column;
    std::memcpy(span.ring + (run.position + i) % n_kept * span.ring_stride, x,
                static_cast<size_t>(span.size) * sizeof(float));
  }
}

/// Calls body(run, span) for this thread's share of all runs and channels, and keeps the inputs afterwards.
template <class Body>
inline void for_each_conv_span(void* launch, const ShortConvArgs& args, const LaunchSizes& sizes, Body body) {
  const RecFormat& format = args.format;
  const int64_t group_channels = rec_group_channels(format);
  int64_t n_spans = 0;
  for (const RecPanel& panel : args.panels) {
    for (int64_t i = 0; i < rec_n_segments(format); ++i) {
      n_spans += (rec_segment(format, panel, i).size + kSpanColumns - 1) / kSpanColumns;
    }
  }
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), n_spans * sizes.n_seqs);
  int64_t at = 0;
  for (int32_t r = 0; r < sizes.n_seqs; ++r) {
    const RecRun& run = args.rows.runs[r];
    for (const RecPanel& panel : args.panels) {
      std::byte* slot = panel.base + run.slot * rec_slot_bytes(format, panel.n_groups);
      for (int64_t i = 0; i < rec_n_segments(format); ++i) {
        const RecSegment segment = rec_segment(format, panel, i);
        for (int64_t begin = 0; begin < segment.size; begin += kSpanColumns, ++at) {
          if (at < share.begin || at >= share.end) {
            continue;
          }
          const int64_t column = segment.column + begin;
          const ConvSpan span = {panel.group_begin * group_channels + column,  segment.channel + begin,
                                 std::min(kSpanColumns, segment.size - begin), format.n_key_heads * group_channels,
                                 reinterpret_cast<float*>(slot) + column,      panel.n_groups * group_channels};
          body(run, span);
          keep_inputs(args, run, span);
        }
      }
    }
  }
}

/// One value head of one sequence.
struct DeltaHead {
  int64_t q_column = 0;  // within the device's rows of q, k and v
  int64_t k_column = 0;
  int64_t v_column = 0;
  int64_t out_head = 0;    // among the device's value heads
  float* state = nullptr;  // [k_dim, v_dim] f32
};

/// Calls body(run, head, block) for this thread's share of all runs, value heads and n_blocks parts of each head.
template <class Body>
inline void for_each_delta_head(void* launch, const DeltaRuleArgs& args, const LaunchSizes& sizes, int64_t n_blocks,
                                Body body) {
  const RecFormat& format = args.format;
  int64_t n_heads = 0;
  for (const RecPanel& panel : args.panels) {
    n_heads += panel.n_groups * format.n_rep;
  }
  const CpuShare share = cpu_share(*static_cast<const CpuLaunch*>(launch), sizes.n_seqs * n_heads * n_blocks);
  for (int64_t item = share.begin; item < share.end; ++item) {
    const RecRun& run = args.rows.runs[item / (n_heads * n_blocks)];
    int64_t h = item / n_blocks % n_heads;
    DeltaHead head;
    head.out_head = h;
    const RecPanel* panel = args.panels.data();
    for (; h >= panel->n_groups * format.n_rep; ++panel) {
      h -= panel->n_groups * format.n_rep;
    }
    const int64_t columns = panel->group_begin * rec_group_channels(format);
    const int64_t group = rec_group_of(format, *panel, h);
    head.q_column = columns + group * format.k_dim;
    head.k_column = columns + (panel->n_groups + group) * format.k_dim;
    head.v_column = columns + 2 * panel->n_groups * format.k_dim + h * format.v_dim;
    std::byte* slot = panel->base + run.slot * rec_slot_bytes(format, panel->n_groups);
    head.state =
        reinterpret_cast<float*>(slot + rec_conv_bytes(format, panel->n_groups)) + h * format.k_dim * format.v_dim;
    body(run, head, item % n_blocks);
  }
}

}  // namespace tessera::TESSERA_ISA
