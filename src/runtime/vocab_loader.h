#pragma once
// From a model file's `tokenizer.*` keys to a Vocab (tokenizer/ knows no file format).

#include "base/status.h"
#include "gguf/metadata.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

/// Errors: kInvalidData for keys of a wrong type (names the key); kUnsupported when the file has no vocabulary.
Result<Vocab> load_vocab(const Metadata& meta);

}  // namespace tessera
