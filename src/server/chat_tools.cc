#include "server/chat_tools.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

namespace tessera {
namespace {

Status bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

bool all_strings(const Json& values) {
  return std::ranges::all_of(values, [](const Json& v) { return v.is_string(); });
}

// The schema of a tool that declares none: it takes no arguments.
constexpr std::string_view kNoParameters = R"({"type":"object","properties":{},"additionalProperties":false})";

Result<std::string> read_parameters(const Json& function, const std::string& label) {
  const auto found = function.find("parameters");
  if (found == function.end() || found->is_null()) {
    return std::string(kNoParameters);
  }
  if (!found->is_object()) {
    return bad(fmt::format("{} is {}; it must be a JSON schema, an object", label, json_kind(*found)));
  }
  Json schema = *found;
  const Json type = schema.value("type", Json());
  const Json object = "object";
  const bool joins = std::ranges::any_of(std::initializer_list<const char*>{"$ref", "allOf", "anyOf", "oneOf"},
                                         [&](const char* key) { return schema.contains(key); });
  if (type.is_null() && !joins) {
    schema["type"] = "object";
  } else if (!type.is_null() && type != object) {
    return bad(fmt::format("{}: \"type\" is {}; arguments are an object, so it must be \"object\"", label,
                           dump_json(type).substr(0, 40)));
  }
  // No property, and no word of others: no arguments.
  if (!joins && schema.contains("properties") && schema["properties"].empty() &&
      !schema.contains("additionalProperties")) {
    schema["additionalProperties"] = false;
  }
  return dump_json(schema);
}

Result<ToolSpec> read_tool(const Json& tool, const std::string& at, const ToolFields& names) {
  if (!tool.is_object()) {
    return bad(fmt::format("field \"{}\" is {}; it must be an object", at, json_kind(tool)));
  }
  const Json type = tool.value("type", Json("function"));
  if (type != "function") {
    return Status(ErrorCode::kUnsupported, fmt::format("field \"{}.type\" is {}; this server knows functions only", at,
                                                       dump_json(type).substr(0, 40)));
  }
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object()) {
    return bad(fmt::format("field \"{}.function\" is missing, or no object", at));
  }
  ToolSpec spec;
  spec.label = fmt::format("field \"{}.{}\"", at, names.parameters);
  const auto name = function->find("name");
  if (name == function->end() || !name->is_string() || !is_tool_name(name->get_ref<const std::string&>()) ||
      name->get_ref<const std::string&>().size() > 256) {
    return bad(fmt::format("field \"{}.{}\" must be a name of letters, digits and _ - . : /", at, names.name));
  }
  spec.name = name->get<std::string>();
  const Fields fields(*function, at + ".function");
  TRY(fields.read("strict", spec.strict));
  ASSIGN_OR_RETURN(spec.parameters, read_parameters(*function, spec.label));
  return spec;
}

struct ToolChoice {
  std::string mode = "auto";         // or "none", "required"
  std::optional<std::string> named;  // the one tool that must be called
  std::vector<std::string> allowed;  // those that may be; empty: all
};

// The name in {"type":"function","function":{"name":...}}, or, as /v1/responses has it, without the inner object.
Result<std::string> read_function_name(const Json& choice, const std::string& label) {
  const Fields fields(choice, label);
  std::string type;
  TRY(fields.read("type", type));
  if (type != "function") {
    return bad(fmt::format(R"({} is "{}"; it must be "function")", fields.label("type"), type.substr(0, 40)));
  }
  const Json* function = fields.find("function");
  if (function != nullptr && !function->is_object()) {
    return fields.wrong("function", *function, "an object");
  }
  std::string name;
  TRY(Fields(function != nullptr ? *function : choice, label).read("name", name));
  if (name.empty()) {
    return bad(fmt::format("field \"{}\" names no function", label));
  }
  return name;
}

// {"type":"allowed_tools","allowed_tools":{"mode":...,"tools":[...]}}, or without the inner object.
Result<ToolChoice> read_allowed(const Json& object) {
  std::string label = "tool_choice";
  const Json* allowed = &object;
  if (const Json* inner = Fields(object, label).find("allowed_tools")) {
    if (!inner->is_object()) {
      return Fields(object, label).wrong("allowed_tools", *inner, "an object");
    }
    allowed = inner;
    label += ".allowed_tools";
  }
  const Fields fields(*allowed, label);
  ToolChoice choice;
  TRY(fields.read("mode", choice.mode));
  if (choice.mode != "auto" && choice.mode != "required") {
    return bad(
        fmt::format(R"({} is "{}"; it must be "auto" or "required")", fields.label("mode"), choice.mode.substr(0, 40)));
  }
  const Json* tools = fields.find("tools");
  if (tools == nullptr || !tools->is_array() || tools->empty() || tools->size() > kToolsMax) {
    return fields.wrong("tools", tools != nullptr ? *tools : Json(), "an array with at least one tool");
  }
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string at = fmt::format("{}.tools[{}]", label, i);
    if (!(*tools)[i].is_object()) {
      return bad(
          fmt::format("field \"{}\" is {}; it must be an object that names a function", at, json_kind((*tools)[i])));
    }
    ASSIGN_OR_RETURN(std::string name, read_function_name((*tools)[i], at));
    choice.allowed.push_back(std::move(name));
  }
  return choice;
}

