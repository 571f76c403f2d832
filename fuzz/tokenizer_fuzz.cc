// libFuzzer target: a vocabulary and a text. The first byte says which vocabulary: one complete over bytes with one of
// the families of pre-tokenizers, or one that the next bytes describe, as a damaged file might. Aborts when a
// byte-complete vocabulary does not give a text back byte for byte, or ids lie outside a vocabulary.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tokenizer/byte_letters.h"
#include "tokenizer/tokenizer.h"

namespace {

using tessera::Tokenizer;
using tessera::Vocab;

constexpr std::array kFamilies = {"gpt-2",       "llama-bpe", "qwen2",  "qwen35",    "deepseek-llm", "deepseek-coder",
                                  "deepseek-v3", "gpt-4o",    "tekken", "falcon",    "starcoder",    "chatglm-bpe",
                                  "bloom",       "viking",    "exaone", "llama4",    "kimi-k2",      "minerva-7b",
                                  "superbpe",    "hunyuan",   "refact", "command-r", "smollm",       "jais",
                                  "roberta-bpe", "afmoe"};

std::unique_ptr<Tokenizer> byte_tokenizer(const char* family) {
  Vocab vocab;
  vocab.model = "gpt2";
  vocab.pre = family;
  const auto& letters = tessera::byte_letters();
  vocab.tokens.assign(letters.begin(), letters.end());
  const std::string& space = letters[' '];
  for (const char* extra : {"th", "the", "er", "12", "éa", "<|im_end|>"}) {
    vocab.tokens.emplace_back(extra);
  }
  vocab.tokens.push_back(space + "t");
  vocab.tokens.push_back(space + space);
  vocab.token_types.assign(vocab.tokens.size(), tessera::TokenType::kNormal);
  vocab.merges = {"t h", "th e", "e r", "1 2", space + " t", space + " " + space};
  auto tokenizer = Tokenizer::create(std::move(vocab));
  CHECK(tokenizer.ok());
  return std::move(tokenizer).value();
}

// Lines of description: a first line with model and flags, then a token each; two words "a b" are also a merge.
Vocab described_vocab(std::string_view description) {
  constexpr std::array kModels = {"llama", "gpt2", "gemma4", "bert"};
  Vocab vocab;
  vocab.pre = kFamilies[description.size() % kFamilies.size()];
  bool first = true;
  while (!description.empty()) {
    const size_t end = std::min(description.find('\n'), description.size());
    const std::string line(description.substr(0, end));
    description.remove_prefix(std::min(end + 1, description.size()));
    if (std::exchange(first, false)) {
      const auto flags = line.empty() ? uint8_t{0} : static_cast<uint8_t>(line[0]);
      vocab.model = kModels[flags % kModels.size()];
      vocab.add_bos = (flags & 4U) != 0;
      vocab.add_eos = (flags & 8U) != 0;
      vocab.add_space_prefix = (flags & 16U) != 0;
      vocab.bos_id = line.size() > 1 ? static_cast<int8_t>(line[1]) : 0;
      vocab.eos_id = line.size() > 2 ? static_cast<int8_t>(line[2]) : 1;
      vocab.unk_id = line.size() > 3 ? static_cast<int8_t>(line[3]) : -1;
      continue;
    }
    const auto kind = line.empty() ? uint8_t{1} : static_cast<uint8_t>(line[0]);
    vocab.token_types.push_back(static_cast<tessera::TokenType>(kind % 8));
    vocab.scores.push_back(-static_cast<float>(kind));
    if (line.find(' ') != std::string::npos) {
      vocab.merges.push_back(line);
    }
    std::string token = line;
    std::erase(token, ' ');
    vocab.tokens.push_back(token);
  }
  return vocab;
}

void check_text(const Tokenizer& tokenizer, std::string_view text, bool byte_complete) {
  for (const bool parse_special : {false, true}) {
    const std::vector<int32_t> ids =
        tokenizer.encode(text, {.parse_special = parse_special, .add_special = !byte_complete});
    CHECK(std::ranges::all_of(ids, [&](int32_t id) { return id >= 0 && id < tokenizer.n_vocab(); }));
    const std::string back = tokenizer.decode(ids, {.show_special = true, .verbatim = true});
    CHECK(!byte_complete || back == text);
    static_cast<void>(tokenizer.decode(ids));
    tessera::StreamDecoder stream(tokenizer);
    for (const int32_t id : ids) {
      static_cast<void>(stream.push(id));
    }
    static_cast<void>(stream.flush());
  }
  // In two spans, only the first of which may hold special tokens.
  const size_t half = text.size() / 2;
  const std::array spans = {tessera::TextSpan{text.substr(0, half), true}, tessera::TextSpan{text.substr(half), false}};
  static_cast<void>(tokenizer.encode(spans, false));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::array<std::unique_ptr<Tokenizer>, kFamilies.size()> families;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.empty()) {
    return 0;
  }
  const auto choice = static_cast<uint8_t>(input[0]);
  input.remove_prefix(1);
  if (choice % 64 < kFamilies.size()) {
    auto& tokenizer = families[choice % 64];
    if (tokenizer == nullptr) {
      tokenizer = byte_tokenizer(kFamilies[choice % 64]);
    }
    check_text(*tokenizer, input, true);
    return 0;
  }
  const size_t end = std::min(input.find("\n\n"), input.size());
  const auto tokenizer = Tokenizer::create(described_vocab(input.substr(0, end)), [](std::string_view) {});
  if (tokenizer.ok()) {
    check_text(**tokenizer, input.substr(std::min(end + 2, input.size())), false);
  }
  return 0;
}
