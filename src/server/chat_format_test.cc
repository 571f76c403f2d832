#include "server/chat_format.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <optional>
#include <sstream>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using Kind = ChatPiece::Kind;

constexpr const char* kQwen = "{{ '<tool_call>' }} {{ '<think>' }} {{ '</think>' }}";
constexpr const char* kMistral = "[TOOL_CALLS]";
constexpr const char* kLlama = "<|python_tag|>";
constexpr const char* kGptOss = "<|channel|> <|message|>";

// "r:" reasoning, "c:" content, "t:name:arguments" of the whole, neighbours of one kind joined; behind a call that was
// cut off "...".
std::vector<std::string> shown(const std::vector<ChatPiece>& pieces) {
  std::vector<std::string> result;
  std::optional<Kind> last;
  bool is_open = false;
  for (const ChatPiece& piece : pieces) {
    switch (piece.kind) {
      case Kind::kCall:
        result.push_back("t:" + piece.text + ":");
        is_open = true;
        break;
      case Kind::kArguments: result.back() += piece.text; break;
      case Kind::kCallEnd: is_open = false; break;
      default:
        if (last != piece.kind) {
          result.emplace_back(piece.kind == Kind::kReasoning ? "r:" : "c:");
        }
        result.back() += piece.text;
    }
    last = piece.kind;
  }
  if (is_open) {
    result.back() += "...";
  }
  return result;
}

std::shared_ptr<const ChatTools> tools_fg() {
  ChatTools tools;
  tools.names = {"f", "g"};
  tools.strings = {{{"f", "s"}, ChatTools::Text::kPlain}, {{"f", "q"}, ChatTools::Text::kQuoted}};
  return std::make_shared<const ChatTools>(std::move(tools));
}

std::vector<std::string> parse_at(const char* source, const std::vector<std::string>& parts, bool has_tools,
                                  const std::string& prompt) {
  ChatFormat format = detect_chat_format(source);
  ChatParser parser(has_tools ? with_tools(format) : format, prompt, has_tools ? tools_fg() : nullptr);
  std::vector<ChatPiece> pieces;
  for (const std::string& part : parts) {
    std::ranges::move(parser.push(part), std::back_inserter(pieces));
  }
  std::ranges::move(parser.finish(), std::back_inserter(pieces));
  return shown(pieces);
}

// The text in pieces of every size from one byte to all, and cut in two at every place: what is told apart does not
// depend on them.
std::vector<std::string> parse(const char* source, const std::string& text, bool has_tools = true,
                               const std::string& prompt = "") {
  const std::vector<std::string> whole = parse_at(source, {text}, has_tools, prompt);
  for (size_t step = 1; step <= text.size(); ++step) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < text.size(); i += step) {
      parts.push_back(text.substr(i, step));
    }
    EXPECT_EQ(parse_at(source, parts, has_tools, prompt), whole) << "in pieces of " << step;
    EXPECT_EQ(parse_at(source, {text.substr(0, step), text.substr(step)}, has_tools, prompt), whole)
        << "cut at " << step;
  }
  return whole;
}

TEST(ChatFormat, PlainTextPasses) {
  EXPECT_THAT(parse("", "<think>a</think> <tool_call>"), ElementsAre("c:<think>a</think> <tool_call>"));
  EXPECT_THAT(parse(kQwen, "a < b, <t and <tool"), ElementsAre("c:a < b, <t and <tool"));
  EXPECT_THAT(parse(kQwen, ""), ElementsAre());
}

TEST(ChatFormat, ReasoningComesFirstOrNotAtAll) {
  EXPECT_THAT(parse(kQwen, "<think>\nwhy\n</think>\n\nbecause"), ElementsAre("r:why\n", "c:because"));
  EXPECT_THAT(parse(kQwen, "hm</think>yes", true, "user\n<think>\n"), ElementsAre("r:hm", "c:yes"));
  EXPECT_THAT(parse(kQwen, "yes", true, "<think>\n\n</think>\n\n"), ElementsAre("c:yes"));
  EXPECT_THAT(parse(kQwen, "The mark is <think>"), ElementsAre("c:The mark is <think>"));
  EXPECT_THAT(parse(kQwen, "<think>never ends"), ElementsAre("r:never ends"));
}

