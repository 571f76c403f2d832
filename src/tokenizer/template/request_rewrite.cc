#include "tokenizer/template/request_rewrite.h"

#include <algorithm>

#include "fmt/format.h"

#include "tokenizer/template/format.h"

namespace tessera::jinja {
namespace {

Status bad_request(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}
/// What the reference server finds only while converting messages, and answers with 500.
Status unreadable(std::string message) {
  return {ErrorCode::kInvalidData, std::move(message)};
}

const Value* find(const Value& object, std::string_view key) {
  return object.is(Kind::kDict) ? object.dict().find_text(key) : nullptr;
}

bool is_text(const Value* value, std::string_view expected) {
  return value != nullptr && value->is(Kind::kString) && value->text().bytes() == expected;
}

Status check_part(const Value& part) {
  const Value* type = find(part, "type");
  if (is_text(type, "text")) {
    return {};
  }
  if (is_text(type, "image_url") || is_text(type, "input_audio") || is_text(type, "input_video")) {
    return unreadable(fmt::format("content of type {} is not supported by this chat", type->text().bytes()));
  }
  return bad_request("unsupported content[].type");
}

/// The form that all messages must have before any is converted.
Status check_message(const Value& message) {
  const bool assistant = is_text(find(message, "role"), "assistant");
  const Value* content = find(message, "content");
  if (content == nullptr) {
    if (!assistant) {
      return bad_request("All non-assistant messages must contain 'content'");
    }
    return find(message, "tool_calls") != nullptr
               ? Status()
               : bad_request("Assistant message must contain either 'content' or 'tool_calls'");
  }
  if (content->is(Kind::kNone) || content->is(Kind::kString)) {
    return {};
  }
  if (!content->is(Kind::kList)) {
    return bad_request("Expected 'content' to be a string or an array");
  }
  for (const Value& part : content->items()) {
    TRY(check_part(part));
  }
  return {};
}

class Rewriter {
 public:
  Rewriter(Runtime& runtime, const Capabilities& capabilities) : runtime_(runtime), capabilities_(capabilities) {}

  Result<Value> text(std::string s) { return runtime_.string(std::move(s), true); }

  /// A dict with string keys.
  using Fields = std::vector<std::pair<std::string_view, Value>>;
  Result<Value> object(Fields fields) {
    std::vector<std::pair<Value, Value>> entries;
    for (auto& [name, value] : fields) {
      ASSIGN_OR_RETURN(Value key, text(std::string(name)));
      entries.emplace_back(std::move(key), std::move(value));
    }
    return runtime_.dict(std::move(entries), true);
  }

  /// The texts of content, which check_message has seen: one for a string, one per part, none for null.
  Result<std::vector<Value>> texts_of(const Value* content) {
    std::vector<Value> texts;
    if (content == nullptr || content->is(Kind::kNone)) {
      return texts;
    }
    if (content->is(Kind::kString)) {
      texts.push_back(*content);
      return texts;
    }
    for (const Value& part : content->items()) {
      const Value* part_text = find(part, "text");
      if (part_text == nullptr || !part_text->is(Kind::kString)) {
        return unreadable("a text part of 'content' needs a string 'text'");
      }
      texts.push_back(*part_text);
    }
    return texts;
  }

  Result<Text> joined(const std::vector<Value>& texts, std::string_view separator) {
    Text all;
    for (size_t i = 0; i < texts.size(); ++i) {
      TRY(runtime_.charge_bytes(texts[i].text().size() + separator.size()));
      if (i > 0) {
        all.append(separator, true);
      }
      all.append(texts[i].text());
    }
    return all;
  }

  Result<Value> content_for_template(const Value* content) {
    ASSIGN_OR_RETURN(std::vector<Value> texts, texts_of(content));
    const bool given_as_parts = content != nullptr && content->is(Kind::kList);
    const bool as_parts = capabilities_.typed_content && (given_as_parts || !capabilities_.string_content);
    if (!as_parts) {
      ASSIGN_OR_RETURN(Text all, joined(texts, "\n"));
      return runtime_.string(std::move(all));
    }
    if (texts.empty() && !given_as_parts) {
      ASSIGN_OR_RETURN(Value empty, text(""));
      texts.push_back(std::move(empty));
    }
    std::vector<Value> parts;
    for (Value& one : texts) {
      ASSIGN_OR_RETURN(Value type, text("text"));
      ASSIGN_OR_RETURN(Value part, object({{"type", std::move(type)}, {"text", std::move(one)}}));
      parts.push_back(std::move(part));
    }
    return runtime_.list(std::move(parts), true);
  }

