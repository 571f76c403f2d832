// The ceilings of this machine: bytes read from memory per second, and 8-bit integer and float32 operations per second
// from registers with each instruction set the processor has; of one thread and of all.
//
//   ceilings_bench [--threads N] [--footprint MIB] [--json]
//
// --threads: how many "all" are (default: the processors this process may use). --footprint: what is read, default
// 1024 MiB; more than the last cache holds, or that cache's rate is what shows. A multiply-add counts two operations.

#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <string>

#include "ceilings.h"

namespace tessera::bench {
namespace {

using Json = nlohmann::ordered_json;

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

/// {"one": , "all": } in 10^9 per second.
template <class Measure>
Json one_and_all(int n_threads, const Measure& measure) {
  const double one = measure(1);
  return {{"one", 1e-9 * one}, {"all", n_threads == 1 ? 1e-9 * one : 1e-9 * measure(n_threads)}};
}

Json measure_all(int n_threads, uint64_t footprint) {
  Json isas = Json::object();
  for (const CpuIsa isa : cpu_isas()) {
    if (isa != CpuIsa::kPortable) {
      isas[std::string(cpu_isa_name(isa))] = {
          {"int8_gop_per_s", one_and_all(n_threads, [&](int n) { return int8_ops_per_s(isa, n); })},
          {"f32_gop_per_s", one_and_all(n_threads, [&](int n) { return f32_ops_per_s(isa, n); })}};
    }
  }
  return {{"threads", n_threads},
          {"footprint_mib", footprint >> 20},
          {"read_gb_per_s", one_and_all(n_threads, [&](int n) { return read_bytes_per_s(footprint, n); })},
          {"isas", isas}};
}

void print_text(const Json& report) {
  fmt::print("{:22} {:>10} {:>10}\n", "", "1 thread", fmt::format("{} threads", report["threads"].get<int>()));
  const auto line = [](const std::string& name, const Json& rates, const char* unit) {
    fmt::print("{:22} {:10.1f} {:10.1f} {}\n", name, rates["one"].get<double>(), rates["all"].get<double>(), unit);
  };
  line(fmt::format("read from {} MiB", report["footprint_mib"].get<uint64_t>()), report["read_gb_per_s"], "GB/s");
  for (const auto& [isa, rates] : report["isas"].items()) {
    line(isa + " int8", rates["int8_gop_per_s"], "Gop/s");
    line(isa + " float32", rates["f32_gop_per_s"], "Gop/s");
  }
}

int run(int argc, char** argv) {
  int n_threads = usable_processors();
  uint64_t footprint = uint64_t{1024} << 20;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    if (flag == "--json") {
      json = true;
    } else if (flag == "--threads" && value > 0) {
      n_threads = value;
      ++i;
    } else if (flag == "--footprint" && value > 0) {
      footprint = static_cast<uint64_t>(value) << 20;
      ++i;
    } else {
      std::fputs("usage: ceilings_bench [--threads N] [--footprint MIB] [--json]\n", stderr);
      return 2;
    }
  }
  const Json report = measure_all(n_threads, footprint);
  if (json) {
    fmt::print("{}\n", report.dump());
  } else {
    print_text(report);
  }
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  return tessera::bench::run(argc, argv);
}
