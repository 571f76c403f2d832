#pragma once
// Regular expressions as PCRE2 reads them; its header stays out of ours. They run as machine code where the system
// allows it, and interpreted elsewhere: slower, with the same result.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera {

/// A compiled expression. Immutable and safe for any thread; copies share it.
class Regex {
 public:
  /// utf8: pattern and texts are UTF-8, and `.`, classes and properties mean characters, not bytes. Errors:
  /// kInvalidArgument with the reason and the byte of the pattern; kOutOfMemory.
  static Result<Regex> compile(std::string_view pattern, bool utf8);

 private:
  friend class RegexMatcher;
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

/// Looks for an expression in texts, one thread at a time.
class RegexMatcher {
 public:
  /// Steps of backtracking after which an expression that people gave is taken for a runaway.
  static constexpr uint32_t kMaxSteps = 10'000'000;

  /// Where an expression was found, in bytes.
  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };

  explicit RegexMatcher(const Regex& regex, uint32_t max_steps = kMaxSteps);
  ~RegexMatcher();
  RegexMatcher(RegexMatcher&& other) noexcept;
  RegexMatcher& operator=(RegexMatcher&& other) noexcept;

  /// The first match that begins at byte `from` or later; nothing where there is none, or where failure() is set.
  /// REQUIRES: from <= text.size(); text is valid and `from` begins a character, for an expression of UTF-8.
  std::optional<Match> find(std::string_view text, size_t from = 0);

  /// Why the last find() gave up: too many steps, or no memory. Empty: it did not.
  [[nodiscard]] std::string failure() const;

 private:
  struct State;
  std::shared_ptr<const Regex::Code> code_;
  std::unique_ptr<State> state_;
  int error_ = 0;  // of the last find(); 0: none
};

}  // namespace tessera
