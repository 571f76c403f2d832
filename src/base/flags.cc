#include "base/flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

#include "base/checked.h"
#include "base/flags_internal.h"

namespace tessera {
namespace {

/// The user's text as messages show it: in quotes, one line, not longer than a line.
std::string quoted(std::string_view text) {
  constexpr size_t kShown = 60;
  std::string shown(text.substr(0, kShown));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      c = '?';
    }
  }
  if (text.size() > kShown) {
    while (!shown.empty() && (static_cast<unsigned char>(shown.back()) & 0x80) != 0) {
      shown.pop_back();  // may be half a character
    }
    shown += "...";
  }
  return "\"" + shown + "\"";
}

/// The user's word as one would type it: in quotes only where a shell needs them.
std::string as_typed(std::string_view text) {
  const bool is_plain = !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::string_view("-_./:=,+%@").find(c) != std::string_view::npos || (c >= '0' && c <= '9') ||
           (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
  return is_plain ? std::string(text) : quoted(text);
}

/// The flag as people type it: its first other name, or the long one.
std::string short_name(const FlagRow& row) {
  const auto shorts = flags_internal::split_words(row.shorts);
  return shorts.empty() ? fmt::format("--{}", row.name) : std::string(shorts.front());
}

Status invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

/// All of text as a number of type T, or nothing.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) {
    return std::nullopt;
  }
  return value;
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "on" || text == "true" || text == "yes" || text == "1") {
    return true;
  }
  if (text == "off" || text == "false" || text == "no" || text == "0") {
    return false;
  }
  return std::nullopt;
}

/// log2 of the factor that a byte suffix stands for.
std::optional<unsigned> byte_suffix_shift(std::string_view suffix) {
  if (suffix.empty() || suffix == "B") {
    return 0;
  }
  const size_t place = std::string_view("KMGT").find(static_cast<char>(suffix[0] & ~0x20));
  const std::string_view rest = suffix.substr(1);
  if (place == std::string_view::npos || (!rest.empty() && rest != "B" && rest != "iB")) {
    return std::nullopt;
  }
  return static_cast<unsigned>(10 * (place + 1));
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits);
  const auto shift = byte_suffix_shift(text.substr(digits));
  if (number.empty() || !shift) {
    return std::nullopt;
  }
  if (const auto whole = parse_number<uint64_t>(number)) {
    return checked_mul(*whole, uint64_t{1} << *shift);
  }
  const auto fraction = parse_number<double>(number);
  const double bytes = fraction ? std::ldexp(*fraction, static_cast<int>(*shift)) : -1.0;
  if (!(bytes >= 0.0 && bytes < 0x1p63)) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(bytes);
}

std::string_view list_separators(FlagKind kind) {
  const bool number = kind == FlagKind::kInt || kind == FlagKind::kUint || kind == FlagKind::kFloat;
  return number ? ",/" : ",";
}

/// The elements of a list value; at least one, maybe empty ones.
std::vector<std::string_view> split_list(std::string_view text, FlagKind kind) {
  std::vector<std::string_view> parts;
  const std::string_view separators = list_separators(kind);
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.find_first_of(separators, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    if (end == text.size()) {
      return parts;
    }
    begin = end + 1;
  }
}

Status check_range(const FlagRow& row, std::string_view shown, std::string_view text, double value) {
  if (value >= row.min && value <= row.max) {
    return {};
  }
  return invalid(fmt::format("flag {}: {} is out of range ({})", shown, text, flags_internal::range_text(row)));
}

