// What a grammar costs per token: the mask, and applying it to logits.
//
//   grammar_bench MODEL.gguf [N_VOCAB]      N_VOCAB: only so many of its tokens
//
// For each grammar documents are drawn at random: uniformly among the allowed tokens, but closing what is open once
// they are long. Prints, per token, the mean over the first document and over all later ones (by then the masks of the
// grammar's places are made), the slowest token, and the time to apply a mask to logits; and what a request waits for
// until it has its first mask: with a grammar that is new (compiled, and its first mask made), and with one that was
// kept from another request. One thread, thread CPU time.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "runtime/grammar/json_schema.h"
#include "runtime/grammar/matcher.h"
#include "runtime/sampler_candidates.h"
#include "runtime/vocab_loader.h"
#include "timing.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

using bench::thread_seconds;

constexpr const char* kPerson = R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer",
 "minimum":0,"maximum":150},"email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"type":"string"},
 "maxItems":8},"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"},
 "country":{"enum":["DE","FR","GB","US"]}},"required":["street","city"]}},"required":["name","age","tags"]})";
constexpr const char* kBounded =
    R"({"type":"object","properties":{"id":{"type":"string","pattern":"^[a-z]{3}-[0-9]{4}$"},
 "title":{"type":"string","minLength":1,"maxLength":80},"summary":{"type":"string","maxLength":400}},
 "required":["id","title","summary"]})";
constexpr const char* kTree = R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"value":
 {"type":"number"},"label":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}},
 "required":["value","children"]}}})";

/// A token at random; once the text is long, one that closes, if there is.
int32_t choose(const TokenMask& mask, const TokenTrie& trie, size_t n_tokens, std::mt19937& random) {
  std::vector<int32_t> ids;
  std::vector<int32_t> closing;
  for (int32_t id = 0; id < trie.n_vocab(); ++id) {
    if (mask.allows(id)) {
      ids.push_back(id);
      const std::string_view bytes = trie.bytes(id);
      if (n_tokens > 150 && (trie.is_end(id) || bytes == "\"" || bytes == "]" || bytes == "}")) {
        closing.push_back(id);
      }
    }
  }
  const std::vector<int32_t>& from = closing.empty() ? ids : closing;
  return from.empty() ? -1 : from[random() % from.size()];
}

void measure(const char* name, const std::string& gbnf, const std::shared_ptr<const TokenTrie>& trie) {
  const double begin = thread_seconds();
  auto grammar = Grammar::parse(gbnf);
  if (!grammar.ok()) {
    std::printf("%s: %s\n", name, grammar.status().message().c_str());
    return;
  }
  const auto masks = std::make_shared<GrammarMasks>(*grammar, trie);
  const double compile_ms = (thread_seconds() - begin) * 1e3;
  std::vector<float> logits(static_cast<size_t>(trie->n_vocab()));
  std::mt19937 random(1);
  for (float& logit : logits) {
    logit = static_cast<float>(random() % 1000) / 100;
  }
  Candidates candidates;
  double mask_s[2] = {0, 0};
  double apply_s = 0;
  double slowest = 0;
  double start_s[2] = {compile_ms / 1e3, 0};  // of a request: until its first mask is there
  size_t n[2] = {0, 0};
  for (int document = 0; document < 12; ++document) {
    const double made = thread_seconds();
    GrammarMatcher matcher(masks);
    if (document < 2) {
      (void)matcher.mask();
      start_s[document] += thread_seconds() - made;
    }
    for (size_t n_tokens = 0; n_tokens < 400; ++n_tokens) {
      double start = thread_seconds();
      const auto mask = matcher.mask();
      if (!mask.ok()) {
        std::printf("%s: %s\n", name, mask.status().message().c_str());
        return;
      }
      const double spent = thread_seconds() - start;
      start = thread_seconds();
      candidates.reset(logits);
      candidates.keep_allowed(**mask);
      apply_s += thread_seconds() - start;
      const int32_t id = choose(**mask, *trie, n_tokens, random);
      if (id < 0) {
        break;
      }
      start = thread_seconds();
      matcher.accept(id);
      const double both = spent + thread_seconds() - start;
      const size_t late = document > 0 ? 1 : 0;
      mask_s[late] += both;
      ++n[late];
      slowest = std::max(slowest, both);
      if (trie->is_end(id)) {
        break;
      }
    }
  }
  std::printf(
      "%-18s compile %5.2f ms   start %7.1f us, kept %5.1f us   first document %7.1f us/token (%zu)   later %7.1f "
      "us/token (%zu)   slowest "
      "%7.1f us   apply %5.1f us\n",
      name, compile_ms, start_s[0] * 1e6, start_s[1] * 1e6, mask_s[0] / static_cast<double>(n[0]) * 1e6, n[0],
      mask_s[1] / static_cast<double>(std::max<size_t>(n[1], 1)) * 1e6, n[1], slowest * 1e6,
      apply_s / static_cast<double>(n[0] + n[1]) * 1e6);
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: grammar_bench MODEL.gguf [N_VOCAB]\n");
    return 2;
  }
  const auto file = GgufFile::open(argv[1]);
  if (!file.ok()) {
    std::fprintf(stderr, "grammar_bench: %s\n", file.status().message().c_str());
    return 1;
  }
  auto vocab = load_vocab(file->metadata());
  auto tokenizer = vocab.ok() ? Tokenizer::create(std::move(*vocab)) : vocab.status();
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "grammar_bench: %s\n", tokenizer.status().message().c_str());
    return 1;
  }
  const double begin = thread_seconds();
  auto trie = std::make_shared<const TokenTrie>(**tokenizer);
  const double build_ms = (thread_seconds() - begin) * 1e3;
  const int wanted = argc > 2 ? std::atoi(argv[2]) : 0;
  if (wanted > 0 && wanted < trie->n_vocab()) {
    std::vector<std::string> pieces;
    for (int32_t id = 0; id < wanted; ++id) {
      pieces.emplace_back(trie->bytes(id));
    }
    const std::vector<int32_t> end_ids(trie->end_ids().begin(), trie->end_ids().begin() + 1);
    trie = std::make_shared<const TokenTrie>(pieces, end_ids);
  }
  std::printf("%d tokens, %zu nodes, built in %.1f ms\n", trie->n_vocab(),
              trie->nodes(TokenTrie::kShort).size() + trie->nodes(TokenTrie::kLong).size(), build_ms);
  measure("any JSON", json_grammar(false), trie);
  measure("schema: person", *json_schema_grammar(kPerson), trie);
  measure("schema: tree", *json_schema_grammar(kTree), trie);
  measure("schema: bounded", *json_schema_grammar(kBounded), trie);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  return tessera::run(argc, argv);
}
