#include "tokenizer/template/text_operations.h"

#include <algorithm>
#include <cstring>

#include "tokenizer/template/unicode.h"

namespace tessera::jinja {
namespace {

constexpr uint32_t kSharpS = 0xDF;  // the one common letter whose capital is two

void append_upper(uint32_t c, bool title, std::string& out) {
  if (c == kSharpS) {
    out += title ? "Ss" : "SS";
  } else {
    encode(title ? to_title(c) : to_upper(c), out);
  }
}

bool is_cased(uint32_t c) {
  return is_upper(c) || is_lower(c) || is_title(c);
}

bool strips(uint32_t c, const Text* characters) {
  if (characters == nullptr) {
    return is_space(c);
  }
  uint32_t other = 0;
  for (size_t pos = 0; pos < characters->size();) {
    pos += decode(characters->view(), pos, &other);
    if (other == c) {
      return true;
    }
  }
  return false;
}

std::vector<Text> split_at(const Text& text, std::string_view separator, int64_t max_splits, bool from_right) {
  std::vector<Text> parts;
  const std::string& bytes = text.bytes();
  if (from_right) {
    size_t end = bytes.size();
    while (max_splits != 0 && end >= separator.size()) {
      const size_t at = bytes.rfind(separator, end - separator.size());
      if (at == std::string::npos) {
        break;
      }
      parts.push_back(text.slice(at + separator.size(), end));
      end = at;
      --max_splits;
    }
    parts.push_back(text.slice(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = 0;
  while (max_splits != 0) {
    const size_t at = find_bytes(bytes, separator, begin);
    if (at == std::string::npos) {
      break;
    }
    parts.push_back(text.slice(begin, at));
    begin = at + separator.size();
    --max_splits;
  }
  parts.push_back(text.slice(begin, text.size()));
  return parts;
}

size_t skip(std::string_view s, size_t pos, bool spaces) {
  uint32_t c = 0;
  while (pos < s.size()) {
    const size_t length = decode(s, pos, &c);
    if (is_space(c) != spaces) {
      break;
    }
    pos += length;
  }
  return pos;
}

size_t skip_back(std::string_view s, size_t pos, bool spaces) {
  uint32_t c = 0;
  while (pos > 0) {
    const size_t length = length_before(s, pos);
    decode(s, pos - length, &c);
    if (is_space(c) != spaces) {
      break;
    }
    pos -= length;
  }
  return pos;
}

std::vector<Text> split_at_spaces(const Text& text, int64_t max_splits, bool from_right) {
  std::vector<Text> parts;
  if (from_right) {
    size_t end = skip_back(text.view(), text.size(), true);
    while (end > 0) {
      const size_t begin = max_splits == 0 ? 0 : skip_back(text.view(), end, false);
      parts.push_back(text.slice(begin, end));
      end = skip_back(text.view(), begin, true);
      --max_splits;
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = skip(text.view(), 0, true);
  while (begin < text.size()) {
    const size_t end = max_splits == 0 ? text.size() : skip(text.view(), begin, false);
    parts.push_back(text.slice(begin, end));
    begin = skip(text.view(), end, true);
    --max_splits;
  }
  return parts;
}

}  // namespace

size_t find_bytes(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) {
    return std::string_view::npos;
  }
  if (needle.empty()) {
    return from;
  }
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

Status charge_reverse_search(Runtime& runtime, const Text& text, const Text& needle) {
  const size_t n = std::min(text.size(), needle.size()) + 1;
  return runtime.charge_scan(n * text.size());
}

Text change_case(const Text& text, Case to) {
  Text result;
  bool inside_word = false;
  text.for_each_run(0, text.size(), [&](std::string_view run, bool from_user) {
    std::string changed;
    uint32_t c = 0;
    for (size_t pos = 0; pos < run.size();) {
      pos += decode(run, pos, &c);
      const bool raise = to == Case::kUpper || (to == Case::kSwap && is_lower(c)) ||
                         (!inside_word && (to == Case::kTitle || to == Case::kCapitalize));
      if (raise) {
        append_upper(c, to == Case::kTitle || to == Case::kCapitalize, changed);
      } else if (to == Case::kSwap && !is_upper(c)) {
        encode(c, changed);
      } else {
        encode(to_lower(c), changed);
      }
      inside_word = to == Case::kCapitalize || is_cased(c);
    }
    result.append(changed, from_user);
  });
  return result;
}

Text strip(const Text& text, const Text* characters, bool left, bool right) {
  size_t begin = 0;
  size_t end = text.size();
  uint32_t c = 0;
  while (left && begin < end) {
    const size_t length = decode(text.view(), begin, &c);
    if (!strips(c, characters)) {
      break;
    }
    begin += length;
  }
  while (right && begin < end) {
    const size_t length = length_before(text.view(), end);
    decode(text.view(), end - length, &c);
    if (!strips(c, characters)) {
      break;
    }
    end -= length;
  }
  return text.slice(begin, end);
}

std::vector<Text> split(const Text& text, const Text* separator, int64_t max_splits, bool from_right) {
  return separator != nullptr ? split_at(text, separator->view(), max_splits, from_right)
                              : split_at_spaces(text, max_splits, from_right);
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  size_t begin = 0;
  uint32_t c = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = decode(text.view(), pos, &c);
    const size_t line_end = pos;
    pos += length;
    if (is_line_break(c)) {
      pos += c == '\r' && pos < text.size() && text.bytes()[pos] == '\n' ? 1U : 0U;
      lines.push_back(text.slice(begin, keep_ends ? pos : line_end));
      begin = pos;
    }
  }
  if (begin < text.size()) {
    lines.push_back(text.slice(begin, text.size()));
  }
  return lines;
}

Result<Text> replace(Runtime& runtime, const Text& text, const Text& old, const Text& with, int64_t max_count) {
  Text result;
  const std::string& bytes = text.bytes();
  size_t begin = 0;
  for (int64_t n = 0; max_count < 0 || n < max_count; ++n) {
    size_t at = begin;
    if (!old.empty()) {
      at = find_bytes(bytes, old.view(), begin);
    } else if (n > 0) {  // an empty text is found between all code points
      uint32_t c = 0;
      at = begin < bytes.size() ? begin + decode(bytes, begin, &c) : std::string::npos;
    }
    if (at == std::string::npos) {
      break;
    }
    TRY(runtime.charge_bytes(with.size() + at - begin));
    result.append(text, begin, at);
    result.append(with);
    begin = at + old.size();
  }
  TRY(runtime.charge_bytes(bytes.size() - begin));
  result.append(text, begin, bytes.size());
  return result;
}

Text repeat(const Text& text, size_t n) {
  Text result;
  if (text.uniform()) {  // by far the most frequent case, and possibly a hundred million times one blank
    std::string bytes(text.size() == 1 ? n : 0, text.empty() ? ' ' : text.bytes()[0]);
    bytes.reserve(n * text.size());
    for (size_t i = 0; i < n && text.size() > 1; ++i) {
      bytes += text.bytes();
    }
    return {std::move(bytes), text.from_user_at(0)};
  }
  for (size_t i = 0; i < n; ++i) {
    result.append(text);
  }
  return result;
}

Result<Text> pad(Runtime& runtime, const Text& text, int64_t width, char align, const Text& fill) {
  const auto length = static_cast<int64_t>(count_code_points(text.view()));
  const int64_t padding = std::max<int64_t>(width - length, 0);
  if (padding > static_cast<int64_t>(runtime.limits().max_made_bytes)) {
    return limit_error("bytes of values made", runtime.limits().max_made_bytes);
  }
  TRY(runtime.charge_bytes(static_cast<size_t>(padding) * fill.size() + text.size()));
  // Where the padding is odd, Python puts the extra one left when the width is odd.
  const int64_t left = align == '>' ? padding : align == '^' ? padding / 2 + (padding & width & 1) : 0;
  Text result = repeat(fill, static_cast<size_t>(left));
  result.append(text);
  result.append(repeat(fill, static_cast<size_t>(padding - left)));
  return result;
}

Result<Value> list_of_texts(Runtime& runtime, std::vector<Text> texts, bool from_user) {
  std::vector<Value> values;
  values.reserve(texts.size());
  for (Text& text : texts) {
    ASSIGN_OR_RETURN(Value value, runtime.string(std::move(text)));
    values.push_back(std::move(value));
  }
  return runtime.list(std::move(values), from_user);
}

}  // namespace tessera::jinja
