// Many requests at once on tiny models: what each gets, what they share, and every way in which they end.

#include "runtime/serving.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <mutex>
#include <thread>
#include <unistd.h>

#include "runtime/generate.h"
#include "tokenizer/utf8.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const std::string kTiny = std::string(TESSERA_TEST_DATA) + "/tiny/";

struct Rig {
  std::shared_ptr<Model> model;
  ContextOptions context;

  explicit Rig(const std::string& name, ContextOptions wanted = {}) : context(wanted) {
    ModelOptions options;
    options.path = kTiny + name + ".gguf";
    options.n_threads = 2;
    options.context = context;
    auto loaded = Model::load(options);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    CHECK(loaded.ok());
    model = std::move(loaded).value();
  }

  [[nodiscard]] std::unique_ptr<Context> open_context() const {
    auto made = Context::create(model, context);
    CHECK(made.ok());
    return std::move(made).value();
  }
  [[nodiscard]] std::unique_ptr<Serving> serve(const ServingOptions& options = {}) const {
    auto serving = Serving::start(open_context(), options);
    CHECK(serving.ok());
    return std::move(serving).value();
  }
};

ContextOptions sizes(int64_t n_ctx = 256, int32_t n_slots = 4, int64_t n_kv_tokens = 0) {
  return {.n_ctx = n_ctx, .n_ubatch = 128, .n_seq_max = n_slots, .n_kv_tokens = n_kv_tokens};
}

// Keeps all it hears. Checks what must hold for any request.
class Recorder : public ServingSink {
 public:
  void on_begin(int32_t slot, int64_t cached, int64_t total) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(begun_ || ended_);
    begun_ = true;
    EXPECT_GE(slot, 0);
    EXPECT_LT(cached, total);
  }
  void on_progress(int64_t cached, int64_t processed, int64_t total, double) override {
    const std::lock_guard lock(mutex_);
    EXPECT_LE(cached, processed);
    EXPECT_LE(processed, total);
    progress_.push_back(processed);
  }
  bool on_text(std::string_view piece, std::span<const ServingToken> tokens, const ServingTimings&) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(begun_ && !ended_);
    EXPECT_FALSE(piece.empty());
    EXPECT_TRUE(utf8_is_valid(piece)) << piece;
    text_ += piece;
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    return ++n_pieces_ != leave_after_;
  }
  void on_end(const ServingEnd& end) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(ended_);
    end_ = end;
    tokens_.insert(tokens_.end(), end.rest.begin(), end.rest.end());
    EXPECT_EQ(end_.timings.predicted_n, static_cast<int64_t>(tokens_.size()));
    ended_ = true;
    changed_.notify_all();
  }

  Recorder& wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
    return *this;
  }
  void leave_after(int n_pieces) { leave_after_ = n_pieces; }

  // Once it has ended.
  [[nodiscard]] const ServingEnd& end() const { return end_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::vector<ServingToken>& tokens() const { return tokens_; }
  [[nodiscard]] const std::vector<int64_t>& progress() const { return progress_; }
  [[nodiscard]] std::vector<int32_t> ids() const {
    std::vector<int32_t> result;
    std::ranges::transform(tokens_, std::back_inserter(result), &ServingToken::id);
    return result;
  }
  bool ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  bool ended_ = false;
  int n_pieces_ = 0;
  std::atomic<int> leave_after_ = 0;
  std::string text_;
  std::vector<ServingToken> tokens_;
  std::vector<int64_t> progress_;
  ServingEnd end_;
};

std::shared_ptr<Recorder> submit(Serving& serving, ServingRequest request) {
  auto sink = std::make_shared<Recorder>();
  const auto id = serving.submit(std::move(request), sink);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return sink;
}

