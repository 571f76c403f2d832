// Embeddings: those of the reference engine (scripts/embedding_golden.py), whatever the batches, the placement and
// whatever else is decoded beside them, also through Serving.

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "runtime/embedding.h"
#include "runtime/serving.h"
#include "tests/support/run_model.h"

namespace tessera {
namespace {

using nlohmann::json;

// Of the largest number in a row. Both engines compute in float32 with sums in orders of their own, each within 1e-5
// of a forward pass in float64; measured 0.5e-6 to 5.7e-6 (tiny-qwen35). A cache or an attention in half precision
// would be 2e-4 to 3e-3 away. The reference looks GELU up in a table of half-precision numbers
// (golden_logits_test.cc), where a step is worth 1e-3; none falls on a border here: 7.9e-6.
constexpr double kTolerance = 2e-5;
constexpr double kGeluTolerance = 1e-3;

struct Golden {
  std::string model;
  std::string text;
  std::vector<std::vector<float>> rows;
  std::vector<float> mean;
};

std::vector<Golden> read_goldens() {
  std::vector<Golden> goldens;
  std::ifstream file(std::string(TESSERA_TEST_DATA) + "/goldens/embeddings.jsonl");
  for (std::string line; std::getline(file, line);) {
    const json j = json::parse(line);
    goldens.push_back({j["model"], j["text"], j["none"], j["mean"][0]});
  }
  return goldens;
}

struct Opened {
  std::shared_ptr<Model> model;
  std::unique_ptr<Context> context;
};

Opened open(const std::string& name, ContextOptions context, const std::vector<std::string>& devices = {}) {
  ModelOptions options;
  options.path = std::string(TESSERA_TEST_DATA) + "/tiny/" + name + ".gguf";
  options.kernels = "scalar";
  options.n_threads = 2;
  options.devices = devices;
  options.context = context;
  auto model = Model::load(options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  auto made = Context::create(*model, options.context);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return {std::move(model).value(), std::move(made).value()};
}

ContextOptions sizes(int64_t n_ubatch = 64) {
  ContextOptions options;
  options.n_ctx = 128;
  options.n_ubatch = n_ubatch;
  options.k_type = options.v_type = DType::kF32;
  options.embeddings = true;
  return options;
}

std::vector<BatchToken> batch_of(std::span<const int32_t> ids, bool logits, bool embeddings) {
  std::vector<BatchToken> batch;
  for (const int32_t id : ids) {
    batch.push_back({id, 0, logits, embeddings});
  }
  return batch;
}

std::vector<float> embeddings_of(const Context& context) {
  std::vector<float> all;
  for (int64_t i = 0; i < context.n_embeddings(); ++i) {
    const auto row = context.embedding(i);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

std::vector<float> logits_of(const Context& context) {
  std::vector<float> all;
  for (int64_t i = 0; i < context.n_outputs(); ++i) {
    const auto row = context.logits(i);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

double distance(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(b[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return worst / largest;
}

TEST(Embeddings, AreTheReferences) {
  const std::vector<Golden> goldens = read_goldens();
  EXPECT_EQ(goldens.size(), 5U);
  for (const Golden& golden : goldens) {
    SCOPED_TRACE(golden.model);
    const Opened m = open(golden.model, sizes(4));  // several micro-batches
    const auto ids = m.model->tokenizer().encode(golden.text, {.parse_special = true, .add_special = true});
    ASSERT_EQ(ids.size(), golden.rows.size());
    ASSERT_TRUE(m.context->decode(batch_of(ids, false, true)).ok());
    ASSERT_EQ(m.context->n_embeddings(), std::ssize(ids));
    EXPECT_EQ(m.context->n_outputs(), 0);
    const double tolerance = golden.model.find("gemma") == std::string::npos ? kTolerance : kGeluTolerance;
    EmbeddingPool mean(Pooling::kMean, std::ssize(ids));
    double worst = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto row = m.context->embedding(static_cast<int64_t>(i));
      worst = std::max(worst, distance(row, golden.rows[i]));
      mean.add(static_cast<int64_t>(i), row);
    }
    worst = std::max(worst, distance(mean.result(), golden.mean));
    EXPECT_LE(worst, tolerance);
    std::cout << golden.model << ": worst " << worst << "\n";
  }
}

TEST(Embeddings, DependOnNothingElseAndChangeNoLogits) {
  const std::vector<int32_t> ids = {1, 5, 9, 200, 17, 33, 120, 44, 2, 71};
  for (const char* name : {"tiny-llama", "tiny-qwen35", "tiny-gemma3", "tiny-qwen3moe"}) {
    SCOPED_TRACE(name);
    ContextOptions without = sizes();
    without.embeddings = false;
    const Opened plain = open(name, without);
    ASSERT_TRUE(plain.context->decode(batch_of(ids, true, false)).ok());
    const std::vector<float> logits = logits_of(*plain.context);
    std::vector<float> embeddings;
    for (const int64_t n_ubatch : {64, 3, 1}) {
      const Opened m = open(name, sizes(n_ubatch));
      ASSERT_TRUE(m.context->decode(batch_of(ids, true, true)).ok());
      EXPECT_EQ(n_different(logits_of(*m.context), logits), 0U);
      embeddings = embeddings.empty() ? embeddings_of(*m.context) : embeddings;
      EXPECT_EQ(n_different(embeddings_of(*m.context), embeddings), 0U);
      // A part of the tokens, some without logits.
      ASSERT_TRUE(m.context->clear().ok());
      std::vector<BatchToken> batch = batch_of(ids, false, false);
      batch[3].wants_embedding = batch[9].wants_embedding = true;
      batch[3].wants_logits = batch[4].wants_logits = true;
      ASSERT_TRUE(m.context->decode(batch).ok());
      const auto n_embd = static_cast<size_t>(m.model->summary().n_embd);
      const auto n_vocab = static_cast<size_t>(m.model->summary().n_vocab);
      const auto expect_row = [](std::span<const float> found, const std::vector<float>& all, size_t row) {
        EXPECT_TRUE(std::ranges::equal(found, std::span(all).subspan(row * found.size(), found.size())));
      };
      ASSERT_EQ(m.context->n_embeddings(), 2);
      ASSERT_EQ(m.context->n_outputs(), 2);
      EXPECT_EQ(m.context->embedding(0).size(), n_embd);
      EXPECT_EQ(m.context->logits(0).size(), n_vocab);
      expect_row(m.context->embedding(0), embeddings, 3);
      expect_row(m.context->embedding(1), embeddings, 9);
      expect_row(m.context->logits(0), logits, 3);
      expect_row(m.context->logits(1), logits, 4);
      // They go with the next decode.
      ASSERT_TRUE(m.context->decode(batch_of(std::span(ids).first(1), true, false)).ok());
      EXPECT_EQ(m.context->n_embeddings(), 0);
    }
  }
}

TEST(Embeddings, WantTheirOption) {
  ContextOptions without = sizes();
  without.embeddings = false;
  const Opened m = open("tiny-llama", without);
  const Status status = m.context->decode(batch_of(std::vector<int32_t>{1, 2}, false, true));
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(status.message().find("option embeddings"), std::string::npos) << status.message();
  EXPECT_EQ(m.context->length(0), 0);
}

TEST(Embeddings, ComeFromEveryPlacementThatIsSwitchedTo) {
  const std::vector<int32_t> ids = {1, 5, 9, 200, 17};
  const Opened m = open("tiny-llama", sizes(3), cpu_names(2));
  std::vector<float> expected;
  for (const char* mode : {"layer", "tensor", "none", "layer"}) {
    ASSERT_TRUE(m.model->set_placement({mode, {}}).ok());
    ASSERT_TRUE(m.context->clear().ok());
    ASSERT_TRUE(m.context->decode(batch_of(ids, false, true)).ok());
    expected = expected.empty() ? embeddings_of(*m.context) : expected;
    EXPECT_EQ(n_different(embeddings_of(*m.context), expected), 0U) << mode;
    ASSERT_TRUE(m.model->set_placement({"tensor", {}}).ok());
    EXPECT_EQ(n_different(embeddings_of(*m.context), expected), 0U) << "those of the last decode stay";
  }
}

class Sink : public ServingSink {
 public:
  bool on_text(std::string_view, std::span<const ServingToken> tokens, const ServingTimings&) override {
    const std::lock_guard lock(mutex_);
    n_tokens_ += tokens.size();
    return true;
  }
  void on_end(const ServingEnd& end) override {
    const std::lock_guard lock(mutex_);
    end_ = end;
    n_tokens_ += end.rest.size();
    ended_ = true;
    changed_.notify_all();
  }
  const ServingEnd& wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
    return end_;
  }
  [[nodiscard]] size_t n_tokens() const { return n_tokens_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  size_t n_tokens_ = 0;
  ServingEnd end_;
};

std::shared_ptr<Sink> submit(Serving& serving, ServingRequest request) {
  auto sink = std::make_shared<Sink>();
  const auto id = serving.submit(std::move(request), sink);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return sink;
}

ServingRequest text_request(int32_t seed, size_t n_tokens) {
  ServingRequest request;
  for (size_t i = 0; i < n_tokens; ++i) {
    request.prompt.push_back(static_cast<int32_t>((static_cast<size_t>(seed) * 31 + i * 7) % 280));
  }
  return request;
}

// Requests of every kind at once; each gets what it gets alone. With few pages for all, some wait or are read again.
void check_beside_generations(const std::string& name, int64_t n_kv_tokens) {
  SCOPED_TRACE(name);
  const Opened alone = open(name, sizes());
  ContextOptions options = sizes(16);
  options.n_seq_max = 4;
  options.n_kv_tokens = n_kv_tokens;
  Opened served = open(name, options);
  auto serving = Serving::start(std::move(served.context), {});
  ASSERT_TRUE(serving.ok()) << serving.status().message();
  struct Asked {
    ServingRequest request;
    std::shared_ptr<Sink> sink;
  };
  std::vector<Asked> asked;
  for (int32_t i = 0; i < 18; ++i) {
    ServingRequest request = text_request(i / 2, 20 + static_cast<size_t>(i) * 3);
    request.sampling.temperature = 0;
    request.max_tokens = 12;
    request.ignore_eos = true;
    if (i % 3 != 0) {
      request.pooling = i % 2 == 0 ? Pooling::kMean : i % 4 == 1 ? Pooling::kLast : Pooling::kNone;
    }
    asked.push_back({request, submit(**serving, request)});
  }
  for (const Asked& a : asked) {
    const ServingEnd& end = a.sink->wait();
    ASSERT_TRUE(end.status.ok()) << end.status.message();
    EXPECT_EQ(end.stop, StopReason::kLimit);
    EXPECT_EQ(a.sink->n_tokens(), a.request.pooling ? 0U : 12U);
    EXPECT_EQ(end.n_prompt, std::ssize(a.request.prompt));
    if (!a.request.pooling) {
      EXPECT_TRUE(end.embedding.empty());
      continue;
    }
    EmbeddingPool pool(*a.request.pooling, std::ssize(a.request.prompt));
    ASSERT_TRUE(alone.context->clear().ok());
    ASSERT_TRUE(alone.context->decode(batch_of(a.request.prompt, false, true)).ok());
    for (int64_t i = 0; i < std::ssize(a.request.prompt); ++i) {
      if (pool.wants(i)) {
        pool.add(i, alone.context->embedding(i));
      }
    }
    if (name == "tiny-qwen35") {  // its kernels take a sequence's rows in runs: other bounds, other last bits
      EXPECT_LE(distance(end.embedding, pool.result()), kTolerance);
    } else {
      EXPECT_EQ(n_different(end.embedding, pool.result()), 0U) << pooling_name(*a.request.pooling);
    }
  }
}

TEST(ServedEmbeddings, BesideGenerations) {
  check_beside_generations("tiny-llama", 0);
  check_beside_generations("tiny-llama", 160);
  check_beside_generations("tiny-gemma3", 0);
  check_beside_generations("tiny-qwen35", 0);
}

TEST(ServedEmbeddings, TakeTheWholeContextAndNoMore) {
  Opened m = open("tiny-llama", sizes());
  auto serving = Serving::start(std::move(m.context), {});
  ASSERT_TRUE(serving.ok());
  ServingRequest request = text_request(1, 128);
  request.pooling = Pooling::kMean;
  const auto sink = submit(**serving, request);  // what ended lies in it
  const ServingEnd& end = sink->wait();
  EXPECT_TRUE(end.status.ok()) << end.status.message();
  EXPECT_EQ(std::ssize(end.embedding), m.model->summary().n_embd);
  request.prompt.push_back(1);
  const auto refused = (*serving)->submit(request, std::make_shared<Sink>());
  EXPECT_EQ(refused.status().code(), ErrorCode::kCacheFull);
  EXPECT_NE(refused.status().message().find("129 tokens and the context holds 128;"), std::string::npos)
      << refused.status().message();
}

TEST(ServedEmbeddings, WantTheirOption) {
  ContextOptions without = sizes();
  without.embeddings = false;
  Opened m = open("tiny-llama", without);
  auto serving = Serving::start(std::move(m.context), {});
  ASSERT_TRUE(serving.ok());
  ServingRequest request = text_request(1, 5);
  request.pooling = Pooling::kLast;
  const auto refused = (*serving)->submit(request, std::make_shared<Sink>());
  EXPECT_EQ(refused.status().code(), ErrorCode::kUnsupported);
  EXPECT_NE(refused.status().message().find("--embeddings"), std::string::npos);
}

}  // namespace
}  // namespace tessera
