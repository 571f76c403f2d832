#pragma once
// Copies that nobody reads soon, such as tiles that change their device: stores go past the caches.
//
// A plain store first reads the line that it overwrites. The C library's memcpy() avoids that too, but only from sizes
// on that depend on the whole cache (about 200 MiB on a processor with 260 MiB of it). Pieces of 4 MiB, Xeon with
// AVX-512, one thread: 9.6 GB/s against memcpy()'s 6.0 (docs/decisions/010-transitions.md).

#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tessera {

/// As memcpy(); what is written is seen by whoever synchronises with this thread afterwards.
inline void cpu_stream_copy(void* dst, const void* src, uint64_t bytes) {
#if defined(__SSE2__)
  constexpr uint64_t kLine = 64;
  // Below this the tail of such a copy, which waits for its stores to reach memory, costs more than it saves.
  constexpr uint64_t kLeastBytes = 64 << 10;
  auto* to = static_cast<char*>(dst);
  const auto* from = static_cast<const char*>(src);
  if (bytes >= kLeastBytes) {
    const uint64_t head = -reinterpret_cast<uintptr_t>(to) % kLine;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
      const auto* in = reinterpret_cast<const __m128i*>(from);
      auto* out = reinterpret_cast<__m128i*>(to);
      const __m128i a = _mm_loadu_si128(in);
      const __m128i b = _mm_loadu_si128(in + 1);
      const __m128i c = _mm_loadu_si128(in + 2);
      const __m128i d = _mm_loadu_si128(in + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    _mm_sfence();
  }
  std::memcpy(to, from, bytes);
#else
  std::memcpy(dst, src, bytes);
#endif
}

}  // namespace tessera
