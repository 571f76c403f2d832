#pragma once
// The prompt with which a model of code fills in what is missing between two texts (FIM).

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

struct InfillFile {
  std::string name;
  std::string text;
};

struct InfillText {
  std::string prefix;
  std::string suffix;
  std::string prompt;  // follows the prefix and is never cut: the line at the cursor
  std::vector<InfillFile> extra;
};

/// Most tokens.
struct InfillRoom {
  int64_t n_near = 0;   // of prefix and suffix: three quarters are the prefix's end, the rest the suffix's beginning
  int64_t n_total = 0;  // of all; extra files lose their beginning first
};

/// <PRE> prefix prompt <SUF> suffix <MID>, or with suffix_first <SUF> suffix <PRE> prefix prompt <MID>; before that BOS
/// where the model wants it, and the extra files: <REP> project <SEP> name text ... <SEP> name, as far as the model has
/// these two tokens. No text becomes a special token. Errors: kUnsupported: the model lacks one of the first three.
Result<std::vector<int32_t>> infill_prompt(const Tokenizer& tokenizer, const InfillText& text, const InfillRoom& room,
                                           bool suffix_first);

}  // namespace tessera
