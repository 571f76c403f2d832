#include "tokenizer/bpe.h"

#include <fmt/format.h>

#include "tokenizer/byte_letters.h"
#include "tokenizer/utf8.h"

namespace tessera {

namespace {

// The id of text, which is added if need be.
int32_t intern(std::string_view text, TextTable& texts, TextIndex& index) {
  const int32_t known = index.find(text);
  if (known != TextIndex::kAbsent) {
    return known;
  }
  texts.push_back(text);
  return index.insert(static_cast<int32_t>(texts.size()) - 1);
}

}  // namespace

BpeEncoder::BpeEncoder(std::span<const std::string> merges, TextTable& texts, TextIndex& index,
                       const BpeOptions& options, const std::function<void(std::string_view)>& warn)
    : n_vocab_(static_cast<int32_t>(texts.size())), index_(index), options_(options) {
  add_rules(merges, texts, index, warn);
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_symbols_[byte] = index_.find(byte_letters()[byte]);
    byte_tokens_[byte] = options_.byte_letters ? byte_symbols_[byte] : index_.find(fmt::format("<0x{:02X}>", byte));
    if (byte_tokens_[byte] >= n_vocab_) {
      byte_tokens_[byte] = -1;
    }
  }
}

void BpeEncoder::add_rules(std::span<const std::string> merges, TextTable& texts, TextIndex& index,
                           const std::function<void(std::string_view)>& warn) {
  size_t slots = 16;
  while (slots < merges.size() * 2) {
    slots *= 2;
  }
  rules_.resize(slots);
  size_t n_malformed = 0;
  std::string whole;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string& merge = merges[rank];
    const size_t space = merge.find(' ', 1);  // a part may be a space, where spaces are not written otherwise
    if (space == std::string::npos || space + 1 == merge.size() || rank >= UINT32_MAX) {
      ++n_malformed;
      continue;
    }
    const std::string_view left = std::string_view(merge).substr(0, space);
    const std::string_view right = std::string_view(merge).substr(space + 1);
    const int32_t left_id = intern(left, texts, index);
    const int32_t right_id = intern(right, texts, index);
    const uint64_t pair = static_cast<uint64_t>(left_id) << 32 | static_cast<uint32_t>(right_id);
    Rule& rule = rules_[probe(pair)];
    if (rule.pair == kNoPair) {  // of two equal merges the first counts
      whole.assign(left).append(right);
      rule = {pair, static_cast<uint32_t>(rank), intern(whole, texts, index)};
    }
  }
  if (n_malformed > 0 && warn) {
    warn(fmt::format("{} of {} merges are not two texts with a space between, and are ignored", n_malformed,
                     merges.size()));
  }
}

size_t BpeEncoder::probe(uint64_t pair) const {
  const size_t mask = rules_.size() - 1;
  const uint64_t mixed = pair * 0x9E3779B97F4A7C15U;
  size_t i = (mixed ^ mixed >> 32) & mask;
  while (rules_[i].pair != pair && rules_[i].pair != kNoPair) {
    i = (i + 1) & mask;
  }
  return i;
}

Merge<uint32_t> BpeEncoder::rule_for(const Symbol& left, const Symbol& right) const {
  if (left.id < 0 || right.id < 0) {
    return {};
  }
  const uint64_t pair = static_cast<uint64_t>(left.id) << 32 | static_cast<uint32_t>(right.id);
  const Rule& rule = rules_[probe(pair)];
  return {rule.rank, rule.pair == pair ? rule.result : -1};
}

void BpeEncoder::encode(std::string_view text, std::span<const size_t> ends, std::vector<int32_t>& ids) const {
  std::vector<Symbol> symbols;
  std::string letters;
  size_t begin = 0;
  for (const size_t end : ends) {
    encode_word(text.substr(begin, end - begin), symbols, letters, ids);
    begin = end;
  }
}

void BpeEncoder::encode_word(std::string_view word, std::vector<Symbol>& symbols, std::string& letters,
                             std::vector<int32_t>& ids) const {
  if (encode_whole(word, letters, ids)) {
    return;
  }
  symbols.clear();
  for (size_t i = 0; i < word.size();) {
    if (options_.byte_letters) {
      symbols.push_back({byte_symbols_[static_cast<uint8_t>(word[i])], i, 1});
    } else {
      const std::string_view character = word.substr(i, utf8_announced_bytes(word[i]));
      symbols.push_back({index_.find(character), i, character.size()});
    }
    i += symbols.back().size;
  }
  merge_symbols<uint32_t>(symbols, [this](const Symbol& l, const Symbol& r) { return rule_for(l, r); });
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0 && symbol.id < n_vocab_) {
      ids.push_back(symbol.id);
      continue;
    }
    for (const char byte : word.substr(symbol.begin, symbol.size)) {
      const int32_t token = byte_tokens_[static_cast<uint8_t>(byte)];
      if (token >= 0) {
        ids.push_back(token);
      }
    }
  }
}

// Appends the token that the whole word is, where the vocabulary wants that.
bool BpeEncoder::encode_whole(std::string_view word, std::string& letters, std::vector<int32_t>& ids) const {
  const bool newlines = options_.whole_newlines && word.find_first_not_of('\n') == std::string_view::npos;
  if ((!options_.ignore_merges && !newlines) || word.size() > index_.max_bytes()) {
    return false;
  }
  std::string_view spelling = word;
  if (options_.byte_letters) {
    letters.clear();
    for (const char byte : word) {
      letters += byte_letters()[static_cast<uint8_t>(byte)];
    }
    spelling = letters;
  }
  const int32_t token = index_.find(spelling);
  if (token < 0 || token >= n_vocab_) {
    return false;
  }
  ids.push_back(token);
  return true;
}

std::vector<uint8_t> BpeEncoder::missing_bytes() const {
  return bytes_without_token(byte_tokens_);
}

}  // namespace tessera
