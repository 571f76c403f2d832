#include "runtime/stop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tessera {

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kNone: return "none";
    case StopReason::kEos: return "eos";
    case StopReason::kLimit: return "limit";
    case StopReason::kWord: return "word";
    case StopReason::kCancelled: return "cancelled";
    case StopReason::kContextFull: return "context_full";
    case StopReason::kGrammar: return "grammar";
  }
  CHECK(false);
}

StopWords::StopWords(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word.empty()) {
      continue;
    }
    Pattern pattern{word, std::vector<size_t>(word.size(), 0)};
    for (size_t i = 1; i < word.size(); ++i) {
      advance(pattern, word[i]);
      pattern.fallback[i] = pattern.matched;
    }
    pattern.matched = 0;
    patterns_.push_back(std::move(pattern));
  }
}

std::string StopWords::push(std::string_view text) {
  if (found() || text.empty()) {
    return {};
  }
  size_t longest = 0;  // bytes at the end of held_ that may belong to a word
  for (const char byte : text) {
    held_ += byte;
    longest = 0;
    for (Pattern& pattern : patterns_) {
      advance(pattern, byte);
      longest = std::max(longest, pattern.matched);
      if (pattern.matched == pattern.word.size() && pattern.word.size() > word_.size()) {
        word_ = pattern.word;
      }
    }
    if (found()) {
      longest = word_.size();
      break;
    }
  }
  std::string free = held_.substr(0, held_.size() - longest);
  held_ = found() ? std::string() : held_.substr(held_.size() - longest);
  return free;
}

std::string StopWords::flush() {
  for (Pattern& pattern : patterns_) {
    pattern.matched = 0;
  }
  return std::exchange(held_, {});
}

// REQUIRES: fallback is known for all shorter prefixes. A complete word falls back first, as the text goes on.
void StopWords::advance(Pattern& pattern, char byte) {
  size_t& matched = pattern.matched;
  while (matched > 0 && (matched == pattern.word.size() || pattern.word[matched] != byte)) {
    matched = pattern.fallback[matched - 1];
  }
  matched += pattern.word[matched] == byte ? 1 : 0;
}

}  // namespace tessera
