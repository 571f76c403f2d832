// `tessera chat`: a conversation in the terminal, or from a pipe one message per line. What the context holds of the
// conversation is not read again.

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>

#include "commands.h"
#include "common.h"
#include "generation.h"
#include "line_reader.h"
#include "phase_split.h"
#include "report.h"
#include "runtime/context.h"
#include "sampling_flags.h"

namespace tessera {
namespace {

constexpr const char* kHelp =
    "/clear forgets the conversation; /exit or Ctrl-D ends; Ctrl-C stops an answer; \\ at the end of a line continues "
    "it\n";

constexpr const char* kInterruptHint = "\n/exit or Ctrl-D ends; Ctrl-C again ends too\n";

/// The command that a line is: one word of letters behind a slash. Empty: the line is for the model.
std::string_view command_of(std::string_view line) {
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos || line[begin] != '/') {
    return {};
  }
  line = line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
  const bool is_word =
      line.size() > 1 && std::ranges::all_of(line.substr(1), [](char c) { return c >= 'a' && c <= 'z'; });
  return is_word ? line : std::string_view();
}

std::string unknown_command(std::string_view command) {
  return fmt::format("tessera: there is no command {}; /help lists all\n", command);
}

class Chat {
 public:
  Chat(const ParsedFlags& flags, Context& context, PhaseSplit& phases, ChatTemplate chat_template,
       GenerateOptions options)
      : flags_(flags),
        context_(context),
        phases_(phases),
        chat_template_(std::move(chat_template)),
        options_(std::move(options)),
        session_(context) {}

  Status run() {
    begin();
    Status unanswered;
    LineReader reader("> ");
    bool is_warned = false;  // by the line before
    for (std::string line;;) {
      const LineReader::Got got = reader.next(line);
      if (got == LineReader::Got::kEnd) {
        break;
      }
      if (got == LineReader::Got::kGivenUp && is_warned) {
        return {ErrorCode::kCancelled, "interrupted"};
      }
      if (got != LineReader::Got::kText) {
        std::fputs(kInterruptHint, stderr);
        is_warned = true;
        continue;
      }
      is_warned = false;
      const std::string_view command = command_of(line);
      if (command == "/exit" || command == "/quit" || command == "/bye") {
        break;
      }
      if (command == "/clear") {
        begin();
        TRY(session_.clear());
      } else if (!command.empty()) {
        std::fputs(command == "/help" ? kHelp : unknown_command(command).c_str(), stderr);
      } else if (line.find_first_not_of(" \t\r") != std::string::npos) {
        const Status status = answer(line);
        if (status.code() == ErrorCode::kCacheFull) {  // the conversation is still there, and so is the user
          std::fputs(("tessera: " + status.message() + "; /clear begins anew\n").c_str(), stderr);
          conversation_.drop_last();
          unanswered = status;
        } else {
          TRY(status);
        }
      }
    }
    return stdin_is_terminal() ? Status() : unanswered;
  }

 private:
  void begin() {
    conversation_.clear();
    n_first_ = 0;
    if (flags_.given("system-prompt")) {
      conversation_.add("system", flags_.get_string("system-prompt"));
    }
  }

  Status answer(const std::string& question) {
    conversation_.add("user", question);
    ASSIGN_OR_RETURN(std::vector<int32_t> prompt, conversation_.encode(chat_template_, context_.model().tokenizer()));
    GenerateOptions options = options_;
    if (options.context_shift) {
      prompt = shift_into_context(std::move(prompt), options);
    }
    const InterruptGuard guard;
    GenerateHooks hooks;
    hooks.on_text = print;
    hooks.cancelled = &guard.interrupted();
    hooks.on_progress = prompt_progress(context_.options().n_ubatch);
    phases_.add_hooks(hooks);
    ASSIGN_OR_RETURN(const Generation generation, session_.generate(prompt, options, hooks));
    TRY(print("\n"));
    conversation_.add("assistant", generation.text);
    phases_.answered(generation);
    const std::string summary = fmt::format("{}{}ended by: {}\n", speed_lines(generation.timings),
                                            phases_.switch_line(), stop_text(generation.stop));
    std::fwrite(summary.data(), 1, summary.size(), stderr);
    return {};
  }

  // A conversation that is longer than the context, shifted until it fits. To keep everything (--keep -1) means what
  // the conversation began with.
  std::vector<int32_t> shift_into_context(std::vector<int32_t> prompt, GenerateOptions& options) {
    const Tokenizer& tokenizer = context_.model().tokenizer();
    if (options.n_keep < 0) {
      n_first_ = n_first_ > 0 ? n_first_ : static_cast<int64_t>(prompt.size());
      options.n_keep = n_first_;
    }
    const size_t n_keep = kept_tokens(tokenizer, prompt, options.n_keep);
    const size_t n_before = prompt.size();
    while (std::cmp_greater_equal(prompt.size(), context_.options().n_ctx)) {
      std::vector<int32_t> left = shift_tokens(prompt, n_keep);
      if (left.size() == prompt.size()) {
        break;  // generate() says what is too long
      }
      prompt = std::move(left);
    }
    if (prompt.size() < n_before) {
      std::fputs(fmt::format("the conversation has {} tokens; {} behind the first {} are left out\n", n_before,
                             n_before - prompt.size(), n_keep)
                     .c_str(),
                 stderr);
    }
    return prompt;
  }

  const ParsedFlags& flags_;
  Context& context_;
  PhaseSplit& phases_;
  int64_t n_first_ = 0;  // tokens of the conversation's first prompt; 0: there was none yet
  ChatTemplate chat_template_;
  GenerateOptions options_;
  Session session_;
  Conversation conversation_;
};

}  // namespace

Status check_chat(const ParsedFlags& flags) {
  TRY(check_phase_split(flags));
  return check_sampling_flags(flags);
}

Status cmd_chat(const ParsedFlags& flags) {
  ModelOptions options = model_options(flags);
  options.needs_text = true;
  const Log log = command_log(flags);
  PhaseSplit phases(flags, log);
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, phases.load(options));
  if (model->chat_template_source().empty() && !chooses_template(flags)) {
    log.info("note: the model has no chat template; ChatML is used");
  }
  ASSIGN_OR_RETURN(ChatTemplate chat_template, load_template(flags, *model));
  ASSIGN_OR_RETURN(GenerateOptions generation_options, generate_options(flags, *model));
  stop_at_end(chat_template, model->tokenizer(), generation_options);
  ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::create(model, options.context));
  TRY(phases.prepare(*model, *context));
  if (stdin_is_terminal()) {
    const std::string head = device_table(*model) + placement_line(*model) + kHelp;
    std::fwrite(head.data(), 1, head.size(), stderr);
  }
  return Chat(flags, *context, phases, std::move(chat_template), std::move(generation_options)).run();
}

}  // namespace tessera
