// What handlers ask of a request.

#include <algorithm>

#include "base/hex.h"
#include "server/http_server.h"

namespace tessera {
namespace {

char lower(char c) {
  return static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

bool equal_no_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower, lower);
}

}  // namespace

HttpRequest line_of(const HttpRequest& request) {
  HttpRequest line;
  line.method = request.method;
  line.path = request.path;
  line.peer = request.peer;
  return line;
}

std::string decode_percent(std::string_view text, bool is_form) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_value(text[i + 2]) : -1;
    if (low >= 0) {
      result += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      result += is_form && text[i] == '+' ? ' ' : text[i];
    }
  }
  return result;
}

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (equal_no_case(key, name)) {
      return value;
    }
  }
  return {};
}

std::string HttpRequest::query_value(std::string_view name) const {
  for (size_t begin = 0; begin < query.size();) {
    const size_t end = std::min(query.find('&', begin), query.size());
    const std::string_view pair = std::string_view(query).substr(begin, end - begin);
    const size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) == name) {
      return decode_percent(pair.substr(std::min(equals + 1, pair.size())), true);
    }
    begin = end + 1;
  }
  return {};
}

}  // namespace tessera
