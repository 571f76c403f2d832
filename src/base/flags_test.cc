#include "base/flags.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr CommandRow kCommands[] = {
    {.name = "bake", .summary = "bake a cake", .example = "oven bake -t 180"},
    {.name = "list",
     .summary = "list the cakes",
     .positional = "KIND [COLOUR]",
     .min_positional = 1,
     .max_positional = 2},
    {.name = "help", .summary = "help"},
    {.name = "version", .summary = "version"},
};

constexpr FlagRow kFlags[] = {
    {.name = "temp",
     .shorts = "-t --heat",
     .kind = FlagKind::kFloat,
     .placeholder = "T",
     .default_text = "180.5",
     .min = 0,
     .max = 300,
     .group = "Heat",
     .commands = "bake",
     .help = "Temperature",
     .json_name = "temperature"},
    {.name = "rack-size",
     .shorts = "-rs",
     .kind = FlagKind::kUint,
     .placeholder = "N",
     .default_text = "3",
     .min = 1,
     .max = 8,
     .group = "Heat",
     .commands = "bake",
     .help = "Racks"},
    {.name = "offset",
     .kind = FlagKind::kInt,
     .placeholder = "N",
     .default_text = "-1",
     .group = "Heat",
     .commands = "bake",
     .help = "Offset"},
    {.name = "fan",
     .shorts = "-f",
     .kind = FlagKind::kBool,
     .default_text = "on",
     .group = "Heat",
     .commands = "bake",
     .help = "Run the fan"},
    {.name = "glass",
     .shorts = "-g",
     .negations = "-ng --opaque",
     .kind = FlagKind::kBool,
     .group = "Heat",
     .commands = "bake",
     .help = "Glass"},
    {.name = "light", .kind = FlagKind::kBool, .group = "Heat", .commands = "bake list", .help = "Light"},
    {.name = "mode",
     .shorts = "-sm",
     .kind = FlagKind::kEnum,
     .default_text = "layer",
     .choices = "none layer tensor",
     .choice_aliases = "row=tensor",
     .group = "Heat",
     .commands = "bake",
     .help = "Mode"},
    {.name = "memory",
     .kind = FlagKind::kBytes,
     .placeholder = "BYTES",
     .group = "Heat",
     .commands = "bake",
     .help = "Memory"},
    {.name = "budgets", .kind = FlagKind::kBytes, .list = true, .group = "Heat", .commands = "bake", .help = "Budgets"},
    {.name = "shares",
     .shorts = "-ts",
     .kind = FlagKind::kFloat,
     .list = true,
     .min = 0,
     .group = "Heat",
     .commands = "bake",
     .help = "Shares"},
    {.name = "names", .list = true, .default_text = "a:0,b:1", .group = "Heat", .commands = "bake", .help = "Names"},
    {.name = "ids",
     .kind = FlagKind::kUint,
     .list = true,
     .repeats = true,
     .max = 99,
     .group = "Heat",
     .commands = "bake",
     .help = "Ids"},
    {.name = "text", .shorts = "-p", .placeholder = "TEXT", .group = "Heat", .commands = "bake", .help = "Text"},
    {.name = "racks-used",
     .kind = FlagKind::kInt,
     .placeholder = "N",
     .words = "auto all",
     .group = "Habit",
     .commands = "bake",
     .help = "Racks used",
     .instead = "use --rack-size"},
    {.name = "layers",
     .shorts = "-ngl",
     .placeholder = "N",
     .group = "Habit",
     .commands = "bake",
     .help = "Layers",
     .instead = "use --names"},
    {.name = "plug",
     .negations = "-nplug",
     .kind = FlagKind::kBool,
     .group = "Habit",
     .commands = "bake",
     .help = "Plug",
     .instead = "the oven is always plugged in"},
    {.name = "colour-table", .placeholder = "FILE", .group = "Looks", .commands = "list", .help = "Colours"},
    {.name = "verbose", .kind = FlagKind::kBool, .group = "Looks", .commands = "*", .help = "Say | more"},
};