Result<ToolChoice> read_choice(const Fields& fields) {
  constexpr std::string_view kWanted =
      R"("auto", "none", "required" or an object that names a function, or those that are allowed)";
  ToolChoice choice;
  const Json* found = fields.find("tool_choice");
  if (found == nullptr) {
    return choice;
  }
  if (found->is_string()) {
    choice.mode = found->get<std::string>();
    return choice.mode == "auto" || choice.mode == "none" || choice.mode == "required"
               ? Result<ToolChoice>(choice)
               : fields.wrong("tool_choice", *found, kWanted);
  }
  if (!found->is_object()) {
    return fields.wrong("tool_choice", *found, kWanted);
  }
  if (const Json* type = Fields(*found).find("type"); type != nullptr && *type == "allowed_tools") {
    return read_allowed(*found);
  }
  ASSIGN_OR_RETURN(choice.named, read_function_name(*found, "tool_choice"));
  choice.mode = "required";
  return choice;
}
}  // namespace

Result<ToolRequest> read_tools(Json& body, const ToolFields& names) {
  const Fields fields(body);
  ToolRequest request;
  TRY(fields.read("parallel_tool_calls", request.parallel));
  ASSIGN_OR_RETURN(const ToolChoice choice, read_choice(fields));
  if (const Json* tools = fields.find("tools")) {
    if (!tools->is_array()) {
      return fields.wrong("tools", *tools, "an array");
    }
    if (tools->size() > kToolsMax) {
      return bad(fmt::format("field \"tools\" has {} tools; there may be {}", tools->size(), kToolsMax));
    }
    std::set<std::string> seen;
    for (size_t i = 0; i < tools->size(); ++i) {
      const std::string at = fmt::format("tools[{}]", i);
      ASSIGN_OR_RETURN(ToolSpec tool, read_tool((*tools)[i], at, names));
      if (!seen.insert(tool.name).second) {
        return bad(fmt::format("field \"{}.{}\": there is another tool \"{}\"", at, names.name, tool.name));
      }
      request.tools.push_back(std::move(tool));
    }
  }
  request.required = choice.mode == "required";
  if (request.required && request.tools.empty()) {
    return bad("field \"tool_choice\" asks for a call, but \"tools\" has no tool");
  }
  const std::vector<std::string> callable = choice.named ? std::vector{*choice.named} : choice.allowed;
  for (const std::string& name : callable) {
    if (std::ranges::find(request.tools, name, &ToolSpec::name) == request.tools.end()) {
      return bad(fmt::format("field \"tool_choice\" names \"{}\", which is none of \"tools\"", name.substr(0, 100)));
    }
  }
  if (!callable.empty()) {
    request.restricted = std::erase_if(request.tools, [&](const ToolSpec& tool) {
                           return std::ranges::find(callable, tool.name) == callable.end();
                         }) > 0;
  }
  request.parallel = request.parallel && !choice.named;
  if (choice.mode == "none") {
    request.tools.clear();
    body.erase("tools");
  }
  return request;
}

