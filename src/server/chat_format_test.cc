#include "server/chat_format.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using Kind = ChatPiece::Kind;

constexpr const char* kQwen = "{{ '<tool_call>' }} {{ '<think>' }} {{ '</think>' }}";
constexpr const char* kMistral = "[TOOL_CALLS]";
constexpr const char* kLlama = "<|python_tag|>";
constexpr const char* kGptOss = "<|channel|> <|message|>";

// "r:" reasoning, "c:" content, "t:name:arguments" of the whole, neighbours of one kind joined.
std::vector<std::string> shown(const std::vector<ChatPiece>& pieces) {
  std::vector<std::string> result;
  Kind last = Kind::kToolCall;
  for (const ChatPiece& piece : pieces) {
    if (piece.kind == Kind::kToolCall) {
      result.push_back("t:" + piece.name + ":" + piece.text);
    } else if (!result.empty() && piece.kind == last) {
      result.back() += piece.text;
    } else {
      result.push_back((piece.kind == Kind::kReasoning ? "r:" : "c:") + piece.text);
    }
    last = piece.kind;
  }
  return result;
}

// The text in pieces of every size from one byte to all: what is told apart does not depend on them.
std::vector<std::string> parse(const char* source, const std::string& text, bool has_tools = true,
                               const std::string& prompt = "", const StringParameters& strings = {}) {
  std::vector<std::string> first;
  for (size_t step = 1; step <= text.size() + 1; ++step) {
    ChatParser parser(detect_chat_format(source), has_tools, prompt, strings);
    std::vector<ChatPiece> pieces;
    for (size_t i = 0; i < text.size(); i += step) {
      for (ChatPiece& piece : parser.push(text.substr(i, step))) {
        pieces.push_back(std::move(piece));
      }
    }
    for (ChatPiece& piece : parser.finish()) {
      pieces.push_back(std::move(piece));
    }
    const std::vector<std::string> now = shown(pieces);
    if (step == 1) {
      first = now;
    }
    EXPECT_EQ(now, first) << "in pieces of " << step;
  }
  return first;
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

TEST(ChatFormat, TaggedCalls) {
  EXPECT_THAT(
      parse(kQwen,
            "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": \"x\"}}\n</tool_call>"),
      ElementsAre("c:Let me see.\n", "t:f:{\"b\":1,\"a\":\"x\"}"));
  EXPECT_THAT(
      parse(kQwen,
            "<tool_call>{\"name\":\"f\"}</tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":\"{}\"}</tool_call>"),
      ElementsAre("t:f:{}", "t:g:{}"));
  EXPECT_THAT(parse(kQwen,
                    "<tool_call>\n<function=f>\n<parameter=n>\n12\n</parameter>\n<parameter=s>\n12\n</parameter>\n"
                    "</function>\n</tool_call>",
                    true, "", {{"f", "s"}}),
              ElementsAre("t:f:{\"n\":12,\"s\":\"12\"}"));
  EXPECT_THAT(parse(kQwen, "<tool_call>f\n<arg_key>k</arg_key>\n<arg_value>v w</arg_value>\n</tool_call>"),
              ElementsAre("t:f:{\"k\":\"v w\"}"));
}

TEST(ChatFormat, WhatIsNoCallStaysText) {
  EXPECT_THAT(parse(kQwen, "<tool_call>{\"name\": </tool_call>"), ElementsAre("c:<tool_call>{\"name\": </tool_call>"));
  EXPECT_THAT(parse(kQwen, "<tool_call>{\"name\": \"f\""), ElementsAre("c:<tool_call>{\"name\": \"f\""));
  EXPECT_THAT(parse(kQwen, "<tool_call>{\"name\": \"f\"}</tool_call>", false),
              ElementsAre("c:<tool_call>{\"name\": \"f\"}</tool_call>"));
  EXPECT_THAT(parse(kQwen, "<tool_call>[1]</tool_call>"), ElementsAre("c:<tool_call>[1]</tool_call>"));
  EXPECT_THAT(parse(kQwen, std::string("<tool_call>") + std::string(500, '[')),
              ElementsAre("c:<tool_call>" + std::string(500, '[')));
}

TEST(ChatFormat, MistralCalls) {
  EXPECT_THAT(parse(kMistral, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"a\":1}},{\"name\":\"g\"}]"),
              ElementsAre("t:f:{\"a\":1}", "t:g:{}"));
  EXPECT_THAT(parse(kMistral, "hm[TOOL_CALLS]f[ARGS]{\"a\":1}[TOOL_CALLS]g{\"b\":2}"),
              ElementsAre("c:hm", "t:f:{\"a\":1}", "t:g:{\"b\":2}"));
}

TEST(ChatFormat, WholeAnswerIsACall) {
  EXPECT_THAT(parse(kLlama, "\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}"), ElementsAre("t:f:{\"a\":1}"));
  EXPECT_THAT(parse(kLlama, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}"), ElementsAre("t:f:{}"));
  EXPECT_THAT(parse(kLlama, "{not a call}"), ElementsAre("c:{not a call}"));
  EXPECT_THAT(parse(kLlama, "{\"name\": \"f\"}", false), ElementsAre("c:{\"name\": \"f\"}"));
}

TEST(ChatFormat, Channels) {
  EXPECT_THAT(parse(kGptOss, "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>so"),
              ElementsAre("r:why", "c:so"));
  EXPECT_THAT(parse(kGptOss, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}"),
              ElementsAre("t:f:{\"a\":1}"));
  EXPECT_THAT(parse(kGptOss, "<|channel|>commentary to=functions.f<|message|>{\"a\":"), ElementsAre("c:{\"a\":"));
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
  EXPECT_EQ(style("qwen3"), ToolStyle::kTagged);
  EXPECT_EQ(style("qwen3_coder"), ToolStyle::kTagged);
  EXPECT_EQ(style("glm46"), ToolStyle::kTagged);
  EXPECT_EQ(style("gpt_oss"), ToolStyle::kHarmony);
  EXPECT_EQ(style("llama31"), ToolStyle::kJson);
  EXPECT_EQ(style("gemma2"), ToolStyle::kNone);
}

}  // namespace
}  // namespace tessera
