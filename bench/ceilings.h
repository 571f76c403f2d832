#pragma once
// What this machine can do at best: bytes read from memory, 8-bit integer and float multiply-adds; and the clocks and
// teams that the speed programs share. Programs of bench/ only.
//
// Ceilings are measured, never looked up, in the run whose figures are compared with them. An operation is one multiply
// or one add, so a multiply-add counts two. x86-64 with AVX2.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <immintrin.h>
#include <memory>
#include <optional>
#include <string_view>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/cpu_launch.h"
#include "device/cpu/cpu_team.h"
#include "kernels/cpu/cpu_kernels.h"
#include "timing.h"

namespace tessera::bench {

/// A team as the engine starts them: of the calling thread and n_threads - 1 others.
inline std::shared_ptr<CpuTeam> start_team(int n_threads) {
  return CpuTeam::start("bench", n_threads, CpuDeviceOptions().spin_us).value();
}

/// Seconds of the fastest of n_runs runs of a list by a team, which shares work as the engine's teams do; of a team of
/// one in its CPU time.
inline double fastest(int n_runs, CpuTeam& team, const CommandList& list, const LaunchSizes& sizes) {
  if (team.n_threads() == 1) {
    return fastest(n_runs, [&] { team.run(list, sizes); });
  }
  double best = 1e30;
  for (int i = 0; i < n_runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    team.run(list, sizes);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

/// The same of run(launch) by every member of a team.
template <class Run>
double fastest(int n_runs, int n_threads, const Run& run) {
  const KernelFn kernel = [](void* launch, const void* args, const LaunchSizes& /*sizes*/) {
    (*static_cast<const Run*>(args))(*static_cast<const CpuLaunch*>(launch));
  };
  const std::shared_ptr<const void> args(std::shared_ptr<void>(), &run);  // the caller's
  const Command command = {.kernel = kernel, .args = args, .copy = {}, .name = "run"};
  return fastest(n_runs, *start_team(n_threads), {command}, {});
}

/// The instruction set of this name; none where this processor lacks it.
inline std::optional<CpuIsa> isa_from_name(std::string_view name) {
  for (const CpuIsa isa : cpu_isas()) {
    if (cpu_isa_name(isa) == name) {
      return isa;
    }
  }
  return std::nullopt;
}

/// Memory that starts on a huge page, and lies in huge pages where the system has them.
struct AlignedBytes {
  explicit AlignedBytes(uint64_t size)
      : bytes(static_cast<std::byte*>(std::aligned_alloc(kAlignment, round_up(size, kAlignment)))) {
    madvise(bytes, round_up(size, kAlignment), MADV_HUGEPAGE);
  }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  ~AlignedBytes() { std::free(bytes); }

  static constexpr uint64_t kAlignment = 2 << 20;
  std::byte* bytes;
};

namespace detail {

inline constexpr uint64_t kReadStream = 8192;
inline constexpr uint64_t kMostStreams = 4;

/// Reads kStreams streams side by side, each asked for ahead. size: a multiple of kMostStreams streams.
template <uint64_t kStreams>
__attribute__((target("avx2"))) int64_t read_streams(const std::byte* p, uint64_t size) {
  __m256i sums[kStreams] = {};
  for (uint64_t begin = 0; begin < size; begin += kStreams * kReadStream) {
    for (uint64_t i = begin; i < begin + kReadStream; i += 64) {
#pragma GCC unroll 4
      for (uint64_t j = 0; j < kStreams; ++j) {
        const std::byte* at = p + i + j * kReadStream;
        _mm_prefetch(at + 1024, _MM_HINT_T0);
        sums[j] = _mm256_add_epi64(sums[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
        sums[j] = _mm256_add_epi64(sums[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 32)));
      }
    }
  }
  __m256i sum = sums[0];
  for (uint64_t j = 1; j < kStreams; ++j) {
    sum = _mm256_add_epi64(sum, sums[j]);
  }
  return _mm256_extract_epi64(sum, 0) + _mm256_extract_epi64(sum, 2);
}

inline constexpr int64_t kPeakSteps = 200'000;
inline constexpr int kPeakChains = 12;  // results of an instruction wait four or five cycles; two may start in each

__attribute__((target("avx512f,avx512vnni"))) inline int64_t peak_vpdpbusd_512() {
  __m512i sums[kPeakChains] = {};
  const __m512i w = _mm512_set1_epi8(3);
  const __m512i x = _mm512_set1_epi8(5);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, w, x);
      asm volatile("" : "+v"(sum));
    }
  }
  __m512i total = sums[0];
#pragma GCC unroll 16
  for (int j = 1; j < kPeakChains; ++j) {
    total = _mm512_add_epi32(total, sums[j]);
  }
  return _mm512_cvtsi512_si32(total);
}

__attribute__((target("avx2,avxvnni"))) inline int64_t peak_vpdpbusd_256() {
  __m256i sums[kPeakChains] = {};
  const __m256i w = _mm256_set1_epi8(3);
  const __m256i x = _mm256_set1_epi8(5);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums) {
      sum = _mm256_dpbusd_avx_epi32(sum, w, x);
      asm volatile("" : "+x"(sum));
    }
  }
  __m256i total = sums[0];
#pragma GCC unroll 16
  for (int j = 1; j < kPeakChains; ++j) {
    total = _mm256_add_epi32(total, sums[j]);
  }
  return _mm256_extract_epi32(total, 0);
}