std::optional<ChatTools::Text> parameter_text(const Json& schema) {
  using Text = ChatTools::Text;
  if (!schema.is_object()) {
    return std::nullopt;
  }
  const bool has_values = schema.contains("enum") || schema.contains("const");
  const Json values = schema.contains("const")  ? Json::array({schema["const"]})
                      : schema.contains("enum") ? schema["enum"]
                                                : Json::array();
  const bool is_string =
      schema.contains("type") ? schema["type"] == "string" : has_values && values.is_array() && all_strings(values);
  if (!is_string) {
    return std::nullopt;
  }
  if (has_values) {
    const auto is_plain = [](const Json& v) {
      return v.is_string() && v.get_ref<const std::string&>().find_first_of("<\n") == std::string::npos;
    };
    return values.is_array() && std::ranges::all_of(values, is_plain) ? Text::kPlain : Text::kQuoted;
  }
  for (const char* limit : {"pattern", "format", "minLength", "maxLength", "$ref", "allOf", "anyOf", "oneOf", "not"}) {
    if (schema.contains(limit)) {
      return Text::kQuoted;
    }
  }
  return Text::kPlain;
}

std::shared_ptr<const ChatTools> chat_tools(const std::vector<ToolSpec>& tools) {
  auto result = std::make_shared<ChatTools>();
  for (const ToolSpec& tool : tools) {
    result->names.insert(tool.name);
    const auto schema = parse_json(tool.parameters);
    const Json properties = schema.ok() ? schema->value("properties", Json::object()) : Json::object();
    for (const auto& [name, parameter] : properties.items()) {
      if (const auto text = parameter_text(parameter)) {
        result->strings.emplace(std::pair(tool.name, name), *text);
      }
    }
  }
  return result;
}

void write_tools_into_messages(Json& body, const std::vector<ToolSpec>& tools) {
  std::string text = "Tools:\n";
  for (const Json& tool : body["tools"]) {
    const bool may_be_called = std::ranges::any_of(
        tools, [&](const ToolSpec& t) { return tool["function"]["name"].get_ref<const std::string&>() == t.name; });
    text += may_be_called ? dump_json(tool["function"]) + "\n" : "";
  }
  text += "To call one, answer with nothing but JSON: {\"name\": ..., \"arguments\": {...}}";
  body.erase("tools");
  auto messages = body.find("messages");
  if (messages == body.end() || !messages->is_array()) {
    return;  // the template says what is wrong
  }
  for (Json& message : *messages) {
    if (!message.is_object()) {
      continue;
    }
    if (message.contains("tool_calls") && message["tool_calls"].is_array()) {
      std::string written = message.value("content", Json()).is_string() ? message["content"].get<std::string>() : "";
      for (const Json& call : message["tool_calls"]) {
        Json function = call.is_object() ? call.value("function", Json::object()) : Json::object();
        function = function.is_object() ? function : Json::object();
        Json arguments = function.value("arguments", Json::object());
        if (arguments.is_string()) {
          const auto parsed = parse_json(arguments.get_ref<const std::string&>());
          arguments = parsed.ok() ? *parsed : arguments;
        }
        written += (written.empty() ? "" : "\n") +
                   dump_json({{"name", function.value("name", Json())}, {"arguments", std::move(arguments)}});
      }
      message["content"] = written;
      message.erase("tool_calls");
    } else if (message.value("role", Json()) == "tool") {
      message["role"] = "user";
      if (message.value("content", Json()).is_string()) {
        message["content"] = "Result of the tool:\n" + message["content"].get<std::string>();
      }
      message.erase("tool_call_id");
    }
  }
  const bool has_system = !messages->empty() && (*messages)[0].is_object() &&
                          (*messages)[0].value("role", Json()) == "system" &&
                          (*messages)[0].value("content", Json()).is_string();
  if (has_system) {
    (*messages)[0]["content"] = (*messages)[0]["content"].get<std::string>() + "\n\n" + text;
  } else {
    messages->insert(messages->begin(), Json{{"role", "system"}, {"content", text}});
  }
}

}  // namespace tessera
