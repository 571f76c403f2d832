#pragma once
// What the flag parser and the help texts share. Not for other files.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/flags.h"

namespace tessera::flags_internal {

/// Words of a row's blank-separated field.
std::vector<std::string_view> split_words(std::string_view text);

/// Whether `command` takes this flag.
bool belongs_to(const FlagRow& row, std::string_view command);

/// Every way to type this flag so that it is set: a boolean is on.
std::vector<std::string> positive_spellings(const FlagRow& row);
/// Every way to turn a boolean off; none for other kinds.
std::vector<std::string> negative_spellings(const FlagRow& row);
/// Both.
std::vector<std::string> spellings(const FlagRow& row);

/// What stands behind a flag's name for people: meaning, range, default, and why it has no effect if it has none.
std::string full_meaning(const FlagRow& row);

/// The two words that also name the command; empty where there are none.
std::pair<std::string_view, std::string_view> words_of(const CommandRow& command);

/// "tessera run [FLAGS] [TEXT]".
std::string usage(const FlagTable& table, const CommandRow& command);

/// The value as usage shows it: placeholder, choices, or "" for booleans.
std::string value_text(const FlagRow& row);

/// All names and the value: "-c, --ctx-size N"; with those that negate: "--repack / -nr, --no-repack".
std::string names_and_value(const FlagRow& row);

/// "0 to 1", "at least 0", "at most 8", or "" when everything is allowed.
std::string range_text(const FlagRow& row);

}  // namespace tessera::flags_internal