/// Checks a number against the row. T: the type the row's kind is read as; `what` names that for people.
template <typename T>
Status check_number(const FlagRow& row, std::string_view shown, std::string_view text, std::string_view what) {
  const auto value = parse_number<T>(text);
  if (!value && std::is_unsigned_v<T> && parse_number<int64_t>(text)) {
    return invalid(fmt::format("flag {}: {} is below {:.0f}", shown, text, std::max(row.min, 0.0)));
  }
  if (!value || !std::isfinite(static_cast<double>(*value))) {
    const bool digits_only = !text.empty() && text.find_first_not_of("0123456789", text[0] == '-') == text.npos;
    const auto words = flags_internal::split_words(row.words);
    const std::string nor = row.words.empty() || digits_only ? "" : fmt::format(", nor {}", fmt::join(words, " or "));
    return invalid(
        fmt::format("flag {}: {} is {}{}{}", shown, quoted(text), digits_only ? "too large for " : "not ", what, nor));
  }
  return check_range(row, shown, text, static_cast<double>(*value));
}

/// Checks one element of a value and replaces it by its canonical form.
Status check_element(const FlagRow& row, std::string_view shown, std::string& text, std::vector<std::string>& notes) {
  const auto words = flags_internal::split_words(row.words);
  if (std::ranges::find(words, std::string_view(text)) != words.end()) {
    return {};
  }
  switch (row.kind) {
    case FlagKind::kString: return {};
    case FlagKind::kInt: return check_number<int64_t>(row, shown, text, "a whole number");
    case FlagKind::kUint: return check_number<uint64_t>(row, shown, text, "a whole number of at least 0");
    case FlagKind::kFloat: return check_number<double>(row, shown, text, "a number");
    case FlagKind::kBool: {
      const auto value = parse_bool(text);
      if (!value) {
        return invalid(fmt::format("flag {}: {} is neither on nor off", shown, quoted(text)));
      }
      text = *value ? "on" : "off";
      return {};
    }
    case FlagKind::kBytes: {
      const auto value = parse_bytes(text);
      if (!value) {
        return invalid(fmt::format("flag {}: {} is not a number of bytes (such as 512M or 1.5G)", shown, quoted(text)));
      }
      return check_range(row, shown, text, static_cast<double>(*value));
    }
    case FlagKind::kEnum: break;
  }
  const auto choices = flags_internal::split_words(row.choices);
  if (std::ranges::find(choices, std::string_view(text)) != choices.end()) {
    return {};
  }
  for (const std::string_view alias : flags_internal::split_words(row.choice_aliases)) {
    const size_t equals = alias.find('=');
    if (alias.substr(0, equals) == text) {
      const std::string_view real = alias.substr(equals + 1);
      notes.push_back(fmt::format("flag {}: {} is called {} here", shown, text, real));
      text = real;
      return {};
    }
  }
  const std::string_view meant = nearest(text, choices);
  return invalid(fmt::format("flag {}: {} is not one of {}{}", shown, quoted(text), fmt::join(choices, ", "),
                             meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
}

/// Checks a whole value. shown: the flag as the user typed it. text: replaced by its canonical form.
Status check_value(const FlagRow& row, std::string_view shown, std::string& text, std::vector<std::string>& notes) {
  if (!row.list) {
    return check_element(row, shown, text, notes);
  }
  std::string canonical;
  for (const std::string_view part : split_list(text, row.kind)) {
    if (part.empty()) {
      return invalid(fmt::format("flag {}: {} has an empty element", shown, quoted(text)));
    }
    std::string element(part);
    TRY(check_element(row, shown, element, notes));
    canonical += canonical.empty() ? "" : ",";
    canonical += element;
  }
  text = std::move(canonical);
  return {};
}

/// A flag as found in the table.
struct Match {
  const FlagRow* row = nullptr;
  bool negative = false;
};

/// The row of this command that `spelled` (without `=value`) names.
std::optional<Match> find_flag(const FlagTable& table, std::string_view command, std::string_view spelled) {
  for (const FlagRow& row : table.flags) {
    if (!flags_internal::belongs_to(row, command)) {
      continue;
    }
    if (std::ranges::count(flags_internal::positive_spellings(row), spelled) > 0) {
      return Match{&row, false};
    }
    if (std::ranges::count(flags_internal::negative_spellings(row), spelled) > 0) {
      return Match{&row, true};
    }
  }
  return std::nullopt;
}

/// The one of that name, or null.
const ForeignFlag* find_foreign(std::span<const ForeignFlag> all, std::string_view name) {
  const auto found = std::ranges::find_if(all, [&](const ForeignFlag& candidate) {
    const auto names = flags_internal::split_words(candidate.names);
    return std::ranges::find(names, name) != names.end();
  });
  return found == all.end() ? nullptr : &*found;
}

/// Nearest spelling among the rows for which `wanted` holds; owns the result.
template <typename Predicate>
std::string nearest_flag(const FlagTable& table, std::string_view spelled, Predicate wanted) {
  std::vector<std::string> all;
  for (const FlagRow& row : table.flags) {
    if (wanted(row)) {
      for (std::string& spelling : flags_internal::spellings(row)) {
        all.push_back(std::move(spelling));
      }
    }
  }
  const std::vector<std::string_view> views(all.begin(), all.end());
  return std::string(nearest(spelled, views));
}

Status unknown_flag(const FlagTable& table, std::string_view command, std::string_view spelled) {
  std::vector<std::string_view> others;
  for (const CommandRow& other : table.commands) {
    if (find_flag(table, other.name, spelled)) {
      others.push_back(other.name);
    }
  }
  if (!others.empty()) {
    return invalid(fmt::format("flag {} belongs to `{} {}`, not to `{} {}`", spelled, table.program,
                               fmt::join(others, "|"), table.program, command));
  }
  const std::string in_quotes = quoted(spelled);
  const std::string shown = in_quotes.substr(1, in_quotes.size() - 2);
  const std::string here =
      nearest_flag(table, spelled, [&](const FlagRow& row) { return flags_internal::belongs_to(row, command); });
  if (!here.empty()) {
    return invalid(fmt::format("unknown flag {}; did you mean {}?", shown, here));
  }
  const std::string elsewhere = nearest_flag(table, spelled, [](const FlagRow&) { return true; });
  if (!elsewhere.empty()) {
    return invalid(fmt::format("unknown flag {}; `{} {}` has none like it, another command has {}", shown,
                               table.program, command, elsewhere));
  }
  return invalid(fmt::format("unknown flag {}; `{} {} --help` lists all", shown, table.program, command));
}

}  // namespace

/// One pass over a command line.
class FlagParser {
 public:
  FlagParser(const FlagTable& table, const CommandRow& command, std::span<const char* const> args)
      : table_(table), args_(args) {
    result_.table_ = &table;
    result_.command_ = &command;
  }
  explicit FlagParser(ParsedFlags flags) : table_(*flags.table_), result_(std::move(flags)) { result_.notes_.clear(); }

  Result<ParsedFlags> parse() {
    const auto end_of_flags = std::ranges::find(args_, std::string_view("--"));
    for (auto arg = args_.begin(); arg != end_of_flags; ++arg) {
      if (*arg == std::string_view("--help") || *arg == std::string_view("-h")) {
        result_.wants_help_ = true;
        return std::move(result_);
      }
    }
    Status mistake;  // the first; behind it only flags that are not known are told
    while (next_ < args_.size()) {
      const std::string_view arg = args_[next_++];
      if (arg == "--") {
        result_.positional_.insert(result_.positional_.end(), args_.begin() + static_cast<ptrdiff_t>(next_),
                                   args_.end());
        break;
      }
      if (arg.size() > 1 && arg[0] == '-') {
        Status found = parse_flag(arg);
        if (mistake.ok()) {
          mistake = std::move(found);
        }
      } else {
        result_.positional_.emplace_back(arg);
      }
    }
    TRY(check_refused(mistake));
    TRY(check_positional());
    TRY(check_required());
    return std::move(result_);
  }

  Result<ParsedFlags> add(std::span<const std::string> settings) {
    for (const std::string& setting : settings) {
      const std::string name = setting.substr(0, setting.find('='));
      const bool is_short = find_flag(table_, result_.command_->name, "-" + name).has_value();
      TRY(parse_flag((is_short ? "-" : "--") + setting));
    }
    TRY(check_refused({}));
    return std::move(result_);
  }

 private:
  Status parse_flag(std::string_view arg) {
    const size_t equals = arg.find('=');
    const std::string_view spelled = arg.substr(0, equals);
    const auto match = find_flag(table_, result_.command_->name, spelled);
    if (!match && refuse_foreign(arg, spelled)) {
      return {};
    }
    if (!match) {
      refused_.push_back(unknown_flag(table_, result_.command_->name, spelled).message());
      pass_over_value(arg, spelled);
      return {};
    }
    const FlagRow& row = *match->row;
    std::string text;
    if (equals != std::string_view::npos) {
      if (match->negative) {
        return invalid(fmt::format("flag {} takes no value; found {}", spelled, quoted(arg.substr(equals + 1))));
      }
      text = arg.substr(equals + 1);
    } else if (row.kind == FlagKind::kBool) {
      text = match->negative ? "off" : "on";
      pass_over_switch(row);
    } else {
      ASSIGN_OR_RETURN(text, take_value(row, spelled));
    }
    TRY(check_value(row, spelled, text, result_.notes_));
    if (!row.instead.empty()) {
      result_.notes_.push_back(fmt::format("flag {} has no effect: {}", spelled, row.instead));
    }
    result_.uses_.push_back({&row, std::move(text)});
    return {};
  }

  // Whether it is a foreign flag; notes what to say of it and passes its value over, which may be a secret.
  bool refuse_foreign(std::string_view arg, std::string_view spelled) {
    const ForeignFlag* flag = find_foreign(table_.foreign, spelled);
    if (flag == nullptr) {
      return false;
    }
    if (flag->takes_value) {
      pass_over_value(arg, spelled);
    }
    refused_.push_back(fmt::format("flag {}: {} has none like it: {}", spelled, table_.program, flag->why));
    return true;
  }

  void pass_over_value(std::string_view arg, std::string_view spelled) {
    if (arg.size() == spelled.size() && next_ < args_.size() && is_value(args_[next_])) {
      ++next_;
    }
  }

  // Other programs give a number to some switches, or a list: `--mmap 0,1`. Where the switch has no effect it has none
  // either. A command that takes further words keeps them.
  void pass_over_switch(const FlagRow& row) {
    if (row.instead.empty() || result_.command_->max_positional > 0 || next_ == args_.size()) {
      return;
    }
    const std::string_view value = args_[next_];
    if (!value.empty() && value.find_first_not_of("01,") == value.npos) {
      ++next_;
    }
  }

  // Also -1 and - alone are values.
  static bool is_value(std::string_view arg) {
    return arg.size() < 2 || arg[0] != '-' || arg.find_first_of("0123456789.") == 1;
  }

  // Also names the mistake that ended the pass, if one did.
  Status check_refused(const Status& mistake) {
    if (refused_.empty()) {
      return mistake;
    }
    if (!mistake.ok()) {
      refused_.push_back(mistake.message());
    }
    return invalid(fmt::format("{}", fmt::join(refused_, "\n")));
  }

  Result<std::string> take_value(const FlagRow& row, std::string_view spelled) {
    const std::string wanted = flags_internal::value_text(row);
    // `-fa` alone means `-fa on`.
    const bool may_be_bare = row.placeholder.starts_with("on|") || row.choices.starts_with("on ");
    if (may_be_bare && (next_ == args_.size() || args_[next_][0] == '-')) {
      return std::string("on");
    }
    if (next_ == args_.size()) {
      return invalid(fmt::format("flag {} needs a value: {}", spelled, wanted));
    }
    const std::string_view value = args_[next_];
    const std::string_view follower = value.substr(0, value.find('='));
    if (value.size() > 1 && value[0] == '-' && find_flag(table_, result_.command_->name, follower)) {
      return invalid(fmt::format("flag {} needs a value ({}), but flag {} follows; write {}={}... if that is the value",
                                 spelled, wanted, follower, spelled, follower));
    }
    ++next_;
    return std::string(value);
  }

  Status check_positional() const {
    const CommandRow& command = *result_.command_;
    const size_t n = result_.positional_.size();
    if (n > command.max_positional) {
      return invalid(fmt::format("`{} {}`: unexpected argument {}{}", table_.program, command.name,
                                 quoted(result_.positional_[command.max_positional]), positional_hint()));
    }
    if (n < command.min_positional) {
      return invalid(fmt::format("`{} {}` needs {}", table_.program, command.name, command.positional));
    }
    return {};
  }

  // What the unexpected argument may have been meant for: words without flags stand for the required flags that are
  // missing, in the table's order, and what is left over, or has blanks, for the prompt.
  std::string positional_hint() const {
    if (asks_for_help()) {
      return help_hint();
    }
    const auto prompt = find_flag(table_, result_.command_->name, "--prompt");
    std::string line;
    std::span<const std::string> words = result_.positional_;
    for (const FlagRow* row : missing_flags()) {
      const bool is_prompt = !words.empty() && prompt && words.front().find(' ') != std::string::npos;
      if (is_prompt) {
        line += fmt::format(" {} {}", short_name(*row), flags_internal::value_text(*row));
      } else if (!words.empty()) {
        line += fmt::format(" {} {}", short_name(*row), as_typed(words.front()));
        words = words.subspan(1);
      }
    }
    if (!words.empty() && prompt && !result_.given("prompt")) {
      line += fmt::format(" {} {}", short_name(*prompt->row), quoted(fmt::format("{}", fmt::join(words, " "))));
    } else if (!words.empty() && !line.empty() && result_.command_->max_positional > 0) {
      line += " " + quoted(fmt::format("{}", fmt::join(words, " ")));
    }
    if (!line.empty()) {
      return fmt::format("; did you mean{}?", line);
    }
    return prompt || result_.command_->max_positional > 0 ? "; a text of several words needs quotes" : "";
  }

  Status check_required() const {
    const auto missing = missing_flags();
    if (missing.empty()) {
      return {};
    }
    return invalid(fmt::format("`{} {}` needs the flag {}{}", table_.program, result_.command_->name,
                               flags_internal::names_and_value(*missing.front()), asks_for_help() ? help_hint() : ""));
  }

  // Required flags that were not given.
  std::vector<const FlagRow*> missing_flags() const {
    std::vector<const FlagRow*> missing;
    for (const FlagRow& row : table_.flags) {
      if (row.required && flags_internal::belongs_to(row, result_.command_->name) && !result_.given(row.name)) {
        missing.push_back(&row);
      }
    }
    return missing;
  }

  // `tessera run help`. Asked only where the line is wrong: "help" may be a text.
  bool asks_for_help() const {
    return result_.uses_.empty() && result_.positional_.size() == 1 && result_.positional_.front() == "help";
  }

  std::string help_hint() const {
    return fmt::format("; did you mean `{} {} --help`?", table_.program, result_.command_->name);
  }

  const FlagTable& table_;
  std::span<const char* const> args_;
  size_t next_ = 0;
  ParsedFlags result_;
  std::vector<std::string> refused_;  // what to say of foreign flags
};

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',') {
      parts.emplace_back();
      continue;
    }
    i += text.substr(i).starts_with("\\,") ? 1 : 0;
    parts.back() += text[i];
  }
  return parts;
}

