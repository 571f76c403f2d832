#include "runtime/grammar/utf8_ranges.h"

namespace tessera {
namespace {

std::array<uint8_t, 4> spell(uint32_t code, int n_bytes) {
  std::array<uint8_t, 4> bytes = {static_cast<uint8_t>(code)};
  if (n_bytes > 1) {
    for (int i = n_bytes - 1; i > 0; --i) {
      bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(0x80U | (code & 0x3FU));
      code >>= 6;
    }
    bytes[0] = static_cast<uint8_t>((0xF00U >> n_bytes & 0xFFU) | code);
  }
  return bytes;
}

}  // namespace

void append_utf8_sequences(CodeRange range, std::vector<Utf8Sequence>& out) {
  const auto split_after = [&](uint32_t code) {
    append_utf8_sequences({range.first, code}, out);
    append_utf8_sequences({code + 1, range.last}, out);
  };
  for (const uint32_t longest : {0x7FU, 0x7FFU, 0xFFFFU}) {
    if (range.first <= longest && range.last > longest) {
      return split_after(longest);
    }
  }
  const int n_bytes = range.last <= 0x7F ? 1 : range.last <= 0x7FF ? 2 : range.last <= 0xFFFF ? 3 : 4;
  // Where the ends differ in a byte, all bytes behind it must run over their whole range.
  for (int n_behind = 1; n_behind < n_bytes; ++n_behind) {
    const uint32_t mask = (1U << (6 * n_behind)) - 1;
    if ((range.first & ~mask) != (range.last & ~mask)) {
      if ((range.first & mask) != 0) {
        return split_after(range.first | mask);
      }
      if ((range.last & mask) != mask) {
        return split_after((range.last & ~mask) - 1);
      }
    }
  }
  out.push_back({n_bytes, spell(range.first, n_bytes), spell(range.last, n_bytes)});
}

}  // namespace tessera
