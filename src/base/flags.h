#pragma once
// Command-line flags from one table: the rows below are the only place that knows a flag's names, kind, range, default,
// help text and JSON name. Parsing, error messages with suggestions, `--help` and the reference page in docs/ are all
// read off the same rows.
//
// Not an option library for others: values come from the command line alone (no environment, no files), and nothing is
// global. Tables are constant data with static storage; a ParsedFlags points into its table and owns the texts given.
// Everything here is a value or a pure function; use from any thread.
//
// Forms accepted, for a row {name "ctx-size", shorts "-c"}: `--ctx-size 4096`, `--ctx-size=4096`, `-c 4096`, `-c=4096`;
// for a boolean row {name "conversation", shorts "-cnv"}: `--conversation`, `--no-conversation`, `-cnv`, `-no-cnv`,
// `--conversation=off`. `--` ends the flags. The last use of a flag wins unless its row says that it repeats.

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

/// What a flag's text stands for.
enum class FlagKind {
  kBool,    // no text, or one of on/off, true/false, yes/no, 1/0
  kInt,     // decimal int64
  kUint,    // decimal uint64
  kFloat,   // finite decimal double
  kString,  // any text, also the empty one
  kEnum,    // one of `choices`
  kBytes,   // decimal number with an optional suffix K, M, G or T (also KiB, KB, ...): powers of 1024
};

/// One flag of one or more commands. Two rows may share a name when no command has both.
struct FlagRow {
  std::string_view name;            // long name without dashes: "ctx-size"
  std::string_view shorts = {};     // other names as typed, separated by blanks: "-n --n-predict"
  std::string_view negations = {};  // kBool: names as typed that turn it off, beside the `no-` forms: "-nr"
  FlagKind kind = FlagKind::kString;
  bool list = false;                   // text is a list of `kind`: separated by commas (numbers also by `/`), not empty
  bool required = false;               // the command is refused without it
  bool repeats = false;                // may be given more than once, and every use counts
  std::string_view placeholder = {};   // what --help shows for the value: "N"; empty for booleans and enums
  std::string_view default_text = {};  // value when the flag is not given, in the flag's own syntax; empty: none
  std::string_view default_note = {};  // what --help shows as default when that is no value: "from the model"
  std::string_view choices = {};       // kEnum: allowed values separated by blanks
  std::string_view choice_aliases = {};                   // kEnum: accepted but renamed, with a note: "row=tensor"
  double min = -std::numeric_limits<double>::infinity();  // numbers, inclusive, for every element of a list
  double max = std::numeric_limits<double>::infinity();
  std::string_view words = {};      // values besides numbers, separated by blanks: "auto all"; where nobody gets them
  std::string_view group = {};      // heading in --help
  std::string_view commands = {};   // names of the commands that take it, separated by blanks; "*": all of them
  std::string_view help = {};       // one or two sentences, no trailing period
  std::string_view json_name = {};  // name in requests and reports; empty: `name` with `-` written `_`
  // Not empty: accepted without effect, and this note says what to use. A boolean one may have 0, 1 or a list of them
  // behind it, as other programs give them, where the command takes no further words.
  std::string_view instead = {};
};

/// Flags that people bring along from another program, and that this one refuses with what to do instead.
struct ForeignFlag {
  std::string_view names;     // as typed, separated by blanks: "-hf --hf-repo"
  bool takes_value = false;   // the word behind it belongs to it
  std::string_view why = {};  // why there is none, and what to do; a sentence without capital and period
};

/// One command of the program.
struct CommandRow {
  std::string_view name;
  std::string_view summary;          // one line, no trailing period
  std::string_view positional = {};  // usage of what follows the flags: "[TEXT]"
  size_t min_positional = 0;
  size_t max_positional = 0;
  std::string_view example = {};    // a whole command line
  std::string_view two_words = {};  // also name it, the first being a command itself: "bench switch"
};

/// A status that the program may exit with besides 0.
struct ExitStatus {
  int status;
  std::string_view meaning;
};

/// Everything the program understands. Points to constant arrays of static storage.
struct FlagTable {
  std::string_view program;  // "tessera"
  std::string_view summary;  // one line
  std::span<const CommandRow> commands;
  std::span<const FlagRow> flags;
  std::span<const ForeignFlag> foreign = {};
  std::span<const ForeignFlag> foreign_commands = {};  // no values; named without dashes
  std::span<const ExitStatus> exit_statuses = {};      // for the manual page
};

/// The name under which JSON carries this flag's value.
std::string flag_json_name(const FlagRow& row);

/// The result of parsing one command line. Getters: `name` is a row's long name.
/// REQUIRES of every getter: the command has a row of that name with that kind (and list-ness); CHECKed, as asking for
/// anything else is our own bug. A flag that was not given yields its default; without one, zero, "", or an empty list.
class ParsedFlags {
 public:
  /// One use of a flag, in the order of the command line.
  struct Use {
    const FlagRow* row;
    std::string text;  // checked against the row; enum aliases are replaced, booleans are "on" or "off"
  };

