#include "server/tool_grammar.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/grammar/gbnf_text.h"
#include "runtime/grammar/json_schema.h"

namespace tessera {
namespace {

constexpr std::string_view kFewBlanks = R"([ \t\r\n]{0,4})";
constexpr std::string_view kSpace = "\" \"?";

std::string literal(std::string_view text) {
  return gbnf_literal(text);
}

std::string one_of(const std::string& characters) {
  CodeRanges ranges;
  for (const char c : characters) {
    ranges.push_back({static_cast<uint8_t>(c), static_cast<uint8_t>(c)});
  }
  return gbnf_class(normalized(std::move(ranges)));
}

std::string none_of(const std::string& characters) {
  CodeRanges ranges;
  for (const char c : characters) {
    ranges.push_back({static_cast<uint8_t>(c), static_cast<uint8_t>(c)});
  }
  return gbnf_class(inverted(normalized(std::move(ranges))));
}

bool is_token(const std::string& spelled) {
  return !spelled.starts_with('"');
}

class ToolGrammar {
 public:
  ToolGrammar(const ChatFormat& format, const ToolRequest* request, const MarkSpelling& spelling)
      : format_(format), request_(request), spelling_(spelling) {}

  Result<std::string> make(Thinking thinking, const std::string& schema);

 private:
  [[nodiscard]] std::string mark(std::string_view text) const { return spelling_(text); }
  [[nodiscard]] std::string may_be(std::string_view text) const { return text.empty() ? "" : "(" + mark(text) + ")? "; }
  std::string add(const std::string& name, const std::string& body) {
    text_ += name + " ::= " + body + "\n";
    return name;
  }
  std::string until(const std::string& name, std::string_view mark_text, const std::string& after, bool may_end);

  Result<std::string> arguments(const ToolSpec& tool);
  Result<std::string> call_of(const ToolSpec& tool);
  Result<std::string> any_call();
  Result<std::string> tagged_parameters(const ToolSpec& tool);
  Result<std::string> tagged_value(const ToolSpec& tool, const std::string& name, const Json& schema);
  Result<std::string> calls(const std::string& after);
  Result<std::string> answer(const std::string& schema);
  Result<std::string> harmony(const std::string& schema);
  Result<std::string> text_without_json_call();

