#include "server/tool_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/grammar/gbnf_text.h"
#include "runtime/grammar/json_schema.h"
#include "runtime/sampler.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using Kind = ChatPiece::Kind;

constexpr const char* kWeather = R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer",
 "minimum":1,"maximum":7},"unit":{"type":"string","enum":["C","F"]},"code":{"type":"string","pattern":"^[A-Z]{2}$"},
 "tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":2}},"required":["city","days","code"]})";

std::shared_ptr<GrammarMasks> make_masks(std::string_view gbnf, const std::vector<std::string>& pieces,
                                         const std::vector<int32_t>& end_ids) {
  const auto grammar = Grammar::parse(gbnf);
  EXPECT_TRUE(grammar.ok()) << grammar.status().message() << "\n" << gbnf;
  return std::make_shared<GrammarMasks>(grammar.ok() ? *grammar : *Grammar::parse("root ::= \"\""),
                                        std::make_shared<const TokenTrie>(pieces, end_ids));
}

bool accepts(std::string_view gbnf, std::string_view text) {
  GrammarMatcher matcher(make_masks(gbnf, {}, {}));
  return matcher.accept_bytes(text) && matcher.may_end();
}

struct Style {
  std::string name;
  ChatFormat format;
  bool control_marks = false;  // marks are tokens without text
};

std::vector<Style> styles() {
  std::vector<Style> all;
  const auto add = [&](const std::string& name, const char* source, bool control_marks) {
    all.push_back({name, with_tools(detect_chat_format(source)), control_marks});
  };
  for (const bool control : {false, true}) {
    const std::string kind = control ? ", control tokens" : "";
    add("Hermes" + kind, "<tool_call>", control);
    add("Qwen coder" + kind, "<tool_call> <function=", control);
    add("GLM" + kind, "<tool_call> <arg_key>", control);
    add("Mistral" + kind, "[TOOL_CALLS]", control);
    add("Mistral, named" + kind, "[TOOL_CALLS] [ARGS]", control);
    add("Llama" + kind, "<|python_tag|>", control);
    if (control) {  // as its vocabulary has them: else text could hold marks
      add("gpt-oss" + kind, "<|channel|> <|message|>", control);
    }
    add("thinking" + kind, "<think></think> <tool_call>", control);
  }
  add("no tools", "", false);
  add("thinking, no tools", "<think></think>", false);
  return all;
}

const std::vector<std::string> kMarks = {"<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]",    "<|python_tag|>",
                                         "<|channel|>", "<|message|>",  "<|end|>",      "<|start|>", "<|constrain|>",
                                         "<think>",     "</think>",     "<|return|>"};

const std::vector<std::string> kOpening = {"<tool_call>", "[TOOL_CALLS]", "<|python_tag|>"};

ToolRequest request_of(bool required, bool strict, const char* parameters = kWeather) {
  ToolRequest request;
  request.tools.push_back({"weather", parameters, strict, "field \"tools[0].function.parameters\""});
  request.tools.push_back({"now", R"({"type":"object","properties":{},"additionalProperties":false})", strict, "b"});
  request.required = required;
  return request;
}

// A vocabulary of single bytes, an end, and the marks; those are tokens without text where control.
class RandomWriter {
 public:
  RandomWriter(const Style& style, const ToolRequest& request, Thinking thinking, const std::string& schema = "") {
    for (int byte = 0; byte < 127; ++byte) {
      pieces_.emplace_back(1, static_cast<char>(byte));
    }
    pieces_[0] = "";
    texts_ = pieces_;
    for (const std::string& mark : kMarks) {
      pieces_.push_back(style.control_marks ? "" : mark);
      texts_.push_back(mark);
    }
    for (const char* word : {"</parameter>", "</arg_value>"}) {
      pieces_.emplace_back(word);
      texts_.emplace_back(word);
    }
    end_ = static_cast<int32_t>(pieces_.size());
    pieces_.emplace_back("");
    texts_.emplace_back("");
    const MarkSpelling spelling = [&](std::string_view mark) {
      const auto at = std::ranges::find(kMarks, mark);
      return style.control_marks && at != kMarks.end() ? "<[" + std::to_string(127 + (at - kMarks.begin())) + "]>"
                                                       : gbnf_literal(mark);
    };
    const auto grammar = tool_grammar(style.format, request, thinking, schema, spelling);
    EXPECT_TRUE(grammar.ok()) << grammar.status().message();
    text_ = grammar.ok() ? *grammar : "root ::= \"\"";
    masks_ = make_masks(text_, pieces_, {end_});
  }

