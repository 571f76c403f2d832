// Generation on tiny models: against the reference's greedy tokens, and every way in which it ends.

#include "runtime/generate.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tokenizer/utf8.h"

namespace tessera {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

const std::string kTiny = std::string(TESSERA_TEST_DATA) + "/tiny/";

struct Loaded {
  std::shared_ptr<Model> model;
  std::unique_ptr<Context> context;
};

Loaded open(const std::string& name, int64_t n_ctx = 256, int64_t n_batch = 64) {
  ModelOptions options;
  options.path = kTiny + name + ".gguf";
  options.kernels = "scalar";
  options.n_threads = 1;
  options.context = {.n_ctx = n_ctx, .n_batch = n_batch, .n_ubatch = 32, .k_type = DType::kF32, .v_type = DType::kF32};
  Loaded loaded;
  auto model = Model::load(options);
  CHECK(model.ok());
  loaded.model = std::move(model).value();
  auto context = Context::create(loaded.model, options.context);
  CHECK(context.ok());
  loaded.context = std::move(context).value();
  return loaded;
}

json golden(const std::string& name) {
  json result;
  std::ifstream(kTiny + name + ".json") >> result;
  return result;
}

GenerateOptions greedy(int64_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.ignore_eos = true;
  options.sampler.temperature = 0;
  return options;
}

Generation must(Result<Generation> result) {
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? std::move(result).value() : Generation();
}

TEST(Generate, GreedyTokensAreTheReferences) {
  const Loaded l = open("tiny-llama");
  const json reference = golden("tiny-llama");
  const auto prompt = reference["prompt"].get<std::vector<int32_t>>();
  const auto expected = reference["greedy"]["tokens"].get<std::vector<int32_t>>();
  Session session(*l.context);
  const Generation g = must(session.generate(prompt, greedy(static_cast<int64_t>(expected.size()))));
  EXPECT_THAT(g.tokens, ElementsAreArray(expected));
  EXPECT_EQ(g.stop, StopReason::kLimit);
  EXPECT_EQ(g.timings.cache_n, 0);
  EXPECT_EQ(g.timings.prompt_n, static_cast<int64_t>(prompt.size()));
  EXPECT_EQ(g.timings.predicted_n, static_cast<int64_t>(expected.size()));
}

TEST(Generate, HooksOfBothPhasesComeBeforeThem) {
  const Loaded l = open("tiny-llama");
  Session session(*l.context);
  std::vector<int64_t> lacking;
  std::vector<int64_t> lengths;
  GenerateHooks hooks;
  hooks.on_begin = [&](int64_t n, int64_t n_cached) {
    EXPECT_EQ(n_cached, l.context->length(0));
    lacking.push_back(n);
    lengths.push_back(l.context->length(0));
    return Status();
  };
  hooks.on_prompt = [&] {
    lengths.push_back(l.context->length(0));
    return Status();
  };
  const std::vector<int32_t> prompt = {1, 5, 7, 9, 11};
  must(session.generate(prompt, greedy(3), hooks));
  must(session.generate(prompt, greedy(3), hooks));
  EXPECT_THAT(lacking, ElementsAre(5, 1));
  EXPECT_THAT(lengths, ElementsAre(0, 5, 4, 5));
  hooks.on_begin = [](int64_t, int64_t) { return Status(ErrorCode::kUnsupported, "not now"); };
  EXPECT_EQ(session.generate(prompt, greedy(3), hooks).status().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(must(session.generate(prompt, greedy(3))).timings.cache_n, 4);
}

TEST(Generate, TextThatIsRefusedEndsIt) {
  const Loaded l = open("tiny-llama");
  Session session(*l.context);
  const std::vector<int32_t> prompt = {1, 5, 7, 9, 11};
  const std::vector<int32_t> plain = must(session.generate(prompt, greedy(40))).tokens;
  int n_pieces = 0;
  GenerateHooks hooks;
  hooks.on_text = [&](std::string_view) {
    return ++n_pieces < 2 ? Status() : Status(ErrorCode::kIo, "nobody listens");
  };
  EXPECT_EQ(session.generate(prompt, greedy(40), hooks).status().message(), "nobody listens");
  EXPECT_EQ(n_pieces, 2);
  EXPECT_LT(session.tokens().size(), prompt.size() + plain.size() - 1);
  EXPECT_EQ(must(session.generate(prompt, greedy(40))).tokens, plain);
}

TEST(Generate, SmallBatchesGiveTheSameTokens) {
  const Loaded l = open("tiny-llama", 256, 5);
  const json reference = golden("tiny-llama");
  Session session(*l.context);
  const Generation g = must(session.generate(reference["prompt"].get<std::vector<int32_t>>(), greedy(16)));
  EXPECT_EQ(g.tokens, reference["greedy"]["tokens"].get<std::vector<int32_t>>());
}

// The next prompt holds the last one and its answer: only what is new is read, and the answer is the same as from the
// start.
TEST(Generate, ReadsOnlyWhatIsNew) {
  const Loaded l = open("tiny-llama");
  std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6};
  Session session(*l.context);
  const Generation first = must(session.generate(prompt, greedy(4)));
  prompt.insert(prompt.end(), first.tokens.begin(), first.tokens.end());
  prompt.insert(prompt.end(), {9, 8, 7});
  const Generation second = must(session.generate(prompt, greedy(8)));
  EXPECT_EQ(second.timings.cache_n, 9);  // the last token of the answer was chosen but never decoded
  EXPECT_EQ(second.timings.prompt_n, 4);

  ASSERT_TRUE(session.clear().ok());
  EXPECT_TRUE(session.tokens().empty());
  const Generation again = must(session.generate(prompt, greedy(8)));
  EXPECT_EQ(again.timings.cache_n, 0);
  EXPECT_EQ(again.tokens, second.tokens);
}

TEST(Generate, ReadsAgainFromTheFirstTokenThatDiffers) {
  const Loaded l = open("tiny-llama");
  Session session(*l.context);
  must(session.generate(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7}, greedy(8)));
  const std::vector<int32_t> other = {1, 2, 3, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30};
  const Generation changed = must(session.generate(other, greedy(8)));
  EXPECT_EQ(changed.timings.cache_n, 3);
  EXPECT_EQ(changed.timings.prompt_n, 11);
  ASSERT_TRUE(session.clear().ok());
  EXPECT_EQ(must(session.generate(other, greedy(8))).tokens, changed.tokens);
}