constexpr ForeignFlag kForeign[] = {
    {"-gr --grill", true, "there is no grill; use --temp 300"},
    {"--steam --no-steam", false, "there is no water"},
};

constexpr FlagTable kTable{
    .program = "oven", .summary = "bakes", .commands = kCommands, .flags = kFlags, .foreign = kForeign};

Result<ParsedFlags> parse(std::vector<const char*> args) {
  return parse_flags(kTable, args);
}

std::string error_of(std::vector<const char*> args) {
  const auto parsed = parse(std::move(args));
  return parsed.ok() ? "ok" : parsed.status().message();
}

TEST(Flags, TableIsSound) {
  const Status status = check_flag_table(kTable);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Flags, DefaultsApplyWhenNothingIsGiven) {
  const auto flags = parse({"bake"});
  ASSERT_TRUE(flags.ok()) << flags.status().message();
  EXPECT_DOUBLE_EQ(flags->get_float("temp"), 180.5);
  EXPECT_EQ(flags->get_uint("rack-size"), 3u);
  EXPECT_EQ(flags->get_int("offset"), -1);
  EXPECT_TRUE(flags->get_bool("fan"));
  EXPECT_FALSE(flags->get_bool("light"));
  EXPECT_EQ(flags->get_string("mode"), "layer");
  EXPECT_EQ(flags->get_bytes("memory"), 0u);
  EXPECT_THAT(flags->get_string_list("names"), ElementsAre("a:0", "b:1"));
  EXPECT_THAT(flags->get_uint_list("ids"), ElementsAre());
  EXPECT_FALSE(flags->given("temp"));
  EXPECT_EQ(flags->command().name, "bake");
}

TEST(Flags, EveryFormOfAValueIsRead) {
  for (const auto& args : std::vector<std::vector<const char*>>{{"bake", "--temp", "20"},
                                                                {"bake", "--temp=20"},
                                                                {"bake", "-t", "20"},
                                                                {"bake", "-t=20"},
                                                                {"bake", "--heat", "20"},
                                                                {"bake", "-t", "7", "--temp", "20"}}) {
    const auto flags = parse(args);
    ASSERT_TRUE(flags.ok()) << flags.status().message();
    EXPECT_DOUBLE_EQ(flags->get_float("temp"), 20.0);
    EXPECT_TRUE(flags->given("temp"));
  }
}

TEST(Flags, BooleansHavePositiveNegativeAndSpelledForms) {
  for (const char* off : {"--no-fan", "-no-f", "--fan=off", "--fan=false", "-f=0"}) {
    const auto flags = parse({"bake", off});
    ASSERT_TRUE(flags.ok()) << off;
    EXPECT_FALSE(flags->get_bool("fan")) << off;
  }
  for (const char* on : {"--light", "--light=on", "--light=1"}) {
    const auto flags = parse({"bake", on});
    ASSERT_TRUE(flags.ok()) << on;
    EXPECT_TRUE(flags->get_bool("light")) << on;
  }
  EXPECT_TRUE(parse({"bake", "--no-fan", "--fan"})->get_bool("fan"));
  EXPECT_THAT(error_of({"bake", "--fan=maybe"}), HasSubstr("neither on nor off"));
  EXPECT_THAT(error_of({"bake", "--no-fan=on"}), HasSubstr("--no-fan takes no value"));
}

TEST(Flags, NumbersAreCheckedWhole) {
  EXPECT_THAT(error_of({"bake", "-t", "301"}), ::testing::StrEq("flag -t: 301 is out of range (0 to 300)"));
  EXPECT_THAT(error_of({"bake", "--temp", "-0.5"}), HasSubstr("out of range"));
  EXPECT_THAT(error_of({"bake", "--rack-size", "0"}), HasSubstr("out of range (1 to 8)"));
  for (const char* bad : {"", "x", "3x", "3.5", "+3", " 3", "0x3", "1e1"}) {
    EXPECT_THAT(error_of({"bake", "-rs", bad}), HasSubstr("flag -rs")) << bad;
  }
  for (const char* bad : {"nan", "inf", "1e999", "", "1,5", "--"}) {
    EXPECT_THAT(error_of({"bake", "-t", bad}), HasSubstr("is not a number")) << bad;
  }
  EXPECT_THAT(error_of({"bake", "--offset", "9223372036854775808"}), HasSubstr("too large"));
  EXPECT_EQ(parse({"bake", "--offset", "-9223372036854775808"})->get_int("offset"), INT64_MIN);
}

