#include "server/chat_messages.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

constexpr std::string_view kContent = "a string or an array of text parts";

Status missing(const std::string& label, std::string_view wanted) {
  return {ErrorCode::kInvalidArgument, fmt::format("{} is missing; it must be {}", label, wanted)};
}

Status not_object(const std::string& label, const Json& found, std::string_view wanted) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("field \"{}\" is {}; it must be an object with {}", label, json_kind(found), wanted)};
}

Status check_part(const Json& part, const std::string& label) {
  if (!part.is_object()) {
    return not_object(label, part, R"("type" and "text")");
  }
  const Fields fields(part, label);
  std::string type;
  std::string text;
  TRY(fields.read("type", type));
  if (type.empty()) {
    return missing(fields.label("type"), "\"text\"");
  }
  if (type != "text") {
    return {ErrorCode::kUnsupported,
            fmt::format("{} is \"{}\"; this server reads text", fields.label("type"), type.substr(0, 40))};
  }
  return fields.has("text") ? fields.read("text", text) : missing(fields.label("text"), "a string");
}

Status check_content(const Fields& fields, const std::string& label) {
  const Json* content = fields.find("content");
  if (content == nullptr || content->is_string()) {
    return {};
  }
  if (!content->is_array()) {
    return fields.wrong("content", *content, kContent);
  }
  for (size_t i = 0; i < content->size(); ++i) {
    TRY(check_part((*content)[i], fmt::format("{}.content[{}]", label, i)));
  }
  return {};
}

Status check_message(const Json& message, const std::string& label) {
  if (!message.is_object()) {
    return not_object(label, message, R"("role" and "content")");
  }
  const Fields fields(message, label);
  std::string role;
  TRY(fields.read("role", role));
  if (role.empty()) {
    return missing(fields.label("role"), R"("system", "user", "assistant" or "tool")");
  }
  if (fields.has("function_call")) {
    return {ErrorCode::kUnsupported,
            fmt::format("{}: this server does not know the older form of tool calls; use \"tool_calls\"",
                        fields.label("function_call"))};
  }
  const bool is_assistant = role == "assistant";
  if (!message.contains("content") && !(is_assistant && message.contains("tool_calls"))) {
    return missing(fields.label("content"),
                   fmt::format("{}{}", kContent, is_assistant ? ", unless there are \"tool_calls\"" : ""));
  }
  return check_content(fields, label);
}

}  // namespace

Status check_messages(const Fields& body) {
  const Json* messages = body.find("messages");
  if (messages == nullptr) {
    return missing(body.label("messages"), "an array of messages");
  }
  if (!messages->is_array()) {
    return body.wrong("messages", *messages, "an array of messages");
  }
  if (messages->empty()) {
    return {ErrorCode::kInvalidArgument, body.label("messages") + " is empty; it needs at least one message"};
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    TRY(check_message((*messages)[i], fmt::format("messages[{}]", i)));
  }
  return {};
}

}  // namespace tessera