Result<ParsedFlags> parse_flags(const FlagTable& table, std::span<const char* const> args) {
  std::string_view name = args.empty() ? std::string_view("help") : args[0];
  if (name == "--help" || name == "-h") {
    name = "help";
  } else if (name == "--version") {
    name = "version";
  } else if (name.size() > 1 && name[0] == '-') {
    return invalid(fmt::format("the command comes first: `{} COMMAND {} ...`; `{} help` lists all commands",
                               table.program, name, table.program));
  }
  ASSIGN_OR_RETURN(const CommandRow* command, find_command(table, name));
  return FlagParser(table, *command, args.empty() ? args : args.subspan(1)).parse();
}

Result<ParsedFlags> add_flags(const ParsedFlags& flags, std::span<const std::string> settings) {
  return FlagParser(flags).add(settings);
}

Result<const CommandRow*> find_command(const FlagTable& table, std::string_view name) {
  std::vector<std::string_view> names;
  for (const CommandRow& command : table.commands) {
    if (command.name == name) {
      return &command;
    }
    names.push_back(command.name);
  }
  if (const ForeignFlag* foreign = find_foreign(table.foreign_commands, name)) {
    return invalid(fmt::format("command {} is another program's: {}", name, foreign->why));
  }
  const std::string_view meant = nearest(name, names);
  return invalid(fmt::format("unknown command {}; {}", quoted(name),
                             meant.empty() ? fmt::format("`{} help` lists all", table.program)
                                           : fmt::format("did you mean `{} {}`?", table.program, meant)));
}