  /// A text at random; it prefers to end what is open once it is long.
  std::string draw(std::mt19937& random) {
    GrammarMatcher matcher(masks_);
    std::string text;
    for (size_t n = 0; n < 4000; ++n) {
      const auto mask = matcher.mask();
      EXPECT_TRUE(mask.ok());
      std::vector<int32_t> ids;
      std::vector<int32_t> closing;
      std::vector<int32_t> opening;
      for (int32_t id = 0; id <= end_; ++id) {
        if ((*mask)->allows(id)) {
          ids.push_back(id);
          const bool closes = id == end_ || texts_[static_cast<size_t>(id)].starts_with("</") ||
                              texts_[static_cast<size_t>(id)] == "<|end|>" || id == '"' || id == '}' || id == ']';
          if (std::ranges::find(kOpening, texts_[static_cast<size_t>(id)]) != kOpening.end()) {
            opening.push_back(id);
          }
          if (closes || (n > 300 && (id == '<' || id == '/' || id == '>'))) {
            closing.push_back(id);
          }
        }
      }
      if (ids.empty()) {
        ADD_FAILURE() << "nothing may follow " << text;
        return text;
      }
      const bool hurries = !closing.empty() && (n > 60 || random() % 4 == 0);
      const bool opens = !opening.empty() && n < 200 && random() % 3 == 0;
      const std::vector<int32_t>& from = opens ? opening : hurries ? closing : ids;
      int32_t id = from[random() % from.size()];
      if (n > 300 && std::ranges::find(ids, end_) != ids.end()) {
        id = end_;
      }
      EXPECT_TRUE(matcher.accept(id));
      if (id == end_) {
        return text;
      }
      text += texts_[static_cast<size_t>(id)];
    }
    ADD_FAILURE() << "no end: " << text.substr(0, 500);
    return text;
  }

  [[nodiscard]] bool accepts(std::string_view text) const {
    GrammarMatcher matcher(masks_);
    return matcher.accept_bytes(text) && matcher.may_end();
  }

  [[nodiscard]] const std::string& grammar() const { return text_; }

 private:
  std::vector<std::string> pieces_;
  std::vector<std::string> texts_;
  int32_t end_ = 0;
  std::string text_;
  std::shared_ptr<GrammarMasks> masks_;
};

struct Parsed {
  std::string content;
  std::string reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  bool is_cut = false;
};

Parsed parsed(const Style& style, const ToolRequest& request, const std::string& text, std::string_view prompt) {
  ChatParser parser(style.format, prompt, chat_tools(request.tools));
  std::vector<ChatPiece> pieces = parser.push(text);
  std::ranges::move(parser.finish(), std::back_inserter(pieces));
  Parsed result;
  for (const ChatPiece& piece : pieces) {
    switch (piece.kind) {
      case Kind::kContent: result.content += piece.text; break;
      case Kind::kReasoning: result.reasoning += piece.text; break;
      case Kind::kCall:
        result.calls.emplace_back(piece.text, "");
        result.is_cut = true;
        break;
      case Kind::kArguments: result.calls.back().second += piece.text; break;
      case Kind::kCallEnd: result.is_cut = false; break;
    }
  }
  return result;
}

void expect_fits(const std::pair<std::string, std::string>& call) {
  const auto arguments = parse_json_object(call.second);
  ASSERT_TRUE(arguments.ok()) << call.second;
  if (call.first == "now") {
    EXPECT_TRUE(arguments->empty()) << call.second;
    return;
  }
  EXPECT_EQ(call.first, "weather");
  static const std::string kGrammar = *json_schema_grammar(kWeather);
  EXPECT_TRUE(accepts(kGrammar, dump_json(*arguments))) << call.second;
}

TEST(ToolGrammar, RequiredCallsParseBackAndFit) {
  std::mt19937 random(7);
  const ToolRequest request = request_of(true, false);
  for (const Style& style : styles()) {
    SCOPED_TRACE(style.name);
    const bool thinks = !style.format.think_begin.empty();
    for (const bool is_open : {false, true}) {
      const std::string prompt = is_open ? "<think>" : "";
      if (is_open && !thinks) {
        continue;
      }
      RandomWriter sampler(style, request, thinking_after(style.format, prompt));
      for (int i = 0; i < 25; ++i) {
        const std::string text = sampler.draw(random);
        SCOPED_TRACE(text);
        const Parsed answer = parsed(style, request, text, prompt);
        EXPECT_GE(answer.calls.size(), 1U);
        EXPECT_FALSE(answer.is_cut);
        EXPECT_EQ(answer.content, "");
        for (const auto& call : answer.calls) {
          expect_fits(call);
        }
        if (testing::Test::HasFailure()) {
          FAIL() << sampler.grammar();
        }
      }
    }
  }
}

