// Anthropic's /v1/messages, by way of OpenAI's form, which chat templates know.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/chat_writer.h"

namespace tessera {
namespace {

Status bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

// One message becomes several: results of tools are messages of their own, before what else the user says.
class MessageReader {
 public:
  MessageReader(const Json& message, std::string label) : message_(message), label_(std::move(label)) {}

  Status read(Json& messages) {
    if (!message_.is_object()) {
      return bad(fmt::format("field \"{}\" is {}; it must be an object", label_, json_kind(message_)));
    }
    const Fields fields(message_, label_);
    std::string role;
    TRY(fields.read("role", role));
    if (role != "user" && role != "assistant" && role != "system") {
      return bad(fmt::format("{} must be \"user\" or \"assistant\"", fields.label("role")));
    }
    const Json* content = fields.find("content");
    if (content == nullptr || (!content->is_string() && !content->is_array())) {
      return bad(fmt::format("{} must be a string or an array of blocks", fields.label("content")));
    }
    out_ = {{"role", role}};
    if (content->is_string()) {
      text_ = content->get<std::string>();
    } else {
      for (const Json& block : *content) {
        TRY(read_block(block, messages));
      }
    }
    const bool has_more = out_.contains("tool_calls") || out_.contains("reasoning_content");
    if (!text_.empty() || has_more || !had_result_) {
      out_["content"] = text_;
      messages.push_back(std::move(out_));
    }
    return {};
  }

 private:
  Status read_block(const Json& block, Json& messages) {
    if (!block.is_object()) {
      return bad(fmt::format("field \"{}.content\" has {} where a block must be", label_, json_kind(block)));
    }
    const Fields fields(block, label_ + ".content");
    std::string type;
    TRY(fields.read("type", type));
    std::string value;
    if (type == "text") {
      TRY(fields.read("text", value));
      text_ += (text_.empty() ? "" : "\n") + value;
    } else if (type == "thinking") {
      TRY(fields.read("thinking", value));
      out_["reasoning_content"] = out_.value("reasoning_content", "") + value;
    } else if (type == "redacted_thinking") {
      return {};
    } else if (type == "tool_use") {
      std::string name;
      TRY(fields.read("id", value));
      TRY(fields.read("name", name));
      const Json* input = fields.find("input");
      out_["tool_calls"].push_back(
          {{"id", value},
           {"type", "function"},
           {"function", {{"name", name}, {"arguments", input == nullptr ? "{}" : dump_json(*input)}}}});
    } else if (type == "tool_result") {
      TRY(fields.read("tool_use_id", value));
      const Json* content = fields.find("content");
      std::string result;
      if (content != nullptr) {
        ASSIGN_OR_RETURN(result, content_text(*content, label_ + ".content.content"));
      }
      messages.push_back({{"role", "tool"}, {"tool_call_id", value}, {"content", result}});
      had_result_ = true;
    } else {
      return {ErrorCode::kUnsupported, fmt::format("{} is \"{}\"; this server reads text, thinking and tools",
                                                   fields.label("type"), type.substr(0, 40))};
    }
    return {};
  }

