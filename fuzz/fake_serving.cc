#include "fake_serving.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "runtime/context.h"
#include "runtime/generate.h"

namespace tessera {

class ModelState {};
class Context::Impl {};
class Serving::Impl {};
class LivePlacement::Impl {};

namespace {

constexpr size_t kWaitingMax = 12;  // requests: less than one may have choices
constexpr int64_t kEmbd = 4;
constexpr int32_t kVocab = 266;
constexpr int64_t kContext = 4096;  // tokens

struct Work {
  std::function<void(bool cancelled)> run;
  int64_t request = -1;  // its number; -1: a switch of the placement
  bool cancelled = false;
};

// Handlers and the registry's thread bring work, the fuzzer's does it.
struct Queue {
  std::mutex mutex;
  std::deque<Work> works;
  int64_t n_requests = 0;
};
Queue& queue() {
  static Queue kQueue;
  return kQueue;
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
  for (const char* control : {"<s>", "</s>", "<unk>", "<pre>", "<suf>", "<mid>", "<file>"}) {
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
  vocab.fim_pre_id = 259;
  vocab.fim_suf_id = 260;
  vocab.fim_mid_id = 261;
  vocab.fim_sep_id = 262;
  return vocab;
}

// Pieces of text, each with a token of the prompt, one by one, as a real one would send them: whole characters, and the
// rest at the end.
void answer(const ServingRequest& request, ServingSink& sink, bool cancelled) {
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  ServingEnd end;
  end.stop = cancelled ? StopReason::kCancelled : StopReason::kLimit;
  end.slot = 0;
  end.n_prompt = n_prompt;
  end.timings = {.prompt_n = n_prompt, .prompt_ms = 1, .first_token_ms = 1};
  if (!cancelled) {
    sink.on_begin(0, 0, n_prompt);
    if (request.wants_progress) {
      sink.on_progress(0, n_prompt, n_prompt, 1);
    }
  }
  if (request.pooling) {
    const int64_t n_rows = *request.pooling == Pooling::kNone ? n_prompt : 1;
    end.embedding.assign(static_cast<size_t>(n_rows * kEmbd), 0.5F);
  }
  const int64_t n_wanted = request.max_tokens < 0 ? 6 : std::min<int64_t>(request.max_tokens, 6);
  const int64_t n = cancelled || request.pooling ? 0 : n_wanted;
  for (int64_t i = 0; i < n; ++i) {
    ServingToken token;
    token.id = request.prompt[static_cast<size_t>(i) % request.prompt.size()];
    token.bytes = i % 2 == 0 ? "x" : "\xc3";
    for (int32_t k = 0; k < std::min(request.n_probs, 3); ++k) {
      token.top.push_back({.id = k, .logprob = -2});
    }
    ++end.timings.predicted_n;
    constexpr std::array<std::string_view, 4> kPieces = {"<tool_call>{\"", "é", "<|channel|>final<|message|>",
                                                         "<think>"};
    if (i + 1 == n && request.stop.size() > 1) {
      end.stop = StopReason::kWord;
      end.stop_word = request.stop[0];
      end.rest.push_back(token);
    } else if (!sink.on_text(kPieces[static_cast<size_t>(i) % kPieces.size()], {&token, 1}, end.timings)) {
      end.stop = StopReason::kCancelled;
      break;
    }
  }
  sink.on_end(end);
}

SwitchRecord switch_to(const std::string& mode) {
  SwitchRecord record;
  record.from = "layer";
  record.to = mode;
  return record;
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
Result<std::string> Model::metadata_text(std::string_view) const {
  return Status(ErrorCode::kNotFound, "there is no such key");
}
const ModelSummary& Model::summary() const {
  static const ModelSummary kSummary = [] {
    ModelSummary summary;
    summary.architecture = summary.name = "fake";
    summary.n_vocab = kVocab;
    summary.n_embd = kEmbd;
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
  static const ContextOptions kOptions{.n_ctx = kContext, .n_seq_max = 2};
  return kOptions;
}

Serving::Serving(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Serving::~Serving() = default;
Result<std::unique_ptr<Serving>> Serving::start(std::unique_ptr<Context>, const ServingOptions&, const Log&) {
  return std::unique_ptr<Serving>(new Serving(nullptr));
}
Context& Serving::context() {
  static const auto kFake = Context::create(nullptr, {});
  return *kFake.value();
}
Status Serving::check_length(const ServingRequest& request) const {
  const bool is_long = std::cmp_greater_equal(request.prompt.size(), kContext);
  return is_long ? Status(ErrorCode::kCacheFull, "the prompt is longer than the context") : Status();
}

Result<int64_t> Serving::submit(ServingRequest request, std::shared_ptr<ServingSink> sink) {
  if (request.prompt.empty()) {
    return Status(ErrorCode::kInvalidArgument, "the prompt is empty");
  }
  for (const int32_t id : request.prompt) {
    CHECK(id >= 0 && id < kVocab);
  }
  const std::lock_guard lock(queue().mutex);
  if (queue().works.size() >= kWaitingMax) {
    return Status(ErrorCode::kBusy, "the queue is full");
  }
  queue().works.push_back(
      {[request = std::move(request), sink = std::move(sink)](bool cancelled) { answer(request, *sink, cancelled); },
       queue().n_requests});
  return queue().n_requests++;
}
void Serving::cancel(int64_t request) {
  const std::lock_guard lock(queue().mutex);
  for (Work& work : queue().works) {
    work.cancelled = work.cancelled || work.request == request;
  }
}
bool Serving::wants_branches() const {
  return true;
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

LivePlacement::LivePlacement(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LivePlacement::~LivePlacement() = default;
Result<std::unique_ptr<LivePlacement>> LivePlacement::start(std::shared_ptr<Model>, const TransitionOptions&,
                                                            const Log&) {
  return std::unique_ptr<LivePlacement>(new LivePlacement(nullptr));
}
// A deadline cannot be held, "none" does not fit.
Status LivePlacement::ask(PlacementWish wish, Done done) {
  const std::lock_guard lock(queue().mutex);
  queue().works.push_back({[wish = std::move(wish), done = std::move(done)](bool) {
    if (!wish.placement) {
      done({}, nullptr);
    } else if (wish.deadline_s > 0) {
      done({ErrorCode::kDeadlineExceeded, "there was no time"}, nullptr);
    } else if (wish.placement->split_mode == "none") {
      done({ErrorCode::kDoesNotFit, "there is no room"}, nullptr);
    } else {
      const SwitchRecord record = switch_to(wish.placement->split_mode);
      done({}, &record);
    }
  }});
  return {};
}
std::shared_ptr<const PlacementView> LivePlacement::view() const {
  const auto view = std::make_shared<PlacementView>();
  view->request.split_mode = "layer";
  view->devices.resize(2);
  view->pieces.resize(3);
  view->pieces[0].kind = "attn";
  view->pieces[0].layer = view->pieces[0].device = 0;
  view->pieces[1].kind = "expert";
  view->pieces[1].expert = view->pieces[1].device = 1;
  view->pieces[2].kind = "host";
  view->pieces[2].tensor = "t";
  return view;
}
SwitchTotals LivePlacement::totals() const {
  SwitchTotals totals;
  totals.last = switch_to("tensor");
  return totals;
}
PolicyView LivePlacement::policy() const {
  return {};
}

std::shared_ptr<ServedModel> fake_model(const std::string& name, FakeKind kind) {
  auto served = std::make_shared<ServedModel>();
  const bool is_tagged = kind == FakeKind::kTagged;
  served->name = name;
  served->model = Model::load({}).value();
  served->chat_template = std::make_unique<ChatTemplate>(ChatTemplate::parse("", "<s>", "</s>").value());
  served->chat_format = detect_chat_format(is_tagged ? "<tool_call><think></think>" : "<|channel|>analysis<|message|>");
  served->pooling = is_tagged ? Pooling::kMean : Pooling::kNone;
  served->spm_infill = is_tagged;
  served->serving = Serving::start(nullptr, {}).value();
  served->placement = LivePlacement::start(nullptr, {}).value();
  return served;
}

bool run_fake_serving() {
  bool found = false;
  while (true) {
    Work work;
    {
      const std::lock_guard lock(queue().mutex);
      if (queue().works.empty()) {
        return found;
      }
      work = std::move(queue().works.front());
      queue().works.pop_front();
    }
    work.run(work.cancelled);
    found = true;
  }
}

}  // namespace tessera
