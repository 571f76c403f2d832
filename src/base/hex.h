#pragma once
// Hexadecimal digits.

namespace tessera {

/// The value of a hexadecimal digit of either case; -1 for any other byte.
constexpr int hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const auto lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace tessera