bool ParsedFlags::given(std::string_view name) const {
  return std::ranges::any_of(uses_, [&](const Use& use) { return use.row->name == name; });
}

std::string_view ParsedFlags::text_of(std::string_view name, FlagKind kind, bool list) const {
  const auto row = std::ranges::find_if(table_->flags, [&](const FlagRow& candidate) {
    return candidate.name == name && flags_internal::belongs_to(candidate, command_->name);
  });
  CHECK(row != table_->flags.end() && row->list == list);
  CHECK(row->kind == kind || (kind == FlagKind::kString && row->kind == FlagKind::kEnum));
  for (auto use = uses_.rbegin(); use != uses_.rend(); ++use) {
    if (use->row->name == name) {
      return use->text;
    }
  }
  return row->default_text;
}

std::vector<std::string> ParsedFlags::get_texts(std::string_view name) const {
  std::vector<std::string> texts;
  for (const Use& use : uses_) {
    if (use.row->name == name) {
      texts.push_back(use.text);
    }
  }
  return texts;
}

bool ParsedFlags::get_bool(std::string_view name) const {
  return parse_bool(text_of(name, FlagKind::kBool, false)).value_or(false);
}

int64_t ParsedFlags::get_int(std::string_view name) const {
  return parse_number<int64_t>(text_of(name, FlagKind::kInt, false)).value_or(0);
}

