// What the CPU's products reach, against ceilings measured in the same run.
//
//   matmul_bench [--isa portable|avx2|avxvnni|avx512] [--dtype NAME]... [--shape ROWSxCOLUMNS]... [--tokens N]
//                [--panels] [--csv ROUNDS]
//
// Ceilings: bytes read per second from a buffer of the size of a model, and int8 products per second from registers.
// Per dtype and shape: decode (1 token; weights from enough copies that no cache but the last holds them) as GB/s of
// packed weights and its share of the read rate; prefill (--tokens, default 256) as 10^9 products (multiply and add)
// per second and its share of the peak. --panels: one row-parallel weight as 1, 2 and 4 column panels in one launch.
// All figures are of one thread, from the fastest of several short runs in thread CPU time, so that a busy machine
// disturbs them little. --csv: the first shape only, every weight format unless --dtype says otherwise, each beside
// Q8_0 and beside its own ceilings in each of ROUNDS rounds; 8 tokens too; medians, and lowest and highest. The program
// checks that the panels' bits equal those of each panel alone, and fails where they do not.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ceilings.h"
#include "matmul_case.h"

namespace tessera::bench {
namespace {

constexpr uint64_t kFootprint = 64 << 20;  // about a small model; beyond every cache but the last

struct Rates {
  double decode_s, prefill_s;
  double bytes;       // of the packed weight
  double pack_per_s;  // bytes of GGUF
};

Rates measure_shape(const Kernels& kernels, DType dtype, int64_t rows, int64_t columns, int64_t n_tokens,
                    int64_t n_decode_tokens) {
  const WeightLayout& layout = *kernels.table->layout(dtype);
  const Weight weight(dtype, rows, columns);
  const uint64_t bytes = round_up(weight.packed_bytes(layout, columns), 64);
  const uint64_t copies = std::max<uint64_t>(1, kFootprint / bytes);
  const AlignedBytes packed(bytes * copies);
  double pack_s = 1e30;
  for (uint64_t i = 0; i < copies; ++i) {
    pack_s = std::min(pack_s, weight.pack(layout, 0, columns, packed.bytes + i * bytes));
  }
  const AlignedBytes y_bytes(static_cast<uint64_t>(std::max(n_tokens, n_decode_tokens) * rows) * sizeof(float));
  auto* y = reinterpret_cast<float*>(y_bytes.bytes);

  const Input one(kernels, n_decode_tokens, columns);
  MatmulArgs args = one.args;
  const double decode_s = fastest(5,
                                  [&] {
                                    for (uint64_t i = 0; i < copies; ++i) {
                                      args.panels = {{dtype, packed.bytes + i * bytes, rows, columns, 0, y, rows}};
                                      run(kernels, args, n_decode_tokens);
                                    }
                                  }) /
                          static_cast<double>(copies);
  const Input many(kernels, n_tokens, columns);
  args = many.args;
  args.panels = {{dtype, packed.bytes, rows, columns, 0, y, rows}};
  const double prefill_s =
      fastest(static_cast<int>(std::clamp<int64_t>(2'000'000'000 / (rows * columns * n_tokens), 3, 100)),
              [&] { run(kernels, args, n_tokens); });

  return {decode_s, prefill_s, static_cast<double>(bytes), static_cast<double>(weight.gguf_bytes()) / pack_s};
}

void bench_shape(const Kernels& kernels, const Ceilings& ceilings, DType dtype, int64_t rows, int64_t columns,
                 int64_t n_tokens) {
  const Rates rates = measure_shape(kernels, dtype, rows, columns, n_tokens, 1);
  const double rate = rates.bytes / rates.decode_s;
  const double products = static_cast<double>(rows * columns * n_tokens) / rates.prefill_s;
  std::printf("%-7s %6ldx%-5ld %9.1f us %6.1f GB/s %4.0f %%  | %8.1f us %7.1f G/s %4.0f %% | pack %.2f GB/s\n",
              std::string(dtype_name(dtype)).c_str(), rows, columns, 1e6 * rates.decode_s, 1e-9 * rate,
              100 * rate / ceilings.read_per_s, 1e6 * rates.prefill_s, 1e-9 * products,
              200 * products / ceilings.int8_per_s, 1e-9 * rates.pack_per_s);
  std::fflush(stdout);
}

/// One line per dtype: medians of n_rounds interleaved rounds, each with its own ceilings and Q8_0 beside, and the
/// lowest and highest of the figures that stand for speed.
void print_csv(const Kernels& kernels, CpuIsa isa, const std::vector<DType>& dtypes, int64_t rows, int64_t columns,
               int64_t n_tokens, int n_rounds) {
  struct Series {
    std::vector<double> decode, decode_share, decode8, prefill, prefill_share, decode_of_q8, prefill_of_q8;
  };
  std::vector<Series> all(dtypes.size());
  const double weights = static_cast<double>(rows * columns);
  for (int round = 0; round < n_rounds; ++round) {
    for (size_t i = 0; i < dtypes.size(); ++i) {
      const Ceilings ceilings = measure_ceilings(isa, kFootprint, 1);
      const Rates q8 = measure_shape(kernels, DType::kQ8_0, rows, columns, n_tokens, 1);
      const Rates one = measure_shape(kernels, dtypes[i], rows, columns, n_tokens, 1);
      const Rates eight = measure_shape(kernels, dtypes[i], rows, columns, 8, 8);
      const double products = weights * static_cast<double>(n_tokens) / one.prefill_s;
      all[i].decode.push_back(1e-9 * one.bytes / one.decode_s);
      all[i].decode_share.push_back(one.bytes / one.decode_s / ceilings.read_per_s);
      all[i].decode8.push_back(8e-9 * weights / eight.decode_s);
      all[i].prefill.push_back(1e-9 * products);
      all[i].prefill_share.push_back(2 * products / ceilings.int8_per_s);
      all[i].decode_of_q8.push_back(q8.decode_s / one.decode_s);
      all[i].prefill_of_q8.push_back(q8.prefill_s / one.prefill_s);
    }
  }
  std::printf(
      "isa,dtype,rows,columns,rounds,decode_gb_per_s,decode_gb_per_s_low,decode_gb_per_s_high,"
      "decode_of_read_rate,decode_speed_of_q8_0,decode_8_tokens_gproducts_per_s,prefill_tokens,"
      "prefill_gproducts_per_s,prefill_low,prefill_high,prefill_of_peak,prefill_speed_of_q8_0\n");
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const Spread decode = spread_of(all[i].decode);
    const Spread prefill = spread_of(all[i].prefill);
    std::printf("%s,%s,%ld,%ld,%d,%.2f,%.2f,%.2f,%.3f,%.2f,%.1f,%ld,%.1f,%.1f,%.1f,%.3f,%.2f\n",
                std::string(cpu_isa_name(isa)).c_str(), std::string(dtype_name(dtypes[i])).c_str(), rows, columns,
                n_rounds, decode.median, decode.low, decode.high, spread_of(all[i].decode_share).median,
                spread_of(all[i].decode_of_q8).median, spread_of(all[i].decode8).median, n_tokens, prefill.median,
                prefill.low, prefill.high, spread_of(all[i].prefill_share).median,
                spread_of(all[i].prefill_of_q8).median);
  }
}

/// One weight in n_panels column panels, each with its own results: the copies of a model's size that one thread reads
/// in turn. Interleaves the variants and prints medians. Returns whether each panel has the bits that it has alone.
bool bench_panels(const Kernels& kernels, DType dtype, int64_t rows, int64_t columns, int64_t n_tokens) {
  const WeightLayout& layout = *kernels.table->layout(dtype);
  const Weight weight(dtype, rows, columns);
  const Input input(kernels, n_tokens, columns);
  const uint64_t weight_bytes = weight.packed_bytes(layout, columns) + 4 * 64;
  const uint64_t copies = n_tokens > 8 ? 1 : std::max<uint64_t>(1, kFootprint / 2 / weight_bytes);
  const AlignedBytes result_bytes(static_cast<uint64_t>(4 * n_tokens * rows) * sizeof(float));
  auto* results = reinterpret_cast<float*>(result_bytes.bytes);
  struct Variant {
    std::unique_ptr<AlignedBytes> memory;
    std::vector<MatmulArgs> copies;
    std::vector<double> seconds;
  };
  std::vector<Variant> variants(3);
  bool equal = true;
  for (size_t v = 0; v < variants.size(); ++v) {
    const int64_t n_panels = 1 << v;
    const int64_t part = columns / n_panels;
    variants[v].memory = std::make_unique<AlignedBytes>(copies * weight_bytes);
    for (uint64_t copy = 0; copy < copies; ++copy) {
      std::byte* at = variants[v].memory->bytes + copy * weight_bytes / 64 * 64;
      MatmulArgs args = input.args;
      for (int64_t i = 0; i < n_panels; ++i) {
        weight.pack(layout, i * part, (i + 1) * part, at);
        args.panels.push_back({dtype, at, rows, part, i * part, results + i * n_tokens * rows, rows});
        at += round_up(weight.packed_bytes(layout, part), 64);
      }
      variants[v].copies.push_back(args);
    }
    run(kernels, variants[v].copies[0], n_tokens);
    for (MatmulPanel panel : variants[v].copies[0].panels) {
      std::vector<float> alone(static_cast<size_t>(n_tokens * rows));
      const float* together = panel.y;
      panel.y = alone.data();
      MatmulArgs args = input.args;
      args.panels = {panel};
      run(kernels, args, n_tokens);
      equal = equal && std::memcmp(alone.data(), together, alone.size() * sizeof(float)) == 0;
    }
  }
  for (int round = 0; round < 31; ++round) {
    for (Variant& variant : variants) {
      const double start = thread_seconds();
      for (const MatmulArgs& args : variant.copies) {
        run(kernels, args, n_tokens);
      }
      variant.seconds.push_back((thread_seconds() - start) / static_cast<double>(copies));
    }
  }
  std::printf("%-6s %5ldx%-5ld %4ld tokens ", std::string(dtype_name(dtype)).c_str(), rows, columns, n_tokens);
  double first = 0;
  for (size_t v = 0; v < variants.size(); ++v) {
    const double median = spread_of(variants[v].seconds).median;
    first = v == 0 ? median : first;
    std::printf("| %d: %9.2f us %+5.1f %% ", 1 << v, 1e6 * median, 100 * (median / first - 1));
  }
  std::printf("| bits %s\n", equal ? "equal" : "DIFFER");
  std::fflush(stdout);
  return equal;
}

int run_all(int argc, char** argv) {
  CpuIsa isa = cpu_isas().back();
  int64_t n_tokens = 256;
  bool panels = false;
  int csv_rounds = 0;
  std::vector<DType> dtypes;
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--panels") {
      panels = true;
      continue;
    }
    ++i;
    if (flag == "--csv") {
      csv_rounds = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--tokens") {
      n_tokens = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--dtype" && dtype_from_name(value)) {
      dtypes.push_back(*dtype_from_name(value));
    } else if (flag == "--shape") {
      const size_t x = value.find('x');
      shapes.emplace_back(std::max(1, std::atoi(value.c_str())),
                          x == std::string::npos ? 32 : std::max(1, std::atoi(value.c_str() + x + 1)));
    } else if (flag == "--isa" && isa_from_name(value)) {
      isa = *isa_from_name(value);
    } else {
      std::fprintf(stderr, "unknown: %s %s\n", flag.c_str(), value.c_str());
      return 2;
    }
  }
  const auto table = cpu_kernel_table(CpuKernelSet::kFast, isa);
  const Kernels kernels = {table.value(), table.value()->find(Op::kMatmul), table.value()->find(Op::kQuantize)};
  if (dtypes.empty() && csv_rounds > 0) {
    for (const DTypeInfo& info : dtype_table()) {
      if (kernels.table->layout(info.dtype)->quantized_input) {
        dtypes.push_back(info.dtype);
      }
    }
  }
  if (csv_rounds > 0) {
    const auto [rows, columns] = shapes.empty() ? std::pair<int64_t, int64_t>(2048, 2048) : shapes[0];
    print_csv(kernels, isa, dtypes, rows, columns, n_tokens, csv_rounds);
    return 0;
  }
  if (dtypes.empty()) {
    dtypes = {DType::kQ4_1, DType::kQ8_0, DType::kQ5_0, DType::kQ4_K, DType::kQ6_K,
              DType::kQ4_0, DType::kQ5_K, DType::kF16,  DType::kF32};
  }
  if (panels) {
    bool equal = true;
    for (const DType dtype : {DType::kQ4_1, DType::kQ6_K}) {
      for (const int64_t tokens : {int64_t{1}, n_tokens}) {
        equal = bench_panels(kernels, dtype, 2048, 2048, tokens) && equal;
        equal = bench_panels(kernels, dtype, 576, dtype == DType::kQ4_1 ? 1536 : 2048, tokens) && equal;
      }
    }
    return equal ? 0 : 1;
  }
  const Ceilings ceilings = measure_ceilings(isa, kFootprint, 1);
  const Input input(kernels, n_tokens, 576);
  std::printf("%s: read %.1f GB/s from %lu MiB, int8 peak %.0f G products/s; quantize 576 columns: %.0f ns a token\n",
              std::string(cpu_isa_name(isa)).c_str(), 1e-9 * ceilings.read_per_s, kFootprint >> 20,
              0.5e-9 * ceilings.int8_per_s, 1e9 * input.quantize_s / static_cast<double>(n_tokens));
  std::printf("dtype  rows x columns | decode: time, weights/s, of read | prefill of %ld: time, products/s, of peak\n",
              n_tokens);
  const bool all_shapes = shapes.empty();
  if (all_shapes) {
    shapes = {{576, 576}, {1536, 576}, {576, 1536}, {2048, 5632}};
  }
  for (const DType dtype : dtypes) {
    for (const auto& [rows, columns] : shapes) {
      const int64_t block = dtype_info(dtype).block_elems;
      bench_shape(kernels, ceilings, dtype, rows, (columns + block - 1) / block * block, n_tokens);
    }
    if (dtype == DType::kQ8_0 && all_shapes) {
      bench_shape(kernels, ceilings, dtype, 49152, 576, 16);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  return tessera::bench::run_all(argc, argv);
}