TEST(Generate, APromptThatIsHeldWholeIsReadOnceMoreAtItsEnd) {
  const Loaded l = open("tiny-llama");
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6};
  Session session(*l.context);
  const Generation first = must(session.generate(prompt, greedy(4)));
  const Generation second = must(session.generate(prompt, greedy(4)));
  EXPECT_EQ(second.timings.cache_n, 5);
  EXPECT_EQ(second.timings.prompt_n, 1);
  EXPECT_EQ(second.tokens, first.tokens);
}

// A window of 8 has let go of the beginning when the prompt changes far behind: everything is read again.
TEST(Generate, ReadsAgainWhatAWindowLetGo) {
  const Loaded l = open("tiny-gemma3", 512);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 300; ++i) {
    prompt.push_back(10 + i % 200);
  }
  Session session(*l.context);
  must(session.generate(prompt, greedy(4)));
  std::vector<int32_t> other(prompt.begin(), prompt.begin() + 200);
  other.push_back(5);
  const Generation changed = must(session.generate(other, greedy(6)));
  EXPECT_EQ(changed.timings.cache_n, 0);
  EXPECT_EQ(changed.timings.prompt_n, 201);
  ASSERT_TRUE(session.clear().ok());
  EXPECT_EQ(must(session.generate(other, greedy(6))).tokens, changed.tokens);
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Ids that no other call gives in this order.
std::vector<int32_t> ids(int32_t first, int32_t n) {
  std::vector<int32_t> result;
  for (int32_t i = 0; i < n; ++i) {
    result.push_back(10 + (first + i * 7) % 250);
  }
  return result;
}