  Result<Value> arguments_for_template(const Value& arguments) {
    if (capabilities_.object_arguments && arguments.is(Kind::kString)) {
      Result<Value> parsed = parse_json(runtime_, arguments.text().view(), true);
      if (!parsed.ok() && parsed.status().code() == ErrorCode::kInvalidArgument) {
        return unreadable("the arguments of a tool call are not JSON: " + parsed.status().message());
      }
      return parsed;
    }
    if (!capabilities_.object_arguments && !arguments.is(Kind::kString)) {
      JsonStyle compact;
      compact.item_separator = ",";
      compact.key_separator = ":";
      Text json;
      TRY(append_json(runtime_, arguments, compact, json));
      return runtime_.string(std::move(json));
    }
    return arguments;
  }

  Result<Value> tool_call(const Value& call) {
    const Value* type = find(call, "type");
    if (type == nullptr) {
      return unreadable("Missing tool call type");
    }
    const Value* function = find(call, "function");
    if (!is_text(type, "function") || function == nullptr) {
      return unreadable("Missing tool call function");
    }
    const Value* name = find(*function, "name");
    if (name == nullptr || !name->is(Kind::kString)) {
      return unreadable("Missing tool call name");
    }
    const Value* arguments = find(*function, "arguments");
    if (arguments == nullptr) {
      return unreadable("Missing tool call arguments");
    }
    ASSIGN_OR_RETURN(Value rewritten_arguments, arguments_for_template(*arguments));
    ASSIGN_OR_RETURN(Value rewritten_function,
                     object({{"name", *name}, {"arguments", std::move(rewritten_arguments)}}));
    Fields fields = {{"type", *type}, {"function", std::move(rewritten_function)}};
    if (const Value* id = find(call, "id"); id != nullptr) {
      if (!id->is(Kind::kString)) {
        return unreadable("the 'id' of a tool call must be a string");
      }
      fields.emplace_back("id", *id);
    }
    return object(std::move(fields));
  }

  /// Adds the key `name` of `message`, which must be a string, to `fields`; an empty one is as good as absent.
  static Status copy_text(const Value& message, std::string_view name, Fields& fields) {
    const Value* value = find(message, name);
    if (value == nullptr) {
      return {};
    }
    if (!value->is(Kind::kString)) {
      return unreadable(fmt::format("'{}' of a message must be a string", name));
    }
    if (!value->text().empty()) {
      fields.emplace_back(name, *value);
    }
    return {};
  }

  /// The gpt-oss family reads reasoning from `thinking`, and a call with reasoning has no content besides.
  static void move_reasoning_to_channel(Fields& fields) {
    const auto at = [&fields](std::string_view name) {
      return std::find_if(fields.begin(), fields.end(), [name](const auto& field) { return field.first == name; });
    };
    if (at("reasoning_content") == fields.end()) {
      return;
    }
    fields.emplace_back("thinking", at("reasoning_content")->second);
    if (at("tool_calls") != fields.end()) {
      fields.erase(at("content"));
    }
  }

  Result<Value> message(const Value& given) {
    const Value* role = find(given, "role");
    if (role == nullptr || !role->is(Kind::kString)) {
      return unreadable("a message needs a string 'role'");
    }
    Fields fields;
    fields.emplace_back("role", *role);
    if (!capabilities_.channels && is_text(role, "developer")) {
      ASSIGN_OR_RETURN(fields.back().second, text("system"));
    }
    ASSIGN_OR_RETURN(Value content, content_for_template(find(given, "content")));
    fields.emplace_back("content", std::move(content));
    TRY(copy_text(given, "reasoning_content", fields));
    const Value* calls = find(given, "tool_calls");
    if (calls != nullptr && !calls->is(Kind::kNone)) {
      if (!calls->is(Kind::kList)) {
        return unreadable("'tool_calls' must be an array");
      }
      std::vector<Value> rewritten;
      for (const Value& call : calls->items()) {
        ASSIGN_OR_RETURN(Value one, tool_call(call));
        rewritten.push_back(std::move(one));
      }
      if (!rewritten.empty()) {
        ASSIGN_OR_RETURN(Value list, runtime_.list(std::move(rewritten), true));
        fields.emplace_back("tool_calls", std::move(list));
      }
    }
    TRY(copy_text(given, "name", fields));
    TRY(copy_text(given, "tool_call_id", fields));
    if (capabilities_.channels) {
      move_reasoning_to_channel(fields);
    }
    return object(std::move(fields));
  }