TEST(Flags, BytesTakeSuffixes) {
  const auto bytes = [](const char* text) {
    const auto flags = parse({"bake", "--memory", text});
    return flags.ok() ? flags->get_bytes("memory") : UINT64_MAX;
  };
  EXPECT_EQ(bytes("0"), 0u);
  EXPECT_EQ(bytes("17"), 17u);
  EXPECT_EQ(bytes("17B"), 17u);
  EXPECT_EQ(bytes("2k"), 2048u);
  EXPECT_EQ(bytes("3MiB"), 3u << 20);
  EXPECT_EQ(bytes("1.5G"), 3u << 29);
  EXPECT_EQ(bytes("2TB"), uint64_t{2} << 40);
  for (const char* bad : {"", "G", "1.2.3G", "5X", "5MM", "-1", "1e3", "99999999999T", "9999999999.5T", "5Mib"}) {
    EXPECT_EQ(bytes(bad), UINT64_MAX) << bad;
  }
  EXPECT_THAT(parse({"bake", "--budgets", "1G,512M"})->get_bytes_list("budgets"), ElementsAre(1u << 30, 1u << 29));
}

TEST(Flags, ListsAreSplitAndCheckedElementByElement) {
  EXPECT_THAT(parse({"bake", "-ts", "3,1"})->get_float_list("shares"), ElementsAre(3.0, 1.0));
  EXPECT_THAT(parse({"bake", "-ts", "3/1"})->get_float_list("shares"), ElementsAre(3.0, 1.0));
  EXPECT_THAT(parse({"bake", "--names", "x/y,z"})->get_string_list("names"), ElementsAre("x/y", "z"));
  EXPECT_THAT(error_of({"bake", "-ts", "3,-1"}), HasSubstr("flag -ts: -1 is out of range (at least 0)"));
  EXPECT_THAT(error_of({"bake", "-ts", "3,,1"}), HasSubstr("empty element"));
  EXPECT_THAT(error_of({"bake", "-ts", ""}), HasSubstr("empty element"));
  EXPECT_THAT(error_of({"bake", "--ids", "1,100"}), HasSubstr("100 is out of range"));
}

TEST(Flags, SettingsComeOverWhatWasGiven) {
  const auto flags = parse({"bake", "-t", "20", "-rs", "2"});
  ASSERT_TRUE(flags.ok());
  const auto added = add_flags(*flags, std::vector<std::string>{"t=25", "heat=30", "no-fan", "memory=1K"});
  ASSERT_TRUE(added.ok()) << added.status().message();
  EXPECT_DOUBLE_EQ(added->get_float("temp"), 30);
  EXPECT_EQ(added->get_uint("rack-size"), 2U);
  EXPECT_FALSE(added->get_bool("fan"));
  EXPECT_EQ(added->get_bytes("memory"), 1024U);
  EXPECT_DOUBLE_EQ(flags->get_float("temp"), 20);
  const auto message = [&](const std::string& setting) {
    const auto result = add_flags(*flags, std::vector<std::string>{setting});
    return result.ok() ? "" : result.status().message();
  };
  EXPECT_THAT(message("rack-sise=4"), HasSubstr("unknown flag --rack-sise; did you mean --rack-size?"));
  EXPECT_THAT(message("rack-size=9"), HasSubstr("out of range"));
  EXPECT_THAT(message("rack-size"), HasSubstr("needs a value"));
  EXPECT_THAT(message("help"), HasSubstr("unknown flag"));
  EXPECT_THAT(message(""), HasSubstr("unknown flag"));
}

