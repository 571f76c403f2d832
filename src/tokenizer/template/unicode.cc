#include "tokenizer/template/unicode.h"

#include <utf8proc.h>

namespace tessera::jinja {
namespace {

constexpr uint32_t kRawByte = 0xDC00;  // + byte: as Python's surrogateescape does

utf8proc_category_t category(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) {
    return 1;
  }
  if (lead >= 0xC2 && lead < 0xE0) {
    return 2;
  }
  if (lead >= 0xE0 && lead < 0xF0) {
    return 3;
  }
  return lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
}

}  // namespace

size_t decode(std::string_view bytes, size_t pos, uint32_t* code_point) {
  const auto lead = static_cast<unsigned char>(bytes[pos]);
  const size_t length = sequence_length(lead);
  if (length == 1) {
    *code_point = lead;
    return 1;
  }
  *code_point = kRawByte + lead;
  if (length == 0 || pos + length > bytes.size()) {
    return 1;
  }
  uint32_t value = lead & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(bytes[pos + i]);
    if ((next & 0xC0U) != 0x80U) {
      return 1;
    }
    value = (value << 6U) | (next & 0x3FU);
  }
  const uint32_t smallest = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  if (value < smallest || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
    return 1;
  }
  *code_point = value;
  return length;
}

size_t length_before(std::string_view bytes, size_t pos) {
  for (size_t length = 1; length <= 4 && length <= pos; ++length) {
    uint32_t c = 0;
    if (decode(bytes, pos - length, &c) == length && (length > 1 || c < 0x80)) {
      return length;
    }
  }
  return 1;
}

void encode(uint32_t code_point, std::string& out) {
  if (code_point >= kRawByte + 0x80 && code_point < kRawByte + 0x100) {
    out.push_back(static_cast<char>(code_point - kRawByte));
  } else if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0U | (code_point >> 6U)));
    out.push_back(static_cast<char>(0x80U | (code_point & 0x3FU)));
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0U | (code_point >> 12U)));
    out.push_back(static_cast<char>(0x80U | ((code_point >> 6U) & 0x3FU)));
    out.push_back(static_cast<char>(0x80U | (code_point & 0x3FU)));
  } else {
    out.push_back(static_cast<char>(0xF0U | (code_point >> 18U)));
    out.push_back(static_cast<char>(0x80U | ((code_point >> 12U) & 0x3FU)));
    out.push_back(static_cast<char>(0x80U | ((code_point >> 6U) & 0x3FU)));
    out.push_back(static_cast<char>(0x80U | (code_point & 0x3FU)));
  }
}

size_t count_code_points(std::string_view bytes) {
  size_t count = 0;
  uint32_t c = 0;
  for (size_t pos = 0; pos < bytes.size(); pos += decode(bytes, pos, &c)) {
    ++count;
  }
  return count;
}

size_t offset_of(std::string_view bytes, size_t n) {
  size_t pos = 0;
  uint32_t c = 0;
  for (; n > 0 && pos < bytes.size(); --n) {
    pos += decode(bytes, pos, &c);
  }
  return pos;
}

bool is_space(uint32_t c) {
  if (c < 0x80) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  }
  return c == 0x85 || category(c) == UTF8PROC_CATEGORY_ZS || category(c) == UTF8PROC_CATEGORY_ZL ||
         category(c) == UTF8PROC_CATEGORY_ZP;
}

bool is_alpha(uint32_t c) {
  const auto cat = category(c);
  return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_numeric(uint32_t c) {
  const auto cat = category(c);
  return cat == UTF8PROC_CATEGORY_ND || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
}

bool is_upper(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU;
}
bool is_lower(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL;
}
bool is_title(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(uint32_t c) {
  if (c < 0x7F) {
    return c >= 0x20;
  }
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

uint32_t to_upper(uint32_t c) {
  return static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
uint32_t to_lower(uint32_t c) {
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
uint32_t to_title(uint32_t c) {
  return static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

bool is_line_break(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace tessera::jinja
