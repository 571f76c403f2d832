#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/flags.h"
#include "base/flags_internal.h"

namespace tessera {
namespace {

/// The name as --help shows it; booleans that can usefully be turned off show both forms.
std::string shown_name(const FlagRow& row, std::string_view spelled) {
  const bool both = row.kind == FlagKind::kBool && (row.default_text == "on" || !row.default_note.empty());
  const size_t dashes = spelled.find_first_not_of('-');
  return both ? fmt::format("{}[no-]{}", spelled.substr(0, dashes), spelled.substr(dashes)) : std::string(spelled);
}

/// The boolean's `no` spelling of a flag name as typed: --x → --no-x, -x → -no-x.
std::string negated(std::string_view spelled) {
  const size_t dashes = std::min(spelled.find_first_not_of('-'), spelled.size());
  return fmt::format("{}no-{}", spelled.substr(0, dashes), spelled.substr(dashes));
}

}  // namespace

namespace flags_internal {

std::vector<std::string> positive_spellings(const FlagRow& row) {
  std::vector<std::string> all{fmt::format("--{}", row.name)};
  for (const std::string_view other : split_words(row.shorts)) {
    all.emplace_back(other);
  }
  return all;
}

std::vector<std::string> negative_spellings(const FlagRow& row) {
  std::vector<std::string> all;
  if (row.kind == FlagKind::kBool) {
    for (const std::string& spelling : positive_spellings(row)) {
      all.push_back(negated(spelling));
    }
    for (const std::string_view other : split_words(row.negations)) {
      all.emplace_back(other);
    }
  }
  return all;
}

std::vector<std::string> spellings(const FlagRow& row) {
  std::vector<std::string> all = positive_spellings(row);
  std::ranges::move(negative_spellings(row), std::back_inserter(all));
  return all;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t begin = text.find_first_not_of(' '); begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(' ', end);
  }
  return words;
}

bool belongs_to(const FlagRow& row, std::string_view command) {
  const auto commands = split_words(row.commands);
  return std::ranges::any_of(commands, [&](std::string_view name) { return name == "*" || name == command; });
}

std::pair<std::string_view, std::string_view> words_of(const CommandRow& command) {
  const auto words = split_words(command.two_words);
  return words.size() == 2 ? std::pair(words[0], words[1]) : std::pair<std::string_view, std::string_view>();
}

std::string value_text(const FlagRow& row) {
  if (row.kind == FlagKind::kBool) {
    return {};
  }
  if (!row.placeholder.empty()) {
    return std::string(row.placeholder);
  }
  return row.kind == FlagKind::kEnum ? fmt::format("{}", fmt::join(split_words(row.choices), "|")) : "VALUE";
}

std::string names_and_value(const FlagRow& row) {
  std::string out;
  for (const std::string_view other : split_words(row.shorts)) {
    out += shown_name(row, other) + ", ";
  }
  out += shown_name(row, fmt::format("--{}", row.name));
  if (!row.negations.empty()) {
    out += fmt::format(" / {}, --no-{}", fmt::join(split_words(row.negations), ", "), row.name);
  }
  const std::string value = value_text(row);
  return value.empty() ? out : out + " " + value;
}

std::string range_text(const FlagRow& row) {
  const bool low = std::isfinite(row.min);
  const bool high = std::isfinite(row.max);
  const auto number = [](double value) {  // whole numbers in full, never 4e+09
    return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
  };
  if (low && high) {
    return fmt::format("{} to {}", number(row.min), number(row.max));
  }
  if (low) {
    return "at least " + number(row.min);
  }
  return high ? "at most " + number(row.max) : "";
}

}  // namespace flags_internal

namespace {

constexpr size_t kColumns = 100;        // of a help line
constexpr size_t kNamesColumn = 34;     // where the meaning starts
constexpr double kPlainlyEnough = 1e5;  // help does not bother people with upper bounds from here on

/// Appends text, wrapped, with every line but the first indented. column: where the cursor stands.
void append_wrapped(std::string& out, std::string_view text, size_t indent, size_t column) {
  bool first = true;
  for (const std::string_view word : flags_internal::split_words(text)) {
    if (!first && column + 1 + word.size() > kColumns) {
      out += '\n';
      out.append(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    first = false;
  }
  out += '\n';
}

/// Range, default and repetition in brackets after the meaning; "" when there is nothing to say.
std::string details(const FlagRow& row) {
  std::vector<std::string> parts;
  if (!row.default_note.empty() || !row.default_text.empty()) {
    parts.push_back(fmt::format("default: {}", row.default_note.empty() ? row.default_text : row.default_note));
  }
  FlagRow shown = row;
  if (row.max >= kPlainlyEnough) {
    shown.max = std::numeric_limits<double>::infinity();
  }
  if (const std::string range = flags_internal::range_text(shown); !range.empty()) {
    parts.push_back(range);
  }
  if (row.required) {
    parts.emplace_back("required");
  }
  if (row.repeats) {
    parts.emplace_back("may be repeated");
  }
  return parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, "; "));
}

std::string meaning(const FlagRow& row) {
  return row.instead.empty() ? std::string(row.help) : fmt::format("{}. No effect: {}", row.help, row.instead);
}

void append_flag(std::string& out, const FlagRow& row) {
  const std::string names = "  " + flags_internal::names_and_value(row);
  out += names;
  if (names.size() + 2 > kNamesColumn) {
    out += '\n';
    out.append(kNamesColumn, ' ');
  } else {
    out.append(kNamesColumn - names.size(), ' ');
  }
  append_wrapped(out, flags_internal::full_meaning(row), kNamesColumn, kNamesColumn);
}

/// Groups of the rows for which `wanted` holds, in order of first appearance.
template <typename Predicate>
std::vector<std::string_view> groups(const FlagTable& table, Predicate wanted) {
  std::vector<std::string_view> found;
  for (const FlagRow& row : table.flags) {
    if (wanted(row) && std::ranges::find(found, row.group) == found.end()) {
      found.push_back(row.group);
    }
  }
  return found;
}

/// Text inside a cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '|' ? "\\|" : std::string(1, c);
  }
  return out;
}

}  // namespace

