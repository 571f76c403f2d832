#include "tokenizer/utf8.h"

#include <utf8proc.h>

namespace tessera {

size_t utf8_valid_bytes(std::string_view text) {
  if (text.empty()) {
    return 0;
  }
  if (static_cast<uint8_t>(text[0]) < 0x80) {
    return 1;
  }
  utf8proc_int32_t codepoint = 0;
  const auto size = static_cast<utf8proc_ssize_t>(text.size() < 4 ? text.size() : 4);
  const auto used = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), size, &codepoint);
  return used > 0 ? static_cast<size_t>(used) : 0;
}

namespace {

// Whether some continuation makes prefix a valid character. The lowest and highest second byte that a lead allows are
// tried: 0x80 and 0xBF bound the general case, 0x8F and 0x9F/0xA0 the leads F4, ED and E0.
bool can_be_completed(std::string_view prefix) {
  const size_t announced = utf8_announced_bytes(prefix[0]);
  if (prefix.size() >= announced) {
    return false;
  }
  for (const char fill : {'\x80', '\x8F', '\x9F', '\xA0', '\xBF'}) {
    std::string whole(prefix);
    whole.push_back(fill);
    whole.resize(announced, '\x80');
    if (utf8_valid_bytes(whole) == announced) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool utf8_is_valid(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_valid_bytes(text.substr(i));
    if (n == 0) {
      return false;
    }
    i += n;
  }
  return true;
}

size_t utf8_unfinished_bytes(std::string_view text) {
  for (size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    const std::string_view tail = text.substr(text.size() - n);
    const auto lead = static_cast<uint8_t>(tail[0]);
    if (lead >= 0xC0) {
      return can_be_completed(tail) ? n : 0;
    }
    if (lead < 0x80) {
      return 0;
    }
  }
  return 0;
}

std::string with_replacements(std::string_view text, std::vector<size_t>* positions) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_valid_bytes(text.substr(i));
    if (n == 0) {
      if (positions != nullptr) {
        positions->push_back(out.size());
      }
      out += "\xEF\xBF\xBD";
      ++i;
    } else {
      out += text.substr(i, n);
      i += n;
    }
  }
  return out;
}

void append_marked(std::string_view text, std::string& out) {
  for (const char c : text) {
    if (c == ' ') {
      out += kSpaceMark;
    } else {
      out.push_back(c);
    }
  }
}

std::string unmark(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t at = text.find(kSpaceMark);
    out += text.substr(0, at);
    if (at == std::string_view::npos) {
      break;
    }
    out.push_back(' ');
    text.remove_prefix(at + kSpaceMark.size());
  }
  return out;
}

}  // namespace tessera