// Ids that no other call gives in this order.
std::vector<int32_t> ids(int32_t first, int32_t n) {
  std::vector<int32_t> result;
  for (int32_t i = 0; i < n; ++i) {
    result.push_back(10 + (first * 31 + i * 7) % 250);
  }
  return result;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

ServingRequest greedy(std::vector<int32_t> prompt, int64_t max_tokens) {
  ServingRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  return request;
}

// Eight requests of all kinds: greedy and seeded, short and long, two that begin alike.
std::vector<ServingRequest> eight_requests() {
  std::vector<ServingRequest> requests;
  for (int32_t i = 0; i < 8; ++i) {
    ServingRequest request = greedy(ids(i == 7 ? 6 : i, 3 + 29 * i), 12);
    if (i % 2 == 1) {
      request.sampling.temperature = 1.5F;
      request.sampling.seed = static_cast<uint64_t>(i);
    }
    request.wants_logprobs = true;
    request.n_probs = 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

void expect_equal(const Recorder& a, const Recorder& b) {
  EXPECT_EQ(a.ids(), b.ids());
  EXPECT_EQ(a.text(), b.text());
  ASSERT_EQ(a.tokens().size(), b.tokens().size());
  for (size_t i = 0; i < a.tokens().size(); ++i) {
    // Equal to the last bit: the logits are.
    EXPECT_EQ(a.tokens()[i].logprob, b.tokens()[i].logprob) << "token " << i;
  }
}

class ServingOfModels : public ::testing::TestWithParam<const char*> {};

TEST_P(ServingOfModels, NeighboursChangeNothing) {
  const Rig rig(GetParam(), sizes(256, 4));
  std::vector<std::shared_ptr<Recorder>> alone;
  for (ServingRequest& request : eight_requests()) {
    const auto serving = rig.serve();
    alone.push_back(submit(*serving, request));
    alone.back()->wait();
  }
  const auto serving = rig.serve({.prompt_tokens_per_step = 64, .batch_invariant = true});
  std::vector<std::shared_ptr<Recorder>> together;
  serving->pause();
  for (ServingRequest& request : eight_requests()) {
    together.push_back(submit(*serving, request));
  }
  serving->resume();
  for (size_t i = 0; i < alone.size(); ++i) {
    SCOPED_TRACE(i);
    together[i]->wait();
    expect_equal(*together[i], *alone[i]);
    EXPECT_EQ(together[i]->end().stop, StopReason::kLimit);
  }
  EXPECT_GT(serving->counters().n_busy_slots, serving->counters().n_steps);
}

TEST_P(ServingOfModels, RequestsShareAGrammar) {
  const Rig rig(GetParam(), sizes(256, 4));
  const auto serving = rig.serve();
  std::vector<std::shared_ptr<Recorder>> answers;
  for (int32_t i = 0; i < 12; ++i) {  // more grammars than are kept, each of several requests at once
    ServingRequest request = greedy(ids(i, 5), 40);
    request.ignore_eos = false;
    request.sampling.temperature = 1;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.grammar = "root ::= [a-c]{" + std::to_string(2 + i % 10) + "}";
    answers.push_back(submit(*serving, request));
    answers.push_back(submit(*serving, request));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const std::string& text = answers[i]->wait().text();
    EXPECT_EQ(text.size(), 2 + i / 2 % 10) << text;
    EXPECT_EQ(text.find_first_not_of("abc"), std::string::npos) << text;
    EXPECT_EQ(text, answers[i - i % 2]->text());
  }
}

TEST_P(ServingOfModels, TheEndOfReasoningIsForced) {
  const Rig rig(GetParam(), sizes(256, 2));
  const auto serving = rig.serve();
  const auto free = submit(*serving, greedy(ids(3, 5), 8));
  const std::vector<int32_t> thoughts = free->wait().ids();
  ServingRequest request = greedy(ids(3, 5), 8);
  request.reasoning = {.n_tokens = 3, .begin = "<", .end = "never written", .end_tokens = {40, 41}, .is_open = true};
  const auto limited = submit(*serving, request);
  const std::vector<int32_t> found = limited->wait().ids();
  ASSERT_EQ(found.size(), 8U);
  EXPECT_TRUE(std::equal(thoughts.begin(), thoughts.begin() + 3, found.begin()));
  EXPECT_EQ((std::vector{found[3], found[4]}), (std::vector{40, 41}));
  // What follows is the answer to all of it.
  const auto rest = submit(*serving, greedy(joined(ids(3, 5), {found.begin(), found.begin() + 5}), 3));
  EXPECT_EQ(rest->wait().ids(), std::vector<int32_t>(found.begin() + 5, found.end()));
}

TEST(Serving, WhoeverPlacesTheModelHearsWhereAPromptStands) {
  const Rig rig("tiny-llama", sizes(256, 2));
  int64_t n_read = 0;
  int n_steps = 0;
  ServingOptions options;
  options.before_step = [&](const ServingLoad& load) {
    if (load.n_reading > 0) {
      EXPECT_EQ(load.n_before, n_read);
      EXPECT_EQ(load.n_before + load.n_prompt, 200);
      n_read += load.step_prompt;
      ++n_steps;
    } else {
      EXPECT_EQ(load.n_before, 0);
    }
    return ReadingPace::kShared;
  };
  submit(*rig.serve(options), greedy(ids(1, 200), 3))->wait();
  EXPECT_EQ(n_read, 200);
  EXPECT_GT(n_steps, 1);
}

// Prompts that wait, or take whole steps, are read as they would be alone; and whoever sets their pace sees every
// token.
TEST_P(ServingOfModels, ThePaceOfReadingChangesNothing) {
  const Rig rig(GetParam(), sizes(256, 4));
  ServingLoad all;
  int n_steps = 0;
  ServingOptions options = {.prompt_tokens_per_step = 64, .batch_invariant = true};
  options.before_step = [&](const ServingLoad& load) {
    EXPECT_LE(load.step_prompt, load.n_prompt);
    EXPECT_LE(load.step_generated, load.n_generating);
    EXPECT_GE(load.n_predict, 0);
    all.step_prompt += load.step_prompt;
    all.step_generated += load.step_generated;
    return static_cast<ReadingPace>(n_steps++ / 2 % 3);
  };
  std::vector<std::shared_ptr<Recorder>> paced;
  int64_t n_read = 0;
  {
    const auto serving = rig.serve(options);
    for (ServingRequest& request : eight_requests()) {
      n_read += static_cast<int64_t>(request.prompt.size());
      paced.push_back(submit(*serving, request));
    }
    std::ranges::for_each(paced, [](const auto& sink) { sink->wait(); });
  }
  std::vector<ServingRequest> requests = eight_requests();
  int64_t n_cached = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    n_cached += paced[i]->end().timings.cached_n;
    const auto alone = rig.serve();
    const auto sink = submit(*alone, requests[i]);
    expect_equal(*paced[i], sink->wait());
  }
  EXPECT_EQ(all.step_prompt + all.step_generated, n_read - n_cached + 8 * 11);
}

// Every turn's prompt is the last one, its answer and something new: what is read is that and the answer's last token,
// which was chosen and never decoded.
TEST_P(ServingOfModels, AConversationReadsOnlyWhatIsNew) {
  const Rig rig(GetParam(), sizes(512, 3));
  const auto serving = rig.serve();
  std::vector<int32_t> prompt = ids(1, 30);
  const auto other = submit(*serving, greedy(ids(9, 20), 3));
  int64_t n_known = 0;
  for (int32_t turn = 0; turn < 20; ++turn) {
    const auto answer = submit(*serving, greedy(prompt, 5));
    answer->wait();
    EXPECT_EQ(answer->end().timings.cached_n, n_known);
    EXPECT_EQ(answer->end().timings.prompt_n, static_cast<int64_t>(prompt.size()) - n_known);
    n_known = static_cast<int64_t>(prompt.size()) + 4;
    prompt = joined(joined(prompt, answer->ids()), ids(turn + 20, 7));
  }
  other->wait();
}

INSTANTIATE_TEST_SUITE_P(Tiny, ServingOfModels,
                         ::testing::Values("tiny-llama", "tiny-gemma3", "tiny-qwen35", "tiny-qwen3next",
                                           "tiny-qwen3moe", "tiny-gpt-oss"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Serving, GivesWhatASessionGives) {
  const Rig rig("tiny-llama", sizes());
  const auto serving = rig.serve();
  const auto context = rig.open_context();
  Session session(*context);
  ServingRequest request = greedy(ids(3, 40), 30);
  request.sampling.temperature = 1;
  request.sampling.seed = 5;
  request.sampling.dry_multiplier = 1;
  request.sampling.repeat_penalty = 1.1F;
  GenerateOptions options;
  options.sampler = request.sampling;
  options.max_tokens = 30;
  options.ignore_eos = true;
  const auto expected = session.generate(request.prompt, options);
  ASSERT_TRUE(expected.ok());
  const auto got = submit(*serving, request);
  got->wait();
  EXPECT_EQ(got->ids(), expected.value().tokens);
  EXPECT_EQ(got->end().seed, 5U);
}

// Two conversations with one system prompt share its pages, whether they come together or one after the other.
TEST(Serving, ConversationsShareTheirSystemPrompt) {
  for (const bool together : {false, true}) {
    const Rig rig("tiny-llama", sizes());
    const auto serving = rig.serve();
    const std::vector<int32_t> system = ids(1, 128);
    serving->pause();
    const auto a = submit(*serving, greedy(joined(system, ids(2, 20)), 4));
    if (!together) {
      serving->resume();
      a->wait();
      serving->pause();
    }
    const auto b = submit(*serving, greedy(joined(system, ids(3, 20)), 4));
    serving->resume();
    a->wait();
    b->wait();
    EXPECT_EQ(b->end().timings.cached_n, 128);
    EXPECT_EQ(serving->counters().n_forks, 1U);
    EXPECT_EQ(serving->counters().kv_pages_used, 4 + 1 + 1);
    EXPECT_NE(a->end().slot, b->end().slot);
  }
}

// Answers to one prompt: it is read once, also by models that can only go back to snapshots.
TEST(Serving, ChoicesOfOnePromptReadItOnce) {
  for (const char* name : {"tiny-llama", "tiny-gemma3", "tiny-qwen35"}) {
    SCOPED_TRACE(name);
    const Rig rig(name, sizes(512, 4));
    const auto serving = rig.serve();
    std::vector<std::shared_ptr<Recorder>> choices;
    serving->pause();
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      ServingRequest request = greedy(ids(5, 300), 6);
      request.sampling.temperature = 2;
      request.sampling.seed = seed;
      choices.push_back(submit(*serving, request));
    }
    serving->resume();
    int64_t n_read = 0;
    for (const auto& choice : choices) {
      n_read += choice->wait().end().timings.prompt_n;
    }
    EXPECT_LE(n_read, 300 + 3);
    EXPECT_NE(choices[0]->ids(), choices[1]->ids());
  }
}

// A system prompt of a hybrid model: the second conversation begins at the snapshot behind it.
TEST(Serving, AHybridKeepsASnapshotWhereOthersMayPart) {
  const Rig rig("tiny-qwen35", sizes(512, 3));
  const auto serving = rig.serve();
  const std::vector<int32_t> system = ids(1, 100);
  ServingRequest first = greedy(joined(system, ids(2, 50)), 4);
  first.branches = {100};
  submit(*serving, first)->wait();
  const auto second = submit(*serving, greedy(joined(system, ids(3, 20)), 4));
  second->wait();
  EXPECT_EQ(second->end().timings.cached_n, 100);
}

// Chooses the tokens of a script, whatever the model would like.
class Script : public TokenConstraint {
 public:
  explicit Script(std::vector<int32_t> ids) : ids_(std::move(ids)) {}
  Status apply(std::span<float> logits) override {
    if (next_ == ids_.size()) {
      return {ErrorCode::kInvalidArgument, "the script has ended"};
    }
    std::ranges::fill(logits, -std::numeric_limits<float>::infinity());
    logits[static_cast<size_t>(ids_[next_])] = 1;
    return {};
  }
  Status accept(int32_t id) override {
    EXPECT_EQ(id, ids_[next_++]);
    return {};
  }

 private:
  std::vector<int32_t> ids_;
  size_t next_ = 0;
};

// One token for each byte of a text.
std::vector<int32_t> byte_tokens(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> result;
  for (const char byte : text) {
    const std::vector<int32_t> one = tokenizer.encode(std::string_view(&byte, 1));
    EXPECT_EQ(one.size(), 1U);
    result.push_back(one.at(0));
  }
  return result;
}

ServingRequest scripted(const Rig& rig, std::string_view text) {
  const std::vector<int32_t> tokens = byte_tokens(rig.model->tokenizer(), text);
  ServingRequest request = greedy(ids(1, 5), static_cast<int64_t>(tokens.size()));
  request.constraint = std::make_shared<Script>(tokens);
  return request;
}

TEST(Serving, CharactersComeWhole) {
  const Rig rig("tiny-llama", sizes());
  const auto serving = rig.serve();
  const auto whole = submit(*serving, scripted(rig, "aé€😀z"));
  EXPECT_EQ(whole->wait().text(), "aé€😀z");
  EXPECT_EQ(whole->tokens().size(), 11U);
  // No character at all, and one that is left unfinished.
  EXPECT_EQ(submit(*serving, scripted(rig, "a\xFF\x80z\xE2\x82"))->wait().text(), "a\uFFFD\uFFFDz");
}

TEST(Serving, AStopWordAcrossTokensEndsTheTextBeforeIt) {
  const Rig rig("tiny-llama", sizes());
  const auto serving = rig.serve();
  ServingRequest request = scripted(rig, "one stop two STOP three");
  request.stop = {"STOP", "never"};
  const auto words = submit(*serving, request);
  EXPECT_EQ(words->wait().text(), "one stop two ");
  EXPECT_EQ(words->end().stop, StopReason::kWord);
  EXPECT_EQ(words->end().stop_word, "STOP");
  EXPECT_EQ(words->end().rest.size(), 4U);
  EXPECT_EQ(words->tokens().size(), 17U);

  request = scripted(rig, "it never en");  // the end comes within what may yet become a stop word
  request.stop = {"ending"};
  const auto held = submit(*serving, request);
  EXPECT_EQ(held->wait().text(), "it never en");
  EXPECT_EQ(held->end().stop, StopReason::kLimit);
}

TEST(Serving, AConstraintThatFailsEndsItsRequestAlone) {
  const Rig rig("tiny-llama", sizes());
  const auto serving = rig.serve();
  ServingRequest request = scripted(rig, "ab");
  request.max_tokens = 5;
  const auto failed = submit(*serving, request);
  const auto fine = submit(*serving, greedy(ids(2, 9), 5));
  failed->wait();
  EXPECT_EQ(failed->text(), "ab");
  EXPECT_EQ(failed->end().stop, StopReason::kNone);
  EXPECT_THAT(failed->end().status.message(), HasSubstr("script"));
  EXPECT_EQ(fine->wait().end().stop, StopReason::kLimit);
}

TEST(Serving, EndsWhereTheModelEnds) {
  const Rig rig("tiny-llama", sizes());
  const auto serving = rig.serve();
  ServingRequest request = greedy(ids(1, 5), 50);
  request.ignore_eos = false;
  const int32_t eos = rig.model->tokenizer().end_of_generation_ids()[0];
  request.constraint = std::make_shared<Script>(std::vector<int32_t>{100, 101, eos});
  const auto sink = submit(*serving, request);
  sink->wait();
  EXPECT_EQ(sink->end().stop, StopReason::kEos);
  EXPECT_THAT(sink->ids(), ElementsAre(100, 101, eos));
  EXPECT_EQ(sink->end().rest.back().id, eos);
}

TEST(Serving, TellsProbabilities) {
  const Rig rig("tiny-llama", sizes());
  const auto serving = rig.serve();
  ServingRequest request = greedy(ids(1, 5), 3);
  request.n_probs = 288;
  const auto own = submit(*serving, request);
  own->wait();
  for (const ServingToken& token : own->tokens()) {
    ASSERT_EQ(token.top.size(), 288U);
    double sum = 0;
    for (const TokenProb& p : token.top) {
      sum += std::exp(static_cast<double>(p.logprob));
    }
    EXPECT_NEAR(sum, 1, 1e-4);
    EXPECT_TRUE(std::ranges::is_sorted(token.top, std::greater(), &TokenProb::logprob));
    EXPECT_EQ(token.top[0].id, token.id);  // greedy, but for the end tokens that it may not choose
    EXPECT_EQ(token.top[0].logprob, token.logprob);
  }
  request.post_sampling_probs = true;
  request.n_probs = 3;
  const auto drawn = submit(*serving, request);
  drawn->wait();
  for (const ServingToken& token : drawn->tokens()) {
    EXPECT_EQ(token.logprob, 0);  // the only choice at temperature 0
    EXPECT_LE(token.top.size(), 3U);
  }
}

TEST(Serving, TellsHowFarAPromptIs) {
  const Rig rig("tiny-llama", sizes(512));
  const auto serving = rig.serve();
  ServingRequest request = greedy(ids(1, 300), 1);
  request.wants_progress = true;
  EXPECT_THAT(submit(*serving, request)->wait().progress(), ElementsAre(128, 256, 300));
  request.max_tokens = 0;
  const auto none = submit(*serving, request);
  EXPECT_THAT(none->wait().progress(), ElementsAre(300));
  EXPECT_THAT(none->tokens(), IsEmpty());
  EXPECT_EQ(none->end().timings.cached_n, 299);
}

TEST(Serving, RefusesWhatMakesNoSense) {
  const Rig rig("tiny-llama", sizes(64));
  const auto serving = rig.serve();
  const auto refused = [&](ServingRequest request) {
    return serving->submit(std::move(request), std::make_shared<Recorder>()).status();
  };
  EXPECT_EQ(refused(greedy({}, 1)).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused(greedy({1, 100000}, 1)).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused(greedy({1, -1}, 1)).code(), ErrorCode::kInvalidArgument);
  ServingRequest request = greedy({1}, 1);
  request.slot = 4;
  EXPECT_EQ(refused(request).code(), ErrorCode::kInvalidArgument);
  request = greedy({1}, 1);
  request.priority = 101;
  EXPECT_EQ(refused(request).code(), ErrorCode::kInvalidArgument);
  const Status longer = refused(greedy(ids(1, 64), 1));
  EXPECT_EQ(longer.code(), ErrorCode::kCacheFull);
  EXPECT_THAT(longer.message(), HasSubstr("64 tokens and the context holds 64"));
  EXPECT_EQ(serving->check_length(greedy(ids(1, 64), 1)).message(), longer.message());
  EXPECT_TRUE(serving->check_length(greedy(ids(1, 63), 1)).ok());
  request = greedy(ids(1, 200), 1);
  request.context_shift = true;
  EXPECT_TRUE(serving->check_length(request).ok());
  EXPECT_EQ(serving->counters().n_requests, 0U);
}

TEST(Serving, AFullQueueSaysHowFullItIs) {
  const Rig rig("tiny-llama", sizes());
  const auto serving = rig.serve({.n_queue = 2});
  serving->pause();
  const auto a = submit(*serving, greedy(ids(1, 5), 2));
  const auto b = submit(*serving, greedy(ids(2, 5), 2));
  const auto refused = serving->submit(greedy(ids(3, 5), 2), std::make_shared<Recorder>());
  EXPECT_EQ(refused.status().code(), ErrorCode::kBusy);
  EXPECT_THAT(refused.status().message(), HasSubstr("2 requests wait"));
  serving->resume();
  a->wait();
  b->wait();
  EXPECT_EQ(serving->counters().n_refused, 1U);
}

TEST(Serving, AFullContextEndsARequestOrIsShifted) {
  const Rig rig("tiny-llama", sizes(64, 2));
  const auto serving = rig.serve();
  const auto full = submit(*serving, greedy(ids(1, 50), -1));
  ServingRequest request = greedy(ids(2, 50), 60);
  request.context_shift = true;
  request.n_keep = 4;
  const auto shifted = submit(*serving, request);
  full->wait();
  EXPECT_EQ(full->end().stop, StopReason::kContextFull);
  EXPECT_EQ(full->tokens().size(), 15U);
  shifted->wait();
  EXPECT_EQ(shifted->end().stop, StopReason::kLimit);

  const auto context = rig.open_context();
  Session session(*context);
  GenerateOptions options;
  options.sampler = request.sampling;
  options.max_tokens = 60;
  options.ignore_eos = true;
  options.context_shift = true;
  options.n_keep = 4;
  const auto expected = session.generate(request.prompt, options);
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(shifted->ids(), expected.value().tokens);
  EXPECT_EQ(shifted->end().n_shifts, expected.value().n_shifts);

  request.prompt = ids(3, 200);
  const auto cut = submit(*serving, request);
  cut->wait();
  EXPECT_TRUE(cut->end().truncated);
  EXPECT_LT(cut->end().n_prompt, 64);
}

// Pages for one and a half sequences: requests give way to each other and get what they would get alone.
TEST(Serving, RequestsThatGaveUpTheirPagesGoOnAsIfNothingWas) {
  const Rig roomy("tiny-llama", sizes(128, 3));
  const Rig tight("tiny-llama", sizes(128, 3, 192));
  const auto expected_from = roomy.serve();
  const auto serving = tight.serve();
  std::vector<std::shared_ptr<Recorder>> expected;
  std::vector<std::shared_ptr<Recorder>> got;
  serving->pause();
  for (int32_t i = 0; i < 5; ++i) {
    expected.push_back(submit(*expected_from, greedy(ids(i, 30), 90)));
    got.push_back(submit(*serving, greedy(ids(i, 30), 90)));
  }
  serving->resume();
  for (size_t i = 0; i < got.size(); ++i) {
    expect_equal(got[i]->wait(), expected[i]->wait());
  }
  EXPECT_GT(serving->counters().n_preempted, 0U);
  EXPECT_LE(serving->counters().kv_pages_used, serving->counters().kv_pages_max);
}

// Thirty-two at once, of which some leave in every way there is.
TEST(Serving, ManyComeAndLeave) {
  const Rig rig("tiny-llama", sizes(256, 6));
  const auto serving = rig.serve();
  std::vector<std::shared_ptr<Recorder>> sinks(32);
  std::vector<std::thread> clients;
  for (int32_t c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      for (int32_t i = c; i < 32; i += 4) {
        auto sink = std::make_shared<Recorder>();
        sinks[static_cast<size_t>(i)] = sink;
        sink->leave_after(i % 4 == 1 ? 3 : 0);
        ServingRequest request = greedy(ids(i, 5 + 4 * i), 20 + i);
        request.priority = i % 3 - 1;
        const auto id = serving->submit(std::move(request), sink);
        ASSERT_TRUE(id.ok());
        if (i % 4 == 2) {
          serving->cancel(id.value());
        } else if (i % 4 == 3) {
          sink->wait();
          serving->cancel(id.value());  // too late: ignored
        }
        (void)serving->slots();
        (void)serving->counters();
      }
    });
  }
  std::ranges::for_each(clients, &std::thread::join);
  for (int32_t i = 0; i < 32; ++i) {
    SCOPED_TRACE(i);
    Recorder& sink = sinks[static_cast<size_t>(i)]->wait();
    if (i % 4 == 1) {
      EXPECT_EQ(sink.end().stop, StopReason::kCancelled);
    } else if (i % 4 != 2) {
      EXPECT_EQ(sink.end().stop, StopReason::kLimit);
      EXPECT_EQ(sink.tokens().size(), static_cast<size_t>(20 + i));
    }
  }
  const ServingCounters counters = serving->counters();
  EXPECT_EQ(counters.n_requests, 32U);
  EXPECT_EQ(counters.n_running + counters.n_waiting, 0);
}

