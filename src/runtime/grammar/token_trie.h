#pragma once
// The vocabulary as tries of bytes, laid out so that a walk reads memory in order and skips what cannot follow.
//
// Only tokens that stand for text are in it: control and unknown tokens, and tokens without bytes, are reached through
// a grammar's <token> alone, because their text is no part of what a user reads. Built once per model (some 50 ms for
// 128k tokens) and immutable; any number of threads may read it. It keeps nothing of the tokenizer.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class Tokenizer;

class TokenTrie {
 public:
  /// A node stands for the byte that leads to it. Nodes lie in the order of a walk: a node's children follow it.
  struct Node {
    int32_t end = 0;     // the first node that is not below this one
    int32_t token = -1;  // that ends here, or -1; the next with the same bytes is next_same()[token]
    uint16_t depth = 0;  // bytes up to here, the node's own included
    uint8_t byte = 0;
  };

  /// The tokens of up to kGrammarLookahead bytes, and the few that are longer, as a trie each.
  enum Part : uint8_t { kShort, kLong };

  /// Of a model's tokens.
  explicit TokenTrie(const Tokenizer& tokenizer);
  /// pieces: the bytes of each token, "" for those that stand for no text. end_ids: that end a generation.
  TokenTrie(std::span<const std::string> pieces, std::span<const int32_t> end_ids);

  [[nodiscard]] int32_t n_vocab() const { return static_cast<int32_t>(begins_.size()) - 1; }
  [[nodiscard]] const std::vector<Node>& nodes(Part part) const { return nodes_[part]; }
  [[nodiscard]] const std::vector<int32_t>& next_same() const { return next_same_; }
  /// Bytes of the longest token.
  [[nodiscard]] size_t max_depth() const { return max_depth_; }
  /// Tokens that end a generation; ascending.
  [[nodiscard]] const std::vector<int32_t>& end_ids() const { return end_ids_; }
  [[nodiscard]] bool is_end(int32_t id) const;
  /// The bytes of a token; "" for tokens outside the trie. REQUIRES: 0 <= id < n_vocab().
  [[nodiscard]] std::string_view bytes(int32_t id) const {
    const auto i = static_cast<size_t>(id);
    return std::string_view(text_).substr(begins_[i], begins_[i + 1] - begins_[i]);
  }

 private:
  void build(Part part, std::span<const int32_t> order);
  void build();

  std::string text_;                        // the bytes of all tokens in a row
  std::vector<size_t> begins_;              // [n_vocab + 1], in text_
  std::array<std::vector<Node>, 2> nodes_;  // by part
  std::vector<int32_t> next_same_;          // [n_vocab]
  std::vector<int32_t> end_ids_;
  size_t max_depth_ = 0;
};

}  // namespace tessera
