#pragma once
// What kernel tests share: tables to run over, teams of threads, guarded rows, seeded numbers. Tests only.

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "device/cpu/cpu_launch.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/kernel_table.h"

namespace tessera {

/// Sanitizers slow everything down by ten to a hundred times: there a few sizes stand for all.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// One kernel table of this machine.
struct CpuTable {
  CpuKernelSet set;
  CpuIsa isa;
};

inline std::string cpu_table_name(const CpuTable& table) {
  return (table.set == CpuKernelSet::kScalar ? "scalar_" : "fast_") + std::string(cpu_isa_name(table.isa));
}

/// The scalar table and every fast one that this processor runs.
inline std::vector<CpuTable> all_cpu_tables() {
  std::vector<CpuTable> tables = {{CpuKernelSet::kScalar, CpuIsa::kPortable}};
  for (const CpuIsa isa : cpu_isas()) {
    tables.push_back({CpuKernelSet::kFast, isa});
  }
  return tables;
}

/// The same for ops that multiply no quantised weights: without AVX-VNNI, which has AVX2's kernels for them
/// (cpu_kernels_test.cc).
inline std::vector<CpuTable> cpu_tables() {
  std::vector<CpuTable> tables = all_cpu_tables();
  std::erase_if(tables, [](const CpuTable& table) { return table.isa == CpuIsa::kAvxVnni; });
  return tables;
}

/// The kernel of a table. Fails the test and returns null when there is none.
inline KernelFn find_kernel(const CpuTable& table, Op op, DType a = DType::kF32, DType b = DType::kF32) {
  const auto found = cpu_kernel_table(table.set, table.isa);
  if (!found.ok() || found.value()->find(op, a, b) == nullptr) {
    ADD_FAILURE() << cpu_table_name(table) << " has no " << op_name(op);
    return nullptr;
  }
  return found.value()->find(op, a, b);
}

/// A test that runs over cpu_tables(), or over all_cpu_tables().
class CpuTableTest : public testing::TestWithParam<CpuTable> {
 protected:
  [[nodiscard]] bool is_scalar() const { return GetParam().set == CpuKernelSet::kScalar; }
  /// The table's kernel, and the one that defines its bits: the portable twin of the same set.
  static KernelFn kernel(Op op, DType a = DType::kF32, DType b = DType::kF32) {
    return find_kernel(GetParam(), op, a, b);
  }
  static KernelFn definition(Op op, DType a = DType::kF32, DType b = DType::kF32) {
    return find_kernel({GetParam().set, CpuIsa::kPortable}, op, a, b);
  }
};

#define TESSERA_FOR_TABLES(suite, tables)                            \
  INSTANTIATE_TEST_SUITE_P(Tables, suite, testing::ValuesIn(tables), \
                           [](const auto& i) { return ::tessera::cpu_table_name(i.param); })
#define TESSERA_FOR_CPU_TABLES(suite) TESSERA_FOR_TABLES(suite, ::tessera::cpu_tables())
#define TESSERA_FOR_ALL_CPU_TABLES(suite) TESSERA_FOR_TABLES(suite, ::tessera::all_cpu_tables())

/// Calls a kernel as every member of a team, the last first: no thread may wait for another, and the last takes all of
/// a common rest. Returns how often threads asked for a piece of one: 0 where the kernel has none.
template <class Args>
int run_kernel(KernelFn kernel, const Args& args, const LaunchSizes& sizes, int n_threads = 1) {
  if (kernel == nullptr) {
    return 0;  // find_kernel has failed the test
  }
  std::atomic<int> taken = 0;
  for (int thread = n_threads - 1; thread >= 0; --thread) {
    CpuLaunch launch{thread, n_threads, &taken};
    kernel(&launch, &args, sizes);
  }
  return taken;
}

/// Numbers from a fixed seed.
class TestRandom {
 public:
  explicit TestRandom(uint32_t seed) : engine_(seed) {}
  float normal(float deviation = 1) { return std::normal_distribution<float>(0, deviation)(engine_); }
  float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(engine_); }
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(engine_); }
  std::vector<float> normals(int64_t n, float deviation = 1) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) {
      value = normal(deviation);
    }
    return values;
  }

 private:
  std::mt19937 engine_;
};