// A conversation on a model with recurrent state, which can go back to snapshots only: one lies before the last token
// of each prompt. Each turn reads what is new since the last snapshot that it shares, never more.
TEST(Generate, AHybridConversationReadsOnFromItsSnapshots) {
  const Loaded l = open("tiny-qwen35");
  Session session(*l.context);
  // The tokens are those of a fresh session, and so are the last logits, within what the order of sums makes of them.
  const auto expect_as_anew = [&](const std::vector<int32_t>& prompt, const Generation& g) {
    const Loaded other = open("tiny-qwen35");
    Session fresh(*other.context);
    const Generation anew = must(fresh.generate(prompt, greedy(6)));
    EXPECT_EQ(anew.timings.cache_n, 0);
    EXPECT_EQ(anew.tokens, g.tokens);
    const auto want = other.context->logits(0);
    const auto got = l.context->logits(0);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-4) << "logit " << i;
    }
  };
  const std::vector<int32_t> first = ids(1, 40);
  const Generation one = must(session.generate(first, greedy(6)));
  EXPECT_EQ(one.timings.prompt_n, 40);

  // The answer as it was: nothing is read twice but its last token, which was chosen and never decoded.
  const std::vector<int32_t> second = joined(joined(first, one.tokens), ids(2, 20));
  const Generation two = must(session.generate(second, greedy(6)));
  EXPECT_EQ(two.timings.cache_n, 45);
  EXPECT_EQ(two.timings.prompt_n, 21);
  expect_as_anew(second, two);

  // The answer rewritten (as a template does that drops thoughts): back to the snapshot of the second prompt.
  const std::vector<int32_t> third = joined(second, ids(3, 15));
  ASSERT_NE(third[second.size()], two.tokens[0]);
  const Generation three = must(session.generate(third, greedy(6)));
  EXPECT_EQ(three.timings.cache_n, static_cast<int64_t>(second.size()) - 1);
  EXPECT_EQ(three.timings.prompt_n, 16);
  expect_as_anew(third, three);

  // The last turn removed and asked differently: the same snapshot again.
  const std::vector<int32_t> changed = joined(second, ids(4, 9));
  const Generation four = must(session.generate(changed, greedy(6)));
  EXPECT_EQ(four.timings.cache_n, static_cast<int64_t>(second.size()) - 1);
  EXPECT_EQ(four.timings.prompt_n, 10);
  expect_as_anew(changed, four);

  // Asked once more; and from a place that only the first prompt's snapshot shares.
  EXPECT_EQ(must(session.generate(changed, greedy(6))).timings.prompt_n, 1);
  const std::vector<int32_t> early = joined(first, ids(5, 8));
  const Generation five = must(session.generate(early, greedy(6)));
  EXPECT_EQ(five.timings.cache_n, 39);
  expect_as_anew(early, five);
}

TEST(Generate, WithoutRoomForSnapshotsAHybridReadsAgain) {
  Loaded l = open("tiny-qwen35");
  ContextOptions options = l.context->options();
  options.snapshot_bytes = 1000;  // less than one
  l.context = std::move(Context::create(l.model, options)).value();
  EXPECT_FALSE(l.context->keeps_snapshots());
  Session session(*l.context);
  must(session.generate(ids(1, 40), greedy(2)));
  const Generation again = must(session.generate(ids(1, 40), greedy(2)));
  EXPECT_EQ(again.timings.cache_n, 0);
  EXPECT_EQ(again.timings.prompt_n, 40);
}