TEST(Flags, RepeatedFlagsKeepTheirOrder) {
  const auto flags = parse({"bake", "--ids", "1,2", "-p", "between", "--ids=3"});
  ASSERT_TRUE(flags.ok());
  ASSERT_EQ(flags->uses().size(), 3u);
  EXPECT_THAT(parse_uint_list(flags->uses()[0].text), ElementsAre(1u, 2u));
  EXPECT_EQ(flags->uses()[1].text, "between");
  EXPECT_EQ(flags->uses()[2].row->name, "ids");
}

TEST(Flags, EnumsSuggestAndRename) {
  EXPECT_THAT(error_of({"bake", "-sm", "tensr"}), HasSubstr("not one of none, layer, tensor; did you mean tensor?"));
  const auto flags = parse({"bake", "-sm", "row"});
  ASSERT_TRUE(flags.ok());
  EXPECT_EQ(flags->get_string("mode"), "tensor");
  EXPECT_THAT(flags->notes(), ElementsAre("flag -sm: row is called tensor here"));
}

TEST(Flags, ForeignFlagsAreToldAllAtOnce) {
  constexpr const char* kGrill = "flag -gr: oven has none like it: there is no grill; use --temp 300";
  EXPECT_EQ(error_of({"bake", "-gr", "5"}), kGrill);
  EXPECT_EQ(error_of({"bake", "-gr=5", "-t", "20"}), kGrill);
  EXPECT_EQ(error_of({"bake", "--grill"}), "flag --grill: oven has none like it: there is no grill; use --temp 300");
  EXPECT_EQ(error_of({"bake", "--no-steam"}), "flag --no-steam: oven has none like it: there is no water");
  // Values go with their flags, also negative ones; what is no value does not, and the command's own flags are read.
  const std::string all = error_of({"bake", "--steam", "-gr", "-1", "--grill", "-t", "20", "--zzzzzz", "--temp", "x"});
  EXPECT_EQ(std::ranges::count(all, '\n'), 4);
  EXPECT_THAT(all, HasSubstr("flag --steam: "));
  EXPECT_THAT(all, HasSubstr("flag -gr: "));
  EXPECT_THAT(all, HasSubstr("flag --grill: "));
  EXPECT_THAT(all, HasSubstr("\nunknown flag --zzzzzz"));
  EXPECT_THAT(all, HasSubstr("\nflag --temp: "));
  EXPECT_EQ(std::ranges::count(error_of({"bake", "--zzzzzz", "-t", "20", "--steam", "-gr", "5"}), '\n'), 2)
      << "also behind another mistake";
  const auto flags = parse({"bake"});
  ASSERT_TRUE(flags.ok());
  const std::vector<std::string> settings = {"grill=5"};
  EXPECT_THAT(add_flags(*flags, settings).status().message(), HasSubstr("flag --grill: "));
  EXPECT_THAT(help_markdown(kTable), HasSubstr("| `-gr, --grill` | there is no grill; use --temp 300 |"));
}

TEST(Flags, ForeignCommandsAreAnswered) {
  constexpr ForeignFlag kCommand[] = {{"fry grill", false, "use bake"}};
  FlagTable table = kTable;
  table.foreign_commands = kCommand;
  EXPECT_EQ(find_command(table, "grill").status().message(), "command grill is another program's: use bake");
  EXPECT_TRUE(find_command(table, "bake").ok());
  EXPECT_THAT(find_command(table, "gril").status().message(), HasSubstr("unknown command"));
}

TEST(Flags, NumbersMayHaveWords) {
  EXPECT_TRUE(parse({"bake", "--racks-used", "all"}).ok());
  EXPECT_TRUE(parse({"bake", "--racks-used", "-3"}).ok());
  EXPECT_EQ(error_of({"bake", "--racks-used", "al"}),
            "flag --racks-used: \"al\" is not a whole number, nor auto or all");
}

TEST(Flags, ForeignFlagThatTheTableHasIsNoSoundTable) {
  constexpr ForeignFlag kOwn[] = {{"--fan", false, "there is one"}};
  FlagTable table = kTable;
  table.foreign = kOwn;
  EXPECT_EQ(check_flag_table(table).message(), "command bake has --fan twice");
  constexpr ForeignFlag kSilent[] = {{"--a", false, ""}};
  table.foreign = kSilent;
  EXPECT_FALSE(check_flag_table(table).ok());
}

