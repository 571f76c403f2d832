#pragma once
// Copies that nobody reads soon, such as tiles that change their device: stores go past the caches.
//
// A plain store first reads the line that it overwrites. The C library's memcpy() avoids that too, but only from sizes
// on that depend on the whole cache (some 200 MiB on a processor with 260 MiB of it). Pieces of 4 MiB on a Xeon with
// AVX-512, one thread: memcpy() 7.6 GB/s, stores past the caches line by line 8.4, in four pages at a time 12.1
// (memcpy() of 200 MiB: 12.4).

#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tessera {

#if defined(__SSE2__)
/// One cache line. REQUIRES: `to` is on a multiple of 64.
inline void cpu_stream_line(char* to, const char* from) {
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
#endif

/// As memcpy(); what is written is seen by whoever synchronises with this thread afterwards.
inline void cpu_stream_copy(void* dst, const void* src, uint64_t bytes) {
  auto* to = static_cast<char*>(dst);
  const auto* from = static_cast<const char*>(src);
#if defined(__SSE2__)
  constexpr uint64_t kLine = 64;
  constexpr uint64_t kPage = 4096;  // several at a time keep more of the memory's banks busy
  constexpr uint64_t kPages = 4;
  constexpr uint64_t kAhead = 512;  // bytes
  const uint64_t head = -reinterpret_cast<uintptr_t>(to) % kLine;
  if (bytes >= head + kPages * kPage) {
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= kPages * kPage; bytes -= kPages * kPage, to += kPages * kPage, from += kPages * kPage) {
      for (uint64_t at = 0; at < kPage; at += 2 * kLine) {
        for (uint64_t page = at; page < kPages * kPage; page += kPage) {
          _mm_prefetch(from + page + kAhead, _MM_HINT_T0);
          _mm_prefetch(from + page + kAhead + kLine, _MM_HINT_T0);
          cpu_stream_line(to + page, from + page);
          cpu_stream_line(to + page + kLine, from + page + kLine);
        }
      }
    }
    _mm_sfence();
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace tessera
