#pragma once
// Why a generation ended, and the search for stop words in text as it is generated.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class StopReason : uint8_t {
  kNone,         // still running
  kEos,          // the model chose an end-of-generation token
  kLimit,        // as many tokens as were asked for
  kWord,         // a stop word appeared in the text
  kCancelled,    // the user or client stopped it
  kContextFull,  // no position is left in the context
  kGrammar,      // the text is complete and the grammar allows nothing after it
};
inline constexpr size_t kStopReasons = 7;

/// Stable lower_snake_case name for JSON: none, eos, limit, word, cancelled, context_full, grammar.
std::string_view stop_reason_name(StopReason reason);

/// Finds the first of several words in text that arrives in pieces, and holds back what may yet become one.
///
/// The word that is complete first wins; among those that end at the same byte the longest. Work is linear in the
/// text for each word (Knuth, Morris, Pratt 1977). Not thread-safe: one filter per generation.
class StopWords {
 public:
  /// Empty words are ignored; without words all text passes.
  explicit StopWords(const std::vector<std::string>& words);

  /// The text that is now certain to lie before any stop word; often less than was given, or more. Nothing once a word
  /// was found.
  std::string push(std::string_view text);

  /// What was held back: the generation ended otherwise. Nothing once a word was found.
  std::string flush();

  [[nodiscard]] bool found() const { return !word_.empty(); }
  /// The word that was found, or "".
  [[nodiscard]] const std::string& word() const { return word_; }

 private:
  struct Pattern {
    std::string word;
    std::vector<size_t> fallback;  // [i]: length of the longest proper border of the word's first i + 1 bytes
    size_t matched = 0;            // bytes of the word that the text ends with
  };
  static void advance(Pattern& pattern, char byte);

  std::vector<Pattern> patterns_;
  std::string held_;
  std::string word_;
};

}  // namespace tessera
