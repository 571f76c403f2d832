// The flag table as a manual page, and as completions for shells.

#include <fmt/format.h>

#include "base/check.h"
#include "base/flags.h"
#include "base/flags_internal.h"

namespace tessera {
namespace {

using flags_internal::belongs_to;

/// Text of a roff page: no line of it is taken for a request, and dashes and backslashes stay what they are.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && out.empty()) {
      out += "\\&";
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

/// In single quotes for bash, zsh and fish; these see nothing special there but the quote itself.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

std::string all_commands(const FlagTable& table) {
  std::string names;
  for (const CommandRow& command : table.commands) {
    names += fmt::format("{}{}", names.empty() ? "" : " ", command.name);
  }
  return names;
}

// zsh reads bash's scripts through bashcompinit: sourced, or as a file _tessera in its function path, which is run in
// place of the first completion and therefore has to make that one too.
// `--flag=value` is three words to bash, as = stands in its COMP_WORDBREAKS, and one to zsh.
std::string bash_script(const FlagTable& table, bool for_zsh) {
  std::string flags;
  std::string choices;
  std::string two_words;
  for (const CommandRow& command : table.commands) {
    std::string names;
    for (const FlagRow& row : table.flags) {
      if (!belongs_to(row, command.name)) {
        continue;
      }
      for (const std::string& name : flags_internal::positive_spellings(row)) {
        names += fmt::format("{}{}", names.empty() ? "" : " ", name);
      }
      names += fmt::format("{}{}", names.empty() || row.negations.empty() ? "" : " ", row.negations);
      if (row.kind == FlagKind::kEnum) {
        for (const std::string& name : flags_internal::positive_spellings(row)) {
          choices += fmt::format("    {}:{}) words={} ;;\n", command.name, name, shell_quoted(row.choices));
        }
      }
    }
    flags += fmt::format("    {}) flags={} ;;\n", command.name, shell_quoted(names));
    if (const auto [first, second] = flags_internal::words_of(command); !first.empty()) {
      two_words += fmt::format(
          "  case $COMP_CWORD:$command:${{COMP_WORDS[2]}} in\n"
          "    2:{0}:*) words={1} ;;\n"
          "    *:{0}:{1}) command={2} ;;\n"
          "  esac\n",
          first, second, command.name);
    }
  }
  return fmt::format(
      "{0}_{1}_complete() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}\n"
      "  local flags='' words='' name=''\n"
      "  case $current in\n"
      "    =) current='' ;;\n"
      "    -*=*) previous=${{current%%=*}} current=${{current#*=}} name=$previous= ;;\n"
      "    *) [ \"$previous\" != = ] || previous=${{COMP_WORDS[COMP_CWORD-2]}} ;;\n"
      "  esac\n"
      "  [ \"$command\" != help ] || words='{2}'\n"
      "{6}"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W '{2}' -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case $command:$previous in\n{3}  esac\n"
      "  case $command in\n{4}  esac\n"
      "  case $current in\n"
      "    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$current\")) ;;\n"
      "    *) if [ -n \"$words\" ]; then COMPREPLY=($(compgen -P \"$name\" -W \"$words\" -- \"$current\"));\n"
      "       else COMPREPLY=($(compgen -P \"$name\" -f -- \"$current\")); fi ;;\n"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _{1}_complete {1}\n{5}",
      for_zsh ? fmt::format("#compdef {}\nautoload -U +X bashcompinit && bashcompinit\n", table.program) : "",
      table.program, all_commands(table), choices, flags,
      for_zsh ? fmt::format("[ \"${{funcstack[1]}}\" != _{0} ] || _bash_complete -o filenames -F _{0}_complete\n",
                            table.program)
              : "",
      two_words);
}

// When fish may offer a command's flags. Of `bench switch` the first word is a command as well.
std::string fish_condition(const FlagTable& table, const CommandRow& command) {
  std::string condition = fmt::format("__fish_seen_subcommand_from {}", command.name);
  if (const auto [first, second] = flags_internal::words_of(command); !first.empty()) {
    condition += fmt::format("; or begin; __fish_seen_subcommand_from {}; and __fish_seen_subcommand_from {}; end",
                             first, second);
  }
  for (const CommandRow& other : table.commands) {
    if (const auto [first, second] = flags_internal::words_of(other); first == command.name) {
      condition += fmt::format("; and not __fish_seen_subcommand_from {}", second);
    }
  }
  return condition;
}

std::string fish_script(const FlagTable& table) {
  std::string out;
  for (const CommandRow& command : table.commands) {
    out += fmt::format("complete -c {0} -n __fish_use_subcommand -f -a {1} -d {2}\n", table.program, command.name,
                       shell_quoted(command.summary));
    const std::string condition = shell_quoted(fish_condition(table, command));
    if (const auto [first, second] = flags_internal::words_of(command); !first.empty()) {
      out += fmt::format("complete -c {} -n '__fish_seen_subcommand_from {}' -a {} -d {}\n", table.program, first,
                         second, shell_quoted(command.summary));
    }
    for (const FlagRow& row : table.flags) {
      if (!belongs_to(row, command.name)) {
        continue;
      }
      out += fmt::format("complete -c {} -n {} -l {}", table.program, condition, row.name);
      for (const std::string_view names : {row.shorts, row.negations}) {
        for (const std::string_view other : flags_internal::split_words(names)) {
          const bool is_long = other.starts_with("--");
          out += fmt::format(" {} {}", is_long ? "-l" : other.size() == 2 ? "-s" : "-o", other.substr(is_long ? 2 : 1));
        }
      }
      if (row.kind == FlagKind::kEnum) {
        out += fmt::format(" -x -a {}", shell_quoted(row.choices));
      } else if (row.kind != FlagKind::kBool) {
        out += " -r";
      }
      out += fmt::format(" -d {}\n", shell_quoted(row.help));
    }
  }
  return out;
}

}  // namespace

std::string help_man(const FlagTable& table) {
  std::string upper(table.program);
  for (char& c : upper) {
    c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  std::string out = fmt::format(".TH {} 1\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\nCOMMAND [FLAGS]\n.SH COMMANDS\n",
                                upper, roff(table.program), roff(table.summary), roff(table.program));
  for (const CommandRow& command : table.commands) {
    out += fmt::format(".TP\n.B {}\n{}\n", roff(command.name), roff(command.summary));
  }
  for (const CommandRow& command : table.commands) {
    out += fmt::format(".SH \"{}\"\nUsage: {}\n", roff(fmt::format("{} {}", table.program, command.name)),
                       roff(flags_internal::usage(table, command)));
    if (!command.example.empty()) {
      out += fmt::format(".PP\nExample: {}\n", roff(command.example));
    }
    for (const FlagRow& row : table.flags) {
      if (belongs_to(row, command.name)) {
        out += fmt::format(".TP\n.B {}\n{}\n", roff(flags_internal::names_and_value(row)),
                           roff(flags_internal::full_meaning(row)));
      }
    }
  }
  if (!table.exit_statuses.empty()) {
    out += ".SH EXIT STATUS\n.TP\n.B 0\nsuccess\n";
  }
  for (const ExitStatus& exit : table.exit_statuses) {
    out += fmt::format(".TP\n.B {}\n{}\n", exit.status, roff(exit.meaning));
  }
  return out;
}

std::string completion_script(const FlagTable& table, std::string_view shell) {
  CHECK(kCompletionShells.find(shell) != std::string_view::npos);
  return shell == "fish" ? fish_script(table) : bash_script(table, shell == "zsh");
}

}  // namespace tessera
