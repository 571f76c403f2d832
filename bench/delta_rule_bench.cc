// What the delta rule and its convolution take per token, by the number of tokens of one sequence in a micro-batch: up
// to kDeltaChunkMin - 1 they go one by one, from there on in chunks.
//
//   delta_rule_bench [portable|avx2|avxvnni|avx512]    default: the best of this processor
//
// The sizes are those of recurrent_cases.h; one thread; the fastest of several runs in thread CPU time, so that a busy
// machine disturbs them little.

#include <cstdio>
#include <string>

#include "recurrent_cases.h"

namespace tessera::bench {
namespace {

double us_per_token(const Case& one, int64_t n_tokens) {
  return 1e6 * fastest(10, *start_team(1), one.commands, sizes_of(n_tokens)) / static_cast<double>(n_tokens);
}

int run(int argc, char** argv) {
  const std::optional<CpuIsa> isa = argc > 1 ? isa_from_name(argv[1]) : cpu_isas().back();
  if (!isa || argc > 2) {
    std::fputs("usage: delta_rule_bench [portable|avx2|avxvnni|avx512], one that this processor has\n", stderr);
    return 2;
  }
  const KernelTable& table = *cpu_kernel_table(CpuKernelSet::kFast, *isa).value();
  std::printf("%s, microseconds per token\ntokens         delta_rule         short_conv\n",
              std::string(cpu_isa_name(*isa)).c_str());
  for (const int64_t n : {1, 15, 16, 64, 512}) {
    std::printf("%6ld %18.1f %18.1f\n", n, us_per_token(delta_rule_cases(table.find(Op::kDeltaRule), n).front(), n),
                us_per_token(short_conv_cases(table.find(Op::kShortConv), n).front(), n));
  }
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  return tessera::bench::run(argc, argv);
}