namespace flags_internal {

std::string full_meaning(const FlagRow& row) {
  return meaning(row) + details(row);
}

std::string usage(const FlagTable& table, const CommandRow& command) {
  const bool has_flags =
      std::ranges::any_of(table.flags, [&](const FlagRow& row) { return belongs_to(row, command.name); });
  return fmt::format("{} {}{}{}{}", table.program, command.name, has_flags ? " [FLAGS]" : "",
                     command.positional.empty() ? "" : " ", command.positional);
}

}  // namespace flags_internal

using flags_internal::usage;

std::string flag_json_name(const FlagRow& row) {
  std::string name(row.json_name.empty() ? row.name : row.json_name);
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string help_overview(const FlagTable& table) {
  std::string out = fmt::format("{}: {}\n\nCommands:\n", table.program, table.summary);
  size_t longest = 0;
  for (const CommandRow& command : table.commands) {
    longest = std::max(longest, command.name.size());
  }
  for (const CommandRow& command : table.commands) {
    const std::string name = fmt::format("  {:<{}}  ", command.name, longest);
    out += name;
    append_wrapped(out, command.summary, name.size(), name.size());
  }
  out += fmt::format("\n`{0} COMMAND --help` shows a command's flags.\n", table.program);
  for (const CommandRow& command : table.commands) {
    if (!command.example.empty()) {
      out += fmt::format("Example: {}\n", command.example);
      break;
    }
  }
  return out;
}

std::string help_command(const FlagTable& table, const CommandRow& command) {
  const auto wanted = [&](const FlagRow& row) { return flags_internal::belongs_to(row, command.name); };
  std::string out;
  append_wrapped(out, fmt::format("{} {}: {}", table.program, command.name, command.summary), 2, 0);
  out += fmt::format("\nUsage: {}\n", usage(table, command));
  if (!command.example.empty()) {
    out += fmt::format("Example: {}\n", command.example);
  }
  for (const std::string_view group : groups(table, wanted)) {
    out += fmt::format("\n{}:\n", group);
    for (const FlagRow& row : table.flags) {
      if (wanted(row) && row.group == group) {
        append_flag(out, row);
      }
    }
  }
  return out;
}

std::string help_markdown(const FlagTable& table) {
  std::string out = fmt::format(
      "# Commands and flags\n\nGenerated by `{} help --markdown` from the table that also parses the command line; a "
      "test compares.\nValues follow as `--flag value` or `--flag=value`; every boolean `--x` also has `--no-x`.\n\n"
      "| command | what it does |\n|---|---|\n",
      table.program);
  for (const CommandRow& command : table.commands) {
    out += fmt::format("| `{}` | {} |\n", cell(usage(table, command)), cell(command.summary));
  }
  for (const std::string_view group : groups(table, [](const FlagRow&) { return true; })) {
    out += fmt::format("\n## {}\n\n| flag | JSON name | commands | meaning |\n|---|---|---|---|\n", group);
    for (const FlagRow& row : table.flags) {
      if (row.group == group) {
        out +=
            fmt::format("| `{}` | `{}` | {} | {} |\n", cell(flags_internal::names_and_value(row)), flag_json_name(row),
                        row.commands == "*" ? "all" : cell(row.commands), cell(flags_internal::full_meaning(row)));
      }
    }
  }
  if (!table.foreign.empty()) {
    out += "\n## Known from elsewhere, and refused\n\n| flag | why, and what to do |\n|---|---|\n";
  }
  for (const ForeignFlag& flag : table.foreign) {
    out += fmt::format("| `{}` | {} |\n", fmt::join(flags_internal::split_words(flag.names), ", "), cell(flag.why));
  }
  return out;
}

}  // namespace tessera
