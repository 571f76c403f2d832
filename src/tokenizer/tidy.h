#pragma once
// The clean-up that older BPE families apply to decoded text.

#include <string>

namespace tessera {

/// Removes the space before ? ! . and , then both spaces around a lone apostrophe, then the space before 's 'm 're 've
/// (three passes, each over the result of the one before; the clean_up_tokenization of Hugging Face tokenizers as the
/// reference narrows it).
std::string tidy_spaces(std::string text);

}  // namespace tessera