uint64_t ParsedFlags::get_uint(std::string_view name) const {
  return parse_number<uint64_t>(text_of(name, FlagKind::kUint, false)).value_or(0);
}

double ParsedFlags::get_float(std::string_view name) const {
  return parse_number<double>(text_of(name, FlagKind::kFloat, false)).value_or(0.0);
}

std::string ParsedFlags::get_string(std::string_view name) const {
  return std::string(text_of(name, FlagKind::kString, false));
}

uint64_t ParsedFlags::get_bytes(std::string_view name) const {
  return parse_bytes(text_of(name, FlagKind::kBytes, false)).value_or(0);
}

namespace {
/// Elements of a checked list text, each through `parse`; the text of a list that is absent is empty.
template <typename T, typename Parse>
std::vector<T> parse_list(std::string_view text, FlagKind kind, Parse parse) {
  std::vector<T> values;
  if (!text.empty()) {
    for (const std::string_view part : split_list(text, kind)) {
      const auto value = parse(part);
      CHECK(value.has_value());
      values.push_back(*value);
    }
  }
  return values;
}
}  // namespace

std::vector<uint64_t> parse_uint_list(std::string_view text) {
  return parse_list<uint64_t>(text, FlagKind::kUint, parse_number<uint64_t>);
}

std::vector<uint64_t> ParsedFlags::get_uint_list(std::string_view name) const {
  return parse_uint_list(text_of(name, FlagKind::kUint, true));
}

