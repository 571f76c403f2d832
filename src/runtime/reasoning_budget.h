#pragma once
// A limit on the tokens that a model reasons for: past it the mark that ends reasoning is forced, then it goes on.
//
// Finds reasoning in the text as it is generated. A plain state machine; one per generation.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct ReasoningLimit {
  int64_t n_tokens = -1;            // of reasoning; negative: no limit
  std::string begin;                // the mark before it
  std::string end;                  // and the one behind it
  std::vector<int32_t> end_tokens;  // what is forced: the end mark; empty: no limit
  bool is_open = false;             // the prompt ends inside reasoning
  bool repeats = false;             // it may come again, and anywhere; else only at the beginning of the answer
};

class ReasoningBudget {
 public:
  explicit ReasoningBudget(ReasoningLimit limit);

  /// The token that must come next, if one must.
  [[nodiscard]] std::optional<int32_t> forced() const;
  /// A token was chosen. bytes: its text, also of control tokens.
  void accept(std::string_view bytes);

 private:
  enum class State : uint8_t { kBefore, kInside, kForcing, kOver };
  void enter(State state);

  ReasoningLimit limit_;
  State state_ = State::kBefore;
  std::string tail_;     // the text since the state began, as far as a mark may need it
  int64_t n_spent_ = 0;  // tokens of reasoning
  size_t n_forced_ = 0;
};

}  // namespace tessera
