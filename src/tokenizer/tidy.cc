#include "tokenizer/tidy.h"

#include <string_view>
#include <utility>

namespace tessera {
namespace {

// Copies text without the spaces that stand directly before a position for which drop(rest of text) holds.
template <typename Drop>
std::string without_space_before(const std::string& text, const Drop& drop) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && text[i - 1] == ' ' && drop(std::string_view(text).substr(i))) {
      out.pop_back();
    }
    out.push_back(text[i]);
  }
  return out;
}

std::string without_spaces_around_apostrophes(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  size_t i = 0;
  while (i < text.size()) {
    if (text.compare(i, 3, " ' ") == 0) {
      out.push_back('\'');
      i += 3;
      if (i < text.size()) {  // the space just taken no longer stands before what follows
        out.push_back(text[i++]);
      }
    } else {
      out.push_back(text[i++]);
    }
  }
  return out;
}

}  // namespace

std::string tidy_spaces(std::string text) {
  text = without_space_before(
      text, [](std::string_view rest) { return rest[0] == '?' || rest[0] == '!' || rest[0] == '.' || rest[0] == ','; });
  text = without_spaces_around_apostrophes(text);
  return without_space_before(text, [](std::string_view rest) {
    return rest.starts_with("'s") || rest.starts_with("'m") || rest.starts_with("'re") || rest.starts_with("'ve");
  });
}

}  // namespace tessera