  const Json& message_;
  std::string label_;
  Json out_;
  std::string text_;
  bool had_result_ = false;
};

const ToolFields kToolFields = {.name = "name", .parameters = "input_schema"};

Status convert_tools(const Fields& fields, Json& out) {
  if (const Json* tools = fields.find("tools")) {
    if (!tools->is_array()) {
      return fields.wrong("tools", *tools, "an array");
    }
    out["tools"] = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      const Json& tool = (*tools)[i];
      if (!tool.is_object()) {
        return bad(fmt::format("field \"tools[{}]\" is {}; it must be an object", i, json_kind(tool)));
      }
      std::string type = "custom";
      TRY(Fields(tool, fmt::format("tools[{}]", i)).read("type", type));
      if (type != "custom") {
        return {ErrorCode::kUnsupported,
                fmt::format("field \"tools[{}].type\" is \"{}\"; this server runs no tools of its own", i,
                            type.substr(0, 40))};
      }
      Json function = Json::object();
      for (const auto& [from, to] : {std::pair("name", "name"), std::pair("description", "description"),
                                     std::pair("strict", "strict"), std::pair("input_schema", "parameters")}) {
        if (tool.contains(from)) {
          function[to] = tool[from];
        }
      }
      out["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) {
    return {};
  }
  if (!choice->is_object()) {
    return fields.wrong("tool_choice", *choice, "an object");
  }
  const Fields inner(*choice, "tool_choice");
  std::string type;
  std::string name;
  bool is_single = false;
  TRY(inner.read("type", type));
  TRY(inner.read("name", name));
  TRY(inner.read("disable_parallel_tool_use", is_single));
  if (type == "tool") {
    out["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
  } else if (type == "auto" || type == "none" || type == "any") {
    out["tool_choice"] = type == "any" ? "required" : type;
  } else {
    return bad(fmt::format(R"({} is "{}"; it must be "auto", "any", "tool" or "none")", inner.label("type"),
                           type.substr(0, 40)));
  }
  if (is_single) {
    out["parallel_tool_calls"] = false;
  }
  return {};
}

// {"type": "enabled", "budget_tokens": N}, "disabled", or "adaptive": as long as the model thinks fit.
Status convert_thinking(const Fields& fields, Json& out) {
  const Json* thinking = fields.find("thinking");
  if (thinking == nullptr) {
    return {};
  }
  if (!thinking->is_object()) {
    return fields.wrong("thinking", *thinking, "an object");
  }
  const Fields inner(*thinking, "thinking");
  std::string type;
  TRY(inner.read("type", type));
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    return bad(fmt::format(R"({} is "{}"; it must be "enabled", "disabled" or "adaptive")", inner.label("type"),
                           type.substr(0, 40)));
  }
  int64_t budget = type == "disabled" ? 0 : -1;
  if (type == "enabled") {
    TRY(inner.read("budget_tokens", budget, 1, 1'000'000'000));
  }
  out["enable_thinking"] = type != "disabled";
  if (budget >= 0) {
    out["reasoning_budget"] = budget;
  }
  return {};
}

Result<Json> to_openai(const Json& body) {
  const Fields fields(body);
  Json out = Json::object();
  for (const char* same : {"temperature", "top_k", "top_p", "min_p", "seed", "max_tokens", "cache_prompt", "id_slot",
                           "chat_template_kwargs", "enable_thinking", "reasoning_format", "reasoning_budget",
                           "logit_bias", "samplers", "priority"}) {
    if (body.contains(same)) {
      out[same] = body[same];
    }
  }
  if (body.contains("stop_sequences")) {
    out["stop"] = body["stop_sequences"];
  }
  TRY(convert_thinking(fields, out));
  if (const Json* config = fields.find("output_config")) {
    if (!config->is_object()) {
      return fields.wrong("output_config", *config, "an object");
    }
    if (const Json* format = Fields(*config, "output_config").find("format")) {
      out["response_format"] = *format;
    }
    if (config->contains("effort")) {
      out["reasoning_effort"] = (*config)["effort"];
    }
  }
  TRY(convert_tools(fields, out));
  Json messages = Json::array();
  if (const Json* system = fields.find("system")) {
    ASSIGN_OR_RETURN(const std::string text, content_text(*system, "system"));
    messages.push_back({{"role", "system"}, {"content", text}});
  }
  const Json* given = fields.find("messages");
  if (given == nullptr || !given->is_array() || given->empty()) {
    return given == nullptr ? bad("field \"messages\" is missing")
                            : fields.wrong("messages", *given, "an array with at least one message");
  }
  for (size_t i = 0; i < given->size(); ++i) {
    TRY(MessageReader((*given)[i], fmt::format("messages[{}]", i)).read(messages));
  }
  out["messages"] = std::move(messages);
  return out;
}

class MessagesWriter final : public ChatWriter {
 public:
  MessagesWriter(Call& call, bool streams, std::chrono::seconds ping, const ChatRequest& request)
      : ChatWriter(call, streams, request, 1),
        ping_(ping),
        id_(call.server.new_id("msg_")),
        model_(call.model->name),
        n_prompt_(static_cast<int64_t>(request.serving.prompt.size())) {}

  void begin() override {
    if (!streams()) {
      return;
    }
    exchange().begin_events(ping_);
    Json message = message_json(Json::array(), nullptr, nullptr);
    message["usage"] = {{"input_tokens", n_prompt_}, {"output_tokens", 0}};
    send_event({{"type", "message_start"}, {"message", std::move(message)}});
  }

  void finish() override {
    const ServingEnd& end = answer(0).end;
    const Json word = end.stop == StopReason::kWord ? Json(end.stop_word) : Json();
    const Json usage = {{"input_tokens", end.n_prompt - end.timings.cached_n},
                        {"cache_creation_input_tokens", 0},
                        {"cache_read_input_tokens", end.timings.cached_n},
                        {"output_tokens", end.timings.predicted_n}};
    if (!streams()) {
      Json message = message_json(content_json(), stop_reason(), word);
      message["usage"] = usage;
      reply(message);
      return;
    }
    close_block();
    send_event({{"type", "message_delta"},
                {"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", word}}},
                {"usage", usage}});
    send_event({{"type", "message_stop"}});
    exchange().end_events();
  }

 protected:
  void on_pieces(size_t /*choice*/, std::span<const ChatPiece> pieces,
                 std::span<const ServingToken> /*tokens*/) override {
    for (const ChatPiece& piece : pieces) {
      switch (piece.kind) {
        case ChatPiece::Kind::kReasoning:
          open_block("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
          send_delta({{"type", "thinking_delta"}, {"thinking", piece.text}});
          break;
        case ChatPiece::Kind::kContent:
          open_block("text", {{"type", "text"}, {"text", ""}});
          send_delta({{"type", "text_delta"}, {"text", piece.text}});
          break;
        case ChatPiece::Kind::kCall:
          close_block();
          open_block("tool_use",
                     {{"type", "tool_use"}, {"id", call_id()}, {"name", piece.text}, {"input", Json::object()}});
          break;
        case ChatPiece::Kind::kArguments:
          send_delta({{"type", "input_json_delta"}, {"partial_json", piece.text}});
          break;
        case ChatPiece::Kind::kCallEnd: close_block(); break;
      }
    }
  }

 private:
  void send_event(const Json& json) { send(json, json["type"].get<std::string>()); }

  void open_block(std::string_view kind, const Json& block) {
    if (kind == open_) {
      return;
    }
    close_block();
    open_ = kind;
    send_event({{"type", "content_block_start"}, {"index", n_blocks_}, {"content_block", block}});
  }
  void send_delta(const Json& delta) {
    send_event({{"type", "content_block_delta"}, {"index", n_blocks_}, {"delta", delta}});
  }
  void close_block() {
    if (!open_.empty()) {
      send_event({{"type", "content_block_stop"}, {"index", n_blocks_++}});
      open_.clear();
    }
  }

  std::string call_id() { return fmt::format("toolu_{}_{}", id_.substr(4), n_calls_++); }

  [[nodiscard]] std::string_view stop_reason() const {
    const StopReason stop = answer(0).end.stop;
    if (finish_reason(stop) == "length") {
      return stop == StopReason::kContextFull ? "model_context_window_exceeded" : "max_tokens";
    }
    return !answer(0).whole_calls().empty() ? "tool_use" : stop == StopReason::kWord ? "stop_sequence" : "end_turn";
  }

  [[nodiscard]] Json message_json(Json content, const Json& reason, const Json& word) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_},
            {"content", std::move(content)},
            {"stop_reason", reason},
            {"stop_sequence", word}};
  }

