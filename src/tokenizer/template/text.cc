#include "tokenizer/template/text.h"

#include <algorithm>

namespace tessera::jinja {

size_t Text::flips_up_to(size_t i) const {
  return static_cast<size_t>(std::upper_bound(flips_.begin(), flips_.end(), i) - flips_.begin());
}

bool Text::from_user_at(size_t i) const {
  return from_user_ != (flips_up_to(i) % 2 == 1);
}

void Text::append(std::string_view bytes, bool from_user) {
  if (bytes.empty()) {
    return;
  }
  if (bytes_.empty()) {
    from_user_ = from_user;
  } else if ((from_user_ != (flips_.size() % 2 == 1)) != from_user) {
    flips_.push_back(bytes_.size());
  }
  bytes_.append(bytes);
}

void Text::append(const Text& other, size_t begin, size_t end) {
  other.for_each_run(begin, end, [this](std::string_view bytes, bool from_user) { append(bytes, from_user); });
}

Text Text::slice(size_t begin, size_t end) const {
  Text result;
  result.from_user_ = from_user_at(begin);
  result.append(*this, begin, end);
  return result;
}

}  // namespace tessera::jinja
