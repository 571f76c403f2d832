#pragma once
// A grammar, compiled: one automaton over bytes whose edges may call others (a recursive transition network).
//
// Characters are spelled in UTF-8, so that tokens may end inside one, and nothing but UTF-8 is ever accepted. Each rule
// is a part of the automaton that begins at a state of its own and ends in kEndState. A call remembers where to go on;
// a rule that is the last thing of another is entered without a call (right recursion needs no memory), and short
// rules without loops are copied to where they are used. Immutable; any number of threads may read it.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/grammar/gbnf.h"

namespace tessera {

inline constexpr size_t kMaxGrammarStates = 400000;

/// Within so many bytes no text can tell that a long repetition ends: see Grammar::near().
inline constexpr size_t kGrammarLookahead = 16;

class Grammar {
 public:
  /// One state: what may come next.
  struct State {
    enum class Kind : uint8_t {
      kEnd,     // of a rule
      kBytes,   // one byte along an edge: edges()[begin, end)
      kToken,   // one token: id `begin`, or with negated any but that; then to `end`
      kChoice,  // all of targets()[begin, end), without reading anything
      kCall,    // rule `begin`, then go on at `end`
    };
    Kind kind = Kind::kEnd;
    bool negated = false;
    int32_t begin = 0;
    int32_t end = 0;
  };
  /// A byte from first to last leads to the state `to`.
  struct Edge {
    uint8_t first = 0;
    uint8_t last = 0;
    int32_t to = 0;
  };
  struct Rule {
    std::string name = {};
    int32_t start = 0;  // state
    int32_t rank = 0;   // lower than that of every rule which may begin where this one does
    bool may_be_empty = false;
  };
  static constexpr int32_t kEndState = 0;

  /// Compiles GBNF (gbnf.h). Work and memory are linear in the text and the repetitions it asks for, within limits.
  /// Errors: kInvalidArgument: those of parse_gbnf(); a rule that begins with itself (the message names the way round);
  /// more than kMaxGrammarStates states.
  static Result<std::shared_ptr<const Grammar>> parse(std::string_view text, const TokenNames& token_names = {});

  [[nodiscard]] const std::vector<State>& states() const { return states_; }
  [[nodiscard]] const std::vector<Edge>& edges() const { return edges_; }
  [[nodiscard]] const std::vector<int32_t>& targets() const { return targets_; }
  [[nodiscard]] const std::vector<Rule>& rules() const { return rules_; }
  [[nodiscard]] int32_t root() const { return root_; }
  /// A state from which the next kGrammarLookahead bytes may be the same ones as from this state: one for all copies of
  /// a repeated part that are far from the last. has_near(): there are states that differ from theirs.
  [[nodiscard]] int32_t near(int32_t state) const { return near_[static_cast<size_t>(state)]; }
  [[nodiscard]] bool has_near() const { return has_near_; }

  /// Bytes that no edge tells apart have one class.
  [[nodiscard]] uint8_t byte_class(uint8_t byte) const { return byte_class_[byte]; }
  [[nodiscard]] size_t n_classes() const { return class_byte_.size(); }
  /// Any byte of a class.
  [[nodiscard]] uint8_t class_byte(size_t byte_class) const { return class_byte_[byte_class]; }

 private:
  friend class GrammarCompiler;
  Grammar() = default;

  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> targets_;
  std::vector<Rule> rules_;
  std::vector<int32_t> near_;  // by state
  bool has_near_ = false;
  int32_t root_ = 0;  // rule
  std::array<uint8_t, 256> byte_class_ = {};
  std::vector<uint8_t> class_byte_;
};

}  // namespace tessera
