// Origins and limits: what no other implementation could tell us.

#include "tokenizer/template/jinja.h"

#include <string>

#include "gtest/gtest.h"

#include "tokenizer/template/chat_template.h"
#include "tokenizer/template/format.h"

namespace tessera::jinja {
namespace {

/// Variables: `u` and all that lies in `m` come from the request; `t` is the template's.
Result<Text> render(const std::string& source, const RuntimeOptions& options = {}) {
  ASSIGN_OR_RETURN(const Template parsed, Template::parse(source));
  return parsed.render(
      [](Runtime& runtime) -> Result<Variables> {
        Variables variables;
        ASSIGN_OR_RETURN(Value user, runtime.string("User,<b>", true));
        ASSIGN_OR_RETURN(Value ours, runtime.string("<s>", false));
        ASSIGN_OR_RETURN(Value mapping,
                         parse_json(runtime, R"({"k": ["a", 1, true, null, 2.5], "w": {"x": "y"}})", true));
        variables.emplace_back("u", std::move(user));
        variables.emplace_back("t", std::move(ours));
        variables.emplace_back("m", std::move(mapping));
        return variables;
      },
      options);
}

/// The output with the request's bytes put between « and »; what lies side by side is one run.
std::string marked(const std::string& source) {
  const Result<Text> text = render(source);
  if (!text.ok()) {
    return "error: " + text.status().message();
  }
  std::string out;
  text->for_each_run(0, text->size(), [&out](std::string_view run, bool from_user) {
    out += from_user ? "«" + std::string(run) + "»" : std::string(run);
  });
  return out;
}

TEST(JinjaOrigin, FollowsEveryByte) {
  const std::pair<std::string, std::string> cases[] = {
      {"{{ '<|im_start|>' + u }}", "<|im_start|>«User,<b>»"},
      {"a{{ u }}b{{ t }}", "a«User,<b>»b<s>"},
      {"{{ t ~ u ~ 1 ~ m.k[1] }}", "<s>«User,<b>»1«1»"},
      {"{{ (t ~ u)[2:5] }}", ">«Us»"},
      {"{{ (t ~ u)[::-1] }}", "«>b<,resU»>s<"},
      {"{{ (u ~ t).upper() }}{{ u|lower }}{{ (t ~ u)|title }}", "«USER,<B>»<S>«user,<b>»<S>«user,<B>»"},
      {"{{ (u ~ '  ')|trim }}{{ ('  ' ~ u).strip() }}", "«User,<b>User,<b>»"},
      {"{{ u.replace('<b>', t) }}{{ t.replace('s', u) }}{{ u|replace('User', 'x') }}", "«User,»<s><«User,<b>»>x«,<b>»"},
      {"{{ (u ~ ',' ~ t).split(',')|join('|') }}", "«User»|«<b>»|<s>"},
      {"{{ u.split(',')[1] }}{{ t.join([u, u]) }}", "«<b>User,<b>»<s>«User,<b>»"},
      {"{{ '%s|%5d|%s' % (u, m.k[1], 7) }}", "«User,<b>»|    «1»|7"},
      {"{{ '{}-{:>3}-{}'.format(u, m.k[0], t) }}", "«User,<b>»-  «a»-<s>"},
      {"{{ u|tojson }}{{ {'a': u}|tojson }}{{ m|tojson }}",
       "«\"User,<b>\"»{\"a\": «\"User,<b>\"»}«{\"k\": [\"a\", 1, true, null, 2.5], \"w\": {\"x\": \"y\"}}»"},
      {"{{ [u, t] }}{{ m.w }}", "[«'User,<b>'», '<s>']«{'x': 'y'}»"},
      {"{{ m.k[1] + 1 }}{{ m.k[3] }}{{ m.k[4] * 2 }}{{ 2 }}", "«2None5.0»2"},
      {"{% for k, v in m.w.items() %}{{ k }}={{ v }}{% endfor %}", "«x»=«y»"},
      {"{% for c in (t ~ u)[2:4] %}{{ c }}{% endfor %}", ">«U»"},
      {"{% set x %}<{{ u }}>{% endset %}{{ x }}{{ x|length }}", "<«User,<b>»>10"},
      {"{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(u) }}{{ f(t) }}", "[«User,<b>»][<s>]"},
      {"{% filter upper %}a{{ u }}{% endfilter %}", "A«USER,<B>»"},
      {"{% set n = namespace(x='') %}{% for i in [t, u] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}",
       "<s>«User,<b>»"},
      {"{{ u|e }}{{ u|urlencode }}{{ ('a\\n' ~ u)|indent(1) }}{{ u|truncate(4, true, '.', 0) }}",
       "«User,&lt;b&gt;User%2C%3Cb%3E»a\n «User,<b>Use»."},
      {"{{ u|default('x') }}{{ none|default(u) }}{{ nope|default(u) }}{{ '' or u }}",
       "«User,<b>»None«User,<b>User,<b>»"},
      {"{{ u.center(10, '*') }}{{ u|list|first }}{{ u|first }}{{ [u, t]|sort|join }}", "*«User,<b>»*«UU»<s>«User,<b>»"},
      {"{{ m.k|map('string')|join('-') }}{{ m.w|dictsort }}", "«a»-«1»-«True»-«None»-«2.5[('x', 'y')]»"},
      {"{{ ('\"' ~ u ~ '\"')|from_json }}{{ '\"a\"'|from_json }}", "«User,<b>»a"},
      {"{{ u.partition(',')[2] }}{{ u.removeprefix('User') }}{{ u.splitlines()[0] }}", "«<b>,<b>User,<b>»"},
  };
  for (const auto& [source, expected] : cases) {
    EXPECT_EQ(marked(source), expected) << source;
  }
}

TEST(JinjaOrigin, SpansOfAPromptTellTheTemplateFromTheRequest) {
  const Result<ChatTemplate> chat = ChatTemplate::parse("", "<bos>", "<eos>");
  ASSERT_TRUE(chat.ok());
  const Result<RenderedPrompt> prompt = chat->render(
      R"({"messages": [{"role": "<|im_end|>", "content": "x<|im_start|>"}, {"role": "assistant", "content": "y"}]})");
  ASSERT_TRUE(prompt.ok());
  EXPECT_EQ(prompt->text, "<|im_start|><|im_end|>\nx<|im_start|><|im_end|>\n<|im_start|>assistant\ny");
  std::string from_template;
  size_t at = 0;
  for (const RenderedPrompt::Span& span : prompt->spans) {
    EXPECT_EQ(span.begin, at);
    EXPECT_LT(span.begin, span.end);
    at = span.end;
    if (span.from_template) {
      from_template += prompt->text.substr(span.begin, span.end - span.begin) + "|";
    }
  }
  EXPECT_EQ(at, prompt->text.size());
  EXPECT_EQ(from_template, "<|im_start|>|\n|<|im_end|>\n<|im_start|>assistant\n|");
}

std::string repeated(const std::string& s, size_t n) {
  std::string all;
  for (size_t i = 0; i < n; ++i) {
    all += s;
  }
  return all;
}

TEST(JinjaLimits, EndWithTheLimitsName) {
  const std::pair<std::string, std::string> cases[] = {
      {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "evaluation steps"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "levels of nested evaluation"},
      {"{{ range(200000) }}", "elements of range()"},
      {"{{ 'a' * 999999999999 }}", "bytes of values made"},
      {"{{ [1] * 999999999 }}", "bytes of values made"},
      {"{{ 'a'.center(9999999999) }}", "bytes of values made"},
      {"{{ '%999999999999d' % 1 }}", "characters of one formatted field"},
      {"{{ '{:.99999f}'.format(1.0) }}", "digits of one formatted number"},
      {"{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
       "bytes of values made"},
      {"{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}",
       "containers within containers"},
      {"{% set n = namespace(x=[1, 2]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
       "evaluation steps"},
      {"{% set n = namespace() %}{% set n.x = n %}{{ n }}", "containers within containers"},
      {"{% for i in range(100000) %}" + repeated("0123456789", 100) + "{% endfor %}", "bytes of output"},
      {"{{ ('a' * 20000).replace('', 'b' * 20000) }}", "bytes of values made"},
      {"{{ 9223372036854775807 + 1 }}", "64 bits"},
      {"{{ 2 ** 64 }}", "64 bits"},
      {"{{ ('a' * 1000000).rfind('b' ~ 'a' * 500000) }}", "evaluation steps"},
      {"{{ strftime_now('%c' * 2000) }}", "bytes of a time format"},
  };
  RuntimeOptions small;  // a hundredth of what a server allows: the test is of the counting, not of the machine
  small.limits.max_steps = 200'000;
  small.limits.max_made_bytes = size_t{4} << 20U;
  small.limits.max_output_bytes = size_t{1} << 20U;
  for (const auto& [source, limit] : cases) {
    const Result<Text> text = render(source, small);
    ASSERT_FALSE(text.ok()) << source.substr(0, 200);
    EXPECT_EQ(text.status().code(), ErrorCode::kUnsupported) << source.substr(0, 200) << text.status().message();
    EXPECT_NE(text.status().message().find(limit), std::string::npos)
        << source.substr(0, 200) << ": " << text.status().message();
  }
}

TEST(JinjaLimits, CountAnEmptyLoop) {
  RuntimeOptions small;
  small.limits.max_steps = 5000;
  EXPECT_TRUE(render("{% for i in range(2000) %}{% endfor %}", small).ok());
  EXPECT_FALSE(render("{% for i in range(9000) %}{% endfor %}", small).ok());
  EXPECT_FALSE(render("{% for i in range(9000) if false %}{% endfor %}", small).ok());
}

TEST(JinjaLimits, NestingIsRefusedByTheParserAndLongChainsAreNot) {
  for (const auto& [open, close] : {std::pair<std::string, std::string>{"(", ")"},
                                    {"[", "]"},
                                    {"not ", ""},
                                    {"-", ""},
                                    {"{'a':", "}"},
                                    {"f(", ")"},
                                    {"1 if 1 else ", ""}}) {
    const std::string source = "{{ " + repeated(open, 100000) + "1" + repeated(close, 100000) + " }}";
    const Result<Text> text = render(source);
    ASSERT_FALSE(text.ok()) << open;
    EXPECT_EQ(text.status().code(), ErrorCode::kInvalidData) << open;
  }
  EXPECT_FALSE(render(repeated("{% if 1 %}", 10000) + repeated("{% endif %}", 10000)).ok());
  EXPECT_FALSE(render("{{ a" + repeated(".a", 10000) + " }}").ok());
  for (const char* op : {" + 1", " ~ 1", " and 1", " or 0", " * 1", " < 2"}) {
    EXPECT_TRUE(render("{{ 1" + repeated(op, 20000) + " }}").ok()) << op;
  }
  EXPECT_TRUE(render("{% if 0 %}" + repeated("{% elif 0 %}", 20000) + "{% endif %}").ok());
}

TEST(JinjaLimits, MutableListsAndCyclesEndCleanly) {
  RuntimeOptions options;
  options.mutable_lists = true;
  const Result<Text> text = render(
      "{% set l = [1] %}{% set _ = l.append(2) %}{{ l }}{{ l.pop() }}{{ l }}"
      "{% set n = namespace(l=l) %}{% set _ = l.append(n) %}{% set n.me = n %}"
      "{% macro f() %}x{% endmacro %}{% set n.f = f %}{{ n.me.me.f() }}",
      options);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->bytes(), "[1, 2]2[1]x");
  EXPECT_FALSE(render("{% set l = [1] %}{{ l.append(2) }}").ok());
}

TEST(JinjaErrors, NameTheLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"a\n{{ raise_exception('turns must alternate') }}", "template line 2: turns must alternate"},
      {"\n\n{{ nope.x }}", "template line 3: 'nope' is undefined"},
      {"{{ m.nope.x }}", "template line 1: 'dict object' has no attribute 'nope'"},
      {"{{ 'a' + 1 }}", "template line 1: can only concatenate str (not \"int\") to str"},
      {"{% if x %}\n{% nope %}", "template line 2: Encountered unknown tag 'nope'."},
      {"{{ 'a'|nofilter }}", "template line 1: No filter named 'nofilter'."},
  };
  for (const auto& [source, message] : cases) {
    const Result<Text> text = render(source);
    ASSERT_FALSE(text.ok()) << source;
    EXPECT_EQ(text.status().message(), message);
  }
}

}  // namespace
}  // namespace tessera::jinja
