#include <utility>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace tessera {

std::string StreamDecoder::push(int32_t id) {
  if (!show_special_ && (tokenizer_->is_control(id) || tokenizer_->type(id) == TokenType::kUnknown)) {
    return {};
  }
  held_ += tokenizer_->piece(id);
  std::string complete = std::move(held_);
  const size_t n_held = utf8_unfinished_bytes(complete);
  held_ = complete.substr(complete.size() - n_held);
  complete.resize(complete.size() - n_held);
  return complete;
}

std::string StreamDecoder::flush() {
  return std::exchange(held_, {});
}

}  // namespace tessera