  [[nodiscard]] const CommandRow& command() const { return *command_; }
  /// `--help` or `-h` was given; nothing else was parsed and no other check was made.
  [[nodiscard]] bool wants_help() const { return wants_help_; }
  /// What the user should be told although it is no error (renamed or superfluous flags), one sentence each.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// What followed the flags.
  [[nodiscard]] const std::vector<std::string>& positional() const { return positional_; }

  /// Whether the flag stood on the command line.
  [[nodiscard]] bool given(std::string_view name) const;
  /// Every use of every flag, in order: for flags whose order among each other matters.
  [[nodiscard]] const std::vector<Use>& uses() const { return uses_; }

  /// The text of every use of one flag, in order: for flags that repeat.
  [[nodiscard]] std::vector<std::string> get_texts(std::string_view name) const;

  [[nodiscard]] bool get_bool(std::string_view name) const;
  [[nodiscard]] int64_t get_int(std::string_view name) const;
  [[nodiscard]] uint64_t get_uint(std::string_view name) const;
  [[nodiscard]] double get_float(std::string_view name) const;
  [[nodiscard]] std::string get_string(std::string_view name) const;  // kString and kEnum
  [[nodiscard]] uint64_t get_bytes(std::string_view name) const;
  [[nodiscard]] std::vector<uint64_t> get_uint_list(std::string_view name) const;
  [[nodiscard]] std::vector<double> get_float_list(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> get_string_list(std::string_view name) const;
  [[nodiscard]] std::vector<uint64_t> get_bytes_list(std::string_view name) const;

 private:
  friend class FlagParser;
  [[nodiscard]] std::string_view text_of(std::string_view name, FlagKind kind, bool list) const;

  const FlagTable* table_ = nullptr;
  const CommandRow* command_ = nullptr;
  bool wants_help_ = false;
  std::vector<Use> uses_;
  std::vector<std::string> positional_;
  std::vector<std::string> notes_;
};

/// The elements of a list of numbers in the syntax of kUint lists, such as one use of a repeating flag.
/// REQUIRES: text was accepted by a kUint list row (as every Use::text of such a row was).
std::vector<uint64_t> parse_uint_list(std::string_view text);

/// Parts of a text between commas; "\," is a comma within one.
std::vector<std::string> split_at_commas(std::string_view text);

/// Parses a command line. args: what follows the program's name; the first is the command (`--help` and `--version`
/// stand for `help` and `version`; no argument at all for `help`). table must outlive the result.
/// Errors: kInvalidArgument with a message that names the flag, what was found and what is right: an unknown command or
/// flag with the nearest known one, a flag of another command, a missing or superfluous value, a number out of range.
/// Foreign and unknown flags are told all at once, a line for each, with the first other mistake behind them.
Result<ParsedFlags> parse_flags(const FlagTable& table, std::span<const char* const> args);

/// `flags` with more uses after its own, each written without dashes: "ctx-size=4096", "c=4096", "no-slots". What is
/// left out of them stays as it is. notes() are those of the settings. Errors: those of parse_flags().
Result<ParsedFlags> add_flags(const ParsedFlags& flags, std::span<const std::string> settings);

/// Text of `tessera help`: every command with its summary. Lines end in \n and are at most 100 columns wide.
std::string help_overview(const FlagTable& table);

/// Text of `tessera COMMAND --help`: usage, example, and every flag by group with range, choices and default.
std::string help_command(const FlagTable& table, const CommandRow& command);

/// The command of that name. Errors: kInvalidArgument naming the nearest one, or what to do instead of one that people
/// bring along.
Result<const CommandRow*> find_command(const FlagTable& table, std::string_view name);

/// The reference page: Markdown, every command, every flag with all its names, default, range and JSON name.
std::string help_markdown(const FlagTable& table);

/// A manual page (roff, section 1) of all commands and flags.
std::string help_man(const FlagTable& table);

/// Shells for which completion_script() has a script.
inline constexpr std::string_view kCompletionShells = "bash zsh fish";

/// A script that completes commands, flags and the values of enums; files elsewhere. REQUIRES: shell is one of
/// kCompletionShells.
std::string completion_script(const FlagTable& table, std::string_view shell);

/// Whether the table is sound: names unique within each command (also the `no-` forms), commands known, defaults
/// and choices valid, JSON names unique within each command. Errors: kInternal naming the row. For a test.
Status check_flag_table(const FlagTable& table);

/// Steps that turn a into b: insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
/// Work is a.size() * b.size().
size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `given`, or "" when none is near enough to be meant (a third of the shorter one's
/// length, at most 3 steps). A candidate that `given` begins, or that equals it but for dashes, counts as nearest.
/// Ties: the first.
std::string_view nearest(std::string_view given, std::span<const std::string_view> candidates);

}  // namespace tessera