// Copies of a sequence with recurrent state, and what cannot be rewound says where it can go.
TEST(Context, SequencesWithRecurrentStateForkAndRewind) {
  Loaded l = open("tiny-qwen35");
  ContextOptions options = l.context->options();
  options.n_seq_max = 3;
  l.context = std::move(Context::create(l.model, options)).value();
  Context& c = *l.context;
  const auto decode = [&](int32_t seq, const std::vector<int32_t>& tokens) {
    std::vector<BatchToken> batch;
    for (const int32_t id : tokens) {
      batch.push_back({id, seq, false});
    }
    batch.back().wants_logits = true;
    EXPECT_TRUE(c.decode(batch).ok());
    const auto row = c.logits(0);
    return std::vector<float>(row.begin(), row.end());
  };
  decode(0, ids(1, 33));
  ASSERT_TRUE(c.snapshot(0).ok());
  const std::vector<float> next = decode(0, ids(2, 5));
  ASSERT_TRUE(c.fork(0, 1, 38).ok());
  ASSERT_TRUE(c.fork(0, 2, 33).ok());
  EXPECT_EQ(decode(2, ids(2, 5)), next);                  // from the snapshot
  EXPECT_EQ(decode(1, ids(3, 4)), decode(0, ids(3, 4)));  // from the state itself
  const Status refused = c.truncate(0, 35);
  EXPECT_EQ(refused.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("it can go back to 33"));
  EXPECT_EQ(c.length(0), 42);
  EXPECT_EQ(c.rewind(0, 35).value(), 33);
  EXPECT_EQ(c.length(0), 33);
  EXPECT_EQ(decode(0, ids(2, 5)), next);
  EXPECT_EQ(c.rewind(0, 20).value(), 0);
  EXPECT_EQ(c.rewind(0, -1).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(c.rewind(3, 0).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(c.snapshot(3).code(), ErrorCode::kInvalidArgument);
  decode(0, ids(1, 33));
  EXPECT_EQ(decode(0, ids(2, 5)), next);  // a slot used before, begun anew
  ASSERT_TRUE(c.clear().ok());
  EXPECT_EQ(c.length(1), 0);
}

TEST(Generate, EndsAtAnEndToken) {
  const Loaded l = open("tiny-llama");
  const std::vector<int32_t> prompt = {1, 2, 3};
  GenerateOptions options = greedy(-1);
  options.ignore_eos = false;
  options.sampler.temperature = 5;  // near to uniform: an end token comes by chance
  options.sampler.top_k = 0;
  options.sampler.top_p = 1;
  options.sampler.min_p = 0;
  int n_ended = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    options.sampler.seed = seed;
    Session session(*l.context);
    ASSERT_TRUE(session.clear().ok());
    const Generation g = must(session.generate(prompt, options));
    EXPECT_EQ(g.seed, seed);
    if (g.stop == StopReason::kEos) {
      ++n_ended;
      EXPECT_TRUE(l.model->tokenizer().is_end_of_generation(g.tokens.back()));
    }
    options.ignore_eos = true;
    for (const int32_t id : must(session.generate(prompt, options)).tokens) {
      EXPECT_FALSE(l.model->tokenizer().is_end_of_generation(id));
    }
    options.ignore_eos = false;
  }
  EXPECT_GT(n_ended, 0);
}

TEST(Generate, PenaltiesAndBiasesReachTheSampler) {
  const Loaded l = open("tiny-llama");
  const std::vector<int32_t> prompt = {1, 2, 3};
  Session session(*l.context);
  const Generation plain = must(session.generate(prompt, greedy(12)));

  GenerateOptions banned = greedy(12);
  banned.sampler.logit_bias = {{plain.tokens[0], -std::numeric_limits<float>::infinity()}};
  for (const int32_t id : must(session.generate(prompt, banned)).tokens) {
    EXPECT_NE(id, plain.tokens[0]);
  }
  GenerateOptions forced = greedy(12);
  forced.sampler.logit_bias = {{65, 1000}};
  EXPECT_EQ(must(session.generate(prompt, forced)).tokens, std::vector<int32_t>(12, 65));
  forced.sampler.frequency_penalty = 2000;  // then every token comes once, and none of the prompt's
  std::vector<int32_t> once = must(session.generate(prompt, forced)).tokens;
  EXPECT_EQ(once[0], 65);
  once.insert(once.end(), prompt.begin(), prompt.end());
  std::ranges::sort(once);
  EXPECT_EQ(std::ranges::adjacent_find(once), once.end());

  GenerateOptions dry = greedy(40);
  dry.sampler.logit_bias = {{65, 1000}};
  dry.sampler.dry_multiplier = 2000;  // 65 is forced until it would repeat itself
  const std::vector<int32_t> tokens = must(session.generate(prompt, dry)).tokens;
  EXPECT_EQ(tokens[0], 65);
  EXPECT_NE(tokens[3], 65);
  dry.sampler.dry_sequence_breakers.assign(DryBreakers::kMaxTexts + 1, "x");
  EXPECT_EQ(session.generate(prompt, dry).status().code(), ErrorCode::kInvalidArgument);
}

TEST(Generate, EndsWhenTheContextIsFull) {
  const Loaded l = open("tiny-llama", 32);
  const std::vector<int32_t> prompt = {1, 2, 3};
  Session session(*l.context);
  const Generation g = must(session.generate(prompt, greedy(-1)));
  EXPECT_EQ(g.stop, StopReason::kContextFull);
  EXPECT_EQ(session.tokens().size(), 32U);
  EXPECT_EQ(g.tokens.size(), 30U);  // 29 that the context took and the one that it could not
}

TEST(Generate, RefusesAPromptThatFillsTheContext) {
  const Loaded l = open("tiny-llama", 32);
  const std::vector<int32_t> prompt(32, 1);
  Session session(*l.context);
  const auto result = session.generate(prompt, greedy(4));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), ErrorCode::kCacheFull);
  EXPECT_THAT(result.status().message(), HasSubstr("32 tokens and the context holds 32"));
  EXPECT_FALSE(session.generate({}, greedy(4)).ok());
  const std::vector<int32_t> strange = {1, 100000};
  EXPECT_EQ(session.generate(strange, greedy(4)).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(must(session.generate(std::vector<int32_t>{1, 2}, greedy(4))).tokens.size(), 4U);
}