TEST(Flags, UnknownFlagsAreExplained) {
  EXPECT_EQ(error_of({"bake", "--tempp", "1"}), "unknown flag --tempp; did you mean --temp?");
  EXPECT_EQ(error_of({"bake", "--tmep=1"}), "unknown flag --tmep; did you mean --temp?");
  EXPECT_EQ(error_of({"bake", "-temp", "1"}), "unknown flag -temp; did you mean --temp?");
  EXPECT_EQ(error_of({"bake", "--rack", "1"}), "unknown flag --rack; did you mean --rack-size?");
  EXPECT_EQ(error_of({"bake", "--no-fann"}), "unknown flag --no-fann; did you mean --no-fan?");
  EXPECT_EQ(error_of({"bake", "--colour-table", "f"}),
            "flag --colour-table belongs to `oven list`, not to `oven bake`");
  EXPECT_EQ(error_of({"bake", "--zzzzzz", "-1", "-t", "hot", "--yyyyyy", "-gr", "5"}),
            "unknown flag --zzzzzz; `oven bake --help` lists all\n"
            "unknown flag --yyyyyy; `oven bake --help` lists all\n"
            "flag -gr: oven has none like it: there is no grill; use --temp 300\n"
            "flag -t: \"hot\" is not a number")
      << "all are told, and the first other mistake last";
  EXPECT_THAT(error_of({"bake", "--color-table", "f"}), HasSubstr("another command has --colour-table"));
  EXPECT_EQ(error_of({"bake", "--zzzzzz"}), "unknown flag --zzzzzz; `oven bake --help` lists all");
  EXPECT_THAT(error_of({"bake", "-x"}), HasSubstr("lists all"));
  EXPECT_THAT(error_of({"bake", "-tgs"}), HasSubstr("lists all")) << "a step from -ts, of which it is half";
  EXPECT_EQ(error_of({"bake", "--te\x1bmp"}), "unknown flag --te?mp; did you mean --temp?");
  const std::string endless(1 << 20, 'x');
  EXPECT_LT(error_of({"bake", ("--" + endless).c_str()}).size(), 200u);
}

TEST(Flags, ValuesThatLookLikeFlagsAreRefusedUnlessSpelledOut) {
  EXPECT_THAT(error_of({"bake", "-p", "--temp"}), HasSubstr("flag -p needs a value (TEXT), but flag --temp follows"));
  EXPECT_THAT(error_of({"bake", "-p"}), HasSubstr("flag -p needs a value: TEXT"));
  EXPECT_EQ(parse({"bake", "-p=--temp"})->get_string("text"), "--temp");
  EXPECT_EQ(parse({"bake", "-p", "- a dash"})->get_string("text"), "- a dash");
  EXPECT_EQ(parse({"bake", "-p", ""})->get_string("text"), "");
  EXPECT_EQ(parse({"bake", "-p", "a=b"})->get_string("text"), "a=b");
}

TEST(Flags, SuperfluousFlagsAreNotedNotRefused) {
  const auto flags = parse({"bake", "-ngl", "99"});
  ASSERT_TRUE(flags.ok());
  EXPECT_THAT(flags->notes(), ElementsAre("flag -ngl has no effect: use --names"));
  for (const char* value : {"0", "1", "0,1"}) {
    EXPECT_TRUE(parse({"bake", "-nplug", value, "--fan"}).ok()) << "as switches of other programs are given";
  }
  EXPECT_THAT(error_of({"bake", "--plug", "x"}), HasSubstr("unexpected argument \"x\""));
  EXPECT_THAT(error_of({"bake", "--fan", "0"}), HasSubstr("unexpected argument \"0\"")) << "which has an effect";
}

