#pragma once
// CHECK: stops the process on our own bugs. Never reachable from a file, a request, another process or memory
// pressure; those return a Status.

namespace tessera {
/// Prints the failed condition to stderr and aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace tessera

#define CHECK(condition)                                       \
  do {                                                         \
    if (!(condition)) [[unlikely]] {                           \
      ::tessera::check_failed(#condition, __FILE__, __LINE__); \
    }                                                          \
  } while (false)