TEST(Generate, NoTokensWantedNoneChosen) {
  const Loaded l = open("tiny-llama");
  Session session(*l.context);
  const Generation g = must(session.generate(std::vector<int32_t>{1, 2, 3}, greedy(0)));
  EXPECT_TRUE(g.tokens.empty());
  EXPECT_EQ(g.stop, StopReason::kLimit);
  EXPECT_EQ(session.tokens().size(), 3U);
}

TEST(Generate, EndsBeforeAStopWord) {
  const Loaded l = open("tiny-llama");
  const std::vector<int32_t> prompt = {1, 2, 3};
  Session session(*l.context);
  const std::string whole = must(session.generate(prompt, greedy(40))).text;
  ASSERT_GT(whole.size(), 20U);
  GenerateOptions options = greedy(40);
  options.stop_words = {whole.substr(10, 4)};
  const size_t at = whole.find(options.stop_words[0]);
  std::string streamed;
  GenerateHooks hooks;
  hooks.on_text = [&](std::string_view piece) {
    streamed += piece;
    return Status();
  };
  const Generation g = must(session.generate(prompt, options, hooks));
  EXPECT_EQ(g.stop, StopReason::kWord);
  EXPECT_EQ(g.stop_word, options.stop_words[0]);
  EXPECT_EQ(g.text, whole.substr(0, at));
  EXPECT_EQ(streamed, g.text);
}

