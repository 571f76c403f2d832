#pragma once
// Cuts text into words before byte-pair merging: merges never cross a border between words. Every family of models has
// its own rule, a list of regular expressions that are applied one after the other, each inside the pieces that those
// before it left (what an expression does not match is a piece as well).
// Expressions run in PCRE2, whose Unicode tables are the only ones used. Immutable once made, safe for any thread.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

/// Where a stage cuts.
enum class PreCut {
  kMatches,             // before and after each match
  kThousands,           // also inside, so that groups of three characters count from the right: 1|234|567
  kThousandsAndBefore,  // the same without the cut before a match: its first group keeps what stands before it
  kThousandStarts,      // only where a multiple of three characters is left of the match
};

/// One expression, in PCRE2's syntax; `\s` and `\S` mean Unicode's White_Space. It must not match the empty text.
struct PreStage {
  std::string_view expression;
  PreCut cut = PreCut::kMatches;
};

/// What one family of pre-tokenizers does. Constants of the models; stated in pre_families.cc.
struct PreFamily {
  std::string_view name;
  std::vector<std::string_view> aliases = {};
  std::vector<PreStage> stages = {};
  bool ignore_merges = false;  // a word that is a token is taken whole, whatever the merges say
  bool add_bos = false;        // BOS unless the file says otherwise
  bool tidy_spaces = false;    // decode() removes spaces before punctuation
  bool mark_spaces = false;    // spaces are written U+2581 and text stays UTF-8: no byte letters
};

/// The family with that name or alias, or null. Lives for ever.
const PreFamily* find_pre_family(std::string_view name);

class PreTokenizer {
 public:
  /// Compiles the family's expressions. Errors: kInternal if PCRE2 refuses one, kOutOfMemory.
  static Result<PreTokenizer> create(const PreFamily& family);

  /// Appends to ends where each word of text ends, ascending; the last is text.size(). text may be any bytes: one that
  /// is not UTF-8 counts as U+FFFD. Should PCRE2 give up (it ran out of memory), what is left counts as one word.
  void split(std::string_view text, std::vector<size_t>& ends) const;

 private:
  struct Stage;
  PreTokenizer() = default;
  void split_valid(std::string_view text, std::vector<size_t>& ends) const;

  std::vector<std::shared_ptr<const Stage>> stages_;
};

}  // namespace tessera
