#pragma once
// One op at one size, ready to be timed: what kernels_bench is made of. Programs of bench/ only.
//
// A case owns its operands, and says what one command must at least read, write and compute. Bytes are those that the
// op's header states; operations are given where they can be the limit: products, and what adds up many rows.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ceilings.h"
#include "device/device.h"

namespace tessera::bench {

inline constexpr int64_t kEmbd = 2048;
inline constexpr int64_t kDecodeTokens = 8;  // up to here a product streams its weight

/// One thing to time.
struct Case {
  std::string variant;  // types, and what is fused in
  std::string shape;
  double bytes = 0;  // of one command
  double ops = 0;
  bool int8 = false;     // the operations are of 8-bit integers
  CommandList commands;  // the same work each, on other operands where one set would stay in a cache
};

inline LaunchSizes sizes_of(int64_t n_tokens) {
  return {static_cast<int32_t>(n_tokens), static_cast<int32_t>(n_tokens), 1};
}

/// A call of a kernel that owns its arguments and their buffers.
template <class Args, class... Owned>
Command call(KernelFn kernel, Args args, Owned... owned) {
  const auto all = std::make_shared<std::tuple<Args, Owned...>>(std::move(args), std::move(owned)...);
  return {.kernel = kernel, .args = {all, &std::get<0>(*all)}, .copy = {}, .name = "case"};
}

/// Float rows of random numbers, shared by copies.
class Rows {
 public:
  Rows(int64_t rows, int64_t width) : values_(std::make_shared<std::vector<float>>(static_cast<size_t>(rows * width))) {
    std::mt19937 random(static_cast<uint32_t>(rows + width));
    std::normal_distribution<float> normal;
    std::generate(values_->begin(), values_->end(), [&] { return normal(random); });
  }
  /// The same number everywhere.
  Rows(int64_t rows, int64_t width, float value)
      : values_(std::make_shared<std::vector<float>>(static_cast<size_t>(rows * width), value)) {}
  [[nodiscard]] float* data() const { return values_->data(); }

 private:
  std::shared_ptr<std::vector<float>> values_;
};

}  // namespace tessera::bench