TEST(Generate, ALongPromptTellsHowFarItIsAndStopsBetweenMicroBatches) {
  const Loaded l = open("tiny-llama", 256, 128);  // micro-batches of 32
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 200; ++i) {
    prompt.push_back(1 + i % 90);
  }
  std::atomic<bool> cancelled = false;
  std::vector<int64_t> seen;
  GenerateHooks hooks;
  hooks.cancelled = &cancelled;
  hooks.on_progress = [&](int64_t n_given, int64_t n_prompt) {
    EXPECT_EQ(n_prompt, 200);
    seen.push_back(n_given);
    cancelled = n_given == 64;
  };
  Session session(*l.context);
  const Generation stopped = must(session.generate(prompt, greedy(4), hooks));
  EXPECT_EQ(stopped.stop, StopReason::kCancelled);
  EXPECT_THAT(seen, ElementsAre(0, 32, 64, 200));
  EXPECT_EQ(session.tokens().size(), 64U);
  seen.clear();
  cancelled = false;
  hooks.on_progress = [&](int64_t n_given, int64_t) { seen.push_back(n_given); };
  std::vector<int32_t> at_prompt;
  hooks.on_prompt = [&]() -> Status {
    at_prompt = l.context->tokens(0);
    return {};
  };
  const Generation whole = must(session.generate(prompt, greedy(4), hooks));
  EXPECT_EQ(whole.timings.cache_n, 64);
  EXPECT_THAT(seen, ElementsAre(64, 96, 128, 160, 192, 200));
  EXPECT_EQ(at_prompt, prompt);
  ASSERT_TRUE(session.clear().ok());
  EXPECT_EQ(must(session.generate(prompt, greedy(4))).tokens, whole.tokens);
  hooks.on_prompt = [] { return Status(ErrorCode::kIo, "no room"); };
  EXPECT_EQ(session.generate(prompt, greedy(4), hooks).status().code(), ErrorCode::kIo);
}

TEST(Generate, KeptTokensAndShifts) {
  const Loaded l = open("tiny-gemma3");
  const Tokenizer& tokenizer = l.model->tokenizer();
  ASSERT_TRUE(tokenizer.add_bos());
  const std::vector<int32_t> prompt = {*tokenizer.bos(), 5, 6, 7};
  EXPECT_EQ(kept_tokens(tokenizer, prompt, 0), 1U);
  EXPECT_EQ(kept_tokens(tokenizer, prompt, 2), 3U);
  EXPECT_EQ(kept_tokens(tokenizer, prompt, 9), 4U);
  EXPECT_EQ(kept_tokens(tokenizer, prompt, -1), 4U);
  EXPECT_EQ(kept_tokens(tokenizer, std::span(prompt).subspan(1), 2), 2U);
  EXPECT_THAT(shift_tokens(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7}, 2), ElementsAre(1, 2, 5, 6, 7));
  EXPECT_THAT(shift_tokens(std::vector<int32_t>{1, 2, 3}, 2), ElementsAre(1, 2, 3));
  EXPECT_THAT(shift_tokens(std::vector<int32_t>{1, 2}, 2), ElementsAre(1, 2));
}

// The best token that is none of the model's ends, once the context has read these tokens and nothing else.
int32_t best_after(const Loaded& l, const std::vector<int32_t>& tokens) {
  EXPECT_TRUE(l.context->clear().ok());
  std::vector<BatchToken> batch;
  for (const int32_t id : tokens) {
    batch.push_back({id, 0, false});
  }
  batch.back().wants_logits = true;
  EXPECT_TRUE(l.context->decode(batch).ok());
  const auto row = l.context->logits(0);
  int32_t best = kNoToken;
  for (int32_t id = 0; id < static_cast<int32_t>(row.size()); ++id) {
    const bool better = best == kNoToken || row[static_cast<size_t>(id)] > row[static_cast<size_t>(best)];
    best = better && !l.model->tokenizer().is_end_of_generation(id) ? id : best;
  }
  return best;
}

// Token by token what one would get who handed each shifted context to a new one, with full attention, windows and
// recurrent state.
TEST(Generate, AFullContextIsShiftedAndGoesOnExactly) {
  for (const std::string name : {"tiny-llama", "tiny-gemma3", "tiny-qwen35"}) {
    constexpr size_t kCtx = 40;
    const Loaded l = open(name, kCtx);
    const std::vector<int32_t> prompt = {9, 11, 12, 13, 14, 15};
    GenerateOptions options = greedy(90);
    options.context_shift = true;
    options.n_keep = 3;
    Session session(*l.context);
    const Generation shifted = must(session.generate(prompt, options));
    EXPECT_EQ(shifted.stop, StopReason::kLimit);
    EXPECT_GE(shifted.n_shifts, 3);

    const Loaded other = open(name, kCtx);
    std::vector<int32_t> sequence = prompt;
    for (const int32_t id : shifted.tokens) {
      ASSERT_EQ(id, best_after(other, sequence)) << name << " after " << sequence.size() << " tokens";
      if (sequence.size() == kCtx) {
        sequence = shift_tokens(sequence, 3);
      }
      sequence.push_back(id);
    }
    options.max_tokens = kUntilFull;
    ASSERT_TRUE(session.clear().ok());
    EXPECT_EQ(must(session.generate(prompt, options)).stop, StopReason::kContextFull);
    options.max_tokens = 90;
    options.n_keep = -1;  // the whole prompt
    EXPECT_EQ(must(session.generate(prompt, options)).stop, StopReason::kLimit);
    EXPECT_TRUE(std::ranges::equal(std::span(session.tokens()).first(prompt.size()), prompt));
  }
}