// A state that is restored replaces the book of sequences, into which nobody else may look: for the thread sanitizer.
TEST(Serving, OthersSubmitWhileKeptPromptsComeBack) {
  const Rig rig("tiny-llama", sizes(256, 1));
  ServingOptions options;
  options.cache.ram = make_prompt_ram(64 << 20);
  const auto serving = rig.serve(options);
  std::vector<std::thread> clients;
  for (int c = 0; c < 3; ++c) {
    clients.emplace_back([&] {
      for (int32_t i = 0; i < 20; ++i) {
        EXPECT_FALSE(serving->wants_branches());
        EXPECT_EQ(submit(*serving, greedy(ids(i % 2, 60), 1))->wait().end().stop, StopReason::kLimit);
      }
    });
  }
  std::ranges::for_each(clients, &std::thread::join);
  EXPECT_GT(serving->counters().cache.n_restored, 0U);
}

TEST(Serving, StopsWhileRequestsRun) {
  const Rig rig("tiny-llama", sizes(256, 3));
  std::vector<std::shared_ptr<Recorder>> sinks;
  {
    const auto serving = rig.serve();
    for (int32_t i = 0; i < 10; ++i) {
      ServingRequest request = greedy(ids(i, 20), -1);
      request.context_shift = true;  // without end
      sinks.push_back(submit(*serving, request));
    }
  }
  for (const auto& sink : sinks) {
    EXPECT_TRUE(sink->ended());
    EXPECT_EQ(sink->end().stop, StopReason::kCancelled);
  }
}