  /// Puts the content of a leading system message in front of the next message's.
  Status fold_system(std::vector<Value>& messages) {
    if (capabilities_.system_role || messages.empty() || !is_text(find(messages[0], "role"), "system")) {
      return {};
    }
    const Value system_content = *find(messages[0], "content");
    messages.erase(messages.begin());
    if (messages.empty() || find(messages[0], "content") == nullptr) {
      return {};
    }
    const Value next = messages[0];
    const Value next_content = *find(next, "content");
    Value content;
    if (system_content.is(Kind::kString) && next_content.is(Kind::kString)) {
      ASSIGN_OR_RETURN(Text all, joined({system_content, next_content}, "\n"));
      ASSIGN_OR_RETURN(content, runtime_.string(std::move(all)));
    } else {  // parts on either side: all of them, in order
      std::vector<Value> parts;
      for (const Value& one : {system_content, next_content}) {
        if (one.is(Kind::kString)) {
          ASSIGN_OR_RETURN(Value type, text("text"));
          ASSIGN_OR_RETURN(Value part, object({{"type", std::move(type)}, {"text", one}}));
          parts.push_back(std::move(part));
        } else {
          parts.insert(parts.end(), one.items().begin(), one.items().end());
        }
      }
      ASSIGN_OR_RETURN(content, runtime_.list(std::move(parts), true));
    }
    std::vector<std::pair<Value, Value>> entries = next.dict().entries;
    for (auto& [key, value] : entries) {
      if (key.text().bytes() == "content") {
        value = content;
      }
    }
    ASSIGN_OR_RETURN(messages[0], runtime_.dict(std::move(entries), true));
    return {};
  }

  Result<Value> tool(const Value& given) {
    const Value* function = find(given, "function");
    if (!is_text(find(given, "type"), "function") || function == nullptr) {
      return unreadable("each of 'tools' needs the type \"function\" and a 'function'");
    }
    const Value* name = find(*function, "name");
    if (name == nullptr || !name->is(Kind::kString)) {
      return unreadable("each of 'tools' needs a function name");
    }
    ASSIGN_OR_RETURN(Value description, text(""));
    ASSIGN_OR_RETURN(Value parameters, object({}));
    if (const Value* found = find(*function, "description"); found != nullptr) {
      description = *found;
    }
    if (const Value* found = find(*function, "parameters"); found != nullptr) {
      parameters = *found;
    }
    ASSIGN_OR_RETURN(
        Value rewritten,
        object({{"name", *name}, {"description", std::move(description)}, {"parameters", std::move(parameters)}}));
    ASSIGN_OR_RETURN(Value type, text("function"));
    return object({{"type", std::move(type)}, {"function", std::move(rewritten)}});
  }

