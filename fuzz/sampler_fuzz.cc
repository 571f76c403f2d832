// libFuzzer target: sampler settings, a history, logits and perhaps a grammar, over a small vocabulary; a few tokens
// are drawn and accepted. Aborts when a draw is no candidate or does not fit the grammar, when a distribution is none,
// or at the start when the seed "all" does not say all.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "base/check.h"
#include "fuzz/seeds.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/token_trie.h"
#include "runtime/sampler.h"

namespace {

using tessera::SamplerOptions;

// Values from the front of the input; zeros once it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  template <typename T>
  T take() {
    T value = {};
    const size_t n = std::min(sizeof value, size_);
    if (n > 0) {
      std::memcpy(&value, data_, n);
      data_ += n;
      size_ -= n;
    }
    return value;
  }
  [[nodiscard]] size_t left() const { return size_; }

 private:
  const uint8_t* data_;
  size_t size_;
};

SamplerOptions take_options(Input& in) {
  SamplerOptions options;
  for (const tessera::SamplerSetting& setting : tessera::sampler_settings()) {
    // Small whole numbers, percents or anything; what the table refuses stays at its default.
    const auto kind = in.take<uint8_t>();
    if (kind % 4 == 0) {
      continue;
    }
    const double value = kind % 4 == 1   ? static_cast<double>(in.take<int8_t>())
                         : kind % 4 == 2 ? static_cast<double>(in.take<uint8_t>()) / 100
                                         : static_cast<double>(in.take<float>());
    static_cast<void>(tessera::set_sampler_option(options, setting, value));
  }
  options.samplers.clear();
  for (size_t n = in.take<uint8_t>() % 16; n > 0; --n) {
    options.samplers.push_back(static_cast<tessera::SamplerStep>(in.take<uint8_t>() % tessera::kSamplerStepKinds));
  }
  for (size_t n = in.take<uint8_t>() % 4; n > 0; --n) {
    const int32_t id = in.take<uint8_t>() % 64 - 8;
    options.logit_bias.push_back({id, in.take<float>()});
  }
  options.seed = in.take<uint16_t>();
  return options;
}

// Texts that begin alike, parts of a character, two ends and one mark.
const tessera::Tokenizer& tokenizer() {
  static const auto kTokenizer = [] {
    tessera::Vocab vocab;
    vocab.model = "llama";
    vocab.tokens = {"</s>", "<eot>", "<mark>", "<0x0A>", "<0xC3>", "<0xA9>", "a", "ab", "abc",    "b", "aa",
                    "{",    "}",     "\"",     "\":",    "\",",    ",",      "1", "12", "\u2581", "é", "12,"};
    vocab.scores.assign(vocab.tokens.size(), -1);
    vocab.token_types.assign(vocab.tokens.size(), tessera::TokenType::kNormal);
    std::fill_n(vocab.token_types.begin(), 3, tessera::TokenType::kControl);
    std::fill_n(vocab.token_types.begin() + 3, 3, tessera::TokenType::kByte);
    vocab.eos_id = 0;
    vocab.eot_id = 1;
    auto made = tessera::Tokenizer::create(std::move(vocab));
    CHECK(made.ok());
    return std::move(made).value();
  }();
  return *kTokenizer;
}

// A list, an object, a character in parts and the mark, and one that is as ambiguous as it can be.
constexpr std::array kGrammars = {
    R"(root ::= [ab]+ ("," root)?)",
    R"(root ::= "{" ("\"" [a-c]* "\":" ([0-9]{1,3} | root) ","?)* "}")",
    R"(root ::= ("é" | "\n" | <mark> | !<mark>)*)",
    "root ::= s\ns ::= \"a\" s s | \"a\" s | \"a\"",
};

// The masks of a grammar, or null: most samplers have none.
std::shared_ptr<tessera::GrammarMasks> take_grammar(Input& in) {
  static const auto kTrie = std::make_shared<const tessera::TokenTrie>(tokenizer());
  static const auto kParsed = [] {
    std::vector<std::shared_ptr<const tessera::Grammar>> parsed;
    for (const char* text : kGrammars) {
      const auto grammar = tessera::Grammar::parse(text, [](std::string_view name) { return tokenizer().find(name); });
      CHECK(grammar.ok());
      parsed.push_back(*grammar);
    }
    return parsed;
  }();
  const size_t choice = in.take<uint8_t>() % (2 * kParsed.size());
  return choice < kParsed.size() ? nullptr
                                 : std::make_shared<tessera::GrammarMasks>(kParsed[choice - kParsed.size()], kTrie);
}

void check_distribution(std::span<const tessera::TokenProbability> distribution, size_t n_vocab) {
  double total = 0;
  for (const tessera::TokenProbability& t : distribution) {
    CHECK(t.id >= 0 && static_cast<size_t>(t.id) < n_vocab);
    CHECK(t.probability >= 0 && t.probability <= 1);
    total += t.probability;
  }
  CHECK(distribution.empty() || std::fabs(total - 1) < 1e-9);
}

void check_draws(tessera::Sampler& sampler, std::span<const float> logits,
                 std::optional<tessera::GrammarMatcher> follower) {
  for (int draw = 0; draw < 5; ++draw) {
    check_distribution(sampler.distribution(logits), logits.size());
    const int32_t token = sampler.sample(logits);
    CHECK(token == tessera::kNoToken || (token >= 0 && static_cast<size_t>(token) < logits.size()));
    if (token == tessera::kNoToken) {
      break;
    }
    CHECK(logits[static_cast<size_t>(token)] > -INFINITY);
    CHECK(!follower || follower->accept(token));
    sampler.accept({&token, 1});
    CHECK(!follower || sampler.grammar_state() != tessera::Sampler::GrammarState::kBroken);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const std::vector<uint8_t> bytes = tessera::seed_bytes("sampler/all");
  if (!bytes.empty()) {  // else run make_seeds.py again
    Input in(bytes.data(), bytes.size());
    const SamplerOptions options = take_options(in);
    for (const tessera::SamplerSetting& setting : tessera::sampler_settings()) {
      CHECK(get_sampler_option(options, setting) != get_sampler_option({}, setting) || setting.name == "mirostat");
    }
    CHECK(options.samplers.size() == tessera::kSamplerStepKinds);
    for (size_t i = 0; i < tessera::kSamplerStepKinds; ++i) {
      CHECK(options.samplers[i] == static_cast<tessera::SamplerStep>(i));
    }
    CHECK(options.seed == 7);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  const SamplerOptions options = take_options(in);
  tessera::DryBreakers breakers;
  for (size_t n = in.take<uint8_t>() % 3; n > 0; --n) {
    const int32_t sequence[] = {in.take<uint8_t>() % 8, in.take<uint8_t>() % 8};
    breakers.add(std::span(sequence).first(1 + in.take<uint8_t>() % 2));
  }
  const auto masks = take_grammar(in);
  const auto matcher = masks == nullptr ? std::nullopt : std::optional<tessera::GrammarMatcher>(masks);
  tessera::Sampler sampler(options, breakers, matcher, &tokenizer());
  std::vector<int32_t> history(in.take<uint8_t>());
  for (int32_t& token : history) {
    token = static_cast<int32_t>(in.take<uint8_t>() % 8);
  }
  sampler.accept(history);
  std::vector<float> logits;  // fewer or more than the vocabulary has
  while (in.left() > 0 && logits.size() < 300) {
    const bool raw = in.take<uint8_t>() % 2 == 1;
    logits.push_back(raw ? in.take<float>() : static_cast<float>(in.take<int8_t>()) / 8);
  }
  check_draws(sampler, logits, matcher);
  return 0;
}
