// `tessera chat`: a conversation in the terminal, or from a pipe one message per line. What the context holds of the
// conversation is not read again.

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <string_view>

#include "commands.h"
#include "common.h"
#include "generation.h"
#include "line_reader.h"
#include "report.h"
#include "runtime/context.h"

namespace tessera {
namespace {

constexpr const char* kHelp =
    "/clear forgets the conversation; /exit or Ctrl-D ends; Ctrl-C stops an answer; \\ at the end of a line continues "
    "it\n";

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
  Chat(const ParsedFlags& flags, Context& context, ChatTemplate chat_template, GenerateOptions options)
      : flags_(flags),
        context_(context),
        chat_template_(std::move(chat_template)),
        options_(std::move(options)),
        session_(context) {}

  Status run() {
    begin();
    Status unanswered;
    LineReader reader("> ");
    for (std::string line; reader.next(line);) {
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
    if (flags_.given("system-prompt")) {
      conversation_.add("system", flags_.get_string("system-prompt"));
    }
  }

  Status answer(const std::string& question) {
    conversation_.add("user", question);
    ASSIGN_OR_RETURN(const std::vector<int32_t> prompt,
                     conversation_.encode(chat_template_, context_.model().tokenizer()));
    const InterruptGuard guard;
    Status printed;
    const GenerateHooks hooks{[&](std::string_view piece) { printed = printed.ok() ? print(piece) : printed; },
                              &guard.interrupted()};
    ASSIGN_OR_RETURN(const Generation generation, session_.generate(prompt, options_, hooks));
    TRY(printed);
    TRY(print("\n"));
    conversation_.add("assistant", generation.text);
    const std::string summary =
        fmt::format("{}ended by: {}\n", speed_lines(generation.timings), stop_text(generation.stop));
    std::fwrite(summary.data(), 1, summary.size(), stderr);
    return {};
  }

  const ParsedFlags& flags_;
  Context& context_;
  ChatTemplate chat_template_;
  GenerateOptions options_;
  Session session_;
  Conversation conversation_;
};

}  // namespace

Status cmd_chat(const ParsedFlags& flags) {
  ModelOptions options = model_options(flags);
  options.needs_text = true;
  const Log log = command_log(flags);
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, load_model(options, log));
  if (model->chat_template_source().empty() && !flags.given("chat-template-file")) {
    log.info("note: the model has no chat template; ChatML is used");
  }
  ASSIGN_OR_RETURN(ChatTemplate chat_template, load_template(flags, *model));
  ASSIGN_OR_RETURN(GenerateOptions generation_options, generate_options(flags, *model));
  ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::create(model, options.context));
  if (stdin_is_terminal()) {
    const std::string head = device_table(*model) + placement_line(*model) + kHelp;
    std::fwrite(head.data(), 1, head.size(), stderr);
  }
  return Chat(flags, *context, std::move(chat_template), std::move(generation_options)).run();
}

}  // namespace tessera