 private:
  Runtime& runtime_;
  const Capabilities& capabilities_;
};

bool flag(const Value& request, std::string_view name, bool otherwise) {
  const Value* value = find(request, name);
  return value != nullptr && value->is(Kind::kBool) ? value->as_bool() : otherwise;
}

/// Takes the last message off the request when the prompt is to end inside it.
Status take_continuation(Rewriter& rewriter, const Value& request, std::vector<Value>& given,
                         RewrittenRequest& rewritten) {
  const auto is_assistant = [&given](size_t from_end) {
    return given.size() >= from_end && is_text(find(given[given.size() - from_end], "role"), "assistant");
  };
  const Value* asked = find(request, "continue_final_message");
  const bool asked_for = asked != nullptr && (asked->is(Kind::kString) || (asked->is(Kind::kBool) && asked->as_bool()));
  if (asked_for && rewritten.add_generation_prompt) {
    return bad_request("Cannot set both add_generation_prompt and continue_final_message to true.");
  }
  if (given.empty() || (!asked_for && !is_assistant(1))) {
    return {};
  }
  if (!asked_for && is_assistant(2)) {
    return bad_request("Cannot have 2 or more assistant messages at the end of the list.");
  }
  const Value last = given.back();
  const Value* calls = find(last, "tool_calls");
  if (is_assistant(1) && calls != nullptr && calls->is(Kind::kList) && !calls->items().empty()) {
    return bad_request("Cannot continue an assistant message that contains tool calls.");
  }
  TRY(rewriter.message(last).status());  // for its errors
  given.pop_back();
  rewritten.continuation.wanted = true;
  rewritten.add_generation_prompt = false;
  if (const Value* reasoning = find(last, "reasoning_content"); reasoning != nullptr) {
    rewritten.continuation.reasoning = reasoning->text();
  }
  if (asked == nullptr || !is_text(asked, "reasoning_content")) {
    ASSIGN_OR_RETURN(const std::vector<Value> texts, rewriter.texts_of(find(last, "content")));
    ASSIGN_OR_RETURN(rewritten.continuation.content, rewriter.joined(texts, "\n\n"));
  }
  return {};
}

Result<Value> rewrite_tools(Runtime& runtime, Rewriter& rewriter, const Value& tools) {
  if (!tools.is(Kind::kList)) {
    return unreadable("'tools' must be an array");
  }
  std::vector<Value> rewritten;
  for (const Value& tool : tools.items()) {
    ASSIGN_OR_RETURN(Value one, rewriter.tool(tool));
    rewritten.push_back(std::move(one));
  }
  return runtime.list(std::move(rewritten), true);
}

/// enable_thinking, reasoning_effort and chat_template_kwargs; the last may hide any other variable.
Status add_switches(const Value& request, const Capabilities& capabilities, Variables& variables) {
  variables.emplace_back("enable_thinking", Value::boolean(flag(request, "enable_thinking", capabilities.reasoning)));
  if (const Value* effort = find(request, "reasoning_effort"); effort != nullptr && !effort->is(Kind::kNone)) {
    variables.emplace_back("reasoning_effort", *effort);
  }
  const Value* extra = find(request, "chat_template_kwargs");
  if (extra == nullptr || !extra->is(Kind::kDict)) {
    return {};
  }
  for (const auto& [key, value] : extra->dict().entries) {
    if (key.text().bytes() == "enable_thinking" && !value.is(Kind::kBool)) {
      return bad_request("invalid type for \"enable_thinking\" (expected boolean)");
    }
    variables.emplace_back(key.text().bytes(), value);
  }
  return {};
}

}  // namespace

Result<RewrittenRequest> rewrite_request(Runtime& runtime, std::string_view request_json,
                                         const Capabilities& capabilities) {
  ASSIGN_OR_RETURN(const Value request, parse_json(runtime, request_json, true));
  const Value* messages = find(request, "messages");
  if (messages == nullptr || !messages->is(Kind::kList)) {
    return bad_request(messages == nullptr ? "'messages' is required" : "Expected 'messages' to be an array");
  }
  std::vector<Value> given = messages->items();
  for (const Value& message : given) {
    TRY(check_message(message));
  }
  Rewriter rewriter(runtime, capabilities);
  RewrittenRequest rewritten;
  rewritten.add_generation_prompt = flag(request, "add_generation_prompt", true);
  TRY(take_continuation(rewriter, request, given, rewritten));
  std::vector<Value> converted;
  for (const Value& message : given) {
    ASSIGN_OR_RETURN(Value one, rewriter.message(message));
    converted.push_back(std::move(one));
  }
  TRY(rewriter.fold_system(converted));
  ASSIGN_OR_RETURN(Value list, runtime.list(std::move(converted), true));
  rewritten.variables.emplace_back("messages", std::move(list));
  if (const Value* tools = find(request, "tools"); tools != nullptr && !tools->is(Kind::kNone)) {
    ASSIGN_OR_RETURN(Value rewritten_tools, rewrite_tools(runtime, rewriter, *tools));
    if (is_true(rewritten_tools)) {
      rewritten.variables.emplace_back("tools", std::move(rewritten_tools));
    }
  }
  TRY(add_switches(request, capabilities, rewritten.variables));
  return rewritten;
}

}  // namespace tessera::jinja