  Json content_json() {
    const ChatAnswer& a = answer(0);
    Json content = Json::array();
    if (!a.reasoning.empty()) {
      content.push_back({{"type", "thinking"}, {"thinking", a.reasoning}, {"signature", ""}});
    }
    if (!a.content.empty()) {
      content.push_back({{"type", "text"}, {"text", a.content}});
    }
    for (const ChatCall& call : a.whole_calls()) {
      const auto input = parse_json(call.arguments);
      content.push_back({{"type", "tool_use"},
                         {"id", call_id()},
                         {"name", call.name},
                         {"input", input.ok() ? *input : Json::object()}});
    }
    return content;
  }

  std::chrono::seconds ping_;
  std::string id_;
  std::string model_;
  int64_t n_prompt_;
  std::string open_;  // kind of the block that is being sent
  int64_t n_blocks_ = 0;
  int64_t n_calls_ = 0;
};

}  // namespace

Status api_messages(Call& call) {
  ASSIGN_OR_RETURN(const Json body, call.take_body());
  ASSIGN_OR_RETURN(ConvertedChat chat, read_converted(call, body, to_openai, kToolFields));
  auto writer = std::make_shared<MessagesWriter>(call, chat.streams, chat.ping, chat.request);
  return start_generation(call, with_choices(std::move(chat.request.serving), 1), std::move(writer));
}

Status api_count_tokens(Call& call) {
  ASSIGN_OR_RETURN(const Json body, call.take_body());
  ASSIGN_OR_RETURN(Json converted, to_openai(body));
  TRY(prepare_chat(call, converted, kToolFields).status());
  ASSIGN_OR_RETURN(const ChatPrompt prompt, render_chat(call, dump_json(converted)));
  call.reply_json({{"input_tokens", prompt.tokens.size()}});
  return {};
}

}  // namespace tessera