TEST(Serving, AnEndThatCannotBeToldIsAnEnd) {
  class Failing final : public ServingSink {
   public:
    bool on_text(std::string_view, std::span<const ServingToken>, const ServingTimings&) override { return true; }
    void on_end(const ServingEnd&) override { throw std::bad_alloc(); }
  };
  const Rig rig("tiny-llama", sizes());
  const auto serving = rig.serve();
  const auto failing = std::make_shared<Failing>();
  ASSERT_TRUE(serving->submit(greedy(ids(1, 20), 3), failing).ok());
  const auto other = submit(*serving, greedy(ids(2, 20), 30));
  EXPECT_TRUE(serving->drain(std::chrono::hours(1)).ok());
  EXPECT_EQ(other->wait().end().stop, StopReason::kLimit);
  EXPECT_EQ(failing.use_count(), 1) << "its sink is let go";
}

TEST(Serving, DrainsWhatRunsAndRefusesWhatComes) {
  const Rig rig("tiny-llama", sizes());
  const auto serving = rig.serve();
  const auto last = submit(*serving, greedy(ids(1, 20), 30));
  EXPECT_TRUE(serving->drain(std::chrono::minutes(5)).ok());
  EXPECT_TRUE(last->ended());
  EXPECT_EQ(last->end().stop, StopReason::kLimit);
  const auto refused = serving->submit(greedy(ids(1, 20), 30), std::make_shared<Recorder>());
  EXPECT_EQ(refused.status().code(), ErrorCode::kCancelled);
  serving->stop();
  serving->stop();

  const auto endless = rig.serve();
  ServingRequest request = greedy(ids(2, 20), -1);
  request.context_shift = true;
  const auto cut = submit(*endless, request);
  EXPECT_EQ(endless->drain(std::chrono::milliseconds(20)).code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(cut->end().stop, StopReason::kCancelled);
}

TEST(Serving, SlotsAreSavedRestoredAndErased) {
  const Rig rig("tiny-llama", sizes());
  const std::string path = ::testing::TempDir() + "serving_test_slot." + std::to_string(getpid());
  const auto serving = rig.serve();
  ServingRequest request = greedy(ids(1, 40), 5);
  request.slot = 2;
  submit(*serving, request)->wait();
  const auto saved = serving->save_slot(2, path);
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  EXPECT_EQ(saved.value().n_tokens, 44);
  EXPECT_EQ(serving->erase_slot(2).value(), 44);
  EXPECT_EQ(serving->slots()[2].n_held, 0);
  ASSERT_TRUE(serving->restore_slot(1, path).ok());
  EXPECT_EQ(serving->slots()[1].n_held, 44);
  request.slot = -1;
  const auto again = submit(*serving, request);
  EXPECT_EQ(again->wait().end().timings.cached_n, 39);
  EXPECT_EQ(serving->save_slot(7, path).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(serving->restore_slot(0, path + ".none").status().code(), ErrorCode::kNotFound);

  ServingRequest endless = greedy(ids(2, 20), -1);
  endless.context_shift = true;
  endless.slot = 3;
  const auto sink = std::make_shared<Recorder>();
  const auto id = serving->submit(endless, sink);
  ASSERT_TRUE(id.ok());
  while (serving->slots()[3].request != id.value()) {
    std::this_thread::yield();
  }
  const SlotView busy = serving->slots()[3];
  EXPECT_EQ(busy.n_prompt, 20);
  EXPECT_NE(busy.settings, nullptr);
  EXPECT_EQ(serving->erase_slot(3).status().code(), ErrorCode::kBusy);
  serving->cancel(id.value());
  sink->wait();
  (void)std::remove(path.c_str());
}

TEST(Serving, RefusesSenselessOptions) {
  const Rig rig("tiny-llama", {.n_ctx = 64, .n_ubatch = 1, .n_seq_max = 2});
  EXPECT_EQ(Serving::start(rig.open_context(), {}).status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tessera
