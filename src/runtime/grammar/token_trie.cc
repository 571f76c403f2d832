#include "runtime/grammar/token_trie.h"

#include <algorithm>

#include "runtime/grammar/grammar.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

// Longer ones are left out: real vocabularies end below 1000 bytes, and a depth must fit its field.
constexpr size_t kMaxTokenBytes = 4096;

bool stands_for_text(const Tokenizer& tokenizer, int32_t id) {
  const TokenType type = tokenizer.type(id);
  return !tokenizer.is_control(id) && !tokenizer.is_end_of_generation(id) && type != TokenType::kUnknown &&
         type != TokenType::kUnused;
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer)
    : end_ids_(tokenizer.end_of_generation_ids().begin(), tokenizer.end_of_generation_ids().end()) {
  begins_.push_back(0);
  for (int32_t id = 0; id < tokenizer.n_vocab(); ++id) {
    if (stands_for_text(tokenizer, id)) {
      text_ += tokenizer.piece(id);
    }
    begins_.push_back(text_.size());
  }
  build();
}

TokenTrie::TokenTrie(std::span<const std::string> pieces, std::span<const int32_t> end_ids)
    : end_ids_(end_ids.begin(), end_ids.end()) {
  begins_.push_back(0);
  for (const std::string& piece : pieces) {
    text_ += piece;
    begins_.push_back(text_.size());
  }
  std::ranges::sort(end_ids_);
  build();
}

bool TokenTrie::is_end(int32_t id) const {
  return std::ranges::binary_search(end_ids_, id);
}

void TokenTrie::build() {
  std::erase_if(end_ids_, [this](int32_t id) { return id < 0 || id >= n_vocab(); });
  next_same_.assign(static_cast<size_t>(n_vocab()), -1);
  std::array<std::vector<int32_t>, 2> order;
  for (int32_t id = 0; id < n_vocab(); ++id) {
    if (!bytes(id).empty() && bytes(id).size() <= kMaxTokenBytes) {
      order[bytes(id).size() <= kGrammarLookahead ? kShort : kLong].push_back(id);
    }
  }
  for (const Part part : {kShort, kLong}) {
    std::ranges::stable_sort(order[part], {}, [this](int32_t id) { return bytes(id); });
    build(part, order[part]);
  }
}

// From the sorted texts: where one differs from the last, nodes of the last end and those of this one begin.
void TokenTrie::build(Part part, std::span<const int32_t> order) {
  std::vector<Node>& nodes = nodes_[part];
  std::vector<int32_t> path;  // nodes that lead to the last text
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes[static_cast<size_t>(path.back())].end = static_cast<int32_t>(nodes.size());
    }
  };
  std::string_view last;
  for (const int32_t id : order) {
    const std::string_view text = bytes(id);
    if (text == last) {
      int32_t& token = nodes[static_cast<size_t>(path.back())].token;
      next_same_[static_cast<size_t>(id)] = token;
      token = id;
      continue;
    }
    const auto common = static_cast<size_t>(std::ranges::mismatch(text, last).in1 - text.begin());
    close(common);
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(static_cast<int32_t>(nodes.size()));
      nodes.push_back({.depth = static_cast<uint16_t>(i + 1), .byte = static_cast<uint8_t>(text[i])});
    }
    nodes.back().token = id;
    max_depth_ = std::max(max_depth_, text.size());
    last = text;
  }
  close(0);
}

}  // namespace tessera
