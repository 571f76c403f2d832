// The ceilings of this machine: bytes read from memory per second, and 8-bit integer and float32 operations per second
// from registers with each instruction set the processor has; of one thread and of all.
//
//   ceilings_bench [--threads N] [--footprint MIB] [--isa NAME] [--json]
//
// --threads: how many "all" are (default: the processors this process may use). --footprint: what is read, default
// 1024 MiB; more than the last cache holds, or that cache's rate is what shows. --isa: operations of this instruction set
// only. A multiply-add counts two operations.

#include <cstdio>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "ceilings.h"

namespace tessera::bench {
namespace {

/// Per second, of one thread and of all together.
struct Rates {
  double one = 0;
  double all = 0;
};

struct IsaRates {
  CpuIsa isa = CpuIsa::kPortable;
  Rates int8_ops;
  Rates f32_ops;
};

struct Report {
  int n_threads = 1;
  uint64_t footprint = 0;
  Rates read_bytes;
  std::vector<IsaRates> isas;
};

template <class Measure>
Rates one_and_all(int n_threads, const Measure& measure) {
  const double one = measure(1);
  return {one, n_threads == 1 ? one : measure(n_threads)};
}

Report measure_all(int n_threads, uint64_t footprint, std::optional<CpuIsa> only) {
  Report report = {n_threads, footprint, {}, {}};
  report.read_bytes = one_and_all(n_threads, [&](int n) { return read_bytes_per_s(footprint, n); });
  for (const CpuIsa isa : cpu_isas()) {
    if (isa != CpuIsa::kPortable && isa == only.value_or(isa)) {
      report.isas.push_back({isa, one_and_all(n_threads, [&](int n) { return int8_ops_per_s(isa, n); }),
                             one_and_all(n_threads, [&](int n) { return f32_ops_per_s(isa, n); })});
    }
  }
  return report;
}

void print_text(const Report& report) {
  fmt::print("{:22} {:>10} {:>10}\n", "", "1 thread", fmt::format("{} threads", report.n_threads));
  const auto line = [](const std::string& name, const Rates& rates, const char* unit) {
    fmt::print("{:22} {:10.1f} {:10.1f} {}\n", name, 1e-9 * rates.one, 1e-9 * rates.all, unit);
  };
  line(fmt::format("read from {} MiB", report.footprint >> 20), report.read_bytes, "GB/s");
  for (const IsaRates& each : report.isas) {
    line(fmt::format("{} int8", cpu_isa_name(each.isa)), each.int8_ops, "Gop/s");
    line(fmt::format("{} float32", cpu_isa_name(each.isa)), each.f32_ops, "Gop/s");
  }
}

void print_json(const Report& report) {
  const auto json = [](const Rates& rates) {
    return fmt::format(R"({{"one":{:.3f},"all":{:.3f}}})", 1e-9 * rates.one, 1e-9 * rates.all);
  };
  std::string isas;
  for (const IsaRates& each : report.isas) {
    isas += fmt::format(R"({}"{}":{{"int8_gop_per_s":{},"f32_gop_per_s":{}}})", isas.empty() ? "" : ",",
                        cpu_isa_name(each.isa), json(each.int8_ops), json(each.f32_ops));
  }
  fmt::print(R"({{"threads":{},"footprint_mib":{},"read_gb_per_s":{},"isas":{{{}}}}})", report.n_threads,
             report.footprint >> 20, json(report.read_bytes), isas);
  fmt::print("\n");
}

int run(int argc, char** argv) {
  int n_threads = hardware_threads();
  uint64_t footprint = uint64_t{1024} << 20;
  bool json = false;
  std::optional<CpuIsa> only;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    if (flag == "--json") {
      json = true;
    } else if (flag == "--isa" && i + 1 < argc && isa_from_name(argv[i + 1])) {
      only = isa_from_name(argv[++i]);
    } else if (flag == "--threads" && value > 0) {
      n_threads = value;
      ++i;
    } else if (flag == "--footprint" && value > 0) {
      footprint = static_cast<uint64_t>(value) << 20;
      ++i;
    } else {
      std::fputs("usage: ceilings_bench [--threads N] [--footprint MIB] [--isa NAME] [--json]\n", stderr);
      return 2;
    }
  }
  const Report report = measure_all(n_threads, footprint, only);
  json ? print_json(report) : print_text(report);
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  return tessera::bench::run(argc, argv);
}