TEST(ChatFormat, WhatContinuesAMessageKeepsItsFirstBlanks) {
  const auto go_on = [](const char* source, const std::vector<std::string>& parts, bool has_tools = false) {
    const ChatFormat format = detect_chat_format(source);
    ChatParser parser(has_tools ? with_tools(format) : format, "The sky is", has_tools ? tools_fg() : nullptr,
                      Continued::kContent);
    std::vector<ChatPiece> pieces;
    for (const std::string& part : parts) {
      std::ranges::move(parser.push(part), std::back_inserter(pieces));
    }
    std::ranges::move(parser.finish(), std::back_inserter(pieces));
    return shown(pieces);
  };
  for (const char* source : {"", kQwen, kMistral, kLlama, kGptOss}) {
    EXPECT_THAT(go_on(source, {" ", "blue"}), ElementsAre("c: blue")) << source;
    EXPECT_THAT(go_on(source, {"\n\n blue"}, true), ElementsAre("c:\n\n blue")) << source;
  }
  // What comes behind a mark is fresh.
  EXPECT_THAT(go_on(kQwen, {" ", "<think> why </think> because"}), ElementsAre("c: ", "r:why ", "c:because"));
  EXPECT_THAT(go_on(kQwen, {"<think> why </think> because"}), ElementsAre("r:why ", "c:because"));
  EXPECT_THAT(go_on(kLlama, {" {\"name\":\"f\"} "}, true), ElementsAre("t:f:{}"));
}

TEST(ChatFormat, ReasoningThatIsContinuedGoesOn) {
  const auto go_on = [](std::string_view source, const std::string& prompt, std::string_view answer) {
    ChatParser parser(detect_chat_format(source), prompt, nullptr, Continued::kReasoning);
    std::vector<ChatPiece> pieces = parser.push(answer);
    std::ranges::move(parser.finish(), std::back_inserter(pieces));
    return shown(pieces);
  };
  EXPECT_THAT(go_on(kQwen, "<think>\nI think", " so</think>\n yes"), ElementsAre("r: so", "c:yes"));
  EXPECT_THAT(go_on(kGptOss, "<|channel|>analysis<|message|>I think",
                    " so<|end|><|start|>assistant<|channel|>final<|message|>yes"),
              ElementsAre("r: so", "c:yes"));
}

TEST(ChatFormat, BlanksThatGoOnAreKept) {
  ChatParser parser(with_tools(detect_chat_format("")), "It is", tools_fg(), Continued::kContent);
  EXPECT_THAT(shown(parser.push("\n")), ElementsAre());
  EXPECT_THAT(shown(parser.finish()), ElementsAre("c:\n"));
}

