#include "runtime/grammar/gbnf_text.h"

#include <fmt/format.h>

namespace tessera {
namespace {

void append_code(uint32_t code, std::string& out) {
  const bool is_plain = (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
  if (is_plain) {
    out += static_cast<char>(code);
  } else if (code < 0x80) {
    out += fmt::format("\\x{:02X}", code);
  } else if (code < 0x10000) {
    out += fmt::format("\\u{:04X}", code);
  } else {
    out += fmt::format("\\U{:08X}", code);
  }
}

}  // namespace

std::string gbnf_literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string gbnf_class(const CodeRanges& ranges) {
  std::string out = "[";
  for (const CodeRange& range : ranges) {
    append_code(range.first, out);
    if (range.last > range.first) {
      out += '-';
      append_code(range.last, out);
    }
  }
  return out + ']';
}

std::string gbnf_repeat(uint32_t min, uint32_t max) {
  if (max == kUnlimited) {
    return min == 0 ? "*" : min == 1 ? "+" : fmt::format("{{{},}}", min);
  }
  if (min == max) {
    return min == 1 ? "" : fmt::format("{{{}}}", min);
  }
  return min == 0 && max == 1 ? "?" : fmt::format("{{{},{}}}", min, max);
}

}  // namespace tessera