TEST(ToolGrammar, CallsAreHeldToTheirFormOnceTheyBegin) {
  std::mt19937 random(8);
  const ToolRequest request = request_of(false, true);
  size_t n_calls = 0;
  for (const Style& style : styles()) {
    SCOPED_TRACE(style.name);
    RandomWriter sampler(style, request, thinking_after(style.format, ""));
    for (int i = 0; i < 40; ++i) {
      const std::string text = sampler.draw(random);
      SCOPED_TRACE(text);
      const Parsed answer = parsed(style, request, text, "");
      EXPECT_FALSE(answer.is_cut);
      n_calls += answer.calls.size();
      for (const auto& call : answer.calls) {
        expect_fits(call);
      }
      if (testing::Test::HasFailure()) {
        FAIL() << sampler.grammar();
      }
    }
  }
  EXPECT_GT(n_calls, 30U);
}

TEST(ToolGrammar, TextIsFreeUntilACallBegins) {
  const Style hermes{"", detect_chat_format("<tool_call>")};
  const ToolRequest request = request_of(false, true);
  const RandomWriter sampler(hermes, request, Thinking::kNo);
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(sampler.accepts("What <tool_ is this, <<tool_call? {\"name\": 1}"));
  EXPECT_TRUE(sampler.accepts("Well, " + call + " and then\n" + call));
  EXPECT_FALSE(sampler.accepts("Well, <tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>"));
  EXPECT_FALSE(sampler.accepts("Well, <tool_call>"));

  const Style llama{"", with_tools(detect_chat_format(""))};
  const RandomWriter bare(llama, request, Thinking::kNo);
  EXPECT_TRUE(bare.accepts("{\"now\": {\"name\": 1}}"));
  EXPECT_TRUE(bare.accepts("{\"name\": \"now\", \"arguments\": {}}"));
  EXPECT_FALSE(bare.accepts("{\"name\": \"Ada\"}"));
}

TEST(ToolGrammar, ReasoningIsFree) {
  const Style style{"", detect_chat_format("<think></think><tool_call>")};
  const ToolRequest request = request_of(true, false);
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(RandomWriter(style, request, Thinking::kOpen).accepts("a <tool_call> </thin </think>\n\n" + call));
  EXPECT_FALSE(RandomWriter(style, request, Thinking::kOpen).accepts(call));
  EXPECT_TRUE(RandomWriter(style, request, Thinking::kMay).accepts("<think>\nhm</think>\n\n" + call));
  EXPECT_TRUE(RandomWriter(style, request, Thinking::kMay).accepts(call));
  EXPECT_FALSE(RandomWriter(style, request, Thinking::kMay).accepts("<think>\nhm</think>\n\nno"));
  const auto grammar = thinking_schema_grammar(style.format, Thinking::kOpen, R"({"type":"integer"})", gbnf_literal);
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  EXPECT_TRUE(accepts(*grammar, "hm\n</think>\n\n12"));
  EXPECT_FALSE(accepts(*grammar, "12"));
}

TEST(ToolGrammar, OneCallWhereOneIsAskedFor) {
  const Style style{"", detect_chat_format("<tool_call>")};
  ToolRequest request = request_of(true, false);
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(RandomWriter(style, request, Thinking::kNo).accepts(call + "\n" + call));
  request.parallel = false;
  EXPECT_TRUE(RandomWriter(style, request, Thinking::kNo).accepts(call));
  EXPECT_FALSE(RandomWriter(style, request, Thinking::kNo).accepts(call + "\n" + call));
  request.required = false;
  EXPECT_FALSE(RandomWriter(style, request, Thinking::kNo).accepts(call + "\n" + call));
}

TEST(ToolGrammar, ACallOrADocument) {
  const Style style{"", detect_chat_format("<tool_call>")};
  const RandomWriter sampler(style, request_of(false, false), Thinking::kNo, R"({"type":"integer"})");
  EXPECT_TRUE(sampler.accepts("12"));
  EXPECT_TRUE(sampler.accepts("<tool_call>{\"name\":\"now\",\"arguments\":{\"a\":1}}</tool_call>"));
  EXPECT_FALSE(sampler.accepts("twelve"));
}

TEST(ToolGrammar, SchemasThatCannotBeFollowed) {
  const char* unique = R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})";
  const char* broken = R"({"type":"object","properties":{"a":{"type":"text"}}})";
  for (const char* source : {"<tool_call>", "<tool_call><function="}) {
    const ChatFormat format = detect_chat_format(source);
    const auto lenient = tool_grammar(format, request_of(true, false, unique), Thinking::kNo, "", gbnf_literal);
    EXPECT_TRUE(lenient.ok()) << lenient.status().message();
    const auto strict = tool_grammar(format, request_of(false, true, unique), Thinking::kNo, "", gbnf_literal);
    EXPECT_EQ(strict.status().code(), ErrorCode::kUnsupported);
    EXPECT_THAT(strict.status().message(), HasSubstr("tools[0].function.parameters"));
    const auto bad = tool_grammar(format, request_of(true, false, broken), Thinking::kNo, "", gbnf_literal);
    EXPECT_EQ(bad.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(bad.status().message(), HasSubstr("tools[0].function.parameters"));
  }
}

}  // namespace
}  // namespace tessera
