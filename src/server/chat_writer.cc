#include "server/chat_writer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

// Parameters that a request's tools declare as strings.
StringParameters string_parameters(const Json& tools) {
  StringParameters result;
  for (const Json& tool : tools) {
    const Json* function = tool.is_object() && tool.contains("function") ? &tool["function"] : nullptr;
    if (function == nullptr || !function->is_object() || !function->contains("name") ||
        !(*function)["name"].is_string()) {
      continue;
    }
    const Json properties = function->value("/parameters/properties"_json_pointer, Json::object());
    for (const auto& [name, schema] : properties.items()) {
      if (schema.is_object() && schema.contains("type") && schema["type"] == "string") {
        result.emplace((*function)["name"].get<std::string>(), name);
      }
    }
  }
  return result;
}

// Takes tools out that may not be called. Result: whether calls are looked for.
Result<bool> read_tools(Json& body) {
  const Fields fields(body);
  const Json* choice = fields.find("tool_choice");
  std::string mode = "auto";
  if (choice != nullptr && choice->is_object()) {
    mode = "required";
  } else {
    TRY(fields.read("tool_choice", mode));
  }
  if (mode != "auto" && mode != "none" && mode != "required") {
    return fields.wrong("tool_choice", *choice, "\"auto\", \"none\", \"required\" or an object");
  }
  if (mode == "required") {
    return Status(ErrorCode::kUnsupported, fields.label("tool_choice") +
                                               ": this server cannot make a model call a tool; only \"auto\" and "
                                               "\"none\" work");
  }
  const Json* tools = fields.find("tools");
  const bool has_tools = tools != nullptr && tools->is_array() && !tools->empty() && mode == "auto";
  if (mode == "none") {
    body.erase("tools");
  }
  return has_tools;
}

}  // namespace

Result<ChatRequest> read_chat(const Call& call, Json body) {
  const Fields fields(body);
  ChatRequest request;
  ASSIGN_OR_RETURN(request.serving, read_generation(call, body));
  ASSIGN_OR_RETURN(request.has_tools, read_tools(body));
  bool parallel = true;
  TRY(fields.read("parallel_tool_calls", parallel));
  std::string reasoning = "auto";
  TRY(fields.read("reasoning_format", reasoning));
  ASSIGN_OR_RETURN(ChatPrompt prompt, render_chat(call, dump_json(body)));
  request.serving.prompt = std::move(prompt.tokens);
  request.serving.branches = chat_branches(call, body, request.serving.prompt);
  request.prompt = std::move(prompt.text);
  request.format = call.model->chat_format;
  if (reasoning == "none") {
    request.format.think_begin.clear();
    request.format.think_end.clear();
  }
  if (request.has_tools) {
    request.string_parameters = string_parameters(body["tools"]);
  }
  request.serving.show_special =
      request.format.marks_are_special && (request.has_tools || request.format.tools == ToolStyle::kHarmony);
  return request;
}

Result<ConvertedChat> read_converted(const Call& call, const Json& body, Result<Json> (*convert)(const Json& body)) {
  ConvertedChat chat;
  const Fields fields(body);
  std::string model;
  TRY(fields.read("stream", chat.streams));
  TRY(fields.read("model", model));
  ASSIGN_OR_RETURN(chat.ping, read_ping(call, body));
  ASSIGN_OR_RETURN(Json converted, convert(body));
  ASSIGN_OR_RETURN(chat.request, read_chat(call, std::move(converted)));
  return chat;
}

Result<std::string> content_text(const Json& content, const std::string& label) {
  if (content.is_string()) {
    return content.get<std::string>();
  }
  const auto wrong = [&](const Json& found, std::string_view wanted) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("field \"{}\" is or has {} where {} must be", label, json_kind(found), wanted));
  };
  if (!content.is_array()) {
    return wrong(content, "a string or an array of text parts");
  }
  std::string text;
  for (const Json& part : content) {
    if (!part.is_object()) {
      return wrong(part, "a text part");
    }
    const Fields fields(part, label);
    std::string type;
    std::string value;
    TRY(fields.read("type", type));
    if (!type.ends_with("text")) {  // text, input_text, output_text
      return Status(ErrorCode::kUnsupported,
                    fmt::format("{} is \"{}\"; this server reads text", fields.label("type"), type.substr(0, 40)));
    }
    TRY(fields.read("text", value));
    text += (text.empty() ? "" : "\n") + value;
  }
  return text;
}

ChatWriter::ChatWriter(const Call& call, bool streams, const ChatRequest& request, size_t n_choices)
    : ReplyWriter(call, streams),
      parsers_(n_choices, ChatParser(request.format, request.has_tools, request.prompt, request.string_parameters)),
      answers_(n_choices) {}

void ChatWriter::on_text(size_t choice, std::string_view text, std::span<const ServingToken> tokens,
                         const ServingTimings& timings) {
  (void)timings;
  add(choice, parsers_[choice].push(text), tokens);
}

void ChatWriter::on_end(size_t choice, const ServingEnd& end) {
  add(choice, parsers_[choice].finish(), textless_tokens(end));
  answers_[choice].end = end;
  on_answer(choice);
}

void ChatWriter::add(size_t choice, std::vector<ChatPiece> pieces, std::span<const ServingToken> tokens) {
  ChatAnswer& answer = answers_[choice];
  for (const ChatPiece& piece : pieces) {
    switch (piece.kind) {
      case ChatPiece::Kind::kReasoning: answer.reasoning += piece.text; break;
      case ChatPiece::Kind::kContent: answer.content += piece.text; break;
      case ChatPiece::Kind::kToolCall: answer.calls.push_back(piece); break;
    }
  }
  if (streams()) {
    on_pieces(choice, pieces, tokens);
  } else {
    answer.tokens.insert(answer.tokens.end(), tokens.begin(), tokens.end());
  }
}

}  // namespace tessera