TEST(ChatFormat, TaggedCalls) {
  EXPECT_THAT(
      parse(kQwen,
            "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": \"x\"}}\n</tool_call>"),
      ElementsAre("c:Let me see.\n", "t:f:{\"b\": 1, \"a\": \"x\"}"));
  EXPECT_THAT(
      parse(kQwen,
            "<tool_call>{\"name\":\"f\"}</tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":\"{}\"}</tool_call>"),
      ElementsAre("t:f:{}", "t:g:{}"));
  EXPECT_THAT(parse(kQwen,
                    "<tool_call>\n<function=f>\n<parameter=n>\n12\n</parameter>\n<parameter=s>\n12\n</parameter>\n"
                    "<parameter=q>\n\"1\\n2\"\n</parameter>\n<parameter=s>\ntwice\n</parameter>\n</function>\n"
                    "</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>"),
              ElementsAre("t:f:{\"n\":12,\"s\":\"12\",\"q\":\"1\\n2\"}", "t:g:{}"));
  EXPECT_THAT(parse(kQwen, "<tool_call>f\n<arg_key>k</arg_key>\n<arg_value>v w</arg_value>\n</tool_call>"),
              ElementsAre("t:f:{\"k\":\"v w\"}"));
  EXPECT_THAT(parse(kQwen, "<tool_call>g\n</tool_call> bye"), ElementsAre("t:g:{}", "c:bye"));
  EXPECT_THAT(parse(kQwen, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>"),
              ElementsAre("t:f:{\"a\":1}"));
}

TEST(ChatFormat, CallsBeginWithTheirArguments) {
  ChatParser parser(detect_chat_format(kQwen), "", tools_fg());
  EXPECT_THAT(shown(parser.push("<tool_call>{\"name\": \"f\", \"arguments\": ")), ElementsAre());
  EXPECT_THAT(shown(parser.push("{\"a\": [1, ")), ElementsAre("t:f:{\"a\": [1, ..."));
  const std::vector<ChatPiece> more = parser.push("2]}");
  ASSERT_EQ(more.size(), 2U);
  EXPECT_EQ(more[0].text, "2]}");
  EXPECT_EQ(more[1].kind, Kind::kCallEnd);

  ChatParser tags(detect_chat_format(kQwen), "", tools_fg());
  EXPECT_EQ(tags.push("<tool_call>\n<function=f>\n<parameter=n>\n1").size(), 1U);
  EXPECT_EQ(tags.push("2\n</parameter>").at(0).text, "{\"n\":12");
}

TEST(ChatFormat, MarksInArgumentsAreArguments) {
  EXPECT_THAT(parse(kQwen, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>}\\\"\"}}</tool_call>x"),
              ElementsAre("t:f:{\"a\": \"</tool_call>}\\\"\"}", "c:x"));
}

