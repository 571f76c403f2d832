#pragma once
// Small vocabularies and helpers for the tests of this room.

#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_letters.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

/// gpt2: the 256 byte letters (id = byte), then extra tokens.
inline Vocab byte_vocab(std::string pre, const std::vector<std::string>& extra = {}) {
  Vocab vocab;
  vocab.model = "gpt2";
  vocab.pre = std::move(pre);
  vocab.tokens.assign(byte_letters().begin(), byte_letters().end());
  vocab.tokens.insert(vocab.tokens.end(), extra.begin(), extra.end());
  return vocab;
}

/// gpt2: also every pair of bytes (256 + 256 a + b), merged in order of bytes: tokens show where words end.
inline Vocab pair_vocab(std::string pre) {
  Vocab vocab = byte_vocab(std::move(pre));
  for (const std::string& a : byte_letters()) {
    for (const std::string& b : byte_letters()) {
      vocab.tokens.push_back(a + b);
      vocab.merges.push_back(a + " " + b);
    }
  }
  return vocab;
}

/// llama: unknown, BOS, EOS, the 256 byte tokens (id = 3 + byte), then extra tokens with falling scores.
inline Vocab spm_vocab(const std::vector<std::string>& extra) {
  Vocab vocab;
  vocab.model = "llama";
  vocab.tokens = {"<unk>", "<s>", "</s>"};
  vocab.token_types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  vocab.scores = {0, 0, 0};
  constexpr char kHex[] = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256; ++byte) {
    vocab.tokens.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    vocab.token_types.push_back(TokenType::kByte);
    vocab.scores.push_back(0);
  }
  for (size_t i = 0; i < extra.size(); ++i) {
    vocab.tokens.push_back(extra[i]);
    vocab.token_types.push_back(TokenType::kNormal);
    vocab.scores.push_back(-static_cast<float>(i));
  }
  return vocab;
}

/// The tokenizer of a vocabulary that must be accepted; warnings go to *warnings or, without one, fail the test.
inline std::unique_ptr<Tokenizer> make_tokenizer(Vocab vocab, std::vector<std::string>* warnings = nullptr) {
  auto made = Tokenizer::create(std::move(vocab), [warnings](std::string_view warning) {
    if (warnings != nullptr) {
      warnings->emplace_back(warning);
    } else {
      ADD_FAILURE() << warning;
    }
  });
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made).value() : nullptr;
}

/// Pieces of ids.
inline std::vector<std::string> pieces(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::vector<std::string> result;
  for (const int32_t id : ids) {
    result.emplace_back(tokenizer.piece(id));
  }
  return result;
}

inline std::string unhex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

}  // namespace tessera