  const ChatFormat& format_;
  const ToolRequest* request_;
  const MarkSpelling& spelling_;
  JsonSchemaRules rules_;
  std::string text_;
  int n_values_ = 0;
};

// Text without the mark, then the mark and `after`: a rule per byte of the mark that has been read (Knuth, Morris,
// Pratt). may_end: it may end without the mark, too. mark_text: ASCII.
std::string ToolGrammar::until(const std::string& name, std::string_view mark_text, const std::string& after,
                               bool may_end) {
  const std::string spelled = mark(mark_text);
  if (is_token(spelled)) {
    const std::string end = spelled + " " + after;
    return add(name, ".* " + (may_end ? "(" + end + ")?" : end));
  }
  std::string characters(mark_text);
  std::ranges::sort(characters);
  characters.erase(std::ranges::unique(characters).begin(), characters.end());
  const auto state = [&](size_t n) { return n == 0 ? name : fmt::format("{}-{}", name, n); };
  for (size_t n = 0; n < mark_text.size(); ++n) {
    std::string body = may_end ? "\"\" | " : "";
    for (const char c : characters) {
      const std::string read = std::string(mark_text.substr(0, n)) + c;
      size_t next = std::min(read.size(), mark_text.size());
      while (next > 0 && !read.ends_with(mark_text.substr(0, next))) {
        --next;
      }
      body += one_of(std::string(1, c)) + " " + (next == mark_text.size() ? after : state(next)) + " | ";
    }
    add(state(n), body + none_of(characters) + " " + name);
  }
  return name;
}

// The JSON object of a tool's arguments.
Result<std::string> ToolGrammar::arguments(const ToolSpec& tool) {
  if (!request_->required && !tool.strict) {
    return rules_.add_any("object");
  }
  if (!tool.strict) {
    const auto alone = json_schema_grammar(tool.parameters);
    if (alone.status().code() == ErrorCode::kUnsupported) {
      return rules_.add_any("object");
    }
  }
  auto expression = rules_.add(tool.parameters);
  return expression.ok() ? expression : Result<std::string>(expression.status().with_context(tool.label));
}

// A value between tags, with the end tag.
Result<std::string> ToolGrammar::tagged_value(const ToolSpec& tool, const std::string& name, const Json& schema) {
  const bool is_function = format_.syntax == CallSyntax::kFunctionTags;
  const std::string end = is_function ? "</parameter>" : "</arg_value>";
  const std::string newline = is_function ? "\"\\n\" " : "";
  const auto text = parameter_text(schema);
  if (text == ChatTools::Text::kPlain) {
    if (!schema.contains("enum") && !schema.contains("const")) {
      return newline + until(fmt::format("value-{}", ++n_values_), end, "\"\\n\"", false);
    }
    std::string ways;
    for (const Json& value : schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"]) {
      ways += (ways.empty() ? "" : " | ") + literal(value.get<std::string>());
    }
    return fmt::format("{}({}) {}{}", newline, ways, newline, literal(end + "\n"));
  }
  std::string pointer = "#/properties/";
  for (const char c : name) {
    pointer += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  const auto value = rules_.add(tool.parameters, pointer);
  if (!value.ok()) {
    return value;
  }
  return fmt::format("{}{} {}{}", newline, *value, newline, literal(end + "\n"));
}

// All parameters of a tool between tags, in the schema's order.
Result<std::string> ToolGrammar::tagged_parameters(const ToolSpec& tool) {
  const bool is_function = format_.syntax == CallSyntax::kFunctionTags;
  const std::string begin = is_function ? "<parameter=" : "<arg_key>";
  const std::string middle = is_function ? ">" : "</arg_key>\n<arg_value>";
  const auto any = [&] {
    const std::string value =
        until(fmt::format("value-{}", ++n_values_), is_function ? "</parameter>" : "</arg_value>", "\"\\n\"", false);
    return fmt::format("({} [a-zA-Z0-9_.-]{{1,64}} {} {})*", literal(begin), literal(middle), value);
  };
  if (!request_->required && !tool.strict) {
    return any();
  }
  const auto fail = [&](const Status& status) -> Result<std::string> {
    if (status.code() == ErrorCode::kUnsupported && !tool.strict) {
      return any();
    }
    return status.with_context(tool.label);
  };
  const Json schema = *parse_json(tool.parameters);
  const Json properties = schema.value("properties", Json::object());
  const Json required = schema.value("required", Json::array());
  for (const char* joined : {"$ref", "allOf", "anyOf", "oneOf", "minProperties", "maxProperties"}) {
    if (schema.contains(joined)) {
      return fail({ErrorCode::kUnsupported,
                   fmt::format("this model's template writes each parameter for itself, which \"{}\" beside "
                               "\"properties\" does not allow to enforce; write the properties out",
                               joined)});
    }
  }
  if (const auto whole = json_schema_grammar(tool.parameters); !whole.ok()) {
    return fail(whole.status());
  }
  std::string row;
  std::set<std::string> left;
  for (const Json& name : required) {
    left.insert(name.get<std::string>());
  }
  for (const auto& [name, parameter] : properties.items()) {
    if (name.empty() || name.find_first_of("<>\n") != std::string::npos) {
      return fail({ErrorCode::kUnsupported, "a property's name has a character that the template's tags cannot hold"});
    }
    const bool is_required = left.erase(name) > 0;
    if (parameter == false && !is_required) {
      continue;
    }
    const auto value = tagged_value(tool, name, parameter);
    if (!value.ok()) {
      return fail(value.status());
    }
    row += fmt::format("({} {}){} ", literal(begin + name + middle), *value, is_required ? "" : "?");
  }
  if (!left.empty()) {
    return fail(
        {ErrorCode::kUnsupported, fmt::format("\"required\" names \"{}\", which is no property", *left.begin())});
  }
  return row.empty() ? "\"\"" : row;
}

// One call of this tool without the marks around it.
Result<std::string> ToolGrammar::call_of(const ToolSpec& tool) {
  switch (format_.syntax) {
    case CallSyntax::kFunctionTags: {
      ASSIGN_OR_RETURN(const std::string parameters, tagged_parameters(tool));
      return fmt::format("{} {} \"</function>\\n\"", literal("<function=" + tool.name + ">\n"), parameters);
    }
    case CallSyntax::kArgTags: {
      ASSIGN_OR_RETURN(const std::string parameters, tagged_parameters(tool));
      return literal(tool.name + "\n") + " " + parameters;
    }
    case CallSyntax::kNamed: {
      ASSIGN_OR_RETURN(const std::string json, arguments(tool));
      return fmt::format("{} {} {}", literal(tool.name), mark("[ARGS]"), json);
    }
    case CallSyntax::kObject: break;
  }
  ASSIGN_OR_RETURN(const std::string json, arguments(tool));
  const std::string key = format_.call_begin == "<|python_tag|>" ? "parameters" : "arguments";
  return fmt::format("\"{{\" {0} \"\\\"name\\\":\" {0} {1} \",\" {0} {2} {0} {3} {0} \"}}\"", kSpace,
                     literal("\"" + tool.name + "\""), literal("\"" + key + "\":"), json);
}

// The name of a rule for a call of any tool.
Result<std::string> ToolGrammar::any_call() {
  std::string ways;
  for (size_t i = 0; i < request_->tools.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string way, call_of(request_->tools[i]));
    ways += (ways.empty() ? "" : " | ") + add(fmt::format("tool-{}", i), way);
  }
  return add("any-call", ways);
}

// Calls from behind the first begin mark on, then `after`. Result: the name of a rule.
Result<std::string> ToolGrammar::calls(const std::string& after) {
  ASSIGN_OR_RETURN(const std::string call, any_call());
  const bool parallel = request_->parallel;
  switch (format_.tools) {
    case ToolStyle::kTagged: {
      const bool has_newlines = format_.syntax != CallSyntax::kArgTags;
      const std::string newline = has_newlines ? "\"\\n\"? " : "";
      const std::string one = newline + call + " " + newline + mark(format_.call_end);
      const std::string more = parallel && after.empty()
                                   ? " (" + std::string(kFewBlanks) + " " + mark(format_.call_begin) + " " + one + ")*"
                                   : "";
      return add("calls", one + more + " " + after);
    }
    case ToolStyle::kMistral: {
      if (format_.syntax == CallSyntax::kObject) {
        return add("calls", fmt::format("\"[\" {0}{1} \"]\"", call, parallel ? " (\",\" \" \"? " + call + ")*" : ""));
      }
      return add("calls", call + (parallel ? " (" + mark(format_.call_begin) + " " + call + ")*" : ""));
    }
    default: return add("calls", call);
  }
}

// An answer that does not begin as a call of ToolStyle::kJson does: { "name". Result: the name of a rule.
Result<std::string> ToolGrammar::text_without_json_call() {
  std::string inner = "\"\"";
  const std::string_view word = "\"name\"";
  for (size_t i = word.size(); i-- > 0;) {
    const std::string c(1, word[i]);
    const std::string blank = i == 0 ? " \t\r\n" : "";
    inner = fmt::format("(\"\" | {} .*{})", none_of(c + blank),
                        i + 1 == word.size() ? "" : " | " + one_of(c) + " " + inner);
  }
  return add("other", fmt::format("\"\" | {} .* | \"{{\" [ \\t\\r\\n]* {}", none_of("{ \t\r\n"), inner));
}

// What comes behind reasoning. Result: the name of a rule.
Result<std::string> ToolGrammar::answer(const std::string& schema) {
  std::string document;
  if (!schema.empty()) {
    ASSIGN_OR_RETURN(document, rules_.add(schema));
  }
  if (request_ == nullptr) {
    return add("answer", std::string(kFewBlanks) + " " + document);
  }
  const bool is_bare = format_.tools == ToolStyle::kJson;
  const std::string begin = is_bare ? may_be(format_.call_begin) : mark(format_.call_begin) + " ";
  if (request_->required || !document.empty()) {
    ASSIGN_OR_RETURN(const std::string all, calls(""));
    const std::string other = request_->required ? "" : " | " + document;
    return add("answer", fmt::format("{} ({}{}{})", kFewBlanks, begin, all, other));
  }
  if (is_bare) {
    ASSIGN_OR_RETURN(const std::string all, calls(""));
    ASSIGN_OR_RETURN(const std::string other, text_without_json_call());
    return add("answer", fmt::format("{} ({}{} | {})", kFewBlanks, begin, all, other));
  }
  // Text up to a mark, a call, and text again.
  const bool goes_on = format_.tools == ToolStyle::kTagged && request_->parallel;
  ASSIGN_OR_RETURN(const std::string all, calls(goes_on ? "answer" : ""));
  return until("answer", format_.call_begin, all, true);
}

// gpt-oss: messages to itself, then one to a tool, or the answer.
Result<std::string> ToolGrammar::harmony(const std::string& schema) {
  const std::string channel = mark("<|channel|>");
  const std::string message = mark("<|message|>");
  const std::string json_type = fmt::format("(\" \" {} \"json\" | \" json\")?", mark("<|constrain|>"));
  until("message-text", "<|end|>", mark("<|start|>") + " \"assistant\"", false);
  // A message to the user may come before a call, but where nothing but a call is asked for.
  const bool only_calls = request_ != nullptr && request_->required;
  const std::string own = add("own", fmt::format("{} (\"analysis\"{}) {} message-text", channel,
                                                 only_calls ? "" : " | \"commentary\"", message));
  std::string ways;
  for (size_t i = 0; request_ != nullptr && i < request_->tools.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string json, arguments(request_->tools[i]));
    const std::string to = literal(" to=functions." + request_->tools[i].name);
    ways += (i == 0 ? "" : " | ") +
            add(fmt::format("tool-{}", i), fmt::format("({1} \"commentary\" {0} | {0} {1} \"commentary\") {2} {3} {4}",
                                                       to, channel, json_type, message, json));
  }
  if (!only_calls) {
    std::string text = until("final-text", "<|return|>", "", true);
    if (!schema.empty()) {
      ASSIGN_OR_RETURN(text, rules_.add(schema));
    }
    ways += fmt::format("{}{} \"final\" {} {} {}", ways.empty() ? "" : " | ", channel, json_type, message, text);
  }
  return add("answer", fmt::format("{}* ({})", own, ways));
}

Result<std::string> ToolGrammar::make(Thinking thinking, const std::string& schema) {
  std::string root;
  if (format_.tools == ToolStyle::kHarmony) {
    ASSIGN_OR_RETURN(root, harmony(schema));
  } else {
    ASSIGN_OR_RETURN(root, answer(schema));
  }
  if (thinking != Thinking::kNo) {
    // Without a call that must come, the reasoning may be all there is.
    const bool may_end = schema.empty() && !request_->required;
    const std::string thoughts = until("thoughts", format_.think_end, root, may_end);
    root = thinking == Thinking::kOpen
               ? thoughts
               : fmt::format("{} {} {} | {}", kFewBlanks, mark(format_.think_begin), thoughts, root);
  }
  return "root ::= " + root + "\n" + text_ + rules_.text();
}

}  // namespace

Result<std::string> tool_grammar(const ChatFormat& format, const ToolRequest& request, Thinking thinking,
                                 const std::string& schema, const MarkSpelling& spelling) {
  return ToolGrammar(format, &request, spelling).make(thinking, request.required ? "" : schema);
}

Result<std::string> thinking_schema_grammar(const ChatFormat& format, Thinking thinking, const std::string& schema,
                                            const MarkSpelling& spelling) {
  return ToolGrammar(format, nullptr, spelling).make(thinking, schema);
}

}  // namespace tessera