std::vector<double> ParsedFlags::get_float_list(std::string_view name) const {
  return parse_list<double>(text_of(name, FlagKind::kFloat, true), FlagKind::kFloat, parse_number<double>);
}

std::vector<std::string> ParsedFlags::get_string_list(std::string_view name) const {
  return parse_list<std::string>(text_of(name, FlagKind::kString, true), FlagKind::kString,
                                 [](std::string_view part) { return std::optional(std::string(part)); });
}

std::vector<uint64_t> ParsedFlags::get_bytes_list(std::string_view name) const {
  return parse_list<uint64_t>(text_of(name, FlagKind::kBytes, true), FlagKind::kBytes, parse_bytes);
}

namespace {

/// One row by itself.
Status check_row(const FlagTable& table, const FlagRow& row) {
  const auto wrong = [&](std::string_view what) {
    return Status{ErrorCode::kInternal, fmt::format("flag row --{}: {}", row.name, what)};
  };
  if (row.name.empty() || row.name.starts_with("-") || row.name.starts_with("no-")) {
    return wrong("the long name is empty or begins with a dash or no-");
  }
  for (const std::string_view names : {row.shorts, row.negations}) {
    for (const std::string_view other : flags_internal::split_words(names)) {
      if (!other.starts_with("-")) {
        return wrong("another name lacks its dash");
      }
    }
  }
  if (!row.negations.empty() && row.kind != FlagKind::kBool) {
    return wrong("only a boolean can be negated");
  }
  if (row.help.empty() || row.group.empty() || row.commands.empty()) {
    return wrong("help, group or commands are missing");
  }
  if ((row.kind == FlagKind::kEnum) == row.choices.empty()) {
    return wrong("choices belong to enums, and every enum has some");
  }
  if (row.list && row.kind == FlagKind::kBool) {
    return wrong("a boolean cannot be a list");
  }
  for (const std::string_view command : flags_internal::split_words(row.commands)) {
    if (command != "*" && !find_command(table, command).ok()) {
      return wrong("it names an unknown command");
    }
  }
  if (!row.default_text.empty()) {
    std::string text(row.default_text);
    std::vector<std::string> notes;
    const Status status = check_value(row, fmt::format("--{}", row.name), text, notes);
    if (!status.ok() || !notes.empty()) {
      return wrong("its default is not a valid value");
    }
  }
  return {};
}

}  // namespace