/// Bytes between two guards; starts as a pattern, 64-byte aligned.
class GuardedBytes {
 public:
  explicit GuardedBytes(int64_t size)
      : size_(size), words_((static_cast<size_t>(size) + 2 * kGuard) / sizeof(Word) + 1) {
    std::memset(words_.data(), kPattern, words_.size() * sizeof(Word));
  }
  [[nodiscard]] std::byte* data() { return bytes() + kGuard; }
  [[nodiscard]] int64_t size() const { return size_; }
  [[nodiscard]] bool guards_intact() {
    bool intact = true;
    for (size_t i = 0; i < kGuard; ++i) {
      intact =
          intact && bytes()[i] == std::byte{kPattern} && data()[static_cast<size_t>(size_) + i] == std::byte{kPattern};
    }
    return intact;
  }
  bool operator==(const GuardedBytes& other) const {
    return size_ == other.size_ && std::memcmp(words_.data(), other.words_.data(), words_.size() * sizeof(Word)) == 0;
  }

  static constexpr uint8_t kPattern = 0xA5;

 private:
  static constexpr size_t kGuard = 256;
  struct alignas(64) Word {
    std::byte bytes[64];
  };
  [[nodiscard]] std::byte* bytes() { return words_.front().bytes; }

  int64_t size_;
  std::vector<Word> words_;
};

/// Rows of float32 with gaps between them; whatever is not a row keeps the guard pattern.
class GuardedRows {
 public:
  GuardedRows(int64_t n_rows, int64_t width, int64_t stride)
      : n_rows_(n_rows), width_(width), stride_(stride), bytes_(n_rows * stride * 4) {}
  GuardedRows(TestRandom& random, int64_t n_rows, int64_t width, int64_t stride) : GuardedRows(n_rows, width, stride) {
    for (int64_t row = 0; row < n_rows; ++row) {
      for (int64_t i = 0; i < width; ++i) {
        at(row, i) = random.normal();
      }
    }
  }
  [[nodiscard]] float* data() { return reinterpret_cast<float*>(bytes_.data()); }
  [[nodiscard]] int64_t stride() const { return stride_; }
  [[nodiscard]] int64_t width() const { return width_; }
  [[nodiscard]] float* row(int64_t i) { return data() + i * stride_; }
  [[nodiscard]] float& at(int64_t row_index, int64_t column) { return row(row_index)[column]; }
  [[nodiscard]] bool gaps_intact() {
    bool intact = bytes_.guards_intact();
    for (int64_t r = 0; r < n_rows_; ++r) {
      for (int64_t i = width_; i < stride_; ++i) {
        intact = intact && std::bit_cast<uint32_t>(at(r, i)) == GuardedBytes::kPattern * 0x01010101U;
      }
    }
    return intact;
  }
  /// Equal bits everywhere, gaps included.
  bool operator==(const GuardedRows& other) const { return bytes_ == other.bytes_; }

 private:
  int64_t n_rows_;
  int64_t width_;
  int64_t stride_;
  GuardedBytes bytes_;
};

/// Row widths that meet every tail of a vector, of a thread's span, and those of real models.
inline std::vector<int64_t> test_widths() {
  std::vector<int64_t> widths = {255, 256, 257, 576, 640, 2048};
  for (int64_t width = 1; width <= 70; ++width) {
    widths.push_back(width);
  }
  return widths;
}

/// |a - b| <= bound.
inline testing::AssertionResult within(double a, double b, double bound) {
  if (std::fabs(a - b) <= bound) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << a << " differs from " << b << " by " << std::fabs(a - b) << ", more than "
                                     << bound;
}

/// Half the distance from 1 to the next float32.
inline constexpr double kF32Epsilon = 0x1p-24;

}  // namespace tessera
