#include "fake_serving.h"

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <utility>

#include "base/check.h"
#include "runtime/context.h"
#include "runtime/generate.h"

namespace tessera {

class ModelState {};
class Context::Impl {};
class Serving::Impl {};

namespace {

struct Job {
  int64_t id;
  ServingRequest request;
  std::shared_ptr<ServingSink> sink;
};

std::deque<Job>& jobs() {
  static std::deque<Job> kJobs;
  return kJobs;
}

Vocab byte_vocab() {
  Vocab vocab;
  vocab.model = "llama";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (const char high : kDigits) {
    for (const char low : kDigits) {
      vocab.tokens.push_back(std::string("<0x") + high + low + ">");
      vocab.token_types.push_back(TokenType::kByte);
    }
  }
  for (const char* control : {"<s>", "</s>", "<unk>"}) {
    vocab.tokens.emplace_back(control);
    vocab.token_types.push_back(TokenType::kControl);
  }
  for (const char* text : {"a", "the", "\u2581"}) {
    vocab.tokens.emplace_back(text);
    vocab.token_types.push_back(TokenType::kNormal);
  }
  vocab.scores.assign(vocab.tokens.size(), -1);
  vocab.bos_id = 256;
  vocab.eos_id = 257;
  vocab.unk_id = 258;
  return vocab;
}

// A few tokens of the prompt, one by one, as a real one would send them: whole characters of text, and the rest at the
// end.
void answer(const Job& job) {
  const ServingRequest& request = job.request;
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  ServingTimings timings{.prompt_n = n_prompt, .prompt_ms = 1, .first_token_ms = 1};
  job.sink->on_begin(0, 0, n_prompt);
  if (request.wants_progress) {
    job.sink->on_progress(0, n_prompt, n_prompt, 1);
  }
  ServingEnd end;
  end.stop = StopReason::kLimit;
  end.slot = 0;
  end.n_prompt = n_prompt;
  const int64_t n = request.max_tokens < 0 ? 6 : std::min<int64_t>(request.max_tokens, 6);
  for (int64_t i = 0; i < n; ++i) {
    ServingToken token;
    token.id = request.prompt[static_cast<size_t>(i) % request.prompt.size()];
    token.bytes = "x";
    for (int32_t k = 0; k < std::min(request.n_probs, 3); ++k) {
      token.top.push_back({.id = k, .logprob = -2});
    }
    ++timings.predicted_n;
    if (i + 1 == n && request.stop.size() > 1) {
      end.stop = StopReason::kWord;
      end.stop_word = request.stop[0];
      end.rest.push_back(token);
    } else if (!job.sink->on_text(i % 2 == 0 ? "<tool_call>{\"" : "é", {&token, 1}, timings)) {
      end.stop = StopReason::kCancelled;
      break;
    }
  }
  end.timings = timings;
  job.sink->on_end(end);
}

}  // namespace

// ---- runtime, as far as the server's APIs call it

Model::Model(std::shared_ptr<ModelState> state) : state_(std::move(state)) {}
Model::~Model() = default;
Result<std::shared_ptr<Model>> Model::load(const ModelOptions&, const Log&, const LoadProgress&) {
  return std::shared_ptr<Model>(new Model(nullptr));
}
const Tokenizer& Model::tokenizer() const {
  static const auto kTokenizer = Tokenizer::create(byte_vocab(), {});
  CHECK(kTokenizer.ok());
  return **kTokenizer;
}
const ModelSummary& Model::summary() const {
  static const ModelSummary kSummary = [] {
    ModelSummary summary;
    summary.architecture = summary.name = "fake";
    summary.n_vocab = 262;
    return summary;
  }();
  return kSummary;
}

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Context::~Context() = default;
Result<std::unique_ptr<Context>> Context::create(std::shared_ptr<Model>, const ContextOptions&) {
  return std::unique_ptr<Context>(new Context(nullptr));
}
const ContextOptions& Context::options() const {
  static const ContextOptions kOptions{.n_ctx = 4096, .n_seq_max = 2};
  return kOptions;
}

Serving::Serving(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Serving::~Serving() = default;
Result<std::unique_ptr<Serving>> Serving::start(std::unique_ptr<Context>, const ServingOptions&, const Log&) {
  return std::unique_ptr<Serving>(new Serving(nullptr));
}
Context& Serving::context() {
  static const auto kContext = Context::create(nullptr, {});
  return *kContext.value();
}
Result<int64_t> Serving::submit(ServingRequest request, std::shared_ptr<ServingSink> sink) {
  static int64_t n_jobs = 0;
  if (request.prompt.empty()) {
    return Status(ErrorCode::kInvalidArgument, "the prompt is empty");
  }
  for (const int32_t id : request.prompt) {
    CHECK(id >= 0 && id < 262);
  }
  jobs().push_back({n_jobs, std::move(request), std::move(sink)});
  return n_jobs++;
}
void Serving::cancel(int64_t request) {
  std::erase_if(jobs(), [&](const Job& job) { return job.id == request; });
}
std::vector<SlotView> Serving::slots() const {
  return std::vector<SlotView>(2);
}
ServingCounters Serving::counters() const {
  return {};
}
Result<Serving::SlotFile> Serving::save_slot(int32_t, const std::string&) {
  return SlotFile{};
}
Result<Serving::SlotFile> Serving::restore_slot(int32_t, const std::string&) {
  return SlotFile{};
}
Result<int64_t> Serving::erase_slot(int32_t) {
  return 0;
}

std::vector<int32_t> encode_prompt(const Tokenizer&, const RenderedPrompt& prompt) {
  std::vector<int32_t> ids = {256};
  for (const char c : prompt.text) {
    ids.push_back(static_cast<unsigned char>(c));
  }
  return ids;
}

std::shared_ptr<ServedModel> fake_model() {
  static const auto kServed = [] {
    auto served = std::make_shared<ServedModel>();
    served->model = Model::load({}).value();
    served->chat_template = std::make_unique<ChatTemplate>(ChatTemplate::parse("", "<s>", "</s>").value());
    served->chat_format = detect_chat_format("<tool_call><think></think>");
    served->serving = Serving::start(nullptr, {}).value();
    return served;
  }();
  return kServed;
}

void run_fake_serving() {
  while (!jobs().empty()) {
    const Job job = std::move(jobs().front());
    jobs().pop_front();
    answer(job);
  }
}

}  // namespace tessera
