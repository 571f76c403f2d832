#include "generation.h"

#include <csignal>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/units.h"
#include "common.h"
#include "flag_table.h"
#include "progress_bar.h"
#include "sampling_flags.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::atomic<bool> g_interrupted = false;  // the one thing that a signal handler can reach
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int /*signal*/) {
  if (g_interrupted.exchange(true)) {
    _exit(kExitInterrupted);
  }
}

}  // namespace

Result<GenerateOptions> generate_options(const ParsedFlags& flags, const Model& model) {
  GenerateOptions options;
  options.max_tokens = flags.get_int("predict");
  options.ignore_eos = flags.get_bool("ignore-eos");
  options.context_shift = flags.get_bool("context-shift");
  options.n_keep = flags.get_int("keep");
  for (const ParsedFlags::Use& use : flags.uses()) {
    if (use.row->name == "stop") {
      options.stop_words.push_back(flags.get_bool("escape") ? unescape(use.text) : use.text);
    }
  }
  ASSIGN_OR_RETURN(options.sampler, sampler_options(flags, model.recommended_sampling()));
  const int32_t n_vocab = model.tokenizer().n_vocab();
  for (const LogitBias& b : options.sampler.logit_bias) {
    if (b.id >= n_vocab) {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("--logit-bias: there is no token {}; the vocabulary has {}", b.id, n_vocab));
    }
  }
  return options;
}

void stop_at_end(const ChatTemplate& chat_template, const Tokenizer& tokenizer, GenerateOptions& options) {
  if (!options.ignore_eos) {
    options.stop_words.push_back(chat_template.spelled_end(tokenizer));
  }
}

void Conversation::add(std::string_view role, std::string_view content) {
  messages_.emplace_back(role, content);
}

Result<std::vector<int32_t>> Conversation::encode(const ChatTemplate& chat_template, const Tokenizer& tokenizer) const {
  Json messages = Json::array();
  for (const auto& [role, content] : messages_) {
    messages.push_back({{"role", role}, {"content", content}});
  }
  const std::string request = Json{{"messages", messages}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  ASSIGN_OR_RETURN(const RenderedPrompt prompt, chat_template.render(request));
  return encode_prompt(tokenizer, prompt);
}

InterruptGuard::InterruptGuard() {
  g_interrupted = false;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, nullptr, &before_);
  if (before_.sa_handler != SIG_IGN) {  // as after nohup: whoever started us wants no interruption
    sigaction(SIGINT, &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &before_, nullptr);
}

const std::atomic<bool>& InterruptGuard::interrupted() const {
  return g_interrupted;
}

std::function<void(int64_t n_given, int64_t n_prompt)> prompt_progress(int64_t n_ubatch) {
  return [bar = std::make_shared<ProgressBar>("reading the prompt"), n_ubatch](int64_t n_given, int64_t n_prompt) {
    if (n_given == n_prompt) {
      bar->clear();
    } else if (n_prompt > n_ubatch) {
      bar->show(static_cast<double>(n_given) / static_cast<double>(n_prompt));
    }
  };
}

std::string stop_text(StopReason reason) {
  switch (reason) {
    case StopReason::kLimit: return "limit (--predict)";
    case StopReason::kContextFull: return "context_full (--ctx-size)";
    case StopReason::kWord: return "word (--stop)";
    case StopReason::kGrammar: return "grammar (complete)";
    default: return std::string(stop_reason_name(reason));
  }
}

std::string speed_lines(const GenerateTimings& t) {
  // The first token comes from the prompt's logits: its time is the prompt's.
  const std::string speed =
      t.predicted_n > 1 ? fmt::format("{:8.1f}", per_second(t.predicted_n - 1, t.predicted_ms)) : "       -";
  const std::string cached = t.cache_n > 0 ? fmt::format(", {} more from the cache", t.cache_n) : std::string();
  return fmt::format(
      "prompt      {:6} tokens  {:9.1f} ms  {:8.1f} tokens/s{}\ngeneration  {:6} tokens  {:9.1f} ms  "
      "{} tokens/s\n",
      t.prompt_n, t.prompt_ms, per_second(t.prompt_n, t.prompt_ms), cached, t.predicted_n, t.predicted_ms, speed);
}

std::string timings_json(const GenerateTimings& t) {
  return Json{{"cache_n", t.cache_n},
              {"prompt_n", t.prompt_n},
              {"prompt_ms", t.prompt_ms},
              {"prompt_per_token_ms", per_token(t.prompt_n, t.prompt_ms)},
              {"prompt_per_second", per_second(t.prompt_n, t.prompt_ms)},
              {"predicted_n", t.predicted_n},
              {"predicted_ms", t.predicted_ms},
              {"predicted_per_token_ms", per_token(t.predicted_n, t.predicted_ms)},
              {"predicted_per_second", per_second(t.predicted_n, t.predicted_ms)}}
      .dump();
}

}  // namespace tessera