/// 16-bit sums, which real products must widen now and then.
__attribute__((target("avx2"))) inline int64_t peak_vpmaddubsw() {
  __m256i sums[kPeakChains] = {};
  __m256i w = _mm256_set1_epi8(3);
  const __m256i x = _mm256_set1_epi8(5);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums) {
      asm volatile("" : "+x"(w));
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
      asm volatile("" : "+x"(sum));
    }
  }
  __m256i total = sums[0];
#pragma GCC unroll 16
  for (int j = 1; j < kPeakChains; ++j) {
    total = _mm256_add_epi16(total, sums[j]);
  }
  return _mm256_extract_epi32(total, 0);
}

__attribute__((target("avx512f"))) inline int64_t peak_fma_512() {
  __m512 sums[kPeakChains] = {};
  const __m512 w = _mm512_set1_ps(0.5F);
  const __m512 x = _mm512_set1_ps(1.5F);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums) {
      sum = _mm512_fmadd_ps(w, x, sum);
      asm volatile("" : "+v"(sum));
    }
  }
  __m512 total = sums[0];
#pragma GCC unroll 16
  for (int j = 1; j < kPeakChains; ++j) {
    total = _mm512_add_ps(total, sums[j]);
  }
  return static_cast<int64_t>(_mm512_cvtss_f32(total));
}

__attribute__((target("avx2,fma"))) inline int64_t peak_fma_256() {
  __m256 sums[kPeakChains] = {};
  const __m256 w = _mm256_set1_ps(0.5F);
  const __m256 x = _mm256_set1_ps(1.5F);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums) {
      sum = _mm256_fmadd_ps(w, x, sum);
      asm volatile("" : "+x"(sum));
    }
  }
  __m256 total = sums[0];
#pragma GCC unroll 16
  for (int j = 1; j < kPeakChains; ++j) {
    total = _mm256_add_ps(total, sums[j]);
  }
  return static_cast<int64_t>(_mm256_cvtss_f32(total));
}

inline volatile int64_t g_sink;  // keeps results alive

/// Operations per second of peak functions on all threads together; lanes: multiply-adds of one instruction.
inline double peak_ops_per_s(int64_t (*peak)(), int64_t lanes, int n_threads) {
  const double seconds = fastest(9, n_threads, [&](CpuLaunch) { g_sink = peak(); });
  return static_cast<double>(2 * kPeakSteps * kPeakChains * lanes * n_threads) / seconds;
}

}  // namespace detail

/// Bytes that n_threads together read per second from their shares of one buffer of about footprint bytes, by the
/// faster of one and four streams side by side (which one wins differs between processors).
inline double read_bytes_per_s(uint64_t footprint, int n_threads) {
  using detail::kMostStreams, detail::kReadStream, detail::g_sink;
  const uint64_t share =
      footprint / static_cast<uint64_t>(n_threads) / (kMostStreams * kReadStream) * kMostStreams * kReadStream;
  const uint64_t size = share * static_cast<uint64_t>(n_threads);
  const AlignedBytes buffer(size);
  std::memset(buffer.bytes, 1, size);
  const auto time = [&](int64_t (*read)(const std::byte*, uint64_t)) {
    return fastest(5, n_threads, [&](CpuLaunch launch) {
      g_sink = read(buffer.bytes + static_cast<uint64_t>(launch.thread) * share, share);
    });
  };
  const double seconds = std::min(time(detail::read_streams<1>), time(detail::read_streams<kMostStreams>));
  return static_cast<double>(size) / seconds;
}

/// 8-bit integer operations per second from registers, with the best instruction of an instruction set (AVX2's for
/// kPortable, which has none of its own).
inline double int8_ops_per_s(CpuIsa isa, int n_threads) {
  switch (isa) {
    case CpuIsa::kAvx512Vnni: return detail::peak_ops_per_s(detail::peak_vpdpbusd_512, 64, n_threads);
    case CpuIsa::kAvxVnni: return detail::peak_ops_per_s(detail::peak_vpdpbusd_256, 32, n_threads);
    default: return detail::peak_ops_per_s(detail::peak_vpmaddubsw, 32, n_threads);
  }
}

/// Float32 operations per second from registers.
inline double f32_ops_per_s(CpuIsa isa, int n_threads) {
  return isa == CpuIsa::kAvx512Vnni ? detail::peak_ops_per_s(detail::peak_fma_512, 16, n_threads)
                                    : detail::peak_ops_per_s(detail::peak_fma_256, 8, n_threads);
}

/// What kernels of one instruction set are measured against.
struct Ceilings {
  double read_per_s = 0;  // bytes
  double int8_per_s = 0;  // operations
  double f32_per_s = 0;   // operations
};

inline Ceilings measure_ceilings(CpuIsa isa, uint64_t footprint, int n_threads) {
  return {read_bytes_per_s(footprint, n_threads), int8_ops_per_s(isa, n_threads), f32_ops_per_s(isa, n_threads)};
}

}  // namespace tessera::bench