TEST(Generate, ACallerMayCancel) {
  const Loaded l = open("tiny-llama");
  std::atomic<bool> cancelled = false;
  GenerateHooks hooks;
  hooks.cancelled = &cancelled;
  hooks.on_text = [&](std::string_view) {
    cancelled = true;
    return Status();
  };
  Session session(*l.context);
  const Generation g = must(session.generate(std::vector<int32_t>{1, 2, 3}, greedy(-1), hooks));
  EXPECT_EQ(g.stop, StopReason::kCancelled);
  EXPECT_FALSE(g.text.empty());
  EXPECT_LT(g.tokens.size(), 50U);
  // Before the prompt is read nothing is decoded at all.
  const Generation none = must(session.generate(std::vector<int32_t>{7, 8, 9}, greedy(-1), hooks));
  EXPECT_EQ(none.stop, StopReason::kCancelled);
  EXPECT_TRUE(none.tokens.empty());
  EXPECT_EQ(none.timings.prompt_n, 0);
}

// A byte vocabulary near to uniform gives many characters whose bytes come in several tokens.
TEST(Generate, PiecesNeverSplitACharacter) {
  const Loaded l = open("tiny-llama", 2048);
  GenerateOptions options = greedy(1500);
  options.sampler = {.temperature = 5, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 3};
  std::vector<std::string> pieces;
  Session session(*l.context);
  GenerateHooks hooks;
  hooks.on_text = [&](std::string_view piece) {
    pieces.emplace_back(piece);
    return Status();
  };
  const Generation g = must(session.generate(std::vector<int32_t>{1, 2, 3}, options, hooks));
  std::string text;
  int n_multibyte = 0;
  for (const std::string& piece : pieces) {
    // A lead byte may end a piece only where what follows does not complete it.
    const size_t n_open = utf8_unfinished_bytes(text);
    const std::string joined = text.substr(text.size() - n_open) + piece;
    EXPECT_TRUE(n_open == 0 || utf8_valid_bytes(joined) == 0) << "seed 3, after " << text.size() << " bytes";
    n_multibyte += piece.size() > 1 && utf8_is_valid(piece) ? 1 : 0;
    text += piece;
  }
  EXPECT_EQ(text, g.text);
  EXPECT_GT(n_multibyte, 5);
  EXPECT_THAT(l.model->tokenizer().decode(g.tokens, {.show_special = false, .verbatim = true}),
              ::testing::StartsWith(g.text));
}

TEST(Generate, TheTextFollowsTheGrammar) {
  const Loaded l = open("tiny-llama");
  const std::vector<int32_t> prompt = l.model->tokenizer().encode("Hello there");
  for (const double temperature : {0.0, 1.5}) {
    Session session(*l.context);
    GenerateOptions options;
    options.sampler.temperature = static_cast<float>(temperature);
    options.sampler.seed = 3;
    options.sampler.grammar = "root ::= \"<\" [a-c]{3,9} \"é>\"";
    const Generation g = must(session.generate(prompt, options));
    EXPECT_THAT(g.text, ::testing::MatchesRegex("<[abc]+é>"));
    EXPECT_EQ(g.stop, StopReason::kEos);
    options.ignore_eos = true;  // nothing is left to choose
    const Generation without_end = must(session.generate(prompt, options));
    EXPECT_EQ(without_end.stop, StopReason::kGrammar);
    EXPECT_EQ(without_end.text, g.text);
    EXPECT_EQ(without_end.tokens.size() + 1, g.tokens.size());
  }
}

