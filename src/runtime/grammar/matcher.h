#pragma once
// A grammar over a vocabulary: which tokens may come next, and what becomes of the text once one was chosen.
//
// GrammarMasks computes masks and remembers them: a mask for the states of one frame (automaton.h) serves wherever
// their rule is called from, and is joined with what may follow that rule. Tokens that leave the rule are looked up
// behind it, each alone. Far from the end of a long repetition all places share the masks of short tokens
// (Grammar::near). So the many places inside strings, numbers and lists of a document share a few walks over
// the vocabulary. All matchers of one GrammarMasks share its memory (kMaxMaskBytes, then it begins anew) and are used
// by one thread at a time; grammar and trie are shared freely.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "runtime/grammar/automaton.h"
#include "runtime/grammar/token_mask.h"
#include "runtime/grammar/token_trie.h"

namespace tessera {

class GrammarMasks {
 public:
  static constexpr size_t kMaxMaskBytes = 64U << 20;

  GrammarMasks(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie);

  [[nodiscard]] const TokenTrie& trie() const { return *trie_; }

 private:
  friend class GrammarMatcher;

  /// What a walk from states in frame 0 found.
  struct FrameMask {
    TokenMask mask;              // tokens that end inside the frame
    std::vector<int32_t> exits;  // nodes where the frame may be left
  };

  const TokenMask* mask(ConfigId config);
  void add_part(TokenTrie::Part part, ConfigId config, TokenMask& mask);
  const FrameMask& frame_mask(TokenTrie::Part part, std::span<const GrammarAutomaton::Thread> threads);
  template <typename Visit>
  void walk(const std::vector<TokenTrie::Node>& nodes, int32_t begin, int32_t end, ConfigId config, const Visit& visit);
  void add_tokens_at(const TokenTrie::Node& node, TokenMask& mask) const;
  void add_named_tokens(ConfigId config, TokenMask& mask) const;
  [[nodiscard]] TokenMask empty_mask() const;
  void make_room();
  void forget_frame_masks();

  int32_t take_place(ConfigId config);
  void leave_place(int32_t place);

  std::shared_ptr<const TokenTrie> trie_;
  GrammarAutomaton automaton_;
  std::array<std::unordered_map<ConfigId, FrameMask>, 2> frame_masks_;  // by part
  std::unordered_map<ConfigId, TokenMask> near_masks_;                  // short tokens of GrammarAutomaton::near()
  std::unordered_map<ConfigId, TokenMask> masks_;
  size_t frame_mask_bytes_ = 0;
  std::vector<ConfigId> path_;        // [max depth + 1]: configurations on the way to a node
  std::vector<ConfigId> places_;      // of the matchers; -1: free
  std::vector<int32_t> free_places_;  // in places_
};

/// A place in a text that follows a grammar. A value: a copy is a place to come back to.
class GrammarMatcher {
 public:
  /// At the beginning.
  explicit GrammarMatcher(std::shared_ptr<GrammarMasks> masks);
  GrammarMatcher(const GrammarMatcher& other);
  GrammarMatcher(GrammarMatcher&& other) noexcept;
  GrammarMatcher& operator=(GrammarMatcher other) noexcept;
  ~GrammarMatcher();

  /// The tokens that may come next; tokens that end a generation where the text may end. Valid until the next call to
  /// any matcher of the same masks. All bits are 0 where nothing may follow. Errors: kUnsupported where the grammar is
  /// so ambiguous, or the text so deeply nested, that a limit of automaton.h was met.
  Result<const TokenMask*> mask();

  /// Moves on by a token. A token that ends the generation changes nothing where the text may end. False: it does not
  /// fit (or a limit was met); is_dead() from then on.
  bool accept(int32_t id);
  /// The same by bytes, which may end anywhere in a character.
  bool accept_bytes(std::string_view bytes);

  /// Whether the text is complete.
  [[nodiscard]] bool may_end() const;
  /// Whether a token was accepted that does not fit.
  [[nodiscard]] bool is_dead() const;

 private:
  [[nodiscard]] ConfigId& config() const;
  bool move_to(ConfigId config);

  std::shared_ptr<GrammarMasks> masks_;
  int32_t place_ = -1;
};

}  // namespace tessera
