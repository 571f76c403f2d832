// JSON schemas by hand: documents that their grammars let through and those that they do not. That what they let
// through is valid is checked at random against another implementation in tests/grammar_schemas_test.py.

#include "runtime/grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <regex>

#include "runtime/grammar/grammar_test_util.h"
#include "runtime/grammar/number_grammar.h"
#include "runtime/grammar/pattern_grammar.h"

namespace tessera {
namespace {

using testing::HasSubstr;

std::string grammar_of(std::string_view schema) {
  const auto grammar = json_schema_grammar(schema);
  EXPECT_TRUE(grammar.ok()) << grammar.status().message() << "\n" << schema;
  return grammar.ok() ? *grammar : "root ::= \"?\"";
}

std::string refusal_of(std::string_view schema) {
  const auto grammar = json_schema_grammar(schema);
  return grammar.ok() ? refusal(*grammar) : grammar.status().message();
}

struct Case {
  const char* schema;
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

const Case kCases[] = {
    {R"({})", {"1", "\"a\"", "{\"a\": [1, {}]}", "null", "[]"}, {"", "[1,]", "{a:1}"}},
    {R"(true)", {"1"}, {"x"}},
    {R"({"type":"string"})", {R"("")", R"("aé\n\u00e9\ud83d\ude00")"}, {"1", R"("\ud83d")", R"("\x")", "\"\n\""}},
    {R"({"type":"integer"})", {"0", "-12", "1234567890123456"}, {"01", "1.5", "-", "12345678901234567"}},
    {R"({"type":"number"})", {"0", "-1.5", "1e5", "2.5E-3"}, {"1.", ".5", "1e", "+1"}},
    {R"({"type":["integer","null"]})", {"5", "null"}, {"\"a\""}},
    {R"({"type":"integer","nullable":true})", {"5", "null"}, {"\"a\""}},
    {R"({"enum":["a\"b",1,null,{"x":[1,2]}]})", {R"("a\"b")", "1", "null", R"({"x":[1,2]})"}, {"2", "\"a\""}},
    {R"({"type":"string","enum":["a",1]})", {R"("a")"}, {"1"}},
    {R"({"const":"é"})", {"\"é\""}, {"\"e\""}},
    {R"({"type":"boolean"})", {"true", "false"}, {"null"}},
    // Objects.
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"},"c":{"type":"null"}},"required":["b"]})",
     {R"({"b":null})", R"({"a": 1, "b": null})", R"({"b":null,"c":null})", "{\n  \"a\": 1,\n  \"b\": null\n}"},
     {"{}", R"({"a":1})", R"({"b":null,"a":1})", R"({"b":null,"x":1})", R"({"b":null,})"}},
    {R"({"properties":{"a":{"type":"null"},"b":{"type":"null"}}})",
     {"{}", R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"},
     {R"({,"b":null})", "1"}},
    {R"({"type":"object","additionalProperties":{"type":"integer"}})", {"{}", R"({"x":1,"y":2})"}, {R"({"x":"y"})"}},
    {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"x":1})"}},
    {R"({"properties":{"ab":{"type":"null"}},"additionalProperties":{"type":"integer"}})",
     {R"({"ab":null})", R"({"a":1,"abc":2,"":3,"b":4})", R"({"ab":null,"x":1})"},
     {R"({"ab":1})", R"({"ab":null,"ab":1})", R"({"\u0061b":1})"}},
    {R"({"required":["k"],"type":"object"})", {R"({"k":[]})"}, {"{}", R"({"l":1})"}},
    {R"({"additionalProperties":{"type":"null"},"minProperties":1,"maxProperties":2})",
     {R"({"a":null})", R"({"a":null,"b":null})"},
     {"{}", R"({"a":null,"b":null,"c":null})"}},
    // Arrays.
    {R"({"items":{"type":"integer"},"minItems":1,"maxItems":3})", {"[1]", "[1, 2,3]", "[ 1 ]"}, {"[]", "[1,2,3,4]"}},
    {R"({"type":"array","items":{"type":"null"}})", {"[]", "[null,null]", "[ ]"}, {"[null null]", "[,]"}},
    {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
    {R"({"prefixItems":[{"type":"null"},{"type":"integer"}],"items":false})", {"[null,1]"}, {"[null,1,2]", "[1]"}},
    {R"({"prefixItems":[{"type":"null"}],"items":{"type":"integer"},"minItems":3})", {"[null,1,2]"}, {"[null,1]"}},
    {R"({"items":[{"type":"null"}],"additionalItems":false})", {"[null]"}, {"[null,1]"}},
    // Joining.
    {R"({"anyOf":[{"type":"null"},{"type":"integer","minimum":5,"maximum":7}]})", {"null", "5", "7"}, {"4", "8"}},
    {R"({"type":"object","properties":{"a":{"type":"null"}},"required":["a"],"oneOf":[{"properties":{"b":{"const":1}},"required":["b"]},{"properties":{"c":{"const":2}}}]})",
     {R"({"a":null,"b":1})", R"({"a":null})", R"({"a":null,"c":2})"},
     {R"({"a":null,"b":2})", R"({"b":1})"}},
    {R"({"allOf":[{"$ref":"#/$defs/x"},{"properties":{"b":{"minimum":3}},"required":["b"]}],"$defs":{"x":{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"integer","maximum":4}}}}})",
     {R"({"a":null,"b":3})", R"({"b":4})"},
     {R"({"a":null})", R"({"b":5})", R"({"b":2})"}},
    {R"({"$ref":"#/definitions/a~1b","definitions":{"a/b":{"type":"null"}}})", {"null"}, {"1"}},
    {R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#/$defs/n"}},"required":["v"]}}})",
     {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
     {R"({"v":1,"next":{}})"}},
    {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
    {R"({"allOf":[{"$ref":"#/$defs/t"}],"description":"d","$defs":{"t":{"properties":{"t":{"allOf":[{"$ref":"#/$defs/t"}]}}}}})",
     {R"({"t":{"t":{}}})"},
     {R"({"x":1})"}},
    // Strings.
    {R"({"minLength":2,"maxLength":3})", {R"("ab")", R"("é\n\ud83d\ude00")"}, {R"("a")", R"("abcd")"}},
    {R"({"maxLength":70000,"type":"string"})", {R"("")", R"("abc")"}, {"1"}},
    {R"({"pattern":"^[a-c]+\\d{2}$"})", {R"("abc12")"}, {R"("12")", R"("a1")", R"("xa12")"}},
    {R"({"pattern":"b"})", {R"("b")", R"("abc")"}, {R"("ac")"}},
    {R"({"pattern":"^[\\w.\"-]+$","maxLength":3})", {R"("a\".")", R"("_")"}, {R"("")", R"("abcd")"}},
    {R"({"format":"date","type":"string"})",
     {R"("2024-02-28")", R"("2023-12-31")"},
     {R"("2024-02-30")", R"("2024-13-01")"}},
    {R"({"format":"uuid","type":"string"})", {R"("01234567-89ab-cdef-0123-456789abcdef")"}, {R"("01234567")"}},
    {R"({"format":"ipv4"})", {R"("255.0.10.1")"}, {R"("256.0.0.1")", R"("01.0.0.1")"}},
    {R"({"format":"date-time"})",
     {R"("2024-02-28T23:59:59.5Z")", R"("2024-02-28T00:00:00+01:00")"},
     {R"("2024-02-28")"}},
    {R"({"format":"email"})", {R"("a.b@c-d.org")"}, {R"("a")", R"("a@b")"}},
    {R"({"format":"nobody knows","type":"string"})", {R"("x")"}, {"1"}},
};

TEST(JsonSchema, MeansWhatItSays) {
  for (const Case& c : kCases) {
    const std::string grammar = grammar_of(c.schema);
    for (const std::string& text : c.good) {
      EXPECT_TRUE(accepts(grammar, text)) << c.schema << "\n" << text << "\n" << grammar;
    }
    for (const std::string& text : c.bad) {
      EXPECT_FALSE(accepts(grammar, text)) << c.schema << "\n" << text << "\n" << grammar;
    }
  }
}

TEST(JsonSchema, RefusalsNameKeywordAndPlace) {
  const struct {
    const char* schema;
    const char* place;
    const char* what;
  } kBad[] = {
      {"{", "", "no JSON"},
      {"[]", "at #", "an object"},
      {"false", "at #", "accepts nothing"},
      {R"({"type":"strin"})", "at #", "'type' is \"strin\""},
      {R"({"type":[]})", "at #", "no type"},
      {R"({"properties":{"a/b":{"uniqueItems":true}}})", "#/properties/a~1b", "'uniqueItems' cannot be enforced"},
      {R"({"items":{"anyOf":[{},{"not":{}}]}})", "#/items/anyOf/1", "'not'"},
      {R"({"multipleOf":3})", "at #", "'multipleOf'"},
      {R"({"patternProperties":{}})", "at #", "'patternProperties'"},
      {R"({"$ref":"http://x/y"})", "at #", "out of the document"},
      {R"({"$ref":"#/nowhere"})", "at #", "leads to nothing"},
      {R"({"$ref":"#"})", "", "itself"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})", "", "itself"},
      {R"x({"pattern":"(?=a)"})x", "at #", "(?="},
      {R"({"pattern":"(a"})", "at #", "not closed"},
      {R"({"pattern":"a**"})", "at #", "quantifier"},
      {R"({"pattern":"[b-a]"})", "at #", "ends before"},
      {R"({"pattern":"\\bx"})", "at #", "\\b"},
      {R"({"pattern":"a$b"})", "at #", "anchor"},
      {R"({"pattern":"^a*b$","maxLength":4})", "at #", "maxLength"},
      {R"({"minimum":5,"maximum":4,"type":"integer"})", "at #", "no number"},
      {R"({"minItems":3,"maxItems":2})", "at #", "'minItems'"},
      {R"({"minLength":-1})", "at #", "'minLength'"},
      {R"({"enum":[]})", "at #", "'enum'"},
      {R"({"type":"null","enum":[1]})", "at #", "none of its values"},
      {R"({"allOf":[{"type":"null"},{"type":"string"}]})", "#/allOf/1", "'type' contradicts"},
      {R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})", "#/allOf/1", "'pattern'"},
      {R"({"required":["a"],"properties":{"a":false}})", "#/properties/a", "accepts nothing"},
  };
  for (const auto& bad : kBad) {
    EXPECT_THAT(refusal_of(bad.schema), testing::AllOf(HasSubstr(bad.place), HasSubstr(bad.what))) << bad.schema;
  }
}

TEST(JsonSchema, HostileOnesAreRefusedOrCheap) {
  const auto nested = [](std::string_view open, std::string_view close, int n) {
    std::string text;
    for (int i = 0; i < n; ++i) {
      text += open;
    }
    text += "{}";
    for (int i = 0; i < n; ++i) {
      text += close;
    }
    return text;
  };
  EXPECT_THAT(refusal_of(nested(R"({"items":)", "}", 50000)), HasSubstr("deep"));
  EXPECT_THAT(refusal_of("{\"enum\":[" + nested("[", "]", 50000) + "]}"), HasSubstr("deep"));
  EXPECT_EQ(refusal_of(nested(R"({"items":)", "}", 60)), "");
  // Alternatives beside what contains alternatives: 2^60 combinations.
  EXPECT_THAT(refusal_of(nested(R"({"anyOf":[{},{}],"properties":{"a":)", "}}", 60)), HasSubstr("multiply"));
  EXPECT_THAT(
      refusal_of(R"({"$ref":"#/$defs/a","$defs":{"a":{"properties":{"a":{"$ref":"#/$defs/a","minLength":1}}}}})"),
      HasSubstr("deep"));
  std::string names = R"({"properties":{)";
  for (int i = 0; i < 9000; ++i) {
    names += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":{}";
  }
  EXPECT_EQ(refusal_of(names + "}}"), "");
  EXPECT_THAT(refusal_of("{\"pattern\":\"" + std::string(50000, '(') + "\"}"), HasSubstr("deep"));
  EXPECT_THAT(refusal_of("{\"pattern\":\"((((a{9999}){9999}){9999}){9999})\"}"), HasSubstr("states"));
}

// ---- numbers, against arithmetic

bool number_fits(const std::string& grammar, const std::string& text) {
  return accepts("root ::= " + grammar, text);
}

TEST(NumberGrammar, WholeNumbersBetweenBounds) {
  std::mt19937 random(11);
  for (int i = 0; i < 60; ++i) {
    const int scale = i % 3 == 0 ? 15 : i % 3 == 1 ? 120 : 12345;
    const int a = static_cast<int>(random() % static_cast<uint32_t>(2 * scale)) - scale;
    const int b = a + static_cast<int>(random() % static_cast<uint32_t>(scale));
    const bool strict = random() % 3 == 0;
    const auto grammar =
        number_grammar(NumberBound{std::to_string(a), strict}, NumberBound{std::to_string(b), strict}, true);
    EXPECT_EQ(grammar.ok(), strict ? b - a >= 2 : true);
    const auto masks = grammar.ok() ? make_masks("root ::= " + *grammar, {}) : nullptr;
    for (int n = a - 130; masks != nullptr && n <= b + 130; n += n > a + 20 && n < b - 20 ? 7 : 1) {
      GrammarMatcher matcher(masks);
      const bool fits = matcher.accept_bytes(std::to_string(n)) && matcher.may_end();
      ASSERT_EQ(fits, strict ? n > a && n < b : n >= a && n <= b) << n << " in " << a << " " << b << *grammar;
    }
  }
}

TEST(NumberGrammar, DecimalsBetweenBounds) {
  std::mt19937 random(12);
  const auto draw = [&](int digits) {
    double scale = 1;
    for (int i = 0; i < digits; ++i) {
      scale *= 10;
    }
    return std::round((static_cast<double>(random() % 4000) / 1000 - 2) * scale) / scale;
  };
  const auto text_of = [](double v) {
    std::string text = std::to_string(v);
    text.erase(text.find_last_not_of('0') + 1);
    return text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
  };
  int n_inside = 0;
  for (int i = 0; i < 150; ++i) {
    double a = draw(static_cast<int>(random() % 4));
    double b = draw(static_cast<int>(random() % 4));
    if (a > b) {
      std::swap(a, b);
    }
    const bool strict_a = random() % 3 == 0;
    const bool strict_b = random() % 3 == 0;
    const auto grammar = number_grammar(NumberBound{text_of(a), strict_a}, NumberBound{text_of(b), strict_b}, false);
    if (!grammar.ok()) {
      EXPECT_EQ(a, b);
      continue;
    }
    const auto masks = make_masks("root ::= " + *grammar, {});
    for (int k = 0; k < 60; ++k) {
      const double v = k == 0 ? a : k == 1 ? b : draw(1 + k % 4);
      if (v == 0) {
        continue;  // its sign is a matter of taste
      }
      GrammarMatcher matcher(masks);
      const bool fits = matcher.accept_bytes(text_of(v)) && matcher.may_end();
      const bool should = (strict_a ? v > a : v >= a) && (strict_b ? v < b : v <= b);
      ASSERT_EQ(fits, should) << text_of(v) << " in " << text_of(a) << " " << text_of(b) << " " << *grammar;
      n_inside += fits ? 1 : 0;
    }
  }
  EXPECT_GT(n_inside, 500);
}

TEST(NumberGrammar, OneBound) {
  EXPECT_TRUE(number_fits(*number_grammar(NumberBound{"10", false}, {}, true), "9999999999999999"));
  EXPECT_FALSE(number_fits(*number_grammar(NumberBound{"10", false}, {}, true), "9"));
  EXPECT_TRUE(number_fits(*number_grammar({}, NumberBound{"-3", false}, true), "-1000"));
  EXPECT_FALSE(number_fits(*number_grammar({}, NumberBound{"-3", false}, true), "-2"));
  EXPECT_FALSE(number_grammar({}, NumberBound{"-99999999999999999", false}, true).ok());
  EXPECT_TRUE(number_fits(*number_grammar(NumberBound{"0", true}, {}, false), "0.001"));
  EXPECT_FALSE(number_fits(*number_grammar(NumberBound{"0", true}, {}, false), "0.0"));
}

// ---- patterns, against the standard library's ECMAScript

TEST(PatternGrammar, AgreesWithEcmaScript) {
  const char* kPatterns[] = {
      "^a$",
      "a",
      "^a",
      "b$",
      "^(a|bc)*$",
      "^a{2,3}b?$",
      "^[^ab]+$",
      "^a.c$",
      "ab|^c$",
      "^(?:a|b){2}$",
      "^\\d+\\.?\\d*$",
      "^\\w\\W$",
      "^\\s*a\\s*$",
      "^\\S+$",
      "^a+?b*?$",
      "^[a-c1-3_]$",
      "^[\\d.]+$",
      "^$",
      "",
      "^(a?){3}$",
      "^(a|)b$",
      "^\\x61\\u0062$",
      "^[-a]+$",
      "^[a-]+$",
      "^a{0}b$",
      "^((a)(b(c)))$",
      "^\\(a\\)$",
      "^[\\]]$",
  };
  std::mt19937 random(13);
  constexpr std::string_view kLetters = "abc123 ._-()]";
  int n_match = 0;
  for (const char* pattern : kPatterns) {
    const std::regex expected(pattern, std::regex::ECMAScript);
    const auto body = pattern_grammar(pattern, "char");
    ASSERT_TRUE(body.ok()) << pattern << " " << body.status().message();
    const auto masks = make_masks("root ::= " + *body + "\nchar ::= [^\"\\\\\\x00-\\x1F]", {});
    ASSERT_NE(masks, nullptr);
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (auto n = random() % 6; n > 0; --n) {
        text += kLetters[random() % (i % 2 == 0 ? 4 : kLetters.size())];
      }
      GrammarMatcher matcher(masks);
      const bool fits = (text.empty() || matcher.accept_bytes(text)) && matcher.may_end();
      ASSERT_EQ(fits, std::regex_search(text, expected)) << pattern << " on '" << text << "' " << *body;
      n_match += fits ? 1 : 0;
    }
  }
  EXPECT_GT(n_match, 1000);
}

}  // namespace
}  // namespace tessera
