#pragma once
// attention of the fast set (kernels/ops/attention.h), compiled once per instruction set (see vec.h).
//
// A work item is one KV head and some of its query rows (pairs of token and repetition). Rows of one sequence walk its
// pages together: each page's keys and values become float32 once, whatever their type, and serve all rows. Which rows
// meet in an item, and whether few or many, changes no bits: every row has its own order of operations, fixed by its
// position and window:
//   per block of 32 keys: dots in the lane order of summation.h; the 32 exponentials join 16 running sums (lane i takes
//   keys i and i + 16); values join by one fma per key, keys ascending. Ranges merge the same way.

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "base/checked.h"
#include "device/cpu/cpu_launch.h"
#include "device/device.h"
#include "kernels/cpu/attention_few.h"
#include "kernels/cpu/attention_many.h"
#include "kernels/cpu/attention_page.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/ops/attention.h"

namespace tessera::TESSERA_ISA {

/// Everything an item works in; on the thread's stack (about 590 KiB).
struct AttentionScratch {
  PageScratch page;
  FewRows few;
  ManyRows many;
};

/// Query rows [begin, end) of one KV head; row r is token r / n_rep, repetition r % n_rep.
inline void attend_rows(const AttentionArgs& args, const KvPanel& panel, int64_t kv_head, int64_t begin, int64_t end,
                        AttentionScratch& scratch) {
  const PageReader reader(args.format, panel, kv_head);
  const int64_t head_begin = (panel.kv_head_begin + kv_head) * args.n_rep;
  for (int64_t r = begin; r < end;) {
    const int32_t sequence = args.seq_rows[r / args.n_rep];
    QueryRow rows[kManyRows];
    int64_t n = 0;
    for (; n < kManyRows && r + n < end && args.seq_rows[(r + n) / args.n_rep] == sequence; ++n) {
      rows[n] = query_row(args, head_begin, r + n);
    }
    const int32_t* pages = args.page_table + sequence * args.page_table_stride;
    if (n <= kFewRows) {
      attend_few(args, reader, pages, rows, n, scratch.few, scratch.page);
    } else {
      attend_many(args, reader, pages, rows, n, scratch.many, scratch.page);
    }
    r += n;
  }
}

// NOLINTNEXTLINE(misc-definitions-in-headers)
void attention(void* launch_ptr, const void* raw_args, const LaunchSizes& sizes) {
  const auto& args = *static_cast<const AttentionArgs*>(raw_args);
  CHECK(args.format.k_dim <= kAttentionMaxDim && args.format.v_dim <= kAttentionMaxDim);
  const auto& launch = *static_cast<const CpuLaunch*>(launch_ptr);
  int64_t n_kv_heads = 0;
  for (const KvPanel& panel : args.panels) {
    n_kv_heads += panel.n_kv_heads;
  }
  const int64_t n_rows = sizes.n_tokens * args.n_rep;
  if (n_rows == 0 || n_kv_heads == 0) {
    return;
  }
  // As many rows per item as scratch holds, but no fewer items than threads.
  const int64_t fair = std::max<int64_t>(1, n_rows * n_kv_heads / launch.n_threads);
  const int64_t n_blocks =
      static_cast<int64_t>(div_up(static_cast<uint64_t>(n_rows), static_cast<uint64_t>(std::min(fair, kManyRows))));
  AttentionScratch scratch;
  // Places that no row sees are read, though never used: they must hold numbers that the program wrote.
  std::fill_n(scratch.page.keys, kPageTokens * padded_dim(args.format.k_dim), 0.0F);
  // Later tokens see more keys, so threads take turns; the heads of one block of rows cost the same.
  for (int64_t item = launch.thread; item < n_blocks * n_kv_heads; item += launch.n_threads) {
    const int64_t block = item / n_kv_heads;
    int64_t kv_head = item % n_kv_heads;
    const KvPanel* panel = args.panels.data();
    for (; kv_head >= panel->n_kv_heads; ++panel) {
      kv_head -= panel->n_kv_heads;
    }
    attend_rows(args, *panel, kv_head, n_rows * block / n_blocks, n_rows * (block + 1) / n_blocks, scratch);
  }
}

}  // namespace tessera::TESSERA_ISA
