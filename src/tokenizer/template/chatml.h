#pragma once
// ChatML: what stands in for the chat template that a model file lacks.

#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace tessera {

inline constexpr std::string_view kChatMl =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
inline constexpr std::string_view kChatMlEnd = "<|im_end|>";  // of a message

/// The text with which a model ends its answers for want of a token for that: ChatML's where `template_source` is empty
/// or kChatMl, and the vocabulary does not have it. Answers have to stop at it. Empty: there is no such text.
inline std::string spelled_end(std::string_view template_source, const Tokenizer& tokenizer) {
  const bool is_chatml = template_source.empty() || template_source == kChatMl;
  return std::string(is_chatml && !tokenizer.find(kChatMlEnd) ? kChatMlEnd : "");
}

}  // namespace tessera