TEST(Generate, AJsonSchemaGivesJson) {
  const Loaded l = open("tiny-llama", 512);
  Session session(*l.context);
  GenerateOptions options;
  options.sampler = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 1};
  options.sampler.json_schema =
      R"({"properties":{"n":{"type":"integer"},"s":{"type":"string","maxLength":5}},"required":["n","s"]})";
  for (; options.sampler.seed < 5; ++options.sampler.seed) {
    const Generation g = must(session.generate(l.model->tokenizer().encode("x"), options));
    const json document = json::parse(g.text, nullptr, false);
    ASSERT_TRUE(document.is_object()) << g.text;
    EXPECT_TRUE(document["n"].is_number_integer() && document["s"].is_string()) << g.text;
    EXPECT_EQ(document.size(), 2U);
  }
}

TEST(Generate, GrammarsThatCannotBeUsedAreErrorsBeforeAnythingIsRead) {
  const Loaded l = open("tiny-llama");
  Session session(*l.context);
  const std::vector<int32_t> prompt = l.model->tokenizer().encode("Hello there");
  const auto error = [&](const std::string& grammar, const std::string& schema) {
    GenerateOptions options = greedy(5);
    options.sampler.grammar = grammar;
    options.sampler.json_schema = schema;
    const auto result = session.generate(prompt, options);
    EXPECT_TRUE(session.tokens().empty());
    return result.ok() ? "" : result.status().message();
  };
  EXPECT_THAT(error("root ::= (", ""), HasSubstr("line 1, column 10"));
  EXPECT_THAT(error("", "{\"type\":\"x\"}"), HasSubstr("'type'"));
  EXPECT_THAT(error("root ::= \"a\"", "{}"), HasSubstr("exclude each other"));
}

TEST(Generate, AGrammarThatTheVocabularyCannotSpellIsAnError) {
  const Loaded l = open("tiny-llama");
  Session session(*l.context);
  GenerateOptions options = greedy(5);
  options.sampler.grammar = "root ::= <[3]> [x]";
  for (int32_t id = 0; id < l.model->tokenizer().n_vocab(); ++id) {
    if (id != 3) {
      options.sampler.logit_bias.push_back({id, -std::numeric_limits<float>::infinity()});
    }
  }
  const auto result = session.generate(std::vector<int32_t>{5, 6}, options);
  EXPECT_EQ(result.status().code(), ErrorCode::kInvalidData);
  EXPECT_THAT(result.status().message(), HasSubstr("grammar allows no token"));
}

TEST(EncodePrompt, OnlyTheTemplateMakesSpecialTokens) {
  const Loaded l = open("tiny-llama");
  const Tokenizer& tokenizer = l.model->tokenizer();
  const std::string special(tokenizer.text(*tokenizer.eos()));
  RenderedPrompt prompt{special + special, {{0, special.size(), true}, {special.size(), 2 * special.size(), false}}};
  const std::vector<int32_t> ids = encode_prompt(tokenizer, prompt);
  EXPECT_EQ(ids.front(), *tokenizer.eos());
  EXPECT_EQ(std::ranges::count(ids, *tokenizer.eos()), 1);
  EXPECT_GT(ids.size(), 2U);
}

TEST(EncodePrompt, OneBeginTokenOnly) {
  const Loaded l = open("tiny-gemma3");
  const Tokenizer& tokenizer = l.model->tokenizer();
  ASSERT_TRUE(tokenizer.add_bos());
  const std::string bos(tokenizer.text(*tokenizer.bos()));
  const RenderedPrompt written{bos + "hi", {{0, bos.size() + 2, true}}};
  const RenderedPrompt bare{"hi", {{0, 2, true}}};
  EXPECT_EQ(std::ranges::count(encode_prompt(tokenizer, written), *tokenizer.bos()), 1);
  EXPECT_EQ(std::ranges::count(encode_prompt(tokenizer, bare), *tokenizer.bos()), 1);
}

}  // namespace
}  // namespace tessera
