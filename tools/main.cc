// The program `tessera`: finds the command, prints its help or runs it, and turns failures into one sentence on
// standard error with exit status 1, 2 where the command line itself is wrong, or 130 after Ctrl-C.

#include <cstdio>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/flags.h"
#include "base/status.h"
#include "commands.h"
#include "common.h"
#include "doctor.h"
#include "flag_table.h"
#include "metadata_flags.h"
#include "policy_flags.h"

namespace tessera {
namespace {

struct CommandEntry {
  std::string_view name;
  Status (*run)(const ParsedFlags& flags);
  Status (*check)(const ParsedFlags& flags) = nullptr;  // null: the flag table has said it all
};

Result<std::string> help_text(const ParsedFlags& flags) {
  if (flags.get_bool("markdown")) {
    return help_markdown(tessera_flags());
  }
  if (flags.get_bool("man")) {
    return help_man(tessera_flags());
  }
  if (flags.given("completion")) {
    return completion_script(tessera_flags(), flags.get_string("completion"));
  }
  if (flags.positional().empty()) {
    return help_overview(tessera_flags());
  }
  ASSIGN_OR_RETURN(const CommandRow* command, find_command(tessera_flags(), flags.positional().front()));
  return help_command(tessera_flags(), *command);
}

Status check_help(const ParsedFlags& flags) {
  return help_text(flags).status();
}

Status cmd_help(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const std::string text, help_text(flags));
  return print(text);
}

constexpr CommandEntry kCommandEntries[] = {
    {"run", cmd_run, check_run},
    {"chat", cmd_chat, check_chat},
    {"serve", cmd_serve, check_serve},
    {"tokenize", cmd_tokenize, check_tokenize},
    {"template", cmd_template},
    {"logits", cmd_logits, check_logits},
    {"embedding", cmd_embedding},
    {"perplexity", cmd_perplexity, check_perplexity},
    {"bench", cmd_bench, check_bench},
    {"batched-bench", cmd_batched_bench, check_batched_bench},
    {"bench-switch", cmd_bench_switch, check_bench_switch},
    {"inspect", cmd_inspect},
    {"plan", cmd_plan, check_plan},
    {"devices", cmd_devices},
    {"doctor", cmd_doctor},
    {"version", cmd_version},
    {"help", cmd_help, check_help},
};

// A message may have several lines: flags that are wrong are told together.
int fail(const Status& status, int exit_status) {
  std::string lines = "tessera: ";
  for (const char c : status.message()) {
    lines += c == '\n' ? "\ntessera: " : std::string(1, c);
  }
  lines += "\n";
  std::fwrite(lines.data(), 1, lines.size(), stderr);
  return exit_status;
}

// A command's two words, as people would say `bench switch`, made one, also behind `help`.
std::vector<std::string> spelt_out(std::span<const char* const> args) {
  std::vector<std::string> words(args.begin(), args.end());
  const size_t at = !words.empty() && words[0] == "help" ? 1 : 0;
  for (const CommandRow& command : tessera_flags().commands) {
    if (words.size() >= at + 2 && words[at] + " " + words[at + 1] == command.two_words) {
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
      words[at] = command.name;
    }
  }
  return words;
}

int run_program(std::span<const char* const> args) {
  const std::vector<std::string> words = spelt_out(args);
  std::vector<const char*> texts;
  for (const std::string& word : words) {
    texts.push_back(word.c_str());
  }
  const Result<ParsedFlags> flags = parse_flags(tessera_flags(), texts);
  if (!flags.ok()) {
    return fail(flags.status(), kExitUsage);
  }
  if (flags->wants_help()) {
    const Status printed = print(help_command(tessera_flags(), flags->command()));
    return printed.ok() ? 0 : fail(printed, kExitFailed);
  }
  for (const std::vector<std::string>& notes : {flags->notes(), placement_notes(*flags)}) {
    for (const std::string& note : notes) {
      std::fputs(("note: " + note + "\n").c_str(), stderr);
    }
  }
  for (const CommandEntry& entry : kCommandEntries) {
    if (entry.name != flags->command().name) {
      continue;
    }
    for (const auto check : {&check_metadata_flags, &check_template_flags, entry.check}) {
      if (const Status usage = check == nullptr ? Status() : check(*flags); !usage.ok()) {
        return fail(usage, kExitUsage);
      }
    }
    const Status status = entry.run(*flags);
    if (status.ok()) {
      return 0;
    }
    return fail({status.code(), status.message() + file_advice(*flags, status)},
                status.code() == ErrorCode::kCancelled ? kExitInterrupted : kExitFailed);
  }
  return fail({ErrorCode::kInternal, "the command " + std::string(flags->command().name) + " has no code"},
              kExitFailed);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    return tessera::run_program({argv + 1, static_cast<size_t>(argc > 0 ? argc - 1 : 0)});
  } catch (const std::bad_alloc&) {
    std::fputs("tessera: no memory is left\n", stderr);
    return tessera::kExitFailed;
  }
}
