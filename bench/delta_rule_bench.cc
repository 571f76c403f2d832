// What the delta rule and its convolution take per token, by the number of tokens of one sequence in a micro-batch: up
// to kDeltaChunkMin - 1 they go one by one, from there on in chunks.
//
//   delta_rule_bench [avx2|avx512|portable]    default: the best of this processor
//
// 16 key heads of 128 with two value heads each, one thread; the fastest of several runs in thread CPU time, so that a
// busy machine disturbs them little.

#include <algorithm>
#include <cstdio>
#include <random>
#include <string_view>
#include <vector>

#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/ops/delta_rule.h"
#include "kernels/ops/short_conv.h"
#include "timing.h"

namespace tessera {
namespace {

double fastest_us(KernelFn kernel, const void* args, int32_t n_tokens) {
  CpuLaunch launch{0, 1};
  return 1e6 * bench::fastest(10, [&] { kernel(&launch, args, {n_tokens, 0, 1}); });
}

void measure(const KernelTable& table, int32_t n_tokens) {
  const RecFormat format{16, 2, 128, 128, 4, true};
  const int64_t width = format.n_key_heads * rec_group_channels(format);
  const int64_t n_heads = format.n_key_heads * format.n_rep;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> qkv(static_cast<size_t>(n_tokens * width));
  std::generate(qkv.begin(), qkv.end(), [&] { return normal(random); });
  const std::vector<float> log_decay(static_cast<size_t>(n_tokens * n_heads), -0.05F);
  const std::vector<float> strength(static_cast<size_t>(n_tokens * n_heads), 0.5F);
  const std::vector<float> weight(static_cast<size_t>(format.n_taps * width), 0.3F);
  std::vector<float> out(static_cast<size_t>(n_tokens * width));
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> slot(static_cast<size_t>(rec_slot_bytes(format, format.n_key_heads)) / 64);
  std::vector<int32_t> rows(static_cast<size_t>(n_tokens));
  for (int32_t i = 0; i < n_tokens; ++i) {
    rows[static_cast<size_t>(i)] = i;
  }
  const RecRun run{0, 0, n_tokens, 1};
  const std::vector<RecPanel> panels = {{slot.front().bytes, format.n_key_heads, 0, 0}};
  const RecRows where{rows.data(), &run};
  const DeltaRuleArgs delta{
      qkv.data(), width, log_decay.data(), strength.data(), n_heads, out.data(), n_heads * format.v_dim, 1e-6F, format,
      panels,     where};
  const ShortConvArgs conv{qkv.data(), width, out.data(), width, weight.data(), format, panels, where};
  std::printf("%6d %18.1f %18.1f\n", n_tokens, fastest_us(table.find(Op::kDeltaRule), &delta, n_tokens) / n_tokens,
              fastest_us(table.find(Op::kShortConv), &conv, n_tokens) / n_tokens);
}

int run(int argc, char** argv) {
  CpuIsa chosen = cpu_isas().back();
  for (const CpuIsa isa : cpu_isas()) {
    chosen = argc > 1 && cpu_isa_name(isa) == std::string_view(argv[1]) ? isa : chosen;
  }
  std::printf("%s, microseconds per token\ntokens         delta_rule         short_conv\n",
              cpu_isa_name(chosen).data());
  for (const int32_t n : {1, 15, 16, 64, 512}) {
    measure(*cpu_kernel_table(CpuKernelSet::kFast, chosen).value(), n);
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  return tessera::run(argc, argv);
}