TEST(Flags, PositionalArgumentsAreCounted) {
  const auto flags = parse({"list", "--light", "round", "--", "--light"});
  ASSERT_TRUE(flags.ok()) << flags.status().message();
  EXPECT_THAT(flags->positional(), ElementsAre("round", "--light"));
  EXPECT_EQ(error_of({"list"}), "`oven list` needs KIND [COLOUR]");
  EXPECT_THAT(error_of({"list", "a", "b", "c"}), HasSubstr("unexpected argument \"c\""));
  EXPECT_THAT(error_of({"list", "a", "b", "c"}), HasSubstr("needs quotes"));
  EXPECT_THAT(error_of({"bake", "two", "words"}), Not(HasSubstr("quotes")));
}

TEST(Flags, RequiredFlagsAreAskedFor) {
  constexpr FlagRow kRows[] = {{.name = "model",
                                .shorts = "-m",
                                .required = true,
                                .placeholder = "FILE",
                                .group = "G",
                                .commands = "bake",
                                .help = "Model"}};
  const FlagTable table{.program = "oven", .summary = "bakes", .commands = kCommands, .flags = kRows};
  const char* bake[] = {"bake"};
  const auto refused = parse_flags(table, bake);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(), "`oven bake` needs the flag -m, --model FILE");
  const char* list[] = {"list", "x"};
  EXPECT_TRUE(parse_flags(table, list).ok());
}

TEST(Flags, BooleansMayHaveNamesThatTurnThemOff) {
  for (const char* on : {"-g", "--glass"}) {
    EXPECT_TRUE(parse({"bake", on})->get_bool("glass")) << on;
  }
  for (const char* off : {"-ng", "--opaque", "-no-g", "--no-glass"}) {
    EXPECT_FALSE(parse({"bake", "-g", off})->get_bool("glass")) << off;
  }
}

TEST(Flags, CommandsAreFoundAndSuggested) {
  EXPECT_EQ(parse({})->command().name, "help");
  EXPECT_EQ(parse({"--help"})->command().name, "help");
  EXPECT_EQ(parse({"--version"})->command().name, "version");
  EXPECT_EQ(error_of({"bkae"}), "unknown command \"bkae\"; did you mean `oven bake`?");
  EXPECT_THAT(error_of({"xylophone"}), HasSubstr("`oven help` lists all"));
  EXPECT_THAT(error_of({"-t", "3"}), HasSubstr("the command comes first: `oven COMMAND -t ...`"));
}

TEST(Flags, HelpIsGivenWhateverElseIsWrong) {
  EXPECT_TRUE(parse({"bake", "--nonsense", "-h"})->wants_help());
  EXPECT_TRUE(parse({"list", "--help"})->wants_help());
  EXPECT_FALSE(parse({"list", "--", "--help"})->wants_help());
}

