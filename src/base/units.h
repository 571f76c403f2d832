#pragma once
// Bytes and times as the numbers that people read.

#include <chrono>
#include <cstdint>

namespace tessera {

inline double mib(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

inline double ms_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

/// 0 where no time has passed.
inline double per_second(int64_t n, double ms) {
  return ms > 0 ? static_cast<double>(n) * 1000 / ms : 0;
}

/// Milliseconds; 0 of nothing.
inline double per_token(int64_t n, double ms) {
  return n > 0 ? ms / static_cast<double>(n) : 0;
}

}  // namespace tessera
