// `tessera chat`: a conversation in the terminal, or from a pipe one message per line. What the context holds of the
// conversation is not read again.

#include <cstdio>
#include <fmt/format.h>
#include <iostream>
#include <string>

#include "commands.h"
#include "common.h"
#include "generation.h"
#include "report.h"
#include "runtime/context.h"

namespace tessera {
namespace {

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
    for (std::string line; read_line(line);) {
      if (line == "/exit") {
        break;
      }
      if (line == "/clear") {
        begin();
        TRY(session_.clear());
        continue;
      }
      if (line.empty()) {
        continue;
      }
      const Status status = answer(line);
      if (status.code() == ErrorCode::kCacheFull && stdin_is_terminal()) {
        std::fputs(("tessera: " + status.message() + "; /clear begins anew\n").c_str(), stderr);
        conversation_.drop_last();
        continue;
      }
      TRY(status);
    }
    return {};
  }

 private:
  void begin() {
    conversation_.clear();
    if (flags_.given("system-prompt")) {
      conversation_.add("system", flags_.get_string("system-prompt"));
    }
  }

  static bool read_line(std::string& line) {
    if (stdin_is_terminal()) {
      std::fputs("\n> ", stderr);
    }
    return static_cast<bool>(std::getline(std::cin, line));
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
        fmt::format("{}ended by: {}\n", speed_lines(generation.timings), stop_reason_name(generation.stop));
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
  const ModelOptions options = model_options(flags);
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, load_model(options, command_log(flags)));
  ASSIGN_OR_RETURN(ChatTemplate chat_template, load_template(flags, *model));
  ASSIGN_OR_RETURN(GenerateOptions generation_options, generate_options(flags, *model));
  ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::create(model, options.context));
  if (stdin_is_terminal()) {
    const std::string head =
        device_table(*model) + "/clear forgets the conversation, /exit or Ctrl-D ends, Ctrl-C stops an answer\n";
    std::fwrite(head.data(), 1, head.size(), stderr);
  }
  return Chat(flags, *context, std::move(chat_template), std::move(generation_options)).run();
}

}  // namespace tessera