TEST(Flags, HelpShowsEveryFlagOfTheCommandAndNoOther) {
  const std::string text = help_command(kTable, kCommands[0]);
  for (const FlagRow& row : kFlags) {
    const std::string name = "--" + std::string(row.name == "fan" ? "[no-]fan" : row.name);
    EXPECT_EQ(text.find(name) != std::string::npos, row.commands != "list") << row.name;
  }
  EXPECT_THAT(text, HasSubstr("-t, --heat, --temp T"));
  EXPECT_THAT(text, HasSubstr("(default: 180.5; 0 to 300)"));
  EXPECT_THAT(text, HasSubstr("none|layer|tensor"));
  EXPECT_THAT(text, HasSubstr("-g, --glass / -ng, --opaque, --no-glass"));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    EXPECT_LE(end - begin, 100u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
  EXPECT_THAT(help_overview(kTable), HasSubstr("bake a cake"));
}

TEST(Flags, MarkdownHasOneRowPerFlagAndEscapesBars) {
  const std::string text = help_markdown(kTable);
  const auto rows = static_cast<size_t>(std::ranges::count(text, '\n'));
  EXPECT_GE(rows, std::size(kFlags) + std::size(kCommands));
  EXPECT_THAT(text,
              HasSubstr("| `-t, --heat, --temp T` | `temperature` | bake | Temperature (default: 180.5; 0 to 300) |"));
  EXPECT_THAT(text, HasSubstr("`rack_size`"));
  EXPECT_THAT(text, HasSubstr("none\\|layer\\|tensor"));
  EXPECT_THAT(text, HasSubstr("Say \\| more"));
}

TEST(Flags, UnsoundTablesAreFound) {
  const auto verdict = [](std::vector<FlagRow> rows) {
    return check_flag_table({.program = "oven", .summary = "bakes", .commands = kCommands, .flags = rows}).message();
  };
  const FlagRow good{.name = "a", .group = "G", .commands = "bake", .help = "A"};
  EXPECT_EQ(verdict({good}), "");
  EXPECT_THAT(verdict({good, good}), HasSubstr("command bake has --a twice"));
  FlagRow elsewhere = good;
  elsewhere.commands = "list";
  EXPECT_EQ(verdict({good, elsewhere}), "");
  FlagRow same_json = good;
  same_json.name = "b";
  same_json.json_name = "a";
  EXPECT_THAT(verdict({good, same_json}), HasSubstr("has a twice"));
  FlagRow unknown = good;
  unknown.commands = "bake fry";
  EXPECT_THAT(verdict({unknown}), HasSubstr("unknown command"));
  FlagRow bad_default = good;
  bad_default.kind = FlagKind::kUint;
  bad_default.default_text = "-1";
  EXPECT_THAT(verdict({bad_default}), HasSubstr("default"));
  FlagRow negative = good;
  negative.name = "no-a";
  EXPECT_THAT(verdict({negative}), HasSubstr("begins with"));
}

/// Textbook recursion on ever shorter beginnings, exponential: only for tiny words.
size_t slow_distance(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) {
    return a.size() + b.size();
  }
  const auto drop = [](std::string_view s, size_t n) { return s.substr(0, s.size() - n); };
  size_t best = std::min(slow_distance(drop(a, 1), b), slow_distance(a, drop(b, 1))) + 1;
  best = std::min(best, slow_distance(drop(a, 1), drop(b, 1)) + (a.back() == b.back() ? 0 : 1));
  if (a.size() > 1 && b.size() > 1 && a.back() == b[b.size() - 2] && b.back() == a[a.size() - 2]) {
    best = std::min(best, slow_distance(drop(a, 2), drop(b, 2)) + 1);
  }
  return best;
}

TEST(Flags, EditDistanceAgreesWithTheRecursiveDefinition) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("tempp", "temp"), 1u);
  EXPECT_EQ(edit_distance("tpo-k", "top-k"), 1u);
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 300; ++i) {
    std::string a(random() % 6, ' ');
    std::string b(random() % 6, ' ');
    for (std::string* word : {&a, &b}) {
      std::ranges::generate(*word, [&] { return static_cast<char>('a' + random() % 3); });
    }
    EXPECT_EQ(edit_distance(a, b), slow_distance(a, b)) << a << " " << b << " seed " << kSeed;
  }
}

TEST(Flags, RandomCommandLinesNeverDoHarm) {
  const std::vector<std::string> words{"bake",  "list", "--",       "-",           "",          "--temp",
                                       "-t",    "-t=",  "--no-fan", "--ids",       "1,2",       "=",
                                       "--=",   "---",  "-=3",      "--memory=1G", "-p",        "\x01\xff",
                                       "--no-", "x",    "-sm",      "row",         "-\xc3\xa4", "--\xff=\xff"};
  constexpr uint32_t kSeed = 11;
  std::mt19937 random(kSeed);
  size_t n_ok = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<const char*> args;
    for (size_t n = random() % 7; n > 0; --n) {
      args.push_back(words[random() % words.size()].c_str());
    }
    const auto flags = parse(args);
    n_ok += flags.ok() ? 1 : 0;
    if (!flags.ok()) {
      EXPECT_FALSE(flags.status().message().empty());
      EXPECT_THAT(flags.status().message(), Not(HasSubstr("\x01")));
    }
  }
  EXPECT_GT(n_ok, 1000u) << "seed " << kSeed;
}

}  // namespace
}  // namespace tessera