TEST(ChatFormat, CallsThatAreCutOff) {
  EXPECT_THAT(parse(kQwen, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b"),
              ElementsAre("t:f:{\"a\": \"b..."));
  EXPECT_THAT(parse(kQwen, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}"), ElementsAre("t:f:{\"a\": 1}"));
  EXPECT_THAT(parse(kQwen, "<tool_call><function=f><parameter=n>1</parameter><parameter=s>2"),
              ElementsAre("t:f:{\"n\":1..."));
  EXPECT_THAT(parse(kMistral, "[TOOL_CALLS]f[ARGS]{\"a\":"), ElementsAre("t:f:{\"a\":..."));
}

TEST(ChatFormat, WhatIsNoCallStaysText) {
  EXPECT_THAT(parse(kQwen, "<tool_call>{\"name\": </tool_call>"), ElementsAre("c:<tool_call>{\"name\": </tool_call>"));
  EXPECT_THAT(parse(kQwen, "<tool_call>{\"name\": \"f\""), ElementsAre("c:<tool_call>{\"name\": \"f\""));
  EXPECT_THAT(parse(kQwen, "<tool_call>{\"name\": \"f\"}</tool_call>", false),
              ElementsAre("c:<tool_call>{\"name\": \"f\"}</tool_call>"));
  EXPECT_THAT(parse(kQwen, "<tool_call>[1]</tool_call>"), ElementsAre("c:<tool_call>[1]</tool_call>"));
  EXPECT_THAT(parse(kQwen, "<tool_call>h</tool_call>"), ElementsAre("c:<tool_call>h</tool_call>"));
  EXPECT_THAT(parse(kQwen, "<tool_call>{\"name\": \"no name\", \"arguments\": {}}</tool_call>"),
              ElementsAre("c:<tool_call>{\"name\": \"no name\", \"arguments\": {}}</tool_call>"));
  EXPECT_THAT(parse(kQwen, std::string("<tool_call>") + std::string(300, '[')),
              ElementsAre("c:<tool_call>" + std::string(300, '[')));
}

TEST(ChatFormat, MistralCalls) {
  EXPECT_THAT(parse(kMistral, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"a\":1},\"id\":\"]}\"}, {\"name\":\"g\"}]"),
              ElementsAre("t:f:{\"a\":1}", "t:g:{}"));
  EXPECT_THAT(parse(kMistral, "[TOOL_CALLS] [{\"name\":\"f\",\"arguments\":{}},{\"name\":\"g\",\"arguments\":{}}] so"),
              ElementsAre("t:f:{}", "t:g:{}", "c:so"));
  EXPECT_THAT(parse(kMistral, "hm[TOOL_CALLS]f[ARGS]{\"a\":1}[TOOL_CALLS]g{\"b\":2}"),
              ElementsAre("c:hm", "t:f:{\"a\":1}", "t:g:{\"b\":2}"));
  EXPECT_THAT(parse(kMistral, "[TOOL_CALLS]f[CALL_ID]abc[ARGS]{\"a\":1}"), ElementsAre("t:f:{\"a\":1}"));
}

TEST(ChatFormat, WholeAnswerIsACall) {
  EXPECT_THAT(parse(kLlama, "\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}"), ElementsAre("t:f:{\"a\": 1}"));
  EXPECT_THAT(parse(kLlama, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}"), ElementsAre("t:f:{}"));
  EXPECT_THAT(parse(kLlama, "{\"name\": \"f\", \"parameters\": {}}\n{\"name\": \"g\", \"parameters\": {}} and"),
              ElementsAre("t:f:{}", "t:g:{}", "c:and"));
  EXPECT_THAT(parse(kLlama, "{not a call}"), ElementsAre("c:{not a call}"));
  EXPECT_THAT(parse(kLlama, "{\"name\": \"Ada\", \"parameters\": {}}"),
              ElementsAre("c:{\"name\": \"Ada\", \"parameters\": {}}"));
  EXPECT_THAT(parse(kLlama, "{\"name\": \"f\"}", false), ElementsAre("c:{\"name\": \"f\"}"));
  EXPECT_THAT(parse("<think></think>", "<think>a</think>{\"name\": \"f\", \"arguments\": {}}"),
              ElementsAre("r:a", "t:f:{}"));
}

TEST(ChatFormat, Channels) {
  EXPECT_THAT(parse(kGptOss, "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>so"),
              ElementsAre("r:why", "c:so"));
  EXPECT_THAT(parse(kGptOss, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>"),
              ElementsAre("t:f:{\"a\":1}"));
  EXPECT_THAT(parse(kGptOss,
                    "<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.g<|channel|>commentary "
                    "json<|message|>{}<|call|>"),
              ElementsAre("r:a", "t:g:{}"));
  EXPECT_THAT(parse(kGptOss, " to=functions.f<|channel|>commentary<|message|>{\"a\":1}"), ElementsAre("t:f:{\"a\":1}"));
  EXPECT_THAT(parse(kGptOss, "<|channel|>commentary to=functions.f<|message|>{\"a\":"), ElementsAre("t:f:{\"a\":..."));
  EXPECT_THAT(parse(kGptOss, "<|channel|>commentary to=functions.f<|message|>no {\"a\":"), ElementsAre("c:no {\"a\":"));
  EXPECT_THAT(parse(kGptOss, "plain"), ElementsAre("c:plain"));
  EXPECT_THAT(parse(kGptOss, "<|channel|>final no message"), ElementsAre("c:final no message"));
}

TEST(ChatFormat, KnownTemplates) {
  const auto style = [](const char* name) {
    std::ifstream file(std::string(TESSERA_TEST_DATA) + "/templates/" + name + ".jinja");
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_FALSE(text.str().empty()) << name;
    return detect_chat_format(text.str()).tools;
  };
  const auto syntax = [](const char* source) { return detect_chat_format(source).syntax; };
  EXPECT_EQ(style("qwen3"), ToolStyle::kTagged);
  EXPECT_EQ(style("qwen3_coder"), ToolStyle::kTagged);
  EXPECT_EQ(style("glm46"), ToolStyle::kTagged);
  EXPECT_EQ(style("gpt_oss"), ToolStyle::kHarmony);
  EXPECT_EQ(style("llama31"), ToolStyle::kJson);
  EXPECT_EQ(style("gemma2"), ToolStyle::kNone);
  EXPECT_EQ(syntax("<tool_call>"), CallSyntax::kObject);
  EXPECT_EQ(syntax("<tool_call><function="), CallSyntax::kFunctionTags);
  EXPECT_EQ(syntax("<tool_call><arg_key>"), CallSyntax::kArgTags);
  EXPECT_EQ(syntax("[TOOL_CALLS][ARGS]"), CallSyntax::kNamed);
}

}  // namespace
}  // namespace tessera