Status check_flag_table(const FlagTable& table) {
  for (const FlagRow& row : table.flags) {
    TRY(check_row(table, row));
  }
  for (const CommandRow& command : table.commands) {
    std::vector<std::string> names{"--help", "-h", "-"};
    std::vector<std::string> json_names;
    for (const FlagRow& row : table.flags) {
      if (flags_internal::belongs_to(row, command.name)) {
        for (std::string& spelling : flags_internal::spellings(row)) {
          names.push_back(std::move(spelling));
        }
        json_names.push_back(flag_json_name(row));
      }
    }
    for (const ForeignFlag& flag : table.foreign) {
      const auto foreign = flags_internal::split_words(flag.names);
      names.insert(names.end(), foreign.begin(), foreign.end());
      if (foreign.empty() || flag.why.empty()) {
        return {ErrorCode::kInternal,
                fmt::format("foreign flag {}: its names or its sentence are missing", flag.names)};
      }
    }
    for (auto* all : {&names, &json_names}) {
      std::ranges::sort(*all);
      const auto twice = std::ranges::adjacent_find(*all);
      if (twice != all->end()) {
        return {ErrorCode::kInternal, fmt::format("command {} has {} twice", command.name, *twice)};
      }
    }
  }
  return {};
}

}  // namespace tessera
